//! Programs. The result of a read or a write stays with the program until C has fetched it.

use std::ffi::CString;
use std::sync::Arc;
use std::task::Poll;

use clearway_luajit::Reply;
use clearway_luajit::core::{CoreCall, programs as asked};
use clearway_os::child::Exit;
use clearway_os::piped::Errors;

use super::codes::{AGAIN, BAD_CONTEXT, DECLINED, OK, failed, with};
use crate::api::pipe::{
    Start, WAIT_END, WRITE_END, begin, end_of, log_broken, log_lost, log_wait, lose, pipe_of, read_end,
    send_signal, use_program, wanted_of,
};
use crate::current::{Current, Pause, Run, YIELDABLE, objection};
use crate::program::{self, Asked, Lack, Program, Taken, Which};
use crate::threads::{Answers, Operation};
use crate::waiter::EndLine;

/// (which function; the number of a program, and so on).
pub(super) fn pipe(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let number = call.number(1).max(0.0) as u64;
    match call.number(0) as u8 {
        asked::START => with(call, reply, |current, reply| start(call, current, reply)),
        asked::READ_RESULT => match program::find(number) {
            Some(program) => give(call, &program, reply),
            None => failed(reply, "closed"),
        },
        asked::WRITE_RESULT => {
            let written =
                program::find(number).and_then(|program| program.stage(|staged| staged.written.take()));
            match written {
                Some(Ok(count)) => {
                    reply.number = count as f64;
                    OK
                }
                Some(Err(lack)) => failed(reply, &lack.text()),
                None => failed(reply, "closed"),
            }
        }
        asked::CLOSE => {
            let which = pipe_of(call.number(2) as i32);
            match program::find(number).map_or(Some("closed"), |program| program.close(which)) {
                Some(why) => failed(reply, why),
                None => OK,
            }
        }
        asked::KILL => {
            send_signal(number, call.number(2) as i32).map_or_else(|words| failed(reply, &words), |()| OK)
        }
        asked::LOSE => {
            let lost = lose(number);
            // There may be nothing that it runs for, as where a VM is closed.
            call.with_context::<Run, _>(reply, |current, _| log_lost(current, number, lost));
            OK
        }
        what => with(call, reply, |current, reply| {
            if let Some(words) = objection(current.phase, YIELDABLE) {
                failed(reply, &words);
                return BAD_CONTEXT;
            }
            match what {
                asked::READ => read(call, current, reply),
                asked::WRITE => write(call, current, reply),
                _ => wait(call, current, reply),
            }
        }),
    }
}

/// (file, arguments, environment; which function, errors go with the output, bytes of a read, how many
/// arguments, whether there is an environment)
fn start(call: &CoreCall<'_>, current: &mut Current<'_>, reply: &mut Reply) -> i32 {
    let word = |text: &&[u8]| CString::new(*text).unwrap_or_default();
    let words = call.texts_behind(0);
    let (arguments, variables) = words.split_at(words.len().min(call.number(3) as usize));
    debug_assert_eq!(arguments.len() + variables.len(), words.len(), "each word is one of both");
    let start = Start {
        path: word(&call.text(0)),
        arguments: arguments.iter().map(word).collect(),
        environment: (call.number(4) != 0.0).then(|| variables.iter().map(word).collect()),
        errors: if call.number(1) == 0.0 { Errors::Apart } else { Errors::WithOutput },
        buffer: call.number(2) as usize,
    };
    match begin(current, &start) {
        Err(words) => failed(reply, &words),
        // One that cannot be executed is one that has ended with 1, as where a child finds that out.
        Ok(None) => OK,
        Ok(Some((number, pid))) => {
            reply.number = number as f64;
            reply.places.push(pid as i32);
            OK
        }
    }
}

fn limit_of(call: &CoreCall<'_>, at: usize) -> Option<u64> {
    (call.number(at) > 0.0).then_some(call.number(at) as u64)
}

/// Moves the data that was read into the reply, if it is no longer than number 3 says; else how long it is.
fn give(call: &CoreCall<'_>, program: &Program, reply: &mut Reply) -> i32 {
    let which = which_of(call);
    program.stage(|staged| {
        let staged = staged.taken(which);
        let (code, lack, len) = match staged {
            None => return failed(reply, "closed"),
            Some(Ok(data)) => (OK, String::new(), data.len()),
            Some(Err((lack, part))) => (DECLINED, lack.text(), part.len()),
        };
        reply.text.extend_from_slice(lack.as_bytes());
        reply.places.push(reply.text.len() as i32);
        if len as f64 > call.number(3) {
            reply.number = len as f64;
            return code;
        }
        if let Some(Ok(data) | Err((_, data))) = staged.take() {
            reply.text.extend_from_slice(&data);
        }
        code
    })
}

