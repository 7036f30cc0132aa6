//! The requests of a connection from the first byte of one until the connection is idle again or
//! ends: reading heads, running each request, and what its end means for the connection. One boxed future;
//! the requests of a pipeline share it.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;

use clearway_base::Errno;
use clearway_http::{Active, Fault, Lingering, LingeringClose, Link, Onward, Parts, Strands, TIMED_OUT, Way};

use crate::conn::Conn;

/// Serves what has arrived: `parts`, which are there, have the first bytes.
#[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
pub(crate) fn serve_requests(
    conn: &Conn,
    mut parts: Option<Box<Parts>>,
) -> impl Future<Output = After> + Send {
    async move {
        let mut start = 0;
        let end = loop {
            // Stays where it is, so that nothing has to remember whether it was moved.
            let parts = parts.as_mut().expect("they are given and not taken yet");
            // What the request refers to, as what it has there does.
            let strands = Strands::default();
            let way = Way { client: &conn.client, setup: &conn.setup, link: Link::Http1(&conn.link) };
            // Lives and ends in place: it is large.
            let mut active = Active::new(way, &strands, parts, start, conn.link.count_request());
            let (outcome, linger) = {
                let mut serving = pin!(serve(&mut active, conn));
                poll_fn(|cx| strands.poll_beside(serving.as_mut(), cx)).await
            };
            // Also one of which nothing came but empty lines.
            let code = Some(active.status());
            match linger {
                Linger::Yes => conn.link.stage.linger(conn.client.home.index(), code),
                Linger::No => conn.link.stage.end(conn.client.home.index(), code),
            }
            active.log();
            let rest_start = active.end();
            if outcome == Outcome::Close {
                if active.is_to_be_reset() {
                    conn.link.transport.reset_on_close();
                }
                break End::Known(match linger {
                    Linger::Yes => After::Linger(active.lingering()),
                    Linger::No => After::Close,
                });
            }
            let core = &active.request().location().core;
            conn.link.send_at_once(core);
            let timeout_ms = core.keepalive_timeout.timeout_ms;
            let min_timeout_ms = u32::try_from(*core.keepalive_min_timeout_ms).unwrap_or(u32::MAX);
            match rest_start {
                None => break End::Known(After::Idle { timeout_ms, min_timeout_ms }),
                Some(at) if conn.setup.is_outdated(conn.client.listener()) => break End::Outdated(at),
                Some(at) => start = at,
            }
            active.clear_head();
        };
        let mut parts = parts.take().expect("they are given and not taken yet");
        match end {
            End::Known(after) => {
                conn.client.put_back(parts);
                after
            }
            End::Outdated(at) => {
                parts.keep_rest(at);
                After::Outdated(parts)
            }
        }
    }
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
    Linger(Lingering),
    /// Ends.
    Close,
}

/// What follows a connection's requests.
enum End {
    Known(After),
    /// What was received of the next one, from this byte on, is for another generation.
    Outdated(usize),
}

/// Whether a connection goes on after a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    KeepAlive,
    Close,
}

/// Whether a connection that ends is read from for a while, so that a client which is still sending
/// gets to read the response before it learns that nobody listens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linger {
    Yes,
    No,
}

/// Whether the client seems to be sending still.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    Something,
    Nothing,
}

/// Why there is no complete head.
enum Unheaded {
    Refused(Fault),
    TimedOut,
    Closed,
    Broken(io::Error),
}

/// Reads and answers one request, up to its last byte on the way out and in.
#[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
fn serve<'a, 'c>(
    active: &'a mut Active<'c>,
    conn: &'c Conn,
) -> impl Future<Output = (Outcome, Linger)> + Send + use<'a, 'c> {
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
                    Onward::Close => {
                        active.act_behind_response().await;
                        (Outcome::Close, Linger::No)
                    }
                    _ => conclude(active, conn).await,
                }
            }
            Err(Some(fault)) => {
                active.refuse(fault).await;
                let unread =
                    if fault.lingers() || active.is_followed() { Unread::Something } else { Unread::Nothing };
                (Outcome::Close, linger(active, unread))
            }
            Err(None) => (Outcome::Close, Linger::No),
        }
    }
}

/// What is to be told to a client whose request has no complete head; nothing as a rule.
fn refusal(active: &mut Active<'_>, unheaded: Unheaded) -> Option<Fault> {
    match unheaded {
        Unheaded::Refused(fault) => return Some(fault),
        Unheaded::TimedOut => active.give_up(408, format_args!("{TIMED_OUT}")),
        Unheaded::Closed => active.give_up(400, format_args!("client prematurely closed connection")),
        Unheaded::Broken(error) => active.give_up(400, format_args!("recv() failed {}", Errno(&error))),
    }
    None
}

/// Reads until the head is complete, of which the beginning came to `parsed`.
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

/// Sends the rest of the response, and drops the rest of the body.
async fn conclude(active: &mut Active<'_>, conn: &Conn) -> (Outcome, Linger) {
    let sent = active.send_rest().await;
    active.act_behind_response().await;
    if sent.is_err() {
        return (Outcome::Close, Linger::No);
    }
    if !active.is_persistent() {
        // A client that has sent a body that was wanted may have sent more: nginx does not look.
        let has_more = !active.is_body_done()
            || active.is_body_wanted()
            || active.has_rest()
            || conn.link.transport.has_unread();
        let linger = linger(active, if has_more { Unread::Something } else { Unread::Nothing });
        if linger == Linger::No && !active.is_body_done() {
            // Dropping a body is not lingering: it goes on even where that is off.
            discard_rest(active, conn).await;
        }
        return (Outcome::Close, linger);
    }
    if active.is_body_done() {
        return (Outcome::KeepAlive, Linger::No);
    }
    (discard_rest(active, conn).await, Linger::No)
}

/// Whether the connection lingers (`lingering_close`).
fn linger(active: &Active<'_>, unread: Unread) -> Linger {
    match (active.lingering().close, unread) {
        (LingeringClose::Off, _) | (LingeringClose::On, Unread::Nothing) => Linger::No,
        (LingeringClose::On, Unread::Something) | (LingeringClose::Always, _) => Linger::Yes,
    }
}

/// Reads the rest of the body, which nobody wants, and says whether another request may follow it.
async fn discard_rest(active: &mut Active<'_>, conn: &Conn) -> Outcome {
    let (home, limits) = (conn.client.home, active.lingering());
    let give_up_ms = home.now_ms() + limits.time_ms;
    loop {
        match active.discard_received() {
            Ok(false) => {}
            Ok(true) => return Outcome::KeepAlive,
            Err(_) => return Outcome::Close,
        }
        conn.link.timer.arm(give_up_ms.min(home.now_ms() + limits.timeout_ms));
        let read = poll_fn(|cx| match active.poll_rest(cx) {
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending => conn.link.timer.poll_expired(cx).map(|()| false),
        });
        if !read.await {
            return Outcome::Close;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<F>(_: fn(&'static Conn, Option<Box<Parts>>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_request_part_is_a_small_allocation() {
        // Beyond 1,024 bytes the allocator takes several times as long.
        let bytes = future_bytes(serve_requests);
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
