//! The engine's own variables. Evaluated on loops, from the request alone; nothing here waits.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use clearway_base::base64::{self, Alphabet};
use clearway_base::date::http_date;
use clearway_base::log::Level;
use clearway_h1::{InvalidHeaders, Underscores};
use clearway_message::{HeaderLine, HeaderName, Known, Method, Ranges, put_decimal};
use clearway_net::PeerAddr;
use clearway_os::tcp::TcpInfo;

use crate::output::view::{Presence, View, eval_size};
use crate::paths;
use crate::request::{Arrival, Chunks, LIMIT_RATE, Request};
use crate::response::with_charset;
use crate::tables::{VariableKind, VariableSpec};
use clearway_base::log::Verbatim;
use clearway_site::{LocalAddress, NGINX_VERSION};

/// A variable with a name of its own, from an expression on the view.
macro_rules! variable {
    ($name:literal, $doc:literal, $eval:expr) => {
        VariableSpec { name: $name, kind: VariableKind::Exact, doc: $doc, eval: $eval }
    };
}

pub(crate) static VARIABLES: &[VariableSpec] = &[
    variable!("uri", "Decoded and normalized path; changes with internal redirects.", |view, _, out| {
        put_path(view, out)
    }),
    variable!("document_uri", "The same as `$uri`.", |view, _, out| { put_path(view, out) }),
    variable!("request_uri", "The target of the request as the client sent it.", |view, _, out| {
        put_unless_empty(target(view.request), out)
    }),
    VariableSpec {
        name: "args",
        kind: VariableKind::Assigned(|request, value| {
            request.set_args(value);
            request.forget_sent_target();
        }),
        doc: "Arguments of the request; `set` changes them.",
        eval: |view, _, out| Presence::put(view.request.args_found(), out),
    },
    variable!("query_string", "The same as `$args`.", |view, _, out| {
        Presence::put(view.request.args_found(), out)
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
    variable!("http_user_agent", "`User-Agent` of the request.", |view, _, out| {
        view.append_header(Known::UserAgent, out)
    }),
    variable!("http_referer", "`Referer` of the request.", |view, _, out| {
        view.append_header(Known::Referer, out)
    }),
    variable!("http_host", "`Host` of the request.", |view, _, out| { view.append_header(Known::Host, out) }),
    variable!("http_cookie", "`Cookie` of the request.", |view, _, out| {
        view.append_header(Known::Cookie, out)
    }),
    variable!("http_x_forwarded_for", "`X-Forwarded-For` of the request.", |view, _, out| {
        view.append_header(Known::XForwardedFor, out)
    }),
    VariableSpec {
        name: "cookie_",
        kind: VariableKind::Prefix,
        doc: "A cookie of the request, by its name in any case.",
        eval: cookie,
    },
    VariableSpec {
        name: "sent_http_",
        kind: VariableKind::Prefix,
        doc: "A header of the response, by its name in lower case with `_` for `-`.",
        eval: sent_header,
    },
    VariableSpec {
        name: "sent_trailer_",
        kind: VariableKind::Prefix,
        doc: "A trailer of the response, by its name in lower case with `_` for `-`.",
        eval: |view, name, out| put_lines(view.output.trailers(), name, out),
    },
    variable!(
        "content_length",
        "`Content-Length` of the request, or of a body that came in chunks, once it was read, its length.",
        |view, _, out| {
            let request = view.request;
            match (request.header(Known::ContentLength), request.stored_body(), request.chunks) {
                (Some(value), ..) => Presence::put(Some(value), out),
                (None, Some(body), _) => put_number(Some(body.len()), out),
                // As nginx counts what it drops.
                (None, None, Chunks::Dropped) => put_number(Some(0), out),
                (None, None, Chunks::Kept) => Presence::NotFound,
            }
        }
    ),
    variable!("content_type", "`Content-Type` of the request.", |view, _, out| {
        view.append_header(Known::ContentType, out)
    }),
    variable!("host", "Host of the request line, else of `Host`, else the name of the server.", host),
    VariableSpec {
        name: "limit_rate",
        kind: VariableKind::Assigned(set_limit_rate),
        doc: "Bytes per second that the response may be sent with, 0 for no limit; can be set.",
        eval: |view, _, out| {
            let own = view.request.context(&LIMIT_RATE).copied();
            let configured = || eval_size(&view.request.location().core.sending.limit_rate, view);
            put_number(Some(own.unwrap_or_else(configured)), out)
        },
    },
    variable!("hostname", "Name of the machine.", |view, _, out| {
        Presence::put(Some(&view.request.snapshot.hostname), out)
    }),
    variable!("server_name", "First name of the server.", |view, _, out| {
        Presence::put(Some(view.request.server().name()), out)
    }),
    variable!("server_addr", "Address that the client connected to.", |view, _, out| {
        view.request.local_address().put_host(out);
        Presence::Found
    }),
    variable!("server_port", "Port that the client connected to.", |view, _, out| {
        put_number(view.request.local_address().port().map(u64::from), out)
    }),
    variable!("remote_addr", "Address of the client.", |view, _, out| {
        view.request.put_peer(out);
        Presence::Found
    }),
    variable!("binary_remote_addr", "Address of the client, 4 or 16 bytes.", |view, _, out| {
        match view.request.peer() {
            PeerAddr::V4(ip, _) => out.extend_from_slice(&ip.octets()),
            PeerAddr::V6(ip, _) => out.extend_from_slice(&ip.octets()),
            PeerAddr::Unix => view.request.put_peer(out),
        }
        Presence::Found
    }),
    variable!("remote_port", "Port of the client.", |view, _, out| {
        put_number(view.request.peer().port().filter(|&port| port > 0).map(u64::from), out)
    }),
    variable!("remote_user", "User name of basic authentication.", |view, _, out| {
        Presence::put(view.remote_user().as_deref(), out)
    }),
    variable!(
        "request_port",
        "Port of the request line, else of `Host`, if there is one.",
        |view, _, out| { put_number(view.request.asked_port().map(u64::from), out) }
    ),
    variable!("is_request_port", "`:` if `$request_port` is not empty, else nothing.", |view, _, out| {
        Presence::put(Some(if view.request.asked_port().is_some() { b":" } else { b"" }), out)
    }),
    variable!(
        "tcpinfo_rtt",
        "Round-trip time to the client that the kernel has measured, microseconds.",
        |view, _, out| put_tcp_info(view, |info| info.rtt_us, out)
    ),
    variable!("tcpinfo_rttvar", "How much it varies, microseconds.", |view, _, out| {
        put_tcp_info(view, |info| info.rttvar_us, out)
    }),
    variable!("tcpinfo_snd_cwnd", "Size of the congestion window, segments.", |view, _, out| {
        put_tcp_info(view, |info| info.snd_cwnd, out)
    }),
    variable!("tcpinfo_rcv_space", "Room for what the client sends, bytes.", |view, _, out| {
        put_tcp_info(view, |info| info.rcv_space, out)
    }),
    variable!("request", "The request line as the client sent it.", |view, _, out| {
        Presence::put(view.request.request_line(), out)
    }),
    variable!("request_method", "Method of the request.", |view, _, out| {
        put_unless_empty(view.request.client_method_name(), out)
    }),
    variable!("request_filename", "Path of the file for the request.", |view, _, out| {
        Presence::put(Some(&paths::file_path(view)), out)
    }),
    variable!("document_root", "Directory of `root` or `alias`.", |view, _, out| {
        Presence::put(Some(&paths::document_root(view)), out)
    }),
    variable!("scheme", "`http`, or `https` where TLS is used.", |view, _, out| {
        Presence::put(Some(view.request.scheme().as_bytes()), out)
    }),
    variable!("https", "`on` where TLS is used, else nothing.", |view, _, out| {
        Presence::put(Some(if view.request.tls().is_some() { b"on" } else { b"" }), out)
    }),
    variable!("server_protocol", "Protocol of the request, such as `HTTP/1.1`.", |view, _, out| {
        put_unless_empty(view.request.protocol(), out)
    }),
    variable!("status", "Status code of the response, three digits.", |view, _, out| {
        Presence::put(Some(&view.status_digits()), out)
    }),
    variable!("body_bytes_sent", "Bytes of the response without its head.", |view, _, out| {
        put_number(Some(view.body_sent_bytes()), out)
    }),
    variable!("bytes_sent", "Bytes of the response.", |view, _, out| {
        put_number(Some(view.sent_bytes()), out)
    }),
    variable!("connection", "Serial number of the connection.", |view, _, out| {
        put_number(Some(view.request.client.serial), out)
    }),
    variable!("connection_requests", "Number of requests on the connection so far.", |view, _, out| {
        put_number(Some(view.request.number), out)
    }),
    variable!(
        "connection_time",
        "Seconds since the connection was accepted, to the millisecond.",
        |view, _, out| {
            let client = view.request.client;
            put_seconds(client.home.now_ms().saturating_sub(client.start_ms), out)
        }
    ),
    variable!(
        "pipe",
        "`p` where the request came together with the one before it, else `.`.",
        |view, _, out| {
            let is_pipelined = view.request.arrival == Arrival::Pipelined;
            Presence::put(Some(if is_pipelined { b"p" } else { b"." }), out)
        }
    ),
    variable!(
        "request_length",
        "Bytes of the request: its head, and what was read of its body.",
        |view, _, out| {
            let request = view.request;
            // A subrequest was not sent.
            let bytes = if request.is_main() {
                request.parts.parser.size(&request.parts.head) as u64 + request.body_bytes
            } else {
                0
            };
            put_number(Some(bytes), out)
        }
    ),
    variable!(
        "request_completion",
        "`OK` where the response was sent to its end, else nothing.",
        |view, _, out| { Presence::put(Some(if view.output.is_completed() { b"OK" } else { b"" }), out) }
    ),
    variable!("request_id", "32 hexadecimal digits that no other request has.", request_id),
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
        put_number(Some(u64::from(view.request.setup.identity(view.request.client.home))), out)
    }),
    variable!("nginx_version", "The release of nginx whose configuration is understood.", |_, _, out| {
        put_text(NGINX_VERSION, out)
    }),
];

