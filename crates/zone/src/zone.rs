//! One shared memory zone: what it is called, and its memory once the configuration that declares it is
//! complete. Declared and opened at boot, used by any thread afterwards.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use clearway_os::shared_memory::SharedMemory;

use crate::dict::{self, Dict, Key};
use crate::header::{HEADER_WORDS, Header, NOTES, Secret};
use crate::store::Store;
use crate::table::{KeyHash, Table};
use crate::workers::{Worker, Workers};
use crate::zones::ZoneKey;

/// Memory of a zone, and the descriptor to hand it on with where this process may.
pub(crate) struct Memory {
    pub(crate) shared: SharedMemory,
    pub(crate) fd: Option<Arc<OwnedFd>>,
}

/// A zone of a configuration.
pub struct Zone {
    name: Box<[u8]>,
    module: &'static str,
    /// 0 until a directive has said it.
    bytes: AtomicU64,
    /// Whether its contents are a dictionary, which has more memory than its size says.
    is_dict: AtomicBool,
    when_opened: Mutex<Option<Box<WhenOpened>>>,
    opened: OnceLock<Opened>,
}

type WhenOpened = dyn FnOnce(&Zone) -> Result<(), Vec<u8>> + Send;

struct Opened {
    memory: Arc<Memory>,
    secret: Secret,
    /// The number of this process, once it has one.
    own: AtomicU32,
}

impl Zone {
    pub(crate) fn declared(name: &[u8], module: &'static str, bytes: u64) -> Self {
        Self {
            name: name.into(),
            module,
            bytes: AtomicU64::new(bytes),
            is_dict: AtomicBool::new(false),
            when_opened: Mutex::new(None),
            opened: OnceLock::new(),
        }
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The module that it is of.
    #[must_use]
    pub fn module(&self) -> &'static str {
        self.module
    }

    /// Its size in bytes; 0 while no directive has said it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The identity of the zone from one configuration to the next.
    #[must_use]
    pub fn key(&self) -> ZoneKey {
        ZoneKey { name: self.name.clone(), module: self.module.into(), bytes: self.bytes() }
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_dict(&self) {
        self.is_dict.store(true, Ordering::Relaxed);
    }

    /// How much memory it wants, if it is a dictionary.
    pub(crate) fn dict_memory_bytes(&self) -> Option<usize> {
        let bytes = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        let is_dict = self.is_dict.load(Ordering::Relaxed);
        is_dict.then(|| HEADER_WORDS * size_of::<u64>() + dict::memory_bytes(bytes))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    /// Has `look` called once the zone has its memory: to see whether what is in it can be used. What it
    /// objects is why the configuration is refused.
    ///
    /// # Panics
    /// If a thread has panicked here before.
    pub fn when_opened(&self, look: impl FnOnce(&Self) -> Result<(), Vec<u8>> + Send + 'static) {
        *self.when_opened.lock().expect("nothing panics in between") = Some(Box::new(look));
    }

    pub(crate) fn open(&self, memory: Arc<Memory>) -> Result<(), Vec<u8>> {
        let secret = Header::prepare(memory.shared.words()).secret();
        let first = self.opened.set(Opened { memory, secret, own: AtomicU32::new(0) }).is_ok();
        debug_assert!(first, "a zone is opened once");
        let look = self.when_opened.lock().expect("nothing panics in between").take();
        look.map_or(Ok(()), |look| look(self))
    }

    pub(crate) fn memory(&self) -> Option<&Arc<Memory>> {
        self.opened.get().map(|opened| &opened.memory)
    }

    pub(crate) fn workers(&self) -> Workers<'_> {
        Header::at(self.opened().memory.shared.words()).workers()
    }

    /// The number of this process among those that use the zone, from 1 and for each another one; `None`
    /// while there are too many. What a process writes under its number is void once it has ended.
    #[must_use]
    pub fn own_number(&self) -> Option<u32> {
        self.own_worker().map(Worker::number)
    }

    /// Which of the 64 places of processes this one has, and its number; `None` while there are too many.
    #[must_use]
    pub fn own_place(&self) -> Option<(usize, u32)> {
        let own = self.own_worker()?;
        let place = self.workers().place_of(own);
        debug_assert!(place.is_some(), "the master frees the place of a process that is gone");
        Some((place?, own.number()))
    }

    /// The processes that use the zone: the place, the pid and the number of each.
    ///
    /// # Panics
    /// Before `Zones::open`.
    pub fn places(&self) -> impl Iterator<Item = (usize, u32, u32)> {
        self.workers().placed().map(|(at, pid, worker)| (at, pid, worker.number()))
    }

    /// Its contents as words, 0 at first, which mean what its module says: in the place of a table.
    ///
    /// # Panics
    /// Before `Zones::open`.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        &self.opened().memory.shared.words()[HEADER_WORDS..]
    }

