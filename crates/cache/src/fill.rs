//! A response on its way into the cache: one request, the *leader*, receives it and writes the file. Others
//! for the same object, its *followers*, read the file while it grows.
//!
//! 1. A leader decides once whether the response will be stored, publishes how many bytes of the file may be
//!    read, which only grow, and ends the fill once. One that is dropped before has failed.
//! 2. To publish, it stores the value (release), then exchanges the count of waiters for 0. If that was not
//!    0, it takes and wakes all waiters in the queue: a waiter may be pushed first and counted later.
//! 3. A waiter stores its waker and marks itself as queued. If it was not, it pushes itself into the queue
//!    and adds one to the count. Then it looks at the published values once more.
//! 4. The leader clears the mark of a waiter first, and takes its waker then.
//! 5. No wake-up is lost: the leader's exchange finds the waiter, or the waiter's second look the value.
//! 6. A follower reads the end before the length: behind a complete end the length is final.
//! 7. The numbers of followers and of waiters are hints.

use std::task::{Context, Poll};

use crate::sync::{Arc, AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Once, Ordering, Queue, WakerPlace};

/// Whether a response will be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// The response will be stored; the value is all that followers need to read the file.
    Stored(T),
    /// The response will not be stored: each follower asks the upstream itself.
    NotStored,
}

/// How a fill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The file holds all of it.
    Complete,
    /// The leader gave up before the end of the response.
    Failed,
}

/// The progress of a file, for a follower that has read it up to some byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The follower can read up to this byte, and more may come.
    Readable(u64),
    /// The follower can read up to this byte, which is the end of the file.
    Complete(u64),
    /// The leader has failed, and the follower has read all that was published.
    Failed,
}

/// How many followers of a fill wait. The fewer of them wait, the later the leader may publish more:
/// followers that do not wait still have bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowd {
    /// All followers wait for more.
    AllWait,
    /// At least half of the followers wait.
    MostWait,
    /// Less than half of them wait.
    FewWait,
    /// There are no followers, or none of them waits.
    NobodyWaits,
}

const OPEN: u8 = 0;
const COMPLETE: u8 = 1;
const FAILED: u8 = 2;

/// The state that leader and followers share.
struct Fill<T> {
    verdict: Once<Verdict<T>>,
    /// Bytes of the file that may be read.
    written: AtomicU64,
    end: AtomicU8,
    /// Whether the leader has received all of the response; the file may still be incomplete.
    is_received: AtomicBool,
    /// The count of waiters: rules 2 and 3.
    waiting: AtomicUsize,
    /// The number of followers: rule 7.
    followers: AtomicUsize,
    queue: Queue<Arc<Waiter>>,
}

/// A follower's entry in the queue.
#[derive(Default)]
struct Waiter {
    waker: WakerPlace,
    is_queued: AtomicBool,
}

impl<T> Fill<T> {
    /// Wakes all waiters, by rules 2 and 4.
    fn wake(&self) {
        if self.waiting.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        for _ in 0..self.queue.len() {
            let Some(waiter) = self.queue.pop() else { break };
            waiter.is_queued.swap(false, Ordering::AcqRel);
            if let Some(waker) = waiter.waker.swap(None) {
                waker.wake();
            }
        }
    }

