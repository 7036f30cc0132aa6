//! Functions that send a response: `ngx.say`, `ngx.print`, `ngx.flush`, `ngx.eof`, `ngx.send_headers`. What
//! is written leaves as other responses do, when there is enough of it or the handler waits.

use clearway_base::log::Level;
use clearway_http::{Chunk, Exchange, Mark};
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_message::{Version, put_decimal};

use super::room::{Install, put};
use crate::current::{LuaPhase, Pause, Phases, Scene, allow, pause, scene};
use crate::request_state::{ContentType, RequestState, Response};
use crate::vm::settings::LUA_CONF;

/// Where a response may be made.
pub(super) const ANSWERING: Phases = Phases::of(&[
    LuaPhase::ServerRewrite,
    LuaPhase::Rewrite,
    LuaPhase::Access,
    LuaPhase::Precontent,
    LuaPhase::Content,
]);

/// How deep tables of pieces may be.
const DEPTH_MAX: u32 = 100;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        put(stack, "say", say);
        put(stack, "print", print);
        put(stack, "flush", flush);
        put(stack, "eof", eof);
        put(stack, "send_headers", send_headers);
    });
    Ok(())
}

fn say(call: &mut Call<'_>) -> Result<Returns, Raise> {
    write(call, "say", b"\n")
}

fn print(call: &mut Call<'_>) -> Result<Returns, Raise> {
    write(call, "print", b"")
}

fn write(call: &mut Call<'_>, name: &str, end: &[u8]) -> Result<Returns, Raise> {
    allow(call, ANSWERING)?;
    let mut data = Vec::new();
    for argument in 1..=call.arguments() {
        append(call, argument, argument, &mut data, (name, 0))?;
    }
    data.extend_from_slice(end);
    let (sent, filter) = scene(call, |scene| match scene {
        Scene::Handler(exchange) => {
            let filter = filter_of(exchange);
            (send(exchange, data), filter)
        }
        Scene::Head(_) | Scene::Body(_) => (Ok(()), Filter::None),
    })?;
    if sent.is_ok() && filter == Filter::Waits && call.may_yield() {
        return pause(call, Pause::Push);
    }
    Ok(answer(call, sent))
}

/// Whether the head has code of a filter before it, which runs when its handler is not in the VM.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    None,
    /// The handler returns first, and finds the work done when it is called again.
    Waits,
}

fn filter_of(exchange: &Exchange<'_, '_>) -> Filter {
    let has_code = exchange.request.conf(&LUA_CONF).header_filter.is_some();
    if has_code && !exchange.output.head_sent() { Filter::Waits } else { Filter::None }
}

/// 1, or `nil` and what is wrong.
fn answer(call: &mut Call<'_>, done: Result<(), &'static str>) -> Returns {
    match done {
        Ok(()) => {
            call.stack.push(1.0);
            Returns::Values(1)
        }
        Err(text) => {
            call.stack.push(());
            call.stack.push(text);
            Returns::Values(2)
        }
    }
}

