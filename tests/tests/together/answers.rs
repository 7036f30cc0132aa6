//! What visitors are answered, over HTTP/1 and HTTP/2 alike.

use std::io::{Read, Write};

use clearway_testkit::expect_soon;

use clearway_testkit::site::services::{VIDEO_BYTES, video_byte};
use clearway_testkit::site::visitors::{Ask, BOTH, Way, ask, connect, get, request_http1};
use clearway_testkit::site::{Site, WORDS};

/// Targets, and what is answered: status and text.
const PLAIN: &[(&str, u16, &str)] = &[
    ("/", 200, "<h1>welcome</h1>\n"),
    ("/plain.txt", 200, "plain\n"),
    ("/app/a?b=c", 200, "GET /app/a?b=c from www.example.com over https user nobody with 0 bytes, sum 0\n"),
    ("/app/missing", 404, "no such page\n"),
    ("/php/index.php", 200, "from PHP\n"),
    ("/beside", 200, "beside\n"),
    ("/lua?a=b", 200, "REWRITE ACCESS CONTENT GET 0\n"),
    ("/greeting?you", 200, "hello you from greeter\n"),
    ("/digest?of=words", 200, "1931188857\n"),
    ("/gathered", 200, "200 319\n200 6\n200 9\n"),
    ("/spins", 200, "spun\n"),
];

#[test]
fn each_part_answers_both_ways() {
    let site = Site::start();
    for way in BOTH {
        for (target, status, text) in PLAIN {
            let answer = get(&site.server, way, target);
            assert_eq!((answer.status, answer.text().as_str()), (*status, *text), "{way:?} {target}");
            assert!(answer.is_whole, "{way:?} {target}");
        }
        let body: Vec<u8> = (0..60_000).map(|at: usize| (at % 7) as u8).collect();
        let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
        let sent =
            ask(&site.server, way, Ask { method: "POST", target: "/app/u", body: &body, ..Ask::default() });
        assert!(sent.text().ends_with(&format!("with 60000 bytes, sum {sum}\n")), "{way:?}: {}", sent.text());
        let sent =
            ask(&site.server, way, Ask { method: "POST", target: "/lua", body: b"four", ..Ask::default() });
        assert_eq!(sent.text(), "REWRITE ACCESS CONTENT POST 4\n");
        assert_eq!(sent.header("x-phase"), "filtered");
        assert_eq!(get(&site.server, way, "/lua?away=1").header("location"), "/moved?1");
        assert_eq!(get(&site.server, way, "/lua?key=wrong").status, 403);
        assert_eq!(get(&site.server, way, &format!("/visits?of={way:?}")).text(), "visit 1\n");
        assert_eq!(get(&site.server, way, &format!("/visits?of={way:?}")).text(), "visit 2\n");
        let statuses: Vec<u16> =
            (0..3).map(|_| get(&site.server, way, &format!("/often?of={way:?}")).status).collect();
        assert_eq!(statuses, [200, 200, 503], "{way:?}");
    }
    expect_soon("timers of both workers have run", || {
        get(&site.server, Way::Http1, "/counts").text().starts_with("workers 2 ")
    });
}

#[test]
fn compression_and_ranges_go_through_everything() {
    let site = Site::start();
    let large = WORDS.repeat(3000);
    let zipped = [("accept-encoding", "gzip")];
    for way in BOTH {
        let answer = ask(&site.server, way, Ask { target: "/large.txt", headers: &zipped, ..Ask::default() });
        assert_eq!(answer.header("content-encoding"), "gzip", "{way:?}");
        assert_eq!(unzipped(&answer.body), large.as_bytes(), "{way:?}");
        let answer = ask(&site.server, way, Ask { target: "/app/large", headers: &zipped, ..Ask::default() });
        assert_eq!(unzipped(&answer.body).len(), 1 << 20, "{way:?}");
        let slowly = get(&site.server, way, "/slowly");
        assert_eq!((slowly.text() == large, slowly.is_whole), (true, true), "{way:?}");
        let sent_on = get(&site.server, way, "/download/large");
        assert_eq!((sent_on.status, sent_on.text() == large), (200, true), "{way:?}");
        let headers = [("range", "bytes=46-91")];
        let part = ask(&site.server, way, Ask { target: "/large.txt", headers: &headers, ..Ask::default() });
        assert_eq!((part.status, part.text().as_str()), (206, WORDS), "{way:?}");
    }
}

