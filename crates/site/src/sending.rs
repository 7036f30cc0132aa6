//! How responses are sent, and how files are read for them: the settings. Written by their directives at boot
//! or reload, immutable afterwards.

use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::{Error, Pos};
use clearway_offload::Pool;
use clearway_offload::files::Mode;

use crate::hash_sizes;
use crate::setting::{Own, Setting};
use crate::settings;
use crate::variables::Value;

/// The pool of everything that names none.
const DEFAULT_POOL: &str = "default";

/// The thread pools of a configuration; a service of the environment.
#[derive(Clone, Debug, Default)]
pub struct ThreadPools(Arc<[Arc<Pool>]>);

impl ThreadPools {
    /// A set of pools, of which one should be called `default`.
    #[must_use]
    pub fn new(pools: impl IntoIterator<Item = Arc<Pool>>) -> Self {
        Self(pools.into_iter().collect())
    }

    /// The pool with this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Arc<Pool>> {
        self.0.iter().find(|pool| pool.name().as_bytes() == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.0.iter()
    }
}

/// The treatment of work on files that may block (`aio`).
#[derive(Clone, Debug, Default)]
pub enum Aio {
    /// A pool does it.
    #[default]
    Default,
    /// The loop does it (`off`).
    Off,
    /// The pool with this name does it (`threads=NAME`).
    Named(Bytes, Pos),
    /// The pool whose name this is does it (`threads=$NAME`).
    Evaluated(Value),
}

/// A size that may depend on the request.
#[derive(Clone, Debug)]
pub enum Size {
    /// Bytes.
    Fixed(u64),
    /// A value with variables.
    Evaluated(Value),
}

impl Default for Size {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

/// Which `If-Modified-Since` means that a file has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfModifiedSince {
    /// None.
    Off,
    /// The very date.
    Exact,
    /// The date or a later one.
    Before,
}

/// Files of which size bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directio {
    /// None.
    Off,
    /// From this size on, bytes.
    From(u64),
}

settings! {
    /// How a location sends.
    #[derive(Clone)]
    pub struct Sending {
        /// `sendfile`.
        pub sendfile: Setting<bool> = false,
        /// Most that sendfile(2) is asked for at once, bytes; 0: no limit.
        pub sendfile_max_chunk_bytes: Setting<u64> = 2 << 20,
        /// `tcp_nopush`.
        pub tcp_nopush: Setting<bool> = false,
        /// `tcp_nodelay`.
        pub tcp_nodelay: Setting<bool> = true,
        /// `send_timeout`, milliseconds.
        pub send_timeout_ms: Setting<u64> = 60_000,
        /// `reset_timedout_connection`.
        pub reset_timedout_connection: Setting<bool> = false,
        /// `postpone_output`, bytes.
        pub postpone_output_bytes: Setting<u64> = 1460,
        /// Number, and size in bytes.
        pub output_buffers: Setting<(u64, u64)> = (2, 32 << 10),
        /// Bytes per second; 0: no limit.
        pub limit_rate: Setting<Size>,
        /// Bytes that are sent before the limit counts.
        pub limit_rate_after: Setting<Size>,
        /// `aio`.
        pub aio: Setting<Aio>,
        /// `aio_write`.
        pub aio_write: Setting<bool> = false,
        /// The pool that `aio` names, if it can be known ahead.
        pub pool: Own<Option<Arc<Pool>>>,
        /// All pools, for a name with variables.
        pub pools: Own<ThreadPools>,
        /// `read_ahead`, bytes; 0: off.
        pub read_ahead_bytes: Setting<u64> = 0,
        /// `directio`.
        pub directio: Setting<Directio> = Directio::Off,
        /// `directio_alignment`, bytes.
        pub directio_alignment: Setting<u64> = 512,
        /// `if_modified_since`.
        pub if_modified_since: Setting<IfModifiedSince> = IfModifiedSince::Exact,
        /// `max_ranges`; `None`: no limit.
        pub max_ranges: Setting<Option<u64>>,
        /// `types_hash_max_size`, `types_hash_bucket_size`; see `hash_sizes`.
        pub hash_sizes: [Setting<u64>; 2] = [Setting::new(1024), Setting::new(64)],
        /// `send_lowat`, bytes.
        pub send_lowat_bytes: Setting<u64> = 0,
    }
}

impl Sending {
    /// Refuses sizes that the table of types cannot have.
    pub fn check_hash_sizes(&self) -> Result<(), Error> {
        hash_sizes::check("types_hash", *self.hash_sizes[0], *self.hash_sizes[1])
    }

    /// The loops' treatment of work on files that may block.
    #[must_use]
    pub fn files_mode(&self) -> Mode {
        if matches!(*self.aio, Aio::Off) { Mode::Inline } else { Mode::Offload }
    }

    /// Whether every file's name of its pool is worked out anew, and may name none.
    ///
    /// # Errors
    /// `unknown thread pool "NAME"`.
    pub fn find_pool(&mut self, pools: &ThreadPools) -> Result<(), Error> {
        *self.pools = pools.clone();
        let name = match &*self.aio {
            Aio::Named(name, _) => &name[..],
            _ => DEFAULT_POOL.as_bytes(),
        };
        *self.pool = pools.find(name).cloned();
        match &*self.aio {
            Aio::Named(name, pos) if self.pool.is_none() => {
                let message = clearway_conf::error::message(&[&"unknown thread pool \"", name, &"\""]);
                Err(Error::new(message, pos))
            }
            _ => Ok(()),
        }
    }
}
