//! Responses that are kept on disks, in nginx's format: an existing cache directory stays warm when the
//! server is exchanged, in both directions.
//!
//! A [`Key`] is what a response is found by; [`Levels`] say where its file lies; [`StoredHeader`] is what
//! the file begins with; [`variant`] tells responses apart whose `Vary` names headers of the request;
//! [`Freshness`] is what a response says of how long it may be used. [`Leader`] and [`Follower`] share a
//! response that is on its way in. What touches files, on the threads of a disk's pool, is in [`disks`];
//! nothing else here opens a file or reads a clock.
//!
//! A body of more than 256 MiB that is in doubt is compared while requests do without it. Copies in memory of
//! removed files are let go of every ten seconds; of a large object the copy is the head. An object that is
//! larger than half of the cache pushes nothing out.
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
