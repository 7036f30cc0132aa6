//! Copies of objects that are asked for again and again, shared by all loops and caches of a process: of a
//! small one all of it, of a large one its head. A copy keeps its file open, and counts only if that file,
//! asked after the request has come, has a name still and is what it was: one that was removed, or replaced
//! by another one, has none. So nothing is older than what nginx finds by opening the name.
//!
//! Nobody waits here: a table of fixed size whose places are exchanged as wholes. Open files are few, at most
//! a part of what the process may open, and those that were removed are let go of by the manager, so that
//! their room is free. An object is copied when it is asked for a second time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use clearway_offload::Blocking;
use clearway_offload::files::Opened;
use clearway_os::process;

use super::disk::{Disk, Root};
use super::metrics::{COPIED, UNCOPIED};
use super::object::{Found, Handle, Identity, Made, Wanted};
use crate::key::{Digest, Key};
use crate::seal::Soundness;

/// All copies together, bytes.
const BYTES_MAX: usize = 64 << 20;
/// Copies at most.
const PLACES_MAX: usize = 4096;
/// Places that an object may have.
const WAYS: usize = 4;
/// The part of a process's descriptors that copies may use at most: one in so many.
const DESCRIPTORS_PART: u64 = 8;
/// Objects whose first request is remembered.
const SEEN: usize = 8192;
/// Memory of a copy beside its contents and its key, bytes.
const OVERHEAD_BYTES: usize = 1024;
/// Places that are looked at for something to let go of, for each copy that is made.
const SWEEP_PLACES: usize = 64;

/// An object as it was.
struct Copied {
    owner: u64,
    key: Arc<Key>,
    identity: Identity,
    path: Arc<Path>,
    /// Taken when it is closed.
    opened: Option<Arc<Opened>>,
    disk: Arc<Disk>,
    data: Bytes,
    head: Bytes,
    made: Arc<Made>,
    body_start: usize,
    soundness: Soundness,
    /// Since it was last looked at to make room.
    is_used: AtomicBool,
}

impl Copied {
    fn is_of(&self, owner: u64, digest: Digest) -> bool {
        self.owner == owner && self.identity.digest == digest
    }

    /// Whether the file has its name and is what it was.
    fn is_current(&self) -> bool {
        let Some(opened) = &self.opened else { return false };
        let was = opened.stat();
        opened.stat_again().is_ok_and(|now| {
            now.links > 0 && (now.size, now.modified, now.changed) == (was.size, was.modified, was.changed)
        })
    }

    fn is_whole(&self) -> bool {
        self.data.len() as u64 == self.identity.length
    }

    fn bytes(&self) -> usize {
        let lines = self.head.iter().filter(|&&byte| byte == b'\n').count();
        let of_head = self.head.len() + lines * Made::LINE_BYTES;
        self.data.len() + self.key.text().len() + of_head + OVERHEAD_BYTES
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // A response that sends it closes it.
        let Some(opened) = self.opened.take().and_then(Arc::into_inner) else { return };
        if opened.is_dear_to_close() {
            let close = move |_: &Blocking, _: &Root| {
                drop(opened);
                Ok(())
            };
            self.disk.submit_anyway(None, close, |_| ()).detach();
        }
    }
}

/// The copies of objects that all loops and caches of a process share.
pub(crate) struct Copies {
    places: Box<[ArcSwapOption<Copied>]>,
    /// Bits of digests of objects that were asked for once.
    seen: Box<[AtomicU32]>,
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Where room was made last.
    hand: AtomicUsize,
}

impl Default for Copies {
    fn default() -> Self {
        let descriptors = process::descriptors_max().unwrap_or(u64::MAX) / DESCRIPTORS_PART;
        Self::new(usize::try_from(descriptors).unwrap_or(PLACES_MAX), BYTES_MAX)
    }
}

impl Copies {
    fn new(places: usize, bytes_max: usize) -> Self {
        let sets = places.min(PLACES_MAX) / WAYS;
        Self {
            places: (0..sets.max(1) * WAYS).map(|_| ArcSwapOption::empty()).collect(),
            seen: (0..SEEN).map(|_| AtomicU32::new(0)).collect(),
            bytes: AtomicUsize::new(0),
            bytes_max,
            hand: AtomicUsize::new(0),
        }
    }

