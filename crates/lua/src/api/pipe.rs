//! `ngx.pipe`: programs whose standard input, output and errors code uses without blocking anything. The
//! object is in pipe.lua; here are its functions, which know a program by its number.

use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use clearway_base::Errno;
use clearway_base::log::{Level, Verbatim};
use clearway_luajit::{Call, Fault, Raise, Returns, Stack, Value};
use clearway_os::child::Exit;
use clearway_os::piped;
use clearway_runtime::LoopRef;

use super::room::{Install, put};
use super::tcp::refuse;
use crate::current::{Current, Pause, Run, YIELDABLE, allow, current, pause};
use crate::program::{self, Asked, Lack, Program, Taken, Wanted, Which};
use crate::threads::{Answers, Operation};
use crate::vm::settings::LUA_MAIN;
use crate::waiter::{EndLine, Waiter};

/// Arguments, or variables of the environment, of a program.
const WORDS_MAX: usize = 65_536;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_pipe", |stack| {
        put(stack, "read_ahead", read_ahead);
        put(stack, "spawn", spawn);
        put(stack, "read", read);
        put(stack, "write", write);
        put(stack, "shutdown", shutdown);
        put(stack, "wait", wait);
        put(stack, "kill", kill);
        put(stack, "drop", give_up);
    });
    install.run(include_str!("pipe.lua"), c"=ngx.pipe")
}

fn home_of(call: &mut Call<'_>) -> Result<LoopRef, Raise> {
    match current(call, |current| current.home())? {
        Some(home) => Ok(home),
        None => Err(call.raise("no request found")),
    }
}

/// (file): has a pool read the files that starting the program needs, as that would wait for a disk. Nothing
/// where the code cannot wait: then the loop is handed over if it takes long.
fn read_ahead(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let may_yield = call.may_yield();
    let pool = current(call, |current| {
        let conf = current.vm.snapshot.upgrade().filter(|_| may_yield && YIELDABLE.has(current.phase));
        conf.and_then(|snapshot| Option::clone(&snapshot.conf(&LUA_MAIN).pool))
    })?;
    let (Some(pool), Ok(file)) = (pool, CString::new(call.text(1)?)) else { return Ok(Returns::Values(0)) };
    let task = pool.submit(move |_| drop(piped::read_ahead(&file)));
    let operation = Operation::new(async move {
        // A pool that takes no more leaves the loop to it.
        let _read = task.await;
        Answers::None
    });
    pause(call, Pause::Operation(operation))
}

/// A program that is to be started.
pub(super) struct Start {
    pub(super) path: CString,
    pub(super) arguments: Vec<CString>,
    pub(super) environment: Option<Vec<CString>>,
    pub(super) errors: piped::Errors,
    /// Bytes of a read.
    pub(super) buffer: usize,
}

/// (words, errors go with the output, bytes of a read, environment or nil): number and pid of a program.
fn spawn(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let arguments = words(call, 1);
    let errors = if call.number(2)? == 0.0 { piped::Errors::Apart } else { piped::Errors::WithOutput };
    let buffer = call.number(3)? as usize;
    let environment = match call.stack.get(4) {
        Value::Nil => None,
        _ => Some(words(call, 4)),
    };
    let Some(path) = arguments.first().cloned() else { return refuse(call, "no such program") };
    let start = Start { path, arguments, environment, errors, buffer };
    match current(call, |current| begin(current, &start))? {
        Err(words) => refuse(call, &words),
        Ok(None) => Ok(Returns::Values(0)),
        Ok(Some((number, pid))) => {
            call.stack.push(number as f64);
            call.stack.push(f64::from(pid));
            Ok(Returns::Values(2))
        }
    }
}

