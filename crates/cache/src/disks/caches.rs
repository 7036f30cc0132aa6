//! What a worker process has of caches. Configurations declare them as they are loaded; what the one before
//! had in the same place goes on. Off the loops, but for what is found.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use clearway_base::log::{Discard, Sink};
use clearway_offload::Pool;
use clearway_zone::ZoneKey;

use super::cache::{Cache, Kept};
use super::conf::CacheConf;
use super::disk::Disk;
use crate::fills::Fills;

/// See the file's head. Among the services of the environment, as `Arc<Caches>`; there is one in a process.
#[derive(Default)]
pub struct Caches {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    log: Option<Arc<dyn Sink>>,
    disks: Vec<Weak<Disk>>,
    kept: Vec<(ZoneKey, Weak<Kept>)>,
    /// Those of the configuration that is being loaded, or was loaded last.
    declared: Vec<Weak<Cache>>,
    /// Those of the configuration in use.
    current: Vec<Weak<Cache>>,
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").finish_non_exhaustive()
    }
}

impl Caches {
    /// None so far. Pools and jobs log to `log`.
    #[must_use]
    pub fn new(log: &Arc<dyn Sink>) -> Arc<Self> {
        let caches = Arc::new(Self::default());
        caches.log_to(log);
        caches
    }

    /// Where pools and jobs log from now on.
    pub fn log_to(&self, log: &Arc<dyn Sink>) {
        self.known().log = Some(Arc::clone(log));
    }

    /// A cache of the configuration that is being loaded. Nothing is opened and nothing runs before
    /// [`launch`](Self::launch).
    ///
    /// # Panics
    /// Without a disk, or with more than [`CacheConf::DISKS_MAX`].
    pub fn declare(&self, conf: CacheConf) -> Arc<Cache> {
        assert!((1..=CacheConf::DISKS_MAX).contains(&conf.disks.len()), "what the index has room for");
        let mut known = self.known();
        known.disks.retain(|disk| disk.strong_count() > 0);
        known.kept.retain(|(_, kept)| kept.strong_count() > 0);
        let disks: Vec<_> = conf.disks.iter().map(|disk| known.disk(&disk.path)).collect();
        let key = conf.zone.key();
        let is_same = |kept: &Arc<Kept>| {
            kept.disks.len() == disks.len()
                && kept.disks.iter().zip(&disks).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        let mut before =
            known.kept.iter().filter(|(of, _)| *of == key).filter_map(|(_, kept)| kept.upgrade());
        let kept = before.find(is_same).unwrap_or_else(|| {
            Arc::new(Kept { disks, fills: Arc::new(Fills::default()), is_cold: AtomicBool::new(true) })
        });
        known.kept.push((key, Arc::downgrade(&kept)));
        let cache = Arc::new(Cache { conf, kept });
        known.declared.retain(|cache| cache.strong_count() > 0);
        known.declared.push(Arc::downgrade(&cache));
        cache
    }

    /// Pools that are new get their threads.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn launch(&self) -> io::Result<()> {
        self.pools().iter().try_for_each(|pool| pool.launch())
    }

    /// The configuration that was loaded last is in use from here on.
    pub fn begin(&self) {
        let mut known = self.known();
        known.current = std::mem::take(&mut known.declared);
    }

    /// Nothing runs any more from here on.
    pub fn stop(&self) {
        self.known().current.clear();
    }

    /// The pools of all disks.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        let disks = self.known().disks.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        disks.iter().map(|disk| Arc::clone(disk.pool())).collect()
    }

    /// The caches of the configuration in use.
    #[must_use]
    pub fn current(&self) -> Vec<Arc<Cache>> {
        self.known().current.iter().filter_map(Weak::upgrade).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn disk(&mut self, path: &Path) -> Arc<Disk> {
        let mut there = self.disks.iter().filter_map(Weak::upgrade);
        if let Some(disk) = there.find(|disk| disk.path() == path) {
            return disk;
        }
        let log = self.log.clone().unwrap_or_else(|| Arc::new(Discard));
        let disk = Arc::new(Disk::new(path, log));
        self.disks.push(Arc::downgrade(&disk));
        disk
    }
}
