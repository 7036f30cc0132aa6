//! Event loops that can be lent, and what runs on them.
//!
//! A *loop* is a scheduling context (epoll, ready queue, timers), a *carrier* is a thread that runs
//! one. A task that holds its loop too long loses it: the watchdog gives the loop to a spare carrier,
//! and all other tasks go on. The protocol is at the head of `word.rs`.

#![cfg_attr(loom, allow(dead_code, reason = "models use a part of what the runtime uses"))]

mod sync;

mod demotion;
mod lenders;
mod ready;
mod remote;
mod spares;
mod stack;
mod task;
mod timer;
mod turns;
mod waker_cell;
mod wheel;
mod word;

pub mod metrics;

#[cfg(not(loom))]
mod carriers;
#[cfg(not(loom))]
mod coop;
#[cfg(not(loom))]
mod crowd;
#[cfg(not(loom))]
mod detach;
#[cfg(not(loom))]
mod event_loop;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod identities;
#[cfg(not(loom))]
mod observer;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod slots;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod suspects;
#[cfg(not(loom))]
mod watchdog;

#[cfg(not(loom))]
pub use crate::{
    coop::{enter, poll_enter, yield_now},
    event_loop::BACKLOG_PER_MS,
    handle::{LoopRef, Runtime, TASK_OVERHEAD, Timer},
    identities::Identities,
    observer::{Account, Observer, PollId, StuckPoll, Wish},
    shared::Config,
    slots::SLOTS_MAX,
    socket::{Listener, Socket, Woken},
    suspects::Tag,
};
