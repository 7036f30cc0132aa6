//! Header lines as ranges of the received bytes, the headers that the server itself acts on, and the hash
//! by which a header is found without comparing every name. Pure functions; any thread.

/// A range of the received bytes. Ranges instead of slices let the head outlive a borrow of the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// From `start` up to `end`.
    #[inline]
    pub fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end);
        Span { start: offset(start), end: offset(end) }
    }

    /// First byte.
    #[inline]
    pub fn start(self) -> usize {
        self.start as usize
    }

    /// The index behind the last byte.
    #[inline]
    pub fn end(self) -> usize {
        self.end as usize
    }

    /// Number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.end() - self.start()
    }

    /// Whether there is nothing, or nothing was received.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes, from the buffer that the head was parsed from (empty if that is not the one).
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start()..self.end()).unwrap_or_default()
    }
}

/// An offset as a span keeps it. Parsers look at no more than the first [`HEAD_MAX_BYTES`], so that offsets
/// fit in 32 bits.
#[inline]
pub fn offset(at: usize) -> u32 {
    debug_assert!(at <= HEAD_MAX_BYTES);
    at as u32
}

/// How much of what was received can be parsed as one head, bytes, whatever the options allow.
pub const HEAD_MAX_BYTES: usize = u32::MAX as usize;

/// One header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name as received.
    pub name: Span,
    /// The value without the spaces around it.
    pub value: Span,
    /// [`name_hash`] of the name.
    pub hash: u32,
    /// Which of the headers that the server knows it is.
    pub known: Known,
}

const LOWER: u64 = 0x2020_2020_2020_2020;

/// Eight bytes of a name, letters as small ones. Where there are less than eight, all of them.
#[inline]
const fn last_word(name: &[u8]) -> u64 {
    if let Some(last) = name.last_chunk::<8>() {
        return u64::from_le_bytes(*last) | LOWER;
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        return (u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32) | LOWER;
    }
    match *name {
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]) as u64 | LOWER,
        [a, b] => u32::from_le_bytes([a, b, 0, 0]) as u64 | LOWER,
        [a] => a as u64 | LOWER,
        _ => LOWER,
    }
}

/// Whether two names differ in nothing but case. They have no control bytes: only those could become a
/// digit or a dash by the bit that makes a letter a small one.
#[inline]
fn is_same_name(a: &[u8], b: &[u8]) -> bool {
    let lower = |block: &[u8; 8]| u64::from_le_bytes(*block) | LOWER;
    let (a_blocks, b_blocks) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    a.len() == b.len()
        && last_word(a) == last_word(b)
        && a_blocks.iter().zip(b_blocks).all(|(a, b)| lower(a) == lower(b))
}

/// Hash of a header name, the same for every spelling of its case.
#[inline]
pub const fn name_hash(name: &[u8]) -> u32 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = name.len() as u64;
    let mut rest = name;
    while let Some((block, tail)) = rest.split_first_chunk::<8>() {
        hash = (hash.rotate_left(5) ^ (u64::from_le_bytes(*block) | LOWER)).wrapping_mul(MULTIPLIER);
        rest = tail;
    }
    hash = (hash.rotate_left(5) ^ last_word(name)).wrapping_mul(MULTIPLIER);
    (hash >> 32) as u32
}

