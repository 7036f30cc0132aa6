//! A loop and its turn: wait for events, make everything that they and the queues name ready, then
//! poll what is ready. Runs on the loop's carrier; word.rs has the rules.
#![expect(unsafe_code, reason = "loop-local data behind the word, tasks as queue entries")]

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use clearway_base::memory;
use clearway_os::clock;
use clearway_os::epoll::{Epoll, Event, EventFd, EventFlags};
use clearway_os::spin::Spin;

use crate::event_loop::chaos::Chaos;
use crate::event_loop::crowd::CROWDED;
use crate::event_loop::fair::{Budget, Meter, Rank, SystemClocks, Watch};
use crate::event_loop::loops::Loops;
use crate::event_loop::ready::Ring;
use crate::event_loop::tidying::{Tidy, Tidying};
use crate::handover::away::Sight;
use crate::handover::helpers::{End, Share};
use crate::handover::lenders::Lender;
use crate::handover::suspects::Tag;
use crate::handover::word::{Lease, Phase, Word};
use crate::io::first_reads::FirstReads;
use crate::io::slots::{self, Slots, Token};
use crate::metrics::{self, LoopCounters};
use crate::shared::Lent;
use crate::task::detach::Admission;
use crate::task::place::{Pass, Waiter};
use crate::task::remote::Remote;
use crate::task::stack::Stack;
use crate::task::timer::Timers;
use crate::task::{self, Binding, Header, PollOutcome, Queued};

/// Events that one epoll_wait can bring.
const EVENTS_MAX: usize = 512;

/// How often in a turn what is ready is polled before the next epoll_wait: what a poll makes ready
/// (a connection just accepted, say) need not wait for one, and what does so again and again must.
const ROUNDS: usize = 2;

/// Tasks of crowded loops that are polled between two looks at what the loop itself has to do.
const HELP_MAX: usize = 8;

/// A hungry task counts as so many others where a loop finds out whether it is crowded: to poll it takes
/// longer than to wake another loop.
const HUNGRY_WEIGHT: usize = 8;

const NS_PER_MS: u64 = 1_000_000;

/// The number of ready tasks that a millisecond of lag counts for, when loops are compared: few, as a loop
/// that waits for a processor for a moment seems to lag, and connections stay for long.
pub const BACKLOG_PER_MS: u32 = 4;

/// How finely lag is kept: parts of a millisecond.
const LAG_UNIT: u32 = 16;

/// A longer turn counts as one of this length, in milliseconds.
const LAG_MAX_MS: u32 = 60_000;

/// A loop. It is never freed.
pub(crate) struct Loop {
    pub(crate) remote: Remote,
    /// All loops, this one among them.
    pub(crate) all: &'static Loops,
    pub(crate) epoll: Epoll,
    pub(crate) slots: Slots,
    pub(crate) first_reads: FirstReads,
    /// Ready tasks in front, and the hungry ones behind them (fair.rs).
    ready: Ring<Header>,
    behind: Ring<Header>,
    unix_ms: AtomicU64,
    /// How long its turns take, smoothed, in 1/16 ms; the owner writes it.
    lag: AtomicU32,
    pub(crate) counters: LoopCounters,
    /// Answers of other threads that tasks of this loop expect within microseconds.
    pub(crate) expected: AtomicU32,
    owned: UnsafeCell<Owned>,
}

/// State that the carrier named in the word touches, in RUN only (rule 5 of word.rs).
struct Owned {
    events: Vec<Event>,
    timers: Timers,
    chaos: Chaos,
    /// When the turn began; 0 before the first one.
    turn_ns: u64,
    /// Whether it is said to be crowded (crowd.rs).
    is_crowded: bool,
    meter: Meter,
    tidying: Tidying,
    spin: Spin,
}

// SAFETY: `owned` is reached through `Loop::turn` only, whose caller is the owner (rule 5); all
// other fields are made for sharing.
unsafe impl Sync for Loop {}

/// The next action of a loop that has nothing ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The turn waits for events.
    Wait,
    /// The turn looks for events, and then helps other loops.
    Look,
}

