//! The zones of one configuration. Directives declare them in any order; they are given their memory when the
//! whole configuration was read. Boot and reload only, off the loops.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use clearway_base::Errno;
use clearway_os::shared_memory::SharedMemory;

use crate::header::HEADER_WORDS;
use crate::table::BUCKET_WORDS;
use crate::zone::{Memory, Zone};

/// The least size of a zone, bytes: a header and a bucket.
const ZONE_MIN_BYTES: u64 = ((HEADER_WORDS + BUCKET_WORDS) * size_of::<u64>()) as u64;

/// The identity of a zone: the zone of a configuration goes on with the memory of the zone of the
/// configuration before it that has the same key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZoneKey {
    /// The name in the configuration.
    pub name: Box<[u8]>,
    /// The module that uses it.
    pub module: Box<str>,
    /// The size in bytes.
    pub bytes: u64,
}

/// Where memory comes from.
enum MemorySource {
    /// From the configuration before, else from the system.
    Own(Vec<(ZoneKey, Arc<Memory>)>),
    /// From the master.
    Handed(Vec<(ZoneKey, OwnedFd)>),
}

/// The registry of one configuration; modules find it among the services of the environment, as
/// `Arc<Zones>`.
pub struct Zones {
    source: MemorySource,
    /// In the order of their first mention.
    zones: Mutex<Vec<Arc<Zone>>>,
}

impl Zones {
    /// In the master, or where there is no other process: makes memory, and keeps that of zones which
    /// are in `old` too, the configuration that is replaced.
    #[must_use]
    pub fn create(old: Option<&Self>) -> Self {
        let kept = old.map(|old| {
            let zones = old.zones();
            let open = zones.iter().filter_map(|zone| Some((zone.key(), Arc::clone(zone.memory()?))));
            open.collect()
        });
        Self::with(MemorySource::Own(kept.unwrap_or_default()))
    }

    /// In a worker process: maps what the master has handed over.
    #[must_use]
    pub fn handed(list: Vec<(ZoneKey, OwnedFd)>) -> Self {
        Self::with(MemorySource::Handed(list))
    }

    fn with(source: MemorySource) -> Self {
        Self { source, zones: Mutex::new(Vec::new()) }
    }

    fn zones(&self) -> MutexGuard<'_, Vec<Arc<Zone>>> {
        self.zones.lock().expect("nothing panics with the list in its hands")
    }

    /// The zone that a directive names. `bytes` is its size, or 0 where the directive leaves that to
    /// another one, which may come later.
    ///
    /// # Errors
    /// In nginx's words, for another size or another module than before.
    pub fn declare(&self, name: &[u8], bytes: u64, module: &'static str) -> Result<Arc<Zone>, Vec<u8>> {
        let mut zones = self.zones();
        let Some(zone) = zones.iter().find(|zone| zone.name() == name) else {
            let zone = Arc::new(Zone::declared(name, module, bytes));
            zones.push(Arc::clone(&zone));
            return Ok(zone);
        };
        if zone.module() != module {
            let parts = [b"the shared memory zone \"", name, b"\" is already declared for a different use"];
            return Err(parts.concat());
        }
        let present = zone.bytes();
        if present == 0 {
            zone.set_bytes(bytes);
        } else if bytes != 0 && bytes != present {
            let before = format!("the size {bytes} of shared memory zone \"");
            let behind = format!("\" conflicts with already declared size {present}");
            return Err([before.as_bytes(), name, behind.as_bytes()].concat());
        }
        Ok(Arc::clone(zone))
    }

    /// The zone that a directive names and that holds a dictionary (`Zone::dict`).
    ///
    /// # Errors
    /// As of [`Zones::declare`].
    pub fn declare_dict(&self, name: &[u8], bytes: u64, module: &'static str) -> Result<Arc<Zone>, Vec<u8>> {
        let zone = self.declare(name, bytes, module)?;
        zone.set_dict();
        Ok(zone)
    }

    /// Gives all zones their memory, when the whole configuration was read, and has their modules look at
    /// it (`Zone::when_opened`). Zones that are open already stay as they are.
    ///
    /// # Errors
    /// For a zone that is used and whose size no directive has said, in nginx's words; when the system
    /// refuses; what a module says.
    pub fn open(&self) -> Result<(), Vec<u8>> {
        for zone in self.zones().iter().filter(|zone| !zone.is_open()) {
            if zone.bytes() == 0 {
                return Err([b"zero size shared memory zone \"", zone.name(), b"\""].concat());
            }
            let memory = self.memory_for(zone).map_err(|error| refused(zone, &error))?;
            zone.open(memory)?;
        }
        Ok(())
    }

    /// The zones that the master hands on to its worker: every open zone and the descriptor of its memory.
    /// Empty in a worker.
    #[must_use]
    pub fn list(&self) -> Vec<(ZoneKey, Arc<OwnedFd>)> {
        let zones = self.zones();
        let with_fd = zones.iter().filter_map(|zone| Some((zone.key(), zone.memory()?.fd.clone()?)));
        with_fd.collect()
    }

    /// In the master: a worker process has ended and was reaped, so that its counts do not count any more.
    pub fn forget_worker(&self, pid: u32) {
        self.zones().iter().filter(|zone| zone.is_open()).for_each(|zone| zone.workers().forget(pid));
    }

    fn memory_for(&self, zone: &Zone) -> io::Result<Arc<Memory>> {
        let key = &zone.key();
        let configured = || usize::try_from(key.bytes.max(ZONE_MIN_BYTES)).unwrap_or(usize::MAX);
        let bytes = zone.dict_memory_bytes().unwrap_or_else(configured);
        match &self.source {
            MemorySource::Own(kept) => {
                if let Some((_, memory)) = kept.iter().find(|(kept, _)| kept == key) {
                    return Ok(Arc::clone(memory));
                }
                let (shared, fd) = SharedMemory::create(&memory_name(&key.name), bytes)?;
                Ok(Arc::new(Memory { shared, fd: Some(Arc::new(fd)) }))
            }
            MemorySource::Handed(list) => {
                let (_, fd) = list.iter().find(|(handed, _)| handed == key).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::NotFound, "the master has not handed it over")
                })?;
                Ok(Arc::new(Memory { shared: SharedMemory::map(fd.as_fd(), bytes)?, fd: None }))
            }
        }
    }
}