    /// The object that a cache has, if there is a copy of it: one fstat(2).
    pub(crate) fn find(&self, owner: u64, wanted: &Wanted) -> Option<Found> {
        let place = self.place_of(owner, wanted.digest)?;
        let there = self.places[place].load();
        let copied = there
            .as_ref()
            .filter(|copied| copied.is_of(owner, wanted.digest) && copied.key.text() == wanted.key.text())?;
        if !copied.is_current() {
            self.let_go(place, copied);
            return None;
        }
        if !copied.is_used.load(Ordering::Relaxed) {
            copied.is_used.store(true, Ordering::Relaxed);
        }
        Some(Found {
            identity: copied.identity,
            path: Arc::clone(&copied.path),
            opened: if copied.is_whole() { None } else { copied.opened.clone().map(Handle::Kept) },
            data: copied.data.clone(),
            head: copied.head.clone(),
            body_start: copied.body_start,
            soundness: copied.soundness,
            made: Some(Arc::clone(&copied.made)),
        })
    }

    /// Makes a copy of an object if it was asked for before: of what was read of it, which is all up to the
    /// body at least.
    pub(crate) fn keep(&self, (owner, disks): (u64, &[Arc<Disk>]), key: &Arc<Key>, found: &mut Found) {
        let digest = found.identity.digest;
        let Some(disk) = disks.get(usize::from(found.identity.disk)) else { return };
        if !found.file().is_some_and(Opened::is_local) || !self.was_seen(owner, digest) {
            return;
        }
        let opened = match found.opened.take() {
            Some(Handle::Own(opened)) => Arc::new(opened),
            Some(Handle::Kept(opened)) => opened,
            None => return,
        };
        if found.data.len() as u64 != found.identity.length {
            found.opened = Some(Handle::Kept(Arc::clone(&opened)));
        }
        assert!(found.body_start <= found.data.len(), "a copy has all up to the body");
        let copied = Arc::new(Copied {
            owner,
            key: Arc::clone(key),
            identity: found.identity,
            path: Arc::clone(&found.path),
            opened: Some(opened),
            disk: Arc::clone(disk),
            data: found.data.clone(),
            head: found.head.clone(),
            made: Arc::default(),
            body_start: found.body_start,
            soundness: found.soundness,
            is_used: AtomicBool::new(false),
        });
        if !self.make_room(copied.bytes()) {
            return;
        }
        found.made = Some(Arc::clone(&copied.made));
        COPIED.increment();
        self.bytes.fetch_add(copied.bytes(), Ordering::Relaxed);
        let place = self.place_of(owner, digest).unwrap_or_else(|| self.choose_place(digest));
        if let Some(old) = self.places[place].swap(Some(copied)) {
            let before = self.bytes.fetch_sub(old.bytes(), Ordering::Relaxed);
            debug_assert!(old.bytes() <= before, "a copy is counted until it is let go of");
            UNCOPIED.increment();
        }
    }

    /// The object has changed: its copy is of no use.
    pub(crate) fn forget(&self, owner: u64, digest: Digest) {
        let Some(place) = self.place_of(owner, digest) else { return };
        if let Some(copied) = self.places[place].load_full().filter(|copied| copied.is_of(owner, digest)) {
            self.let_go(place, &copied);
        }
    }

    /// Lets go of objects whose files were removed or changed. Asks each file.
    pub(crate) fn let_go_removed(&self, _: &Blocking) {
        for (place, there) in self.places.iter().enumerate() {
            if let Some(copied) = there.load_full().filter(|copied| !copied.is_current()) {
                self.let_go(place, &copied);
            }
        }
    }

    /// Whether it was asked for before; from here on it was.
    fn was_seen(&self, owner: u64, digest: Digest) -> bool {
        let number = number_of(digest);
        let tag = (number >> 32) as u32 ^ owner as u32 | 1;
        let seen = &self.seen[number as usize % SEEN];
        seen.load(Ordering::Relaxed) == tag || {
            seen.store(tag, Ordering::Relaxed);
            false
        }
    }

