//! Copies of small files in memory, shared by all loops. A copy counts only if the file is asked after the
//! request has come and is still what it was: device, inode, size, times. Requests that have come together
//! ask once. Nobody waits here: a table of fixed size whose places are exchanged as wholes; what a set of
//! places has no room for goes.
//!
//! A file is copied when it is asked for a second time. Not copied is one that changed within the last two
//! seconds, as another change within a tick of the clock of its file system would not show; nor one on a
//! network. A copy is made anew after as long as the file had been quiet when it was made, at most ten
//! seconds: a long write, or one through a mapping, changes a file after the time that it shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use clearway_metrics::{Counter, Metric};
use clearway_os::stat::{Stat, Time};

use crate::content::name_hash::{hash, tag};

/// Files up to this size are copied, bytes.
pub(crate) const COPY_MAX_BYTES: u64 = 64 * 1024;
/// How long a file must have been as it is, milliseconds.
const QUIET_MIN_MS: u64 = 2000;
/// How long a copy is used at most, milliseconds.
const TRUST_MAX_MS: u64 = 10_000;
/// Copies at most.
const PLACES: usize = 16 * 1024;
/// Places that a name may have.
const WAYS: usize = 4;
/// Names whose first request is remembered.
const SEEN: usize = 8 * 1024;
/// Memory of a copy in addition to its contents and its name, bytes.
const OVERHEAD_BYTES: usize = 256;
/// Places that are looked at for something to let go of, per copy that is made.
const SWEEP_PLACES: usize = 64;

/// Copies that were made.
static MADE: Counter = Counter::new(
    "file_copies_made_total",
    "files",
    "Small files that were copied into memory, again after ten seconds at most. Many more than there are \
     hot files: they do not fit, see file_copies.",
);
/// Copies that were let go of.
static EVICTED: Counter = Counter::new(
    "file_copies_evicted_total",
    "files",
    "Copies of small files that were let go of to make room for others: all of them together are larger \
     than file_copies, or there are too many.",
);
/// Copies that turned out to be old.
static OUTDATED: Counter = Counter::new(
    "file_copies_outdated_total",
    "files",
    "Copies of small files whose file had changed when it was asked for again.",
);

/// The metrics of this file.
pub(super) static ALL: &[Metric] =
    &[Metric::Counter(&MADE), Metric::Counter(&EVICTED), Metric::Counter(&OUTDATED)];

/// A file as it was.
pub(crate) struct FileCopy {
    path: Box<[u8]>,
    stat: Stat,
    data: Bytes,
    hash: u64,
    /// The end of its use, on the monotonic clock.
    until_ms: u64,
    /// Since the last look of the code that makes room.
    is_used: AtomicBool,
    /// When the file was asked last that was the same still, nanoseconds of the monotonic clock.
    asked_ns: AtomicU64,
}

impl FileCopy {
    /// The status of the file when it was copied.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Its contents.
    pub(crate) fn data(&self) -> &Bytes {
        &self.data
    }

    /// Whether a file that is this now has the contents of the copy.
    pub(crate) fn is_of(&self, now: &Stat) -> bool {
        let key = |stat: &Stat| (stat.device, stat.inode, stat.size, stat.modified, stat.changed, stat.mode);
        key(&self.stat) == key(now)
    }

    /// Whether the file was asked after this time, nanoseconds of the monotonic clock, and was the same.
    pub(crate) fn was_asked_since(&self, ns: u64) -> bool {
        self.asked_ns.load(Ordering::Relaxed) >= ns
    }

    /// The file was asked at this time, or after it, and was the same.
    pub(crate) fn note_asked(&self, ns: u64) {
        self.asked_ns.fetch_max(ns, Ordering::Relaxed);
    }

    fn bytes(&self) -> usize {
        self.data.len() + self.path.len() + OVERHEAD_BYTES
    }
}

/// When something happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// On the monotonic clock.
    pub(crate) monotonic_ms: u64,
    /// Since the epoch.
    pub(crate) unix_ms: u64,
}

/// The copies of the process. They outlive configurations.
pub(crate) struct Copies {
    places: [ArcSwapOption<FileCopy>; PLACES],
    /// The upper half of the hash of what is in each place.
    tags: [AtomicU32; PLACES],
    /// The upper halves of hashes of names that were asked for once.
    seen: [AtomicU32; SEEN],
    bytes: AtomicUsize,
    /// Where room was made last.
    hand: AtomicUsize,
}

/// The copies of this process.
pub(crate) static COPIES: Copies = Copies::new();

