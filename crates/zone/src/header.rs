//! The first kilobyte of a zone: what it is, the secret that its keys are hashed with, and a label that
//! its module has put on it, written at boot by the maker of the memory, before any other process has it, and
//! read at boot by all others; and the processes that count in it (`workers`).

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip128::SipHasher13;

use crate::workers::Workers;

/// "clearway", read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"clearway");
/// Changes with every change of what stands where in a zone.
const LAYOUT: u64 = 4;

/// Words of the header. A bucket begins behind it, at a cache line.
pub(crate) const HEADER_WORDS: usize = 128;

const MAGIC_AT: usize = 0;
const LAYOUT_AT: usize = 1;
const WORDS_AT: usize = 2;
const SECRET_AT: usize = 3;
/// Length of the label in bytes, plus 1; 0: there is none.
const LABEL_LEN_AT: usize = 5;
/// Hash of the label, two words.
const LABEL_HASH_AT: usize = 6;
const LABEL_AT: usize = 8;
/// Words of its module's own.
const NOTES_AT: usize = 58;
/// How many those are.
pub(crate) const NOTES: usize = LAST_WORKER_AT - NOTES_AT;
/// The number of the worker that has come last.
const LAST_WORKER_AT: usize = 63;
/// A word for each worker.
const WORKERS_AT: usize = 64;

/// How much of a label is kept for messages, bytes. Labels are compared by their hashes.
const LABEL_KEPT_BYTES: usize = (NOTES_AT - LABEL_AT) * size_of::<u64>();

/// The header of a zone's memory.
#[derive(Clone, Copy)]
pub(crate) struct Header<'a>(&'a [AtomicU64]);

/// The secret with which keys of a zone are hashed, so that nobody outside can make keys collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret([u64; 2]);

impl Secret {
    pub(crate) fn hash(self, bytes: &[u8]) -> [u64; 2] {
        let hash = SipHasher13::new_with_keys(self.0[0], self.0[1]).hash(bytes);
        [hash.h1, hash.h2]
    }
}

impl<'a> Header<'a> {
    /// The header of this memory, made anew, with all behind it, if it is not that of a zone of this
    /// layout and size.
    pub(crate) fn prepare(words: &'a [AtomicU64]) -> Self {
        let header = Self(words);
        if !header.is_valid() {
            header.initialise();
        }
        header
    }

    /// The header of memory that was prepared before.
    pub(crate) fn at(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    fn is_valid(self) -> bool {
        // Written last.
        self.0[MAGIC_AT].load(Ordering::Acquire) == MAGIC
            && self.read(LAYOUT_AT) == LAYOUT
            && self.read(WORDS_AT) == self.0.len() as u64
    }

    fn initialise(self) {
        // Memory that was never initialised is zero, and is not touched: its pages come as they are used.
        if self.read(MAGIC_AT) != 0 {
            self.0.iter().rev().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        // The secret has the same source as those of the standard library's hash maps: keys from the system.
        let random = || RandomState::new().hash_one(self.0.len());
        self.write(SECRET_AT, random());
        self.write(SECRET_AT + 1, random());
        self.write(LAYOUT_AT, LAYOUT);
        self.write(WORDS_AT, self.0.len() as u64);
        self.0[MAGIC_AT].store(MAGIC, Ordering::Release);
    }

    pub(crate) fn secret(self) -> Secret {
        Secret([self.read(SECRET_AT), self.read(SECRET_AT + 1)])
    }

    /// Puts a label on a zone that has none.
    ///
    /// # Errors
    /// The label that it has, if that is another one; as much of it as is kept.
    pub(crate) fn check_label(self, label: &[u8]) -> Result<(), Vec<u8>> {
        let (len, hash) = (label.len() as u64 + 1, self.secret().hash(label));
        let present = self.read(LABEL_LEN_AT);
        if present == 0 {
            for (at, bytes) in label[..label.len().min(LABEL_KEPT_BYTES)].chunks(size_of::<u64>()).enumerate()
            {
                let mut word = [0; size_of::<u64>()];
                word[..bytes.len()].copy_from_slice(bytes);
                self.write(LABEL_AT + at, u64::from_le_bytes(word));
            }
            self.write(LABEL_HASH_AT, hash[0]);
            self.write(LABEL_HASH_AT + 1, hash[1]);
            self.write(LABEL_LEN_AT, len);
            return Ok(());
        }
        if present == len && [self.read(LABEL_HASH_AT), self.read(LABEL_HASH_AT + 1)] == hash {
            return Ok(());
        }
        Err(self.label(present - 1))
    }

    fn label(self, len: u64) -> Vec<u8> {
        let kept = usize::try_from(len).unwrap_or(usize::MAX).min(LABEL_KEPT_BYTES);
        let words = self.0[LABEL_AT..NOTES_AT].iter();
        words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).take(kept).collect()
    }

    /// The words of its module's own.
    pub(crate) fn notes(self) -> &'a [AtomicU64; NOTES] {
        self.0[NOTES_AT..].first_chunk().expect("a header has all of its words")
    }

    /// The processes that count in it.
    pub(crate) fn workers(self) -> Workers<'a> {
        Workers::new(&self.0[LAST_WORKER_AT], &self.0[WORKERS_AT..HEADER_WORDS])
    }

    fn read(self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn write(self, at: usize, word: u64) {
        self.0[at].store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_zone_is_made_once() {
        let words = memory(HEADER_WORDS + 24);
        let secret = Header::prepare(&words).secret();
        words[HEADER_WORDS].store(7, Ordering::Relaxed);
        let again = Header::prepare(&words).secret();
        assert!(secret == again && words[HEADER_WORDS].load(Ordering::Relaxed) == 7);
        let other = memory(HEADER_WORDS + 24);
        assert!(Header::prepare(&other).secret() != secret, "a secret of its own");
    }

    #[test]
    fn another_layout_or_size_is_made_anew() {
        for (at, value) in [(MAGIC_AT, 1), (LAYOUT_AT, LAYOUT + 1), (WORDS_AT, 5)] {
            let words = memory(HEADER_WORDS + 24);
            let secret = Header::prepare(&words).secret();
            words[HEADER_WORDS + 23].store(7, Ordering::Relaxed);
            words[at].store(value, Ordering::Relaxed);
            assert!(Header::prepare(&words).secret() != secret);
            assert_eq!(words[HEADER_WORDS + 23].load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_label_stays() {
        let words = memory(HEADER_WORDS);
        let header = Header::prepare(&words);
        let long = vec![b'x'; 2 * LABEL_KEPT_BYTES];
        assert_eq!(header.check_label(b"$binary_remote_addr"), Ok(()));
        assert_eq!(header.check_label(b"$binary_remote_addr"), Ok(()));
        for other in [&b"$host"[..], b"", &long] {
            assert_eq!(header.check_label(other), Err(b"$binary_remote_addr".to_vec()));
        }
        let words = memory(HEADER_WORDS);
        let header = Header::prepare(&words);
        assert_eq!(header.check_label(&long), Ok(()));
        assert_eq!(header.check_label(&long), Ok(()));
        assert_eq!(header.check_label(&long[1..]), Err(long[..LABEL_KEPT_BYTES].to_vec()));
    }
}
