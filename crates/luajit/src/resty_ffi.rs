//! The six functions of lua-resty-ffi: Lua posts tasks to a queue, threads of a plugin take them from it and
//! answer them, in any order, at any time, and may block. What C gives us is an allegation.
//!
//! 1. A queue and a task are known to C by addresses at which nothing is, in a range that is kept free: one
//!    that is used too late, or twice, is found out and changes nothing.
//! 2. A task has a slot. `word` is its generation, which moves when the slot is free again, and a phase. The
//!    thread that moves TAKEN to ANSWERING writes the answer, then moves on to ANSWERED: it is the waiter's
//!    from then on.
//! 3. WAKER set means: the cell `waker` is full and belongs to the thread that moves to ANSWERED. The waiter
//!    writes the cell while the bit is clear, then sets it, and clears it before it writes again.
//! 4. A waiter that has its answer or leaves sets GONE, what answers sets LEFT as its last step; the second
//!    of the two frees the slot, with its buffers.
//! 5. Requests are allocated by Lua, answers by the plugin, by malloc(3); both are freed here by free(3).
//! 6. See [`Queue`], for threads of plugins that sleep.
#![expect(unsafe_code, reason = "functions that plugins call, and buffers of malloc's")]

use std::any::TypeId;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::future::Future;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use arc_swap::ArcSwap;
use clearway_os::spin::Spin;
use clearway_os::{addresses, clock, signal};
use crossbeam_queue::SegQueue;

use crate::call::Context;
use crate::entered;
use crate::host::Host;

/// Tasks that are not over, of all queues.
pub const TASKS_MAX: usize = PAGE * PAGES;
/// Queues that are not over.
pub const QUEUES_MAX: usize = 4096;

const PAGE: usize = 1024;
const PAGES: usize = 128;

/// Uses of a slot until a number comes again.
const GENERATIONS: usize = 1 << 22;
/// Addresses of tasks, and behind them those of queues.
const TASK_ADDRESSES: usize = TASKS_MAX * GENERATIONS;
const QUEUE_ADDRESSES: usize = 1 << 32;

const FREE: u64 = 0;
const POSTED: u64 = 1;
const TAKEN: u64 = 2;
const ANSWERING: u64 = 3;
const ANSWERED: u64 = 4;
const PHASE: u64 = 7;
/// Rule 3.
const WAKER: u64 = 8;
/// Rule 4.
const GONE: u64 = 16;
const LEFT: u64 = 32;
const GENERATION_SHIFT: u32 = 8;

/// As the functions answer C.
const OK: c_int = 0;
const ERROR: c_int = -1;

unsafe extern "C" {
    fn free(at: *mut c_void);
}

/// Tasks that were answered, and answers that were for no task: it was answered before, or there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks that were posted.
    pub posted: u64,
    /// Posts that were refused.
    pub refused: u64,
    /// Tasks that were answered.
    pub answered: u64,
    /// Answers that were for no task.
    pub astray: u64,
}

static POSTS: AtomicU64 = AtomicU64::new(0);
static REFUSALS: AtomicU64 = AtomicU64::new(0);
static ANSWERS: AtomicU64 = AtomicU64::new(0);
static ASTRAY: AtomicU64 = AtomicU64::new(0);

/// Counts since the process began. Any thread.
#[must_use]
pub fn counts() -> Counts {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Counts { posted: read(&POSTS), refused: read(&REFUSALS), answered: read(&ANSWERS), astray: read(&ASTRAY) }
}

/// A task that Lua is about to post: what it is posted for takes the waiter, or it is not posted.
pub struct Posting<'c> {
    host: &'c Host,
    waiting: Option<Waiting>,
}

impl Posting<'_> {
    /// Calls a function with the context of the run, if it is of this kind, as [`crate::Call::with_context`],
    /// and with the waiter of the task. Once.
    pub fn with_context<C: Context, R>(
        &mut self,
        work: impl for<'a> FnOnce(&mut C::Of<'a>, Waiting) -> R,
    ) -> Option<R> {
        let place = self.host.context(TypeId::of::<C>())?;
        let waiting = self.waiting.take()?;
        // SAFETY: as of `Call::with_context`: `work` reaches no other call.
        let context: &mut C::Of<'_> = unsafe { &mut **place.cast::<*mut C::Of<'_>>() };
        Some(work(context, waiting))
    }
}

