//! Conditional requests (RFC 9110 §13): whether the client has the response already, or asks for another
//! one than there is. A header filter; microseconds on the loop of the request. It comes before those that
//! change the response.

#[cfg(fuzzing)]
pub mod fuzzing;

use clearway_base::date;
use clearway_http::{
    BodyFilter, Conditions as JudgedBy, FilterSpec, Filtering, IfModifiedSince, Module, Ranges, Request,
    ResponseHead,
};
use clearway_message::Known;

/// The module.
pub static NOT_MODIFIED: Module = Module { name: "not_modified", filters: FILTERS, ..Module::EMPTY };

static FILTERS: &[FilterSpec] = &[FilterSpec { enabled: |_| true, filter }];

/// The result of the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client wants the response.
    Send,
    /// The client has the current response: 304.
    NotModified,
    /// The request has a condition that the response does not meet any more: 412.
    Failed,
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let head = filtering.head();
    if head.status != 200 || head.conditions == JudgedBy::JudgedThere {
        return None;
    }
    let conditions = Conditions::of(request)?;
    let head = filtering.head();
    match conditions.judge(head.last_modified, head.etag.as_deref()) {
        Verdict::Send => {}
        Verdict::NotModified => {
            head.status = 304;
            head.content_type = None;
            head.content_length = None;
            head.ranges = Ranges::Refused;
            head.content_encoding = None;
        }
        Verdict::Failed => {
            *head = ResponseHead::default();
            filtering.refuse_and_close(412);
        }
    }
    None
}

/// Whether the body of a response with this date (seconds since the epoch) and tag will be sent.
pub(crate) fn is_sent(request: &Request<'_>, last_modified: i64, etag: Option<&[u8]>) -> bool {
    let Some(conditions) = Conditions::of(request) else { return true };
    conditions.judge(Some(last_modified), etag) == Verdict::Send
}

/// The conditions of a request, as it sent them.
#[derive(Clone, Copy, Debug)]
struct Conditions<'a> {
    unmodified_since: Option<&'a [u8]>,
    matches: Option<&'a [u8]>,
    modified_since: Option<&'a [u8]>,
    none_match: Option<&'a [u8]>,
    dates: IfModifiedSince,
}

impl<'a> Conditions<'a> {
    fn of(request: &'a Request<'_>) -> Option<Self> {
        if !request.is_main() {
            return None;
        }
        let conditions = Self {
            unmodified_since: request.header(Known::IfUnmodifiedSince),
            matches: request.header(Known::IfMatch),
            modified_since: request.header(Known::IfModifiedSince),
            none_match: request.header(Known::IfNoneMatch),
            dates: *request.location().core.sending.if_modified_since,
        };
        let Self { unmodified_since, matches, modified_since, none_match, .. } = conditions;
        let is_any = unmodified_since.or(matches).or(modified_since).or(none_match).is_some();
        is_any.then_some(conditions)
    }

    fn judge(&self, last_modified: Option<i64>, etag: Option<&[u8]>) -> Verdict {
        if self.unmodified_since.is_some_and(|value| is_modified_after(value, last_modified)) {
            return Verdict::Failed;
        }
        if self.matches.is_some_and(|list| !is_listed(list, etag, Comparison::Strong)) {
            return Verdict::Failed;
        }
        if self.modified_since.is_none() && self.none_match.is_none() {
            return Verdict::Send;
        }
        if self.modified_since.is_some_and(|value| self.is_modified(value, last_modified)) {
            return Verdict::Send;
        }
        if self.none_match.is_some_and(|list| !is_listed(list, etag, Comparison::Weak)) {
            return Verdict::Send;
        }
        Verdict::NotModified
    }

    fn is_modified(&self, since: &[u8], last_modified: Option<i64>) -> bool {
        let (Some(since), Some(last_modified)) = (date::parse_http_date(since), last_modified) else {
            return true;
        };
        match self.dates {
            IfModifiedSince::Off => true,
            IfModifiedSince::Exact => since != last_modified,
            IfModifiedSince::Before => since < last_modified,
        }
    }
}

fn is_modified_after(value: &[u8], last_modified: Option<i64>) -> bool {
    let date = date::parse_http_date(value);
    date.zip(last_modified).is_none_or(|(date, last_modified)| date < last_modified)
}

