//! Test support: servers under test in directories of their own, raw clients that see every byte, and
//! an oracle (nginx, recorded or live) to compare with. Runs in test programs and benchmarks, never on a
//! loop; what goes wrong is a failed test, so most of it panics with a message rather than return an error.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]
#![allow(clippy::disallowed_macros, reason = "test programs talk to their terminal")]

mod binary;
mod canonical;
pub mod client;
pub mod cold;
pub mod differential;
mod family;
pub mod http2;
pub mod hung;
pub mod load;
pub mod place;
pub mod ports;
mod prefix;
pub mod process;
pub mod proofs;
pub mod recorded;
pub mod response;
pub mod server;
mod setup;
pub mod site;
mod source;

pub use binary::{Binary, Product};
pub use client::{Address, Connection, End, NoAnswer};
pub use differential::{Case, Exchange};
pub use load::{Failure, Idle, Load, Tally};
pub use response::{Answer, Response};
pub use server::Server;
pub use setup::{Refusal, Setup};
pub use source::OracleSource;

use std::thread;
use std::time::{Duration, Instant};

/// A time that nothing exceeds, on a slow and busy machine either.
const FAR_TOO_LONG: Duration = Duration::from_mins(1);

/// After how many polls of a loop one is lent on purpose, in builds with `testing`; `None`: no poll is.
pub fn chaos_lend() -> Option<u64> {
    std::env::var("CLEARWAY_CHAOS_LEND").ok()?.parse().ok().filter(|every| *every > 0)
}

/// Waits until `holds` says yes.
///
/// # Panics
/// If it never did within a minute, with what was waited for.
pub fn expect_soon(what: &str, holds: impl FnMut() -> bool) {
    assert!(wait_until(FAR_TOO_LONG, holds), "in vain: {what}");
}

/// Looks again every few milliseconds until `holds` says yes; false if it never did within `limit`.
pub fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(3));
    }
}
