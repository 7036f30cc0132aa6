//! Many clients that want the same at once, of an origin that is slow: one of them asks it, and all are sent
//! what comes as it comes. Where the response may not be kept nobody waits for anybody.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::deployed;
use crate::client::PATIENCE;
use crate::{Address, Binary, Server, Setup};

/// What bodies repeat, bytes.
const PATTERN_BYTES: usize = 64 * 1024;
/// Of a thread that does no more than read and write.
const STACK_BYTES: usize = 256 * 1024;
/// What the origin sends at once, bytes.
const STEP_BYTES: usize = 16 * 1024;
/// How often the same is done with a lock and without.
const TURNS: usize = 4;
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

/// What came of it.
#[derive(Clone, Debug)]
pub struct StampedeReport {
    /// How often the origin was asked for the object.
    pub asked: u64,
    /// Clients that did not get all of it as it is.
    pub wrong: usize,
    /// How long after the first byte that any client was sent each one had its own; shortest first.
    pub behind: Vec<Duration>,
}

/// The same for what may not be kept: how long each answer took, shortest first.
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
    /// Plays it.
    ///
    /// # Panics
    /// Where nobody can be asked, or has answered after a minute.
    pub fn play(self, binary: &Binary) -> StampedeReport {
        let (port, asked) = origin(self);
        let (_server, address) = server(binary, port);
        let start = Arc::new(Barrier::new(self.clients + 1));
        let pattern: Arc<[u8]> = pattern().into();
        let clients: Vec<_> = (0..self.clients)
            .map(|_| {
                let (start, pattern) = (Arc::clone(&start), Arc::clone(&pattern));
                let take = move || take(address, (self.bytes, &pattern), &start);
                thread::Builder::new().stack_size(STACK_BYTES).spawn(take).expect("a thread")
            })
            .collect();
        start.wait();
        let taken: Vec<Option<Instant>> =
            clients.into_iter().map(|client| client.join().expect("it does not panic")).collect();
        let firsts: Vec<Instant> = taken.iter().flatten().copied().collect();
        let leader = firsts.iter().min().copied();
        let mut behind: Vec<Duration> =
            firsts.iter().map(|first| first.duration_since(leader.expect("there is one"))).collect();
        behind.sort_unstable();
        let wrong = taken.iter().filter(|first| first.is_none()).count();
        StampedeReport { asked: asked.load(Ordering::SeqCst), wrong, behind }
    }

    /// Has each client ask for what may not be kept so many times, with a lock and without.
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
        for _ in 0..TURNS {
            unlocked.extend(ask_all("/unlocked/"));
            locked.extend(ask_all("/private"));
        }
        locked.sort_unstable();
        unlocked.sort_unstable();
        UncachedReport { locked, unlocked }
    }
}

/// Takes the object: when its first byte came, if all of it is right. It does little else, since it shares
/// the processors with the server.
fn take(address: SocketAddr, (bytes, pattern): (usize, &[u8]), start: &Barrier) -> Option<Instant> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE);
    let mut piece = vec![0; PATTERN_BYTES];
    start.wait();
    let mut stream = stream.ok()?;
    stream.set_read_timeout(Some(2 * PATIENCE)).ok()?;
    stream.write_all(b"GET /object HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ok()?;
    let (head, data) = read_head(&mut stream)?;
    let first = Instant::now();
    let mut at = 0;
    let mut is_right = |data: &[u8]| {
        let from = at % PATTERN_BYTES;
        let (now, then) = data.split_at(data.len().min(PATTERN_BYTES - from));
        at += data.len();
        *now == pattern[from..from + now.len()] && *then == pattern[..then.len()]
    };
    if !is_right(&data) {
        return None;
    }
    loop {
        match stream.read(&mut piece).ok()? {
            0 => return (at == bytes && head.starts_with(b"HTTP/1.1 200")).then_some(first),
            size if is_right(&piece[..size]) => {}
            _ => return None,
        }
    }
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
