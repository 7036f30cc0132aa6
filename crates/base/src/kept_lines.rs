//! The last lines of the error log, kept in memory for Lua (`ngx.errlog`) up to a number of bytes; the oldest
//! ones are dropped first. Any thread adds and takes lines. There is no lock: a thread that the system
//! stopped while it held one would hold up loops.
//!
//! A line's bytes are counted before it is added, and until after it was taken. Lines that several threads
//! add at once may exceed the limit together, until the next line is added.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;

use crate::log::Level;

/// Bytes that each line counts in addition to its text, as in OpenResty.
const LINE_OVERHEAD: usize = 24;

/// Bytes of a line at most; it has no line feed. OpenResty's lines are twice as long as nginx's.
pub const LINE_BYTES_MAX: usize = 4096;

/// The value of `WANTED` when no lines are kept. Otherwise it is the least severe level that is kept, plus
/// one.
const NONE: u8 = 0;

static WANTED: AtomicU8 = AtomicU8::new(NONE);
static LINES: SegQueue<KeptLine> = SegQueue::new();
/// The sum of the bytes of all lines.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static BYTES_MAX: AtomicUsize = AtomicUsize::new(0);

/// A line of the log, without its line feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLine {
    /// Its level.
    pub level: Level,
    /// When it was logged, milliseconds since the epoch.
    pub unix_ms: u64,
    /// The text as it stands in the log.
    pub text: Vec<u8>,
}

impl KeptLine {
    fn bytes(&self) -> usize {
        self.text.len() + LINE_OVERHEAD
    }
}

/// Drops the oldest lines until there are at most `bytes_max` bytes.
fn shrink(bytes_max: usize) {
    while BYTES.load(Ordering::Relaxed) > bytes_max {
        if take().is_none() {
            break;
        }
    }
}

/// Keeps lines of up to `bytes_max` bytes from now on; 0 keeps none.
pub fn keep(bytes_max: usize) {
    BYTES_MAX.store(bytes_max, Ordering::Relaxed);
    shrink(bytes_max);
    if bytes_max == 0 {
        WANTED.store(NONE, Ordering::Relaxed);
    } else if WANTED.load(Ordering::Relaxed) == NONE {
        WANTED.store(Level::Debug as u8 + 1, Ordering::Relaxed);
    }
}

/// Whether lines are kept.
#[must_use]
pub fn is_kept() -> bool {
    WANTED.load(Ordering::Relaxed) != NONE
}

/// Keeps only lines of this level and more severe ones. Returns whether lines are kept at all.
pub fn set_least(level: Level) -> bool {
    let is_kept = |wanted: u8| (wanted != NONE).then_some(level as u8 + 1);
    WANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_kept).is_ok()
}

/// Whether lines of this level are kept. This costs one load.
#[inline]
#[must_use]
pub fn wants(level: Level) -> bool {
    (level as u8) < WANTED.load(Ordering::Relaxed)
}

/// Keeps a line that was logged, if its level is wanted.
pub fn note(level: Level, unix_ms: u64, text: &[u8]) {
    if wants(level) {
        put(KeptLine { level, unix_ms, text: text.to_vec() });
    }
}

#[cold]
fn put(line: KeptLine) {
    let bytes = line.bytes();
    let Some(room_max) = BYTES_MAX.load(Ordering::Relaxed).checked_sub(bytes) else { return };
    shrink(room_max);
    // Before the line can be taken, so that the sum never falls below zero.
    BYTES.fetch_add(bytes, Ordering::Relaxed);
    LINES.push(line);
}

/// Takes the oldest line.
pub fn take() -> Option<KeptLine> {
    let line = LINES.pop()?;
    let before = BYTES.fetch_sub(line.bytes(), Ordering::Relaxed);
    debug_assert!(before >= line.bytes(), "the bytes are those of the lines");
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Vec<Vec<u8>> {
        std::iter::from_fn(take).map(|line| line.text).collect()
    }

    /// A single test, since the lines are kept for the whole process.
    #[test]
    fn lines_are_kept_as_far_as_there_is_room() {
        note(Level::Error, 1, b"before");
        assert!(!is_kept() && !set_least(Level::Debug) && take().is_none());
        keep(2 * (LINE_OVERHEAD + 4));
        for text in [b"one-", b"two-", b"last"] {
            note(Level::Error, 7, text);
        }
        note(Level::Error, 7, &[b'x'; 1000]);
        assert_eq!(take(), Some(KeptLine { level: Level::Error, unix_ms: 7, text: b"two-".to_vec() }));
        assert_eq!(texts(), [b"last"]);
        assert!(set_least(Level::Warn));
        note(Level::Notice, 8, b"less");
        note(Level::Warn, 8, b"warn");
        note(Level::Emerg, 8, b"more");
        keep(LINE_OVERHEAD + 4);
        assert_eq!(texts(), [b"more"], "with less room the oldest goes");
        note(Level::Notice, 9, b"less");
        assert_eq!(texts(), [b""; 0], "the level stays");
        keep(0);
        note(Level::Emerg, 9, b"more");
        assert!(!is_kept() && take().is_none());
    }
}
