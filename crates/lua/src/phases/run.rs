//! Runs the code of a phase for a request: enters its VM, resumes the entry thread until that is over or
//! waits for something, leaves the VM, waits, and so on. In the request's task.

use std::future::poll_fn;

use clearway_base::log::{Level, Verbatim};
use clearway_http::{Answer, Exchange, HeaderName, Redirect, Request, Step, Store};
use clearway_luajit::{Coroutine, FaultKind};

use crate::api::output::finish;
use crate::code::Code;
use crate::current::{LuaPhase, Pause};
use crate::phases::code_file::{self, File, Unread};
use crate::phases::scheduler::{Ended, Failure, Ground, Schedule};
use crate::request_state::{RequestState, Response, note_exit, take_exit};
use crate::vm::interpreter::Interpreter;
use crate::vm::of_loop::{Chosen, NoVm, WAITING_MAX};
use crate::vm::settings::{LUA_CONF, LUA_MAIN};
use crate::vm::vms::Described;

/// Runs code in a phase that may wait.
pub(crate) async fn run(mut exchange: Exchange<'_, '_>, code: &Code, phase: LuaPhase) -> Step<'static> {
    if phase != LuaPhase::Log
        && *exchange.request.conf(&LUA_CONF).need_request_body
        && let Err(answer) = exchange.read_body(Store::Named).await
    {
        return Step::Respond(answer);
    }
    let mut chosen = match choose(&mut exchange).await {
        Ok(chosen) => chosen,
        Err(step) => return step,
    };
    let file = match file_of(&mut exchange, code, &mut chosen).await {
        Ok(file) => file,
        Err(unread) => {
            unread.log(exchange.request);
            return Step::status(unread.status);
        }
    };
    if phase == LuaPhase::Content {
        take_exit(&mut exchange);
    }
    let ended = {
        let mut start = |interpreter: &mut Interpreter| start(interpreter, code, file.as_ref());
        let mut ground = Ground::Request(&mut exchange);
        Schedule::new(phase).run(&mut ground, &mut chosen, &mut start).await
    };
    conclude(&mut exchange, phase, ended)
}

/// The VM of the request.
///
/// # Errors
/// What the request ends with, which is logged.
pub(crate) async fn choose(exchange: &mut Exchange<'_, '_>) -> Result<Chosen, Step<'static>> {
    #[cfg(feature = "tls")]
    if RequestState::of(exchange.request).is_none()
        && crate::request_state::Remembered::of(exchange.request).is_some()
    {
        RequestState::begin(exchange.request);
    }
    if let Some(state) = RequestState::of(exchange.request)
        && let Some(slot) = state.usable_slot()
    {
        return Ok(Chosen::again(slot));
    }
    let home = exchange.request.home();
    let Some(vms) = exchange.request.main_conf(&LUA_MAIN).vms.get() else {
        exchange.request.log(Level::Alert, format_args!("no Lua VM"));
        return Err(Step::status(500));
    };
    let of_loop = &vms[home];
    let chosen = if *exchange.request.conf(&LUA_CONF).code_cache {
        poll_fn(|cx| of_loop.poll_choose(cx)).await
    } else {
        let fresh = of_loop.begin_fresh();
        poll_fn(|cx| of_loop.poll_fresh(&fresh, cx)).await
    };
    let chosen = chosen.map_err(|why| Step::status(log_no_vm(exchange.request, why)))?;
    let is_begun = RequestState::of(exchange.request).is_some_and(|state| state.slot_is_free());
    if !is_begun {
        RequestState::begin(exchange.request);
    }
    debug_assert!(
        RequestState::of(exchange.request).is_some(),
        "what Lua keeps of the request has its place"
    );
    Ok(chosen)
}

/// Says why there is no VM; the status of the answer.
pub(crate) fn log_no_vm(request: &Request<'_>, why: NoVm) -> u16 {
    match why {
        NoVm::Crowded => {
            let line =
                format_args!("more than {WAITING_MAX} requests of the loop wait for a Lua VM to be made");
            request.log(Level::Error, line);
            503
        }
        NoVm::NotMade => {
            request.log(Level::Error, format_args!("no Lua VM could be made"));
            500
        }
    }
}

/// The file that the code is in, with its text unless the VM knows it.
pub(super) async fn file_of(
    exchange: &mut Exchange<'_, '_>,
    code: &Code,
    chosen: &mut Chosen,
) -> Result<Option<File>, Unread> {
    let Some(path) = code_file::path_of(&exchange.view(), code) else { return Ok(None) };
    if *exchange.request.conf(&LUA_CONF).code_cache {
        let is_known = poll_fn(|cx| chosen.poll(cx).map(|vm| vm.has_file(&path))).await;
        if is_known {
            return Ok(Some(File { path, text: None }));
        }
    }
    let text = code_file::read(exchange, &path).await?;
    Ok(Some(File { path, text: Some(text) }))
}

