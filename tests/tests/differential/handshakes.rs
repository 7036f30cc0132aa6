//! Handshakes that fail: what nginx's log says of them, at which level, is what Clearway's says
//! (`handshakes.cases` explains the form). Clients are bytes, so that they can do what no library does.
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::recorded::difference;
use clearway_testkit::{Binary, OracleSource, Server, Setup, wait_until};

const HTTP: &str = "
    ssl_certificate ecdsa.pem;
    ssl_certificate_key ecdsa.key;
    ssl_ecdh_curve X25519:prime256v1;
    server { listen 127.0.0.1:%%PORT%% ssl; return 200; }
    server { listen 127.0.0.1:%%PORT2%% ssl; ssl_protocols TLSv1.2; return 200; }
    server { listen 127.0.0.1:%%PORT3%% ssl; ssl_protocols TLSv1.3; return 200; }
    server { listen 127.0.0.1:%%PORT4%% ssl; ssl_reject_handshake on; }
    server {
        listen 127.0.0.1:%%PORT5%% ssl;
        ssl_certificate rsa.pem;
        ssl_certificate_key rsa.key;
        ssl_ciphers ALL;
        return 200;
    }";

/// Servers as cases name them.
const SERVERS: [(&str, &str); 5] =
    [("both", "PORT"), ("12", "PORT2"), ("13", "PORT3"), ("rejecting", "PORT4"), ("rsa", "PORT5")];

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../../../crates/tls/tests/data/", $name))[..]
    };
}

struct Case {
    name: &'static str,
    steps: Vec<&'static str>,
    /// nginx is not followed: why, and what is logged instead.
    unlike: Option<(&'static str, &'static str)>,
}

#[test]
fn the_log_tells_why() {
    let (mut servers, mut failures, mut unlike) = (BTreeMap::new(), Vec::new(), 0);
    let cases: Vec<Case> = include_str!("handshakes.cases").split("\n=== ").skip(1).map(case).collect();
    for case in &cases {
        if let Some((reason, line)) = case.unlike {
            unlike += 1;
            if OracleSource::chosen() != OracleSource::Record && Binary::under_test().is_clearway() {
                let got = case.run(server(&mut servers, &Binary::under_test()));
                if got != line {
                    failures.push(format!("--- {}\n{reason}:\n{line}\ngot\n{got}\n", case.name));
                }
            }
            continue;
        }
        let question = format!("{}\n{HTTP}\n{}", case.name, case.steps.join("\n"));
        // A case is a connection, and a server has time for all of them.
        let servers = std::cell::RefCell::new(&mut servers);
        let answer = |binary: &Binary| case.run(server(&mut servers.borrow_mut(), binary));
        failures.extend(difference(&question, answer).map(|why| format!("--- {}\n{why}", case.name)));
    }
    let count = failures.len();
    assert!(failures.is_empty(), "{count} of {} differ\n{}", cases.len(), failures.join("\n"));
    assert!(cases.len() > 8 * unlike, "{unlike} of {} are not compared", cases.len());
}

fn server<'a>(servers: &'a mut BTreeMap<bool, Server>, binary: &Binary) -> &'a Server {
    servers.entry(binary.is_clearway()).or_insert_with(|| {
        let setup = Setup::http(binary.clone(), HTTP);
        let setup = setup.file("ecdsa.pem", data!("ecdsa.pem")).file("ecdsa.key", data!("ecdsa.key"));
        setup.file("rsa.pem", data!("rsa.pem")).file("rsa.key", data!("rsa.key")).start()
    })
}

fn case(text: &'static str) -> Case {
    let (name, rest) = text.split_once('\n').expect("a case has steps");
    let (steps, unlike) = match rest.split_once("\n--- unlike nginx: ") {
        Some((steps, unlike)) => (steps, Some(unlike.trim_end().split_once('\n').expect("a reason, a line"))),
        None => (rest, None),
    };
    Case { name, steps: steps.trim_end().lines().collect(), unlike }
}

impl Case {
    /// Plays it and waits for what is logged.
    fn run(&self, server: &Server) -> String {
        let kind = self.name.split_once(':').expect("a case begins with its server").0;
        let found = SERVERS.iter().find(|row| row.0 == kind);
        let port = server.port_of(found.unwrap_or_else(|| panic!("{kind} is no server")).1);
        let known = server.error_log().len();
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        for step in &self.steps {
            // A server that has seen enough closes.
            if play(step, &mut socket).is_err() {
                break;
            }
        }
        // What was sent is looked at before the end is; the server may have closed already.
        drop(socket.shutdown(Shutdown::Write));
        drop(socket.read_to_end(&mut Vec::new()));
        let lines = || {
            let log = server.error_log();
            log[known..].lines().filter_map(told).collect::<Vec<String>>()
        };
        wait_until(Duration::from_secs(3), || !lines().is_empty());
        lines().join("\n")
    }
}

/// A line of a connection, without time, numbers and the parties' names.
fn told(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(" [")?;
    let (level, rest) = rest.split_once("] ")?;
    let (_, rest) = rest.split_once(": *")?;
    let (_, message) = rest.split_once(' ')?;
    let (message, _) = message.split_once(", client: ")?;
    // Connections that only ask whether the server is there.
    if message.starts_with("client closed connection") {
        return None;
    }
    Some(format!("[{level}] {}", of_tls_alone(message)))
}

