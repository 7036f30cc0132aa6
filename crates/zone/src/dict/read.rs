//! The operations that only read a dictionary (rule 4).

use crate::dict::layout::stripe_of;
use crate::dict::lock::Memory;
use crate::dict::nodes::Entry;
use crate::dict::{Dict, Found, Got, Key, Kind};
use crate::sync::back_off;

/// How often it is tried before the lock is taken.
const TRIES_MAX: u32 = if cfg!(loom) { 2 } else { 100 };

impl Dict<'_> {
    /// The value of a key, also an expired one; a text is appended to `out`.
    #[must_use]
    pub fn get(&self, key: &Key<'_>, now_ms: u64, out: &mut Vec<u8>) -> Option<Found> {
        let start = out.len();
        let (at, found) = self.look(key, |memory, entry| {
            out.truncate(start);
            let got = memory.value(entry.kind, entry.value_at(), entry.len, out).unwrap_or(Got::List);
            (entry.at, Found { got, flags: entry.flags, expires_ms: entry.expires_ms })
        })?;
        if !found.is_stale(now_ms) {
            self.memory.touch(at, key.hash);
        }
        Some(found)
    }

    /// When a key expires, milliseconds since 1970; 0: never.
    #[must_use]
    pub fn expires_ms(&self, key: &Key<'_>) -> Option<u64> {
        self.look(key, |_, entry| entry.expires_ms)
    }

    /// The result of `read` for a key's entry. It may be called several times, and for an entry that is not
    /// there; its last result holds.
    pub(crate) fn look<R>(&self, key: &Key<'_>, mut read: impl FnMut(&Memory<'_>, &Entry) -> R) -> Option<R> {
        let (memory, stripe) = (&self.memory, stripe_of(key.hash));
        for attempt in 0..TRIES_MAX {
            if let Some(before) = memory.stripe_before(stripe) {
                let answer = memory.find(key).map(|place| read(memory, &memory.entry(place.at)));
                if memory.is_unchanged(stripe, before) {
                    return answer;
                }
            }
            back_off(attempt);
        }
        let held = self.held(key);
        let (_, entry) = held.find(key)?;
        Some(read(memory, &entry))
    }
}

impl Memory<'_> {
    /// A value of this kind and length from a word on; `None`: it is none that can be copied.
    pub(crate) fn value(&self, kind: u8, at: usize, len: usize, out: &mut Vec<u8>) -> Option<Got> {
        match kind {
            kind if kind == Kind::Text as u8 => self.copy(at, len, out).then_some(Got::Text),
            kind if kind == Kind::Number as u8 => Some(Got::Number(f64::from_bits(self.peek(at)))),
            kind if kind == Kind::Boolean as u8 => Some(Got::Boolean(self.peek(at) & 0xff != 0)),
            _ => None,
        }
    }
}
