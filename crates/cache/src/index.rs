//! The part of each object that is known without looking at a disk: a slot of 64 bytes in the memory of a
//! zone, which outlives configurations and workers. Any thread of any process; nothing here waits.
//!
//! 1. A slot is found by the digest as it is. A client that makes up digests for the same bucket pushes out
//!    what was used least recently there: its own before an object that others ask for.
//! 2. The payload of a slot says when the object was last used, in its upper bits: so the table forgets the
//!    one that was used least recently. Below that stands which worker updates it, if one does.
//! 3. All else is values, put together when an object is published; the count of uses alone is changed.
//! 4. An update belongs to a worker by its number in the zone, so that of one that has died is void.

use clearway_zone::{Contended, Entry, KeyHash, Table, Updated};

use crate::key::{DIGEST_BYTES, Digest};

/// Values of a slot.
const VALUES: usize = 5;

/// Memory for each object at most, bytes.
pub const SLOT_BYTES: usize = (3 + VALUES) * 8;

/// The unit of the sizes of files, bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Uses that are counted at most.
pub const USES_MAX: u16 = (1 << 10) - 1;

/// The entry of an object that is stored, or of a key that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The stored form of the object.
    pub stored: Stored,
    /// How often it was asked for, up to [`USES_MAX`].
    pub uses: u16,
    /// When it was last used, Unix seconds.
    pub used_s: u64,
    /// The number of the worker that updates it; 0 for none.
    pub updated_by: u16,
}

/// The stored form of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Nothing: it was asked for.
    Nothing,
    /// An error of the upstream's, which is remembered without a file.
    Error {
        /// Its status, 100 to 999.
        status: u16,
        /// Remembered until then, Unix seconds.
        valid_s: u64,
    },
    /// A file.
    File(File),
}

/// A file with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// The number of its disk, 0 to 15.
    pub disk: u8,
    /// May be used until then, Unix seconds.
    pub valid_s: u64,
    /// Its length in [`BLOCK_BYTES`].
    pub blocks: u32,
    /// Where the body begins, bytes.
    pub body_start: u16,
    /// Its inode, the lower 56 bits.
    pub inode: u64,
    /// When it was stored, Unix seconds.
    pub stored_s: u64,
    /// The stamp by which the file is known to be as it was written, 22 bits; 0: it is in doubt
    /// (`disks::stamp`).
    pub stamp: u32,
}

/// Fields of a number, from its lowest bits.
struct Packed(u64);

impl Packed {
    fn take(&mut self, bits: u32) -> u64 {
        let field = self.0 & mask(bits);
        self.0 >>= bits;
        field
    }
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Puts fields one above the other: each with its bits, the lowest first. What does not fit is the largest
/// that does.
fn pack<const N: usize>(fields: [(u64, u32); N]) -> u64 {
    let mut shift = 0;
    fields.iter().fold(0, |packed, &(field, bits)| {
        let placed = field.min(mask(bits)) << shift;
        shift += bits;
        debug_assert!(shift <= u64::BITS, "all fields fit into a number");
        debug_assert!(packed & placed == 0, "fields do not overlap");
        packed | placed
    })
}

/// Bits of Unix seconds.
const SECONDS_BITS: u32 = 34;
const USES_BITS: u32 = 10;
const WORKER_BITS: u32 = 16;
/// The digest's bits that do not fit the key.
const REST_BITS: u32 = 16;
const STATUS_BITS: u32 = 10;
const DISK_BITS: u32 = 4;
const INODE_BITS: u32 = 56;
const STAMP_BITS: u32 = 22;

const KIND_NOTHING: u64 = 0;
const KIND_ERROR: u64 = 1;
const KIND_FILE: u64 = 2;
const KIND_BITS: u32 = 2;

/// Places of the values.
const IDENTITY: usize = 0;

impl Object {
    fn entry(&self, rest: u64) -> Entry<VALUES> {
        let uses = u64::from(self.uses);
        let identity = |kind: u64, status: u16, disk: u8| {
            pack([
                (uses, USES_BITS),
                (rest, REST_BITS),
                (kind, KIND_BITS),
                (u64::from(status), STATUS_BITS),
                (u64::from(disk), DISK_BITS),
            ])
        };
        let values = match self.stored {
            Stored::Nothing => [identity(KIND_NOTHING, 0, 0), 0, 0, 0, 0],
            Stored::Error { status, valid_s } => {
                [identity(KIND_ERROR, status, 0), valid_s.min(mask(SECONDS_BITS)), 0, 0, 0]
            }
            Stored::File(file) => [
                identity(KIND_FILE, 0, file.disk),
                file.valid_s.min(mask(SECONDS_BITS)),
                pack([(u64::from(file.blocks), 32), (u64::from(file.body_start), 16)]),
                file.inode & mask(INODE_BITS),
                pack([(file.stored_s, SECONDS_BITS), (u64::from(file.stamp), STAMP_BITS)]),
            ],
        };
        debug_assert!(rest <= mask(REST_BITS), "a key lacks so many bits of its digest");
        Entry { payload: payload(self.used_s, self.updated_by), values }
    }

