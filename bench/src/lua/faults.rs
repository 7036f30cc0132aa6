//! `lua faults MINUTES`: sockets of Lua whose server ends and comes back, names that nobody answers, a pool
//! that is full, clients that leave while code waits. Beside them requests of short Lua, none of which may
//! fail. Every ten seconds one line; in the end nothing has grown.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::process::{rss_bytes, threads};
use clearway_testkit::{Address, Connection, Server, wait_until};

use super::{under_test, verdict};
use crate::args::Args;
use crate::closed::Next;
use crate::connection::request;
use crate::open_loop::{self, Requests, Schedule};
use crate::servers::{self, User, config_with, socket_address, total};

const WINDOW: Duration = Duration::from_secs(10);
/// How long the server of the sockets is there, and how long it is not.
const TURN: Duration = Duration::from_millis(1500);
/// Windows before nothing may grow any more.
const WARM_WINDOWS: usize = 2;
const GROWTH_PERCENT: u64 = 10;
/// Sockets that may be more in the end: those of requests that are under way.
const SOCKETS_MORE: u64 = 16;
const SHORT_PER_SECOND: f64 = 500.0;
const SHORT_CONNECTIONS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);
/// Locations whose clients stay or leave.
const PATHS: [&str; 6] = ["/line", "/name", "/pool", "/asleep", "/threads", "/filter"];

/// What clients of those have seen.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    left: AtomicU64,
    failed: AtomicU64,
}

struct Sample {
    lost: usize,
    rss_bytes: u64,
    threads: u64,
    sockets: u64,
}

pub(super) fn command(mut args: Args, minutes: u64) -> Result<(), String> {
    let loops: usize = args.take("loops", 2)?;
    let clients: u64 = args.take("clients", 8)?;
    args.finish()?;
    let failed = |error: io::Error| error.to_string();
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    drop(listener);
    let silent = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let names = silent.local_addr().map_err(failed)?.port();
    let (binary, main) = under_test();
    let config = config_with(loops, &main, &http(names), &locations(port));
    let server = servers::start(&binary, &config, User::Same, None);
    let (to, stop, counts) = (socket_address(&server), AtomicBool::new(false), Counts::default());
    let samples = thread::scope(|scope| {
        scope.spawn(|| come_and_go(port, &stop));
        for client in 0..clients {
            let (stop, counts) = (&stop, &counts);
            scope.spawn(move || visit(to, client + 1, stop, counts));
        }
        let windows = (minutes * 60 / WINDOW.as_secs()).max(WARM_WINDOWS as u64 + 2);
        let samples: Result<Vec<Sample>, String> =
            (0..windows).map(|number| window(&server, to, number, &counts)).collect();
        stop.store(true, Ordering::Relaxed);
        samples
    })?;
    judge(&server, &samples, &counts)
}

fn http(names: u16) -> String {
    format!(
        "lua_check_client_abort on; lua_socket_log_errors off; resolver 127.0.0.1:{names} ipv6=off;
         resolver_timeout 300ms;"
    )
}

fn locations(port: u16) -> String {
    let line = format!(
        "local function line(options)
             local s = ngx.socket.tcp()
             s:settimeouts(1000, 1000, 3000)
             local ok, err = s:connect('127.0.0.1', {port}, options)
             if not ok then return err end
             if not s:send('PING\\n') then return 'send' end
             local got = s:receive()
             if got then s:setkeepalive(5000, 8) end
             return got or 'receive'
         end"
    );
    format!(
        "location /short {{ content_by_lua_block {{ ngx.say('hello') }} }}
         location /line {{ content_by_lua_block {{ {line} ngx.say(line()) }} }}
         location /pool {{ content_by_lua_block {{
             {line} ngx.say(line({{ pool = 'small', pool_size = 1, backlog = 2 }})) }} }}
         location /name {{ content_by_lua_block {{
             ngx.say((select(2, ngx.socket.tcp():connect('dead.example', 80)))) }} }}
         location /asleep {{
             rewrite_by_lua_block {{ ngx.sleep(0.05) }} access_by_lua_block {{ ngx.sleep(0.05) }}
             content_by_lua_block {{
                 ngx.on_abort(function() ngx.exit(499) end) ngx.sleep(0.3) ngx.say('up') }}
         }}
         location /threads {{ content_by_lua_block {{
             {line}
             local all = {{}}
             for i = 1, 10 do all[i] = ngx.thread.spawn(function() ngx.sleep(i / 50) return line() end) end
             for i = 1, 5 do ngx.thread.wait(all[i]) end
             ngx.timer.at(0.1, line)
             for i = 6, 10 do ngx.thread.kill(all[i]) end
             ngx.say('done') }} }}
         location /filter {{
             header_filter_by_lua_block {{ ngx.header.x = 1 }} body_filter_by_lua_block {{ ngx.ctx.n = 1 }}
             log_by_lua_block {{ ngx.ctx.n = nil }}
             content_by_lua_block {{ ngx.say(ngx.location.capture('/line').body) }}
         }}"
    )
}

