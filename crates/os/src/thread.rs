//! Threads seen from outside: identity, CPU clock, state, priority, memory barriers across threads.
#![expect(unsafe_code, reason = "calls that rustix does not wrap")]

use std::io;

use rustix::thread::{CpuSet, Pid};

/// The kernel's id of the calling thread.
#[must_use]
pub fn current() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// CPU time that thread `tid` of this process has used, in nanoseconds; `None` if it has ended.
#[must_use]
pub fn cpu_ns(tid: u32) -> Option<u64> {
    let clock = cpu_clock(tid);
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; a clock id that names nothing is EINVAL.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// How often the calling thread has given up its processor by itself, to wait for something.
#[must_use]
pub fn own_waits() -> u64 {
    // SAFETY: all zeros is a valid rusage, which has numbers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage to write to; RUSAGE_THREAD is known since Linux 2.6.26.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    debug_assert!(result == 0, "the arguments are good ones");
    usage.ru_nvcsw.unsigned_abs()
}

/// The CPU clock of thread `tid`.
pub(crate) fn cpu_clock(tid: u32) -> libc::clockid_t {
    // The kernel's encoding of per-thread clocks: see pthread_getcpuclockid(3) and
    // CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED in include/linux/posix-timers_types.h.
    (!tid.cast_signed() << 3) | 6
}

/// The state of one thread of this process, to be asked repeatedly: procfs stays open.
#[derive(Debug)]
pub struct StateFile(rustix::fd::OwnedFd);

impl StateFile {
    /// Opens a file of procfs: not for loops.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(tid: u32) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        let path = format!("/proc/self/task/{tid}/stat");
        Ok(Self(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// The letter as in proc(5) (`R` runnable, `S` asleep, `D` waiting for a disk); `None` if the
    /// thread has ended.
    #[must_use]
    pub fn letter(&self) -> Option<u8> {
        let mut text = [0_u8; 256];
        let size = rustix::io::pread(&self.0, &mut text, 0).ok()?;
        let text = &text[..size];
        // The name in parentheses may hold anything, so the last one closes it.
        let end = text.iter().rposition(|&b| b == b')')?;
        text.get(end + 2).copied()
    }
}

/// A set of processors that threads may run on (`worker_cpu_affinity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors(CpuSet);

impl Processors {
    /// The processors of these numbers, counted from 0.
    ///
    /// # Errors
    /// `InvalidInput` for a number that no processor can have.
    pub fn of(numbers: &[usize]) -> io::Result<Self> {
        let mut set = CpuSet::new();
        for &number in numbers {
            if number >= CpuSet::MAX_CPU {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such processor"));
            }
            set.set(number);
        }
        Ok(Self(set))
    }

    /// The settings of the calling thread.
    ///
    /// # Errors
    /// As sched_getaffinity(2).
    pub fn own() -> io::Result<Self> {
        Ok(Self(rustix::thread::sched_getaffinity(None)?))
    }

    /// Lets thread `tid` of this process run on these only.
    ///
    /// # Errors
    /// As sched_setaffinity(2): EINVAL if none of them is there, ESRCH if the thread has ended.
    pub fn bind(&self, tid: u32) -> io::Result<()> {
        Ok(rustix::thread::sched_setaffinity(Pid::from_raw(tid.cast_signed()), &self.0)?)
    }
}

/// The nice value of thread `tid`.
///
/// # Errors
/// As getpriority(2).
pub fn nice(tid: u32) -> io::Result<i32> {
    Ok(rustix::process::getpriority_process(Pid::from_raw(tid.cast_signed()))?)
}

/// Whether there is no thread `tid` (any more).
#[must_use]
pub fn has_ended(tid: u32) -> bool {
    rustix::process::getpriority_process(Pid::from_raw(tid.cast_signed())) == Err(rustix::io::Errno::SRCH)
}

/// Scheduling policies without a real-time priority, see sched(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// SCHED_OTHER.
    Normal,
    /// SCHED_BATCH: does not preempt others when it wakes.
    Batch,
}

/// The head of `struct sched_attr` (sched_setattr(2)), version 0.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives thread `tid` a scheduling policy (anybody may leave SCHED_BATCH again), a nice value, and the
/// time for which it wants the processor at a stretch (Linux 6.12 and later; earlier ones ignore it):
/// a thread that asks for less is let in earlier. `slice_us` is 0 for the system's default.
///
/// # Errors
/// As sched_setattr(2): EACCES or EPERM to raise a priority without the right to.
pub fn schedule(tid: u32, policy: Policy, nice: i32, slice_us: u64) -> io::Result<()> {
    let policy = match policy {
        Policy::Normal => libc::SCHED_OTHER,
        Policy::Batch => libc::SCHED_BATCH,
    };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: policy.unsigned_abs(),
        nice,
        runtime: slice_us * 1000,
        ..Attributes::default()
    };
    // SAFETY: reads a sched_attr of the size that it says; a thread that has ended is ESRCH.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, tid.cast_signed(), &raw const attributes, 0_u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes timed sleeps of the calling thread as exact as the kernel can (timer slack of 1 ns).
pub fn sleep_exactly() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}

/// Registers this process for [`barrier`]; `false` where the kernel does not offer it.
#[must_use]
pub fn register_barrier() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

/// A full memory barrier on every running thread of this process, so that the others need only a
/// compiler fence. See membarrier(2).
pub fn barrier() {
    use rustix::thread::{MembarrierCommand, membarrier};
    let done = membarrier(MembarrierCommand::PrivateExpedited);
    debug_assert!(done.is_ok(), "registered at start: {done:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a thread that is thrown away")]
    fn a_thread_is_bound_to_processors_that_are_there() {
        std::thread::spawn(|| {
            let before = Processors::own().unwrap();
            let some = (0..CpuSet::MAX_CPU).find(|&cpu| before.0.is_set(cpu)).unwrap();
            let one = Processors::of(&[some]).unwrap();
            one.bind(current()).unwrap();
            assert_eq!(Processors::own().unwrap(), one);
            before.bind(current()).unwrap();
            assert_eq!(Processors::own().unwrap(), before);
            assert!(Processors::of(&[]).unwrap().bind(current()).is_err());
            assert!(Processors::of(&[CpuSet::MAX_CPU]).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn sees_itself() {
        let tid = current();
        assert_eq!(StateFile::open(tid).unwrap().letter(), Some(b'R'));
        let before = cpu_ns(tid).unwrap();
        while cpu_ns(tid).unwrap() == before {}
        assert_eq!(cpu_ns(1 << 21), None);
    }

    const NORMAL: &str = "0";
    const BATCH: &str = "3";

    /// The kernel's number of a thread's policy: field 41 of its stat file, the name in parentheses is 2.
    #[expect(clippy::disallowed_methods, reason = "a test's own thread may block")]
    fn sched_policy(tid: u32) -> String {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(41 - 3).unwrap().to_owned()
    }

    #[test]
    fn batch_can_be_left_again() {
        let tid = current();
        let before = nice(tid).unwrap();
        let is_as_it_was = || nice(tid).unwrap() == before && sched_policy(tid) == NORMAL;
        assert!(is_as_it_was());
        schedule(tid, Policy::Batch, before, 0).unwrap();
        assert!(nice(tid).unwrap() == before && sched_policy(tid) == BATCH);
        schedule(tid, Policy::Normal, before, 1000).unwrap();
        assert!(is_as_it_was());
    }

    #[test]
    fn barrier_needs_no_privilege() {
        if register_barrier() {
            barrier();
        }
    }
}
