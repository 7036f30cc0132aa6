//! The hand-over: the word by which a loop is lent (its rules are at the head of word.rs), and the protocols
//! between lenders, spare carriers, suspects and observers. Nothing here knows a task or a loop.

#[cfg(not(loom))]
pub(crate) mod away;
pub(crate) mod demotion;
#[cfg(not(loom))]
pub(crate) mod held_turn;
pub(crate) mod helpers;
pub(crate) mod lenders;
pub(crate) mod line;
#[cfg(not(loom))]
pub(crate) mod observer;
pub(crate) mod rest;
pub(crate) mod spares;
#[cfg(not(loom))]
pub(crate) mod suspects;
pub(crate) mod turns;
pub(crate) mod waiting;
pub(crate) mod word;
