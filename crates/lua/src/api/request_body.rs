//! `ngx.req`: the body of the request.

use clearway_luajit::{Call, Fault, Raise, Returns};

use super::output::ANSWERING;
use super::request::{CHANGING, finish_args, limit};
use super::room::{Install, put};
use crate::current::{LuaPhase, Pause, Phases, Scene, allow, pause, scene};

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
]);

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("req", |stack| {
        put(stack, "read_body", read_body);
        put(stack, "discard_body", discard_body);
        put(stack, "get_body_data", get_body_data);
        put(stack, "get_body_file", get_body_file);
        put(stack, "get_post_args", get_post_args);
        put(stack, "set_body_data", set_body_data);
    });
    Ok(())
}

fn read_body(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, ANSWERING)?;
    pause(call, Pause::ReadBody)
}

fn discard_body(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, ANSWERING)?;
    let discarded = scene(call, |scene| match scene {
        Scene::Handler(exchange) => exchange.discard_body().is_ok(),
        Scene::Head(_) | Scene::Body(_) => true,
    })?;
    if discarded { Ok(Returns::Values(0)) } else { Err(call.raise("failed to discard request body")) }
}

/// What is in memory of a body that was read.
fn body(call: &mut Call<'_>) -> Result<Option<Vec<u8>>, Raise> {
    scene(call, |scene| {
        let stored = scene.request().stored_body()?;
        stored.in_memory().filter(|bytes| !bytes.is_empty()).map(|bytes| bytes.to_vec())
    })
}

fn get_body_data(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, LOOKING)?;
    let data = body(call)?;
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
    allow(call, CHANGING)?;
    let data = call.text(1)?.to_vec();
    let is_set = scene(call, |scene| {
        let Scene::Handler(exchange) = scene else { return false };
        if !exchange.request.has_read_body() {
            return false;
        }
        exchange.request.set_stored_body(data.into()).is_ok()
    })?;
    if is_set { Ok(Returns::Values(0)) } else { Err(call.raise("request body not read yet")) }
}
