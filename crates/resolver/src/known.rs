//! The names that are known, for all loops to read without asking the resolver's task. That one puts them in;
//! two names that fall on one place displace each other, and cost a question to the task then.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use crate::waiter::Answer;

/// Places in the table: a power of two.
const PLACES: usize = 4096;

/// A name with its addresses.
pub(crate) struct Known {
    pub(crate) name: Box<[u8]>,
    pub(crate) addresses: Arc<[IpAddr]>,
    /// In seconds of the loops' clock.
    pub(crate) valid_until_s: u64,
    /// When somebody has last asked for it.
    pub(crate) used_s: Arc<AtomicU64>,
}

impl Known {
    pub(crate) fn new(name: &[u8], addresses: Arc<[IpAddr]>, valid_until_s: u64, now_s: u64) -> Self {
        Self { name: name.into(), addresses, valid_until_s, used_s: Arc::new(AtomicU64::new(now_s)) }
    }

    /// The same answer for another name, which leads to this one.
    pub(crate) fn renamed(&self, name: &[u8], valid_until_s: u64) -> Self {
        let (addresses, used_s) = (Arc::clone(&self.addresses), Arc::clone(&self.used_s));
        Self { name: name.into(), addresses, valid_until_s, used_s }
    }
}

/// The known names of one resolver.
pub(crate) struct KnownNames {
    places: Box<[ArcSwapOption<Known>]>,
    hasher: RandomState,
}

impl KnownNames {
    pub(crate) fn new() -> Self {
        Self { places: (0..PLACES).map(|_| ArcSwapOption::empty()).collect(), hasher: RandomState::new() }
    }

    fn place(&self, name: &[u8]) -> &ArcSwapOption<Known> {
        &self.places[self.hasher.hash_one(name) as usize % PLACES]
    }

    /// The answer for a name in lower case. Any thread, without waiting.
    pub(crate) fn find(&self, name: &[u8], now_s: u64) -> Option<Answer> {
        let found = self.place(name).load();
        let known = found.as_ref().filter(|known| *known.name == *name && known.valid_until_s >= now_s)?;
        if known.used_s.load(Ordering::Relaxed) != now_s {
            known.used_s.store(now_s, Ordering::Relaxed);
        }
        Some(Answer { addresses: Arc::clone(&known.addresses), valid_until_s: known.valid_until_s })
    }

    pub(crate) fn put(&self, known: Arc<Known>) {
        self.place(&known.name).store(Some(known));
    }

    pub(crate) fn remove(&self, name: &[u8]) {
        let place = self.place(name);
        if place.load().as_ref().is_some_and(|known| *known.name == *name) {
            place.store(None);
        }
    }
}
