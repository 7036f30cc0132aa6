//! `ngx.on_abort`: code that runs when the client leaves before the handler is over.

use clearway_luajit::{Call, Fault, Raise, Returns, Value};

use super::output::ANSWERING;
use super::room::{Install, put};
use super::tcp::refuse;
use crate::current::{allow, current, scene};
use crate::request_state::OnAbort;
use crate::vm::settings::LUA_CONF;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| put(stack, "on_abort", on_abort));
    Ok(())
}

fn on_abort(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, ANSWERING)?;
    let is_there = current(call, |current| current.kept(|kept| !matches!(kept.on_abort, OnAbort::Nothing)))?;
    if is_there == Some(true) {
        return refuse(call, "duplicate call");
    }
    let looks = scene(call, |scene| *scene.request().conf(&LUA_CONF).check_client_abort)?;
    if !looks {
        return refuse(call, "lua_check_client_abort is off");
    }
    if call.arguments() < 1 || call.stack.get(1) != Value::Function {
        return Err(call.expected(1, "Lua function"));
    }
    let (code, parent) = (call.stack.take_coroutine(call.arguments() - 1), call.thread());
    current(call, |current| current.kept(|kept| kept.on_abort = OnAbort::Code(code, parent)))?;
    call.stack.push(1.0);
    Ok(Returns::Values(1))
}
