//! Where the streams of one connection say that they have something for it: bits that any thread sets, and
//! one waker. So a connection looks at those that have something, and not at all of them. Nothing waits.
//!
//! 1. A stream changes what it shares with its connection, then sets its bit, then wakes where the bit was
//!    not set before.
//! 2. The connection's task takes all bits, then looks at what these streams share.
//! 3. Before it waits it stores its waker, and then looks for bits: either it finds one, or the stream that
//!    sets one finds the waker.
//! 4. Streams may share a bit, where there are more of them than bits: they are looked at together.

use std::task::{Context, Poll};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Waiting;

/// How many bits there are.
pub const READY_BITS: u32 = u128::BITS;

/// The list of streams of one connection that have something for the connection.
#[derive(Default)]
pub struct Ready {
    words: [AtomicU64; 2],
    waiting: Waiting,
}

impl Ready {
    /// Sets a bit, one of [`READY_BITS`]. Any thread.
    pub fn mark(&self, bit: u32) {
        let mask = 1 << (bit % u64::BITS);
        let word = &self.words[(bit / u64::BITS % 2) as usize];
        if word.fetch_or(mask, Ordering::AcqRel) & mask == 0 {
            self.waiting.wake();
        }
    }

    /// Takes all bits that are set. By the connection's task.
    pub fn take(&self) -> u128 {
        let [low, high] = [0, 1].map(|at| {
            let word: &AtomicU64 = &self.words[at];
            if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::AcqRel) }
        });
        u128::from(high) << u64::BITS | u128::from(low)
    }

    fn is_marked(&self) -> bool {
        self.words.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Ready while a bit is set. By the connection's task.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_marked() {
            self.waiting.register(cx.waker());
            if !self.is_marked() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Has no task woken, until one waits again: the one that did is being polled.
    pub fn forget_waker(&self) {
        self.waiting.forget();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_mark_wakes_once_and_is_taken_once() {
        let (ready, count) = (Ready::default(), Arc::new(Count(AtomicUsize::new(0))));
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        assert!(ready.poll(&mut cx).is_pending());
        for bit in [3, 3, 127, 64] {
            ready.mark(bit);
        }
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(ready.poll(&mut cx).is_ready());
        assert_eq!(ready.take(), 1 << 3 | 1 << 127 | 1 << 64);
        assert_eq!(ready.take(), 0);
        assert!(ready.poll(&mut cx).is_pending());
        ready.forget_waker();
        ready.mark(0);
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "it is being polled");
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::future::poll_fn;

    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// What streams have said is found, however they and the connection meet: it is woken for it, or sees it
    /// before it waits.
    #[test]
    fn no_mark_is_lost() {
        loom::model(|| {
            let ready = Arc::new(Ready::default());
            let streams = [3, 70].map(|bit| {
                let ready = Arc::clone(&ready);
                thread::spawn(move || ready.mark(bit))
            });
            let mut bits = 0;
            while bits != 1 << 3 | 1 << 70 {
                block_on(poll_fn(|cx| ready.poll(cx)));
                ready.forget_waker();
                bits |= ready.take();
            }
            streams.into_iter().for_each(|stream| stream.join().expect("it ends"));
        });
    }

    /// What a stream changes before it sets its bit is seen by the connection that takes the bit, also where
    /// the bit was set before.
    #[test]
    fn what_was_changed_before_a_mark_is_seen_behind_it() {
        loom::model(|| {
            let shared = Arc::new((Ready::default(), AtomicU64::new(0)));
            let stream = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    for value in 1..=2 {
                        shared.1.store(value, Ordering::Relaxed);
                        shared.0.mark(0);
                    }
                })
            };
            let mut seen = 0;
            while seen < 2 {
                block_on(poll_fn(|cx| shared.0.poll(cx)));
                shared.0.forget_waker();
                if shared.0.take() != 0 {
                    seen = shared.1.load(Ordering::Relaxed);
                }
            }
            stream.join().expect("it ends");
        });
    }
}
