//! `hungry`: cheap requests, on connections that stay and on new ones, beside clients whose requests take
//! much CPU, in few long polls or in many short ones. Each row has a server of its own; its cheap requests
//! are measured first while it has nothing else to do, then beside the hungry clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::{Binary, Product, Server, Setup};
use rustix::process::setpriority_process;

use crate::args::Args;
use crate::closed::{self, End, Load, Next};
use crate::connection::{Connection, Progress, request};
use crate::hiccups::Watch;
use crate::open_loop::{self, Requests, Schedule};
use crate::poller::Poller;
use crate::servers::{self, config, socket_address};
use crate::stats::{Latencies, median};

const KEPT_CONNECTIONS: usize = 32;
const KEPT_PER_SECOND: f64 = 1000.0;
const NEW_CONNECTIONS: usize = 64;
const NEW_PER_SECOND: f64 = 300.0;
const IDLE: Duration = Duration::from_millis(1500);
/// Answers that come later are lost: rows in which cheap requests starve need not take longer.
const GRACE: Duration = Duration::from_secs(3);
/// The hungry clients run alone for so long before cheap requests are counted.
const LEAD: Duration = Duration::from_secs(1);
/// The client must not be what is late: it goes before what the server runs, where that is permitted.
const CLIENT_NICE: i32 = -10;

/// Commands in the SSI page, and bytes of the text that is compressed: about 60 ms of CPU each.
const SSI_INCLUDES: usize = 6_000;
const TEXT_BYTES: usize = 512 << 10;

/// What is measured unless other kinds are asked for.
const DEFAULT_KINDS: &str = "ssi,gzip,spin-0.5,spin-5,spin-60,spin-200";

/// What an nginx can do without modules of others.
const NGINX_KINDS: [&str; 2] = ["ssi", "gzip"];

/// (name, paths that the hungry clients take in turn)
const KINDS: [(&str, &[&str]); 9] = [
    ("ssi", &["/ssi/page.html"]),
    ("gzip", &["/gzip/text"]),
    ("spin-0.5", &["/slices"]),
    ("spin-1", &["/spin/1"]),
    ("spin-5", &["/spin/5"]),
    ("spin-60", &["/spin/60"]),
    ("spin-200", &["/spin/200"]),
    ("spin-sleep", &["/spin/200", "/sleep/200"]),
    ("mix", &["/ssi/page.html", "/gzip/text", "/slices", "/spin/1", "/spin/60"]),
];

/// One server under test.
struct Subject {
    name: &'static str,
    binary: Binary,
}

/// What one run measured.
struct Run {
    kept: Latencies,
    new: Latencies,
    kept_idle: Latencies,
    new_idle: Latencies,
    /// Answers that met no pause of the machine, of a hundred.
    undisturbed: f64,
    failed: u64,
    /// Milliseconds of work that were done in a second, by what one answer of each kind takes alone.
    work: f64,
}

/// How to measure.
#[derive(Clone, Copy)]
struct Plan {
    loops: usize,
    clients: usize,
    length: Duration,
    pauses: Pauses,
}

/// What becomes of requests that were on their way while the machine itself stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pauses {
    Counted,
    LeftOut,
}

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let before: String = args.take("before", String::new())?;
    let with_nginx: bool = args.take("nginx", true)?;
    let loops = numbers(&args.list("loops", "1,2"))?;
    let clients = numbers(&args.list("clients", "16,60,150"))?;
    let kinds = args.list("kinds", DEFAULT_KINDS);
    let rounds: usize = args.take("rounds", 1)?;
    let length = Duration::from_secs_f64(args.take("secs", 2.5)?);
    let pauses = if args.take("hiccups", false)? { Pauses::LeftOut } else { Pauses::Counted };
    args.finish()?;
    let mut subjects = vec![Subject { name: "clearway", binary: Binary::under_test() }];
    if !before.is_empty() {
        subjects.insert(0, Subject { name: "before", binary: Binary::at(before) });
    }
    if with_nginx {
        subjects.push(Subject { name: "nginx", binary: Binary::oracle() });
    }
    for &loops in &loops {
        println!("\n{loops} loop(s), {rounds} x {length:?}; times in milliseconds\n{}", head());
        for kind in KINDS.iter().filter(|kind| kinds.iter().any(|wanted| wanted == kind.0)) {
            for &clients in &clients {
                compare(&subjects, kind, rounds, Plan { loops, clients, length, pauses })?;
            }
        }
    }
    Ok(())
}

fn numbers(texts: &[String]) -> Result<Vec<usize>, String> {
    texts.iter().map(|text| text.parse().map_err(|_| format!("{text}: not a number"))).collect()
}

