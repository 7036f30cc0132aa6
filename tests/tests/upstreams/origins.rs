//! Servers behind the one under test, and name servers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server, whose connections `serve` has each in a thread of its own.
pub(crate) struct Origin {
    pub(crate) port: u16,
    /// Connections that were made so far.
    accepted: Arc<AtomicUsize>,
}

impl Origin {
    pub(crate) fn start(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let accepted = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&accepted);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { port, accepted }
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Answers each request with its name.
    pub(crate) fn named(name: &'static str) -> Self {
        Self::start(move |stream| answer(stream, name))
    }

    /// Takes requests and says nothing, until its client leaves.
    pub(crate) fn silent() -> Self {
        Self::start(|mut stream| while stream.read(&mut [0; 4096]).is_ok_and(|size| size > 0) {})
    }

    /// Reads nothing.
    pub(crate) fn deaf() -> Self {
        Self::start(|stream| {
            std::thread::sleep(Duration::from_secs(60));
            drop(stream);
        })
    }

    /// Says this and nothing more.
    pub(crate) fn saying(text: &'static str) -> Self {
        Self::start(move |mut stream| {
            if read_head(&mut stream) {
                let _ = stream.write_all(text.as_bytes());
                while stream.read(&mut [0; 4096]).is_ok_and(|size| size > 0) {}
            }
        })
    }
}

/// Answers requests on a connection until its client leaves.
pub(crate) fn answer(mut stream: TcpStream, text: &str) {
    while read_head(&mut stream) {
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Whether a request has come.
pub(crate) fn read_head(stream: &mut TcpStream) -> bool {
    read_request(stream).is_some()
}

/// What a request asks for that has come.
pub(crate) fn read_target(stream: &mut TcpStream) -> Option<String> {
    read_request(stream)?.split(' ').nth(1).map(str::to_owned)
}

/// The head of a request that has come.
pub(crate) fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.extend_from_slice(&byte),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}

/// A port of 127.0.0.1 at which nobody listens.
pub(crate) fn nobody() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

/// A port at which connections do not come about: nobody accepts, and the queue is full.
pub(crate) struct FullQueue {
    pub(crate) port: u16,
    _held: Vec<TcpStream>,
    _listener: rustix::fd::OwnedFd,
}

impl FullQueue {
    pub(crate) fn start() -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port is free");
        listen(&listener, 0).expect("it listens");
        let address = getsockname(&listener).expect("it is bound");
        let address = SocketAddr::try_from(address).expect("an internet address");
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
        let held = std::iter::from_fn(connect).take(64).collect();
        Self { port: address.port(), _held: held, _listener: listener }
    }
}

/// What a name server knows: names with the last byte of 127.0.0.x, services with port and target.
#[derive(Default)]
pub(crate) struct Zone {
    pub(crate) addresses: Vec<(&'static str, u8)>,
    pub(crate) services: Vec<(&'static str, u16, &'static str)>,
    pub(crate) ttl_s: u8,
    /// It hears questions and says nothing.
    pub(crate) is_dead: bool,
}

/// A name server by UDP.
pub(crate) struct Dns {
    pub(crate) port: u16,
    pub(crate) zone: Arc<Mutex<Zone>>,
    asked: Arc<AtomicUsize>,
}

impl Dns {
    pub(crate) fn start(zone: Zone) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let port = socket.local_addr().expect("it is bound").port();
        let (zone, asked) = (Arc::new(Mutex::new(zone)), Arc::<AtomicUsize>::default());
        let (known, count) = (Arc::clone(&zone), Arc::clone(&asked));
        std::thread::spawn(move || {
            let mut buf = [0; 512];
            while let Ok((size, from)) = socket.recv_from(&mut buf) {
                count.fetch_add(1, Ordering::SeqCst);
                let response = known.lock().expect("nobody panics").respond(&buf[..size]);
                if let Some(response) = response {
                    let _ = socket.send_to(&response, from);
                }
            }
        });
        Self { port, zone, asked }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Zone)) {
        change(&mut self.zone.lock().expect("nobody panics"));
    }
}

impl Zone {
    fn respond(&self, query: &[u8]) -> Option<Vec<u8>> {
        if self.is_dead {
            return None;
        }
        let (mut at, mut labels) = (12, Vec::new());
        while query[at] > 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
            at = end;
        }
        let (name, kind) = (labels.join("."), query[at + 2]);
        let records: Vec<Vec<u8>> = match kind {
            1 => {
                let known = self.addresses.iter().filter(|(known, _)| *known == name);
                known.map(|(_, last)| vec![127, 0, 0, *last]).collect()
            }
            33 => self.services.iter().filter(|(known, ..)| *known == name).map(target).collect(),
            _ => Vec::new(),
        };
        let mut message = query.to_vec();
        let code = if records.is_empty() { 0x83 } else { 0x80 };
        message[2..4].copy_from_slice(&[0x81, code]);
        message[7] = records.len() as u8;
        for data in records {
            message.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, self.ttl_s, 0, data.len() as u8]);
            message.extend(data);
        }
        Some(message)
    }
}

/// Priority 1, weight 1.
fn target((_, port, name): &(&str, u16, &str)) -> Vec<u8> {
    let mut data = vec![0, 1, 0, 1];
    data.extend(port.to_be_bytes());
    for label in name.split('.') {
        data.push(label.len() as u8);
        data.extend(label.as_bytes());
    }
    data.push(0);
    data
}