/// Where the connection is not TCP's there is nothing to tell.
fn put_tcp_info(view: &View<'_, '_>, part: fn(TcpInfo) -> u32, out: &mut Vec<u8>) -> Presence {
    let Some(info) = view.request.link.tcp_info() else { return Presence::NotFound };
    put_number(Some(u64::from(part(info))), out)
}

fn put_text(text: &str, out: &mut Vec<u8>) -> Presence {
    Presence::put(Some(text.as_bytes()), out)
}

fn set_limit_rate(request: &mut Request<'_>, value: Vec<u8>) {
    match clearway_base::units::parse_size(&value) {
        Some(rate) => request.set_context(&LIMIT_RATE, rate),
        None => {
            let message = format_args!("invalid $limit_rate \"{}\"", Verbatim(&value));
            request.log(Level::Error, message);
        }
    }
}

/// Puts a part of the request; an empty one has no value.
fn put_unless_empty(value: &[u8], out: &mut Vec<u8>) -> Presence {
    Presence::put(Some(value).filter(|value| !value.is_empty()), out)
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

/// 128 bits from a keyed hash of what tells the request from others of this process: the same each time
/// that it is asked for, and nothing that a client could guess.
fn request_id(view: &View<'_, '_>, _: &[u8], out: &mut Vec<u8>) -> Presence {
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    let request = view.request;
    for keys in &*KEYS {
        let half = keys.hash_one((request.client.serial, request.number));
        out.extend_from_slice(format!("{half:016x}").as_bytes());
    }
    Presence::Found
}

impl View<'_, '_> {
    /// The charset of the response, as header filters have left it once the head is sent.
    pub fn sent_charset(&self) -> Option<&[u8]> {
        self.output.head.charset.as_deref()
    }

    /// User name of basic authentication (RFC 7617), whether the password is right or not.
    pub fn remote_user(&self) -> Option<Vec<u8>> {
        self.request.credentials().map(|credentials| credentials.user)
    }
}

/// The user that a client names.
pub struct Credentials {
    /// The user name: not empty, without colon.
    pub user: Vec<u8>,
    /// Any bytes.
    pub password: Vec<u8>,
}

impl Credentials {
    /// Reads an `Authorization`.
    pub(crate) fn parse(header: &[u8]) -> Option<Self> {
        let (scheme, encoded) = header.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let start = encoded.iter().position(|&byte| byte != b' ')?;
        let mut user = base64::decode(&encoded[start..], Alphabet::Standard)?;
        let colon = user.iter().position(|&byte| byte == b':').filter(|&colon| colon > 0)?;
        let password = user.split_off(colon + 1);
        user.truncate(colon);
        Some(Self { user, password })
    }
}

impl Request<'_> {
    /// User and password of basic authentication (RFC 7617), if there are any: those for the proxy, of a
    /// request for a tunnel.
    pub fn credentials(&self) -> Option<Credentials> {
        let is_for_tunnel = self.method() == Method::Connect;
        let header = if is_for_tunnel { Known::ProxyAuthorization } else { Known::Authorization };
        Credentials::parse(self.header(header)?)
    }
}

