//! Samples of what a thread does while it uses the processor: a timer on its CPU clock sends it a signal,
//! whose handler walks the frames of its stack (stack_walk.rs). A sleeping thread gets none, and since the
//! kernel sends the signal where the thread returns to its own code (Linux 5.9 and later), no system call is
//! cut short by one. Any thread may ask; the handler runs on the sampled one, takes no lock, allocates
//! nothing and writes to its cell only.
//!
//! The state of a cell is (generation, phase). FREE → EMPTY when it is taken; the handler takes EMPTY →
//! WRITING → FULL; the reader FULL → EMPTY. The owner that gives it up takes EMPTY or FULL → FREE of the next
//! generation, or WRITING → DOOMED, and the handler frees it. A handler of an earlier generation finds
//! another value and leaves it alone.
#![expect(unsafe_code, reason = "signal masks, timers, a signal handler")]

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::stack_walk::{self, FRAMES_MAX, Registers, Stack};
use crate::{clock, signal_stack, thread};

/// Threads that can be sampled at the same time.
pub const CELLS: usize = 64;

const FREE: u32 = 0;
const EMPTY: u32 = 1;
const WRITING: u32 = 2;
const FULL: u32 = 3;
const DOOMED: u32 = 4;
const PHASE_BITS: u32 = 3;
/// The timer's value is an index and as much of the generation as fits.
const INDEX_BITS: u32 = 8;

struct Cell {
    state: AtomicU32,
    tid: AtomicU32,
    stack_base: AtomicUsize,
    taken_ns: AtomicU64,
    len: AtomicUsize,
    frames: [AtomicUsize; FRAMES_MAX],
}

static TABLE: [Cell; CELLS] = [const {
    Cell {
        state: AtomicU32::new(0),
        tid: AtomicU32::new(0),
        stack_base: AtomicUsize::new(0),
        taken_ns: AtomicU64::new(0),
        len: AtomicUsize::new(0),
        frames: [const { AtomicUsize::new(0) }; FRAMES_MAX],
    }
}; CELLS];

/// The data for a second look at an interrupted thread.
#[derive(Clone, Debug)]
pub struct Interrupted {
    /// The registers of the interrupted thread.
    pub registers: Registers,
    /// The used part of its stack.
    pub stack: Range<usize>,
    /// Two registers more, which LuaJIT's interpreter has its frame and its next instruction in: rdx and
    /// rbx, or x19 and x21.
    pub interpreter: [usize; 2],
    /// The number of the sampler, below [`CELLS`].
    pub cell: usize,
}

/// A `fn(&Interrupted)`, or 0.
static SECOND_LOOK: AtomicUsize = AtomicUsize::new(0);

/// Has `look` called for each sample, in the signal's handler, after the frames of native code: it must be
/// async-signal-safe. What it keeps for a cell is its own until [`ThreadSampler::take_with`] has it read.
pub fn set_second_look(look: fn(&Interrupted)) {
    SECOND_LOOK.store((look as *const ()).expose_provenance(), Ordering::Release);
}

/// The signal that takes samples: a real-time one that nothing else is known to use.
fn signal_number() -> libc::c_int {
    libc::SIGRTMAX() - 3
}

/// Lets the calling thread be sampled, whatever other signals it has blocked.
pub fn allow() {
    // Without a handler the signal, from any sender, would end the process; without a stack of its own the
    // handler might find no room.
    if install().is_err() || signal_stack::prepare().is_err() {
        return;
    }
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before it is used; the number is that of a signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal_number());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Installs the handler, once in a process.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<i32> = OnceLock::new();
    let errno = *INSTALLED.get_or_init(|| {
        // SAFETY: all zeroes is a valid sigaction.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
        action.sa_sigaction = handler as *const () as usize;
        // SAFETY: an initialised sigaction, whose handler has the form that SA_SIGINFO asks for.
        match unsafe { libc::sigaction(signal_number(), &raw const action, ptr::null_mut()) } {
            0 => 0,
            _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
        }
    });
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// One thread that is sampled for as long as this lives.
#[derive(Debug)]
pub struct ThreadSampler {
    timer: libc::timer_t,
    index: usize,
    generation: u32,
}

// SAFETY: a timer belongs to the process; any thread may set and delete it.
unsafe impl Send for ThreadSampler {}

