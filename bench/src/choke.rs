//! `choke`: unrelated files while passwords and names on a file system that does not answer wait. Two kinds
//! of files are asked for on a fixed schedule: one that is in memory, and names that are asked for the first
//! time, which a pool has to look for. First alone, then beside the others; the latencies are compared.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clearway_testkit::hung::HungMount;
use clearway_testkit::{Binary, Connection, Server, Setup};

use crate::args::Args;
use crate::closed::Next;
use crate::connection::request;
use crate::open_loop::{self, Requests, Schedule};
use crate::servers::socket_address;
use crate::stats::Latencies;

/// `ann:right`, by bcrypt with 2^12 rounds.
const USERS: &str = "ann:$2b$12$abcdefghijklmnopqrstuu3ZNTWactmkRXVB8K.1w4IlxX.O8lI12\n";
/// `ann:wrong`.
const WRONG: &str = "Basic YW5uOndyb25n";
/// How far the 99th percentile may be above that of the undisturbed run, milliseconds.
const SLACK_MS: f64 = 3.0;
/// Clients of passwords: each has an address of its own.
const ADDRESSES: usize = 250;
const CONNECTIONS: usize = 32;

/// `choke --passwords 2000 --hung 200 --secs 10 --rate 1000 --loops 2`.
pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let passwords: usize = args.take("passwords", 2000)?;
    let hung: usize = args.take("hung", 200)?;
    let seconds: u64 = args.take("secs", 10)?;
    let rate: f64 = args.take("rate", 1000.0)?;
    let loops: usize = args.take("loops", 2)?;
    args.finish()?;
    let mount = HungMount::new();
    let server = start(&mount, loops);
    let to = socket_address(&server);
    let measure = || measure(to, rate, Duration::from_secs(seconds));
    println!("{:<44} {:>10} {:>9} {:>9} {:>9}", "", "answered", "p50 ms", "p99 ms", "max ms");
    let alone = measure()?;
    let waiting = Waiting::begin(to, passwords, hung).map_err(|error| format!("those who wait: {error}"))?;
    println!("{}", queues(&server));
    let beside = measure()?;
    println!("{}", queues(&server));
    drop(waiting);
    let mut late = Vec::new();
    for (kind, (alone, beside)) in ["in memory", "first asked for"].iter().zip(alone.iter().zip(&beside)) {
        println!("{}\n{}", line(&format!("{kind}, alone"), alone), line(&format!("{kind}, beside"), beside));
        let (alone, beside) = (alone.quantile_ms(0.99), beside.quantile_ms(0.99));
        if beside.is_nan() || beside > alone + SLACK_MS {
            late.push(format!("{kind}: {beside:.2} ms at p99, alone {alone:.2} ms"));
        }
    }
    drop(mount);
    if late.is_empty() { Ok(()) } else { Err(late.join("; ")) }
}

fn start(mount: &HungMount, loops: usize) -> Server {
    let config = format!(
        "daemon off;\nuser root;\nworker_processes {loops};\npid nginx.pid;\n\
         error_log logs/error.log error;\n\
         events {{ worker_connections 15000; }}\n\
         http {{ %%TEMP%%\naccess_log off;\nkeepalive_timeout 300s;\nkeepalive_requests 1000000000;\n\
         send_timeout 300s;\nserver {{ listen 127.0.0.1:%%PORT%% backlog=4096; root %%PREFIX%%/site;\n\
         location = /metrics {{ status prometheus; }}\n\
         location /new/ {{ try_files $uri /hot; }}\n\
         location /secret {{ auth_basic x; auth_basic_user_file %%PREFIX%%/users; }}\n\
         location /hung/ {{ alias {}/; }}\n}} }}\n",
        mount.dir().display()
    );
    let setup = Setup::new(Binary::under_test(), &config).file("users", USERS).file("site/hot", "hot\n");
    setup.file("site/secret", "secret\n").ready_at("127.0.0.1:%%PORT%%").start()
}

/// Clients that have asked and are not answered.
struct Waiting(#[expect(dead_code, reason = "they wait as long as it lives")] Vec<Connection>);

impl Waiting {
    fn begin(to: SocketAddr, passwords: usize, hung: usize) -> std::io::Result<Self> {
        let mut all = Vec::new();
        for number in 0..passwords {
            let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 1, 1)) + (number % ADDRESSES) as u32);
            let mut connection = Connection::open_from(IpAddr::V4(from), to)?;
            connection.send(
                format!("GET /secret HTTP/1.1\r\nHost: a\r\nAuthorization: {WRONG}\r\n\r\n").as_bytes(),
            );
            all.push(connection);
        }
        for number in 0..hung {
            let mut connection = Connection::open_from(IpAddr::V4(Ipv4Addr::LOCALHOST), to)?;
            connection.send(format!("GET /hung/{number} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            all.push(connection);
        }
        // All of them have been read.
        thread::sleep(Duration::from_secs(1));
        Ok(Self(all))
    }
}

/// What waits in the pools of the server.
fn queues(server: &Server) -> String {
    let page = server.get("/metrics").text();
    let values = |name: &str| {
        let lines = page.lines().filter(|line| line.starts_with(&format!("clearway_{name}{{")));
        lines.map(|line| line.trim_start_matches("clearway_").to_owned()).collect::<Vec<_>>().join("  ")
    };
    ["pool_pending_jobs", "pool_threads", "pool_held_total", "pool_overflows_total"].map(values).join("\n")
}

/// Latencies of both kinds of files.
fn measure(to: SocketAddr, rate: f64, duration: Duration) -> Result<[Latencies; 2], String> {
    let schedule = |requests| Schedule {
        to,
        requests,
        connections: CONNECTIONS,
        requests_per_second: rate,
        duration,
        grace: open_loop::GRACE,
        next: Next::SameConnection,
    };
    let hot = schedule(Requests::Same(request("/hot", "keep-alive")));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let stamp = now.map_or(0, |since| since.as_micros());
    let new = schedule(Requests::Numbered { prefix: format!("/new/{stamp}-") });
    let (hot, new) = thread::scope(|scope| {
        let hot = scope.spawn(|| open_loop::run(&hot, |_| ()));
        let new = open_loop::run(&new, |_| ());
        (hot.join().expect("the client does not panic"), new)
    });
    let latencies = |outcome: std::io::Result<open_loop::ScheduleOutcome>| {
        let outcome = outcome.map_err(|error| format!("files: {error}"))?;
        let all = outcome.answered.iter().map(|(_, latency)| *latency).collect();
        if outcome.failed.is_empty() {
            Ok(Latencies::new(all))
        } else {
            Err(format!("{} requests for files have failed", outcome.failed.len()))
        }
    };
    Ok([latencies(hot)?, latencies(new)?])
}

fn line(name: &str, latencies: &Latencies) -> String {
    format!(
        "{name:<44} {:>10} {:>9.2} {:>9.2} {:>9.1}",
        latencies.count(),
        latencies.quantile_ms(0.5),
        latencies.quantile_ms(0.99),
        latencies.max_ms()
    )
}
