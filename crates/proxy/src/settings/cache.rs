//! Settings of locations for caching responses, of all families, with nginx's defaults and rules of
//! inheritance.

use std::sync::Arc;

use clearway_cache::Validity;
use clearway_cache::disks::{Cache, TempPlace};
use clearway_http::{Merge, Own, Setting, Value, View, settings};
use clearway_zone::Zone;

use crate::settings::masks::{Failures, Mask, Methods};
use crate::settings::pass::StoreAt;

settings! {
    /// The settings of a location for caching.
    pub(crate) struct CacheConf {
        /// `None`: as the family makes one.
        pub(crate) key: Setting<Option<Value>>,
        /// When a response is not taken from the cache.
        pub(crate) bypass: Setting<Vec<Value>>,
        /// When a response is not kept.
        pub(crate) no_cache: Setting<Vec<Value>>,
        pub(crate) valid: Setting<Validity>,
        pub(crate) min_uses: Setting<u64> = 1,
        /// A range that begins behind this byte is passed on to the server; `None`: no range is.
        pub(crate) max_range_offset: Setting<Option<u64>>,
        pub(crate) use_stale: Setting<Failures>,
        pub(crate) methods: Setting<Methods>,
        pub(crate) lock: Setting<bool> = false,
        pub(crate) lock_timeout_ms: Setting<u64> = 5_000,
        pub(crate) lock_age_ms: Setting<u64> = 5_000,
        pub(crate) revalidate: Setting<bool> = false,
        pub(crate) convert_head: Setting<bool> = true,
        pub(crate) background_update: Setting<bool> = false,
        /// The cache of the zone that is named, worked out when all levels are merged.
        pub(crate) cache: Own<Option<Arc<FamilyCache>>>,
        /// Where files of caches are written that have no place for that.
        pub(crate) temp_place: Own<Option<Arc<TempPlace>>>,
    }
}

/// The caches that a family's `…_cache_path` makes.
pub(crate) type FamilyCaches = Own<Vec<Arc<FamilyCache>>>;

/// The cache settings of one family.
pub(crate) struct FamilyCache {
    pub(crate) cache: Arc<Cache>,
    /// Where its files are written first; `None`: where those of the location are.
    pub(crate) temp_place: Option<Arc<TempPlace>>,
}

/// Where responses are kept.
#[derive(Clone)]
pub(crate) enum CacheAt {
    Zone(Arc<Zone>),
    /// The zone whose name variables give.
    Evaluated(Value),
}

/// Whether responses are kept as files or in a cache. A level has one of the two at most, and the one that it
/// names replaces whatever the level around it says.
#[derive(Default)]
pub(crate) struct Keeping {
    pub(crate) store: Setting<Option<StoreAt>>,
    pub(crate) cache: Setting<Option<CacheAt>>,
}

impl Merge for Keeping {
    fn merge(&mut self, parent: &Self) {
        let Self { store, cache } = self;
        if store.is_here() && store.is_some() {
            cache.set(None);
        } else if cache.is_here() && cache.is_some() {
            store.set(None);
        }
        store.merge(&parent.store);
        cache.merge(&parent.cache);
    }
}

impl CacheConf {
    /// Why an old response may be sent; `off` leaves nothing.
    pub(crate) fn stale_for(&self, failure: Failures) -> bool {
        self.use_stale.effective().has(failure)
    }
}

/// Whether one of the texts is neither empty nor `0`.
pub(crate) fn any_holds<'c>(texts: &'c [Value], view: &View<'_, 'c>) -> bool {
    texts.iter().map(|text| text.eval(view)).any(|text| !text.is_empty() && &text[..] != b"0")
}
