//! The state that the loops, the carriers and the watchdog of one runtime share, and the two acts that all of
//! them take part in: lending a loop, and coming back from one that was lent.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clearway_base::log::{Discard, Level, Sink};
use clearway_base::memory;
use clearway_os::thread::Processors;
use clearway_os::{clock, futex, thread};

use crate::event_loop::crowd::Crowd;
use crate::handover::away::{Away, Sight};
use crate::handover::demotion::Demotion;
use crate::handover::held_turn::HeldTurn;
use crate::handover::helpers::{End, Helpers};
use crate::handover::lenders::Lender;
use crate::handover::observer::Observer;
use crate::handover::rest::Rest;
use crate::handover::spares::{Spares, Stop};
use crate::handover::suspects::{Manner, Suspects, Tag};
use crate::handover::turns::Turns;
use crate::handover::waiting::Waiting;
use crate::handover::word::Lease;
use crate::metrics;
use crate::task::place::Waiter;
use crate::task::remote::Remote;

/// Fewer spares than this and more are started ahead.
pub(crate) const SPARES_AHEAD: usize = 8;

/// Stack of a carrier, in bytes: handlers and libraries run on it.
pub(crate) const CARRIER_STACK: usize = 2 << 20;
/// So many spares are not asked to give memory back: the ones that are needed last. They do so when they have
/// been idle for [`UNTIDIED_LIMIT`].
const SPARES_UNTIDIED: usize = 2;
/// Later than loops that have nothing to do ask the others (tidying.rs).
const UNTIDIED_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 7000 });

/// A carrier's `assigned`: nothing yet.
const UNASSIGNED: u32 = 0;
/// Added to a carrier's `assigned`: it helps that loop, and is a spare again.
const HELP: u32 = 1 << 30;
/// A carrier's `assigned`: it gives memory back and is a spare again.
const TIDY: u32 = u32::MAX - 1;
/// A carrier's `assigned`: its thread ends.
const STOP: u32 = u32::MAX;

/// How long the log has for the last line of a process that ends itself.
const LAST_LINE: Duration = Duration::from_millis(200);

/// How long a suspect's poll has blocked, at least, that shows a habit, nanoseconds: one that takes less is
/// no burden to others that wait for the same VM.
pub(crate) const HABIT_NS: u64 = 5_000_000;

/// How a runtime is to be.
#[derive(Clone)]
pub struct Config {
    /// Event loops; at least 1.
    pub loops: usize,
    /// A task that holds its loop longer than this loses it; `None`: never.
    pub handover_after: Option<Duration>,
    /// Carriers beyond one per loop, at most.
    pub handover_carriers: usize,
    /// The processors of each loop; loops beyond the list run anywhere.
    pub processors: Vec<Option<Processors>>,
    /// Takes the runtime's log lines.
    pub sink: Arc<dyn Sink>,
}

impl Default for Config {
    /// One loop that runs anywhere, is handed over after a millisecond, and logs nothing.
    fn default() -> Self {
        Self {
            loops: 1,
            handover_after: Some(Duration::from_millis(1)),
            handover_carriers: 16,
            processors: Vec::new(),
            sink: Arc::new(Discard),
        }
    }
}

/// One carrier, as others see it. It writes its tag for each poll: not beside what another one writes.
#[repr(align(128))]
pub(crate) struct Carrier {
    /// Loop index + 1 (and HELP), or one of the values above; a futex.
    assigned: AtomicU32,
    /// The word's value under which the assigned loop starts; of a spare the last one that it had.
    lease: AtomicU64,
    pub(crate) tid: AtomicU32,
    /// The tag of what it polls.
    pub(crate) tag: AtomicU32,
    pub(crate) demotion: Demotion,
    /// Its CPU clock when the watchdog first saw it detached; the watchdog only. 0: not seen yet.
    pub(crate) cpu_seen_ns: AtomicU64,
    /// The facts that it shows to an observer.
    pub(crate) away: Away,
    /// When it gave its loop away itself, its CPU clock then, and for which tag; the carrier only. 0: it did
    /// not.
    pub(crate) detached_ns: AtomicU64,
    detached_cpu_ns: AtomicU64,
    /// How often the thread had waited by then.
    detached_waits: AtomicU64,
    detached_tag: AtomicU32,
    /// The turn that it holds (held_turn.rs).
    pub(crate) turn: HeldTurn,
    /// The loop that it runs, or ran last.
    pub(crate) running: AtomicU32,
    /// The poll that it does beside a loop (rule 13 of word.rs); 0: none.
    pub(crate) helps_in: AtomicU64,
    /// The poll in which it gave its loop away had to wait for a token; the carrier only.
    pub(crate) waited: AtomicBool,
    /// Whether it has run a loop since it gave memory back.
    has_run: AtomicBool,
}

