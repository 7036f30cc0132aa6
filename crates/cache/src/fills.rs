//! The responses that are on their way into a cache. Of all requests of this process for the same file one
//! leads and the others follow it (`fill.rs`). Any thread; nothing here waits.
//!
//! A bucket is a short list that is copied for each change and exchanged as a whole. So a look-up takes no
//! lock, and a change that comes second is just tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use crate::fill::{End, Followed, Follower, Leader};
use crate::key::Digest;

/// The number of digests that are remembered because their responses were not stored.
const UNKEPT_SLOTS: usize = 1024;

/// The time for which that is remembered, seconds. Meanwhile requests do not wait for a leader, since its
/// response is unlikely to be stored for them.
pub(crate) const UNKEPT_S: u16 = 2;

/// The number of buckets. Fills are few: as many as there are requests to upstreams at a time.
const BUCKETS: usize = 1024;

/// The bits of an entry of `unkept` that hold the time.
const SECONDS_MASK: u64 = 0xffff;

/// Fills whose digests share a bucket.
type Bucket<T> = Vec<(Digest, Followed<T>)>;

/// The fills of one cache.
pub struct Fills<T> {
    buckets: Box<[ArcSwapOption<Bucket<T>>]>,
    /// Responses that were not stored: 48 bits of the digest, and the lower 16 bits of the time, Unix
    /// seconds.
    unkept: Box<[AtomicU64]>,
}

/// The part of a request that wants a file which is not there.
pub enum Entered<T: Clone> {
    /// The request asks the upstream.
    Leads(Led<T>),
    /// Another request asks the upstream already.
    Follows(Follower<T>),
}

/// A leader that other requests find until it has finished or is dropped.
pub struct Led<T: Clone> {
    leader: Leader<T>,
    digest: Digest,
    fills: Arc<Fills<T>>,
}

impl<T: Clone> Default for Fills<T> {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| ArcSwapOption::empty()).collect(),
            unkept: (0..UNKEPT_SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl<T: Clone> Fills<T> {
    /// Follows the request that fetches this file, or begins a fill.
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
            // Another request may have begun a fill since the look above.
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

    /// The number of fills.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn count(&self) -> usize {
        self.buckets.iter().filter_map(|bucket| bucket.load().as_deref().map(Vec::len)).sum()
    }

    /// Notes that a response with this digest was not stored, at the time `now_s`, Unix seconds.
    pub fn note_unkept(&self, digest: Digest, now_s: u64) {
        let (slot, tag) = self.unkept_of(digest);
        slot.store(tag | now_s & SECONDS_MASK, Ordering::Relaxed);
    }

    /// Whether a response with this digest was not stored within the last two seconds.
    #[must_use]
    pub fn is_unkept(&self, digest: Digest, now_s: u64) -> bool {
        let (slot, tag) = self.unkept_of(digest);
        let word = slot.load(Ordering::Relaxed);
        let age_s = (now_s as u16).wrapping_sub(word as u16);
        word & !SECONDS_MASK == tag && age_s <= UNKEPT_S
    }

    fn unkept_of(&self, digest: Digest) -> (&AtomicU64, u64) {
        let whole = u128::from_le_bytes(digest.0);
        let tag = (whole >> 64) as u64 & !SECONDS_MASK;
        (&self.unkept[whole as usize % UNKEPT_SLOTS], tag)
    }

    fn bucket(&self, digest: Digest) -> &ArcSwapOption<Bucket<T>> {
        let number = u16::from_le_bytes([digest.0[0], digest.0[1]]);
        &self.buckets[usize::from(number) % BUCKETS]
    }

    /// Removes a fill from its bucket.
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

    /// Ends the fill; the file must have its final name. A request that still finds the fill in its bucket
    /// sees that it has ended, and begins another one in its place.
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
    use std::sync::atomic::AtomicU32;
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

    #[test]
    fn what_was_not_kept_is_remembered_for_a_moment() {
        let fills = Fills::<u8>::default();
        let now_s = 1_795_000_000;
        assert!(!fills.is_unkept(KEY, now_s));
        fills.note_unkept(KEY, now_s);
        assert!(fills.is_unkept(KEY, now_s) && fills.is_unkept(KEY, now_s + u64::from(UNKEPT_S)));
        assert!(!fills.is_unkept(KEY, now_s + u64::from(UNKEPT_S) + 1));
        let mut other = KEY;
        other.0[15] = 8;
        assert!(!fills.is_unkept(other, now_s), "it only shares the place");
    }
}
