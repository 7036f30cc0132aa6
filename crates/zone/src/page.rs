//! Bytes in words of a zone that one process writes as often as it likes and others read: the last ones
//! that are whole, in two halves that have turns. Lock-free; the writer is one thread at a time, of the
//! process that has the page's place, readers are any.
//!
//! Rules.
//! 1. A writer says which version it starts, the one behind that which is written; behind a fence it writes
//!    into that version's half, and then says that it is written.
//! 2. A reader copies the half of the version that is written and looks again, behind a fence: the half is
//!    written next by the version after the next one. Where none was started beyond the next one, the copy
//!    is whole.
//! 3. A writer that dies leaves the version before. The next writer starts the same version.

use crate::sync::{AtomicU64, Ordering, fence};

const STARTED_AT: usize = 0;
const WRITTEN_AT: usize = 1;
/// Words in front of the halves: a line, where there are many.
const FRONT_WORDS: usize = if cfg!(loom) { 2 } else { 8 };

/// How often a reader looks: each time two versions were begun meanwhile.
const LOOKS_MAX: usize = if cfg!(loom) { 2 } else { 8 };

/// See the file's head.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    front: &'a [AtomicU64],
    halves: [&'a [AtomicU64]; 2],
}

impl<'a> Page<'a> {
    /// The page in these words, which are 0 or hold one already.
    ///
    /// # Panics
    /// If there is no room for a word of bytes.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        let (front, words) = words.split_at(FRONT_WORDS);
        let half = words.len() / 2;
        assert!(half > 1, "a half has a length and room for a word");
        Self { front, halves: [&words[..half], &words[half..2 * half]] }
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        (self.halves[0].len() - 1) * size_of::<u64>()
    }

    /// Rule 1. Of content that is longer than its capacity the beginning is kept.
    pub fn write(&self, content: &[u8]) {
        let version = self.start();
        self.fill(version, content);
        debug_assert!(version > self.front[WRITTEN_AT].load(Ordering::Relaxed), "one writer at a time");
        self.front[WRITTEN_AT].store(version, Ordering::Release);
    }

    fn start(&self) -> u64 {
        let version = self.front[WRITTEN_AT].load(Ordering::Relaxed) + 1;
        self.front[STARTED_AT].store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        version
    }

    fn fill(&self, version: u64, content: &[u8]) {
        let content = &content[..content.len().min(self.capacity_bytes())];
        let (length, words) = self.half(version);
        length.store(content.len() as u64, Ordering::Relaxed);
        for (word, bytes) in words.iter().zip(content.chunks(size_of::<u64>())) {
            let mut eight = [0; size_of::<u64>()];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
    }

    /// Rule 2: the last content, or one shortly before. `None`: there is none yet.
    #[must_use]
    pub fn read(&self) -> Option<Vec<u8>> {
        (0..LOOKS_MAX).find_map(|_| {
            let version = self.front[WRITTEN_AT].load(Ordering::Acquire);
            if version == 0 {
                return None;
            }
            let (length, words) = self.half(version);
            let length = usize::try_from(length.load(Ordering::Relaxed)).unwrap_or(0);
            let length = length.min(self.capacity_bytes());
            let mut content = Vec::with_capacity(length.next_multiple_of(size_of::<u64>()));
            for word in &words[..length.div_ceil(size_of::<u64>())] {
                content.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            content.truncate(length);
            fence(Ordering::Acquire);
            let started = self.front[STARTED_AT].load(Ordering::Relaxed);
            (started <= version + 1).then_some(content)
        })
    }

    /// The length and the words of the half of a version.
    fn half(&self, version: u64) -> (&'a AtomicU64, &'a [AtomicU64]) {
        let half = self.halves[usize::from(version % 2 == 1)];
        debug_assert!(half.len() > 1, "a half has a length and room for a word");
        (&half[0], &half[1..])
    }

    /// A writer dies behind this.
    #[cfg(test)]
    pub(crate) fn write_partly(&self, content: &[u8]) {
        let version = self.start();
        self.fill(version, content);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_was_written_last_is_read() {
        let words = words(FRONT_WORDS + 2 * 4);
        let page = Page::new(&words);
        assert_eq!((page.read(), page.capacity_bytes()), (None, 24));
        for content in [&b"one"[..], b"", b"a longer one", b"the longest one of all, which is cut"] {
            page.write(content);
            assert_eq!(page.read().unwrap(), &content[..content.len().min(24)]);
        }
    }

    #[test]
    fn a_writer_that_dies_leaves_the_version_before() {
        let words = words(FRONT_WORDS + 2 * 4);
        let page = Page::new(&words);
        page.write_partly(b"nothing");
        assert_eq!(page.read(), None);
        page.write(b"first");
        page.write_partly(b"second");
        assert_eq!(page.read().unwrap(), b"first");
        page.write(b"third");
        assert_eq!(page.read().unwrap(), b"third");
        page.write(b"fourth");
        assert_eq!(page.read().unwrap(), b"fourth");
    }

    #[test]
    fn what_is_no_length_is_no_more_than_there_is() {
        let words = words(FRONT_WORDS + 2 * 2);
        let page = Page::new(&words);
        page.write(b"one");
        page.half(1).0.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(page.read().unwrap().len(), 8);
    }
}
