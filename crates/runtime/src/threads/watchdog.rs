//! The watchdog: one thread that looks at every loop's word each period, lends the loops whose
//! carrier does not come back from a poll, and demotes detached carriers that burn CPU. It takes no
//! lock that a carrier can hold, starts no thread, and sleeps while all loops wait.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clearway_os::thread::StateFile;
use clearway_os::{clock, thread};

use crate::event_loop::Loop;
use crate::event_loop::loops::Loops;
use crate::handover::away::Sight;
use crate::handover::lenders::Lender;
use crate::handover::rest::Rest;
use crate::handover::suspects::{Manner, Tag};
use crate::handover::word::{Lease, Phase};
use crate::shared::{Carrier, Lent, Shared};
use crate::threads::stuck;

/// Periods that every loop must have waited before the watchdog goes to sleep.
const QUIET_PERIODS: u32 = 20;

/// Periods between two looks while nothing has blocked for a while.
const RELAXED: u32 = 10;

/// A poll that cannot have been under way for so many periods is not looked at again before the others: a
/// loop that is busy is in some poll at every look.
const PRESSING: u32 = 2;

/// The least number of periods with a look in each after something blocked, or was polled of which little is
/// known (and at the start); after something blocked it is a second where that is more.
const ALERT_PERIODS: u32 = 20;

/// How often it looks where the kernel has no membarrier(2), so that it cannot sleep for good.
const QUIET_SLEEP: Duration = Duration::from_millis(20);

/// How often it looks where loops are not handed over, and only an observer wants to know.
pub(crate) const PERIOD_WITHOUT_HANDOVER: Duration = Duration::from_millis(5);

/// The last look at a loop.
struct Watched {
    /// The word in POLL that was there the last time, if it was.
    seen: Option<Seen>,
    /// The carrier whose state was asked last.
    state: Option<(u32, StateFile)>,
}

#[derive(Clone, Copy)]
struct Seen {
    word: Lease,
    /// When it was seen first, and the polling carrier's CPU clock then.
    sight: Sight,
    /// Whether it was there at two looks.
    is_old: bool,
    /// The clock at which the carrier was found to wait for a processor. As long as it stands
    /// still the carrier still does, since it would have to run to get anywhere else.
    waiting_cpu_ns: u64,
}

impl Seen {
    /// Whether to look again after one period, however quiet it was.
    fn is_pressing(&self, period: Duration) -> bool {
        let longest_ns = u128::from(self.sight.seen_ns.saturating_sub(self.sight.since_ns));
        self.is_old || longest_ns >= period.as_nanos() * u128::from(PRESSING)
    }
}

/// Runs until the runtime stops. `period` is at least a microsecond.
pub(crate) fn run(loops: &'static Loops, period: Duration) {
    let shared = loops.shared;
    thread::sleep_exactly();
    let barrier = if thread::register_barrier() { Barrier::Kernels } else { Barrier::None };
    let mut watched: Vec<Watched> = loops.all().iter().map(|_| Watched { seen: None, state: None }).collect();
    let mut pace = Pace { period, alert: ALERT_PERIODS, quiet: 0 };
    let mut look_ns = clock::monotonic_ns();
    while !shared.stopping() {
        if shared.rest.take_wanted() {
            pace.quicken();
        }
        let is_pressing =
            watched.iter().filter_map(|watched| watched.seen).any(|seen| seen.is_pressing(period));
        let periods = if is_pressing { 1 } else { pace.next() };
        match periods {
            1 => shared.rest.wait_awake(period),
            _ => shared.rest.wait_unwanted(period * periods),
        }
        let (mut busy, mut handed_over) = (false, false);
        let last_ns = std::mem::replace(&mut look_ns, clock::monotonic_ns());
        for (l, watched) in loops.all().iter().zip(&mut watched) {
            let word = l.remote.word.load();
            busy |= word.phase() != Phase::Wait;
            let handovers = l.counters.handovers();
            watched.seen = examine(shared, l, word, watched, &Look { period, last_ns, now_ns: look_ns });
            handed_over |= l.counters.handovers() != handovers;
        }
        stuck::show(
            shared,
            watched.iter().enumerate().filter_map(|(index, watched)| {
                watched.seen.filter(|seen| seen.is_old).map(|seen| (index, seen.word, seen.sight))
            }),
        );
        let detached = shared.detached.load(Ordering::Relaxed) > 0;
        if detached {
            shared.pass_overdue_turns(shared.started.load(Ordering::Acquire) as usize);
        }
        demote_burners(shared, period);
        if !shared.waiting.is_empty() {
            shared.waiting.look(&shared.spares);
        }
        let found = match (busy, detached || handed_over) {
            (_, true) => Found::Blocked,
            (true, false) => Found::Busy,
            (false, false) => Found::Quiet,
        };
        if pace.after(periods, found) {
            sleep(shared, barrier);
        }
    }
}

