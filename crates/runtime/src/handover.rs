//! The hand-over: the word by which a loop is lent (its rules are at the head of word.rs), who lends it, the
//! threads that take it over, and what becomes of who has held it.

#[cfg(not(loom))]
pub(crate) mod carriers;
pub(crate) mod demotion;
#[cfg(not(loom))]
pub(crate) mod detach;
pub(crate) mod helpers;
pub(crate) mod lenders;
pub(crate) mod line;
#[cfg(test)]
mod models;
#[cfg(not(loom))]
pub(crate) mod observer;
pub(crate) mod place;
pub(crate) mod rest;
pub(crate) mod spares;
#[cfg(not(loom))]
pub(crate) mod suspects;
pub(crate) mod turns;
pub(crate) mod waiting;
#[cfg(not(loom))]
pub(crate) mod watchdog;
pub(crate) mod word;
