//! Requests that are wrong, or only look so: the status, and whether the connection is closed.

use clearway_testkit::{Case, Exchange};

const CONFIG: &str = "
    server { listen %%PORT%%; server_name a; root %%PREFIX%%/site;
        location /ok { return 200 \"$request_method $uri\"; } location / { } }
    server { listen %%PORT2%%; client_header_buffer_size 128; large_client_header_buffers 2 512;
        location / { return 200 \"$http_x_a\"; } }
    server { listen %%PORT3%%; large_client_header_buffers 4 1k; location / { return 200 large; } }
";

fn case() -> Case {
    Case::http(CONFIG).file("site/index.html", "index\n")
}

fn play(requests: &[&str]) {
    requests.iter().fold(case(), |case, request| case.ask(*request)).with_access_log().run();
}

#[test]
fn request_lines() {
    play(&[
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "get / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GeT / HTTP/1.1\r\nHost: a\r\n\r\n",
        "G3T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "G-T /ok HTTP/1.1\r\nHost: a\r\n\r\n",
        "FOO_BAR /ok HTTP/1.1\r\nHost: a\r\n\r\n",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ /ok HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET index.html HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "TRACE /ok HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ?x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /é HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\\x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /ok\r HTTP/1.1\r\nHost: a\r\n\r\n",
    ]);
}

#[test]
fn connect() {
    play(&["CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT /ok HTTP/1.1\r\nHost: a\r\n\r\n"]);
}

#[test]
fn versions() {
    play(&[
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.9\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.99\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.100\r\nHost: a\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/3.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/0.9\r\nHost: a\r\n\r\n",
        "GET / HTTP/1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.\r\nHost: a\r\n\r\n",
        "GET / HTTP/.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/01.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.01\r\nHost: a\r\n\r\n",
        "GET / HTTP/11.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1x\r\nHost: a\r\n\r\n",
        "GET / HTTP/x.1\r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTPS/1.1\r\nHost: a\r\n\r\n",
        "GET / HTT\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]);
}

#[test]
fn http_0_9() {
    case()
        .ask("GET /ok\r\n")
        .ask("GET /\r\n")
        .ask("GET /missing\r\n")
        .ask("GET /ok\n")
        .ask("GET /ok \r\n")
        .ask("POST /ok\r\n")
        .ask("GET http://a/ok\r\n")
        .with_access_log()
        .run();
}

#[test]
fn headers() {
    let get = |headers: &str| format!("GET /ok HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    let lines = [
        "X-A: b\r\n",
        "X-A:b\r\n",
        "X-A : b\r\n",
        "X A: b\r\n",
        " X-A: b\r\n",
        "X-A: b\r\n folded\r\n",
        "X-A\r\n",
        ": b\r\n",
        "X_A: b\r\n",
        "X.A: b\r\n",
        "X-A: \u{1}\r\n",
        "X-A: a\0b\r\n",
        "X\0A: b\r\n",
        "X-A: é\r\n",
        "Xé: b\r\n",
        "X-A: a\rb\r\n",
        "X-A: b\n",
        "X-A: b\r\r\n",
        "X\"A: b\r\n",
        "X(A): b\r\n",
        "X\u{7f}: b\r\n",
        "X\tA: b\r\n",
        "\tX: b\r\n",
        "Host: a\r\n",
        "Host: b\r\n",
    ];
    lines.iter().fold(case(), |case, line| case.ask(get(line))).with_access_log().run();
}

#[test]
fn hosts() {
    play(&[
        "GET /ok HTTP/1.1\r\n\r\n",
        "GET /ok HTTP/1.1\r\nHost:\r\n\r\n",
        "GET /ok HTTP/1.1\r\nHost: \r\n\r\n",
        "GET /ok HTTP/1.0\r\n\r\n",
        "GET /ok HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
    ]);
}

#[test]
fn lengths() {
    let post = |headers: &str, body: &str| format!("POST /ok HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}");
    let pairs = [
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
        ("Content-Length: 5, 5\r\n", "hello"),
        ("Content-Length: -1\r\n", ""),
        ("Content-Length: +5\r\n", "hello"),
        ("Content-Length: 0x5\r\n", "hello"),
        ("Content-Length: 5 \r\n", "hello"),
        ("Content-Length: five\r\n", "hello"),
        ("Content-Length:\r\n", ""),
        ("Content-Length: 99999999999999999999\r\n", ""),
        ("Content-Length: 9223372036854775807\r\n", ""),
        ("Content-Length: 9223372036854775808\r\n", ""),
        ("Content-Length: 1048576\r\n", ""),
        ("Content-Length: 1048577\r\n", ""),
        ("Content-Length: 00005\r\n", "hello"),
    ];
    let ask = |headers: &str, body: &str| Exchange::new(post(headers, body)).finish_sending().until_end();
    pairs.iter().fold(case(), |case, (headers, body)| case.exchange(ask(headers, body))).run();
}

#[test]
fn transfer_codings() {
    let post = |headers: &str, body: &str| format!("POST /ok HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}");
    let end = "0\r\n\r\n";
    case()
        .ask(post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", end))
        .ask(post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", end))
        .ask(post("Transfer-Encoding: CHUNKED\r\n", end))
        .ask(post("Transfer-Encoding: identity\r\n", ""))
        .ask(post("Transfer-Encoding: gzip, chunked\r\n", end))
        .ask(post("Transfer-Encoding: chunked, gzip\r\n", end))
        .ask(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", end))
        .ask(post("Transfer-Encoding: xchunked\r\n", end))
        .ask(post("Transfer-Encoding:\r\n", end))
        .ask(post("Transfer-Encoding: chunked;q=1\r\n", end))
        .ask(post("Transfer-Encoding: \tchunked\r\n", end))
        .ask(format!("POST /ok HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{end}"))
        .run();
}

#[test]
fn chunks() {
    let post =
        |body: &str| format!("POST /ok HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    let bodies = [
        "5\r\nhello\r\n0\r\n\r\n",
        "005\r\nhello\r\n000\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\t;x\r\nhello\r\n0\r\n\r\n",
        "5;a=\"b\"\r\nhello\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "-1\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "7fffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "200000\r\n",
        "0\r\nTrailer: x\r\n\r\n",
    ];
    // What nginx answers to `return` does not depend on the body; what matters is what happens to the
    // connection, and to a request behind the body.
    bodies
        .iter()
        .fold(case(), |case, body| {
            let next = "GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            case.exchange(Exchange::new(post(body) + next).finish_sending().until_end())
        })
        .run();
}

#[test]
fn size_limits() {
    let at = |port: &str, request: String| Exchange::new(request).to(&format!("127.0.0.1:%%{port}%%"));
    let line = |n: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(n));
    let header = |n: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX-A: {}\r\n\r\n", "y".repeat(n));
    let many = |n: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-B: 0123456789\r\n".repeat(n));
    let mut case = case();
    for n in [100, 300, 480, 490, 497, 498, 500, 510, 520, 1100] {
        case = case.exchange(at("PORT2", line(n))).exchange(at("PORT2", header(n)));
    }
    for n in [5, 30, 60, 64, 70, 100] {
        case = case.exchange(at("PORT2", many(n)));
    }
    for n in [900, 1000, 1100, 3000] {
        case = case.exchange(at("PORT3", line(n))).exchange(at("PORT3", header(n)));
    }
    for n in [1000, 8000, 8170, 8192, 9000, 20_000] {
        case = case.exchange(at("PORT", line(n))).exchange(at("PORT", header(n)));
    }
    case.run();
}

#[test]
fn what_never_becomes_a_request() {
    case()
        .exchange(Exchange::new("").finish_sending().until_end())
        .exchange(Exchange::new("GET / HT").finish_sending().until_end())
        .exchange(Exchange::new("GET / HTTP/1.1\r\nHost: a\r\n").finish_sending().until_end())
        .exchange(
            Exchange::new("POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab")
                .finish_sending()
                .until_end(),
        )
        .exchange(Exchange::new(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()))
        .exchange(Exchange::new("SSH-2.0-OpenSSH_9.2\r\n"))
        .exchange(Exchange::new(vec![0_u8; 64]))
        .with_access_log()
        .run();
}

/// Compared whole, but for the lengths of pages.
const REFUSED: &str = r#"
    log_format refused '[] "$request" $status - $request_length|$request_method|$server_name|$host|$http_x';
    access_log logs/access.log refused;
    server { listen %%PORT%%; server_name main; location / { return 200 ok; } }
    server { listen %%PORT%%; server_name a; root %%PREFIX%%/site;
        access_log logs/access.log refused; access_log logs/access.log refused;
        client_header_buffer_size 256; large_client_header_buffers 2 512; location / { return 200 ok; } }
    server { listen %%PORT2%%; client_header_buffer_size 256; large_client_header_buffers 2 512;
        client_header_timeout 1s; server_name b; location / { return 200 ok; } }
"#;

#[test]
fn what_the_log_knows_of_what_was_refused() {
    let head = |line: &str| format!("{line}\r\nX: yy\r\nHost: a\r\n\r\n");
    let long = |front: &str, end: &str| format!("{front}{}{end}", "a".repeat(700));
    let mut requests: Vec<String> = [
        "G@T / HTTP/1.1",
        "\r\n\r\nG@T / HTTP/1.1",
        "\n\nGET / HTTP/1.1",
        "GET / HTTP/1.x",
        "GET / HTTP/2.0",
        "GET /a b HTTP/1.1",
        "GET /../.. HTTP/1.1",
        "GET http://a_%/ HTTP/1.1",
        "GET http://a..b/ HTTP/1.1",
        "GET / HTTP/1.1\r\nB\0: b",
        "GET / HTTP/1.1\r\n: b",
        "GET / HTTP/1.1\r\n folded",
        "GET / HTTP/1.1\r\nX: a\rb",
        "GET / HTTP/1.1\r\nHost: a..b\r\nY: z",
        "GET / HTTP/1.1\r\nContent-Length: x",
        "TRACE / HTTP/1.1",
    ]
    .map(head)
    .into();
    requests
        .extend(["POST /\r\n", "GET /\r\n", "\r\n\r\nGET / HTTP/1.1\r\nX: yy\r\n\r\n"].map(str::to_owned));
    let case = requests.into_iter().fold(Case::http(REFUSED), Case::ask);
    let to = |request: String| Exchange::new(request).to("127.0.0.1:%%PORT2%%");
    let unfinished = ["GET / HT", "GET / HTTP/1.1\r\n", "GET /x HTTP/1.1\r\nX: yy\r\nHost: b\r\nY"];
    let case = unfinished.into_iter().fold(case, |case, request| {
        case.exchange(Exchange::new(request).answers(0).finish_sending())
            .exchange(Exchange::new(request.replace("b\r", "a\r")).answers(0).finish_sending())
            .exchange(to(request.to_owned()).answers(0))
    });
    case.exchange(to(long("GET /", " HTTP/1.1\r\n\r\n")))
        .exchange(to(long("\r\nGET /", " HTTP/1.1\r\n\r\n")))
        .exchange(to(head(&long("GET / HTTP/1.1\r\nY: ", ""))))
        .exchange(to(format!("{}{}", head("GET / HTTP/1.1"), head("\r\nG@T / HTTP/1.1"))).answers(2))
        .exchange(to(format!("{}{}", head("GET / HTTP/1.1"), long("GET /", " HTTP/1.1\r\n"))).answers(2))
        .with_access_log()
        .run();
}
