//! Fields of `ngx` that have a value for each request: `ngx.status`, `ngx.ctx`, `ngx.headers_sent`,
//! `ngx.is_subrequest`, `ngx.arg`; and facts about the server: `ngx.get_phase`, `ngx.config`, `ngx.worker`.

#[cfg(feature = "tls")]
use std::sync::Arc;
use std::sync::OnceLock;

use clearway_base::log::Level;
use clearway_http::Conditions;
use clearway_luajit::{Call, Fault, Raise, Reference, Returns, Value};
use clearway_message::{StatusLine, Version};

use super::modules::{ProcessType, process_type};
use super::request::REQUEST;
use super::room::{Install, put};
#[cfg(feature = "tls")]
use crate::current::HANDSHAKES;
use crate::current::{Args, Current, End, LuaPhase, Phases, Scene, allow, current, scene};
#[cfg(feature = "tls")]
use crate::request_state::Remembered;
use crate::request_state::RequestState;

/// The phases in which there is `ngx.ctx`.
pub(super) const WITH_CTX: Phases = Phases::but(&[LuaPhase::Init]);

/// The text that `-V` shows of how the server was configured.
static CONFIGURED: OnceLock<String> = OnceLock::new();

/// Sets the answer of `ngx.config.nginx_configure()`. Called once, before requests are served.
pub fn say_configured(arguments: String) {
    // A second one would be the same.
    let _ = CONFIGURED.set(arguments);
}

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        put(stack, "get_phase", get_phase);
        put(stack, "get_raw_phase", get_raw_phase);
        stack.push_table(0, 0);
        stack.push_table(0, 2);
        put(stack, "__index", arg);
        put(stack, "__newindex", set_arg);
        stack.set_metatable(-2);
        stack.raw_set_field(-2, "arg");
        stack.push_table(0, 2);
        put(stack, "__index", index);
        put(stack, "__newindex", new_index);
        stack.set_metatable(-2);
    });
    install.table("config", |stack| {
        put(stack, "prefix", |call| {
            let prefix = current(call, |current| current.vm.prefix.clone())?;
            call.stack.push(&prefix[..]);
            Ok(Returns::Values(1))
        });
        put(stack, "nginx_configure", |call| {
            call.stack.push(CONFIGURED.get().map_or("", String::as_str));
            Ok(Returns::Values(1))
        });
        stack.push("http");
        stack.raw_set_field(-2, "subsystem");
        stack.push(false);
        stack.raw_set_field(-2, "debug");
        stack.push(1_031_005.0);
        stack.raw_set_field(-2, "nginx_version");
        stack.push(10_030.0);
        stack.raw_set_field(-2, "ngx_lua_version");
    });
    install_worker(install);
    Ok(())
}

fn install_worker(install: &mut Install<'_>) {
    install.table("worker", |stack| {
        put(stack, "id", |call| {
            let id = current(call, |current| current.vm.place.worker_id)?;
            // The agent is none of the workers.
            let is_worker = process_type() != ProcessType::PrivilegedAgent;
            call.stack.push(is_worker.then_some(f64::from(id)));
            Ok(Returns::Values(1))
        });
        put(stack, "count", |call| {
            let count = current(call, |current| current.vm.place.workers)?;
            call.stack.push(f64::from(count));
            Ok(Returns::Values(1))
        });
        put(stack, "pid", |call| {
            let pid = current(call, |current| current.vm.pid())?;
            call.stack.push(f64::from(pid));
            Ok(Returns::Values(1))
        });
        put(stack, "pids", |call| {
            let pids = current(call, |current| current.vm.pids())?;
            call.stack.push_table(pids.len(), 0);
            for (at, pid) in (1..).zip(pids) {
                call.stack.push(f64::from(pid));
                call.stack.raw_set_item(-2, at);
            }
            Ok(Returns::Values(1))
        });
        put(stack, "exiting", |call| {
            let is_exiting = current(call, |current| {
                let is_ending = current.vm.timers().is_some_and(|timers| timers.is_ending());
                is_ending || current.phase == LuaPhase::ExitWorker
            })?;
            call.stack.push(is_exiting);
            Ok(Returns::Values(1))
        });
    });
}

fn get_phase(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let phase = current(call, |current| current.phase)?;
    call.stack.push(phase.name());
    Ok(Returns::Values(1))
}

/// The phase as lua-resty-core's number of it.
fn get_raw_phase(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let phase = current(call, |current| current.phase)?;
    call.stack.push(f64::from(phase.core_bit()));
    Ok(Returns::Values(1))
}

