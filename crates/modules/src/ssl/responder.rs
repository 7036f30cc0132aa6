//! Asks a responder about a certificate (OCSP over HTTP/1.0, RFC 6960 appendix A), as nginx does and in its
//! words. Runs in a task of its own on a loop, on that loop's sockets: a responder that hangs holds nobody.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_http::{NameServers, Unresolved};
use clearway_net::connect::{ConnectOptions, Connector, Outbound};
use clearway_net::url::{Names, UrlPath, UrlRules, parse_url};
use clearway_os::outgoing::Remote;
use clearway_runtime::{LoopRef, Timer};

/// How long a responder may take for each thing that is waited for, milliseconds.
const TIMEOUT_MS: u64 = 60_000;
/// How long a response may be with its head, bytes.
const RESPONSE_MAX_BYTES: usize = 16_384;
/// How many addresses of a responder are tried.
const ADDRESSES_MAX: usize = 16;
/// The required type of a response.
const CONTENT_TYPE: &[u8] = b"application/ocsp-response";
const PORT: u16 = 80;

/// The address that is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Responder {
    host: Box<[u8]>,
    port: u16,
    path: Box<[u8]>,
    /// As they were known when the configuration was read.
    remotes: Vec<Remote>,
}

/// A URL of which nobody can be asked: why, and what is shown of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoResponder {
    pub(crate) why: String,
    pub(crate) shown: Vec<u8>,
}

impl Responder {
    /// The responder of a URL, which may only begin with `http://`. Names are looked up: loading only.
    ///
    /// # Errors
    /// nginx's words for what is wrong with it.
    pub(crate) fn of(url: &[u8], names: Names<'_>) -> Result<Self, NoResponder> {
        const SCHEME: &[u8] = b"http://";
        let is_http = url.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        if !is_http || url.len() == SCHEME.len() {
            return Err(NoResponder { why: "invalid URL prefix".to_owned(), shown: url.to_vec() });
        }
        let text = &url[SCHEME.len()..];
        let rules = UrlRules { default_port: PORT, path: UrlPath::Allowed, names };
        let parsed = parse_url(text, rules);
        let url = parsed.map_err(|error| NoResponder { why: error.to_string(), shown: text.to_vec() })?;
        let path = &text[url.path.clone()];
        Ok(Self {
            host: text[url.host.clone()].into(),
            port: url.port,
            path: if path.is_empty() { b"/".as_slice().into() } else { path.into() },
            remotes: url.addresses,
        })
    }

    /// The request with a question in DER.
    fn request(&self, question: &[u8]) -> Vec<u8> {
        let mut head = [b"GET ", &self.path[..]].concat();
        if !self.path.ends_with(b"/") {
            head.push(b'/');
        }
        put_base64_escaped(question, &mut head);
        head.extend_from_slice(b" HTTP/1.0\r\nHost: ");
        head.extend_from_slice(&self.host);
        head.extend_from_slice(b"\r\n\r\n");
        head
    }

    /// Whether its host is an address.
    fn is_literal(&self) -> bool {
        let host = String::from_utf8_lossy(&self.host);
        host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
    }
}

/// Base64, of which a URL wants three characters written otherwise.
fn put_base64_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut put = |digit: u8| match digit {
        b'+' => out.extend_from_slice(b"%2B"),
        b'/' => out.extend_from_slice(b"%2F"),
        b'=' => out.extend_from_slice(b"%3D"),
        other => out.push(other),
    };
    for three in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(group);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            put(if at <= three.len() { digit } else { b'=' });
        }
    }
}

/// With what it is asked.
pub(crate) struct Means {
    pub(crate) home: LoopRef,
    pub(crate) connector: Connector,
    pub(crate) names: Option<Arc<dyn NameServers>>,
    /// How long name servers may take.
    pub(crate) names_timeout: Duration,
    pub(crate) log: Arc<dyn Sink>,
    /// The certificate that is asked about, as lines of the log name it.
    pub(crate) certificate: String,
}

/// Writes lines of the log about one question.
pub(crate) struct Lines<'a> {
    means: &'a Means,
    responder: &'a Responder,
    peer: Option<String>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(means: &'a Means, responder: &'a Responder) -> Self {
        Self { means, responder, peer: None }
    }

    pub(crate) fn say(&self, level: Level, message: fmt::Arguments<'_>) {
        let (host, certificate) = (Verbatim(&self.responder.host), &self.means.certificate);
        let peer = self.peer.as_ref().map(|peer| format!(", peer: {peer}")).unwrap_or_default();
        let circumstances = format_args!(
            " while requesting certificate status, responder: {host}{peer}, certificate: \"{certificate}\""
        );
        self.means.log.log(level, format_args!("{message}{circumstances}"));
    }
}

