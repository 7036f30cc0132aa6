//! One connection: one task. Idle, it is a socket, a timer and two words; everything a request needs
//! is in one boxed future that lives from the request's first byte until the connection is idle again.
//!
//! The task reads once when its socket becomes readable and writes once per small response; it waits
//! only for the socket, for a timer, or inside a handler that said so.

pub(crate) mod account;
pub(crate) mod departure;
pub(crate) mod pace;
pub(crate) mod pause;
pub(crate) mod proxied;
pub(crate) mod serve;
pub(crate) mod wire;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::{Level, Record};
use clearway_net::PeerAddr;
use clearway_net::accept::{Accepted, ConnectionSlot};
use clearway_runtime::{LoopRef, Socket, Tag, Timer, Woken};
use clearway_site::{Address, CoreLocation, CoreServer, LocalAddress, ProxyProtocol};

use crate::connection::departure::Deeds;
use crate::connection::proxied::{Front, read_front};
use crate::connection::serve::{LingeringLimits, lingering_close, serve_requests};
use crate::generation::{Listener, Serving};
use crate::metrics::Stage;
use crate::request::parts::Parts;
use crate::tables::Snapshot;

/// What the error log says of a client that sent nothing for too long.
pub(crate) const TIMED_OUT: &str = "client timed out (110: Connection timed out)";

/// When the server stops, a connection that was accepted or answered less than so long ago stays for the
/// rest of it, milliseconds: a request may be on its way, and would be lost with the connection. Its answer
/// closes the connection then.
const STOP_GRACE_MS: u64 = 1_000;

/// From this lag of its loop on, a connection that becomes idle may be moved to another one, milliseconds.
/// Turns that are as long mean that the loop is not handed over in time.
const MOVE_LAG_MS: u32 = 10;

/// It was asked for that small writes leave at once.
const NODELAY_ON: u8 = 1;
/// It was asked for that they do not.
const NODELAY_OFF: u8 = 2;

/// Serial numbers of connections (`$connection`), over the whole process.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// What a connection is while it is idle.
pub(crate) struct Conn {
    pub(crate) socket: Socket,
    pub(crate) timer: Timer,
    pub(crate) home: LoopRef,
    listener: Arc<Listener>,
    /// The configuration; exchanged between requests.
    serving: Arc<Serving>,
    /// The generation of the latest request, or the one in which it was accepted.
    begun_in: u64,
    /// Number of the address within the listener's socket.
    address: u32,
    pub(crate) peer: PeerAddr,
    pub(crate) serial: u64,
    pub(crate) start_ms: u64,
    /// Requests so far, which are not counted beyond the largest number; written by its task.
    served: AtomicU32,
    /// Whether small writes leave at once (TCP_NODELAY).
    nodelay: AtomicU8,
    /// What is not given up though the client leaves.
    pub(crate) deeds: Deeds,
    /// What a proxy has sent before the first request.
    pub(crate) front: Option<Box<Front>>,
    /// What it is counted as.
    pub(crate) stage: Stage,
    /// Its place among the `worker_connections`.
    slot: ConnectionSlot,
}

/// Serves a connection until it ends. To be spawned on `home`.
pub fn serve(
    listener: Arc<Listener>,
    home: LoopRef,
    accepted: Accepted,
) -> impl Future<Output = ()> + Send + 'static {
    let conn = Conn::new(listener, home, accepted);
    let waiting = Waiting { since_ms: conn.start_ms, min_timeout_ms: 0 };
    go_on(conn, waiting)
}

/// Has a connection that waits for a request, and was moved to another loop, go on there.
fn spawn_moved(conn: Conn, waiting: Waiting) {
    conn.home.spawn(Tag::NONE, go_on(conn, waiting));
}

