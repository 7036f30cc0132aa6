//! Event loops that can be lent, and the tasks that run on them.
//!
//! A *loop* is a scheduling context (epoll, ready queue, timers), a *carrier* is a thread that runs
//! one. A task that holds its loop too long loses it: the watchdog gives the loop to a spare carrier,
//! and all other tasks go on. The protocol is at the head of `handover/word.rs`.
//!
//! A carrier that is unwound ends the process: its loop could never go on. Spares that nothing needed for
//! some seconds end, but for the few that are kept ahead. The process refuses huge pages: the first touch of
//! one zeroes two megabytes on the loop.

#![cfg_attr(loom, allow(dead_code, reason = "models use a part of what the runtime uses"))]

mod event_loop;
mod handover;
mod io;
mod sync;
mod task;

pub mod metrics;

#[cfg(all(feature = "testing", not(loom)))]
mod by_hand;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod hooks;
#[cfg(not(loom))]
mod identities;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod threads;

#[cfg(all(feature = "testing", not(loom)))]
pub use crate::by_hand::{Hand, Left};
#[cfg(not(loom))]
pub use crate::{
    event_loop::BACKLOG_PER_MS,
    handle::{Expected, LoopRef, Runtime, TASK_OVERHEAD, Timer},
    handover::observer::{Account, Observer, StuckPoll, Wish},
    handover::suspects::Tag,
    hooks::{Hooks, PerLoop},
    identities::Identities,
    io::connect::Connecting,
    io::datagram::Datagrams,
    io::listener::Listener,
    io::pipe_end::PipeEnd,
    io::slots::SLOTS_MAX,
    io::socket::{Probe, Socket, Woken},
    io::trickle::TRICKLE_BYTES,
    shared::Config,
    task::coop::{bind, enter, repeats, tag_of, unbind, within, yield_now},
};
pub use crate::{
    handover::word::PollId,
    task::cell::{Entered, TaskCell},
    task::token::{Entering, Guarded, Held, HeldValue, Token},
};
