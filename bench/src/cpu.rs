//! `cpu`: CPU time per request of several servers at once. All of them share core 0 and each has a load
//! of its own from core 1, so what disturbs the machine disturbs all alike; only ratios within one
//! repetition mean something. The same program under two names shows the noise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clearway_testkit::Server;
use clearway_testkit::process::cpu_time_of_threads;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::args::Args;
use crate::closed::{self, End, Load, Next, Tally};
use crate::connection::{browser_request, request};
use crate::servers::{self, Named, User, config, socket_address, total};
use crate::stats::median;

pub(crate) const CONNECTIONS: usize = 64;
pub(crate) const SERVER_CORES: &str = "0";
pub(crate) const CLIENT_CORE: usize = 1;
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let servers = servers::named(&args.words())?;
    let repetitions: usize = args.take("reps", 5)?;
    let seconds: u64 = args.take("secs", 3)?;
    let modes = args.list("modes", "keepalive,browser,connect");
    args.finish()?;
    for mode in &modes {
        let (next, request) = match mode.as_str() {
            "keepalive" => (Next::SameConnection, request("/cheap", "keep-alive")),
            "browser" => (Next::SameConnection, browser_request("/cheap")),
            "connect" => (Next::NewConnection, request("/cheap", "close")),
            _ => return Err(format!("--modes {mode}: keepalive, browser or connect")),
        };
        println!(
            "\n{mode}: CPU µs per request, side by side on one core; the ratio is to {}",
            servers[0].name
        );
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); servers.len()];
        for repetition in 0..repetitions {
            let measured = side_by_side(&servers, next, &request, Duration::from_secs(seconds))?;
            println!("{}", row(&format!("{}", repetition + 1), &servers, &measured));
            for (all, (one, _)) in ratios.iter_mut().zip(&measured) {
                all.push(one / measured[0].0);
            }
        }
        let medians: Vec<String> = servers
            .iter()
            .zip(&ratios)
            .map(|(server, all)| format!("{} {:.3} ({})", server.name, median(all), range(all)))
            .collect();
        println!("median ratios: {}", medians.join(", "));
    }
    Ok(())
}

/// (CPU µs per request, what the load counted) of each server.
fn side_by_side(
    servers: &[Named],
    next: Next,
    request: &[u8],
    length: Duration,
) -> Result<Vec<(f64, Tally)>, String> {
    let text = config(1, "", "");
    let running: Vec<Server> = servers
        .iter()
        .map(|server| servers::start(&server.binary, &text, User::Same, Some(SERVER_CORES)))
        .collect();
    let loads: Vec<Load> = running
        .iter()
        .map(|server| Load {
            to: socket_address(server),
            request: request.to_vec(),
            connections: CONNECTIONS,
            next,
            end: End::Dropped,
        })
        .collect();
    measure(&running, &loads, length)
}

/// The same of servers that run.
pub(crate) fn measure(
    running: &[Server],
    loads: &[Load],
    length: Duration,
) -> Result<Vec<(f64, Tally)>, String> {
    play(loads, WARM_UP)?;
    let before: Vec<Duration> = running.iter().map(|server| total(server, cpu_time_of_threads)).collect();
    let tallies = play(loads, length)?;
    let after = running.iter().map(|server| total(server, cpu_time_of_threads));
    let used = after.zip(before).map(|(after, before)| after.saturating_sub(before).as_secs_f64() * 1e6);
    Ok(used.zip(tallies).map(|(us, tally)| (us / tally.answered.max(1) as f64, tally)).collect())
}

/// What one repetition runs: servers, their loads, and what both need to be there.
pub(crate) type Running<T> = (Vec<Server>, Vec<Load>, T);

/// Measures servers side by side again and again, and prints a line for each time and the medians.
pub(crate) fn repeat<T>(
    name: &str,
    servers: &[Named],
    (repetitions, length): (usize, Duration),
    mut begin: impl FnMut() -> Result<Running<T>, String>,
) -> Result<(), String> {
    println!("\n{name}: CPU µs per request, side by side on one core; the ratio is to {}", servers[0].name);
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); servers.len()];
    for repetition in 0..repetitions {
        let (running, loads, _held) = begin()?;
        let measured = measure(&running, &loads, length)?;
        println!("{}", row(&format!("{}", repetition + 1), servers, &measured));
        for (all, (one, _)) in ratios.iter_mut().zip(&measured) {
            all.push(one / measured[0].0);
        }
    }
    let medians = servers.iter().zip(&ratios);
    let medians = medians.map(|(server, all)| format!("{} {:.3} ({})", server.name, median(all), range(all)));
    println!("median ratios: {}", medians.collect::<Vec<_>>().join(", "));
    Ok(())
}

/// All loads at once, each on a thread of its own, for so long.
pub(crate) fn play(loads: &[Load], length: Duration) -> Result<Vec<Tally>, String> {
    let stop = AtomicBool::new(false);
    let run = |load: &Load| {
        let mut cores = CpuSet::new();
        cores.set(CLIENT_CORE);
        // On a machine with one core client and server have to share it.
        let _ = sched_setaffinity(None, &cores);
        closed::run(load, &stop)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = loads.iter().map(|load| scope.spawn(|| run(load))).collect();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        let results = threads.into_iter().map(|thread| thread.join().expect("the client does not panic"));
        results.map(|result| result.map_err(|e| format!("load: {e}"))).collect()
    })
}

pub(crate) fn row(name: &str, servers: &[Named], measured: &[(f64, Tally)]) -> String {
    let cells: Vec<String> = servers
        .iter()
        .zip(measured)
        .map(|(server, (us, tally))| {
            let failed = if tally.failed > 0 { format!(", {} failed", tally.failed) } else { String::new() };
            format!(
                "{} {us:.2} ({:.3}; {:.0} req/s{failed})",
                server.name,
                us / measured[0].0,
                tally.per_second()
            )
        })
        .collect();
    format!("{name:>3}: {}", cells.join("  "))
}

pub(crate) fn range(all: &[f64]) -> String {
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    format!("{least:.3} to {most:.3}")
}
