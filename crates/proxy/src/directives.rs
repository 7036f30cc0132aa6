//! The tables of directives. Executed at boot or reload.

mod cache;
#[macro_use]
mod family;
pub mod proxy;
mod readers;
