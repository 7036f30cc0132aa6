//! The dynamic table of a decoder: the newest fields that the other side wants to refer to (RFC 7541 §4).
//!
//! Names and values stand one behind the other in one buffer of twice the table's size, each entry in one
//! piece. Entries leave at the front; where there is no room behind the last one, those that are left move
//! to the front, which costs less than one copied byte per byte that was added. A connection that adds
//! nothing has no buffer, and one that [rests](Table::rest) has one of what there is.

use std::collections::VecDeque;

/// Bytes that an entry counts in addition to its name and value (RFC 7541 §4.1).
pub const ENTRY_OVERHEAD_BYTES: usize = 32;

/// Where an entry is in the buffer.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    name_len: u32,
    value_len: u32,
}

impl Entry {
    fn len(self) -> usize {
        (self.name_len + self.value_len) as usize
    }
}

/// The dynamic table of a decoder.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    /// The oldest one first.
    entries: VecDeque<Entry>,
    /// The size of all entries, with their overhead, bytes.
    size: usize,
    size_max: usize,
}

impl Table {
    pub(super) fn new(size_max: usize) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, size_max }
    }

    /// The table may become so large, bytes; entries leave until it is not larger.
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict_to(size_max);
    }

    /// The entry with this number, 0 for the newest: name and value.
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let index = self.entries.len().checked_sub(number + 1)?;
        let entry = self.entries[index];
        let start = entry.start as usize;
        debug_assert!(start + entry.len() <= self.bytes.len(), "an entry lies within the buffer");
        Some(self.bytes[start..start + entry.len()].split_at(entry.name_len as usize))
    }

    /// Adds an entry; older ones leave for it. One that is larger than the table empties it and is not
    /// there.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        let len = name.len() + value.len();
        let size = len + ENTRY_OVERHEAD_BYTES;
        if size > self.size_max {
            self.evict_to(0);
            return;
        }
        self.evict_to(self.size_max - size);
        let room = 2 * self.size_max;
        if self.bytes.len() + len > room {
            self.compact();
        }
        if self.bytes.capacity() < room {
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(Entry { start, name_len: name.len() as u32, value_len: value.len() as u32 });
        self.size += size;
        debug_assert!(self.size <= self.size_max, "older entries have left for a new one");
        debug_assert!(self.bytes.len() <= 2 * self.size_max, "the buffer is twice as large as the table");
    }

    /// Keeps no more memory than the entries have.
    pub(super) fn rest(&mut self) {
        self.compact();
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size
            && let Some(oldest) = self.entries.pop_front()
        {
            let gone = oldest.len() + ENTRY_OVERHEAD_BYTES;
            assert!(gone <= self.size, "the table knows how large its entries are");
            self.size -= gone;
        }
        debug_assert!(self.size <= size, "entries leave until the rest fits");
        if self.entries.is_empty() {
            debug_assert_eq!(self.size, 0, "an empty table counts nothing");
            self.bytes.clear();
        }
    }

    fn compact(&mut self) {
        let gone = self.entries.front().map_or(self.bytes.len() as u32, |entry| entry.start);
        self.bytes.drain(..gone as usize);
        self.entries.iter_mut().for_each(|entry| entry.start -= gone);
        debug_assert!(
            self.entries.front().is_none_or(|oldest| oldest.start == 0),
            "the oldest stands in front"
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_that_is_too_large_empties_the_table() {
        let mut table = Table::new(64);
        table.add(b"name", b"value");
        assert_eq!(table.get(0), Some((&b"name"[..], &b"value"[..])));
        table.add(&[b'n'; 33], b"");
        assert_eq!((table.get(0), table.size), (None, 0));
        table.add(&[b'n'; 32], b"");
        assert_eq!(table.size, 64);
        table.resize(63);
        assert_eq!(table.get(0), None);
    }

    proptest! {
        /// The table holds what a list of owned fields does.
        #[test]
        fn entries_come_and_go_as_in_a_list(
            steps in prop::collection::vec((0usize..90, 0usize..90, 0usize..20), 1..200),
        ) {
            let (mut table, mut size_max) = (Table::new(200), 200);
            let mut list: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let size = |list: &[(Vec<u8>, Vec<u8>)]| {
                list.iter().map(|(n, v)| n.len() + v.len() + ENTRY_OVERHEAD_BYTES).sum::<usize>()
            };
            for (step, (name_len, value_len, resize)) in steps.into_iter().enumerate() {
                if resize == 0 {
                    size_max = name_len * 3;
                    table.resize(size_max);
                } else if resize == 1 {
                    table.rest();
                    let used = table.size - table.entries.len() * ENTRY_OVERHEAD_BYTES;
                    prop_assert_eq!(table.bytes.capacity(), used);
                } else {
                    let entry = (vec![step as u8; name_len], vec![!(step as u8); value_len]);
                    table.add(&entry.0, &entry.1);
                    list.insert(0, entry);
                }
                while size(&list) > size_max {
                    list.pop();
                }
                prop_assert_eq!(table.size, size(&list));
                for (number, (name, value)) in list.iter().enumerate() {
                    prop_assert_eq!(table.get(number), Some((&name[..], &value[..])));
                }
                prop_assert_eq!(table.get(list.len()), None);
                prop_assert!(table.bytes.capacity() <= 2 * 270);
            }
        }
    }
}
