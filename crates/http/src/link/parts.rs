//! The memory of a request that outlives it: buffers and the parsed head, kept in a bounded stock and
//! used again, so that a request allocates next to nothing. Shared by all loops without waiting; each
//! loop has a shelf of its own as a rule.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use clearway_base::date;
use clearway_h1::HeadParser;
use clearway_message::RequestHead;
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::atomic::AtomicCell;

use crate::link::send_queue::GATHER_MAX_BYTES;

/// Room for a response's head and a small body, bytes.
const WIRE_BYTES: usize = 512;
/// Parts kept per shelf: as many requests may wait for their turn at once on connections with streams.
const SHELF_PARTS: usize = 128;
/// Loops beyond this number share shelves.
const SHELVES: usize = 16;
/// A buffer that has grown beyond this is not kept, bytes: a head with the largest body that is gathered
/// behind it has room.
const KEPT_BUFFER_BYTES: usize = GATHER_MAX_BYTES + 1024;

/// The buffers of a request.
#[derive(Default)]
pub struct Parts {
    pub(crate) parser: HeadParser,
    pub(crate) head: RequestHead,
    /// How often code has changed the head: a copy that says as much is the same.
    pub(crate) head_changes: u32,
    /// The bytes that were received.
    pub input: Vec<u8>,
    /// Bytes to be sent.
    pub(crate) output: Vec<u8>,
    pub(crate) date: DateLine,
}

impl Parts {
    /// Forgets the head, not its memory.
    pub(crate) fn clear_head(&mut self) {
        self.parser.clear();
        self.head.clear();
        self.head_changes = 0;
    }

    /// A copy of the head, which begins `start` bytes into what was received.
    pub(crate) fn copy_head(&self, start: usize) -> Self {
        let received = &self.input[start..];
        debug_assert!(self.parser.len() <= received.len(), "a head lies in what was received");
        Self {
            parser: self.parser.clone(),
            head: self.head.clone(),
            head_changes: self.head_changes,
            input: received[..self.parser.len()].to_vec(),
            ..Self::default()
        }
    }

    /// Keeps what was received from `at` on, for a request of its own.
    pub fn keep_rest(&mut self, at: usize) {
        assert!(at <= self.input.len(), "the next request begins within what was received");
        self.clear_head();
        self.input.drain(..at);
    }
}

/// Length of the line with the date, bytes.
const DATE_LINE_BYTES: usize = 37;

/// The line of a response with the date, as it was made last: it is the same for a second. Read and written
/// by the one task that has the parts, so what is in here belongs together.
pub(crate) struct DateLine {
    unix_s: AtomicI64,
    words: [AtomicU64; 5],
}

impl Default for DateLine {
    fn default() -> Self {
        Self { unix_s: AtomicI64::new(i64::MIN), words: Default::default() }
    }
}

impl DateLine {
    /// The line for a second since the epoch.
    #[inline]
    pub(crate) fn at(&self, unix_s: i64) -> [u8; DATE_LINE_BYTES] {
        if self.unix_s.load(Ordering::Relaxed) != unix_s {
            self.make(unix_s);
        }
        let mut line = [0; DATE_LINE_BYTES];
        for (bytes, word) in line.chunks_mut(8).zip(&self.words) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        line
    }

    #[cold]
    fn make(&self, unix_s: i64) {
        let mut line = *b"Date: .............................\r\n\0\0\0";
        line[6..][..date::HTTP_DATE_LEN].copy_from_slice(&date::http_date(unix_s));
        for (bytes, word) in line.as_chunks().0.iter().zip(&self.words) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.unix_s.store(unix_s, Ordering::Relaxed);
    }
}

/// Parts that are not in use.
pub(crate) struct Stock {
    shelves: Box<[Shelf]>,
}

/// The shelf of one loop.
struct Shelf {
    /// The parts that were used last: the next request looks here first.
    nearest: AtomicCell<Option<Box<Parts>>>,
    others: ArrayQueue<Box<Parts>>,
}

impl Shelf {
    fn new() -> Self {
        Self { nearest: AtomicCell::new(None), others: ArrayQueue::new(SHELF_PARTS) }
    }

    #[inline]
    fn pop(&self) -> Option<Box<Parts>> {
        self.nearest.take().or_else(|| self.others.pop())
    }

    /// Where the shelf is full, parts are dropped.
    #[inline]
    fn push(&self, parts: Box<Parts>) {
        if let Some(parts) = self.nearest.swap(Some(parts)) {
            let _ = self.others.push(parts);
        }
    }
}

impl Stock {
    pub(crate) fn new() -> Self {
        Self { shelves: (0..SHELVES).map(|_| Shelf::new()).collect() }
    }

    /// Empty parts, whose input buffer has room for at least so many bytes.
    pub(crate) fn take(&self, loop_index: usize, input_bytes: usize) -> Box<Parts> {
        let mut parts = self.shelf(loop_index).pop().unwrap_or_default();
        assert!(parts.input.is_empty() && parts.output.is_empty(), "nothing is left of another request");
        parts.input.reserve(input_bytes);
        parts.output.reserve(WIRE_BYTES);
        parts
    }

    /// Takes parts back, or drops them if they are large or many.
    pub(crate) fn put_back(&self, loop_index: usize, mut parts: Box<Parts>) {
        if parts.input.capacity() > KEPT_BUFFER_BYTES || parts.output.capacity() > KEPT_BUFFER_BYTES {
            return;
        }
        parts.clear_head();
        parts.input.clear();
        parts.output.clear();
        self.shelf(loop_index).push(parts);
    }

    fn shelf(&self, loop_index: usize) -> &Shelf {
        &self.shelves[loop_index % SHELVES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_that_of_the_second() {
        let line = DateLine::default();
        for unix_s in [0, 0, 86_399, 1_000_000_000, 1_000_000_000, -1, 0] {
            let expected = [b"Date: ", &date::http_date(unix_s)[..], b"\r\n"].concat();
            assert_eq!(line.at(unix_s)[..], expected);
        }
    }

    #[test]
    fn parts_come_back_empty_and_not_too_large() {
        let stock = Stock::new();
        let mut parts = stock.take(3, 1024);
        parts.input.extend_from_slice(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let Parts { parser, head, input, .. } = &mut *parts;
        parser.parse(head, input, &clearway_h1::Options::default()).unwrap();
        let place = parts.input.as_ptr();
        stock.put_back(3, parts);
        let again = stock.take(3, 1024);
        assert_eq!((again.input.as_ptr(), again.input.len(), again.parser.len()), (place, 0, 0));

        let mut large = stock.take(3, 1024);
        large.output = Vec::with_capacity(KEPT_BUFFER_BYTES + 1);
        stock.put_back(3, large);
        assert!(stock.shelf(3).pop().is_none());

        let all: Vec<_> = (0..SHELF_PARTS + 3).map(|_| stock.take(3, 1024)).collect();
        all.into_iter().for_each(|parts| stock.put_back(3, parts));
        assert_eq!(std::iter::from_fn(|| stock.shelf(3).pop()).count(), SHELF_PARTS + 1);
        const { assert!(AtomicCell::<Option<Box<Parts>>>::is_lock_free()) };
    }
}
