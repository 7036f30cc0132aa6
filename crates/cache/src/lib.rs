//! A cache of responses on disks, in nginx's format: Clearway can take over the cache directory of an nginx
//! with all that is in it, and nginx that of Clearway.
//!
//! A [`Key`] identifies a response. [`Levels`] give the path of its file. [`StoredHeader`] is the head of the
//! file. [`variant`] tells responses of one key apart by the request headers that their `Vary` names.
//! [`Freshness`] is how long a response may be used, by its header lines. [`Leader`] and [`Follower`] share a
//! response that is on its way in. [`disks`] has all that touches files, on the threads of a disk's pool;
//! nothing else here opens a file or reads a clock.
//!
//! A file is in doubt if it may have changed since it was written: its checksum is compared before it is
//! used. While one of more than 256 MiB is compared, requests go to the upstream. Small objects that are
//! asked for again are copied into memory, of large ones the head; copies of removed files are dropped within
//! ten seconds. A response for which a disk has no room evicts others only if it is smaller than half of the
//! cache.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
pub mod ages;
#[cfg(not(loom))]
pub mod disks;
mod fill;
#[cfg(not(loom))]
mod fills;
mod freshness;
mod header;
#[cfg(not(loom))]
pub mod index;
#[cfg(not(loom))]
pub mod journal;
mod key;
mod levels;
pub mod placement;
pub mod seal;
mod sync;
mod valid;
mod variant;

pub use fill::{Crowd, End, Follower, Leader, Progress, Verdict};
#[cfg(not(loom))]
pub use fills::{Entered, Fills, Led};
pub use freshness::{Freshness, Ignored, Lifetime};
pub use header::{HEADER_BYTES, NAME_MAX_BYTES, StoredHeader, Unusable, VERSION};
pub use key::{DIGEST_BYTES, Digest, Key};
pub use levels::{BadLevels, Levels};
pub use valid::Validity;
pub use variant::variant;
