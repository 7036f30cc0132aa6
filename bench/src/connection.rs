//! One connection of a load generator: sends the same request again and again and knows when an answer
//! is complete, by its Content-Length, as cheaply as it can.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use memchr::memmem;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A whole answer with a 200.
    Answered,
    /// A whole answer with another status.
    Refused,
    /// The rest is still to come.
    Partial,
    /// The server closed or reset the connection.
    Closed,
}

/// The bytes of `GET path`.
pub(crate) fn request(path: &str, connection: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n").into_bytes()
}

/// What a browser sends beside that: thirteen header lines, some 600 bytes in all.
const BROWSER_LINES: &str = "\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r
Accept-Language: en-US,en;q=0.5\r
Accept-Encoding: gzip, deflate, br, zstd\r
Referer: http://localhost/index.html\r
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=all\r
Upgrade-Insecure-Requests: 1\r
Sec-Fetch-Dest: document\r
Sec-Fetch-Mode: navigate\r
Sec-Fetch-Site: none\r
Sec-Fetch-User: ?1\r
Priority: u=0, i\r
Pragma: no-cache\r
";

/// The bytes of `GET path` from a browser, on a connection that goes on.
pub(crate) fn browser_request(path: &str) -> Vec<u8> {
    let mut bytes = request(path, "keep-alive");
    bytes.truncate(bytes.len() - 2);
    bytes.extend_from_slice(BROWSER_LINES.as_bytes());
    bytes.extend_from_slice(b"\r\n");
    bytes
}

pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// What is left to come of a chunked answer that is good or not.
    chunked: Option<Good>,
}

/// Whether the answer that is being received has a 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Good {
    Yes,
    No,
}

/// What a chunked answer ends with.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

impl Connection {
    pub(crate) fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::with_capacity(4096), chunked: None })
    }

    /// Requests are small: one that does not fit into the socket's buffer is an error.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match self.stream.write(request)? {
            n if n == request.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Reads what is there. One answer is expected at a time: more bytes than that are an error.
    pub(crate) fn receive(&mut self) -> io::Result<Progress> {
        let mut chunk = [0; 16384];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Ok(Progress::Closed),
            Ok(n) => self.received.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Progress::Partial),
            Err(_) => return Ok(Progress::Closed),
        }
        if let Some(good) = self.chunked {
            return Ok(self.end_of_chunks(good));
        }
        let good = if self.received.starts_with(b"HTTP/1.1 200 ") { Good::Yes } else { Good::No };
        let Some(length) = answer_length(&self.received)? else { return Ok(Progress::Partial) };
        match length {
            Length::Chunked => {
                self.chunked = Some(good);
                return Ok(self.end_of_chunks(good));
            }
            Length::Bytes(length) if self.received.len() < length => return Ok(Progress::Partial),
            Length::Bytes(length) if self.received.len() > length => {
                return Err(io::Error::other("more than was asked for"));
            }
            Length::Bytes(_) => {}
        }
        Ok(self.answered(good))
    }

    /// Of a chunked answer only the end is looked at, and only what may be a part of it is kept: bodies are
    /// chosen so that nothing in them looks like it.
    fn end_of_chunks(&mut self, good: Good) -> Progress {
        if self.received.ends_with(LAST_CHUNK) {
            self.chunked = None;
            return self.answered(good);
        }
        let kept = self.received.len().min(LAST_CHUNK.len() - 1);
        self.received.drain(..self.received.len() - kept);
        Progress::Partial
    }

    fn answered(&mut self, good: Good) -> Progress {
        self.received.clear();
        if good == Good::Yes { Progress::Answered } else { Progress::Refused }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// How long an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// Head and body.
    Bytes(usize),
    /// Up to its last chunk.
    Chunked,
}

/// The length of an answer, once the head is whole.
fn answer_length(data: &[u8]) -> io::Result<Option<Length>> {
    let Some(end) = memmem::find(data, b"\r\n\r\n") else { return Ok(None) };
    let head = &data[..end];
    if let Some(at) = memmem::find(head, b"\r\nContent-Length: ") {
        let digits = head[at + 18..].iter().take_while(|byte| byte.is_ascii_digit());
        let length = digits.fold(0, |sum: usize, byte| sum * 10 + usize::from(byte - b'0'));
        return Ok(Some(Length::Bytes(end + 4 + length)));
    }
    if memmem::find(head, b"\r\nTransfer-Encoding: chunked").is_some() {
        return Ok(Some(Length::Chunked));
    }
    Err(io::Error::other("an answer without a length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let length = |text: &str| answer_length(text.as_bytes()).ok().flatten();
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nX: y\r\n\r\n";
        assert_eq!(length(head), Some(Length::Bytes(head.len() + 12)));
        assert_eq!(length(&head[..20]), None);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(length(chunked), Some(Length::Chunked));
        assert!(answer_length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
