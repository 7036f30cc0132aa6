//! One connection: one task. Idle, it is a socket, a timer and two words; everything a request needs
//! is in one boxed future that lives from the request's first byte until the connection is idle again.
//!
//! The task reads once when its socket becomes readable and writes once per small response; it waits
//! only for the socket, for a timer, or inside a handler that said so.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use clearway_base::log::{Level, Record};
use clearway_net::PeerAddr;
use clearway_net::accept::{Accepted, ConnectionSlot};
use clearway_runtime::{LoopRef, Socket, Timer};

use crate::listen::{Address, LocalAddress};
use crate::parts::{Parts, Stock};
use crate::serve::serve_requests;
use crate::snapshot::{CoreServer, Snapshot};

/// What the error log says of a client that sent nothing for too long.
pub(crate) const TIMED_OUT: &str = "client timed out (110: Connection timed out)";

/// Serial numbers of connections (`$connection`), over the whole process.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// A socket of a configuration that connections arrive at.
pub struct Listener {
    snapshot: Arc<Snapshot>,
    socket: usize,
    stopping: AtomicBool,
    stock: Stock,
}

impl Listener {
    /// For one of `Snapshot::sockets`, by its number there.
    ///
    /// # Panics
    /// If there is no such socket.
    pub fn new(snapshot: Arc<Snapshot>, socket: usize) -> Self {
        assert!(socket < snapshot.sockets().len(), "a listener is one of the snapshot's sockets");
        Self { snapshot, socket, stopping: AtomicBool::new(false), stock: Stock::new() }
    }

    /// From here on responses close their connections, and idle connections end as soon as they are
    /// woken, `keepalive_min_timeout` permitting.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }
}

/// What a connection is while it is idle.
pub(crate) struct Conn {
    pub(crate) socket: Socket,
    pub(crate) timer: Timer,
    pub(crate) home: LoopRef,
    listener: Arc<Listener>,
    /// Number of the address within the listener's socket.
    address: u32,
    pub(crate) peer: PeerAddr,
    pub(crate) serial: u64,
    pub(crate) start_ms: u64,
    /// Whether small writes leave at once (TCP_NODELAY).
    sends_at_once: AtomicBool,
    /// Its place among the `worker_connections`.
    _slot: ConnectionSlot,
}

/// Serves a connection until it ends. To be spawned on `home`.
pub fn serve(
    listener: Arc<Listener>,
    home: LoopRef,
    accepted: Accepted,
) -> impl Future<Output = ()> + Send + 'static {
    let Accepted { socket, peer, slot } = accepted;
    let plan = &listener.snapshot.sockets[listener.socket];
    let local = plan.needs_local_address().then(|| clearway_os::socket::local_address(&socket)).flatten();
    let conn = Conn {
        address: plan.find(local),
        socket: Socket::new(home, socket),
        timer: Timer::new(home),
        home,
        peer,
        _slot: slot,
        serial: SERIAL.fetch_add(1, Ordering::Relaxed),
        start_ms: home.now_ms(),
        sends_at_once: AtomicBool::new(false),
        listener,
    };
    // Captured and only lent: an argument of `run` would be kept twice.
    async move { run(&conn).await }
}

/// What a connection does after requests.
pub(crate) enum After {
    /// There was nothing to read.
    Nothing,
    /// Waits for the next request.
    Idle {
        /// Requests so far.
        served: u64,
        /// For how long, milliseconds.
        timeout_ms: u64,
        /// For how long also while the server stops, milliseconds.
        min_timeout_ms: u64,
    },
    /// Ends.
    Close,
}

async fn run(conn: &Conn) {
    let mut served = 0;
    let mut stay_until_ms = 0;
    loop {
        // Made after its memory, so that nothing but its arguments is written there.
        let requests = Box::write(Box::new_uninit(), serve_requests(conn, served));
        match Box::into_pin(requests).await {
            // A request that is there when the connection is needs no timer.
            After::Nothing if served == 0 => {
                conn.timer.arm(conn.start_ms + *conn.server_core().client_header_timeout_ms);
            }
            After::Nothing => {}
            After::Close => return,
            After::Idle { served: so_far, timeout_ms, min_timeout_ms } => {
                served = so_far;
                let now_ms = conn.home.now_ms();
                stay_until_ms = now_ms + min_timeout_ms;
                conn.timer.arm(now_ms + timeout_ms);
            }
        }
        if poll_fn(|cx| conn.poll_idle(stay_until_ms, cx)).await == Idle::Over {
            conn.log_idle_end(served);
            return;
        }
    }
}

