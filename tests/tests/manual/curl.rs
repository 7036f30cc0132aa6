//! The requests of the manual's sessions: command lines of curl, sent by the tests' own client, so that they
//! need no program and every byte is seen.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::http2::{Http2, Settings};
use clearway_testkit::{Address, Answer, Connection, Response, response};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// What is printed of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Body,
    HeadAndBody,
    Head,
    Status,
}

/// A request as a command line has it.
#[derive(Debug, Default)]
pub(crate) struct Request {
    method: Option<String>,
    headers: Vec<String>,
    body: String,
    url: String,
    shown: Shown,
    http2: Option<()>,
}

/// The request of a command line behind `curl`.
pub(crate) fn parse(words: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "-s" | "-k" | "-sk" => {}
            "-i" | "-ki" => request.shown = Shown::HeadAndBody,
            "-I" | "-kI" => (request.shown, request.method) = (Shown::Head, Some("HEAD".to_owned())),
            "--http2-prior-knowledge" => request.http2 = Some(()),
            "-X" => request.method = Some(value()?),
            "-H" => request.headers.push(value()?),
            "-A" => request.headers.push(format!("User-Agent: {}", value()?)),
            "-e" => request.headers.push(format!("Referer: {}", value()?)),
            "-b" => request.headers.push(format!("Cookie: {}", value()?)),
            "-r" => request.headers.push(format!("Range: bytes={}", value()?)),
            "-d" => request.body = value()?,
            "-u" => {
                let credentials = clearway_base::base64::encode(value()?.as_bytes());
                request
                    .headers
                    .push(format!("Authorization: Basic {}", String::from_utf8_lossy(&credentials)));
            }
            "-w" => {
                value()?;
                request.shown = Shown::Status;
            }
            "-o" => drop(value()?),
            option if option.starts_with('-') => return Err(format!("{option}: not known here")),
            url => url.clone_into(&mut request.url),
        }
    }
    Ok(request)
}

impl Request {
    /// Sends it, and prints what curl would.
    pub(crate) fn send(&self) -> Result<String, String> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("http", &self.url));
        let (host, target) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let address = host.parse().map_err(|e| format!("{host}: {e}"))?;
        if self.http2.is_some() {
            let mut client = Http2::open(&Address::Tcp(address), Settings::default());
            return Ok(client.ask(1, ("GET", target), &[], "").text());
        }
        let text = self.text(host, target);
        let response = match scheme {
            "https" => over_tls(&text, address)?,
            _ => {
                let mut connection =
                    Connection::open(&Address::Tcp(address)).map_err(|e| format!("{host}: {e}"))?;
                connection.send(text.as_bytes());
                connection.try_response(self.answer()).map_err(|why| format!("no answer: {why}"))?
            }
        };
        Ok(self.printed(&response))
    }

    fn answer(&self) -> Answer {
        if self.method.as_deref() == Some("HEAD") { Answer::HeadOnly } else { Answer::Whole }
    }

    fn text(&self, host: &str, target: &str) -> String {
        let method = self.method.as_deref().unwrap_or(if self.body.is_empty() { "GET" } else { "POST" });
        let has = |name: &str| {
            self.headers.iter().any(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))
        };
        let mut text = format!("{method} {target} HTTP/1.1\r\n");
        for (name, value) in [("host", host), ("user-agent", "curl/8.0"), ("accept", "*/*")] {
            if !has(name) {
                text += &format!("{name}: {value}\r\n");
            }
        }
        self.headers.iter().for_each(|line| text += &format!("{line}\r\n"));
        if !self.body.is_empty() {
            text += &format!("content-length: {}\r\n", self.body.len());
            if !has("content-type") {
                text += "content-type: application/x-www-form-urlencoded\r\n";
            }
        }
        format!("{text}connection: close\r\n\r\n{}", self.body)
    }

    fn printed(&self, response: &Response) -> String {
        let head = || {
            let lines = response.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
            let lines: String = lines.collect();
            format!("{} {} {}\n{lines}\n", response.version, response.status, response.reason)
        };
        match self.shown {
            Shown::Body => response.text(),
            Shown::HeadAndBody => head() + &response.text(),
            Shown::Head => head(),
            Shown::Status => format!("{}\n", response.status),
        }
    }
}

/// The answer of a server whose certificate is that of the tests.
fn over_tls(request: &str, address: std::net::SocketAddr) -> Result<Response, String> {
    let authority = include_bytes!("../../../crates/tls/tests/data/ca.pem");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).expect("it is one")).expect("it is sound");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.expect("there are some").with_root_certificates(roots).with_no_client_auth();
    let name = "www.example.com".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("it is configured");
    let socket = TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| e.to_string())?;
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(|e| e.to_string())?;
    match response::parse(&answer, Answer::Whole, response::Stream::Ended) {
        response::Parsed::Complete(response, _) => Ok(response),
        _ => Err(format!("no answer: {}", String::from_utf8_lossy(&answer))),
    }
}

/// A command line as a shell would split it: words may stand in single or double quotes.
pub(crate) fn words(line: &str) -> Vec<String> {
    let (mut out, mut word, mut quote): (Vec<String>, Option<String>, Option<char>) =
        (Vec::new(), None, None);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ', None) => out.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    out.extend(word);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        parse(&words(line)).unwrap()
    }

    #[test]
    fn a_command_line_is_split() {
        assert_eq!(words("-H 'A: b c' -d \"it's\" x ''"), ["-H", "A: b c", "-d", "it's", "x", ""]);
    }

    #[test]
    fn a_request_is_what_curl_would_send() {
        let text = request("-d a=b -H 'Host: x' http://127.0.0.1:1/p").text("127.0.0.1:1", "/p");
        assert!(text.starts_with("POST /p HTTP/1.1\r\nuser-agent: curl/8.0\r\n"), "{text}");
        assert!(text.contains("\r\nHost: x\r\n") && !text.contains("host: 127.0.0.1:1"), "{text}");
        assert!(text.ends_with("connection: close\r\n\r\na=b"), "{text}");
        let text = request("-u u:p http://127.0.0.1:1/").text("127.0.0.1:1", "/");
        assert!(text.contains("Authorization: Basic dTpw\r\n"), "{text}");
        assert!(parse(&words("--unknown x")).is_err());
    }
}
