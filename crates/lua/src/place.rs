//! The surroundings of Lua code that runs without a request (timers, `init_worker_by_lua`): where its log
//! lines go, and which settings hold for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clearway_base::log::{Sink, Verbatim};
use clearway_http::{AskedServers, Location, NAME_SERVERS};

use crate::socket::conf::SocketConf;
use crate::vm::net_settings::NET_CONF;
use crate::vm::settings::LUA_CONF;

/// The surroundings of code without a request, taken from its creator. Cloned for each run.
#[derive(Clone)]
pub(crate) struct AlonePlace {
    /// The logs that its lines go to.
    pub(crate) sinks: Arc<[Arc<dyn Sink>]>,
    pub(crate) tail: Tail,
    pub(crate) conf: AloneConf,
}

/// The settings of the location, or of the server, that has created the code.
#[derive(Clone)]
pub(crate) struct AloneConf {
    /// `lua_max_run_time`
    pub(crate) max_run_time: Option<Duration>,
    /// `lua_time_slice`
    pub(crate) time_slice: Option<Duration>,
    pub(crate) sockets: SocketConf,
    pub(crate) name_servers: AskedServers,
    /// The context of its connections that use TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<clearway_tls::Context>>,
}

impl AloneConf {
    /// The settings of a location.
    pub(crate) fn of(location: &Location) -> Self {
        Self {
            max_run_time: *location.conf(&LUA_CONF).max_run_time,
            time_slice: *location.conf(&LUA_CONF).time_slice,
            sockets: location.conf(&NET_CONF).sockets(),
            name_servers: location.conf(&NAME_SERVERS).asked(),
            #[cfg(feature = "tls")]
            tls: location.conf(&crate::vm::tls_settings::TLS_CONF).context(),
        }
    }
}

/// The end of its log lines, which names its creator.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// The client of the request.
    pub(crate) client: Option<Arc<[u8]>>,
    /// The address of the server that the request was sent to.
    pub(crate) server: Option<Arc<str>>,
    /// The identity thread of the loop.
    pub(crate) tid: u32,
    /// The name of the code's context (`ngx.timer`).
    pub(crate) context: &'static str,
    /// The number of the connection that the code runs for.
    pub(crate) serial: Option<u64>,
}

impl Default for Tail {
    fn default() -> Self {
        Self { client: None, server: None, tid: 0, context: "ngx.timer", serial: None }
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", context: {}", self.context)?;
        match &self.client {
            Some(client) => write!(f, ", client: {}", Verbatim(client))?,
            None => return Ok(()),
        }
        self.server.iter().try_for_each(|server| write!(f, ", server: {server}"))
    }
}