fn index(call: &mut Call<'_>) -> Result<Returns, Raise> {
    enum Property {
        Status,
        Ctx,
        HeadersSent,
        IsSubrequest,
    }
    let property = match call.stack.get(2) {
        Value::Text(b"ctx") => Property::Ctx,
        Value::Text(b"status") => Property::Status,
        Value::Text(b"headers_sent") => Property::HeadersSent,
        Value::Text(b"is_subrequest") => Property::IsSubrequest,
        _ => {
            call.stack.push(());
            return Ok(Returns::Values(1));
        }
    };
    if let Property::Ctx = property {
        allow(call, WITH_CTX)?;
        return ctx(call);
    }
    allow(call, REQUEST)?;
    match property {
        Property::Ctx => {}
        Property::Status => {
            let status = scene(call, |scene| status_of(&scene))?;
            call.stack.push(f64::from(status));
        }
        Property::HeadersSent => {
            let is_sent = scene(call, |scene| is_head_sent(&scene))?;
            call.stack.push(is_sent);
        }
        Property::IsSubrequest => {
            let is_subrequest = scene(call, |scene| !scene.request().is_main())?;
            call.stack.push(is_subrequest);
        }
    }
    Ok(Returns::Values(1))
}

/// Pushes the request's table, which is made when it is asked for first.
fn ctx(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let kept = current(call, |current| current.kept(|kept| kept.ctx.take()).flatten())?;
    match &kept {
        Some(table) => call.stack.push(table),
        None => {
            call.stack.push_table(0, 4);
            #[cfg(feature = "tls")]
            fall_back(call)?;
        }
    }
    let kept = match kept {
        Some(table) => table,
        None => {
            call.stack.push_slot(-1);
            call.stack.take_shelved()
        }
    };
    keep_ctx(call, kept)?;
    Ok(Returns::Values(1))
}

/// Whether a new `ngx.ctx` is more than a table: it falls back on one, or others fall back on it.
pub(super) fn has_fallback(current: &mut Current<'_>) -> bool {
    #[cfg(feature = "tls")]
    return HANDSHAKES.has(current.phase)
        || current.scene(|scene| Remembered::of(scene.request()).is_some()) == Some(true);
    #[cfg(not(feature = "tls"))]
    {
        let _ = current;
        false
    }
}

/// Has the topmost table, which is new, fall back on that of the connection's handshake; that of a handshake
/// is such a one itself.
#[cfg(feature = "tls")]
fn fall_back(call: &mut Call<'_>) -> Result<(), Raise> {
    if HANDSHAKES.has(current(call, |current| current.phase)?) {
        call.stack.push_slot(-1);
        call.stack.raw_set_field(-2, "__index");
        return Ok(());
    }
    if let Some(shared) = current(call, remembered)? {
        call.stack.push(&shared.ctx);
        call.stack.set_metatable(-2);
    }
    Ok(())
}

/// What the handshake of the request's connection has left in this VM.
#[cfg(feature = "tls")]
fn remembered(current: &mut Current<'_>) -> Option<Arc<Remembered>> {
    let own = current.vm.slot.upgrade()?;
    let found = current.scene(|scene| {
        Remembered::of(scene.request())?;
        scene.request().tls()?.offer.remembered.clone()
    });
    let shared = found.flatten()?.downcast::<Remembered>().ok()?;
    Arc::ptr_eq(&own, &shared.slot).then_some(shared)
}

/// The number of the table that a new `ngx.ctx` of a request falls back on.
pub(super) fn fallback_number(current: &mut Current<'_>) -> Option<i32> {
    #[cfg(feature = "tls")]
    return remembered(current).map(|shared| shared.ctx.number());
    #[cfg(not(feature = "tls"))]
    {
        let _ = current;
        None
    }
}

/// Compiled code finds it from now on.
fn keep_ctx(call: &mut Call<'_>, table: Reference) -> Result<(), Raise> {
    call.stack.show(Some(&table));
    let is_kept = current(call, |current| current.kept(|all| all.ctx = Some(table)).is_some())?;
    if !is_kept {
        call.stack.show(None);
    }
    Ok(())
}

fn new_index(call: &mut Call<'_>) -> Result<Returns, Raise> {
    match call.stack.get(2) {
        Value::Text(b"ctx") => {
            allow(call, WITH_CTX)?;
            if call.stack.get(3) != Value::Table {
                let got = call.stack.get(3).type_name();
                return Err(call.raise(&*format!("ctx should be a table while getting a {got}")));
            }
            call.stack.push_slot(3);
            let table = call.stack.take_shelved();
            keep_ctx(call, table)?;
        }
        Value::Text(b"status") => {
            allow(call, REQUEST)?;
            let status = call.number(3)? as i64;
            current(call, |current| choose_status(current, status))?;
        }
        _ => {
            call.stack.push_slot(2);
            call.stack.push_slot(3);
            call.stack.raw_set(1);
        }
    }
    Ok(Returns::Values(0))
}

/// Chooses the status, or logs that it is too late.
pub(super) fn choose_status(current: &mut Current<'_>, status: i64) {
    choose_status_line(current, status, None);
}

