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

/// The kind of a socket.
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
    /// The socket is connected.
    Connected,
    /// The connection is under way: the socket becomes writable when it is made or has failed.
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

/// Gives a unix socket an address of the kernel's own choice, so that its peer can answer.
///
/// # Errors
/// As bind(2).
pub fn bind_anywhere(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(bind_to(fd, &SocketAddrUnix::new_unnamed())?)
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

/// An option of a socket that code may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// `SO_KEEPALIVE`: 0 or 1.
    Keepalive,
    /// `SO_REUSEADDR`: 0 or 1.
    ReuseAddress,
    /// `TCP_NODELAY`: 0 or 1.
    NoDelay,
    /// `SO_SNDBUF`, bytes: the kernel answers twice what it was told.
    SendBuffer,
    /// `SO_RCVBUF`, bytes: as above.
    ReceiveBuffer,
    /// `TCP_KEEPINTVL`, seconds.
    KeepInterval,
    /// `TCP_KEEPCNT`.
    KeepCount,
}

impl SocketOption {
    /// All, in the order of their numbers in lua-resty-core, which begin with 1.
    pub const ALL: [Self; 7] = [
        Self::Keepalive,
        Self::ReuseAddress,
        Self::NoDelay,
        Self::SendBuffer,
        Self::ReceiveBuffer,
        Self::KeepInterval,
        Self::KeepCount,
    ];
}

/// The value of an option.
///
/// # Errors
/// As getsockopt(2).
pub fn option(fd: BorrowedFd<'_>, option: SocketOption) -> io::Result<i32> {
    Ok(match option {
        SocketOption::Keepalive => i32::from(sockopt::socket_keepalive(fd)?),
        SocketOption::ReuseAddress => i32::from(sockopt::socket_reuseaddr(fd)?),
        SocketOption::NoDelay => i32::from(sockopt::tcp_nodelay(fd)?),
        SocketOption::SendBuffer => sockopt::socket_send_buffer_size(fd)? as i32,
        SocketOption::ReceiveBuffer => sockopt::socket_recv_buffer_size(fd)? as i32,
        SocketOption::KeepInterval => sockopt::tcp_keepintvl(fd)?.as_secs() as i32,
        SocketOption::KeepCount => sockopt::tcp_keepcnt(fd)? as i32,
    })
}

/// Sets an option.
///
/// # Errors
/// As setsockopt(2).
pub fn set_option(fd: BorrowedFd<'_>, option: SocketOption, value: i32) -> io::Result<()> {
    let (is_on, count) = (value != 0, u32::try_from(value).unwrap_or(0));
    match option {
        SocketOption::Keepalive => sockopt::set_socket_keepalive(fd, is_on)?,
        SocketOption::ReuseAddress => sockopt::set_socket_reuseaddr(fd, is_on)?,
        SocketOption::NoDelay => sockopt::set_tcp_nodelay(fd, is_on)?,
        SocketOption::SendBuffer => sockopt::set_socket_send_buffer_size(fd, count as usize)?,
        SocketOption::ReceiveBuffer => sockopt::set_socket_recv_buffer_size(fd, count as usize)?,
        SocketOption::KeepInterval => {
            sockopt::set_tcp_keepintvl(fd, std::time::Duration::from_secs(u64::from(count)))?;
        }
        SocketOption::KeepCount => sockopt::set_tcp_keepcnt(fd, count)?,
    }
    Ok(())
}

/// Takes one datagram: its length, which is more than that of `buf` where its end was lost, and its sender,
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
