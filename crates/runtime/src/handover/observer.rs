//! Polls that do not come back, as an observer outside this crate sees them: which thread, since when,
//! whether the loop was handed over, whether it is over. The watchdog's thread shows them, the stuck thread
//! gives an account of itself, any thread may ask whether a poll is over.
//!
//! 1. A poll is named by the value that its loop's word had (rule 1 of word.rs: never seen before). It is
//!    under way while the word has that value or one of `Away::lenders` does.
//! 2. A lender writes its own entry of `lenders` before it swaps the word and takes it back if the swap
//!    fails. The two lenders of a poll (the watchdog, its own carrier) have an entry each, so that the one
//!    who lost takes nothing from the one who won. A carrier that comes back clears both. (lenders.rs)
//! 3. `announced` and `asked` are set by the watchdog. The carrier takes `asked` when it has given its
//!    account; the watchdog when the poll is over. `Shared::asked` is how many there were at its last look:
//!    what a task pays for rule 3 is one load of that.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use clearway_os::{clock, thread};

use crate::event_loop::remote::Remote;
use crate::handover::lenders::{Lender, Lenders, is_under_way};
use crate::handover::suspects::Tag;
use crate::handover::word::{Lease, PollId};
use crate::shared::{CARRIER_STACK, Carrier, Shared};

/// What a poll that was stuck says of itself, in the words of who runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Serial number of the connection.
    pub connection: u64,
    /// The thread that stands for the loop in logs.
    pub identity: u32,
    /// What was asked, such as `GET /a HTTP/1.1`.
    pub subject: String,
    /// Where in the configuration, such as the name of a location.
    pub place: String,
    /// Which step of the work.
    pub step: &'static str,
    /// What stands behind a log message about it.
    pub circumstances: String,
}

/// What an observer wants of a stuck poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To be shown it again at the next look.
    LookAgain,
    /// The poll's account, as soon as its task can give one. It is not shown again.
    Account,
}

/// Is shown the polls that do not come back. There is one per runtime.
pub trait Observer: Send + Sync {
    /// A poll was found under way at two looks in a row, or away from its loop. On the watchdog's thread:
    /// must not wait for anything.
    fn stuck(&self, poll: &StuckPoll) -> Wish;

    /// The account that was asked for, on the stuck thread itself, before its poll ends. Must not wait.
    fn account(&self, poll: PollId, account: Account);
}

/// A poll that does not come back.
#[derive(Clone, Copy)]
pub struct StuckPoll {
    /// Its name.
    pub id: PollId,
    /// The thread that polls.
    pub tid: u32,
    /// The loop that is, or was, held.
    pub loop_index: usize,
    /// What the task said that it does; mostly nothing.
    pub tag: Tag,
    /// When it began, monotonic clock, nanoseconds: at the earliest when the turn of its loop did and when
    /// the watchdog had looked before.
    pub since_ns: u64,
    /// When it was seen first.
    pub seen_ns: u64,
    /// The thread's CPU clock then, nanoseconds.
    pub cpu_ns: u64,
    /// No frame below this address of the thread's stack is of interest.
    pub stack_base: usize,
    home: &'static Remote,
    carrier: &'static Carrier,
}

impl StuckPoll {
    /// Whether the poll has ended. Any thread, also in a signal handler.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !is_under_way(&self.home.word, &self.carrier.away.lenders, self.id.0)
    }

    /// When it ended, if it is over and its loop was handed over; monotonic clock, nanoseconds.
    #[must_use]
    pub fn ended_ns(&self) -> Option<u64> {
        let away = &self.carrier.away;
        let ended_ns = away.back_ns.load(Ordering::Acquire);
        (away.back_of.load(Ordering::Relaxed) == self.id.0 && ended_ns != 0).then_some(ended_ns)
    }

    /// When its loop was handed over, monotonic clock, nanoseconds; `None` while it was not. To be asked
    /// while the poll is under way.
    #[must_use]
    pub fn handed_over_ns(&self) -> Option<u64> {
        let away = &self.carrier.away;
        let lent_ns = away.lent_ns.load(Ordering::Acquire);
        away.lenders.have(self.id.0).then_some(lent_ns)
    }

    /// Whether the task was polled away from its loop from the start, since its tag had blocked lately.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.carrier.away.lenders.has_entered(self.id.0, Lender::Itself)
    }
}

/// First sight of a poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) since_ns: u64,
    pub(crate) seen_ns: u64,
    pub(crate) cpu_ns: u64,
}

impl Sight {
    /// Of a poll of thread `tid` that begins just now.
    pub(crate) fn now(tid: u32) -> Self {
        let now = clock::monotonic_ns();
        Self { since_ns: now, seen_ns: now, cpu_ns: thread::cpu_ns(tid).unwrap_or(0) }
    }
}

/// What a carrier shows of its stuck poll. All values are of the poll in `lenders`.
pub(crate) struct Away {
    /// Rule 2.
    lenders: Lenders,
    loop_index: AtomicU32,
    since_ns: AtomicU64,
    seen_ns: AtomicU64,
    cpu_ns: AtomicU64,
    lent_ns: AtomicU64,
    /// The poll that came back last, and when.
    back_of: AtomicU64,
    back_ns: AtomicU64,
    announced: AtomicU64,
    asked: AtomicU64,
    stack_base: AtomicUsize,
}

impl Away {
    pub(crate) fn new() -> Self {
        Self {
            lenders: Lenders::new(),
            loop_index: AtomicU32::new(0),
            since_ns: AtomicU64::new(0),
            seen_ns: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            lent_ns: AtomicU64::new(0),
            back_of: AtomicU64::new(0),
            back_ns: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            stack_base: AtomicUsize::new(0),
        }
    }

