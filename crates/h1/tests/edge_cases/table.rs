//! Requests at and beyond the edges, with what becomes of them: the status of each answer in turn. `0.9`
//! is an answer without head, nothing means that the server waits for more.

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) input: Vec<u8>,
    pub(crate) answers: &'static str,
}

const H: &str = "Host: a\r\n\r\n";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &'static str, input: &str, answers: &'static str| {
        // Bytes above 127 are written as \u{80} to \u{ff}.
        let input = input.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin-1")).collect();
        cases.push(Case { name, input, answers });
    };
    request_lines(&mut add);
    targets(&mut add);
    absolute_targets(&mut add);
    versions(&mut add);
    header_lines(&mut add);
    hosts(&mut add);
    lengths(&mut add);
    connections(&mut add);
    chunks(&mut add);
    sizes(&mut add);
    cases
}

type Add<'a> = dyn FnMut(&'static str, &str, &'static str) + 'a;

fn request_lines(add: &mut Add<'_>) {
    add("plain", &format!("GET / HTTP/1.1\r\n{H}"), "200");
    add("bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n", "200");
    add("empty lines before", &format!("\r\n\n\r\n\r\r\nGET / HTTP/1.1\r\n{H}"), "200");
    add("only empty lines", "\r\n\r\n\n\n", "");
    add("empty lines between two", &format!("GET /1 HTTP/1.1\r\n{H}\r\n\nGET /2 HTTP/1.1\r\n{H}"), "200 200");
    add("space first", &format!(" GET / HTTP/1.1\r\n{H}"), "400");
    add("tab after method", &format!("GET\t/ HTTP/1.1\r\n{H}"), "400");
    add("spaces after method", &format!("GET    / HTTP/1.1\r\n{H}"), "200");
    add("spaces after target", &format!("GET /    HTTP/1.1\r\n{H}"), "200");
    add("spaces after version", &format!("GET / HTTP/1.1   \r\n{H}"), "200");
    add("spaces after version, bare LF", "GET / HTTP/1.1  \nHost: a\r\n\r\n", "200");
    add("tab after version", &format!("GET / HTTP/1.1\t\r\n{H}"), "400");
    add("lower case method", &format!("get / HTTP/1.1\r\n{H}"), "400");
    add("digit in method", &format!("GET1 / HTTP/1.1\r\n{H}"), "400");
    add("unknown method", &format!("FOO_B-AR / HTTP/1.1\r\n{H}"), "200");
    add("method of dashes", &format!("-_ / HTTP/1.1\r\n{H}"), "200");
    add("no method", &format!("/ HTTP/1.1\r\n{H}"), "400");
    add("method alone", "GET\r\n\r\n", "400");
    add("method and space", "GET \r\n\r\n", "400");
    add("TLS hello", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}", "400");
    add("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400");
    add("TRACE", &format!("TRACE / HTTP/1.1\r\n{H}"), "405");
    add("TRACE without host", "TRACE / HTTP/1.1\r\n\r\n", "400");
    add("CONNECT", &format!("CONNECT a:1 HTTP/1.1\r\n{H}"), "405");
    add("CONNECT in 1.0", "CONNECT a:1 HTTP/1.0\r\n\r\n", "405");
    add("CONNECT, spaces", &format!("CONNECT   [::1]:1  HTTP/1.1\r\n{H}"), "405");
    add("CONNECT without port", &format!("CONNECT a HTTP/1.1\r\n{H}"), "400");
    add("CONNECT with empty port", &format!("CONNECT a: HTTP/1.1\r\n{H}"), "400");
    add("CONNECT with path", &format!("CONNECT a:1/ HTTP/1.1\r\n{H}"), "400");
    add("CONNECT to path", &format!("CONNECT / HTTP/1.1\r\n{H}"), "400");
    add("CONNECT to a bad port", &format!("CONNECT a:65536 HTTP/1.1\r\n{H}"), "400");
    add("HEAD", &format!("HEAD / HTTP/1.1\r\n{H}"), "200");
    add("CR in the line", &format!("GET / HTTP/1.1\rX\r\n{H}"), "400");
    add("two CR at the end", &format!("GET / HTTP/1.1\r\r\n{H}"), "400");
    add("incomplete", "GET / HTTP/1.1\r\nHost: a\r\n", "");
    add("incomplete line", "GET / HTTP/1.", "");
}