/// Whether the code that posts waits for the answer from now on.
pub type Poster = fn(&mut Posting<'_>) -> bool;

static POSTER: OnceLock<Poster> = OnceLock::new();

/// Says what has code wait for an answer. What was said first counts.
pub fn set_poster(poster: Poster) {
    // The linker keeps what is named.
    black_box((
        ngx_http_lua_ffi_create_task_queue as *const (),
        ngx_http_lua_ffi_task_post as *const (),
        ngx_http_lua_ffi_task_finish as *const (),
        ngx_http_lua_ffi_task_poll as *const (),
        ngx_http_lua_ffi_get_req as *const (),
        ngx_http_lua_ffi_respond as *const (),
    ));
    // There is one.
    let _ = POSTER.set(poster);
}

struct Slot {
    word: AtomicU64,
    request: AtomicPtr<c_void>,
    request_len: AtomicI32,
    code: AtomicI32,
    answer: AtomicPtr<c_void>,
    answer_len: AtomicI32,
    /// Rule 3; never contended.
    waker: Mutex<Option<Waker>>,
}

impl Slot {
    fn new() -> Self {
        Self {
            word: AtomicU64::new(FREE),
            request: AtomicPtr::new(ptr::null_mut()),
            request_len: AtomicI32::new(0),
            code: AtomicI32::new(0),
            answer: AtomicPtr::new(ptr::null_mut()),
            answer_len: AtomicI32::new(0),
            waker: Mutex::new(None),
        }
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.try_lock().unwrap_or_else(|_| unreachable!("one has it at a time, by rule 3"))
    }

    /// Moves on from one phase of this generation, whatever the bits.
    fn advance(&self, generation: u64, from: u64, to: u64) -> Result<u64, u64> {
        let next = |word: u64| {
            let is_there = word >> GENERATION_SHIFT == generation && word & PHASE == from;
            is_there.then_some(word & !PHASE | to)
        };
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
    }

    /// The buffers go, and the slot is free for the next task. Its task is over, and nobody else has it.
    fn release(&self, generation: u64) {
        drop(self.waker().take());
        let (request, answer) = (
            self.request.swap(ptr::null_mut(), Ordering::Relaxed),
            self.answer.swap(ptr::null_mut(), Ordering::Relaxed),
        );
        // SAFETY: rule 5; each was taken out, so it is freed once. free(3) takes null.
        unsafe {
            free(request);
            free(answer);
        }
        let next = (generation + 1) % GENERATIONS as u64;
        self.word.store(next << GENERATION_SHIFT | FREE, Ordering::Release);
    }
}

/// All tasks and queues of the process.
struct Table {
    pages: [OnceLock<Box<[Slot]>>; PAGES],
    /// Slots that were never used.
    unused: AtomicU32,
    free: SegQueue<u32>,
    /// Rule 1.
    base: usize,
    queues: ArcSwap<HashMap<usize, Arc<Queue>>>,
    last_queue: AtomicUsize,
}

static TABLE: LazyLock<Option<Table>> = LazyLock::new(|| {
    let base = addresses::reserve(TASK_ADDRESSES + QUEUE_ADDRESSES).ok()?;
    Some(Table {
        pages: [const { OnceLock::new() }; PAGES],
        unused: AtomicU32::new(0),
        free: SegQueue::new(),
        base,
        queues: ArcSwap::default(),
        last_queue: AtomicUsize::new(0),
    })
});

impl Table {
    fn slot(&self, index: u32) -> &Slot {
        let index = index as usize;
        let page = self.pages[index / PAGE].get_or_init(|| (0..PAGE).map(|_| Slot::new()).collect());
        &page[index % PAGE]
    }

    /// A slot that is free.
    fn take(&self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        let more = |unused: u32| ((unused as usize) < TASKS_MAX).then_some(unused + 1);
        self.unused.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()
    }

    fn give_back(&self, index: u32, generation: u64) {
        self.slot(index).release(generation);
        self.free.push(index);
    }

    fn address(&self, index: u32, generation: u64) -> usize {
        self.base + generation as usize * TASKS_MAX + index as usize
    }

    /// The slot and the generation that an address of a task names.
    fn find(&self, address: usize) -> Option<(u32, u64)> {
        let number = address.checked_sub(self.base).filter(|number| *number < TASK_ADDRESSES)?;
        let index = (number % TASKS_MAX) as u32;
        let is_used = index < self.unused.load(Ordering::Relaxed);
        is_used.then_some((index, (number / TASKS_MAX) as u64))
    }

    fn queue(&self, address: usize) -> Option<Arc<Queue>> {
        self.queues.load().get(&address).cloned()
    }

    fn add_queue(&self, most: usize) -> Option<usize> {
        // Sixteen apart, as memory would be.
        let number = self.last_queue.fetch_add(16, Ordering::Relaxed);
        let address = self.base + TASK_ADDRESSES + number % QUEUE_ADDRESSES;
        let queue = Arc::new(Queue::new(most));
        let mut has_room = false;
        self.queues.rcu(|queues| {
            has_room = queues.len() < QUEUES_MAX;
            let mut queues = HashMap::clone(queues);
            if has_room {
                queues.insert(address, Arc::clone(&queue));
            }
            queues
        });
        has_room.then_some(address)
    }

    fn remove_queue(&self, address: usize) {
        self.queues.rcu(|queues| {
            let mut queues = HashMap::clone(queues);
            queues.remove(&address);
            queues
        });
    }
}

/// Tasks of one runtime of a plugin.
///
/// A post pushes, fences, looks for sleepers; a sleeper counts itself, fences, looks for tasks. A sleeper is
/// woken once, by the thread that takes it off the count. One thread at a time may look for tasks before it
/// sleeps, and says so in `looking`: no sleeper is woken then. It clears that, fences, looks again, and wakes
/// a sleeper for tasks beside its own.
struct Queue {
    tasks: SegQueue<(u32, u64)>,
    waiting: AtomicUsize,
    most: usize,
    is_finished: AtomicBool,
    /// A thread of the plugin has come for tasks.
    is_begun: AtomicBool,
    sleepers: AtomicU32,
    /// Sleepers that were woken and have not noticed.
    woken: Mutex<u32>,
    bell: Condvar,
    looking: AtomicBool,
    spin: Mutex<Spin>,
}

impl Queue {
    fn new(most: usize) -> Self {
        Self {
            tasks: SegQueue::new(),
            waiting: AtomicUsize::new(0),
            most,
            is_finished: AtomicBool::new(false),
            is_begun: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            woken: Mutex::new(0),
            bell: Condvar::new(),
            looking: AtomicBool::new(false),
            spin: Mutex::default(),
        }
    }

    /// Room for one more.
    fn enter(&self) -> bool {
        let more = |waiting: usize| (waiting < self.most).then_some(waiting + 1);
        !self.is_finished.load(Ordering::Acquire)
            && self.waiting.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    fn push(&self, task: (u32, u64)) {
        self.tasks.push(task);
        self.ring();
    }

    fn ring(&self) {
        fence(Ordering::SeqCst);
        if !self.looking.load(Ordering::Relaxed) {
            self.wake_one();
        }
    }

    fn wake_one(&self) {
        let less = |sleepers: u32| sleepers.checked_sub(1);
        if self.sleepers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok() {
            *self.woken.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.bell.notify_one();
        }
    }

    fn finish(&self) {
        self.is_finished.store(true, Ordering::SeqCst);
        while self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake_one();
        }
    }

    fn has_work(&self) -> bool {
        !self.tasks.is_empty() || self.is_finished.load(Ordering::SeqCst)
    }

    /// The next task; nothing when the queue is finished. **Blocks.**
    fn poll(&self) -> Option<(u32, u64)> {
        let mut has_looked = false;
        loop {
            if let Some(task) = self.tasks.pop() {
                self.leave();
                if has_looked && self.has_work() {
                    self.ring();
                }
                return Some(task);
            }
            if self.is_finished.load(Ordering::SeqCst) && self.tasks.is_empty() {
                return None;
            }
            if !self.look(&mut has_looked) {
                self.sleep();
            }
        }
    }

    /// Whether there is something within some microseconds. Tasks that are short come as fast, and to
    /// wake a thread takes both sides longer.
    fn look(&self, has_looked: &mut bool) -> bool {
        let Ok(mut spin) = self.spin.try_lock() else { return false };
        if !spin.is_due() {
            return false;
        }
        *has_looked = true;
        self.looking.store(true, Ordering::Relaxed);
        let found = spin.look(|| self.has_work());
        self.looking.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        found
    }

    #[expect(clippy::disallowed_methods, reason = "threads of plugins sleep here, and no other ones")]
    fn sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let less = |sleepers: u32| sleepers.checked_sub(1);
        if self.has_work() && self.sleepers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok() {
            return;
        }
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        while *woken == 0 {
            woken = self.bell.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
        *woken -= 1;
    }
}

/// Waits for the answer of a task. Dropping it gives the answer up; the task stays with the plugin.
#[derive(Debug)]
pub struct Waiting {
    index: u32,
    generation: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Rule 4.
    Waits,
    /// The slot is another's.
    Over,
}

fn table() -> &'static Table {
    TABLE.as_ref().unwrap_or_else(|| unreachable!("a task is in it"))
}