fn unzipped(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut text).expect("it is gzip");
    text
}

#[test]
fn a_cache_serves_both_ways_and_subrequests() {
    let site = Site::start();
    let first = get(&site.server, Way::Http2, "/cached/part?of=1");
    assert_eq!((first.status, first.header("x-cache")), (200, "MISS"));
    expect_soon("it is kept", || {
        get(&site.server, Way::Http1, "/cached/part?of=1").header("x-cache") == "HIT"
    });
    let fetched = site.fetched();
    for way in BOTH {
        let again = get(&site.server, way, "/cached/part?of=1");
        assert_eq!((again.header("x-cache"), again.text()), ("HIT", first.text()), "{way:?}");
        let tag = again.header("etag").to_owned();
        let headers = [("if-none-match", tag.as_str())];
        let same =
            ask(&site.server, way, Ask { target: "/cached/part?of=1", headers: &headers, ..Ask::default() });
        assert_eq!((same.status, same.body.len()), (304, 0), "{way:?}");
        let headers = [("range", "bytes=0-6")];
        let part =
            ask(&site.server, way, Ask { target: "/cached/part?of=1", headers: &headers, ..Ask::default() });
        assert_eq!((part.status, part.text().as_str()), (206, "/cached"), "{way:?}");
        let page = get(&site.server, way, "/page.html");
        let expected = format!("{}|rewrite content GET 0\n|from PHP\n\n", first.text());
        assert_eq!(page.text().to_lowercase(), expected.to_lowercase(), "{way:?}");
        assert_eq!(get(&site.server, way, "/gathered").text(), "200 319\n200 6\n200 9\n");
    }
    assert_eq!(site.fetched(), fetched, "all of it came from the cache");
}

#[test]
fn hints_come_through_a_cache_while_it_fetches() {
    let site = Site::start();
    for way in BOTH {
        let target = format!("/cached/hints?of={way:?}");
        let fetched = get(&site.server, way, &target);
        assert_eq!((fetched.header("x-cache"), fetched.text().as_str()), ("MISS", "hinted\n"), "{way:?}");
        assert_eq!(fetched.interim, [103], "{way:?}");
        expect_soon("it is kept", || get(&site.server, way, &target).header("x-cache") == "HIT");
        let kept = get(&site.server, way, &target);
        assert_eq!((kept.text().as_str(), &kept.interim[..]), ("hinted\n", &[][..]), "{way:?}");
    }
}

#[test]
fn parts_of_a_film_are_kept_by_slices() {
    let site = Site::start();
    for (way, first, last) in [
        (Way::Http2, 100_000, 200_000),
        (Way::Http1, 100_000, 200_000),
        (Way::Http1, 0, VIDEO_BYTES - 1),
        (Way::Http2, 299_990, VIDEO_BYTES - 1),
        (Way::Http2, 65_535, 65_536),
    ] {
        let range = format!("bytes={first}-{last}");
        let headers = [("range", range.as_str())];
        let part = ask(&site.server, way, Ask { target: "/video/film", headers: &headers, ..Ask::default() });
        let expected: Vec<u8> = (first..=last).map(video_byte).collect();
        assert!(
            part.status == 206 && part.body == expected,
            "{way:?} {range}: {} {}",
            part.status,
            part.body.len()
        );
        let stands = format!("bytes {first}-{last}/{VIDEO_BYTES}");
        assert_eq!(part.header("content-range"), stands, "{way:?} {range}");
    }
    for way in BOTH {
        let whole = get(&site.server, way, "/video/film");
        assert!(whole.status == 200 && whole.is_whole, "{way:?}");
        assert!(whole.body.iter().enumerate().all(|(at, byte)| *byte == video_byte(at)), "{way:?}");
        assert_eq!(whole.body.len(), VIDEO_BYTES, "{way:?}");
    }
    let asked = site.asked().iter().filter(|target| *target == "/video/film").count();
    assert!(asked <= 2 * VIDEO_BYTES.div_ceil(65_536), "each slice is fetched about once: {asked}");
}

