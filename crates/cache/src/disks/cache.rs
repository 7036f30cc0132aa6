//! A cache: its index, its disks, and on which of them an object is. Any thread; nothing here waits.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use clearway_base::log::{Level, Sink};
use clearway_offload::{Pool, Task};
use clearway_os::clock;
use clearway_zone::{Contended, Updated};

use super::alarm::Alarm;
use super::conf::CacheConf;
use super::copies::Copies;
use super::disk::{Disk, DiskError};
use super::growing::Growing;
use super::metrics;
use super::object::Identity;
use crate::fills::Fills;
use crate::index::{BLOCK_BYTES, File, Index, Object, Stored, Update};
use crate::journal::{Change, Record};
use crate::key::Digest;
use crate::placement;

/// The part of its limit, one in so many bytes, by which a cache may exceed it until the next regular pass.
const BEYOND_PART: u64 = 16;
/// The bytes by which any cache may exceed its limit until then.
const BEYOND_MIN_BYTES: u64 = 1 << 20;

/// The part of a cache that the next configuration takes over if zone and directories are the same.
pub(crate) struct Kept {
    pub(crate) disks: Vec<Arc<Disk>>,
    pub(crate) fills: Arc<Fills<Growing>>,
    /// Whether the directories are to be read once more.
    pub(crate) wants_walk: AtomicBool,
    /// The number of this cache among those that share `copies`.
    pub(crate) number: u64,
    pub(crate) copies: Arc<Copies>,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) log: SharedLog,
}

/// The log of jobs; a reload replaces it.
pub(crate) type SharedLog = Arc<ArcSwap<Arc<dyn Sink>>>;

/// A cache, as `proxy_cache NAME` refers to it.
pub struct Cache {
    pub(crate) conf: CacheConf,
    pub(crate) kept: Arc<Kept>,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = String::from_utf8_lossy(self.conf.zone.name());
        f.debug_struct("Cache").field("zone", &name).finish_non_exhaustive()
    }
}

/// The place of an object's file, as far as the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// The object is on the disk of this number.
    Disk(u8),
    /// Perhaps on this disk: not all of its files are in the index yet.
    Perhaps(u8),
    /// There is no file. A new one would be put on this disk.
    Nowhere(u8),
    /// The object can be neither read nor stored at the moment: the disks for it are left out because they
    /// fail.
    Out,
}

