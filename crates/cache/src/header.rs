//! The header of a cache file: 336 bytes as nginx 1.31 writes them on 64-bit little-endian machines (version
//! 5), then the key in full. Behind it follow the response's head as it came, and its body.
//!
//! A file may have been written by nginx, by us, half, or by nobody: nothing in it is believed before
//! [`StoredHeader::read`] has compared it with the key that was asked for.

use std::fmt;

use clearway_base::log::Level;

use crate::key::{DIGEST_BYTES, Digest, Key};

/// The version that is read and written.
pub const VERSION: u64 = 5;

/// Length of the part with fixed places, bytes.
pub const HEADER_BYTES: usize = 336;

/// An entity tag, or the names in `Vary`, at most, bytes. Tags that are longer are not kept; responses with
/// a longer `Vary` are not stored.
pub const NAME_MAX_BYTES: usize = 128;

/// The text in front of the key.
const KEY_PREFIX: &[u8] = b"\nKEY: ";

/// Places in the header, bytes from its beginning.
mod at {
    pub(super) const VERSION: usize = 0;
    pub(super) const VALID_SEC: usize = 8;
    pub(super) const UPDATING_SEC: usize = 16;
    pub(super) const ERROR_SEC: usize = 24;
    pub(super) const LAST_MODIFIED: usize = 32;
    pub(super) const DATE: usize = 40;
    pub(super) const CRC32: usize = 48;
    pub(super) const VALID_MSEC: usize = 52;
    pub(super) const HEADER_START: usize = 54;
    pub(super) const BODY_START: usize = 56;
    pub(super) const ETAG_LEN: usize = 58;
    pub(super) const ETAG: usize = 59;
    pub(super) const VARY_LEN: usize = 187;
    pub(super) const VARY: usize = 188;
    pub(super) const VARIANT: usize = 316;
}

/// The header of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredHeader<'b> {
    /// May be used until then, Unix seconds.
    pub valid_sec: i64,
    /// May be used for so long behind that while it is updated, seconds.
    pub updating_sec: i64,
    /// May be used for so long behind that where the upstream fails, seconds.
    pub error_sec: i64,
    /// `Last-Modified`, Unix seconds; −1 without.
    pub last_modified: i64,
    /// When it was stored, Unix seconds.
    pub date: i64,
    /// Milliseconds of the second in which it was stored.
    pub valid_msec: u16,
    /// Where the body begins, bytes from the file's beginning.
    pub body_start: u16,
    /// The entity tag; empty without.
    pub etag: &'b [u8],
    /// The request headers that it depends on; empty without.
    pub vary: &'b [u8],
    /// Which variant it is, where `vary` is not empty.
    pub variant: Digest,
}

/// Why a file is not used. Its text is nginx's, without `cache file "…"` in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Shorter than its header and key, or says that its body begins in them.
    TooSmall,
    /// Written in another format.
    Version,
    /// The file holds another key with the same digest.
    Collision,
    /// The head does not fit into the buffer for it.
    TooLongHeader,
    /// A length that does not fit its field.
    VaryLength,
}

impl Unusable {
    /// How severe nginx takes it for.
    #[must_use]
    pub fn level(self) -> Level {
        if self == Self::Version { Level::Info } else { Level::Crit }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooSmall => "is too small",
            Self::Version => "version mismatch",
            Self::Collision => "has md5 collision",
            Self::TooLongHeader => "has too long header",
            Self::VaryLength => "has incorrect vary length",
        })
    }
}

impl<'b> StoredHeader<'b> {
    /// Where the response's head begins in the file of this key, bytes from its beginning.
    #[must_use]
    pub fn head_start(key: &Key) -> usize {
        HEADER_BYTES + KEY_PREFIX.len() + key.text().len() + 1
    }

