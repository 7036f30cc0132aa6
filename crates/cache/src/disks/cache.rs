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

/// A cache may exceed its limit by this part of it until the next regular pass.
const BEYOND_PART: u64 = 16;
/// It may exceed its limit by so many bytes at least.
const BEYOND_MIN_BYTES: u64 = 1 << 20;

/// What stays the same from one configuration to the next, as long as the zone and the directories do.
pub(crate) struct Kept {
    pub(crate) disks: Vec<Arc<Disk>>,
    pub(crate) fills: Arc<Fills<Growing>>,
    /// Whether the directories are to be read once more.
    pub(crate) wants_walk: AtomicBool,
    /// Which cache it is of those that share `copies`.
    pub(crate) number: u64,
    pub(crate) copies: Arc<Copies>,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) log: SharedLog,
}

/// Where jobs log, which a reload changes.
pub(crate) type SharedLog = Arc<ArcSwap<Arc<dyn Sink>>>;

/// See the file's head. What `proxy_cache NAME` refers to.
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

/// Where the file of an object is, as far as the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On the disk of this number.
    Disk(u8),
    /// Perhaps on this one: not all of its files are in the index yet.
    Perhaps(u8),
    /// Nowhere. It would be put on this disk.
    Nowhere(u8),
    /// It can be neither read nor stored at the moment: the disks that matter are left out.
    Out,
}

impl Cache {
    /// The name of its zone.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.conf.zone.name()
    }

    /// How it is configured.
    #[must_use]
    pub fn conf(&self) -> &CacheConf {
        &self.conf
    }

    /// What is known of its objects.
    ///
    /// # Panics
    /// Before the zones of the configuration are open.
    #[must_use]
    pub fn index(&self) -> Index<'_> {
        Index::new(self.conf.zone.table_with_values())
    }

    /// Which responses are on their way in.
    #[must_use]
    pub fn fills(&self) -> &Arc<Fills<Growing>> {
        &self.kept.fills
    }

    /// Where an object's file is. Looks at the index alone.
    #[must_use]
    pub fn whereabouts(&self, digest: Digest) -> Whereabouts {
        self.whereabouts_of(digest, self.index().get(digest))
    }

    /// The same with what the index has just said of the object.
    #[must_use]
    pub fn whereabouts_of(&self, digest: Digest, known: Option<Object>) -> Whereabouts {
        if let Some(Stored::File(file)) = known.map(|object| object.stored) {
            match self.kept.disks.get(usize::from(file.disk)) {
                Some(disk) if disk.is_out() => return Whereabouts::Out,
                Some(_) => return Whereabouts::Disk(file.disk),
                // There were more disks once.
                None => {}
            }
        }
        match self.disk_for(digest) {
            None => Whereabouts::Out,
            Some(disk) if self.is_cold() => Whereabouts::Perhaps(disk),
            Some(disk) => Whereabouts::Nowhere(disk),
        }
    }

    /// The disk that a new object is put on, if one takes it.
    pub(crate) fn disk_for_new(&self, digest: Digest) -> Option<u8> {
        self.first_disk(digest, |disk| !disk.is_out() && !disk.is_full())
    }

    /// The disk that an object is on, if it is where it is put: the first in the order of its digest that is
    /// not left out.
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

    /// A worker process begins to update an object: others wait for it, or do without. Where that cannot be
    /// told, because too many processes use the zone, everybody may.
    ///
    /// # Errors
    /// When others were always faster.
    pub fn begin_update(&self, digest: Digest) -> Result<Update, Contended> {
        let Some(own) = self.own_number() else { return Ok(Update::Begun) };
        let zone = &self.conf.zone;
        self.index().begin_update(digest, own, |number| zone.has_worker(u32::from(number)))
    }

    /// The update that this process has begun is given up.
    ///
    /// # Errors
    /// When others were always faster.
    pub fn end_update(&self, digest: Digest) -> Result<(), Contended> {
        self.own_number().map_or(Ok(()), |own| self.index().end_update(digest, own))
    }

    /// Whether a process that is there updates the object.
    pub(crate) fn is_updated(&self, object: &Object) -> bool {
        object.updated_by != 0 && self.conf.zone.has_worker(u32::from(object.updated_by))
    }

    /// Whether another process that is there updates the object, or fetches it for the first time.
    #[must_use]
    pub fn is_updated_elsewhere(&self, digest: Digest) -> bool {
        let known = self.index().get(digest).filter(|object| self.is_updated(object));
        known.is_some_and(|object| Some(object.updated_by) != self.own_number())
    }

    fn own_number(&self) -> Option<u16> {
        self.conf.zone.own_number().and_then(|number| u16::try_from(number).ok())
    }

    /// Removes a file, unless another one has its name by now, and forgets it.
    pub fn remove(
        self: &Arc<Self>,
        identity: Identity,
        pool: Option<&Arc<Pool>>,
    ) -> Task<Result<(), DiskError>> {
        let Some(disk) = self.disk(identity.disk).cloned() else { return Task::ready(Ok(())) };
        let cache = Arc::clone(self);
        disk.submit(pool, move |blocking, root| cache.remove_now(blocking, root, &identity), |done| done)
    }

    /// Remembers that the upstream has failed with this status, without a file, until a time in Unix seconds.
    pub fn remember_error(self: &Arc<Self>, digest: Digest, status: u16, valid_s: u64) -> Task<()> {
        let Some(number) = self.disk_for(digest) else { return Task::ready(()) };
        let cache = Arc::clone(self);
        self.kept.disks[usize::from(number)].pool().submit(move |_| {
            // It is asked again, where others were faster.
            let _ = cache.index().publish(digest, Stored::Error { status, valid_s }, now_s());
        })
    }
}