/// The server of the sockets: there, then not.
fn come_and_go(port: u16, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) else {
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for stream in listener.incoming().map_while(Result::ok) {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    scope.spawn(|| answer(stream, &over));
                }
            });
            thread::sleep(TURN);
            over.store(true, Ordering::SeqCst);
            // It waits for a connection.
            drop(TcpStream::connect(("127.0.0.1", port)));
        });
        drop(listener);
        thread::sleep(TURN);
    }
}

/// Answers each line, until the server ends.
fn answer(stream: TcpStream, over: &AtomicBool) {
    const LOOK: Duration = Duration::from_millis(20);
    let (Ok(()), Ok(mut writer)) = (stream.set_read_timeout(Some(LOOK)), stream.try_clone()) else { return };
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    while !over.load(Ordering::SeqCst) {
        match reader.read_line(&mut line) {
            Ok(0) => return,
            Ok(_) => {
                line.clear();
                if writer.write_all(b"+OK\r\n").is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// One client: asks for one after the other, and leaves each third time before it is answered.
fn visit(to: SocketAddr, seed: u64, stop: &AtomicBool, counts: &Counts) {
    let mut random = seed;
    while !stop.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let path = PATHS[(random >> 33) as usize % PATHS.len()];
        let Ok(mut connection) = Connection::open(&Address::Tcp(to)) else {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        connection.send(text.as_bytes());
        if (random >> 20).is_multiple_of(3) {
            thread::sleep(Duration::from_millis((random >> 40) % 200));
            counts.left.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let (said, _) = connection.read_to_end(PATIENCE);
        let counter = if said.starts_with(b"HTTP/1.1 200") { &counts.answered } else { &counts.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn window(server: &Server, to: SocketAddr, number: u64, counts: &Counts) -> Result<Sample, String> {
    let schedule = Schedule {
        to,
        requests: Requests::Same(request("/short", "keep-alive")),
        connections: SHORT_CONNECTIONS,
        requests_per_second: SHORT_PER_SECOND,
        duration: WINDOW,
        grace: open_loop::GRACE,
        next: Next::SameConnection,
    };
    let outcome = open_loop::run(&schedule, |_| {}).map_err(|error| error.to_string())?;
    let sample = Sample {
        lost: outcome.failed.len(),
        rss_bytes: total(server, rss_bytes),
        threads: total(server, threads) as u64,
        sockets: sockets(server),
    };
    println!(
        "{:>5} s short {} ({} lost) | {} answered, {} left, {} failed | RSS {:.1} MiB, {} threads, \
         {} sockets",
        (number + 1) * WINDOW.as_secs(),
        outcome.answered.len(),
        sample.lost,
        counts.answered.load(Ordering::Relaxed),
        counts.left.load(Ordering::Relaxed),
        counts.failed.load(Ordering::Relaxed),
        sample.rss_bytes as f64 / f64::from(1 << 20),
        sample.threads,
        sample.sockets,
    );
    Ok(sample)
}

/// Descriptors of sockets that the server has.
fn sockets(server: &Server) -> u64 {
    total(server, |pid| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        let is_socket = |one: &std::fs::DirEntry| {
            std::fs::read_link(one.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        };
        links.map_while(Result::ok).filter(is_socket).count() as u64
    })
}

fn judge(server: &Server, samples: &[Sample], counts: &Counts) -> Result<(), String> {
    let (settled, last) = (&samples[WARM_WINDOWS], &samples[samples.len() - 1]);
    let lost: usize = samples.iter().map(|sample| sample.lost).sum();
    let failed = counts.failed.load(Ordering::Relaxed);
    // Kept connections end after five seconds, those of clients with them.
    let mut left = sockets(server);
    let deadline = Instant::now() + PATIENCE;
    let idle = samples[0].sockets.min(settled.sockets);
    wait_until(deadline - Instant::now(), || {
        left = sockets(server);
        left <= idle
    });
    let most = |settled: u64| settled + settled * GROWTH_PERCENT / 100;
    verdict(&[
        (lost == 0, format!("{lost} short requests were lost")),
        (failed == 0, format!("{failed} requests failed")),
        (
            last.rss_bytes <= most(settled.rss_bytes),
            format!("memory grew from {} to {} bytes", settled.rss_bytes, last.rss_bytes),
        ),
        (
            last.threads <= most(settled.threads),
            format!("{} threads, {} before", last.threads, settled.threads),
        ),
        (left <= idle + SOCKETS_MORE, format!("{left} sockets are left of {idle}")),
    ])
}
