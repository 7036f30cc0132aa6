//! The engine's own variables. Evaluated on loops, from the request alone; nothing here waits.

use clearway_h1::{Known, name_hash};

use crate::paths;
use crate::response::put_decimal;
use crate::variables::{Presence, VariableKind, VariableSpec, View};

/// The release of nginx whose behaviour this is (`$nginx_version`).
pub const NGINX_VERSION: &str = "1.31.5";

/// A variable with a name of its own, from an expression on the view.
macro_rules! variable {
    ($name:literal, $doc:literal, $eval:expr) => {
        VariableSpec { name: $name, kind: VariableKind::Exact, doc: $doc, eval: $eval }
    };
}

pub(crate) static VARIABLES: &[VariableSpec] = &[
    variable!("uri", "Decoded and normalized path; changes with internal redirects.", |view, _, out| {
        Presence::put(Some(view.request.path()), out)
    }),
    variable!("document_uri", "The same as `$uri`.", |view, _, out| {
        Presence::put(Some(view.request.path()), out)
    }),
    variable!("request_uri", "The target of the request as the client sent it.", |view, _, out| {
        Presence::put(Some(view.request.raw_target()), out)
    }),
    variable!("args", "Arguments of the request.", |view, _, out| {
        Presence::put(Some(view.request.args()), out)
    }),
    variable!("query_string", "The same as `$args`.", |view, _, out| {
        Presence::put(Some(view.request.args()), out)
    }),
    variable!("is_args", "`?` if there are arguments, else nothing.", |view, _, out| {
        Presence::put(Some(if view.request.args().is_empty() { b"" } else { b"?" }), out)
    }),
    VariableSpec {
        name: "arg_",
        kind: VariableKind::Prefix,
        doc: "An argument of the request, by its name in any case.",
        eval: arg,
    },
    VariableSpec {
        name: "http_",
        kind: VariableKind::Prefix,
        doc: "A header of the request, by its name in lower case with `_` for `-`.",
        eval: header,
    },
    variable!("host", "Host of the request line, else of `Host`, else the name of the server.", host),
    variable!("hostname", "Name of the machine.", |view, _, out| {
        Presence::put(Some(&view.request.snapshot.hostname), out)
    }),
    variable!("server_name", "First name of the server.", |view, _, out| {
        Presence::put(Some(view.request.server().name()), out)
    }),
    variable!("server_addr", "Address that the client connected to.", |view, _, out| {
        put_text(&view.request.conn.local_address().host().to_string(), out)
    }),
    variable!("server_port", "Port that the client connected to.", |view, _, out| {
        put_number(view.request.conn.local_address().port().map(u64::from), out)
    }),
    variable!("remote_addr", "Address of the client.", |view, _, out| {
        put_text(&view.request.conn.peer.to_string(), out)
    }),
    variable!("remote_port", "Port of the client.", |view, _, out| {
        put_number(view.request.conn.peer.port().map(u64::from), out)
    }),
    variable!("remote_user", "User name of basic authentication.", |_, _, _| Presence::NotFound),
    variable!("request", "The request line as the client sent it.", |view, _, out| {
        Presence::put(view.request.request_line(), out)
    }),
    variable!("request_method", "Method of the request.", |view, _, out| {
        Presence::put(Some(view.request.method_name()).filter(|name| !name.is_empty()), out)
    }),
    variable!("request_filename", "Path of the file for the request.", |view, _, out| {
        Presence::put(Some(&paths::file_path(view)), out)
    }),
    variable!("document_root", "Directory of `root` or `alias`.", |view, _, out| {
        Presence::put(Some(&paths::document_root(view)), out)
    }),
    variable!("scheme", "`http`.", |_, _, out| Presence::put(Some(b"http"), out)),
    variable!("server_protocol", "Protocol of the request, such as `HTTP/1.1`.", |view, _, out| {
        Presence::put(Some(view.request.protocol()), out)
    }),
    variable!("status", "Status code of the response.", status),
    variable!("body_bytes_sent", "Bytes of the response without its head.", |view, _, out| {
        put_number(Some(view.body_sent_bytes()), out)
    }),
    variable!("bytes_sent", "Bytes of the response.", |view, _, out| {
        put_number(Some(view.sent_bytes()), out)
    }),
    variable!("connection", "Serial number of the connection.", |view, _, out| {
        put_number(Some(view.request.conn.serial), out)
    }),
    variable!("connection_requests", "Number of requests on the connection so far.", |view, _, out| {
        put_number(Some(view.request.number), out)
    }),
    variable!(
        "request_time",
        "Seconds since the first byte of the request, to the millisecond.",
        |view, _, out| { put_seconds(view.request.elapsed_ms(), out) }
    ),
    variable!("msec", "Seconds since 1970, to the millisecond.", |view, _, out| {
        put_seconds(view.request.now_unix_ms(), out)
    }),
    variable!("time_local", "Local time as in the access log.", |view, _, out| {
        let request = view.request;
        let time = clearway_base::date::access_log_time(request.now_unix_s(), request.utc_offset_minutes());
        Presence::put(Some(&time), out)
    }),
    variable!("time_iso8601", "Local time in the form of ISO 8601.", |view, _, out| {
        let request = view.request;
        let time = clearway_base::date::iso8601_time(request.now_unix_s(), request.utc_offset_minutes());
        Presence::put(Some(&time), out)
    }),
    variable!("pid", "Number of the worker: differs between the loops.", |view, _, out| {
        put_number(Some(u64::from(view.request.conn.identity())), out)
    }),
    variable!("nginx_version", "The release of nginx whose configuration is understood.", |_, _, out| {
        put_text(NGINX_VERSION, out)
    }),
];

