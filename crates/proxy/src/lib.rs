//! Requests that other servers answer. `upstreams` has the directives about those servers (groups, how their
//! names are found), `settings` and `directives` what locations say of passing requests on, `engine` does it,
//! `heads` are those of responses on their way back, and `health` has servers asked whether they are well.
#![forbid(unsafe_code)]

pub mod api;
mod attempts;
pub mod directives;
mod engine;
#[cfg(fuzzing)]
pub mod fuzzing;
mod heads;
mod health;
mod settings;
pub mod upstreams;
mod variables;

#[cfg(feature = "testing")]
pub use engine::memory::start_in_memory;
pub use engine::start;
pub use health::begin as begin_checks;
