//! One connection of Lua's: its socket, what has come, and whether something reads or writes. Used by the
//! task of its request, or of its timer.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::task::{Context, Poll, Waker};

use clearway_net::accept::ConnectionSlot;
use clearway_net::connect::Outbound;
use clearway_os::outgoing::Remote;
use clearway_runtime::{Entered, LoopRef, Probe, Socket, TaskCell, Timer};
#[cfg(feature = "tls")]
use clearway_upstream::TlsStream;
use clearway_upstream::Transport;

use super::keeper::Kept;
use super::pool::{Pool, Ticket};
use super::receive::Input;
use crate::socket::conf::SocketConf;

/// A connection that was made.
pub(crate) struct Conn {
    carrier: Carrier,
    home: LoopRef,
    _slot: ConnectionSlot,
    /// Counts it among those of its key.
    ticket: OnceLock<Ticket>,
    /// The timer for its next operation that waits, once one has.
    pub(super) timer: TaskCell<Option<Timer>>,
    /// Looks after it while it is put aside, once it was.
    pub(super) keeper: OnceLock<Kept>,
}

/// The carrier of its bytes.
enum Carrier {
    Plain(Socket),
    /// TLS. One uses it at a time: its request, or its keeper while it is put aside; a task that finds it
    /// taken nevertheless is polled again.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing makes one"))]
    Tls(Secured),
}

/// See [`Carrier::Tls`].
struct Secured(Mutex<Transport>);

impl Secured {
    fn enter(&self) -> Option<MutexGuard<'_, Transport>> {
        match self.0.try_lock() {
            Ok(stream) => Some(stream),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Drop for Secured {
    /// The connection ends: the peer is told so, as far as the socket takes the message at once.
    fn drop(&mut self) {
        if let Some(mut stream) = self.enter() {
            stream.close();
        }
    }
}

impl Conn {
    pub(crate) fn new(outbound: Outbound, ticket: Option<Ticket>) -> Self {
        let ticket = ticket.map_or_else(OnceLock::new, OnceLock::from);
        let home = outbound.socket.home();
        let carrier = Carrier::Plain(outbound.socket);
        let (timer, keeper) = (TaskCell::default(), OnceLock::new());
        Self { carrier, home, _slot: outbound.slot, ticket, timer, keeper }
    }

    /// Has `make` put TLS between its bytes and its socket. One that has it stays as it is.
    #[cfg(feature = "tls")]
    pub(crate) fn secured(self, make: impl FnOnce(Socket) -> Transport) -> Self {
        match self.carrier {
            Carrier::Plain(socket) => {
                Self { carrier: Carrier::Tls(Secured(Mutex::new(make(socket)))), ..self }
            }
            Carrier::Tls(_) => self,
        }
    }

    /// Has it counted, unless it is.
    pub(super) fn count(&self, ticket: impl FnOnce() -> Ticket) {
        self.ticket.get_or_init(ticket);
    }

    /// The pool that it counts in.
    pub(crate) fn pool(&self) -> Option<Arc<Pool>> {
        self.ticket.get().map(|ticket| Arc::clone(ticket.pool()))
    }

    pub(crate) fn home(&self) -> LoopRef {
        self.home
    }

    /// Has its loop watch it, as it is about to be put aside; whether it can.
    pub(super) fn watch(&self) -> bool {
        self.with_socket(|socket| socket.watch().is_ok()).unwrap_or_default()
    }

    /// Whether reading is worth a try, as far as is known without a system call.
    pub(super) fn may_have_data(&self) -> bool {
        match &self.carrier {
            Carrier::Plain(socket) => !socket.is_quiet(),
            Carrier::Tls(_) => true,
        }
    }

    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        match &self.carrier {
            Carrier::Plain(socket) => socket.poll_read_vec(cx, buffer),
            Carrier::Tls(stream) => match stream.enter() {
                Some(mut stream) => stream.poll_read_vec(cx, buffer),
                None => again(cx),
            },
        }
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &self.carrier {
            Carrier::Plain(socket) => socket.poll_write(cx, data),
            Carrier::Tls(stream) => match stream.enter() {
                // A record more than the socket takes is offered again as it was.
                Some(mut stream) => stream.poll_write(cx, data),
                None => again(cx),
            },
        }
    }

    /// Does something with its socket; nothing where another one is at it.
    pub(crate) fn with_socket<R>(&self, work: impl FnOnce(&Socket) -> R) -> Option<R> {
        match &self.carrier {
            Carrier::Plain(socket) => Some(work(socket)),
            Carrier::Tls(stream) => stream.enter().map(|stream| work(stream.socket())),
        }
    }

    /// Does something with its TLS, where it has any.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls<R>(&self, work: impl FnOnce(&mut TlsStream) -> R) -> Option<R> {
        match &self.carrier {
            Carrier::Plain(_) => None,
            Carrier::Tls(stream) => stream.enter()?.tls_mut().map(work),
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn has_tls(&self) -> bool {
        matches!(self.carrier, Carrier::Tls(_))
    }

    /// Whether nothing more can come, as far as the loop has learned.
    pub(crate) fn rest(&self) -> Rest {
        match &self.carrier {
            // Its pool is told if something comes later.
            Carrier::Plain(socket) if !socket.is_quiet() && socket.probe() == Probe::Ended => Rest::Ended,
            Carrier::Plain(_) => Rest::Quiet,
            Carrier::Tls(stream) => {
                let Some(mut stream) = stream.enter() else { return Rest::Quiet };
                let mut byte = Vec::with_capacity(1);
                match stream.poll_read_vec(&mut Context::from_waker(Waker::noop()), &mut byte) {
                    Poll::Pending => Rest::Quiet,
                    Poll::Ready(Ok(1..)) => Rest::Unread,
                    Poll::Ready(_) => Rest::Ended,
                }
            }
        }
    }
}

/// The state of a connection that is to be put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Quiet,
    Unread,
    Ended,
}

fn again<T>(cx: &Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// The state of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    #[default]
    Free,
    Busy,
    Closed,
}

/// How long functions wait, milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect_ms: u64,
    pub(crate) send_ms: u64,
    pub(crate) read_ms: u64,
}

