//! Polls that do not come back, as an observer outside this crate sees them: which thread, since when,
//! whether the loop was handed over, whether it is over. The watchdog's thread shows them, the stuck thread
//! gives an account of itself, any thread may ask whether a poll is over.
//!
//! 1. A poll is named by the value that its loop's word had (rule 1 of word.rs: never seen before). It is
//!    under way while the word has that value or one of `Away::lenders` does.
//! 2. A lender writes its own entry of `lenders` before it swaps the word and takes it back if the swap
//!    fails. The two lenders of a poll (the watchdog, its own carrier) have an entry each, so that the loser
//!    takes nothing from the winner. A carrier that comes back clears both. (lenders.rs)
//! 3. `announced` and `asked` are set by the watchdog. The carrier takes `asked` when it has given its
//!    account; the watchdog when the poll is over. `Shared::asked` is how many there were at its last look:
//!    what a task pays for rule 3 is one load of that.

use std::sync::atomic::Ordering;

use crate::handover::away::Away;
use crate::handover::lenders::{Lender, is_under_way};
use crate::handover::suspects::Tag;
use crate::handover::word::{PollId, Word};

/// The account of a poll that was stuck, in the words of the code that ran it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Serial number of the connection.
    pub connection: u64,
    /// The thread that stands for the loop in logs.
    pub identity: u32,
    /// The request line, such as `GET /a HTTP/1.1`.
    pub subject: String,
    /// Where in the configuration, such as the name of a location.
    pub place: String,
    /// Which step of the work.
    pub step: &'static str,
    /// The text behind a log message about it.
    pub circumstances: String,
}

/// The wish of an observer about a stuck poll.
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
    /// The tag that the task has set; mostly none.
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
    /// The word of the loop that is, or was, held.
    pub(crate) word: &'static Word,
    /// The state of the carrier that polls.
    pub(crate) away: &'static Away,
}

impl StuckPoll {
    /// Whether the poll has ended. Any thread, also in a signal handler.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !is_under_way(self.word, &self.away.lenders, self.id.0)
    }

    /// When it ended, if it is over and its loop was handed over; monotonic clock, nanoseconds.
    #[must_use]
    pub fn ended_ns(&self) -> Option<u64> {
        let away = self.away;
        let ended_ns = away.back_ns.load(Ordering::Acquire);
        (away.back_of.load(Ordering::Relaxed) == self.id.0 && ended_ns != 0).then_some(ended_ns)
    }

    /// When its loop was handed over, monotonic clock, nanoseconds; `None` while it was not. To be asked
    /// while the poll is under way.
    #[must_use]
    pub fn handed_over_ns(&self) -> Option<u64> {
        let away = self.away;
        let lent_ns = away.lent_ns.load(Ordering::Acquire);
        away.lenders.have(self.id.0).then_some(lent_ns)
    }

    /// Whether the task was polled away from its loop from the start, since its tag had blocked lately.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.away.lenders.has_entered(self.id.0, Lender::Itself)
    }
}