    /// The object, and the digest's bits that its key does not have.
    fn of(entry: Entry<VALUES>) -> (Self, u64) {
        let [identity, valid_s, size, inode, times] = entry.values;
        let mut identity = Packed(identity);
        let (uses, rest) = (identity.take(USES_BITS) as u16, identity.take(REST_BITS));
        let (kind, status) = (identity.take(KIND_BITS), identity.take(STATUS_BITS) as u16);
        let stored = match kind {
            KIND_FILE => {
                let (mut size, mut times) = (Packed(size), Packed(times));
                Stored::File(File {
                    disk: identity.take(DISK_BITS) as u8,
                    valid_s,
                    blocks: size.take(32) as u32,
                    body_start: size.take(16) as u16,
                    inode,
                    stored_s: times.take(SECONDS_BITS),
                    stamp: times.take(STAMP_BITS) as u32,
                })
            }
            KIND_ERROR => Stored::Error { status, valid_s },
            _ => Stored::Nothing,
        };
        let (used_s, updated_by) = of_payload(entry.payload);
        (Self { stored, uses, used_s, updated_by }, rest)
    }
}

fn payload(used_s: u64, updated_by: u16) -> u64 {
    pack([(u64::from(updated_by), WORKER_BITS), (used_s.max(1), SECONDS_BITS)])
}

fn of_payload(payload: u64) -> (u64, u16) {
    let mut packed = Packed(payload);
    let updated_by = packed.take(WORKER_BITS) as u16;
    (packed.take(SECONDS_BITS), updated_by)
}

/// Whether an update may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The process that asked updates the object.
    Begun,
    /// A worker that is there does it already.
    Busy(u16),
    /// Nothing is known of the object.
    Unknown,
}

/// The index of a cache in the memory of its zone.
#[derive(Clone, Copy)]
pub struct Index<'z> {
    table: Table<'z, VALUES>,
}

impl<'z> Index<'z> {
    /// The index in a table that holds nothing else.
    #[must_use]
    pub fn new(table: Table<'z, VALUES>) -> Self {
        Self { table }
    }

    /// How many objects there is room for. From seven tenths of them on some are forgotten for others.
    #[must_use]
    pub fn room(&self) -> usize {
        self.table.slots()
    }

    /// The entry of an object.
    #[must_use]
    pub fn get(&self, digest: Digest) -> Option<Object> {
        let (key, rest) = key(digest);
        let (object, other_rest) = Object::of(self.table.read(key)?);
        (other_rest == rest).then_some(object)
    }