impl Copies {
    const fn new() -> Self {
        Self {
            places: [const { ArcSwapOption::const_empty() }; PLACES],
            tags: [const { AtomicU32::new(0) }; PLACES],
            seen: [const { AtomicU32::new(0) }; SEEN],
            bytes: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    /// The copy of what was behind a name. It is to be compared with what is there now.
    pub(crate) fn find(&self, path: &[u8], now: Now) -> Option<Arc<FileCopy>> {
        let hash = hash(path);
        let found = set(hash).find_map(|place| {
            if self.tags[place].load(Ordering::Relaxed) != tag(hash) {
                return None;
            }
            let copy = self.places[place].load();
            let copy = copy.as_ref().filter(|copy| copy.hash == hash && *copy.path == *path)?;
            (now.monotonic_ms < copy.until_ms).then(|| Arc::clone(copy))
        })?;
        if !found.is_used.load(Ordering::Relaxed) {
            found.is_used.store(true, Ordering::Relaxed);
        }
        Some(found)
    }

    /// Forgets a copy that is not of what is there now.
    pub(crate) fn drop_outdated(&self, copy: &Arc<FileCopy>) {
        for place in set(copy.hash) {
            let there = self.places[place].compare_and_swap(copy, None);
            if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, copy)) {
                self.bytes.fetch_sub(copy.bytes(), Ordering::Relaxed);
                OUTDATED.increment();
            }
        }
    }

    /// Whether a file that was just opened by this name is to be copied.
    pub(crate) fn wants(&self, path: &[u8], stat: &Stat, now: Now) -> bool {
        if stat.size > COPY_MAX_BYTES || quiet_ms(stat, now) < QUIET_MIN_MS {
            return false;
        }
        let hash = hash(path);
        let seen = &self.seen[hash as usize % SEEN];
        let is_known = seen.load(Ordering::Relaxed) == tag(hash);
        if !is_known {
            seen.store(tag(hash), Ordering::Relaxed);
        }
        is_known
    }

    /// Keeps the contents of a file that was `stat` before and after it was read. `limit_bytes` is for all
    /// copies together.
    pub(crate) fn keep(&self, path: &[u8], stat: Stat, data: Bytes, now: Now, limit_bytes: usize) {
        let hash = hash(path);
        let copy = Arc::new(FileCopy {
            path: path.into(),
            until_ms: now.monotonic_ms + quiet_ms(&stat, now).min(TRUST_MAX_MS),
            stat,
            data,
            hash,
            is_used: AtomicBool::new(false),
            asked_ns: AtomicU64::new(0),
        });
        if !self.make_room(copy.bytes(), limit_bytes) {
            return;
        }
        MADE.increment();
        let place = self.choose_place(&copy);
        self.bytes.fetch_add(copy.bytes(), Ordering::Relaxed);
        self.tags[place].store(tag(hash), Ordering::Relaxed);
        let old = self.places[place].swap(Some(Arc::clone(&copy)));
        match old {
            Some(old) if old.path == copy.path => _ = self.bytes.fetch_sub(old.bytes(), Ordering::Relaxed),
            old => self.let_go(old),
        }
    }

    /// The place of the same name, else an empty one, else one that was not used for long.
    fn choose_place(&self, copy: &FileCopy) -> usize {
        let there = |place: usize| self.places[place].load();
        let is_same = |place: &usize| there(*place).as_ref().is_some_and(|other| other.path == copy.path);
        let is_idle = |place: &usize| {
            there(*place).as_ref().is_none_or(|other| !other.is_used.swap(false, Ordering::Relaxed))
        };
        let mut places = set(copy.hash);
        places
            .clone()
            .find(is_same)
            .or_else(|| places.clone().find(|place| there(*place).is_none()))
            .or_else(|| places.clone().find(is_idle))
            .or_else(|| places.next())
            .expect("a set has places")
    }

    fn make_room(&self, wanted: usize, limit_bytes: usize) -> bool {
        let has_room = || self.bytes.load(Ordering::Relaxed).saturating_add(wanted) <= limit_bytes;
        for _ in 0..SWEEP_PLACES {
            if has_room() {
                return true;
            }
            let place = self.hand.fetch_add(1, Ordering::Relaxed) % PLACES;
            let there = self.places[place].load();
            if let Some(copy) = there.as_ref()
                && !copy.is_used.swap(false, Ordering::Relaxed)
            {
                self.let_go(self.places[place].swap(None));
            }
        }
        has_room()
    }

    fn let_go(&self, copy: Option<Arc<FileCopy>>) {
        if let Some(copy) = copy {
            self.bytes.fetch_sub(copy.bytes(), Ordering::Relaxed);
            EVICTED.increment();
        }
    }
}

