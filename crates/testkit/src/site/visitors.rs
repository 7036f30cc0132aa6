//! Visitors of the site: over TLS, with HTTP/1 and with HTTP/2.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use crate::client::PATIENCE;
use crate::http2::{Ended, Frames, Settings};
use crate::response::{Answer as HowAnswered, Parsed, Stream, parse};
use crate::{Address, Server};
use clearway_h2::frame::{Rest, flag, kind};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A connection with TLS.
pub type Secured = StreamOwned<ClientConnection, TcpStream>;

/// The largest part of a body that a client sends in one frame, bytes (RFC 9113, section 4.2).
const FRAME_BYTES: usize = 16_384;

/// How the site is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// HTTP/1.1, a connection for each request.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Each way.
pub const BOTH: [Way; 2] = [Way::Http1, Way::Http2];

/// The request.
#[derive(Clone, Copy, Default)]
pub struct Ask<'a> {
    /// GET if empty.
    pub method: &'a str,
    /// Path and arguments.
    pub target: &'a str,
    /// Names in lower case, and values.
    pub headers: &'a [(&'a str, &'a str)],
    /// None if empty.
    pub body: &'a [u8],
}

/// The answer; names of headers are in lower case.
#[derive(Debug, Default)]
pub struct Answered {
    /// 0 if there was no response.
    pub status: u16,
    /// In their order.
    pub headers: Vec<(String, String)>,
    /// As far as it came.
    pub body: Vec<u8>,
    /// Statuses of what came before the response.
    pub interim: Vec<u16>,
    /// The trailers behind the body.
    pub trailers: Vec<(String, String)>,
    /// Whether all of it came.
    pub is_whole: bool,
}

impl Answered {
    /// The first header of this name; empty if there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Asks on a connection of its own.
///
/// # Panics
/// If there is no connection, or it does not take the request.
#[must_use]
pub fn ask(server: &Server, way: Way, ask: Ask<'_>) -> Answered {
    try_ask(&server.address(), way, ask).expect("there is a connection")
}

/// Asks on a connection of its own; what has come is the answer, however it ends.
///
/// # Errors
/// Where there is no connection, or it does not take the request.
pub fn try_ask(address: &Address, way: Way, ask: Ask<'_>) -> io::Result<Answered> {
    let mut stream = try_connect(address, way)?;
    match way {
        Way::Http1 => ask_http1(&mut stream, ask),
        Way::Http2 => ask_http2(&mut stream, ask),
    }
}

/// Asks for a target.
pub fn get(server: &Server, way: Way, target: &str) -> Answered {
    self::ask(server, way, Ask { target, ..Ask::default() })
}

/// A connection on which the protocol of this way is spoken.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn connect(server: &Server, way: Way) -> Secured {
    try_connect(&server.address(), way).expect("there is a connection")
}

/// As [`connect`], with an error instead of a panic.
///
/// # Errors
/// Where there is no connection, or no handshake.
///
/// # Panics
/// If the server speaks another protocol.
pub fn try_connect(address: &Address, way: Way) -> io::Result<Secured> {
    let mut roots = RootCertStore::empty();
    let authority = include_bytes!("../../../tls/tests/data/ca.pem");
    roots.add(CertificateDer::from_pem_slice(authority).expect("it is one")).expect("it is sound");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("there are some");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    let protocol = if way == Way::Http2 { "h2" } else { "http/1.1" };
    config.alpn_protocols = vec![protocol.into()];
    let name = "www.example.com".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("it is configured");
    let Address::Tcp(address) = address else { panic!("not a port") };
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    assert_eq!(stream.conn.alpn_protocol(), Some(protocol.as_bytes()));
    Ok(stream)
}

/// The head of a request as HTTP/1 has it, and its body.
pub fn request_http1(ask: Ask<'_>) -> Vec<u8> {
    let method = if ask.method.is_empty() { "GET" } else { ask.method };
    let mut request = format!("{method} {} HTTP/1.1\r\nHost: www.example.com\r\n", ask.target);
    if !ask.headers.iter().any(|(name, _)| *name == "connection") {
        request.push_str("Connection: close\r\n");
    }
    for (name, value) in ask.headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !ask.body.is_empty() {
        request.push_str(&format!("Content-Length: {}\r\n", ask.body.len()));
    }
    request.push_str("\r\n");
    [request.as_bytes(), ask.body].concat()
}

