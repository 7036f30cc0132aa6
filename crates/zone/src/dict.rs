//! Dictionaries in shared memory: values, numbers and lists under keys, with an end each, of which the oldest
//! go where there is no room. Any thread of any process; what a configuration calls `lua_shared_dict`.
//!
//! Rules.
//! 1. What changes entries has the lock, a word with the number of its process, and the stripe of each key
//!    that it changes: such a number as well, and a counter that says that something was changed.
//! 2. Each word is noted in the journal before it is changed. Emptying the journal, one store, makes the
//!    change lasting. Only memory that nothing names is written without the journal.
//! 3. Finding the lock's holder dead, a process takes it over, puts back what the journal says, and frees the
//!    stripes of the dead: the dead lose the change that they were making, and nothing else.
//! 4. A reader takes nothing. It looks at the stripe of its key, reads, and looks again, behind a fence: if
//!    it was free and is the same, what was read was so. It believes no number before that.
//! 5. A number that is there is changed by one store under its stripe alone. A holder of a stripe without the
//!    lock waits for nothing; the holder of the lock may wait for stripes.
//! 6. What was read is noted in a ring, and is the newest when the next one with the lock comes.

mod change;
mod layout;
mod lists;
mod lock;
#[cfg(all(test, loom))]
mod models;
mod nodes;
mod read;
mod slab;
#[cfg(all(test, not(loom)))]
mod tests;

pub use lists::End;

use crate::sync::AtomicU64;
use crate::workers::{Worker, Workers};
use layout::Layout;
use lock::Memory;

/// Keys are at most this long, bytes.
pub const KEY_MAX_BYTES: usize = 65_535;

/// A dictionary, for as long as it is looked at; `Zone::dict` gives it.
#[derive(Clone, Copy)]
pub struct Dict<'a> {
    memory: Memory<'a>,
}

/// A key and its hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    bytes: &'k [u8],
    hash: u64,
}

/// A stored value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// Any bytes.
    Text(&'v [u8]),
    /// A number.
    Number(f64),
    /// `true` or `false`.
    Boolean(bool),
}

/// The value of a key; a text is where the reader has put it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Got {
    /// Any bytes.
    Text,
    /// A number.
    Number(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A list, of which only the ends can be had.
    List,
}

/// The entry of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The value.
    pub got: Got,
    /// The flags that it was stored with.
    pub flags: u32,
    /// When it expires, milliseconds since 1970; 0: never.
    pub expires_ms: u64,
}

impl Found {
    /// Whether it has expired, and is there only because nothing needed its memory.
    #[must_use]
    pub fn is_stale(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && self.expires_ms <= now_ms
    }
}

/// Kinds of values as entries have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean = 1,
    Number = 3,
    Text = 4,
    List = 5,
}

/// When a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whatever is there.
    Set,
    /// Where there is none.
    Add,
    /// Where there is one.
    Replace,
}

/// Whether others go where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The oldest go, whether they have expired or not.
    Force,
    /// None goes that has not expired.
    Safe,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// When.
    pub mode: Mode,
    /// In whose place.
    pub room: Room,
    /// For how long, milliseconds; 0: for ever.
    pub ttl_ms: u64,
    /// A number that comes back with it.
    pub flags: u32,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key is not there.
    NotFound,
    /// The key is there.
    Exists,
    /// The value is something else.
    NotNumber,
    /// The value is something else.
    NotList,
    /// There is no room, and none was made.
    NoMemory,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whether it was made.
    pub result: Result<(), Refusal>,
    /// How often room was made by having the oldest go.
    pub evicted: u32,
}

impl Change {
    fn done(evicted: u32) -> Self {
        Self { result: Ok(()), evicted }
    }

    fn refused(refusal: Refusal) -> Self {
        Self { result: Err(refusal), evicted: 0 }
    }
}

impl<'k> Key<'k> {
    /// # Panics
    /// If the key is longer than [`KEY_MAX_BYTES`].
    pub(crate) fn hashed(bytes: &'k [u8], hash: u64) -> Self {
        assert!(bytes.len() <= KEY_MAX_BYTES, "a key has a length of 16 bits");
        Self { bytes, hash }
    }
}

/// Bytes of memory that a dictionary of a configured size has, all in all.
pub(crate) fn memory_bytes(bytes: usize) -> usize {
    Layout::new(bytes).words() * layout::WORD
}

impl<'a> Dict<'a> {
    /// The dictionary in this memory, which is zeroed or holds one of the same size already; `own` is this
    /// process.
    pub(crate) fn new(
        words: &'a [AtomicU64],
        bytes: usize,
        name_len: usize,
        workers: Workers<'a>,
        own: Worker,
    ) -> Self {
        let layout = Layout::new(bytes);
        let memory = Memory { words: &words[..layout.words()], layout, workers, own };
        Self::make(&memory, name_len);
        Self { memory }
    }
}
