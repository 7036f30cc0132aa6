//! Samples of threads that may be in Lua: `os::sampling`'s, and with each one the stack of Lua that was
//! there. The same signal ends what runs for too long.
#![expect(unsafe_code, reason = "cells that a signal's handler writes")]

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clearway_os::sampling::{self, CELLS, Interrupted, ThreadSampler};

use crate::interrupt::{self, Interrupted as Outcome};
use crate::registry::Run;
use crate::walk::{LuaStack, Registers};

struct Cell {
    stack: UnsafeCell<LuaStack>,
    /// The next sample ends the run that it finds.
    ends: AtomicBool,
}

// SAFETY: `os::sampling` has one sampler for a cell, and its states give the stack to the handler or to the
// one who reads the sample, never to both.
unsafe impl Sync for Cell {}

static TABLE: [Cell; CELLS] =
    [const { Cell { stack: UnsafeCell::new(LuaStack::EMPTY), ends: AtomicBool::new(false) } }; CELLS];

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

    /// Has the next sample that can end the run of Lua that it finds. It must not be asked for before the
    /// one who wants it has seen that run go on for too long.
    pub fn end_run(&self) {
        TABLE[self.0.cell()].ends.store(true, Ordering::Relaxed);
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
        TABLE[self.0.cell()].ends.store(false, Ordering::Relaxed);
    }
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
    if cell.ends.load(Ordering::Relaxed) {
        // SAFETY: this is the handler, and the run was found by it.
        let outcome = unsafe { interrupt::run_too_long(&run, pc) };
        if outcome == Outcome::Armed {
            cell.ends.store(false, Ordering::Relaxed);
        }
    }
}
