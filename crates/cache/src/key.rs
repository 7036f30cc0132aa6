//! The key that a stored response is found by: the value of `proxy_cache_key`, its MD5 (the file's name) and
//! its CRC-32 (which the file says again).

use std::fmt;

use md5::{Digest as _, Md5};

/// Length of a digest, bytes.
pub const DIGEST_BYTES: usize = 16;

/// The MD5 that names a file: of a key, or of a key and the request headers that `Vary` names.
///
/// MD5 is the format's, and no defence: a file says its key in full, and is used for no other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key with what is made of it. Made once per request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    text: Vec<u8>,
    digest: Digest,
    crc32: u32,
}

impl Key {
    /// The key of this text.
    #[must_use]
    pub fn new(text: Vec<u8>) -> Self {
        let digest = Digest(Md5::digest(&text).into());
        let crc32 = crc32fast::hash(&text);
        Self { text, digest, crc32 }
    }

    /// The key as it stands in the file.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The digest that names the file, unless the response varies.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The checksum of the key, which the file's header repeats.
    #[must_use]
    pub fn crc32(&self) -> u32 {
        self.crc32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_digest_and_the_sum_that_nginx_computes() {
        // From a file that nginx 1.31.5 wrote for this key.
        let key = Key::new(b"/some/page?x=1".to_vec());
        assert_eq!(key.digest().to_string(), "cac227e1732aaa07f469915fd6f86539");
        assert_eq!(key.crc32(), 0xea5b_8726);
    }
}
