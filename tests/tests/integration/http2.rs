//! HTTP/2: requests beside each other, bodies in both directions, what clients may not do, and how a
//! connection ends. Each attack is met by a limit, and others are served meanwhile.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use clearway_h2::connection::{CONTINUATIONS_MAX, RESETS_MAX, USELESS_FRAMES_MAX};
use clearway_h2::frame::{ErrorCode, Rest, flag, kind};
use clearway_h2::settings::Settings;
use clearway_testkit::http2::{Ended, Frames, Http2};
use clearway_testkit::{Server, Setup};
use rustix::process::Signal;

use crate::deployed;
use crate::tls;

const HTTP: &str = "
    client_body_buffer_size 1m;
    client_max_body_size 0;
    server {
        listen 127.0.0.1:%%PORT%%;
        http2 on;
        http2_max_concurrent_streams 32;
        send_timeout 1s;
        client_header_timeout 2s;
        location / { return 200 '$http2 $server_protocol $request_method $uri $args $http_x_a'; }
        location /files/ { alias %%PREFIX%%/; }
        location /slow { echo_sleep 1; echo slow; }
        location /body { echo_read_request_body; echo_request_body; }
        location /proxied/ { proxy_pass http://127.0.0.1:%%PORT:other%%/; }
        location /trailers { add_trailer X-Trailer $http2; return 200 text; }
        location /small { client_max_body_size 10; echo_read_request_body; echo_request_body; }
    }
    server {
        listen 127.0.0.1:%%PORT:other%%;
        location / {
            echo_read_request_body;
            echo -n \"$request_method $uri $http_content_length \";
            echo_request_body;
        }
    }";

const LARGE_BYTES: usize = 1_000_000;

fn start() -> Server {
    let large: Vec<u8> = (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect();
    deployed("events { }", HTTP).file("large", large).file("small", "hello").start()
}

fn open(server: &Server) -> Http2 {
    let settings = Settings { window_bytes: Some(1 << 20), ..Settings::default() };
    let mut client = Http2::open(&server.address(), settings);
    client.say(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    client
}

/// Whether somebody else is served.
fn serves(server: &Server) {
    let begun = Instant::now();
    let mut client = open(server);
    client.get(1, "/other");
    assert_eq!(client.answer(1).status(), "200");
    assert!(begun.elapsed() < Duration::from_secs(10), "others wait for {:?}", begun.elapsed());
}

#[test]
fn requests_are_answered_beside_each_other() {
    let server = start();
    let mut client = open(&server);
    let begun = Instant::now();
    client.get(1, "/slow");
    client.get(3, "/a?b=c");
    client.get(5, "/files/large");
    client.get(7, "/files/absent");
    client.send(&Frames::request(9, "HEAD", "/files/small", &[], Rest::Ended));
    let answer = client.answer(3);
    assert_eq!((answer.status(), answer.text().as_str()), ("200", "h2c HTTP/2.0 GET /a b=c "));
    let large = client.answer(5);
    assert_eq!((large.status(), large.body.len()), ("200", LARGE_BYTES));
    assert!(large.body.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
    assert_eq!(client.answer(7).status(), "404");
    let head = client.answer(9);
    assert!(head.heads[0].contains(&"content-length: 5".to_owned()) && head.body.is_empty(), "{head:?}");
    let is_over = client.frames.answers.get(&1).is_some_and(|slow| slow.end.is_some());
    assert!(!is_over || begun.elapsed() >= Duration::from_secs(1), "it takes a second");
    assert_eq!(client.answer(1).text(), "slow\n");
    let log = server.wait_log("logs/access.log", "/slow");
    assert!(log.contains("\"GET /a?b=c HTTP/2.0\" 200"), "{log}");
}

#[test]
fn bodies_are_larger_than_windows() {
    let server = start();
    for path in ["/body", "/proxied/body"] {
        let mut client = open(&server);
        client.send(&Frames::request(1, "POST", path, &[("x-a", "b")], Rest::Open));
        let body = vec![b'x'; 16_000];
        // As much as the window is from the beginning; the rest once the server has said that it may come.
        for _ in 0..4 {
            client.say(kind::DATA, 0, 1, &body);
        }
        client.wait(|frames| frames.windows.iter().any(|(stream, _)| *stream == 1));
        client.say(kind::DATA, 0, 1, &body);
        client.say(kind::DATA, flag::END_STREAM, 1, b"end");
        let answer = client.answer(1);
        assert!(
            answer.text().ends_with("xend") && answer.body.len() >= 80_003,
            "{path}: {}",
            answer.body.len()
        );
    }
}

#[test]
fn lengths_of_bodies_are_those_that_were_announced() {
    let server = start();
    let mut client = open(&server);
    let ask = |client: &mut Http2, stream: u32, length: &str, body: &[u8]| {
        let more = [("content-length", length)];
        client.send(&Frames::request(stream, "POST", "/body", &more, Rest::Open));
        client.say(kind::DATA, flag::END_STREAM, stream, body);
        let answer = client.answer(stream);
        (answer.status().to_owned(), answer.text())
    };
    assert_eq!(ask(&mut client, 1, "4", b"four"), ("200".into(), "four".into()));
    assert_eq!(ask(&mut client, 3, "5", b"four").0, "400");
    assert_eq!(ask(&mut client, 5, "3", b"four").0, "400");
    client.send(&Frames::request(7, "POST", "/small", &[], Rest::Open));
    client.say(kind::DATA, flag::END_STREAM, 7, b"eleven byte");
    assert_eq!(client.answer(7).status(), "413");
}

#[test]
fn trailers_in_both_directions() {
    let server = start();
    let mut client = open(&server);
    client.get(1, "/trailers");
    let answer = client.answer(1);
    assert_eq!(
        (answer.text().as_str(), &answer.heads[1..]),
        ("text", &[vec!["x-trailer: h2c".to_owned()]][..])
    );
    client.send(&Frames::request(3, "POST", "/body", &[], Rest::Open));
    client.say(kind::DATA, 0, 3, b"body");
    let trailers = Frames::block(&[("x-t", "u")]);
    client.say(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 3, &trailers);
    assert_eq!(client.answer(3).text(), "body");
}

#[test]
fn what_is_wrong_with_a_head_is_said_and_the_connection_goes_on() {
    let server = start();
    let mut client = open(&server);
    client.send(&Frames::request(1, "GET", "/", &[("connection", "close")], Rest::Ended));
    client.send(&Frames::request(3, "GET", "/", &[("a", "b\r\nc: d")], Rest::Ended));
    client.send(&Frames::request(5, "CONNECT", "/", &[], Rest::Ended));
    client.get(7, "relative");
    client.get(9, "/good");
    let statuses = [1, 3, 5, 7, 9].map(|stream| client.answer(stream).status().to_owned());
    assert_eq!(statuses, ["400", "400", "405", "400", "200"]);
    let log = server.wait_log("logs/error.log", "client sent \"Connection\" header");
    assert!(log.contains("while reading client request headers, client: 127.0.0.1"), "{log}");
}

#[test]
fn who_speaks_http1_is_answered_so() {
    let server = start();
    assert_eq!(server.get("/plain").text(), " HTTP/1.1 GET /plain  ");
    let mut connection = server.connect();
    connection.send(b"P");
    std::thread::sleep(Duration::from_millis(50));
    let answer = connection.ask("OST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answer.text(), " HTTP/1.1 POST /b  ");
}

#[test]
fn clients_with_tls_agree_on_it() {
    let server = tls::setup_http2().start();
    for (protocols, expected) in
        [(&["h2", "http/1.1"][..], Some(&b"h2"[..])), (&["http/1.1"], Some(b"http/1.1"))]
    {
        let mut stream = tls::connect_with(&server, protocols);
        stream.flush().expect("a handshake");
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        }
        assert_eq!(stream.conn.alpn_protocol(), expected);
        if expected != Some(b"h2") {
            continue;
        }
        let mut bytes = Frames::hello(Settings::default());
        bytes.extend(Frames::request(1, "GET", "/", &[], Rest::Ended));
        stream.write_all(&bytes).expect("it is taken");
        let mut frames = Frames::default();
        let mut chunk = [0; 16_384];
        while frames.answers.get(&1).is_none_or(|answer| answer.end.is_none()) {
            let count = stream.read(&mut chunk).expect("an answer");
            frames.receive(&chunk[..count]);
        }
        assert_eq!(frames.answers[&1].text(), "h2 https TLSv1.3");
    }
}

#[test]
fn requests_under_way_are_answered_when_a_server_stops() {
    let mut server = start();
    let mut client = open(&server);
    client.get(1, "/slow");
    client.get(3, "/first");
    client.answer(3);
    server.signal(Signal::QUIT);
    assert_eq!(client.gone(), Some(ErrorCode::NoError as u32));
    assert_eq!(client.answer(1).text(), "slow\n");
    client.wait(|_| false);
    assert!(server.wait_exit(Duration::from_secs(20)).is_some());
}

#[test]
fn the_last_request_of_a_connection_is_announced() {
    let http = HTTP.replace("send_timeout 1s;", "keepalive_requests 3;");
    let server = deployed("events { }", &http).start();
    let mut client = open(&server);
    for stream in [1, 3, 5] {
        client.get(stream, "/");
        assert_eq!(client.answer(stream).status(), "200");
    }
    assert_eq!(client.gone(), Some(ErrorCode::NoError as u32));
}

/// Requests that are begun and cancelled end their connection, and nobody else's (CVE-2023-44487).
#[test]
fn rapid_resets_are_limited() {
    let server = start();
    let mut client = open(&server);
    for stream in (1..8 * RESETS_MAX as u32).step_by(2) {
        client.get(stream, "/slow");
        client.say(kind::RST_STREAM, 0, stream, &(ErrorCode::Cancel as u32).to_be_bytes());
    }
    client.wait(|frames| frames.gone.is_some());
    assert!(client.frames.gone.is_some() || client.end.is_some(), "it goes on for ever");
    serves(&server);
}

/// Parts of a head without end, and heads that expand.
#[test]
fn heads_are_limited() {
    let server = start();
    let mut client = open(&server);
    client.say(kind::HEADERS, flag::END_STREAM, 1, &[0x82]);
    for _ in 0..=CONTINUATIONS_MAX {
        client.say(kind::CONTINUATION, 0, 1, b"");
    }
    assert_eq!(client.gone(), Some(ErrorCode::EnhanceYourCalm as u32));

    let mut client = open(&server);
    let mut block = vec![0x40, 1, b'a', 0x7f, 0xf0, 0x1e];
    block.extend_from_slice(&[b'x'; 4_000]);
    block.resize(16_000, 0xbe);
    client.say(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, 1, &block);
    let code = client.gone();
    let refused = [ErrorCode::EnhanceYourCalm as u32, ErrorCode::CompressionError as u32];
    assert!(code.is_some_and(|code| refused.contains(&code)), "{code:?}");
    serves(&server);
}

/// Frames that ask for nothing, from a client that does not read what they lead to.
#[test]
fn floods_of_control_frames_are_limited() {
    let server = start();
    for (kind, stream, payload) in
        [(kind::PING, 0, &b"12345678"[..]), (kind::SETTINGS, 0, b""), (kind::PRIORITY, 1, &[0, 0, 0, 3, 0])]
    {
        let mut client = open(&server);
        client.get(1, "/");
        client.answer(1);
        let frames = Frames::frame(kind, 0, stream, payload).repeat(1_000);
        for _ in 0..2 * USELESS_FRAMES_MAX / 1_000 {
            client.send(&frames);
            if !client.receive(Duration::from_millis(1)) || client.frames.gone.is_some() {
                break;
            }
        }
        let code = client.gone();
        assert!(
            code == Some(ErrorCode::EnhanceYourCalm as u32) || client.end.is_some(),
            "type {kind}: {code:?}"
        );
    }
    serves(&server);
}

/// A client that opens no window holds its stream for `send_timeout`, and no other.
#[test]
fn stalled_streams_are_given_up() {
    let server = start();
    let settings = Settings { window_bytes: Some(100), ..Settings::default() };
    let mut client = Http2::open(&server.address(), settings);
    client.get(1, "/files/large");
    client.get(3, "/quick");
    assert_eq!(client.answer(3).status(), "200");
    let begun = Instant::now();
    assert!(matches!(client.answer(1).end, Some(Ended::Reset(_))));
    assert!(begun.elapsed() < Duration::from_secs(8), "after {:?}", begun.elapsed());
    client.get(5, "/quick");
    assert_eq!(client.answer(5).status(), "200");
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let server = start();
    let mut client = open(&server);
    for stream in (1..=65).step_by(2) {
        client.get(stream, "/slow");
    }
    let refused = client.answer(65);
    assert_eq!(refused.end, Some(Ended::Reset(ErrorCode::RefusedStream as u32)));
    assert_eq!(client.answer(63).text(), "slow\n");
}

#[test]
fn old_directives_warn() {
    let http = HTTP.replace("http2 on;", "http2 on; http2_push /a; http2_max_requests 7;");
    let http = http.replacen("127.0.0.1:%%PORT%%;", "127.0.0.1:%%PORT%% http2;", 1);
    let setup: Setup = deployed("events { }", &http);
    let server = setup.start();
    let output = server.run(&["-t"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for line in [
        "[warn] the \"http2_push\" directive is obsolete, ignored in",
        "[warn] the \"http2_max_requests\" directive is obsolete, use the \"keepalive_requests\" directive",
        "[warn] the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead in",
    ] {
        assert!(said.contains(&line.replace("[warn] ", "")), "{line}: {said}");
    }
    serves(&server);
}

#[test]
fn a_reload_ends_connections_behind_their_requests() {
    let server = start();
    let mut idle = open(&server);
    idle.get(1, "/");
    idle.answer(1);
    let mut busy = open(&server);
    busy.get(1, "/slow");
    busy.get(3, "/first");
    busy.answer(3);
    server.signal(Signal::HUP);
    assert_eq!((idle.gone(), busy.gone()), (Some(0), Some(0)));
    assert_eq!(busy.answer(1).text(), "slow\n");
    serves(&server);
}

/// A client whose request crosses what the server says of a reload is answered all the same.
#[test]
fn a_reload_refuses_nothing_that_is_on_its_way() {
    let server = start();
    let mut clients: Vec<Http2> = (0..20).map(|_| open(&server)).collect();
    for client in &mut clients {
        client.wait(|frames| frames.settings.is_some());
    }
    server.signal(Signal::HUP);
    clients.iter_mut().for_each(|client| client.get(1, "/first"));
    for client in &mut clients {
        assert_eq!(client.answer(1).status(), "200");
        client.wait(|frames| frames.gone.is_some());
        client.say(kind::PING, flag::ACK, 0, b"farewell");
        client.wait(|_| false);
        assert_eq!(client.frames.gone, Some((0, 1)));
    }
}
