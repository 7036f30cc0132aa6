//! Other servers that fail, hang or come and go, seen from outside: times, faults, clients that leave, names,
//! reloads, descriptors. The expectations hold for nginx too, but for what only Clearway has.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

mod aborts;
mod application_checks;
mod broken_disks;
mod cache_followers;
mod cache_shared_with_nginx;
mod descriptors;
mod edited_servers;
mod faults;
mod healing_groups;
mod health_checks;
mod lying_applications;
mod names;
mod origins;
mod proxy_store;
mod proxy_timeouts;
mod reloads;
mod tls;
mod torn_cache_files;
mod tunnels;

use clearway_testkit::{Binary, Server, Setup};

/// A server with one worker whose access log says what became of each request.
fn config(main: &str, http: &str) -> String {
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid nginx.pid;\n\
         error_log logs/error.log info;\n{main}\n\
         http {{\n%%TEMP%%\nlog_format line '$uri $status $upstream_addr $upstream_status';\n\
         access_log logs/access.log line;\n{http}\n}}\n"
    )
}

/// One that listens at `%%PORT%%`, with these locations.
fn start(http: &str, locations: &str) -> Server {
    let server = format!("{http} server {{ listen 127.0.0.1:%%PORT%%; {locations} }}");
    Setup::new(Binary::under_test(), &config("events { }", &server)).start()
}
