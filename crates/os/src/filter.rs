//! A packet filter for listening sockets that are about to be closed. Nothing here waits.
#![expect(unsafe_code, reason = "no safe wrapper for SO_ATTACH_FILTER")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Where TCP's flags are in its header, bytes.
const TCP_FLAGS_AT: u32 = 13;
const TCP_SYN: u32 = 0x02;
const TCP_ACK: u32 = 0x10;

/// Has the kernel drop the first packet of every new TCP connection to a listening socket, so that
/// handshakes that have begun are completed and no others begin. A client that is not answered tries again
/// after a second, and meets the socket that listens then. Accepted connections inherit the filter, which
/// does nothing to them.
///
/// # Errors
/// As setsockopt(2).
pub fn refuse_handshakes(socket: impl AsFd) -> io::Result<()> {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, TCP_FLAGS_AT),
        instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, TCP_SYN | TCP_ACK),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, TCP_SYN),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program during the call, for which `program` and `filter` live; the
    // length is that of `filter`, and `len` that of `program`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_connection_begins_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test may connect")]
        let before = TcpStream::connect(address).unwrap();
        refuse_handshakes(&listener).unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        assert_eq!(peer, before.local_addr().unwrap());
        assert!(TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err());
        drop((listener, accepted));
    }
}
