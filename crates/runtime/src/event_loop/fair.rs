//! Fair turns: many short polls must not keep a loop from others any more than a long one does. This file
//! owns how much CPU a task is known to take each time it is polled (its *appetite*), when that is measured,
//! and how long a turn goes on before it looks for events again.
//!
//! The rules are below. A [`Meter`] is loop-local data (rule 5 of word.rs); a [`Watch`] is not.

// The rules.
//
//  1. A loop has two rings. In *front* are the tasks that take little CPU at a time and those of which
//     nothing is known yet, *behind* are the hungry ones. This is a multi-level feedback queue (Corbató,
//     1962) of two levels: a task whose polls prove long goes down, one whose polls are short again comes up.
//  2. Tasks behind are polled in slices: when a look for events has made nobody ready in front, or when
//     those in front have been polled for BUDGET_NS since the last slice. A slice is one task, and more until
//     SLICE_NS have passed or somebody is in front. So a cheap task waits for other cheap ones and one
//     slice, however many hungry ones there are; one that comes in several steps (a turn accepts one
//     connection) has them all before the next slice; and those behind never wait for ever.
//  3. The appetite is a moving average of the CPU time of measured polls. The thread that polls a task writes
//     it, before the task stops being RUNNING; the loop that puts the task into a ring reads it. A wrong
//     answer costs a place in the queue, never correctness. One poll counts LONGEST_US at most: it takes two
//     long ones to be hungry, as a single one may be the machine's own pause, which CPU clocks do not tell.
//     What a poll takes after it gave its loop away costs the loop nothing, and does not count.
//  4. While a loop is *relaxed*, polls in front are not measured: the clock is read for each look for events,
//     as it must be, and before every CHECK_EVERY-th poll of a turn. If the polls between two readings took
//     HEAVY_NS each and PRESSED_NS in all (less if somebody is behind), the loop is *pressed*: each poll is
//     measured, until CALM_POLLS in a row took less than HEAVY_NS each. Reading the clock twice is a
//     thousandth of such a poll. When all hungry tasks are known, those in front are short, and none of them
//     is measured any more. Polls from behind are long: they are always measured.
//  5. A thread that waits for a processor uses none. So a poll that seems long is compared with the CPU
//     clock of its thread, which costs a system call: time in which the thread did not run is not counted.
//  6. Bound tasks are never hungry: they are the loop's own, and accept connections.
//  7. Where somebody is left behind after a slice, and processors are to spare, other carriers help
//     (helpers.rs).
//
// No model: both rings are those of ready.rs, whose model has their consumers, and all else here is owned by
// one thread at a time (rule 5 of word.rs), or is the appetite, of which any value is right.

use crate::task::appetite::Appetite;

/// How long what is in front is polled before a turn goes on to what is behind.
const BUDGET_NS: u64 = 2_000_000;

/// How long what is behind is polled before a turn looks for events.
const SLICE_NS: u64 = 500_000;

/// Polls of a relaxed loop from one reading of the clock to the next.
const CHECK_EVERY: u32 = 16;

/// Polls that take so long each are worth measuring.
const HEAVY_NS: u64 = 64_000;

/// Polls that take less than this in all do not press.
const PRESSED_NS: u64 = 1_000_000;

/// As above, if another task waits behind, whose share a long poll in front would take.
const SHARED_PRESSED_NS: u64 = 200_000;

/// After so many short polls in a row the loop is relaxed again.
const CALM_POLLS: u32 = 64;

/// The ring that a task was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Front,
    Behind,
}

/// The clocks of a thread, in nanoseconds.
pub(crate) trait Clocks {
    fn ns(&self) -> u64;
    /// CPU time of the calling thread. Enters the kernel.
    fn cpu_ns(&self) -> u64;
}

/// The clocks of the system.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClocks;

#[cfg(not(loom))]
impl Clocks for SystemClocks {
    fn ns(&self) -> u64 {
        clearway_os::clock::monotonic_ns()
    }

    fn cpu_ns(&self) -> u64 {
        clearway_os::clock::thread_cpu_ns()
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    ns: u64,
    cpu_ns: u64,
}

impl Base {
    /// The time for which the thread has not run since `self`.
    fn off_cpu_ns(self, now: Self) -> u64 {
        let ran_ns = now.cpu_ns.saturating_sub(self.cpu_ns);
        now.ns.saturating_sub(self.ns).saturating_sub(ran_ns)
    }
}

/// A poll that is measured. It goes with the poll, wherever the loop is meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    from: Rank,
    start_ns: u64,
    base: Base,
}

/// The result of a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    from: Rank,
    cpu_ns: u64,
    end_ns: u64,
    base: Base,
}

