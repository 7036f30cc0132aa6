//! One connection: one task. Idle, it is a socket, a timer and two words; everything a request needs
//! is in one boxed future that lives from the request's first byte until the connection is idle again.
//!
//! The task reads once when its socket becomes readable and writes once per small response; it waits
//! only for the socket, for a timer, or inside a handler that said so.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_base::log::Level;
use clearway_http::{CoreLocation, Lingering, Listener, Parts, TIMED_OUT, Transport};
use clearway_log::LogPosition;
use clearway_net::accept::{Accepted, ConnectionSlot};
use clearway_runtime::{LoopRef, Socket, Tag, Woken};
use clearway_site::Protocols;

use crate::conn::Conn;
use crate::http1::{After, serve_requests};
use crate::http2;
use crate::lingering::lingering_close;
use crate::proxy_header::read_front;
use crate::tls;

/// When the server stops, a connection that was accepted or answered less than so long ago stays for the
/// rest of it, milliseconds: a request may be on its way, and would be lost with the connection. Its answer
/// closes the connection then.
pub(crate) const STOP_GRACE_MS: u64 = 1_000;

/// From this lag of its loop on, a connection that becomes idle may be moved to another one, milliseconds.
/// Turns that are as long mean that the loop is not handed over in time.
const MOVE_LAG_MS: u32 = 10;

/// How long a connection that ends waits at most for its lines to be written, milliseconds. So long it takes
/// the log to find out that a destination hangs; nobody waits any more then.
const LINES_WAIT_MS: u64 = 100;

/// A connection while it is idle.
pub(crate) struct Connection {
    pub(crate) conn: Conn,
    /// Its place among the `worker_connections`.
    slot: ConnectionSlot,
    /// Since when it is idle.
    pub(crate) waiting: Waiting,
}

/// Serves a connection until it ends. To be spawned on `home`.
pub fn serve(
    listener: Arc<Listener>,
    home: LoopRef,
    accepted: Accepted,
) -> impl Future<Output = ()> + Send + 'static {
    let Accepted { socket, peer, slot } = accepted;
    let conn = Conn::new(listener, home, Transport::plain(Socket::new(home, socket)), peer);
    go_on(Connection::new(conn, slot))
}

/// Serves one that no socket carries. To be spawned on the loop that the transport is at home on.
#[cfg(feature = "testing")]
pub fn serve_transport(
    listener: Arc<Listener>,
    transport: Transport,
    peer: clearway_net::PeerAddr,
    slot: ConnectionSlot,
) -> impl Future<Output = ()> + Send + 'static {
    let home = transport.home();
    go_on(Connection::new(Conn::new(listener, home, transport, peer), slot))
}

/// Has a connection that waits for a request, and was moved to another loop, go on there.
fn spawn_moved(connection: Connection) {
    connection.conn.client.home.spawn(Tag::NONE, go_on(connection));
}

/// Serves a connection from when it is idle until it ends, or until it is moved to another loop.
fn go_on(mut connection: Connection) -> impl Future<Output = ()> + Send + 'static {
    let mut idle = Idle::New;
    async move {
        if !connection.conn.setup.address().protocols.is_empty() {
            let Ok(carried) = Box::pin(begin(&mut connection)).await else { return };
            if carried == Carried::Http2 {
                return Box::pin(http2::serve(&mut connection)).await;
            }
        }
        let ending = 'serving: loop {
            let mut begun = match poll_fn(|cx| Poll::Ready(connection.receive(idle, cx))).await {
                Received::Begun(parts) => Some(parts),
                Received::Nothing if idle == Idle::Leaving => return,
                Received::Nothing => None,
                Received::End => return,
            };
            // A request that is there when the connection is needs no timer.
            if begun.is_none() && connection.conn.link.served() == 0 {
                connection.conn.link.timer.arm(
                    connection.conn.client.start_ms
                        + *connection.conn.setup.server_core().client_header_timeout_ms,
                );
            }
            while let Some(parts) = begun {
                let (after, rest) = {
                    let conn = &connection.conn;
                    // Made after its memory, so that nothing but its arguments is written there.
                    let requests = Box::write(Box::new_uninit(), serve_requests(conn, Some(parts), 0));
                    Box::into_pin(requests).await
                };
                begun = match after {
                    After::Idle { timeout_ms, min_timeout_ms } => {
                        let now_ms = connection.conn.client.home.now_ms();
                        let begun_in = generation(&connection.conn);
                        connection.waiting = Waiting { since_ms: now_ms, min_timeout_ms, begun_in };
                        if connection.conn.client.home.lag_ms() >= MOVE_LAG_MS && connection.moves() {
                            connection.conn.link.timer.arm(connection.conn.client.home.now_ms() + timeout_ms);
                            return spawn_moved(connection);
                        }
                        connection.conn.link.timer.arm(now_ms + timeout_ms);
                        None
                    }
                    After::Outdated => {
                        connection.conn.renew();
                        rest
                    }
                    After::Linger(limits) => break 'serving end(&connection.conn, Some(limits)),
                    After::Close => break 'serving end(&connection.conn, None),
                };
            }
            idle = poll_fn(|cx| connection.poll_idle(cx)).await;
            match idle {
                Idle::New | Idle::Readable | Idle::Leaving => {}
                Idle::TimedOut if connection.conn.link.served() > 0 => return,
                Idle::TimedOut => {
                    return connection.conn.log(
                        Level::Info,
                        "waiting for request",
                        format_args!("{TIMED_OUT}"),
                    );
                }
                Idle::Closed => return,
            }
        };
        if let Some(rest) = ending {
            rest.await;
        }
    }
}

