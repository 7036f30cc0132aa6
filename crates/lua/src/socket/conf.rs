//! The configuration of the sockets of one request, or of one timer.

/// Settings for the sockets of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketConf {
    pub(crate) connect_timeout_ms: u64,
    pub(crate) send_timeout_ms: u64,
    pub(crate) read_timeout_ms: u64,
    pub(crate) keepalive_timeout_ms: u64,
    pub(crate) buffer_bytes: usize,
    pub(crate) pool_size: usize,
    pub(crate) logs_errors: bool,
}

impl Default for SocketConf {
    /// As where the configuration says nothing.
    fn default() -> Self {
        const MINUTE_MS: u64 = 60_000;
        Self {
            connect_timeout_ms: MINUTE_MS,
            send_timeout_ms: MINUTE_MS,
            read_timeout_ms: MINUTE_MS,
            keepalive_timeout_ms: MINUTE_MS,
            buffer_bytes: 4096,
            pool_size: 30,
            logs_errors: true,
        }
    }
}
