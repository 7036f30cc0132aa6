//! The cache manager: it loads the index at start, writes changes of the index down, removes objects that are
//! inactive or beyond a limit, and checks disks that are left out. One thread for all caches of the process;
//! it only decides. All that may wait for a disk is a job in that disk's pool, one of each kind at a time, so
//! a disk that hangs holds up only itself. `role` tells which tasks fall to this process.
//!
//! There is no list of objects by age. A pass over the slots of the index finds inactive objects and sums up
//! the blocks of each age. If that is beyond a limit, a second pass picks objects to remove, from the oldest
//! age on.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use clearway_base::log::Level;
use clearway_metrics::Counter;
use clearway_offload::{Blocking, Stop};
use clearway_os::clock;

use super::alarm::Alarm;
use super::cache::{Cache, Kept, now_s};
use super::copies::Copies;
use super::disk::{Disk, DiskError, Root};
use super::loader::{Walk, Walked};
use super::metrics::{EXPIRED, PUSHED_OUT};
use super::notes;
use super::role::Role;
use crate::ages::Ages;
use crate::index::{BLOCK_BYTES, File, Object, Stored};
use crate::key::Digest;

/// Slots of the index that are scanned in a row.
const SLICE_SLOTS: usize = 1 << 17;
/// The pause between two such slices, ms.
const SLICE_PAUSE_MS: u64 = 10;
/// The shortest time between two passes, ms.
const PASS_MIN_MS: u64 = 1000;
/// The longest time between two passes, as in nginx, ms.
const PASS_MAX_MS: u64 = 10_000;
/// The time between two checks of a disk and its directory, ms.
const LOOK_MS: u64 = 10_000;
/// The shortest time between two walks through the directories, ms.
const WALK_MS: u64 = 600_000;
/// Objects are evicted once an index has more of them than so many tenths of its slots.
const FULL_TENTHS: u64 = 7;
/// On a full disk one in so many bytes of the cache is evicted.
const ROOM_PART: u64 = 16;
/// The least that is evicted on a full disk, bytes.
const ROOM_MIN_BYTES: u64 = 256 << 10;
/// Bits in the zone's word for each disk: they tell whether its snapshot and journal were read.
const KNOWN_BITS: u32 = 4;
/// The most objects that one pass picks for removal.
const VICTIMS_MAX: usize = 1 << 14;

/// Runs the manager's thread until it is told to stop.
pub(crate) fn run(
    (blocking, stop): (&Blocking, &Stop),
    role: Role,
    (alarm, copies): (&Alarm, &Copies),
    current: &ArcSwap<Vec<Arc<Cache>>>,
) {
    let mut manager = Manager::default();
    while !stop.is_requested() {
        let now_ms = clock::monotonic_ms();
        let due_ms = manager.turn((blocking, now_ms), role, copies, current);
        alarm.sleep(blocking, Duration::from_millis(due_ms.saturating_sub(now_ms)));
    }
}

/// The manager's state between two turns.
#[derive(Default)]
pub(crate) struct Manager {
    works: Vec<Work>,
    copies_due_ms: u64,
}

impl Manager {
    /// Does all that is due. Returns the time of the next turn, monotonic ms; the alarm may call for one
    /// earlier.
    pub(crate) fn turn(
        &mut self,
        (blocking, now_ms): (&Blocking, u64),
        role: Role,
        copies: &Copies,
        current: &ArcSwap<Vec<Arc<Cache>>>,
    ) -> u64 {
        let (works, caches) = (&mut self.works, current.load_full());
        works.retain(|work| caches.iter().any(|cache| Arc::ptr_eq(&cache.kept, &work.kept)));
        // Wishes of other processes do not ring this process's alarm, so they are looked for every second.
        let mut due_ms = now_ms + if role == Role::Manages { PASS_MIN_MS } else { PASS_MAX_MS };
        for cache in caches.iter() {
            let known = works.iter().position(|work| Arc::ptr_eq(&cache.kept, &work.kept));
            let at = known.unwrap_or_else(|| {
                works.push(Work::new(cache, role));
                works.len() - 1
            });
            due_ms = due_ms.min(works[at].step(cache, now_ms));
        }
        if now_ms >= self.copies_due_ms {
            copies.let_go_removed(blocking);
            self.copies_due_ms = now_ms + LOOK_MS;
        }
        due_ms
    }
}

