//! Variables about servers that were asked, and about what they are asked for.

use clearway_http::{Presence, VariableKind, VariableSpec, View};
use clearway_message::{Known, put_decimal};

use crate::attempts::{Attempt, Attempts, BodyForm, CacheNotes, Connection};

macro_rules! variable {
    ($name:literal, $kind:ident, $doc:literal, $eval:expr) => {
        VariableSpec { name: $name, kind: VariableKind::$kind, doc: $doc, eval: $eval }
    };
}

/// All of them.
pub(crate) static VARIABLES: &[VariableSpec] = &[
    variable!(
        "upstream_addr",
        Exact,
        "Addresses of the servers that were asked, one behind the other; ` : ` stands between those of two \
         locations (`X-Accel-Redirect`, `error_page`). Where no server could be asked it is the group's \
         name.",
        |view, _, out| list(view, out, |attempt, out| {
            out.extend_from_slice(attempt.name().unwrap_or_default().as_bytes());
        })
    ),
    variable!(
        "upstream_status",
        Exact,
        "Statuses that servers have answered, or what their failures count as; in the order of \
         `$upstream_addr`.",
        |view, _, out| list(view, out, |attempt, out| match attempt.status {
            0 => out.push(b'-'),
            status => put_decimal(out, status.into()),
        })
    ),
    variable!(
        "upstream_connect_time",
        Exact,
        "How long it took to connect, seconds with milliseconds.",
        |view, _, out| list(view, out, |attempt, out| put_time(attempt.connect_ms, out))
    ),
    variable!(
        "upstream_header_time",
        Exact,
        "How long it took until the head of the response was there, seconds with milliseconds.",
        |view, _, out| list(view, out, |attempt, out| put_time(attempt.header_ms, out))
    ),
    variable!(
        "upstream_response_time",
        Exact,
        "How long it took until all of the response was there, seconds with milliseconds.",
        |view, _, out| list(view, out, |attempt, out| put_time(attempt.response_ms, out))
    ),
    variable!(
        "upstream_queue_time",
        Exact,
        "How long the request waited until a server could be used (`queue`), seconds with milliseconds.",
        |view, _, out| list(view, out, |attempt, out| put_time(attempt.queue_ms, out))
    ),
    variable!(
        "upstream_wait_time",
        Exact,
        "How long it took until there was a connection to send on, seconds with milliseconds.",
        |view, _, out| list(view, out, |attempt, out| put_time(attempt.wait_ms, out))
    ),
    variable!(
        "upstream_send_time",
        Exact,
        "How long it took until the request was sent, seconds with milliseconds.",
        |view, _, out| list(view, out, |attempt, out| put_time(attempt.send_ms, out))
    ),
    variable!(
        "upstream_reused",
        Exact,
        "Whether the connection had served another request before (`1`), or was made for this one (`0`).",
        |view, _, out| list(view, out, |attempt, out| {
            out.push(if attempt.connection == Connection::Reused { b'1' } else { b'0' });
        })
    ),
    variable!(
        "upstream_response_length",
        Exact,
        "How long the bodies of responses were, bytes.",
        |view, _, out| list(view, out, |attempt, out| put_decimal(out, attempt.length))
    ),
    variable!("upstream_bytes_received", Exact, "Bytes received from servers.", |view, _, out| list(
        view,
        out,
        |attempt, out| put_decimal(out, attempt.received_bytes)
    )),
    variable!("upstream_bytes_sent", Exact, "Bytes sent to servers.", |view, _, out| list(
        view,
        out,
        |attempt, out| put_decimal(out, attempt.sent_bytes)
    )),
    variable!(
        "upstream_http_",
        Prefix,
        "A header of the last server's response, also one that its client is not shown.",
        |view, name, out| put_header(view, name, out)
    ),
    variable!("upstream_trailer_", Prefix, "A trailer of the last server's response.", put_trailer),
    variable!("upstream_cookie_", Prefix, "A cookie that the last server's response sets.", put_cookie),
    variable!(
        "upstream_cache_status",
        Exact,
        "How a cache took part in the response: `MISS`, `BYPASS`, `EXPIRED`, `STALE`, `UPDATING`, \
         `REVALIDATED` or `HIT`.",
        |view, _, out| {
            let status = cache_notes(view).and_then(|notes| notes.status);
            Presence::put(status.map(|status| status.text().as_bytes()), out)
        }
    ),
    variable!(
        "upstream_cache_last_modified",
        Exact,
        "`Last-Modified` of a response in a cache that the server is asked about (`proxy_cache_revalidate`).",
        |view, _, out| Presence::put(
            cache_notes(view).and_then(CacheNotes::date).as_ref().map(|date| &date[..]),
            out
        )
    ),
    variable!(
        "upstream_cache_etag",
        Exact,
        "`ETag` of a response in a cache that the server is asked about (`proxy_cache_revalidate`).",
        |view, _, out| Presence::put(cache_notes(view).and_then(CacheNotes::tag), out)
    ),
    variable!(
        "proxy_host",
        Changeable,
        "Name and port of the server as `proxy_pass` says them; the port only where it is not the usual one.",
        |view, _, out| {
            let origin = Attempts::of(view.request).and_then(|attempts| attempts.origin.as_ref());
            Presence::put(origin.map(|origin| &origin.host_header[..]), out)
        }
    ),
    variable!(
        "proxy_port",
        Changeable,
        "Port of the server as `proxy_pass` says it, or the usual one.",
        |view, _, out| {
            let origin = Attempts::of(view.request).and_then(|attempts| attempts.origin.as_ref());
            Presence::put(origin.map(|origin| &origin.port[..]), out)
        }
    ),
    variable!(
        "proxy_add_x_forwarded_for",
        Exact,
        "`X-Forwarded-For` of the client, with the address of the client behind it.",
        |view, _, out| {
            for value in view.request.headers().filter(|line| line.known == Known::XForwardedFor) {
                out.extend_from_slice(value.value);
                out.extend_from_slice(b", ");
            }
            view.request.put_peer(out);
            Presence::Found
        }
    ),
    variable!(
        "proxy_internal_body_length",
        Exact,
        "How long the body is that is passed on; none where there is no body, or where it goes in chunks.",
        |view, _, out| {
            let Some(BodyForm::Counted(bytes)) = Attempts::of(view.request).map(|attempts| attempts.body)
            else {
                return Presence::NotFound;
            };
            put_decimal(out, bytes);
            Presence::Found
        }
    ),
    variable!(
        "proxy_internal_chunked",
        Exact,
        "`chunked` where the body is passed on in chunks.",
        |view, _, out| {
            let is_chunked =
                Attempts::of(view.request).is_some_and(|attempts| attempts.body == BodyForm::Chunked);
            Presence::put(is_chunked.then_some(b"chunked"), out)
        }
    ),
];