/// The protocol of a connection.
#[derive(PartialEq, Eq)]
enum Carried {
    Http1,
    Http2,
}

/// Reads what comes before the first request of a connection. What it needs for that is given back before
/// there is one.
async fn begin(connection: &mut Connection) -> Result<Carried, Ending> {
    if connection.conn.link.transport.tls().is_some() {
        // The connection has come from another loop.
        return Ok(Carried::Http1);
    }
    let protocols = connection.conn.setup.address().protocols;
    if protocols.has(Protocols::PROXY_PROTOCOL) && connection.conn.client.front.is_none() {
        read_front(connection).await?;
    }
    let is_http2 = if protocols.has(Protocols::SSL) {
        tls::accept(connection).await?;
        http2::is_agreed(&connection.conn)
    } else if protocols.has(Protocols::PREFACE) && connection.conn.link.served() == 0 {
        http2::begins_with_preface(connection).await?
    } else {
        false
    };
    Ok(if is_http2 { Carried::Http2 } else { Carried::Http1 })
}

/// Since when a connection is idle.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    since_ms: u64,
    /// `keepalive_min_timeout`.
    min_timeout_ms: u32,
    /// The generation of the latest request, or the one in which it was accepted: nobody reloads so often
    /// that it would not fit.
    begun_in: u32,
}

impl Waiting {
    /// Since now, where this is said of the connection.
    pub(crate) fn since(conn: &Conn, core: &CoreLocation) -> Self {
        let min_timeout_ms = u32::try_from(*core.keepalive_min_timeout_ms).unwrap_or(u32::MAX);
        Self { since_ms: conn.client.home.now_ms(), min_timeout_ms, begun_in: generation(conn) }
    }

    /// The time from which on the connection may be closed to make room for others.
    fn reclaimable_ms(self) -> u64 {
        self.since_ms + u64::from(self.min_timeout_ms)
    }

    /// How long it stays when the server stops.
    fn stays_until_ms(self) -> u64 {
        self.since_ms + u64::from(self.min_timeout_ms).max(STOP_GRACE_MS)
    }
}

fn generation(conn: &Conn) -> u32 {
    u32::try_from(conn.setup.generation()).unwrap_or(u32::MAX)
}

/// The bytes that an idle connection has received.
enum Received {
    /// The beginning of a request, or more of it.
    Begun(Box<Parts>),
    /// No bytes had come after all.
    Nothing,
    /// There will be no request.
    End,
}

/// A connection ends, of which everything has been said.
pub(crate) struct Ending;

/// The next state of an idle connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// The connection was just accepted, and nothing was received yet.
    New,
    Readable,
    /// The connection ends in order, unless a request has come already.
    Leaving,
    TimedOut,
    /// The connection is closed at once.
    Closed,
}

impl Connection {
    fn new(conn: Conn, slot: ConnectionSlot) -> Self {
        let begun_in = generation(&conn);
        let waiting = Waiting { since_ms: conn.client.start_ms, min_timeout_ms: 0, begun_in };
        Self { conn, slot, waiting }
    }

    /// Moves to another loop if there is one that has clearly less to do, unless what made the loop lag may
    /// have been its own request. Nothing may have been received of the next one.
    #[cold]
    fn moves(&mut self) -> bool {
        let here = self.conn.client.home;
        if here.turn_ms() >= u64::from(MOVE_LAG_MS) {
            return false;
        }
        let now_ms = here.now_ms();
        let Some(slot) = self.slot.find_better(|at| here.sibling(at).backlog(now_ms)) else { return false };
        let there = here.sibling(slot.loop_index());
        if self.conn.move_to(there).is_err() {
            return false;
        }
        self.slot = slot;
        debug_assert!(self.slot.loop_index() == self.conn.client.home.index(), "counted where it is served");
        true
    }

