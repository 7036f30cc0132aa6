//! The files kept by name: a table of fixed size whose entries are exchanged as wholes, so that no loop waits
//! for another. A name has its place in one set; in a full set the entry goes that was not asked for the
//! longest.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use clearway_http::OpenFile;
use clearway_os::stat::Stat;

use crate::content::disable_symlinks::LinkRule;
use crate::content::lookup::Failed;
use crate::content::name_hash::{hash, tag};

/// Files at most, whatever the configuration says.
const FILES_MAX: usize = 1 << 22;
/// Places in a set; a small table is one set.
const WAYS: usize = 16;
/// Tables up to this size are one set.
const ONE_SET_MAX: usize = 64;
/// How often what was not asked for is looked for, milliseconds.
const SWEEP_PERIOD_MS: u64 = 250;
/// The part of the table that is looked at then.
const SWEEP_PART: usize = 64;
/// An entry that was asked for within so long is not marked again, milliseconds.
const MARK_PERIOD_MS: u64 = 200;

/// How a location uses what is kept.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// On the monotonic clock.
    pub(crate) now_ms: u64,
    pub(crate) valid_ms: u64,
    pub(crate) min_uses: u64,
    pub(crate) errors: Errors,
}

/// Whether errors are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errors {
    Kept,
    Forgotten,
}

/// The object with a name.
#[derive(Clone)]
pub(crate) enum Held {
    File(Arc<OpenFile>),
    /// A file that is not kept open.
    Closed,
    Directory(Stat),
    /// Neither of both.
    Other(Stat),
    Error(&'static str, i32),
}

impl Held {
    fn of_error(failed: &Failed) -> Self {
        Self::Error(failed.call, failed.error.raw_os_error().unwrap_or_default())
    }