    /// Counts a use: how many there are with it. Where nothing is known of the object it is from here on.
    ///
    /// # Errors
    /// When others were always faster.
    pub fn count_use(&self, digest: Digest, now_s: u64) -> Result<u16, Contended> {
        let (key, rest) = key(digest);
        // It is put there empty, never in the place of what another one publishes at the same time.
        self.table.update(key, 0, |present| match present.map(of_payload) {
            Some((used_s, updated_by)) => (used_s < now_s).then(|| payload(now_s, updated_by)),
            None => Some(payload(now_s, 0)),
        })?;
        let mut uses = 1;
        self.table.update_value(key, IDENTITY, |identity| {
            let before = identity & mask(USES_BITS);
            uses = (before + 1).min(u64::from(USES_MAX));
            let kept = identity & !mask(USES_BITS + REST_BITS);
            Some(kept | rest << USES_BITS | uses)
        })?;
        Ok(uses as u16)
    }

    /// The object was used, which is written down once a second.
    ///
    /// # Errors
    /// When others were always faster.
    pub fn touch(&self, digest: Digest, now_s: u64) -> Result<(), Contended> {
        self.change(digest, |used_s, updated_by| (used_s < now_s).then_some((now_s, updated_by))).map(|_| ())
    }

    /// A worker wants to update an object. `is_there` says whether a worker with a number still works.
    ///
    /// # Errors
    /// When others were always faster.
    pub fn begin_update(
        &self,
        digest: Digest,
        worker: u16,
        is_there: impl Fn(u16) -> bool,
    ) -> Result<Update, Contended> {
        debug_assert!(worker != 0, "0 is no worker");
        let mut update = Update::Unknown;
        self.change(digest, |used_s, updated_by| {
            if updated_by != 0 && is_there(updated_by) {
                update = Update::Busy(updated_by);
                return None;
            }
            update = Update::Begun;
            Some((used_s, worker))
        })?;
        Ok(update)
    }

    /// A worker has given its update up.
    ///
    /// # Errors
    /// When others were always faster.
    pub fn end_update(&self, digest: Digest, worker: u16) -> Result<(), Contended> {
        self.change(digest, |used_s, updated_by| (updated_by == worker).then_some((used_s, 0))).map(|_| ())
    }

    /// Replaces the stored form of an object. Its number of uses stays, and an update of it ends.
    ///
    /// # Errors
    /// When others were always faster.
    pub fn publish(&self, digest: Digest, stored: Stored, now_s: u64) -> Result<Updated, Contended> {
        let (key, rest) = key(digest);
        let uses = self.get(digest).map_or(1, |object| object.uses);
        let object = Object { stored, uses, used_s: now_s, updated_by: 0 };
        debug_assert_eq!(Object::of(object.entry(rest)).1, rest, "an object is found by its digest again");
        self.table.put(key, 0, object.entry(rest))
    }

    /// Adds an object that a start has read from snapshot or journal; no request has used it yet.
    ///
    /// # Errors
    /// When others were always faster.
    pub fn add(&self, digest: Digest, file: File, (uses, used_s): (u16, u64)) -> Result<Updated, Contended> {
        let (key, rest) = key(digest);
        let object = Object { stored: Stored::File(file), uses, used_s, updated_by: 0 };
        self.table.put(key, 0, object.entry(rest))
    }

    /// Forgets an object; whether anything was known of it.
    pub fn forget(&self, digest: Digest) -> bool {
        self.table.remove(key(digest).0)
    }

    /// Objects whose slots have these numbers, of [`room`](Self::room): a part at a time, so that nobody
    /// waits for a look at all of them.
    pub fn scan(&self, slots: std::ops::Range<usize>) -> impl Iterator<Item = (Digest, Object)> + use<'z> {
        let table = self.table;
        slots.filter_map(move |number| {
            let (halves, entry) = table.at(number)?;
            let (object, rest) = Object::of(entry);
            Some((digest_of(halves, rest), object))
        })
    }

    /// Changes when an object was used and which worker updates it. The key alone is compared: of two digests
    /// that differ in their last sixteen bits alone one is not told from the other here, which is harmless.
    fn change(
        &self,
        digest: Digest,
        mut change: impl FnMut(u64, u16) -> Option<(u64, u16)>,
    ) -> Result<Updated, Contended> {
        self.table.update(key(digest).0, 0, |present| {
            let (used_s, updated_by) = of_payload(present?);
            change(used_s, updated_by).map(|(used_s, updated_by)| payload(used_s, updated_by))
        })
    }
}

