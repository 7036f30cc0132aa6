//! The time that each loop has spent on handshakes lately: steps that would take more go to a pool, so that
//! requests of connections that are there already do not wait for those that come. Written by connections'
//! tasks, which may be polled by other threads than the loop's: a step that is not counted for once does no
//! harm.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clearway_http::Weight;
use clearway_runtime::LoopRef;

/// Microseconds that may be spent in a millisecond on the clock of the loop, which is a turn or several.
const ROOM_US: u64 = 250;
/// The same with steps that take up a session: others do not use up what is left for them. What was spent
/// beyond it counts for the next milliseconds.
const ROOM_RESUMED_US: u64 = 400;
/// A step that takes longer computes more than it should, or its loop had to share the processor,
/// microseconds.
const LONG_US: u64 = 1_000;
/// For so many times as long the loop takes no other one but those that take up a session.
const LONG_RESTS: u64 = 16;
/// Loops beyond this number share what they spend.
const LOOPS: usize = 64;
/// Bits of what was spent; those above are the millisecond.
const SPENT_BITS: u32 = 20;

/// How long clients are not believed that they take up sessions, after an empty claim of one, milliseconds.
const DISTRUST_MS: u64 = 1_000;

static SPENT: [AtomicU64; LOOPS] = [const { AtomicU64::new(0) }; LOOPS];
/// Until when clients are not believed, on the clock of the loop.
static DISTRUSTED: [AtomicU64; LOOPS] = [const { AtomicU64::new(0) }; LOOPS];
/// Until when the loop rests from a long step, on its clock.
static RESTING: [AtomicU64; LOOPS] = [const { AtomicU64::new(0) }; LOOPS];

/// Whether the loop can take such a step of a handshake.
pub(crate) fn has_room(home: LoopRef, weight: Weight) -> bool {
    let (at, now_ms) = (home.index() % LOOPS, home.now_ms());
    let room_us = match weight {
        Weight::Resumed if now_ms < DISTRUSTED[at].load(Ordering::Relaxed) => return false,
        Weight::Resumed => ROOM_RESUMED_US,
        Weight::Light | Weight::Moderate if now_ms < RESTING[at].load(Ordering::Relaxed) => return false,
        Weight::Light | Weight::Moderate => ROOM_US,
        Weight::Heavy => return false,
    };
    spent_us(SPENT[at].load(Ordering::Relaxed), now_ms) < room_us
}

/// The loop has taken one.
pub(crate) fn spend(home: LoopRef, time: Duration) {
    let (at, now_ms) = (home.index() % LOOPS, home.now_ms());
    let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let word = &SPENT[at];
    word.store(with_spent(word.load(Ordering::Relaxed), now_ms, time_us), Ordering::Relaxed);
    if time_us > LONG_US {
        let rest_ms = time_us.saturating_mul(LONG_RESTS) / 1_000;
        RESTING[at].store(now_ms.saturating_add(rest_ms), Ordering::Relaxed);
    }
}

/// A client has taken up no session, though it said so, and the step was a heavy one: for a while none is
/// believed, and their steps are the pool's.
pub(crate) fn distrust(home: LoopRef) {
    DISTRUSTED[home.index() % LOOPS].store(home.now_ms() + DISTRUST_MS, Ordering::Relaxed);
}

fn with_spent(word: u64, now_ms: u64, time_us: u64) -> u64 {
    let spent_us = spent_us(word, now_ms).saturating_add(time_us);
    debug_assert!(now_ms <= u64::MAX >> SPENT_BITS, "the clock of a loop fits above what was spent");
    now_ms << SPENT_BITS | spent_us.min((1 << SPENT_BITS) - 1)
}

/// The spent microseconds at this time.
fn spent_us(word: u64, now_ms: u64) -> u64 {
    let gone_ms = (now_ms & (u64::MAX >> SPENT_BITS)).saturating_sub(word >> SPENT_BITS);
    (word & ((1 << SPENT_BITS) - 1)).saturating_sub(gone_ms.saturating_mul(ROOM_RESUMED_US))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_counts_until_its_time_is_over() {
        let word = with_spent(0, 7, 249);
        assert_eq!([7, 8, 9].map(|now_ms| spent_us(word, now_ms)), [249, 0, 0]);
        let word = with_spent(word, 7, 301);
        assert_eq!([7, 8, 9].map(|now_ms| spent_us(word, now_ms)), [550, 150, 0]);
        let word = with_spent(word, 8, 900);
        assert_eq!([8, 9, 10, 11].map(|now_ms| spent_us(word, now_ms)), [1050, 650, 250, 0]);
        let word = with_spent(0, 5, u64::MAX);
        assert_eq!(spent_us(word, 5), (1 << SPENT_BITS) - 1, "there is no more room for the number");
    }
}