fn cookie(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    Presence::put(view.request.cookie(name).map(|cookie| cookie.value), out)
}

/// A cookie of a request.
#[derive(Clone, Copy)]
pub struct Cookie<'a> {
    /// Its value.
    pub value: &'a [u8],
    /// The `Cookie` that it stands in.
    pub line: &'a [u8],
}

impl Request<'_> {
    /// The first cookie of a name, in any case, that has a `=`.
    pub fn cookie(&self, name: &[u8]) -> Option<Cookie<'_>> {
        let mut lines = self.parts.head.headers.known(self.received(), Known::Cookie);
        lines.find_map(|line| find_cookie(line, name).map(|value| Cookie { value, line }))
    }

    /// The address that the client has connected to.
    pub fn local_address(&self) -> LocalAddress<'_> {
        let address = self.setup.address();
        if !address.listen.is_wildcard() {
            return LocalAddress::new(None, address);
        }
        LocalAddress::new(self.link.local_address(), address)
    }
}

pub(crate) fn find_cookie<'a>(cookies: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut rest = cookies;
    while !rest.is_empty() {
        let (found, behind) = rest.split_at_checked(name.len())?;
        if found.eq_ignore_ascii_case(name) {
            let (next, behind) = skip_spaces(behind).split_first()?;
            if *next == b'=' {
                return skip_spaces(behind).split(|&byte| byte == b';').next();
            }
            // As in nginx, what stands in place of the sign is passed over, even if it ends the cookie.
            rest = behind;
        }
        let end = rest.iter().position(|&byte| byte == b';');
        rest = skip_spaces(end.map_or(&[], |end| &rest[end + 1..]));
    }
    None
}