/// The work for which a spare is woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Run this loop, from this lease on.
    Run(usize, Lease),
    /// Poll hungry tasks of this loop.
    Help(usize),
}

/// The lender of a loop, and when the poll that holds it was seen first.
pub(crate) type By = (Lender, Sight);

/// The state that loops, carriers and the watchdog of one runtime share.
pub(crate) struct Shared {
    pub(crate) carriers: Box<[Carrier]>,
    pub(crate) spares: Spares,
    pub(crate) suspects: Suspects,
    /// The part of each loop that any thread may touch.
    remotes: OnceLock<Box<[&'static Remote]>>,
    pub(crate) handover_after: Option<Duration>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) observer: OnceLock<Arc<dyn Observer>>,
    /// Stuck polls whose accounts are asked for, about (observer.rs).
    pub(crate) asked: AtomicU32,
    /// Places among `carriers` that were ever used.
    pub(crate) started: AtomicU32,
    /// Carriers that have a thread; the starter writes it.
    pub(crate) alive: AtomicU32,
    /// Detached carriers at the moment, about.
    pub(crate) detached: AtomicU32,
    /// 1: the starter of carriers sleeps; a futex.
    pub(crate) starter: AtomicU32,
    /// Whether the watchdog sleeps (rule 9 of word.rs).
    pub(crate) rest: Rest,
    restore: Restore,
    pins: Pins,
    stop: Stop,
    /// Suspects that wait for a carrier.
    pub(crate) waiting: Waiting<Waiter>,
    /// The turns of suspects that burn CPU.
    pub(crate) turns: Turns<Waiter>,
    pub(crate) helpers: Helpers,
    pub(crate) crowd: Crowd,
    last_alert_ms: AtomicU64,
}

/// The time slice that carriers ask for, in microseconds, the least there is: a thread with less than the
/// system's default (about 3 ms) is let in before another thread's slice is over. Demoted ones have the
/// default; more than that (100 ms) was tried, and made loops wait for up to 50 ms.
const SLICE_US: u64 = 100;

/// Nice value of a carrier that burns CPU away from its loop.
const NICE_DEMOTED: i32 = 19;

/// Which processors the carriers of each loop run on (`worker_cpu_affinity`).
struct Pins {
    of_loops: Vec<Option<Processors>>,
    /// The processors of the process; `None`: no thread is bound.
    all: Option<Processors>,
}

impl Pins {
    fn new(config: &Config) -> Self {
        let wanted = config.processors.iter().any(Option::is_some);
        Self { of_loops: config.processors.clone(), all: Processors::own().ok().filter(|_| wanted) }
    }

    fn bind(&self, index: usize, tid: u32) {
        let Some(all) = &self.all else { return };
        let own = self.of_loops.get(index).and_then(Option::as_ref);
        // Processors that are not there bind nobody: the loop runs anywhere, as in nginx.
        let _ = own.unwrap_or(all).bind(tid);
    }

    fn free(&self, tid: u32) {
        if let Some(all) = &self.all {
            // A thread that has ended needs no processor.
            let _ = all.bind(tid);
        }
    }
}

/// How the priority of a carrier is lowered and restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restore {
    /// Lowered by nice value; this is the one to go back to.
    Nice(i32),
    /// Lowered by SCHED_BATCH, since a nice value (this one) could not be raised again.
    Batch(i32),
}

impl Restore {
    /// Finds out, on a thread that is thrown away afterwards, what can be undone.
    pub(crate) fn probe() -> Self {
        let tid = thread::current();
        let nice = thread::nice(tid).unwrap_or(0);
        let lowered = thread::schedule(tid, thread::Policy::Normal, NICE_DEMOTED, 0);
        match lowered.and_then(|()| thread::schedule(tid, thread::Policy::Normal, nice, 0)) {
            Ok(()) => Self::Nice(nice),
            Err(_) => Self::Batch(nice),
        }
    }

