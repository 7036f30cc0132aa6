//! `ngx.socket.tcp`: connections to other servers. Lua has a table with methods for each; the socket itself
//! is kept with its request or timer, and ends with that. Runs in the VM of a loop.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

use clearway_base::log::Level;
use clearway_http::{AskedServers, NAME_SERVERS};
use clearway_luajit::{Address, Call, Fault, Raise, Returns, Value};
use clearway_runtime::LoopRef;

use super::room::{Install, put};
use super::tcp_connect::connect_to;
use crate::current::{Current, Pause, YIELDABLE, allow, current, pause};
use crate::socket::conf::SocketConf;
use crate::socket::connection::{Direction, Rest, Tcp, TcpSource, TcpState, Timeouts};
use crate::socket::operations::{Receiving, Sending, receive, received, received_until, send};
use crate::socket::pool::{IsNew, Pool};
use crate::socket::receive::{Until, Want};
use crate::socket::{Slab, Sockets};
use crate::threads::{Answers, Operation};
use crate::vm::net_settings::NET_CONF;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("socket", |_| {});
    install.table("_tcp", |stack| {
        put(stack, "connect", connect_to);
        put(stack, "receive", receive_what);
        put(stack, "receiveany", receive_any);
        put(stack, "send", send_data);
        put(stack, "close", close);
        put(stack, "setkeepalive", set_keepalive);
        put(stack, "getreusedtimes", reused_times);
    });
    install.table("", |stack| {
        put(stack, "_tcp_until", receive_until);
        put(stack, "_check_waits", check_waits);
        put(stack, "_is_address", |call| {
            let is_address =
                std::str::from_utf8(call.text(1)?).is_ok_and(|text| text.parse::<IpAddr>().is_ok());
            call.stack.push(is_address);
            Ok(Returns::Values(1))
        });
    });
    install.run(include_str!("tcp.lua"), c"=ngx.socket.tcp")
}

/// An error text for phases that cannot wait, and so have no sockets; no value for other phases.
fn check_waits(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let phase = current(call, |current| current.phase)?;
    if YIELDABLE.has(phase) {
        return Ok(Returns::Values(0));
    }
    call.stack.push(&*format!("API disabled in the context of {}", phase.context_name()));
    Ok(Returns::Values(1))
}

/// The settings of a run's sockets, and its loop.
pub(super) fn home_conf(current: &mut Current<'_>) -> Option<(SocketConf, LoopRef)> {
    if let Some(alone) = current.alone {
        return Some((alone.place.conf.sockets, alone.home));
    }
    current.scene(|scene| (scene.request().conf(&NET_CONF).sockets(), scene.request().home()))
}

/// The same with its name servers.
pub(super) fn conf_of(current: &mut Current<'_>) -> Option<(SocketConf, AskedServers, LoopRef)> {
    if let Some(alone) = current.alone {
        return Some((alone.place.conf.sockets, alone.place.conf.name_servers.clone(), alone.home));
    }
    current.scene(|scene| {
        let request = scene.request();
        (request.conf(&NET_CONF).sockets(), request.conf(&NAME_SERVERS).asked(), request.home())
    })
}

pub(super) fn refuse(call: &mut Call<'_>, text: &str) -> Result<Returns, Raise> {
    call.stack.push(());
    call.stack.push(text);
    Ok(Returns::Values(2))
}

pub(super) fn log(call: &mut Call<'_>, level: Level, text: std::fmt::Arguments<'_>) -> Result<(), Raise> {
    current(call, |current| {
        if level != Level::Debug || current.is_debugged() {
            current.log(level, text);
        }
    })
}

/// The number in a field of the socket's table.
pub(super) fn field(call: &mut Call<'_>, at: i32) -> Option<f64> {
    let [number] = call.stack.look_at_items(1, [at], number_in);
    number
}

fn number_in(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Number(number) => Some(number),
        _ => None,
    }
}

/// Bits for a socket's number in the value that identifies it.
const NUMBER_BITS: u32 = 20;
/// Bits for its owner. Together they fit the bits that LuaJIT stores of a light userdata.
const OWNER_BITS: u32 = 19;

