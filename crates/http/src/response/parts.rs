//! The memory of a request that outlives it: buffers and the parsed head, kept in a bounded stock and
//! used again, so that a request allocates next to nothing. Shared by all loops without waiting; each
//! loop has a shelf of its own as a rule.

use clearway_h1::RequestHead;
use crossbeam_queue::ArrayQueue;

/// Room for a response's head and a small body, bytes.
const WIRE_BYTES: usize = 512;
/// Parts kept per shelf.
const SHELF_PARTS: usize = 64;
/// Loops beyond this number share shelves.
const SHELVES: usize = 16;
/// A buffer that has grown beyond this is not kept, bytes.
const KEPT_BUFFER_BYTES: usize = 4 * 1024;

/// The buffers of a request.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) head: RequestHead,
    /// What was received.
    pub(crate) input: Vec<u8>,
    /// What is to be sent.
    pub(crate) output: Vec<u8>,
}

/// Parts that are not in use.
pub(crate) struct Stock {
    shelves: Box<[ArrayQueue<Box<Parts>>]>,
}

impl Stock {
    pub(crate) fn new() -> Self {
        Self { shelves: (0..SHELVES).map(|_| ArrayQueue::new(SHELF_PARTS)).collect() }
    }

    /// Empty parts, whose input buffer has room for at least so many bytes.
    pub(crate) fn take(&self, loop_index: usize, input_bytes: usize) -> Box<Parts> {
        let mut parts = self.shelf(loop_index).pop().unwrap_or_default();
        parts.input.reserve(input_bytes);
        parts.output.reserve(WIRE_BYTES);
        parts
    }

    /// Takes parts back, or drops them if they are large or many.
    pub(crate) fn put_back(&self, loop_index: usize, mut parts: Box<Parts>) {
        if parts.input.capacity() > KEPT_BUFFER_BYTES || parts.output.capacity() > KEPT_BUFFER_BYTES {
            return;
        }
        parts.head.clear();
        parts.input.clear();
        parts.output.clear();
        // Where the shelf is full they are dropped.
        let _ = self.shelf(loop_index).push(parts);
    }

    fn shelf(&self, loop_index: usize) -> &ArrayQueue<Box<Parts>> {
        &self.shelves[loop_index % SHELVES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_empty_and_not_too_large() {
        let stock = Stock::new();
        let mut parts = stock.take(3, 1024);
        parts.input.extend_from_slice(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        parts.head.parse(&parts.input, &clearway_h1::Options::default()).unwrap();
        let place = parts.input.as_ptr();
        stock.put_back(3, parts);
        let again = stock.take(3, 1024);
        assert_eq!((again.input.as_ptr(), again.input.len(), again.head.len()), (place, 0, 0));

        let mut large = stock.take(3, 1024);
        large.output = Vec::with_capacity(KEPT_BUFFER_BYTES + 1);
        stock.put_back(3, large);
        assert!(stock.shelf(3).is_empty());
    }
}