    fn lower(self, tid: u32) {
        // A thread that cannot be lowered competes as before.
        let _ = match self {
            Self::Nice(_) => thread::schedule(tid, thread::Policy::Normal, NICE_DEMOTED, 0),
            Self::Batch(nice) => thread::schedule(tid, thread::Policy::Batch, nice, 0),
        };
    }

    fn raise(self, tid: u32) {
        let (Self::Nice(nice) | Self::Batch(nice)) = self;
        // A kernel leaves parameters that it does not know as they are.
        let _ = thread::schedule(tid, thread::Policy::Normal, nice, SLICE_US);
    }
}

/// Processors that this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Carrier {
    fn new() -> Self {
        Self {
            assigned: AtomicU32::new(UNASSIGNED),
            lease: AtomicU64::new(0),
            tid: AtomicU32::new(0),
            tag: AtomicU32::new(0),
            demotion: Demotion::new(),
            cpu_seen_ns: AtomicU64::new(0),
            away: Away::new(),
            detached_ns: AtomicU64::new(0),
            detached_cpu_ns: AtomicU64::new(0),
            detached_waits: AtomicU64::new(0),
            detached_tag: AtomicU32::new(0),
            turn: HeldTurn::new(),
            running: AtomicU32::new(0),
            helps_in: AtomicU64::new(0),
            waited: AtomicBool::new(false),
            has_run: AtomicBool::new(false),
        }
    }

    /// Gives a parked carrier a loop to run.
    pub(crate) fn assign(&self, index: usize, lease: Lease) {
        self.lease.store(lease.bits(), Ordering::Relaxed);
        self.assigned.store(index as u32 + 1, Ordering::Release);
        futex::wake(&self.assigned, 1);
    }

    /// Has a parked carrier help a loop.
    pub(crate) fn help(&self, index: usize) {
        self.assigned.store(HELP | (index as u32 + 1), Ordering::Release);
        futex::wake(&self.assigned, 1);
    }

    /// The last lease of a spare, on whichever loop.
    pub(crate) fn last_lease(&self) -> Lease {
        Lease::from_bits(self.lease.load(Ordering::Relaxed))
    }

    /// Ends the thread of a parked carrier, which is no spare any more.
    pub(crate) fn dismiss(&self) {
        self.assigned.store(STOP, Ordering::Release);
        futex::wake(&self.assigned, 1);
    }

    /// The last act of a carrier's thread: another one may take its place.
    pub(crate) fn vacate(&self) {
        self.assigned.store(UNASSIGNED, Ordering::Relaxed);
        self.tid.store(0, Ordering::Release);
    }

    /// Has a parked carrier, which is no spare any more, give memory back if it has run since it did so last.
    /// `false`: there is no need.
    fn tidy(&self) -> bool {
        let has_run = self.has_run.swap(false, Ordering::Relaxed);
        if has_run {
            self.assigned.store(TIDY, Ordering::Release);
            futex::wake(&self.assigned, 1);
        }
        has_run
    }

    /// Notes that the carrier has polled beside its loops under this lease.
    pub(crate) fn note_last_lease(&self, lease: Lease) {
        self.lease.store(lease.bits(), Ordering::Relaxed);
    }

    /// Parks until there is something to do. `None`: the thread ends. `tidied` is called when memory was
    /// given back.
    pub(crate) fn wait_assignment(&self, tidied: impl Fn()) -> Option<Work> {
        loop {
            match self.assigned.load(Ordering::Acquire) {
                UNASSIGNED => self.wait_idle(),
                STOP => return None,
                TIDY => {
                    self.assigned.store(UNASSIGNED, Ordering::Relaxed);
                    memory::release();
                    tidied();
                }
                assigned => {
                    self.assigned.store(UNASSIGNED, Ordering::Relaxed);
                    let index = (assigned & !HELP) - 1;
                    self.running.store(index, Ordering::Relaxed);
                    self.has_run.store(true, Ordering::Relaxed);
                    return Some(match assigned & HELP {
                        0 => Work::Run(index as usize, self.last_lease()),
                        _ => Work::Help(index as usize),
                    });
                }
            }
        }
    }
}