    fn set(&self, digest: Digest) -> std::ops::Range<usize> {
        let first = number_of(digest) as usize % (self.places.len() / WAYS) * WAYS;
        debug_assert!(first + WAYS <= self.places.len(), "a set lies within the table");
        first..first + WAYS
    }

    fn place_of(&self, owner: u64, digest: Digest) -> Option<usize> {
        let is_there = |place: &usize| {
            self.places[*place].load().as_ref().is_some_and(|copied| copied.is_of(owner, digest))
        };
        self.set(digest).find(is_there)
    }

    /// An empty place, else one whose object was not used for long.
    fn choose_place(&self, digest: Digest) -> usize {
        let mut set = self.set(digest);
        let there = |place: usize| self.places[place].load();
        let is_idle = |place: &usize| {
            there(*place).as_ref().is_none_or(|other| !other.is_used.swap(false, Ordering::Relaxed))
        };
        let first = set.start;
        let empty = set.clone().find(|&place| there(place).is_none());
        empty.or_else(|| set.find(is_idle)).unwrap_or(first)
    }

    fn make_room(&self, wanted: usize) -> bool {
        let has_room = || self.bytes.load(Ordering::Relaxed).saturating_add(wanted) <= self.bytes_max;
        for _ in 0..SWEEP_PLACES {
            if has_room() {
                return true;
            }
            let place = self.hand.fetch_add(1, Ordering::Relaxed) % self.places.len();
            if let Some(copied) = self.places[place].load_full()
                && !copied.is_used.swap(false, Ordering::Relaxed)
            {
                self.let_go(place, &copied);
            }
        }
        has_room()
    }

    fn let_go(&self, place: usize, copied: &Arc<Copied>) {
        let there = self.places[place].compare_and_swap(copied, None);
        if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, copied)) {
            let before = self.bytes.fetch_sub(copied.bytes(), Ordering::Relaxed);
            debug_assert!(copied.bytes() <= before, "a copy is counted until it is let go of");
            UNCOPIED.increment();
        }
    }
}

