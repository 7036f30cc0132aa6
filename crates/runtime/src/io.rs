//! Sockets, and the table by which their events find the tasks that wait for them.

#[cfg(not(loom))]
pub(crate) mod connect;
#[cfg(not(loom))]
pub(crate) mod datagram;
#[cfg(not(loom))]
pub(crate) mod first_reads;
#[cfg(not(loom))]
pub(crate) mod listener;
#[cfg(not(loom))]
pub(crate) mod pipe_end;
pub(crate) mod slots;
#[cfg(not(loom))]
pub(crate) mod socket;
#[cfg(not(loom))]
pub(crate) mod trickle;
#[cfg(not(loom))]
pub(crate) mod watched;
