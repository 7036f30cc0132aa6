//! Connections that have become tunnels (101, or the answer to CONNECT): bytes go both ways until one side
//! ends, as in nginx. Each direction has a buffer while something is in it.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_http::{Exchange, Step, Tunnel};
use clearway_runtime::{LoopRef, Timer};
use clearway_upstream::{AttemptOutcome, Connection};

use crate::attempts::Attempts;
use crate::engine::by_code::Timeout;
use crate::engine::protocol::Protocol;
use crate::engine::session::{Session, TunnelEnd};

/// The action of a tunnel for the log.
const PROXYING: &str = "proxying upgraded connection";

/// The buffer of a direction, bytes, where `…_buffer_size` does not ask for a larger one.
const BUFFER_MIN_BYTES: usize = 16 * 1024;

/// How often a poll goes round before others have their turn.
const ROUNDS_MAX: usize = 16;

/// The two connections of one tunnel.
struct Carrying<'t, 'a, 'c> {
    client: &'t mut Tunnel<'a, 'c>,
    server: &'t mut Connection,
    home: LoopRef,
    up: Direction,
    down: Direction,
    buffer_bytes: usize,
    timer: Timer,
    /// The time that the timer is set to.
    armed_ms: u64,
    patience: Patience,
    /// When something moved last.
    moved_ms: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

/// The longest time without a byte in either direction, milliseconds.
#[derive(Clone, Copy)]
struct Patience {
    /// Until the server says something.
    read_ms: u64,
    /// Until it takes something.
    send_ms: u64,
    /// Until the client does.
    client_ms: u64,
}

/// One direction of a tunnel.
#[derive(Default)]
struct Direction {
    held: Vec<u8>,
    at: usize,
    source: TunnelSource,
}

/// Whether more comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TunnelSource {
    #[default]
    Open,
    Ended,
}

impl Direction {
    /// With something that has come already, or nothing, and no buffer then.
    fn holding(held: Vec<u8>) -> Self {
        let held = if held.is_empty() { Vec::new() } else { held };
        Self { held, ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.at == self.held.len()
    }

    fn is_over(&self) -> bool {
        self.is_empty() && self.source == TunnelSource::Ended
    }

    /// Notes that so many bytes were written. An idle direction has no buffer.
    fn wrote(&mut self, count: usize) {
        self.at += count;
        assert!(self.at <= self.held.len(), "a socket takes no more than it is given");
        if self.is_empty() {
            (self.held, self.at) = (Vec::new(), 0);
        }
    }
}

/// Why a tunnel ends.
enum End {
    Over,
    TimedOut(&'static str),
    Broken(Broken),
}

/// A connection that failed: what of the client is only worth a note.
struct Broken {
    level: Level,
    call: &'static str,
    error: io::Error,
}

impl Broken {
    fn client(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { level: Level::Info, call, error }
    }

