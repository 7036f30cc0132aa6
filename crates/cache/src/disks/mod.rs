//! Caches at run time: their disks, and the operations on files.
//!
//! A [`Cache`] is one `proxy_cache_path`, [`Caches`] all of a worker process. Every operation that may wait
//! for a disk is a job in that disk's pool; the job itself updates the index when it is done.

mod alarm;
mod cache;
mod caches;
mod conf;
mod copies;
mod disk;
mod growing;
mod loader;
mod manager;
pub mod metrics;
mod notes;
mod object;
mod read;
mod role;
mod stamp;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_faults;
#[cfg(test)]
mod tests_manager;
mod write;

pub use cache::{Cache, Whereabouts};
pub use caches::Caches;
#[cfg(feature = "testing")]
pub use caches::ManagerByHand;
pub use conf::{CacheConf, DiskConf, Pace, TempPlace};
pub use disk::DiskError;
pub use growing::Growing;
pub use object::{Found, Handle, Identity, Made, Miss, Wanted};
pub use role::Role;
pub use write::{Filling, NewFile, Part, Refreshed};