/// A connection, and the waits of its functions.
pub(crate) struct Tcp {
    state: TaskCell<TcpState>,
    pub(crate) conf: SocketConf,
    /// The key of its pool.
    pub(crate) key: Vec<u8>,
    pub(crate) source: TcpSource,
    /// The server as the caller wrote it, where that is not the key.
    said: Option<Vec<u8>>,
    /// The server's address, if it has one; once that is known.
    server: OnceLock<Option<IpAddr>>,
}

/// The source of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpSource {
    /// Bytes of a connection.
    Connection,
    /// The body of the request.
    Body,
    /// Bytes of the client, which gets all that is written.
    Client,
}

pub(crate) struct TcpState {
    /// Until it is closed, or put aside.
    pub(crate) conn: Option<Arc<Conn>>,
    pub(crate) is_connecting: bool,
    pub(crate) input: Input,
    pub(crate) reading: Direction,
    pub(crate) writing: Direction,
    /// How often the connection was used before.
    pub(crate) used: u32,
    pub(crate) timeouts: Timeouts,
    /// The outcome of a handshake, until code has fetched it.
    #[cfg(feature = "tls")]
    pub(crate) shaken: Option<Result<(), String>>,
    /// Where code has the session of that, if it wants one.
    #[cfg(feature = "tls")]
    pub(crate) session: SessionWish,
    /// The session that was offered: one that is taken up is good for further connections.
    #[cfg(feature = "tls")]
    pub(crate) offered: Option<Vec<u8>>,
}

/// Whether code wants the session of a handshake.
#[cfg(feature = "tls")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SessionWish {
    #[default]
    No,
    Yes,
    /// The code has got the session, at this address; 0 if there is none.
    Given(usize),
}