const NUMBER_MASK: usize = (1 << NUMBER_BITS) - 1;
const OWNER_MASK: u64 = (1 << OWNER_BITS) - 1;

/// The value that identifies a socket in its table. C code gets it as an address, but it is not one.
fn shown_address(owner: u64, number: usize) -> usize {
    debug_assert!(number < NUMBER_MASK, "a socket has one of few numbers");
    let owner = usize::try_from(owner & OWNER_MASK).expect("it has few bits");
    owner << NUMBER_BITS | ((number + 1) & NUMBER_MASK)
}

/// The number of the table's socket.
fn number_of(call: &mut Call<'_>) -> Option<usize> {
    let [shown] = call.stack.look_at_items(1, [1], shown_in);
    shown
}

fn shown_in(value: Value<'_>) -> Option<usize> {
    match value {
        Value::Address(shown) => (shown & NUMBER_MASK).checked_sub(1),
        _ => None,
    }
}

/// The socket that C code identifies by `shown`; `None` if it does not belong to this request.
pub(super) fn find_shown(current: &mut Current<'_>, shown: usize) -> Option<Arc<Tcp>> {
    let number = (shown & NUMBER_MASK).checked_sub(1)?;
    let found = current.kept(|kept| {
        let tcp = kept.sockets.tcp.find(number).cloned();
        tcp.filter(|_| shown_address(kept.sockets.owner, number) == shown)
    });
    found.flatten()
}

pub(super) fn check_table(call: &mut Call<'_>) -> Result<(), Raise> {
    if call.stack.get(1) == Value::Table { Ok(()) } else { Err(call.expected(1, "table")) }
}

/// The table's socket; `None` if it is closed.
pub(super) fn find(call: &mut Call<'_>) -> Result<Option<Arc<Tcp>>, Raise> {
    check_table(call)?;
    let [number, owner] = call.stack.look_at_items(1, [1, 2], |value| (shown_in(value), number_in(value)));
    let (Some(number), Some(owner)) = (number.0, owner.1) else { return Ok(None) };
    find_in(call, (number, owner), |sockets| &mut sockets.tcp)
}

/// The socket with this number among those of one kind; `None` where it is closed.
pub(super) fn find_in<S>(
    call: &mut Call<'_>,
    (number, owner): (usize, f64),
    kind: fn(&mut Sockets) -> &mut Slab<S>,
) -> Result<Option<Arc<S>>, Raise> {
    let found = current(call, |current| {
        current.kept(|kept| match kept.sockets.owner == owner as u64 {
            true => Ok(kind(&mut kept.sockets).find(number).cloned()),
            false => Err(()),
        })
    })?;
    match found {
        Some(Ok(socket)) => Ok(socket),
        Some(Err(())) => foreign(call, owner).map(|()| None),
        None => Err(call.raise("no request found")),
    }
}

/// Checks a socket of another request: if that has ended, the socket counts as closed.
///
/// # Errors
/// "bad request" if the other request still runs.
fn foreign(call: &mut Call<'_>, owner: f64) -> Result<(), Raise> {
    if current(call, |current| current.vm.owners.is_alive(owner as u64))? {
        return Err(call.raise("bad request"));
    }
    Ok(())
}

/// Removes the table's socket.
pub(super) fn forget(call: &mut Call<'_>) -> Result<(), Raise> {
    let number = number_of(call);
    call.stack.push(());
    call.stack.raw_set_item(1, 1);
    if let Some(number) = number {
        current(call, |current| current.kept(|kept| kept.sockets.tcp.remove(number)))?;
    }
    Ok(())
}

pub(super) fn timeouts(call: &mut Call<'_>, conf: &SocketConf) -> Timeouts {
    let ms = |ms: Option<f64>, default_ms| ms.filter(|ms| *ms > 0.0).map_or(default_ms, |ms| ms as u64);
    let [connect, send, read] = call.stack.look_at_items(1, [4, 5, 8], number_in);
    Timeouts {
        connect_ms: ms(connect, conf.connect_timeout_ms),
        send_ms: ms(send, conf.send_timeout_ms),
        read_ms: ms(read, conf.read_timeout_ms),
    }
}

