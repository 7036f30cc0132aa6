//! A client that sends bytes as given and shows what comes back, over TCP (IPv4, IPv6) or a unix socket.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::response::{Answer, Parsed, Response, Stream, parse};
use crate::wait_until;

/// How long an answer may take before the test has failed: far above anything that is right, also on a
/// machine that is slow and busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// The state of a connection at the end of a server's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server closed in order.
    Closed,
    /// The server reset the connection.
    Reset,
    /// The server keeps the connection open and sends nothing more.
    Open,
    /// The server sends more.
    Data,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The connection ended after these bytes.
    Ended(End, Vec<u8>),
    /// Nothing more came for [`PATIENCE`] after these bytes.
    TooSlow(Vec<u8>),
    /// The received bytes are not HTTP.
    Malformed(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(end, data) => write!(f, "{end:?} after {:?}", String::from_utf8_lossy(data)),
            Self::TooSlow(data) => write!(f, "too slow after {:?}", String::from_utf8_lossy(data)),
            Self::Malformed(why) => write!(f, "malformed: {why}"),
        }
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection to a server, with what has been received and not been looked at.
pub struct Connection {
    socket: Socket,
    received: Vec<u8>,
}

impl Connection {
    /// Connects from another address of this machine.
    ///
    /// # Errors
    /// As bind(2) and connect(2).
    pub fn open_from(from: std::net::IpAddr, to: SocketAddr) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket(family, SocketType::STREAM, None)?;
        bind(&fd, &SocketAddr::new(from, 0))?;
        connect(&fd, &to)?;
        let stream = TcpStream::from(fd);
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket: Socket::Tcp(stream), received: Vec::new() })
    }

    /// Connects, waiting at most [`PATIENCE`].
    pub fn open(address: &Address) -> io::Result<Self> {
        let socket = match address {
            Address::Tcp(to) => {
                let stream = TcpStream::connect_timeout(to, PATIENCE)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Socket::Tcp(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Socket::Unix(stream)
            }
        };
        Ok(Self { socket, received: Vec::new() })
    }

    /// Waits until something has come and nothing more comes, such as when there is no room for more, and
    /// reads none of it.
    ///
    /// # Panics
    /// If more and more comes for longer than [`PATIENCE`].
    pub fn wait_for_silence(&self) {
        let mut before = 0;
        let is_silent = wait_until(PATIENCE, || {
            std::thread::sleep(Duration::from_millis(50));
            let now = match &self.socket {
                Socket::Tcp(stream) => rustix::io::ioctl_fionread(stream),
                Socket::Unix(stream) => rustix::io::ioctl_fionread(stream),
            };
            let now = now.expect("it is a socket");
            std::mem::replace(&mut before, now) == now && now > 0
        });
        assert!(is_silent, "more and more comes");
    }

    /// Sends all of it. A server that has answered and closed meanwhile is not an error here: what it
    /// said is still to be read.
    pub fn send(&mut self, data: &[u8]) {
        let sent = match &mut self.socket {
            Socket::Tcp(stream) => stream.write_all(data),
            Socket::Unix(stream) => stream.write_all(data),
        };
        match sent.map_err(|e| e.kind()) {
            Ok(()) | Err(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(other) => panic!("send: {other}"),
        }
    }

    /// Says that nothing more will be sent.
    pub fn finish_sending(&self) {
        // An error means that the server has closed already.
        drop(match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        });
    }

    /// The next answer.
    pub fn try_response(&mut self, answer: Answer) -> Result<Response, NoAnswer> {
        let mut stream = Stream::Open;
        loop {
            match parse(&self.received, answer, stream) {
                Parsed::Complete(response, used) if used > 0 => {
                    self.received.drain(..used);
                    return Ok(response);
                }
                Parsed::Malformed(why) => return Err(NoAnswer::Malformed(why)),
                _ if stream == Stream::Ended => {
                    return Err(NoAnswer::Ended(End::Closed, std::mem::take(&mut self.received)));
                }
                _ => {}
            }
            match self.receive(Instant::now() + PATIENCE) {
                End::Data => {}
                End::Closed => stream = Stream::Ended,
                End::Reset => return Err(NoAnswer::Ended(End::Reset, std::mem::take(&mut self.received))),
                End::Open => return Err(NoAnswer::TooSlow(std::mem::take(&mut self.received))),
            }
        }
    }

    /// The next answer to something other than HEAD.
    ///
    /// # Panics
    /// If there is none.
    pub fn response(&mut self) -> Response {
        match self.try_response(Answer::Whole) {
            Ok(response) => response,
            Err(why) => panic!("no answer: {why}"),
        }
    }

    /// Sends and takes the answer.
    pub fn ask(&mut self, request: &str) -> Response {
        self.send(request.as_bytes());
        self.response()
    }

    /// The next event within `limit`; data are kept for [`Connection::try_response`].
    pub fn next_event(&mut self, limit: Duration) -> End {
        if self.received.is_empty() { self.receive(Instant::now() + limit) } else { End::Data }
    }

    /// Takes what has been received.
    pub fn take_received(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Received bytes that were not taken as a part of an answer.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Everything until the server closes, and how it ended ([`End::Open`]: nothing more came for `limit`).
    pub fn read_to_end(&mut self, limit: Duration) -> (Vec<u8>, End) {
        loop {
            match self.receive(Instant::now() + limit) {
                End::Data => {}
                end => return (std::mem::take(&mut self.received), end),
            }
        }
    }

    fn receive(&mut self, deadline: Instant) -> End {
        // A timeout of zero would mean none.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut chunk = [0; 65536];
        let got = match &mut self.socket {
            Socket::Tcp(stream) => stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut chunk)),
            Socket::Unix(stream) => {
                stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut chunk))
            }
        };
        match got {
            Ok(0) => End::Closed,
            Ok(n) => {
                self.received.extend_from_slice(&chunk[..n]);
                End::Data
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::TimedOut => End::Open,
            // Also when the process was stopped for a while, and then goes on.
            Err(e) if e.kind() == ErrorKind::Interrupted => self.receive(deadline),
            Err(_) => End::Reset,
        }
    }
}