    fn server(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { level: Level::Error, call, error }
    }
}

/// The rest of a request whose connections have become a tunnel: there may be many of those, for long.
pub(super) struct Begun {
    server: Box<Connection>,
    /// The bytes that the server has sent behind its head.
    first: Vec<u8>,
    home: LoopRef,
    patience: Patience,
    buffer_bytes: usize,
    attempt_ms: u64,
    sent_bytes: u64,
    end: TunnelEnd,
}

impl Begun {
    /// The tunnel of a request that was answered with one.
    pub(super) fn of<P: Protocol>(session: &mut Session<'_, P>) -> Option<Self> {
        let pass = session.asked.pass;
        let (read_ms, send_ms) = (session.timeout_ms(Timeout::Receive), session.timeout_ms(Timeout::Send));
        let buffer_bytes = usize::try_from(*pass.buffer_bytes).unwrap_or(usize::MAX).max(BUFFER_MIN_BYTES);
        Some(Self {
            server: session.outbound.take()?,
            first: std::mem::take(&mut session.input),
            home: session.home,
            patience: Patience { read_ms, send_ms, client_ms: u64::MAX },
            buffer_bytes,
            attempt_ms: session.attempt_ms,
            sent_bytes: session.sending.sent_bytes,
            end: session.tunnel_end(),
        })
    }
}

/// Carries bytes behind a head that was pushed, until one side ends.
pub(super) async fn carry(exchange: Exchange<'_, '_>, begun: Begun) -> Step<'static> {
    let Begun { mut server, first, home, mut patience, buffer_bytes, attempt_ms, .. } = begun;
    let (sent_before, tunnel_end) = (begun.sent_bytes, begun.end);
    patience.client_ms = *exchange.request.location().core.sending.send_timeout_ms;
    exchange.request.set_action(PROXYING);
    let Some(mut client) = exchange.into_tunnel() else { return Step::status(502) };
    // The client that asked for the switch may wait for it before it says more.
    if client.begin().await.is_err() {
        tunnel_end.tell(home, AttemptOutcome::Answered);
        return client.close();
    }
    let mut carrying = Carrying {
        client: &mut client,
        server: &mut server,
        home,
        up: Direction::default(),
        down: Direction::holding(first),
        buffer_bytes,
        timer: Timer::new(home),
        armed_ms: 0,
        patience,
        moved_ms: home.now_ms(),
        received_bytes: 0,
        sent_bytes: 0,
    };
    let first_bytes = carrying.down.held.len() as u64;
    let end = poll_fn(|cx| carrying.poll(cx)).await;
    let (received_bytes, sent_bytes) = (carrying.received_bytes, carrying.sent_bytes);
    let request = client.request();
    match end {
        End::Over => {}
        End::TimedOut(who) => {
            request.log(Level::Info, format_args!("{who} timed out (110: Connection timed out)"))
        }
        End::Broken(Broken { level, call, error }) => {
            request.log(level, format_args!("{call} failed {}", Errno(&error)));
        }
    }
    let elapsed_ms = home.now_ms().saturating_sub(attempt_ms);
    let attempt = Attempts::of_mut(request).last();
    attempt.received_bytes += received_bytes;
    attempt.sent_bytes = sent_before + sent_bytes;
    (attempt.length, attempt.response_ms) = (first_bytes + received_bytes, Some(elapsed_ms));
    tunnel_end.tell(home, AttemptOutcome::Answered);
    client.close()
}

impl Carrying<'_, '_, '_> {
    /// The deadline, and the name of the side that it is set for.
    fn due(&self) -> (u64, &'static str) {
        let Patience { read_ms, send_ms, client_ms } = self.patience;
        let of_server = if self.up.is_empty() { read_ms } else { read_ms.min(send_ms) };
        let (wait_ms, who) = match client_ms < of_server && !self.down.is_empty() {
            true => (client_ms, "client"),
            false => (of_server, "upstream"),
        };
        (self.moved_ms.saturating_add(wait_ms), who)
    }

    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let (due_ms, who) = self.due();
        if self.armed_ms != due_ms {
            self.timer.arm(due_ms);
            self.armed_ms = due_ms;
        }
        self.timer.poll_expired(cx).map(|()| End::TimedOut(who))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        debug_assert!(!self.up.is_over() && !self.down.is_over(), "a tunnel ends once");
        for _ in 0..ROUNDS_MAX {
            let (up, down) = (self.poll_up(cx), self.poll_down(cx));
            let has_moved = match (up, down) {
                (Poll::Ready(Err(broken)), _) | (_, Poll::Ready(Err(broken))) => {
                    return Poll::Ready(End::Broken(broken));
                }
                (Poll::Pending, Poll::Pending) => false,
                _ => true,
            };
            if self.up.is_over() || self.down.is_over() {
                return Poll::Ready(End::Over);
            }
            if !has_moved {
                return self.poll_clock(cx);
            }
            self.moved_ms = self.home.now_ms();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Moves something from the client to the server.
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if self.up.is_empty() {
            if self.up.source == TunnelSource::Ended {
                return Poll::Pending;
            }
            std::task::ready!(self.client.poll_readable(cx));
            debug_assert_eq!(self.up.at, 0, "an empty direction has no buffer");
            self.up.held.reserve_exact(self.buffer_bytes);
            let read = std::task::ready!(self.client.poll_read(cx, &mut self.up.held));
            if read.map_err(Broken::client("recv()"))? == 0 {
                self.up.source = TunnelSource::Ended;
                return Poll::Ready(Ok(()));
            }
        }
        debug_assert!(self.up.at < self.up.held.len(), "there is something for the server");
        let written = self.server.transport.poll_write(cx, &self.up.held[self.up.at..]);
        let count = std::task::ready!(written).map_err(Broken::server("send()"))?;
        self.sent_bytes += count as u64;
        self.up.wrote(count);
        Poll::Ready(Ok(()))
    }

    /// Moves something from the server to the client.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if self.down.is_empty() {
            if self.down.source == TunnelSource::Ended {
                return Poll::Pending;
            }
            std::task::ready!(self.server.transport.poll_readable(cx));
            debug_assert_eq!(self.down.at, 0, "an empty direction has no buffer");
            self.down.held.reserve_exact(self.buffer_bytes);
            let read = self.server.transport.poll_read_vec(cx, &mut self.down.held);
            let count = std::task::ready!(read).map_err(Broken::server("recv()"))?;
            if count == 0 {
                self.down.source = TunnelSource::Ended;
                return Poll::Ready(Ok(()));
            }
            debug_assert_eq!(self.down.held.len(), count, "what was read is what is there");
            self.received_bytes += count as u64;
        }
        debug_assert!(self.down.at < self.down.held.len(), "there is something for the client");
        let written = self.client.poll_write(cx, &self.down.held[self.down.at..]);
        let count = std::task::ready!(written).map_err(Broken::client("send()"))?;
        self.down.wrote(count);
        Poll::Ready(Ok(()))
    }
}