impl ThreadSampler {
    /// Samples thread `tid` of this process whenever it has used the processor for `period` (or the
    /// kernel's tick, where that is longer). It must have called [`allow`]. `stack_base` is an address on
    /// its stack, at which the walk ends.
    ///
    /// # Errors
    /// EAGAIN when [`CELLS`] threads are sampled already; as sigaction(2) and timer_create(2): EINVAL when
    /// the thread has ended.
    pub fn start(tid: u32, stack_base: usize, period: Duration) -> io::Result<Self> {
        install()?;
        let taken = TABLE.iter().position(|cell| {
            let free = cell.state.load(Ordering::Relaxed);
            free & ((1 << PHASE_BITS) - 1) == FREE
                && cell
                    .state
                    .compare_exchange(free, free | EMPTY, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        });
        let index = taken.ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))?;
        let cell = &TABLE[index];
        let generation = cell.state.load(Ordering::Relaxed) >> PHASE_BITS;
        cell.tid.store(tid, Ordering::Relaxed);
        cell.stack_base.store(stack_base, Ordering::Release);
        match create_timer(tid, index, generation) {
            Ok(timer) => {
                let sampler = Self { timer, index, generation };
                sampler.set_period(period)?;
                Ok(sampler)
            }
            Err(error) => {
                give_up(cell, generation);
                Err(error)
            }
        }
    }

    /// Samples in this rhythm from now on.
    ///
    /// # Errors
    /// As timer_settime(2).
    pub fn set_period(&self, period: Duration) -> io::Result<()> {
        let time = libc::timespec {
            tv_sec: period.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: period.subsec_nanos().into(),
        };
        let setting = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer lives as long as this; reads an initialised setting, asks for no old one.
        match unsafe { libc::timer_settime(self.timer, 0, &raw const setting, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes the sample that is there, if any: addresses of code, the innermost first, put into `frames`.
    /// When it was taken, monotonic clock, nanoseconds.
    pub fn take(&self, frames: &mut Vec<usize>) -> Option<u64> {
        self.take_with(frames, || {})
    }

    /// The number of this sampler, below [`CELLS`]; another one has it afterwards.
    #[must_use]
    pub fn cell(&self) -> usize {
        self.index
    }

    /// As [`ThreadSampler::take`]; `also` may read what the second look has kept for this cell.
    pub fn take_with(&self, frames: &mut Vec<usize>, also: impl FnOnce()) -> Option<u64> {
        let cell = &TABLE[self.index];
        if cell.state.load(Ordering::Acquire) != self.generation << PHASE_BITS | FULL {
            return None;
        }
        frames.clear();
        let len = cell.len.load(Ordering::Relaxed).min(FRAMES_MAX);
        frames.extend(cell.frames[..len].iter().map(|frame| frame.load(Ordering::Relaxed)));
        let taken_ns = cell.taken_ns.load(Ordering::Relaxed);
        also();
        cell.state.store(self.generation << PHASE_BITS | EMPTY, Ordering::Release);
        Some(taken_ns)
    }
}

impl Drop for ThreadSampler {
    fn drop(&mut self) {
        // SAFETY: the timer lives until here, and nobody uses it any more.
        unsafe { libc::timer_delete(self.timer) };
        give_up(&TABLE[self.index], self.generation);
    }
}

fn create_timer(tid: u32, index: usize, generation: u32) -> io::Result<libc::timer_t> {
    // SAFETY: all zeroes is a valid sigevent.
    let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal_number();
    event.sigev_notify_thread_id = tid.cast_signed();
    event.sigev_value.sival_ptr = ptr::without_provenance_mut(value_of(index, generation));
    let mut timer: libc::timer_t = ptr::null_mut();
    // SAFETY: reads an initialised sigevent, writes the timer's id.
    match unsafe { libc::timer_create(thread::cpu_clock(tid), &raw mut event, &raw mut timer) } {
        0 => Ok(timer),
        _ => Err(io::Error::last_os_error()),
    }
}

fn value_of(index: usize, generation: u32) -> usize {
    index | (generation as usize) << INDEX_BITS
}

fn give_up(cell: &Cell, generation: u32) {
    let phase = |phase| generation << PHASE_BITS | phase;
    let next = generation.wrapping_add(1) << PHASE_BITS | FREE;
    let _ = cell.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |state| {
        if state == phase(WRITING) { Some(phase(DOOMED)) } else { Some(next) }
    });
}

/// Async-signal-safe: atomics, and system calls that are; what interrupted code has in errno stays there.
extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the calling thread's errno, which lives as long as the thread.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel gives a handler with SA_SIGINFO both.
    let (info, context) = unsafe { (&*info, &*context.cast::<libc::ucontext_t>()) };
    take_sample(info, context);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Takes a sample into the cell that the timer names.
fn take_sample(info: &libc::siginfo_t, context: &libc::ucontext_t) {
    if info.si_code != libc::SI_TIMER {
        return;
    }
    // SAFETY: set for signals of timers.
    let value = unsafe { info.si_value() }.sival_ptr.addr();
    let index = value & ((1 << INDEX_BITS) - 1);
    let Some(cell) = TABLE.get(index) else { return };
    let state = cell.state.load(Ordering::Acquire);
    let generation = state >> PHASE_BITS;
    let (empty, writing) = (generation << PHASE_BITS | EMPTY, generation << PHASE_BITS | WRITING);
    if value != value_of(index, generation)
        || cell.state.compare_exchange(empty, writing, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return;
    }
    let mut len = 0;
    if cell.tid.load(Ordering::Relaxed) == thread::current() {
        let registers = Registers::of_context(context);
        let base = cell.stack_base.load(Ordering::Relaxed);
        // SAFETY: all of this range is mapped for as long as this thread lives.
        if let Some(stack) = unsafe { Stack::own(registers.sp, base, &signal_stack::own()) } {
            stack_walk::walk(registers, &stack, |address| {
                cell.frames[len].store(address, Ordering::Relaxed);
                len += 1;
            });
        } else {
            cell.frames[0].store(registers.pc, Ordering::Relaxed);
            len = 1;
        }
        look_again(Interrupted {
            registers,
            stack: registers.sp..base,
            interpreter: stack_walk::interpreter_registers(context),
            cell: index,
        });
    }
    cell.len.store(len, Ordering::Relaxed);
    cell.taken_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
    let full = generation << PHASE_BITS | FULL;
    if cell.state.compare_exchange(writing, full, Ordering::Release, Ordering::Relaxed).is_err() {
        cell.state.store(generation.wrapping_add(1) << PHASE_BITS | FREE, Ordering::Release);
    }
}

fn look_again(interrupted: Interrupted) {
    let look = SECOND_LOOK.load(Ordering::Acquire);
    if look != 0 {
        let look = ptr::with_exposed_provenance::<()>(look);
        // SAFETY: `set_second_look` has stored a function of this type, which is never freed.
        let look = unsafe { std::mem::transmute::<*const (), fn(&Interrupted)>(look) };
        look(&interrupted);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test has no loop to block")]

    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;
    use crate::poll;

    /// A thread that may be sampled, doing `work` until it is told to end. Its id and stack.
    fn worker(work: impl Fn() + Send + 'static) -> (u32, usize, impl FnOnce()) {
        let end = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = std::sync::mpsc::channel();
        let ended = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            let tid = thread::current();
            allow();
            sender.send((tid, (&raw const tid).addr())).unwrap();
            while !ended.load(Ordering::Relaxed) {
                work();
            }
        });
        let (tid, base) = receiver.recv().unwrap();
        let stop = move || {
            end.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        };
        (tid, base, stop)
    }

    #[inline(never)]
    fn burn() {
        for i in 0..10_000 {
            std::hint::black_box(i);
        }
    }

    #[test]
    fn who_burns_is_sampled_with_its_callers() {
        let (tid, base, stop) = worker(burn);
        let sampler = ThreadSampler::start(tid, base, Duration::from_millis(1)).unwrap();
        let begun = Instant::now();
        let (mut frames, mut samples, mut with_callers) = (Vec::new(), 0, 0);
        while with_callers < 5 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{with_callers} of {samples} samples");
            if sampler.take(&mut frames).is_some() {
                samples += 1;
                // One that is met while it enters a function or leaves one has no frame to walk from.
                with_callers += u32::from(frames.len() >= 2);
            }
            std::thread::yield_now();
        }
        assert!(with_callers * 2 >= samples, "{with_callers} of {samples} samples have callers");
        drop(sampler);
        stop();
    }

    /// An address in our code that seems to follow a call through a place that is not mapped: a walk that
    /// meets it asks the kernel in vain.
    #[cfg(target_arch = "x86_64")]
    fn behind_no_call() -> usize {
        let text = crate::program::text();
        let candidates = (text.start + 4096)..(text.end - 4096);
        let calls_nowhere = |&address: &usize| {
            let at = ptr::with_exposed_provenance::<[u8; 6]>(address - 6);
            // SAFETY: in the program's own code, which stays mapped and is never written.
            let [0xff, 0x15, offset @ ..] = (unsafe { at.read() }) else { return false };
            let place = address.wrapping_add_signed(i32::from_le_bytes(offset) as isize);
            stack_walk::copy_text(place, 8).is_err()
        };
        candidates.into_iter().find(calls_nowhere).expect("some bytes look so")
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn interrupted_code_keeps_its_errno() {
        let address = behind_no_call();
        let (end, changed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (ended, counted) = (Arc::clone(&end), Arc::clone(&changed));
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            allow();
            // What a request has left on the stack: the walk looks through it, as its base ends the chain.
            let left = std::hint::black_box([address; 64]);
            sender.send((thread::current(), left.as_ptr_range().end.addr())).unwrap();
            while !ended.load(Ordering::Relaxed) {
                // SAFETY: this thread's own errno.
                unsafe { *libc::__errno_location() = libc::EAGAIN };
                burn();
                // SAFETY: as above.
                let errno = unsafe { *libc::__errno_location() };
                counted.fetch_add(u32::from(errno != libc::EAGAIN), Ordering::Relaxed);
            }
            std::hint::black_box(left);
        });
        let (tid, base) = receiver.recv().unwrap();
        let sampler = ThreadSampler::start(tid, base, Duration::from_millis(1)).unwrap();
        let (begun, mut frames, mut samples) = (Instant::now(), Vec::new(), 0);
        while samples < 50 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{samples} samples");
            samples += u32::from(sampler.take(&mut frames).is_some());
            std::thread::yield_now();
        }
        end.store(true, Ordering::Relaxed);
        drop(sampler);
        thread.join().unwrap();
        assert_eq!(changed.load(Ordering::Relaxed), 0);
    }

    static ENDS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn burn_until_told(_: libc::c_int) {
        while ENDS.load(Ordering::Relaxed) == 0 {
            burn();
        }
    }

    /// A thread burns on a stack that somebody else made, below a page that is not mapped, which in turn lies
    /// below what is said to be its base: the walk must not run into that page.
    #[test]
    fn a_foreign_stack_is_not_walked() {
        const BYTES: usize = 256 << 10;
        const GUARD: usize = 16 << 10;
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            allow();
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping, which outlives its use; a handler that is installed for one signal of
            // this test, runs on it and comes back; the previous stack is put back then.
            unsafe {
                let memory = libc::mmap(ptr::null_mut(), 2 * BYTES, protection, flags, -1, 0);
                assert_ne!(memory, libc::MAP_FAILED);
                assert_eq!(libc::mprotect(memory.byte_add(BYTES - GUARD), GUARD, libc::PROT_NONE), 0);
                let mut before = MaybeUninit::uninit();
                let foreign = libc::stack_t { ss_sp: memory, ss_flags: 0, ss_size: BYTES - GUARD };
                assert_eq!(libc::sigaltstack(&raw const foreign, before.as_mut_ptr()), 0);
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_flags = libc::SA_ONSTACK;
                let handler: extern "C" fn(libc::c_int) = burn_until_told;
                action.sa_sigaction = handler as *const () as usize;
                assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
                sender.send((thread::current(), memory.addr() + BYTES + 4096)).unwrap();
                libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1);
                libc::sigaltstack(before.as_ptr(), ptr::null_mut());
                libc::munmap(memory, 2 * BYTES);
            }
        });
        let (tid, base) = receiver.recv().unwrap();
        let sampler = ThreadSampler::start(tid, base, Duration::from_millis(1)).unwrap();
        let (begun, mut frames, mut samples) = (Instant::now(), Vec::new(), 0);
        while samples < 20 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            if sampler.take(&mut frames).is_some() {
                samples += 1;
                assert_eq!(frames.len(), 1, "the place alone: {frames:x?}");
            }
            std::thread::yield_now();
        }
        ENDS.store(1, Ordering::Relaxed);
        drop(sampler);
        thread.join().unwrap();
    }

    #[test]
    fn who_sleeps_in_poll_is_not_disturbed() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (tid, base, stop) = worker(move || {
            burn();
            let begun = Instant::now();
            // Raw, as a foreign library would call it: nothing here tries again.
            // SAFETY: no descriptors.
            let result = unsafe { libc::poll(ptr::null_mut(), 0, 3) };
            sender.send((result, begun.elapsed())).unwrap();
        });
        let sampler = ThreadSampler::start(tid, base, Duration::from_millis(1)).unwrap();
        let mut frames = Vec::new();
        for _ in 0..200 {
            let (result, took) = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!(result, 0, "cut short");
            assert!(took >= Duration::from_millis(3), "{took:?}");
            sampler.take(&mut frames);
        }
        drop(sampler);
        stop();
        assert_eq!(poll::wait(&[], Some(Duration::ZERO)).unwrap(), [false; 0]);
    }

    #[test]
    fn cells_come_back() {
        let (tid, base, stop) = worker(burn);
        for _ in 0..3 * CELLS {
            drop(ThreadSampler::start(tid, base, Duration::from_millis(1)).unwrap());
        }
        stop();
        // A thread is joined a moment before the kernel has forgotten it, and it depends on how far it has
        // gone which call finds that out.
        let code = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            ThreadSampler::start(tid, base, Duration::from_millis(1)).err()?.raw_os_error()
        });
        assert!(matches!(code, Some(libc::EINVAL | libc::ESRCH)), "{code:?}");
    }
}
