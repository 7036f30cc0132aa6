//! Directives about other servers: which there are, how one is chosen, how their names are found; and the
//! groups that are made of them, which handlers ask for servers.

pub(crate) mod address;
pub mod balancers;
mod block;
pub mod choice;
pub(crate) mod common;
pub mod draft;
pub(crate) mod editing;
mod found;
pub mod group;
mod idle;
pub mod keepalive;
mod lasting;
pub(crate) mod line;
mod lookup;
pub mod metrics;
mod refresh;
mod remaking;
pub mod resolver;
pub(crate) mod roster;
pub(crate) mod said;
mod server;
mod session;
pub(crate) mod state_file;
pub mod sticky;
mod turns;

pub use block::UPSTREAM;
pub use choice::{Choice, Next};
pub use draft::{GroupRef, find, reference, reference_bare};
pub use group::UpstreamGroup;
pub use lasting::Lasting;
pub use lookup::{Destination, Question, destination};
pub use said::{Keepalive, RESOLVER_CONF, ResolverConf, ResolverSpec, Reuse};
pub use session::LearnWhen;

#[cfg(test)]
mod tests;