fn targets(add: &mut Add<'_>) {
    add("args", &format!("GET /a/b?c=d&e HTTP/1.1\r\n{H}"), "200");
    add("empty args", &format!("GET /a? HTTP/1.1\r\n{H}"), "200");
    add("two question marks", &format!("GET /a?b?c HTTP/1.1\r\n{H}"), "200");
    add("fragment", &format!("GET /a#b HTTP/1.1\r\n{H}"), "200");
    add("fragment before args", &format!("GET /a#b?c HTTP/1.1\r\n{H}"), "200");
    add("fragment after args", &format!("GET /a?b#c?d HTTP/1.1\r\n{H}"), "200");
    add("two fragments", &format!("GET /a?b#c#d HTTP/1.1\r\n{H}"), "200");
    add("escape in path", &format!("GET /%41/b?c%20 HTTP/1.1\r\n{H}"), "200");
    add("question mark behind an escape", &format!("GET /%41?b HTTP/1.1\r\n{H}"), "200");
    add("escaped question mark", &format!("GET /a%3Fb?c HTTP/1.1\r\n{H}"), "200");
    add("dots", &format!("GET /a/../b/./c?d HTTP/1.1\r\n{H}"), "200");
    add("double slash", &format!("GET //a//b?c HTTP/1.1\r\n{H}"), "200");
    add("plus", &format!("GET /+./a+b?c+d HTTP/1.1\r\n{H}"), "200");
    add("dot behind plus", &format!("GET /+/..?x HTTP/1.1\r\n{H}"), "200");
    add("high bytes", &format!("GET /\u{e9}\u{ff}?\u{80} HTTP/1.1\r\n{H}"), "200");
    add("quotes and braces", &format!("GET /\"<>{{}}|\\^`?\"<> HTTP/1.1\r\n{H}"), "200");
    add("control byte", &format!("GET /a\u{1}b HTTP/1.1\r\n{H}"), "400");
    add("control byte in args", &format!("GET /a?\u{1f} HTTP/1.1\r\n{H}"), "400");
    add("control byte in fragment", &format!("GET /a#\u{0} HTTP/1.1\r\n{H}"), "400");
    add("tab in target", &format!("GET /a\tb HTTP/1.1\r\n{H}"), "400");
    add("DEL in target", &format!("GET /a\u{7f} HTTP/1.1\r\n{H}"), "400");
    add("space in target", &format!("GET /a b HTTP/1.1\r\n{H}"), "400");
    add("asterisk", &format!("OPTIONS * HTTP/1.1\r\n{H}"), "400");
    add("relative", &format!("GET ?a HTTP/1.1\r\n{H}"), "400");
    add("authority only", &format!("GET a:1 HTTP/1.1\r\n{H}"), "400");
    add("backslash", &format!("GET \\a HTTP/1.1\r\n{H}"), "400");
}