fn put_text(text: &str, out: &mut Vec<u8>) -> Presence {
    Presence::put(Some(text.as_bytes()), out)
}

/// A number that is not there is an empty value.
fn put_number(number: Option<u64>, out: &mut Vec<u8>) -> Presence {
    if let Some(number) = number {
        put_decimal(out, number);
    }
    Presence::Found
}

fn put_seconds(milliseconds: u64, out: &mut Vec<u8>) -> Presence {
    put_decimal(out, milliseconds / 1000);
    let rest = (milliseconds % 1000) as u16;
    let digit = |number: u16| b'0' + (number % 10) as u8;
    out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
    Presence::Found
}

fn host(view: &View<'_, '_>, _: &[u8], out: &mut Vec<u8>) -> Presence {
    Presence::put(Some(view.request.host().unwrap_or_else(|| view.request.server().name())), out)
}

/// Three digits; what was refused before there was a status is 009 or 000.
fn status(view: &View<'_, '_>, _: &[u8], out: &mut Vec<u8>) -> Presence {
    let code = view.status();
    let digit = |number: u16| b'0' + (number % 10) as u8;
    out.extend_from_slice(&[digit(code / 100), digit(code / 10), digit(code)]);
    Presence::Found
}

fn arg(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    Presence::put(find_arg(view.request.args(), name), out)
}

/// The first argument with that name that has a `=`.
fn find_arg<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    args.split(|&byte| byte == b'&').find_map(|arg| {
        let (found, value) = arg.split_at_checked(name.len())?;
        value.strip_prefix(b"=").filter(|_| found.eq_ignore_ascii_case(name))
    })
}

/// The values of all lines with that header; `name` has `_` where the header has `-`.
fn header(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    let name: Vec<u8> = name.iter().map(|&byte| if byte == b'_' { b'-' } else { byte }).collect();
    let request = view.request;
    let separator: &[u8] = if Known::find(&name) == Known::Cookie { b"; " } else { b", " };
    let mut presence = Presence::NotFound;
    for line in request.parts.head.find_named(request.received(), &name, name_hash(&name)) {
        if presence == Presence::Found {
            out.extend_from_slice(separator);
        }
        presence = Presence::put(Some(request.bytes(line.value)), out);
    }
    presence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_by_name() {
        let args = b"a=1&bb=2&A=3&c&d==";
        assert_eq!(find_arg(args, b"a"), Some(&b"1"[..]));
        assert_eq!(find_arg(args, b"BB"), Some(&b"2"[..]));
        assert_eq!(find_arg(args, b"b"), None);
        assert_eq!(find_arg(args, b"c"), None);
        assert_eq!(find_arg(args, b"d"), Some(&b"="[..]));
        assert_eq!(find_arg(b"=1", b""), None);
    }

    #[test]
    fn seconds_have_three_decimals() {
        let mut out = Vec::new();
        put_seconds(12_007, &mut out);
        assert_eq!(out, b"12.007");
    }
}
