//! The settings of a cache (`proxy_cache_path`).

use std::path::PathBuf;
use std::sync::Arc;

use clearway_zone::Zone;

use crate::levels::Levels;

/// Everything that describes a cache.
#[derive(Clone)]
pub struct CacheConf {
    /// Where its index is (`keys_zone=`).
    pub zone: Arc<Zone>,
    /// Where its files lie: the first is the directory that the directive begins with. At most
    /// [`DISKS_MAX`](crate::disks::CacheConf::DISKS_MAX).
    pub disks: Vec<DiskConf>,
    /// Folders between a directory and a file (`levels=`).
    pub levels: Levels,
    /// What nobody has asked for in so many seconds is removed (`inactive=`, 600 by default).
    pub inactive_s: u64,
    /// All files together (`max_size=`), bytes; `u64::MAX` without a limit.
    pub max_bytes: u64,
    /// What is to be left of each file system (`min_free=`), bytes; 0 by default.
    pub min_free_bytes: u64,
    /// How fast directories are read at start (`loader_files=`, `loader_threshold=`, `loader_sleep=`).
    pub loader: Pace,
    /// How fast files are removed (`manager_files=`, `manager_threshold=`, `manager_sleep=`).
    pub manager: Pace,
}

impl CacheConf {
    /// Disks of a cache at most: what the index has room for.
    pub const DISKS_MAX: usize = 16;
}

/// One directory of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConf {
    /// The directory, absolute.
    pub path: PathBuf,
    /// Its part of all objects, against the others'. 0: nothing is put there any more.
    pub weight: u32,
}

/// Where files are written before they are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TempPlace {
    /// Where they are going to be, under their name with ten digits behind (`use_temp_path=off`).
    Beside,
    /// In a directory of their own (`proxy_temp_path`). One on another file system costs a copy.
    Below {
        /// The directory, absolute.
        directory: PathBuf,
        /// Characters in the names of its subdirectories, outermost first.
        levels: Vec<u64>,
    },
}

/// How much is done in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Files at most.
    pub files: u32,
    /// Milliseconds at most.
    pub threshold_ms: u64,
    /// The pause behind that, milliseconds.
    pub sleep_ms: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { files: 100, threshold_ms: 200, sleep_ms: 50 }
    }
}
