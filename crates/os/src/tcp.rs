//! Options of internet sockets that have no safe wrapper elsewhere. Nothing here waits.
#![expect(unsafe_code, reason = "no safe wrapper for TCP_DEFER_ACCEPT, TCP_INFO and their kin")]

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

/// Has a listening socket show connections only once they have sent something, or after so many seconds;
/// 0 ends that (TCP_DEFER_ACCEPT).
///
/// # Errors
/// As setsockopt(2).
pub fn set_defer_accept(socket: impl AsFd, seconds: i32) -> io::Result<()> {
    set(&socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// How many connections that came with data in their first packet may wait for the end of their
/// handshakes; 0 refuses such data (TCP_FASTOPEN).
///
/// # Errors
/// As setsockopt(2).
pub fn set_fastopen(socket: impl AsFd, queue: i32) -> io::Result<()> {
    set(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue)
}

/// Has bind(2) to an address without a port choose none yet, so that connect(2) can use a port again that is
/// in use towards another peer (IP_BIND_ADDRESS_NO_PORT).
///
/// # Errors
/// As setsockopt(2).
pub fn set_bind_address_no_port(socket: impl AsFd) -> io::Result<()> {
    set(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Lets a socket come from an address that is not this machine's (IP_TRANSPARENT).
///
/// # Errors
/// As setsockopt(2): EPERM without CAP_NET_ADMIN or CAP_NET_RAW.
pub fn set_transparent(socket: impl AsFd, local: &SocketAddr) -> io::Result<()> {
    match local {
        SocketAddr::V4(_) => set(&socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT, 1),
        SocketAddr::V6(_) => set(&socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1),
    }
}

fn set(socket: &impl AsFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads `value` during the call, and no more than the length of its type.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel's facts about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Its variance, microseconds.
    pub rttvar_us: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// Room for what the peer sends, bytes.
    pub rcv_space: u32,
    /// How long ago data was sent last, or the connection made, milliseconds.
    pub last_sent_ms: u32,
}

/// See [`TcpInfo`].
///
/// # Errors
/// As getsockopt(2), so on sockets that are not TCP's.
pub fn info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let info = raw_info(socket)?;
    Ok(TcpInfo {
        rtt_us: info.tcpi_rtt,
        rttvar_us: info.tcpi_rttvar,
        snd_cwnd: info.tcpi_snd_cwnd,
        rcv_space: info.tcpi_rcv_space,
        last_sent_ms: info.tcpi_last_data_sent,
    })
}

/// The kernel's record of a TCP socket (TCP_INFO).
pub(crate) fn raw_info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `length` bytes into `info`, and the length into `length`; both
    // live during the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it consists of integers, which were zero before the kernel wrote some or all of them.
    Ok(unsafe { info.assume_init() })
}

/// Where the kernel says how many bytes the peer has acknowledged, in words of eight bytes
/// (`tcpi_bytes_acked` of linux/tcp.h, Linux 4.1).
const BYTES_ACKED_AT: usize = 15;

/// How many of the bytes that were sent the peer's kernel has acknowledged, of a connection that this side
/// has made, also after its end. What a segment has acknowledged that ended the connection (FIN) counts, what
/// a reset says does not.
///
/// # Errors
/// As getsockopt(2), so on sockets that are not TCP's, and where the kernel does not say it.
pub fn acknowledged_bytes(socket: impl AsFd) -> io::Result<u64> {
    let mut info = [0_u64; BYTES_ACKED_AT + 1];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes no more than `length` bytes into `info`, and the length into `length`; both
    // live during the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < size_of_val(&info) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The handshake counts as one.
    Ok(info[BYTES_ACKED_AT].saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_are_known_and_other_sockets_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_fastopen(&listener, 3).unwrap();
        set_defer_accept(&listener, 1).unwrap();
        set_defer_accept(&listener, 0).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test may connect")]
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let found = info(&client).unwrap();
        assert!(found.snd_cwnd > 0 && found.rcv_space > 0, "{found:?}");
        assert!(acknowledged_bytes(&client).is_ok_and(|bytes| bytes == 0));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(acknowledged_bytes(&one).is_err());
        assert!(info(&one).is_err() && set_fastopen(&one, 1).is_err());
    }

    /// What is sent to a peer that has closed is never acknowledged, and what came there before is.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test may connect and read")]
    fn a_peer_that_has_closed_acknowledges_no_more() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"first").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        drop(server);
        // The end of the stream is there when the second request leaves.
        assert_eq!(client.peek(&mut [0]).unwrap(), 0);
        assert_eq!(acknowledged_bytes(&client).unwrap(), 5);
        client.write_all(b"second").unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert_eq!(acknowledged_bytes(&client).unwrap(), 5);
    }
}
