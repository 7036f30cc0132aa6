//! `ngx.socket.udp`: datagrams to one peer, as tables with methods.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use clearway_base::log::Level;
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_os::outgoing::{Remote, UNIX_PATH_MAX_BYTES};

use super::room::{Install, put};
use super::tcp::{add_to, check_table, conf_of, data_of, field, find_in, log, refuse};
use super::tcp_connect::{local_address, target};
use crate::current::{Pause, YIELDABLE, allow, current, pause};
use crate::socket::datagrams::{DATAGRAM_BYTES_MAX, Udp, receive, send, set_peer};
use crate::socket::operations::Target;
use crate::threads::Operation;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_udp", |stack| {
        put(stack, "setpeername", set_peer_name);
        put(stack, "send", send_data);
        put(stack, "receive", receive_data);
        put(stack, "close", close);
    });
    install.run(include_str!("udp.lua"), c"=ngx.socket.udp")
}

/// The table's socket; `None` if it is closed.
fn find(call: &mut Call<'_>) -> Result<Option<Arc<Udp>>, Raise> {
    check_table(call)?;
    let (Some(number), Some(owner)) = (field(call, 1), field(call, 2)) else { return Ok(None) };
    find_in(call, (number as usize, owner), |sockets| &mut sockets.udp)
}

fn forget(call: &mut Call<'_>) -> Result<(), Raise> {
    let number = field(call, 1).unwrap_or(-1.0);
    call.stack.push(());
    call.stack.raw_set_item(1, 1);
    current(call, |current| current.kept(|kept| kept.sockets.udp.remove(number as usize)))?;
    Ok(())
}

fn set_peer_name(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if !(2..=3).contains(&count) {
        let text = format!(
            "ngx.socket.udp setpeername: expecting 2 or 3 arguments (including the object), but seen {count}"
        );
        return Err(call.raise(&*text));
    }
    check_table(call)?;
    allow(call, YIELDABLE)?;
    let host = call.text(2)?.to_vec();
    let target = match host.strip_prefix(b"unix:") {
        Some(path) if path.is_empty() || path.len() > UNIX_PATH_MAX_BYTES => {
            let shown = String::from_utf8_lossy(&host).into_owned();
            return refuse(call, &format!("failed to parse host name \"{shown}\": too long unix path"));
        }
        Some(path) => Target::Remote(Remote::Unix(path.into())),
        None => {
            let port = call.number(3)? as i64;
            match u16::try_from(port) {
                Ok(port) => target(&host, port),
                Err(_) => return refuse(call, &format!("bad port number: {port}")),
            }
        }
    };
    let said = match count {
        2 => host_said(call)?,
        _ => format!("{}:{}", host_said(call)?, call.number(3)? as i64),
    };
    if let Some(udp) = find(call)? {
        let is_busy = udp.state.enter().is_busy;
        if is_busy {
            return refuse(call, "socket busy");
        }
        log(call, Level::Debug, format_args!("lua reuse socket upstream ctx"))?;
        log(call, Level::Debug, format_args!("lua udp socket reconnect without shutting down"))?;
        forget(call)?;
    }
    let Some((conf, servers, home)) = current(call, conf_of)? else {
        return Err(call.raise("no request found"));
    };
    let udp = Arc::new(Udp::new(conf, said));
    let (number, owner) = add_to(call, &udp, |sockets| &mut sockets.udp)?;
    call.stack.push(number as f64);
    call.stack.raw_set_item(1, 1);
    call.stack.push(owner as f64);
    call.stack.raw_set_item(1, 2);
    let local = local_address(call);
    pause(call, Pause::Operation(Operation::new(set_peer(udp, home, target, servers, local))))
}

fn host_said(call: &mut Call<'_>) -> Result<String, Raise> {
    Ok(String::from_utf8_lossy(call.text(2)?).into_owned())
}

/// The socket, if it is connected; it is busy from now on. The inner error is what the function returns to
/// Lua.
fn begin(call: &mut Call<'_>, verb: &str) -> Result<Result<Arc<Udp>, Returns>, Raise> {
    allow(call, YIELDABLE)?;
    let Some(udp) = find(call)? else {
        if current(call, conf_of)?.is_some_and(|(conf, ..)| conf.logs_errors) {
            let text = format_args!(
                "attempt to {verb} data on a closed socket: u:0000000000000000, c:0000000000000000"
            );
            log(call, Level::Error, text)?;
        }
        return refuse(call, "closed").map(Err);
    };
    let refused = {
        let mut state = udp.state.enter();
        let refused = match (&state.socket, state.is_busy) {
            (_, true) => Some("socket busy"),
            (None, false) => Some("closed"),
            (Some(_), false) => None,
        };
        state.is_busy |= refused.is_none();
        refused
    };
    match refused {
        Some(refused) => refuse(call, refused).map(Err),
        None => Ok(Ok(udp)),
    }
}

fn send_data(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 2 {
        let text = format!("expecting 2 arguments (including the object), but got {count}");
        return Err(call.raise(&*text));
    }
    let data = data_of(call)?;
    match begin(call, "send")? {
        Ok(udp) => {
            let fd = udp.state.enter().socket.as_ref().map_or(-1, |socket| socket.as_fd().as_raw_fd());
            // A datagram goes as a whole, or not at all.
            log(call, Level::Debug, format_args!("send: fd:{fd} {len} of {len}", len = data.len()))?;
            pause(call, Pause::Operation(Operation::new(send(udp, data))))
        }
        Err(returns) => Ok(returns),
    }
}

fn receive_data(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if !(1..=2).contains(&count) {
        let text = format!("expecting 1 or 2 arguments (including the object), but got {count}");
        return Err(call.raise(&*text));
    }
    let most = match call.stack.get(2) {
        _ if count == 1 => DATAGRAM_BYTES_MAX,
        Value::Nil => DATAGRAM_BYTES_MAX,
        _ => (call.number(2)?.max(0.0) as usize).min(DATAGRAM_BYTES_MAX),
    };
    debug_assert!(most <= DATAGRAM_BYTES_MAX, "no more is made room for than a datagram has");
    log(call, Level::Debug, format_args!("lua udp socket calling receive() method"))?;
    let udp = match begin(call, "receive")? {
        Ok(udp) => udp,
        Err(returns) => return Ok(returns),
    };
    let timeout_ms = field(call, 6).filter(|ms| *ms > 0.0).map_or(udp.conf.read_timeout_ms, |ms| ms as u64);
    log(call, Level::Debug, format_args!("lua udp socket read timeout: {timeout_ms}"))?;
    log(call, Level::Debug, format_args!("lua udp socket receive buffer size: {most}"))?;
    let Some(home) = current(call, |current| current.home())? else {
        return Err(call.raise("no request found"));
    };
    pause(call, Pause::Operation(Operation::new(receive(udp, home, most, timeout_ms))))
}

fn close(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 1 {
        let text = format!("expecting 1 argument (including the object) but seen {count}");
        return Err(call.raise(&*text));
    }
    let Some(udp) = find(call)? else { return refuse(call, "closed") };
    let (is_busy, is_closed) = {
        let state = udp.state.enter();
        (state.is_busy, state.socket.is_none())
    };
    if is_busy {
        return refuse(call, "socket busy");
    }
    forget(call)?;
    if is_closed {
        return refuse(call, "closed");
    }
    call.stack.push(1.0);
    Ok(Returns::Values(1))
}
