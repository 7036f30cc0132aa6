//! Stream sockets, all calls nonblocking (`MSG_DONTWAIT` or a nonblocking descriptor).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketFlags};

/// The peer that connected: an address, or a unix socket (whose name is not used).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// IPv4 or IPv6.
    Inet(SocketAddr),
    /// A unix socket.
    Unix,
}

/// recv(2) into the spare capacity of `buf`, which must not be empty; 0 is the end of the stream.
///
/// # Errors
/// As recv(2).
#[inline]
pub fn recv_into(fd: BorrowedFd<'_>, buf: &mut Vec<u8>) -> io::Result<usize> {
    debug_assert!(!buf.spare_capacity_mut().is_empty(), "no room would look like the end of the stream");
    let (size, _) = rustix::net::recv(fd, rustix::buffer::spare_capacity(buf), RecvFlags::DONTWAIT)?;
    Ok(size)
}

/// recv(2) into `buf`.
///
/// # Errors
/// As recv(2).
#[inline]
pub fn recv(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, buf, RecvFlags::DONTWAIT)?.0)
}

/// readv(2) on a nonblocking descriptor; 0 is the end of the stream.
///
/// # Errors
/// As readv(2).
#[inline]
pub fn readv(fd: BorrowedFd<'_>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    Ok(rustix::io::readv(fd, bufs)?)
}

/// How much there is to read, up to one byte, which stays; 0 is the end of the stream.
///
/// # Errors
/// As recv(2): WouldBlock where there is nothing.
pub fn peek(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, &mut [0_u8; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK)?.0)
}

/// send(2); a closed peer is EPIPE, never a signal.
///
/// # Errors
/// As send(2).
#[inline]
pub fn send(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(fd, buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

/// send(2) of what something else follows at once, so that the last packet need not leave before that is
/// there (`MSG_MORE`); a closed peer is EPIPE, never a signal.
///
/// # Errors
/// As send(2).
#[inline]
pub fn send_more(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(fd, buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL | SendFlags::MORE)?)
}

/// writev(2) on a nonblocking descriptor; SIGPIPE must be ignored.
///
/// # Errors
/// As writev(2).
#[inline]
pub fn writev(fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(rustix::io::writev(fd, bufs)?)
}

/// The error that is pending on a socket, which is forgotten.
///
/// # Errors
/// The pending error, or as getsockopt(2).
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::sockopt::socket_error(fd)??)
}

/// Ends the writing direction.
///
/// # Errors
/// As shutdown(2).
pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Write)?)
}

/// Takes one connection, nonblocking and close-on-exec.
///
/// # Errors
/// As accept4(2).
#[inline]
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, Peer)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, address) = rustix::net::acceptfrom_with(listener, flags)?;
    Ok((fd, peer(address)))
}

fn peer(address: Option<SocketAddrAny>) -> Peer {
    match address.map(SocketAddr::try_from) {
        Some(Ok(address)) => Peer::Inet(address),
        _ => Peer::Unix,
    }
}

/// The local address of a socket, if it is an internet one.
#[must_use]
pub fn local_address(fd: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getsockname(fd).ok().and_then(|address| address.try_into().ok())
}

/// Sets TCP_NODELAY; not an error on other sockets.
pub fn set_nodelay(fd: BorrowedFd<'_>) {
    // A unix socket has no such option and needs none.
    let _ = rustix::net::sockopt::set_tcp_nodelay(fd, true);
}

/// Takes TCP_NODELAY back; not an error on other sockets.
pub fn clear_nodelay(fd: BorrowedFd<'_>) {
    // As above.
    let _ = rustix::net::sockopt::set_tcp_nodelay(fd, false);
}

/// Has only full packets leave (TCP_CORK), until [`uncork`]; not an error on other sockets.
#[inline]
pub fn cork(fd: BorrowedFd<'_>) {
    // As above.
    let _ = rustix::net::sockopt::set_tcp_cork(fd, true);
}

/// Has the rest leave that [`cork`] holds back; not an error on other sockets.
#[inline]
pub fn uncork(fd: BorrowedFd<'_>) {
    // As above.
    let _ = rustix::net::sockopt::set_tcp_cork(fd, false);
}

/// Has the connection reset when the socket is closed, and what was not sent by then dropped.
pub fn reset_on_close(fd: BorrowedFd<'_>) {
    // If the option cannot be set, the socket is closed as usual.
    let _ = rustix::net::sockopt::set_socket_linger(fd, Some(std::time::Duration::ZERO));
}
