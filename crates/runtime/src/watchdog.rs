//! The watchdog: one thread that looks at every loop's word once per period, lends the loops whose
//! carrier does not come back from a poll, and demotes detached carriers that burn CPU. It takes no
//! lock that a carrier can hold, starts no thread, and sleeps while all loops wait.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clearway_os::{clock, futex, thread};

use crate::event_loop::Loop;
use crate::metrics;
use crate::shared::{Carrier, Lent, Shared};
use crate::suspects::{Manner, Tag};
use crate::word::{Lease, Phase};

/// Periods that every loop must have waited before the watchdog goes to sleep.
const QUIET_PERIODS: u32 = 20;

/// How often it looks where the kernel has no membarrier(2), so that it cannot sleep for good.
const QUIET_SLEEP: Duration = Duration::from_millis(20);

/// What was seen of a loop the last time.
#[derive(Clone, Copy)]
struct Seen {
    word: Lease,
    /// The polling carrier's CPU clock at the first sight of this word.
    cpu_ns: u64,
}

/// Runs until the runtime stops. `period` is at least a microsecond.
pub(crate) fn run(shared: &'static Shared, period: Duration) {
    thread::sleep_exactly();
    let barrier = thread::register_barrier();
    let mut seen: Vec<Option<Seen>> = vec![None; shared.loops().len()];
    let mut quiet = 0;
    while !shared.stopping() {
        futex::wait(&shared.watchdog, 0, Some(period));
        let mut busy = shared.detached.load(Ordering::Relaxed) > 0;
        for (l, seen) in shared.loops().iter().zip(&mut seen) {
            busy |= l.remote.word.load().phase() != Phase::Wait;
            *seen = examine(shared, l, *seen, period);
        }
        demote_burners(shared, period);
        quiet = if busy { 0 } else { quiet + 1 };
        if quiet > QUIET_PERIODS {
            sleep(shared, barrier);
            quiet = 0;
        }
    }
}

/// Looks at one loop; lends it if its poll has been under way since the last look and really blocks.
fn examine(shared: &Shared, l: &Loop, seen: Option<Seen>, period: Duration) -> Option<Seen> {
    let word = l.remote.word.load();
    if word.phase() != Phase::Poll {
        return None;
    }
    let carrier = &shared.carriers[word.carrier()];
    let tid = carrier.tid.load(Ordering::Relaxed);
    let cpu_ns = thread::cpu_ns(tid)?;
    let Some(seen) = seen.filter(|seen| seen.word == word) else {
        return Some(Seen { word, cpu_ns });
    };
    let manner = if u128::from(cpu_ns.saturating_sub(seen.cpu_ns)) * 2 >= period.as_nanos() {
        Manner::Burns
    } else if thread::state(tid) == Some(b'R') {
        // It waits for a processor, as a spare would: lending the loop would not help it.
        return Some(seen);
    } else {
        Manner::Sleeps
    };
    let tag = Tag(carrier.tag.load(Ordering::Relaxed));
    match shared.lend(&l.remote, word, 0) {
        Lent::Done => {
            metrics::HANDOVERS.increment();
            shared.suspects.blame(tag, manner, clock::monotonic_ms());
            if manner == Manner::Burns {
                carrier.demotion.demote(|| shared.restore.lower(tid));
            }
            None
        }
        Lent::MovedOn => None,
        Lent::NoSpare => {
            shared.alert_exhausted();
            Some(seen)
        }
    }
}

/// Demotes the detached carriers that used the CPU since they were seen first.
fn demote_burners(shared: &Shared, period: Duration) {
    if shared.detached.load(Ordering::Relaxed) == 0 {
        return;
    }
    let started = shared.started.load(Ordering::Acquire) as usize;
    for carrier in shared.carriers[..started].iter().filter(|c| c.demotion.is_stuck()) {
        demote_if_burning(shared, carrier, period);
    }
}

fn demote_if_burning(shared: &Shared, carrier: &Carrier, period: Duration) {
    let tid = carrier.tid.load(Ordering::Relaxed);
    let Some(now) = thread::cpu_ns(tid) else { return };
    match carrier.cpu_seen_ns.load(Ordering::Relaxed) {
        0 => carrier.cpu_seen_ns.store(now.max(1), Ordering::Relaxed),
        first if u128::from(now.saturating_sub(first)) * 2 >= period.as_nanos() => {
            carrier.demotion.demote(|| shared.restore.lower(tid));
        }
        _ => {}
    }
}

/// Rule 9 of word.rs, the watchdog's side.
fn sleep(shared: &Shared, barrier: bool) {
    if !barrier {
        futex::wait(&shared.watchdog, 0, Some(QUIET_SLEEP));
        return;
    }
    shared.watchdog.store(1, Ordering::SeqCst);
    thread::barrier();
    let waiting = shared.loops().iter().all(|l| l.remote.word.load().phase() == Phase::Wait);
    let detached = shared.detached.load(Ordering::Relaxed);
    if waiting && detached == 0 && !shared.stopping() {
        futex::wait(&shared.watchdog, 1, None);
    }
    shared.watchdog.store(0, Ordering::Relaxed);
}
