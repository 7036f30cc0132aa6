//! Keys that tickets are encrypted with. A ticket begins with the name of its key, so that all processes and
//! configurations that have the same ring open each other's.
//!
//! Files have the form of nginx's (`ssl_session_ticket_key`): a name of 16 bytes and 32 or 64 bytes of keys.
//! The key is derived from all of these, so a ring of files is the same everywhere.
#![forbid(unsafe_code)]

use std::fmt;

/// Bytes of a key's name.
pub const NAME_LENGTH: usize = 16;

/// Sizes of a file with a key, bytes.
pub const FILE_LENGTHS: [usize; 2] = [48, 80];

/// Rotated keys that still open tickets.
const OLD_KEYS_MAX: usize = 2;

/// Secret bytes of a key that is made here.
pub(crate) const RANDOM_LENGTH: usize = 80;

/// One key.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey {
    name: [u8; NAME_LENGTH],
    secret: Vec<u8>,
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TicketKey {
    /// The key of a file; `None` if it has another length.
    #[must_use]
    pub fn from_file(content: &[u8]) -> Option<Self> {
        if !FILE_LENGTHS.contains(&content.len()) {
            return None;
        }
        let (name, secret) = content.split_first_chunk()?;
        Some(Self { name: *name, secret: secret.to_vec() })
    }

    /// A key of these random bytes.
    #[must_use]
    pub fn from_random(random: &[u8; RANDOM_LENGTH]) -> Self {
        Self::from_file(random).expect("it has the length of a file")
    }

    /// The beginning of a ticket of this key.
    #[must_use]
    pub fn name(&self) -> &[u8; NAME_LENGTH] {
        &self.name
    }

    /// The secret that the key of a cipher is derived from.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.secret
    }
}

/// Keys, of which the first encrypts. A ring never changes: a rotated one is another ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRing {
    keys: Vec<TicketKey>,
}

impl KeyRing {
    /// A ring of one key at least.
    #[must_use]
    pub fn new(keys: Vec<TicketKey>) -> Option<Self> {
        if keys.is_empty() { None } else { Some(Self { keys }) }
    }

    /// With another key in front; those before it open tickets for two rotations more.
    #[must_use]
    pub fn rotated(&self, first: TicketKey) -> Self {
        debug_assert!(!self.keys.is_empty(), "a ring has a key that encrypts");
        let old = self.keys.iter().take(OLD_KEYS_MAX).cloned();
        let keys: Vec<_> = std::iter::once(first).chain(old).collect();
        debug_assert!(keys.len() <= 1 + OLD_KEYS_MAX, "so many keys open tickets at most");
        Self { keys }
    }

    /// The one that encrypts first.
    #[must_use]
    pub fn keys(&self) -> &[TicketKey] {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> TicketKey {
        TicketKey::from_random(&[byte; RANDOM_LENGTH])
    }

    #[test]
    fn files_have_two_lengths() {
        for length in [0, 47, 49, 64, 79, 81] {
            assert_eq!(TicketKey::from_file(&vec![1; length]), None, "{length}");
        }
        let file: Vec<u8> = (0..48).collect();
        let key = TicketKey::from_file(&file).unwrap();
        assert_eq!((&key.name()[..], key.secret()), (&file[..16], &file[16..]));
    }

    #[test]
    fn a_rotated_key_opens_for_two_rotations() {
        let mut ring = KeyRing::new(vec![key(0)]).unwrap();
        for byte in 1..=2 {
            ring = ring.rotated(key(byte));
            assert_eq!(ring.keys()[0], key(byte));
            assert!(ring.keys().contains(&key(0)));
        }
        assert!(!ring.rotated(key(3)).keys().contains(&key(0)));
        assert_eq!(KeyRing::new(Vec::new()), None);
    }

    #[test]
    fn secrets_are_not_shown() {
        assert!(!format!("{:?}", TicketKey::from_file(&[b'0'; 48])).contains("secret"));
    }
}
