//! Memory of a dictionary as nginx's slab allocator gives it: chunks of powers of two up to half a page, and
//! whole pages in a row, the first block that is large enough. What is free, and when there is no more, is
//! the same as there; the notes stand elsewhere. All in the journal, by the holder of the lock.

use crate::dict::layout::{CLASSES_AT, FREE_LIST_AT, FREE_PAGES_AT, PAGE_BYTES, WORD, high, low, pair};
use crate::dict::lock::Writer;

/// The smallest chunk that is asked for here.
const CHUNK_MIN_BYTES: usize = 32;

/// The kind of a page: the lower half of its first word; the upper half is the number of pages, or the class.
const WITHIN: u32 = 0;
const FREE_FIRST: u32 = 1;
const FREE_LAST: u32 = 2;
const CHUNKS: u32 = 3;
const WHOLE: u32 = 4;

/// A page's note: neighbours in its list, from 1, and which chunks are in use.
const LINKS: usize = 1;
const USED: usize = 2;

/// Bytes of a chunk of a class.
const fn chunk_bytes(class: usize) -> usize {
    CHUNK_MIN_BYTES << class
}

/// Chunks of a page; where they are small nginx keeps its bits in the first one.
const fn chunks_of(class: usize) -> usize {
    let all = PAGE_BYTES / chunk_bytes(class);
    if all > 64 || cfg!(loom) && class == 0 { all - 1 } else { all }
}

/// The class of chunks that hold so many bytes; `None`: pages do.
fn class_of(bytes: usize) -> Option<usize> {
    let wanted = bytes.max(CHUNK_MIN_BYTES).next_power_of_two();
    (wanted <= PAGE_BYTES / 2).then(|| (wanted / CHUNK_MIN_BYTES).trailing_zeros() as usize)
}