fn number_of(digest: Digest) -> u64 {
    u128::from_le_bytes(digest.0) as u64
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::*;
    use super::*;

    /// Opens an object so often that there is a copy of it.
    fn warm(scratch: &Scratch, key: &Key) {
        (0..3).for_each(|_| _ = scratch.open(key).expect("it is there"));
    }

    fn is_copied(scratch: &Scratch, key: &Key) -> bool {
        scratch.open(key).expect("it is there").opened.is_none()
    }

    #[test]
    fn what_is_asked_for_again_is_answered_from_memory() {
        let scratch = Scratch::new("copies");
        let (small, large) = (key("/small"), key("/large"));
        scratch.store(&small, b"hello").unwrap();
        scratch.store(&large, &[7; 100_000]).unwrap();
        let first = scratch.open(&small).unwrap();
        assert!(first.opened.is_some());
        for key in [&small, &large] {
            warm(&scratch, key);
        }
        let found = scratch.open(&small).unwrap();
        assert!(found.opened.is_none());
        let found = scratch.open(&large).unwrap();
        assert!(matches!(found.opened, Some(Handle::Kept(_))), "its head and its file are kept");
        assert_eq!(body(&found), [7; 100_000]);
        let found = scratch.open(&small).unwrap();
        assert_eq!((found.body().as_deref(), &found.head()[..]), (Some(&b"hello"[..]), HEAD));
        assert_eq!((found.identity, &found.path), (first.identity, &first.path));
    }

    #[test]
    fn what_was_made_of_a_head_stays_as_long_as_the_copy() {
        let scratch = Scratch::new("copies-made");
        let key = key("/page");
        scratch.store(&key, b"first").unwrap();
        assert!(scratch.open(&key).unwrap().made().is_none(), "there is no copy yet");
        warm(&scratch, &key);
        let made = || scratch.open(&key).unwrap().made().expect("it is copied");
        assert_eq!(made().get::<u32>(), None);
        made().set(Arc::new(7_u32));
        made().set(Arc::new(8_u32));
        assert_eq!(made().get::<u32>().as_deref(), Some(&7));
        assert_eq!(made().get::<u64>(), None, "it is of another type");
        scratch.store(&key, b"second").unwrap();
        warm(&scratch, &key);
        assert_eq!(made().get::<u32>(), None, "it was another object's");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test changes files behind its back")]
    fn a_copy_counts_as_long_as_its_file_is_there_and_the_same() {
        let scratch = Scratch::new("copies-current");
        let key = key("/page");
        scratch.store(&key, b"first").unwrap();
        warm(&scratch, &key);
        assert!(is_copied(&scratch, &key));
        let inode = || scratch.open(&key).unwrap().identity.inode;
        let first = inode();
        // Another server puts another file in its place.
        let (path, beside) = (scratch.file(&key), scratch.path.join("beside"));
        let content = std::fs::read(&path).unwrap();
        std::fs::write(&beside, &content).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        assert_ne!(inode(), first);
        warm(&scratch, &key);
        assert!(is_copied(&scratch, &key));
        std::fs::write(&path, &content[..content.len() - 1]).unwrap();
        assert!(matches!(scratch.open(&key), Err(Miss::Broken { .. })));
        scratch.store(&key, b"second").unwrap();
        warm(&scratch, &key);
        assert_eq!(scratch.open(&key).unwrap().body().as_deref(), Some(&b"second"[..]));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(scratch.open(&key), Err(Miss::Absent)));
        scratch.store(&key, b"third").unwrap();
        assert_eq!(scratch.open(&key).unwrap().body().as_deref(), Some(&b"third"[..]));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test changes files behind its back")]
    fn a_file_that_was_removed_is_not_kept_open() {
        let scratch = Scratch::new("copies-removed");
        let (gone, stays) = (key("/gone"), key("/stays"));
        for key in [&gone, &stays] {
            scratch.store(key, &[7; 100_000]).unwrap();
            warm(&scratch, key);
        }
        let copies = &scratch.cache.kept.copies;
        let count = || copies.places.iter().filter(|place| place.load().is_some()).count();
        assert_eq!(count(), 2);
        std::fs::remove_file(scratch.file(&gone)).unwrap();
        // The manager does that now and then.
        until("it is let go of", || {
            let copies = Arc::clone(copies);
            let done = scratch.cache.kept.disks[0].pool().submit(move |blocking| {
                copies.let_go_removed(blocking);
            });
            wait(done);
            count() == 1
        });
    }

    #[test]
    fn copies_are_bounded_and_used_ones_stay() {
        let scratch = Scratch::new("copies-bounded");
        let limit = 10 * (OVERHEAD_BYTES + 1500);
        let copies = Copies::new(64, limit);
        let copy = |text: &str| {
            let key = Arc::new(key(text));
            scratch.store(&key, &[7; 1000]).unwrap();
            let wanted = Wanted { digest: key.digest(), key, head_max_bytes: 4096 };
            // The cache's own copies have not seen it yet.
            let mut found = scratch.open(&wanted.key).unwrap();
            assert!(!copies.was_seen(1, wanted.digest));
            copies.keep((1, &scratch.cache.kept.disks), &wanted.key, &mut found);
            wanted
        };
        let hot = copy("/hot");
        assert!(copies.find(1, &hot).is_some() && copies.find(2, &hot).is_none());
        let mut kept = 0;
        for number in 0..200 {
            let wanted = copy(&format!("/cold/{number}"));
            kept += usize::from(copies.find(1, &wanted).is_some());
            assert!(copies.find(1, &hot).is_some(), "after {number} others");
            assert!(copies.bytes.load(Ordering::Relaxed) <= limit);
        }
        assert!(kept > 100, "{kept}");
        let there: Vec<_> = copies.places.iter().filter_map(ArcSwapOption::load_full).collect();
        assert_eq!(
            there.iter().map(|copied| copied.bytes()).sum::<usize>(),
            copies.bytes.load(Ordering::Relaxed)
        );
    }
}
