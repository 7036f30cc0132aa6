//! How the words of a slot of a zone's table are packed. Pure functions.
//!
//! Each word ends in the version of the slot's present use, so that a reader can tell whether the words that
//! it has read belong to the same use.

/// Bits of a word that hold the version.
const VERSION_BITS: u32 = 8;
const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;
/// A bit of the state word: a writer is about to fill the slot.
const RESERVED: u64 = 1 << VERSION_BITS;
const PAYLOAD_SHIFT: u32 = VERSION_BITS + 1;

/// The largest payload that a slot can hold; the smallest is 1.
pub const PAYLOAD_MAX: u64 = u64::MAX >> PAYLOAD_SHIFT;

/// The largest value that a slot can hold.
pub const VALUE_MAX: u64 = u64::MAX >> VERSION_BITS;

/// The value in a value word.
pub(crate) const fn value_of(word: u64) -> u64 {
    word >> VERSION_BITS
}

/// The number of a use of a slot, modulo 256. A thread may stop between reading a slot and changing it. It
/// then changes the state of a wrong key only if meanwhile the slot was reused a multiple of 256 times and
/// holds the very words that the thread expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl Version {
    /// The word for one half of a key in this use.
    pub(crate) const fn key_word(self, half: u64) -> u64 {
        half & !VERSION_MASK | self.0
    }

    /// The word for a value in this use.
    pub(crate) const fn value_word(self, value: u64) -> u64 {
        debug_assert!(value <= VALUE_MAX, "a value fits its bits");
        value << VERSION_BITS | self.0
    }

    /// Whether a word is of this use.
    pub(crate) const fn is_of(self, word: u64) -> bool {
        word & VERSION_MASK == self.0
    }
}

/// Whether a key word may be of a key with this half, whatever the version.
pub(crate) const fn is_half(word: u64, half: u64) -> bool {
    (word ^ half) & !VERSION_MASK == 0
}

/// The bits of a half of a key that a key word holds.
pub(crate) const fn half_of(word: u64) -> u64 {
    word & !VERSION_MASK
}

/// A state word of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotState(pub(crate) u64);

impl SlotState {
    pub(crate) const fn version(self) -> Version {
        Version(self.0 & VERSION_MASK)
    }

    /// The payload; 0 if the slot is empty.
    pub(crate) const fn payload(self) -> u64 {
        self.0 >> PAYLOAD_SHIFT
    }

    pub(crate) const fn is_reserved(self) -> bool {
        self.0 & RESERVED != 0
    }

    pub(crate) const fn is_live(self) -> bool {
        !self.is_reserved() && self.payload() != 0
    }

    /// The next use of the slot, not filled yet.
    pub(crate) const fn reserved(self) -> Self {
        Self((self.0 + 1) & VERSION_MASK | RESERVED)
    }

    /// The same use without contents.
    pub(crate) const fn emptied(self) -> Self {
        Self(self.0 & VERSION_MASK)
    }

    /// The same use with other contents.
    pub(crate) const fn holding(self, payload: u64) -> Self {
        debug_assert!(payload != 0 && payload <= PAYLOAD_MAX, "a payload fits its bits");
        Self(payload << PAYLOAD_SHIFT | self.0 & VERSION_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_goes_through_its_uses() {
        let fresh = SlotState(0);
        assert!(!fresh.is_live() && !fresh.is_reserved());
        let reserved = fresh.reserved();
        assert!(reserved.is_reserved() && !reserved.is_live());
        assert_ne!(reserved.version(), fresh.version());
        let live = reserved.holding(PAYLOAD_MAX);
        assert!(live.is_live() && live.payload() == PAYLOAD_MAX && live.version() == reserved.version());
        assert_eq!(live.emptied().reserved().version(), reserved.reserved().version());
        assert_eq!((0..256).fold(live, |state, _| state.reserved()).version(), live.version());
    }

    #[test]
    fn halves_of_keys_are_known_in_every_use() {
        let half = 0x1234_5678_9abc_def0;
        let word = SlotState(7).version().key_word(half);
        assert!(is_half(word, half) && !is_half(word, half + 256));
        assert_ne!(word, SlotState(8).version().key_word(half));
    }
}
