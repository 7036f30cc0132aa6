//! `connect` of `ngx.socket.tcp`: finds a connection that was put aside, or has one made. Runs in the VM of a
//! loop.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clearway_base::log::{Level, Verbatim};
use clearway_luajit::{Call, Raise, Returns, Value};
use clearway_net::url::RemoteText;
use clearway_os::outgoing::{Remote, UNIX_PATH_MAX_BYTES};

use super::tcp::{
    check_table, conf_of, field, find, forget, home_conf, keep, log, log_created, refuse, timeouts,
};
use crate::current::{Pause, YIELDABLE, allow, current, pause};
use crate::socket::connection::Tcp;
use crate::socket::operations::{Connecting, Target, Told, connect};
use crate::socket::pool::{IsNew, Room};
use crate::threads::Operation;

/// Before the path of a socket.
const UNIX: &[u8] = b"unix:";
const NO_REQUEST: &str = "no request found";
const NO_PORT: &str = "missing the port number";

/// What `connect` asks for; the host is its argument 2.
struct Wanted {
    /// `None`: the host is the path of a socket.
    port: Option<u16>,
    /// Of its pool.
    key: Vec<u8>,
    /// The server as the caller wrote it, where that is not the key.
    said: Option<Vec<u8>>,
    /// The size of the pool, and how many connects may wait for a connection.
    pool: Option<(usize, Option<usize>)>,
}

pub(super) fn connect_to(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if !(2..=4).contains(&count) {
        let text = format!(
            "ngx.socket connect: expecting 2, 3, or 4 arguments (including the object), but seen {count}"
        );
        return Err(call.raise(&*text));
    }
    check_table(call)?;
    allow(call, YIELDABLE)?;
    let mut wanted = match read_wanted(call)? {
        Ok(wanted) => wanted,
        Err(text) => return refuse(call, &text),
    };
    if let Some(tcp) = find(call)? {
        let busy = tcp.state().busy();
        if let Some(busy) = busy {
            return refuse(call, busy);
        }
        log(call, Level::Debug, format_args!("lua reuse socket upstream ctx"))?;
        log(call, Level::Debug, format_args!("lua tcp socket reconnect without shutting down"))?;
        forget(call)?;
    }
    let Some((conf, home)) = current(call, home_conf)? else { return Err(call.raise(NO_REQUEST)) };
    let timeouts = timeouts(call, &conf);
    call.stack.push(&wanted.key[..]);
    call.stack.raw_set_item(1, 3);
    open_pool(call, &wanted)?;
    log_local(call)?;
    let room = current(call, |current| current.vm.pools.room(&wanted.key, home, timeouts.connect_ms))?;
    if let Room::Later(_) = &room {
        log_queued(call, &wanted.key)?;
    }
    let tcp = |wanted: &mut Wanted| {
        let (key, said) = (std::mem::take(&mut wanted.key), wanted.said.take());
        Arc::new(Tcp::new(conf, key, timeouts).said(said))
    };
    let (ticket, queued) = match room {
        Room::Idle(conn, used) => {
            log_taken(call)?;
            let tcp = tcp(&mut wanted);
            tcp.state().begin(conn, used + 1);
            tcp.note_server(None);
            keep(call, &tcp)?;
            call.stack.push(1.0);
            return Ok(Returns::Values(1));
        }
        Room::Full => return refuse(call, "too many waiting connect operations"),
        Room::Later(queued) => (None, Some(queued)),
        Room::New(ticket) => (ticket, None),
    };
    let Some((_, name_servers, _)) = current(call, conf_of)? else { return Err(call.raise(NO_REQUEST)) };
    let target = target_of(call, &wanted)?;
    let tcp = tcp(&mut wanted);
    keep(call, &tcp)?;
    let ms = timeouts.connect_ms;
    log(call, Level::Debug, format_args!("lua tcp socket connect timeout: {ms}"))?;
    let told = current(call, |current| Told::of(current.vm.sink.as_ref()))?;
    let shown = shown(&target);
    let local = local_address(call);
    let work = Connecting { tcp, home, target, name_servers, ticket, queued, shown, local, told };
    pause(call, Pause::Operation(Operation::new(connect(work))))
}

/// The local address (`bind`); port 0 is any port.
pub(super) fn local_address(call: &mut Call<'_>) -> Option<SocketAddr> {
    let [address] = call.stack.look_at_items(1, [11], |value| match value {
        Value::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        _ => None,
    });
    let port = address.and_then(|_: IpAddr| field(call, 12)).map_or(0, |port| port as u16);
    address.map(|ip| SocketAddr::new(ip, port))
}

fn log_local(call: &mut Call<'_>) -> Result<(), Raise> {
    match local_address(call) {
        Some(local) => log(call, Level::Debug, format_args!("lua tcp socket bind ip: {}", local.ip())),
        None => Ok(()),
    }
}

fn log_taken(call: &mut Call<'_>) -> Result<(), Raise> {
    log(call, Level::Debug, format_args!("lua tcp socket pool get keepalive peer"))?;
    log(call, Level::Debug, format_args!("lua tcp socket get keepalive peer: using connection"))
}