fn absolute_targets(add: &mut Add<'_>) {
    add("absolute", "GET http://B/c?d HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute with port", "GET http://b:80/c HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute with empty port", "GET http://b:/c HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute without path", "GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute with port, without path", "GET http://b:1 HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute with args only", "GET http://b?c=d HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute with port, args only", "GET http://b:2?c HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute, other scheme", "GET x+1.-y://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute without host header", "GET http://b/ HTTP/1.1\r\n\r\n", "400");
    add("absolute without host header in 1.0", "GET http://b/ HTTP/1.0\r\n\r\n", "200");
    add("absolute with bad host header", "GET http://b/ HTTP/1.1\r\nHost: a/\r\n\r\n", "400");
    add("absolute without host", "GET http:///c HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("absolute with user", "GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("absolute with fragment behind host", "GET http://b#c HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("absolute with literal", "GET http://[::1]:80/ HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute with literal, no path", "GET http://[::1] HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute with open literal", "GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("absolute with text behind literal", "GET http://[::1]a/ HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("absolute with underscore", "GET http://b_c/ HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("absolute with two dots", "GET http://b..c/ HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("absolute with trailing dot", "GET http://b./ HTTP/1.1\r\nHost: a\r\n\r\n", "200");
    add("absolute with large port", "GET http://b:65536/ HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("one slash behind scheme", "GET http:/b HTTP/1.1\r\nHost: a\r\n\r\n", "400");
    add("absolute in 0.9", "GET http://b/\r\n", "0.9");
    add("absolute without path in 0.9", "GET http://b\r\n", "400");
    add("absolute, plain path dotted", "GET http://b/../c HTTP/1.1\r\nHost: a\r\n\r\n", "400");
}

fn versions(add: &mut Add<'_>) {
    add("1.0", "GET / HTTP/1.0\r\n\r\n", "200");
    add("1.2", &format!("GET / HTTP/1.2\r\n{H}"), "200");
    add("1.01", &format!("GET / HTTP/1.01\r\n{H}"), "200");
    add("1.00000", "GET / HTTP/1.00000\r\n\r\n", "200");
    add("1.999", &format!("GET / HTTP/1.999\r\n{H}"), "200");
    add("1.1000", &format!("GET / HTTP/1.1000\r\n{H}"), "400");
    add("0.9 spelled out", &format!("GET / HTTP/0.9\r\n{H}"), "400");
    add("01.1", &format!("GET / HTTP/01.1\r\n{H}"), "400");
    add("2.0", &format!("GET / HTTP/2.0\r\n{H}"), "505");
    add("HEAD in 3.0", &format!("HEAD / HTTP/3.0\r\n{H}"), "505");
    add("10.1", &format!("GET / HTTP/10.1\r\n{H}"), "505");
    add("1", &format!("GET / HTTP/1\r\n{H}"), "400");
    add("1.", &format!("GET / HTTP/1.\r\n{H}"), "400");
    add("1,1", &format!("GET / HTTP/1,1\r\n{H}"), "400");
    add("1.1x", &format!("GET / HTTP/1.1x\r\n{H}"), "400");
    add("lower case", &format!("GET / http/1.1\r\n{H}"), "400");
    add("HTTPS/1.1", &format!("GET / HTTPS/1.1\r\n{H}"), "400");
    add("ICY", &format!("GET / ICY/1.1\r\n{H}"), "400");
    add("HTTP", "GET / HTTP\r\n\r\n", "400");
    add("0.9", "GET /a?b\r\n", "0.9");
    add("0.9, bare LF", "GET /\n", "0.9");
    add("0.9, space", "GET / \r\n", "0.9");
    add("0.9, space, bare LF", "GET / \n", "0.9");
    add("0.9, bare CR", "GET /\rX", "400");
    add("0.9, bare CR behind a space", "GET / \rX", "400");
    add("0.9 with another behind", &format!("GET /\r\nGET / HTTP/1.1\r\n{H}"), "0.9");
    add("0.9 POST", "POST /\r\n", "0.9-400");
    add("0.9 POST with space", "POST / \n", "0.9-400");
    add("0.9 climbing", "GET /../\r\n", "0.9-400");
}

fn header_lines(add: &mut Add<'_>) {
    add("no colon", &format!("GET / HTTP/1.1\r\nfoo\r\n{H}"), "200");
    add("no colon, bare LF", &format!("GET / HTTP/1.1\r\nfoo\n{H}"), "200");
    add("Host without colon", "GET / HTTP/1.1\r\nHost\r\n\r\n", "400");
    add("colon first", &format!("GET / HTTP/1.1\r\n: x\r\n{H}"), "400");
    add("space before colon", &format!("GET / HTTP/1.1\r\nX : x\r\n{H}"), "400");
    add("tab before colon", &format!("GET / HTTP/1.1\r\nX\t: x\r\n{H}"), "400");
    add("space in name", &format!("GET / HTTP/1.1\r\nX y: x\r\n{H}"), "400");
    add("folded line", &format!("GET / HTTP/1.1\r\nX: x\r\n y\r\n{H}"), "400");
    add("folded with tab", &format!("GET / HTTP/1.1\r\nX: x\r\n\ty\r\n{H}"), "400");
    add("space before first name", &format!("GET / HTTP/1.1\r\n X: x\r\n{H}"), "400");
    add("underscore ignored", &format!("GET / HTTP/1.1\r\nX_y: x\r\n_: z\r\n{H}"), "200");
    add("underscore hides", "GET / HTTP/1.1\r\nHost: a\r\nContent_Length: x\r\n\r\n", "200");
    add("invalid name ignored", &format!("GET / HTTP/1.1\r\nX(y): x\r\n\u{80}: z\r\n{H}"), "200");
    add("invalid Host ignored", "GET / HTTP/1.1\r\nHost\u{80}: a\r\n\r\n", "400");
    add("NUL in name", &format!("GET / HTTP/1.1\r\nX\u{0}: x\r\n{H}"), "400");
    add("DEL in name", &format!("GET / HTTP/1.1\r\nX\u{7f}: x\r\n{H}"), "400");
    add("NUL first in value", &format!("GET / HTTP/1.1\r\nX:\u{0}x\r\n{H}"), "400");
    add("NUL in value", &format!("GET / HTTP/1.1\r\nX: x\u{0}\r\n{H}"), "400");
    add("NUL behind spaces", &format!("GET / HTTP/1.1\r\nX: x  \u{0}\r\n{H}"), "400");
    add("NUL in an ignored line", &format!("GET / HTTP/1.1\r\nX(: x\u{0}\r\n{H}"), "400");
    add("control bytes in value", &format!("GET / HTTP/1.1\r\nX: \u{1}\u{7f}\t\r\n{H}"), "200");
    add("bare CR in value", &format!("GET / HTTP/1.1\r\nX: x\ry: z\r\n{H}"), "400");
    add("CR CR LF behind value", &format!("GET / HTTP/1.1\r\nX: x\r\r\n{H}"), "200");
    add("CR CR LF behind spaces", &format!("GET / HTTP/1.1\r\nX: x  \r\r\r\n{H}"), "200");
    add("CR CR LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n", "400");
    add("CR at the end", "GET / HTTP/1.1\r\nHost: a\r\n\rX", "400");
    add("empty value", &format!("GET / HTTP/1.1\r\nX:\r\nY: \r\nZ:\n{H}"), "200");
    add("no space behind colon", "GET / HTTP/1.1\r\nHost:a\r\n\r\n", "200");
    add("spaces around value", "GET / HTTP/1.1\r\nHost:    a  \r\n\r\n", "200");
    add(
        "two If-None-Match",
        &format!("GET / HTTP/1.1\r\nIf-None-Match: 1\r\nIF-NONE-MATCH: 1\r\n{H}"),
        "400",
    );
    add(
        "two Authorization",
        &format!("GET / HTTP/1.1\r\nAuthorization: x\r\nAuthorization: x\r\n{H}"),
        "400",
    );
    add("two Expect", &format!("GET / HTTP/1.1\r\nExpect: x\r\nExpect: x\r\n{H}"), "400");
    add("two Cookie", &format!("GET / HTTP/1.1\r\nCookie: x\r\nCookie: x\r\n{H}"), "200");
    add("two Range", &format!("GET / HTTP/1.1\r\nRange: x\r\nRange: x\r\n{H}"), "200");
}

fn hosts(add: &mut Add<'_>) {
    add("no host in 1.1", "GET / HTTP/1.1\r\n\r\n", "400");
    add("no host in 1.0", "GET / HTTP/1.0\r\nX: y\r\n\r\n", "200");
    add("empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "400");
    add("empty host in 1.0", "GET / HTTP/1.0\r\nHost: \r\n\r\n", "400");
    add("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400");
    add("two hosts in 1.0", "GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", "400");
    add("host in upper case", "GET / HTTP/1.1\r\nHOST: EXAMPLE.com\r\n\r\n", "200");
    add("host with port and dot", "GET / HTTP/1.1\r\nHost: a.b.:8080\r\n\r\n", "200");
    add("host with bad port", "GET / HTTP/1.1\r\nHost: a:8o\r\n\r\n", "400");
    add("host with large port", "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", "400");
    add("host with path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400");
    add("host with two dots", "GET / HTTP/1.1\r\nHost: a..b\r\n\r\n", "400");
    add("host of a dot", "GET / HTTP/1.1\r\nHost: .\r\n\r\n", "400");
    add("host of a port", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", "400");
    add("host literal", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "200");
    add("host literal, empty", "GET / HTTP/1.1\r\nHost: []\r\n\r\n", "200");
    add("host literal, open", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "400");
    add("host literal with escape", "GET / HTTP/1.1\r\nHost: [a%31]\r\n\r\n", "400");
    add("host with sub-delims", "GET / HTTP/1.1\r\nHost: a_~!$&'()*+,;=%b\r\n\r\n", "200");
    add("host with space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400");
    add("host behind a tab", "GET / HTTP/1.1\r\nHost:\ta\r\n\r\n", "400");
    add("host with user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "400");
}

fn lengths(add: &mut Add<'_>) {
    let post = "POST / HTTP/1.1\r\nHost: a\r\n";
    let next = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    add("length", &format!("{post}Content-Length: 2\r\n\r\nhi{next}"), "200 200");
    add("length 0", &format!("{post}Content-Length: 0\r\n\r\n{next}"), "200 200");
    add("length with zeros", &format!("{post}Content-Length: 0002\r\n\r\nhi{next}"), "200 200");
    add("GET with length", &format!("GET / HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi{next}"), "200");
    add("largest length", &format!("{post}Content-Length: 9223372036854775807\r\n\r\n"), "413");
    add("too large a number", &format!("{post}Content-Length: 9223372036854775808\r\n\r\n"), "400");
    add("length of 40 digits", &format!("{post}Content-Length: {}\r\n\r\n", "9".repeat(40)), "400");
    add("length empty", &format!("{post}Content-Length:\r\n\r\n"), "400");
    add("length signed", &format!("{post}Content-Length: +2\r\n\r\nhi"), "400");
    add("length negative", &format!("{post}Content-Length: -1\r\n\r\n"), "400");
    add("length hex", &format!("{post}Content-Length: 0x2\r\n\r\nhi"), "400");
    add("length list", &format!("{post}Content-Length: 2, 2\r\n\r\nhi"), "400");
    add("length with space", &format!("{post}Content-Length: 2 2\r\n\r\nhi"), "400");
    add("length with tab", &format!("{post}Content-Length:\t2\r\n\r\nhi"), "400");
    add("length twice", &format!("{post}Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi"), "400");
    add("length bad without host", "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "400");
    add(
        "chunked and length",
        &format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n"),
        "400",
    );
    add(
        "length and chunked",
        &format!("{post}Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "400",
    );
    add("length and gzip", &format!("{post}Content-Length: 0\r\nTransfer-Encoding: gzip\r\n\r\n"), "501");
    add("gzip, chunked", &format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n"), "501");
    add("chunked, identity", &format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n"), "501");
    add("identity", &format!("{post}Transfer-Encoding: identity\r\n\r\n"), "501");
    add("empty coding", &format!("{post}Transfer-Encoding:\r\n\r\n"), "501");
    add("coding behind a tab", &format!("{post}Transfer-Encoding:\tchunked\r\n\r\n"), "501");
    add("coding with vertical tab", &format!("{post}Transfer-Encoding: \u{b}chunked\r\n\r\n"), "501");
    add("xchunked", &format!("{post}Transfer-Encoding: xchunked\r\n\r\n"), "501");
    add(
        "two codings",
        &format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "400",
    );
    add("chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400");
    add("gzip in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n", "400");
    add("name with space", &format!("{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), "400");
    add("length ignored", &format!("{post}Content-Length(: 9\r\n\r\n{next}"), "200 200");
}

fn connections(add: &mut Add<'_>) {
    let next = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let get = "GET / HTTP/1.1\r\nHost: a\r\n";
    add("pipeline", &format!("{get}\r\n{next}{next}"), "200 200 200");
    add("close", &format!("{get}Connection: close\r\n\r\n{next}"), "200");
    add("close in a list", &format!("{get}Connection: foo, CLOSE\r\n\r\n{next}"), "200");
    add("close inside a word", &format!("{get}Connection: enclosed\r\n\r\n{next}"), "200");
    add(
        "close, then keep-alive",
        &format!("{get}Connection: close\r\nConnection: keep-alive\r\n\r\n{next}"),
        "200 200",
    );
    add("both in one line", &format!("{get}Connection: keep-alive, close\r\n\r\n{next}"), "200");
    add("close, then another", &format!("{get}Connection: close\r\nConnection: te\r\n\r\n{next}"), "200");
    add("upgrade", &format!("{get}Connection: upgrade\r\nUpgrade: x\r\n\r\n{next}"), "200 200");
    add("1.0", &format!("GET / HTTP/1.0\r\n\r\n{next}"), "200");
    add("1.0 keep-alive", &format!("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n{next}"), "200 200");
    add("1.2", &format!("GET / HTTP/1.2\r\n{H}{next}"), "200 200");
    add("fault behind a good one", &format!("{get}\r\nget / HTTP/1.1\r\n{H}{next}"), "200 400");
}

fn chunks(add: &mut Add<'_>) {
    let next = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut add = |name: &'static str, body: &str, answers: &'static str| {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n";
        add(name, &format!("{head}{body}"), answers);
    };
    add("chunks", &format!("2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n{next}"), "200 200");
    add("no chunks", &format!("0\r\n\r\n{next}"), "200 200");
    add("size in both cases", &format!("a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n{next}"), "200 200");
    add("size with zeros", &format!("000000000000000000000002\r\nhi\r\n0000\r\n\r\n{next}"), "200 200");
    add("extension", &format!("2;a=b\r\nhi\r\n0;c=\"d;e\"\r\n\r\n{next}"), "200 200");
    add("space behind size", &format!("2 \r\nhi\r\n0 \r\n\r\n{next}"), "200 200");
    add("tab and extension", &format!("2\t; a = b\r\nhi\r\n0\t;\r\n\r\n{next}"), "200 200");
    add("text behind the space", &format!("2 x\r\nhi\r\n0\r\n\r\n{next}"), "200 200");
    add("trailers", &format!("2\r\nhi\r\n0\r\nX: y\r\nContent-Length: 9\r\n\r\n{next}"), "200 200");
    add("trailer of nonsense", &format!("0\r\n \u{0}:\t\u{1}\r\n\r\n{next}"), "200 200");
    add("bare LF behind size", "2\nhi\r\n0\r\n\r\n", "400");
    add("bare LF behind data", "2\r\nhi\n0\r\n\r\n", "400");
    add("bare LF behind last size", "0\n\r\n", "400");
    add("bare LF at the end", "0\r\n\n", "400");
    add("bare LF in extension", "2;a\nhi\r\n0\r\n\r\n", "400");
    add("bare LF in last extension", "0;a\n\r\n", "400");
    add("bare LF behind trailer", "0\r\nX: y\n\r\n", "400");
    add("bare CR behind size", "2\rxhi\r\n0\r\n\r\n", "400");
    add("bare CR in extension", "2;\rxhi\r\n0\r\n\r\n", "400");
    add("bare CR in trailer", "0\r\nX: y\rz\r\n\r\n", "400");
    add("bare CR at the end", "0\r\n\rx", "400");
    add("data too long", "2\r\nhi!\r\n0\r\n\r\n", "400");
    add("data too short", "4\r\nhi\r\n0\r\n\r\n", "400");
    add("no size", "\r\nhi\r\n", "400");
    add("space before size", " 2\r\nhi\r\n0\r\n\r\n", "400");
    add("extension alone", ";a\r\nhi\r\n0\r\n\r\n", "400");
    add("size with prefix", "0x2\r\nhi\r\n0\r\n\r\n", "400");
    add("size signed", "+2\r\nhi\r\n0\r\n\r\n", "400");
    add("size with other text", "2g\r\nhi\r\n0\r\n\r\n", "400");
    add("size of 2^64", "10000000000000000\r\n", "400");
    add("size of 2^64 + 2", "10000000000000002\r\nhi\r\n0\r\n\r\n", "400");
    add("size of 2^63", "8000000000000000\r\n", "400");
    add("size of 2^59", "800000000000000\r\n", "400");
    add("empty lines between chunks", "2\r\nhi\r\n\r\n0\r\n\r\n", "400");
    add("size incomplete", "2", "200");
    add("data incomplete", "2\r\nh", "200");
    add("end incomplete", "2\r\nhi\r\n0\r\n", "200");
}

fn sizes(add: &mut Add<'_>) {
    let get = |path: usize| format!("GET /{} HTTP/1.1\r\n", "a".repeat(path));
    // With its CRLF a request line has sixteen bytes more than its path.
    add("line of a large buffer", &format!("{}{H}", get(8192 - 16)), "200");
    add("line a byte too long", &format!("{}{H}", get(8193 - 16)), "414");
    add("line without an end", &format!("GET /{}", "a".repeat(9000)), "414");
    add("method without an end", &"A".repeat(9000), "414");
    add("line of the first buffer", &format!("{}{H}", get(1024 - 16)), "200");
    add("line of a byte more", &format!("{}{H}", get(1025 - 16)), "200");
    let header = |len: usize| format!("X: {}\r\n", "b".repeat(len - 5));
    add("header of a large buffer", &format!("{}{}{H}", get(1), header(8192)), "200");
    add("header a byte too long", &format!("{}{}{H}", get(1), header(8193)), "494");
    add("headers as large as half a buffer", &format!("{}{}{H}", get(1), header(4100).repeat(6)), "494");
    add("five of them", &format!("{}{}{H}", get(1), header(4100).repeat(4)), "200");
    add("header without an end", &format!("{}X: {}", get(1), "b".repeat(9000)), "494");
    add("name without an end", &format!("{}{}", get(1), "b".repeat(9000)), "494");
    add("four large headers", &format!("{}{}{H}", get(1), header(8192).repeat(4)), "494");
    add("four large headers less the end", &format!("{}{}{H}", get(1), header(8170).repeat(4)), "200");
    add("large line and four headers", &format!("{}{}{H}", get(8000), header(8170).repeat(4)), "494");
    add("large line and three headers", &format!("{}{}{H}", get(8000), header(8170).repeat(3)), "200");
    add("many small headers", &format!("{}{}{H}", get(1), header(100).repeat(345)), "494");
    add("as many as fit", &format!("{}{}{H}", get(1), header(100).repeat(330)), "200");
    add("1000 headers", &format!("{}{}{H}", get(1), "X: y\r\n".repeat(999)), "200");
    add("1001 headers", &format!("{}{}{H}", get(1), "X: y\r\n".repeat(1000)), "494");
    add("1000 and ignored ones", &format!("{}{}{H}", get(1), "X: y\r\n_: y\r\n".repeat(999)), "200");
    add("empty lines beyond a buffer", &format!("{}{}{H}", "\r\n".repeat(3000), get(1)), "200");
}
