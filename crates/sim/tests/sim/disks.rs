//! The disks of the cache: directories in memory, whose jobs are run here, when and as a program says, on the
//! test's thread; so is its manager's work. No job runs beside the loop, and the same program is the
//! same run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_cache::Key;
use clearway_cache::disks::{Cache, Caches, ManagerByHand, Role};
use clearway_cache::placement::{self, Disk};
use clearway_offload::faults::{self, Call};
use clearway_sim::{Disks as How, Random};
use clearway_zone::Zones;

use crate::site;

/// The directories of the cache.
const NAMES: [&str; DISKS] = ["one", "two"];
const DISKS: usize = 2;
/// Where a cache writes changes down, on each disk.
const NOTES: &str = ".clearway";

/// Which calls fail, and how: none.
const WELL: u64 = 0;
const FULL: u64 = 1;
const FAILING: u64 = 2;
/// So many and more: one call in so many does.
const AT_TIMES: u64 = 3;

/// The numbers of what the system says.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// How calls on each disk fail at present.
static FAULTS: [AtomicU64; DISKS] = [const { AtomicU64::new(WELL) }; DISKS];
/// The disk that is called.
static CALLED: AtomicUsize = AtomicUsize::new(0);
/// How often calls were made in this run.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// How often they have failed, on each disk; and how often before jobs were run last.
static FAILED: [AtomicU64; DISKS] = [const { AtomicU64::new(0) }; DISKS];
static FAILED_BEFORE: [AtomicU64; DISKS] = [const { AtomicU64::new(0) }; DISKS];
/// Whether a disk was anything but well and quick in this run: others may have its objects.
static WAS_ILL: [AtomicBool; DISKS] = [const { AtomicBool::new(false) }; DISKS];
/// By which disks are drawn.
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The disks of the cache.
pub(crate) struct Disks {
    pub(crate) zones: Arc<Zones>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) directories: Vec<PathBuf>,
    manager: ManagerByHand,
    paces: [Pace; DISKS],
}

/// When jobs of a disk are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    AtOnce,
    /// One at a time, from then on and so far apart, milliseconds.
    Apart(u64, u64),
    Never,
}

/// How many calls had failed on each disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults([u64; DISKS]);