impl Carrier {
    /// Waits for an assignment. A spare that nobody asks to give memory back does so after a while.
    fn wait_idle(&self) {
        if !self.has_run.load(Ordering::Relaxed) {
            return futex::wait(&self.assigned, UNASSIGNED, None);
        }
        let since_ms = clock::monotonic_ms();
        futex::wait(&self.assigned, UNASSIGNED, Some(UNTIDIED_LIMIT));
        let waited = Duration::from_millis(clock::monotonic_ms().saturating_sub(since_ms));
        let is_idle = waited >= UNTIDIED_LIMIT && self.assigned.load(Ordering::Relaxed) == UNASSIGNED;
        // A loop that is lent to it meanwhile waits for it: these spares are popped last, when the others are
        // in use.
        if is_idle && self.has_run.swap(false, Ordering::Relaxed) {
            memory::release();
        }
    }
}

impl Shared {
    pub(crate) fn new(config: &Config, restore: Restore) -> Self {
        let carriers = config.loops + config.handover_carriers;
        Self {
            carriers: (0..carriers).map(|_| Carrier::new()).collect(),
            spares: Spares::new(carriers),
            suspects: Suspects::new(),
            remotes: OnceLock::new(),
            // A poll that ends without a look at the word cannot be lent.
            handover_after: config.handover_after.filter(|_| !cfg!(clearway_no_lease)),
            sink: Arc::clone(&config.sink),
            observer: OnceLock::new(),
            asked: AtomicU32::new(0),
            started: AtomicU32::new(0),
            alive: AtomicU32::new(0),
            detached: AtomicU32::new(0),
            starter: AtomicU32::new(0),
            rest: Rest::new(),
            restore,
            pins: Pins::new(config),
            stop: Stop::new(),
            waiting: Waiting::new((config.handover_carriers / 4).min(config.loops.max(2))),
            turns: Turns::new(config.loops.max(processors())),
            helpers: Helpers::new(processors()),
            crowd: Crowd::new(),
            last_alert_ms: AtomicU64::new(0),
        }
    }

    /// Lowers the priority of a detached carrier that burns CPU. The processors of its loop are the
    /// next carrier's: it runs wherever there is room.
    pub(crate) fn lower(&self, tid: u32) {
        metrics::DEMOTIONS.increment();
        self.stand_back(tid);
    }

    /// As above, for a spare that is about to help a loop.
    pub(crate) fn stand_back(&self, tid: u32) {
        self.restore.lower(tid);
        self.pins.free(tid);
    }

    /// The ordinary priority of a thread that runs loops or watches them.
    pub(crate) fn raise(&self, tid: u32) {
        self.restore.raise(tid);
    }

    /// Binds a carrier to the processors of the loop that it is about to run.
    pub(crate) fn pin(&self, index: usize, tid: u32) {
        self.pins.bind(index, tid);
    }