impl Future for Waiting {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Answer> {
        let slot = table().slot(self.index);
        let is_answered = |word: u64| word & PHASE == ANSWERED;
        let word = slot.word.load(Ordering::Acquire);
        if is_answered(word) {
            return Poll::Ready(self.take(slot));
        }
        if word & WAKER != 0 && is_answered(slot.word.fetch_and(!WAKER, Ordering::AcqRel)) {
            return Poll::Ready(self.take(slot));
        }
        *slot.waker() = Some(cx.waker().clone());
        if is_answered(slot.word.fetch_or(WAKER, Ordering::AcqRel)) {
            return Poll::Ready(self.take(slot));
        }
        Poll::Pending
    }
}

impl Waiting {
    fn take(&mut self, slot: &Slot) -> Answer {
        let answer = Answer {
            code: slot.code.load(Ordering::Relaxed),
            data: slot.answer.swap(ptr::null_mut(), Ordering::Relaxed),
            len: slot.answer_len.load(Ordering::Relaxed),
        };
        self.leave(slot);
        answer
    }

    /// Rule 4.
    fn leave(&mut self, slot: &Slot) {
        self.stage = Stage::Over;
        let before = slot.word.fetch_or(GONE, Ordering::AcqRel);
        // One that was not posted is nobody else's.
        if before & PHASE == FREE || before & LEFT != 0 {
            table().give_back(self.index, self.generation);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.stage == Stage::Over {
            return;
        }
        let slot = table().slot(self.index);
        // Rule 3: the cell is this one's again, unless the answer has come, whose thread has it then.
        let before = slot.word.fetch_and(!WAKER, Ordering::AcqRel);
        if before & WAKER != 0 && before & PHASE != ANSWERED {
            drop(slot.waker().take());
        }
        self.leave(slot);
    }
}

/// The answer of a plugin.
#[derive(Debug)]
pub struct Answer {
    /// 0: it has succeeded.
    pub code: i32,
    data: *mut c_void,
    len: c_int,
}

// SAFETY: the buffer is this one's alone, and malloc's buffers belong to no thread.
unsafe impl Send for Answer {}

impl Answer {
    /// The text; `None`: null.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        if self.data.is_null() {
            return None;
        }
        // SAFETY: the plugin says that so many bytes are there, or, where it says none, a text of C.
        Some(unsafe {
            match usize::try_from(self.len) {
                Ok(len @ 1..) => std::slice::from_raw_parts(self.data.cast(), len),
                _ => CStr::from_ptr(self.data.cast()).to_bytes(),
            }
        })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: rule 5; it is this one's alone.
        unsafe { free(self.data) };
    }
}

