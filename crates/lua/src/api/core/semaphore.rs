//! Semaphores: C holds each as an object.

use std::sync::Arc;

use clearway_base::log::Level;
use clearway_luajit::core::{CoreCall, semaphores as asked};
use clearway_luajit::{Reply, Stack};

use super::codes::{AGAIN, DECLINED, ERROR, NO_REQUEST, OK, failed, with};
use crate::current::{Pause, Run, YIELDABLE};
use crate::semaphore::{Asked, Semaphore};
use crate::threads::{Answers, Operation};
use crate::waiter::EndLine;

/// (semaphore; which function, and a number).
pub(super) fn semaphore(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let number = call.number(1) as i64;
    if call.number(0) as u8 == asked::FREED {
        // There may be nothing that it runs for, as where a VM is closed.
        call.with_context::<Run, _>(reply, |current, _| {
            current.log(Level::Debug, format_args!("in lua gc, semaphore {number:X}"));
        });
        return OK;
    }
    if call.number(0) as u8 == asked::NEW {
        reply.object = Some(Box::new(Arc::new(Semaphore::new(number))));
        return OK;
    }
    let Some(semaphore) = call.object::<Arc<Semaphore>>() else { return ERROR };
    match call.number(0) as u8 {
        asked::POST => {
            semaphore.post(number);
            OK
        }
        asked::COUNT => semaphore.count() as i32,
        _ => wait(call, semaphore, number as u64, reply),
    }
}

/// 0: there was something left; -5: nothing in time; -2: the thread is to yield.
fn wait(call: &CoreCall<'_>, semaphore: &Arc<Semaphore>, limit_ms: u64, reply: &mut Reply) -> i32 {
    let waited = with(call, reply, |current, reply| {
        if !YIELDABLE.has(current.phase) {
            return failed(
                reply,
                &format!("API disabled in the context of {}", current.phase.context_name()),
            );
        }
        let (waiter, claim) = match semaphore.ask(current.home(), limit_ms) {
            Asked::Taken => return OK,
            Asked::Timeout => return DECLINED,
            Asked::Waits(waiter, claim) => (waiter, claim),
        };
        current.log(Level::Debug, format_args!("http lua semaphore wait yielding"));
        let ended = EndLine::new(current.vm.sink.clone(), "http lua semaphore cleanup");
        current.pause = Some(Pause::Operation(Operation::new(async move {
            let is_woken = waiter.await;
            ended.forget();
            if !is_woken {
                return Answers::Failed("timeout".into());
            }
            let push = move |stack: &mut Stack<'_>| {
                stack.push(true);
                claim.take();
            };
            Answers::Push(Box::new(push), None)
        })));
        AGAIN
    });
    if waited == NO_REQUEST { failed(reply, "no request ctx found") } else { waited }
}