impl Writer<'_> {
    /// All pages are one free block.
    pub(crate) fn make_slab(&mut self) {
        let pages = self.memory.layout.pages;
        self.write(FREE_PAGES_AT, pages as u64);
        self.note_free(0, pages);
        self.list(FREE_LIST_AT, 0);
    }

    /// The first word of so many bytes; `None`: there are none.
    pub(crate) fn alloc(&mut self, bytes: usize) -> Option<usize> {
        let layout = self.memory.layout;
        let Some(class) = class_of(bytes) else {
            let count = bytes.div_ceil(PAGE_BYTES);
            let page = self.alloc_pages(count)?;
            self.write(layout.note(page), pair(WHOLE, count as u32));
            return Some(layout.page(page));
        };
        let page = match (self.read(CLASSES_AT + class) as usize).checked_sub(1) {
            Some(page) => page,
            None => {
                let page = self.alloc_pages(1)?;
                self.write(layout.note(page), pair(CHUNKS, class as u32));
                self.write(layout.note(page) + USED, 0);
                self.write(layout.note(page) + USED + 1, 0);
                self.list(CLASSES_AT + class, page);
                page
            }
        };
        let chunk = self.take_chunk(page);
        if self.used(page) == chunks_of(class) {
            self.unlist(CLASSES_AT + class, page);
        }
        Some(layout.page(page) + chunk * chunk_bytes(class) / WORD)
    }

    /// Gives back what `alloc` gave.
    pub(crate) fn free(&mut self, at: usize) {
        let layout = self.memory.layout;
        let page = layout.page_of(at);
        let note = self.read(layout.note(page));
        if low(note) == WHOLE {
            return self.free_pages(page, high(note) as usize);
        }
        assert_eq!(low(note), CHUNKS, "it was given");
        let class = high(note) as usize;
        if self.used(page) == chunks_of(class) {
            self.list(CLASSES_AT + class, page);
        }
        let chunk = (at - layout.page(page)) * WORD / chunk_bytes(class);
        let word = layout.note(page) + USED + chunk / 64;
        let bits = self.read(word);
        assert!(bits & 1 << (chunk % 64) != 0, "it is in use");
        self.write(word, bits & !(1 << (chunk % 64)));
        if self.used(page) == 0 {
            self.unlist(CLASSES_AT + class, page);
            self.free_pages(page, 1);
        }
    }

    fn take_chunk(&mut self, page: usize) -> usize {
        let word = self.memory.layout.note(page) + USED;
        let chunk = match self.read(word) {
            u64::MAX => 64 + self.read(word + 1).trailing_ones() as usize,
            bits => bits.trailing_ones() as usize,
        };
        let word = word + chunk / 64;
        self.write(word, self.read(word) | 1 << (chunk % 64));
        chunk
    }

    fn used(&self, page: usize) -> usize {
        let word = self.memory.layout.note(page) + USED;
        (self.read(word).count_ones() + self.read(word + 1).count_ones()) as usize
    }

    fn alloc_pages(&mut self, count: usize) -> Option<usize> {
        let layout = self.memory.layout;
        let mut next = self.read(FREE_LIST_AT) as usize;
        while let Some(page) = next.checked_sub(1) {
            let there = high(self.read(layout.note(page))) as usize;
            if there < count {
                next = low(self.read(layout.note(page) + LINKS)) as usize;
                continue;
            }
            if there > count {
                self.note_free(page + count, there - count);
                self.list_behind(page, page + count);
            }
            self.unlist(FREE_LIST_AT, page);
            // The pages in between are noted as within already.
            self.write(layout.note(page + count - 1), pair(WITHIN, 0));
            self.write(FREE_PAGES_AT, self.read(FREE_PAGES_AT) - count as u64);
            return Some(page);
        }
        None
    }

    fn free_pages(&mut self, page: usize, count: usize) {
        let layout = self.memory.layout;
        self.write(FREE_PAGES_AT, self.read(FREE_PAGES_AT) + count as u64);
        self.write(layout.note(page), pair(WITHIN, 0));
        let (mut first, mut count) = (page, count);
        let behind = first + count;
        if behind < layout.pages {
            let note = self.read(layout.note(behind));
            if low(note) == FREE_FIRST {
                self.unlist(FREE_LIST_AT, behind);
                self.write(layout.note(behind), pair(WITHIN, 0));
                count += high(note) as usize;
            }
        }
        if first > 0 {
            let note = self.read(layout.note(first - 1));
            let before = match low(note) {
                FREE_FIRST => Some(first - 1),
                FREE_LAST => Some(first - high(note) as usize),
                _ => None,
            };
            if let Some(before) = before {
                self.unlist(FREE_LIST_AT, before);
                self.write(layout.note(first - 1), pair(WITHIN, 0));
                count += first - before;
                first = before;
            }
        }
        self.note_free(first, count);
        self.list(FREE_LIST_AT, first);
    }

    fn note_free(&mut self, first: usize, count: usize) {
        let layout = self.memory.layout;
        if count > 1 {
            self.write(layout.note(first + count - 1), pair(FREE_LAST, count as u32));
        }
        self.write(layout.note(first), pair(FREE_FIRST, count as u32));
    }

    /// Puts a page at the head of a list.
    fn list(&mut self, head: usize, page: usize) {
        let layout = self.memory.layout;
        let next = self.read(head) as u32;
        self.write(layout.note(page) + LINKS, pair(next, 0));
        self.set_before(next, page as u32 + 1);
        self.write(head, page as u64 + 1);
    }

    fn list_behind(&mut self, before: usize, page: usize) {
        let layout = self.memory.layout;
        let links = self.read(layout.note(before) + LINKS);
        let (next, own) = (low(links), page as u32 + 1);
        self.write(layout.note(page) + LINKS, pair(next, before as u32 + 1));
        self.set_before(next, own);
        self.write(layout.note(before) + LINKS, pair(own, high(links)));
    }

    fn unlist(&mut self, head: usize, page: usize) {
        let layout = self.memory.layout;
        let links = self.read(layout.note(page) + LINKS);
        let (next, before) = (low(links), high(links));
        match (before as usize).checked_sub(1) {
            Some(before) => {
                let at = layout.note(before) + LINKS;
                self.write(at, pair(next, high(self.read(at))));
            }
            None => self.write(head, u64::from(next)),
        }
        self.set_before(next, before);
    }

    fn set_before(&mut self, page: u32, before: u32) {
        if let Some(page) = (page as usize).checked_sub(1) {
            let at = self.memory.layout.note(page) + LINKS;
            self.write(at, pair(low(self.read(at)), before));
        }
    }
}