/// A queue for so many tasks, or null.
#[unsafe(no_mangle)]
pub extern "C" fn ngx_http_lua_ffi_create_task_queue(max_queue: c_int) -> *mut c_void {
    keep_signals(Look::Now);
    let Some(table) = &*TABLE else { return ptr::null_mut() };
    let most = usize::try_from(max_queue).unwrap_or(0);
    table.add_queue(most).map_or(ptr::null_mut(), ptr::without_provenance_mut)
}

/// Posts a task for the code that runs, which then yields: 0, or -1. The request is freed in either case.
///
/// # Safety
/// `request` is null or came from malloc(3), and nobody else has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ngx_http_lua_ffi_task_post(
    _: *mut c_void,
    queue: *mut c_void,
    request: *mut c_char,
    request_len: c_int,
) -> c_int {
    // SAFETY: it is what this thread runs, which lives as long as it does, or null.
    let host = unsafe { entered::current().cast::<Host>().as_ref() };
    let posted = catch_unwind(AssertUnwindSafe(|| post(host, queue.addr(), (request.cast(), request_len))));
    match posted {
        Ok(Ok(())) => {
            keep_signals(Look::AtTimes);
            POSTS.fetch_add(1, Ordering::Relaxed);
            OK
        }
        Ok(Err(Unposted::Free)) => {
            REFUSALS.fetch_add(1, Ordering::Relaxed);
            // SAFETY: rule 5: no slot has it.
            unsafe { free(request.cast()) };
            ERROR
        }
        Ok(Err(Unposted::Freed)) | Err(_) => {
            REFUSALS.fetch_add(1, Ordering::Relaxed);
            ERROR
        }
    }
}