impl Measured {
    /// How much of the CPU the poll used.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// When it ended.
    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

impl Watch {
    /// A poll of a thread that polls hungry tasks only, after one that ended with `last`.
    pub(crate) fn after(last: Measured) -> Self {
        Self { from: Rank::Behind, start_ns: last.end_ns, base: last.base }
    }

    /// The first poll of such a thread.
    pub(crate) fn first(clocks: &impl Clocks) -> Self {
        let base = Base { ns: clocks.ns(), cpu_ns: clocks.cpu_ns() };
        Self { from: Rank::Behind, start_ns: base.ns, base }
    }

    /// A poll ends that gave its loop away at `left_ns`. On the thread that polled.
    pub(crate) fn end_away(self, left_ns: u64, appetite: &Appetite) {
        appetite.note(left_ns.saturating_sub(self.start_ns));
    }

    /// The poll ends: counts it for its task. On the thread that polled.
    pub(crate) fn end(self, appetite: &Appetite, clocks: &impl Clocks) -> Measured {
        let Self { from, start_ns, mut base } = self;
        let end_ns = clocks.ns();
        let mut cpu_ns = end_ns.saturating_sub(start_ns);
        if cpu_ns >= HEAVY_NS {
            let now = Base { ns: end_ns, cpu_ns: clocks.cpu_ns() };
            cpu_ns = cpu_ns.saturating_sub(base.off_cpu_ns(now));
            base = now;
        }
        appetite.note(cpu_ns);
        Measured { from, cpu_ns, end_ns, base }
    }
}

/// Whether polls in front are measured (rule 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Relaxed,
    /// With the short polls in a row so far.
    Pressed(u32),
}

/// Whether there is time left, for what is in front or for a slice of what is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    Left,
    Used,
}

