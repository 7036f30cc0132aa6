//! `Pool`: a named, bounded set of threads for jobs that may block (`thread_pool`). Any thread submits,
//! loops included, without waiting; pool threads run the jobs.
//!
//! 1. Threads start when they are needed: a thread that takes a job while no other is idle starts one
//!    more first, so one is always in reserve until the limit. No loop ever starts a thread.
//! 2. After each pop a thread rings for what is ready behind it (rule 4 of `ring`).
//! 3. A submitter looks at `closed` after its push and fence; a thread looks at `closed` before it
//!    finds the queue empty and ends, and rings for the next one. So a job that came before the closing is
//!    run, and one that came after is cancelled by its submitter, unless a thread has started it.
//! 4. `pending` counts jobs from before their push until they have run, or were found cancelled. As in
//!    nginx, `max_queue` tasks may wait beside one for each thread, started yet or not: with 0 only what
//!    a thread is free for is taken. A job is off the count before its future learns of the end.
//! 5. What goes to a file system that does not answer is held back (`places`); it is still pending. Threads
//!    that `places` allows beside those of the pool end when they have nothing to do, any other one when it
//!    has had nothing for a while and another sleeps (rule 6 of `bell`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use clearway_base::log::{Level, Sink};
use clearway_metrics::{Counter, Durations, Histogram};
use clearway_os::clock;
use clearway_os::spin::Spin;

use crate::Blocking;
use crate::bell::{Bell, Slept};
use crate::files::{At, find_place_of};
use crate::kept_memory::KeptMemory;
use crate::lanes::Lanes;
use crate::places::{ASKING, Admission, FileSystemPlace, Limits, Places, Visit};
use crate::sync::{AtomicBool, AtomicUsize, Futex, Ordering, fence};
use crate::task::{self, Error, Ran, Run, Task};

/// Threads of a pool that does not say (`thread_pool default`).
pub const THREADS_DEFAULT: u32 = 32;
/// Waiting tasks of a pool that does not say (`thread_pool default`).
pub const MAX_QUEUE_DEFAULT: u32 = 65_536;
/// The pool that hashes passwords: as wide as there are processors, unless the configuration has one of that
/// name.
pub const PASSWORDS_POOL: &str = "passwords";
/// The pool that makes handshakes of TLS which would keep a loop from others, in three lanes: those that take
/// up a session, light steps and heavy ones. As wide as there are processors, unless the configuration has
/// one of that name.
pub const CRYPTO_POOL: &str = "crypto";
/// Steps of handshakes that wait, of each kind, where the configuration does not say.
const CRYPTO_MAX_QUEUE: u32 = 4096;
/// The nice value of threads that make handshakes: requests of connections that are there come first.
const CRYPTO_NICE: i32 = 5;
/// Turns of those that take up a session, of light and of heavy steps: more of what computes less.
const CRYPTO_LANES: &[Lane] = &[
    Lane { max_queue: CRYPTO_MAX_QUEUE, share: 9 },
    Lane { max_queue: CRYPTO_MAX_QUEUE, share: 3 },
    Lane { max_queue: CRYPTO_MAX_QUEUE, share: 1 },
];
/// Waiting tasks of the pool for passwords, where the configuration does not say.
const PASSWORDS_MAX_QUEUE: u32 = 4096;
/// Threads of one pool at most, whatever the configuration says.
pub const THREADS_MAX: u32 = 4096;
/// Waiting tasks of one pool at most, whatever the configuration says: each that was needed takes 32 bytes.
const QUEUE_MAX: u32 = 1 << 22;
/// After a thread could not be started the next attempt waits this long.
const START_RETRY_MS: u64 = 1000;
/// Lanes of a pool that is fair.
const LANES: usize = 128;
/// A client has two lanes, each of which takes so large a part of the tasks that may wait.
const LANE_PART: u32 = 64;
/// The nice value of threads that hash passwords.
const PASSWORDS_NICE: i32 = 10;

