//! The system calls of listening. Boot only; nothing here waits.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt};

use crate::bind::{Ipv6Only, Transport};
use crate::listen::ListenAddr;

/// A nonblocking stream socket that programs started from here do not inherit.
pub(crate) fn stream_socket(address: &ListenAddr, transport: Transport) -> io::Result<OwnedFd> {
    let family = match address {
        ListenAddr::Inet(SocketAddr::V4(_)) => AddressFamily::INET,
        ListenAddr::Inet(SocketAddr::V6(_)) => AddressFamily::INET6,
        ListenAddr::Unix(_) => AddressFamily::UNIX,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = (transport == Transport::Multipath).then_some(ipproto::MPTCP);
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, protocol)?)
}

pub(crate) fn set_reuseaddr(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseaddr(socket, true)?)
}

pub(crate) fn set_reuseport(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseport(socket, true)?)
}

pub(crate) fn set_ipv6only(socket: &OwnedFd, value: Ipv6Only) -> io::Result<()> {
    Ok(sockopt::set_ipv6_v6only(socket, value == Ipv6Only::On)?)
}

pub(crate) fn bind(socket: &OwnedFd, address: &ListenAddr) -> io::Result<()> {
    match address {
        ListenAddr::Inet(address) => rustix::net::bind(socket, address)?,
        ListenAddr::Unix(path) => rustix::net::bind(socket, &SocketAddrUnix::new(&**path)?)?,
    }
    Ok(())
}

pub(crate) fn listen(socket: impl AsFd, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(socket, backlog)?)
}

/// Lets every user connect to a unix socket.
pub(crate) fn open_to_all(path: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?)
}

pub(crate) fn unlink(path: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlink(path)?)
}
