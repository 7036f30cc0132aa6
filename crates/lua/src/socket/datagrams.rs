//! A datagram socket of Lua's, and what its functions wait for. Used by the task of its request, or timer.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_http::AskedServers;
use clearway_os::outgoing::{self, Carries, Remote};
use clearway_runtime::{Datagrams, LoopRef, TaskCell, Timer};

use super::conf::SocketConf;
use super::connection::{address_of, server_tail};
use super::operations::{self, Target, Told, failed, reason};
use crate::threads::{Answers, Line};

/// The longest datagram.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 65_536;

/// A datagram socket, and the waits of its functions.
pub(crate) struct Udp {
    pub(crate) state: TaskCell<UdpState>,
    pub(crate) conf: SocketConf,
    /// The server as it was said.
    said: String,
    /// The text behind its lines of the log.
    tail: OnceLock<String>,
}

#[derive(Default)]
pub(crate) struct UdpState {
    /// Once its peer is known, until it is closed.
    pub(crate) socket: Option<Arc<Datagrams>>,
    pub(crate) is_busy: bool,
}

impl Udp {
    pub(crate) fn new(conf: SocketConf, said: String) -> Self {
        let state = TaskCell::new(UdpState { socket: None, is_busy: true });
        Self { state, conf, said, tail: OnceLock::new() }
    }

    fn line(&self, text: String) -> Option<Line> {
        let tail = self.tail.get().map_or("", String::as_str);
        self.conf.logs_errors.then(|| Line { level: Level::Error, text: text + tail })
    }
}

/// A wait that has been given up.
struct Busy(Arc<Udp>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.enter();
        debug_assert!(state.is_busy, "one at a time uses it");
        state.is_busy = false;
    }
}

/// Connects it to its peer, whose name is found first.
pub(crate) async fn set_peer(
    udp: Arc<Udp>,
    home: LoopRef,
    target: Target,
    servers: AskedServers,
    local: Option<SocketAddr>,
) -> Answers {
    let busy = Busy(Arc::clone(&udp));
    let remote = match operations::find(home, &target, &servers, &Told::default()).await {
        Ok(remote) => remote,
        Err(text) => return failed(None, text),
    };
    let _ = udp.tail.set(server_tail(&udp.said, address_of(&remote)));
    match open(home, &remote, local) {
        Ok(socket) => {
            udp.state.enter().socket = Some(Arc::new(socket));
            drop(busy);
            Answers::One
        }
        Err(error) => failed(udp.line(format!("connect() failed {}", Errno(&error))), reason(&error)),
    }
}

fn open(home: LoopRef, remote: &Remote, local: Option<SocketAddr>) -> io::Result<Datagrams> {
    use std::os::fd::AsFd;
    let fd = outgoing::open(remote, Carries::Datagrams)?;
    match (remote, local) {
        (Remote::Unix(_), _) => outgoing::bind_anywhere(fd.as_fd())?,
        (Remote::Inet(_), Some(local)) => outgoing::bind(fd.as_fd(), local)?,
        (Remote::Inet(_), None) => {}
    }
    outgoing::connect(fd.as_fd(), remote)?;
    Ok(Datagrams::new(home, fd))
}

/// Receives one datagram, of which so many bytes are wanted.
pub(crate) async fn receive(udp: Arc<Udp>, home: LoopRef, most: usize, timeout_ms: u64) -> Answers {
    let _busy = Busy(Arc::clone(&udp));
    let socket = udp.state.enter().socket.clone();
    let Some(socket) = socket else { return failed(None, "closed".to_owned()) };
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + timeout_ms);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let received = poll_fn(|cx| match socket.poll_receive(cx, &mut buffer) {
        Poll::Ready(received) => Poll::Ready(Some(received)),
        Poll::Pending => timer.poll_expired(cx).map(|()| None),
    })
    .await;
    match received {
        None => {
            let line = udp.line("lua udp socket read timed out".to_owned());
            failed(line, "timeout".to_owned())
        }
        Some(Err(error)) => failed(udp.line(format!("recv() failed {}", Errno(&error))), reason(&error)),
        Some(Ok((len, _))) => {
            buffer.truncate(len.min(most));
            Answers::Push(Box::new(move |stack| stack.push(&buffer[..])), None)
        }
    }
}

/// Sends one datagram.
pub(crate) async fn send(udp: Arc<Udp>, data: Vec<u8>) -> Answers {
    let _busy = Busy(Arc::clone(&udp));
    let socket = udp.state.enter().socket.clone();
    let Some(socket) = socket else { return failed(None, "closed".to_owned()) };
    match poll_fn(|cx| socket.poll_send(cx, &data)).await {
        Ok(()) => Answers::One,
        Err(error) => failed(udp.line(format!("send() failed {}", Errno(&error))), reason(&error)),
    }
}