/// Sets the status with a phrase for the status line, which needs a valid status. Returns whether it was set.
pub(super) fn choose_phrased_status(current: &mut Current<'_>, status: i64, phrase: &[u8]) -> bool {
    if !(100..=999).contains(&status) {
        let line = format_args!("invalid HTTP status code {status}");
        current.scene(|scene| scene.request().log(Level::Error, line));
        return false;
    }
    choose_status_line(current, status, Some(phrase).filter(|phrase| !phrase.is_empty()))
}

fn choose_status_line(current: &mut Current<'_>, status: i64, phrase: Option<&[u8]>) -> bool {
    let phase = current.phase;
    // nginx has none for this one, which only code answers with.
    let phrase = if status == 101 { Some(&b"Switching Protocols"[..]) } else { phrase };
    let chosen = current.scene(|mut scene| {
        if let Some(state) = RequestState::of(scene.request()) {
            state.kept.enter().has_status = true;
        }
        match scene.head_mut() {
            Some(head) if phase != LuaPhase::Log => {
                head.status = u16::try_from(status).unwrap_or(0);
                let text = |phrase| [status.to_string().as_bytes(), b" ", phrase].concat().into_boxed_slice();
                let line = |phrase| Box::new(StatusLine(text(phrase)));
                head.status_line = phrase.map(line);
                true
            }
            _ => {
                let line = format_args!("attempt to set ngx.status after sending out response headers");
                scene.request().log(Level::Error, line);
                false
            }
        }
    });
    chosen == Some(true)
}

/// The status as code sees it.
pub(super) fn status_of(scene: &Scene<'_, '_, '_>) -> u16 {
    let is_chosen = RequestState::of(scene.request()).is_some_and(|state| state.kept.enter().has_status);
    let shown = scene.request().error_status().filter(|_| !is_chosen);
    // A request in the oldest form has no status line, and upstream shows its version.
    match shown.unwrap_or_else(|| scene.view().status()) {
        0 if scene.request().version() == Version::HTTP_09 => Version::HTTP_09.0,
        status => status,
    }
}

/// Whether the head of the response is on its way.
pub(super) fn is_head_sent(scene: &Scene<'_, '_, '_>) -> bool {
    match scene {
        Scene::Handler(exchange) => exchange.output.head_sent(),
        Scene::Head(_) => false,
        Scene::Body(_) => true,
    }
}

/// (status, phrase): chooses both.
pub(super) fn set_status(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    let (status, phrase) = (call.number(1)? as i64, call.text(2)?.to_vec());
    current(call, |current| choose_phrased_status(current, status, &phrase))?;
    Ok(Returns::Values(0))
}

/// Has the conditions of the request count for nothing.
pub(super) fn bypass_if_checks(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    current(call, leave_conditions)?;
    Ok(Returns::Values(0))
}

/// Does so.
pub(super) fn leave_conditions(current: &mut Current<'_>) {
    current.scene(|mut scene| {
        if let Some(head) = scene.head_mut() {
            head.conditions = Conditions::JudgedThere;
        }
    });
}

fn arg(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let index = call.number(2)? as usize;
    enum Found {
        Text(Vec<u8>),
        Flag(bool),
        Nothing,
        NotHere(LuaPhase),
    }
    let found = current(call, |current: &mut Current<'_>| match (&current.args, index) {
        (Args::Chunk { data, .. }, 1) => data.clone().map_or(Found::Nothing, Found::Text),
        (Args::Chunk { end, .. }, 2) => Found::Flag(*end == End::Yes),
        (Args::Set(texts), at) => {
            let text = at.checked_sub(1).and_then(|at| texts.get(at));
            text.cloned().map_or(Found::Nothing, Found::Text)
        }
        (Args::None | Args::Balancing(_), _) => Found::NotHere(current.phase),
        _ => Found::Nothing,
    })?;
    match found {
        Found::Text(text) => call.stack.push(&text[..]),
        Found::Flag(flag) => call.stack.push(flag),
        Found::Nothing => call.stack.push(()),
        Found::NotHere(phase) => {
            return Err(call.raise(&*format!("API disabled in the context of {}", phase.context_name())));
        }
    }
    Ok(Returns::Values(1))
}

fn set_arg(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let index = call.number(2)? as usize;
    let text = match call.stack.get(3) {
        Value::Nil => Some(Vec::new()),
        Value::Table => {
            let mut whole = Vec::new();
            super::output::append_any(call, 3, &mut whole)?;
            Some(whole)
        }
        Value::Boolean(_) if index == 2 => None,
        _ => Some(call.text(3)?.to_vec()),
    };
    let is_true = call.stack.is_true(3);
    let phase = current(call, |current| {
        if let Args::Chunk { data, end } = &mut current.args {
            match index {
                1 => *data = text,
                _ => *end = if is_true { End::Yes } else { End::No },
            }
        }
        current.phase
    })?;
    if phase != LuaPhase::BodyFilter {
        return Err(call.raise(&*format!("API disabled in the context of {}", phase.context_name())));
    }
    Ok(Returns::Values(0))
}
