//! Metrics of caches.

use clearway_metrics::{Counter, Family, Kind, Label};

/// Counters that all caches share.
pub static ALL: &[&Counter] = &[
    &STORED,
    &EXPIRED,
    &PUSHED_OUT,
    &LOADED,
    &RECOVERED,
    &BROKEN,
    &CHECKED,
    &NO_ROOM,
    &UNREMEMBERED,
    &UNWRITTEN,
    &COPIED,
    &UNCOPIED,
];

/// Files that got their names in a cache.
pub static STORED: Counter = Counter::new(
    "cache_files_stored_total",
    "files",
    "Responses that were written into a cache and got their names.",
);
/// Objects that were removed as inactive.
pub static EXPIRED: Counter = Counter::new(
    "cache_objects_expired_total",
    "objects",
    "Objects that caches have removed as no request had asked for them for `inactive`.",
);
/// Objects that were evicted to make room.
pub static PUSHED_OUT: Counter = Counter::new(
    "cache_objects_pushed_out_total",
    "objects",
    "Objects that caches have removed before they were inactive: for `max_size`, `min_free`, or since the \
     `keys_zone` is seven tenths full. Many of them: the cache is too small for what is asked of it.",
);
/// Files that a walk through a directory found.
pub static LOADED: Counter = Counter::new(
    "cache_files_loaded_total",
    "files",
    "Files that were found in the directories of caches and that their indexes did not know.",
);
/// Objects that a start read from snapshot and journal.
pub static RECOVERED: Counter = Counter::new(
    "cache_objects_recovered_total",
    "objects",
    "Objects that were known right after a start, from what a cache had written down of its index.",
);
/// Files whose contents have changed since they were written.
pub static BROKEN: Counter = Counter::new(
    "cache_files_broken_total",
    "files",
    "Files of caches whose length or checksum is not what was written; they were removed, and the requests \
     went to the upstream.",
);
/// Files that were compared with their checksums.
pub static CHECKED: Counter = Counter::new(
    "cache_files_checked_total",
    "files",
    "Files of caches that were in doubt and were compared with their checksums before they were used: after \
     a start of the machine, or since they have changed.",
);
/// Files for which the file system had no room.
pub static NO_ROOM: Counter = Counter::new(
    "cache_files_without_room_total",
    "files",
    "Responses that were not kept since the file system had no room for them; the oldest objects of the disk \
     were removed then.",
);
/// Objects that took the slots of others in a full index.
pub static UNREMEMBERED: Counter = Counter::new(
    "cache_objects_unremembered_total",
    "objects",
    "Objects that found the part of the `keys_zone` full where they belong and were remembered in the place \
     of others, whose files are found again by the next walk through the directories.",
);
/// Changes that were not written to the journal.
pub static UNWRITTEN: Counter = Counter::new(
    "cache_changes_unwritten_total",
    "changes",
    "Changes of indexes that were not written down beside the files since the disk was too slow: after a \
     start these objects are known again when the directories have been read.",
);
/// Copies of objects that were made in memory.
pub static COPIED: Counter = Counter::new(
    "cache_copies_made_total",
    "objects",
    "Objects of caches that were copied into memory since they were asked for again: small ones as wholes, \
     of large ones the head, while their file is kept open.",
);
/// Copies that were dropped.
pub static UNCOPIED: Counter = Counter::new(
    "cache_copies_dropped_total",
    "objects",
    "Copies of objects in memory that were dropped: for others, or since the file has changed.",
);

const ZONE: Label = Label { name: "zone", help: "Name of the cache (`keys_zone`)." };
const DISK: Label = Label { name: "disk", help: "Directory of the cache." };

/// Bytes of a cache's files.
pub static BYTES: Family = Family::new(
    Kind::Gauge,
    "cache_bytes",
    "bytes",
    "Size of a cache's files on its disks, as of the last look at its index, at most ten seconds ago.",
)
.by(&[ZONE])
.alike();

/// Objects of a cache.
pub static OBJECTS: Family = Family::new(
    Kind::Gauge,
    "cache_objects",
    "objects",
    "Objects in a cache's index, those included that were asked for and have no file.",
)
.by(&[ZONE])
.alike();

/// Whether a disk is left out.
pub static DISKS_OUT: Family = Family::new(
    Kind::Gauge,
    "cache_disk_out",
    "disks",
    "1 while a disk of a cache is left out: it has failed three times in a row, or nothing has come back \
     from it for ten seconds. It is asked again every ten seconds.",
)
.by(&[ZONE, DISK])
.alike();
