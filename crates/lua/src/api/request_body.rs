//! `ngx.req`: the body of the request.

use clearway_http::{Afterwards, Fill, MadeBody};
use clearway_luajit::{Call, Fault, Raise, Returns, Value};

use super::output::ANSWERING;
use super::request::{CHANGING, finish_args, limit};
use super::room::{Install, put};
use crate::current::{BodyWork, LuaPhase, Pause, Phases, Scene, allow, allow_request, pause, scene};
use crate::request_state::RequestState;

/// Where a body may be looked at.
const LOOKING: Phases = Phases::of(&[
    LuaPhase::ServerRewrite,
    LuaPhase::Rewrite,
    LuaPhase::Access,
    LuaPhase::Precontent,
    LuaPhase::Content,
    LuaPhase::HeaderFilter,
    LuaPhase::BodyFilter,
    LuaPhase::Log,
    LuaPhase::Balancer,
]);

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("req", |stack| {
        put(stack, "read_body", read_body);
        put(stack, "discard_body", discard_body);
        put(stack, "get_body_data", get_body_data);
        put(stack, "get_body_file", get_body_file);
        put(stack, "get_post_args", get_post_args);
        put(stack, "set_body_data", set_body_data);
        put(stack, "init_body", init_body);
        put(stack, "append_body", append_body);
        put(stack, "finish_body", finish_body);
        put(stack, "_set_body_file", set_body_file);
    });
    install.run(include_str!("request_body.lua"), c"=request_body")
}

fn read_body(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, ANSWERING)?;
    pause(call, Pause::ReadBody)
}

fn discard_body(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow_request(call, ANSWERING)?;
    let discarded = scene(call, |scene| match scene {
        Scene::Handler(exchange) => exchange.discard_body().is_ok(),
        Scene::Head(_) | Scene::Body(_) => true,
    })?;
    if discarded { Ok(Returns::Values(0)) } else { Err(call.raise("failed to discard request body")) }
}

/// The body of the request, if it is in memory.
fn body(call: &mut Call<'_>) -> Result<Option<Vec<u8>>, Raise> {
    scene(call, |scene| {
        let stored = scene.request().stored_body()?;
        stored.in_memory().filter(|bytes| !bytes.is_empty()).map(|bytes| bytes.to_vec())
    })
}

fn get_body_data(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, LOOKING)?;
    let max = match call.stack.get(1) {
        Value::Nil => 0,
        _ => call.number(1)?.max(0.0) as usize,
    };
    let mut data = body(call)?;
    if let Some(data) = &mut data
        && max > 0
    {
        data.truncate(max);
        debug_assert!(data.len() <= max, "no more is shown than is wanted");
    }
    call.stack.push(data.as_deref());
    Ok(Returns::Values(1))
}

fn get_body_file(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, LOOKING)?;
    let path = scene(call, |scene| {
        use std::os::unix::ffi::OsStrExt;
        let stored = scene.request().stored_body()?;
        Some(stored.file()?.path().as_os_str().as_bytes().to_vec())
    })?;
    call.stack.push(path.as_deref());
    Ok(Returns::Values(1))
}

fn get_post_args(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, LOOKING)?;
    let max = limit(call, 1)?;
    let state = scene(call, |scene| match scene.request().stored_body() {
        Some(stored) if stored.file().is_some() => Err("request body in temp file not supported"),
        Some(_) => Ok(true),
        None => Ok(scene.request().has_read_body()),
    })?;
    match state {
        Err(text) => {
            call.stack.push(());
            call.stack.push(text);
            return Ok(Returns::Values(2));
        }
        Ok(false) => {
            return Err(call.raise("no request body found; maybe you should turn on lua_need_request_body?"));
        }
        Ok(true) => {}
    }
    let data = body(call)?.unwrap_or_default();
    call.stack.push_table(0, 4);
    finish_args(call, &data, max)
}