/// Jobs that a full queue did not take.
pub static OVERFLOWS: Counter = Counter::new(
    "offload_overflows_total",
    "jobs",
    "Jobs that were refused because max_queue tasks were waiting in their thread pool: the disks \
     behind it are slower than what is asked of them, or the pool has too few threads.",
);
/// Jobs that panicked.
pub static PANICS: Counter = Counter::new(
    "offload_panics_total",
    "jobs",
    "Jobs in thread pools that panicked: a bug, see the error log.",
);
/// Threads that the system did not let a pool start.
pub static START_FAILURES: Counter = Counter::new(
    "offload_thread_start_failures_total",
    "threads",
    "Threads that a thread pool wanted and the system refused (a limit of processes or memory).",
);

/// Jobs that were not waited for any longer.
pub static TIMEOUTS: Counter = Counter::new(
    "offload_timeouts_total",
    "jobs",
    "Jobs in thread pools that requests have waited for in vain for `send_timeout`: a file system that does \
     not answer, or a queue that is too long. Such requests are answered with 503, or closed where the \
     response has begun.",
);

/// The parameters of `thread_pool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The pool's name.
    pub name: String,
    /// `threads=`, per loop.
    pub threads: u32,
    /// `max_queue=`, in tasks, per loop.
    pub max_queue: u32,
    /// Number of loops that share the pool: it gets so many times the numbers above, which nginx
    /// counts per worker.
    pub loops: u32,
    /// In which order jobs are taken.
    pub order: Order,
    /// How much its threads stand back behind loops (their nice value): 0 as they, up to 19. Where that is
    /// not permitted they compute as others do.
    pub nice: i32,
}

/// In which order a pool takes its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they come.
    Arrival,
    /// Jobs of clients in turn, and no client gets more than a part of the queue: for jobs that compute and
    /// that strangers can ask for.
    Fair,
    /// In these lanes, for jobs of different kinds: the submitter says which ([`Pool::submit_in`]).
    Lanes(&'static [Lane]),
}

/// Jobs of one kind beside those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// How many of them may wait, per loop. `max_queue` of the pool holds for all lanes together.
    pub max_queue: u32,
    /// How many turns it has while each of the others has as many as its own share: 3 beside 1 is three jobs
    /// of four. What it does not use is the others'.
    pub share: u8,
}

impl PoolConfig {
    /// A pool as nginx has it when only its name is given, for one loop.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            threads: THREADS_DEFAULT,
            max_queue: MAX_QUEUE_DEFAULT,
            loops: 1,
            order: Order::Arrival,
            nice: 0,
        }
    }

    /// The pool for handshakes where the configuration has none: as wide as there are processors.
    #[must_use]
    pub fn crypto() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: u32::try_from(processors).unwrap_or(THREADS_MAX),
            max_queue: 3 * CRYPTO_MAX_QUEUE,
            order: Order::Lanes(CRYPTO_LANES),
            nice: CRYPTO_NICE,
            ..Self::new(CRYPTO_POOL)
        }
    }

    /// The pool for passwords where the configuration has none: as wide as there are processors.
    #[must_use]
    pub fn passwords() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: u32::try_from(processors).unwrap_or(THREADS_MAX),
            max_queue: PASSWORDS_MAX_QUEUE,
            order: Order::Fair,
            nice: PASSWORDS_NICE,
            ..Self::new(PASSWORDS_POOL)
        }
    }
}

/// The counts of a pool since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// How long jobs waited for a thread, those included that nobody wanted any more.
    pub queue_wait: Durations,
    /// How long jobs took that were run.
    pub service: Durations,
    /// Jobs that were refused because `max_queue` tasks were waiting.
    pub overflows: u64,
    /// Jobs that wait or run, now.
    pub pending: usize,
    /// Threads, now.
    pub threads: u32,
    /// Jobs that were held back since their file system did not answer.
    pub held: u64,
}

/// A thread pool. Dropping it closes it: jobs that were taken are still run.
#[derive(Debug)]
pub struct Pool(Arc<Shared>);

