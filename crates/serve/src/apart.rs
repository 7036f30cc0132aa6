//! Work behind a response that is not waited for (an object of a cache that is renewed): the connection reads
//! and answers its next requests meanwhile. What goes on refers to its own request, so that one stays until
//! it has ended, and the next ones are served beside it, one inside the other. The same task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use clearway_http::{Parts, Strands};
use clearway_runtime::Woken;

use crate::conn::Conn;
use crate::http1::{After, serve_requests};

/// The most requests of a connection for which something may go on at a time; the next request then waits.
const NESTED_MAX: u32 = 8;

/// The next state of a connection, and received bytes of a request that is to be answered then.
type Next = (After, Option<Box<Parts>>);

/// Goes on behind a request of which `strands` are left, until they have ended. `nested` says in how many
/// others this is done already.
pub(crate) fn go_on<'a, 'c>(
    conn: &'a Conn,
    strands: &'a Strands<'c>,
    next: Next,
    nested: u32,
) -> Pin<Box<dyn Future<Output = Next> + Send + 'a>>
where
    'c: 'a,
{
    Box::pin(async move {
        let mut serving = Box::pin(serve(conn, strands, next, nested));
        poll_fn(|cx| match strands.poll_beside(serving.as_mut(), cx) {
            Poll::Pending if conn.closes() => Poll::Ready((After::Close, None)),
            next => next,
        })
        .await
    })
}

async fn serve(conn: &Conn, strands: &Strands<'_>, next: Next, nested: u32) -> Next {
    debug_assert!(nested <= NESTED_MAX, "one request is served inside so many others at most");
    let (mut after, mut begun) = next;
    while let After::Idle { timeout_ms, .. } = after
        && !strands.is_empty()
        && nested < NESTED_MAX
        && conn.client.listener().is_as_of(conn.setup.generation())
    {
        if begun.is_none() {
            conn.link.timer.arm(conn.client.home.now_ms() + timeout_ms);
            let since_ms = conn.client.home.now_ms();
            match poll_fn(|cx| poll_next(conn, strands, since_ms, cx)).await {
                Idle::Begun(parts) => begun = Some(parts),
                Idle::Over => continue,
                Idle::Closed => {
                    after = After::Close;
                    break;
                }
            }
        }
        if conn.client.listener().is_as_of(conn.setup.generation()) {
            (after, begun) = serve_requests(conn, begun, nested + 1).await;
        }
    }
    // A connection that ends does so behind all of it, as nginx's do: clients that wait for that find what
    // was renewed.
    strands.finish().await;
    match after {
        // A request that has begun is served by the connection itself.
        After::Idle { .. } if begun.is_some() => (After::Outdated, begun),
        After::Outdated => (after, begun),
        After::Idle { .. } | After::Linger(_) | After::Close => (after, None),
    }
}

/// The event for an idle connection.
enum Idle {
    /// The beginning of a request.
    Begun(Box<Parts>),
    /// No work goes on any more, or there is another generation: the connection looks for itself.
    Over,
    Closed,
}

fn poll_next(conn: &Conn, strands: &Strands<'_>, since_ms: u64, cx: &mut Context<'_>) -> Poll<Idle> {
    // Asked first, so that the task is woken for what comes from here on.
    let woken = conn.link.transport.poll_readable_or_reclaimed(cx, since_ms);
    if let Poll::Ready(Woken::Reclaimed) = woken {
        return Poll::Ready(Idle::Closed);
    }
    if woken.is_ready() {
        let mut parts = conn.take_parts();
        match conn.link.transport.poll_read_vec(cx, &mut parts.input) {
            Poll::Ready(Ok(1..)) => return Poll::Ready(Idle::Begun(parts)),
            Poll::Ready(closed) => {
                conn.log_closed("waiting for request", closed);
                return Poll::Ready(Idle::Closed);
            }
            Poll::Pending => conn.client.put_back(parts),
        }
    }
    if strands.is_empty() || !conn.client.listener().is_as_of(conn.setup.generation()) {
        return Poll::Ready(Idle::Over);
    }
    conn.link.timer.poll_expired(cx).map(|()| Idle::Closed)
}
