//! Lines of the error log that the process keeps for code that asks for them, up to a number of bytes: the
//! oldest ones make room. Any thread notes and takes lines, and none waits for another: a thread that the
//! system stops in the middle of it would hold loops.
//!
//! A line's bytes are counted from before it is there until after it has gone. Several that are noted at once
//! may be beyond the limit together, until the next one.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;

use crate::log::Level;

/// Bytes that a line counts beside its text, as OpenResty's do.
const LINE_OVERHEAD: usize = 24;

/// Nothing is kept. Otherwise the least severe level that is, and one.
const NONE: u8 = 0;

static WANTED: AtomicU8 = AtomicU8::new(NONE);
static LINES: SegQueue<KeptLine> = SegQueue::new();
/// Those of the lines.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static BYTES_MAX: AtomicUsize = AtomicUsize::new(0);

/// A line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLine {
    /// How severe it is.
    pub level: Level,
    /// When it was logged, milliseconds since the epoch.
    pub unix_ms: u64,
    /// As the log has it.
    pub text: Vec<u8>,
}

impl KeptLine {
    fn bytes(&self) -> usize {
        self.text.len() + LINE_OVERHEAD
    }
}

/// Takes the oldest lines until there are no more bytes than these.
fn shrink(bytes_max: usize) {
    while BYTES.load(Ordering::Relaxed) > bytes_max {
        if take().is_none() {
            break;
        }
    }
}

/// Has up to so many bytes of lines kept from now on; with 0 none.
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

/// Has lines of this level and more severe ones kept, and no others; whether lines are kept at all.
pub fn set_least(level: Level) -> bool {
    let is_kept = |wanted: u8| (wanted != NONE).then_some(level as u8 + 1);
    WANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_kept).is_ok()
}

/// Keeps a line that was logged, if lines like it are. Nothing but a load where none are.
#[inline]
pub fn note(level: Level, unix_ms: u64, text: &[u8]) {
    if (level as u8) < WANTED.load(Ordering::Relaxed) {
        put(KeptLine { level, unix_ms, text: text.to_vec() });
    }
}

#[cold]
fn put(line: KeptLine) {
    let bytes = line.bytes();
    let Some(room_max) = BYTES_MAX.load(Ordering::Relaxed).checked_sub(bytes) else { return };
    shrink(room_max);
    // Before the line is there for others: nothing is taken from the sum that is not in it.
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

    /// Lines are kept for the whole process: one test.
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
