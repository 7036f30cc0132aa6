//! `ngx.req` without bodies: the client's request, and changes of it.

use clearway_base::log::{Level, Verbatim};
use clearway_http::{Rewritten, SharedHead};
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_message::{Method, Version};

use super::args;
use super::control::check_abortable;
use super::header::return_lines;
use super::room::{Install, put};
use crate::current::{
    HANDSHAKES, LuaPhase, Pause, Phases, Scene, allow, allow_request, current, pause, scene,
};

/// The phases in which there is a request.
pub(super) const REQUEST: Phases = Phases::but(&[
    LuaPhase::Init,
    LuaPhase::InitWorker,
    LuaPhase::ExitWorker,
    LuaPhase::Timer,
    LuaPhase::WorkerThread,
])
.without(HANDSHAKES);

/// Where a request can be changed.
pub(super) const CHANGING: Phases = Phases::of(&[
    LuaPhase::Set,
    LuaPhase::ServerRewrite,
    LuaPhase::Rewrite,
    LuaPhase::Access,
    LuaPhase::Precontent,
    LuaPhase::Content,
    LuaPhase::Balancer,
]);

/// The phases in which code may change the head of the request: logging included.
pub(super) const EDITING: Phases = CHANGING.and(LuaPhase::Log);

/// Header lines or arguments that are given unless more is asked for.
pub(super) const ENTRIES_MAX: usize = 100;

pub(super) const METHODS: [(Method, i32); 16] = [
    (Method::Get, 2),
    (Method::Head, 4),
    (Method::Post, 8),
    (Method::Put, 16),
    (Method::Delete, 32),
    (Method::Mkcol, 64),
    (Method::Copy, 128),
    (Method::Move, 256),
    (Method::Options, 512),
    (Method::Propfind, 1024),
    (Method::Proppatch, 2048),
    (Method::Lock, 4096),
    (Method::Unlock, 8192),
    (Method::Patch, 16_384),
    (Method::Trace, 32_768),
    (Method::Connect, 65_536),
];

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("req", |stack| {
        put(stack, "_get_headers", headers);
        put(stack, "set_header", set_header);
        put(stack, "clear_header", clear_header);
        put(stack, "get_method", get_method);
        put(stack, "set_method", set_method);
        put(stack, "get_uri_args", get_uri_args);
        put(stack, "set_uri_args", set_uri_args);
        put(stack, "set_uri", set_uri);
        put(stack, "http_version", http_version);
        put(stack, "start_time", start_time);
        put(stack, "is_internal", is_internal);
        put(stack, "raw_header", raw_header);
    });
    install.run(include_str!("request.lua"), c"=request")
}

/// How many entries are wanted: 0 for all.
pub(super) fn limit(call: &mut Call<'_>, argument: i32) -> Result<usize, Raise> {
    match call.stack.get(argument) {
        Value::Nil => Ok(ENTRIES_MAX),
        _ => Ok(call.number(argument)?.max(0.0) as usize),
    }
}

fn headers(call: &mut Call<'_>) -> Result<Returns, Raise> {
    call.speak_for_caller();
    allow(call, REQUEST)?;
    let max = limit(call, 1)?;
    let lines: Vec<(Vec<u8>, Vec<u8>)> = scene(call, |scene| {
        scene.request().headers().map(|line| (line.name.to_vec(), line.value.to_vec())).collect()
    })?;
    return_lines(call, "request", &lines, max)
}

fn set_header(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, EDITING)?;
    let name = call.text(1)?.to_vec();
    let values = match call.stack.get(2) {
        Value::Nil => Vec::new(),
        Value::Boolean(value) => vec![value.to_string().into_bytes()],
        _ => texts_at(call, 2)?,
    };
    change(call, &name, &values)
}

/// (name, text or table of texts): lines beside those that there are.
pub(super) fn add_header(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, CHANGING)?;
    let name = args::escape_header_name(call.text(1)?);
    let values = texts_at(call, 2)?;
    let values: Vec<Vec<u8>> = values.iter().map(|value| args::escape_header_value(value)).collect();
    let added = match values.is_empty() {
        true => Ok(()),
        false => scene(call, |scene| edit(scene, &name, &values, Before::Kept))?,
    };
    match added {
        Ok(()) => Ok(Returns::Values(0)),
        Err(SharedHead) => Err(call.raise(SHARED_HEAD)),
    }
}

/// The text that an argument is, or the texts in a table.
fn texts_at(call: &mut Call<'_>, argument: i32) -> Result<Vec<Vec<u8>>, Raise> {
    if call.stack.get(argument) != Value::Table {
        return Ok(vec![call.text(argument)?.to_vec()]);
    }
    let mut texts = Vec::new();
    for at in 1..=call.stack.raw_len(argument) as i32 {
        call.stack.raw_item(argument, at);
        texts.extend(call.stack.text(-1).map(<[u8]>::to_vec));
        call.stack.pop(1);
    }
    Ok(texts)
}

fn clear_header(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, EDITING)?;
    let name = call.text(1)?.to_vec();
    change(call, &name, &[])
}

fn change(call: &mut Call<'_>, name: &[u8], values: &[Vec<u8>]) -> Result<Returns, Raise> {
    let name = &args::escape_header_name(name)[..];
    let values: Vec<Vec<u8>> = values.iter().map(|value| args::escape_header_value(value)).collect();
    let changed = scene(call, |scene| edit(scene, name, &values, Before::Replaced))?;
    match changed {
        Ok(()) => Ok(Returns::Values(0)),
        Err(SharedHead) => Err(call.raise(SHARED_HEAD)),
    }
}

/// The error for a head that is shared with other requests.
pub(super) const SHARED_HEAD: &str = "the head of this request cannot be changed";