/// Starts a program: its number and pid, or nothing where it cannot be executed, which is logged.
///
/// # Errors
/// Why there is none.
pub(super) fn begin(current: &mut Current<'_>, start: &Start) -> Result<Option<(u64, u32)>, String> {
    let Some(home) = current.home() else {
        // It would end with the code that starts it, before anything could be read of it.
        current.log(Level::Warn, format_args!("lua pipe: there is no loop yet for a program"));
        return Ok(None);
    };
    let Start { path, arguments, environment, errors, buffer } = start;
    let piped = match piped::spawn(path, arguments, environment.as_deref(), *errors) {
        Ok(piped) => piped,
        Err(error) => {
            let path = Verbatim(path.as_bytes());
            let text =
                format_args!("lua pipe child execvp() failed while executing {path} {}", Errno(&error));
            current.log(Level::Error, text);
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(None),
                _ => Err(Lack::System(error).text()),
            };
        }
    };
    let added = current.kept(|kept| kept.programs.add(home, piped, *buffer));
    let Some(program) = added.flatten() else { return Err("too many programs".to_owned()) };
    let (number, pid) = (program.number, program.pid);
    let merges = u8::from(*errors == piped::Errors::WithOutput);
    let text = format_args!(
        "lua pipe spawn process:{number:016X} pid:{pid} merge_stderr:{merges} buffer_size:{buffer}"
    );
    current.log(Level::Debug, text);
    Ok(Some((number, pid)))
}

/// The texts of a table, each as far as C would read it.
fn words(call: &mut Call<'_>, table: i32) -> Vec<CString> {
    let (mut words, height) = (Vec::new(), call.stack.len());
    while words.len() < WORDS_MAX {
        call.stack.raw_item(table, words.len() as i32 + 1);
        let word = call.stack.text(-1).map(|text| {
            let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
            CString::new(text).expect("it ends before the first zero")
        });
        call.stack.pop(1);
        match word {
            Some(word) => words.push(word),
            None => break,
        }
    }
    debug_assert_eq!(call.stack.len(), height, "the stack is as it was");
    words
}

/// The program that the first argument names, said to be used so; `None` where it is gone.
fn program_of(call: &mut Call<'_>, used: &str) -> Result<Option<Arc<Program>>, Raise> {
    allow(call, YIELDABLE)?;
    let number = call.number(1)? as u64;
    current(call, |current| use_program(current, number, used))
}

/// The program with this number, said to be used so; `None` where it is gone.
pub(super) fn use_program(current: &mut Current<'_>, number: u64, used: &str) -> Option<Arc<Program>> {
    let program = program::find(number);
    let pid = program.as_ref().map_or(0, |program| program.pid);
    current.log(Level::Debug, format_args!("lua pipe {used} process:{number:016X} pid:{pid}"));
    program
}

fn limit_of(call: &mut Call<'_>, argument: i32) -> Result<Option<u64>, Raise> {
    let ms = call.number(argument)?;
    Ok((ms > 0.0).then_some(ms as u64))
}

/// Says for what a pipe is waited, and how long.
pub(super) fn log_wait(
    current: &mut Current<'_>,
    program: &Program,
    [doing, verb]: [&str; 2],
    limit: Option<u64>,
) {
    let (number, pid) = (program.number, program.pid);
    if let Some(ms) = limit {
        let text = format_args!("lua pipe add timer for {doing}: {ms}(ms) process:{number:016X} pid:{pid}");
        current.log(Level::Debug, text);
    }
    let text = format_args!("lua pipe {verb} yielding process:{number:016X} pid:{pid}");
    current.log(Level::Debug, text);
}

fn push_taken(stack: &mut Stack<'_>, taken: Taken) -> i32 {
    match taken {
        Ok(data) => {
            stack.push(&data[..]);
            1
        }
        Err((lack, part)) => {
            stack.push(());
            stack.push(&*lack.text());
            stack.push(&part[..]);
            3
        }
    }
}

/// The kind of a read, by number, and how much.
pub(super) fn wanted_of(number: i32, count: usize) -> Wanted {
    match number {
        0 => Wanted::All,
        1 => Wanted::Bytes(count),
        2 => Wanted::Line,
        _ => Wanted::Any(count),
    }
}

/// One of the pipes, by number.
pub(super) fn pipe_of(number: i32) -> Which {
    match number {
        0 => Which::Input,
        1 => Which::Output,
        _ => Which::Errors,
    }
}

/// Said of threads that are ended while they wait.
pub(super) const WRITE_END: &str = "lua pipe proc write cleanup";
pub(super) const WAIT_END: &str = "lua pipe proc wait cleanup";