/// How often the handlers of signals are looked after, milliseconds.
const SIGNALS_MS: u64 = 1000;

/// When the handlers of signals are looked after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Now,
    AtTimes,
}

/// When that was, milliseconds of the monotonic clock; 0: never, as no plugin was loaded.
static LOOKED_MS: AtomicU64 = AtomicU64::new(0);

/// Has the server's signals reach it whatever the runtime of a plugin has done to them.
fn keep_signals(look: Look) {
    let now_ms = clock::coarse_ms().max(1);
    if look == Look::Now || now_ms.saturating_sub(LOOKED_MS.load(Ordering::Relaxed)) >= SIGNALS_MS {
        LOOKED_MS.store(now_ms, Ordering::Relaxed);
        signal::pass_on();
    }
}

/// The runtime of a plugin has begun.
pub(crate) fn look_after_signals() {
    keep_signals(Look::Now);
}

/// Whether tasks can be posted to the queue at this address. Any thread.
#[must_use]
pub fn is_open(queue: usize) -> bool {
    let queue = TABLE.as_ref().and_then(|table| table.queue(queue));
    queue.is_some_and(|queue| !queue.is_finished.load(Ordering::Acquire))
}

/// Whether a plugin was loaded, as far as can be seen: it has threads, and things to do at the end of the
/// process. Any thread.
#[must_use]
pub fn is_used() -> bool {
    LOOKED_MS.load(Ordering::Relaxed) > 0
}

/// Whether a request that was not posted is to be freed still.
enum Unposted {
    Free,
    Freed,
}

fn post(host: Option<&Host>, queue: usize, request: (*mut c_void, c_int)) -> Result<(), Unposted> {
    let (Some(host), Some(poster), Some(table)) = (host, POSTER.get(), &*TABLE) else {
        return Err(Unposted::Free);
    };
    let queue = table.queue(queue).filter(|queue| queue.enter()).ok_or(Unposted::Free)?;
    let Some(index) = table.take() else {
        queue.leave();
        return Err(Unposted::Free);
    };
    let slot = table.slot(index);
    let generation = slot.word.load(Ordering::Acquire) >> GENERATION_SHIFT;
    slot.request.store(request.0, Ordering::Relaxed);
    slot.request_len.store(request.1, Ordering::Relaxed);
    // Dropped where nobody takes it, which frees the slot with the request.
    let waiting = Waiting { index, generation, stage: Stage::Waits };
    let mut posting = Posting { host, waiting: Some(waiting) };
    if !poster(&mut posting) {
        queue.leave();
        return Err(Unposted::Freed);
    }
    let is_posted = slot.advance(generation, FREE, POSTED).is_ok();
    debug_assert!(is_posted, "nobody else has it");
    queue.push((index, generation));
    Ok(())
}

