//! The server behind the proxies that are measured: a thread that answers each request alike, counts what
//! comes, and misbehaves where it is told to.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memchr::memmem;
use rustix::net::sockopt::set_socket_linger;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::poller::Poller;

/// How often a thread without anything to do looks at what it was told.
const LOOK: Duration = Duration::from_millis(5);

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// With so many bytes; the connection goes on unless the request says otherwise.
    Length(usize),
    /// With so many bytes in chunks of 4,096.
    Chunks(usize),
    /// With so many bytes, and closes without having said so.
    Closes(usize),
    /// Not at all.
    Hangs,
    /// With a reset in the head.
    ResetsInHead,
    /// With a reset in the middle of a body with a length.
    ResetsInBody,
    /// With a reset in the middle of a chunk.
    ResetsInChunk,
    /// With a switch to another protocol, behind which it says nothing more.
    Switches,
}

/// What it counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
}

const UP: u8 = 0;
const DOWN: u8 = 1;
const HANGS: u8 = 2;
const FAILS: u8 = 3;
const SLOW: u8 = 4;

/// How much later a slow one answers.
const LATER: Duration = Duration::from_millis(400);

const FAILURE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// What befalls an origin for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It takes requests and says nothing.
    Hangs,
    /// It answers with 503.
    Fails,
    /// It answers 400 ms later.
    Slow,
    /// Nobody listens.
    Down,
}

struct Shared {
    counts: Counts,
    is_over: AtomicBool,
    state: AtomicU8,
}

/// The origin server; ends when it is dropped.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Starts one on a port of its own, on this processor.
    pub(crate) fn start(manner: Manner, core: usize) -> io::Result<Self> {
        let listener = listen(([127, 0, 0, 1], 0).into())?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            counts: Counts::default(),
            is_over: AtomicBool::new(false),
            state: AtomicU8::new(UP),
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut cores = CpuSet::new();
            cores.set(core);
            // On a machine with one core all share it.
            let _ = sched_setaffinity(None, &cores);
            if let Err(error) = serve(address, listener, manner, &theirs) {
                eprintln!("origin: {error}");
            }
        });
        Ok(Self { address, shared, thread: Some(thread) })
    }

    pub(crate) fn connections(&self) -> u64 {
        self.shared.counts.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.shared.counts.requests.load(Ordering::Relaxed)
    }

    /// As if its process were killed: nobody listens, and all connections are reset.
    pub(crate) fn kill(&self) {
        self.shared.state.store(DOWN, Ordering::Relaxed);
    }

    /// From now on it is in trouble.
    pub(crate) fn fall_into(&self, trouble: Trouble) {
        let state = match trouble {
            Trouble::Hangs => HANGS,
            Trouble::Fails => FAILS,
            Trouble::Slow => SLOW,
            Trouble::Down => DOWN,
        };
        self.shared.state.store(state, Ordering::Relaxed);
    }

    /// Listens again, and is in no trouble.
    pub(crate) fn revive(&self) {
        self.shared.state.store(UP, Ordering::Relaxed);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Writes block: its clients read what they have asked for.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

fn serve(address: SocketAddr, listener: TcpListener, manner: Manner, shared: &Shared) -> io::Result<()> {
    let answer = answer(manner);
    let mut poller = Poller::new()?;
    poller.add(&listener, 0)?;
    let mut listener = Some(listener);
    let mut clients: Vec<Option<Client>> = vec![None];
    let mut late: VecDeque<(Instant, usize)> = VecDeque::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        match (shared.state.load(Ordering::Relaxed), &listener) {
            (DOWN, Some(_)) => {
                listener = None;
                clients.drain(1..).flatten().for_each(|client| reset(&client.stream));
            }
            (UP | HANGS | FAILS | SLOW, None) => {
                let again = listen(address)?;
                poller.add(&again, 0)?;
                listener = Some(again);
            }
            _ => {}
        }
        while let Some((_, index)) = late.pop_front_if(|(due, _)| *due <= Instant::now()) {
            if let Some(Some(client)) = clients.get_mut(index) {
                let _ = client.stream.write_all(&answer);
            }
        }
        let ready: Vec<usize> = poller.wait(LOOK)?.collect();
        for index in ready {
            if index == 0 {
                let Some(listener) = &listener else { continue };
                accept(listener, &poller, &mut clients, shared)?;
            } else if let Some(place) = clients.get_mut(index)
                && let Some(client) = place
            {
                match goes_on(client, manner, &answer, shared) {
                    Goes::On => {}
                    Goes::Later => late.push_back((Instant::now() + LATER, index)),
                    Goes::Away => *place = None,
                }
            }
        }
    }
    Ok(())
}

fn accept(
    listener: &TcpListener,
    poller: &Poller,
    clients: &mut Vec<Option<Client>>,
    shared: &Shared,
) -> io::Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        shared.counts.connections.fetch_add(1, Ordering::Relaxed);
        stream.set_nodelay(true)?;
        let index = match clients.iter().skip(1).position(Option::is_none) {
            Some(index) => index + 1,
            None => {
                clients.push(None);
                clients.len() - 1
            }
        };
        poller.add(stream.as_fd(), index)?;
        clients[index] = Some(Client { stream, received: Vec::with_capacity(4096) });
    }
}