pub(super) fn read_end(which: Which) -> &'static str {
    if which == Which::Errors {
        "lua pipe proc read stderr cleanup"
    } else {
        "lua pipe proc read stdout cleanup"
    }
}

fn end_line(call: &mut Call<'_>, text: &'static str) -> Result<EndLine, Raise> {
    current(call, |current| EndLine::new(current.vm.sink.clone(), text))
}

/// (number, from the errors, what is wanted, how much, milliseconds): data; or nil, why not, and a part.
fn read(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let program = program_of(call, "read")?;
    let which = if call.number(2)? == 0.0 { Which::Output } else { Which::Errors };
    let count = call.number(4)? as usize;
    let wanted = wanted_of(call.number(3)? as i32, count);
    let limit = limit_of(call, 5)?;
    let Some(program) = program else { return refuse(call, "closed") };
    if let Some(why) = program.objection(which, "pipe busy reading") {
        return refuse(call, why);
    }
    if let Poll::Ready(taken) = program.read_now(which, wanted) {
        return Ok(Returns::Values(push_taken(&mut call.stack, taken)));
    }
    let home = home_of(call)?;
    current(call, |current| log_wait(current, &program, ["reading", "read"], limit))?;
    let reading = program::read(program, home, (which, wanted), limit);
    let ended = end_line(call, read_end(which))?;
    let operation = Operation::new(async move {
        let taken = reading.await;
        ended.forget();
        let push = move |stack: &mut Stack<'_>| {
            push_taken(stack, taken);
        };
        Answers::Push(Box::new(push), None)
    });
    pause(call, Pause::Operation(operation))
}

pub(super) fn log_broken(current: &mut Current<'_>, number: u64) {
    let text = format_args!("lua pipe write data error pipe:{number:016X} (32: Broken pipe)");
    current.log(Level::Debug, text);
}

/// (number, data, milliseconds): how much was written; or nil and why not.
fn write(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let program = program_of(call, "write")?;
    let data = call.text(2)?.to_vec();
    let limit = limit_of(call, 3)?;
    let Some(program) = program else { return refuse(call, "closed") };
    if let Some(why) = program.objection(Which::Input, "pipe busy writing") {
        return refuse(call, why);
    }
    let written = match program.write_now(&data) {
        Ok(written) if written == data.len() => {
            call.stack.push(written as f64);
            return Ok(Returns::Values(1));
        }
        Ok(written) => written,
        Err(lack) => {
            current(call, |current| log_broken(current, program.number))?;
            return refuse(call, &lack.text());
        }
    };
    let home = home_of(call)?;
    current(call, |current| log_wait(current, &program, ["writing", "write"], limit))?;
    let writing = program::write(program, home, (data, written), limit);
    let ended = end_line(call, WRITE_END)?;
    let operation = Operation::new(async move {
        let written = writing.await;
        ended.forget();
        match written {
            Ok(count) => Answers::Push(Box::new(move |stack| stack.push(count as f64)), None),
            Err(lack) => Answers::Failed(lack.text().into()),
        }
    });
    pause(call, Pause::Operation(operation))
}

/// (number, 0 to 2): true; or nil and why not.
fn shutdown(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let number = call.number(1)? as u64;
    let which = pipe_of(call.number(2)? as i32);
    match program::find(number).map_or(Some("closed"), |program| program.close(which)) {
        Some(why) => refuse(call, why),
        None => {
            call.stack.push(true);
            Ok(Returns::Values(1))
        }
    }
}

pub(super) fn push_exit(stack: &mut Stack<'_>, exit: Option<Exit>) {
    let height = stack.len();
    let (reason, status) = match exit {
        Some(Exit::Code(code)) => ("exit", code),
        Some(Exit::Signal { number, .. }) => ("signal", number),
        None => ("unknown", 0),
    };
    stack.push(status == 0);
    stack.push(reason);
    stack.push(f64::from(status));
    debug_assert_eq!(stack.len(), height + 3, "an end is three values");
}