fn which_of(call: &CoreCall<'_>) -> Which {
    if call.number(2) == 0.0 { Which::Output } else { Which::Errors }
}

/// (number, from the errors, room, kind of a read, how much, milliseconds)
fn read(call: &CoreCall<'_>, current: &mut Current<'_>, reply: &mut Reply) -> i32 {
    let which = which_of(call);
    let wanted = wanted_of(call.number(4) as i32, call.number(5) as usize);
    let Some(program) = use_program(current, call.number(1).max(0.0) as u64, "read") else {
        return failed(reply, "closed");
    };
    if let Some(why) = program.objection(which, "pipe busy reading") {
        return failed(reply, why);
    }
    let stage =
        move |program: &Program, taken: Taken| program.stage(|staged| *staged.taken(which) = Some(taken));
    if let Poll::Ready(taken) = program.read_now(which, wanted) {
        stage(&program, taken);
        return give(call, &program, reply);
    }
    let Some(home) = current.home() else { return failed(reply, "no request found") };
    let limit = limit_of(call, 6);
    log_wait(current, &program, ["reading", "read"], limit);
    let reading = program::read(Arc::clone(&program), home, (which, wanted), limit);
    let ended = EndLine::new(current.vm.sink.clone(), read_end(which));
    current.pause = Some(Pause::Operation(Operation::new(async move {
        stage(&program, reading.await);
        ended.forget();
        Answers::None
    })));
    AGAIN
}

/// (data; number, milliseconds)
fn write(call: &CoreCall<'_>, current: &mut Current<'_>, reply: &mut Reply) -> i32 {
    let data = call.text(0);
    let Some(program) = use_program(current, call.number(1).max(0.0) as u64, "write") else {
        return failed(reply, "closed");
    };
    if let Some(why) = program.objection(Which::Input, "pipe busy writing") {
        return failed(reply, why);
    }
    let written = match program.write_now(data) {
        Ok(written) if written == data.len() => return OK,
        Ok(written) => written,
        Err(lack) => {
            log_broken(current, program.number);
            return failed(reply, &lack.text());
        }
    };
    let Some(home) = current.home() else { return failed(reply, "no request found") };
    let limit = limit_of(call, 2);
    log_wait(current, &program, ["writing", "write"], limit);
    let writing = program::write(Arc::clone(&program), home, (data.to_vec(), written), limit);
    let ended = EndLine::new(current.vm.sink.clone(), WRITE_END);
    current.pause = Some(Pause::Operation(Operation::new(async move {
        let written: Result<usize, Lack> = writing.await;
        program.stage(|staged| staged.written = Some(written));
        ended.forget();
        Answers::None
    })));
    AGAIN
}

/// (number, milliseconds)
fn wait(call: &CoreCall<'_>, current: &mut Current<'_>, reply: &mut Reply) -> i32 {
    if call.number(1) < 0.0 {
        reply.places.push(asked::EXITED);
        reply.number = 1.0;
        return DECLINED;
    }
    let Some(program) = use_program(current, call.number(1) as u64, "wait") else {
        return failed(reply, "exited");
    };
    let Some(home) = current.home() else { return failed(reply, "no request found") };
    let limit = limit_of(call, 2);
    match program.ask(home, limit) {
        Asked::Refused(why) => failed(reply, why),
        Asked::Ended(exit) => {
            let (reason, status) = match exit {
                Some(Exit::Code(code)) => (asked::EXITED, code),
                Some(Exit::Signal { number, .. }) => (asked::SIGNALLED, number),
                None => (asked::UNKNOWN, 0),
            };
            reply.places.push(reason);
            reply.number = f64::from(status);
            if status == 0 { OK } else { DECLINED }
        }
        Asked::Waits(waiter) => {
            log_wait(current, &program, ["waiting", "wait"], limit);
            current.pause = Some(Pause::Operation(Operation::new(end_of(
                program,
                home,
                (waiter, EndLine::new(current.vm.sink.clone(), WAIT_END)),
            ))));
            AGAIN
        }
    }
}