/// Records the owner of sockets and its lifetime, unless it is a subrequest.
fn note_owner(current: &mut Current<'_>, owner: u64, life: std::sync::Weak<()>) {
    if current.scene(|scene| scene.request().is_main()).unwrap_or(true) {
        current.vm.owners.note(owner, life);
    }
}

/// Makes a socket the table's.
pub(super) fn keep(call: &mut Call<'_>, tcp: &Arc<Tcp>) -> Result<(), Raise> {
    let (number, owner) = add_to(call, tcp, |sockets| &mut sockets.tcp)?;
    call.stack.push(Address(shown_address(owner, number)));
    call.stack.raw_set_item(1, 1);
    call.stack.push(owner as f64);
    call.stack.raw_set_item(1, 2);
    Ok(())
}

/// Adds a socket to those of its kind: its number, and its owner's.
pub(super) fn add_to<S>(
    call: &mut Call<'_>,
    socket: &Arc<S>,
    kind: fn(&mut Sockets) -> &mut Slab<S>,
) -> Result<(usize, u64), Raise> {
    let kept = current(call, |current| {
        let kept = current.kept(|kept| {
            let number = kind(&mut kept.sockets).add(Arc::clone(socket))?;
            Some((number, kept.sockets.own()))
        });
        let (number, (owner, life)) = kept.flatten()?;
        note_owner(current, owner, life);
        Some((number, owner))
    })?;
    kept.ok_or(()).map_err(|()| call.raise("too many sockets"))
}

pub(super) fn log_created(
    call: &mut Call<'_>,
    key: &[u8],
    size: usize,
    backlog: Option<usize>,
) -> Result<(), Raise> {
    let backlog = backlog.map_or(-1, |backlog| backlog as i64);
    let text = format_args!("lua tcp socket connection pool size: {size}, backlog: {backlog}");
    log(call, Level::Debug, text)?;
    let key = clearway_base::log::Verbatim(key);
    log(call, Level::Debug, format_args!("lua tcp socket keepalive create connection pool for key \"{key}\""))
}

/// The socket, for a function that needs a connection. The inner error is what the function returns to Lua.
fn connected(call: &mut Call<'_>, verb: &str) -> Result<Result<Arc<Tcp>, Returns>, Raise> {
    let found = find(call)?;
    let is_closed = found.as_ref().is_none_or(|tcp| {
        let state = tcp.state();
        let direction = if verb == "send" { state.writing } else { state.reading };
        let has_source = state.conn.is_some() || tcp.source != TcpSource::Connection;
        (!has_source && !state.is_connecting && state.input.is_empty()) || direction == Direction::Closed
    });
    match found {
        Some(tcp) if !is_closed => {
            tcp.state().timeouts = timeouts(call, &tcp.conf);
            Ok(Ok(tcp))
        }
        _ => {
            let logs = current(call, home_conf)?.is_some_and(|(conf, _)| conf.logs_errors);
            if logs {
                let text = format_args!(
                    "attempt to {verb} data on a closed socket: u:0000000000000000, \
                     c:0000000000000000, ft:0 eof:0"
                );
                log(call, Level::Error, text)?;
            }
            refuse(call, "closed").map(Err)
        }
    }
}

/// Marks the socket as being read, and returns the loop. The inner error is what the function returns to Lua.
fn begin_reading(call: &mut Call<'_>, tcp: &Arc<Tcp>) -> Result<Result<LoopRef, Returns>, Raise> {
    let busy = {
        let mut state = tcp.state();
        match () {
            () if state.is_connecting => Some("socket busy connecting"),
            () if state.reading == Direction::Busy => Some("socket busy reading"),
            () => {
                state.reading = Direction::Busy;
                None
            }
        }
    };
    if let Some(busy) = busy {
        return refuse(call, busy).map(Err);
    }
    let ms = tcp.state().timeouts.read_ms;
    log(call, Level::Debug, format_args!("lua tcp socket read timeout: {ms}"))?;
    let home = current(call, |current| current.home())?;
    home.ok_or(()).map(Ok).map_err(|()| call.raise("no request found"))
}

