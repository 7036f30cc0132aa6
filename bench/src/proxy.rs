//! `proxy`: requests that are passed on. CPU per request side by side, how many of them find a connection
//! that is there, and what becomes of them when origins die, hang or break off.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clearway_testkit::Server;
use clearway_testkit::process::pss_bytes;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType};

use crate::args::Args;
use crate::closed::{self, End, Load, Next, Tally};
use crate::connection::request;
use crate::cpu::{CLIENT_CORE, CONNECTIONS, SERVER_CORES, repeat};
use crate::origin::{Manner, Origin};
use crate::servers::{self, Named, User, config_with, socket_address, total};

/// What the locations of [`locations`] are told apart by.
const KEPT: &str = "/kept";
const NEW: &str = "/new";

/// Idle connections that the group keeps.
const KEEPALIVE: usize = 32;

const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let servers = servers::named(&args.words())?;
    let repetitions: usize = args.take("reps", 3)?;
    let length = Duration::from_secs_f64(args.take("secs", 3.0)?);
    let only = args.list("only", "cpu,reuse,faults,slow,tunnels");
    let connections: usize = args.take("connections", 1000)?;
    args.finish()?;
    for part in &only {
        match part.as_str() {
            "cpu" => cpu(&servers, repetitions, length)?,
            "reuse" => reuse(&servers, length)?,
            "faults" => faults(&servers, length)?,
            "slow" => slow(&servers, connections)?,
            "tunnels" => tunnels(&servers, connections)?,
            _ => return Err(format!("--only {part}: cpu, reuse, faults, slow or tunnels")),
        }
    }
    Ok(())
}

/// A group of these origins, and what passes requests on to it.
fn config(loops: usize, origins: &[&Origin], group: &str) -> String {
    let servers: String =
        origins.iter().map(|origin| format!("server {} {group};\n", origin.address)).collect();
    let http = format!("upstream origins {{ {servers} keepalive {KEEPALIVE}; }}");
    let kept = "proxy_http_version 1.1; proxy_set_header Connection '';";
    let locations = format!(
        "location {KEPT} {{ proxy_pass http://origins; {kept} }}\n\
         location {NEW} {{ proxy_pass http://origins; proxy_http_version 1.0;\n\
         proxy_set_header Connection close; }}\n\
         location /hasty {{ proxy_pass http://origins; {kept} proxy_read_timeout 500ms; }}\n\
         location /tunnel {{ proxy_pass http://origins; proxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}\n"
    );
    config_with(loops, "", &http, &locations)
}

fn post(path: &str, bytes: usize) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n");
    [head.into_bytes(), vec![b'x'; bytes]].concat()
}

fn load(server: &Server, request: &[u8], connections: usize, next: Next) -> Load {
    Load { to: socket_address(server), request: request.to_vec(), connections, next, end: End::Dropped }
}

fn origin(manner: Manner) -> Result<Origin, String> {
    Origin::start(manner, CLIENT_CORE).map_err(|e| format!("origin: {e}"))
}

/// Each server has an origin of its own, on the other core.
fn cpu(servers: &[Named], repetitions: usize, length: Duration) -> Result<(), String> {
    for (name, manner, request) in [
        ("GET 1 KiB", Manner::Length(1024), request(KEPT, "keep-alive")),
        ("POST 1 KiB", Manner::Length(13), post(KEPT, 1024)),
        ("GET 64 KiB", Manner::Length(65536), request(KEPT, "keep-alive")),
        ("GET 64 KiB in chunks", Manner::Chunks(65536), request(KEPT, "keep-alive")),
        ("GET 1 KiB, a new connection to the origin each", Manner::Length(1024), request(NEW, "keep-alive")),
    ] {
        repeat(name, servers, (repetitions, length), || {
            let origins = servers.iter().map(|_| origin(manner)).collect::<Result<Vec<_>, _>>()?;
            let start = |(server, origin): (&Named, &Origin)| {
                let text = config(1, &[origin], "");
                servers::start(&server.binary, &text, User::Same, Some(SERVER_CORES))
            };
            let running: Vec<Server> = servers.iter().zip(&origins).map(start).collect();
            let kept = Next::SameConnection;
            let loads = running.iter().map(|server| load(server, &request, CONNECTIONS, kept)).collect();
            Ok((running, loads, origins))
        })?;
    }
    Ok(())
}

/// Clients that come and go, spread over four loops: how many requests found a connection to the origin.
fn reuse(servers: &[Named], length: Duration) -> Result<(), String> {
    println!("\n64 clients that come and go, 4 loops, keepalive {KEEPALIVE}: requests on kept connections");
    for server in servers {
        let origin = origin(Manner::Length(1024))?;
        let running = servers::start(&server.binary, &config(4, &[&origin], ""), User::Same, None);
        let load = load(&running, &request(KEPT, "close"), 64, Next::NewConnection);
        let tally = for_so_long(&load, length, || ())?;
        let (connections, requests) = (origin.connections(), origin.requests());
        let reused = requests.saturating_sub(connections) as f64 * 100.0 / requests.max(1) as f64;
        println!(
            "{:<12} {reused:.3} % of {requests} ({connections} connections); {} failed",
            server.name, tally.failed
        );
    }
    Ok(())
}

