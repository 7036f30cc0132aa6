//! `ngx.log` and `print`: lines for the error log, with the place that they come from.

use clearway_base::kept_lines::LINE_BYTES_MAX;
use clearway_base::log::{Level, Lines, Verbatim};
use clearway_luajit::{Call, Fault, Raise, Returns, Value};

use super::output::append_number;
use super::room::{Install, put};
use crate::current::current;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        put(stack, "log", log);
        put(stack, "_global_written", global_written);
        stack.push_globals();
        put(stack, "print", print);
        stack.pop(1);
    });
    Ok(())
}

fn log(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let level = call.number(1)?;
    let Some(level) = level_of(level) else {
        return Err(call.bad_argument(1, &*format!("bad log level: {level}")));
    };
    write(call, level, 2)
}

fn print(call: &mut Call<'_>) -> Result<Returns, Raise> {
    write(call, Level::Notice, 1)
}

/// Warns of a global variable that was made, by its name, with the place where.
fn global_written(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let mut line = place(call);
    line.extend_from_slice(b"writing a global Lua variable ('");
    line.extend_from_slice(call.text(1)?);
    line.extend_from_slice(
        b"') which may lead to race conditions between concurrent requests, so prefer the use of 'local' \
          variables",
    );
    let traceback = call.text(2)?.to_vec();
    let logged = current(call, |current| {
        current.log(Level::Warn, format_args!("{}{}", Verbatim(&line), Lines(&traceback)));
    });
    logged.map(|()| Returns::Values(0))
}

pub(super) fn level_of(number: f64) -> Option<Level> {
    Some(match number as i32 {
        0 => Level::Stderr,
        1 => Level::Emerg,
        2 => Level::Alert,
        3 => Level::Crit,
        4 => Level::Error,
        5 => Level::Warn,
        6 => Level::Notice,
        7 => Level::Info,
        8 => Level::Debug,
        _ => return None,
    })
}

fn write(call: &mut Call<'_>, level: Level, first: i32) -> Result<Returns, Raise> {
    let mut line = place(call);
    for argument in first..=call.arguments() {
        append(call, argument, first, &mut line)?;
    }
    line.truncate(LINE_BYTES_MAX);
    let logged = current(call, |current| current.log(level, format_args!("{}", Verbatim(&line))));
    logged.map(|()| Returns::Values(0))
}

/// `[lua] content_by_lua(nginx.conf:12):3: f(): `.
fn place(call: &Call<'_>) -> Vec<u8> {
    let mut line = b"[lua] ".to_vec();
    let Some(caller) = call.stack.caller(1) else { return line };
    let name = caller.chunk.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    line.extend_from_slice(name);
    line.extend_from_slice(format!(":{}: ", caller.line.max(0)).as_bytes());
    if let Some(function) = caller.function {
        line.extend_from_slice(&function);
        line.extend_from_slice(b"(): ");
    }
    line
}

/// Appends an argument; `first` is the number of the one that errors call the first.
fn append(call: &mut Call<'_>, argument: i32, first: i32, line: &mut Vec<u8>) -> Result<(), Raise> {
    match call.stack.get(argument) {
        Value::Text(text) => line.extend_from_slice(text),
        Value::Number(number) => append_number(call, argument, number, line),
        Value::Nil => line.extend_from_slice(b"nil"),
        Value::Boolean(true) => line.extend_from_slice(b"true"),
        Value::Boolean(false) => line.extend_from_slice(b"false"),
        Value::Address(0) => line.extend_from_slice(b"null"),
        Value::Table => return append_object(call, argument, first, line),
        _ => {
            let got = call.stack.get(argument).type_name();
            let text = format!("string, number, boolean, or nil expected, got {got}");
            return Err(call.bad_argument(argument - first + 1, &*text));
        }
    }
    Ok(())
}

/// Appends the text that the table's own `__tostring` makes.
fn append_object(call: &mut Call<'_>, argument: i32, first: i32, line: &mut Vec<u8>) -> Result<(), Raise> {
    if !call.stack.push_metafield(argument, "__tostring") {
        return Err(call.bad_argument(argument - first + 1, "expected table to have __tostring metamethod"));
    }
    call.stack.pop(1);
    if let Err(fault) = call.stack.push_as_text(argument) {
        return Err(call.raise(fault.text()));
    }
    line.extend_from_slice(call.stack.text(-1).unwrap_or_default());
    call.stack.pop(1);
    Ok(())
}
