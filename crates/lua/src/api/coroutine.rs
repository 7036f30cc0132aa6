//! `coroutine`, as code that may wait for the server needs it: what the server waits for suspends all threads
//! down to the entry thread, what the user yields goes to the one that has resumed it. And `ngx.thread`:
//! light threads, which the scheduler resumes beside each other.

use clearway_base::log::Level;
use clearway_luajit::{Call, Fault, Raise, Returns, Value};

use super::room::{Install, put};
use crate::current::{MARK, Pause, Run, YIELDABLE, allow, current, pause};
use crate::threads::{Hold, Known, THREADS_MAX, push_results};

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        stack.push(MARK);
        stack.raw_set_field(-2, "_mark");
        put(stack, "_thread_status", status);
        put(stack, "_may_wait", |call| {
            let phase = call.with_context::<Run, _>(|current| current.phase);
            call.stack.push(phase.is_some_and(|phase| YIELDABLE.has(phase)));
            Ok(Returns::Values(1))
        });
    });
    install.table("", |stack| put(stack, "_note_wrapped", note_wrapped));
    install.table("thread", |stack| {
        put(stack, "spawn", spawn);
        put(stack, "wait", wait);
        put(stack, "kill", kill);
    });
    install.run(include_str!("coroutine.lua"), c"=coroutine")
}

/// (text, traceback): an error has left a thread of `coroutine.wrap`.
fn note_wrapped(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let (text, traceback) = (call.text(1)?.to_vec(), call.text(2)?.to_vec());
    // If no code of the server runs, there is no log for the error.
    call.with_context::<Run, _>(|current| current.vm.wrapped.note(&text, &traceback));
    Ok(Returns::Values(0))
}

/// The status of a light thread, beyond "suspended" and the like.
fn status(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let status = match call.stack.get(1) {
        Value::Thread => {
            let id = call.stack.identity(1);
            // If no code of the server runs, there are no light threads.
            call.with_context::<Run, _>(|current| current.threads.as_ref()?.status(id)).flatten()
        }
        _ => None,
    };
    match status {
        Some(status) => call.stack.push(status),
        None => call.stack.push(()),
    }
    Ok(Returns::Values(1))
}

fn spawn(call: &mut Call<'_>) -> Result<Returns, Raise> {
    if call.arguments() < 1 || call.stack.get(1) != Value::Function {
        return Err(call.expected(1, "Lua function"));
    }
    allow(call, YIELDABLE)?;
    let alive = current(call, |current| current.threads.as_ref().map(|threads| threads.alive()))?;
    match alive {
        None => return Err(call.raise("no light threads here")),
        Some(alive) if alive >= THREADS_MAX => return Err(call.raise("too many light threads")),
        Some(_) => {}
    }
    let (child, parent) = (call.stack.take_coroutine(call.arguments() - 1), call.thread());
    pause(call, Pause::Spawn { child, parent })
}

/// A thread that is an argument, by its number.
fn thread_at(call: &mut Call<'_>, argument: i32) -> Result<usize, Raise> {
    match call.stack.get(argument) {
        Value::Thread => Ok(call.stack.identity(argument)),
        _ => Err(call.bad_argument(argument, "lua thread expected")),
    }
}

fn look(call: &mut Call<'_>, id: usize) -> Result<Known, Raise> {
    let asker = call.thread();
    current(call, |current| current.threads.as_ref().map_or(Known::No, |threads| threads.look(id, asker)))
}

fn wait(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, YIELDABLE)?;
    let count = call.arguments();
    if count == 0 {
        return Err(call.raise("at least one coroutine should be specified"));
    }
    let mut ids = Vec::new();
    for argument in 1..=count {
        let id = thread_at(call, argument)?;
        match look(call, id)? {
            Known::No => {
                return Err(call.raise("attempt to wait on a coroutine that is not a user thread"));
            }
            Known::OfOthers => return Err(call.raise("only the parent coroutine can wait on the thread")),
            Known::Over => {
                let thread = current(call, |current| current.threads.as_mut()?.take(id))?;
                let values = thread.map_or(0, |thread| push_results(&mut call.stack, &thread));
                return Ok(Returns::Values(values));
            }
            Known::Gone => {}
            Known::Alive(_) => ids.push(id),
        }
    }
    if ids.is_empty() {
        return Ok(refuse(call, "already waited or killed"));
    }
    pause(call, Pause::Threads(ids))
}

fn refuse(call: &mut Call<'_>, text: &str) -> Returns {
    call.stack.push(());
    call.stack.push(text);
    Returns::Values(2)
}

fn kill(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, YIELDABLE)?;
    let id = thread_at(call, 1)?;
    let known = look(call, id)?;
    let text = match known {
        Known::No => "not user thread",
        Known::OfOthers => "killer not parent",
        Known::Alive(Hold::Subrequests) => "pending subrequests",
        Known::Over => "already terminated",
        Known::Gone => "already waited or killed",
        Known::Alive(Hold::None) => "",
    };
    if matches!(known, Known::Over | Known::Alive(Hold::None)) {
        // The wait of a thread is given up here.
        current(call, |current| {
            let thread = current.threads.as_mut().and_then(|threads| threads.take(id));
            if thread.is_some_and(|thread| thread.is_asleep()) {
                current.log(Level::Debug, format_args!("lua clean up the timer for pending ngx.sleep"));
            }
        })?;
    }
    if !text.is_empty() {
        return Ok(refuse(call, text));
    }
    call.stack.push(1.0);
    Ok(Returns::Values(1))
}