/// The time for which a file has been unchanged; 0 if clocks do not agree.
fn quiet_ms(stat: &Stat, now: Now) -> u64 {
    let unix_ms = |time: Time| time.seconds.saturating_mul(1000) + i64::from(time.nanoseconds / 1_000_000);
    let latest_ms = unix_ms(stat.modified.max(stat.changed));
    u64::try_from(i64::try_from(now.unix_ms).unwrap_or(i64::MAX).saturating_sub(latest_ms)).unwrap_or(0)
}

fn set(hash: u64) -> std::ops::Range<usize> {
    let first = hash as usize % (PLACES / WAYS) * WAYS;
    first..first + WAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { monotonic_ms: 50_000, unix_ms: 1_000_000_000 };

    fn stat(size: u64, modified_ms: i64) -> Stat {
        let modified =
            Time { seconds: modified_ms / 1000, nanoseconds: (modified_ms % 1000) as u32 * 1_000_000 };
        Stat { size, modified, changed: modified, inode: 7, ..Stat::default() }
    }

    fn keep(copies: &Copies, path: &[u8], size: usize, limit: usize) {
        let stat = stat(size as u64, 999_000_000);
        copies.keep(path, stat, Bytes::from(vec![7; size]), NOW, limit);
    }

    #[test]
    fn a_quiet_small_file_is_wanted_the_second_time() {
        let copies = Box::new(Copies::new());
        let old = stat(100, 900_000_000);
        assert!(!copies.wants(b"/a", &old, NOW));
        assert!(copies.wants(b"/a", &old, NOW));
        for refused in [stat(COPY_MAX_BYTES + 1, 0), stat(1, 999_998_001), stat(1, 1_000_000_001)] {
            assert!(!copies.wants(b"/b", &refused, NOW) && !copies.wants(b"/b", &refused, NOW));
        }
        let moved = Stat { changed: Time { seconds: 999_999, nanoseconds: 0 }, ..old };
        assert!(!copies.wants(b"/a", &moved, NOW), "its inode has changed");
    }

    #[test]
    fn a_copy_is_found_as_long_as_it_is_trusted() {
        let copies = Box::new(Copies::new());
        let quiet_ms = 5000;
        let file = stat(3, 1_000_000_000 - quiet_ms);
        copies.keep(b"/a", file, Bytes::from_static(b"abc"), NOW, usize::MAX);
        let at = |monotonic_ms| copies.find(b"/a", Now { monotonic_ms, ..NOW });
        let copy = at(NOW.monotonic_ms + 4999).unwrap();
        assert_eq!((&copy.data()[..], copy.stat()), (&b"abc"[..], &file));
        assert!(at(NOW.monotonic_ms + 5000).is_none());
        assert!(copies.find(b"/b", NOW).is_none());
        for other in
            [Stat { inode: 8, ..file }, Stat { mode: 1, ..file }, stat(3, 0), Stat { size: 4, ..file }]
        {
            assert!(!copy.is_of(&other));
        }
        copies.drop_outdated(&copy);
        assert!(at(NOW.monotonic_ms).is_none());
        assert_eq!(copies.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn all_of_them_fit_in_the_limit_and_used_ones_stay() {
        let copies = Box::new(Copies::new());
        let limit = 40 * (1000 + OVERHEAD_BYTES + 10);
        keep(&copies, b"/hot", 1000, limit);
        for number in 0..2000 {
            assert!(copies.find(b"/hot", NOW).is_some(), "after {number} others");
            keep(&copies, format!("/cold/{number:03}").as_bytes(), 1000, limit);
            assert!(copies.bytes.load(Ordering::Relaxed) <= limit);
        }
        let present = copies.places.iter().filter_map(|place| place.load_full());
        let bytes: usize = present.map(|copy| copy.bytes()).sum();
        assert_eq!(copies.bytes.load(Ordering::Relaxed), bytes);
        assert!(bytes > limit / 2, "{bytes} of {limit}");
        keep(&copies, b"/large", 60_000, 1000);
        assert!(copies.find(b"/large", NOW).is_none());
    }

    #[test]
    fn a_name_is_kept_once() {
        let copies = Box::new(Copies::new());
        for size in [10, 20, 30] {
            keep(&copies, b"/a", size, usize::MAX);
        }
        assert_eq!(copies.bytes.load(Ordering::Relaxed), 30 + 2 + OVERHEAD_BYTES);
        assert_eq!(copies.find(b"/a", NOW).unwrap().data().len(), 30);
    }
}
