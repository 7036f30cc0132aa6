//! A table that is looked up with a text in any case. Built at load, never changed; a look-up hashes the
//! text once, eight bytes at a time, and allocates nothing.

use bytes::Bytes;
use clearway_message::name_hash;

/// Slots per key: a search that finds nothing ends after one or two of them.
const SLOTS_PER_KEY: usize = 2;

/// Texts and their values.
pub(super) struct Keys<T> {
    /// Hash and position, with linear probing. A power of two, and never full.
    slots: Box<[Option<(u32, u32)>]>,
    entries: Box<[(Bytes, T)]>,
}

impl<T> FromIterator<(Bytes, T)> for Keys<T> {
    /// If several keys differ only in case, the first one counts.
    fn from_iter<I: IntoIterator<Item = (Bytes, T)>>(entries: I) -> Self {
        let entries: Box<[_]> = entries.into_iter().collect();
        let mut slots = vec![None; (entries.len() * SLOTS_PER_KEY + 1).next_power_of_two()];
        for ((key, _), position) in entries.iter().zip(0_u32..) {
            let hash = name_hash(key);
            let mut at = hash as usize & (slots.len() - 1);
            while slots[at].is_some() {
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = Some((hash, position));
        }
        Self { slots: slots.into(), entries }
    }
}

impl<T> Keys<T> {
    /// The value of a text.
    pub(super) fn find(&self, text: &[u8]) -> Option<&T> {
        let hash = name_hash(text);
        let mut at = hash as usize;
        loop {
            at &= self.slots.len() - 1;
            let (found, position) = self.slots[at]?;
            if found == hash {
                let (key, value) = &self.entries[position as usize];
                if **key == *text || key.eq_ignore_ascii_case(text) {
                    return Some(value);
                }
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_in_any_case() {
        let texts = (0..1000).map(|n| (Bytes::from(format!("Key-{n}[x]")), n));
        let keys: Keys<i32> = texts.chain([(Bytes::new(), -1)]).collect();
        for n in 0..1000 {
            assert_eq!(keys.find(format!("kEY-{n}[X]").as_bytes()), Some(&n));
            // The hash takes these for the same: one bit makes the difference.
            assert_eq!(keys.find(format!("key-{n}{{x}}").as_bytes()), None);
        }
        assert_eq!((keys.find(b""), keys.find(b"key-1000[x]")), (Some(&-1), None));
        let empty: Keys<i32> = std::iter::empty().collect();
        assert_eq!(empty.find(b"x"), None);
    }
}