/// Appends a value as it is sent. `argument` is the number of the argument that the slot belongs to.
fn append(
    call: &mut Call<'_>,
    argument: i32,
    slot: i32,
    out: &mut Vec<u8>,
    of: (&str, u32),
) -> Result<(), Raise> {
    match call.stack.get(slot) {
        Value::Text(text) => out.extend_from_slice(text),
        Value::Number(number) => append_number(call, slot, number, out),
        Value::Nil => out.extend_from_slice(b"nil"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Address(0) => out.extend_from_slice(b"null"),
        Value::Table => return append_table(call, argument, slot, out, of),
        _ => {
            let got = call.stack.get(slot).type_name();
            return Err(bad(call, argument, of.0, got));
        }
    }
    Ok(())
}

/// Appends a number as Lua writes it. One without a fraction, as most are, is not made a text of the VM for
/// that: each would be another one, to be found a place for and collected.
pub(super) fn append_number(call: &mut Call<'_>, slot: i32, number: f64, out: &mut Vec<u8>) {
    /// Beyond this number Lua writes fewer digits than there are.
    const DIGITS_MAX: f64 = 1e14;
    let is_whole = number.fract() == 0.0 && number.abs() < DIGITS_MAX;
    if is_whole && (number != 0.0 || number.is_sign_positive()) {
        if number < 0.0 {
            out.push(b'-');
        }
        put_decimal(out, number.abs() as u64);
        return;
    }
    call.stack.push_slot(slot);
    out.extend_from_slice(call.stack.text(-1).unwrap_or_default());
    call.stack.pop(1);
}

/// Appends the argument, which may be a table of pieces, as it is sent.
pub(super) fn append_any(call: &mut Call<'_>, argument: i32, out: &mut Vec<u8>) -> Result<(), Raise> {
    append(call, argument, argument, out, ("arg", 0))
}

fn bad(call: &mut Call<'_>, argument: i32, _: &str, got: &str) -> Raise {
    let text = format!("string, number, boolean, nil, ngx.null, or array table expected, but got {got}");
    call.bad_argument(argument, &*text)
}

fn append_table(
    call: &mut Call<'_>,
    argument: i32,
    slot: i32,
    out: &mut Vec<u8>,
    (name, depth): (&str, u32),
) -> Result<(), Raise> {
    if depth == DEPTH_MAX {
        return Err(call.bad_argument(argument, "too many nested tables"));
    }
    let last = last_index(call, argument, slot)?;
    for index in 1..=last {
        call.stack.reserve(4);
        call.stack.raw_item(slot, index);
        let item = call.stack.len();
        if !matches!(
            call.stack.get(item),
            Value::Text(_)
                | Value::Number(_)
                | Value::Nil
                | Value::Boolean(_)
                | Value::Address(0)
                | Value::Table
        ) {
            let text = format!("bad data type {} found", call.stack.get(item).type_name());
            return Err(call.bad_argument(argument, &*text));
        }
        append(call, argument, item, out, (name, depth + 1))?;
        call.stack.pop(1);
    }
    Ok(())
}

/// The highest number of a list; other keys are refused.
fn last_index(call: &mut Call<'_>, argument: i32, slot: i32) -> Result<i32, Raise> {
    let mut last = 0;
    call.stack.push(());
    while call.stack.next(slot).unwrap_or(false) {
        match call.stack.get(-2) {
            Value::Number(number) if number.fract() == 0.0 && number >= 1.0 => {
                last = last.max(number as i32);
            }
            _ => return Err(call.bad_argument(argument, "non-array table found")),
        }
        call.stack.pop(1);
    }
    Ok(last)
}

/// Sends a piece of the body, and the head before the first one.
fn send(exchange: &mut Exchange<'_, '_>, data: Vec<u8>) -> Result<(), &'static str> {
    if exchange.output.is_abandoned() {
        return Err("nginx output filter error");
    }
    if exchange.request.is_head() && exchange.output.head_sent() {
        return Err("header only");
    }
    if let Some(state) = RequestState::of(exchange.request) {
        let mut kept = state.kept.enter();
        if let Some(refusal) = kept.response.refusal() {
            return Err(refusal);
        }
        let is_old = exchange.request.version() < Version::HTTP_11;
        let is_to_keep = is_old
            && !exchange.output.head_sent()
            && exchange.request.is_main()
            // Where the length is known, nothing is kept to find it out.
            && (kept.buffered.is_some() || exchange.output.head().content_length.is_none());
        if is_to_keep && *exchange.request.conf(&LUA_CONF).http10_buffering {
            kept.buffered.get_or_insert_default().extend_from_slice(&data);
            let line = format_args!("lua buffering output bufs for the HTTP 1.0 request");
            exchange.request.log(Level::Debug, line);
            return Ok(());
        }
    }
    prepare_head(exchange);
    // Back-pressure comes where the handler waits: as upstream, writing itself does not.
    let _ = exchange.output.write(exchange.request, Chunk::Owned(data), Mark::More);
    // A filter has put another answer in its place.
    if exchange.output.is_refused() { Err("nginx output filter error") } else { Ok(()) }
}

