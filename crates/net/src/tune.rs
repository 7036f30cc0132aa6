//! Options of listening sockets that change nothing about which connections arrive: buffers, keepalive
//! probes, what the kernel does before a connection is shown. Set when a socket is opened and at reloads
//! that change them; what cannot be had is logged and gone without, as in nginx. Boot only, or the master's
//! thread; nothing here waits.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use clearway_os::tcp;
use rustix::net::sockopt;

use crate::listen::ListenAddr;

/// How long the kernel keeps a connection from being shown that sends nothing (`deferred`), in seconds.
pub const DEFER_ACCEPT_S: i32 = 1;

/// Options of `listen` of which sockets inherit or the kernel decides; `None` leaves what the system has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// `rcvbuf=`, bytes.
    pub rcvbuf_bytes: Option<u32>,
    /// `sndbuf=`, bytes.
    pub sndbuf_bytes: Option<u32>,
    /// `fastopen=`, connections.
    pub fastopen: Option<u32>,
    /// `so_keepalive=`.
    pub keepalive: Keepalive,
    /// `deferred`: connections are shown once they have sent something.
    pub deferred: bool,
}

/// `so_keepalive=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keepalive {
    /// As the system has it.
    #[default]
    Unsaid,
    /// No probes.
    Off,
    /// Probes; numbers that are 0 are the system's.
    On {
        /// After which silence, seconds.
        idle_s: u32,
        /// How far apart, seconds.
        interval_s: u32,
        /// How many before the connection is given up.
        count: u32,
    },
}

/// Sets what differs from `before`.
pub fn tune(socket: &OwnedFd, address: &ListenAddr, wanted: &Tuning, before: &Tuning, log: &dyn Sink) {
    let say = |option: &str, value: &dyn fmt::Display, place: &str, result: io::Result<()>| {
        if let Err(error) = result {
            let errno = Errno(&error);
            let message =
                format_args!("setsockopt({option}, {value}) {place}{address} failed, ignored {errno}");
            log.log(Level::Alert, message);
        }
    };
    if let Some(bytes) = wanted.rcvbuf_bytes.filter(|_| wanted.rcvbuf_bytes != before.rcvbuf_bytes) {
        let result = sockopt::set_socket_recv_buffer_size(socket, bytes as usize);
        say("SO_RCVBUF", &bytes, "", result.map_err(Into::into));
    }
    if let Some(bytes) = wanted.sndbuf_bytes.filter(|_| wanted.sndbuf_bytes != before.sndbuf_bytes) {
        let result = sockopt::set_socket_send_buffer_size(socket, bytes as usize);
        say("SO_SNDBUF", &bytes, "", result.map_err(Into::into));
    }
    if wanted.keepalive != before.keepalive {
        set_keepalive(socket, wanted.keepalive, &|option, value, result| say(option, &value, "", result));
    }
    if let Some(queue) = wanted.fastopen.filter(|_| wanted.fastopen != before.fastopen) {
        let result = tcp::set_fastopen(socket, i32::try_from(queue).unwrap_or(i32::MAX));
        say("TCP_FASTOPEN", &queue, "", result);
    }
    if wanted.deferred != before.deferred {
        let seconds = if wanted.deferred { DEFER_ACCEPT_S } else { 0 };
        say("TCP_DEFER_ACCEPT", &seconds, "for ", tcp::set_defer_accept(socket, seconds));
    }
}

type Say<'a> = dyn Fn(&str, u32, io::Result<()>) + 'a;

fn set_keepalive(socket: &OwnedFd, keepalive: Keepalive, say: &Say<'_>) {
    let (is_on, [idle_s, interval_s, count]) = match keepalive {
        Keepalive::Unsaid => return,
        Keepalive::Off => (false, [0; 3]),
        Keepalive::On { idle_s, interval_s, count } => (true, [idle_s, interval_s, count]),
    };
    let seconds = |number: u32| Duration::from_secs(u64::from(number));
    let result = sockopt::set_socket_keepalive(socket, is_on);
    say("SO_KEEPALIVE", u32::from(is_on), result.map_err(Into::into));
    if idle_s > 0 {
        let result = sockopt::set_tcp_keepidle(socket, seconds(idle_s));
        say("TCP_KEEPIDLE", idle_s, result.map_err(Into::into));
    }
    if interval_s > 0 {
        let result = sockopt::set_tcp_keepintvl(socket, seconds(interval_s));
        say("TCP_KEEPINTVL", interval_s, result.map_err(Into::into));
    }
    if count > 0 {
        say("TCP_KEEPCNT", count, sockopt::set_tcp_keepcnt(socket, count).map_err(Into::into));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::tests::Lines;
    use crate::bind::{Options, bind, close_unix};

    const ALL: Tuning = Tuning {
        rcvbuf_bytes: Some(40_000),
        sndbuf_bytes: Some(50_000),
        fastopen: Some(3),
        keepalive: Keepalive::On { idle_s: 61, interval_s: 7, count: 5 },
        deferred: true,
    };

    #[test]
    fn a_socket_has_what_was_asked_for() {
        let lines = Lines::default();
        let address = ListenAddr::Inet("127.0.0.1:0".parse().unwrap());
        let options = Options { tuning: ALL, ..Options::default() };
        let socket = bind(&address, &options, &lines).unwrap();
        // Linux doubles what it is asked for.
        assert_eq!(sockopt::socket_recv_buffer_size(&socket).unwrap(), 80_000);
        assert_eq!(sockopt::socket_send_buffer_size(&socket).unwrap(), 100_000);
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap().as_secs(), 61);
        assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap().as_secs(), 7);
        assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), 5);
        let without = Tuning { keepalive: Keepalive::Off, ..Tuning::default() };
        tune(&socket, &address, &without, &ALL, &lines);
        assert!(!sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(lines.0.into_inner().unwrap(), [""; 0]);
    }

    #[test]
    fn what_a_socket_cannot_have_is_gone_without() {
        let path = std::env::temp_dir().join(format!("clearway-tune-{}.sock", std::process::id()));
        let address = ListenAddr::Unix(path.as_os_str().as_encoded_bytes().into());
        let lines = Lines::default();
        let tuning = Tuning { fastopen: Some(1), deferred: true, ..Tuning::default() };
        let socket = bind(&address, &Options { tuning, ..Options::default() }, &lines).unwrap();
        close_unix(&address, &lines);
        drop(socket);
        let failed = "failed, ignored (95: Operation not supported)";
        let expected = [
            format!("[alert] setsockopt(TCP_FASTOPEN, 1) {address} {failed}"),
            format!("[alert] setsockopt(TCP_DEFER_ACCEPT, 1) for {address} {failed}"),
        ];
        assert_eq!(lines.0.into_inner().unwrap(), expected);
    }
}