/// A thread for the code, which is compiled first where that is to be done.
fn start(interpreter: &mut Interpreter, code: &Code, file: Option<&File>) -> Result<Coroutine, Failure> {
    let Some(File { path, text }) = file else {
        return interpreter
            .start_compiled(code)
            .map_err(|fault| Failure::Load([b"failed to load inlined Lua code: ", fault.text()].concat()));
    };
    interpreter.start_file(path, text.as_deref()).map_err(|fault| {
        let parts: [&[u8]; 4] = [b"failed to load external Lua file \"", path, b"\": ", fault.text()];
        Failure::Load(parts.concat())
    })
}

/// The result of the phase.
fn conclude(exchange: &mut Exchange<'_, '_>, phase: LuaPhase, ended: Ended) -> Step<'static> {
    match ended {
        Ended::Failed(failure) if is_raw(exchange) => {
            log_failure(exchange, phase, &failure);
            Step::Respond(Answer::Close)
        }
        Ended::Finished | Ended::Asked(_) if is_raw(exchange) => Step::Respond(Answer::Close),
        Ended::Finished => conclude_finished(exchange, phase),
        Ended::Asked(Pause::Exit(code)) => conclude_exit(exchange, phase, code),
        Ended::Asked(Pause::Redirect { status, location }) => {
            let head = exchange.output.head();
            if location.first() == Some(&b'/') {
                // One that is relative is sent as it is.
                head.location = None;
                head.headers.set(HeaderName::new(b"Location"), &location);
            } else {
                head.location = Some(location.into());
            }
            Step::status(status)
        }
        Ended::Asked(Pause::Exec { path, args }) if path.first() == Some(&b'@') => {
            if let Some(args) = args {
                exchange.request.set_args(args);
            }
            Step::Respond(Answer::Named(path.into()))
        }
        Ended::Asked(Pause::Exec { path, args }) => {
            Step::Respond(Answer::Redirect(Box::new(Redirect { path, args })))
        }
        Ended::Asked(Pause::Answer(answer)) => Step::Respond(answer),
        Ended::Asked(Pause::Jump) => {
            // As upstream: what the new path has begins anew.
            if let Some(state) = RequestState::of(exchange.request) {
                state.kept.enter().ctx = None;
            }
            Step::Declined
        }
        Ended::Asked(_) => Step::Declined,
        Ended::Left(left) => Step::Left(left),
        Ended::Failed(failure) => {
            log_failure(exchange, phase, &failure);
            Step::status(500)
        }
    }
}

fn log_failure(exchange: &Exchange<'_, '_>, phase: LuaPhase, failure: &Failure) {
    let request = &exchange.request;
    match failure {
        Failure::Load(line) => request.log(Level::Error, format_args!("{}", Verbatim(line))),
        Failure::Run(fault) if phase == LuaPhase::Log => {
            let fault = Described(fault);
            request.log(Level::Error, format_args!("failed to run log_by_lua*: {fault}"));
        }
        Failure::Run(fault) => {
            let kind = match fault.kind() {
                FaultKind::Memory => "memory allocation error",
                _ => "runtime error",
            };
            let fault = Described(fault);
            request.log(Level::Error, format_args!("lua entry thread aborted: {kind}: {fault}"));
        }
    }
}

fn conclude_finished(exchange: &mut Exchange<'_, '_>, phase: LuaPhase) -> Step<'static> {
    if phase == LuaPhase::Log {
        return Step::Declined;
    }
    if phase == LuaPhase::Content || has_answered(exchange) {
        finish(exchange);
        return Step::Done;
    }
    if phase == LuaPhase::Access { Step::Allowed } else { Step::Declined }
}

/// `ngx.DECLINED`
const DECLINED: i32 = -5;

fn conclude_exit(exchange: &mut Exchange<'_, '_>, phase: LuaPhase, code: i32) -> Step<'static> {
    if let Some(state) = RequestState::of(exchange.request) {
        state.kept.enter().exit_code = code;
    }
    match code {
        0 => conclude_finished(exchange, phase),
        // No phase comes behind content.
        DECLINED if phase == LuaPhase::Content => Step::Respond(Answer::Close),
        DECLINED => Step::Declined,
        ..0 => Step::Respond(Answer::Close),
        408 | 444 | 499 if has_answered(exchange) => Step::Respond(Answer::Close),
        204 | 300.. if !has_answered(exchange) => {
            let status = u16::try_from(code).unwrap_or(500);
            note_exit(exchange, status);
            Step::status(status)
        }
        _ if code < 200 => Step::Declined,
        _ => {
            if !exchange.output.head_sent() && exchange.output.head().status == 0 {
                exchange.output.head().status = u16::try_from(code).unwrap_or(200);
            }
            finish(exchange);
            Step::Done
        }
    }
}

/// Whether Lua has written to the client itself.
fn is_raw(exchange: &Exchange<'_, '_>) -> bool {
    RequestState::of(exchange.request).is_some_and(|state| state.kept.enter().response == Response::Raw)
}

/// Whether Lua has begun to answer.
fn has_answered(exchange: &Exchange<'_, '_>) -> bool {
    let is_buffered = RequestState::of(exchange.request).is_some_and(|state| {
        let kept = state.kept.enter();
        kept.buffered.is_some() || kept.response == Response::Ended
    });
    is_buffered || exchange.output.head_sent() || exchange.output.is_refused()
}