/// Asks at one address after the other. Nothing: what went wrong was logged.
pub(crate) async fn ask(lines: &mut Lines<'_>, question: &[u8]) -> Option<Vec<u8>> {
    let request = lines.responder.request(question);
    let remotes = find(lines).await?;
    for remote in remotes.iter().take(ADDRESSES_MAX) {
        lines.peer = Some(shown(remote));
        if let Some(answer) = exchange(lines, remote, &request).await {
            // Whatever it says otherwise, nobody else is asked.
            return (answer.code == 200).then_some(answer.body);
        }
    }
    None
}

/// An address as lines of the log have it.
fn shown(remote: &Remote) -> String {
    match remote {
        Remote::Inet(address) => address.to_string(),
        Remote::Unix(path) => format!("unix:{}", String::from_utf8_lossy(path)),
    }
}

/// The addresses as name servers say them now, or as they were known before.
async fn find(lines: &Lines<'_>) -> Option<Vec<Remote>> {
    let Lines { means, responder, .. } = lines;
    if responder.is_literal() {
        return Some(responder.remotes.clone());
    }
    let host = Verbatim(&responder.host);
    let found = match &means.names {
        Some(names) => names.resolve(means.home, &responder.host, means.names_timeout).await,
        None => Err(Unresolved::NoServers),
    };
    match found {
        Ok(addresses) => {
            let remote = |address| Remote::Inet(SocketAddr::new(address, responder.port));
            Some(addresses.into_iter().map(remote).collect())
        }
        Err(Unresolved::NoServers) => {
            let level = if responder.remotes.is_empty() { Level::Error } else { Level::Warn };
            lines.say(level, format_args!("no resolver defined to resolve {host}"));
            Some(responder.remotes.clone()).filter(|remotes| !remotes.is_empty())
        }
        Err(Unresolved::Failed(why)) => {
            lines.say(Level::Error, format_args!("{host} could not be resolved ({why})"));
            None
        }
    }
}

/// One connection. Nothing: what went wrong was logged.
async fn exchange(lines: &Lines<'_>, remote: &Remote, request: &[u8]) -> Option<Answer> {
    let Means { home, connector, log, .. } = lines.means;
    let timer = Timer::new(*home);
    let connecting = connector.connect(*home, remote, &ConnectOptions::default(), &**log);
    let outbound = match in_time(lines, &timer, connecting).await? {
        Ok(outbound) => outbound,
        Err(fault) => {
            let name = lines.peer.as_deref().unwrap_or_default();
            lines.say(fault.level(), format_args!("{}", fault.describe(name)));
            return None;
        }
    };
    send(lines, &timer, &outbound, request).await?;
    let response = receive(lines, &timer, &outbound).await?;
    read_answer(&response).map_err(|fault| lines.say(Level::Error, format_args!("{fault}"))).ok()
}

/// The result of a future, if it comes in time.
async fn in_time<F: Future>(lines: &Lines<'_>, timer: &Timer, future: F) -> Option<F::Output> {
    timer.arm(lines.means.home.now_ms() + TIMEOUT_MS);
    let mut future = pin!(future);
    let output = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timer.poll_expired(cx).map(|()| None),
    });
    let output = output.await;
    if output.is_none() {
        lines.say(Level::Error, format_args!("OCSP responder timed out (110: Connection timed out)"));
    }
    output
}

async fn send(lines: &Lines<'_>, timer: &Timer, outbound: &Outbound, request: &[u8]) -> Option<()> {
    let mut rest = request;
    while !rest.is_empty() {
        let written = in_time(lines, timer, poll_fn(|cx| outbound.socket.poll_write(cx, rest))).await?;
        match written {
            Ok(count) => rest = &rest[count..],
            Err(error) => {
                lines.say(Level::Error, format_args!("send() failed {}", Errno(&error)));
                return None;
            }
        }
    }
    Some(())
}

/// All that comes until the responder closes the connection.
async fn receive(lines: &Lines<'_>, timer: &Timer, outbound: &Outbound) -> Option<Vec<u8>> {
    // One byte more tells that it is too long.
    let mut response = Vec::with_capacity(RESPONSE_MAX_BYTES + 1);
    while response.len() <= RESPONSE_MAX_BYTES {
        let read = poll_fn(|cx| outbound.socket.poll_read_vec(cx, &mut response));
        match in_time(lines, timer, read).await? {
            Ok(0) => return Some(response),
            Ok(_) => {}
            Err(error) => {
                lines.say(Level::Error, format_args!("recv() failed {}", Errno(&error)));
                return None;
            }
        }
    }
    lines.say(Level::Error, format_args!("{}", Fault::Invalid));
    None
}

/// The answer of a responder.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: u16,
    body: Vec<u8>,
}

