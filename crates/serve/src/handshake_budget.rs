//! What each loop has spent on handshakes lately: steps that would take more go to a pool, so that requests
//! of connections that are there already do not wait for those that come. Written by connections' tasks,
//! which may be polled by other threads than the loop's: a step that is not counted for once does no harm.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clearway_http::Weight;
use clearway_runtime::LoopRef;

/// What may be spent in a millisecond on the clock of the loop, which is a turn or several, microseconds.
const ROOM_US: u64 = 250;
/// The same with steps that take up a session: others do not use up what is left for them.
const ROOM_RESUMED_US: u64 = 400;
/// Loops beyond this number share what they spend.
const LOOPS: usize = 64;
/// Bits of what was spent; those above are the millisecond.
const SPENT_BITS: u32 = 20;

/// How long clients are not believed that they take up sessions, after an empty claim of one, milliseconds.
const DISTRUST_MS: u64 = 1_000;

static SPENT: [AtomicU64; LOOPS] = [const { AtomicU64::new(0) }; LOOPS];
/// Until when clients are not believed, on the clock of the loop.
static DISTRUSTED: [AtomicU64; LOOPS] = [const { AtomicU64::new(0) }; LOOPS];

/// Whether the loop can take such a step of a handshake.
pub(crate) fn has_room(home: LoopRef, weight: Weight) -> bool {
    let (at, now_ms) = (home.index() % LOOPS, home.now_ms());
    let room_us = match weight {
        Weight::Resumed if now_ms < DISTRUSTED[at].load(Ordering::Relaxed) => return false,
        Weight::Resumed => ROOM_RESUMED_US,
        Weight::Light => ROOM_US,
        Weight::Heavy => return false,
    };
    spent_us(SPENT[at].load(Ordering::Relaxed), now_ms) < room_us
}

/// The loop has taken one.
pub(crate) fn spend(home: LoopRef, time: Duration) {
    let word = &SPENT[home.index() % LOOPS];
    let now_ms = home.now_ms();
    let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let spent_us = spent_us(word.load(Ordering::Relaxed), now_ms).saturating_add(time_us);
    word.store(now_ms << SPENT_BITS | spent_us.min((1 << SPENT_BITS) - 1), Ordering::Relaxed);
}

/// A client has taken up no session, though it said so, and the step was a heavy one: for a while none is
/// believed, and their steps are the pool's.
pub(crate) fn distrust(home: LoopRef) {
    DISTRUSTED[home.index() % LOOPS].store(home.now_ms() + DISTRUST_MS, Ordering::Relaxed);
}

fn spent_us(word: u64, now_ms: u64) -> u64 {
    let same_ms = word >> SPENT_BITS == now_ms & (u64::MAX >> SPENT_BITS);
    if same_ms { word & ((1 << SPENT_BITS) - 1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_counts_for_its_millisecond() {
        let word = 7 << SPENT_BITS | 249;
        assert_eq!([6, 7, 8].map(|now_ms| spent_us(word, now_ms)), [0, 249, 0]);
    }
}