impl Pool {
    /// A pool without threads: jobs wait until [`Pool::launch`]. A configuration that is only checked, or
    /// that turns out to be wrong further on, has cost no thread then.
    #[must_use]
    pub fn new(config: PoolConfig, sink: Arc<dyn Sink>) -> Self {
        Self(Arc::new(Shared::new(config, sink)))
    }

    /// Makes the pool and starts its first thread; for boot or a pool thread.
    ///
    /// # Errors
    /// When that thread cannot be started.
    pub fn start(config: PoolConfig, sink: Arc<dyn Sink>) -> io::Result<Self> {
        let pool = Self::new(config, sink);
        pool.launch()?;
        Ok(pool)
    }

    /// Starts the first thread, unless there is one; for boot or a pool thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn launch(&self) -> io::Result<()> {
        let first = self.0.threads.word().compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() { start_thread(&self.0) } else { Ok(()) }
    }

    /// The parameters of the pool.
    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        &self.0.config
    }

    /// Gives the job to the pool. The task completes with its result; an overflow is logged with
    /// nginx's line, counted, and is the task's result. Never waits.
    pub fn submit<F, T>(&self, job: F) -> Task<T>
    where
        F: FnOnce(&Blocking) -> T + Send + 'static,
        T: Send + 'static,
    {
        self.0.submit(Ticket::default(), job)
    }

    /// As [`submit`](Self::submit), for a job that goes to a file system, which may not answer.
    pub fn submit_at<F, T>(&self, at: At, job: F) -> Task<T>
    where
        F: FnOnce(&Blocking) -> T + Send + 'static,
        T: Send + 'static,
    {
        self.0.submit(Ticket { at, ..Ticket::default() }, job)
    }

    /// As [`submit`](Self::submit), for a job of the client with this hash, by which a pool that is
    /// [`Order::Fair`] tells clients apart.
    pub fn submit_for<F, T>(&self, client: u64, job: F) -> Task<T>
    where
        F: FnOnce(&Blocking) -> T + Send + 'static,
        T: Send + 'static,
    {
        self.0.submit(Ticket { at: At::Anywhere, whose: Whose::Client(client) }, job)
    }

    /// As [`submit`](Self::submit), for a job of this lane in a pool with lanes ([`Order::Lanes`]). A full
    /// lane refuses it as a full pool does, and leaves the other lanes alone.
    pub fn submit_in<F, T>(&self, lane: usize, job: F) -> Task<T>
    where
        F: FnOnce(&Blocking) -> T + Send + 'static,
        T: Send + 'static,
    {
        self.0.submit(Ticket { at: At::Anywhere, whose: Whose::Lane(lane) }, job)
    }

    /// Counts the result of a strand's job, which the pool has run within another one.
    #[cfg(not(loom))]
    pub(crate) fn note_of_strand(&self, ran: &Ran) {
        self.0.note_panic(ran);
    }

    /// The name that `thread_pool` gave.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// Jobs that no thread has taken yet (cancelled ones stay until a thread comes to them).
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.queue.len()
    }

    /// Its counts.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            queue_wait: self.0.queue_wait.read(),
            service: self.0.service.read(),
            overflows: self.0.overflows.load(Ordering::Relaxed),
            pending: self.0.pending.load(Ordering::Relaxed),
            threads: self.0.threads.word().load(Ordering::Relaxed),
            held: self.0.places.held_total(),
        }
    }

    /// Runs the job that has waited longest on the calling thread, which stands for a thread of this pool: of
    /// one that was not launched. Whether there was one.
    #[cfg(feature = "testing")]
    pub fn run_by_hand(&self) -> bool {
        let job = self.0.places.take_released().or_else(|| self.0.queue.pop());
        if let Some(job) = &job {
            self.0.visit(job, &Blocking::on_this_thread(), &|| ());
        }
        job.is_some()
    }

    /// Takes no more jobs; the threads run what is there and end. Does not wait for them.
    pub fn shutdown(&self) {
        self.0.close();
    }

    /// Shuts down and waits until all threads have ended, `limit` at most; `false` if some have not.
    /// **Blocks**: for the main thread at exit.
    #[must_use]
    pub fn shutdown_and_wait(&self, limit: Duration) -> bool {
        self.0.close();
        wait_for_zero(&self.0.threads, limit)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The facts about a job before it is run.
#[derive(Default)]
pub(crate) struct Ticket {
    pub(crate) at: At,
    pub(crate) whose: Whose,
}

/// The key by which a job's lane is found.
#[derive(Clone, Copy)]
pub(crate) enum Whose {
    /// The hash of the client that causes the job.
    Client(u64),
    /// The number of the lane.
    Lane(usize),
}

impl Default for Whose {
    fn default() -> Self {
        Self::Client(0)
    }
}

/// Why a thread of a pool ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The pool is closed.
    Closed,
    /// The thread was beside those of the pool, and was taken off the count (rule 5).
    Surplus,
    /// The thread had nothing to do, and was taken off the count (rule 5).
    Idle,
}

