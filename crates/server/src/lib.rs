//! The module list, supervisor and worker: a configuration becomes a running server here.
#![forbid(unsafe_code)]

pub mod built_in;
pub mod core_conf;
pub mod load;
mod modules;
mod nginx_modules;
pub mod options;
pub mod reference;
pub mod supervisor;
pub mod version;
mod worker;

/// To be called first in the process, before memory is used: sets what cannot be set later.
pub fn prepare_process() {
    clearway_os::process::refuse_huge_pages();
}
