//! Many clients that want the same at once, of an origin that is slow: one of them asks it, and all are sent
//! what comes as it comes. Where the response may not be kept nobody waits for anybody.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::deployed;
use crate::client::PATIENCE;
use crate::{Address, Binary, Server, Setup};

/// The length of the pattern that bodies repeat, bytes.
const PATTERN_BYTES: usize = 64 * 1024;
/// The stack of a thread that only reads and writes, bytes.
const STACK_BYTES: usize = 256 * 1024;
/// Threads in which the clients live.
const THREADS: usize = 2;
/// Bytes that the origin sends at once.
const STEP_BYTES: usize = 16 * 1024;
/// How many clients that have had their first byte are read from until those that have not are looked at.
const OTHERS_MAX: usize = 16;
/// How long the origin thinks about a response that may not be kept.
const THINKS: Duration = Duration::from_millis(5);

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct Stampede {
    /// How many want the object at once.
    pub clients: usize,
    /// Its length.
    pub bytes: usize,
    /// How fast it comes.
    pub bytes_per_second: usize,
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct StampedeReport {
    /// How often the origin was asked for the object.
    pub asked: u64,
    /// Clients that did not get all of it as it is.
    pub wrong: usize,
    /// How long after the first byte that any client was sent each one had its own; shortest first.
    pub behind: Vec<Duration>,
}

/// The report for responses that may not be cached: how long each answer took, shortest first.
#[derive(Clone, Debug)]
pub struct UncachedReport {
    /// With `proxy_cache_lock`.
    pub locked: Vec<Duration>,
    /// Without.
    pub unlocked: Vec<Duration>,
}

fn pattern() -> Vec<u8> {
    (0..PATTERN_BYTES as u32 / 4).flat_map(|number| number.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
}

/// Has `/object`, slowly, and `/private`, which may not be kept. Threads end with the program.
fn origin(plan: Stampede) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let asked = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = Arc::clone(&counted);
            let serve = move || serve(stream, plan, &asked);
            let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(serve);
        }
    });
    (port, asked)
}

fn serve(mut stream: TcpStream, plan: Stampede, asked: &AtomicU64) {
    let pattern = pattern();
    let _ = stream.set_nodelay(true);
    while let Some((head, _)) = read_head(&mut stream) {
        if !head.starts_with(b"GET /object") {
            thread::sleep(THINKS);
            let answer = b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nno";
            if stream.write_all(answer).is_err() {
                return;
            }
            continue;
        }
        asked.fetch_add(1, Ordering::SeqCst);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", plan.bytes);
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
        let (since, mut sent) = (Instant::now(), 0);
        while sent < plan.bytes {
            let at = sent % PATTERN_BYTES;
            let count = STEP_BYTES.min(plan.bytes - sent).min(PATTERN_BYTES - at);
            if stream.write_all(&pattern[at..at + count]).is_err() {
                return;
            }
            sent += count;
            let due = Duration::from_secs_f64(sent as f64 / plan.bytes_per_second as f64);
            thread::sleep(due.saturating_sub(since.elapsed()));
        }
    }
}

/// A head, and what has come behind it.
fn read_head(stream: &mut TcpStream) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let behind = received.split_off(end + 4);
            return Some((received, behind));
        }
        match stream.read(&mut piece) {
            Ok(size @ 1..) => received.extend_from_slice(&piece[..size]),
            _ => return None,
        }
    }
}

