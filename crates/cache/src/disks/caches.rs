//! The caches of a worker process. A configuration declares its caches while it is loaded; a cache that the
//! previous configuration had in the same directories is kept. Off the loops, except for look-ups.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use clearway_base::log::{Discard, Sink};
use clearway_metrics::{Put, Value};
use clearway_offload::{Pool, Service};
use clearway_zone::ZoneKey;

use super::alarm::Alarm;
use super::cache::{Cache, Kept, SharedLog};
use super::conf::CacheConf;
use super::copies::Copies;
use super::disk::Disk;
use super::manager;
use super::role::Role;
use crate::fills::Fills;

/// The thread that looks after caches.
const THREAD: &str = "cache manager";

/// Tells caches apart.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The caches of a worker process, among the services of the environment as `Arc<Caches>`: one per process.
pub struct Caches {
    known: Mutex<Known>,
    log: SharedLog,
    role: Role,
    alarm: Arc<Alarm>,
    copies: Arc<Copies>,
    /// The caches of the configuration in use.
    current: Arc<ArcSwap<Vec<Arc<Cache>>>>,
}

/// The state of a manager that a test drives by hand.
#[cfg(feature = "testing")]
#[derive(Default)]
pub struct ManagerByHand {
    manager: manager::Manager,
    due_ms: u64,
}

#[derive(Default)]
struct Known {
    disks: Vec<Weak<Disk>>,
    kept: Vec<(ZoneKey, Weak<Kept>)>,
    /// The caches of the configuration that is being loaded, or was loaded last.
    declared: Vec<Weak<Cache>>,
    manager: Option<Service>,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            log: Arc::new(ArcSwap::from_pointee(Arc::new(Discard) as _)),
            role: Role::default(),
            alarm: Arc::default(),
            copies: Arc::default(),
            current: Arc::default(),
        }
    }
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").finish_non_exhaustive()
    }
}

impl Caches {
    /// No caches yet, in a process with this role. Pools and jobs log to `log`.
    #[must_use]
    pub fn new(log: &Arc<dyn Sink>, role: Role) -> Arc<Self> {
        let mut caches = Self::default();
        caches.role = role;
        caches.log_to(log);
        Arc::new(caches)
    }

    /// Has pools and jobs log to `log` from now on.
    pub fn log_to(&self, log: &Arc<dyn Sink>) {
        self.log.store(Arc::new(Arc::clone(log)));
    }

    /// Declares a cache of the configuration that is being loaded. Nothing is opened and nothing runs before
    /// [`begin`](Self::begin).
    ///
    /// # Panics
    /// Without a disk, or with more than [`CacheConf::DISKS_MAX`].
    pub fn declare(&self, conf: CacheConf) -> Arc<Cache> {
        assert!((1..=CacheConf::DISKS_MAX).contains(&conf.disks.len()), "what the index has room for");
        mark(&conf);
        let mut known = self.known();
        known.disks.retain(|disk| disk.strong_count() > 0);
        known.kept.retain(|(_, kept)| kept.strong_count() > 0);
        let disks: Vec<_> = conf.disks.iter().map(|disk| known.disk(&disk.path, &self.log)).collect();
        let key = conf.zone.key();
        let is_same = |kept: &Arc<Kept>| {
            kept.disks.len() == disks.len()
                && kept.disks.iter().zip(&disks).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        let mut before =
            known.kept.iter().filter(|(of, _)| *of == key).filter_map(|(_, kept)| kept.upgrade());
        let kept = before.find(is_same).unwrap_or_else(|| {
            Arc::new(Kept {
                disks,
                fills: Arc::new(Fills::default()),
                wants_walk: AtomicBool::default(),
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                copies: Arc::clone(&self.copies),
                alarm: Arc::clone(&self.alarm),
                log: Arc::clone(&self.log),
            })
        });
        known.kept.push((key, Arc::downgrade(&kept)));
        let cache = Arc::new(Cache { conf, kept });
        known.declared.retain(|cache| cache.strong_count() > 0);
        known.declared.push(Arc::downgrade(&cache));
        cache
    }

    /// Starts the threads of new pools, and the cache manager if it does not run yet.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn launch(&self) -> io::Result<()> {
        self.pools().iter().try_for_each(|pool| pool.launch())?;
        let mut known = self.known();
        if known.manager.is_none() && known.declared.iter().any(|cache| cache.strong_count() > 0) {
            let (alarm, current) = (Arc::clone(&self.alarm), Arc::clone(&self.current));
            let (copies, role) = (Arc::clone(&self.copies), self.role);
            let service = Service::start(THREAD, self.alarm.bell(), move |blocking, stop| {
                manager::run((blocking, stop), role, (&alarm, &copies), &current);
            });
            known.manager = Some(service?);
        }
        Ok(())
    }