/// Measures all servers in turn, again and again, and prints the medians of each.
fn compare(
    subjects: &[Subject],
    (kind, paths): &(&str, &[&str]),
    rounds: usize,
    plan: Plan,
) -> Result<(), String> {
    let can = |subject: &&Subject| subject.binary.product == Product::Clearway || NGINX_KINDS.contains(kind);
    let subjects: Vec<&Subject> = subjects.iter().filter(can).collect();
    let mut runs: Vec<Vec<Run>> = subjects.iter().map(|_| Vec::new()).collect();
    // What an answer takes is the same for all, or a server that is slow alone would do more work.
    let mut costs = Vec::new();
    for _ in 0..rounds {
        for (subject, runs) in subjects.iter().zip(&mut runs) {
            let server = start(&subject.binary, plan.loops);
            if costs.is_empty() {
                costs = paths
                    .iter()
                    .map(|path| alone(socket_address(&server), path))
                    .collect::<Result<_, _>>()?;
            }
            runs.push(measure(socket_address(&server), paths, &costs, plan)?);
        }
    }
    for (subject, all) in subjects.iter().zip(&runs) {
        let first = (!std::ptr::eq(*subject, subjects[0])).then(|| (subjects[0].name, &runs[0][..]));
        println!("{}", line(&format!("{} x {kind}", plan.clients), subject.name, all, first));
    }
    Ok(())
}

/// How long one request takes where there is no other, in milliseconds.
fn alone(to: SocketAddr, path: &str) -> Result<f64, String> {
    let ask = || -> std::io::Result<f64> {
        let mut connection = Connection::open(to)?;
        let mut poller = Poller::new()?;
        poller.add(&connection, 0)?;
        let start = Instant::now();
        connection.send(&hungry_request(path))?;
        while connection.receive()? == Progress::Partial {
            let _ = poller.wait(Duration::from_secs(10))?.count();
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let tries: Result<Vec<f64>, _> = (0..3).map(|_| ask()).collect();
    let tries = tries.map_err(|e| format!("{path}: {e}"))?;
    Ok(tries.into_iter().fold(f64::INFINITY, f64::min))
}

fn start(binary: &Binary, loops: usize) -> Server {
    let product = binary.product;
    let blockers =
        |ms: &u32| servers::blockers(product, &format!("/spin/{ms}"), &format!("/sleep/{ms}"), *ms);
    let mut locations = match product {
        Product::Clearway => [1, 5, 60, 200].iter().map(blockers).collect(),
        Product::Nginx => String::new(),
    };
    if product == Product::Clearway {
        locations += "location /slices { testing_spin 60ms 500; }\n";
    }
    locations += "location /ssi/ { ssi on; }\n\
                  location /gzip/ { gzip on; gzip_comp_level 9; gzip_types *; gzip_proxied any; }\n";
    let include = "<!--#include virtual=\"/cheap\" -->\n";
    Setup::new(binary.clone(), &config(loops, "", &locations))
        .file("html/ssi/page.html", include.repeat(SSI_INCLUDES))
        .file("html/gzip/text", text(TEXT_BYTES))
        .start()
}

/// Words in no order, from a fixed seed.
fn text(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "loop", "carrier", "request", "the", "of", "a", "response", "filter", "buffer", "and", "socket",
        "timer", "turn", "is", "poll", "watchdog",
    ];
    let mut state = 1_u32;
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(WORDS[(state >> 28) as usize].as_bytes());
        text.push(if state >> 8 & 15 == 0 { b'\n' } else { b' ' });
    }
    text
}

fn measure(to: SocketAddr, paths: &[&str], costs: &[f64], plan: Plan) -> Result<Run, String> {
    let Plan { clients, length, pauses, .. } = plan;
    let idle = cheap(to, IDLE, pauses)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let loads: Vec<Load> = paths
            .iter()
            .zip(0..)
            .map(|(path, at)| Load {
                to,
                request: hungry_request(path),
                // As many each, or one more.
                connections: (clients + paths.len() - 1 - at) / paths.len(),
                next: Next::SameConnection,
                end: End::Awaited,
            })
            .collect();
        let stop = &stop;
        let threads: Vec<_> =
            loads.into_iter().map(|load| scope.spawn(move || closed::run(&load, stop))).collect();
        thread::sleep(LEAD);
        let beside = cheap(to, length, pauses);
        stop.store(true, Ordering::Relaxed);
        let (mut failed, mut work) = (0, 0.0);
        for (thread, cost) in threads.into_iter().zip(costs) {
            let tally = thread.join().expect("the client does not panic");
            let tally = tally.map_err(|e| format!("hungry requests: {e}"))?;
            failed += tally.failed;
            work += tally.per_second() * cost;
        }
        let beside = beside?;
        failed += (beside.lost + idle.lost) as u64;
        Ok(Run {
            kept: beside.kept,
            new: beside.new,
            kept_idle: idle.kept,
            new_idle: idle.new,
            undisturbed: beside.undisturbed,
            failed,
            work,
        })
    })
}