/// A loop's knowledge of the time of its turn.
#[derive(Debug)]
pub(crate) struct Meter {
    pace: Pace,
    /// Polls in front until the clock is read.
    left: u32,
    budget: Budget,
    /// Polls that take less than this in all do not press.
    pressed_ns: u64,
    /// When those in front were first polled since the last slice, or since nobody was behind.
    front_ns: u64,
    slice_ns: u64,
    /// When the clock was read last.
    read_ns: u64,
    /// As of when the loop began a turn pressed, or a slice, or a long poll ended.
    base: Base,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            pace: Pace::Relaxed,
            left: CHECK_EVERY,
            budget: Budget::Left,
            pressed_ns: PRESSED_NS,
            front_ns: 0,
            slice_ns: 0,
            read_ns: 0,
            base: Base::default(),
        }
    }

    /// The polls of a turn have ended at `end_ns`, a look for events at `now_ns`; so many are behind.
    pub(crate) fn begin_turn(&mut self, (end_ns, now_ns): (u64, u64), behind: usize, clocks: &impl Clocks) {
        if self.pace == Pace::Relaxed {
            self.judge(end_ns);
        }
        self.pressed_ns = PRESSED_NS;
        if behind == 0 {
            self.front_ns = now_ns;
        }
        self.read_ns = now_ns;
        self.note_budget(now_ns);
        self.left = CHECK_EVERY;
        if self.pace != Pace::Relaxed {
            self.left = 1;
            self.base = Base { ns: now_ns, cpu_ns: clocks.cpu_ns() };
        }
    }

    /// Before some tasks that are polled for no longer than a slice.
    pub(crate) fn begin_slice(&mut self, clocks: &impl Clocks) {
        self.base = Base { ns: clocks.ns(), cpu_ns: clocks.cpu_ns() };
        self.pressed_ns = SHARED_PRESSED_NS;
        if self.pace == Pace::Relaxed {
            self.judge(self.base.ns);
        }
        (self.slice_ns, self.read_ns) = (self.base.ns, self.base.ns);
        self.left = if self.pace == Pace::Relaxed { CHECK_EVERY } else { 1 };
    }

    /// Whether a slice has time left.
    pub(crate) fn slice(&self) -> Budget {
        match self.read_ns.saturating_sub(self.slice_ns) < SLICE_NS {
            true => Budget::Left,
            false => Budget::Used,
        }
    }

    #[inline]
    fn note_budget(&mut self, now_ns: u64) {
        let is_used = now_ns.saturating_sub(self.front_ns) >= BUDGET_NS;
        self.budget = if is_used { Budget::Used } else { Budget::Left };
    }

    /// Whether there is time left for what is in front, before the next slice or look for events.
    #[inline]
    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    /// Before a poll: how it is measured, if it is. What is not in front needs a slice.
    #[inline]
    pub(crate) fn begin_poll(&mut self, from: Rank, clocks: &impl Clocks) -> Option<Watch> {
        if from == Rank::Behind {
            return Some(Watch { from, start_ns: self.read_ns, base: self.base });
        }
        self.left -= 1;
        if self.left > 0 { None } else { self.look(clocks) }
    }

    #[cold]
    fn look(&mut self, clocks: &impl Clocks) -> Option<Watch> {
        let now_ns = clocks.ns();
        self.note_budget(now_ns);
        if self.pace == Pace::Relaxed {
            self.judge(now_ns);
            if self.pace != Pace::Relaxed {
                self.base = Base { ns: now_ns, cpu_ns: clocks.cpu_ns() };
            }
        }
        self.read_ns = now_ns;
        self.left = if self.pace == Pace::Relaxed { CHECK_EVERY } else { 1 };
        (self.pace != Pace::Relaxed).then_some(Watch { from: Rank::Front, start_ns: now_ns, base: self.base })
    }

    /// Whether the polls since the last reading press.
    fn judge(&mut self, now_ns: u64) {
        let polls = u64::from(CHECK_EVERY - self.left);
        let took_ns = now_ns.saturating_sub(self.read_ns);
        // Where instructions are counted every poll seems long, by the clock of a machine that is not slowed.
        let is_counted = cfg!(clearway_counted);
        if polls > 0 && took_ns >= self.pressed_ns && took_ns >= polls * HEAVY_NS && !is_counted {
            self.pace = Pace::Pressed(0);
        }
    }

    /// After a measured poll that kept its loop.
    pub(crate) fn end_poll(&mut self, measured: Measured) {
        (self.read_ns, self.base) = (measured.end_ns, measured.base);
        if measured.from == Rank::Behind {
            self.front_ns = measured.end_ns;
        }
        let Pace::Pressed(calm) = self.pace else { return };
        if measured.from == Rank::Behind {
            return;
        }
        self.pace = match measured.cpu_ns < HEAVY_NS {
            false => Pace::Pressed(0),
            true if calm + 1 < CALM_POLLS => Pace::Pressed(calm + 1),
            true => {
                self.left = CHECK_EVERY;
                Pace::Relaxed
            }
        };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    const US: u64 = 1000;

    /// Clocks that are moved by hand.
    #[derive(Default)]
    struct Hands {
        ns: Cell<u64>,
        cpu_ns: Cell<u64>,
        /// How often they were asked.
        asked: Cell<u32>,
    }

    impl Clocks for Hands {
        fn ns(&self) -> u64 {
            self.asked.set(self.asked.get() + 1);
            self.ns.get()
        }

        fn cpu_ns(&self) -> u64 {
            self.asked.set(self.asked.get() + 1);
            self.cpu_ns.get()
        }
    }

    impl Hands {
        /// The thread runs for so long, after it has waited for a processor for so long.
        fn run(&self, ns: u64, waits_ns: u64) {
            self.ns.set(self.ns.get() + ns + waits_ns);
            self.cpu_ns.set(self.cpu_ns.get() + ns);
        }
    }

    /// One poll that takes so long; whether it was measured.
    fn poll(
        meter: &mut Meter,
        hands: &Hands,
        appetite: &Appetite,
        from: Rank,
        (ns, waits_ns): (u64, u64),
    ) -> bool {
        let watch = meter.begin_poll(from, hands);
        hands.run(ns, waits_ns);
        if let Some(watch) = watch {
            meter.end_poll(watch.end(appetite, hands));
        }
        watch.is_some()
    }

    fn begin_turn(meter: &mut Meter, hands: &Hands) {
        meter.begin_turn((hands.ns.get(), hands.ns.get()), 0, hands);
    }

    #[test]
    fn short_polls_are_not_measured() {
        let (mut meter, hands, task) = (Meter::new(), Hands::default(), Appetite::new());
        for _ in 0..100 {
            begin_turn(&mut meter, &hands);
            for _ in 0..CHECK_EVERY - 1 {
                assert!(!poll(&mut meter, &hands, &task, Rank::Front, (20 * US, 0)));
            }
        }
        assert_eq!(hands.asked.get(), 0, "the clock is not asked");
        // A single long poll takes less than what presses.
        assert!(!poll(&mut meter, &hands, &task, Rank::Front, (900 * US, 0)));
        begin_turn(&mut meter, &hands);
        assert!(!poll(&mut meter, &hands, &task, Rank::Front, (900 * US, 0)));
    }

    #[test]
    fn who_takes_long_is_found_in_a_turn_and_relaxed_loops_measure_nobody() {
        let (mut meter, hands) = (Meter::new(), Hands::default());
        let (cheap, hungry) = (Appetite::new(), Appetite::new());
        begin_turn(&mut meter, &hands);
        let measured = (0..40).filter(|_| poll(&mut meter, &hands, &hungry, Rank::Front, (500 * US, 0)));
        assert_eq!(measured.count(), 40 - CHECK_EVERY as usize + 1);
        assert!(hungry.is_hungry());
        assert_eq!(meter.budget(), Budget::Used);
        begin_turn(&mut meter, &hands);
        assert_eq!(meter.budget(), Budget::Left);
        for _ in 0..CALM_POLLS {
            assert!(poll(&mut meter, &hands, &cheap, Rank::Front, (20 * US, 0)));
        }
        assert!(!poll(&mut meter, &hands, &cheap, Rank::Front, (20 * US, 0)));
        assert!(!cheap.is_hungry());
    }

    #[test]
    fn those_in_front_have_some_time_between_slices() {
        let (mut meter, hands, task) = (Meter::new(), Hands::default(), Appetite::new());
        meter.begin_slice(&hands);
        poll(&mut meter, &hands, &task, Rank::Behind, (500 * US, 0));
        let turns = (1..).find(|_| {
            let now_ns = hands.ns.get();
            meter.begin_turn((now_ns, now_ns), 1, &hands);
            let is_used = meter.budget() == Budget::Used;
            poll(&mut meter, &hands, &task, Rank::Front, (20 * US, 0));
            is_used
        });
        assert_eq!(turns, Some(BUDGET_NS as usize / 20_000 + 1));
        meter.begin_turn((hands.ns.get(), hands.ns.get()), 0, &hands);
        assert_eq!(meter.budget(), Budget::Left, "nobody is behind any more");
    }

    #[test]
    fn a_turn_of_few_long_polls_presses_the_next_one() {
        let (mut meter, hands, task) = (Meter::new(), Hands::default(), Appetite::new());
        for turn in 0..2 {
            begin_turn(&mut meter, &hands);
            for _ in 0..3 {
                assert_eq!(poll(&mut meter, &hands, &task, Rank::Front, (500 * US, 0)), turn == 1);
            }
        }
        assert!(task.is_hungry());
    }

    #[test]
    fn a_long_poll_in_front_of_somebody_presses() {
        let (mut meter, hands, task) = (Meter::new(), Hands::default(), Appetite::new());
        for turn in 0..3 {
            begin_turn(&mut meter, &hands);
            assert_eq!(poll(&mut meter, &hands, &task, Rank::Front, (500 * US, 0)), turn > 0);
            meter.begin_slice(&hands);
            assert!(poll(&mut meter, &hands, &Appetite::new(), Rank::Behind, (500 * US, 0)));
        }
        assert!(task.is_hungry());
    }

    #[test]
    fn time_without_a_processor_is_not_the_tasks() {
        let (mut meter, hands, task) = (Meter::new(), Hands::default(), Appetite::new());
        meter.begin_slice(&hands);
        for _ in 0..10 {
            assert!(poll(&mut meter, &hands, &task, Rank::Behind, (20 * US, 3_000 * US)));
        }
        assert!(!task.is_hungry());
        for _ in 0..2 {
            assert!(poll(&mut meter, &hands, &task, Rank::Behind, (500 * US, 3_000 * US)));
        }
        assert!(task.is_hungry());
    }

    #[test]
    fn a_single_long_poll_is_forgiven() {
        let (mut meter, hands, task) = (Meter::new(), Hands::default(), Appetite::new());
        meter.begin_slice(&hands);
        for took in [10 * US, 80_000 * US, 10 * US, 10 * US] {
            poll(&mut meter, &hands, &task, Rank::Behind, (took, 0));
            assert!(!task.is_hungry());
        }
    }

    #[test]
    fn what_runs_away_from_its_loop_takes_nothing_from_it() {
        let (hands, task) = (Hands::default(), Appetite::new());
        for _ in 0..10 {
            let watch = Watch::first(&hands);
            let left_ns = hands.ns.get() + 5 * US;
            hands.run(60_000 * US, 0);
            watch.end_away(left_ns, &task);
        }
        assert!(!task.is_hungry());
    }

    #[test]
    fn a_slice_ends_and_an_appetite_goes() {
        let (mut meter, hands, task) = (Meter::new(), Hands::default(), Appetite::new());
        meter.begin_slice(&hands);
        for _ in 0..4 {
            assert_eq!(meter.slice(), Budget::Left);
            poll(&mut meter, &hands, &task, Rank::Behind, (150 * US, 0));
        }
        assert_eq!(meter.slice(), Budget::Used);
        assert!(task.is_hungry());
        let polls = (1..).find(|_| {
            poll(&mut meter, &hands, &task, Rank::Behind, (10 * US, 0));
            !task.is_hungry()
        });
        assert!(polls.unwrap() < 10, "{polls:?}");
    }
}