fn set_body_data(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let phase = allow(call, CHANGING)?;
    let data = call.text(1)?.to_vec();
    let is_set = scene(call, |scene| {
        let Scene::Handler(exchange) = scene else { return false };
        // What passes a request on has read it.
        if phase != LuaPhase::Balancer && !exchange.request.has_read_body() {
            return false;
        }
        exchange.request.set_stored_body(data.into()).is_ok()
    })?;
    if is_set { Ok(Returns::Values(0)) } else { Err(call.raise("request body not read yet")) }
}

/// ([size]): begins a body that is made piece by piece.
fn init_body(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count > 1 {
        return Err(call.raise(&*format!("expecting 0 or 1 argument but seen {count}")));
    }
    let mut room = None;
    if count == 1 {
        let size = call.number(1)? as i64;
        let Ok(size) = usize::try_from(size) else {
            return Err(call.raise(&*format!("bad size argument: {size}")));
        };
        room = Some(size);
    }
    allow(call, CHANGING)?;
    let is_read = scene(call, |scene| {
        let Some(state) = RequestState::of(scene.request()) else { return false };
        let mut kept = state.kept.enter();
        let is_read = scene.request().has_read_body() || kept.has_body_socket;
        if is_read {
            kept.made_body = Some(MadeBody::new(scene.request(), room));
        }
        is_read
    })?;
    if is_read { Ok(Returns::Values(0)) } else { Err(call.raise("request body not read yet")) }
}

fn append_body(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 1 {
        return Err(call.raise(&*format!("expecting 1 arguments but seen {count}")));
    }
    let data = call.text(1)?.to_vec();
    let phase = allow(call, CHANGING)?;
    let fill = scene(call, |scene| {
        let state = RequestState::of(scene.request())?;
        Some(state.kept.enter().made_body.as_mut()?.append(&data))
    })?;
    match fill {
        None => Err(call.raise("request_body not initialized")),
        // What cannot wait keeps it in memory.
        Some(Fill::Full) if phase != LuaPhase::Set => pause(call, Pause::Body(BodyWork::PutAside)),
        Some(_) => Ok(Returns::Values(0)),
    }
}

fn finish_body(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 0 {
        return Err(call.raise(&*format!("expecting 0 argument but seen {count}")));
    }
    let phase = allow(call, CHANGING)?;
    let begun = scene(call, |scene| {
        let state = RequestState::of(scene.request())?;
        Some(state.kept.enter().made_body.as_ref()?.needs_file(scene.request()))
    })?;
    match begun {
        None => Err(call.raise("request_body not initialized")),
        Some(true) if phase != LuaPhase::Set => pause(call, Pause::Body(BodyWork::Finish)),
        Some(_) => {
            let is_set = scene(call, |scene| {
                let Scene::Handler(exchange) = scene else { return false };
                let body =
                    RequestState::of(exchange.request).and_then(|state| state.kept.enter().made_body.take());
                body.is_some_and(|body| body.finish_in_memory(exchange.request).is_ok())
            })?;
            if is_set { Ok(Returns::Values(0)) } else { Err(call.raise("request_body not initialized")) }
        }
    }
}

/// (path [, whether it is removed afterwards]) → `nil`, or what is wrong: the chunk of `ngx.req` raises it.
fn set_body_file(call: &mut Call<'_>) -> Result<Returns, Raise> {
    call.speak_for_caller();
    let count = call.arguments();
    if !(1..=2).contains(&count) {
        return Err(call.raise(&*format!("expecting 1 or 2 arguments but seen {count}")));
    }
    let path = call.text(1)?.to_vec();
    let afterwards = match count == 2 && call.stack.is_true(2) {
        true => Afterwards::Removed,
        false => Afterwards::Kept,
    };
    allow_request(call, ANSWERING)?;
    let state = scene(call, |scene| match scene {
        Scene::Handler(exchange) if exchange.body.is_dropped() => {
            Err("request body already discarded asynchronously")
        }
        Scene::Handler(exchange) if !exchange.request.has_read_body() => Err("request body not read yet"),
        _ => Ok(()),
    })?;
    match state {
        Err(text) => {
            call.stack.push(());
            call.stack.push(text);
            Ok(Returns::Values(2))
        }
        Ok(()) => pause(call, Pause::Body(BodyWork::UseFile { path, afterwards })),
    }
}
