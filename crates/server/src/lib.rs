//! The module list, supervisor and worker: a configuration becomes a running server here.
#![forbid(unsafe_code)]

pub mod built_in;
pub mod core_conf;
pub mod load;
mod modules;
pub mod reference;
pub mod supervisor;
mod worker;
