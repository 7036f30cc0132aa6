//! Listening sockets that are open already: what a reload changes about them, and which address one
//! that was inherited has. Off the loops; nothing here waits.

use std::io;
use std::os::fd::OwnedFd;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use rustix::net::{SocketAddrAny, SocketAddrUnix};

use crate::bind::Transport;
use crate::listen::ListenAddr;
use crate::sys;

/// Lets other sockets of the same user have the port of this one (`reuseport` that was added).
pub fn share_port(socket: &OwnedFd, address: &ListenAddr, log: &dyn Sink) {
    if let Err(error) = sys::set_reuseport(socket) {
        let errno = Errno(&error);
        log.log(Level::Alert, format_args!("setsockopt(SO_REUSEPORT) {address} failed, ignored {errno}"));
    }
}

/// Changes how many connections the kernel completes before they are accepted.
///
/// # Errors
/// As listen(2).
pub fn set_backlog(socket: &OwnedFd, backlog: i32) -> io::Result<()> {
    sys::listen(socket, backlog)
}

/// The address that a socket is bound to; `None` if it is none that can be listened on.
#[must_use]
pub fn address_of(socket: &OwnedFd) -> Option<ListenAddr> {
    let address: SocketAddrAny = rustix::net::getsockname(socket).ok()?;
    if let Ok(inet) = std::net::SocketAddr::try_from(address.clone()) {
        return Some(ListenAddr::Inet(inet));
    }
    let unix = SocketAddrUnix::try_from(address).ok()?;
    Some(ListenAddr::Unix(unix.path()?.to_bytes().into()))
}

/// The protocol below an open socket.
#[must_use]
pub fn transport_of(socket: &OwnedFd) -> Transport {
    match rustix::net::sockopt::socket_protocol(socket) {
        Ok(Some(protocol)) if protocol == rustix::net::ipproto::MPTCP => Transport::Multipath,
        _ => Transport::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::{Options, bind};
    use clearway_base::log::Discard;

    #[test]
    fn knows_the_address_of_every_kind() {
        let path = std::env::temp_dir().join(format!("clearway-reuse-{}.sock", std::process::id()));
        let unix = ListenAddr::Unix(path.as_os_str().as_encoded_bytes().into());
        for address in [ListenAddr::Inet("127.0.0.1:0".parse().unwrap()), unix.clone()] {
            let socket = bind(&address, &Options::default(), &Discard).unwrap();
            let found = address_of(&socket).unwrap();
            match &address {
                ListenAddr::Unix(_) => assert_eq!(found, address),
                ListenAddr::Inet(_) => assert!(found.port().is_some_and(|port| port > 0)),
            }
            set_backlog(&socket, 7).unwrap();
            assert_eq!(transport_of(&socket), Transport::Plain);
        }
        crate::bind::close_unix(&unix, &Discard);
        let options = Options { transport: Transport::Multipath, ..Options::default() };
        // A kernel without it refuses.
        if let Ok(socket) = bind(&ListenAddr::Inet("127.0.0.1:0".parse().unwrap()), &options, &Discard) {
            assert_eq!(transport_of(&socket), Transport::Multipath);
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(address_of(&reader.into()), None);
    }
}
