//! The applications that pages of the manual pass requests to: servers for FastCGI, SCGI and uwsgi that
//! answer as the scripts on the pages do, and a memcached. Each connection has a thread.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use clearway_testkit::site::services::serve;

/// Ports of applications on pages, and how each is started.
const APPLICATIONS: [(u16, fn() -> u16); 4] = [
    (9000, || serve(|stream| answer(stream, fastcgi))),
    (9001, || serve(|stream| answer(stream, scgi))),
    (9002, || serve(|stream| answer(stream, uwsgi))),
    (11211, || {
        let values = Arc::<Values>::default();
        serve(move |stream| {
            // A client that leaves ends its connection.
            let _ = memcached(&stream, &values);
        })
    }),
];

/// The applications that the configurations of a page name, which run on ports that are free.
#[derive(Default)]
pub(crate) struct Applications {
    ports: HashMap<u16, u16>,
}

impl Applications {
    /// A configuration with the ports of running applications in place of their keys.
    pub(crate) fn with_ports(&mut self, config: &str) -> String {
        let named = |(port, _): &&(u16, fn() -> u16)| config.contains(&format!("%%PORT{port}%%"));
        APPLICATIONS.iter().filter(named).fold(config.to_owned(), |config, (port, start)| {
            let own = self.ports.entry(*port).or_insert_with(start);
            config.replace(&format!("%%PORT{port}%%"), &own.to_string())
        })
    }
}

/// The parameters of a request.
type Params = HashMap<String, String>;

/// Answers one request, whose protocol `serve` speaks.
fn answer(mut stream: TcpStream, serve: fn(&mut TcpStream) -> Option<()>) {
    // A client that leaves gets no answer.
    let _ = serve(&mut stream);
}

/// What the scripts on the pages answer: the method of a request, its URI and its script.
fn script(params: &Params) -> String {
    let of = |name: &str| params.get(name).map_or("", String::as_str);
    let script = params.get("SCRIPT_FILENAME").map(|script| format!(" by {script}")).unwrap_or_default();
    let said = format!("{} {}{script}\n", of("REQUEST_METHOD"), of("REQUEST_URI"));
    format!("Content-Type: text/plain\r\n\r\n{said}")
}

fn exactly(stream: &mut TcpStream, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Takes names and values off `bytes`, each of which has its length in front as `length` reads it.
fn pairs(mut bytes: &[u8], length: fn(&mut &[u8]) -> Option<usize>, lengths: Lengths) -> Option<Params> {
    let mut params = Params::new();
    while !bytes.is_empty() {
        let name_length = length(&mut bytes)?;
        let mut value_length = match lengths {
            Lengths::InFront => length(&mut bytes)?,
            Lengths::Each => 0,
        };
        let name = text(bytes.split_off(..name_length)?);
        if lengths == Lengths::Each {
            value_length = length(&mut bytes)?;
        }
        params.insert(name, text(bytes.split_off(..value_length)?));
    }
    Some(params)
}

/// Where the length of a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    /// Behind that of the name.
    InFront,
    /// Behind the name.
    Each,
}

fn fastcgi(stream: &mut TcpStream) -> Option<()> {
    const PARAMS: u8 = 4;
    const STDIN: u8 = 5;
    let mut params = Vec::new();
    loop {
        let header = exactly(stream, 8)?;
        let content = exactly(stream, usize::from(u16::from_be_bytes([header[4], header[5]])))?;
        exactly(stream, usize::from(header[6]))?;
        match header[1] {
            PARAMS => params.extend_from_slice(&content),
            STDIN if content.is_empty() => break,
            _ => {}
        }
    }
    let length = |bytes: &mut &[u8]| match bytes.first()? {
        0..=127 => bytes.split_off_first().map(|&length| usize::from(length)),
        _ => {
            let length = bytes.split_off(..4)?.first_chunk().map(|&length| u32::from_be_bytes(length))?;
            Some((length & 0x7fff_ffff) as usize)
        }
    };
    let said = script(&pairs(&params, length, Lengths::InFront)?);
    let record = |kind, content: &[u8]| {
        let [high, low] = (content.len() as u16).to_be_bytes();
        [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
    };
    let records = [record(6, said.as_bytes()), record(6, b""), record(3, &[0; 8])];
    stream.write_all(&records.concat()).ok()
}

fn scgi(stream: &mut TcpStream) -> Option<()> {
    let mut length = Vec::new();
    while length.last() != Some(&b':') {
        length.extend(exactly(stream, 1)?);
    }
    let length: usize = text(&length[..length.len() - 1]).parse().ok()?;
    let netstring = exactly(stream, length + 1)?;
    let texts: Vec<String> = netstring.split(|&byte| byte == 0).map(text).collect();
    let (texts, _) = texts.as_chunks::<2>();
    let params = texts.iter().map(|[name, value]| (name.clone(), value.clone())).collect();
    stream.write_all(script(&params).as_bytes()).ok()
}

fn uwsgi(stream: &mut TcpStream) -> Option<()> {
    let header = exactly(stream, 4)?;
    let params = exactly(stream, usize::from(u16::from_le_bytes([header[1], header[2]])))?;
    let length = |bytes: &mut &[u8]| {
        bytes.split_off(..2)?.first_chunk().map(|&length| usize::from(u16::from_le_bytes(length)))
    };
    stream.write_all(script(&pairs(&params, length, Lengths::Each)?).as_bytes()).ok()
}

/// The values of a memcached.
type Values = Mutex<HashMap<String, Vec<u8>>>;

/// Takes the commands of a connection until its client leaves.
fn memcached(stream: &TcpStream, values: &Values) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut values = values.lock().expect("no thread has failed");
        let said = match words[..] {
            ["set", key, _, _, length] => {
                let mut value = vec![0; length.parse::<usize>().ok()? + 2];
                reader.read_exact(&mut value).ok()?;
                value.truncate(value.len() - 2);
                values.insert(key.to_owned(), value);
                b"STORED\r\n".to_vec()
            }
            ["get", key] => match values.get(key) {
                Some(value) => {
                    let head = format!("VALUE {key} 0 {}\r\n", value.len());
                    [head.as_bytes(), value, b"\r\nEND\r\n"].concat()
                }
                None => b"END\r\n".to_vec(),
            },
            ["incr", key, by] => match values.get_mut(key) {
                Some(value) => {
                    let sum = text(value).parse::<u64>().ok()? + by.parse::<u64>().ok()?;
                    *value = sum.to_string().into_bytes();
                    format!("{sum}\r\n").into_bytes()
                }
                None => b"NOT_FOUND\r\n".to_vec(),
            },
            _ => b"ERROR\r\n".to_vec(),
        };
        (&mut &*stream).write_all(&said).ok()?;
        line.clear();
    }
    Some(())
}
