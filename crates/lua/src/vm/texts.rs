//! Texts of files with code, as a generation has read them first: all its VMs compile the same, those that
//! are made later as well, whatever becomes of the files. Any thread; nothing waits.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Files that are remembered; others are read by each VM that needs them.
pub(crate) const FILES_MAX: usize = 4096;

/// Bytes of them.
pub(crate) const BYTES_MAX: usize = 64 << 20;

/// The texts of one generation.
#[derive(Debug, Default)]
pub(crate) struct Texts(ArcSwap<Known>);

#[derive(Clone, Debug, Default)]
struct Known {
    files: HashMap<Arc<[u8]>, Arc<[u8]>>,
    bytes: usize,
}

impl Texts {
    /// The text of a file, if it was read.
    pub(crate) fn find(&self, path: &[u8]) -> Option<Arc<[u8]>> {
        self.0.load().files.get(path).map(Arc::clone)
    }

    /// A file was read: the text that counts.
    pub(crate) fn keep(&self, path: &[u8], text: Vec<u8>) -> Arc<[u8]> {
        let (path, text): (Arc<[u8]>, Arc<[u8]>) = (path.into(), text.into());
        self.0.rcu(|known| {
            let bytes = known.bytes + path.len() + text.len();
            let has_room = known.files.len() < FILES_MAX && bytes <= BYTES_MAX;
            if !has_room || known.files.contains_key(&path) {
                return Arc::clone(known);
            }
            let mut files = known.files.clone();
            files.insert(Arc::clone(&path), Arc::clone(&text));
            Arc::new(Known { files, bytes })
        });
        self.find(&path).unwrap_or(text)
    }

    /// The text of a file, which is read now unless it was read before.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn get(
        &self,
        path: &[u8],
        read: impl FnOnce(&[u8]) -> std::io::Result<Vec<u8>>,
    ) -> std::io::Result<Arc<[u8]>> {
        match self.find(path) {
            Some(text) => Ok(text),
            None => Ok(self.keep(path, read(path)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_first_counts() {
        let texts = Texts::default();
        assert!(texts.find(b"/a").is_none());
        assert_eq!(&*texts.keep(b"/a", b"first".to_vec()), b"first");
        assert_eq!(&*texts.keep(b"/a", b"second".to_vec()), b"first");
        assert_eq!(&*texts.get(b"/a", |_| panic!("it was read")).unwrap(), b"first");
        assert!(texts.get(b"/b", |_| Err(std::io::Error::other("gone"))).is_err());
        // What there is no room for is what each one reads.
        assert_eq!(texts.keep(b"/big", vec![0; BYTES_MAX]).len(), BYTES_MAX);
        assert!(texts.find(b"/big").is_none());
        for file in 0..FILES_MAX {
            texts.keep(format!("/{file}").as_bytes(), Vec::new());
        }
        assert!(texts.find(b"/0").is_some());
        assert!(texts.find(format!("/{}", FILES_MAX - 1).as_bytes()).is_none(), "/a came before");
    }
}