/// A look.
struct Look {
    period: Duration,
    /// When the one before was.
    last_ns: u64,
    now_ns: u64,
}

impl Look {
    /// Whether it is too early to say more of a poll than what was seen of it: looks that are wanted come
    /// at any time. All but a quarter of a period, as for CPU time.
    fn is_early(&self, seen: &Seen) -> bool {
        let passed_ns = u128::from(self.now_ns.saturating_sub(seen.sight.seen_ns));
        !seen.is_old && passed_ns * 4 < self.period.as_nanos() * 3
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Every loop waits.
    Quiet,
    /// Some loop does something.
    Busy,
    /// A loop was handed over, or a carrier is away from its loop.
    Blocked,
}

/// The way to make other threads take part in a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Barrier {
    /// membarrier(2).
    Kernels,
    /// The kernel has none: the watchdog cannot sleep for good.
    None,
}

/// How often to look. A look costs ten to thirty microseconds (a timer, two switches), so while nothing
/// has blocked for a while only every [`RELAXED`]-th period has one, and the one after it too where
/// a poll was seen that may have been under way for a while ([`PRESSING`]).
struct Pace {
    period: Duration,
    /// Periods left in which every one has a look.
    alert: u32,
    /// Periods in which every loop was seen waiting.
    quiet: u32,
}

impl Pace {
    /// Periods until the next look where nothing presses.
    fn next(&self) -> u32 {
        if self.alert > 0 { 1 } else { RELAXED }
    }

    /// Has each of the next periods have a look.
    fn quicken(&mut self) {
        self.alert = self.alert.max(ALERT_PERIODS);
    }

    /// Notes what the look after so many periods has found. `true`: go to sleep.
    fn after(&mut self, periods: u32, found: Found) -> bool {
        let second = Duration::from_secs(1).as_nanos() / self.period.as_nanos().max(1);
        self.alert = match found {
            Found::Blocked => ALERT_PERIODS.max(u32::try_from(second).unwrap_or(u32::MAX)),
            Found::Busy | Found::Quiet => self.alert.saturating_sub(periods),
        };
        self.quiet = if found == Found::Quiet { self.quiet + periods } else { 0 };
        self.quiet > QUIET_PERIODS && std::mem::take(&mut self.quiet) > 0
    }
}

/// Looks at one loop; lends it if its poll has been under way since the last look, and really blocks.
fn examine(shared: &Shared, l: &Loop, word: Lease, watched: &mut Watched, look: &Look) -> Option<Seen> {
    if word.phase() != Phase::Poll {
        return None;
    }
    let tid = shared.carriers[word.carrier()].tid.load(Ordering::Relaxed);
    let Some(cpu_ns) = thread::cpu_ns(tid) else {
        expect_alive(shared, l, word, tid);
        return None;
    };
    let Some(seen) = watched.seen.filter(|seen| seen.word == word) else {
        // It began in this turn of its loop, and was not there at the last look.
        let since_ns = look.last_ns.max(l.remote.now_ms() * 1_000_000);
        let sight = Sight { since_ns, seen_ns: clock::monotonic_ns(), cpu_ns };
        return Some(Seen { word, sight, is_old: false, waiting_cpu_ns: 0 });
    };
    if look.is_early(&seen) {
        return Some(seen);
    }
    let seen = Seen { is_old: true, ..seen };
    if shared.handover_after.is_none() {
        return Some(seen);
    }
    let burnt_ns = cpu_ns.saturating_sub(seen.sight.cpu_ns);
    // By its clock and not by ours: where it shares a processor a short poll takes long, too. All but a
    // quarter, as interrupts and this thread take a part of a period.
    if u128::from(burnt_ns) * 4 >= look.period.as_nanos() * 3 {
        return take_over(shared, l, seen, Manner::Burns).then_some(seen);
    }
    if cpu_ns == seen.waiting_cpu_ns || watched.is_runnable(tid) {
        // It waits for a processor, as a spare would: lending the loop would not help it.
        return Some(Seen { waiting_cpu_ns: cpu_ns, ..seen });
    }
    take_over(shared, l, seen, Manner::Sleeps).then_some(seen)
}

/// Ends the process if the thread that holds a loop is gone, ended by what it called: nobody would ever run
/// that loop again. A carrier that has lost its loop meanwhile may have ended since the runtime stops.
#[cold]
fn expect_alive(shared: &Shared, l: &Loop, word: Lease, tid: u32) {
    if thread::has_ended(tid) && l.remote.word.load() == word && !shared.stopping() {
        shared.die(format_args!("the thread of carrier {} is gone: the process ends", word.carrier()));
    }
}

