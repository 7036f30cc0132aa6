//! Memory that is free and that the system does not have yet: what an allocator keeps for a thread, and
//! what a module keeps for the next response. Its owners register how they let go of it; threads that have
//! had nothing to do for a while call that. Any thread, without locks.

use std::sync::OnceLock;

/// Lets go of what was not needed lately: what belongs to the calling thread, or to all of them. It takes a
/// few milliseconds at most, and may be called at any time.
pub type Release = fn();

/// How many can be registered.
const RELEASES_MAX: usize = 8;

static RELEASES: [OnceLock<Release>; RELEASES_MAX] = [const { OnceLock::new() }; RELEASES_MAX];

/// Has [`release`] call `how` before all that were registered earlier: what a module frees the allocator can
/// give back then.
///
/// # Panics
/// If there are too many: their number is that of the places that call this.
pub fn register(how: Release) {
    let is_there = RELEASES.iter().any(|slot| slot.set(how).is_ok());
    assert!(is_there, "{RELEASES_MAX} at most are registered");
}

/// Calls all that were registered.
pub fn release() {
    for how in RELEASES.iter().rev().filter_map(OnceLock::get) {
        how();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_latest_is_called_first() {
        static CALLS: AtomicU32 = AtomicU32::new(1);
        register(|| CALLS.store(CALLS.load(Ordering::Relaxed) * 10, Ordering::Relaxed));
        register(|| CALLS.store(CALLS.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
        release();
        assert_eq!(CALLS.load(Ordering::Relaxed), 20);
    }
}
