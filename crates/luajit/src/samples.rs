//! Samples of threads that may be in Lua: `os::sampling`'s, and with each one the stack of Lua that was
//! there. The same signal ends what runs for too long, and slices of time.
#![expect(unsafe_code, reason = "cells that a signal's handler writes")]

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use clearway_os::sampling::{self, CELLS, Interrupted, ThreadSampler};
use clearway_os::thread;

use crate::interrupt::{self, Why};
use crate::registry::Run;
use crate::walk::{LuaStack, Registers};

struct Cell {
    stack: UnsafeCell<LuaStack>,
    /// The time for which the thread has been at its present work, nanoseconds: samples end runs whose limit
    /// has passed.
    held_ns: AtomicU64,
}

// SAFETY: `os::sampling` has one sampler for a cell, and its states give the stack to the handler or to the
// reader of the sample, never to both.
unsafe impl Sync for Cell {}

static TABLE: [Cell; CELLS] =
    [const { Cell { stack: UnsafeCell::new(LuaStack::EMPTY), held_ns: AtomicU64::new(0) } }; CELLS];

/// A thread that is sampled for as long as this lives.
#[derive(Debug)]
pub struct Sampler(ThreadSampler);

impl Sampler {
    /// As [`ThreadSampler::start`].
    ///
    /// # Errors
    /// As [`ThreadSampler::start`].
    pub fn start(tid: u32, stack_base: usize, period: Duration) -> io::Result<Self> {
        sampling::set_second_look(look);
        ThreadSampler::start(tid, stack_base, period).map(Self)
    }

    /// As [`ThreadSampler::set_period`].
    ///
    /// # Errors
    /// As [`ThreadSampler::set_period`].
    pub fn set_period(&self, period: Duration) -> io::Result<()> {
        self.0.set_period(period)
    }

    /// Says for how long the thread has been at what it is at. Samples end a run of Lua that may not take as
    /// long ([`crate::Vm::limit_runs`]).
    pub fn set_held(&self, held: Duration) {
        let held_ns = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
        TABLE[self.0.cell()].held_ns.store(held_ns, Ordering::Relaxed);
    }

    /// Takes the sample that is there, if any: as [`ThreadSampler::take`], and the stack of Lua.
    pub fn take(&self, frames: &mut Vec<usize>, lua: &mut LuaStack) -> Option<u64> {
        let cell = &TABLE[self.0.cell()];
        self.0.take_with(frames, || {
            // SAFETY: the sample is there and not given back, so the handler leaves the cell alone.
            *lua = unsafe { *cell.stack.get() };
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // Before another one may have the cell.
        TABLE[self.0.cell()].held_ns.store(0, Ordering::Relaxed);
    }
}

/// How often a thread is looked at that runs [`watched`].
const WATCH_PERIOD: Duration = Duration::from_millis(10);

/// Runs something on this thread while another one takes its samples, so that limits of runs hold
/// ([`crate::Vm::limit_runs`]) where nobody looks at it otherwise. **Starts a thread**, which is over when
/// this returns; without one it runs unwatched.
pub fn watched<R>(run: impl FnOnce() -> R) -> R {
    let here = 0_u8;
    let (tid, base) = (thread::current(), (&raw const here).addr());
    sampling::allow();
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let look = move || {
            let Ok(sampler) = Sampler::start(tid, base, WATCH_PERIOD) else { return };
            let (began, mut frames, mut lua) = (Instant::now(), Vec::new(), LuaStack::default());
            while is_over.recv_timeout(WATCH_PERIOD) == Err(RecvTimeoutError::Timeout) {
                sampler.set_held(began.elapsed());
                // One that is not taken keeps the next one from being.
                frames.clear();
                sampler.take(&mut frames, &mut lua);
            }
        };
        let looking = std::thread::Builder::new().name("lua-watch".to_owned()).spawn_scoped(scope, look);
        let result = run();
        drop((over, looking));
        result
    })
}

/// In the signal's handler.
fn look(interrupted: &Interrupted) {
    let cell = &TABLE[interrupted.cell];
    // SAFETY: the handler has the cell until the sample is complete.
    let stack = unsafe { &mut *cell.stack.get() };
    let Some(run) = Run::on(&interrupted.stack) else {
        stack.clear();
        return;
    };
    let pc = interrupted.registers.pc;
    let [base, bytecode] = interrupted.interpreter;
    stack.read(&run, Some(&Registers { pc, base, bytecode }));
    let held_ns = cell.held_ns.load(Ordering::Relaxed);
    let why = if held_ns >= run.limit_ns() {
        Why::TooLong
    } else if held_ns >= run.slice_ns() {
        Why::SliceOver
    } else {
        return;
    };
    // Where it cannot be done now the next sample tries again.
    // SAFETY: this is the handler, and the run was found by it.
    let _ = unsafe { interrupt::end_run(&run, pc, why) };
}