    /// All loops, before the first of them runs.
    pub(crate) fn set_remotes(&self, remotes: Box<[&'static Remote]>) {
        let set = self.remotes.set(remotes);
        debug_assert!(set.is_ok(), "a fresh runtime");
    }

    pub(crate) fn remotes(&self) -> &[&'static Remote] {
        self.remotes.get().map_or(&[], |remotes| remotes)
    }

    /// Rule 4 of word.rs: gives the loop, seen in POLL, to a spare if more than `keep` are there.
    /// `from` is the carrier that polls. `false`: no spare, or the loop has moved on.
    pub(crate) fn lend(&self, remote: &Remote, seen: Lease, keep: usize, (lender, sight): By) -> Lent {
        let Some(spare) = self.spares.pop(keep) else { return Lent::NoSpare };
        let from = &self.carriers[seen.carrier()];
        from.away.leave(seen, remote.index, sight, lender);
        from.cpu_seen_ns.store(0, Ordering::Relaxed);
        from.demotion.stuck();
        self.detached.fetch_add(1, Ordering::Relaxed);
        match remote.word.lend(seen, spare, self.carriers[spare].last_lease()) {
            Some(lease) => {
                self.carriers[spare].assign(remote.index, lease);
                if self.spares.count() < SPARES_AHEAD {
                    self.call_starter();
                }
                Lent::Done
            }
            None => {
                from.away.stay(seen, lender);
                from.demotion.attached();
                self.detached.fetch_sub(1, Ordering::Relaxed);
                self.return_spare(spare);
                Lent::MovedOn
            }
        }
    }

    /// The polling carrier gives its own loop away before it runs the suspect `tag`, which was admitted: one
    /// that burns CPU has a turn, and keeps it where there is no spare.
    pub(crate) fn lend_own(&self, remote: &Remote, lease: Lease, tag: Tag, manner: Manner) -> Lent {
        let me = &self.carriers[lease.carrier()];
        let sight = Sight::now(me.tid.load(Ordering::Relaxed));
        let lent = self.lend(remote, lease, self.waiting.kept(), (Lender::Itself, sight));
        if manner == Manner::Burns && lent != Lent::NoSpare {
            me.turn.hold();
        }
        if lent == Lent::Done {
            metrics::SUSPECTS_DETACHED.increment();
            me.waited.store(false, Ordering::Relaxed);
            me.detached_tag.store(tag.0, Ordering::Relaxed);
            me.detached_cpu_ns.store(sight.cpu_ns, Ordering::Relaxed);
            me.detached_waits.store(thread::own_waits(), Ordering::Relaxed);
            me.detached_ns.store(clock::monotonic_ns().max(1), Ordering::Relaxed);
            self.wake_watchdog();
            if manner == Manner::Burns {
                let tid = me.tid.load(Ordering::Relaxed);
                me.demotion.demote(|| self.lower(tid));
            }
        }
        lent
    }

    /// A carrier has nothing to do: it goes to a waiter, or ends where the runtime stops.
    pub(crate) fn return_spare(&self, carrier: usize) {
        self.spares.push(carrier);
        self.waiting.look(&self.spares);
        if self.stop.is_said_meanwhile() {
            self.end_spares();
        }
    }

    /// A loop has hungry tasks left when it goes on to other things: a spare polls them beside it if there
    /// are processors for it.
    pub(crate) fn ask_for_helper(&self, index: usize, now_ms: u64) {
        if !self.may_help() || !self.helpers.enter(self.turns.taken(), now_ms) {
            return;
        }
        let Some(spare) = self.spares.pop(self.waiting.kept()) else {
            self.call_starter();
            return self.helpers.leave(End::Busy, now_ms);
        };
        let helper = &self.carriers[spare];
        // Rule 4 of helpers.rs.
        self.stand_back(helper.tid.load(Ordering::Relaxed));
        helper.help(index);
        if self.spares.count() < SPARES_AHEAD {
            self.call_starter();
        }
    }

    /// Whether no suspect waits for what helpers use.
    pub(crate) fn may_help(&self) -> bool {
        self.waiting.is_empty() && !self.turns.is_awaited() && !self.stopping()
    }

    /// Has spares give back memory that was freed on them or to them. A few stay for hand-overs meanwhile.
    pub(crate) fn tidy_spares(&self) {
        let mut untouched = Vec::new();
        while let Some(spare) = self.spares.take(SPARES_UNTIDIED) {
            if !self.carriers[spare].tidy() {
                untouched.push(spare);
            }
        }
        untouched.into_iter().for_each(|spare| self.return_spare(spare));
    }

    /// Rule 7 of word.rs, first part: the carrier has finished a poll after its loop was lent.
    pub(crate) fn come_back(&self, me: usize, lease: Lease) {
        let carrier = &self.carriers[me];
        carrier.lease.store(lease.bits(), Ordering::Relaxed);
        let tid = carrier.tid.load(Ordering::Relaxed);
        carrier.demotion.come_back(|| self.raise(tid));
        carrier.away.come_back();
        self.detached.fetch_sub(1, Ordering::Relaxed);
        let since = carrier.detached_ns.swap(0, Ordering::Relaxed);
        if carrier.turn.end() {
            self.turns.give_back();
        }
        let Some(limit) = self.handover_after.filter(|_| since != 0) else { return };
        let now = clock::monotonic_ns();
        let tag = Tag(carrier.detached_tag.load(Ordering::Relaxed));
        let is_long = |ns: u64| u128::from(ns) > limit.as_nanos();
        if is_long(now - since) {
            self.judge(carrier, tag, now - since, is_long);
        } else if !carrier.waited.load(Ordering::Relaxed) {
            // A poll that waited for something proves nothing, since its actual work is still to come.
            self.suspects.absolve(tag);
        }
    }

    /// Judges a suspect by a poll that has taken so long, away from its loop.
    fn judge(&self, carrier: &Carrier, tag: Tag, passed_ns: u64, is_long: impl Fn(u64) -> bool) {
        let cpu_ns = clock::thread_cpu_ns().saturating_sub(carrier.detached_cpu_ns.load(Ordering::Relaxed));
        let now_ms = clock::monotonic_ms();
        let Some(manner) = self.suspects.check(tag, now_ms) else { return };
        let took_ns = match manner {
            // At the priority of polls that burn CPU any poll may take long: that says nothing of this one.
            Manner::Burns if !is_long(cpu_ns) => return,
            Manner::Burns => cpu_ns,
            // Nor does it where others wanted the processor, and this one never waited for anything else.
            Manner::Sleeps
                if !is_long(cpu_ns)
                    && thread::own_waits() == carrier.detached_waits.load(Ordering::Relaxed) =>
            {
                return;
            }
            Manner::Sleeps => passed_ns,
        };
        match took_ns {
            HABIT_NS.. => self.suspects.blame_again(tag, manner, now_ms),
            _ => self.suspects.blame(tag, manner, now_ms),
        }
    }

    /// Counts that a carrier was needed and none is left, and says so once a second.
    pub(crate) fn alert_exhausted(&self) {
        metrics::CARRIERS_EXHAUSTED.increment();
        let now = clock::monotonic_ms();
        let last = self.last_alert_ms.load(Ordering::Relaxed);
        if now.saturating_sub(last) < 1000 && last != 0 {
            return;
        }
        if self.last_alert_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let limit = self.carriers.len() - self.remotes().len();
            self.sink.log(Level::Alert, format_args!("{limit} handover_carriers are not enough"));
        }
    }

