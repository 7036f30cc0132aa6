//! The `types` of a level: file name extension to `Content-Type`. Built at load, immutable after,
//! searched on loops without allocation. Extensions match in any case.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;

/// What files of unknown extension are where no `default_type` is set.
pub const DEFAULT_TYPE: &str = "text/plain";

/// What nginx serves where no `types` block is in force.
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
            String::from_utf8_lossy(&self.extension),
            String::from_utf8_lossy(&self.content_type),
            String::from_utf8_lossy(&self.previous)
        )
    }
}

/// A table of extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Types {
    /// Sorted by extension, which is in lower case.
    types: Vec<(Box<[u8]>, Bytes)>,
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
    pub(crate) fn usual() -> Arc<Self> {
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
        match self.types.binary_search_by(|(other, _)| (**other).cmp(&*extension)) {
            Ok(at) => {
                let previous = std::mem::replace(&mut self.types[at].1, content_type.clone());
                Some(DuplicateExtension { extension, content_type, previous })
            }
            Err(at) => {
                self.types.insert(at, (extension, content_type));
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
        let lower = || extension.iter().map(u8::to_ascii_lowercase);
        let at = self.types.binary_search_by(|(other, _)| other.iter().copied().cmp(lower())).ok()?;
        Some(&self.types[at].1)
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
