//! Settings for the work of Lua beside its request: captures, timers, sockets. Written while the
//! configuration is read, read by requests and timers.

use std::sync::Arc;

use clearway_http::{ConfKey, Level, Own, Setting, settings};

use crate::socket::conf::SocketConf;
use crate::vm::timers::Timers;

/// The settings of a location.
pub(crate) static NET_CONF: ConfKey<NetConf> = ConfKey::new(Level::Location);
/// The settings of `http`.
pub(crate) static NET_MAIN: ConfKey<NetMain> = ConfKey::new(Level::Main);

settings! {
    pub(crate) struct NetConf {
        pub(crate) capture_max_bytes: Setting<u64> = 64_u64 << 20,
        pub(crate) socket_connect_timeout_ms: Setting<u64> = 60_000_u64,
        pub(crate) socket_send_timeout_ms: Setting<u64> = 60_000_u64,
        pub(crate) socket_read_timeout_ms: Setting<u64> = 60_000_u64,
        pub(crate) socket_keepalive_timeout_ms: Setting<u64> = 60_000_u64,
        pub(crate) socket_buffer_bytes: Setting<u64> = 4096_u64,
        pub(crate) socket_pool_size: Setting<u64> = 30_u64,
        pub(crate) socket_logs_errors: Setting<bool> = true,
    }
}

settings! {
    pub(crate) struct NetMain {
        pub(crate) max_pending_timers: Setting<u64> = 1024_u64,
        pub(crate) max_running_timers: Setting<u64> = 256_u64,
        /// Once the configuration is about to be used.
        pub(crate) timers: Own<std::sync::OnceLock<Arc<Timers>>>,
        /// The connections of the privileged agent that its code wants.
        pub(crate) agent: Own<std::sync::OnceLock<u32>>,
        /// The numbers that stand for its loops (`$pid`), once it is used.
        pub(crate) pids: Own<std::sync::OnceLock<Vec<u32>>>,
    }
}

impl NetConf {
    pub(crate) fn sockets(&self) -> SocketConf {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        SocketConf {
            connect_timeout_ms: *self.socket_connect_timeout_ms,
            send_timeout_ms: *self.socket_send_timeout_ms,
            read_timeout_ms: *self.socket_read_timeout_ms,
            keepalive_timeout_ms: *self.socket_keepalive_timeout_ms,
            buffer_bytes: number(*self.socket_buffer_bytes).max(1),
            pool_size: number(*self.socket_pool_size),
            logs_errors: *self.socket_logs_errors,
        }
    }
}