/// Serves a connection from when it is idle until it ends, or until it is moved to another loop.
fn go_on(mut conn: Conn, mut waiting: Waiting) -> impl Future<Output = ()> + Send + 'static {
    let mut idle = Idle::New;
    async move {
        if conn.address().proxy_protocol == ProxyProtocol::On
            && Box::pin(read_front(&mut conn, waiting)).await.is_err()
        {
            return;
        }
        let limits = 'serving: loop {
            let mut begun = match poll_fn(|cx| Poll::Ready(conn.receive(idle, cx))).await {
                Received::Begun(parts) => Some(parts),
                Received::Nothing if idle == Idle::Leaving => return,
                Received::Nothing => None,
                Received::End => return,
            };
            // A request that is there when the connection is needs no timer.
            if begun.is_none() && conn.served() == 0 {
                conn.timer.arm(conn.start_ms + *conn.server_core().client_header_timeout_ms);
            }
            while let Some(parts) = begun {
                let after = {
                    let conn = &conn;
                    // Made after its memory, so that nothing but its arguments is written there.
                    let requests = Box::write(Box::new_uninit(), serve_requests(conn, Some(parts)));
                    let mut requests = Box::into_pin(requests);
                    poll_fn(move |cx| conn.poll_unless_closed(&mut requests, cx)).await
                };
                begun = match after {
                    After::Idle { timeout_ms, min_timeout_ms } => {
                        let now_ms = conn.home.now_ms();
                        waiting = Waiting { since_ms: now_ms, min_timeout_ms };
                        conn.begun_in = conn.serving.number;
                        if conn.home.lag_ms() >= MOVE_LAG_MS && conn.moves() {
                            conn.timer.arm(conn.home.now_ms() + timeout_ms);
                            return spawn_moved(conn, waiting);
                        }
                        conn.timer.arm(now_ms + timeout_ms);
                        None
                    }
                    After::Outdated(parts) => {
                        conn.renew();
                        Some(parts)
                    }
                    After::Linger(limits) => break 'serving limits,
                    After::Close => return,
                };
            }
            idle = poll_fn(|cx| conn.poll_idle(waiting, cx)).await;
            match idle {
                Idle::New | Idle::Readable | Idle::Leaving => {}
                Idle::TimedOut if conn.served() > 0 => return,
                Idle::TimedOut => {
                    return conn.log(Level::Info, "waiting for request", format_args!("{TIMED_OUT}"));
                }
                Idle::Closed => return,
            }
        };
        Box::pin(lingering_close(&conn, limits)).await;
    }
}

/// Which address of the listener's socket a connection was made to.
fn find_address(serving: &Serving, socket: impl AsFd) -> u32 {
    let plan = serving.socket();
    plan.find(plan.needs_local_address().then(|| clearway_os::socket::local_address(socket)).flatten())
}

/// What a connection does after requests.
pub(crate) enum After {
    /// Waits for the next request.
    Idle {
        /// For how long, milliseconds.
        timeout_ms: u64,
        /// For how long also while the server stops or needs room, milliseconds.
        min_timeout_ms: u32,
    },
    /// Goes on with what was received of the next request, in the generation that is published.
    Outdated(Box<Parts>),
    /// Ends, once the client has done so.
    Linger(LingeringLimits),
    /// Ends.
    Close,
}

/// Since when a connection is idle.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    since_ms: u64,
    /// `keepalive_min_timeout`.
    min_timeout_ms: u32,
}

impl Waiting {
    /// From when on it may be closed to make room for others.
    fn reclaimable_ms(self) -> u64 {
        self.since_ms + u64::from(self.min_timeout_ms)
    }

    /// How long it stays when the server stops.
    fn stays_until_ms(self) -> u64 {
        self.since_ms + u64::from(self.min_timeout_ms).max(STOP_GRACE_MS)
    }
}

/// What an idle connection was sent.
enum Received {
    /// The beginning of a request, or more of it.
    Begun(Box<Parts>),
    /// Nothing after all.
    Nothing,
    /// There will be no request.
    End,
}

/// A connection ends, of which everything has been said.
pub(crate) struct Ending;

/// What becomes of an idle connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// It has just been accepted: nothing is known of what it was sent.
    New,
    Readable,
    /// It ends gracefully, unless a request has come already.
    Leaving,
    TimedOut,
    /// It ends whatever has come.
    Closed,
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.stage.close(self.home.index());
    }
}

