//! The requests of an HTTP/1 connection, from the first byte of a request until the connection is idle again
//! or ends: reads heads, runs each request, and decides whether the connection stays. One boxed future in the
//! connection's task; pipelined requests share it.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;

use clearway_http::{
    Active, Fault, Lingering, LingeringClose, Link, NotReceived, Parts, Strands, TIMED_OUT, Way,
};

use crate::apart;
use crate::conn::Conn;

/// How long handlers of the log phase may wait once the connection is to be closed, milliseconds.
pub(crate) const LOG_MAX_MS: u64 = 1000;

/// Serves the requests whose first bytes are in `parts`, which must be `Some`. Returns parts with the bytes
/// of a next request if another generation of the configuration is to answer it, or if the caller has to
/// begin anew. `nested` counts earlier requests of the connection that still have background work.
#[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
pub(crate) fn serve_requests(
    conn: &Conn,
    mut parts: Option<Box<Parts>>,
    nested: u32,
) -> impl Future<Output = (After, Option<Box<Parts>>)> + Send {
    async move {
        let mut start = 0;
        let (after, next) = loop {
            // Borrowed in place: moving it would cost the future a flag for whether it was moved.
            let parts = parts.as_mut().expect("they are given and not taken yet");
            // Declared before the request, which refers to it: background work of this request.
            let strands = Strands::default();
            let way = Way { client: &conn.client, setup: &conn.setup, link: Link::Http1(&conn.link) };
            // Built and dropped in place, because it is large.
            let mut active = Active::new(way, &strands, parts, start, conn.link.count_request());
            let after = {
                let mut serving = pin!(serve(&mut active, conn));
                poll_fn(|cx| match strands.poll_beside(serving.as_mut(), cx) {
                    Poll::Pending if conn.closes() => Poll::Ready(None),
                    after => after.map(Some),
                })
                .await
            };
            let after = after.unwrap_or_else(|| {
                active.cut();
                After::Close
            });
            // Also for a request of which only empty lines arrived.
            let code = Some(active.status());
            match after {
                After::Linger(_) => conn.link.stage.linger(conn.client.home.index(), code),
                _ => conn.link.stage.end(conn.client.home.index(), code),
            }
            if active.logs_slowly() {
                // Boxed, so that the future of other requests needs no room for it.
                Box::pin(log_slowly(&mut active, conn)).await;
            }
            active.log();
            let rest_start = active.end();
            if let After::Idle { .. } = after {
                conn.link.send_at_once(&active.request().location().core);
            } else if active.is_to_be_reset() {
                conn.link.transport.reset_on_close();
            }
            if !strands.is_empty() {
                let rest = rest_start.map(|at| copied(conn, active.rest(at)));
                break apart::go_on(conn, &strands, (after, rest), nested).await;
            }
            let (After::Idle { .. }, Some(at)) = (after, rest_start) else { break (after, None) };
            start = at;
            if conn.setup.is_outdated(conn.client.listener()) {
                break (After::Outdated, None);
            }
            active.clear_head();
        };
        let mut parts = parts.take().expect("they are given and not taken yet");
        if let (After::Outdated, None) = (after, &next) {
            parts.keep_rest(start);
            return (after, Some(parts));
        }
        conn.client.put_back(parts);
        (after, next)
    }
}

/// Runs the handlers of the log phase that may have to wait. If the connection is to be closed, they get
/// [`LOG_MAX_MS`].
async fn log_slowly(active: &mut Active<'_>, conn: &Conn) {
    let mut logging = pin!(active.log_slowly());
    let mut is_armed = false;
    poll_fn(|cx| match logging.as_mut().poll(cx) {
        Poll::Pending if conn.closes() => {
            if !std::mem::replace(&mut is_armed, true) {
                conn.link.timer.arm(conn.client.home.now_ms() + LOG_MAX_MS);
            }
            conn.link.timer.poll_expired(cx)
        }
        logged => logged,
    })
    .await;
}

/// Copies the received bytes of the next request to buffers of their own.
fn copied(conn: &Conn, received: &[u8]) -> Box<Parts> {
    let mut parts = conn.take_parts();
    parts.input.extend_from_slice(received);
    parts
}

/// The next state of a connection after a request.
#[derive(Clone, Copy)]
pub(crate) enum After {
    /// Goes on with the next request, or waits for it.
    Idle {
        /// The longest wait, milliseconds.
        timeout_ms: u64,
        /// The wait that is granted even while the server stops or needs connections, milliseconds.
        min_timeout_ms: u32,
    },
    /// Goes on with the received bytes of the next request, under the newest configuration.
    Outdated,
    /// Ends, but is read from for a while, so that a client which is still sending can read the response
    /// before it sees a reset.
    Linger(Lingering),
    /// Ends.
    Close,
}

/// The reason why there is no complete head.
enum Unheaded {
    Refused(Fault),
    TimedOut,
    Closed,
    Broken(io::Error),
}

