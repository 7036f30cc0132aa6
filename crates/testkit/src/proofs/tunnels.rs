//! Reloads under load while connections are open that became others' (101, as WebSockets do): none is lost.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use rustix::process::Signal;

use super::deployed;
use crate::client::PATIENCE;
use crate::load::{Load, Tally, raise_descriptor_limit};
use crate::{Binary, Server, Setup, wait_until};

/// Answers between two reloads, at least.
const ANSWERS_BETWEEN: u64 = 20;
/// How many tunnels say something between two reloads.
const SAY_BETWEEN: usize = 10;
/// The stack of a thread of the origin, bytes.
const STACK_BYTES: usize = 64 * 1024;

const UPGRADE: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere";

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct Tunnels {
    /// How many reloads.
    pub rounds: usize,
    /// How many tunnels.
    pub tunnels: usize,
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct TunnelsReport {
    /// Requests that are passed on to the same origin meanwhile.
    pub load: Tally,
    /// Tunnels through which something came back in the end.
    pub alive: usize,
    /// Memory of all processes before the first reload, bytes.
    pub pss_before: u64,
    /// The figure at the end.
    pub pss_after: u64,
    /// How many processes there are in the end.
    pub processes: usize,
}

impl Tunnels {
    /// Plays it.
    ///
    /// # Panics
    /// If a tunnel cannot be opened, or a reload does not take effect.
    pub fn play(self, binary: &Binary) -> TunnelsReport {
        raise_descriptor_limit();
        let origin = origin();
        let mut server =
            Setup::new(binary.clone(), &config("one", origin)).ready_at("127.0.0.1:%%PORT%%").start();
        let mut tunnels: Vec<TcpStream> = (0..self.tunnels).map(|_| open(&server)).collect();
        let pss_before = server.pss_bytes();
        let load = Load::new(server.address()).bodies(&["here"]).start();
        for round in 1..=self.rounds {
            let side = ["one", "two"][round % 2];
            server.configure(&config(side, origin));
            server.signal(Signal::HUP);
            let there = wait_until(PATIENCE, || server.get("/which").text() == side);
            assert!(there, "reload {round} has no effect: {}", server.described());
            load.wait_answers(ANSWERS_BETWEEN);
            for number in 0..SAY_BETWEEN.min(self.tunnels) {
                let at = (round * SAY_BETWEEN + number) % self.tunnels;
                // One that is lost is found in the end as well.
                let _ = echoes(&mut tunnels[at], at);
            }
        }
        let alive = tunnels.iter_mut().enumerate().filter_map(|(at, tunnel)| echoes(tunnel, at)).count();
        let (pss_after, processes) = (server.pss_bytes(), server.processes().len());
        TunnelsReport { load: load.finish(), alive, pss_before, pss_after, processes }
    }
}

fn config(side: &str, origin: u16) -> String {
    let http = format!(
        "access_log off;
         upstream origin {{ server 127.0.0.1:{origin}; keepalive 32; }}
         server {{ listen 127.0.0.1:%%PORT%%;
             location = /which {{ return 200 {side}; }}
             location / {{ proxy_pass http://origin; proxy_http_version 1.1;
                 proxy_set_header Connection ''; }}
             location /chat {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_read_timeout 300s;
                 proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }}"
    );
    deployed("", &http)
}

/// Answers requests, and those that ask for it with a switch to a protocol in which it says what it is told.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let serve = move || while let Some(()) = serve(&mut stream) {};
            thread::Builder::new().stack_size(STACK_BYTES).spawn(serve).expect("a thread can be had");
        }
    });
    port
}

/// One request, or one word in a tunnel. `None`: it was the last one.
fn serve(stream: &mut TcpStream) -> Option<()> {
    let (mut received, mut part) = (Vec::new(), [0; 1024]);
    loop {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(count) => received.extend_from_slice(&part[..count]),
        }
        if received.starts_with(b"GET /chat") {
            if received.ends_with(b"\r\n\r\n") {
                return stream.write_all(SWITCH).ok();
            }
        } else if received.starts_with(b"GET /") {
            if received.ends_with(b"\r\n\r\n") {
                return stream.write_all(ANSWER).ok();
            }
        } else {
            return stream.write_all(&received).ok();
        }
    }
}

fn open(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.write_all(UPGRADE).expect("it is taken");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut byte).expect("something comes");
        assert!(count > 0, "ended behind {}", head.escape_ascii());
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    stream
}

/// Whether what is said comes back.
fn echoes(stream: &mut TcpStream, number: usize) -> Option<()> {
    let said = format!("{number:08}");
    stream.write_all(said.as_bytes()).ok()?;
    let mut heard = [0; 8];
    stream.read_exact(&mut heard).ok()?;
    (heard == said.as_bytes()).then_some(())
}