impl Conn {
    fn new(listener: Arc<Listener>, home: LoopRef, accepted: Accepted) -> Self {
        let Accepted { socket, peer, slot } = accepted;
        let serving = listener.published();
        Self {
            address: find_address(&serving, &socket),
            begun_in: serving.number,
            serving,
            socket: Socket::new(home, socket),
            timer: Timer::new(home),
            home,
            peer,
            slot,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            start_ms: home.now_ms(),
            served: AtomicU32::new(0),
            stage: Stage::new(home.index()),
            nodelay: AtomicU8::new(0),
            deeds: Deeds::default(),
            front: None,
            listener,
        }
    }

    /// Moves to another loop if there is one that has clearly less to do, unless what made the loop lag may
    /// have been its own request. Nothing may have been received of the next one.
    #[cold]
    fn moves(&mut self) -> bool {
        let here = self.home;
        if here.turn_ms() >= u64::from(MOVE_LAG_MS) {
            return false;
        }
        let now_ms = here.now_ms();
        let Some(slot) = self.slot.find_better(|at| here.sibling(at).backlog(now_ms)) else { return false };
        let there = here.sibling(slot.loop_index());
        if self.socket.move_to(there).is_err() {
            return false;
        }
        self.stage.moved(here.index(), there.index());
        (self.home, self.timer, self.slot) = (there, Timer::new(there), slot);
        true
    }

    /// Reads what an idle connection was sent.
    fn receive(&mut self, idle: Idle, cx: &mut Context<'_>) -> Received {
        if let Some(parts) = self.front.as_mut().and_then(|front| front.take_rest()) {
            return Received::Begun(parts);
        }
        if idle == Idle::New && !self.socket.may_have_data() {
            return Received::Nothing;
        }
        let mut parts = self.take_parts();
        let read = self.read_idle(idle, &mut parts.input, cx);
        if matches!(read, Poll::Ready(Ok(1..))) {
            return Received::Begun(parts);
        }
        self.put_back(parts);
        match read {
            Poll::Pending => Received::Nothing,
            Poll::Ready(result) => {
                self.log_closed("waiting for request", result);
                Received::End
            }
        }
    }

    /// Reads behind what there is, having waited.
    #[inline]
    pub(crate) fn read_idle(
        &self,
        idle: Idle,
        buf: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match idle {
            // What has come may not have been told yet.
            Idle::Leaving => match self.socket.try_read_vec(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
                read => Poll::Ready(read),
            },
            _ => self.socket.poll_read_vec(cx, buf),
        }
    }

    /// The generation that it has, which is not over as long as the result is there.
    pub(crate) fn serving(&self) -> Arc<Serving> {
        Arc::clone(&self.serving)
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.serving.snapshot
    }

    /// The id that stands for its loop (`$pid`).
    pub(crate) fn identity(&self) -> u32 {
        self.serving.identity(self.home)
    }

    fn served(&self) -> u32 {
        self.served.load(Ordering::Relaxed)
    }

    /// The number of the request that begins, from 1.
    pub(crate) fn count_request(&self) -> u64 {
        let number = self.served().saturating_add(1);
        self.served.store(number, Ordering::Relaxed);
        u64::from(number)
    }

    /// Whether another generation than its own is published.
    #[inline]
    pub(crate) fn is_outdated(&self) -> bool {
        self.serving.number != self.listener.number()
    }

    /// Takes the generation that is published.
    #[inline]
    fn renew(&mut self) {
        if self.is_outdated() {
            self.take_published();
        }
    }

    #[cold]
    fn take_published(&mut self) {
        self.serving = self.listener.published();
        self.address = find_address(&self.serving, &self.socket);
    }

    /// Polls its requests, unless it is to be closed at once.
    #[inline]
    fn poll_unless_closed<F: Future<Output = After>>(
        &self,
        requests: &mut Pin<Box<F>>,
        cx: &mut Context<'_>,
    ) -> Poll<After> {
        match requests.as_mut().poll(cx) {
            Poll::Pending if self.listener.closes(self.serving.number) => Poll::Ready(After::Close),
            after => after,
        }
    }

    /// The address that was connected to, as configured.
    pub(crate) fn address(&self) -> &Address {
        self.serving.socket().address(self.address)
    }

