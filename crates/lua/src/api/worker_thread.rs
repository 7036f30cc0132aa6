//! `ngx.run_worker_thread`: a function of a module runs in a VM of a thread pool. Here is the caller's side,
//! and what such a VM has in addition; `pooled` has the VMs.

use std::sync::Arc;
use std::task::Poll;

use clearway_luajit::{Call, Fault, Raise, Reference, Returns, Value, Vm};
use clearway_offload::Task;
use clearway_runtime::{LoopRef, Timer};

use super::room::{Install, put};
use super::timer::place_of;
use crate::copy;
use crate::current::{Current, LuaPhase, Pause, Phases, YIELDABLE, allow, current, pause};
use crate::place::AlonePlace;
use crate::pooled::{OfPool, POOLED, Pooled, Refusal, Which};
use crate::pooled_call::{self, PooledOutcome};
use crate::threads::{Answers, Operation};
use crate::vm::state::VmState;

/// The phases in which the call is allowed: a VM of a pool would wait for another one of the same pool.
const CALLING: Phases = YIELDABLE.without(Phases::of(&[LuaPhase::WorkerThread]));

/// Arguments before those of the function.
const NAMES: i32 = 3;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| put(stack, "run_worker_thread", run_worker_thread));
    Ok(())
}

/// Adds a function for calls to a VM of a pool, which other code does not see.
///
/// # Errors
/// What a chunk of the server's own Lua raised.
pub(crate) fn entry(vm: &mut Vm, state: &mut VmState) -> Result<Reference, Fault> {
    let mut install = Install { vm, state };
    install.table("", |stack| put(stack, "_deliver", deliver));
    install.run(include_str!("worker_thread.lua"), c"=ngx.run_worker_thread")?;
    let mut stack = vm.enter();
    stack.push_globals();
    stack.raw_field(-1, "ngx");
    stack.raw_field(-1, "_entry");
    let entry = stack.take_reference();
    stack.push(());
    stack.raw_set_field(-2, "_entry");
    stack.pop(2);
    Ok(entry)
}

/// Takes results out of the VM.
fn deliver(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let copied = copy_from(call, 1).map_err(|refused| format!("{refused} in the return value"));
    current(call, |current| current.vm.delivered = Some(copied))?;
    Ok(Returns::Values(0))
}

/// Copies the arguments from this one on.
fn copy_from(call: &mut Call<'_>, first: i32) -> Result<Vec<u8>, copy::Refused> {
    let mut copied = Vec::with_capacity(64);
    for at in first..=call.arguments() {
        copy::write(&mut call.stack, at, &mut copied)?;
    }
    Ok(copied)
}

/// The parsed first argument.
struct Wanted {
    pool: Vec<u8>,
    key: Option<Vec<u8>>,
    slot: Option<u64>,
    timeout_ms: Option<u64>,
}

fn run_worker_thread(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, CALLING)?;
    if call.arguments() < NAMES {
        return refuse(call, "expecting at least 3 arguments");
    }
    let Some(wanted) = read_wanted(call) else { return refuse(call, "threadpool should be a string") };
    let Some(pooled) = current(call, find_pooled)? else {
        return refuse(call, "no request found");
    };
    let Some(of_pool) = pooled.find(&wanted.pool) else {
        return refuse(call, &[b"thread pool ", &wanted.pool[..], b" not found"].concat()[..]);
    };
    if call.stack.text(2).is_none() {
        return refuse(call, "module name should be a string");
    }
    if call.stack.text(3).is_none() {
        return refuse(call, "function name should be a string");
    }
    let arguments = match copy_from(call, 2) {
        Ok(arguments) => arguments,
        Err(refused) => return refuse(call, &*format!("{refused} in the argument")),
    };
    if pooled.wants_paths() {
        say_paths(call, &pooled);
    }
    let Some((call_of, home)) = current(call, |current| make(current, arguments))? else {
        return refuse(call, "no request found");
    };
    let which = which(&wanted, of_pool);
    match pooled.submit(of_pool, which, call_of) {
        Ok(task) => {
            let operation = Operation::new(wait(Posted(Some(task)), home, wanted.timeout_ms));
            pause(call, Pause::Operation(operation))
        }
        Err(Refusal::NoVm) => refuse(call, "no available Lua vm"),
        Err(Refusal::Pool(_)) => refuse(call, "ngx_thread_task_post failed"),
    }
}

fn refuse(call: &mut Call<'_>, text: impl clearway_luajit::Push) -> Result<Returns, Raise> {
    call.stack.push(false);
    call.stack.push(text);
    Ok(Returns::Values(2))
}

