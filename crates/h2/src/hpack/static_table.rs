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

/// The longest name.
const NAME_MAX_BYTES: usize = 27;
/// Names of one length, at most.
const SAME_LENGTH_MAX: usize = 9;

/// The numbers of names by their length, 0 where there are no more.
static BY_LENGTH: [[u8; SAME_LENGTH_MAX]; NAME_MAX_BYTES + 1] = by_length();

const fn by_length() -> [[u8; SAME_LENGTH_MAX]; NAME_MAX_BYTES + 1] {
    let mut all = [[0; SAME_LENGTH_MAX]; NAME_MAX_BYTES + 1];
    let mut counts = [0; NAME_MAX_BYTES + 1];
    let mut at = 0;
    while at < STATIC_ENTRIES {
        let name = STATIC_TABLE[at].0.as_bytes();
        if at == 0 || !is_same(name, STATIC_TABLE[at - 1].0.as_bytes()) {
            all[name.len()][counts[name.len()]] = at as u8 + 1;
            counts[name.len()] += 1;
        }
        at += 1;
    }
    all
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// The number of the first entry with a name in lower case.
pub(super) fn number_of(name: &[u8]) -> Option<usize> {
    let numbers = BY_LENGTH.get(name.len())?;
    let numbers = numbers.iter().map(|number| usize::from(*number)).take_while(|number| *number > 0);
    numbers.into_iter().find(|number| STATIC_TABLE[number - 1].0.as_bytes() == name)
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
        for (name, _) in STATIC_TABLE {
            let first = STATIC_TABLE.iter().position(|(entry, _)| *entry == name).map(|at| at + 1);
            assert_eq!(number_of(name.as_bytes()), first);
        }
        assert_eq!(STATIC_TABLE[15], ("accept-encoding", "gzip, deflate"));
        assert_eq!(number_of(b"x-other"), None);
    }
}
