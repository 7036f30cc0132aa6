//! Files that are not in memory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use clearway_os::page_cache;

use crate::wait_until;

/// How long what was just read or written may be held by the process that did so.
const HELD_MAX: Duration = Duration::from_secs(3);

/// Takes the contents of a file out of memory, from this byte on. `false` where that cannot be: on tmpfs,
/// or while somebody holds them.
///
/// # Panics
/// If the file cannot be opened for writing.
pub fn evict(path: &Path, from: u64) -> bool {
    let file = File::options().read(true).write(true).open(path).expect("the file is ours");
    let len = file.metadata().expect("it is open").len().saturating_sub(from);
    // Only what is clean can go.
    file.sync_all().expect("the disk takes it");
    wait_until(HELD_MAX, || {
        page_cache::forget(file.as_fd(), from, len).is_ok()
            && page_cache::count_cached(file.as_fd(), from, len).is_ok_and(|pages| pages == 0)
    })
}
