//! `Receipts`: tells the producers of work for a thread when it is done. A producer asks for a number behind
//! its work; the server says up to which number all is done. Tasks leave their wakers, threads sleep on a
//! futex, and neither makes the server wait. Tasks are let go, too, while the server is not prompt.
//!
//! 1. A producer publishes its work, then takes a number (`ask`), then rings the server's bell.
//! 2. The server reads the last number (`asked`), then marks the end of its queue, then takes work off. When
//!    all before the mark was taken (a push that is under way keeps the rest back) and is done it stores the
//!    number (`settle`). It does not sleep while there is a later one.
//! 3. A task that waits leaves its waker, then fence, then looks again. The server stores (a number, or that
//!    it is not prompt), then fence, then wakes all wakers: of the two one sees the other.
//! 4. A waker behind one that is still being left is not found. The task that was leaving it either finds in
//!    its second look that it need not wait, and wakes all in the server's stead; or its number is later than
//!    what was stored, and by rule 2 the server comes again.
//! 5. A task that was woken looks again. A waker that is left over wakes its task once in vain.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::bell::Bell;
use crate::ring::Ring;
use crate::sync::{AtomicBool, AtomicU32, Futex, Ordering, fence};

/// Tells when work that was handed over is done. See the rules at the head of the file.
#[derive(Debug)]
pub struct Receipts {
    asked: AtomicU32,
    /// The last number up to which all is done.
    done: Futex,
    /// Whether requests are to be served at once.
    prompt: AtomicBool,
    waiting: Ring<Waker>,
}

/// A number: the work that its producer handed over before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt(u32);

/// Whether tasks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promptness {
    /// Work is begun at once and hangs nowhere: a task that waits goes on soon.
    Prompt,
    /// No thread serves, work is let gather, or some of it hangs.
    Slow,
}

impl Receipts {
    /// Nobody serves yet. While `waiting_max` tasks wait, further ones are not made to.
    #[must_use]
    pub fn new(waiting_max: usize) -> Self {
        Self {
            asked: AtomicU32::new(0),
            done: Futex::new(0),
            prompt: AtomicBool::new(false),
            waiting: Ring::new(waiting_max),
        }
    }

    /// Asks for what was handed over before. The bell of the server is to be rung then.
    pub fn ask(&self) -> Receipt {
        Receipt(self.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1))
    }

    /// Whether that is done.
    #[must_use]
    pub fn is_done(&self, receipt: Receipt) -> bool {
        self.done.word().load(Ordering::Acquire).wrapping_sub(receipt.0).cast_signed() >= 0
    }

    /// Whether tasks are made to wait at present; out of date at once.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.prompt.load(Ordering::Relaxed)
    }

    /// Waits on a task until that is done, or is not to be waited for. Never blocks.
    pub fn poll(&self, receipt: Receipt, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over(receipt) || self.waiting.push(cx.waker().clone()).is_err() {
            return Poll::Ready(());
        }
        fence(Ordering::SeqCst);
        if self.is_over(receipt) {
            self.wake_tasks();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Sleeps until something is done, `limit` at most; may return for no reason. Also while the server is
    /// slow. **Blocks.**
    pub fn sleep(&self, receipt: Receipt, limit: Duration) {
        let done = self.done.word().load(Ordering::Acquire);
        if done.wrapping_sub(receipt.0).cast_signed() < 0 {
            self.done.wait(done, Some(limit));
        }
    }

    /// For the server: the last number.
    #[must_use]
    pub fn asked(&self) -> Receipt {
        Receipt(self.asked.load(Ordering::SeqCst))
    }

    /// For the server: what was asked for up to this number is done.
    pub fn settle(&self, asked: Receipt) {
        if self.done.word().swap(asked.0, Ordering::AcqRel) != asked.0 {
            self.done.wake(u32::from(u16::MAX));
            self.wake_tasks();
        }
    }

    /// For the server: whether tasks wait from now on.
    pub fn set(&self, promptness: Promptness) {
        let is_prompt = promptness == Promptness::Prompt;
        if self.is_prompt() != is_prompt {
            self.prompt.store(is_prompt, Ordering::Release);
            self.wake_tasks();
        }
    }

    fn is_over(&self, receipt: Receipt) -> bool {
        self.is_done(receipt) || !self.prompt.load(Ordering::Acquire)
    }

    fn wake_tasks(&self) {
        fence(Ordering::SeqCst);
        while let Some(waker) = self.waiting.pop() {
            waker.wake();
        }
    }
}

/// Whether all that this thread has handed over is done, for a queue with one server, which does what it took
/// off before it sleeps; or the server is at something that hangs while another one sleeps in its place.
///
/// The queue first: where it is found empty the server has taken everything off, so what is seen of the bell
/// is not older. If the server is seen asleep then, it has fallen asleep behind that.
#[must_use]
pub fn is_quiet<T>(queue: &Ring<T>, bell: &Bell) -> bool {
    queue.is_empty() && bell.has_sleeper()
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn tasks_wait_for_their_number_while_the_server_is_prompt() {
        let (receipts, count) = (Receipts::new(2), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let poll = |receipt| receipts.poll(receipt, &mut Context::from_waker(&waker));
        let woken = || count.0.swap(0, Ordering::SeqCst);
        let first = receipts.ask();
        assert!(poll(first).is_ready(), "nobody serves");
        receipts.set(Promptness::Prompt);
        assert!(poll(first).is_pending());
        let second = receipts.ask();
        receipts.settle(first);
        assert_eq!(woken(), 1);
        assert!(poll(first).is_ready() && poll(second).is_pending() && poll(second).is_pending());
        assert!(poll(second).is_ready(), "no more than two wait");
        receipts.settle(receipts.asked());
        assert_eq!(woken(), 2);
        let third = receipts.ask();
        assert!(poll(third).is_pending());
        receipts.set(Promptness::Slow);
        assert_eq!(woken(), 1);
        assert!(poll(third).is_ready());
    }
}