impl Cache {
    /// The name of the cache's zone.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.conf.zone.name()
    }

    /// The cache's settings.
    #[must_use]
    pub fn conf(&self) -> &CacheConf {
        &self.conf
    }

    /// The index of the cache's objects.
    ///
    /// # Panics
    /// Before the zones of the configuration are open.
    #[must_use]
    pub fn index(&self) -> Index<'_> {
        Index::new(self.conf.zone.table_with_values())
    }

    /// Responses that are being fetched into the cache.
    #[must_use]
    pub fn fills(&self) -> &Arc<Fills<Growing>> {
        &self.kept.fills
    }

    /// The place of an object's file. Looks at the index only, not at the disk.
    #[must_use]
    pub fn whereabouts(&self, digest: Digest) -> Whereabouts {
        self.whereabouts_of(digest, self.index().get(digest))
    }

    /// As [`whereabouts`](Self::whereabouts), for a caller that has looked the object up already.
    #[must_use]
    pub fn whereabouts_of(&self, digest: Digest, known: Option<Object>) -> Whereabouts {
        if let Some(Stored::File(file)) = known.map(|object| object.stored) {
            match self.kept.disks.get(usize::from(file.disk)) {
                Some(disk) if disk.is_out() => return Whereabouts::Out,
                Some(_) => return Whereabouts::Disk(file.disk),
                // The cache had more disks in an earlier configuration.
                None => {}
            }
        }
        match self.disk_for(digest) {
            None => Whereabouts::Out,
            Some(disk) if self.is_cold() => Whereabouts::Perhaps(disk),
            Some(disk) => Whereabouts::Nowhere(disk),
        }
    }

    /// The disk that a new object is put on; `None` if all are full or left out.
    pub(crate) fn disk_for_new(&self, digest: Digest) -> Option<u8> {
        self.first_disk(digest, |disk| !disk.is_out() && !disk.is_full())
    }

    /// The disk that an object belongs on: of those that are not left out, the first in the order of its
    /// digest.
    pub(crate) fn disk_for(&self, digest: Digest) -> Option<u8> {
        self.first_disk(digest, |disk| !disk.is_out())
    }

    fn first_disk(&self, digest: Digest, is_fit: impl Fn(&Disk) -> bool) -> Option<u8> {
        let is_in = |number: &usize| is_fit(&self.kept.disks[*number]);
        let first = match self.conf.disks.as_slice() {
            [_] => Some(0).filter(is_in),
            disks => {
                let name = |disk| -> &[u8] { std::os::unix::ffi::OsStrExt::as_bytes(disk) };
                let drawn: Vec<_> = disks
                    .iter()
                    .map(|disk| placement::Disk { name: name(disk.path.as_os_str()), weight: disk.weight })
                    .collect();
                placement::order(digest, &drawn).into_iter().find(is_in)
            }
        };
        debug_assert!(
            first.is_none_or(|number| number < self.kept.disks.len()),
            "an object is put on a disk"
        );
        first.and_then(|number| u8::try_from(number).ok())
    }

    /// The pool of a disk.
    #[must_use]
    pub fn pool_of(&self, disk: u8) -> Option<Arc<Pool>> {
        self.disk(disk).map(|disk| Arc::clone(disk.pool()))
    }

    pub(crate) fn disk(&self, number: u8) -> Option<&Arc<Disk>> {
        self.kept.disks.get(usize::from(number))
    }

    /// A file's path, for logs and for opening it by its name.
    #[must_use]
    pub fn path_of(&self, disk: u8, digest: Digest) -> PathBuf {
        let directory = self.disk(disk).map_or_else(PathBuf::new, |disk| disk.path().to_path_buf());
        directory.join(self.conf.levels.relative(digest))
    }

    /// Marks an object as being updated by this worker process: other processes wait for it, or use the stale
    /// object. If too many processes use the zone, this one has no number in it and is always allowed to
    /// update.
    ///
    /// # Errors
    /// When other threads changed the entry at each attempt.
    pub fn begin_update(&self, digest: Digest) -> Result<Update, Contended> {
        let Some(own) = self.own_number() else { return Ok(Update::Begun) };
        let zone = &self.conf.zone;
        self.index().begin_update(digest, own, |number| zone.has_worker(u32::from(number)))
    }

    /// Gives up the update that this process has begun.
    ///
    /// # Errors
    /// When other threads changed the entry at each attempt.
    pub fn end_update(&self, digest: Digest) -> Result<(), Contended> {
        self.own_number().map_or(Ok(()), |own| self.index().end_update(digest, own))
    }

    /// Whether a process updates the object; a mark of a process that has ended does not count.
    pub(crate) fn is_updated(&self, object: &Object) -> bool {
        object.updated_by != 0 && self.conf.zone.has_worker(u32::from(object.updated_by))
    }

    /// Whether another process updates the object, or fetches it for the first time.
    #[must_use]
    pub fn is_updated_elsewhere(&self, digest: Digest) -> bool {
        let known = self.index().get(digest).filter(|object| self.is_updated(object));
        known.is_some_and(|object| Some(object.updated_by) != self.own_number())
    }

    fn own_number(&self) -> Option<u16> {
        self.conf.zone.own_number().and_then(|number| u16::try_from(number).ok())
    }

    /// Removes a file and its entry in the index, unless another file has got the name by now.
    pub fn remove(
        self: &Arc<Self>,
        identity: Identity,
        pool: Option<&Arc<Pool>>,
    ) -> Task<Result<(), DiskError>> {
        let Some(disk) = self.disk(identity.disk).cloned() else { return Task::ready(Ok(())) };
        let cache = Arc::clone(self);
        disk.submit(pool, move |blocking, root| cache.remove_now(blocking, root, &identity), |done| done)
    }

    /// Remembers that the upstream has failed with `status`, until `valid_s`, Unix seconds. No file is
    /// written.
    pub fn remember_error(self: &Arc<Self>, digest: Digest, status: u16, valid_s: u64) -> Task<()> {
        let Some(number) = self.disk_for(digest) else { return Task::ready(()) };
        let cache = Arc::clone(self);
        self.kept.disks[usize::from(number)].pool().submit(move |_| {
            // If other threads change the entry at each attempt, the upstream is just asked again.
            let _ = cache.index().publish(digest, Stored::Error { status, valid_s }, now_s());
        })
    }
}