    /// Whether the process with this number uses the zone still.
    ///
    /// # Panics
    /// Before `Zones::open`.
    #[must_use]
    pub fn has_worker(&self, number: u32) -> bool {
        self.workers().all().any(|worker| worker.number() == number)
    }

    /// This process among those that count in the zone; `None` while there are too many.
    pub(crate) fn own_worker(&self) -> Option<Worker> {
        let own = &self.opened().own;
        Worker::numbered(own.load(Ordering::Acquire)).or_else(|| self.enlist(own))
    }

    #[cold]
    fn enlist(&self, own: &AtomicU32) -> Option<Worker> {
        let pid = std::process::id();
        let worker = self.workers().enlist(pid)?;
        match own.compare_exchange(0, worker.number(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(worker),
            Err(first) => {
                // Another thread was faster; it may have found the same place.
                if first != worker.number() {
                    self.workers().leave(pid, worker);
                }
                Worker::numbered(first)
            }
        }
    }

    fn opened(&self) -> &Opened {
        self.opened.get().expect("zones are opened before a configuration is used")
    }

    /// Labels a new zone, or compares with the label that an earlier configuration has put on it: what
    /// its contents mean.
    ///
    /// # Errors
    /// The previous label, where it is another one (of a long one the first 400 bytes).
    ///
    /// # Panics
    /// Before `Zones::open`.
    pub fn check_label(&self, label: &[u8]) -> Result<(), Vec<u8>> {
        Header::prepare(self.opened().memory.shared.words()).check_label(label)
    }

    /// The hash of a key in this zone.
    ///
    /// # Panics
    /// Before `Zones::open`.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::new(self.opened().secret.hash(key))
    }

    /// The slots, 43,648 in 1 MiB. Until seven tenths of them are in use no key has to go for another one,
    /// at eight tenths two in ten thousand had to, at ten tenths four in a hundred (measured; `tests.rs`
    /// asserts the first). A full zone forgets the smallest payload of the sixteen slots of a new key.
    ///
    /// # Panics
    /// Before `Zones::open`.
    #[must_use]
    pub fn table(&self) -> Table<'_> {
        Table::new(&self.opened().memory.shared.words()[HEADER_WORDS..])
    }

    /// Bytes under keys in the place of a table. All users of a zone agree on that; its label says so.
    /// `None` while too many processes use the zone: there are 64 places.
    ///
    /// # Panics
    /// Before `Zones::open`, and where there is no room for a bucket and a cell.
    #[must_use]
    pub fn store(&self) -> Option<Store<'_>> {
        let own = self.own_worker()?;
        Some(Store::new(&self.opened().memory.shared.words()[HEADER_WORDS..], self.workers(), own))
    }

    /// Its contents as a dictionary, of a zone that was declared as one. `None` while too many processes use
    /// the zone: there are 64 places.
    ///
    /// # Panics
    /// Before `Zones::open`, and where it was not declared as a dictionary.
    #[must_use]
    pub fn dict(&self) -> Option<Dict<'_>> {
        assert!(self.is_dict.load(Ordering::Relaxed), "it was declared as a dictionary");
        let own = self.own_worker()?;
        let words = &self.opened().memory.shared.words()[HEADER_WORDS..];
        let bytes = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        Some(Dict::new(words, bytes, self.name.len(), self.workers(), own))
    }

    /// A key of the dictionary.
    ///
    /// # Panics
    /// Before `Zones::open`, and for a key of more than [`dict::KEY_MAX_BYTES`].
    #[must_use]
    pub fn dict_key<'k>(&self, key: &'k [u8]) -> Key<'k> {
        Key::hashed(key, self.opened().secret.hash(key)[0])
    }

    /// Words for what its module has to remember of the contents as a whole, 0 at first. They live as long as
    /// those do.
    ///
    /// # Panics
    /// Before `Zones::open`.
    #[must_use]
    pub fn notes(&self) -> &[AtomicU64; NOTES] {
        Header::at(self.opened().memory.shared.words()).notes()
    }

    /// The same with so many values in each slot, and with marks, as it is for large tables that are looked
    /// through: a zone holds fewer of those. All users of a zone agree on
    /// the number; its label says what its contents are.
    ///
    /// # Panics
    /// Before `Zones::open`, and where there is no room for a bucket.
    #[must_use]
    pub fn table_with_values<const VALUES: usize>(&self) -> Table<'_, VALUES> {
        Table::with_marks(&self.opened().memory.shared.words()[HEADER_WORDS..])
    }
}