    /// The carrier's thread runs, and frames below this address are its own business.
    pub(crate) fn stands_on(&self, stack_base: usize) {
        self.stack_base.store(stack_base, Ordering::Relaxed);
    }

    /// Whether this poll has lost its loop and is under way.
    pub(crate) fn has(&self, poll: PollId) -> bool {
        self.lenders.have(poll.0)
    }

    /// Rule 2: before the swap.
    pub(crate) fn leave(&self, poll: Lease, loop_index: usize, sight: Sight, lender: Lender) {
        self.loop_index.store(loop_index as u32, Ordering::Relaxed);
        self.since_ns.store(sight.since_ns, Ordering::Relaxed);
        self.seen_ns.store(sight.seen_ns, Ordering::Relaxed);
        self.cpu_ns.store(sight.cpu_ns, Ordering::Relaxed);
        self.lent_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        self.lenders.enter(poll, lender);
    }

    /// Rule 2: after a swap that failed.
    pub(crate) fn stay(&self, poll: Lease, lender: Lender) {
        self.lenders.withdraw(poll, lender);
    }

    /// Rule 2: the carrier is back.
    pub(crate) fn come_back(&self) {
        self.back_of.store(self.lenders.poll().unwrap_or(0), Ordering::Relaxed);
        self.back_ns.store(clock::monotonic_ns(), Ordering::Release);
        self.lenders.clear();
    }
}

/// Shows the observer what is stuck. `attached` are polls that hold their loops, with its index. On the
/// watchdog's thread.
pub(crate) fn show(shared: &'static Shared, attached: impl Iterator<Item = (usize, Lease, Sight)>) {
    let Some(observer) = shared.observer.get() else { return };
    for (loop_index, word, sight) in attached {
        show_one(shared, &**observer, word.carrier(), (word.bits(), loop_index, sight));
    }
    let were_asked = shared.asked.load(Ordering::Relaxed) > 0;
    if !were_asked && shared.detached.load(Ordering::Relaxed) == 0 {
        return count_asked(shared);
    }
    for index in 0..shared.started.load(Ordering::Acquire) as usize {
        let away = &shared.carriers[index].away;
        let Some(poll) = away.lenders.poll() else { continue };
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let sight = Sight {
            since_ns: load(&away.since_ns),
            seen_ns: load(&away.seen_ns),
            cpu_ns: load(&away.cpu_ns),
        };
        let loop_index = away.loop_index.load(Ordering::Relaxed) as usize;
        show_one(shared, &**observer, index, (poll, loop_index, sight));
    }
    count_asked(shared);
}

fn show_one(shared: &'static Shared, observer: &dyn Observer, index: usize, found: (u64, usize, Sight)) {
    let (poll, loop_index, sight) = found;
    let carrier = &shared.carriers[index];
    if carrier.away.announced.load(Ordering::Relaxed) == poll {
        return;
    }
    let stuck = StuckPoll {
        id: PollId(poll),
        tid: carrier.tid.load(Ordering::Relaxed),
        loop_index,
        tag: Tag(carrier.tag.load(Ordering::Relaxed)),
        since_ns: sight.since_ns,
        seen_ns: sight.seen_ns,
        cpu_ns: sight.cpu_ns,
        stack_base: carrier.away.stack_base.load(Ordering::Relaxed),
        home: &shared.loops()[loop_index].remote,
        carrier,
    };
    if observer.stuck(&stuck) == Wish::Account {
        carrier.away.announced.store(poll, Ordering::Relaxed);
        carrier.away.asked.store(poll, Ordering::Release);
        // At once, so that a poll that ends before the next look still gives its account.
        shared.asked.fetch_add(1, Ordering::Release);
    }
}

/// Takes back what was asked of polls that are over, and counts the rest (rule 3).
fn count_asked(shared: &'static Shared) {
    if shared.asked.load(Ordering::Relaxed) == 0 {
        return;
    }
    let started = shared.started.load(Ordering::Acquire) as usize;
    let is_asked = |carrier: &Carrier| {
        let poll = carrier.away.asked.load(Ordering::Relaxed);
        if poll == 0 {
            return false;
        }
        let under_way =
            shared.loops().iter().any(|l| is_under_way(&l.remote.word, &carrier.away.lenders, poll));
        if !under_way {
            let asked = &carrier.away.asked;
            // The carrier may have taken it just now.
            let _ = asked.compare_exchange(poll, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        under_way
    };
    let left = shared.carriers[..started].iter().filter(|carrier| is_asked(carrier)).count();
    shared.asked.store(u32::try_from(left).unwrap_or(u32::MAX), Ordering::Relaxed);
}

/// Gives the account of the poll that calls this, if it is asked for. A task may be polled by any
/// carrier, but a poll stays on the stack of one: an address on it says which this is.
#[cold]
pub(crate) fn give_account(shared: &Shared, describe: impl FnOnce() -> Account) {
    let Some(observer) = shared.observer.get() else { return };
    let here = (&raw const observer).addr();
    let started = shared.started.load(Ordering::Acquire) as usize;
    let mine = shared.carriers[..started].iter().find(|carrier| {
        let base = carrier.away.stack_base.load(Ordering::Relaxed);
        let is_on_it = base.checked_sub(here).is_some_and(|used| used < CARRIER_STACK);
        is_on_it && carrier.away.asked.load(Ordering::Acquire) != 0
    });
    let Some(carrier) = mine else { return };
    let poll = carrier.away.asked.swap(0, Ordering::AcqRel);
    if poll != 0 && shared.loops().iter().any(|l| is_under_way(&l.remote.word, &carrier.away.lenders, poll)) {
        observer.account(PollId(poll), describe());
    }
}