/// As the client sent it; empty where it did not come to that.
fn target<'a>(request: &'a Request<'_>) -> &'a [u8] {
    if request.parts.head.line.line.is_empty() { b"" } else { request.raw_target() }
}

/// A target that is no path leaves an empty one, as in nginx.
fn put_path(view: &View<'_, '_>, out: &mut Vec<u8>) -> Presence {
    match view.request.path() {
        b"" if !target(view.request).is_empty() => Presence::Found,
        path => put_unless_empty(path, out),
    }
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    &text[spaces..]
}

/// The value of a header that has a place of its own in the response's head, or of a line.
fn sent_header(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    let (request, head) = (view.request, &view.output.head);
    // In the log phase nginx says that all connections are closed.
    let is_persistent = request.is_persistent() && !request.is_logged();
    match name {
        b"content_type" => match (head.content_type.as_deref(), &head.charset) {
            (None | Some(b""), _) => Presence::NotFound,
            (Some(text), None) => Presence::put(Some(text), out),
            (Some(text), Some(charset)) => Presence::put(Some(&with_charset(text, charset)), out),
        },
        b"content_length" => match head.content_length {
            Some(bytes) => put_number(Some(bytes), out),
            None => Presence::NotFound,
        },
        b"last_modified" => {
            Presence::put(head.last_modified.map(http_date).as_ref().map(|date| &date[..]), out)
        }
        b"location" => match head.location.as_deref() {
            Some(location) if view.output.head_sent() => {
                Presence::put(Some(request.absolute_url(location).as_deref().unwrap_or(location)), out)
            }
            Some(location) => Presence::put(Some(location), out),
            None => put_lines(head.headers.iter(), name, out),
        },
        b"etag" => Presence::put(head.etag.as_deref(), out),
        b"content_encoding" if head.content_encoding.is_some() => {
            Presence::put(head.content_encoding.as_deref(), out)
        }
        b"connection" if head.status == 101 => put_text("upgrade", out),
        b"connection" => Presence::put(Some(if is_persistent { b"keep-alive" } else { b"close" }), out),
        b"keep_alive" => match request.location().core.keepalive_header_s() {
            Some(seconds) if is_persistent => put_text(&format!("timeout={seconds}"), out),
            _ => Presence::NotFound,
        },
        b"accept_ranges" if head.ranges != Ranges::Passed => {
            Presence::put((head.ranges == Ranges::Announced).then_some(b"bytes"), out)
        }
        b"transfer_encoding" => Presence::put(view.output.is_chunked().then_some(b"chunked"), out),
        _ => put_lines(head.headers.iter(), name, out),
    }
}

