//! The header of the PROXY protocol that a connection begins with (`listen … proxy_protocol`), read in the
//! connection's task before its first request.

use std::future::poll_fn;
use std::task::Poll;

use clearway_base::log::Level;
use clearway_http::{Front, Parts};
use clearway_net::proxy_protocol::{Broken, Progress, Proxied, parse};

use crate::conn::Conn;
use crate::connection::{Connection, Ending, Idle, read_idle};

/// The action under way, for the error log.
const READING: &str = "reading PROXY protocol";

/// Reads the header, and keeps it with what was received of the first request, if anything was.
pub(crate) async fn read_front(connection: &mut Connection) -> Result<(), Ending> {
    connection
        .conn
        .link
        .timer
        .arm(connection.conn.client.start_ms + *connection.conn.setup.server_core().client_header_timeout_ms);
    let mut parts = connection.conn.take_parts();
    let mut idle = Idle::New;
    loop {
        match poll_fn(|cx| Poll::Ready(read_idle(&connection.conn, idle, &mut parts.input, cx))).await {
            Poll::Ready(Ok(1..)) => {
                if let Some(proxied) = take_header(&connection.conn, &mut parts.input)? {
                    connection.conn.client.front =
                        Some(Box::new(Front::new(proxied, keep_unless_empty(&connection.conn, parts))));
                    return Ok(());
                }
            }
            Poll::Pending if idle != Idle::Leaving => {}
            Poll::Pending => return Err(Ending),
            Poll::Ready(result) => {
                connection.conn.log_closed(READING, result);
                return Err(Ending);
            }
        }
        idle = poll_fn(|cx| connection.poll_idle(cx)).await;
        idle = connection.go_on_idle(idle, READING)?;
    }
}

/// Takes the header from the front of what was received, and tells what it says; `None` while there is
/// more to come of it.
fn take_header(conn: &Conn, input: &mut Vec<u8>) -> Result<Option<Option<Box<Proxied>>>, Ending> {
    match parse(input, conn.setup.server_core().options.client_header_buffer_size) {
        Ok(Progress::Incomplete) => Ok(None),
        Ok(Progress::Complete { proxied, length }) => {
            debug_assert!(0 < length && length <= input.len(), "a header is of what has come");
            input.drain(..length);
            Ok(Some(proxied))
        }
        Err(Broken::Addresses) => Err(Ending),
        Err(broken) => {
            conn.log(Level::Error, READING, format_args!("{broken}"));
            Err(Ending)
        }
    }
}

fn keep_unless_empty(conn: &Conn, parts: Box<Parts>) -> Option<Box<Parts>> {
    if parts.input.is_empty() {
        conn.client.put_back(parts);
        return None;
    }
    Some(parts)
}