/// What becomes of a connection.
enum Goes {
    On,
    /// It goes on, and its answer comes later.
    Later,
    Away,
}

/// Reads what is there, once, and answers.
fn goes_on(client: &mut Client, manner: Manner, answer: &[u8], shared: &Shared) -> Goes {
    let mut chunk = [0; 65536];
    match client.stream.read(&mut chunk) {
        Ok(0) | Err(_) => return Goes::Away,
        Ok(n) => client.received.extend_from_slice(&chunk[..n]),
    }
    while let Some((length, asks)) = request(&client.received) {
        client.received.drain(..length);
        shared.counts.requests.fetch_add(1, Ordering::Relaxed);
        let answer = match shared.state.load(Ordering::Relaxed) {
            HANGS => continue,
            SLOW => return Goes::Later,
            FAILS => FAILURE,
            _ => answer,
        };
        if client.stream.write_all(answer).is_err() {
            return Goes::Away;
        }
        match manner {
            Manner::ResetsInHead | Manner::ResetsInBody | Manner::ResetsInChunk => {
                // What was sent is to arrive first.
                thread::sleep(Duration::from_micros(200));
                reset(&client.stream);
                return Goes::Away;
            }
            Manner::Closes(_) => return Goes::Away,
            _ if asks == Asks::Close => return Goes::Away,
            _ => {}
        }
    }
    Goes::On
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    KeepAlive,
    Close,
}

/// The length of the request that stands first, with its body; `None` while it is not whole.
fn request(received: &[u8]) -> Option<(usize, Asks)> {
    let head = memmem::find(received, b"\r\n\r\n")? + 4;
    let text = received[..head].to_ascii_lowercase();
    let body = memmem::find(&text, b"\r\ncontent-length: ").map_or(0, |at| {
        let digits = text[at + 18..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |sum: usize, byte| sum * 10 + usize::from(byte - b'0'))
    });
    let is_last = memmem::find(&text, b"\r\nconnection: close").is_some()
        || memmem::find(&text, b" http/1.0\r\n").is_some() && memmem::find(&text, b"keep-alive").is_none();
    let asks = if is_last { Asks::Close } else { Asks::KeepAlive };
    (received.len() >= head + body).then_some((head + body, asks))
}

fn answer(manner: Manner) -> Vec<u8> {
    let with = |fields: &str, body: &[u8]| {
        let mut text =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{fields}\r\n\r\n").into_bytes();
        text.extend_from_slice(body);
        text
    };
    match manner {
        Manner::Length(bytes) | Manner::Closes(bytes) => {
            with(&format!("Content-Length: {bytes}"), &vec![b'x'; bytes])
        }
        Manner::Chunks(bytes) => {
            let mut body = Vec::new();
            for chunk in vec![b'x'; bytes].chunks(4096) {
                body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n\r\n");
            with("Transfer-Encoding: chunked", &body)
        }
        Manner::Hangs => Vec::new(),
        Manner::ResetsInHead => b"HTTP/1.1 200 OK\r\nContent-Ty".to_vec(),
        Manner::ResetsInBody => with("Content-Length: 1000", &[b'x'; 500]),
        Manner::ResetsInChunk => with("Transfer-Encoding: chunked", b"3e8\r\nxxxxxxxxxx"),
        Manner::Switches => {
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n".to_vec()
        }
    }
}

fn reset(stream: &TcpStream) {
    // A close without waiting for anything is a reset.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_end_behind_their_bodies() {
        let length = |text: &str| request(text.as_bytes()).map(|(length, _)| length);
        let asks = |text: &str| request(text.as_bytes()).is_some_and(|(_, asks)| asks == Asks::Close);
        assert_eq!(length("GET / HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(length("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET"), Some(27));
        assert_eq!(length("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"), None);
        assert_eq!(length("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), Some(41));
        assert!(asks("GET / HTTP/1.0\r\n\r\n") && asks("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"));
        assert!(!asks("GET / HTTP/1.1\r\n\r\n"));
    }

    #[test]
    fn it_answers_and_dies_and_lives() {
        let origin = Origin::start(Manner::Length(3), 0).expect("it starts");
        let ask = |stream: &mut TcpStream| {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").and_then(|()| {
                let mut answer = [0; 1024];
                stream.read(&mut answer)
            })
        };
        let mut stream = TcpStream::connect(origin.address).expect("it listens");
        assert!(ask(&mut stream).is_ok_and(|count| count > 3));
        assert!(ask(&mut stream).is_ok_and(|count| count > 3));
        assert_eq!((origin.connections(), origin.requests()), (1, 2));
        origin.kill();
        let gone = clearway_testkit::wait_until(Duration::from_secs(30), || {
            TcpStream::connect(origin.address).is_err()
        });
        assert!(gone && !ask(&mut stream).is_ok_and(|count| count > 0));
        origin.revive();
        let back = clearway_testkit::wait_until(Duration::from_secs(30), || {
            TcpStream::connect(origin.address).is_ok()
        });
        assert!(back);
    }
}