fn ask_http1(stream: &mut Secured, ask: Ask<'_>) -> io::Result<Answered> {
    stream.write_all(&request_http1(ask))?;
    let mut received = Vec::new();
    // A connection that is cut ends without the alert that says so.
    let end = stream.read_to_end(&mut received);
    let how = if ask.method == "HEAD" { HowAnswered::HeadOnly } else { HowAnswered::Whole };
    let mut answered = Answered::default();
    let mut rest = &received[..];
    loop {
        match parse(rest, how, Stream::Ended) {
            Parsed::Complete(response, size) if response.status < 200 => {
                answered.interim.push(response.status);
                rest = &rest[size..];
            }
            Parsed::Complete(response, size) => {
                answered.status = response.status;
                let lower = |(name, value): (String, String)| (name.to_ascii_lowercase(), value);
                answered.headers = response.headers.into_iter().map(lower).collect();
                answered.trailers = trailers_of(&rest[..size]);
                answered.body = response.body;
                answered.is_whole = end.is_ok();
                return Ok(answered);
            }
            _ => return Ok(answered),
        }
    }
}

/// The fields behind the last chunk.
fn trailers_of(response: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(response);
    let Some((_, behind)) = text.rsplit_once("\r\n0\r\n") else { return Vec::new() };
    let fields = behind.lines().filter_map(|line| line.split_once(": "));
    fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect()
}

/// The first bytes of a client with HTTP/2: it takes all there is.
pub fn hello_http2() -> Vec<u8> {
    const WINDOW: u32 = 1 << 30;
    let settings = Settings { window_bytes: Some(WINDOW), ..Settings::default() };
    let mut bytes = Frames::hello(settings);
    bytes.extend(Frames::frame(kind::WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes()));
    bytes
}

/// A request as HTTP/2 has it. A body must fit into the server's window at the start, 65,535 bytes.
pub fn request_http2(stream: u32, ask: Ask<'_>) -> Vec<u8> {
    let method = if ask.method.is_empty() { "GET" } else { ask.method };
    let rest = if ask.body.is_empty() { Rest::Ended } else { Rest::Open };
    let mut bytes = Frames::request(stream, method, ask.target, ask.headers, rest);
    let mut pieces = ask.body.chunks(FRAME_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_none() { flag::END_STREAM } else { 0 };
        bytes.extend(Frames::frame(kind::DATA, flags, stream, piece));
    }
    bytes
}

fn ask_http2(stream: &mut Secured, ask: Ask<'_>) -> io::Result<Answered> {
    stream.write_all(&[hello_http2(), request_http2(1, ask)].concat())?;
    let mut frames = Frames::default();
    let mut chunk = [0; 65_536];
    while frames.answers.get(&1).is_none_or(|answer| answer.end.is_none()) {
        match stream.read(&mut chunk) {
            Ok(count @ 1..) => frames.receive(&chunk[..count]),
            _ => break,
        }
    }
    Ok(answered(frames.answers.remove(&1).unwrap_or_default()))
}

/// The answer, from the received part of a stream.
pub fn answered(answer: crate::http2::Answer) -> Answered {
    let mut answered =
        Answered { is_whole: answer.end == Some(Ended::Complete), body: answer.body, ..Answered::default() };
    for head in answer.heads {
        let fields: Vec<(String, String)> = head
            .iter()
            .filter_map(|field| field.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let status = fields.iter().find(|(name, _)| name == ":status");
        match status.map(|(_, value)| value.parse().expect("a number")) {
            Some(interim @ 100..200) => answered.interim.push(interim),
            Some(status) => (answered.status, answered.headers) = (status, fields),
            None => answered.trailers = fields,
        }
    }
    answered
}
