//! The threads of a runtime: carriers, the starter that makes them ahead of need, the watchdog. Boot,
//! and the starter's thread.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::Duration;

use clearway_base::log::Level;
use clearway_os::{clock, futex, sampling, signal, thread};

use crate::event_loop::Exit;
use crate::event_loop::loops::Loops;
use crate::handover::word::Lease;
use crate::metrics;
use crate::shared::{CARRIER_STACK, Restore, SPARES_AHEAD, Shared, Work};
use crate::threads::watchdog;

/// After a failure to start a thread, how long until the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often the starter looks whether all spares are needed, in milliseconds. Those that were not from one
/// look to the next end: twice this after they were needed at the latest.
const SURPLUS_MS: u64 = 5000;

/// Stack of a thread that only parks, in bytes.
pub(crate) const SMALL_STACK: usize = 64 << 10;

/// Starts the threads that a fresh runtime needs: one carrier per loop with its lease, spares, the
/// starter, the watchdog.
///
/// # Errors
/// What the first failing start of a thread said.
pub(crate) fn start(loops: &'static Loops, leases: Vec<Lease>) -> io::Result<()> {
    let shared = loops.shared;
    for (index, lease) in leases.into_iter().enumerate() {
        shared.carriers[index].assign(index, lease);
        start_carrier(loops, index, Birth::OfLoop)?;
    }
    let ahead = SPARES_AHEAD.min(shared.carriers.len() - loops.all().len());
    for me in loops.all().len()..loops.all().len() + ahead {
        start_carrier(loops, me, Birth::Spare)?;
    }
    spawn("starter", SMALL_STACK, move || keep_spares_ahead(loops))?;
    if let Some(period) = shared.handover_after {
        start_watchdog(loops, period)?;
    }
    Ok(())
}

/// # Errors
/// When the thread is refused.
pub(crate) fn start_watchdog(loops: &'static Loops, period: Duration) -> io::Result<()> {
    spawn("watchdog", SMALL_STACK, move || {
        loops.shared.raise(thread::current());
        watchdog::run(loops, period);
    })
}

/// How priorities can be lowered *and* restored: tried out on a thread that is thrown away.
#[expect(clippy::disallowed_methods, reason = "boot: the thread ends after three system calls")]
pub(crate) fn probe_restore() -> Restore {
    let probe = Builder::new().name("probe".to_owned()).stack_size(SMALL_STACK).spawn(Restore::probe);
    // Where no thread can be had there will be none to demote either.
    probe.ok().and_then(|thread| thread.join().ok()).unwrap_or(Restore::Batch(0))
}

/// Starts a thread that takes no signals.
#[expect(clippy::disallowed_methods, reason = "the threads of a runtime start here")]
pub(crate) fn spawn(name: &str, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name(name.to_owned()).stack_size(stack).spawn(move || {
        signal::block_all();
        body();
    })?;
    Ok(())
}

/// The first action of a new carrier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Birth {
    /// Its loop is assigned already.
    OfLoop,
    /// The carrier parks.
    Spare,
}

/// Starts the thread of carrier `me`, whose place nobody has. Boot, then the starter.
fn start_carrier(loops: &'static Loops, me: usize, birth: Birth) -> io::Result<()> {
    let shared = loops.shared;
    spawn(&format!("carrier {me}"), CARRIER_STACK, move || {
        let needed = Needed { shared, carrier: me };
        carry(loops, me, birth);
        let _ = ManuallyDrop::new(needed);
        shared.carriers[me].vacate();
    })?;
    shared.started.fetch_max(me as u32 + 1, Ordering::AcqRel);
    shared.alive.fetch_add(1, Ordering::Relaxed);
    metrics::CARRIERS_STARTED.increment();
    Ok(())
}

/// Ends the process when a carrier's thread is unwound, by a panic outside the polls of tasks or by a library
/// that ends the thread: nobody would run its loop any more, and nobody would find out.
struct Needed {
    shared: &'static Shared,
    carrier: usize,
}

impl Drop for Needed {
    fn drop(&mut self) {
        self.shared.die(format_args!("carrier {} was unwound: the process ends", self.carrier));
    }
}

