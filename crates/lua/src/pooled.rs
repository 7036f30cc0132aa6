//! The VMs of thread pools (`ngx.run_worker_thread`): made by the pool's threads when a call finds none, kept
//! for as long as the configuration is used. Loops submit calls and never wait; VMs are entered by threads of
//! the pool alone.
//!
//! 1. A call that names neither a key nor a slot takes the VM that was idle for the shortest time. As many
//!    calls run at a time as the pool has threads, so there are at most as many such VMs.
//! 2. A slot is a VM of its own and a strand of calls, which run in it one after the other. A key is the slot
//!    of its hash. There are as many slots as the pool has threads.
//! 3. A VM whose call has failed in a way that nobody can tell what is left of it is dropped, not kept.
//! 4. With `lua_worker_thread_vm_pool_size` at most that many calls are under way for each loop, in all pools
//!    together: a permit is taken by the loop and goes with the call, wherever that ends.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use clearway_base::log::Sink;
use clearway_http::{ConfKey, Level, Own, Setting, Snapshot, ThreadPools, settings};
use clearway_offload::{Blocking, Error, Order, Pool, Strand, THREADS_MAX, Task};
use clearway_runtime::{LoopRef, Runtime};

use crate::metrics;
use crate::pooled_call::{Call, PooledOutcome, Worker, run};
use crate::vm::interpreter::{Installer, VmSettings};
use crate::vm::settings::LUA_MAIN;
use crate::vm::state::VmPlace;
use crate::vm::{vms, workers};

/// The settings for pools of Lua, and their VMs.
pub(crate) static POOLED: ConfKey<PooledMain> = ConfKey::new(Level::Main);

settings! {
    pub(crate) struct PooledMain {
        /// Pools that calls may name.
        pub(crate) thread_pools: Own<Option<ThreadPools>>,
        /// `lua_worker_thread_vm_pool_size`
        pub(crate) vms_max: Setting<Option<usize>>,
        /// Once the configuration is about to be used.
        pub(crate) vms: Own<OnceLock<Arc<Pooled>>>,
    }
}

/// The functions in pools of one configuration.
pub(crate) struct Pooled {
    settings: VmSettings,
    /// `package.path` and `package.cpath` of the VM that has called first.
    paths: OnceLock<(Option<Bytes>, Option<Bytes>)>,
    pools: Vec<Arc<OfPool>>,
    /// The most VMs of all loops together (rule 4).
    most: Option<usize>,
    under_way: AtomicUsize,
    workers: u32,
}

/// The state of one pool.
pub(crate) struct OfPool {
    pool: Arc<Pool>,
    idle: Mutex<Vec<Worker>>,
    slots: Box<[OnceLock<Arc<OfSlot>>]>,
}

/// The state of one slot (rule 2).
struct OfSlot {
    strand: Arc<Strand>,
    worker: Mutex<Option<Worker>>,
}

/// Which VM a call wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Any,
    Slot(usize),
}

/// The permit to have a VM (rule 4).
struct Permit(Option<Arc<Pooled>>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(pooled) = &self.0 {
            let before = pooled.under_way.fetch_sub(1, Ordering::AcqRel);
            debug_assert!(before > 0, "each permit is given back once");
        }
    }
}

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No VM may be made now (rule 4).
    NoVm,
    /// Its pool has too many tasks, or ends.
    Pool(Error),
}

/// Has a configuration have VMs in its pools when there are calls. Not to be called on a loop.
pub(crate) fn prepare(snapshot: &Arc<Snapshot>, runtime: Runtime, sink: &Arc<dyn Sink>, install: Installer) {
    let main = snapshot.conf(&LUA_MAIN);
    let conf = snapshot.conf(&POOLED);
    let Some(pools) = conf.thread_pools.as_ref().filter(|_| *main.is_used) else { return };
    let settings = VmSettings {
        snapshot: Arc::downgrade(snapshot),
        sink: Some(Arc::clone(sink)),
        ..vms::settings(snapshot, main, install)
    };
    let loops = runtime.len();
    let pooled = Pooled {
        settings,
        paths: OnceLock::new(),
        pools: pools.iter().filter(is_open).map(|pool| Arc::new(OfPool::new(Arc::clone(pool)))).collect(),
        most: conf.vms_max.map(|vms| vms.saturating_mul(loops)),
        under_way: AtomicUsize::new(0),
        workers: workers::count(loops),
    };
    let is_new = conf.vms.set(Arc::new(pooled)).is_ok();
    debug_assert!(is_new, "a configuration is prepared once");
}

/// Whether a pool is open to Lua: pools with an order of their own are the server's.
fn is_open(pool: &&Arc<Pool>) -> bool {
    pool.config().order == Order::Arrival
}

