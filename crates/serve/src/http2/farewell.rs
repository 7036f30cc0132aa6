//! The end of a connection with requests that go on: their client has left, but code waits, or a server is
//! being asked. Each is logged when it ends. The connection's task stays until then and keeps its place among
//! the `worker_connections`, so that a worker which is told to end waits for the requests, as in nginx.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use clearway_http::Lingering;

use super::streams::Streams;
use crate::conn::Conn;
use crate::http1::LOG_MAX_MS;
use crate::lingering::lingering_close;

/// How often the task looks whether the server ends all connections, milliseconds: nothing wakes the task for
/// that, since it does not wait for the socket.
const LOOK_MS: u64 = 100;

/// Ends our side of the connection, and waits for the client and for requests that are left. `None`: there is
/// nothing to wait for. The future is in a box since connections have no room for it.
pub(super) fn see_off(
    conn: &Conn,
    lingering: Option<Lingering>,
    left: Option<Streams>,
) -> Option<Pin<Box<impl Future<Output = ()> + Send>>> {
    if lingering.is_none() && left.is_none() {
        return None;
    }
    Some(Box::pin(async move {
        match lingering {
            Some(lingering) => lingering_close(conn, lingering).await,
            // The client learns of the end now. One that is gone already need not.
            None => drop(conn.link.transport.shutdown_write()),
        }
        if let Some(left) = left {
            outlast(conn, left).await;
        }
    }))
}

/// Waits until the requests have ended.
async fn outlast(conn: &Conn, mut streams: Streams) {
    let mut until_ms = None;
    poll_fn(|cx| {
        let now_ms = conn.client.home.now_ms();
        if streams.forget_ended() || until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
            return Poll::Ready(());
        }
        if until_ms.is_none() && conn.closes() {
            streams.cut_all();
            until_ms = Some(now_ms + LOG_MAX_MS);
        }
        conn.link.timer.arm(until_ms.unwrap_or(now_ms + LOOK_MS));
        ready!(poll_change(conn, &streams, cx));
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Ready when it is time to look again.
fn poll_change(conn: &Conn, streams: &Streams, cx: &mut Context<'_>) -> Poll<()> {
    match streams.poll_ready(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => conn.link.timer.poll_expired(cx),
    }
}