/// (number, milliseconds): whether it ended well, "exit" or "signal", and which; or nil and why not.
fn wait(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let program = program_of(call, "wait")?;
    let limit = limit_of(call, 2)?;
    let Some(program) = program else { return refuse(call, "exited") };
    let home = home_of(call)?;
    let waiter = match program.ask(home, limit) {
        Asked::Refused(why) => return refuse(call, why),
        Asked::Ended(exit) => {
            push_exit(&mut call.stack, exit);
            return Ok(Returns::Values(3));
        }
        Asked::Waits(waiter) => waiter,
    };
    current(call, |current| log_wait(current, &program, ["waiting", "wait"], limit))?;
    let ended = end_line(call, WAIT_END)?;
    let operation = Operation::new(end_of(program, home, (waiter, ended)));
    pause(call, Pause::Operation(operation))
}

/// Waits for the end of a program.
pub(super) async fn end_of(
    program: Arc<Program>,
    home: LoopRef,
    (waiter, ended): (Waiter, EndLine),
) -> Answers {
    let is_over = waiter.await;
    ended.forget();
    if !is_over {
        return Answers::Failed("timeout".into());
    }
    match program.ask(home, None) {
        Asked::Ended(exit) => Answers::Push(Box::new(move |stack| push_exit(stack, exit)), None),
        Asked::Refused(why) => Answers::Failed(why.into()),
        Asked::Waits(_) => Answers::Failed("exited".into()),
    }
}

/// (number, signal): true; or nil and why not.
fn kill(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let number = call.number(1)? as u64;
    let signal = call.number(2)? as i32;
    match send_signal(number, signal) {
        Err(words) => refuse(call, &words),
        Ok(()) => {
            call.stack.push(true);
            Ok(Returns::Values(1))
        }
    }
}

/// Sends a program a signal.
///
/// # Errors
/// Why not.
pub(super) fn send_signal(number: u64, signal: i32) -> Result<(), String> {
    let Some(program) = program::find(number).filter(|program| program.is_running()) else {
        return Err("exited".to_owned());
    };
    program.send_signal(signal).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => "invalid signal".to_owned(),
        _ if Errno(&error).to_string().starts_with("(3:") => "exited".to_owned(),
        _ => Lack::System(error).text(),
    })
}

/// (number): code has lost it, so it is killed if it runs. Called by the collector, for whatever runs then.
fn give_up(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let number = call.number(1)? as u64;
    let lost = lose(number);
    // There may be nothing that it runs for, as where a VM is closed.
    call.with_context::<Run, _>(|current| log_lost(current, number, lost));
    Ok(Returns::Values(0))
}

/// Code has lost a program: its pid, and whether it was running; `None` where it is gone.
pub(super) fn lose(number: u64) -> Option<(u32, bool)> {
    let program = program::find(number)?;
    let lost = (program.pid, program.is_running());
    program.give_up();
    Some(lost)
}

pub(super) fn log_lost(current: &mut Current<'_>, number: u64, lost: Option<(u32, bool)>) {
    let Some((pid, was_running)) = lost else { return };
    current.log(Level::Debug, format_args!("lua pipe destroy process:{number:016X} pid:{pid}"));
    if was_running {
        current.log(Level::Debug, format_args!("lua pipe kill process:{number:016X} pid:{pid}"));
    }
}

#[cfg(test)]
mod tests {
    use crate::api::testing::Lua;

    #[test]
    fn without_a_loop_nothing_is_started() {
        let mut lua = Lua::new();
        lua.says("local p = require('ngx.pipe').spawn({'true'}) return p:pid(), p:kill(9)", "0 nil exited");
    }

    #[test]
    fn arguments_are_checked() {
        let mut lua = Lua::new();
        for (code, error) in [
            ("spawn()", "bad args arg: table expected, got nil"),
            ("spawn({})", "bad args arg: non-empty table expected"),
            ("spawn({'x'}, {buffer_size = 0})", "bad buffer_size option"),
            ("spawn({'x'}, {environ = 'A=1'})", "bad environ option: table expected, got string"),
            (
                "spawn({'x'}, {environ = {'A=1', 2}})",
                "index 2 of environ option: string expected, got number",
            ),
            ("spawn({'x'}, {environ = {'=1'}})", "'name=[value]' format expected, got '=1'"),
            ("spawn({'x'}, {wait_timeout = -1})", "bad wait_timeout option"),
        ] {
            lua.raises(&format!("require('ngx.pipe').{code}"), error);
        }
    }
}