fn refused(zone: &Zone, error: &io::Error) -> Vec<u8> {
    let behind = format!("\" of {} bytes failed {}", zone.bytes(), Errno(error));
    [b"shared memory zone \"", zone.name(), behind.as_bytes()].concat()
}

/// The name in /proc/PID/maps.
fn memory_name(name: &[u8]) -> String {
    const NAME_MAX_CHARS: usize = 60;
    let printable = String::from_utf8_lossy(name);
    let chars = printable.chars().filter(|c| !c.is_control() && *c != '\0').take(NAME_MAX_CHARS);
    format!("zone {}", chars.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: Result<impl Sized, Vec<u8>>) -> String {
        String::from_utf8(result.map(|_| ()).unwrap_err()).unwrap()
    }

    #[test]
    fn declarations_agree_or_say_so_as_nginx_does() {
        let zones = Zones::create(None);
        let used = zones.declare(b"one", 0, "limit_req").unwrap();
        assert_eq!(used.bytes(), 0);
        let declared = zones.declare(b"one", 65536, "limit_req").unwrap();
        assert!(Arc::ptr_eq(&used, &declared) && used.bytes() == 65536);
        assert!(zones.declare(b"one", 65536, "limit_req").is_ok());
        assert_eq!(
            text(zones.declare(b"one", 32768, "limit_req")),
            "the size 32768 of shared memory zone \"one\" conflicts with already declared size 65536"
        );
        assert_eq!(
            text(zones.declare(b"one", 65536, "limit_conn")),
            "the shared memory zone \"one\" is already declared for a different use"
        );
        assert_eq!(zones.open(), Ok(()));
        zones.declare(b"two", 0, "limit_conn").unwrap();
        assert_eq!(text(zones.open()), "zero size shared memory zone \"two\"");
    }

    fn open(zones: &Zones, bytes: u64) -> Arc<Zone> {
        let zone = zones.declare(b"one", bytes, "limit_req").unwrap();
        zones.open().unwrap();
        zone
    }

    fn put(zone: &Zone, key: &[u8], payload: u64) {
        zone.table().update(zone.hash(key), 0, |_| Some(payload)).unwrap();
    }

    #[test]
    fn a_zone_of_the_same_key_keeps_its_memory() {
        let first = Zones::create(None);
        let one = open(&first, 65536);
        put(&one, b"client", 7);
        assert_eq!(one.check_label(b"$host"), Ok(()));

        let second = Zones::create(Some(&first));
        let same = open(&second, 65536);
        assert_eq!(same.table().get(same.hash(b"client")), Some(7));
        assert_eq!(same.check_label(b"$uri"), Err(b"$host".to_vec()));

        let third = Zones::create(Some(&second));
        drop((first, second, one, same));
        let resized = open(&third, 131_072);
        assert_eq!(resized.table().get(resized.hash(b"client")), None);
        assert_eq!(resized.check_label(b"$uri"), Ok(()));
    }

    #[test]
    fn a_module_looks_at_what_is_opened() {
        let zones = Zones::create(None);
        let zone = zones.declare(b"one", 65536, "limit_req").unwrap();
        zone.when_opened(|zone| zone.check_label(b"$host"));
        assert_eq!(zones.open(), Ok(()));
        let next = Zones::create(Some(&zones));
        let zone = next.declare(b"one", 65536, "limit_req").unwrap();
        zone.when_opened(|zone| zone.check_label(b"$uri").map_err(|before| [b"not ", &before[..]].concat()));
        assert_eq!(text(next.open()), "not $host");
    }

    #[test]
    fn a_worker_maps_what_it_is_handed() {
        let master = Zones::create(None);
        let in_master = open(&master, 65536);
        let worker = || {
            let list = master.list();
            let dup = |fd: &Arc<OwnedFd>| fd.as_fd().try_clone_to_owned().unwrap();
            Zones::handed(list.iter().map(|(key, fd)| (key.clone(), dup(fd))).collect())
        };
        let (old, new) = (worker(), worker());
        put(&open(&old, 65536), b"client", 7);
        let in_new = open(&new, 65536);
        let own = in_new.own_number().expect("one process");
        assert!(in_new.has_worker(own) && !in_new.has_worker(own + 1));
        assert_eq!(in_new.table().get(in_new.hash(b"client")), Some(7));
        drop((old, new, in_new));
        assert_eq!(in_master.table().get(in_master.hash(b"client")), Some(7), "it outlives them");

        let other = worker();
        other.declare(b"one", 32768, "limit_req").unwrap();
        assert_eq!(
            text(other.open()),
            "shared memory zone \"one\" of 32768 bytes failed (the master has not handed it over)"
        );
        assert!(worker().list().is_empty());
    }

    #[test]
    fn names_are_shown_as_far_as_they_can_be() {
        assert_eq!(memory_name(b"one\0\n\xff"), "zone one\u{fffd}");
        assert!(memory_name(&[0xff; 4096]).len() < 249);
    }
}