fn cache_notes<'a>(view: &View<'a, '_>) -> Option<&'a CacheNotes> {
    Attempts::of(view.request).map(|attempts| &attempts.cache)
}

/// Something of each attempt, parted as in nginx.
fn list(view: &View<'_, '_>, out: &mut Vec<u8>, put: impl Fn(&Attempt, &mut Vec<u8>)) -> Presence {
    let Some(attempts) = Attempts::of(view.request).filter(|attempts| !attempts.list.is_empty()) else {
        return Presence::NotFound;
    };
    let mut parting: &[u8] = b"";
    for attempt in &attempts.list {
        if attempt.name().is_none() {
            parting = b" : ";
            continue;
        }
        out.extend_from_slice(parting);
        put(attempt, out);
        parting = b", ";
    }
    Presence::Found
}

fn put_time(time_ms: Option<u64>, out: &mut Vec<u8>) {
    match time_ms {
        None => out.push(b'-'),
        Some(ms) => {
            put_decimal(out, ms / 1000);
            let rest = ms % 1000;
            out.push(b'.');
            out.extend([rest / 100, rest / 10 % 10, rest % 10].map(|digit| b'0' + digit as u8));
        }
    }
}

/// A name of a header as a variable has it.
fn header_name(name: &[u8]) -> Vec<u8> {
    name.iter().map(|&byte| if byte == b'_' { b'-' } else { byte }).collect()
}

fn put_header(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    let head = Attempts::of(view.request).and_then(|attempts| attempts.head.as_ref());
    let name = header_name(name);
    head.map_or(Presence::NotFound, |head| put_all(head.named(&name), out))
}

fn put_trailer(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    let name = header_name(name);
    let name = clearway_http::HeaderName::new(&name);
    Attempts::of(view.request)
        .map_or(Presence::NotFound, |attempts| put_all(attempts.trailers.named(name), out))
}

/// All values of a header, parted by commas.
fn put_all<'a>(values: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> Presence {
    let mut presence = Presence::NotFound;
    for value in values {
        if presence == Presence::Found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        presence = Presence::Found;
    }
    presence
}

fn put_cookie(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    let head = Attempts::of(view.request).and_then(|attempts| attempts.head.as_ref());
    let value = head.and_then(|head| head.named(b"set-cookie").find_map(|line| cookie_value(line, name)));
    Presence::put(value, out)
}

/// The value of a cookie in a `Set-Cookie` line, if it is that one.
fn cookie_value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    let spaces = |text: &[u8]| text.iter().take_while(|&&byte| byte == b' ').count();
    let value = rest[spaces(rest)..].strip_prefix(b"=").filter(|_| start.eq_ignore_ascii_case(name))?;
    value[spaces(value)..].split(|&byte| byte == b';').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        for (ms, text) in [(None, "-"), (Some(0), "0.000"), (Some(7), "0.007"), (Some(61_234), "61.234")] {
            let mut out = Vec::new();
            put_time(ms, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    #[test]
    fn cookies_are_found_by_their_name() {
        for (line, value) in [
            ("a=1; Path=/", Some("1")),
            ("A=1", Some("1")),
            ("a = 1 ; x", Some("1 ")),
            ("a=", Some("")),
            ("ab=1", None),
            ("a", None),
            ("b=a=1", None),
        ] {
            assert_eq!(cookie_value(line.as_bytes(), b"a"), value.map(str::as_bytes), "{line}");
        }
    }
}
