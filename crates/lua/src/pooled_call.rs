//! One call of `ngx.run_worker_thread`, on a thread of its pool: finds the function, runs it as its entry
//! thread with all that it waits for, and takes its results out of the VM. What it waits for (timers,
//! sockets) belongs to the loop of the caller, whose events wake this thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use clearway_luajit::{Coroutine, Reference};
use clearway_offload::{Bell, Blocking};
use clearway_runtime::{LoopRef, TaskCell};

use crate::alone::Alone;
use crate::copy;
use crate::current::LuaPhase;
use crate::phases::scheduler::{Ended, Failure, Ground, Schedule};
use crate::place::AlonePlace;
use crate::vm::interpreter::{Interpreter, VmSettings};
use crate::vm::of_loop::{Chosen, Slot};
use crate::vm::state::VmPlace;

/// How much more memory a VM has than after the last collection, beside twice as much as then, when all its
/// garbage is collected behind a call.
const COLLECT_BYTES: usize = 8 << 20;

/// The function to call, and its arguments.
pub(crate) struct Call {
    /// The names of a module and of its function, and the arguments, copied.
    pub(crate) arguments: Vec<u8>,
    /// The caller's loop.
    pub(crate) home: LoopRef,
    pub(crate) place: AlonePlace,
    /// The caller's worker.
    pub(crate) caller: VmPlace,
}

/// The result of a call.
pub(crate) enum PooledOutcome {
    /// Results, copied.
    Returned(Vec<u8>),
    Failed(Vec<u8>),
}

/// A VM with what calls need.
pub(crate) struct Worker {
    slot: Arc<Slot>,
    /// Takes the names of a module and a function, and arguments.
    entry: Reference,
    parker: Arc<Parker>,
    waker: Waker,
    /// Bytes behind the last collection.
    collected: AtomicUsize,
}

impl Worker {
    /// Makes a VM in which no code of the configuration has run.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn new(settings: &VmSettings, place: VmPlace, home: LoopRef) -> Result<Self, String> {
        let mut interpreter = Interpreter::new(settings, place)?;
        let entry = crate::api::worker_thread::entry(&mut interpreter.vm, &mut interpreter.state);
        let entry = entry.map_err(|fault| fault.to_string())?;
        let parker = Arc::new(Parker { bell: Bell::new(), is_woken: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&parker));
        let collected = AtomicUsize::new(interpreter.vm.memory());
        Ok(Self { slot: Slot::apart(interpreter, home), entry, parker, waker, collected })
    }

    /// Whether nothing is run in it any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.slot.is_poisoned()
    }

    fn start(&self, interpreter: &mut Interpreter, call: &Call) -> Coroutine {
        interpreter.state.place = call.caller;
        interpreter.state.delivered = None;
        let coroutine = interpreter.vm.start(&self.entry);
        let mut stack = interpreter.vm.stack(&coroutine);
        copy::read(&mut stack, &call.arguments);
        debug_assert!(stack.len() >= 2, "a module and its function are named");
        coroutine
    }

    /// Takes the results of the call, and makes the VM ready for the next one.
    fn finish(&self) -> Option<Result<Vec<u8>, String>> {
        let mut interpreter = self.slot.try_enter(&Context::from_waker(&self.waker))?;
        let delivered = interpreter.state.delivered.take();
        let (memory, before) = (interpreter.vm.memory(), self.collected.load(Ordering::Relaxed));
        if memory > 2 * before + COLLECT_BYTES && !interpreter.vm.is_poisoned() {
            interpreter.vm.collect();
            self.collected.store(interpreter.vm.memory(), Ordering::Relaxed);
        }
        delivered
    }
}

/// Runs a call to its end. **Blocks.**
pub(crate) fn run(worker: &Worker, call: Call, blocking: &Blocking) -> PooledOutcome {
    let alone = Arc::new(Alone {
        home: call.home,
        place: call.place.clone(),
        slot: Arc::clone(&worker.slot),
        kept: TaskCell::default(),
        #[cfg(feature = "tls")]
        shaking: None,
    });
    let mut start = |interpreter: &mut Interpreter| Ok(worker.start(interpreter, &call));
    let (mut chosen, mut ground) = (Chosen::again(Arc::clone(&worker.slot)), Ground::Alone(&alone));
    let mut schedule = Schedule::new(LuaPhase::WorkerThread);
    let ended = worker.block_on(schedule.run(&mut ground, &mut chosen, &mut start), blocking);
    drop(schedule);
    let delivered = worker.finish();
    match (ended, delivered) {
        (Ended::Finished, Some(Ok(results))) => PooledOutcome::Returned(results),
        (Ended::Finished, Some(Err(text))) => PooledOutcome::Failed(text.into_bytes()),
        (Ended::Finished, None) => PooledOutcome::Returned(Vec::new()),
        (Ended::Failed(Failure::Run(fault)), _) => PooledOutcome::Failed(fault.text().to_vec()),
        (Ended::Failed(Failure::Load(text)), _) => PooledOutcome::Failed(text),
        (Ended::Asked(_) | Ended::Left(_), _) => PooledOutcome::Failed(b"aborted".to_vec()),
    }
}

/// Has a thread sleep until what it waits for is there.
struct Parker {
    bell: Bell,
    is_woken: AtomicBool,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The one before has rung, and the thread has not looked since.
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }
}

impl Worker {
    fn block_on<F: Future>(&self, future: F, blocking: &Blocking) -> F::Output {
        let (mut future, mut cx) = (pin!(future), Context::from_waker(&self.waker));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            let is_woken = || self.parker.is_woken.load(Ordering::Acquire);
            while !self.parker.is_woken.swap(false, Ordering::AcqRel) {
                self.parker.bell.sleep(blocking, None, is_woken);
            }
        }
    }
}