    /// Puts a waiter into the queue: rule 3, up to the second look.
    fn register(&self, waiter: &Arc<Waiter>, cx: &Context<'_>) {
        waiter.waker.swap(Some(cx.waker().clone()));
        if !waiter.is_queued.swap(true, Ordering::AcqRel) {
            self.queue.push(Arc::clone(waiter));
            self.waiting.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn end(&self) -> Option<End> {
        match self.end.load(Ordering::Acquire) {
            OPEN => None,
            COMPLETE => Some(End::Complete),
            _ => Some(End::Failed),
        }
    }
}

impl<T: Clone> Fill<T> {
    fn new() -> Self {
        Self {
            verdict: Once::new(),
            written: AtomicU64::new(0),
            end: AtomicU8::new(OPEN),
            is_received: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            followers: AtomicUsize::new(0),
            queue: Queue::new(),
        }
    }
}

/// The request that receives the response. Belongs to one task. If it is dropped before [`Leader::finish`],
/// the fill has failed.
pub struct Leader<T> {
    fill: Arc<Fill<T>>,
}

impl<T: Clone> Default for Leader<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Leader<T> {
    /// Begins a fill.
    #[must_use]
    pub fn new() -> Self {
        Self { fill: Arc::new(Fill::new()) }
    }

    /// Decides whether the response will be stored, once its head is known. Further calls change nothing.
    pub fn decide(&self, verdict: Verdict<T>) {
        if self.fill.verdict.set(verdict).is_ok() {
            self.fill.wake();
        }
    }

    /// Notes that all of the response was received; it still has to be written. The leader's client may have
    /// the whole response by now, so requests that come after it should be answered from this fill.
    pub fn note_received(&self) {
        self.fill.is_received.store(true, Ordering::Release);
    }

    /// Publishes that so many bytes of the file may be read. Fewer than before change nothing.
    pub fn grown(&self, bytes: u64) {
        debug_assert!(self.fill.end().is_none(), "nothing grows behind the end of a fill");
        if self.fill.written.fetch_max(bytes, Ordering::AcqRel) < bytes {
            self.fill.wake();
        }
    }

    /// How many followers wait at the moment.
    #[must_use]
    pub fn crowd(&self) -> Crowd {
        let waiting = self.fill.waiting.load(Ordering::Acquire);
        let followers = self.fill.followers.load(Ordering::Relaxed);
        match waiting {
            0 => Crowd::NobodyWaits,
            _ if waiting >= followers => Crowd::AllWait,
            _ if waiting * 2 >= followers => Crowd::MostWait,
            _ => Crowd::FewWait,
        }
    }

    /// Ends the fill. The file must have its final name before.
    pub fn finish(self, end: End) {
        self.end(end);
    }

    /// Adds a follower.
    #[must_use]
    pub fn follow(&self) -> Follower<T> {
        Follower::of(&self.fill)
    }
}

impl<T> Leader<T> {
    /// Whether this is the leader of `fill`.
    #[cfg(not(loom))]
    pub(crate) fn is_of(&self, fill: &Followed<T>) -> bool {
        Arc::ptr_eq(&self.fill, &fill.0)
    }

    /// The fill, for the list in which other requests find it.
    #[cfg(not(loom))]
    pub(crate) fn followed(&self) -> Followed<T> {
        Followed(Arc::clone(&self.fill))
    }

    pub(crate) fn end(&self, end: End) {
        let value = if end == End::Complete { COMPLETE } else { FAILED };
        let ended = self.fill.end.compare_exchange(OPEN, value, Ordering::AcqRel, Ordering::Acquire);
        if ended.is_ok() {
            self.fill.wake();
        }
    }
}

impl<T> Drop for Leader<T> {
    fn drop(&mut self) {
        self.end(End::Failed);
    }
}

/// A fill that requests may follow until it ends.
#[cfg(not(loom))]
pub(crate) struct Followed<T>(Arc<Fill<T>>);

#[cfg(not(loom))]
impl<T> Clone for Followed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(not(loom))]
impl<T> Followed<T> {
    /// Adds a follower; `None` if the fill has ended.
    pub(crate) fn follow(&self) -> Option<Follower<T>> {
        let open = self.0.end().is_none();
        open.then(|| Follower::of(&self.0))
    }
}

/// A request that reads the response which its leader receives. Belongs to one task.
pub struct Follower<T> {
    fill: Arc<Fill<T>>,
    waiter: Arc<Waiter>,
}

impl<T> Follower<T> {
    fn of(fill: &Arc<Fill<T>>) -> Self {
        fill.followers.fetch_add(1, Ordering::Relaxed);
        Self { fill: Arc::clone(fill), waiter: Arc::default() }
    }
}

impl<T: Clone> Follower<T> {
    /// Waits for the decision whether the response will be stored. `None`: the leader has failed before it
    /// decided, so another request has to lead.
    pub fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Option<Verdict<T>>> {
        self.poll(cx, |fill| {
            let ended = fill.end().is_some();
            let verdict = fill.verdict.get();
            (verdict.is_some() || ended).then_some(verdict)
        })
    }

    /// Whether the leader has received all of the response.
    #[must_use]
    pub fn is_received(&self) -> bool {
        self.fill.is_received.load(Ordering::Acquire)
    }