/// The state of the manager's work for one cache.
struct Work {
    role: Role,
    kept: Arc<Kept>,
    disks: Vec<DiskWork>,
    pass: Pass,
    pass_due_ms: u64,
    passed_ms: u64,
    walked_ms: u64,
}

/// The state of the manager's work on one disk.
#[derive(Default)]
struct DiskWork {
    loading: Loading,
    load_due_ms: u64,
    write_due_ms: Option<u64>,
    /// Whether changes were handed to a job, whose result is still to be looked at.
    is_writing: bool,
    remove_due_ms: u64,
    look_due_ms: u64,
    /// Free bytes on the file system, as of the last check.
    free_bytes: Option<u64>,
    /// The position of the walk through the directory, between two parts of it.
    walk: Option<Walk>,
    loads: Arc<Job<Walked>>,
    writes: Arc<Job<()>>,
    removes: Arc<Job<()>>,
    looks: Arc<Job<u64>>,
    victims: VecDeque<Victim>,
}

/// How far the index of a disk was loaded.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Loading {
    #[default]
    Not,
    Walking,
    Done,
}

/// A kind of job: whether one is under way, and the result of the last one until it is taken.
struct Job<T> {
    is_on_its_way: AtomicBool,
    left: Mutex<Option<T>>,
}

impl<T> Default for Job<T> {
    fn default() -> Self {
        Self { is_on_its_way: AtomicBool::new(false), left: Mutex::new(None) }
    }
}

/// A guard that marks the job as ended when it is dropped, also if no thread has run it.
struct OnItsWay<T> {
    job: Arc<Job<T>>,
    alarm: Arc<Alarm>,
}

impl<T> Drop for OnItsWay<T> {
    fn drop(&mut self) {
        self.job.is_on_its_way.store(false, Ordering::Release);
        self.alarm.ring();
    }
}

impl<T: Send + 'static> Job<T> {
    fn is_on_its_way(&self) -> bool {
        self.is_on_its_way.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<T> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Begins the job in the pool of a disk, also of one that is left out.
    fn begin(
        self: &Arc<Self>,
        cache: &Arc<Cache>,
        disk: u8,
        work: impl FnOnce(&Blocking, &Root, &Cache) -> Result<T, DiskError> + Send + 'static,
    ) {
        let Some(disk) = cache.disk(disk) else { return };
        self.is_on_its_way.store(true, Ordering::Release);
        let on_its_way = OnItsWay { job: Arc::clone(self), alarm: Arc::clone(&cache.kept.alarm) };
        let (of, cache) = (Arc::clone(cache), Arc::clone(cache));
        let run = move |blocking: &Blocking, root: &Root| work(blocking, root, &of);
        let end = move |done: Result<T, DiskError>| {
            match done {
                Ok(left) => {
                    let job = &on_its_way.job;
                    *job.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
                }
                Err(error) => cache.say(Level::Crit, &error.to_string()),
            }
            drop(on_its_way);
        };
        disk.submit_anyway(None, run, end).detach();
    }
}

impl Work {
    fn new(cache: &Cache, role: Role) -> Self {
        let kept = &cache.kept;
        if role != Role::Assists {
            cache.note_cold();
        }
        Self {
            role,
            kept: Arc::clone(kept),
            disks: kept.disks.iter().map(|_| DiskWork::default()).collect(),
            pass: Pass::default(),
            pass_due_ms: 0,
            passed_ms: 0,
            walked_ms: clock::monotonic_ms(),
        }
    }

    /// Does all that is due for the cache. Returns the time of the next turn, monotonic ms.
    fn step(&mut self, cache: &Arc<Cache>, now_ms: u64) -> u64 {
        if self.role == Role::Assists {
            return self.assist(cache, now_ms);
        }
        cache.take_wishes();
        let walks = self.kept.wants_walk.load(Ordering::Relaxed) && now_ms >= self.walked_ms + WALK_MS;
        if walks && self.disks.iter().all(|disk| disk.loading == Loading::Done) {
            self.kept.wants_walk.store(false, Ordering::Relaxed);
            self.walked_ms = now_ms;
            self.disks.iter_mut().for_each(|disk| disk.loading = Loading::Not);
        }
        let mut due_ms = now_ms + PASS_MAX_MS;
        for (number, disk) in (0..).zip(&mut self.disks) {
            due_ms = due_ms.min(disk.step(cache, number, now_ms));
        }
        if cache.is_cold() && self.disks.iter().all(|disk| disk.loading == Loading::Done) {
            cache.note_walked();
            cache.say_loaded();
        }
        due_ms.min(self.step_pass(cache, now_ms))
    }