/// Whether a task that is NOTIFIED, and in no queue, belongs behind others (rules 1 and 6 of fair.rs).
fn is_hungry(task: NonNull<Header>) -> bool {
    // SAFETY: alive as it is NOTIFIED.
    let header = unsafe { task.as_ref() };
    header.appetite.is_hungry() && header.binding() == Binding::Free
}

/// The remaining work of a loop that a test turns.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Tasks are ready.
    Work,
    /// No work before this time, or before an event.
    Until(Option<u64>),
}

/// Why a carrier stopped running a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The loop was lent to another carrier.
    Lost,
    /// The runtime stops.
    Stopped,
}

impl Loop {
    /// A loop that carrier `index` will run, and the lease to start it with.
    pub(crate) fn new(index: usize, spin: Spin, all: &'static Loops) -> io::Result<(Self, Lease)> {
        let (word, lease) = Word::new(index);
        let (epoll, signal) = (Epoll::new()?, EventFd::new()?);
        epoll.add(signal.as_fd(), Token::SIGNAL.0, EventFlags::IN | EventFlags::ET)?;
        let now = clock::monotonic_ms();
        let events = Vec::with_capacity(EVENTS_MAX);
        let owned = Owned {
            events,
            timers: Timers::new(now),
            chaos: Chaos::new(),
            turn_ns: 0,
            is_crowded: false,
            meter: Meter::new(),
            tidying: Tidying::default(),
            spin,
        };
        let remote = Remote {
            word,
            inject: Stack::new(),
            timers: Stack::new(),
            signal,
            now_ms: AtomicU64::new(now),
            index,
            shared: all.shared,
        };
        let new = Self {
            remote,
            all,
            epoll,
            slots: Slots::new(),
            first_reads: FirstReads::new(),
            ready: Ring::new(),
            behind: Ring::new(),
            unix_ms: AtomicU64::new(clock::unix_ms()),
            lag: AtomicU32::new(0),
            counters: LoopCounters::default(),
            expected: AtomicU32::new(0),
            owned: UnsafeCell::new(owned),
        };
        Ok((new, lease))
    }

    /// Milliseconds since the epoch: as of this turn, or read now if the loop sleeps.
    pub(crate) fn unix_ms(&self) -> u64 {
        match self.remote.word.load().phase() {
            Phase::Wait => clock::unix_ms(),
            _ => self.unix_ms.load(Ordering::Relaxed),
        }
    }

    /// Runs the loop until it is lost or the runtime stops. `me` is the calling carrier, which
    /// `lease` names as the owner in RUN.
    pub(crate) fn run(&'static self, me: usize, mut lease: Lease) -> Exit {
        let mut next = Next::Wait;
        while !self.remote.shared.stopping() {
            // SAFETY: the caller owns the loop and is in RUN.
            match unsafe { self.turn(me, &mut lease, next) } {
                Some(what) => next = what,
                None => return Exit::Lost,
            }
        }
        Exit::Stopped
    }

    /// One turn. What to do next, or `None` if the loop was lent meanwhile.
    ///
    /// # Safety
    /// The caller is carrier `me` and owns the loop, in RUN.
    #[inline]
    unsafe fn turn(&'static self, me: usize, lease: &mut Lease, next: Next) -> Option<Next> {
        // SAFETY: as for this function.
        unsafe { self.gather(lease, next) };
        let found = self.ready.len();
        for _ in 0..ROUNDS {
            // SAFETY: as above.
            unsafe { self.ask_for_help() };
            for _ in 0..self.ready.len() {
                let Some(task) = self.ready.pop() else { break };
                // SAFETY: as for this function; the task comes out of a queue.
                if !unsafe { self.poll(task, Rank::Front, me, lease) } {
                    return None;
                }
                // SAFETY: rule 5 of word.rs; the reference ends with the statement.
                if unsafe { &*self.owned.get() }.meter.budget() == Budget::Used {
                    break;
                }
            }
            self.take_injected();
        }
        // SAFETY: as above.
        if self.behind.len() > 0 && !unsafe { self.serve_behind(found, me, lease) } {
            return None;
        }
        // SAFETY: as above.
        unsafe { self.help(me, lease) }
    }