fn hungry_request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n").into_bytes()
}

/// Cheap requests of both kinds.
struct Cheap {
    kept: Latencies,
    new: Latencies,
    lost: usize,
    undisturbed: f64,
}

/// Cheap requests of both kinds at once for so long.
fn cheap(to: SocketAddr, duration: Duration, pauses: Pauses) -> Result<Cheap, String> {
    // Both count from their own beginnings, a few milliseconds behind this.
    let watch = (pauses == Pauses::LeftOut).then(|| Watch::begin(Instant::now(), duration + GRACE));
    let watched = Instant::now();
    let play = |next: Next| {
        let (connections, requests_per_second, connection) = match next {
            Next::SameConnection => (KEPT_CONNECTIONS, KEPT_PER_SECOND, "keep-alive"),
            Next::NewConnection => (NEW_CONNECTIONS, NEW_PER_SECOND, "close"),
        };
        let requests = Requests::Same(request("/cheap", connection));
        let schedule =
            Schedule { to, requests, connections, requests_per_second, duration, next, grace: GRACE };
        // Without the permission the client stays as it is, and the row shows what it shows.
        let _ = setpriority_process(None, CLIENT_NICE);
        let mut began = Duration::ZERO;
        let outcome = open_loop::run(&schedule, |start| began = start.saturating_duration_since(watched));
        outcome.map(|outcome| (outcome, began)).map_err(|e| format!("cheap requests: {e}"))
    };
    let (kept, new) = thread::scope(|scope| {
        let kept = scope.spawn(|| play(Next::SameConnection));
        let new = scope.spawn(|| play(Next::NewConnection));
        (kept.join().expect("the client does not panic"), new.join().expect("the client does not panic"))
    });
    let (kept, new) = (kept?, new?);
    let hiccups = watch.and_then(Watch::end);
    let lost = kept.0.failed.len() + new.0.failed.len();
    let all = kept.0.answered.len() + new.0.answered.len();
    let latencies = |(outcome, began): (open_loop::ScheduleOutcome, Duration)| {
        let has_met = |due: Duration, latency: Duration| {
            hiccups.as_ref().is_some_and(|hiccups| hiccups.meet(began + due, began + due + latency))
        };
        let left = outcome.answered.into_iter().filter(|(due, latency)| !has_met(*due, *latency));
        Latencies::new(left.map(|(_, latency)| latency).collect())
    };
    let (kept, new) = (latencies(kept), latencies(new));
    let undisturbed = (kept.count() + new.count()) as f64 * 100.0 / all.max(1) as f64;
    Ok(Cheap { kept, new, lost, undisturbed })
}

fn head() -> String {
    format!(
        "{:<16} {:<9} | {:>20} | {:>26} | {:>20} | {:>26} | {:>7} | {:>6} | {:>5} | failed",
        "hungry clients",
        "server",
        "kept, idle: p50  p99",
        "beside: p50      p99    max",
        "new, idle: p50   p99",
        "beside: p50      p99    max",
        "over",
        "counts",
        "work"
    )
}

/// The medians of all runs; how much work was done is compared with the first server's in the same round.
fn line(name: &str, server: &str, runs: &[Run], first: Option<(&str, &[Run])>) -> String {
    let of = |value: &dyn Fn(&Run) -> f64| median(&runs.iter().map(value).collect::<Vec<f64>>());
    let idle = |all: fn(&Run) -> &Latencies| {
        let at = |share| of(&|run| all(run).quantile_ms(share));
        format!("{:>12.2} {:>7.2}", at(0.5), at(0.99))
    };
    let beside = |all: fn(&Run) -> &Latencies| {
        let at = |share| of(&|run| all(run).quantile_ms(share));
        format!("{:>10.2} {:>8.2} {:>6.0}", at(0.5), at(0.99), of(&|run| all(run).max_ms()))
    };
    let over = of(&|run| {
        let over = |beside: &Latencies, idle: &Latencies| beside.quantile_ms(0.99) - idle.quantile_ms(0.99);
        over(&run.kept, &run.kept_idle).max(over(&run.new, &run.new_idle))
    });
    let compared = first.map_or_else(String::new, |(name, others)| {
        let ratios: Vec<f64> = runs.iter().zip(others).map(|(run, other)| run.work / other.work).collect();
        format!(" ({:.2} of {name})", median(&ratios))
    });
    let failed: u64 = runs.iter().map(|run| run.failed).sum();
    format!(
        "{name:<16} {server:<9} | {} | {} | {} | {} | {over:>7.1} | {:>5.0}% | {:>5.0}{compared} | {failed}",
        idle(|run| &run.kept_idle),
        beside(|run| &run.kept),
        idle(|run| &run.new_idle),
        beside(|run| &run.new),
        of(&|run| run.undisturbed),
        of(&|run| run.work),
    )
}
