//! `sslhandshake` of sockets, and certificates and keys that `ngx.ssl` reads for it. What Lua holds of
//! sessions, certificates and keys are copies of their bytes, which Lua collects.

use std::sync::Arc;

use clearway_base::log::Level;
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_tls::{Chain, Context, Pair, PrivateKey};

use super::room::{Install, put};
use super::tcp::{find, log, refuse, timeouts};
use crate::current::{Current, Pause, YIELDABLE, allow, current, pause};
use crate::socket::connection::{Direction, Tcp, TcpSource};
use crate::socket::secure::{Handshake, Wish, handshake, push_session};
use crate::threads::Operation;
use crate::vm::tls_settings::TLS_CONF;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_tls", |stack| {
        put(stack, "handshake", begin);
        put(stack, "session", session);
        put(stack, "debug", |call| {
            let text = String::from_utf8_lossy(call.text(1)?).into_owned();
            // A finalizer runs where nothing of the server does, perhaps.
            call.with_context::<crate::current::Run, _>(|current| {
                current.log(Level::Debug, format_args!("{text}"));
            });
            Ok(Returns::Values(0))
        });
        put(stack, "read_certificates", |call| {
            let read = Chain::read(call.text(1)?).map(drop);
            answer(call, read.map_err(|_| "PEM_read_bio_X509_AUX() failed"))
        });
        put(stack, "read_key", |call| {
            let read = PrivateKey::read(call.text(1)?, &[]).map(drop);
            answer(call, read.map_err(|_| "PEM_read_bio_PrivateKey() failed"))
        });
    });
    install.run(include_str!("tls.lua"), c"=ngx.socket.tcp")
}

fn answer(call: &mut Call<'_>, read: Result<(), &str>) -> Result<Returns, Raise> {
    if let Err(text) = read {
        return refuse(call, text);
    }
    call.stack.push(true);
    Ok(Returns::Values(1))
}

/// The TLS context for handshakes of this run.
pub(super) fn context_of(current: &mut Current<'_>) -> Option<Arc<Context>> {
    match current.alone {
        Some(alone) => alone.place.conf.tls.clone().or_else(crate::socket::secure::default_context),
        None => current.scene(|scene| scene.request().conf(&TLS_CONF).context()).flatten(),
    }
}

/// A text, unless nothing is said.
fn text_at(call: &mut Call<'_>, at: i32) -> Result<Option<Vec<u8>>, Raise> {
    match call.stack.get(at) {
        Value::Nil | Value::Boolean(false) => Ok(None),
        _ => call.text(at).map(|text| Some(text.to_vec())),
    }
}

fn wish_at(call: &Call<'_>, at: i32) -> Wish {
    if call.stack.is_true(at) { Wish::Yes } else { Wish::No }
}

/// (socket, session, name, verify, staple, certificates, key): whether a session was taken up, a text about
/// the connection, and the session; false where the connection has TLS already.
fn begin(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, YIELDABLE)?;
    log(call, Level::Debug, format_args!("lua tcp socket ssl handshake"))?;
    let Some(tcp) = find(call)? else { return refuse(call, "closed") };
    if let Some(refused) = refusal_of(&tcp) {
        return refuse(call, refused);
    }
    let conn = tcp.state().conn.clone().filter(|conn| conn.has_tls());
    if let Some(conn) = conn {
        push_session(&conn, &mut call.stack);
        return Ok(Returns::Values(3));
    }
    let (session, name) = (text_at(call, 2)?.filter(|text| !text.is_empty()), text_at(call, 3)?);
    let (verify, staple) = (wish_at(call, 4), wish_at(call, 5));
    let pair = match (text_at(call, 6)?, text_at(call, 7)?) {
        (Some(certificates), Some(key)) => match Pair::read(&certificates, &key, &[]) {
            Ok(pair) => Some(pair),
            Err(_) => return refuse(call, "ssl set client certificate failed"),
        },
        _ => None,
    };
    if let Some(name) = &name {
        let shown = clearway_base::log::Verbatim(name);
        log(call, Level::Debug, format_args!("lua ssl server name: \"{shown}\""))?;
    }
    let (context, home) = current(call, |current| (context_of(current), current.home()))?;
    let (Some(context), Some(home)) = (context, home) else { return Err(call.raise("no request found")) };
    let conf = tcp.conf;
    let timeouts = timeouts(call, &conf);
    let conn = {
        let mut state = tcp.state();
        state.timeouts = timeouts;
        state.is_connecting = true;
        state.conn.take()
    };
    let Some(conn) = conn else { return refuse(call, "closed") };
    let work = Handshake { tcp, conn, home, context, name, session, pair, verify, staple };
    pause(call, Pause::Operation(Operation::new(handshake(work))))
}

/// Why a socket cannot shake hands.
pub(super) fn refusal_of(tcp: &Tcp) -> Option<&'static str> {
    let state = tcp.state();
    let is_closed = state.reading == Direction::Closed || state.writing == Direction::Closed;
    match (state.busy(), &state.conn) {
        _ if tcp.source != TcpSource::Connection => Some("not supported for downstream sockets"),
        (Some(busy), _) => Some(busy),
        (None, Some(_)) if !is_closed => None,
        _ => Some("closed"),
    }
}

/// The session that the server has given since the last one was taken.
fn session(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let conn = find(call)?.and_then(|tcp| tcp.state().conn.clone());
    match conn {
        None => refuse(call, "closed"),
        Some(conn) if !conn.has_tls() => refuse(call, "not ssl connection"),
        Some(conn) => {
            push_session(&conn, &mut call.stack);
            Ok(Returns::Values(3))
        }
    }
}