    /// Ends the process, as one of its loops can never go on: a master starts another one.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
    pub(crate) fn die(&self, why: fmt::Arguments<'_>) -> ! {
        self.sink.log(Level::Alert, why);
        std::thread::sleep(LAST_LINE);
        std::process::abort()
    }

    /// Rule 9 of word.rs, the carrier's side.
    pub(crate) fn wake_watchdog(&self) {
        if self.rest.interrupt() {
            self.rest.wake();
        }
    }

    /// Has the watchdog look soon, and closely for a while.
    pub(crate) fn want_look(&self) {
        if self.rest.want_look() {
            self.rest.wake_wanted();
        }
    }

    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn call_starter(&self) {
        if self.alive() < self.carriers.len() && self.starter.swap(0, Ordering::AcqRel) == 1 {
            futex::wake(&self.starter, 1);
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.is_said()
    }

    /// Ends every loop after its present turn, and the threads of the runtime with them. Tasks are
    /// not dropped: what they hold lives until the process ends.
    pub(crate) fn stop(&self) {
        self.stop.say();
        for remote in self.remotes() {
            remote.signal.signal();
        }
        self.end_spares();
        self.starter.store(0, Ordering::Release);
        futex::wake(&self.starter, 1);
        let _ = self.rest.interrupt();
        self.rest.wake();
    }

    /// Ends the threads of all spares. Carriers that are away come here when they are back.
    fn end_spares(&self) {
        self.spares.take_all().for_each(|spare| self.carriers[spare].dismiss());
    }
}

/// The result of an attempt to lend a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lent {
    Done,
    NoSpare,
    MovedOn,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a thread of the test that parks as a carrier does")]
    fn a_spare_that_nobody_asks_gives_memory_back_once() {
        static RELEASED: AtomicU32 = AtomicU32::new(0);
        memory::register(|| {
            RELEASED.fetch_add(1, Ordering::Relaxed);
        });
        let carrier = Carrier::new();
        carrier.has_run.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let parked = scope.spawn(|| carrier.wait_assignment(|| {}).is_none());
            while RELEASED.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            assert!(!carrier.tidy(), "it has done so");
            std::thread::sleep(UNTIDIED_LIMIT * 2);
            carrier.dismiss();
            assert!(parked.join().unwrap(), "it ends");
        });
        assert_eq!(RELEASED.load(Ordering::Relaxed), 1);
    }
}
