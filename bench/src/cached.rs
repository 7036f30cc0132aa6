//! `stampede`, `torn`, `objects`: what is promised of caches, at full size, with its figures.

use std::time::Duration;

use clearway_testkit::Binary;
use clearway_testkit::proofs::{Objects, Stampede, Torn};

use crate::args::Args;

/// How far behind the first byte of the first client any other may have its own.
const BEHIND_MAX: Duration = Duration::from_millis(50);

/// The latency that this part of all is below, milliseconds.
fn quantile_ms(sorted: &[Duration], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1000.0)
}

fn verdict(holds: &[(bool, &str)]) -> Result<(), String> {
    let broken: Vec<&str> = holds.iter().filter(|(holds, _)| !holds).map(|(_, what)| *what).collect();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

/// `stampede --clients 1000 --mib 8 --mb-per-second 4`.
pub(crate) fn stampede(mut args: Args) -> Result<(), String> {
    let plan = Stampede {
        clients: args.take("clients", 1000)?,
        bytes: args.take("mib", 8_usize)? << 20,
        bytes_per_second: args.take("mb-per-second", 4_usize)? * 1_000_000,
    };
    let rounds = args.take("rounds", 200)?;
    args.finish()?;
    let report = plan.play(&Binary::under_test());
    let last = report.behind.last().copied().unwrap_or_default();
    println!(
        "{} clients: {} request(s) to the origin, {} wrong; first bytes {:.1} ms (median), {:.1} ms (last) \
         behind",
        plan.clients,
        report.asked,
        report.wrong,
        quantile_ms(&report.behind, 0.5),
        quantile_ms(&report.behind, 1.0),
    );
    let few = Stampede { clients: plan.clients.min(64), ..plan };
    let uncached = few.play_uncached(&Binary::under_test(), rounds);
    let (locked, unlocked) = (quantile_ms(&uncached.locked, 0.99), quantile_ms(&uncached.unlocked, 0.99));
    println!("what may not be kept: p99 {locked:.2} ms with proxy_cache_lock, {unlocked:.2} ms without");
    verdict(&[
        (report.asked == 1, "the origin was asked more than once"),
        (report.wrong == 0, "some have not got all of it"),
        (last <= BEHIND_MAX, "some have waited"),
        (locked <= unlocked * 1.2, "clients wait for each other"),
    ])
}

/// `torn --objects 10000 --faults 200`.
pub(crate) fn torn(mut args: Args) -> Result<(), String> {
    let plan = Torn {
        objects: args.take("objects", 10_000)?,
        faults: args.take("faults", 200)?,
        requests_between: args.take("requests", 500)?,
        seed: args.take("seed", 16)?,
    };
    args.finish()?;
    let report = plan.play(&Binary::under_test());
    println!("{report:?}");
    verdict(&[(report.wrong == 0, "bytes were wrong"), (report.failed == 0, "requests failed")])
}

/// `objects --objects 10000000 --sample 10000 --kills 20`.
pub(crate) fn objects(mut args: Args) -> Result<(), String> {
    let plan = Objects {
        objects: args.take("objects", 10_000_000)?,
        sample: args.take("sample", 10_000)?,
        kills: args.take("kills", 20)?,
    };
    args.finish()?;
    let report = plan.play(&Binary::under_test());
    println!("{report:?}");
    let lowest = report.after_kills.iter().copied().fold(1.0, f64::min);
    verdict(&[
        (report.after_start >= 0.99, "too few hits in the first second after the start"),
        (lowest >= 0.99, "too few hits in the first second after a kill"),
        (report.bytes_each <= 96.0, "an object takes too much memory"),
    ])
}
