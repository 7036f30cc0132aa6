//! `heal`: three of ten origins get into trouble under load: how many requests fail, and how long the others
//! take, with and without what heals a group, nginx beside. And an origin that is there again, with and
//! without `slow_start`: what part of the requests it gets in each second.

use std::thread;
use std::time::Duration;

use clearway_testkit::{Product, Server};

use crate::args::Args;
use crate::closed::Next;
use crate::connection::request;
use crate::cpu::CLIENT_CORE;
use crate::open_loop::{self, Requests, Schedule, ScheduleOutcome};
use crate::origin::{Manner, Origin, Trouble};
use crate::servers::{self, Named, User, config_with, socket_address};
use crate::stats::Latencies;

const ORIGINS: usize = 10;
const IN_TROUBLE: usize = 3;
const CONNECTIONS: usize = 200;

/// How long a group is measured before its origins get into trouble, and `slow_start` takes.
const BEFORE: Duration = Duration::from_secs(2);
const SLOW_START_S: u64 = 5;

/// What a group has.
struct Feature {
    name: &'static str,
    /// In the `upstream` block, and in the location.
    group: &'static str,
    location: &'static str,
}

const PLAIN: Feature = Feature { name: "nothing (max_fails=0)", group: "", location: "" };
const PASSIVE: Feature = Feature { name: "max_fails=1", group: "", location: "" };

const OWN: [Feature; 3] = [
    Feature { name: "health_check", group: "", location: "health_check interval=500ms fails=1 passes=2;" },
    Feature { name: "upstream_ejection", group: "upstream_ejection on;", location: "" },
    Feature {
        name: "both, queue and a budget",
        group: "upstream_ejection on; queue 100 timeout=2s; upstream_retry_budget 20%;",
        location: "health_check interval=500ms fails=1 passes=2;
                   proxy_next_upstream error timeout http_503;",
    },
];

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let servers = servers::named(&args.words())?;
    let length = Duration::from_secs_f64(args.take("secs", 10.0)?);
    let rate: f64 = args.take("rate", 500.0)?;
    let only = args.list("only", "fails,hangs,slow,down,back");
    args.finish()?;
    for part in &only {
        let trouble = match part.as_str() {
            "fails" => Trouble::Fails,
            "hangs" => Trouble::Hangs,
            "slow" => Trouble::Slow,
            "down" => Trouble::Down,
            "back" => {
                back(&servers, rate)?;
                continue;
            }
            _ => return Err(format!("--only {part}: fails, hangs, slow, down or back")),
        };
        println!("\n{IN_TROUBLE} of {ORIGINS} origins: {trouble:?}; {rate} requests a second for {length:?}");
        for server in &servers {
            let own = if server.binary.product == Product::Clearway { &OWN[..] } else { &[] };
            for feature in [&PLAIN, &PASSIVE].into_iter().chain(own) {
                trial(server, feature, trouble, (length, rate))?;
            }
        }
    }
    Ok(())
}

fn origins(count: usize) -> Result<Vec<Origin>, String> {
    let start = |_| Origin::start(Manner::Length(1024), CLIENT_CORE).map_err(|e| format!("origin: {e}"));
    (0..count).map(start).collect()
}

fn config(origins: &[Origin], server: &str, group: &str, location: &str) -> String {
    let lines: String =
        origins.iter().map(|origin| format!("server {} {server};\n", origin.address)).collect();
    let http = format!("upstream origins {{ zone origins 64k; {lines} {group} keepalive 64; }}");
    let location = format!(
        "location / {{ proxy_pass http://origins; proxy_http_version 1.1;\n\
         proxy_set_header Connection ''; proxy_read_timeout 1s; {location} }}"
    );
    config_with(1, "", &http, &location)
}

fn schedule(server: &Server, rate: f64, duration: Duration) -> Schedule {
    Schedule {
        to: socket_address(server),
        requests: Requests::Same(request("/", "keep-alive")),
        connections: CONNECTIONS,
        requests_per_second: rate,
        duration,
        grace: open_loop::GRACE,
        next: Next::SameConnection,
    }
}

/// Plays the schedule, and does something else beside it.
fn play(schedule: &Schedule, meanwhile: impl FnOnce()) -> Result<ScheduleOutcome, String> {
    thread::scope(|scope| {
        let player = scope.spawn(|| open_loop::run(schedule, |_| ()));
        meanwhile();
        player.join().expect("the client does not panic").map_err(|e| format!("load: {e}"))
    })
}

fn trial(
    server: &Named,
    feature: &Feature,
    trouble: Trouble,
    (length, rate): (Duration, f64),
) -> Result<(), String> {
    let origins = origins(ORIGINS)?;
    let fails = if std::ptr::eq(feature, &PLAIN) { "max_fails=0" } else { "max_fails=1" };
    let text = config(&origins, fails, feature.group, feature.location);
    let running = servers::start(&server.binary, &text, User::Same, None);
    let schedule = schedule(&running, rate, BEFORE + length);
    let outcome = play(&schedule, || {
        thread::sleep(BEFORE);
        origins[..IN_TROUBLE].iter().for_each(|origin| origin.fall_into(trouble));
    })?;
    let behind = outcome.answered.iter().filter(|(due, _)| *due >= BEFORE);
    let times = Latencies::new(behind.map(|(_, took)| *took).collect());
    let failed = outcome.failed.iter().filter(|due| **due >= BEFORE).count();
    // When the group has settled.
    let last_failure = outcome.failed.iter().max().map_or(0.0, Duration::as_secs_f64);
    println!(
        "{:<10} {:<26} {failed:>5} failed of {}, the last at {:.1} s; ms: p50 {:.1}, p99 {:.1}, max {:.0}",
        server.name,
        feature.name,
        failed + times.count(),
        (last_failure - BEFORE.as_secs_f64()).max(0.0),
        times.quantile_ms(0.5),
        times.quantile_ms(0.99),
        times.max_ms(),
    );
    Ok(())
}

/// One of four origins was gone for a while.
fn back(servers: &[Named], rate: f64) -> Result<(), String> {
    println!("\none of four origins is there again: its part of the requests in each second, percent");
    for server in servers {
        let is_own = server.binary.product == Product::Clearway;
        let slow_start = format!("slow_start={SLOW_START_S}s");
        for parameter in ["", &slow_start].into_iter().take(if is_own { 2 } else { 1 }) {
            let origins = origins(4)?;
            let text = config(&origins, &format!("fail_timeout=2s {parameter}"), "", "");
            let running = servers::start(&server.binary, &text, User::Same, None);
            let seconds = 2 + 4 + SLOW_START_S + 2;
            let schedule = schedule(&running, rate, Duration::from_secs(seconds));
            let mut counts: Vec<[u64; 4]> = Vec::new();
            let outcome = play(&schedule, || {
                for second in 0..seconds {
                    match second {
                        2 => origins[0].fall_into(Trouble::Down),
                        4 => origins[0].revive(),
                        _ => {}
                    }
                    counts.push([0, 1, 2, 3].map(|at| origins[at].requests()));
                    thread::sleep(Duration::from_secs(1));
                }
            })?;
            let parts = counts.windows(2).map(|pair| {
                let asked: Vec<u64> = pair[0].iter().zip(&pair[1]).map(|(old, new)| new - old).collect();
                format!("{:.0}", asked[0] as f64 * 100.0 / asked.iter().sum::<u64>().max(1) as f64)
            });
            println!(
                "{:<10} {:<14} {} ({} failed)",
                server.name,
                parameter,
                parts.collect::<Vec<_>>().join(" "),
                outcome.failed.len()
            );
        }
    }
    Ok(())
}
