//! `blocked`: 64 keep-alive connections ask for something cheap on a fixed schedule while other clients
//! ask back to back for what holds its thread for 200 ms. Each row has a server of its own, so that
//! nothing is learned from the row before; the first second with blockers is reported apart. Cheap requests
//! are answered by the server itself, or passed on to an origin.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::server::is_root;
use clearway_testkit::{Binary, Product};
use rustix::process::setpriority_process;

use crate::args::Args;
use crate::closed::{self, End, Load, Next, Tally};
use crate::connection::request;
use crate::cpu::CLIENT_CORE;
use crate::hiccups::{Hiccups, Watch};
use crate::open_loop::{self, Requests, Schedule};
use crate::origin::{Manner, Origin};
use crate::servers::{self, User, blockers, config_with, socket_address};
use crate::stats::Latencies;

const CONNECTIONS: usize = 64;
const HOLD_MILLISECONDS: u32 = 200;
/// The cheap load runs alone for so long before the blockers come.
const LEAD: Duration = Duration::from_millis(500);
const FIRST: Duration = Duration::from_secs(1);
/// The client must not be what is late: it goes before what the server runs, where that is permitted.
const CLIENT_NICE: i32 = -10;

/// (name, path, clients)
const ROWS: [(&str, &str, usize); 8] = [
    ("nothing blocks", "", 0),
    ("1 x spin", "/burn", 1),
    ("2 x spin", "/burn", 2),
    ("4 x spin", "/burn", 4),
    ("1 x sleep", "/sleep", 1),
    ("2 x sleep", "/sleep", 2),
    ("4 x sleep", "/sleep", 4),
    ("32 x sleep", "/sleep", 32),
];

/// What one row measured.
struct Row {
    due: usize,
    served: usize,
    first: Latencies,
    first_due: usize,
    rest: Latencies,
    rest_due: usize,
    undisturbed: Option<Undisturbed>,
    blockers: Tally,
}

/// The answers on whose way the machine did not stand still, of all that were due since the blockers came.
struct Undisturbed {
    percent: f64,
    answers: Latencies,
}

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let servers = args.list("servers", "clearway");
    let users = args.list("users", if is_root() { "root,nobody" } else { "self" });
    let loops = args.list("loops", "1,2");
    let seconds: u64 = args.take("secs", 6)?;
    let rate: f64 = args.take("rate", 10_000.0)?;
    let only: String = args.take("only", String::new())?;
    let watches: bool = args.take("hiccups", false)?;
    let is_proxied: bool = args.take("proxied", false)?;
    args.finish()?;
    let origin = match is_proxied {
        true => Some(Origin::start(Manner::Length(1024), CLIENT_CORE).map_err(|e| format!("origin: {e}"))?),
        false => None,
    };
    let cheap = if is_proxied { "/proxied" } else { "/cheap" };
    for user in &users {
        for count in &loops {
            let count: usize = count.parse().map_err(|_| format!("--loops {count}: not a number"))?;
            for name in &servers {
                println!("\n{name}, {count} loop(s), as {user}; {rate} requests/s, {seconds} s\n{}", head());
                for row in ROWS.iter().filter(|row| row.0.contains(&only)) {
                    let (binary, text) = server(name, count, origin.as_ref())?;
                    let user = if user == "nobody" { User::Nobody } else { User::Same };
                    let running = servers::start(&binary, &text, user, None);
                    let to = socket_address(&running);
                    let length = Duration::from_secs(seconds);
                    let measured = measure((to, cheap), row, rate, length, watches)?;
                    println!("{}", line(row, &measured));
                }
            }
        }
    }
    Ok(())
}

/// The program and configuration of a server of the `--servers` list.
fn server(name: &str, loops: usize, origin: Option<&Origin>) -> Result<(Binary, String), String> {
    let http = origin.map_or_else(String::new, |origin| {
        format!("upstream origin {{ server {}; keepalive {CONNECTIONS}; }}", origin.address)
    });
    let passing = match origin {
        Some(_) => {
            "location /proxied { proxy_pass http://origin; proxy_http_version 1.1; \
             proxy_set_header Connection ''; }\n"
        }
        None => "",
    };
    let text = |product, main: &str| {
        let held = blockers(product, "/burn", "/sleep", HOLD_MILLISECONDS);
        config_with(loops, main, &http, &format!("{passing}{held}"))
    };
    match name {
        "clearway" => Ok((Binary::under_test(), text(Product::Clearway, ""))),
        "off" => Ok((Binary::under_test(), text(Product::Clearway, "handover_after off;"))),
        "nginx" => Ok((Binary::oracle(), text(Product::Nginx, &servers::lua_modules()))),
        _ => Err(format!("--servers {name}: clearway, off or nginx")),
    }
}