fn receive_what(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if !(1..=2).contains(&count) {
        let text = format!("expecting 1 or 2 arguments (including the object), but got {count}");
        return Err(call.raise(&*text));
    }
    allow(call, YIELDABLE)?;
    log(call, Level::Debug, format_args!("lua tcp socket calling receive() method"))?;
    let tcp = match connected(call, "receive")? {
        Ok(tcp) => tcp,
        Err(returns) => return Ok(returns),
    };
    let want = match call.stack.get(2) {
        _ if count == 1 => Want::Line(0),
        Value::Number(_) => number_wanted(call)?,
        Value::Text(b"*l" | b"l") => Want::Line(0),
        Value::Text(b"*a" | b"a") => Want::All,
        Value::Text(text) if text.first() != Some(&b'*') && call.stack.number(2).is_some() => {
            number_wanted(call)?
        }
        Value::Text(text) => {
            let text = format!("bad pattern argument: {}", String::from_utf8_lossy(text));
            return Err(call.bad_argument(2, &*text));
        }
        _ => return Err(call.bad_argument(2, "bad pattern argument")),
    };
    if let Want::Bytes(0) = want {
        call.stack.push("");
        return Ok(Returns::Values(1));
    }
    let home = match begin_reading(call, &tcp)? {
        Ok(home) => home,
        Err(returns) => return Ok(returns),
    };
    wait_for(call, Receiving::new(Arc::clone(&tcp), home, want, received), tcp.source)
}

fn number_wanted(call: &mut Call<'_>) -> Result<Want, Raise> {
    let number = call.number(2)?;
    if number < 0.0 {
        return Err(call.bad_argument(2, "bad number argument"));
    }
    Ok(Want::Bytes(number as usize))
}

fn receive_any(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 2 {
        let text = format!("expecting 2 arguments (including the object), but got {count}");
        return Err(call.raise(&*text));
    }
    allow(call, YIELDABLE)?;
    let tcp = match connected(call, "receive")? {
        Ok(tcp) => tcp,
        Err(returns) => return Ok(returns),
    };
    let most = match call.stack.number(2) {
        Some(most) if most >= 1.0 => most as usize,
        _ => return Err(call.bad_argument(2, "bad max argument")),
    };
    let text = format_args!("lua tcp socket calling receiveany() method to read at most {most} bytes");
    log(call, Level::Debug, text)?;
    log(call, Level::Debug, format_args!("lua tcp socket read any"))?;
    let home = match begin_reading(call, &tcp)? {
        Ok(home) => home,
        Err(returns) => return Ok(returns),
    };
    wait_for(call, Receiving::new(Arc::clone(&tcp), home, Want::Any(most), received), tcp.source)
}

/// Takes (socket, pattern, inclusive, size); returns data, error, partial data, whether it is the last.
fn receive_until(call: &mut Call<'_>) -> Result<Returns, Raise> {
    call.speak_for_caller();
    allow(call, YIELDABLE)?;
    let tcp = match connected(call, "receive")? {
        Ok(tcp) => tcp,
        Err(returns) => return Ok(returns),
    };
    let pattern = call.text(2)?.to_vec();
    let ends_with_pattern = call.stack.is_true(3);
    let most = match call.arguments() {
        4.. if call.stack.get(4) != Value::Nil => {
            let size = call.number(4)?;
            if size < 0.0 {
                return Err(call.bad_argument(1, "bad size argument"));
            }
            (size >= 1.0).then_some(size as usize)
        }
        _ => None,
    };
    let home = match begin_reading(call, &tcp)? {
        Ok(home) => home,
        Err(returns) => return Ok(returns),
    };
    let want = Want::Until(Until { pattern, ends_with_pattern, most, searched: 0 });
    wait_for(call, Receiving::new(Arc::clone(&tcp), home, want, received_until), tcp.source)
}

fn wait_for(call: &mut Call<'_>, mut receiving: Receiving, source: TcpSource) -> Result<Returns, Raise> {
    if source == TcpSource::Connection
        && current(call, |current| current.may_act_at_once())?
        && let Poll::Ready(answers) = receiving.poll_now()
    {
        return answer(call, answers);
    }
    match source {
        TcpSource::Connection => pause(call, Pause::Operation(Operation::new(receive(receiving)))),
        TcpSource::Body | TcpSource::Client => pause(call, Pause::Receive(receiving)),
    }
}

