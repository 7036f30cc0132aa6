//! The module list, supervisor and worker: a configuration becomes a running server here.
//!
//! A connection that was accepted or answered within the last second before a server stops stays for the rest
//! of it, so that requests on their way are answered.
#![forbid(unsafe_code)]

mod board;
pub mod built_in;
pub mod check;
mod control;
pub mod core_conf;
pub mod early_log;
#[cfg(test)]
mod examples;
mod fresh_files;
pub mod invocation;
pub mod load;
pub mod manual;
pub mod master;
mod messages;
pub mod metrics;
mod modules;
mod nginx_modules;
pub mod options;
pub mod places;
mod pools;
pub mod reference;
pub mod signal_command;
mod start;
mod stock;
mod temp_directories;
pub mod version;
pub mod worker;

pub use clearway_plugin::child as plugin_process;

/// To be called first in the process, before memory is used and threads are started: sets what cannot be set
/// later, or not at once.
pub fn prepare_process() {
    clearway_os::process::refuse_huge_pages();
    // The runtime's watchdog asks for the same, and would wait ten milliseconds for it in a process with
    // threads; so it sees loops from their first poll on. Where the kernel has none it finds that out too.
    let _ = clearway_os::thread::register_barrier();
}
