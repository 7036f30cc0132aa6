//! Buffers that come back: what bodies are read into on their way, of three sizes, kept by each loop and used
//! again when their last byte has left. Shared without waiting; a loop has a shelf of its own as a rule.

use std::fmt;
use std::sync::LazyLock;

use crossbeam_queue::ArrayQueue;

/// How large a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferSize {
    /// 4 KiB.
    Small,
    /// 16 KiB.
    Medium,
    /// 64 KiB.
    Large,
}

impl BufferSize {
    const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 4 * 1024,
            Self::Medium => 16 * 1024,
            Self::Large => 64 * 1024,
        }
    }

    /// How many a shelf keeps: half a MiB of each.
    const fn kept(self) -> usize {
        512 * 1024 / self.bytes()
    }

    /// The size of a vector that was made for a buffer.
    fn of(capacity: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.bytes() == capacity)
    }
}

/// Loops beyond this number share shelves.
const SHELVES: usize = 16;

/// The buffers of a loop that are not in use.
struct Shelf([ArrayQueue<Vec<u8>>; 3]);

static STOCK: LazyLock<[Shelf; SHELVES]> = LazyLock::new(|| {
    std::array::from_fn(|_| Shelf(BufferSize::ALL.map(|size| ArrayQueue::new(size.kept()))))
});

fn shelf(index: u16) -> &'static Shelf {
    &STOCK[usize::from(index) % SHELVES]
}

/// A buffer with some bytes in it. Dropped, its memory goes back to the loop that it came from, or is freed
/// where that has enough, or the buffer has grown.
#[derive(Default)]
pub struct Buf {
    data: Vec<u8>,
    /// Bytes of the beginning that were taken.
    from: u32,
    shelf: u16,
}

impl Buf {
    /// An empty one from the stock of a loop.
    #[must_use]
    pub fn take(loop_index: usize, size: BufferSize) -> Self {
        let shelf_index = (loop_index % SHELVES) as u16;
        let data = shelf(shelf_index).0[size as usize].pop();
        debug_assert!(data.as_ref().is_none_or(|data| data.is_empty()), "a shelf has empty buffers only");
        let data = data.unwrap_or_else(|| Vec::with_capacity(size.bytes()));
        debug_assert!(data.capacity() >= size.bytes(), "a buffer has the room of its size");
        Self { data, from: 0, shelf: shelf_index }
    }

    /// An empty one with exactly so much room. Its memory is freed, unless it has a size that comes back.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        debug_assert!(self.from as usize <= self.data.len(), "no more was taken than there is");
        &self.data[self.from as usize..]
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// How many bytes it has room for behind those that are there.
    #[must_use]
    pub fn room(&self) -> usize {
        self.data.capacity() - self.data.len()
    }

    /// Where bytes are added, such as by a read: behind those that are there, and those that were taken.
    pub fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    /// Drops the first bytes, all at most; the room of an empty buffer is all of it again.
    pub fn advance(&mut self, count: usize) {
        let from = self.from as usize + count;
        assert!(from <= self.data.len(), "no more than is there");
        if from == self.data.len() {
            self.data.clear();
            self.from = 0;
        } else {
            self.from = from as u32;
        }
    }

    /// Drops all bytes behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.data.truncate((self.from as usize).saturating_add(len));
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.from as usize..]
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if let Some(size) = BufferSize::of(self.data.capacity()) {
            self.data.clear();
            let _ = shelf(self.shelf).0[size as usize].push(std::mem::take(&mut self.data));
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} of {} bytes)", self.bytes().len(), self.data.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop that no other test has.
    const LOOP: usize = 7;

    #[test]
    fn memory_comes_back_empty_and_is_bounded() {
        for size in BufferSize::ALL {
            let mut buf = Buf::take(LOOP, size);
            buf.vec().extend_from_slice(b"abc");
            buf.advance(1);
            assert_eq!((buf.bytes(), buf.room()), (&b"bc"[..], size.bytes() - 3));
            buf.truncate(1);
            assert_eq!(buf.bytes(), b"b");
            let place = buf.bytes().as_ptr().addr() - 1;
            drop(buf);
            let again = Buf::take(LOOP, size);
            assert!(again.is_empty() && again.data.as_ptr().addr() == place);
            let all: Vec<_> = (0..size.kept() + 3).map(|_| Buf::take(LOOP, size)).collect();
            drop((all, again));
            assert_eq!(shelf(LOOP as u16).0[size as usize].len(), size.kept());
        }
    }

    #[test]
    fn what_has_grown_does_not_come_back() {
        const LOOP: usize = 8;
        let mut buf = Buf::take(LOOP, BufferSize::Small);
        buf.vec().resize(5_000, b'x');
        drop(buf);
        drop(Buf::default());
        assert!(shelf(LOOP as u16).0[BufferSize::Small as usize].is_empty());
        let mut buf = Buf::take(LOOP, BufferSize::Small);
        buf.vec().extend_from_slice(b"abc");
        buf.advance(3);
        assert_eq!(buf.room(), BufferSize::Small.bytes());
    }
}