    /// Reads what an idle connection was sent.
    fn receive(&mut self, idle: Idle, cx: &mut Context<'_>) -> Received {
        if let Some(parts) = self.conn.client.front.as_mut().and_then(|front| front.take_rest()) {
            return Received::Begun(parts);
        }
        if idle == Idle::New && !self.conn.link.transport.may_have_data() {
            return Received::Nothing;
        }
        let mut parts = self.conn.take_parts();
        let read = read_idle(&self.conn, idle, &mut parts.input, cx);
        if matches!(read, Poll::Ready(Ok(1..))) {
            return Received::Begun(parts);
        }
        self.conn.client.put_back(parts);
        match read {
            Poll::Pending => Received::Nothing,
            Poll::Ready(result) => {
                self.conn.log_closed("waiting for request", result);
                Received::End
            }
        }
    }

    /// The next state before the first request, by the event that has ended the wait; `action` is the action
    /// for the log if the client took too long. No future of its own: idle connections are small.
    ///
    /// # Errors
    /// If it ends.
    pub(crate) fn go_on_idle(&self, idle: Idle, action: &str) -> Result<Idle, Ending> {
        match idle {
            Idle::New | Idle::Readable | Idle::Leaving => Ok(idle),
            Idle::Closed => Err(Ending),
            Idle::TimedOut => {
                self.conn.log(Level::Info, action, format_args!("{TIMED_OUT}"));
                Err(Ending)
            }
        }
    }

    /// Waits for what becomes of it while it is idle.
    #[inline]
    pub(crate) fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Idle> {
        let woken = self.conn.link.transport.poll_readable_or_reclaimed(cx, self.waiting.reclaimable_ms());
        // A listener changes first and wakes connections then; the waker was registered above, so that no
        // change is missed.
        let idle = match woken {
            Poll::Ready(Woken::Reclaimed) => return Poll::Ready(Idle::Closed),
            Poll::Ready(Woken::Readable) => Some(Idle::Readable),
            Poll::Pending => None,
        };
        if !self.conn.client.listener().is_as_of(self.conn.setup.generation()) {
            self.conn.renew();
            if idle.is_none()
                && let Some(ending) = self.look_around()
            {
                return Poll::Ready(ending);
            }
        }
        match idle {
            Some(idle) => Poll::Ready(idle),
            None => self.conn.link.timer.poll_expired(cx).map(|()| Idle::TimedOut),
        }
    }

    /// Whether the listener wants a connection to end that waits.
    #[cold]
    fn look_around(&self) -> Option<Idle> {
        if self.conn.client.listener().closes(u64::from(self.waiting.begun_in)) {
            return Some(Idle::Closed);
        }
        if self.conn.client.listener().is_stopping() {
            if self.conn.client.home.now_ms() >= self.waiting.stays_until_ms() {
                return Some(Idle::Leaving);
            }
            self.conn.link.timer.arm(self.waiting.stays_until_ms());
        }
        None
    }
}

/// Reads behind what there is, having waited.
#[inline]
pub(crate) fn read_idle(
    conn: &Conn,
    idle: Idle,
    buf: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    match idle {
        // What has come may not have been told yet.
        Idle::Leaving => match conn.link.transport.try_read_vec(buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
        },
        _ => conn.link.transport.poll_read_vec(cx, buf),
    }
}

/// The remaining work for a connection that ends: none as a rule.
fn end(conn: &Conn, limits: Option<Lingering>) -> Option<Pin<Box<impl Future<Output = ()> + Send>>> {
    let unwritten = conn.setup.log_progress().behind();
    if unwritten.is_none() && limits.is_none() {
        return None;
    }
    Some(Box::pin(async move {
        if let Some(place) = unwritten {
            see_lines_written(conn, place).await;
        }
        if let Some(limits) = limits {
            lingering_close(conn, limits).await;
        }
    }))
}

/// Waits for a moment until what was logged is written, before the client learns that the connection ends:
/// clients that read a log do so then, and find their lines.
async fn see_lines_written(conn: &Conn, place: LogPosition) {
    conn.link.timer.arm(conn.client.home.now_ms() + LINES_WAIT_MS);
    let wait = |cx: &mut Context<'_>| match conn.setup.log_progress().poll(place, cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => conn.link.timer.poll_expired(cx),
    };
    poll_fn(wait).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<F>(_: fn(Arc<Listener>, LoopRef, Accepted) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let bytes = future_bytes(serve) + clearway_runtime::TASK_OVERHEAD - clearway_runtime::TRICKLE_BYTES;
        assert!(bytes <= 256, "{bytes} bytes with the task's own");
    }

    fn future_bytes_of<'c, F>(_: fn(&'c mut Connection) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_with_http2_is_small() {
        let bytes = future_bytes_of(http2::serve);
        assert!(bytes <= 912, "{bytes} bytes beside those of any connection");
    }
}
