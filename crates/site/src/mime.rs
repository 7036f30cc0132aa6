//! The `types` of a level: file name extension to `Content-Type`. Built at load, immutable after,
//! searched on loops without allocation. Extensions match in any case.

use clearway_base::log::Verbatim;
use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

/// The type of files with an unknown extension where no `default_type` is set.
pub const DEFAULT_TYPE: &str = "text/plain";

/// The types of nginx where no `types` block is in force.
const BUILT_IN: [(&str, &str); 3] = [("html", "text/html"), ("gif", "image/gif"), ("jpg", "image/jpeg")];

/// An extension that was given a second type, which replaces the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateExtension {
    /// In lower case.
    pub extension: Box<[u8]>,
    /// The type that counts.
    pub content_type: Bytes,
    /// The type that no longer does.
    pub previous: Bytes,
}

impl DuplicateExtension {
    /// nginx's text, for the level warn.
    #[must_use]
    pub fn message(&self) -> String {
        format!(
            "duplicate extension \"{}\", content type: \"{}\", previous content type: \"{}\"",
            Verbatim(&self.extension),
            Verbatim(&self.content_type),
            Verbatim(&self.previous)
        )
    }
}

/// A table of extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Types {
    /// Sorted by extension.
    types: Vec<Entry>,
}

/// The type of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The beginning of the extension: nearly all comparisons end with it.
    first: u64,
    /// In lower case.
    extension: Box<[u8]>,
    content_type: Bytes,
}

impl Entry {
    /// Whether it stands before an extension that begins with `first`, at it or behind it. Zeros behind a
    /// short one keep the order of the bytes.
    #[inline]
    fn compare(&self, first: u64, extension: &[u8]) -> Ordering {
        let lower = || extension.iter().map(u8::to_ascii_lowercase);
        self.first.cmp(&first).then_with(|| match self.extension.len().max(extension.len()) {
            // There is nothing that was not compared, but zeros in the longer one.
            ..=8 => self.extension.len().cmp(&extension.len()),
            _ => self.extension.iter().copied().cmp(lower()),
        })
    }
}

/// The first bytes of an extension in lower case, as a number that sorts as they do.
#[inline]
fn first_bytes(extension: &[u8]) -> u64 {
    let append = |first: u64, byte: &u8| (first << 8) | u64::from(byte.to_ascii_lowercase());
    let len = extension.len().min(8);
    let first = extension[..len].iter().fold(0, append);
    first.checked_shl(u64::BITS - 8 * len as u32).unwrap_or(0)
}

impl Default for Types {
    /// The built-in table.
    fn default() -> Self {
        let mut types = Self::empty();
        for (extension, content_type) in BUILT_IN {
            let duplicate = types.add(Bytes::from_static(content_type.as_bytes()), extension.as_bytes());
            debug_assert!(duplicate.is_none());
        }
        types
    }
}

impl Types {
    /// The built-in table, of which there is one.
    pub fn usual() -> Arc<Self> {
        static USUAL: LazyLock<Arc<Types>> = LazyLock::new(Arc::default);
        Arc::clone(&USUAL)
    }

    /// The table of an empty `types` block.
    #[must_use]
    pub fn empty() -> Self {
        Self { types: Vec::new() }
    }

    /// Adds one extension of a line of a `types` block; a duplicate is to be told.
    pub fn add(&mut self, content_type: Bytes, extension: &[u8]) -> Option<DuplicateExtension> {
        let extension: Box<[u8]> = extension.to_ascii_lowercase().into();
        let first = first_bytes(&extension);
        match self.types.binary_search_by(|entry| entry.compare(first, &extension)) {
            Ok(at) => {
                let previous = std::mem::replace(&mut self.types[at].content_type, content_type.clone());
                Some(DuplicateExtension { extension, content_type, previous })
            }
            Err(at) => {
                self.types.insert(at, Entry { first, extension, content_type });
                None
            }
        }
    }

    /// The type of an extension; `None` is for the default type. An empty extension has none.
    #[must_use]
    pub fn find(&self, extension: &[u8]) -> Option<&Bytes> {
        if extension.is_empty() {
            return None;
        }
        let first = first_bytes(extension);
        let at = self.types.binary_search_by(|entry| entry.compare(first, extension)).ok()?;
        Some(&self.types[at].content_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_types_match_in_any_case() {
        let types = Types::default();
        for (extension, expected) in
            [("html", "text/html"), ("HTML", "text/html"), ("gIf", "image/gif"), ("jpg", "image/jpeg")]
        {
            assert_eq!(types.find(extension.as_bytes()).unwrap(), expected);
        }
        for extension in ["", "htm", "htmlx", "jpeg", "css", "\0"] {
            assert_eq!(types.find(extension.as_bytes()), None);
        }
    }

    #[test]
    fn extensions_of_any_length_are_found_among_many() {
        let mut types = Types::empty();
        let extensions: [&[u8]; 13] = [
            b"a",
            b"a\0",
            b"a\0b",
            b"ab",
            b"b",
            b"webmanif",
            b"webmanifest",
            b"webmanifesu",
            b"WEBMANI",
            b"7z",
            b"\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"x-very-long-indeed",
        ];
        for extension in extensions {
            assert_eq!(types.add(Bytes::copy_from_slice(extension), extension), None);
        }
        for extension in extensions {
            assert_eq!(types.find(extension).unwrap(), extension);
            assert_eq!(types.find(&extension.to_ascii_uppercase()).unwrap(), extension);
        }
        for other in [&b"a\0\0"[..], b"a\0c", b"webmanifes", b"webmanifestx", b"webma", b"\xfe", b"c"] {
            assert_eq!(types.find(other), None);
        }
    }

    #[test]
    fn the_later_type_counts_and_is_told() {
        let mut types = Types::empty();
        assert_eq!(types.find(b"html"), None);
        assert_eq!(types.add(Bytes::from_static(b"a/b"), b"X"), None);
        assert_eq!(types.add(Bytes::from_static(b"a/c"), b"y"), None);
        let duplicate = types.add(Bytes::from_static(b"a/d"), b"x").unwrap();
        assert_eq!(
            duplicate.message(),
            "duplicate extension \"x\", content type: \"a/d\", previous content type: \"a/b\""
        );
        assert_eq!(types.find(b"X").unwrap(), "a/d");
        assert_eq!(types.find(b"y").unwrap(), "a/c");
    }
}
