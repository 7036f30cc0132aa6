//! Lines of the error log that the process keeps for code that asks for them, up to a number of bytes: the
//! oldest ones make room. Any thread notes and takes lines; it holds the others up for some instructions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::log::Level;

/// Bytes that a line counts beside its text, as OpenResty's do.
const LINE_OVERHEAD: usize = 24;

/// Nothing is kept. Otherwise the least severe level that is, and one.
const NONE: u8 = 0;

static WANTED: AtomicU8 = AtomicU8::new(NONE);
static KEPT: Mutex<Kept> = Mutex::new(Kept { lines: VecDeque::new(), bytes: 0, bytes_max: 0 });

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

#[derive(Debug)]
struct Kept {
    lines: VecDeque<KeptLine>,
    bytes: usize,
    bytes_max: usize,
}

impl Kept {
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len() + LINE_OVERHEAD;
        }
        debug_assert!(!self.lines.is_empty() || self.bytes == 0, "the bytes are those of the lines");
    }
}

fn enter() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has up to so many bytes of lines kept from now on; with 0 none.
pub fn keep(bytes_max: usize) {
    let mut kept = enter();
    kept.bytes_max = bytes_max;
    kept.shrink(bytes_max);
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
    let mut kept = enter();
    let bytes = line.text.len() + LINE_OVERHEAD;
    let Some(room_max) = kept.bytes_max.checked_sub(bytes) else { return };
    kept.shrink(room_max);
    kept.bytes += bytes;
    kept.lines.push_back(line);
}

/// Takes the oldest line.
pub fn take() -> Option<KeptLine> {
    let mut kept = enter();
    let line = kept.lines.pop_front()?;
    kept.bytes -= line.text.len() + LINE_OVERHEAD;
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