impl Pooled {
    /// The pool of that name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Arc<OfPool>> {
        self.pools.iter().find(|of_pool| of_pool.pool.name().as_bytes() == name)
    }

    /// Whether nobody has said yet where modules are looked for.
    pub(crate) fn wants_paths(&self) -> bool {
        self.paths.get().is_none()
    }

    /// Where modules are looked for: `package.path` and `package.cpath`. What was said first counts.
    pub(crate) fn say_paths(&self, path: Option<&[u8]>, cpath: Option<&[u8]>) {
        let copied = |path: Option<&[u8]>| path.map(Bytes::copy_from_slice);
        // Another loop's has come first: it is the same as far as the configuration says.
        let _ = self.paths.set((copied(path), copied(cpath)));
    }

    /// Gives a call to a pool. Never waits.
    ///
    /// # Errors
    /// It was not taken.
    pub(crate) fn submit(
        self: &Arc<Self>,
        of_pool: &Arc<OfPool>,
        which: Which,
        call: Call,
    ) -> Result<Task<PooledOutcome>, Refusal> {
        let task = match self.permit() {
            None => Err(Refusal::NoVm),
            Some(permit) => {
                let (pooled, of_pool) = (Arc::clone(self), Arc::clone(of_pool));
                let task = of_pool.clone().give(pooled, which, call, permit);
                task.refusal().map_or(Ok(task), |error| Err(Refusal::Pool(error)))
            }
        };
        if task.is_err() {
            metrics::CALLS_REFUSED.increment();
        }
        task
    }

    fn permit(self: &Arc<Self>) -> Option<Permit> {
        let Some(most) = self.most else { return Some(Permit(None)) };
        let more = |under_way: usize| (under_way < most).then_some(under_way + 1);
        let taken = self.under_way.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        taken.ok().map(|_| Permit(Some(Arc::clone(self))))
    }

    fn make(&self, home: LoopRef) -> Result<Worker, String> {
        let (path, cpath) = self.paths.get().cloned().unwrap_or_default();
        let mut settings = self.settings.clone();
        settings.package_path = path.or(settings.package_path);
        settings.package_cpath = cpath.or(settings.package_cpath);
        Worker::new(&settings, VmPlace { worker_id: 0, workers: self.workers }, home)
    }

    /// Runs a call in this VM, or in a new one; the VM comes back if it is to be kept.
    fn run_in(
        &self,
        worker: Option<Worker>,
        call: Call,
        blocking: &Blocking,
    ) -> (PooledOutcome, Option<Worker>) {
        let worker = match worker {
            Some(worker) => worker,
            None => match self.make(call.home) {
                Ok(worker) => worker,
                Err(text) => return (PooledOutcome::Failed(text.into_bytes()), None),
            },
        };
        let outcome = run(&worker, call, blocking);
        // A poisoned VM is not kept (rule 3).
        (outcome, (!worker.is_poisoned()).then_some(worker))
    }
}

/// Threads of pools enter it, and hold it for some instructions.
fn enter<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OfPool {
    fn new(pool: Arc<Pool>) -> Self {
        let config = pool.config();
        let threads = config.threads.saturating_mul(config.loops.max(1)).clamp(1, THREADS_MAX);
        let slots: Box<[_]> = std::iter::repeat_with(OnceLock::new).take(threads as usize).collect();
        assert!(!slots.is_empty(), "a key has a slot");
        Self { pool, idle: Mutex::default(), slots }
    }

    /// The slot of a key (rule 2).
    pub(crate) fn slot_of(&self, key: &[u8]) -> Which {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Which::Slot((hasher.finish() % self.slots.len() as u64) as usize)
    }

    /// The slot with this number, counted around.
    pub(crate) fn slot(&self, number: u64) -> Which {
        Which::Slot((number % self.slots.len() as u64) as usize)
    }

    fn give(
        self: Arc<Self>,
        pooled: Arc<Pooled>,
        which: Which,
        call: Call,
        permit: Permit,
    ) -> Task<PooledOutcome> {
        match which {
            Which::Any => {
                let pool = Arc::clone(&self.pool);
                pool.submit(move |blocking| {
                    let _permit = permit;
                    let idle = enter(&self.idle).pop();
                    let (outcome, worker) = pooled.run_in(idle, call, blocking);
                    if let Some(worker) = worker {
                        debug_assert!(!worker.is_poisoned(), "nothing is run in a poisoned VM");
                        enter(&self.idle).push(worker);
                    }
                    outcome
                })
            }
            Which::Slot(number) => {
                let of_slot = Arc::clone(self.slots[number].get_or_init(|| self.new_slot()));
                let strand = Arc::clone(&of_slot.strand);
                strand.submit(move |blocking| {
                    let _permit = permit;
                    let idle = enter(&of_slot.worker).take();
                    let (outcome, worker) = pooled.run_in(idle, call, blocking);
                    let other = std::mem::replace(&mut *enter(&of_slot.worker), worker);
                    debug_assert!(other.is_none(), "calls of a slot run one after the other");
                    outcome
                })
            }
        }
    }

    fn new_slot(&self) -> Arc<OfSlot> {
        let config = self.pool.config();
        let most = config.max_queue.saturating_mul(config.loops.max(1)) as usize;
        Arc::new(OfSlot { strand: Strand::new(Arc::clone(&self.pool), most), worker: Mutex::default() })
    }
}
