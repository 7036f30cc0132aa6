//! The server's promises about its processes and files, each as one scenario that is played at two sizes: in
//! the tests, which assert facts that cannot depend on the machine, and as a measurement (`clearway-bench`).
//! Every scenario runs with nginx too, except where nginx does not promise it.

mod crash;
mod day;
mod http2_attacks;
mod logs;
mod never_old;
mod objects;
mod random;
mod reload;
mod stampede;
mod streams;
mod torn;
mod tunnels;
mod upgrade;

pub use crash::{Crash, CrashReport};
pub use day::{Day, DayReport, Holds};
pub use http2_attacks::{ATTACKS, Attack, BATCH, BATCHES_MAX};
pub use logs::{Burst, BurstReport, Reopen, ReopenReport, StuckReport, full_device, stuck_log};
pub use never_old::{NeverOld, NeverOldReport};
pub use objects::{Objects, ObjectsReport};
pub use reload::{Reload, ReloadReport};
pub use stampede::{Stampede, StampedeReport, UncachedReport};
pub use streams::{HeldStream, HeldStreamReport, Hold};
pub use torn::{Torn, TornReport};
pub use tunnels::{Tunnels, TunnelsReport};
pub use upgrade::upgrade;

/// The body of every answer of [`deployed`] servers that are not given another.
pub const BODY: &str = "here";

/// A configuration as people deploy it, in the foreground: master and worker, two loops, logs,
/// connections that are kept.
pub fn deployed(main: &str, http: &str) -> String {
    format!(
        "daemon off;\nworker_processes 2;\npid nginx.pid;\nerror_log logs/error.log notice;\n{main}\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n%%TEMP%%\nkeepalive_timeout 300s;\nkeepalive_requests 100000000;\n{http}\n}}\n"
    )
}

/// How many lines of the text hold a word.
fn lines_with(text: &str, word: &str) -> u64 {
    text.lines().filter(|line| line.contains(word)).count() as u64
}
