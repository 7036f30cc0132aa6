//! HTTP/2: what nginx answers to a request, and to what is no request, over one connection.
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::fmt::Write as _;
use std::time::Duration;

use clearway_h2::frame::{flag, kind};
use clearway_h2::settings::Settings;
use clearway_testkit::http2::{Ended, Frames, Http2};
use clearway_testkit::recorded::compare;
use clearway_testkit::{Binary, Setup};

const HTTP: &str = "
    limit_req_zone $arg_key zone=rate:1m rate=1r/m;
    limit_conn_zone $arg_key zone=open:1m;
    server {
        listen 127.0.0.1:%%PORT%%;
        http2 on;
        root %%PREFIX%%/site;
        large_client_header_buffers 4 2k;
        location /return { return 200 '$request_method $uri $args $http_x_a $http_cookie $http_host $host'; }
        location /rewrite { rewrite ^/rewrite(.*)$ /return$1?more; }
        location /private { auth_basic closed; auth_basic_user_file %%PREFIX%%/users; }
        location /denied { deny all; }
        location /auth { auth_request /allowed; }
        location /refused { auth_request /missing; }
        location = /allowed { return 204; }
        location /ssi { ssi on; }
        location /sub { sub_filter hello goodbye; alias %%PREFIX%%/site/; }
        location /page { error_page 403 =200 /file; deny all; }
        location /rate { limit_req zone=rate; return 200 often; }
        location /slow { limit_rate 100k; alias %%PREFIX%%/site/; }
        location /small { client_max_body_size 4; proxy_pass http://127.0.0.1:%%PORT:other%%; }
        location /proxied/ { proxy_pass http://127.0.0.1:%%PORT:other%%/; add_trailer X-T $status; }
        location /moved { return 301 /elsewhere; }
        location /closed { return 444; }
        location /early { add_header Link '</a.css>; rel=preload'; return 200 early; }
        location /list/ { autoindex on; autoindex_format json; alias %%PREFIX%%/site/ssi/; }
        location /variables {
            return 200 '$server_protocol $http2 $scheme $request $request_length $connection_requests';
        }
    }
    server {
        listen 127.0.0.1:%%PORT:other%%;
        location / { return 200 '$request_method $uri $http_content_length $http_connection'; }
        location = /304 { return 304; }
        location = /gone { return 410 gone; }
    }";

fn setup(binary: &Binary) -> Setup {
    Setup::http(binary.clone(), HTTP)
        .file("site/file", "hello")
        .file("site/ssi/page.html", "<!--#include virtual=\"/return/part\" --> <!--#echo var=\"uri\" -->")
        .file("users", "a:{PLAIN}b\n")
        .prepared(|prefix| {
            let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            for name in ["site/file", "site/ssi/page.html"] {
                let file =
                    std::fs::File::options().append(true).open(prefix.join(name)).expect("it is there");
                file.set_modified(long_ago).expect("it is ours");
            }
        })
}

fn open(server: &clearway_testkit::Server) -> Http2 {
    let mut client = Http2::open(&server.address(), Settings::default());
    client.wait(|frames| frames.settings.is_some());
    client
}

/// Method, path, more lines and a body.
type Request = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

const REQUESTS: &[Request] = &[
    ("GET", "/return/a?b=c", &[("x-a", "d"), ("cookie", "c=1; e=2")], ""),
    ("GET", "/return", &[("cookie", "a=1"), ("cookie", "b=2"), ("x-a", "1"), ("x-a", "2")], ""),
    ("GET", "/return", &[("host", "other.example")], ""),
    ("GET", "/rewrite/x?y", &[], ""),
    ("GET", "/private/", &[], ""),
    ("GET", "/private/file", &[("authorization", "Basic YTpi")], ""),
    ("GET", "/private/file", &[("authorization", "Basic YTpj")], ""),
    ("GET", "/denied/", &[], ""),
    ("GET", "/auth/", &[], ""),
    ("GET", "/refused/", &[], ""),
    ("GET", "/ssi/page.html", &[], ""),
    ("GET", "/sub/file", &[], ""),
    ("GET", "/page", &[], ""),
    ("GET", "/none", &[], ""),
    ("GET", "/file", &[], ""),
    ("HEAD", "/file", &[], ""),
    ("GET", "/file", &[("range", "bytes=1-2")], ""),
    ("GET", "/file", &[("range", "bytes=9-")], ""),
    ("GET", "/file", &[("if-modified-since", "Sun, 09 Sep 2001 01:46:40 GMT")], ""),
    ("GET", "/file", &[("if-match", "\"x\"")], ""),
    ("POST", "/file", &[], "x"),
    ("GET", "/slow/file", &[], ""),
    ("GET", "/rate?key=a", &[], ""),
    ("GET", "/rate?key=a", &[], ""),
    ("POST", "/small", &[], "a body"),
    ("POST", "/proxied/a", &[], "a body"),
    ("GET", "/proxied/304", &[], ""),
    ("GET", "/proxied/gone", &[("te", "trailers")], ""),
    ("HEAD", "/proxied/a", &[], ""),
    ("GET", "/moved", &[], ""),
    ("HEAD", "/moved", &[], ""),
    ("GET", "/ssi", &[], ""),
    ("GET", "/early", &[], ""),
    ("GET", "/list/", &[], ""),
    ("GET", "/variables", &[], ""),
    ("DELETE", "/file", &[], ""),
    ("FOO", "/return", &[], ""),
    ("GET", "/%2e%2e/%00", &[], ""),
    ("GET", "/a/../return", &[], ""),
    ("GET", "//return", &[], ""),
    ("OPTIONS", "*", &[], ""),
];

#[test]
fn requests_are_answered_as_by_nginx() {
    let question = format!("requests over HTTP/2\n{REQUESTS:?}\n{HTTP}");
    compare(&question, |binary| {
        let server = setup(binary).start();
        let mut client = open(&server);
        let mut text = String::new();
        for (at, (method, path, more, body)) in REQUESTS.iter().enumerate() {
            let stream = 2 * u32::try_from(at).expect("few") + 1;
            let answer = client.ask(stream, (method, path), more, body).canonical(method, &server);
            let _ = writeln!(text, "[{method} {path} {more:?}]\n{answer}");
        }
        text
    });
}

/// What stands in for the head of a request, and what it is called.
const HEADS: &[(&str, &[(&str, &str)])] = &[
    ("no path", &[(":method", "GET"), (":scheme", "http"), (":authority", "a")]),
    ("no method", &[(":path", "/return"), (":scheme", "http"), (":authority", "a")]),
    ("no scheme", &[(":method", "GET"), (":path", "/return"), (":authority", "a")]),
    ("no authority", &[(":method", "GET"), (":path", "/return"), (":scheme", "http")]),
    ("a host", &[(":method", "GET"), (":path", "/return"), (":scheme", "http"), ("host", "b")]),
    ("an empty path", &[(":method", "GET"), (":path", ""), (":scheme", "http"), (":authority", "a")]),
    ("a relative path", &[(":method", "GET"), (":path", "a"), (":scheme", "http"), (":authority", "a")]),
    ("two paths", &[(":method", "GET"), (":path", "/return"), (":path", "/b"), (":scheme", "http")]),
    ("two methods", &[(":method", "GET"), (":method", "GET"), (":path", "/return"), (":scheme", "http")]),
    (
        "an unknown pseudo field",
        &[(":method", "GET"), (":path", "/return"), (":scheme", "http"), (":a", "b")],
    ),
    ("a pseudo field behind", &[(":method", "GET"), (":scheme", "http"), ("x-a", "b"), (":path", "/return")]),
    ("a method in small letters", &[(":method", "get"), (":path", "/return"), (":scheme", "http")]),
    (
        "a broken host",
        &[(":method", "GET"), (":path", "/return"), (":scheme", "http"), (":authority", "a b")],
    ),
    (
        "an unknown scheme",
        &[(":method", "GET"), (":path", "/return"), (":scheme", "ftp"), (":authority", "a")],
    ),
];

/// Fields that requests have beside their own.
const FIELDS: &[(&str, &str)] = &[
    ("X-Large", "a"),
    ("x a", "b"),
    ("", "b"),
    ("x-a", "b\nc"),
    ("x-a", "b\rc"),
    ("x-a", " b "),
    ("x_a", "b"),
    ("connection", "close"),
    ("transfer-encoding", "chunked"),
    ("upgrade", "websocket"),
    ("keep-alive", "1"),
    ("te", "gzip"),
    ("content-length", "5"),
    ("content-length", "-1"),
    ("content-length", "a"),
    ("expect", "100-continue"),
];

fn asked(server: &clearway_testkit::Server, fields: &[(&str, &str)]) -> String {
    // Each has a connection of its own, as some end it.
    let mut client = open(server);
    let block = Frames::block(fields);
    client.say(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block);
    told(&mut client, server)
}

/// What has become of the first stream, or of the connection.
fn told(client: &mut Http2, server: &clearway_testkit::Server) -> String {
    client.wait(|frames| {
        frames.gone.is_some() || frames.answers.get(&1).is_some_and(|answer| answer.end.is_some())
    });
    match (client.frames.answers.get(&1), client.frames.gone) {
        (Some(answer), _) if matches!(answer.end, Some(Ended::Complete)) => answer.canonical("GET", server),
        (Some(answer), None) => format!("{:?}", answer.end),
        (_, Some((code, _))) => format!("gone with {code}"),
        (None, None) => format!("{:?}", client.end),
    }
}

#[test]
fn heads_that_lack_something_are_answered_as_by_nginx() {
    let question = format!("heads over HTTP/2\n{HEADS:?}\n{FIELDS:?}\n{HTTP}");
    compare(&question, |binary| {
        let server = setup(binary).start();
        let mut text = String::new();
        for (name, fields) in HEADS {
            let _ = writeln!(text, "[{name}]\n{}", asked(&server, fields));
        }
        for field in FIELDS {
            let head = [(":method", "GET"), (":path", "/return"), (":scheme", "http"), (":authority", "a")];
            let fields = [&head[..], &[*field]].concat();
            let _ = writeln!(text, "[{field:?}]\n{}", asked(&server, &fields));
        }
        text
    });
}

/// Frames that no client sends: what they are called, and their type, flags, stream and payload. DATA of a
/// stream that was never opened is not among them: nginx takes it.
const FRAMES: &[(&str, u8, u8, u32, &[u8])] = &[
    ("DATA without a stream", kind::DATA, 0, 0, b"x"),
    ("HEADERS without a stream", kind::HEADERS, flag::END_HEADERS, 0, b"\x82"),
    ("HEADERS of a stream of the server", kind::HEADERS, flag::END_HEADERS, 2, b"\x82"),
    ("HEADERS that cannot be read", kind::HEADERS, flag::END_HEADERS, 7, b"\xff\xff\xff\xff\xff\xff"),
    ("HEADERS with an index of nothing", kind::HEADERS, flag::END_HEADERS, 7, b"\xbf"),
    (
        "HEADERS with more padding than there is",
        kind::HEADERS,
        flag::END_HEADERS | flag::PADDED,
        7,
        b"\x05\x82",
    ),
    ("HEADERS that depend on themselves", kind::HEADERS, flag::END_HEADERS | 0x20, 7, b"\0\0\0\x07\0\x82"),
    ("PRIORITY without a stream", kind::PRIORITY, 0, 0, b"\0\0\0\x01\0"),
    ("PRIORITY that is too short", kind::PRIORITY, 0, 7, b"\0\0\0"),
    ("RST_STREAM without a stream", kind::RST_STREAM, 0, 0, b"\0\0\0\x08"),
    ("RST_STREAM that is too short", kind::RST_STREAM, 0, 1, b"\0\0"),
    ("SETTINGS of a stream", kind::SETTINGS, 0, 1, b""),
    ("SETTINGS that are cut", kind::SETTINGS, 0, 0, b"\0\x04\0"),
    ("SETTINGS with a window that is too large", kind::SETTINGS, 0, 0, b"\0\x04\xff\xff\xff\xff"),
    ("SETTINGS with frames that are too small", kind::SETTINGS, 0, 0, b"\0\x05\0\0\0\x01"),
    ("SETTINGS with a push that is neither", kind::SETTINGS, 0, 0, b"\0\x02\0\0\0\x02"),
    ("an acknowledgement with a payload", kind::SETTINGS, flag::ACK, 0, b"\0\x04\0\0\0\x01"),
    ("PUSH_PROMISE", 5, 0, 1, b"\0\0\0\x02"),
    ("PING of a stream", kind::PING, 0, 1, b"12345678"),
    ("PING that is too short", kind::PING, 0, 0, b"1234"),
    ("GOAWAY of a stream", 7, 0, 1, b"\0\0\0\0\0\0\0\0"),
    ("WINDOW_UPDATE by nothing", kind::WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
    ("WINDOW_UPDATE that is too short", kind::WINDOW_UPDATE, 0, 0, b"\0\0"),
    ("WINDOW_UPDATE beyond all windows", kind::WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
    ("CONTINUATION of nothing", kind::CONTINUATION, flag::END_HEADERS, 7, b"\x82"),
];

#[test]
fn frames_that_are_wrong_end_connections_as_with_nginx() {
    let question = format!("wrong frames over HTTP/2\n{FRAMES:?}\n{HTTP}");
    compare(&question, |binary| {
        let server = setup(binary).start();
        let mut text = String::new();
        for (name, kind, flags, stream, payload) in FRAMES {
            let mut client = open(&server);
            client.get(1, "/file");
            client.answer(1);
            client.say(*kind, *flags, *stream, payload);
            client.get(9, "/file");
            client.wait(|frames| {
                frames.gone.is_some() || frames.answers.get(&9).is_some_and(|answer| answer.end.is_some())
            });
            let gone = client.frames.gone.map(|(code, _)| code);
            let _ = writeln!(
                text,
                "{name}: {}",
                match gone {
                    Some(code) => format!("gone with {code}"),
                    None => "goes on".to_owned(),
                }
            );
        }
        text
    });
}
