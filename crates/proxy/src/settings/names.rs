//! Sets of header names. Most names that are asked for are known to the server, and these are one bit each.

use clearway_message::Known;

/// A set of header names.
#[derive(Debug, Default)]
pub(crate) struct NameSet {
    /// The known headers, as bits of [`Known::bit`].
    known: u64,
    others: Vec<Box<[u8]>>,
}

impl NameSet {
    pub(crate) fn add(&mut self, name: &[u8]) {
        match Known::find(name) {
            Known::Other => self.others.push(name.into()),
            known => self.known |= known.bit(),
        }
    }

    /// Whether it has a name in any case; `known` is what it is known as.
    #[inline]
    pub(crate) fn has(&self, known: Known, name: &[u8]) -> bool {
        match known {
            Known::Other => self.others.iter().any(|other| other.eq_ignore_ascii_case(name)),
            known => self.known & known.bit() != 0,
        }
    }
}

impl<'a> FromIterator<&'a [u8]> for NameSet {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(names: I) -> Self {
        let mut set = Self::default();
        names.into_iter().for_each(|name| set.add(name));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        let set: NameSet = [&b"date"[..], b"X-One"].into_iter().collect();
        for (name, is_there) in [("Date", true), ("x-oNE", true), ("Server", false), ("X-Two", false)] {
            assert_eq!(set.has(Known::find(name.as_bytes()), name.as_bytes()), is_there, "{name}");
        }
    }
}
