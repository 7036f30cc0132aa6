//! One server, driven through signals, limits, slow clients and its command line. Where nginx can do
//! the same, the expectations hold for nginx too (run with `CLEARWAY_BIN=/usr/sbin/nginx`).
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

mod background;
mod error_log;
mod http2;
mod http2_alike;
mod http2_attacks;
mod limits;
mod origin_closes_early;
mod plugins;
mod proxied_system_calls;
mod proxy_protocol;
mod serve;
mod signals;
mod slow_clients;
mod stapling;
mod startup;
mod status;
mod timeouts;
mod tls;
mod tls_faults;
mod tls_sessions;
mod tunnels;
mod unread_input;

use clearway_testkit::{Binary, Setup};

/// A server as it is deployed, but in the foreground: supervisor and worker, logs, one loop.
fn deployed(main: &str, http: &str) -> Setup {
    let config = format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid nginx.pid;\n\
         error_log logs/error.log info;\n{main}\n\
         http {{\n%%TEMP%%\naccess_log logs/access.log;\n{http}\n}}\n"
    );
    Setup::new(Binary::under_test(), &config)
}
