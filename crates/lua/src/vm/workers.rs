//! How workers are numbered for Lua: each loop is one, over all worker processes of the server
//! (`worker_groups`). Said once, before there are VMs; any thread.

use std::ops::Range;
use std::sync::OnceLock;

/// The first loop of this process, and how many there are in all.
static WORKERS: OnceLock<(u32, u32)> = OnceLock::new();

/// Says which of how many loops this process has. Without it they are all that there are. The loop of the
/// privileged agent is behind all of them, and is no worker.
pub fn count_workers(share: Range<usize>, all: usize) {
    let first = if share.start < all { share.start } else { 0 };
    // A second one would be the same.
    let _ = WORKERS.set((first as u32, all as u32));
}

/// The result of `ngx.worker.id()` in the own VM of the first loop.
pub(crate) fn first() -> u32 {
    WORKERS.get().map_or(0, |&(first, _)| first)
}

/// The result of `ngx.worker.count()` in a process with so many loops.
pub(crate) fn count(loops: usize) -> u32 {
    WORKERS.get().map_or(loops as u32, |&(_, all)| all)
}