impl Tcp {
    pub(crate) fn new(conf: SocketConf, key: Vec<u8>, timeouts: Timeouts) -> Self {
        let state = TcpState {
            conn: None,
            is_connecting: true,
            input: Input::default(),
            reading: Direction::Free,
            writing: Direction::Free,
            used: 0,
            timeouts,
            #[cfg(feature = "tls")]
            shaken: None,
            #[cfg(feature = "tls")]
            session: SessionWish::No,
            #[cfg(feature = "tls")]
            offered: None,
        };
        let (state, source, server) = (TaskCell::new(state), TcpSource::Connection, OnceLock::new());
        Self { state, conf, key, source, said: None, server }
    }

    /// The same with the server as the caller wrote it, where that is not the key.
    pub(crate) fn said(self, said: Option<Vec<u8>>) -> Self {
        Self { said, ..self }
    }

    /// A socket that receives the body of its request.
    pub(crate) fn of_body(conf: SocketConf, timeouts: Timeouts) -> Self {
        let tcp = Self { source: TcpSource::Body, ..Self::new(conf, Vec::new(), timeouts) };
        tcp.state().is_connecting = false;
        tcp
    }

    /// The client's own, with what has come from it.
    pub(crate) fn of_client(conf: SocketConf, timeouts: Timeouts, received: &[u8]) -> Self {
        let tcp = Self { source: TcpSource::Client, ..Self::new(conf, Vec::new(), timeouts) };
        {
            let mut state = tcp.state();
            state.is_connecting = false;
            state.input.room(received.len()).extend_from_slice(received);
        }
        tcp
    }

    /// Notes the server, which is known now, with the address that was found.
    pub(crate) fn note_server(&self, remote: Option<&Remote>) {
        // One that was noted before is the same.
        let _ = self.server.set(remote.and_then(address_of));
    }

    /// The text behind its lines of the log: the server as the caller wrote it, and its address.
    pub(crate) fn tail(&self) -> String {
        let said = String::from_utf8_lossy(self.said.as_ref().unwrap_or(&self.key));
        self.server.get().map_or_else(String::new, |address| server_tail(&said, *address))
    }

    pub(crate) fn state(&self) -> Entered<'_, TcpState> {
        self.state.enter()
    }
}

pub(crate) fn address_of(remote: &Remote) -> Option<IpAddr> {
    match remote {
        Remote::Inet(address) => Some(address.ip()),
        Remote::Unix(_) => None,
    }
}

/// The text behind lines of the log about a server.
pub(crate) fn server_tail(said: &str, address: Option<IpAddr>) -> String {
    match address {
        Some(address) => format!(", upstream: {said}({address})"),
        None => format!(", upstream: {said}"),
    }
}

impl TcpState {
    /// Notes that the socket is connected.
    pub(crate) fn begin(&mut self, conn: Arc<Conn>, used: u32) {
        debug_assert!(self.conn.is_none(), "a socket has one connection");
        debug_assert!(self.input.is_empty(), "nothing of another connection is left");
        self.is_connecting = false;
        self.conn = Some(conn);
        self.used = used;
    }

    /// Why it cannot be used for something else, if it cannot.
    pub(crate) fn busy(&self) -> Option<&'static str> {
        match () {
            () if self.is_connecting => Some("socket busy connecting"),
            () if self.reading == Direction::Busy => Some("socket busy reading"),
            () if self.writing == Direction::Busy => Some("socket busy writing"),
            () => None,
        }
    }

    /// Closes a direction; the connection ends with both.
    pub(crate) fn close_reading(&mut self) {
        self.reading = Direction::Closed;
        self.end_if_closed();
    }

    pub(crate) fn close_writing(&mut self) {
        self.writing = Direction::Closed;
        self.end_if_closed();
    }

    fn end_if_closed(&mut self) {
        if self.reading == Direction::Closed && self.writing == Direction::Closed {
            self.conn = None;
        }
    }
}