    /// Reads the beginning of a file that should hold this key. `buffer_bytes` is the room that there is for
    /// everything up to the body (`proxy_buffer_size`).
    ///
    /// # Errors
    /// See [`Unusable`].
    pub fn read(file: &'b [u8], key: &Key, buffer_bytes: usize) -> Result<Self, Unusable> {
        let start = Self::head_start(key);
        if file.len() < start {
            return Err(Unusable::TooSmall);
        }
        if u64::from_le_bytes(field(file, at::VERSION)) != VERSION {
            return Err(Unusable::Version);
        }
        let says_key = &file[HEADER_BYTES..start];
        let is_key = u32::from_le_bytes(field(file, at::CRC32)) == key.crc32()
            && usize::from(u16::from_le_bytes(field(file, at::HEADER_START))) == start
            && says_key.starts_with(KEY_PREFIX)
            && says_key[KEY_PREFIX.len()..].starts_with(key.text());
        if !is_key {
            return Err(Unusable::Collision);
        }
        let body_start = u16::from_le_bytes(field(file, at::BODY_START));
        if usize::from(body_start) > buffer_bytes {
            return Err(Unusable::TooLongHeader);
        }
        if usize::from(body_start) < start {
            return Err(Unusable::TooSmall);
        }
        let text = |length: usize, at: usize| {
            let length = usize::from(file[length]);
            if length > NAME_MAX_BYTES { Err(Unusable::VaryLength) } else { Ok(&file[at..at + length]) }
        };
        Ok(Self {
            valid_sec: i64::from_le_bytes(field(file, at::VALID_SEC)),
            updating_sec: i64::from_le_bytes(field(file, at::UPDATING_SEC)),
            error_sec: i64::from_le_bytes(field(file, at::ERROR_SEC)),
            last_modified: i64::from_le_bytes(field(file, at::LAST_MODIFIED)),
            date: i64::from_le_bytes(field(file, at::DATE)),
            valid_msec: u16::from_le_bytes(field(file, at::VALID_MSEC)),
            body_start,
            etag: text(at::ETAG_LEN, at::ETAG)?,
            vary: text(at::VARY_LEN, at::VARY)?,
            variant: Digest(field::<DIGEST_BYTES>(file, at::VARIANT)),
        })
    }

    /// Writes the header and the key, in front of the response's head. A tag or a `Vary` that is too long
    /// ([`NAME_MAX_BYTES`]) is left out. The key's length must have been checked: the head begins within
    /// the first 65,535 bytes.
    pub fn write(&self, key: &Key, out: &mut Vec<u8>) {
        let begin = out.len();
        out.resize(begin + HEADER_BYTES, 0);
        let fixed = &mut out[begin..];
        let mut put = |at: usize, bytes: &[u8]| fixed[at..at + bytes.len()].copy_from_slice(bytes);
        let head_start = u16::try_from(Self::head_start(key)).unwrap_or(u16::MAX);
        put(at::VERSION, &VERSION.to_le_bytes());
        put(at::VALID_SEC, &self.valid_sec.to_le_bytes());
        put(at::UPDATING_SEC, &self.updating_sec.to_le_bytes());
        put(at::ERROR_SEC, &self.error_sec.to_le_bytes());
        put(at::LAST_MODIFIED, &self.last_modified.to_le_bytes());
        put(at::DATE, &self.date.to_le_bytes());
        put(at::CRC32, &key.crc32().to_le_bytes());
        put(at::VALID_MSEC, &self.valid_msec.to_le_bytes());
        put(at::HEADER_START, &head_start.to_le_bytes());
        put(at::BODY_START, &self.body_start.to_le_bytes());
        for (length, place, text) in
            [(at::ETAG_LEN, at::ETAG, self.etag), (at::VARY_LEN, at::VARY, self.vary)]
        {
            if let Some(bytes) = u8::try_from(text.len()).ok().filter(|&n| usize::from(n) <= NAME_MAX_BYTES) {
                put(length, &[bytes]);
                put(place, text);
            }
        }
        if !self.vary.is_empty() {
            put(at::VARIANT, &self.variant.0);
        }
        out.extend_from_slice(KEY_PREFIX);
        out.extend_from_slice(key.text());
        out.push(b'\n');
    }
}