/// The state that the pool's handle and its threads share.
pub(crate) struct Shared {
    config: PoolConfig,
    sink: Arc<dyn Sink>,
    queue: Lanes<Arc<dyn Run>>,
    places: Places,
    bell: Bell,
    /// Jobs that are pushed and not taken (rule 4).
    pending: AtomicUsize,
    pending_max: usize,
    queue_wait: Histogram,
    service: Histogram,
    overflows: AtomicU64,
    closed: AtomicBool,
    /// Threads started and not ended.
    threads: Futex,
    threads_max: u32,
    /// Monotonic time before which no further thread is tried.
    start_after_ms: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(config: PoolConfig, sink: Arc<dyn Sink>) -> Self {
        let loops = config.loops.max(1);
        let queue = config.max_queue.saturating_mul(loops).min(QUEUE_MAX);
        let threads_max = config.threads.saturating_mul(loops).clamp(1, THREADS_MAX);
        let pending_max = (queue + threads_max) as usize;
        Self {
            sink,
            queue: match config.order {
                Order::Arrival => Lanes::new(1, pending_max),
                Order::Fair => Lanes::new(LANES, (queue / LANE_PART).max(1) as usize),
                Order::Lanes(lanes) => Lanes::with_shares(lanes.iter().map(|lane| {
                    let room = lane.max_queue.saturating_mul(loops).min(QUEUE_MAX);
                    (room as usize, lane.share)
                })),
            },
            places: Places::new(Limits { threads: threads_max, held_max: queue as usize / 4 }),
            pending: AtomicUsize::new(0),
            pending_max,
            queue_wait: Histogram::new(),
            service: Histogram::new(),
            overflows: AtomicU64::new(0),
            bell: Bell::new(),
            closed: AtomicBool::new(false),
            threads: Futex::new(0),
            threads_max,
            start_after_ms: AtomicU64::new(0),
            config,
        }
    }

    pub(crate) fn submit<F, T>(&self, ticket: Ticket, job: F) -> Task<T>
    where
        F: FnOnce(&Blocking) -> T + Send + 'static,
        T: Send + 'static,
    {
        if self.closed.load(Ordering::Relaxed) {
            return Task::refused(Error::Closed);
        }
        if self.pending.fetch_add(1, Ordering::AcqRel) >= self.pending_max {
            return self.refuse();
        }
        let (run, task) = task::new_at(ticket.at, job);
        let pushed = match ticket.whose {
            Whose::Client(client) => self.queue.push(client, run),
            Whose::Lane(lane) => self.queue.push_to(lane, run),
        };
        if pushed.is_err() {
            return self.refuse();
        }
        self.bell.ring();
        // Rule 3; ring() has the fence between the push and this load.
        if self.closed.load(Ordering::SeqCst) && task.cancel() {
            return Task::refused(Error::Closed);
        }
        task
    }

    /// Takes a job off the count that has found no place.
    fn refuse<T>(&self) -> Task<T> {
        self.end_one();
        self.note_overflow();
        Task::refused(Error::Overflow)
    }