fn log_queued(call: &mut Call<'_>, key: &[u8]) -> Result<(), Raise> {
    let connections = current(call, |current| current.vm.pools.connections(key))?;
    let key = Verbatim(key);
    let text = format_args!(
        "lua tcp socket queue connect operation for connection pool \"{key}\", connections: {connections}"
    );
    log(call, Level::Debug, text)
}

/// Makes the pool that `connect` asks for, if there is none.
fn open_pool(call: &mut Call<'_>, wanted: &Wanted) -> Result<(), Raise> {
    let Some((size, backlog)) = wanted.pool else { return Ok(()) };
    let is_new = current(call, |current| {
        let sink = current.vm.sink.clone();
        current.vm.pools.open(&wanted.key, (size, backlog), sink.as_ref()).1
    })?;
    match is_new {
        IsNew::Yes => log_created(call, &wanted.key, size, backlog),
        IsNew::No => Ok(()),
    }
}

/// Reads the arguments of `connect`. The inner error is the text that `connect` returns to Lua.
fn read_wanted(call: &mut Call<'_>) -> Result<Result<Wanted, String>, Raise> {
    let options = match call.stack.get(call.arguments()) {
        Value::Table if call.arguments() > 2 => Some(call.arguments()),
        _ => None,
    };
    let host = call.text(2)?;
    if host.is_empty() {
        return Ok(Err("failed to parse host name \"\": no host".to_owned()));
    }
    let mut key = host.to_vec();
    let path = host.strip_prefix(UNIX);
    if path.is_some_and(|path| path.len() > UNIX_PATH_MAX_BYTES || path.is_empty()) {
        let shown = String::from_utf8_lossy(host);
        return Ok(Err(format!("failed to parse host name \"{shown}\": too long unix path")));
    }
    let port = match options {
        _ if path.is_some() => None,
        Some(3) => return Ok(Err(NO_PORT.to_owned())),
        _ if !matches!(call.stack.get(3), Value::Number(_) | Value::Text(_)) => {
            return Ok(Err(NO_PORT.to_owned()));
        }
        _ => Some(call.number(3)?),
    };
    let port = match port.map(|port| u16::try_from(port as i64)) {
        Some(Err(_)) => return Ok(Err(format!("bad port number: {}", port.unwrap_or_default() as i64))),
        Some(Ok(port)) => Some(port),
        None => None,
    };
    if let Some(port) = port {
        // It takes any text.
        let _ = write!(key, ":{port}");
    }
    let mut wanted = Wanted { port, key, said: None, pool: None };
    if let Some(options) = options {
        wanted.pool = read_pool(call, options, &mut wanted)?;
    }
    Ok(Ok(wanted))
}

/// Where to connect to.
fn target_of(call: &mut Call<'_>, wanted: &Wanted) -> Result<Target, Raise> {
    let host = call.text(2)?;
    Ok(match (wanted.port, host.strip_prefix(UNIX)) {
        (None, Some(path)) => Target::Remote(Remote::Unix(path.into())),
        (port, _) => target(host, port.unwrap_or_default()),
    })
}

/// The server in lines of the log.
fn shown(target: &Target) -> String {
    match target {
        Target::Remote(remote) => RemoteText(remote).to_string(),
        Target::Name(name, port) => format!("{}:{port}", String::from_utf8_lossy(name)),
    }
}

/// A host as the target of a connection: an address, or a name to be resolved.
pub(super) fn target(host: &[u8], port: u16) -> Target {
    let text = std::str::from_utf8(host).unwrap_or_default();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(address) => Target::Remote(Remote::Inet(SocketAddr::new(address, port))),
        Err(_) => Target::Name(host.to_vec(), port),
    }
}

/// Reads the options of a pool: its size, and how many connects may wait.
fn read_pool(
    call: &mut Call<'_>,
    options: i32,
    wanted: &mut Wanted,
) -> Result<Option<(usize, Option<usize>)>, Raise> {
    let default_size = current(call, home_conf)?.map_or(0, |(conf, _)| conf.pool_size);
    let size = read_number(call, options, "pool_size", 1.0)?;
    let backlog = read_number(call, options, "backlog", 0.0)?;
    call.stack.raw_field(options, "pool");
    match call.stack.get(-1) {
        Value::Nil => {}
        Value::Text(_) | Value::Number(_) => {
            let key = call.stack.text(-1).unwrap_or_default().to_vec();
            wanted.said = Some(std::mem::replace(&mut wanted.key, key));
        }
        other => {
            let text = format!("bad \"pool\" option type: {}", other.type_name());
            return Err(call.bad_argument(options, &*text));
        }
    }
    call.stack.pop(1);
    Ok((size.is_some() || backlog.is_some()).then(|| (size.unwrap_or(default_size), backlog)))
}

fn read_number(call: &mut Call<'_>, options: i32, name: &str, least: f64) -> Result<Option<usize>, Raise> {
    call.stack.raw_field(options, name);
    let text = match call.stack.get(-1) {
        Value::Nil => {
            call.stack.pop(1);
            return Ok(None);
        }
        Value::Number(number) if number >= least => {
            call.stack.pop(1);
            return Ok(Some(number as usize));
        }
        Value::Number(number) => format!("bad \"{name}\" option value: {number}"),
        other => format!("bad \"{name}\" option type: {}", other.type_name()),
    };
    Err(call.bad_argument(options, &*text))
}
