//! `ngx.semaphore`: threads of one VM that wait for each other. How many are left and which wait is in
//! semaphore.lua; here is what has a thread wait and wakes it.

use clearway_luajit::{Call, Fault, Raise, Returns, Stack};

use super::room::{Install, put};
use crate::current::{Pause, YIELDABLE, allow, current, pause};
use crate::threads::{Answers, Operation};
use crate::waiter::Waiter;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        put(stack, "_semaphore_wait", wait);
        put(stack, "_semaphore_waits", is_waiting);
        put(stack, "_semaphore_wake", wake);
        put(stack, "_semaphore_refused", refused);
        put(stack, "_semaphore_taken", |call| {
            let number = call.number(1)? as u64;
            current(call, |current| current.vm.bells.take(number))?;
            Ok(Returns::Values(0))
        });
        put(stack, "_semaphore_lost", |call| {
            let number = call.number(1)? as u64;
            let is_lost = current(call, |current| current.vm.bells.is_lost(number))?;
            call.stack.push(is_lost);
            Ok(Returns::Values(1))
        });
    });
    install.run(include_str!("semaphore.lua"), c"=ngx.semaphore")
}

/// Why code cannot wait here; nothing where it can.
fn refused(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let phase = current(call, |current| current.phase)?;
    if YIELDABLE.has(phase) {
        return Ok(Returns::Values(0));
    }
    call.stack.push(&*format!("API disabled in the context of {}", phase.context_name()));
    Ok(Returns::Values(1))
}

/// (milliseconds, queue, place): waits, as what it puts into the queue; what is woken gets that as well.
fn wait(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, YIELDABLE)?;
    let (ms, place) = (call.number(1)? as u64, call.number(3)? as i32);
    let Some(home) = current(call, |current| current.home())? else {
        return Err(call.raise("no request found"));
    };
    let (waiter, bell) = Waiter::new(home, Some(ms));
    let (number, given) = current(call, |current| current.vm.bells.add(bell))?;
    call.stack.push(number as f64);
    call.stack.raw_set_item(2, place);
    let operation = Operation::new(async move {
        match waiter.await {
            true => {
                let push = move |stack: &mut Stack<'_>| {
                    stack.push(true);
                    stack.push(number as f64);
                    drop(given);
                };
                Answers::Push(Box::new(push), None)
            }
            false => Answers::Failed("timeout".into()),
        }
    });
    pause(call, Pause::Operation(operation))
}

fn is_waiting(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let number = call.number(1)? as u64;
    let is_waiting = current(call, |current| current.vm.bells.is_waited_for(number))?;
    call.stack.push(is_waiting);
    Ok(Returns::Values(1))
}

fn wake(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let number = call.number(1)? as u64;
    let has_woken = current(call, |current| current.vm.bells.ring(number))?;
    call.stack.push(has_woken);
    Ok(Returns::Values(1))
}

#[cfg(test)]
mod tests {
    use crate::api::testing::Lua;

    #[test]
    fn what_is_left_is_taken_without_waiting() {
        let mut lua = Lua::new();
        lua.says(
            "local s = require('ngx.semaphore').new(1) \
             local a = s:wait(0) local b, e = s:wait(0) s:post(2) return a, b, e, s:count()",
            "true nil timeout 2",
        );
        lua.raises("require('ngx.semaphore').new(-1)", "no negative number");
        lua.raises("require('ngx.semaphore').new():post(0)", "positive number required");
        lua.raises("require('ngx.semaphore').wait({}, 1)", "not a semaphore instance");
    }
}
