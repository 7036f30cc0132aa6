//! One connection of Lua's: its socket, what has come, and whether something reads or writes. Used by the
//! task of its request, or of its timer.

use std::sync::{Arc, OnceLock};

use clearway_net::accept::ConnectionSlot;
use clearway_net::connect::Outbound;
use clearway_runtime::{Entered, LoopRef, Socket, TaskCell};

use super::pool::Ticket;
use super::receive::Input;
use crate::socket::conf::SocketConf;

/// A connection that was made.
pub(crate) struct Conn {
    socket: Socket,
    _slot: ConnectionSlot,
    /// Counts it among those of its key.
    ticket: OnceLock<Ticket>,
}

impl Conn {
    pub(crate) fn new(outbound: Outbound, ticket: Option<Ticket>) -> Self {
        let ticket = ticket.map_or_else(OnceLock::new, OnceLock::from);
        Self { socket: outbound.socket, _slot: outbound.slot, ticket }
    }

    /// Has it counted, unless it is.
    pub(crate) fn count(&self, ticket: impl FnOnce() -> Ticket) {
        self.ticket.get_or_init(ticket);
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn home(&self) -> LoopRef {
        self.socket.home()
    }
}

/// What one direction does.
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

/// See the file's head.
pub(crate) struct Tcp {
    state: TaskCell<TcpState>,
    pub(crate) conf: SocketConf,
    /// The key of its pool.
    pub(crate) key: Vec<u8>,
    pub(crate) source: Source,
}

/// What it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// What comes on a connection.
    Connection,
    /// The body of the request.
    Body,
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
        };
        Self { state: TaskCell::new(state), conf, key, source: Source::Connection }
    }

    /// One that receives the body of its request.
    pub(crate) fn of_body(conf: SocketConf, timeouts: Timeouts) -> Self {
        let tcp = Self { source: Source::Body, ..Self::new(conf, Vec::new(), timeouts) };
        tcp.state().is_connecting = false;
        tcp
    }

    pub(crate) fn state(&self) -> Entered<'_, TcpState> {
        self.state.enter()
    }
}

impl TcpState {
    /// It is connected.
    pub(crate) fn begin(&mut self, conn: Arc<Conn>, used: u32) {
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
