//! Functions that end a handler, or have it wait: `ngx.exit`, `ngx.redirect`, `ngx.exec`, `ngx.sleep`.

use clearway_base::log::{Level, Verbatim};
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_message::uri;

use super::args;
use super::output::ANSWERING;
use super::room::{Install, put};
use crate::current::{
    Current, LuaPhase, MARK, Pause, Phases, Scene, YIELDABLE, allow, current, pause, scene,
};

pub(super) const EXITING: Phases = Phases::but(&[
    LuaPhase::Init,
    LuaPhase::InitWorker,
    LuaPhase::ExitWorker,
    LuaPhase::Set,
    LuaPhase::Log,
    LuaPhase::WorkerThread,
]);

const SUBREQUESTS: &str = "attempt to abort with pending subrequests";

/// Numbers of nginx that are no status.
const AGAIN: i32 = -2;
const DONE: i32 = -4;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        put(stack, "exit", exit);
        put(stack, "redirect", redirect);
        put(stack, "exec", exec);
        put(stack, "sleep", sleep);
    });
    Ok(())
}

fn exit(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let phase = allow(call, EXITING)?;
    let code = call.number(1)? as i32;
    match current(call, |current| leave(current, phase, code))? {
        Err(words) => Err(call.raise(words)),
        // As upstream, where what cannot wait cannot be left from within.
        Ok(Leaving::GoesOn) => Ok(Returns::Values(0)),
        Ok(Leaving::Yields) => {
            call.stack.push(MARK);
            Ok(Returns::Yield(1))
        }
    }
}

/// The way in which code ends after it has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// The thread yields until that is over.
    Yields,
    /// The thread goes on, and has this result when it is over.
    GoesOn,
}

/// Code ends with this.
///
/// # Errors
/// What is wrong with the code, or with the moment.
pub(super) fn leave(
    current: &mut Current<'_>,
    phase: LuaPhase,
    mut code: i32,
) -> Result<Leaving, &'static str> {
    if matches!(code, AGAIN | DONE) {
        return Err("bad argument to 'ngx.exit': does not accept NGX_AGAIN or NGX_DONE");
    }
    if !matches!(code, -1 | 408 | 444 | 499)
        && current.threads.as_ref().is_some_and(|threads| threads.has_subrequests())
    {
        return Err(SUBREQUESTS);
    }
    let is_sent = current.scene(|scene| match scene {
        Scene::Handler(exchange) => exchange.output.head_sent().then(|| exchange.view().status()),
        Scene::Head(_) | Scene::Body(_) => None,
    });
    if let Some(status) = is_sent.flatten()
        && code >= 300
        && !matches!(code, 408 | 444 | 499)
    {
        if code != i32::from(status) {
            current.scene(|scene| {
                let line = format_args!(
                    "attempt to set status {code} via ngx.exit after sending out the response status {status}"
                );
                scene.request().log(Level::Error, line);
            });
        }
        code = 0;
    }
    current.log(Level::Debug, format_args!("lua exit with code {code}"));
    current.pause = Some(Pause::Exit(code));
    let goes_on = matches!(phase, LuaPhase::HeaderFilter | LuaPhase::Balancer | LuaPhase::SslSessionStore);
    Ok(if goes_on { Leaving::GoesOn } else { Leaving::Yields })
}

/// Refuses to end code with subrequests under way.
pub(super) fn check_abortable(call: &mut Call<'_>) -> Result<(), Raise> {
    let has_subrequests =
        current(call, |current| current.threads.as_ref().is_some_and(|threads| threads.has_subrequests()))?;
    if has_subrequests {
        return Err(call.raise(SUBREQUESTS));
    }
    Ok(())
}

fn redirect(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let location = call.text(1)?.to_vec();
    let status = if call.arguments() > 1 { call.number(2)? as i32 } else { 302 };
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err(call.raise(
            "only ngx.HTTP_MOVED_TEMPORARILY, ngx.HTTP_MOVED_PERMANENTLY, ngx.HTTP_PERMANENT_REDIRECT, \
             ngx.HTTP_SEE_OTHER, and ngx.HTTP_TEMPORARY_REDIRECT are allowed",
        ));
    }
    allow(call, ANSWERING)?;
    check_abortable(call)?;
    let is_sent = scene(call, |mut scene| scene.head_mut().is_none())?;
    if is_sent {
        return Err(call.raise("attempt to call ngx.redirect after sending out the headers"));
    }
    if let Some(byte) = args::unsafe_byte(&location) {
        let location = args::quoted(&location);
        return Err(call.raise(&*format!("unsafe byte \"{byte:#04x}\" in redirect uri \"{location}\"")));
    }
    scene(call, |scene| {
        let line = format_args!("lua redirect to \"{}\" with code {status}", Verbatim(&location));
        scene.request().log(Level::Debug, line);
    })?;
    pause(call, Pause::Redirect { status: status as u16, location })
}

fn exec(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if !(1..=2).contains(&count) {
        return Err(call.raise(&*format!("expecting one or two arguments, but got {count}")));
    }
    let path = call.text(1)?.to_vec();
    if path.is_empty() {
        return Err(call.raise("The uri argument is empty"));
    }
    let given = match call.stack.get(2) {
        Value::Nil => None,
        Value::Text(_) | Value::Number(_) => Some(call.text(2)?.to_vec()),
        Value::Table => Some(args::encode(call, 2)?),
        other => {
            let text = format!("string, number, or table expected, but got {}", other.type_name());
            return Err(call.bad_argument(2, &*text));
        }
    };
    allow(call, ANSWERING)?;
    check_abortable(call)?;
    let is_sent = scene(call, |mut scene| scene.head_mut().is_none())?;
    if is_sent {
        return Err(call.raise("attempt to call ngx.exec after sending out response headers"));
    }
    let (path, own) = uri::split_args(&path);
    if path.first() == Some(&b'@') {
        return pause(call, Pause::Exec { path: path.to_vec(), args: None });
    }
    if has_dots(path) {
        let line = format_args!("unsafe URI \"{}\" was detected", Verbatim(path));
        scene(call, |scene| scene.request().log(Level::Error, line))?;
        return Err(call.raise("unsafe uri"));
    }
    let args = match given {
        Some(given) if own.is_empty() => Some(given),
        Some(given) => Some([own, b"&", &given].concat()),
        None => (!own.is_empty()).then(|| own.to_vec()),
    };
    pause(call, Pause::Exec { path: path.to_vec(), args })
}

/// Whether a path leads upward, or cannot be one.
fn has_dots(path: &[u8]) -> bool {
    path.is_empty() || path.contains(&0) || path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

fn sleep(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 1 {
        return Err(call.raise(&*format!("attempt to pass {count} arguments, but accepted 1")));
    }
    let seconds = call.number(1)?;
    if seconds < 0.0 {
        return Err(call.raise(&*format!("invalid sleep duration \"{}\"", (seconds * 1000.0) as i64)));
    }
    allow(call, YIELDABLE)?;
    pause(call, Pause::Sleep((seconds * 1000.0) as u64))
}
