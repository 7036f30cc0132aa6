//! Which responses are on their way into a cache: of all requests of this process for the same file one
//! leads, the others follow it. Any thread; nothing here waits.
//!
//! A bucket is a short list that is copied when it changes and exchanged as a whole, so that a look
//! takes no lock, and a change that is late is only tried again.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::fill::{End, Followed, Follower, Leader};
use crate::key::Digest;

/// Lists that digests are shared out to. Fills are few: as many as requests to upstreams at once.
const BUCKETS: usize = 1024;

/// Fills whose digests share a bucket.
type Bucket<T> = Vec<(Digest, Followed<T>)>;

/// See the file's head.
pub struct Fills<T> {
    buckets: Box<[ArcSwapOption<Bucket<T>>]>,
}

/// What a request is that wants a file which is not there.
pub enum Entered<T: Clone> {
    /// It asks the upstream.
    Leads(Led<T>),
    /// Another one does.
    Follows(Follower<T>),
}

/// A leader that is found by others until it is dropped or has finished.
pub struct Led<T: Clone> {
    leader: Leader<T>,
    digest: Digest,
    fills: Arc<Fills<T>>,
}

impl<T: Clone> Default for Fills<T> {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| ArcSwapOption::empty()).collect() }
    }
}

impl<T: Clone> Fills<T> {
    /// Follows the request that fetches this file, or leads.
    pub fn enter(self: &Arc<Self>, digest: Digest) -> Entered<T> {
        if let Some(follower) = self.find(digest) {
            return Entered::Follows(follower);
        }
        let found = |bucket: &Bucket<T>| {
            bucket.iter().filter(|(of, _)| *of == digest).find_map(|(_, fill)| fill.follow())
        };
        let leader = Leader::new();
        let mut follows = None;
        self.bucket(digest).rcu(|bucket| {
            // Somebody may have begun since.
            follows = bucket.as_deref().and_then(found);
            if follows.is_some() {
                return bucket.clone();
            }
            let others = bucket.iter().flat_map(|bucket| bucket.iter()).filter(|(of, _)| *of != digest);
            Some(Arc::new(others.cloned().chain([(digest, leader.followed())]).collect()))
        });
        match follows {
            Some(follower) => Entered::Follows(follower),
            None => Entered::Leads(Led { leader, digest, fills: Arc::clone(self) }),
        }
    }

    /// Follows the request that fetches this file, if there is one.
    #[must_use]
    pub fn find(&self, digest: Digest) -> Option<Follower<T>> {
        let bucket = self.bucket(digest).load();
        let fills = bucket.as_deref()?.iter();
        fills.filter(|(of, _)| *of == digest).find_map(|(_, fill)| fill.follow())
    }

    fn bucket(&self, digest: Digest) -> &ArcSwapOption<Bucket<T>> {
        let number = u16::from_le_bytes([digest.0[0], digest.0[1]]);
        &self.buckets[usize::from(number) % BUCKETS]
    }

    /// The fill is not found any more.
    fn leave(&self, digest: Digest, leader: &Leader<T>) {
        self.bucket(digest).rcu(|bucket| {
            let others = bucket.iter().flat_map(|bucket| bucket.iter());
            let others: Bucket<T> = others.filter(|(_, fill)| !leader.is_of(fill)).cloned().collect();
            (!others.is_empty()).then(|| Arc::new(others))
        });
    }
}

impl<T: Clone> Led<T> {
    /// The fill.
    #[must_use]
    pub fn leader(&self) -> &Leader<T> {
        &self.leader
    }

    /// The fill has ended; the file is where it is looked for. A request between this and the list that
    /// forgets it sees the end, and takes the place.
    pub fn finish(self, end: End) {
        self.leader.end(end);
    }
}

impl<T: Clone> Drop for Led<T> {
    fn drop(&mut self) {
        self.fills.leave(self.digest, &self.leader);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::fill::{Progress, Verdict};

    const KEY: Digest = Digest([7; 16]);

    fn lead(fills: &Arc<Fills<u8>>, digest: Digest) -> Led<u8> {
        match fills.enter(digest) {
            Entered::Leads(led) => led,
            Entered::Follows(_) => panic!("another one leads"),
        }
    }

    #[test]
    fn the_first_one_leads_and_the_next_one_once_it_has_left() {
        let fills = Arc::new(Fills::default());
        let led = lead(&fills, KEY);
        // Another file in the same bucket.
        let mut neighbour = KEY;
        neighbour.0[15] = 8;
        let other = lead(&fills, neighbour);
        let Entered::Follows(mut follower) = fills.enter(KEY) else { panic!("two lead") };
        drop(led);
        let cx = &mut Context::from_waker(Waker::noop());
        assert_eq!(follower.poll_verdict(cx), Poll::Ready(None));
        let led = lead(&fills, KEY);
        let Entered::Follows(mut follower) = fills.enter(KEY) else { panic!("two lead") };
        led.leader().decide(Verdict::NotStored);
        led.finish(End::Complete);
        assert_eq!(follower.poll_verdict(cx), Poll::Ready(Some(Verdict::NotStored)));
        assert_eq!(follower.poll_beyond(cx, 0), Poll::Ready(Progress::Complete(0)));
        drop((lead(&fills, KEY), other));
        assert!(fills.buckets.iter().all(|bucket| bucket.load().is_none()), "nothing is left behind");
    }

    #[test]
    fn never_two_lead_however_many_come_at_once() {
        let fills = Arc::new(Fills::<u8>::default());
        let (leading, led_in_all) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        if let Entered::Leads(led) = fills.enter(KEY) {
                            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                            led_in_all.fetch_add(1, Ordering::SeqCst);
                            led.leader().grown(1);
                            leading.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert!(led_in_all.load(Ordering::SeqCst) > 0);
        assert!(fills.buckets.iter().all(|bucket| bucket.load().is_none()), "nothing is left behind");
    }
}