/// Returns what an operation has come to that has not waited.
fn answer(call: &mut Call<'_>, answers: Answers) -> Result<Returns, Raise> {
    if let Some(line) = answers.line() {
        log(call, line.level, format_args!("{}", line.text))?;
    }
    let before = call.stack.len();
    answers.push(&mut call.stack);
    Ok(Returns::Values(call.stack.len() - before))
}

/// The data to send: argument 2.
pub(super) fn data_of(call: &mut Call<'_>) -> Result<Vec<u8>, Raise> {
    match call.stack.get(2) {
        Value::Text(_) | Value::Number(_) => Ok(call.text(2)?.to_vec()),
        Value::Nil => Ok(b"nil".to_vec()),
        Value::Boolean(flag) => Ok(flag.to_string().into_bytes()),
        Value::Table => {
            let mut data = Vec::new();
            append_table(call, 2, &mut data, 0)?;
            Ok(data)
        }
        other => {
            let got = other.type_name();
            let text = format!("string, number, boolean, nil, or array table expected, got {got}");
            Err(call.bad_argument(2, &*text))
        }
    }
}

/// How deep tables of pieces may be nested.
const DEPTH_MAX: u32 = 100;

/// Appends the strings and numbers of a table, and of tables in it.
fn append_table(call: &mut Call<'_>, table: i32, data: &mut Vec<u8>, depth: u32) -> Result<(), Raise> {
    if depth > DEPTH_MAX {
        return Err(call.bad_argument(2, "table too deep"));
    }
    for index in 1..=call.stack.raw_len(table) as i32 {
        call.stack.raw_item(table, index);
        let at = call.stack.len();
        match call.stack.get(at) {
            Value::Text(_) | Value::Number(_) => data.extend_from_slice(call.text(at)?),
            Value::Table => append_table(call, at, data, depth + 1)?,
            other => {
                let text = format!("bad data type {} found", other.type_name());
                return Err(call.bad_argument(2, &*text));
            }
        }
        call.stack.pop(1);
    }
    Ok(())
}

fn send_data(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 2 {
        let text = format!("expecting 2 arguments (including the object), but got {count}");
        return Err(call.raise(&*text));
    }
    allow(call, YIELDABLE)?;
    let tcp = match connected(call, "send")? {
        Ok(tcp) => tcp,
        Err(returns) => return Ok(returns),
    };
    let data = data_of(call)?;
    let busy = {
        let mut state = tcp.state();
        match () {
            () if state.is_connecting => Some("socket busy connecting"),
            () if state.writing == Direction::Busy => Some("socket busy writing"),
            () => {
                state.writing = Direction::Busy;
                None
            }
        }
    };
    if let Some(busy) = busy {
        return refuse(call, busy);
    }
    let ms = tcp.state().timeouts.send_ms;
    log(call, Level::Debug, format_args!("lua tcp socket send timeout: {ms}"))?;
    let Some(home) = current(call, |current| current.home())? else {
        return Err(call.raise("no request found"));
    };
    let (source, mut sending) = (tcp.source, Sending::new(tcp, home, data));
    if source != TcpSource::Client
        && current(call, |current| current.may_act_at_once())?
        && let Poll::Ready(answers) = sending.poll_now()
    {
        return answer(call, answers);
    }
    let pausing = match source {
        TcpSource::Client => Pause::Send(sending),
        TcpSource::Connection | TcpSource::Body => Pause::Operation(Operation::new(send(sending))),
    };
    pause(call, pausing)
}

/// The socket, if no operation is under way on it. The inner error is what the function returns to Lua.
fn at_rest(call: &mut Call<'_>) -> Result<Result<Arc<Tcp>, Returns>, Raise> {
    let Some(tcp) = find(call)? else { return refuse(call, "closed").map(Err) };
    let (busy, is_closed) = {
        let state = tcp.state();
        (state.busy(), state.conn.is_none())
    };
    match busy {
        Some(busy) => refuse(call, busy).map(Err),
        None if is_closed => {
            forget(call)?;
            refuse(call, "closed").map(Err)
        }
        None => Ok(Ok(tcp)),
    }
}