fn for_so_long(load: &Load, length: Duration, meanwhile: impl FnOnce()) -> Result<Tally, String> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| closed::run(load, &stop));
        meanwhile();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        running.join().expect("the client does not panic").map_err(|e| format!("load: {e}"))
    })
}

/// What fails while origins do.
fn faults(servers: &[Named], length: Duration) -> Result<(), String> {
    println!("\nrequests that failed while origins did");
    for server in servers {
        let (one, other) = (origin(Manner::Length(1024))?, origin(Manner::Length(1024))?);
        let text = config(2, &[&one, &other], "");
        let running = servers::start(&server.binary, &text, User::Same, None);
        let gets = load(&running, &request(KEPT, "keep-alive"), 16, Next::SameConnection);
        let tally = for_so_long(&gets, Duration::ZERO, || killed_again_and_again(&one, length))?;
        tell(server, "one of two origins is killed each second, GET", &tally);
    }
    for (name, manner, request) in [
        ("the origin closes behind each answer, GET", Manner::Closes(1024), request(KEPT, "keep-alive")),
        ("the origin closes behind each answer, POST", Manner::Closes(1024), post(KEPT, 16)),
        ("one of two origins hangs, GET", Manner::Hangs, request("/hasty", "keep-alive")),
        ("one of two resets in the head, GET", Manner::ResetsInHead, request(KEPT, "keep-alive")),
        // What has begun cannot be asked of the other one: every second answer is cut, and no more.
        ("one of two resets in the body, GET", Manner::ResetsInBody, request(KEPT, "keep-alive")),
        ("one of two resets in a chunk, GET", Manner::ResetsInChunk, request(KEPT, "keep-alive")),
    ] {
        for server in servers {
            let (bad, good) = (origin(manner)?, origin(Manner::Length(1024))?);
            let both = matches!(manner, Manner::Closes(_));
            let origins: &[&Origin] = if both { &[&bad] } else { &[&bad, &good] };
            let running = servers::start(&server.binary, &config(2, origins, ""), User::Same, None);
            let load = load(&running, &request, 16, Next::SameConnection);
            tell(server, name, &for_so_long(&load, length, || ())?);
        }
    }
    Ok(())
}

/// The other one is there all the time.
fn killed_again_and_again(origin: &Origin, length: Duration) {
    let half = Duration::from_millis(500);
    for _ in 0..length.as_secs().max(2) {
        thread::sleep(half);
        origin.kill();
        thread::sleep(half);
        origin.revive();
    }
}

fn tell(server: &Named, what: &str, tally: &Tally) {
    println!("{what}: {:<12} {} failed, {} answered", server.name, tally.failed, tally.answered);
}

/// Clients that ask for 1 MiB and read nothing of it.
fn slow(servers: &[Named], connections: usize) -> Result<(), String> {
    println!("\n{connections} clients that read nothing of 1 MiB: PSS in MiB before and after");
    occupy(servers, connections, Manner::Length(1 << 20), request(KEPT, "keep-alive"))
}

/// Connections that became others' (WebSockets), idle.
fn tunnels(servers: &[Named], connections: usize) -> Result<(), String> {
    println!("\n{connections} idle tunnels: PSS in MiB before and after");
    let upgrade =
        b"GET /tunnel HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    occupy(servers, connections, Manner::Switches, upgrade.to_vec())
}

fn occupy(servers: &[Named], connections: usize, manner: Manner, request: Vec<u8>) -> Result<(), String> {
    crate::idle::raise_descriptor_limit().map_err(|e| format!("RLIMIT_NOFILE: {e}"))?;
    for server in servers {
        let origin = origin(manner)?;
        // What the kernel would take in is no server's merit.
        let text = config(1, &[&origin], "").replace("backlog=", "sndbuf=32k backlog=");
        let running = servers::start(&server.binary, &text, User::Same, None);
        let warm = begun(&running, 16, &request).map_err(|e| format!("{}: {e}", server.name))?;
        drop(warm);
        thread::sleep(Duration::from_secs(1));
        let before = total(&running, pss_bytes);
        let held = begun(&running, connections, &request).map_err(|e| format!("{}: {e}", server.name))?;
        thread::sleep(Duration::from_secs(3));
        let after = total(&running, pss_bytes);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let each = after.saturating_sub(before) as f64 / held.len() as f64 / 1024.0;
        println!(
            "{:<12} {:.1} -> {:.1}, {each:.2} KiB each; the origin had {} requests",
            server.name,
            mib(before),
            mib(after),
            origin.requests()
        );
    }
    Ok(())
}

/// Connections on which an answer has begun to come; none of it is read.
fn begun(server: &Server, count: usize, request: &[u8]) -> io::Result<Vec<TcpStream>> {
    (0..count)
        .map(|_| {
            let mut stream = narrow(socket_address(server))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request)?;
            let mut start = [0; 10];
            match (stream.peek(&mut start)?, &start) {
                (10, b"HTTP/1.1 2" | b"HTTP/1.1 1") => Ok(stream),
                _ => Err(io::Error::other(format!("answered with {}", start.escape_ascii()))),
            }
        })
        .collect()
}

/// A connection that takes in little of what it does not read: what is left is the server's.
fn narrow(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_socket_recv_buffer_size(&socket, 4096)?;
    rustix::net::connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}
