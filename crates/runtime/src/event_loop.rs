//! A loop: its turn, what of it every thread may touch, its queues, and help between crowded loops.

#[cfg(not(loom))]
mod chaos;
#[cfg(not(loom))]
pub(crate) mod crowd;
pub(crate) mod fair;
#[cfg(not(loom))]
pub(crate) mod loops;
pub(crate) mod ready;
pub(crate) mod tidying;
#[cfg(not(loom))]
mod turn;

#[cfg(not(loom))]
pub use turn::BACKLOG_PER_MS;
#[cfg(all(feature = "testing", not(loom)))]
pub use turn::Left;
#[cfg(not(loom))]
pub(crate) use turn::{Exit, Loop};
