//! The layout of a dictionary's memory. Pure.
//!
//! The pages are as many as nginx's slab allocator makes of a zone of the same size, and everything else (the
//! journal, buckets, what is known of pages) stands in memory that the configured size does not count, so
//! that a dictionary holds what it holds with nginx.

/// Bytes of a page of the slab.
pub(crate) const PAGE_BYTES: usize = if cfg!(loom) { 256 } else { 4096 };
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / WORD;
pub(crate) const WORD: usize = size_of::<u64>();

/// Nobody's place: the number of the process that changes the dictionary.
pub(crate) const LOCK_AT: usize = 0;
/// How many changes of words the journal holds.
pub(crate) const JOURNAL_LEN_AT: usize = 1;
/// The newest entry in the lower half, the oldest in the upper one.
pub(crate) const LRU_AT: usize = 2;
/// How often everything was flushed.
pub(crate) const EPOCH_AT: usize = 3;
/// The first item of a list whose entry has gone.
pub(crate) const ORPHANS_AT: usize = 4;
/// How many pages are free.
pub(crate) const FREE_PAGES_AT: usize = 5;
/// The first block of free pages.
pub(crate) const FREE_LIST_AT: usize = 6;
/// 1 once the dictionary was made.
pub(crate) const MADE_AT: usize = 7;
/// How many touches were noted; a cache line of its own.
pub(crate) const TOUCHES_AT: usize = 8;
/// How many of them were heeded.
pub(crate) const HEEDED_AT: usize = 16;
/// The first page with free chunks, of each class.
pub(crate) const CLASSES_AT: usize = 17;
const CLASSES: usize = 7;
/// The last touches.
pub(crate) const RING_AT: usize = CLASSES_AT + CLASSES;
pub(crate) const RING: usize = if cfg!(loom) { 2 } else { 64 };
/// Pairs: which word was changed, and what it was.
pub(crate) const JOURNAL_AT: usize = RING_AT + RING;
pub(crate) const JOURNAL_MAX: usize = if cfg!(loom) { 48 } else { 128 };
/// A word in a cache line of its own for each part of the buckets.
const STRIPES_AT: usize = (JOURNAL_AT + 2 * JOURNAL_MAX).next_multiple_of(STRIPE_WORDS);
pub(crate) const STRIPES: usize = if cfg!(loom) { 2 } else { 64 };
const STRIPE_WORDS: usize = if cfg!(loom) { 1 } else { 8 };
const BUCKETS_AT: usize = STRIPES_AT + STRIPES * STRIPE_WORDS;
/// A page can hold twice as many of the smallest entries.
const BUCKETS_PER_PAGE: usize = if cfg!(loom) { 1 } else { 16 };
/// Words that say what a page is.
pub(crate) const PAGE_NOTE_WORDS: usize = 4;

/// The overhead of nginx's allocator on a 64-bit machine: its own record, and its records of each class and
/// page.
const SLAB_POOL_BYTES: usize = 200;
const SLAB_CLASSES_BYTES: usize = 9 * (24 + 32);
const SLAB_PAGE_BYTES: usize = 24;

/// Word numbers are kept in 32 bits.
const WORDS_MAX: usize = u32::MAX as usize;

/// The layout of one dictionary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) pages: usize,
    pub(crate) buckets: usize,
    notes_at: usize,
    pages_at: usize,
}

/// How many pages nginx makes of so many bytes.
fn pages_of(bytes: usize) -> usize {
    if cfg!(loom) {
        return bytes / PAGE_BYTES;
    }
    let front = SLAB_POOL_BYTES + SLAB_CLASSES_BYTES;
    let pages = bytes.saturating_sub(front) / (PAGE_BYTES + SLAB_PAGE_BYTES);
    let start = (front + pages * SLAB_PAGE_BYTES).next_multiple_of(PAGE_BYTES);
    pages.min(bytes.saturating_sub(start) / PAGE_BYTES)
}

impl Layout {
    /// That of a dictionary of so many bytes, as configured.
    pub(crate) fn new(bytes: usize) -> Self {
        let pages = pages_of(bytes).clamp(1, WORDS_MAX / PAGE_WORDS / 2);
        let buckets = (pages * BUCKETS_PER_PAGE).next_power_of_two().max(STRIPES);
        let notes_at = BUCKETS_AT + buckets;
        let pages_at = (notes_at + pages * PAGE_NOTE_WORDS).next_multiple_of(WORD);
        Self { pages, buckets, notes_at, pages_at }
    }

    /// Words that it has.
    pub(crate) fn words(&self) -> usize {
        self.pages_at + self.pages * PAGE_WORDS
    }

    pub(crate) fn bucket_of(&self, hash: u64) -> usize {
        BUCKETS_AT + ((hash >> 32) as usize & (self.buckets - 1))
    }

    pub(crate) fn note(&self, page: usize) -> usize {
        debug_assert!(page < self.pages, "a page of this dictionary");
        self.notes_at + page * PAGE_NOTE_WORDS
    }

    pub(crate) fn page(&self, page: usize) -> usize {
        self.pages_at + page * PAGE_WORDS
    }

    pub(crate) fn page_of(&self, word: usize) -> usize {
        debug_assert!(word >= self.pages_at, "a word of a page");
        (word - self.pages_at) / PAGE_WORDS
    }

    /// Whether an entry can begin with this word, wherever its number comes from.
    pub(crate) fn is_chunk(&self, word: usize) -> bool {
        word >= self.pages_at && word < self.words()
    }
}

/// Which part of the buckets a hash belongs to.
pub(crate) const fn stripe_of(hash: u64) -> usize {
    (hash >> 32) as usize & (STRIPES - 1)
}

pub(crate) const fn stripe_at(stripe: usize) -> usize {
    STRIPES_AT + stripe * STRIPE_WORDS
}

/// Two numbers in one word.
pub(crate) const fn pair(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The numbers of nginx 1.31.5 (`total pages` in upstream's tests).
    #[test]
    fn pages_are_as_many_as_nginxs() {
        for (bytes, pages) in [(8192, 1), (12 * 1024, 2), (20 * 1024, 4), (25 * 1024, 5), (32 * 1024, 7)] {
            assert_eq!(Layout::new(bytes).pages, pages, "{bytes}");
        }
    }

    #[test]
    fn parts_do_not_overlap() {
        for bytes in [8192, 100_000, 10 << 20] {
            let layout = Layout::new(bytes);
            const { assert!(JOURNAL_AT + 2 * JOURNAL_MAX <= STRIPES_AT) };
            assert_eq!(layout.note(0), BUCKETS_AT + layout.buckets);
            assert!(layout.note(layout.pages - 1) + PAGE_NOTE_WORDS <= layout.page(0));
            assert_eq!(layout.page(layout.pages - 1) + PAGE_WORDS, layout.words());
        }
    }
}
