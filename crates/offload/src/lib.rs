//! Bounded, named thread pools for work that would block a loop, and threads of their own for
//! services that block all the time (the log writer). Loops submit and are woken through a `Waker`;
//! nothing here depends on the runtime, and no call that a loop makes waits for another thread.
//!
//! What may block asks for a [`Blocking`], which only threads of this crate have. Closing a large file that
//! was removed frees its blocks, so that is a pool's too. `max_queue` counts jobs beyond one for each thread,
//! as nginx does: with 0, free threads only. A directory can be held open (`directory`): files below it are
//! found by a shorter walk, and in the same place whatever is mounted where its path leads.
#![forbid(unsafe_code)]

mod bell;
mod cell;
pub mod directory;
#[cfg(feature = "testing")]
pub mod faults;
#[cfg(not(feature = "testing"))]
#[allow(unreachable_pub, reason = "tests reach it, in a build of theirs")]
mod faults;
pub mod file;
pub mod files;
mod kept_memory;
mod lanes;
mod lap;
pub mod metrics;
#[cfg(all(test, loom))]
mod models;
pub mod moving;
mod places;
mod pool;
mod receipts;
pub mod replacing;
mod ring;
mod service;
#[cfg(not(loom))]
mod strand;
mod sync;
mod task;
pub mod temp_file;

use std::marker::PhantomData;

pub use bell::Bell;
pub use files::At;
pub use pool::{CRYPTO_POOL, OVERFLOWS, PANICS, PASSWORDS_POOL, START_FAILURES, TIMEOUTS};
pub use pool::{Lane, MAX_QUEUE_DEFAULT, Order, Pool, PoolConfig, PoolStats, THREADS_DEFAULT, THREADS_MAX};
pub use receipts::{Promptness, Receipt, Receipts, is_quiet};
pub use ring::{Mark, Ring};
pub use service::{Service, Stop};
#[cfg(not(loom))]
pub use strand::Strand;
pub use task::{Error, Task};

/// Proof that the code runs on a thread that may block. Lent to jobs and services, which cannot take
/// it to another thread.
#[derive(Debug)]
pub struct Blocking(PhantomData<*const ()>);

impl Blocking {
    /// For a thread of a test that stands for one of a pool or a service.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn by_hand() -> Self {
        Self::on_this_thread()
    }

    /// For the first frame of a pool or service thread only.
    pub(crate) const fn on_this_thread() -> Self {
        Self(PhantomData)
    }
}
