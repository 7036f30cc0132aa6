//! Certificates that are sent compressed (RFC 8879). A server sends the same message again and again, so what
//! came of it is kept, and no handshake after the first compresses anything.
#![forbid(unsafe_code)]

use std::io::Write;
use std::sync::Arc;

use arc_swap::ArcSwap;
use flate2::Compression;
use flate2::write::ZlibEncoder;

/// The number of zlib in certificates' compression.
pub(crate) const ZLIB: u16 = 1;

/// Messages that are kept: one for each kind of key, with and without a staple.
const KEPT_MAX: usize = 8;

/// A message and what came of it.
type Pair = (Vec<u8>, Arc<[u8]>);

/// The compressed certificate messages.
#[derive(Default)]
pub(crate) struct CompressedCertificates {
    kept: ArcSwap<Vec<Arc<Pair>>>,
}

impl CompressedCertificates {
    /// A message, compressed. Threads that ask for a new one at once may all compress it.
    pub(crate) fn of(&self, message: &[u8]) -> Option<Arc<[u8]>> {
        let kept = self.kept.load();
        if let Some(pair) = kept.iter().find(|pair| pair.0 == message) {
            return Some(Arc::clone(&pair.1));
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(message).ok()?;
        let compressed: Arc<[u8]> = encoder.finish().ok()?.into();
        let pair = Arc::new((message.to_vec(), Arc::clone(&compressed)));
        // The oldest goes.
        debug_assert!(kept.len() <= KEPT_MAX, "no more are kept");
        let newest = kept.iter().take(KEPT_MAX - 1).cloned();
        self.kept.store(Arc::new(std::iter::once(pair).chain(newest).collect()));
        Some(compressed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decompressed(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn messages_are_compressed_once_and_not_kept_for_ever() {
        let all = CompressedCertificates::default();
        let first = all.of(b"message").unwrap();
        assert_eq!(decompressed(&first), b"message");
        assert!(Arc::ptr_eq(&first, &all.of(b"message").unwrap()));
        for number in 0..100_u8 {
            assert_eq!(decompressed(&all.of(&[number; 50]).unwrap()), [number; 50]);
        }
        assert_eq!(all.kept.load().len(), KEPT_MAX);
        assert!(!Arc::ptr_eq(&first, &all.of(b"message").unwrap()));
    }
}