/// Reads and answers one request, until its response is sent and its body is read.
#[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
fn serve<'a, 'c>(
    active: &'a mut Active<'c>,
    conn: &'c Conn,
) -> impl Future<Output = After> + Send + use<'a, 'c> {
    async move {
        let headed = match active.parse_head() {
            Some(Ok(())) => {
                conn.link.stage.begin_headed(conn.client.home.index());
                Ok(())
            }
            parsed => match read_head(active, conn, parsed).await {
                Ok(()) => Ok(()),
                Err(unheaded) => Err(refusal(active, unheaded)),
            },
        };
        match headed {
            Ok(()) => {
                active.begin_body();
                match active.run().await {
                    Ok(()) => conclude(active, conn).await,
                    Err(_) => {
                        if active.acts_behind_response() {
                            active.act_behind_response().await;
                        }
                        After::Close
                    }
                }
            }
            Err(Some(fault)) => {
                // Boxed, so that the future of other requests needs no room for it.
                Box::pin(active.refuse(fault)).await;
                let is_sending = fault.lingers() || active.is_followed();
                linger(active, || is_sending)
            }
            Err(None) => After::Close,
        }
    }
}

/// The error to send to a client whose request has no complete head; `None` if the connection is just closed.
fn refusal(active: &mut Active<'_>, unheaded: Unheaded) -> Option<Fault> {
    match unheaded {
        Unheaded::Refused(fault) => return Some(fault),
        Unheaded::TimedOut => active.give_up(408, format_args!("{TIMED_OUT}")),
        Unheaded::Closed => active.give_up(400, format_args!("client prematurely closed connection")),
        Unheaded::Broken(error) => active.give_up(400, format_args!("{}", NotReceived(&error))),
    }
    None
}

/// Reads until the head is complete. `parsed` is the result of parsing its beginning.
async fn read_head(
    active: &mut Active<'_>,
    conn: &Conn,
    mut parsed: Option<Result<(), Fault>>,
) -> Result<(), Unheaded> {
    conn.link.stage.begin(conn.client.home.index());
    let mut armed = false;
    loop {
        match parsed {
            Some(Ok(())) => {
                conn.link.stage.head_is_complete(conn.client.home.index());
                return Ok(());
            }
            Some(Err(fault)) => return Err(Unheaded::Refused(fault)),
            None => {}
        }
        let started_ms = active.started_ms();
        let input = active.more_of_head();
        if !std::mem::replace(&mut armed, true) {
            let timeout_ms = *conn.setup.server_core().client_header_timeout_ms;
            conn.link.timer.arm(started_ms + timeout_ms);
        }
        match poll_fn(|cx| conn.poll_read(input, cx)).await {
            Some(Ok(0)) => return Err(Unheaded::Closed),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(Unheaded::Broken(error)),
            None => return Err(Unheaded::TimedOut),
        }
        parsed = active.parse_head();
    }
}

/// Sends the rest of the response and discards the rest of the request's body.
async fn conclude(active: &mut Active<'_>, conn: &Conn) -> After {
    let sent = active.send_rest().await;
    if active.acts_behind_response() {
        active.act_behind_response().await;
    }
    if sent.is_err() {
        return After::Close;
    }
    if active.is_persistent() {
        return if active.is_body_done() { go_on(active) } else { discard_rest(active, conn).await };
    }
    // A client whose body was read may have sent more. As in nginx, it is assumed to be sending still.
    let may_send = || {
        !active.is_body_done()
            || active.is_body_wanted()
            || active.has_rest()
            || conn.link.transport.has_unread()
    };
    let after = linger(active, may_send);
    if matches!(after, After::Close) && !active.is_body_done() {
        // Reading the rest of a body is not lingering: it is done even with `lingering_close off`.
        discard_rest(active, conn).await;
    }
    after
}

/// The next state of a connection that stays open.
fn go_on(active: &Active<'_>) -> After {
    let core = &active.request().location().core;
    After::Idle {
        timeout_ms: core.keepalive_timeout.timeout_ms,
        min_timeout_ms: u32::try_from(*core.keepalive_min_timeout_ms).unwrap_or(u32::MAX),
    }
}

/// Whether the connection lingers (`lingering_close`). `is_sending` tells whether the client may still be
/// sending.
fn linger(active: &Active<'_>, is_sending: impl FnOnce() -> bool) -> After {
    let lingering = active.lingering();
    match lingering.close {
        LingeringClose::Always => After::Linger(lingering),
        LingeringClose::On if is_sending() => After::Linger(lingering),
        LingeringClose::On | LingeringClose::Off => After::Close,
    }
}

/// Discards the rest of the request's body. Returns whether another request may follow.
async fn discard_rest(active: &mut Active<'_>, conn: &Conn) -> After {
    let (home, limits) = (conn.client.home, active.lingering());
    let give_up_ms = home.now_ms() + limits.time_ms;
    loop {
        match active.discard_received() {
            Ok(false) => {}
            Ok(true) => return go_on(active),
            Err(_) => return After::Close,
        }
        conn.link.timer.arm(give_up_ms.min(home.now_ms() + limits.timeout_ms));
        let read = poll_fn(|cx| match active.poll_rest(cx) {
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending => conn.link.timer.poll_expired(cx).map(|()| false),
        });
        if !read.await {
            return After::Close;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<F>(_: fn(&'static Conn, Option<Box<Parts>>, u32) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_request_part_is_a_small_allocation() {
        // The allocator takes several times as long for more than 1,024 bytes.
        let bytes = future_bytes(serve_requests);
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
