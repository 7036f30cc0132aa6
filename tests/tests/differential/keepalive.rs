//! Persistent connections: when they go on, pipelining, request bodies between requests, and the
//! `keepalive_*` directives.

use clearway_testkit::{Case, Exchange};

const CONFIG: &str = "
    server { listen %%PORT%%; root %%PREFIX%%/site; location /ok { return 200 ok; } location /f/ { } }
    server { listen %%PORT2%%; keepalive_timeout 0; location / { return 200 off; } }
    server { listen %%PORT3%%; keepalive_timeout 75s 20s; keepalive_requests 2;
             location / { return 200 two; } }
    server { listen %%PORT4%%; keepalive_disable safari msie6; location / { return 200 disabled; } }
    server { listen %%PORT5%%; keepalive_disable none; location / { return 200 none; } }
";

fn case() -> Case {
    Case::http(CONFIG).file("site/f/a", "file a\n").file("site/f/b", "file b\n")
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

#[test]
fn the_connection_header() {
    case()
        .ask(get("/ok", "Connection: close\r\n"))
        .ask(get("/ok", "Connection: CLOSE\r\n"))
        .ask(get("/ok", "Connection: keep-alive\r\n"))
        .ask(get("/ok", "Connection: Keep-Alive, close\r\n"))
        .ask(get("/ok", "Connection: close\r\nConnection: keep-alive\r\n"))
        .ask(get("/ok", "Connection: upgrade\r\n"))
        .ask(get("/ok", "Keep-Alive: 300\r\n"))
        .ask("GET /ok HTTP/1.0\r\nHost: a\r\n\r\n")
        .ask("GET /ok HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
        .ask("GET /ok HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n")
        .run();
}

#[test]
fn pipelining() {
    let two = get("/ok", "") + &get("/f/a", "");
    let crlf = format!("\r\n{}\r\n{}", get("/ok", ""), get("/ok", ""));
    let many = get("/f/a", "").repeat(50);
    let last_closes = get("/ok", "") + &get("/f/b", "Connection: close\r\n") + &get("/ok", "");
    let bad_second = get("/ok", "") + "BAD\r\n\r\n";
    case()
        .exchange(Exchange::new(two).answers(2))
        .exchange(Exchange::new(crlf).answers(2))
        .exchange(Exchange::new(many).answers(50))
        .exchange(Exchange::new(last_closes).answers(2))
        .exchange(Exchange::new(bad_second).answers(2))
        .exchange(Exchange::new(get("/ok", "") + "GET /ok HT").answers(1))
        .with_access_log()
        .run();
}

#[test]
fn bodies_are_skipped_before_the_next_request() {
    let post = |headers: &str, body: &str| format!("POST /ok HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}");
    let next = get("/f/a", "");
    case()
        .exchange(Exchange::new(post("Content-Length: 5\r\n", "hello") + &next).answers(2))
        .exchange(Exchange::new(post("Content-Length: 0\r\n", "") + &next).answers(2))
        .exchange(
            Exchange::new(post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n") + &next)
                .answers(2),
        )
        .exchange(
            Exchange::new(post("Transfer-Encoding: chunked\r\n", "5;ext=1\r\nhello\r\n0\r\n\r\n") + &next)
                .answers(2),
        )
        .exchange(
            Exchange::new(
                post("Transfer-Encoding: chunked\r\n", "A\r\n0123456789\r\n0\r\nT: v\r\n\r\n") + &next,
            )
            .answers(2),
        )
        .exchange(Exchange::new(post("Content-Length: 100000\r\n", &"x".repeat(100_000)) + &next).answers(2))
        .run();
}

#[test]
fn bodies_of_refused_methods() {
    let post = |path: &str, headers: &str, body: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
    };
    let next = get("/f/a", "");
    case()
        .exchange(Exchange::new(post("/f/a", "Content-Length: 5\r\n", "hello") + &next).answers(2))
        .exchange(Exchange::new(post("/none", "Content-Length: 5\r\n", "hello") + &next).answers(2))
        .exchange(Exchange::new(get("/f/a", "Content-Length: 5\r\n") + "hello" + &next).answers(2))
        .exchange(
            Exchange::new(get("/f/a", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n" + &next).answers(2),
        )
        .run();
}

#[test]
fn directives() {
    let at = |port: &str, request: String, answers| {
        Exchange::new(request).to(&format!("127.0.0.1:%%{port}%%")).answers(answers)
    };
    let safari = "User-Agent: Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 \
        Version/16.1 Safari/605.1.15\r\n";
    let msie6 = "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)\r\n";
    let post = |agent: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{agent}Content-Length: 0\r\n\r\n");
    case()
        .exchange(at("PORT2", get("/", ""), 1))
        .exchange(at("PORT3", get("/", "").repeat(3), 2))
        .exchange(at("PORT4", get("/", safari), 1))
        .exchange(at("PORT4", get("/", msie6), 1))
        .exchange(at("PORT4", post(msie6), 1))
        .exchange(at("PORT4", get("/", ""), 1))
        .exchange(at("PORT5", get("/", msie6), 1))
        .exchange(at("PORT5", post(msie6), 1))
        .exchange(at("PORT", post(msie6).replace("POST / ", "POST /ok "), 1))
        .run();
}

#[test]
fn expect_100_continue() {
    let post = |version: &str, headers: &str, body: &str| {
        format!("POST /ok HTTP/{version}\r\nHost: a\r\n{headers}\r\n{body}")
    };
    case()
        .exchange(Exchange::new(post("1.1", "Expect: 100-continue\r\nContent-Length: 5\r\n", "hello")))
        .exchange(Exchange::new(post("1.1", "Expect: 100-continue\r\nContent-Length: 0\r\n", "")))
        .exchange(Exchange::new(post(
            "1.1",
            "Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        )))
        .exchange(Exchange::new(post("1.0", "Expect: 100-continue\r\nContent-Length: 5\r\n", "hello")))
        .exchange(Exchange::new(post("1.1", "Expect: something\r\nContent-Length: 5\r\n", "hello")))
        .run();
}

#[test]
fn a_412_says_that_the_connection_stays_and_closes_it() {
    let ask = |condition: &str| format!("{}{}", get("/f/a", condition), get("/f/b", ""));
    case()
        .exchange(Exchange::new(ask("If-Match: \"x\"\r\n")).until_end())
        .exchange(Exchange::new(ask("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n")).until_end())
        .exchange(Exchange::new(ask("If-None-Match: *\r\n")).answers(2))
        .exchange(Exchange::new(ask("Range: bytes=100-\r\n")).answers(2))
        .run();
}