    /// The work in a process that does not manage the cache: it passes on wishes, writes its own changes,
    /// checks its disks.
    fn assist(&mut self, cache: &Arc<Cache>, now_ms: u64) -> u64 {
        cache.pass_wishes_on();
        let disks = (0..).zip(&mut self.disks).map(|(number, disk)| {
            disk.step_write((cache, number), self.role, now_ms).min(disk.step_look(cache, number, now_ms))
        });
        disks.min().unwrap_or(now_ms + PASS_MAX_MS)
    }

    /// Begins a pass when it is due, and scans its next slice.
    fn step_pass(&mut self, cache: &Arc<Cache>, now_ms: u64) -> u64 {
        if self.pass.is_idle() {
            if self.disks.iter().any(|disk| !disk.victims.is_empty() || disk.removes.is_on_its_way()) {
                return now_ms + PASS_MIN_MS;
            }
            if cache.is_far_beyond(cache.bytes()) || self.kept.disks.iter().any(|disk| disk.wants_room()) {
                self.pass_due_ms = self.pass_due_ms.min(self.passed_ms + cache.conf.manager.sleep_ms.max(1));
            }
            if now_ms < self.pass_due_ms {
                return self.pass_due_ms;
            }
            self.pass = Pass::begin(self.disks.len());
        }
        let free_bytes: Vec<Option<u64>> = self.disks.iter().map(|disk| disk.free_bytes).collect();
        let disks = &mut self.disks;
        let ended = self.pass.go_on(cache, &free_bytes, &mut |victim| {
            let disk = victim.file.map(|file| usize::from(file.disk));
            match disk.and_then(|disk| disks.get_mut(disk)) {
                Some(disk) => disk.victims.push_back(victim),
                None => _ = cache.index().forget(victim.digest),
            }
        });
        let Some(idle_max_s) = ended else { return now_ms + SLICE_PAUSE_MS };
        self.passed_ms = now_ms;
        let left_ms = cache.conf.inactive_s.saturating_sub(idle_max_s).saturating_mul(1000);
        self.pass_due_ms = now_ms + left_ms.clamp(PASS_MIN_MS, PASS_MAX_MS);
        if self.disks.iter().all(|disk| disk.victims.is_empty()) {
            return self.pass_due_ms;
        }
        // There may be more to remove; free room is to be measured anew.
        self.pass_due_ms = now_ms;
        self.disks.iter_mut().for_each(|disk| (disk.free_bytes, disk.look_due_ms) = (None, now_ms));
        now_ms
    }
}

impl DiskWork {
    fn step(&mut self, cache: &Arc<Cache>, number: u8, now_ms: u64) -> u64 {
        let due_ms = self.step_load(cache, number, now_ms);
        let due_ms = due_ms.min(self.step_write((cache, number), Role::Manages, now_ms));
        due_ms.min(self.step_remove(cache, number, now_ms)).min(self.step_look(cache, number, now_ms))
    }

    /// Loads the index of a disk: first snapshot and journal, then the walk through the directory, part by
    /// part.
    fn step_load(&mut self, cache: &Arc<Cache>, number: u8, now_ms: u64) -> u64 {
        let later_ms = now_ms + PASS_MAX_MS;
        if self.loading == Loading::Done || self.loads.is_on_its_way() {
            return later_ms;
        }
        match self.loads.take() {
            Some(Walked::Whole) => {
                self.loading = Loading::Done;
                return now_ms;
            }
            Some(Walked::Further(walk)) => {
                self.walk = Some(walk);
                self.load_due_ms = now_ms + cache.conf.loader.sleep_ms;
            }
            None if self.loading == Loading::Walking && self.walk.is_none() => {
                // The job has failed, or the pool refused it.
                self.loading = Loading::Not;
                self.load_due_ms = now_ms + LOOK_MS;
            }
            None => {}
        }
        if now_ms < self.load_due_ms {
            return self.load_due_ms;
        }
        self.loading = Loading::Walking;
        match self.walk.take() {
            Some(walk) => self
                .loads
                .begin(cache, number, move |blocking, root, cache| cache.walk(blocking, root, number, walk)),
            None => self.loads.begin(cache, number, move |blocking, root, cache| {
                cache.recover(blocking, root, number)?;
                Ok(Walked::Further(Walk::default()))
            }),
        }
        later_ms
    }