/// `N` bytes from this place of a header that is known to be whole.
fn field<const N: usize>(file: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&file[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "/some/page?x=1";

    /// A header as nginx 1.31.5 wrote it, with the zeros at the ends of its fields left out.
    fn written_by_nginx() -> Vec<u8> {
        let mut file = vec![0; HEADER_BYTES];
        let mut put = |at: usize, hex: &str| {
            for (place, pair) in file[at..].iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
                let pair = std::str::from_utf8(pair).expect("digits");
                *place = u8::from_str_radix(pair, 16).expect("digits");
            }
        };
        put(0, "05000000000000000dc4036b000000003200000000000000460000000000000");
        put(32, "775f016b0000000025c0036b00000000");
        put(48, "26875bea00006501720207226162632d3122");
        put(184, "000000174163636570742d456e636f64696e672c20582d4b696e64");
        put(316, "051a2dec38c53e1f7636259f0321ccce");
        put(48, "26875bea");
        file.extend_from_slice(b"\nKEY: /some/page?x=1\n");
        file
    }

    fn key() -> Key {
        Key::new(KEY.as_bytes().to_vec())
    }

    fn of_nginx() -> StoredHeader<'static> {
        StoredHeader {
            valid_sec: 0x6b03_c40d,
            updating_sec: 50,
            error_sec: 70,
            last_modified: 0x6b01_5f77,
            date: 0x6b03_c025,
            valid_msec: 0,
            body_start: 0x272,
            etag: b"\"abc-1\"",
            vary: b"Accept-Encoding, X-Kind",
            variant: Digest(*b"\x05\x1a\x2d\xec\x38\xc5\x3e\x1f\x76\x36\x25\x9f\x03\x21\xcc\xce"),
        }
    }

    #[test]
    fn a_header_is_byte_for_byte_what_nginx_writes() {
        let mut written = Vec::new();
        of_nginx().write(&key(), &mut written);
        assert_eq!(written, written_by_nginx());
        assert_eq!(written.len(), StoredHeader::head_start(&key()));
    }

    #[test]
    fn a_header_of_nginx_is_read() {
        assert_eq!(StoredHeader::read(&written_by_nginx(), &key(), 4096), Ok(of_nginx()));
    }

    #[test]
    fn what_does_not_fit_is_not_used_and_named_as_nginx_names_it() {
        let change = |at: usize, to: u8| {
            let mut file = written_by_nginx();
            file[at] = to;
            file
        };
        let why = |file: &[u8]| StoredHeader::read(file, &key(), 4096).err().map(|why| why.to_string());
        let cases = [
            (written_by_nginx()[..356].to_vec(), "is too small"),
            (change(at::VERSION, 3), "version mismatch"),
            (change(at::CRC32, 0), "has md5 collision"),
            (change(at::HEADER_START, 0x64), "has md5 collision"),
            (change(HEADER_BYTES + 8, b'x'), "has md5 collision"),
            (change(at::BODY_START + 1, 0x20), "has too long header"),
            (change(at::BODY_START + 1, 0), "is too small"),
            (change(at::VARY_LEN, 129), "has incorrect vary length"),
            (change(at::ETAG_LEN, 255), "has incorrect vary length"),
        ];
        for (file, text) in cases {
            assert_eq!(why(&file).as_deref(), Some(text));
        }
        let other = Key::new(b"/some/page?x=2".to_vec());
        assert_eq!(StoredHeader::read(&written_by_nginx(), &other, 4096), Err(Unusable::Collision));
        assert_eq!(Unusable::Version.level(), Level::Info);
        assert_eq!(Unusable::TooSmall.level(), Level::Crit);
    }

    #[test]
    fn a_tag_that_is_too_long_is_left_out() {
        let etag = [b'e'; NAME_MAX_BYTES + 1];
        let mut file = Vec::new();
        StoredHeader { etag: &etag, ..of_nginx() }.write(&key(), &mut file);
        let read = StoredHeader::read(&file, &key(), 4096).expect("a header");
        assert_eq!(read, StoredHeader { etag: b"", ..of_nginx() });
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(
            mut file in prop::collection::vec(any::<u8>(), 0..500),
            changes in prop::collection::vec((0usize..400, any::<u8>()), 0..4),
        ) {
            let _ = StoredHeader::read(&file, &key(), 65_535);
            file = written_by_nginx();
            for (at, to) in changes {
                if let Some(byte) = file.get_mut(at) {
                    *byte = to;
                }
            }
            if let Ok(read) = StoredHeader::read(&file, &key(), 65_535) {
                prop_assert!(read.etag.len() <= NAME_MAX_BYTES && read.vary.len() <= NAME_MAX_BYTES);
                let mut again = Vec::new();
                read.write(&key(), &mut again);
                let starts = StoredHeader::read(&again, &key(), 65_535).map(|header| header.body_start);
                prop_assert_eq!(starts, Ok(read.body_start));
            }
        }
    }
}