/// Whether weak tags count (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of tags has this one, or is `*`.
fn is_listed(list: &[u8], etag: Option<&[u8]>, comparison: Comparison) -> bool {
    if list == b"*" {
        return true;
    }
    let Some(mut etag) = etag else { return false };
    if comparison == Comparison::Weak {
        etag = etag.strip_prefix(b"W/").unwrap_or(etag);
    }
    let mut rest = if etag.is_empty() { &[] } else { list };
    while !rest.is_empty() {
        if comparison == Comparison::Weak {
            rest = rest.strip_prefix(b"W/").unwrap_or(rest);
        }
        if let Some(behind) = rest.strip_prefix(etag) {
            rest = skip(behind, b" \t");
            if matches!(rest.first(), None | Some(b',')) {
                return true;
            }
        }
        let comma = rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len());
        rest = skip(&rest[comma..], b", \t");
    }
    false
}

fn skip<'a>(text: &'a [u8], bytes: &[u8]) -> &'a [u8] {
    let count = text.iter().take_while(|byte| bytes.contains(byte)).count();
    &text[count..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: i64 = 784_111_777;
    const SAME: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const TAG: &[u8] = b"\"2ebc-5\"";

    const NONE: Conditions<'_> = Conditions {
        unmodified_since: None,
        matches: None,
        modified_since: None,
        none_match: None,
        dates: IfModifiedSince::Exact,
    };

    fn judge(conditions: Conditions<'_>) -> Verdict {
        conditions.judge(Some(DATE), Some(TAG))
    }

    #[test]
    fn the_date_must_be_the_same() {
        let since = |value| judge(Conditions { modified_since: Some(value), ..NONE });
        assert_eq!(judge(NONE), Verdict::Send);
        assert_eq!(since(SAME), Verdict::NotModified);
        assert_eq!(since(LATER), Verdict::Send);
        assert_eq!(since(b"yesterday"), Verdict::Send);
        let dates = |dates, value| judge(Conditions { modified_since: Some(value), dates, ..NONE });
        assert_eq!(dates(IfModifiedSince::Off, SAME), Verdict::Send);
        assert_eq!(dates(IfModifiedSince::Before, LATER), Verdict::NotModified);
        assert_eq!(dates(IfModifiedSince::Before, EARLIER), Verdict::Send);
    }

    #[test]
    fn tags_are_compared_weakly_and_both_conditions_count() {
        let none = |list| judge(Conditions { none_match: Some(list), ..NONE });
        assert_eq!(none(b"\"2ebc-5\""), Verdict::NotModified);
        assert_eq!(none(b"\"x\" , W/\"2ebc-5\" ,\"y\""), Verdict::NotModified);
        assert_eq!(none(b"*"), Verdict::NotModified);
        assert_eq!(none(b"\"2ebc-5"), Verdict::Send);
        assert_eq!(none(b"\"2ebc-5\"x"), Verdict::Send);
        assert_eq!(none(b"\"2ebc-5\" \t,x"), Verdict::NotModified);
        assert_eq!(none(b"\"2ebc-5\"\x0c"), Verdict::Send);
        let both = |modified_since, none_match| {
            judge(Conditions { modified_since: Some(modified_since), none_match: Some(none_match), ..NONE })
        };
        assert_eq!(both(SAME, TAG), Verdict::NotModified);
        assert_eq!(both(SAME, b"\"x\""), Verdict::Send);
        assert_eq!(both(LATER, TAG), Verdict::Send);
        let weak = Conditions { none_match: Some(TAG), ..NONE };
        assert_eq!(weak.judge(Some(DATE), Some(b"W/\"2ebc-5\"")), Verdict::NotModified);
    }

    #[test]
    fn preconditions_fail() {
        let matches = |list| judge(Conditions { matches: Some(list), ..NONE });
        assert_eq!(matches(TAG), Verdict::Send);
        assert_eq!(matches(b"*"), Verdict::Send);
        assert_eq!(matches(b"W/\"2ebc-5\""), Verdict::Failed);
        let since = |value| judge(Conditions { unmodified_since: Some(value), ..NONE });
        assert_eq!(since(SAME), Verdict::Send);
        assert_eq!(since(LATER), Verdict::Send);
        assert_eq!(since(EARLIER), Verdict::Failed);
    }

    #[test]
    fn what_has_neither_date_nor_tag() {
        let matches = |list| Conditions { matches: Some(list), ..NONE }.judge(None, None);
        assert_eq!((matches(b"*"), matches(TAG)), (Verdict::Send, Verdict::Failed));
        let none = |list| Conditions { none_match: Some(list), ..NONE }.judge(None, None);
        assert_eq!((none(b"*"), none(TAG)), (Verdict::NotModified, Verdict::Send));
        let since = Conditions { modified_since: Some(SAME), ..NONE };
        assert_eq!(since.judge(None, None), Verdict::Send);
    }
}