/// Why an idle connection goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    Readable,
    Over,
}

impl Conn {
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.listener.snapshot
    }

    /// The address that was connected to, as configured.
    pub(crate) fn address(&self) -> &Address {
        self.snapshot().sockets[self.listener.socket].address(self.address)
    }

    /// The address that was connected to.
    pub(crate) fn local_address(&self) -> LocalAddress<'_> {
        let address = self.address();
        if !address.listen.is_wildcard() {
            return LocalAddress::new(None, address);
        }
        LocalAddress::new(clearway_os::socket::local_address(&self.socket), address)
    }

    /// Makes small writes leave at once, without waiting for what went before to be acknowledged. Asked
    /// for where a second write follows a first one; connections of one response are spared the call.
    pub(crate) fn send_at_once(&self) {
        if !self.sends_at_once.load(Ordering::Relaxed) {
            self.sends_at_once.store(true, Ordering::Relaxed);
            clearway_os::socket::set_nodelay(self.socket.as_fd());
        }
    }

    /// Empty buffers for a request.
    pub(crate) fn take_parts(&self) -> Box<Parts> {
        let bytes = self.server_core().options.client_header_buffer_size;
        self.listener.stock.take(self.home.index(), bytes)
    }

    /// Takes the buffers of a request back.
    pub(crate) fn put_back(&self, parts: Box<Parts>) {
        self.listener.stock.put_back(self.home.index(), parts);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.listener.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn server_core(&self) -> &CoreServer {
        &self.snapshot().server(self.address().default_server).core
    }

    fn poll_idle(&self, stay_until_ms: u64, cx: &mut Context<'_>) -> Poll<Idle> {
        if self.socket.poll_readable(cx).is_ready() {
            return Poll::Ready(Idle::Readable);
        }
        if self.listener.stopping.load(Ordering::Acquire) {
            if self.home.now_ms() >= stay_until_ms {
                return Poll::Ready(Idle::Over);
            }
            self.timer.arm(stay_until_ms);
        }
        self.timer.poll_expired(cx).map(|()| Idle::Over)
    }

    fn log_idle_end(&self, served: u64) {
        if served == 0 && !self.is_stopping() {
            self.log(Level::Info, "waiting for request", format_args!("{TIMED_OUT}"));
        }
    }

    /// Writes a line about the connection where there is no request to tell more.
    pub(crate) fn log(&self, level: Level, action: &str, message: fmt::Arguments<'_>) {
        let (client, server) = (self.peer, &self.address().text);
        let circumstances = format_args!(" while {action}, client: {client}, server: {server}");
        self.log_plain(level, format_args!("{message}{circumstances}"));
    }

    /// Writes a line as it stands.
    pub(crate) fn log_plain(&self, level: Level, message: fmt::Arguments<'_>) {
        let base = self.snapshot().server(self.address().default_server).base;
        let sinks = self.snapshot().location(base).core.error_log.iter();
        for sink in sinks.filter(|sink| sink.enabled(level)) {
            sink.write(&Record { level, tid: self.home.identity(), connection: Some(self.serial), message });
        }
    }

    /// Reads behind what is there; `None` when the timer fires first.
    pub(crate) fn poll_read(
        &self,
        buf: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<usize>>> {
        match self.socket.poll_read_vec(cx, buf) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => self.timer.poll_expired(cx).map(|()| None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<F>(_: fn(Arc<Listener>, LoopRef, Accepted) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let bytes = future_bytes(serve) + clearway_runtime::TASK_OVERHEAD;
        assert!(bytes <= 256, "{bytes} bytes with the task's own");
    }
}
