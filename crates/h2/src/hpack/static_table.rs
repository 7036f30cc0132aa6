//! The entries that both sides know from the beginning (RFC 7541, Appendix A).

/// How many there are; they have the numbers 1 to this one.
pub(super) const STATIC_ENTRIES: usize = 61;

/// Name and value; a value that is empty stands for none.
pub(super) const STATIC_TABLE: [(&str, &str); STATIC_ENTRIES] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The number of the first entry with a name in lower case.
pub(super) fn number_of(name: &[u8]) -> Option<usize> {
    // Names are few and short: those of the same length are two or three.
    let at = STATIC_TABLE.iter().position(|(entry, _)| entry.as_bytes() == name)?;
    Some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_numbers_of_the_specification() {
        for (number, name) in
            [(1, ":authority"), (2, ":method"), (8, ":status"), (32, "cookie"), (61, "www-authenticate")]
        {
            assert_eq!(number_of(name.as_bytes()), Some(number));
        }
        assert_eq!(STATIC_TABLE[15], ("accept-encoding", "gzip, deflate"));
        assert_eq!(number_of(b"x-other"), None);
    }
}
