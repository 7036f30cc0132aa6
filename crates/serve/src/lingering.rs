//! The end of a connection whose client may still be sending (`lingering_close`): bytes that come are read
//! and dropped, since closing with unread bytes would reset the connection before the client has read the
//! answer. The connection's task.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use clearway_http::Lingering;
use clearway_runtime::Woken;

use crate::conn::Conn;

/// Bytes that are read at once.
const READ_BYTES: usize = 4 * 1024;

/// Ends our side of the connection and reads until the client does so too, or time is up.
pub(crate) async fn lingering_close(conn: &Conn, limits: Lingering) {
    if conn.link.transport.shutdown_write().is_err() {
        return;
    }
    let since_ms = conn.client.home.now_ms();
    let give_up_ms = since_ms + limits.time_ms;
    let mut buf = Vec::with_capacity(READ_BYTES);
    while conn.client.home.now_ms() < give_up_ms {
        conn.link.timer.arm(give_up_ms.min(conn.client.home.now_ms() + limits.timeout_ms));
        buf.clear();
        match poll_fn(|cx| poll_lingering(conn, &mut buf, since_ms, cx)).await {
            Some(Ok(1..)) => {}
            _ => return,
        }
    }
}

/// Reads what is only dropped, which the connection can do without when there is no room for others;
/// `None` when it is to be closed.
fn poll_lingering(
    conn: &Conn,
    buf: &mut Vec<u8>,
    since_ms: u64,
    cx: &mut Context<'_>,
) -> Poll<Option<io::Result<usize>>> {
    match conn.link.transport.poll_readable_or_reclaimed(cx, since_ms) {
        Poll::Ready(Woken::Reclaimed) => return Poll::Ready(None),
        Poll::Ready(Woken::Readable) => {
            if let Poll::Ready(read) = conn.link.transport.poll_read_vec(cx, buf) {
                return Poll::Ready(Some(read));
            }
        }
        Poll::Pending => {}
    }
    if conn.client.listener().closes(conn.setup.generation()) {
        return Poll::Ready(None);
    }
    conn.link.timer.poll_expired(cx).map(|()| None)
}
