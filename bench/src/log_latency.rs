//! `log-latency`: how long after a response its line is in the log, on an idle server and beside a load that
//! logs so many lines a second. The client looks at the size of the file from the moment it has the response,
//! so what it reports is at most a look too long.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use clearway_testkit::{Binary, Server};

use crate::args::Args;
use crate::closed::Next;
use crate::open_loop::{self, Requests, Schedule};
use crate::servers::{self, User};
use crate::stats::Latencies;

/// Logs that each request of the load writes a line to.
const LOGS: u32 = 10;
/// Later than this a line counts as lost.
const LINE_LIMIT: Duration = Duration::from_secs(2);

/// `log-latency --requests 2000 --pause 2 --connections 16 --lines 100000`: ms, and lines per second.
pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let requests: usize = args.take("requests", 2000)?;
    let pause = Duration::from_millis(args.take("pause", 2)?);
    let connections: usize = args.take("connections", 16)?;
    let lines: u32 = args.take("lines", 100_000)?;
    args.finish()?;
    let logs: String = (0..LOGS).map(|number| format!("access_log logs/load{number}.log;\n")).collect();
    let locations = format!(
        "location /probe {{ access_log logs/probe.log; return 200 \"x\"; }}\n\
         location /load {{ {logs} return 200 \"x\"; }}\n"
    );
    let server = servers::start(&Binary::under_test(), &servers::config(2, "", &locations), User::Same, None);
    tell("idle", &probe(&server, requests, pause).map_err(|e| e.to_string())?, requests);
    let schedule = Schedule {
        to: servers::socket_address(&server),
        requests: Requests::Same(b"GET /load HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        connections,
        requests_per_second: f64::from(lines) / f64::from(LOGS),
        // What a probe takes beside its pause, roughly.
        duration: (pause + Duration::from_millis(1)) * u32::try_from(requests).unwrap_or(u32::MAX),
        grace: open_loop::GRACE,
        next: Next::SameConnection,
    };
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| open_loop::run(&schedule, |_| ()));
        let latencies = probe(&server, requests, pause).map_err(|e| e.to_string())?;
        let load = loading.join().expect("no panic").map_err(|e| e.to_string())?;
        let per_second = load.answered.len() as f64 / schedule.duration.as_secs_f64();
        println!("load: {:.0} lines/s, {} requests failed", per_second * f64::from(LOGS), load.failed.len());
        tell("beside the load", &latencies, requests);
        Ok(())
    })
}

/// Asks one request after the other, with a pause between them, and waits for the line of each.
fn probe(server: &Server, requests: usize, pause: Duration) -> io::Result<Vec<Duration>> {
    let mut client = TcpStream::connect(servers::socket_address(server))?;
    client.set_nodelay(true)?;
    let log = File::open(server.prefix().join("logs/probe.log"))?;
    let mut size = log.metadata()?.len();
    let (mut latencies, mut answer) = (Vec::new(), [0; 1024]);
    for _ in 0..requests {
        client.write_all(b"GET /probe HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let received = client.read(&mut answer)?;
        let begun = Instant::now();
        assert!(answer[..received].starts_with(b"HTTP/1.1 200"), "an answer in one piece");
        while begun.elapsed() < LINE_LIMIT {
            let now = log.metadata()?.len();
            if now > size {
                latencies.push(begun.elapsed());
                size = now;
                break;
            }
        }
        std::thread::sleep(pause);
    }
    Ok(latencies)
}

fn tell(what: &str, latencies: &[Duration], requests: usize) {
    let lost = requests - latencies.len();
    let latencies = Latencies::new(latencies.to_vec());
    let at = |share| latencies.quantile_ms(share);
    println!(
        "{what}: response to line p50 {:.3} ms, p99 {:.3} ms, longest {:.3} ms; {lost} lines missing",
        at(0.5),
        at(0.99),
        latencies.max_ms()
    );
}