    /// Polls hungry tasks for a slice of time, if it is time for one: the last look for events has made
    /// `found` tasks ready in front. `false`: the loop was lent.
    ///
    /// # Safety
    /// The caller is carrier `me` and owns the loop, in RUN.
    unsafe fn serve_behind(&'static self, found: usize, me: usize, lease: &mut Lease) -> bool {
        // SAFETY: rule 5 of word.rs; the reference ends before a poll begins.
        let meter = unsafe { &mut (*self.owned.get()).meter };
        if found > 0 && meter.budget() == Budget::Left {
            return true;
        }
        meter.begin_slice(&SystemClocks);
        // What becomes hungry or ready again has its turn in another slice.
        for _ in 0..self.behind.len() {
            let Some(task) = self.behind.pop() else { break };
            // SAFETY: the caller owns the loop; the task comes out of a queue.
            if !unsafe { self.poll(task, Rank::Behind, me, lease) } {
                return false;
            }
            self.take_injected();
            // SAFETY: as above.
            let slice = unsafe { &*self.owned.get() }.meter.slice();
            if slice == Budget::Used || self.ready.len() > 0 {
                break;
            }
        }
        if self.behind.len() > 0 {
            self.remote.shared.ask_for_helper(self.remote.index, self.remote.now_ms.load(Ordering::Relaxed));
        }
        true
    }

    /// Polls hungry tasks of this loop as carrier `me`, which has no loop (rule 13 of word.rs), until there
    /// is a reason to end.
    pub(crate) fn serve_beside(&self, me: usize) -> End {
        let shared = self.remote.shared;
        let carrier = &shared.carriers[me];
        let (mut lease, mut watch) = (carrier.last_lease(), Watch::first(&SystemClocks));
        let mut share = Share::new(clock::monotonic_ns());
        let mut next = self.behind.pop();
        let mut end = End::Done;
        while let Some(task) = next.take() {
            lease = lease.next_away(me);
            // SAFETY: alive as it is NOTIFIED.
            let header = unsafe { task.as_ref() };
            carrier.tag.store(header.tag.load(Ordering::Relaxed), Ordering::Relaxed);
            carrier.helps_in.store(lease.bits(), Ordering::Relaxed);
            header.lease.store(lease.bits(), Ordering::Relaxed);
            shared.give_up(header.take_pass());
            metrics::HELPED.increment();
            let mut measured = None;
            // SAFETY: it was taken from a queue, or was notified in its last poll here.
            let outcome = unsafe {
                task::poll(task, |header| measured = Some(watch.end(&header.appetite, &SystemClocks)))
            };
            if let Some(measured) = measured {
                watch = Watch::after(measured);
                if !share.note(measured.cpu_ns(), measured.end_ns()) {
                    end = End::Busy;
                }
            }
            let goes_on = end == End::Done && shared.may_help();
            next = if goes_on { self.behind.pop() } else { None };
            if outcome == PollOutcome::Notified {
                match goes_on && next.is_none() && is_hungry(task) {
                    true => next = Some(task),
                    false => self.remote.inject(task),
                }
            }
        }
        carrier.helps_in.store(0, Ordering::Relaxed);
        carrier.note_last_lease(lease);
        end
    }

    /// Says so if the loop is not crowded any more; if it has nothing to do, polls what is ready on one that
    /// is. What to do next, or `None` if the loop was lent meanwhile.
    ///
    /// # Safety
    /// The caller is carrier `me` and owns the loop, in RUN.
    unsafe fn help(&'static self, me: usize, lease: &mut Lease) -> Option<Next> {
        let (crowd, index) = (&self.remote.shared.crowd, self.remote.index);
        // SAFETY: rule 5 of word.rs; the reference ends with the statement.
        if std::mem::take(unsafe { &mut (*self.owned.get()).is_crowded }) {
            crowd.leave(index);
        }
        let mut next = Next::Wait;
        for _ in 0..HELP_MAX {
            if self.ready_len() > 0 {
                break;
            }
            let loops = self.all.all();
            let Some(task) = crowd.steal(loops.len(), index, |at| loops[at].give_away()) else { break };
            if next == Next::Wait {
                // SAFETY: as above.
                unsafe { &mut *self.owned.get() }.meter.begin_slice(&SystemClocks);
            }
            // SAFETY: the caller owns the loop; the task comes out of a queue.
            if !unsafe { self.poll(task, Rank::Behind, me, lease) } {
                return None;
            }
            next = Next::Look;
            // SAFETY: as above.
            if unsafe { &*self.owned.get() }.meter.slice() == Budget::Used {
                break;
            }
        }
        Some(next)
    }