/// What jobs tell of objects.
impl Cache {
    /// A file is there from here on, used now.
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
            // Where others are faster the file is found when it is looked for.
            Err(Contended) => return,
        }
        self.account(i64::from(file.blocks) - blocks_of(before));
        let record = Record::new(digest, file, 1, (now_s, now_s));
        self.note(file.disk, Change::Added(record));
    }

    /// There is no file on this disk any more.
    pub(crate) fn forget_file(&self, digest: Digest, disk: u8) {
        self.kept.copies.forget(self.kept.number, digest);
        let known = self.index().get(digest).map(|object| object.stored);
        if matches!(known, Some(Stored::File(file)) if file.disk == disk) && self.index().forget(digest) {
            self.account(-blocks_of(known));
        }
        self.note(disk, Change::Dropped(digest));
    }

    /// There is a file that the index does not know, as it could not be removed: directories are read once
    /// more, and each file found is kept or goes.
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

    /// Whether files of so many bytes are so much too large that the next regular pass is too late. As in
    /// nginx that one, ten seconds later at most, is soon enough for a little.
    pub(crate) fn is_far_beyond(&self, bytes: u64) -> bool {
        let limit = self.conf.max_bytes;
        bytes >= limit.saturating_add((limit / BEYOND_PART).max(BEYOND_MIN_BYTES))
    }

    /// What all files take, as far as is known, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let blocks = self.blocks().load(Ordering::Relaxed).cast_signed();
        u64::try_from(blocks).unwrap_or(0) * BLOCK_BYTES
    }

    /// Objects in its index, as of the last pass over it.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.counted_objects().load(Ordering::Relaxed)
    }

    /// What a pass over the index has found.
    pub(crate) fn note_size(&self, bytes: u64, objects: u64) {
        self.blocks().store(bytes / BLOCK_BYTES, Ordering::Relaxed);
        self.counted_objects().store(objects, Ordering::Relaxed);
    }

    /// All directories were read.
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

    /// Logs what no request is to blame for.
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

/// Unix seconds.
pub(crate) fn now_s() -> u64 {
    clock::unix_ms() / 1000
}