    fn step_write(&mut self, (cache, number): (&Arc<Cache>, u8), role: Role, now_ms: u64) -> u64 {
        let has_waiting = cache.disk(number).is_some_and(|disk| disk.notes().has_waiting());
        if !has_waiting || self.writes.is_on_its_way() {
            return now_ms + PASS_MAX_MS;
        }
        // After a failure, as on a full disk, the next attempt waits for longer, so that it does not fail and
        // log five times a second.
        let has_failed = std::mem::take(&mut self.is_writing) && self.writes.take().is_none();
        let pause_ms = if has_failed { LOOK_MS } else { notes::FLUSH_MS };
        let due_ms = *self.write_due_ms.get_or_insert(now_ms + pause_ms);
        if now_ms < due_ms {
            return due_ms;
        }
        (self.write_due_ms, self.is_writing) = (None, true);
        self.writes.begin(cache, number, move |blocking, root, cache| {
            let Some(disk) = cache.disk(number) else { return Ok(()) };
            let failed = |error| DiskError::new("write()", disk.path().join(notes::DIRECTORY), error);
            disk.notes().flush(blocking, &root.directory).map_err(failed)?;
            if role == Role::Assists {
                return Ok(());
            }
            disk.notes().shorten(blocking, &root.directory, (cache.index(), number)).map_err(failed)
        });
        now_ms + PASS_MAX_MS
    }

    fn step_remove(&mut self, cache: &Arc<Cache>, number: u8, now_ms: u64) -> u64 {
        if self.victims.is_empty() || self.removes.is_on_its_way() {
            return now_ms + PASS_MAX_MS;
        }
        if now_ms < self.remove_due_ms {
            return self.remove_due_ms;
        }
        let count = self.victims.len().min(cache.conf.manager.files.max(1) as usize);
        let victims: Vec<Victim> = self.victims.drain(..count).collect();
        self.remove_due_ms = now_ms + cache.conf.manager.sleep_ms;
        self.removes.begin(cache, number, move |blocking, root, cache| {
            cache.remove_victims(blocking, root, number, &victims)
        });
        now_ms + PASS_MAX_MS
    }

    /// Checks a disk: whether its path still names the same directory, how much room there is, whether it
    /// takes files again if it was left out.
    fn step_look(&mut self, cache: &Arc<Cache>, number: u8, now_ms: u64) -> u64 {
        self.free_bytes = self.looks.take().or(self.free_bytes);
        if now_ms < self.look_due_ms || self.looks.is_on_its_way() {
            return self.look_due_ms.max(now_ms + 1);
        }
        self.look_due_ms = now_ms + LOOK_MS;
        self.looks.begin(cache, number, move |blocking, _, cache| {
            cache.disk(number).map_or(Ok(u64::MAX), |disk| disk.look(blocking))
        });
        self.look_due_ms
    }
}

/// An object that is to be removed.
#[derive(Clone, Copy)]
pub(crate) struct Victim {
    digest: Digest,
    file: Option<File>,
    used_s: u64,
    counter: &'static Counter,
}

/// A pass over all slots of the index, or two if objects are to be picked.
#[derive(Default)]
struct Pass {
    stage: Stage,
    slot: usize,
    now_s: u64,
    found: Found,
    picked: usize,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    Look,
    Pick(Limits),
}

/// The sums that the first pass makes.
#[derive(Default)]
struct Found {
    all: Ages,
    counts: Ages,
    disks: Vec<Ages>,
    objects: u64,
    idle_max_s: u64,
}

/// How much is to be evicted: of the cache's bytes, of the number of objects, on each disk.
struct Limits {
    all: Limit,
    count: Limit,
    disks: Vec<Limit>,
}