    /// Tasks that are ready, in front and behind.
    fn ready_len(&self) -> usize {
        self.ready.len() + self.behind.len()
    }

    /// The oldest task that is ready, in front or else behind, for another loop to poll it once.
    pub(crate) fn give_away(&self) -> Option<NonNull<Header>> {
        let task = self.ready.pop().or_else(|| self.behind.pop())?;
        // SAFETY: alive as it is NOTIFIED.
        if unsafe { task.as_ref() }.binding() == Binding::Bound {
            self.remote.inject(task);
            return None;
        }
        Some(task)
    }

    /// See `LoopRef::lag_ms`.
    pub(crate) fn lag_ms(&self) -> u32 {
        self.lag.load(Ordering::Relaxed) / LAG_UNIT
    }

    /// See `LoopRef::backlog`.
    pub(crate) fn backlog(&self, now_ms: u64) -> u32 {
        let turn_ms = match self.remote.word.load().phase() {
            Phase::Wait => 0,
            // The turn and the question may stand on either side of a tick.
            _ => now_ms.saturating_sub(self.remote.now_ms.load(Ordering::Relaxed) + 1),
        };
        let lag_ms = self.lag_ms().max(u32::try_from(turn_ms).unwrap_or(LAG_MAX_MS).min(LAG_MAX_MS));
        let ready = u32::try_from(self.ready_len()).unwrap_or(0);
        ready.saturating_add(lag_ms.saturating_mul(BACKLOG_PER_MS))
    }

    /// See `LoopRef::turn_ms`.
    pub(crate) fn turn_ms(&self) -> u64 {
        clock::monotonic_ms().saturating_sub(self.remote.now_ms.load(Ordering::Relaxed))
    }

