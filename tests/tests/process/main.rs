//! Master and worker: starting, reloads, crashes, upgrades, logs. Where nginx promises the same, the
//! expectations hold for nginx too (run with `CLEARWAY_BIN=/usr/sbin/nginx`). The larger form of what is
//! played here is in `clearway-bench`.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

mod agents;
mod crashes;
mod created_files;
mod fifos;
mod full_disk;
mod groups;
mod limit_conn_counts;
mod messages;
mod privileges;
mod proofs;
mod reloads;
mod sharding;
mod startup;

use clearway_testkit::{Binary, Setup};

/// Whether the server under test is that of this repository, and not an nginx in its place.
fn is_clearway() -> bool {
    Binary::under_test().is_clearway()
}

/// Master and worker in the foreground, one loop.
fn setup(main: &str, http: &str) -> Setup {
    Setup::new(Binary::under_test(), &config(main, http))
}

fn config(main: &str, http: &str) -> String {
    format!(
        "daemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log logs/error.log info;\n{main}\n\
         events {{ worker_connections 512; }}\n\
         http {{\n%%TEMP%%\naccess_log logs/access.log;\n{http}\n}}\n"
    )
}