fn measure(
    (to, cheap): (SocketAddr, &str),
    row: &(&str, &str, usize),
    rate: f64,
    length: Duration,
    watches: bool,
) -> Result<Row, String> {
    let (_, path, clients) = *row;
    let schedule = Schedule {
        to,
        requests: Requests::Same(request(cheap, "keep-alive")),
        connections: CONNECTIONS,
        requests_per_second: rate,
        duration: LEAD + length,
        grace: open_loop::GRACE,
        next: Next::SameConnection,
    };
    let load = Load {
        to,
        request: request(path, "keep-alive"),
        connections: clients,
        next: Next::SameConnection,
        end: End::Dropped,
    };
    let stop = AtomicBool::new(false);
    let (outcome, tally, hiccups) = thread::scope(|scope| {
        let (begun, begins) = mpsc::channel::<Instant>();
        let cheap = scope.spawn(|| {
            // Without the permission the client stays as it is, and the row shows what it shows.
            let _ = setpriority_process(None, CLIENT_NICE);
            open_loop::run(&schedule, move |start| {
                let _ = begun.send(start);
            })
        });
        // An error before the start comes out of the join.
        let watch = begins.recv().ok().map(|start| {
            let watch = watches.then(|| Watch::begin(start, schedule.duration));
            thread::sleep((start + LEAD).saturating_duration_since(Instant::now()));
            watch
        });
        let blocking = (clients > 0).then(|| scope.spawn(|| closed::run(&load, &stop)));
        let outcome = cheap.join().expect("the client does not panic");
        stop.store(true, Ordering::Relaxed);
        let tally = blocking.map(|thread| thread.join().expect("the client does not panic"));
        (outcome, tally.unwrap_or(Ok(Tally::default())), watch.flatten().and_then(Watch::end))
    });
    let outcome = outcome.map_err(|e| format!("cheap requests: {e}"))?;
    let tally = tally.map_err(|e| format!("blockers: {e}"))?;
    Ok(split(&outcome, hiccups.as_ref(), tally))
}

/// Sorts answers by when they were due: before the blockers came (dropped), in their first second, later.
fn split(outcome: &open_loop::ScheduleOutcome, hiccups: Option<&Hiccups>, blockers: Tally) -> Row {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (due, latency) in &outcome.answered {
        match due.checked_sub(LEAD) {
            Some(after) if after < FIRST => first.push(*latency),
            Some(_) => rest.push(*latency),
            None => {}
        }
    }
    let failed_first = outcome.failed.iter().filter(|due| **due >= LEAD && **due < LEAD + FIRST).count();
    let failed_rest = outcome.failed.iter().filter(|due| **due >= LEAD + FIRST).count();
    Row {
        due: outcome.answered.len() + outcome.failed.len(),
        served: outcome.answered.len(),
        first_due: first.len() + failed_first,
        first: Latencies::new(first),
        rest_due: rest.len() + failed_rest,
        rest: Latencies::new(rest),
        undisturbed: hiccups.map(|hiccups| undisturbed(outcome, hiccups)),
        blockers,
    }
}

/// Leaves out what the machine held up. What failed is in other columns.
fn undisturbed(outcome: &open_loop::ScheduleOutcome, hiccups: &Hiccups) -> Undisturbed {
    let blocked = || outcome.answered.iter().filter(|(due, _)| *due >= LEAD);
    let left = blocked().filter(|(due, latency)| !hiccups.meet(*due, *due + *latency));
    let answers = Latencies::new(left.map(|(_, latency)| *latency).collect());
    Undisturbed { percent: answers.count() as f64 * 100.0 / blocked().count().max(1) as f64, answers }
}

fn head() -> String {
    format!(
        "{:<15} {:>15} | {:>8} {:>8} {:>8} {:>8} | {:>18} {:>8} {:>8} | {:>13} {:>8} {:>8} | {:>14}",
        "blockers",
        "served / due",
        ">10ms %",
        "p50 ms",
        "p99 ms",
        "max ms",
        "1st second >10ms %",
        "p99 ms",
        "max ms",
        "undisturbed %",
        ">10ms %",
        "p99 ms",
        "blockers req/s"
    )
}

fn line((name, path, clients): &(&str, &str, usize), row: &Row) -> String {
    let possible = f64::from(1000 / HOLD_MILLISECONDS) * *clients as f64;
    let blockers = match (*clients, *path) {
        (0, _) => "-".to_owned(),
        (_, "/sleep") => format!("{:.1} of {possible:.0}", row.blockers.per_second()),
        _ => format!("{:.1}", row.blockers.per_second()),
    };
    let failed =
        if row.blockers.failed > 0 { format!(" ({} failed)", row.blockers.failed) } else { String::new() };
    let undisturbed = row.undisturbed.as_ref().map_or_else(
        || format!("{:>13} {:>8} {:>8}", "-", "-", "-"),
        |u| {
            let late = u.answers.late_percent(u.answers.count());
            format!("{:>13.1} {late:>8.2} {:>8.2}", u.percent, u.answers.quantile_ms(0.99))
        },
    );
    format!(
        "{name:<15} {:>15} | {:>8.2} {:>8.2} {:>8.2} {:>8.1} | {:>18.2} {:>8.2} {:>8.1} | {undisturbed} | \
         {:>14}{failed}",
        format!("{} / {}", row.served, row.due),
        row.rest.late_percent(row.rest_due),
        row.rest.quantile_ms(0.5),
        row.rest.quantile_ms(0.99),
        row.rest.max_ms(),
        row.first.late_percent(row.first_due),
        row.first.quantile_ms(0.99),
        row.first.max_ms(),
        blockers,
    )
}