/// A carrier's life: run a loop until it is lost, then be a spare.
fn carry(loops: &'static Loops, me: usize, birth: Birth) {
    let shared = loops.shared;
    let carrier = &shared.carriers[me];
    let tid = thread::current();
    // The address of a local: what lies beyond it on the stack is the start of a thread.
    carrier.away.stands_on((&raw const tid).addr());
    sampling::allow();
    shared.raise(tid);
    carrier.tid.store(tid, Ordering::Relaxed);
    if birth == Birth::Spare {
        shared.return_spare(me);
    }
    while let Some(work) = carrier.wait_assignment(|| shared.return_spare(me)) {
        match work {
            Work::Run(index, lease) => {
                shared.pin(index, tid);
                if loops.all()[index].run(me, lease) == Exit::Stopped {
                    return;
                }
            }
            Work::Help(index) => {
                let end = loops.all()[index].serve_beside(me);
                shared.raise(tid);
                shared.helpers.leave(end, clock::monotonic_ms());
            }
        }
        shared.return_spare(me);
    }
}

/// The starter: sleeps until spares run low (rule: a lender sets `starter` to 0 and wakes it), or until it is
/// time to see whether there are more than anybody needs.
fn keep_spares_ahead(loops: &'static Loops) {
    let shared = loops.shared;
    let mut surplus = Surplus { vacant: Vec::new(), next_ms: clock::monotonic_ms() };
    while !shared.stopping() {
        if is_low(shared) {
            start_spare(loops, &mut surplus.vacant);
            continue;
        }
        let patience = surplus.dismiss(shared);
        shared.starter.store(1, Ordering::SeqCst);
        if !is_low(shared) && !shared.stopping() {
            futex::wait(&shared.starter, 1, patience);
        }
        shared.starter.store(0, Ordering::Relaxed);
    }
}

fn is_low(shared: &Shared) -> bool {
    shared.alive() < shared.carriers.len() && shared.spares.count() < SPARES_AHEAD
}

fn start_spare(loops: &'static Loops, vacant: &mut Vec<usize>) {
    let shared = loops.shared;
    let is_free = |&me: &usize| shared.carriers[me].tid.load(Ordering::Acquire) == 0;
    let started = shared.started.load(Ordering::Relaxed) as usize;
    let place = match vacant.iter().position(is_free) {
        Some(at) => vacant.swap_remove(at),
        None if started < shared.carriers.len() => started,
        // A thread that was dismissed is about to end.
        None => return std::thread::yield_now(),
    };
    if let Err(error) = start_carrier(loops, place, Birth::Spare) {
        if place < started {
            vacant.push(place);
        }
        shared.sink.log(Level::Alert, format_args!("cannot start a carrier ({error})"));
        futex::wait(&shared.starter, 0, Some(RETRY_AFTER));
        return;
    }
    // It counts as a spare only when it runs: give it the time, lest too many start.
    while is_free(&place) && !shared.stopping() {
        std::thread::yield_now();
    }
}

/// The starter's knowledge of carriers that are not needed.
struct Surplus {
    /// Places whose threads have ended, or are about to.
    vacant: Vec<usize>,
    /// When it looks again.
    next_ms: u64,
}

impl Surplus {
    /// Ends the threads of spares that nobody has needed since the last look, but for some. How long until
    /// the next look; `None`: there are no more than at first.
    fn dismiss(&mut self, shared: &Shared) -> Option<Duration> {
        if shared.alive() <= shared.remotes().len() + SPARES_AHEAD {
            return None;
        }
        let now_ms = clock::monotonic_ms();
        if now_ms >= self.next_ms {
            self.next_ms = now_ms + SURPLUS_MS;
            for _ in SPARES_AHEAD..shared.spares.take_least() {
                let Some(spare) = shared.spares.pop(SPARES_AHEAD) else { break };
                shared.carriers[spare].dismiss();
                self.vacant.push(spare);
                shared.alive.fetch_sub(1, Ordering::Relaxed);
                metrics::CARRIERS_ENDED.increment();
            }
        }
        Some(Duration::from_millis(self.next_ms - now_ms))
    }
}