fn server(binary: &Binary, port: u16) -> (Server, SocketAddr) {
    let config = deployed(
        "",
        &format!(
            "access_log off; proxy_cache_path %%PREFIX%%/cache keys_zone=one:1m;
            server {{ listen 127.0.0.1:%%PORT%% backlog=4096; proxy_cache one; proxy_cache_valid 1h;
                proxy_cache_key $uri; proxy_cache_lock on; proxy_cache_lock_timeout 60s;
                proxy_cache_lock_age 60s; proxy_pass_header X-A;
                location / {{ proxy_pass http://127.0.0.1:{port}; }}
                location /unlocked/ {{ proxy_cache_lock off;
                    proxy_pass http://127.0.0.1:{port}/private; }} }}"
        ),
    );
    let server = Setup::new(binary.clone(), &config).start();
    let Address::Tcp(address) = server.address() else { panic!("it listens on TCP") };
    (server, address)
}

impl Stampede {
    /// How often the same is done with a lock and without.
    pub const TURNS: usize = 4;

    /// Plays it.
    ///
    /// # Panics
    /// Where nobody can be asked, or has answered after a minute.
    pub fn play(self, binary: &Binary) -> StampedeReport {
        let (port, asked) = origin(self);
        let (_server, address) = server(binary, port);
        let start = Arc::new(Barrier::new(THREADS + 1));
        let pattern: Arc<[u8]> = pattern().into();
        let takers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (start, pattern) = (Arc::clone(&start), Arc::clone(&pattern));
                let clients = self.clients / THREADS + usize::from(number < self.clients % THREADS);
                thread::spawn(move || take_all(address, clients, (self.bytes, &pattern), &start))
            })
            .collect();
        start.wait();
        let taken: Vec<Option<Instant>> =
            takers.into_iter().flat_map(|taker| taker.join().expect("it does not panic")).collect();
        let firsts: Vec<Instant> = taken.iter().flatten().copied().collect();
        let leader = firsts.iter().min().copied();
        let mut behind: Vec<Duration> =
            firsts.iter().map(|first| first.duration_since(leader.expect("there is one"))).collect();
        behind.sort_unstable();
        let wrong = taken.iter().filter(|first| first.is_none()).count();
        StampedeReport { asked: asked.load(Ordering::SeqCst), wrong, behind }
    }

    /// Has each client ask for what may not be kept so many times in each of [`Self::TURNS`] turns, with a
    /// lock and without.
    ///
    /// # Panics
    /// Where there is no answer.
    pub fn play_uncached(self, binary: &Binary, rounds: usize) -> UncachedReport {
        let (port, _) = origin(self);
        let (_server, address) = server(binary, port);
        let ask_all = |path: &'static str| {
            let clients: Vec<_> =
                (0..self.clients).map(|_| thread::spawn(move || ask(address, path, rounds))).collect();
            let took: Vec<Duration> =
                clients.into_iter().flat_map(|client| client.join().expect("it does not panic")).collect();
            took
        };
        // Turn about, since the machine is not the same a moment later.
        ask_all("/private");
        let (mut locked, mut unlocked) = (Vec::new(), Vec::new());
        for _ in 0..Self::TURNS {
            unlocked.extend(ask_all("/unlocked/"));
            locked.extend(ask_all("/private"));
        }
        locked.sort_unstable();
        unlocked.sort_unstable();
        UncachedReport { locked, unlocked }
    }
}

/// A client that takes the object.
struct Taker {
    stream: TcpStream,
    /// Until it is complete.
    head: Vec<u8>,
    first: Option<Instant>,
    /// How much of the body has come, bytes.
    at: usize,
    /// `Some` at its end: whether all was right.
    is_right: Option<bool>,
}

impl Taker {
    /// Reads once: what comes is compared at once.
    fn read(&mut self, piece: &mut [u8], (bytes, pattern): (usize, &[u8])) {
        let mut data = match self.stream.read(piece) {
            Ok(0) => return self.is_right = Some(self.at == bytes),
            Ok(size) => &piece[..size],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => return self.is_right = Some(false),
        };
        if self.first.is_none() {
            let before = self.head.len();
            self.head.extend_from_slice(data);
            let Some(end) = self.head.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return };
            self.first = Some(Instant::now());
            data = &data[end + 4 - before..];
            if !self.head.starts_with(b"HTTP/1.1 200") {
                self.is_right = Some(false);
            }
        }
        let from = self.at % PATTERN_BYTES;
        let (now, then) = data.split_at(data.len().min(PATTERN_BYTES - from));
        self.at += data.len();
        if *now != pattern[from..from + now.len()] || *then != pattern[..then.len()] {
            self.is_right = Some(false);
        }
    }
}

/// Takes the object as so many clients at once, in one thread: a thread for each would leave the server next
/// to nothing of the processors. When the first byte of each came, if all of it is right.
fn take_all(
    address: SocketAddr,
    clients: usize,
    wanted: (usize, &[u8]),
    start: &Barrier,
) -> Vec<Option<Instant>> {
    let taker = |stream| Taker { stream, head: Vec::new(), first: None, at: 0, is_right: None };
    let connect = || TcpStream::connect_timeout(&address, PATIENCE).expect("it listens");
    let mut takers: Vec<Taker> = (0..clients).map(|_| taker(connect())).collect();
    takers.iter().for_each(|taker| taker.stream.set_nonblocking(true).expect("a socket"));
    let (mut piece, mut turn) = (vec![0; PATTERN_BYTES], 0);
    start.wait();
    for taker in &mut takers {
        let sent = taker.stream.write_all(b"GET /object HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        sent.expect("a request fits");
    }
    let until = Instant::now() + 2 * PATIENCE;
    while Instant::now() < until {
        let open: Vec<usize> = (0..clients).filter(|&number| takers[number].is_right.is_none()).collect();
        if open.is_empty() {
            break;
        }
        let mut polled: Vec<PollFd<'_>> =
            open.iter().map(|&number| PollFd::new(&takers[number].stream, PollFlags::IN)).collect();
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        poll(&mut polled, Some(&second)).expect("they are sockets");
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        drop(polled);
        let ready: Vec<usize> =
            open.iter().zip(ready).filter(|(_, ready)| *ready).map(|(&number, _)| number).collect();
        // Else it would be this thread that the clients without an answer wait for.
        let (begun, new): (Vec<usize>, Vec<usize>) =
            ready.into_iter().partition(|&number| takers[number].first.is_some());
        let next = begun.partition_point(|&number| number < turn);
        let others = begun[next..].iter().chain(&begun[..next]).take(OTHERS_MAX);
        for &number in new.iter().chain(others) {
            takers[number].read(&mut piece, wanted);
            turn = number + 1;
        }
    }
    takers.iter().map(|taker| taker.first.filter(|_| taker.is_right == Some(true))).collect()
}

fn ask(address: SocketAddr, path: &str, rounds: usize) -> Vec<Duration> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut took = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let since = Instant::now();
        stream.write_all(request.as_bytes()).expect("it reads");
        let (_, mut body) = read_head(&mut stream).expect("an answer");
        while body.len() < 2 {
            let mut piece = [0; 16];
            let size = stream.read(&mut piece).expect("the rest");
            assert!(size > 0, "the body is cut");
            body.extend_from_slice(&piece[..size]);
        }
        took.push(since.elapsed());
    }
    took
}