/// Whether a header has a name, in any case, in which `_` stands for `-`.
fn is_named(header: &[u8], name: &[u8]) -> bool {
    header.len() == name.len()
        && header.iter().zip(name).all(|(byte, wanted)| match byte {
            b'-' => *wanted == b'_',
            byte => byte.eq_ignore_ascii_case(wanted),
        })
}

impl Request<'_> {
    /// The port in the target of the request or in `Host`.
    fn asked_port(&self) -> Option<u16> {
        self.parts.head.host.map(|host| host.port).filter(|&port| port > 0)
    }

    /// The first argument of a name, in any case, that has a `=`; as it was sent.
    pub fn arg(&self, name: &[u8]) -> Option<&[u8]> {
        find_arg(self.args(), name)
    }
}

fn arg(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    Presence::put(view.request.arg(name), out)
}

/// The first argument with that name that has a `=`.
pub(crate) fn find_arg<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    args.split(|&byte| byte == b'&').find_map(|arg| {
        let (found, value) = arg.split_at_checked(name.len())?;
        value.strip_prefix(b"=").filter(|_| found.eq_ignore_ascii_case(name))
    })
}

impl View<'_, '_> {
    /// Appends the values of all lines with a header of the request.
    pub fn append_header(&self, known: Known, out: &mut Vec<u8>) -> Presence {
        if !self.request.parts.head.has(known) {
            return Presence::NotFound;
        }
        let request = self.request;
        let values = request.parts.head.headers.known(request.received(), known);
        append_values(values, if known == Known::Cookie { b"; " } else { b", " }, out)
    }
}

/// The values of all lines with that header; `name` has `_` where the header has `-`.
fn header(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    let request = view.request;
    let options = &request.setup.server_core().options;
    if options.underscores == Underscores::Valid || options.invalid_headers == InvalidHeaders::Pass {
        return put_lines(request.headers(), name, out);
    }
    let name: Vec<u8> = name.iter().map(|&byte| if byte == b'_' { b'-' } else { byte }).collect();
    let values = request.parts.head.headers.named(request.received(), HeaderName::new(&name));
    append_values(values, b", ", out)
}

/// The values of all lines with a name, in which `_` stands for `-`.
fn put_lines<'a>(lines: impl Iterator<Item = HeaderLine<'a>>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    append_values(lines.filter(|line| is_named(line.name, name)).map(|line| line.value), b", ", out)
}

/// Appends the values of header lines.
fn append_values<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    separator: &[u8],
    out: &mut Vec<u8>,
) -> Presence {
    let mut presence = Presence::NotFound;
    for value in values {
        if presence == Presence::Found {
            out.extend_from_slice(separator);
        }
        presence = Presence::put(Some(value), out);
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
    fn cookies_are_found_by_name() {
        let cookies = b"a=1; bb = 2;A=3,c=4; d==;e=x,y";
        assert_eq!(find_cookie(cookies, b"A"), Some(&b"1"[..]));
        assert_eq!(find_cookie(cookies, b"bb"), Some(&b"2"[..]));
        assert_eq!(find_cookie(cookies, b"b"), None);
        assert_eq!(find_cookie(cookies, b"c"), None);
        assert_eq!(find_cookie(cookies, b"d"), Some(&b"="[..]));
        assert_eq!(find_cookie(cookies, b"e"), Some(&b"x,y"[..]));
        assert_eq!(find_cookie(b"", b"a"), None);
        // As nginx 1.31.5 finds them behind a name that stands alone.
        assert_eq!(find_cookie(b"a; a=1; a=2", b"a"), Some(&b"2"[..]));
        assert_eq!(find_cookie(b"a ;a=1", b"a"), None);
        assert_eq!(find_cookie(b"a 1; a=2", b"a"), Some(&b"2"[..]));
        assert_eq!(find_cookie(b"b; a=1", b"a"), Some(&b"1"[..]));
    }

    #[test]
    fn seconds_have_three_decimals() {
        let mut out = Vec::new();
        put_seconds(12_007, &mut out);
        assert_eq!(out, b"12.007");
    }
}
