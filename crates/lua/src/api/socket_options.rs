//! The system's side of sockets of Lua's: their descriptors and options (`getfd`, `getoption`, `setoption`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use clearway_luajit::{Call, Fault, Raise, Returns};
use clearway_os::outgoing::{self, SocketOption};

use super::room::{Install, put};
use super::tcp::{find, refuse};
use crate::current::{Current, Scene, current};
use crate::socket::connection::{Tcp, TcpSource};
use crate::socket::operations;

/// Installed before the methods of sockets, which they are among.
pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_tcp", |stack| {
        put(stack, "_setoption", set_option);
        put(stack, "_getoption", get_option);
        put(stack, "getfd", descriptor);
    });
    Ok(())
}

fn with_fd<R>(call: &mut Call<'_>, work: impl FnOnce(BorrowedFd<'_>) -> R) -> Result<Option<R>, Raise> {
    let Some(tcp) = find(call)? else { return Ok(None) };
    current(call, |current| with_fd_of(current, &tcp, work))
}

/// Does something with the system's socket: that of its connection, or the client's.
pub(super) fn with_fd_of<R>(
    current: &mut Current<'_>,
    tcp: &Tcp,
    work: impl FnOnce(BorrowedFd<'_>) -> R,
) -> Option<R> {
    if tcp.source == TcpSource::Connection {
        let state = tcp.state();
        return state.conn.as_ref().and_then(|conn| conn.with_socket(|socket| work(socket.as_fd())));
    }
    let done = current.scene(|scene| match scene {
        Scene::Handler(exchange) => exchange.client_fd().map(work),
        Scene::Head(_) | Scene::Body(_) => None,
    });
    done.flatten()
}

fn descriptor(call: &mut Call<'_>) -> Result<Returns, Raise> {
    match with_fd(call, |fd| fd.as_raw_fd())? {
        Some(descriptor) => {
            call.stack.push(f64::from(descriptor));
            Ok(Returns::Values(1))
        }
        None => refuse(call, "closed"),
    }
}

/// The option with this number of lua-resty-core's.
fn option_at(call: &mut Call<'_>) -> Result<SocketOption, Raise> {
    let number = call.number(2)?;
    option_of(number).ok_or_else(|| call.raise("no such option"))
}

pub(super) fn option_of(number: f64) -> Option<SocketOption> {
    (number as usize).checked_sub(1).and_then(|at| SocketOption::ALL.get(at)).copied()
}

/// (socket, number of an option, value)
fn set_option(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let option = option_at(call)?;
    let value = call.number(3)? as i32;
    match with_fd(call, |fd| outgoing::set_option(fd, option, value))? {
        None => refuse(call, "closed"),
        Some(Ok(())) => {
            call.stack.push(true);
            Ok(Returns::Values(1))
        }
        Some(Err(error)) => refuse(call, &operations::reason(&error)),
    }
}

/// (socket, number of an option)
fn get_option(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let option = option_at(call)?;
    match with_fd(call, |fd| outgoing::option(fd, option))? {
        None => refuse(call, "closed"),
        Some(Ok(value)) => {
            call.stack.push(f64::from(value));
            Ok(Returns::Values(1))
        }
        Some(Err(error)) => refuse(call, &operations::reason(&error)),
    }
}
