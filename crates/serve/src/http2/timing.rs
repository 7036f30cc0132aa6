//! The time limits of a connection. Owned by the connection's task.

use clearway_http::CoreLocation;

use crate::conn::Conn;
use crate::connection::STOP_GRACE_MS;

/// The times of one connection, milliseconds of the loop's clock.
pub(super) struct Deadlines {
    start_ms: u64,
    header_timeout_ms: u64,
    send_timeout_ms: u64,
    keepalive_timeout_ms: u64,
    keepalive_time_ms: u64,
    keepalive_requests: u64,
    /// Until when its first request has to begin; nothing once one has.
    first_request_by_ms: Option<u64>,
    /// Until when what has come of a frame has to be complete.
    complete_by_ms: Option<u64>,
    /// Until when something of what there is has to be taken.
    sent_by_ms: Option<u64>,
    /// Until when a client that was told that the connection will end is waited for.
    farewell_by_ms: Option<u64>,
}

impl Deadlines {
    /// The deadlines of a connection that begins, with the settings that hold before a location is known.
    pub(super) fn new(conn: &Conn, core: &CoreLocation) -> Self {
        let header_timeout_ms = *conn.setup.server_core().client_header_timeout_ms;
        Self {
            start_ms: conn.client.start_ms,
            header_timeout_ms,
            send_timeout_ms: *core.sending.send_timeout_ms,
            keepalive_timeout_ms: core.keepalive_timeout.timeout_ms,
            keepalive_time_ms: *core.keepalive_time_ms,
            keepalive_requests: *core.keepalive_requests,
            first_request_by_ms: Some(conn.client.start_ms + header_timeout_ms),
            complete_by_ms: None,
            sent_by_ms: None,
            farewell_by_ms: None,
        }
    }

    /// Whether a client has had its time to see that the connection will end; it begins with the first call.
    pub(super) fn is_farewell_over(&mut self, now_ms: u64) -> bool {
        now_ms >= *self.farewell_by_ms.get_or_insert(now_ms + STOP_GRACE_MS)
    }

    /// Until when that time is, where the connection is to end.
    pub(super) fn farewell_by_ms(&self) -> Option<u64> {
        self.farewell_by_ms
    }

    /// Until when an idle connection stays.
    pub(super) fn idle_until_ms(&self, now_ms: u64) -> u64 {
        self.first_request_by_ms.unwrap_or(now_ms + self.keepalive_timeout_ms)
    }

    /// Something has come for a connection that was idle.
    pub(super) fn begin(&mut self, conn: &Conn) {
        if conn.link.served() > 0 {
            self.first_request_by_ms = None;
        }
    }

    /// Whether the request with this number is to be the last one of the connection.
    pub(super) fn is_last_request(&mut self, number: u64, now_ms: u64) -> bool {
        debug_assert!(number > 0, "requests of a connection are counted from one");
        self.first_request_by_ms = None;
        self.keepalive_timeout_ms == 0
            || number >= self.keepalive_requests
            || now_ms.saturating_sub(self.start_ms) > self.keepalive_time_ms
    }

    /// A frame or a header block is incomplete, since now or earlier.
    pub(super) fn await_input(&mut self, now_ms: u64) {
        self.complete_by_ms.get_or_insert(now_ms + self.header_timeout_ms);
    }

    /// A head was given up of which there is a part.
    pub(super) fn give_up_head(&mut self, now_ms: u64) {
        self.first_request_by_ms = None;
        self.complete_by_ms = Some(now_ms + self.keepalive_timeout_ms.max(self.header_timeout_ms));
    }

    /// Notes that input came: no frame is incomplete, or more of it has come.
    pub(super) fn note_input(&mut self) {
        self.complete_by_ms = None;
    }

    /// There is something that the socket has not taken, since now or earlier.
    pub(super) fn await_output(&mut self, now_ms: u64) {
        self.sent_by_ms.get_or_insert(now_ms + self.send_timeout_ms);
    }

    /// The socket has taken something, or all.
    pub(super) fn note_sent(&mut self) {
        self.sent_by_ms = None;
    }

    /// `send_timeout`, milliseconds.
    pub(super) fn send_timeout_ms(&self) -> u64 {
        self.send_timeout_ms
    }

    /// The first deadline, if a stream has waited since then for its window, and the client is waited for
    /// until then.
    pub(super) fn first(&self, stalled_since_ms: Option<u64>, farewell_by_ms: Option<u64>) -> Option<u64> {
        let stalled_by_ms = stalled_since_ms.map(|since_ms| since_ms + self.send_timeout_ms);
        let all =
            [self.first_request_by_ms, self.complete_by_ms, self.sent_by_ms, stalled_by_ms, farewell_by_ms];
        all.into_iter().flatten().min()
    }
}