/// A key has 112 bits: the last byte of each half stands apart.
fn key(digest: Digest) -> (KeyHash, u64) {
    let whole = u128::from_be_bytes(digest.0);
    let halves = [(whole >> 64) as u64, whole as u64];
    let rest = halves[0] & 0xff | (halves[1] & 0xff) << 8;
    debug_assert!(rest <= mask(REST_BITS), "two bytes of the digest stand apart");
    (KeyHash::new(halves), rest)
}

fn digest_of(halves: [u64; 2], rest: u64) -> Digest {
    let [high, low] = [halves[0] | rest & 0xff, halves[1] | rest >> 8];
    let mut bytes = [0; DIGEST_BYTES];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    Digest(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;
    use crate::Key;

    const NOW: u64 = 1_795_000_000;

    fn memory(slots: usize) -> Vec<AtomicU64> {
        (0..slots * SLOT_BYTES / 8).map(|_| AtomicU64::new(0)).collect()
    }

    fn index(words: &[AtomicU64]) -> Index<'_> {
        Index::new(Table::new(words))
    }

    fn digest(number: u32) -> Digest {
        Key::new(number.to_le_bytes().to_vec()).digest()
    }

    fn file() -> File {
        File {
            disk: 15,
            valid_s: mask(SECONDS_BITS),
            blocks: u32::MAX,
            body_start: u16::MAX,
            inode: mask(INODE_BITS),
            stored_s: NOW,
            stamp: mask(STAMP_BITS) as u32,
        }
    }

    #[test]
    fn an_object_is_read_as_it_was_published() {
        let words = memory(64);
        let index = index(&words);
        assert_eq!((index.room(), SLOT_BYTES), (64, 64));
        assert_eq!(index.get(digest(1)), None);
        let zero = File { disk: 0, valid_s: 0, blocks: 0, body_start: 0, inode: 0, stored_s: 0, stamp: 0 };
        let error = Stored::Error { status: 504, valid_s: NOW + 60 };
        for stored in [Stored::File(file()), Stored::File(zero), error, Stored::Nothing] {
            index.publish(digest(1), stored, NOW).expect("nobody else is there");
            let expected = Object { stored, uses: 1, used_s: NOW, updated_by: 0 };
            assert_eq!(index.get(digest(1)), Some(expected));
            assert_eq!(index.scan(0..64).collect::<Vec<_>>(), [(digest(1), expected)]);
        }
        index.add(digest(1), file(), (7, NOW - 1)).expect("nobody else is there");
        let added = Object { stored: Stored::File(file()), uses: 7, used_s: NOW - 1, updated_by: 0 };
        assert_eq!(index.get(digest(1)), Some(added));
        assert!(index.forget(digest(1)) && !index.forget(digest(1)));
        assert_eq!(index.scan(0..100).count(), 0);
    }

    #[test]
    fn uses_are_counted_before_anything_is_there() {
        let words = memory(64);
        let index = index(&words);
        let count = |now_s| index.count_use(digest(1), now_s).expect("nobody else is there");
        assert_eq!([count(NOW), count(NOW), count(NOW + 1)], [1, 2, 3]);
        index.publish(digest(1), Stored::File(file()), NOW + 1).expect("nobody else is there");
        assert_eq!(count(NOW + 5), 4);
        let object = index.get(digest(1)).expect("it is there");
        assert_eq!((object.stored, object.used_s), (Stored::File(file()), NOW + 5));
        (0..2000).for_each(|_| assert!(count(NOW) <= USES_MAX));
        let object = index.get(digest(1)).expect("it is there");
        assert_eq!((object.uses, object.used_s), (USES_MAX, NOW + 5), "time does not go back");
    }

    #[test]
    fn one_updates_and_one_that_died_does_not() {
        let words = memory(64);
        let index = index(&words);
        let begin = |worker, dead: u16| {
            index.begin_update(digest(1), worker, |number| number != dead).expect("nobody else is there")
        };
        assert_eq!(begin(3, 0), Update::Unknown);
        index.publish(digest(1), Stored::File(file()), NOW).expect("nobody else is there");
        assert_eq!(
            [begin(3, 0), begin(4, 0), begin(3, 0)],
            [Update::Begun, Update::Busy(3), Update::Busy(3)]
        );
        assert_eq!(begin(4, 3), Update::Begun);
        index.end_update(digest(1), 3).expect("nobody else is there");
        assert_eq!(begin(5, 0), Update::Busy(4), "an update ends by whose it is");
        index.end_update(digest(1), 4).expect("nobody else is there");
        assert_eq!(begin(5, 0), Update::Begun);
        index.publish(digest(1), Stored::File(file()), NOW).expect("nobody else is there");
        assert_eq!(begin(6, 0), Update::Begun, "what is published is not being updated");
    }

    #[test]
    fn a_full_index_forgets_what_was_used_least_recently() {
        let words = memory(256);
        let index = index(&words);
        let publish = |number, now_s| {
            index.publish(digest(number), Stored::File(file()), now_s).expect("nobody else is there");
        };
        (0..20).for_each(|number| publish(number, NOW + 1000));
        (20..5000).for_each(|number| publish(number, NOW + u64::from(number % 900)));
        let kept = (0..20).filter(|&number| index.get(digest(number)).is_some()).count();
        assert_eq!(kept, 20, "what is used is kept when the index is flooded");
        assert_eq!(index.scan(0..256).count(), 256);
    }

    #[test]
    fn asking_takes_away_nothing_that_is_published_at_the_same_time() {
        for round in 0..300 {
            let words = memory(64);
            let index = index(&words);
            std::thread::scope(|scope| {
                scope.spawn(move || index.count_use(digest(round), NOW));
                index.publish(digest(round), Stored::File(file()), NOW).expect("others are faster at times");
            });
            let object = index.get(digest(round)).expect("it is there");
            assert_eq!(object.stored, Stored::File(file()));
        }
    }

    #[test]
    fn processes_and_threads_change_one_object() {
        let words = memory(64);
        let index = index(&words);
        index.publish(digest(1), Stored::File(file()), NOW).expect("nobody else is there");
        std::thread::scope(|scope| {
            for worker in 1..=3 {
                scope.spawn(move || {
                    for turn in 0..2000 {
                        index.touch(digest(1), NOW + turn).expect("others are faster at times only");
                        match index.begin_update(digest(1), worker, |_| true).expect("as above") {
                            Update::Begun => {
                                let object = index.get(digest(1)).expect("it stays");
                                assert_eq!(object.updated_by, worker, "it is its own");
                                index.end_update(digest(1), worker).expect("as above");
                            }
                            Update::Busy(other) => assert_ne!(other, worker),
                            Update::Unknown => panic!("it stays"),
                        }
                        let object = index.get(digest(1)).expect("it stays");
                        assert_eq!(object.stored, Stored::File(file()), "values are of one filling");
                    }
                });
            }
        });
        let object = index.get(digest(1)).expect("it stays");
        assert_eq!((object.used_s, object.updated_by), (NOW + 1999, 0));
    }

    proptest! {
        #[test]
        fn a_digest_is_found_again_by_looking_at_all(
            numbers in prop::collection::hash_set(any::<u32>(), 1..40),
        ) {
            let words = memory(512);
            let index = index(&words);
            for &number in &numbers {
                index.count_use(digest(number), NOW).expect("nobody else is there");
            }
            let mut seen: Vec<Digest> = index.scan(0..512).map(|(digest, _)| digest).collect();
            let mut all: Vec<Digest> = numbers.into_iter().map(digest).collect();
            seen.sort_unstable();
            all.sort_unstable();
            prop_assert_eq!(seen, all);
        }
    }
}
