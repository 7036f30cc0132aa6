//! Plugins: libraries of others that take part in requests (`plugin`). A plugin asks for work when it has a
//! thread for it, so what it does never runs on a loop; what it answers is checked like anything that comes
//! from outside. It runs in this process or, with `process`, in one of its own, over the same memory.
mod board;
mod calls;
pub mod child;
mod desk;
mod directives;
mod host;
mod message;
mod metrics;
mod plugin;

pub use directives::PLUGIN;