macro_rules! known {
    ($($(#[$doc:meta])* $id:ident = $name:literal,)*) => {
        /// The headers of requests and responses that the server itself acts on or has variables for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Known {
            /// Any other header.
            Other,
            $(#[doc = concat!("`", $name, "`.")] $(#[$doc])* $id,)*
        }

        impl Known {
            /// All but `Other`.
            pub const ALL: &[Known] = &[$(Known::$id,)*];

            const NAMES: &[&str] = &["", $($name,)*];

            /// The name in its usual spelling; empty for `Other`.
            #[inline]
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}

known! {
    Accept = "Accept",
    AcceptEncoding = "Accept-Encoding",
    AcceptLanguage = "Accept-Language",
    AcceptRanges = "Accept-Ranges",
    Authorization = "Authorization",
    CacheControl = "Cache-Control",
    Connection = "Connection",
    ContentDisposition = "Content-Disposition",
    ContentEncoding = "Content-Encoding",
    ContentLength = "Content-Length",
    ContentRange = "Content-Range",
    ContentType = "Content-Type",
    Cookie = "Cookie",
    Date = "Date",
    Depth = "Depth",
    Destination = "Destination",
    ETag = "ETag",
    Expect = "Expect",
    Expires = "Expires",
    Host = "Host",
    IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since",
    IfNoneMatch = "If-None-Match",
    IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since",
    KeepAlive = "Keep-Alive",
    LastModified = "Last-Modified",
    Link = "Link",
    Location = "Location",
    Overwrite = "Overwrite",
    ProxyAuthorization = "Proxy-Authorization",
    Range = "Range",
    Referer = "Referer",
    Refresh = "Refresh",
    Server = "Server",
    SetCookie = "Set-Cookie",
    Status = "Status",
    Te = "TE",
    TransferEncoding = "Transfer-Encoding",
    Upgrade = "Upgrade",
    UserAgent = "User-Agent",
    Vary = "Vary",
    Via = "Via",
    WwwAuthenticate = "WWW-Authenticate",
    XAccelBuffering = "X-Accel-Buffering",
    XAccelCharset = "X-Accel-Charset",
    XAccelExpires = "X-Accel-Expires",
    XAccelLimitRate = "X-Accel-Limit-Rate",
    XAccelRedirect = "X-Accel-Redirect",
    XForwardedFor = "X-Forwarded-For",
    XRealIp = "X-Real-IP",
}

impl Known {
    /// Which header `name` is, in any case.
    pub fn find(name: &[u8]) -> Known {
        Known::find_hashed(name, name_hash(name))
    }

    /// Finds a known name whose hash is at hand.
    #[inline]
    pub fn find_hashed(name: &[u8], hash: u32) -> Known {
        let mut slot = slot(hash);
        loop {
            match SLOTS[slot] {
                // Names are compared as well: collisions can be made on purpose.
                (found, known) if found == hash && is_same_name(known.name().as_bytes(), name) => {
                    return known;
                }
                (_, Known::Other) => return Known::Other,
                _ => slot = (slot + 1) % SLOTS.len(),
            }
        }
    }

    /// Whether a second line with this header is refused.
    #[inline]
    pub fn is_unique(self) -> bool {
        const UNIQUE: u64 = Known::Authorization.bit()
            | Known::ContentLength.bit()
            | Known::ContentRange.bit()
            | Known::Expect.bit()
            | Known::Host.bit()
            | Known::IfMatch.bit()
            | Known::IfModifiedSince.bit()
            | Known::IfNoneMatch.bit()
            | Known::IfRange.bit()
            | Known::IfUnmodifiedSince.bit()
            | Known::ProxyAuthorization.bit()
            | Known::TransferEncoding.bit();
        UNIQUE & self.bit() != 0
    }

    /// Its bit in a set of headers.
    #[inline]
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// The known headers by hash, with linear probing. At most half full, so that a search soon ends.
static SLOTS: [(u32, Known); 128] = known_slots();

const fn slot(hash: u32) -> usize {
    (hash >> 25) as usize
}

const fn known_slots() -> [(u32, Known); 128] {
    let mut slots = [(0, Known::Other); 128];
    let mut at = 0;
    while at < Known::ALL.len() {
        let known = Known::ALL[at];
        let hash = name_hash(known.name().as_bytes());
        let mut free = slot(hash);
        while !matches!(slots[free].1, Known::Other) {
            free = (free + 1) % slots.len();
        }
        slots[free] = (hash, known);
        at += 1;
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_header_is_found_in_any_case() {
        for &known in Known::ALL {
            let name = known.name();
            assert_eq!(Known::find(name.as_bytes()), known);
            assert_eq!(Known::find(name.to_uppercase().as_bytes()), known);
            assert_eq!(Known::find(name.to_lowercase().as_bytes()), known);
            assert_eq!(Known::find(format!("{name}x").as_bytes()), Known::Other);
        }
        assert!(Known::ALL.len() < 64, "the set of seen headers is a 64-bit word");
    }

    #[test]
    fn hash_ignores_case_and_nothing_else() {
        assert_eq!(name_hash(b"X-Request-Identity"), name_hash(b"x-rEQUEST-iDENTITY"));
        assert_ne!(name_hash(b"X-Request-Id"), name_hash(b"X-Request-Ie"));
        assert_ne!(name_hash(b"ab"), name_hash(b"ba"));
        assert_ne!(name_hash(b""), name_hash(b" "));
    }
}