fn close(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 1 {
        let text = format!("expecting 1 argument (including the object) but seen {count}");
        return Err(call.raise(&*text));
    }
    if let Err(returns) = at_rest(call)? {
        return Ok(returns);
    }
    forget(call)?;
    call.stack.push(1.0);
    Ok(Returns::Values(1))
}

fn set_keepalive(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if !(1..=3).contains(&count) {
        let text = format!("expecting 1 to 3 arguments (including the object), but got {count}");
        return Err(call.raise(&*text));
    }
    let number = |call: &mut Call<'_>, at: i32| match call.stack.get(at) {
        _ if count < at => Ok(None),
        Value::Nil => Ok(None),
        _ => call.number(at).map(Some),
    };
    let (limit_ms, size) = (number(call, 2)?, number(call, 3)?);
    let tcp = match at_rest(call)? {
        Ok(tcp) => tcp,
        Err(returns) => return Ok(returns),
    };
    let refused = {
        let state = tcp.state();
        match rest(&state) {
            Rest::Ended => Some("closed"),
            Rest::Unread => Some("unread data in buffer"),
            Rest::Quiet => None,
        }
    };
    if let Some(refused) = refused {
        return refuse(call, refused);
    }
    let size = size.unwrap_or(tcp.conf.pool_size as f64);
    let known = match tcp.state().conn.as_ref().and_then(|conn| conn.pool()) {
        None => current(call, |current| current.vm.pools.find(&tcp.key))?,
        pool => pool,
    };
    if known.is_none() && size < 1.0 {
        return Err(call.bad_argument(count, &*format!("bad \"pool_size\" option value: {size}")));
    }
    let pool = match known {
        Some(pool) => pool,
        None => create_pool(call, &tcp.key, size as usize)?,
    };
    let limit_ms = limit_ms.map_or(tcp.conf.keepalive_timeout_ms, |ms| ms.max(0.0) as u64);
    match limit_ms {
        0 => log(call, Level::Debug, format_args!("lua tcp socket keepalive timeout: unlimited"))?,
        ms => log(call, Level::Debug, format_args!("lua tcp socket keepalive timeout: {ms} ms"))?,
    }
    let (conn, used) = {
        let mut state = tcp.state();
        (state.conn.take(), state.used)
    };
    let is_ending = current(call, |current| current.vm.timers().is_some_and(|timers| timers.is_ending()))?;
    if is_ending {
        let text = "lua tcp socket set keepalive while process exiting, closing connection";
        log(call, Level::Debug, format_args!("{text}"))?;
    }
    if let Some(conn) = conn.filter(|_| !is_ending) {
        pool.keep(conn, used, limit_ms);
    }
    forget(call)?;
    call.stack.push(1.0);
    Ok(Returns::Values(1))
}

/// Makes the pool of a key, if there is none.
fn create_pool(call: &mut Call<'_>, key: &[u8], size: usize) -> Result<Arc<Pool>, Raise> {
    let (pool, is_new) = current(call, |current| {
        let sink = current.vm.sink.clone();
        current.vm.pools.open(key, (size, None), sink.as_ref())
    })?;
    if is_new == IsNew::Yes {
        log_created(call, key, size, None)?;
    }
    Ok(pool)
}

/// The state of the connection that is to be kept.
fn rest(state: &TcpState) -> Rest {
    let is_closed = state.reading == Direction::Closed || state.writing == Direction::Closed;
    match &state.conn {
        Some(conn) if !is_closed => match conn.rest() {
            Rest::Quiet if !state.input.is_empty() => Rest::Unread,
            rest => rest,
        },
        _ => Rest::Ended,
    }
}

fn reused_times(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 1 {
        let text = format!("expecting 1 argument (including the object), but got {count}");
        return Err(call.raise(&*text));
    }
    let used = find(call)?.and_then(|tcp| {
        let state = tcp.state();
        (state.conn.is_some() || state.is_connecting).then_some(state.used)
    });
    match used {
        Some(used) => {
            call.stack.push(f64::from(used));
            Ok(Returns::Values(1))
        }
        None => refuse(call, "closed"),
    }
}