impl Watched {
    /// Whether the thread is runnable; if that cannot be found out, it counts as blocked.
    fn is_runnable(&mut self, tid: u32) -> bool {
        if self.state.as_ref().is_none_or(|(of, _)| *of != tid) {
            self.state = StateFile::open(tid).ok().map(|file| (tid, file));
        }
        self.state.as_ref().is_some_and(|(_, file)| file.letter() == Some(b'R'))
    }
}

/// Lends a loop that was seen in the same poll twice. `true`: there is no spare, look again.
fn take_over(shared: &Shared, l: &Loop, seen: Seen, manner: Manner) -> bool {
    let word = seen.word;
    let carrier = &shared.carriers[word.carrier()];
    let tag = Tag(carrier.tag.load(Ordering::Relaxed));
    match shared.lend(&l.remote, word, 0, (Lender::Watchdog, seen.sight)) {
        Lent::Done => {
            l.counters.count_handover();
            shared.suspects.blame(tag, manner, clock::monotonic_ms());
            if manner == Manner::Burns {
                let tid = carrier.tid.load(Ordering::Relaxed);
                carrier.demotion.demote(|| shared.lower(tid));
            }
            false
        }
        Lent::MovedOn => false,
        Lent::NoSpare => {
            shared.alert_exhausted();
            true
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
            let tag = Tag(carrier.tag.load(Ordering::Relaxed));
            if carrier.demotion.demote(|| shared.lower(tid)) {
                shared.suspects.blame(tag, Manner::Burns, clock::monotonic_ms());
            }
        }
        _ => {}
    }
}

/// Rule 9 of word.rs, the watchdog's side.
fn sleep(shared: &Shared, barrier: Barrier) {
    if barrier == Barrier::None {
        return shared.rest.wait_awake(QUIET_SLEEP);
    }
    let may_sleep = || {
        let waiting = shared.remotes().iter().all(|home| home.word.load().phase() == Phase::Wait);
        waiting && shared.detached.load(Ordering::Relaxed) == 0 && !shared.stopping()
    };
    shared.rest.sleep(thread::barrier, may_sleep, Rest::wait_asleep);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::word::Word;

    #[test]
    fn a_poll_that_has_just_begun_does_not_press() {
        let (word, _) = Word::new(0);
        let ms = Duration::from_millis(1);
        let seen = |since_ns, is_old| {
            let sight = Sight { since_ns, seen_ns: 10_000_000, cpu_ns: 0 };
            Seen { word: word.load(), sight, is_old, waiting_cpu_ns: 0 }
        };
        assert!(!seen(8_000_001, false).is_pressing(ms), "it began in this turn of a busy loop");
        assert!(seen(8_000_000, false).is_pressing(ms) && seen(9_999_999, true).is_pressing(ms));
    }

    #[test]
    fn a_look_that_was_wanted_says_nothing_of_what_was_just_seen() {
        let (word, _) = Word::new(0);
        let sight = Sight { since_ns: 0, seen_ns: 10_000_000, cpu_ns: 0 };
        let seen = Seen { word: word.load(), sight, is_old: false, waiting_cpu_ns: 0 };
        let look = |now_ns| Look { period: Duration::from_millis(1), last_ns: 10_000_000, now_ns };
        assert!(look(10_700_000).is_early(&seen) && !look(10_750_000).is_early(&seen));
        assert!(!look(10_100_000).is_early(&Seen { is_old: true, ..seen }), "it was there at two looks");
    }

    #[test]
    fn looks_are_rare_until_something_blocks_and_end_when_nothing_runs() {
        let mut pace = Pace { period: Duration::from_millis(1), alert: 0, quiet: 0 };
        assert_eq!(pace.next(), RELAXED);
        assert!(!pace.after(RELAXED, Found::Blocked));
        for _ in 0..999 {
            assert_eq!(pace.next(), 1);
            assert!(!pace.after(1, Found::Busy));
        }
        assert!(!pace.after(1, Found::Busy));
        assert_eq!(pace.next(), RELAXED);
        pace.quicken();
        for _ in 0..ALERT_PERIODS {
            assert_eq!(pace.next(), 1);
            assert!(!pace.after(1, Found::Busy));
        }
        assert_eq!(pace.next(), RELAXED);
        let looks = (1..100).find(|_| pace.after(RELAXED, Found::Quiet)).unwrap();
        assert_eq!(looks, QUIET_PERIODS / RELAXED + 1);
    }
}