    /// Waits until there is more than the first `position` bytes of the file, or the fill has ended.
    pub fn poll_beyond(&mut self, cx: &mut Context<'_>, position: u64) -> Poll<Progress> {
        self.poll(cx, |fill| {
            let end = fill.end();
            let written = fill.written.load(Ordering::Acquire);
            match end {
                Some(End::Complete) => Some(Progress::Complete(written)),
                _ if written > position => Some(Progress::Readable(written)),
                Some(End::Failed) => Some(Progress::Failed),
                None => None,
            }
        })
    }

    /// Waits until `look` finds something, now or after the leader has published.
    fn poll<R>(&self, cx: &Context<'_>, look: impl Fn(&Fill<T>) -> Option<R>) -> Poll<R> {
        if let Some(found) = look(&self.fill) {
            return Poll::Ready(found);
        }
        self.fill.register(&self.waiter, cx);
        look(&self.fill).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Drop for Follower<T> {
    fn drop(&mut self) {
        self.waiter.waker.swap(None);
        let before = self.fill.followers.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each follower leaves once");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Woken {
        fn take(&self) -> u32 {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn a_follower_reads_up_to_the_end() {
        let leader = Leader::<u8>::new();
        let mut follower = leader.follow();
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(follower.poll_verdict(cx).is_pending());
        leader.decide(Verdict::Stored(7));
        leader.decide(Verdict::NotStored);
        assert_eq!(follower.poll_verdict(cx), Poll::Ready(Some(Verdict::Stored(7))));
        assert!(follower.poll_beyond(cx, 0).is_pending());
        leader.grown(10);
        leader.grown(4);
        assert_eq!(follower.poll_beyond(cx, 0), Poll::Ready(Progress::Readable(10)));
        assert!(follower.poll_beyond(cx, 10).is_pending());
        leader.grown(12);
        assert!(!follower.is_received());
        leader.note_received();
        assert!(follower.is_received() && follower.poll_beyond(cx, 12).is_pending());
        leader.finish(End::Complete);
        assert_eq!(follower.poll_beyond(cx, 10), Poll::Ready(Progress::Complete(12)));
        assert_eq!(follower.poll_beyond(cx, 12), Poll::Ready(Progress::Complete(12)));
    }

    #[test]
    fn a_leader_that_is_dropped_has_failed() {
        let leader = Leader::<u8>::new();
        let (mut early, mut late) = (leader.follow(), leader.follow());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(early.poll_verdict(cx).is_pending());
        leader.grown(3);
        drop(leader);
        assert_eq!(early.poll_verdict(cx), Poll::Ready(None));
        assert_eq!(
            late.poll_beyond(cx, 0),
            Poll::Ready(Progress::Readable(3)),
            "what is there is read first"
        );
        assert_eq!(late.poll_beyond(cx, 3), Poll::Ready(Progress::Failed));
    }

    #[test]
    fn who_waits_is_woken_once_per_step_however_often_it_looked() {
        let leader = Leader::<u8>::new();
        let mut followers: Vec<_> = (0..100).map(|_| leader.follow()).collect();
        let woken = std::sync::Arc::new(Woken::default());
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        let cx = &mut Context::from_waker(&waker);
        assert_eq!(leader.crowd(), Crowd::NobodyWaits);
        for (share, crowd) in [(49, Crowd::FewWait), (50, Crowd::MostWait), (100, Crowd::AllWait)] {
            for follower in followers.iter_mut().take(share) {
                assert!(follower.poll_beyond(cx, 0).is_pending());
            }
            assert_eq!(leader.crowd(), crowd);
        }
        for _ in 0..50 {
            followers.iter_mut().for_each(|follower| assert!(follower.poll_beyond(cx, 0).is_pending()));
        }
        followers.truncate(60);
        leader.grown(1);
        assert_eq!(woken.take(), 60, "those that have left are not woken");
        leader.grown(2);
        assert_eq!(woken.take(), 0, "nobody waits any more");
        followers.iter_mut().for_each(|follower| assert!(follower.poll_beyond(cx, 2).is_pending()));
        leader.finish(End::Complete);
        assert_eq!(woken.take(), 60);
    }
}

#[cfg(all(test, loom))]
mod models;