    fn note_overflow(&self) {
        OVERFLOWS.increment();
        self.overflows.fetch_add(1, Ordering::Relaxed);
        let PoolConfig { name, max_queue, .. } = &self.config;
        self.sink.log(
            Level::Error,
            format_args!("thread pool \"{name}\" queue overflow: {max_queue} tasks waiting"),
        );
    }

    fn end_one(&self) {
        self.pending.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// The life of a pool thread.
    pub(crate) fn work(&self, blocking: &Blocking, grow: &dyn Fn()) -> Over {
        let (mut kept, mut spin) = (KeptMemory::default(), Spin::beside(self.threads_that_run()));
        let over = loop {
            match self.places.take_released().or_else(|| self.queue.pop()) {
                Some(job) => {
                    kept.note_job();
                    if self.has_work() {
                        self.bell.ring();
                    }
                    self.grow_unless_idle(grow);
                    self.visit(&job, blocking, grow);
                }
                None if self.has_ended() => break Over::Closed,
                None if self.take_off_surplus() => break Over::Surplus,
                None if self.look(&mut spin) => {}
                None => {
                    let limit = kept.begin_sleep();
                    let slept = self.bell.rest(blocking, limit, || self.has_work() || self.has_ended());
                    if slept == Slept::BesideOthers {
                        drop(Ending(Some(&self.threads)));
                        return Over::Idle;
                    }
                    kept.end_sleep();
                }
            }
        };
        self.bell.ring();
        over
    }

    /// How many threads want processors beside its own. Models have none to spare: a look has a model of its
    /// own.
    fn threads_that_run(&self) -> usize {
        if cfg!(loom) { usize::MAX } else { self.config.loops as usize }
    }

    /// Whether there is work within some microseconds: short calls come as fast, and to wake a thread takes
    /// both sides longer. Threads that stand back for others do not look.
    fn look(&self, spin: &mut Spin) -> bool {
        let is_due = self.config.nice == 0 && spin.is_due();
        is_due && self.bell.look(|| spin.look(|| self.has_work() || self.has_ended()))
    }

    fn has_work(&self) -> bool {
        self.places.has_released() || self.queue.is_ready()
    }

    fn has_ended(&self) -> bool {
        let closed = self.closed.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        closed && self.queue.len() == 0 && !self.places.has_released()
    }

    /// Starts a thread unless one is idle (rule 1).
    fn grow_unless_idle(&self, grow: &dyn Fn()) {
        if self.bell.idle() == 0 {
            grow();
        }
    }

    /// How many threads there may be.
    fn threads_allowed(&self) -> u32 {
        self.threads_max + self.places.threads_beside()
    }

    /// Rule 5: whether this thread is one too many.
    fn take_off_surplus(&self) -> bool {
        let threads = self.threads.word();
        if threads.load(Ordering::Relaxed) <= self.threads_max {
            return false;
        }
        let allowed = self.threads_allowed();
        let less = |n: u32| (n > allowed).then(|| n - 1);
        threads.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok()
    }

    /// Rule 5: runs a job where it goes, unless that place does not answer.
    fn visit(&self, job: &Arc<dyn Run>, blocking: &Blocking, grow: &dyn Fn()) {
        let place = match job.at() {
            _ if job.is_given_up() => None,
            At::Anywhere => None,
            At::Mount(mount) => Some(mount.place()),
            At::Paths(paths) => {
                let Some(asking) = self.enter(ASKING, job, grow) else { return };
                let place = find_place_of(blocking, paths);
                self.leave(&asking);
                place
            }
        };
        match place {
            None => self.run(job, blocking),
            Some(place) => {
                let Some(visit) = self.enter(place, job, grow) else { return };
                self.run(job, blocking);
                self.leave(&visit);
            }
        }
    }

    /// `None` where the job was held back, or refused.
    fn enter(&self, place: FileSystemPlace, job: &Arc<dyn Run>, grow: &dyn Fn()) -> Option<Visit> {
        match self.places.enter(place, job, clock::monotonic_ms(), &|| self.end_one()) {
            Admission::Entered(visit) => {
                self.grow_unless_idle(grow);
                return Some(visit);
            }
            Admission::Held => {}
            Admission::Full => {
                self.note_overflow();
                job.refuse(Error::Overflow, &|| self.end_one());
            }
        }
        None
    }

    fn leave(&self, visit: &Visit) {
        let released = self.places.leave(visit, clock::monotonic_ms(), &|| self.end_one());
        (0..released).for_each(|_| self.bell.ring());
    }

    fn run(&self, job: &Arc<dyn Run>, blocking: &Blocking) {
        let taken_ns = clock::monotonic_ns();
        self.queue_wait.note(taken_ns.saturating_sub(job.submitted_ns()));
        // Dropping the result of a job that nobody waits for may panic too, and so may a waker.
        let whole = std::panic::AssertUnwindSafe(|| job.run(blocking, &|| self.end_one()));
        let outside = |_| Ran::Panicked("outside the job".to_owned());
        let ran = std::panic::catch_unwind(whole).unwrap_or_else(outside);
        if ran != Ran::Cancelled {
            self.service.note(clock::monotonic_ns() - taken_ns);
        }
        self.note_panic(&ran);
    }

    fn note_panic(&self, ran: &Ran) {
        if let Ran::Panicked(text) = ran {
            PANICS.increment();
            let name = &self.config.name;
            self.sink.log(Level::Alert, format_args!("thread pool \"{name}\": a job panicked: {text}"));
        }
    }
}

/// Starts a thread (rule 1).
fn grow(shared: &Arc<Shared>) {
    let allowed = shared.threads_allowed();
    let room = |n: u32| (n < allowed).then_some(n + 1);
    if shared.threads.word().load(Ordering::Relaxed) >= allowed {
        return;
    }
    let now_ms = clock::monotonic_ms();
    if now_ms < shared.start_after_ms.load(Ordering::Relaxed)
        || shared.threads.word().fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).is_err()
    {
        return;
    }
    if let Err(error) = start_thread(shared) {
        shared.start_after_ms.store(now_ms + START_RETRY_MS, Ordering::Relaxed);
        let name = &shared.config.name;
        shared
            .sink
            .log(Level::Alert, format_args!("pthread_create() failed for thread pool \"{name}\": {error}"));
    }
}

