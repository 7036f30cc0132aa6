//! Shared memory zones: bytes that outlive a configuration, and the worker process that uses them.
//!
//! The master creates a zone's memory and keeps its descriptor; worker processes map it, two at once
//! while one replaces the other, and may die between any two instructions. So nothing here takes a
//! lock, nothing holds a pointer, and what is read is believed only as far as its versions agree.
//!
//! [`Zones`] is the list of one configuration, [`Zone`] one of them: a header with the secret that keys
//! are hashed with, and a [`Table`] of slots behind it.
#![forbid(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, unused_imports, reason = "models use a part"))]

#[cfg(not(loom))]
mod counts;
pub mod dict;
#[cfg(not(loom))]
mod header;
#[cfg(all(test, loom))]
mod models;
mod page;
mod slot;
mod store;
mod sync;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod workers;
#[cfg(not(loom))]
mod zone;
#[cfg(not(loom))]
mod zones;

#[cfg(not(loom))]
pub use counts::{Counted, Refused};
pub use page::Page;
pub use slot::{PAYLOAD_MAX, VALUE_MAX};
pub use store::{Store, Unkept};
pub use table::{Contended, Entry, KeyHash, Table, Updated};
#[cfg(not(loom))]
pub use zone::Zone;
#[cfg(not(loom))]
pub use zones::{ZoneKey, Zones};