/// Called by jobs in the pools of disks, to keep the index up to date.
impl Cache {
    /// Puts a file that has just got its name into the index, as used now.
    pub(crate) fn publish(&self, digest: Digest, file: File) {
        let (index, now_s) = (self.index(), now_s());
        self.kept.copies.forget(self.kept.number, digest);
        let before = index.get(digest).map(|object| object.stored);
        match index.publish(digest, Stored::File(file), now_s) {
            Ok(Updated::Evicted) => {
                metrics::UNREMEMBERED.increment();
                self.kept.wants_walk.store(true, Ordering::Relaxed);
            }
            Ok(_) => {}
            // The entry stays as it is; the file is found when a request looks for it on the disk.
            Err(Contended) => return,
        }
        self.account(i64::from(file.blocks) - blocks_of(before));
        let record = Record::new(digest, file, 1, (now_s, now_s));
        self.note(file.disk, Change::Added(record));
    }

    /// Notes that an object's file on this disk is gone.
    pub(crate) fn forget_file(&self, digest: Digest, disk: u8) {
        self.kept.copies.forget(self.kept.number, digest);
        let known = self.index().get(digest).map(|object| object.stored);
        if matches!(known, Some(Stored::File(file)) if file.disk == disk) && self.index().forget(digest) {
            self.account(-blocks_of(known));
        }
        self.note(disk, Change::Dropped(digest));
    }

    /// Notes that a file could not be removed and is not in the index: the directories are read once more,
    /// and each file found is entered or removed.
    pub(crate) fn note_left_behind(&self) {
        self.kept.wants_walk.store(true, Ordering::Relaxed);
    }

    fn account(&self, blocks: i64) {
        let before = self.blocks().fetch_add(blocks.cast_unsigned(), Ordering::Relaxed);
        let now = before.cast_signed().wrapping_add(blocks);
        if blocks > 0 && self.is_far_beyond(u64::try_from(now).unwrap_or(0) * BLOCK_BYTES) {
            self.kept.alarm.ring();
        }
    }

    /// Whether `bytes` exceed the limit by so much that a pass is needed at once. As in nginx, the next
    /// regular pass, within ten seconds, is soon enough for a small excess.
    pub(crate) fn is_far_beyond(&self, bytes: u64) -> bool {
        let limit = self.conf.max_bytes;
        bytes >= limit.saturating_add((limit / BEYOND_PART).max(BEYOND_MIN_BYTES))
    }

    /// Size of all files that the index knows, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let blocks = self.blocks().load(Ordering::Relaxed).cast_signed();
        u64::try_from(blocks).unwrap_or(0) * BLOCK_BYTES
    }

    /// The number of objects in the index, as of the last pass over it.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.counted_objects().load(Ordering::Relaxed)
    }

    /// Stores the sums that a pass over the index has made.
    pub(crate) fn note_size(&self, bytes: u64, objects: u64) {
        self.blocks().store(bytes / BLOCK_BYTES, Ordering::Relaxed);
        self.counted_objects().store(objects, Ordering::Relaxed);
    }

    /// Logs that all directories were read, as nginx does.
    pub(crate) fn say_loaded(&self) {
        let mib = self.bytes() as f64 / f64::from(1 << 20);
        let path = self.conf.disks[0].path.display();
        self.say(Level::Notice, &format!("http file cache: {path} {mib:.3}M, bsize: {BLOCK_BYTES}"));
    }

    fn note(&self, disk: u8, change: Change) {
        if self.disk(disk).is_some_and(|disk| disk.notes().push(change)) {
            self.kept.alarm.ring();
        }
    }

    /// Logs a message that belongs to no request.
    pub(crate) fn say(&self, level: Level, text: &str) {
        self.kept.log.load().log(level, format_args!("{text}"));
    }
}

fn blocks_of(stored: Option<Stored>) -> i64 {
    match stored {
        Some(Stored::File(file)) => i64::from(file.blocks),
        _ => 0,
    }
}

/// The time, Unix seconds.
pub(crate) fn now_s() -> u64 {
    clock::unix_ms() / 1000
}