/// Completes the head, unless it is sent.
pub(crate) fn prepare_head(exchange: &mut Exchange<'_, '_>) {
    if exchange.output.head_sent() {
        return;
    }
    let is_chosen = RequestState::of(exchange.request)
        .is_some_and(|state| state.kept.enter().content_type == ContentType::Chosen);
    let has_default = *exchange.request.conf(&LUA_CONF).use_default_type;
    let by_extension = exchange.request.content_type().filter(|_| has_default);
    let head = exchange.output.head();
    if head.status == 0 {
        head.status = 200;
    }
    if !is_chosen && head.content_type.is_none() && head.status != 304 {
        head.content_type = by_extension.map(Into::into);
    }
}

fn flush(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, ANSWERING)?;
    let is_to_wait = call.arguments() > 0 && call.stack.is_true(1);
    let flushed = scene(call, |scene| {
        let Scene::Handler(exchange) = scene else { return Ok(Flushed::Done) };
        if let Some(state) = RequestState::of(exchange.request) {
            let kept = state.kept.enter();
            if let Some(refusal) = kept.response.refusal() {
                return Err(refusal);
            }
            if kept.buffered.is_some() {
                let line = format_args!("lua http 1.0 buffering makes ngx.flush() a no-op");
                exchange.request.log(Level::Debug, line);
                return Err("buffering");
            }
        }
        if exchange.request.is_head() && exchange.output.head_sent() {
            return Err("header only");
        }
        if !exchange.output.head_sent() {
            return Err("nothing to flush");
        }
        let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Flush);
        Ok(Flushed::Begun)
    })?;
    match flushed {
        Ok(Flushed::Begun) if is_to_wait => pause(call, Pause::Flush),
        Ok(Flushed::Begun) => pause(call, Pause::Push),
        Ok(Flushed::Done) => Ok(answer(call, Ok(()))),
        Err(text) => Ok(answer(call, Err(text))),
    }
}

enum Flushed {
    Begun,
    Done,
}

fn eof(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, ANSWERING)?;
    let ended = scene(call, |scene| {
        let Scene::Handler(exchange) = scene else { return Ok(()) };
        if let Some(refusal) = refusal(exchange) {
            return Err(refusal);
        }
        finish(exchange);
        Ok(())
    })?;
    if ended.is_err() {
        return Ok(answer(call, ended));
    }
    pause(call, Pause::Push)
}

fn refusal(exchange: &Exchange<'_, '_>) -> Option<&'static str> {
    RequestState::of(exchange.request)?.kept.enter().response.refusal()
}

fn send_headers(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, ANSWERING)?;
    let sent = scene(call, |scene| {
        let Scene::Handler(exchange) = scene else { return Filter::None };
        if exchange.output.head_sent() {
            let text = format_args!("attempt to send headers after they were sent");
            exchange.request.log(Level::Debug, text);
            return Filter::None;
        }
        let filter = filter_of(exchange);
        prepare_head(exchange);
        exchange.output.send_head(exchange.request);
        filter
    });
    if sent? == Filter::Waits && call.may_yield() {
        return pause(call, Pause::Push);
    }
    Ok(answer(call, Ok(())))
}

/// Ends the response.
pub(crate) fn finish(exchange: &mut Exchange<'_, '_>) {
    let buffered = RequestState::of(exchange.request).and_then(|state| {
        let mut kept = state.kept.enter();
        kept.response = Response::Ended;
        kept.buffered.take()
    });
    prepare_head(exchange);
    let chunk = match buffered {
        Some(body) => {
            if !exchange.output.head_sent() {
                exchange.output.head().content_length = Some(body.len() as u64);
            }
            Chunk::Owned(body)
        }
        None => Chunk::EMPTY,
    };
    // It is the last one, so nothing has to wait for room.
    let _ = exchange.output.write(exchange.request, chunk, Mark::Last);
}