    /// The caches of the configuration in use.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn in_use(&self) -> Vec<Arc<Cache>> {
        self.current.load().to_vec()
    }

    /// The work of the manager's thread, when the alarm has rung or it is time, on the calling thread, of
    /// caches that were not launched; when to come back, monotonic ms.
    #[cfg(feature = "testing")]
    pub fn manage_by_hand(&self, manager: &mut ManagerByHand) -> u64 {
        let now_ms = clearway_os::clock::monotonic_ms();
        let ManagerByHand { manager, due_ms } = manager;
        if self.alarm.take_rung() || now_ms >= *due_ms {
            let blocking = clearway_offload::Blocking::by_hand();
            *due_ms = manager.turn((&blocking, now_ms), self.role, &self.copies, &self.current);
        }
        *due_ms
    }

    /// Puts the configuration that was loaded last to use.
    pub fn begin(&self) {
        let declared = std::mem::take(&mut self.known().declared);
        self.current.store(Arc::new(declared.iter().filter_map(Weak::upgrade).collect()));
        self.alarm.ring();
    }

    /// The pools of all disks.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        let disks = self.known().disks.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        disks.iter().map(|disk| Arc::clone(disk.pool())).collect()
    }

    /// The metric of the bytes that the files of each cache take.
    pub fn put_bytes(&self, put: &mut Put<'_>) {
        self.put(put, Cache::bytes);
    }

    /// The metric of the number of objects of each cache.
    pub fn put_objects(&self, put: &mut Put<'_>) {
        self.put(put, Cache::objects);
    }

    fn put(&self, put: &mut Put<'_>, number: impl Fn(&Cache) -> u64) {
        for cache in self.current.load().iter() {
            put(&[("zone", &String::from_utf8_lossy(cache.name()))], Value::Number(number(cache)));
        }
    }

    /// The metric of the disks that are left out because they fail.
    pub fn put_disks_out(&self, put: &mut Put<'_>) {
        for cache in self.current.load().iter() {
            let zone = String::from_utf8_lossy(cache.name());
            for disk in &cache.kept.disks {
                let path = disk.path().to_string_lossy();
                let is_out = u64::from(disk.is_out());
                put(&[("zone", &zone), ("disk", &path)], Value::Number(is_out));
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has a zone refused that a cache with another directory or other levels has used before: the index in it
/// would be wrong.
fn mark(conf: &CacheConf) {
    let path = conf.disks[0].path.as_os_str().as_bytes().to_vec();
    let levels: Vec<u8> = conf.levels.characters().map(|characters| b'0' + characters as u8).collect();
    conf.zone.when_opened(move |zone| {
        let label = [&levels[..], b"\0", &path].concat();
        let Err(before) = zone.check_label(&label) else { return Ok(()) };
        let end = before.iter().position(|&byte| byte == 0).unwrap_or(0);
        let (name, before) = (zone.name(), &before[end..]);
        let before = before.strip_prefix(b"\0").unwrap_or(before);
        if path.starts_with(before) && before.len() == path.len() {
            return Err([b"cache \"", name, b"\" had previously different levels"].concat());
        }
        let parts: [&[u8]; 7] = [
            b"cache \"",
            name,
            b"\" uses the \"",
            &path,
            b"\" cache path while previously it used the \"",
            before,
            b"\" cache path",
        ];
        Err(parts.concat())
    });
}

impl Drop for Caches {
    fn drop(&mut self) {
        let manager = self.known().manager.take();
        // The manager may be about to sleep: the alarm stays rung until it has looked.
        manager.iter().for_each(Service::stop);
        self.alarm.ring();
    }
}

impl Known {
    fn disk(&mut self, path: &Path, log: &SharedLog) -> Arc<Disk> {
        let mut there = self.disks.iter().filter_map(Weak::upgrade);
        if let Some(disk) = there.find(|disk| disk.path() == path) {
            return disk;
        }
        let disk = Arc::new(Disk::new(path, Arc::clone(&log.load())));
        self.disks.push(Arc::downgrade(&disk));
        disk
    }
}
