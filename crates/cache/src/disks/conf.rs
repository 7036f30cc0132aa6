//! The settings of a cache (`proxy_cache_path`).

use std::path::PathBuf;
use std::sync::Arc;

use clearway_zone::Zone;

use crate::levels::Levels;

/// The settings of one cache.
#[derive(Clone)]
pub struct CacheConf {
    /// The zone of its index (`keys_zone=`).
    pub zone: Arc<Zone>,
    /// The directories of its files, the one that the directive begins with first. At most
    /// [`DISKS_MAX`](Self::DISKS_MAX).
    pub disks: Vec<DiskConf>,
    /// The levels of subdirectories (`levels=`).
    pub levels: Levels,
    /// An object that was not asked for in so many seconds is removed (`inactive=`, 600 by default).
    pub inactive_s: u64,
    /// The limit of the size of all files (`max_size=`), bytes; `u64::MAX` without a limit.
    pub max_bytes: u64,
    /// Free room to be left on each file system (`min_free=`), bytes; 0 by default.
    pub min_free_bytes: u64,
    /// How fast directories are read at start (`loader_files=`, `loader_threshold=`, `loader_sleep=`).
    pub loader: Pace,
    /// How fast files are removed (`manager_files=`, `manager_threshold=`, `manager_sleep=`).
    pub manager: Pace,
}

impl CacheConf {
    /// The most disks of a cache: an entry of the index has four bits for the disk.
    pub const DISKS_MAX: usize = 16;
}

/// One directory of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConf {
    /// The directory, absolute.
    pub path: PathBuf,
    /// Its share of new objects in proportion to the weights of the other disks. 0: no new ones.
    pub weight: u32,
}

/// Where files are before they are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TempPlace {
    /// In their final directory, with ten digits behind their name (`use_temp_path=off`).
    Beside,
    /// In a directory for temporary files (`proxy_temp_path`). If that is on another file system, each file
    /// is copied.
    Below {
        /// The directory, absolute.
        directory: PathBuf,
        /// Characters in the names of its subdirectories, outermost first.
        levels: Vec<u64>,
    },
}

/// How much work is done in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The most files in a row.
    pub files: u32,
    /// The longest time in a row, milliseconds.
    pub threshold_ms: u64,
    /// The pause after that, milliseconds.
    pub sleep_ms: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { files: 100, threshold_ms: 200, sleep_ms: 50 }
    }
}