/// No more tasks come: those that are there are handed out first.
#[unsafe(no_mangle)]
pub extern "C" fn ngx_http_lua_ffi_task_finish(queue: *mut c_void) -> c_int {
    let found = TABLE.as_ref().and_then(|table| table.queue(queue.addr()));
    found.map_or(ERROR, |queue| {
        queue.finish();
        OK
    })
}

/// The next task, or null when the queue is finished. **Blocks**: for threads of plugins.
#[unsafe(no_mangle)]
pub extern "C" fn ngx_http_lua_ffi_task_poll(queue: *mut c_void) -> *mut c_void {
    let Some(table) = &*TABLE else { return ptr::null_mut() };
    let Some(found) = table.queue(queue.addr()) else { return ptr::null_mut() };
    // What a runtime has done to signals as it began, it has done by the time its first thread comes.
    keep_signals(if found.is_begun.swap(true, Ordering::Relaxed) { Look::AtTimes } else { Look::Now });
    while let Some((index, generation)) = found.poll() {
        if table.slot(index).advance(generation, POSTED, TAKEN).is_ok() {
            return ptr::without_provenance_mut(table.address(index, generation));
        }
    }
    table.remove_queue(queue.addr());
    ptr::null_mut()
}

/// The request of a task, with a zero byte behind it, until the task is answered; null for none.
///
/// # Safety
/// `len` is null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ngx_http_lua_ffi_get_req(task: *mut c_void, len: *mut c_int) -> *mut c_char {
    let found = TABLE.as_ref().and_then(|table| {
        let (index, generation) = table.find(task.addr())?;
        let slot = table.slot(index);
        let word = slot.word.load(Ordering::Acquire);
        let is_there = word >> GENERATION_SHIFT == generation && word & PHASE == TAKEN;
        is_there.then_some(slot)
    });
    let (request, request_len) = found.map_or((ptr::null_mut(), 0), |slot| {
        (slot.request.load(Ordering::Relaxed), slot.request_len.load(Ordering::Relaxed))
    });
    // SAFETY: by the contract.
    if let Some(len) = unsafe { len.as_mut() } {
        *len = request_len;
    }
    request.cast()
}

/// Answers a task. One that is for no task is counted, and its buffer left alone, as it may be the one of an
/// answer before.
///
/// # Safety
/// `answer` is null or came from malloc(3), with so many bytes in it, or a text of C where that is 0; nobody
/// else has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ngx_http_lua_ffi_respond(
    task: *mut c_void,
    code: c_int,
    answer: *mut c_char,
    answer_len: c_int,
) {
    let is_answered = TABLE.as_ref().is_some_and(|table| {
        table.find(task.addr()).is_some_and(|(index, generation)| {
            let slot = table.slot(index);
            if slot.advance(generation, TAKEN, ANSWERING).is_err() {
                return false;
            }
            slot.code.store(code, Ordering::Relaxed);
            slot.answer.store(answer.cast(), Ordering::Relaxed);
            slot.answer_len.store(answer_len, Ordering::Relaxed);
            // Only this thread moves on from ANSWERING.
            let before = slot.word.fetch_add(ANSWERED - ANSWERING, Ordering::AcqRel);
            if before & WAKER != 0
                && let Some(waker) = slot.waker().take()
            {
                wake(waker);
            }
            if slot.word.fetch_or(LEFT, Ordering::AcqRel) & GONE != 0 {
                table.give_back(index, generation);
            }
            true
        })
    });
    let counter = if is_answered { &ANSWERS } else { &ASTRAY };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// No panic reaches C.
fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