/// Why that is none.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Invalid,
    Cut,
    ContentType(Vec<u8>),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => f.write_str("OCSP responder sent invalid response"),
            Self::Cut => f.write_str("OCSP responder prematurely closed connection"),
            Self::ContentType(kind) => {
                let kind = Verbatim(kind);
                write!(f, "OCSP responder sent invalid \"Content-Type\" header: \"{kind}\"")
            }
        }
    }
}

/// Takes a response apart. Its length is not looked at: the connection has ended.
fn read_answer(response: &[u8]) -> Result<Answer, Fault> {
    let (line, mut rest) = split_line(response)?;
    let code = status_code(line).ok_or(Fault::Invalid)?;
    loop {
        let (line, behind) = split_line(rest)?;
        rest = behind;
        if line.is_empty() {
            return Ok(Answer { code, body: rest.to_vec() });
        }
        let colon = line.iter().position(|&byte| byte == b':').ok_or(Fault::Invalid)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let is_name = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if name.is_empty() || !name.iter().all(is_name) {
            return Err(Fault::Invalid);
        }
        if name.eq_ignore_ascii_case(b"content-type") && !value.eq_ignore_ascii_case(CONTENT_TYPE) {
            return Err(Fault::ContentType(value.to_vec()));
        }
    }
}

fn split_line(bytes: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let end = bytes.iter().position(|&byte| byte == b'\n').ok_or(Fault::Cut)?;
    let line = &bytes[..end];
    Ok((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

/// `HTTP/1.1 200 OK`
fn status_code(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/")?;
    let (version, rest) = rest.split_at(rest.iter().position(|&byte| byte == b' ')?);
    let is_version = |&byte: &u8| byte.is_ascii_digit() || byte == b'.';
    let rest = rest.trim_ascii_start();
    let (code, behind) = rest.split_at_checked(3)?;
    let is_sound = version.first().is_some_and(u8::is_ascii_digit)
        && version.iter().all(is_version)
        && code.iter().all(u8::is_ascii_digit)
        && matches!(behind.first(), None | Some(b' ' | b'.'));
    let number = code.iter().fold(0, |number, &digit| number * 10 + u16::from(digit - b'0'));
    is_sound.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn responder(url: &str) -> Result<Responder, NoResponder> {
        Responder::of(url.as_bytes(), Names::Kept)
    }

    #[test]
    fn urls_of_responders() {
        let found = responder("http://127.0.0.1:8081/ocsp").unwrap();
        assert_eq!((&found.host[..], found.port, &found.path[..]), (&b"127.0.0.1"[..], 8081, &b"/ocsp"[..]));
        assert!(found.is_literal());
        let found = responder("HTTP://ocsp.example.com").unwrap();
        assert_eq!((found.port, &found.path[..], found.is_literal()), (80, &b"/"[..], false));
        let refused = responder("https://ocsp.example.com/").unwrap_err();
        assert_eq!(refused.why, "invalid URL prefix");
        let refused = responder("http://ocsp.example.com:x/").unwrap_err();
        assert_eq!((refused.why.as_str(), &refused.shown[..]), ("invalid port", &b"ocsp.example.com:x/"[..]));
    }

    #[test]
    fn questions_stand_in_the_path() {
        let asked =
            |url, question: &[u8]| String::from_utf8(responder(url).unwrap().request(question)).unwrap();
        assert_eq!(
            asked("http://a/b", &[0xfb, 0xff, 0xfe, 0x41]),
            "GET /b/%2B%2F%2F%2BQQ%3D%3D HTTP/1.0\r\nHost: a\r\n\r\n"
        );
        assert_eq!(asked("http://a/", b"ab"), "GET /YWI%3D HTTP/1.0\r\nHost: a\r\n\r\n");
    }

    #[test]
    fn responses_are_taken_apart() {
        let read = |text: &str| read_answer(text.as_bytes());
        let ok = "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: application/OCSP-response\r\n\r\nbody";
        assert_eq!(read(ok), Ok(Answer { code: 200, body: b"body".to_vec() }));
        assert_eq!(read("HTTP/1.0 404\n\n"), Ok(Answer { code: 404, body: Vec::new() }));
        for cut in ["", "HTTP/1.0 200 OK", "HTTP/1.0 200 OK\r\nA: b\r\n"] {
            assert_eq!(read(cut), Err(Fault::Cut), "{cut}");
        }
        for invalid in
            ["hello\r\n\r\n", "HTTP/x 200\r\n\r\n", "HTTP/1.0 20\r\n\r\n", "HTTP/1.0 200\r\na b: c\r\n\r\n"]
        {
            assert_eq!(read(invalid), Err(Fault::Invalid), "{invalid}");
        }
        let fault = read("HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n").unwrap_err();
        assert_eq!(fault.to_string(), "OCSP responder sent invalid \"Content-Type\" header: \"text/html\"");
    }
}