    /// An error that is kept.
    pub(crate) fn failed(&self) -> Option<Failed> {
        match self {
            Self::Error(call, code) => Some(Failed { call, error: io::Error::from_raw_os_error(*code) }),
            _ => None,
        }
    }
}

/// The entry of a name.
pub(crate) enum Known {
    Nothing,
    /// The entry is still valid.
    Fresh(Held),
    /// The entry has to be checked.
    Stale(Held),
}

struct Entry {
    path: Box<[u8]>,
    hash: u64,
    rule: LinkRule,
    held: Held,
    asked_ms: u64,
    used_ms: AtomicU64,
    uses: AtomicU32,
}

/// A cache of one `open_file_cache`.
pub(crate) struct OpenFiles {
    places: Box<[ArcSwapOption<Entry>]>,
    /// The upper half of the hash of what is in each place.
    tags: Box<[AtomicU32]>,
    ways: usize,
    sets: usize,
    inactive_ms: u64,
    swept_ms: AtomicU64,
    hand: AtomicUsize,
}

impl OpenFiles {
    /// Has room for so many files, which are kept for so long unused.
    pub(crate) fn new(files: u64, inactive_ms: u64) -> Self {
        let files = usize::try_from(files).unwrap_or(FILES_MAX).clamp(1, FILES_MAX);
        let (places, ways) =
            if files <= ONE_SET_MAX { (files, files) } else { (files.next_multiple_of(WAYS), WAYS) };
        Self {
            places: (0..places).map(|_| ArcSwapOption::empty()).collect(),
            tags: (0..places).map(|_| AtomicU32::new(0)).collect(),
            ways,
            sets: places / ways,
            inactive_ms,
            swept_ms: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    /// The entry of a name that is looked up in this way; counts a use of it.
    pub(crate) fn find(&self, path: &[u8], rule: LinkRule, terms: Terms) -> Known {
        self.sweep(terms.now_ms);
        let hash = hash(path);
        let entry = self.set(hash).find_map(|place| self.entry_at(place, hash, path));
        let Some(Some(entry)) = entry.as_deref() else { return Known::Nothing };
        let used_ms = entry.used_ms.load(Ordering::Relaxed);
        if terms.now_ms.saturating_sub(used_ms) >= MARK_PERIOD_MS {
            entry.used_ms.store(terms.now_ms, Ordering::Relaxed);
        }
        if u64::from(entry.uses.load(Ordering::Relaxed)) < terms.min_uses {
            entry.uses.fetch_add(1, Ordering::Relaxed);
        }
        let is_fresh = entry.rule == rule && terms.now_ms.saturating_sub(entry.asked_ms) < terms.valid_ms;
        if is_fresh { Known::Fresh(entry.held.clone()) } else { Known::Stale(entry.held.clone()) }
    }

    /// Keeps what was found behind a name just now: a file open if it is asked for often enough.
    pub(crate) fn keep(&self, path: &[u8], rule: LinkRule, terms: Terms, found: Result<Held, &Failed>) {
        let hash = hash(path);
        let there = self.set(hash).find(|&place| self.entry_at(place, hash, path).is_some());
        let held = match found {
            Ok(held) => held,
            Err(failed) if terms.errors == Errors::Kept => Held::of_error(failed),
            Err(_) => {
                if let Some(place) = there {
                    self.places[place].store(None);
                }
                return;
            }
        };
        let uses = there.and_then(|place| {
            let entry = self.places[place].load();
            entry.as_ref().map(|entry| entry.uses.load(Ordering::Relaxed))
        });
        let uses = uses.unwrap_or(1);
        let held = match held {
            Held::File(_) if u64::from(uses) < terms.min_uses => Held::Closed,
            held => held,
        };
        let entry = Entry {
            path: path.into(),
            hash,
            rule,
            held,
            asked_ms: terms.now_ms,
            used_ms: AtomicU64::new(terms.now_ms),
            uses: AtomicU32::new(uses),
        };
        let place = there.unwrap_or_else(|| self.choose_place(hash));
        self.tags[place].store(tag(hash), Ordering::Relaxed);
        self.places[place].store(Some(Arc::new(entry)));
    }

    fn set(&self, hash: u64) -> Range<usize> {
        // The lower half picks the set, scaled instead of divided; tags are of the upper one.
        let scaled = (hash & u64::from(u32::MAX)) * self.sets as u64;
        let first = (scaled >> 32) as usize * self.ways;
        first..first + self.ways
    }

    /// The entry at a place, if it belongs to this name.
    fn entry_at(&self, place: usize, hash: u64, path: &[u8]) -> Option<Guard<Option<Arc<Entry>>>> {
        if self.tags[place].load(Ordering::Relaxed) != tag(hash) {
            return None;
        }
        let entry = self.places[place].load();
        entry.as_ref().is_some_and(|entry| entry.hash == hash && *entry.path == *path).then_some(entry)
    }

    /// An empty place, else the one whose entry was not asked for the longest.
    fn choose_place(&self, hash: u64) -> usize {
        let used_ms = |place: &usize| {
            let entry = self.places[*place].load();
            entry.as_ref().map_or(0, |entry| entry.used_ms.load(Ordering::Relaxed) + 1)
        };
        self.set(hash).min_by_key(used_ms).expect("a set has places")
    }

    /// Lets go of some of what was not asked for, now and then.
    fn sweep(&self, now_ms: u64) {
        let swept_ms = self.swept_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(swept_ms) < SWEEP_PERIOD_MS
            || self.swept_ms.compare_exchange(swept_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let count = self.places.len().div_ceil(SWEEP_PART);
        let start = self.hand.fetch_add(count, Ordering::Relaxed);
        for place in (start..start + count).map(|at| at % self.places.len()) {
            let is_idle = self.places[place].load().as_ref().is_some_and(|entry| {
                now_ms.saturating_sub(entry.used_ms.load(Ordering::Relaxed)) > self.inactive_ms
            });
            if is_idle {
                self.places[place].store(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(now_ms: u64) -> Terms {
        Terms { now_ms, valid_ms: 1000, min_uses: 2, errors: Errors::Kept }
    }

    fn directory(inode: u64) -> Held {
        Held::Directory(Stat { inode, ..Stat::default() })
    }

    fn inode(known: &Known) -> Option<(u64, &'static str)> {
        match known {
            Known::Fresh(Held::Directory(stat)) => Some((stat.inode, "fresh")),
            Known::Stale(Held::Directory(stat)) => Some((stat.inode, "stale")),
            _ => None,
        }
    }

    #[test]
    fn what_is_kept_holds_for_a_while_and_for_the_same_links() {
        let cache = OpenFiles::new(1000, 60_000);
        let rule = LinkRule::Follow;
        assert!(matches!(cache.find(b"/a", rule, terms(0)), Known::Nothing));
        cache.keep(b"/a", rule, terms(0), Ok(directory(7)));
        assert_eq!(inode(&cache.find(b"/a", rule, terms(999))), Some((7, "fresh")));
        assert_eq!(inode(&cache.find(b"/a", rule, terms(1000))), Some((7, "stale")));
        assert_eq!(inode(&cache.find(b"/a", LinkRule::Never { from: 0 }, terms(1))), Some((7, "stale")));
        cache.keep(b"/a", rule, terms(1000), Ok(directory(8)));
        assert_eq!(inode(&cache.find(b"/a", rule, terms(1999))), Some((8, "fresh")));
    }

    #[test]
    fn errors_are_kept_on_demand() {
        let cache = OpenFiles::new(16, 60_000);
        let rule = LinkRule::Follow;
        let failed = Failed { call: "open()", error: io::Error::from_raw_os_error(2) };
        cache.keep(b"/a", rule, terms(0), Err(&failed));
        let Known::Fresh(held) = cache.find(b"/a", rule, terms(1)) else { panic!("kept") };
        let again = held.failed().unwrap();
        assert_eq!((again.call, again.error.raw_os_error()), ("open()", Some(2)));
        let forgotten = Terms { errors: Errors::Forgotten, ..terms(2) };
        cache.keep(b"/a", rule, forgotten, Err(&failed));
        assert!(matches!(cache.find(b"/a", rule, terms(3)), Known::Nothing));
    }

    #[test]
    fn a_full_set_loses_what_was_not_asked_for_the_longest() {
        let cache = OpenFiles::new(4, 60_000);
        let rule = LinkRule::Follow;
        let name = |number: u64| format!("/{number}").into_bytes();
        for number in 0..4 {
            cache.keep(&name(number), rule, terms(number), Ok(directory(number)));
        }
        cache.find(&name(0), rule, terms(500));
        cache.keep(b"/new", rule, terms(600), Ok(directory(9)));
        let is_kept = |number| !matches!(cache.find(&name(number), rule, terms(601)), Known::Nothing);
        assert_eq!([0, 1, 2, 3].map(is_kept), [true, false, true, true]);
    }

    #[test]
    fn what_nobody_asks_for_goes() {
        let cache = OpenFiles::new(10_000, 5000);
        let rule = LinkRule::Follow;
        cache.keep(b"/idle", rule, terms(0), Ok(directory(1)));
        cache.keep(b"/used", rule, terms(0), Ok(directory(2)));
        for now_ms in (0..40_000).step_by(250) {
            cache.find(b"/used", rule, terms(now_ms));
        }
        let held = cache.places.iter().filter_map(|place| place.load_full());
        assert_eq!(held.map(|entry| entry.path.to_vec()).collect::<Vec<_>>(), [b"/used"]);
    }
}
