//! How workers are numbered for Lua: each loop is one, over all worker processes of the server
//! (`worker_groups`). Said once, before there are VMs; any thread.

use std::ops::Range;
use std::sync::OnceLock;

/// The first loop of this process, and how many there are in all.
static WORKERS: OnceLock<(u32, u32)> = OnceLock::new();

/// Makes the numbers of all loops of those of this process.
type Pids = fn(&[u32]) -> Vec<u32>;
static PIDS: OnceLock<Pids> = OnceLock::new();

/// Says which of how many loops this process has. Without it they are all that there are. The loop of the
/// privileged agent is behind all of them, and is no worker.
pub fn count_workers(share: Range<usize>, all: usize) {
    let first = if share.start < all { share.start } else { 0 };
    // A second one would be the same.
    let _ = WORKERS.set((first as u32, all as u32));
}

/// `ngx.worker.pids()` answers from here on as this function does, which is given the numbers of this
/// process's loops. Loops call it.
pub fn name_workers(pids: fn(&[u32]) -> Vec<u32>) {
    // A second one would be the same.
    let _ = PIDS.set(pids);
}

/// The numbers of all loops, of which these are those of this process.
pub(crate) fn pids(own: &[u32]) -> Vec<u32> {
    PIDS.get().map_or_else(|| own.to_vec(), |all| all(own))
}

/// The result of `ngx.worker.id()` in the own VM of the first loop.
pub(crate) fn first() -> u32 {
    WORKERS.get().map_or(0, |&(first, _)| first)
}

/// The result of `ngx.worker.count()` in a process with so many loops.
pub(crate) fn count(loops: usize) -> u32 {
    WORKERS.get().map_or(loops as u32, |&(_, all)| all)
}
