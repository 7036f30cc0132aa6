//! Listening TCP sockets and their queues: how many connections wait, and which of the sockets that share an
//! address (SO_REUSEPORT) get the new ones. Nothing here waits.
#![expect(unsafe_code, reason = "SO_ATTACH_REUSEPORT_CBPF has no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::tcp::raw_info;

/// A random number, among what a program can load (`SKF_AD_OFF + SKF_AD_RANDOM` of linux/filter.h).
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;

/// Connections that a listening socket has completed and nobody has accepted; 0 for other sockets.
#[must_use]
pub fn waiting(socket: impl AsFd) -> u32 {
    // For a listening socket this is the length of its queue.
    raw_info(socket).map_or(0, |info| info.tcpi_unacked)
}

/// Has the kernel give new connections to the first `count` of the sockets that share the address of
/// `socket`, in the order in which they began to listen; at random among those. Handshakes that have begun
/// stay where they are.
///
/// # Errors
/// As setsockopt(2), and for a count of 0.
pub fn steer_to_first(socket: impl AsFd, count: u32) -> io::Result<()> {
    if count == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let instruction = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, RANDOM),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program during the call, for which it lives; the length is that of
    // `program`, and `len` that of what it points to.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel spread new connections by hash over all sockets that share the address, as at first.
pub fn steer_to_all(socket: impl AsFd) {
    let none: libc::c_int = 0;
    // If no program was attached, there is nothing to take back. SAFETY: `none` is valid to read for its
    // size; the option takes no data, but wants an int.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_REUSEPORT_BPF,
            (&raw const none).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

    use super::*;

    fn listener(address: SocketAddr) -> TcpListener {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &address).unwrap();
        listen(&socket, 100).unwrap();
        socket.into()
    }

    #[expect(clippy::disallowed_methods, reason = "a test may connect")]
    fn connect(address: SocketAddr, count: usize) -> Vec<TcpStream> {
        (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
    }

    /// Waits until so many connections wait in all, and says where.
    fn queues(listeners: &[TcpListener], total: u32) -> Vec<u32> {
        let begun = Instant::now();
        loop {
            let queues: Vec<u32> = listeners.iter().map(waiting).collect();
            if queues.iter().sum::<u32>() == total {
                return queues;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{queues:?} of {total}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn new_connections_go_where_they_are_steered() {
        let first = listener("127.0.0.1:0".parse().unwrap());
        let address = first.local_addr().unwrap();
        let listeners = [first, listener(address), listener(address), listener(address)];
        steer_to_first(&listeners[0], 2).unwrap();
        let held = connect(address, 60);
        let before = queues(&listeners, 60);
        assert!(before[0] > 0 && before[1] > 0 && before[2..] == [0, 0], "{before:?}");
        steer_to_all(&listeners[0]);
        let more = connect(address, 60);
        let after = queues(&listeners, 120);
        assert!(after[2] + after[3] > 0, "{after:?}");
        drop((held, more));
        steer_to_first(&listeners[0], 0).unwrap_err();
    }

    #[test]
    fn other_sockets_have_nobody_waiting() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(waiting(&near), 0);
        steer_to_first(&near, 1).unwrap_err();
        steer_to_all(&near);
    }
}