impl Disks {
    /// Empty ones below a directory.
    pub(crate) fn new(below: &Path, seed: u64) -> std::io::Result<Self> {
        let directories: Vec<PathBuf> = NAMES.iter().map(|name| below.join(name)).collect();
        for directory in &directories {
            let _ = std::fs::remove_dir_all(directory);
            std::fs::create_dir_all(directory)?;
        }
        for disk in 0..DISKS {
            FAULTS[disk].store(WELL, Ordering::Relaxed);
            FAILED[disk].store(0, Ordering::Relaxed);
            FAILED_BEFORE[disk].store(0, Ordering::Relaxed);
            WAS_ILL[disk].store(false, Ordering::Relaxed);
        }
        CALLS.store(0, Ordering::Relaxed);
        DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&directories);
        faults::follow(move |call| fault(call, seed));
        let caches = Caches::new(&site::alerts(), Role::Alone);
        let (zones, manager) = (Arc::new(Zones::create(None)), ManagerByHand::default());
        Ok(Self { zones, caches, directories, manager, paces: [Pace::AtOnce; DISKS] })
    }

    /// Both, or one of them.
    pub(crate) fn become_so(&mut self, which: Option<usize>, how: How, now_ms: u64) {
        for disk in (0..DISKS).filter(|&disk| which.is_none_or(|which| which == disk)) {
            self.paces[disk] = match how {
                How::Slow(ms) => Pace::Apart(now_ms + ms, ms),
                How::Hang => Pace::Never,
                _ => Pace::AtOnce,
            };
            let faults = match how {
                How::Full => FULL,
                How::Fail => FAILING,
                How::FailAtTimes(n) => n.max(AT_TIMES),
                How::Quick | How::Slow(_) | How::Hang => WELL,
            };
            FAULTS[disk].store(faults, Ordering::Relaxed);
            WAS_ILL[disk].fetch_or(how != How::Quick, Ordering::Relaxed);
        }
    }

    /// Runs the jobs that are due, and has the manager decide. Whether there were any.
    pub(crate) fn go_on(&mut self, now_ms: u64) -> bool {
        for (before, failed) in FAILED_BEFORE.iter().zip(&FAILED) {
            before.store(failed.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut any = false;
        for disk in 0..DISKS {
            any |= match self.paces[disk] {
                Pace::Never => false,
                Pace::AtOnce => {
                    let mut runs = false;
                    while self.run_one(disk) {
                        runs = true;
                    }
                    runs
                }
                Pace::Apart(at_ms, apart_ms) => {
                    let runs = at_ms <= now_ms && self.run_one(disk);
                    if runs {
                        self.paces[disk] = Pace::Apart(now_ms + apart_ms, apart_ms);
                    }
                    runs
                }
            };
        }
        self.caches.manage_by_hand(&mut self.manager);
        any
    }

    fn run_one(&self, disk: usize) -> bool {
        CALLED.store(disk, Ordering::Relaxed);
        self.caches.pools().get(disk).is_some_and(|pool| pool.run_by_hand())
    }

    /// Files are closed by the pools, which have no threads to do so.
    pub(crate) fn end(self) {
        let pools = self.caches.pools();
        drop(self);
        while pools.iter().any(|pool| pool.run_by_hand()) {}
    }

    /// When no request is left none of the caches, and no pool, has something under way.
    pub(crate) fn check_idle(&self) -> Result<(), String> {
        for cache in self.caches.in_use() {
            match cache.fills().count() {
                0 => {}
                count => return Err(format!("{count} fills are under way that nobody leads")),
            }
        }
        for pool in self.caches.pools() {
            let pending = pool.stats().pending;
            if pending + pool.waiting() != 0 {
                return Err(format!("a pool has {pending} jobs, of which {} wait", pool.waiting()));
            }
        }
        Ok(())
    }

    /// Whether calls have failed in this run: a file that was not removed is found when directories are read.
    pub(crate) fn have_failed() -> bool {
        FAILED.iter().any(|failed| failed.load(Ordering::Relaxed) > 0)
    }

    /// Nothing is left where nothing was used for longer than `inactive`, and the manager had its time.
    /// Temporary files that a disk did not remove stay until they are old by the clock of the kernel.
    pub(crate) fn check_empty(&self) -> Result<(), String> {
        for cache in self.caches.in_use() {
            let (bytes, objects) = (cache.bytes(), objects(&cache));
            if bytes + objects > 0 {
                return Err(format!("{objects} objects, {bytes} bytes stay in the cache"));
            }
        }
        let mut files: Vec<PathBuf> =
            self.directories.iter().flat_map(|directory| files_of(directory)).collect();
        if Self::have_failed() {
            files.retain(|path| path.extension().is_none());
        }
        if files.is_empty() { Ok(()) } else { Err(format!("files stay that no cache knows: {files:?}")) }
    }

    /// No cache is too large when the manager had its time.
    pub(crate) fn check_size(&self) -> Result<(), String> {
        for cache in self.caches.in_use() {
            if cache.bytes() > cache.conf().max_bytes {
                return Err(format!("{} bytes in a cache of {}", cache.bytes(), cache.conf().max_bytes));
            }
        }
        Ok(())
    }
}

/// Objects in an index.
fn objects(cache: &Cache) -> u64 {
    let index = cache.index();
    index.scan(0..index.room()).count() as u64
}

fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.path()).filter(|path| !path.ends_with(NOTES)) {
        if path.is_dir() { files.extend(files_of(&path)) } else { files.push(path) }
    }
    files
}

/// What of a message is no fault of the server's: what disks are told to say.
pub(crate) fn is_planned(message: &str) -> bool {
    [EIO, ENOSPC].iter().any(|number| message.contains(&format!("({number}: ")))
}

fn fault(call: Call, seed: u64) -> Option<i32> {
    let number = CALLS.fetch_add(1, Ordering::Relaxed);
    let mut random = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9));
    if call == Call::Attempt {
        // What the kernel has in memory is no matter of the disk's.
        return random.once_in(3).then_some(EIO);
    }
    let disk = CALLED.load(Ordering::Relaxed);
    let fault = match FAULTS[disk].load(Ordering::Relaxed) {
        WELL => None,
        FULL => matches!(call, Call::Create | Call::Write).then_some(ENOSPC),
        FAILING => Some(EIO),
        n => random.once_in(n).then_some(EIO),
    };
    FAILED[disk].fetch_add(fault.is_some().into(), Ordering::Relaxed);
    fault
}

/// How many calls had failed before jobs were run last: the loop may not know of those yet.
pub(crate) fn faults_before() -> Faults {
    Faults(std::array::from_fn(|disk| FAILED_BEFORE[disk].load(Ordering::Relaxed)))
}

/// Whether a call has failed since then on a disk that has the object with this key: the one that it belongs
/// on, or the other one, if that was ill.
pub(crate) fn have_failed(key: &str, since: Faults) -> bool {
    let directories = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
    let disks: Vec<Disk<'_>> = directories
        .iter()
        .map(|path| Disk { name: path.as_os_str().as_encoded_bytes(), weight: 1 })
        .collect();
    let first = placement::order(Key::new(key.into()).digest(), &disks)[0];
    let fails = |disk: usize| FAILED[disk].load(Ordering::Relaxed) > since.0[disk];
    fails(first) || WAS_ILL[first].load(Ordering::Relaxed) && fails(1 - first)
}
