//! `soak MINUTES`: cheap requests on a schedule beside clients that ask for spins and sleeps of random
//! length, pause, and now and then leave before their answer. Every ten seconds one line; in the end a
//! verdict: nothing failed, nothing was stuck, memory and threads did not grow.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clearway_testkit::process::{rss_bytes, threads};
use clearway_testkit::{Address, Binary, Connection, Server};

use crate::args::Args;
use crate::closed::Next;
use crate::connection::request;
use crate::open_loop::{self, Requests, Schedule};
use crate::servers::{self, User, blockers, config, socket_address, total};
use crate::stats::Latencies;

/// Each is a location that spins and one that sleeps, of this many milliseconds.
const HOLDS: [u32; 6] = [1, 3, 10, 40, 150, 400];
const WINDOW: Duration = Duration::from_secs(10);
const CHEAP_CONNECTIONS: usize = 32;
const CHEAP_PER_SECOND: f64 = 2000.0;
/// Memory and threads may differ by so much between the first third of the run and its end.
const GROWTH_PERCENT: u64 = 10;

/// What the blocking clients saw.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
    left: AtomicU64,
}

/// What one line shows.
struct Sample {
    failed: u64,
    rss_bytes: u64,
    threads: u64,
}

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let words = args.words();
    let minutes: u64 = match words.as_slice() {
        [minutes] => minutes.parse().map_err(|_| format!("{minutes}: not a number of minutes"))?,
        _ => return Err("soak MINUTES".to_owned()),
    };
    let loops: usize = args.take("loops", 2)?;
    let clients: usize = args.take("blockers", 12)?;
    args.finish()?;
    let server = start(loops);
    let to = socket_address(&server);
    let stop = AtomicBool::new(false);
    let counts = Counts::default();
    let samples = thread::scope(|scope| {
        for client in 0..clients {
            let (stop, counts) = (&stop, &counts);
            scope.spawn(move || blocker(to, client as u64 + 1, stop, counts));
        }
        let windows = minutes * 60 / WINDOW.as_secs();
        let samples: io::Result<Vec<Sample>> =
            (0..windows.max(1)).map(|number| window(&server, to, number, &counts)).collect();
        stop.store(true, Ordering::Relaxed);
        samples
    });
    verdict(&samples.map_err(|e| format!("cheap requests: {e}"))?)
}

fn start(loops: usize) -> Server {
    let binary = Binary::under_test();
    let main = if binary.product == clearway_testkit::Product::Nginx {
        servers::lua_modules()
    } else {
        String::new()
    };
    let location = |ms: &u32| blockers(binary.product, &format!("/spin/{ms}"), &format!("/sleep/{ms}"), *ms);
    let locations: String = HOLDS.iter().map(location).collect();
    servers::start(&binary, &config(loops, &main, &locations), User::Same, None)
}

/// Ten seconds of cheap requests over new connections, and what the server looks like then.
fn window(server: &Server, to: SocketAddr, number: u64, counts: &Counts) -> io::Result<Sample> {
    let schedule = Schedule {
        to,
        requests: Requests::Same(request("/cheap", "keep-alive")),
        connections: CHEAP_CONNECTIONS,
        requests_per_second: CHEAP_PER_SECOND,
        duration: WINDOW,
        grace: open_loop::GRACE,
        next: Next::SameConnection,
    };
    let failed_before = counts.failed.load(Ordering::Relaxed);
    let outcome = open_loop::run(&schedule, |_| {})?;
    let cheap = Latencies::new(outcome.answered.iter().map(|(_, latency)| *latency).collect());
    let lost = outcome.failed.len() as u64;
    let sample = Sample {
        failed: lost + counts.failed.load(Ordering::Relaxed) - failed_before,
        rss_bytes: total(server, rss_bytes),
        threads: total(server, threads) as u64,
    };
    println!(
        "{:>5} s  cheap {} ({lost} lost) p99 {:.2} max {:.1} ms | held {} ({} failed, {} left) | \
         RSS {:.1} MiB, {} threads",
        (number + 1) * WINDOW.as_secs(),
        cheap.count(),
        cheap.quantile_ms(0.99),
        cheap.max_ms(),
        counts.answered.load(Ordering::Relaxed),
        counts.failed.load(Ordering::Relaxed),
        counts.left.load(Ordering::Relaxed),
        sample.rss_bytes as f64 / f64::from(1 << 20),
        sample.threads,
    );
    Ok(sample)
}

/// One client that blocks: random location, random pause, sometimes gone before the answer.
fn blocker(to: SocketAddr, seed: u64, stop: &AtomicBool, counts: &Counts) {
    let mut random = Random(seed);
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        let kind = if random.below(2) == 0 { "spin" } else { "sleep" };
        let hold = HOLDS[random.below(HOLDS.len() as u64) as usize];
        let mut open = match connection.take() {
            Some(open) => open,
            None => match Connection::open(&Address::Tcp(to)) {
                Ok(open) => open,
                Err(_) => {
                    counts.failed.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            },
        };
        open.send(&request(&format!("/{kind}/{hold}"), "keep-alive"));
        if random.below(20) == 0 {
            thread::sleep(Duration::from_millis(random.below(u64::from(hold) + 1)));
            counts.left.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        match open.try_response(clearway_testkit::Answer::Whole) {
            Ok(response) if response.status == 200 => {
                counts.answered.fetch_add(1, Ordering::Relaxed);
                connection = Some(open);
            }
            _ => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        thread::sleep(Duration::from_millis(random.below(200)));
    }
}

fn verdict(samples: &[Sample]) -> Result<(), String> {
    let failed: u64 = samples.iter().map(|sample| sample.failed).sum();
    let settled = &samples[samples.len() / 3];
    let last = samples.last().expect("a run has a window at least");
    let grown = |from: u64, to: u64| to > from + from * GROWTH_PERCENT / 100 + 2;
    let mut faults = Vec::new();
    if failed > 0 {
        faults.push(format!("{failed} requests failed or were stuck"));
    }
    if grown(settled.rss_bytes >> 20, last.rss_bytes >> 20) {
        faults.push(format!("memory grew from {} to {} MiB", settled.rss_bytes >> 20, last.rss_bytes >> 20));
    }
    if grown(settled.threads, last.threads) {
        faults.push(format!("threads grew from {} to {}", settled.threads, last.threads));
    }
    if faults.is_empty() {
        println!("good: nothing failed, nothing was stuck, nothing grew");
        return Ok(());
    }
    Err(faults.join("; "))
}

/// xorshift64*: the same run from the same seeds.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(failed: u64, mib: u64, threads: u64) -> Sample {
        Sample { failed, rss_bytes: mib << 20, threads }
    }

    #[test]
    fn verdicts() {
        assert!(verdict(&[sample(0, 10, 40), sample(0, 30, 60), sample(0, 31, 60)]).is_ok());
        assert!(verdict(&[sample(0, 10, 40), sample(1, 10, 40), sample(0, 10, 40)]).is_err());
        assert!(verdict(&[sample(0, 30, 60), sample(0, 30, 60), sample(0, 60, 60)]).is_err());
        assert!(verdict(&[sample(0, 30, 60), sample(0, 30, 60), sample(0, 30, 90)]).is_err());
    }

    #[test]
    fn random_numbers_are_below_their_limit() {
        let mut random = Random(1);
        let all: Vec<u64> = (0..1000).map(|_| random.below(6)).collect();
        assert!((0..6).all(|n| all.contains(&n)) && all.iter().all(|n| *n < 6));
    }
}