/// Starts a thread that has been counted already; takes the count back if that fails.
fn start_thread(shared: &Arc<Shared>) -> io::Result<()> {
    let thread = Arc::clone(shared);
    let run = move || {
        clearway_os::signal::block_all();
        if thread.config.nice != 0 {
            // If that is not permitted, the thread computes at the priority of others.
            let (own, nice) = (clearway_os::thread::current(), thread.config.nice);
            let _ = clearway_os::thread::schedule(own, clearway_os::thread::Policy::Normal, nice, 0);
        }
        // Declared first, so that it is counted as ended last.
        let mut end = Ending(Some(&thread.threads));
        if thread.work(&Blocking::on_this_thread(), &|| grow(&thread)) != Over::Closed {
            end.0 = None;
        }
    };
    start_named(&format!("pool {}", shared.config.name), run).inspect_err(|_| {
        START_FAILURES.increment();
        drop(Ending(Some(&shared.threads)));
    })
}

/// Starts a detached thread. Linux keeps 15 bytes of the name.
pub(crate) fn start_named(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "pool and service threads are started here")]
    let handle = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    drop(handle);
    Ok(())
}

/// Counts a thread as ended when dropped, also by a panic; nothing where that was done.
pub(crate) struct Ending<'a>(pub(crate) Option<&'a Futex>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Some(threads) = self.0
            && threads.word().fetch_sub(1, Ordering::AcqRel) == 1
        {
            threads.wake(u32::from(u16::MAX));
        }
    }
}

/// Waits until the word is zero, `limit` at most. **Blocks.**
pub(crate) fn wait_for_zero(threads: &Futex, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match threads.word().load(Ordering::Acquire) {
            0 => return true,
            _ if left.is_zero() => return false,
            running => threads.wait(running, Some(left)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