/// Without what OpenSSL says of parts that TLS stands on: those differ by version and build.
fn of_tls_alone(message: &str) -> String {
    let mut out = message.to_owned();
    for library in ["Provider routines", "elliptic curve routines"] {
        if let Some(at) = out.find(&format!(":{library}:")) {
            let start = out[..at].rfind(" error:").expect("an error has a number");
            let end = out[at..].find(" error:").map_or(out.len(), |end| at + end);
            out.replace_range(start..end, "");
        }
    }
    out
}

fn play(step: &str, socket: &mut TcpStream) -> std::io::Result<()> {
    let mut words = step.split(' ');
    match words.next().expect("split has a first part") {
        "send" => socket.write_all(&bytes(words.next().expect("bytes"))),
        "record" => {
            let kind = words.next().and_then(|kind| kind.parse().ok()).expect("a kind");
            socket.write_all(&record(kind, [3, 3], &bytes(words.next().expect("bytes"))))
        }
        "hello12" => socket.write_all(&hello(Hello::new(), words)),
        "hello13" => socket.write_all(&hello(Hello::new().of_13(), words)),
        "wait" => {
            let count = socket.read(&mut [0; 16_384])?;
            if count == 0 { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
        }
        _ => panic!("{step}: no such step"),
    }
}

/// `BYTES,BYTE*COUNT`, hexadecimal, or `-`.
fn bytes(text: &str) -> Vec<u8> {
    let hex = |text: &str| -> Vec<u8> {
        let digits: Vec<u8> =
            text.chars().map(|c| c.to_digit(16).expect("a digit").try_into().expect("small")).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    };
    let parts = text.split(',').filter(|part| *part != "-");
    parts
        .flat_map(|part| match part.split_once('*') {
            Some((byte, count)) => hex(byte).repeat(count.parse().expect("a number")),
            None => hex(part),
        })
        .collect()
}

fn record(kind: u8, version: [u8; 2], content: &[u8]) -> Vec<u8> {
    [&[kind], &version[..], &prefixed(content)].concat()
}

/// Bytes behind their number, which has two bytes.
fn prefixed(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("it fits");
    [&length.to_be_bytes()[..], content].concat()
}

/// The parts of a ClientHello.
struct Hello {
    parts: BTreeMap<&'static str, Vec<u8>>,
    extensions: Vec<(u16, Vec<u8>)>,
    length: Option<Vec<u8>>,
}

impl Hello {
    fn new() -> Self {
        let part = |name, text| (name, bytes(text));
        let parts = [
            part("record", "0301"),
            part("version", "0303"),
            part("session", "22*32"),
            part("suites", "c02bc02f009c"),
            part("compression", "00"),
            part("tail", "-"),
            part("behind", "-"),
            part("extra", "-"),
        ];
        let extensions = [(0, "000400000161"), (10, "0004001d0017"), (11, "0100"), (13, "0006040308040401")];
        Self {
            parts: parts.into(),
            extensions: extensions.map(|(kind, text)| (kind, bytes(text))).into(),
            length: None,
        }
    }

    fn of_13(mut self) -> Self {
        self.parts.insert("suites", bytes("1301c02bc02f009c"));
        self.extensions.push((43, bytes("0403040303")));
        self.extensions.push((51, bytes("0024001d002009,00*31")));
        self
    }

    fn change(&mut self, change: &str) {
        if let Some(number) = change.strip_prefix('-') {
            let number = number.parse().expect("a number");
            return self.extensions.retain(|(kind, _)| *kind != number);
        }
        let (name, value) = change.split_once('=').expect("a change has a value");
        let value = bytes(value);
        if let Some(number) = name.strip_prefix('+') {
            return self.extensions.push((number.parse().expect("a number"), value));
        }
        if let Ok(number) = name.parse() {
            self.extensions.retain(|(kind, _)| *kind != number);
            return self.extensions.push((number, value));
        }
        match self.parts.get_mut(name) {
            Some(part) => *part = value,
            None if name == "length" => self.length = Some(value),
            None => panic!("{name}: no such part"),
        }
    }

    fn message(&self) -> Vec<u8> {
        let short = |part: &[u8]| [&[u8::try_from(part.len()).expect("it fits")], part].concat();
        let listed = self.extensions.iter();
        let mut extensions: Vec<u8> = listed
            .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &prefixed(content)].concat())
            .collect();
        extensions.extend(&self.parts["tail"]);
        let body = [
            &self.parts["version"][..],
            &[0x11; 32],
            &short(&self.parts["session"]),
            &prefixed(&self.parts["suites"]),
            &short(&self.parts["compression"]),
            &prefixed(&extensions),
            &self.parts["extra"],
        ]
        .concat();
        let length = u32::try_from(body.len()).expect("it fits").to_be_bytes();
        let length = self.length.as_deref().unwrap_or(&length[1..]);
        [&[1], length, &body, &self.parts["behind"]].concat()
    }
}

/// The record of a hello of TLS 1.2 with these changes.
pub(crate) fn offer_12<'a>(changes: impl Iterator<Item = &'a str>) -> Vec<u8> {
    hello(Hello::new(), changes)
}

/// The record of a hello of TLS 1.3 with these changes.
pub(crate) fn offer_13<'a>(changes: impl Iterator<Item = &'a str>) -> Vec<u8> {
    hello(Hello::new().of_13(), changes)
}

fn hello<'a>(mut hello: Hello, changes: impl Iterator<Item = &'a str>) -> Vec<u8> {
    changes.for_each(|change| hello.change(change));
    let version = hello.parts["record"].as_slice().try_into().expect("two bytes");
    record(22, version, &hello.message())
}
