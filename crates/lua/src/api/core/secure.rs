//! TLS of sockets. A session that C holds is its bytes.

use std::sync::Arc;

use clearway_base::log::{Level, Verbatim};
use clearway_luajit::Reply;
use clearway_luajit::core::{CoreCall, sockets as asked};
use clearway_tls::{Chain, Pair, PrivateKey};

use super::codes::{AGAIN, BAD_CONTEXT, DONE, OK, failed};
use crate::api::tls::{context_of, refusal_of};
use crate::current::{Current, Pause, YIELDABLE, objection};
use crate::socket::connection::{Conn, SessionWish, Tcp};
use crate::socket::secure::{Handshake, Wish, described, handshake_beside, session_of};
use crate::threads::Operation;

/// A session for C to hold.
struct KeptSession(Vec<u8>);

/// Said where only OpenSSL's own objects would do.
const NO_STORE: &str = "stores of OpenSSL's are not supported";

pub(super) fn ask(call: &CoreCall<'_>, current: &mut Current<'_>, tcp: &Arc<Tcp>, reply: &mut Reply) -> i32 {
    match call.number(0) as u8 {
        asked::SHAKE => shake(call, current, tcp, reply),
        asked::SHAKEN => shaken(current, tcp, reply),
        asked::GIVEN => {
            let address = call.number(2) as usize;
            tcp.state().session = SessionWish::Given(address);
            current.log(Level::Debug, format_args!("lua ssl save session: {address:X}"));
            OK
        }
        asked::SESSION => match conn_of(tcp) {
            None => failed(reply, "closed"),
            Some(conn) => match session_of(&conn).1 {
                Some(session) => {
                    reply.object = Some(Box::new(KeptSession(session)));
                    OK
                }
                None => failed(reply, "no session"),
            },
        },
        asked::LIBRARY => match conn_of(tcp) {
            None => failed(reply, "closed"),
            Some(_) => failed(reply, "no ssl connection"),
        },
        asked::CONTEXT => match conn_of(tcp) {
            None => failed(reply, "closed"),
            Some(_) => failed(reply, "no ssl context"),
        },
        _ => failed(reply, NO_STORE),
    }
}

pub(super) fn log_freed(current: &mut Current<'_>, address: usize) {
    current.log(Level::Debug, format_args!("lua ssl free session: {address:X}"));
}

fn conn_of(tcp: &Tcp) -> Option<Arc<Conn>> {
    tcp.state().conn.clone()
}

/// (name; socket, whether a session is wanted, verify, staple, where the session is, whether a certificate is
/// shown; session, chain, key)
fn shake(call: &CoreCall<'_>, current: &mut Current<'_>, tcp: &Arc<Tcp>, reply: &mut Reply) -> i32 {
    current.log(Level::Debug, format_args!("lua tcp socket ssl handshake"));
    if let Some(words) = objection(current.phase, YIELDABLE) {
        failed(reply, &words);
        return BAD_CONTEXT;
    }
    if let Some(refused) = refusal_of(tcp) {
        return failed(reply, refused);
    }
    let session = call.object::<KeptSession>();
    let wishes = call.number(2) != 0.0;
    if conn_of(tcp).is_some_and(|conn| conn.has_tls()) {
        if session.is_some() {
            return DONE;
        }
        let mut state = tcp.state();
        state.session = if wishes { SessionWish::Yes } else { SessionWish::No };
        state.shaken = Some(Ok(()));
        return OK;
    }
    let pair = match (call.object::<Arc<Chain>>(), call.object::<Arc<PrivateKey>>()) {
        (Some(chain), Some(key)) => Some(Pair::new(Arc::clone(chain), Arc::clone(key))),
        _ if call.number(6) != 0.0 => return failed(reply, "invalid client certificate chain"),
        _ => None,
    };
    let name = Some(call.text(0)).filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
    if session.is_some() {
        let address = call.number(5) as usize;
        current.log(Level::Debug, format_args!("lua ssl set session: {address:X}"));
    }
    if let Some(name) = &name {
        current.log(Level::Debug, format_args!("lua ssl server name: \"{}\"", Verbatim(name)));
    }
    let (Some(context), Some(home)) = (context_of(current), current.home()) else {
        return failed(reply, "failed to create ssl connection");
    };
    let conn = {
        let mut state = tcp.state();
        state.is_connecting = true;
        state.shaken = None;
        state.session = if wishes { SessionWish::Yes } else { SessionWish::No };
        state.offered = session.map(|session| session.0.clone());
        state.conn.take()
    };
    let Some(conn) = conn else { return failed(reply, "closed") };
    let wish = |at| if call.number(at) == 0.0 { Wish::No } else { Wish::Yes };
    let work = Handshake {
        tcp: Arc::clone(tcp),
        conn,
        home,
        context,
        name,
        session: session.map(|session| session.0.clone()),
        pair,
        verify: wish(3),
        staple: wish(4),
    };
    current.pause = Some(Pause::Operation(Operation::new(handshake_beside(work))));
    AGAIN
}

/// The session where it is wanted: an object that C is to hold, or the address at which it has it.
fn shaken(current: &mut Current<'_>, tcp: &Arc<Tcp>, reply: &mut Reply) -> i32 {
    let (shaken, wish) = {
        let state = tcp.state();
        (state.shaken.clone(), state.session)
    };
    match shaken {
        None => return failed(reply, "closed"),
        Some(Err(text)) => return failed(reply, &text),
        Some(Ok(())) => {}
    }
    if let SessionWish::Given(address) = wish {
        reply.number = address as f64;
        return OK;
    }
    let Some(conn) = conn_of(tcp) else { return failed(reply, "closed") };
    debug_assert!(conn.has_tls(), "a handshake that was made has made TLS");
    let (info, session) = session_of(&conn);
    current.log(Level::Debug, format_args!("{}", described(&info)));
    let offered = tcp.state().offered.take();
    if info.is_resumed {
        current.log(Level::Debug, format_args!("SSL reused session"));
    }
    match session.or_else(|| offered.filter(|_| info.is_resumed)) {
        Some(session) if wish == SessionWish::Yes => reply.object = Some(Box::new(KeptSession(session))),
        _ => tcp.state().session = SessionWish::Given(0),
    }
    OK
}