/// The fate of existing lines of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Replaced,
    Kept,
}

/// Gives a line of the head these values, none to remove it.
///
/// # Errors
/// Others have the head as well.
pub(super) fn edit(
    scene: Scene<'_, '_, '_>,
    name: &[u8],
    values: &[Vec<u8>],
    before: Before,
) -> Result<(), SharedHead> {
    let Scene::Handler(exchange) = scene else { return Err(SharedHead) };
    // A request without header lines keeps to that.
    if exchange.request.version() < Version::HTTP_10 {
        return Ok(());
    }
    let Some((first, others)) = values.split_first() else { return exchange.request.remove_header(name) };
    match before {
        Before::Replaced => exchange.request.set_header(name, first)?,
        Before::Kept => exchange.request.add_header(name, first)?,
    }
    others.iter().try_for_each(|value| exchange.request.add_header(name, value))
}

fn get_method(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    let name = scene(call, |scene| scene.request().method_name().to_vec())?;
    call.stack.push(&name[..]);
    Ok(Returns::Values(1))
}

fn set_method(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 1 {
        return Err(call.raise(&*format!("only one argument expected but got {count}")));
    }
    let number = call.number(1)? as i32;
    allow_request(call, Phases::but(&[LuaPhase::Init, LuaPhase::InitWorker, LuaPhase::ExitWorker]))?;
    let Some((method, _)) = METHODS.iter().find(|(_, its)| *its == number) else {
        return Err(call.raise(&*format!("unsupported HTTP method: {number}")));
    };
    scene(call, |scene| {
        if let Scene::Handler(exchange) = scene {
            exchange.request.set_method(*method);
        }
    })?;
    Ok(Returns::Values(0))
}

fn get_uri_args(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    let max = limit(call, 1)?;
    let text = scene(call, |scene| scene.request().args().to_vec())?;
    call.stack.push_table(0, 4);
    finish_args(call, &text, max)
}

/// Fills the table on top.
pub(super) fn finish_args(call: &mut Call<'_>, text: &[u8], max: usize) -> Result<Returns, Raise> {
    match args::decode(&mut call.stack, text, max) {
        args::Complete::Yes => Ok(Returns::Values(1)),
        args::Complete::Truncated => {
            let line = format_args!("lua hit query args limit {max}");
            current(call, |current| current.log(Level::Debug, line))?;
            call.stack.push("truncated");
            Ok(Returns::Values(2))
        }
    }
}

fn set_uri_args(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let text = match call.stack.get(1) {
        Value::Table => args::encode(call, 1)?,
        Value::Text(_) | Value::Number(_) => call.text(1)?.to_vec(),
        other => {
            let text = format!("string, number, or table expected, but got {}", other.type_name());
            return Err(call.bad_argument(1, &*text));
        }
    };
    allow(call, EDITING)?;
    scene(call, |scene| {
        if let Scene::Handler(exchange) = scene {
            exchange.request.set_args(text);
        }
    })?;
    Ok(Returns::Values(0))
}

fn set_uri(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if !(1..=3).contains(&count) {
        return Err(call.raise(&*format!("expecting 1, 2 or 3 arguments but seen {count}")));
    }
    let path = call.text(1)?.to_vec();
    if path.is_empty() {
        return Err(call.raise("attempt to use zero-length uri"));
    }
    let is_binary = call.arguments() > 2 && call.stack.is_true(3);
    if let Some(byte) = args::unsafe_byte(&path).filter(|_| !is_binary) {
        let path = args::quoted(&path);
        return Err(call.raise(&*format!(
            "unsafe byte \"{byte:#04x}\" in uri \"{path}\" (maybe you want to set the 'binary' argument?)"
        )));
    }
    let phase = allow(call, EDITING)?;
    let jumps = call.stack.get(2) == Value::Boolean(true);
    if jumps && !matches!(phase, LuaPhase::Rewrite | LuaPhase::ServerRewrite) {
        let name = phase.context_name();
        return Err(call.raise(&*format!("API disabled in the context of {name}")));
    }
    if jumps {
        check_abortable(call)?;
    }
    scene(call, |scene| {
        if let Scene::Handler(exchange) = scene {
            if jumps {
                let line = format_args!("lua set uri jump to \"{}\"", Verbatim(&path));
                exchange.request.log(Level::Debug, line);
            }
            exchange.request.mark_rewritten(if jumps { Rewritten::Search } else { Rewritten::Stay });
            exchange.request.set_path(path);
        }
    })?;
    if jumps { pause(call, Pause::Jump) } else { Ok(Returns::Values(0)) }
}

fn http_version(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    let version = scene(call, |scene| scene.request().version().0)?;
    call.stack.push(f64::from(version / 1000) + f64::from(version % 1000) / 10.0);
    Ok(Returns::Values(1))
}

fn start_time(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let start_ms = scene(call, |scene| scene.request().started_unix_ms())?;
    call.stack.push(start_ms as f64 / 1000.0);
    Ok(Returns::Values(1))
}

fn is_internal(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    let is_internal = scene(call, |scene| scene.request().origin() == clearway_http::Origin::Internal)?;
    call.stack.push(is_internal);
    Ok(Returns::Values(1))
}

fn raw_header(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    let is_without_line = call.arguments() > 0 && call.stack.is_true(1);
    let mut head = scene(call, |scene| scene.request().raw_head().to_vec())?;
    // Empty lines before the request line are no part of it.
    let begin = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(head.len());
    head.drain(..begin);
    if is_without_line && let Some(end) = head.iter().position(|&byte| byte == b'\n') {
        head.drain(..=end);
    }
    call.stack.push(&head[..]);
    Ok(Returns::Values(1))
}