/// Objects that were unused for at least `idle_s` are evicted until `blocks_left` blocks are freed.
#[derive(Clone, Copy)]
struct Limit {
    idle_s: u64,
    blocks_left: u64,
}

impl Limit {
    fn new(ages: &Ages, bytes: u64) -> Self {
        let idle_s = ages.threshold(bytes).unwrap_or(u64::MAX);
        Self { idle_s, blocks_left: bytes.div_ceil(BLOCK_BYTES) }
    }

    /// Whether an object is to be evicted for this limit.
    fn wants(&self, idle_s: u64) -> bool {
        self.blocks_left > 0 && idle_s >= self.idle_s
    }

    fn take(&mut self, blocks: u64) {
        self.blocks_left = self.blocks_left.saturating_sub(blocks);
    }
}

const fn mask_of(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Pass {
    fn begin(disks: usize) -> Self {
        let found = Found { disks: vec![Ages::default(); disks], ..Found::default() };
        Self { stage: Stage::Look, now_s: now_s(), found, ..Self::default() }
    }

    fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// Scans a slice of the index. At the end of the pass it returns the longest time for which a remaining
    /// object was unused, seconds.
    fn go_on(
        &mut self,
        cache: &Cache,
        free_bytes: &[Option<u64>],
        pick: &mut dyn FnMut(Victim),
    ) -> Option<u64> {
        let (index, end) = (cache.index(), self.slot + SLICE_SLOTS);
        for (digest, object) in index.scan(self.slot..end.min(index.room())) {
            if self.picked < VICTIMS_MAX
                && let Some(victim) = self.look_at(cache, digest, &object)
            {
                self.picked += 1;
                pick(victim);
            }
        }
        self.slot = end;
        if end < index.room() {
            return None;
        }
        let limits =
            matches!(self.stage, Stage::Look).then(|| self.found.limits(cache, free_bytes)).flatten();
        match limits {
            Some(limits) => {
                (self.stage, self.slot) = (Stage::Pick(limits), 0);
                None
            }
            None => {
                self.stage = Stage::Idle;
                Some(self.found.idle_max_s)
            }
        }
    }

    fn look_at(&mut self, cache: &Cache, digest: Digest, object: &Object) -> Option<Victim> {
        let idle_s = self.now_s.saturating_sub(object.used_s);
        let file = match object.stored {
            Stored::File(file) => Some(file),
            Stored::Nothing | Stored::Error { .. } => None,
        };
        let victim = |counter| Victim { digest, file, used_s: object.used_s, counter };
        if idle_s >= cache.conf.inactive_s {
            return matches!(self.stage, Stage::Look).then(|| victim(&EXPIRED));
        }
        match &mut self.stage {
            Stage::Idle => None,
            Stage::Look => {
                self.found.add(idle_s, file);
                None
            }
            Stage::Pick(limits) => limits.want(idle_s, file).then(|| victim(&PUSHED_OUT)),
        }
    }
}

impl Found {
    fn add(&mut self, idle_s: u64, file: Option<File>) {
        self.objects += 1;
        self.idle_max_s = self.idle_max_s.max(idle_s);
        self.counts.add(idle_s, 1);
        let Some(file) = file else { return };
        self.all.add(idle_s, file.blocks);
        if let Some(ages) = self.disks.get_mut(usize::from(file.disk)) {
            ages.add(idle_s, file.blocks);
        }
    }

    /// How much is to be evicted; `None` if nothing is. Stores the sums in the cache's counters.
    fn limits(&self, cache: &Cache, free_bytes: &[Option<u64>]) -> Option<Limits> {
        let (conf, bytes) = (&cache.conf, self.all.bytes());
        cache.note_size(bytes, self.objects);
        // As in nginx, a size that is equal to the limit is already too large.
        let beyond = |bytes: u64, limit: u64| if bytes >= limit { bytes - limit + 1 } else { 0 };
        let objects_max = cache.index().room() as u64 / 10 * FULL_TENTHS;
        let count = beyond(self.objects, objects_max) * BLOCK_BYTES;
        let wanted_on = |free: &Option<u64>| match free {
            Some(free) if conf.min_free_bytes > 0 => beyond(conf.min_free_bytes, *free),
            _ => 0,
        };
        // A disk on which a file found no room evicts a part of its objects.
        let room_on = |disk: &Disk, ages: &Ages| match disk.take_wants_room() {
            true => (ages.bytes() / ROOM_PART).max(ROOM_MIN_BYTES),
            false => 0,
        };
        let all = self.disks.iter().zip(free_bytes).zip(&cache.kept.disks);
        let disks =
            all.map(|((ages, free), disk)| Limit::new(ages, wanted_on(free).max(room_on(disk, ages))));
        let limits = Limits {
            all: Limit::new(&self.all, beyond(bytes, conf.max_bytes)),
            count: Limit::new(&self.counts, count),
            disks: disks.collect(),
        };
        let wanted =
            [&limits.all, &limits.count].into_iter().chain(&limits.disks).any(|of| of.blocks_left > 0);
        wanted.then_some(limits)
    }
}

impl Limits {
    /// Whether an object is to be evicted for any limit. Its blocks then count for all of them.
    fn want(&mut self, idle_s: u64, file: Option<File>) -> bool {
        let (blocks, disk) =
            file.map_or((0, usize::MAX), |file| (u64::from(file.blocks), usize::from(file.disk)));
        let wants = self.count.wants(idle_s)
            || file.is_some() && self.all.wants(idle_s)
            || self.disks.get(disk).is_some_and(|limit| limit.wants(idle_s));
        if wants {
            self.count.take(1);
            self.all.take(blocks);
            if let Some(limit) = self.disks.get_mut(disk) {
                limit.take(blocks);
            }
        }
        wants
    }
}

/// The work of the manager's jobs.
impl Cache {
    /// Reads snapshot and journal of a disk into the index, unless an earlier worker process has done so: the
    /// index outlives workers.
    fn recover(&self, blocking: &Blocking, root: &Root, number: u8) -> Result<(), DiskError> {
        if self.is_recovered(number) {
            return Ok(());
        }
        let path = || self.conf.disks[usize::from(number)].path.join(notes::DIRECTORY);
        notes::recover(blocking, &root.directory, (self.index(), number))
            .map_err(|error| DiskError::new("read()", path(), error))?;
        let note = self.known();
        let (mask, known) = self.known_bits(number);
        note.fetch_and(!mask, Ordering::AcqRel);
        note.fetch_or(known, Ordering::AcqRel);
        Ok(())
    }

    /// Whether snapshot and journal of this disk were read into the index.
    fn is_recovered(&self, number: u8) -> bool {
        let (mask, known) = self.known_bits(number);
        self.known().load(Ordering::Acquire) & mask == known
    }

    /// The bits of the zone's word for this disk: a mask, and their value once its snapshot was read. The
    /// value depends on the disk's path, since another configuration may have another disk under the same
    /// number.
    fn known_bits(&self, number: u8) -> (u64, u64) {
        let path = self.conf.disks[usize::from(number)].path.as_os_str().as_bytes();
        let mark = u64::from(crc32fast::hash(path)) & mask_of(KNOWN_BITS) | 1;
        let shift = u32::from(number) * KNOWN_BITS;
        (mask_of(KNOWN_BITS) << shift, mark << shift)
    }

    /// Removes objects, except those that were used or stored anew since they were picked.
    fn remove_victims(
        &self,
        blocking: &Blocking,
        root: &Root,
        disk: u8,
        victims: &[Victim],
    ) -> Result<(), DiskError> {
        let begin_ms = clock::monotonic_ms();
        let mut has_removed = false;
        for victim in victims {
            let known = self.index().get(victim.digest);
            let is_same = known.is_some_and(|object| {
                let file = matches!(object.stored, Stored::File(file) if Some(file) == victim.file);
                file && object.used_s == victim.used_s && !self.is_updated(&object)
            });
            if !is_same {
                continue;
            }
            victim.counter.increment();
            match self.remove_broken(blocking, root, disk, victim.digest) {
                Err(error) if error.is_of_device() => return Err(error),
                Err(error) => self.say(Level::Crit, &error.to_string()),
                Ok(()) => has_removed = true,
            }
            if clock::monotonic_ms() >= begin_ms + self.conf.manager.threshold_ms {
                // The next pass finds the remaining ones.
                break;
            }
        }
        if let Some(disk) = self.disk(disk).filter(|_| has_removed) {
            disk.note_room();
        }
        Ok(())
    }
}
