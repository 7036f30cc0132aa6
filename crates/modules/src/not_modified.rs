//! Conditional requests (RFC 9110 §13): whether the client has the file already, or asks for another
//! one than there is. Pure functions, run on loops.

use clearway_base::date;
use clearway_h1::Known;
use clearway_http::Request;

/// What the conditions of a request come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client wants the file.
    Send,
    /// It has it: 304.
    NotModified,
    /// It wants only what the file is not any more: 412.
    Failed,
}

/// The conditions of a request, as it sent them.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions<'a> {
    unmodified_since: Option<&'a [u8]>,
    matches: Option<&'a [u8]>,
    modified_since: Option<&'a [u8]>,
    none_match: Option<&'a [u8]>,
}

/// Judges the conditions of a request for a file with this date (seconds since the epoch) and tag, which is
/// empty if it has none.
pub(crate) fn judge(request: &Request<'_>, last_modified: i64, etag: &[u8]) -> Verdict {
    let conditions = Conditions {
        unmodified_since: request.header(Known::IfUnmodifiedSince),
        matches: request.header(Known::IfMatch),
        modified_since: request.header(Known::IfModifiedSince),
        none_match: request.header(Known::IfNoneMatch),
    };
    conditions.judge(last_modified, etag)
}

impl Conditions<'_> {
    fn judge(&self, last_modified: i64, etag: &[u8]) -> Verdict {
        if self.unmodified_since.is_some_and(|value| is_modified_after(value, last_modified)) {
            return Verdict::Failed;
        }
        if self.matches.is_some_and(|list| !is_listed(list, etag, Comparison::Strong)) {
            return Verdict::Failed;
        }
        if self.modified_since.is_none() && self.none_match.is_none() {
            return Verdict::Send;
        }
        // As in nginx the date must be the very same one.
        let is_modified = |value| date::parse_http_date(value) != Some(last_modified);
        if self.modified_since.is_some_and(is_modified) {
            return Verdict::Send;
        }
        if self.none_match.is_some_and(|list| !is_listed(list, etag, Comparison::Weak)) {
            return Verdict::Send;
        }
        Verdict::NotModified
    }
}

fn is_modified_after(value: &[u8], last_modified: i64) -> bool {
    date::parse_http_date(value).is_none_or(|date| date < last_modified)
}

/// Whether weak tags count (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of tags has this one, or is `*`.
fn is_listed(list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    if list == b"*" {
        return true;
    }
    let mut rest = if etag.is_empty() { &[] } else { list };
    while !rest.is_empty() {
        if comparison == Comparison::Weak {
            rest = rest.strip_prefix(b"W/").unwrap_or(rest);
        }
        if let Some(behind) = rest.strip_prefix(etag)
            && matches!(behind.trim_ascii_start().first(), None | Some(b','))
        {
            return true;
        }
        let comma = rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len());
        let behind = &rest[comma..];
        let skipped = behind.iter().take_while(|byte| matches!(byte, b',' | b' ' | b'\t')).count();
        rest = &behind[skipped..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: i64 = 784_111_777;
    const SAME: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const TAG: &[u8] = b"\"2ebc-5\"";

    fn judge(conditions: Conditions<'_>) -> Verdict {
        conditions.judge(DATE, TAG)
    }

    #[test]
    fn the_date_must_be_the_same() {
        let since = |value| judge(Conditions { modified_since: Some(value), ..Conditions::default() });
        assert_eq!(judge(Conditions::default()), Verdict::Send);
        assert_eq!(since(SAME), Verdict::NotModified);
        assert_eq!(since(LATER), Verdict::Send);
        assert_eq!(since(b"yesterday"), Verdict::Send);
    }

    #[test]
    fn tags_are_compared_weakly_and_both_conditions_count() {
        let none = |list| judge(Conditions { none_match: Some(list), ..Conditions::default() });
        assert_eq!(none(b"\"2ebc-5\""), Verdict::NotModified);
        assert_eq!(none(b"\"x\" , W/\"2ebc-5\" ,\"y\""), Verdict::NotModified);
        assert_eq!(none(b"*"), Verdict::NotModified);
        assert_eq!(none(b"\"2ebc-5"), Verdict::Send);
        assert_eq!(none(b"\"2ebc-5\"x"), Verdict::Send);
        let both = |modified_since, none_match| {
            judge(Conditions {
                modified_since: Some(modified_since),
                none_match: Some(none_match),
                ..Conditions::default()
            })
        };
        assert_eq!(both(SAME, TAG), Verdict::NotModified);
        assert_eq!(both(SAME, b"\"x\""), Verdict::Send);
        assert_eq!(both(LATER, TAG), Verdict::Send);
    }

    #[test]
    fn preconditions_fail() {
        let matches = |list| judge(Conditions { matches: Some(list), ..Conditions::default() });
        assert_eq!(matches(TAG), Verdict::Send);
        assert_eq!(matches(b"*"), Verdict::Send);
        assert_eq!(matches(b"W/\"2ebc-5\""), Verdict::Failed);
        let since = |value| judge(Conditions { unmodified_since: Some(value), ..Conditions::default() });
        assert_eq!(since(SAME), Verdict::Send);
        assert_eq!(since(LATER), Verdict::Send);
        assert_eq!(since(EARLIER), Verdict::Failed);
    }
}