    /// The address that was connected to.
    pub(crate) fn local_address(&self) -> LocalAddress<'_> {
        let address = self.address();
        if !address.listen.is_wildcard() {
            return LocalAddress::new(None, address);
        }
        LocalAddress::new(clearway_os::socket::local_address(&self.socket), address)
    }

    /// Makes small writes leave at once, without waiting for what went before to be acknowledged, unless
    /// the location does not want that (`tcp_nodelay`). Asked for where a second write follows a first one;
    /// connections of one response are spared the call.
    pub(crate) fn send_at_once(&self, core: &CoreLocation) {
        if *core.sending.tcp_nodelay && self.nodelay.load(Ordering::Relaxed) != NODELAY_ON {
            self.nodelay.store(NODELAY_ON, Ordering::Relaxed);
            clearway_os::socket::set_nodelay(self.socket.as_fd());
        }
    }

    /// Takes back what connections have of their listening socket, where a location does not want it.
    pub(crate) fn begin_response(&self, core: &CoreLocation) {
        if !*core.sending.tcp_nodelay && self.nodelay.load(Ordering::Relaxed) != NODELAY_OFF {
            self.nodelay.store(NODELAY_OFF, Ordering::Relaxed);
            clearway_os::socket::clear_nodelay(self.socket.as_fd());
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
        self.listener.is_stopping()
    }

    pub(crate) fn server_core(&self) -> &CoreServer {
        &self.snapshot().server(self.address().default_server).core
    }

    #[inline]
    pub(crate) fn poll_idle(&mut self, waiting: Waiting, cx: &mut Context<'_>) -> Poll<Idle> {
        let woken = self.socket.poll_readable_or_reclaimed(cx, waiting.reclaimable_ms());
        // What is looked at from here on was changed before who changed it woke who waits, so nothing is
        // missed.
        let idle = match woken {
            Poll::Ready(Woken::Reclaimed) => return Poll::Ready(Idle::Closed),
            Poll::Ready(Woken::Readable) => Some(Idle::Readable),
            Poll::Pending => None,
        };
        if !self.listener.is_as_of(self.serving.number) {
            self.renew();
            if idle.is_none()
                && let Some(ending) = self.look_around(waiting)
            {
                return Poll::Ready(ending);
            }
        }
        match idle {
            Some(idle) => Poll::Ready(idle),
            None => self.timer.poll_expired(cx).map(|()| Idle::TimedOut),
        }
    }

    /// Whether the listener wants a connection to end that waits.
    #[cold]
    fn look_around(&self, waiting: Waiting) -> Option<Idle> {
        if self.listener.closes(self.begun_in) {
            return Some(Idle::Closed);
        }
        if self.is_stopping() {
            if self.home.now_ms() >= waiting.stays_until_ms() {
                return Some(Idle::Leaving);
            }
            self.timer.arm(waiting.stays_until_ms());
        }
        None
    }

    /// Says that the client has closed the connection, or how reading has failed.
    pub(crate) fn log_closed(&self, action: &str, result: io::Result<usize>) {
        let served = self.served();
        match result {
            Err(error) if served > 0 && error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => self.log(Level::Info, action, format_args!("recv() failed {}", Errno(&error))),
            Ok(_) if served > 0 => {
                let message = format_args!("client {} closed keepalive connection", self.peer);
                self.log_plain(Level::Info, message);
            }
            Ok(_) => self.log(Level::Info, action, format_args!("client closed connection")),
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
            sink.write(&Record { level, tid: self.identity(), connection: Some(self.serial), message });
        }
    }

    /// Reads what is only dropped, which the connection can do without when there is no room for others;
    /// `None` when it is to be closed.
    pub(crate) fn poll_lingering(
        &self,
        buf: &mut Vec<u8>,
        since_ms: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<usize>>> {
        match self.socket.poll_readable_or_reclaimed(cx, since_ms) {
            Poll::Ready(Woken::Reclaimed) => return Poll::Ready(None),
            Poll::Ready(Woken::Readable) => {
                if let Poll::Ready(read) = self.socket.poll_read_vec(cx, buf) {
                    return Poll::Ready(Some(read));
                }
            }
            Poll::Pending => {}
        }
        if self.listener.closes(self.serving.number) {
            return Poll::Ready(None);
        }
        self.timer.poll_expired(cx).map(|()| None)
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