    /// Notes what time it is; the turn's time in milliseconds. The owner, in WAIT.
    fn note_time(&self, now_ns: u64) -> u64 {
        let (now, before) = (now_ns / NS_PER_MS, self.remote.now_ms.load(Ordering::Relaxed));
        // Turns are shorter than a millisecond while there is much to do, and what is kept is no finer.
        if now == before {
            return now;
        }
        self.unix_ms.store(clock::unix_ms(), Ordering::Relaxed);
        // A thread that asked while the loop slept may have been told a later time than this one.
        self.remote.now_ms.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Notes how long a turn has taken. What was long once is soon forgotten.
    fn note_turn(&self, turn_ns: u64) {
        self.counters.note_lag(turn_ns);
        let turn = u32::try_from(turn_ns / NS_PER_MS).unwrap_or(LAG_MAX_MS).min(LAG_MAX_MS) * LAG_UNIT;
        let lag = self.lag.load(Ordering::Relaxed);
        if turn != 0 || lag != 0 {
            self.lag.store((lag * 3 + turn) / 4, Ordering::Relaxed);
        }
    }

    /// Waits, then makes ready what has something to do.
    ///
    /// # Safety
    /// The caller owns the loop, in RUN.
    unsafe fn gather(&'static self, lease: &mut Lease, next: Next) {
        // SAFETY: rule 5 of word.rs; the reference ends with this function.
        let owned = unsafe { &mut *self.owned.get() };
        owned.timers.take_inbox(&self.remote);
        let mut timeout = Some(0);
        let mut turn_end_ns = None;
        if self.ready_len() == 0 && next == Next::Wait {
            let now_ns = clock::monotonic_ns();
            turn_end_ns = Some(now_ns);
            let tidy_ms = self.tidy(&mut owned.tidying, now_ns / NS_PER_MS);
            let next_ms = owned.timers.next_ms().into_iter().chain(tidy_ms).min();
            timeout = next_ms.map(|at| at.saturating_sub(now_ns / NS_PER_MS));
            if self.expected.load(Ordering::Relaxed) > 0 && owned.spin.is_due() {
                // Found or not, `begin_wait` says so.
                owned.spin.look(|| !self.remote.inject.is_empty());
            }
        }
        if self.remote.begin_wait(lease) {
            timeout = Some(0);
        }
        let waited = self.epoll.wait(&mut owned.events, timeout);
        debug_assert!(waited.is_ok(), "an epoll descriptor of ours: {waited:?}");
        let now_ns = clock::monotonic_ns();
        let now = self.note_time(now_ns);
        self.remote.word.end_wait(lease);
        self.remote.shared.wake_watchdog();
        let before_ns = std::mem::replace(&mut owned.turn_ns, now_ns);
        let turn_end_ns = turn_end_ns.unwrap_or(now_ns);
        if before_ns != 0 {
            self.note_turn(turn_end_ns.saturating_sub(before_ns));
        }
        owned.meter.begin_turn((turn_end_ns, now_ns), self.behind.len(), &SystemClocks);
        for event in &owned.events {
            self.dispatch(event);
        }
        self.take_injected();
        owned.timers.take_inbox(&self.remote);
        owned.timers.expire(now, |waker| task::wake_local(waker, &self.remote, |task| self.push(task)));
    }

    /// Gives memory back if it is time to, by a task, as that takes a while. When it is time next.
    fn tidy(&'static self, tidying: &mut Tidying, now_ms: u64) -> Option<u64> {
        match tidying.before_wait(self.counters.polls(), now_ms) {
            Tidy::Never => None,
            Tidy::At(ms) => Some(ms),
            Tidy::Now => {
                let shared = self.remote.shared;
                task::spawn(&self.remote, Tag::NONE.0, Binding::Bound, async {
                    memory::release();
                    shared.tidy_spares();
                });
                None
            }
        }
    }

    /// Asks others for help if much is ready, once in a turn.
    ///
    /// # Safety
    /// The caller owns the loop, in RUN.
    unsafe fn ask_for_help(&self) {
        // SAFETY: rule 5 of word.rs; the reference ends with this function.
        let owned = unsafe { &mut *self.owned.get() };
        let weight = self.ready.len() + self.behind.len() * HUNGRY_WEIGHT;
        if weight >= CROWDED && !std::mem::replace(&mut owned.is_crowded, true) {
            let remotes = self.remote.shared.remotes();
            self.remote.shared.crowd.ask(remotes.len(), self.remote.index, |at| remotes[at].end_sleep());
        }
    }

    /// The owner makes ready what was injected: several times in a turn, and mostly nothing.
    #[inline]
    fn take_injected(&self) {
        if !self.remote.inject.is_empty() {
            self.push_injected();
        }
    }

    #[cold]
    fn push_injected(&self) {
        for task in self.remote.inject.take() {
            self.push(task);
        }
    }

    /// The owner puts a task into the ring that it belongs to.
    fn push(&self, task: NonNull<Header>) {
        let ring = if is_hungry(task) { &self.behind } else { &self.ready };
        if let Err(task) = ring.push(task) {
            self.remote.inject(task);
        }
    }

    fn dispatch(&'static self, event: &Event) {
        let token = Token(event.data.u64());
        let Some(slot) = self.slots.find(token) else { return };
        let bits = slots::readiness(event.flags);
        if !slot.add(token, bits) {
            return;
        }
        for (mask, cell) in [(slots::READ, &slot.reader), (slots::WRITE, &slot.writer)] {
            if bits & mask != 0
                && let Some(waker) = cell.take()
            {
                task::wake_local(waker, &self.remote, |task| self.push(task));
            }
        }
    }

    /// Polls one task, in a slice if it comes from behind. `false`: the loop was lent meanwhile, and all that
    /// follows from that is done.
    ///
    /// # Safety
    /// The caller is carrier `me` and owns the loop; `task` was taken from a queue.
    unsafe fn poll(&'static self, task: NonNull<Header>, from: Rank, me: usize, lease: &mut Lease) -> bool {
        let shared = self.remote.shared;
        // SAFETY: alive as it is NOTIFIED.
        let header = unsafe { task.as_ref() };
        let tag = Tag(header.tag.load(Ordering::Relaxed));
        shared.carriers[me].tag.store(tag.0, Ordering::Relaxed);
        let admission = match tag {
            Tag::NONE => Admission::Ordinary,
            _ => shared.admit(tag, self.remote.now_ms.load(Ordering::Relaxed), header.take_pass()),
        };
        if admission == Admission::NeedsTurn {
            // SAFETY: it was taken from a queue, and is not polled.
            shared.wait_for_turn(Waiter::Before(unsafe { Queued::new(task) }, Pass::TURN));
            return true;
        }
        self.counters.count_poll();
        let (chaos, watch) = {
            // SAFETY: rule 5 of word.rs; the reference ends with the block.
            let owned = unsafe { &mut *self.owned.get() };
            (owned.chaos.is_due(), owned.meter.begin_poll(from, &SystemClocks))
        };
        self.remote.word.begin_poll(lease);
        header.lease.store(lease.bits(), Ordering::Relaxed);
        if let Admission::Suspect(manner, pass) = admission {
            if shared.detach(&self.remote, *lease, tag, (manner, pass)) == Lent::NoSpare {
                header.add_pass(pass.without(Pass::SPARE));
                // SAFETY: it was taken from a queue, and is not polled.
                return self.postpone(unsafe { Queued::new(task) }, lease);
            }
        } else if chaos {
            let sight = Sight::now(shared.carriers[me].tid.load(Ordering::Relaxed));
            shared.lend(&self.remote, *lease, shared.waiting.kept(), (Lender::Itself, sight));
        }
        let home = header.home;
        let mut measured = None;
        let measure = |header: &Header| {
            let Some(watch) = watch else { return };
            match shared.carriers[me].detached_ns.load(Ordering::Relaxed) {
                0 => measured = Some(watch.end(&header.appetite, &SystemClocks)),
                left_ns => watch.end_away(left_ns, &header.appetite),
            }
        };
        // SAFETY: as for this function.
        let outcome = unsafe { task::poll(task, measure) };
        if self.remote.word.end_poll(lease) {
            if let Some(measured) = measured {
                // SAFETY: as above: the loop was not lent.
                unsafe { &mut *self.owned.get() }.meter.end_poll(measured);
            }
            if outcome == PollOutcome::Notified {
                match ptr::eq(home, &raw const self.remote) {
                    true => self.push(task),
                    false => home.inject(task),
                }
            }
            return true;
        }
        shared.come_back(me, *lease);
        if outcome == PollOutcome::Notified {
            home.inject(task);
        }
        self.remote.signal.signal();
        false
    }

    /// A suspect that finds no spare waits for one, still notified; the loop goes on.
    fn postpone(&'static self, task: Queued, lease: &mut Lease) -> bool {
        self.remote.shared.wait_for_spare(Waiter::Before(task, Pass::SPARE));
        if self.remote.word.end_poll(lease) {
            return true;
        }
        self.remote.shared.come_back(lease.carrier(), *lease);
        self.remote.signal.signal();
        false
    }

    /// One turn that waits for nothing, of a loop that has no carrier.
    ///
    /// # Safety
    /// The caller stands for carrier 0 and owns the loop, in RUN.
    #[cfg(feature = "testing")]
    pub(crate) unsafe fn turn_by_hand(&'static self, lease: &mut Lease) -> Left {
        // SAFETY: as for this function.
        let next = unsafe { self.turn(0, lease, Next::Look) };
        assert!(next.is_some(), "there is no carrier to lend it to");
        if self.ready_len() > 0 || !self.remote.inject.is_empty() {
            return Left::Work;
        }
        // SAFETY: rule 5 of word.rs; the reference ends with this function.
        let owned = unsafe { &mut *self.owned.get() };
        owned.timers.take_inbox(&self.remote);
        Left::Until(owned.timers.next_ms())
    }
}
