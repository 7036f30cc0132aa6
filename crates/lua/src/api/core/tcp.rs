//! Sockets to other servers: their options, and TLS. The outcome of a handshake stays with the socket until
//! C has fetched it.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use clearway_luajit::Reply;
use clearway_luajit::core::{CoreCall, sockets as asked};
use clearway_os::outgoing;

use super::codes::{OK, failed, with};
use crate::api::socket_options::{option_of, with_fd_of};
use crate::api::tcp::find_shown;
use crate::current::Current;
use crate::socket::connection::Tcp;
use crate::socket::operations;

#[cfg(feature = "tls")]
use super::secure;

/// (which function, socket, and so on).
pub(super) fn tcp(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let (what, shown) = (call.number(0) as u8, call.number(1) as usize);
    with(call, reply, |current, reply| {
        if what == asked::FREED {
            #[cfg(feature = "tls")]
            secure::log_freed(current, shown);
            return OK;
        }
        let Some(tcp) = find_shown(current, shown) else { return failed(reply, "closed") };
        match what {
            asked::OPTION | asked::SET_OPTION => option(call, current, &tcp, reply),
            asked::DESCRIPTOR => match with_fd_of(current, &tcp, |fd| fd.as_raw_fd()) {
                Some(descriptor) => descriptor,
                None => failed(reply, "closed"),
            },
            #[cfg(feature = "tls")]
            _ => secure::ask(call, current, &tcp, reply),
            #[cfg(not(feature = "tls"))]
            _ => failed(reply, "no TLS support"),
        }
    })
}

/// (which function, socket, option, value)
fn option(call: &CoreCall<'_>, current: &mut Current<'_>, tcp: &Arc<Tcp>, reply: &mut Reply) -> i32 {
    let Some(option) = option_of(call.number(2)) else {
        return failed(reply, &format!("unsupported option {}", call.number(2)));
    };
    let is_set = call.number(0) as u8 == asked::SET_OPTION;
    let value = call.number(3) as i32;
    let done = with_fd_of(current, tcp, |fd| match is_set {
        true => outgoing::set_option(fd, option, value).map(|()| value),
        false => outgoing::option(fd, option),
    });
    match done {
        None => failed(reply, "closed"),
        Some(Err(error)) => failed(reply, &operations::reason(&error)),
        Some(Ok(value)) => {
            reply.number = f64::from(value);
            OK
        }
    }
}