#[test]
fn what_an_application_says_around_its_answer_arrives() {
    let site = Site::start();
    for way in BOTH {
        let hinted = get(&site.server, way, "/hints");
        assert_eq!((&hinted.interim[..], hinted.text().as_str()), (&[103][..], "hinted\n"), "{way:?}");
        let trailed = get(&site.server, way, "/trailers");
        assert_eq!(trailed.text(), "parted\n", "{way:?}");
        assert_eq!(trailed.trailers, [("x-sum".to_owned(), "42".to_owned())], "{way:?}");
        let broken = get(&site.server, way, "/app/breaks");
        assert!(!broken.is_whole, "{way:?}: half an answer is not a whole one");
        let private = get(&site.server, way, "/private/a");
        assert_eq!(private.status, 401, "{way:?}");
        let cookie = [("cookie", "user=ada")];
        let private =
            ask(&site.server, way, Ask { target: "/private/a", headers: &cookie, ..Ask::default() });
        assert!(private.text().contains(" user ada "), "{way:?}: {}", private.text());
        let body = b"sent twice";
        let mirrored =
            ask(&site.server, way, Ask { method: "POST", target: "/mirrored/b", headers: &[], body });
        assert!(mirrored.text().contains("with 10 bytes"), "{way:?}: {}", mirrored.text());
    }
    expect_soon("copies have arrived", || {
        site.asked().iter().filter(|target| *target == "/copy/mirrored/b").count() == 2
    });
}

#[test]
fn a_socket_talks_through_tls() {
    let site = Site::start();
    let mut stream = connect(&site.server, Way::Http1);
    let headers = [("connection", "upgrade"), ("upgrade", "echo")];
    let request = request_http1(Ask { target: "/socket", headers: &headers, ..Ask::default() });
    stream.write_all(&request).expect("it is taken");
    let mut received = Vec::new();
    read_until(&mut stream, &mut received, b"\r\n\r\n");
    assert!(received.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&received));
    for message in ["one.", "a second one."] {
        received.clear();
        stream.write_all(message.as_bytes()).expect("it is taken");
        read_until(&mut stream, &mut received, b".");
        assert_eq!(received, message.as_bytes());
    }
}

fn read_until(stream: &mut impl Read, received: &mut Vec<u8>, end: &[u8]) {
    let mut piece = [0; 4096];
    while !received.ends_with(end) {
        let len = stream.read(&mut piece).expect("it talks");
        assert!(len > 0, "it ends: {}", String::from_utf8_lossy(received));
        received.extend_from_slice(&piece[..len]);
    }
}

#[test]
fn each_request_is_logged_once_with_all_there_is_to_say() {
    let site = Site::start();
    let targets =
        ["/", "/app/a", "/cached/part?of=2", "/lua", "/visits?of=log", "/php/x", "/greeting?log", "/none"];
    for way in BOTH {
        for target in targets {
            let client = format!("{way:?}{target}");
            let headers = [("x-client", client.as_str())];
            let _ = ask(&site.server, way, Ask { target, headers: &headers, ..Ask::default() });
        }
    }
    for way in BOTH {
        for target in targets {
            let client = format!("\"client\":\"{way:?}{target}\"");
            let log = site.server.wait_log("logs/access.log", &client);
            let lines: Vec<&str> = log.lines().filter(|line| line.contains(&client)).collect();
            assert_eq!(lines.len(), 1, "{client}");
            let has = |text: &str| assert!(lines[0].contains(text), "{text} is not in {}", lines[0]);
            has("\"tls\":\"TLSv1.3\"");
            has("\"completion\":\"OK\"");
            has(if way == Way::Http2 { "\"http2\":\"h2\"" } else { "\"http2\":\"\"" });
            has(if target == "/none" { "\"status\":404" } else { "\"status\":200" });
            if target == "/lua" {
                has("\"lua\":\"rewrite access\"");
            }
        }
    }
}
