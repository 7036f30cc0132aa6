//! `stress`: the runtime's tests where they are most likely to find something (with lent loops, under
//! AddressSanitizer, pinned to one processor, beside three threads that spin), then everything at once for as
//! long as one likes (`crates/runtime/tests/stress`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::asan;
use crate::run::{Outcome, Step};

const MINUTES: u64 = 10;
const USAGE: &str = "usage: cargo xtask stress [MINUTES]";

/// The runtime's tests but those of its documentation.
const TESTS: &str = "test --package clearway-runtime --lib --tests";

/// The last step.
const STRESS: &str = "test --package clearway-runtime --release --test stress -- --ignored --nocapture";

const SPINNERS: usize = 3;

pub(crate) fn command(args: &[String]) -> Outcome {
    let minutes = match args {
        [] => MINUTES,
        [n] => n.parse().map_err(|_| USAGE.to_owned())?,
        _ => return Err(USAGE.to_owned()),
    };
    for every in ["1", "7"] {
        Step::cargo(TESTS).arg("--features").arg("testing").env("CLEARWAY_CHAOS_LEND", every).run()?;
    }
    // Runtimes are never freed.
    asan::tests(TESTS)?;
    Step::cargo(TESTS).arg("--no-run").run()?;
    Step::pinned(TESTS)?.run()?;
    beside_spinners(|| Step::cargo(TESTS).run())?;
    Step::cargo(STRESS).env("CLEARWAY_STRESS_SECONDS", &(minutes * 60).to_string()).run()
}

/// Runs `step` while three threads use all the processor time that they can get.
fn beside_spinners(step: impl FnOnce() -> Outcome) -> Outcome {
    let over = Arc::new(AtomicBool::new(false));
    let spinners: Vec<_> = (0..SPINNERS)
        .map(|_| {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let outcome = step();
    over.store(true, Ordering::Relaxed);
    for spinner in spinners {
        spinner.join().map_err(|_| "a spinner panicked".to_owned())?;
    }
    outcome
}