/// The name of a pool, or a table with that and more.
fn read_wanted(call: &mut Call<'_>) -> Option<Wanted> {
    if call.stack.get(1) != Value::Table {
        let pool = call.stack.text(1)?.to_vec();
        return Some(Wanted { pool, key: None, slot: None, timeout_ms: None });
    }
    let pool = text_field(call, "pool")?;
    let key = text_field(call, "key");
    let slot = number_field(call, "slot").map(|slot| slot as u64);
    let timeout_ms = number_field(call, "timeout").map(|seconds| (seconds * 1000.0) as u64);
    Some(Wanted { pool, key, slot, timeout_ms })
}

fn text_field(call: &mut Call<'_>, name: &str) -> Option<Vec<u8>> {
    call.stack.raw_field(1, name);
    let text = call.stack.text(-1).map(<[u8]>::to_vec);
    call.stack.pop(1);
    text
}

fn number_field(call: &mut Call<'_>, name: &str) -> Option<f64> {
    call.stack.raw_field(1, name);
    let number = call.stack.number(-1).filter(|number| *number >= 0.0);
    call.stack.pop(1);
    number
}

fn which(wanted: &Wanted, of_pool: &OfPool) -> Which {
    match (&wanted.key, wanted.slot) {
        (Some(key), _) => of_pool.slot_of(key),
        (None, Some(slot)) => of_pool.slot(slot),
        (None, None) => Which::Any,
    }
}

fn find_pooled(current: &mut Current<'_>) -> Option<Arc<Pooled>> {
    current.vm.snapshot.upgrade()?.conf(&POOLED).vms.get().cloned()
}

/// Has VMs of pools look for modules where this one does by now.
fn say_paths(call: &mut Call<'_>, pooled: &Pooled) {
    let mut paths = [None, None];
    call.stack.push_globals();
    call.stack.raw_field(-1, "package");
    if call.stack.get(-1) == Value::Table {
        for (path, field) in paths.iter_mut().zip(["path", "cpath"]) {
            call.stack.raw_field(-1, field);
            *path = call.stack.text(-1).map(<[u8]>::to_vec);
            call.stack.pop(1);
        }
    }
    call.stack.pop(2);
    let [path, cpath] = paths;
    pooled.say_paths(path.as_deref(), cpath.as_deref());
}

fn make(current: &mut Current<'_>, arguments: Vec<u8>) -> Option<(pooled_call::Call, LoopRef)> {
    let home = current.home()?;
    let known = current.kept(|kept| kept.place.clone()).flatten();
    let place = match known {
        Some(place) => place,
        None => {
            let place = place_for_calls(current)?;
            current.kept(|kept| kept.place = Some(place.clone()));
            place
        }
    };
    let caller = current.vm.place;
    Some((pooled_call::Call { arguments, home, place, caller }, home))
}

/// What runs elsewhere may take its time.
fn place_for_calls(current: &mut Current<'_>) -> Option<AlonePlace> {
    let snapshot = current.vm.snapshot.upgrade()?;
    let mut place = place_of(current, &snapshot);
    place.tail.context = LuaPhase::WorkerThread.context_name();
    (place.conf.max_run_time, place.conf.time_slice) = (None, None);
    Some(place)
}

/// A call that was taken: it is run, whatever becomes of its caller.
struct Posted(Option<Task<PooledOutcome>>);

impl Drop for Posted {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.detach();
        }
    }
}

/// Waits for a call, for so long at most. One that has not begun by then is not run.
async fn wait(mut posted: Posted, home: LoopRef, timeout_ms: Option<u64>) -> Answers {
    let _expected = home.expect_answer();
    let timer = timeout_ms.map(|timeout_ms| {
        let timer = Timer::new(home);
        timer.arm(home.now_ms() + timeout_ms);
        timer
    });
    let done = std::future::poll_fn(|cx| {
        let Some(task) = &mut posted.0 else { return Poll::Ready(None) };
        match std::pin::Pin::new(task).poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => match &timer {
                Some(timer) => timer.poll_expired(cx).map(|()| None),
                None => Poll::Pending,
            },
        }
    })
    .await;
    let task = posted.0.take();
    match done {
        Some(Ok(PooledOutcome::Returned(results))) => Answers::Push(
            Box::new(move |stack| {
                stack.push(true);
                copy::read(stack, &results);
            }),
            None,
        ),
        Some(Ok(PooledOutcome::Failed(text))) => failed(text),
        Some(Err(error)) => failed(error.to_string().into_bytes()),
        None => {
            drop(task);
            failed(b"timeout".to_vec())
        }
    }
}

fn failed(text: Vec<u8>) -> Answers {
    let push = move |stack: &mut clearway_luajit::Stack<'_>| {
        stack.push(false);
        stack.push(&text[..]);
    };
    Answers::Push(Box::new(push), None)
}
