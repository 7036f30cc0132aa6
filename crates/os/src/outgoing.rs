//! Sockets that this side connects, or sends datagrams from: nonblocking, close-on-exec. Nothing here waits.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind as bind_to,
    connect as connect_to, sockopt,
};

/// Longest path of a unix socket in bytes.
pub const UNIX_PATH_MAX_BYTES: usize = 107;

/// The other end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Remote {
    /// IPv4 or IPv6.
    Inet(SocketAddr),
    /// Path of a unix socket, at most [`UNIX_PATH_MAX_BYTES`].
    Unix(Box<[u8]>),
}

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// A stream: TCP, or a unix stream socket.
    Stream,
    /// Datagrams: UDP, or a unix datagram socket.
    Datagrams,
}

/// How far connect(2) has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is connected.
    Connected,
    /// It is under way: the socket becomes writable when it is made or has failed.
    UnderWay,
}

/// A socket that fits `remote`.
///
/// # Errors
/// As socket(2): too many descriptors, no such family.
pub fn open(remote: &Remote, carries: Carries) -> io::Result<OwnedFd> {
    let family = match remote {
        Remote::Inet(SocketAddr::V4(_)) => AddressFamily::INET,
        Remote::Inet(SocketAddr::V6(_)) => AddressFamily::INET6,
        Remote::Unix(_) => AddressFamily::UNIX,
    };
    let kind = match carries {
        Carries::Stream => SocketType::STREAM,
        Carries::Datagrams => SocketType::DGRAM,
    };
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// Has a socket come from this address.
///
/// # Errors
/// As bind(2).
pub fn bind(fd: BorrowedFd<'_>, local: SocketAddr) -> io::Result<()> {
    Ok(bind_to(fd, &local)?)
}

/// Begins to connect. A datagram socket is connected at once: it sends there, and hears from there alone.
///
/// # Errors
/// As connect(2), except EINPROGRESS and EINTR. A unix socket whose queue is full is WouldBlock, and does not
/// become ready.
pub fn connect(fd: BorrowedFd<'_>, remote: &Remote) -> io::Result<Progress> {
    let result = match remote {
        Remote::Inet(address) => connect_to(fd, address),
        Remote::Unix(path) => SocketAddrUnix::new(&**path).and_then(|address| connect_to(fd, &address)),
    };
    match result {
        Ok(()) => Ok(Progress::Connected),
        // Interrupted it goes on by itself.
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Progress::UnderWay),
        Err(error) => Err(error.into()),
    }
}

/// Has the kernel look now and then whether a silent peer is there (`SO_KEEPALIVE`).
///
/// # Errors
/// As setsockopt(2).
pub fn set_keepalive(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_keepalive(fd, true)?)
}

/// The kernel's buffer for what was not read yet, bytes.
///
/// # Errors
/// As setsockopt(2).
pub fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(fd, bytes)?)
}

/// The kernel's buffer for what was not acknowledged yet, bytes.
///
/// # Errors
/// As setsockopt(2).
pub fn set_send_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(fd, bytes)?)
}

/// Takes one datagram: its length, which is more than that of `buf` where its end was lost, and who sent it,
/// where that has an internet address.
///
/// # Errors
/// As recvfrom(2), such as what an ICMP message said of an earlier one that was sent.
pub fn receive(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<(usize, Option<SocketAddr>)> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let (_, size, sender) = rustix::net::recvfrom(fd, buf, flags)?;
    Ok((size, sender.and_then(|address| address.try_into().ok())))
}

/// Sends one datagram there.
///
/// # Errors
/// As sendto(2).
pub fn send_to(fd: BorrowedFd<'_>, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
    Ok(rustix::net::sendto(fd, datagram, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to)?)
}
