//! Files end to end: `root`, `alias`, `index`, `try_files`, conditions, names of every kind, logs.

use std::os::unix::fs::symlink;

use crate::support::Site;

const SITE: &str = "
    types { text/html html; text/plain txt; }
    default_type application/octet-stream;
    access_log ROOT/access.log;
    server {
        listen 127.0.0.1:PORT;
        root ROOT;
        location /al/ { alias ROOT/dir/; }
        location ~ ^/cap/(.+)$ { alias ROOT/dir/$1; }
        location /try/ { try_files $uri $uri/ /dir/index.html?from=try; }
        location /code/ { try_files /none =418; }
        location /real { root ROOT/link; return 200 $realpath_root; }
    }
";

fn site() -> Site {
    let site = Site::start(SITE);
    site.file("dir/index.html", b"index").file("dir/a.txt", b"text").file("try/here", b"here");
    symlink(site.root.join("dir"), site.root.join("link")).unwrap();
    site
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn paths_become_files() {
    let site = site();
    for (target, expected) in [
        ("/dir/", "index"),
        ("/dir/a.txt", "text"),
        ("/al/a.txt", "text"),
        ("/al/", "index"),
        ("/cap/a.txt", "text"),
        ("/link/a.txt", "text"),
        ("/try/here", "here"),
        ("/try/nowhere", "index"),
        ("/d%69r/../dir//a.txt", "text"),
    ] {
        let answer = site.get(target);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{target}: {answer}");
        assert_eq!(body(&answer), expected, "{target}");
    }
    assert!(site.get("/dir/a.txt").contains("Content-Type: text/plain\r\n"));
    assert!(site.get("/try/here").contains("Content-Type: application/octet-stream\r\n"));
    assert!(site.get("/code/x").starts_with("HTTP/1.1 418 \r\n"));
    let real = site.root.canonicalize().unwrap().join("dir");
    assert_eq!(body(&site.get("/real")), real.to_str().unwrap());
}

#[test]
fn what_is_no_file() {
    let site = site();
    std::fs::create_dir(site.root.join("empty")).unwrap();
    let answer = site.get("/dir?q");
    let location = format!("Location: http://localhost:{}/dir/?q\r\n", site.port);
    assert!(answer.starts_with("HTTP/1.1 301 ") && answer.contains(&location), "{answer}");
    assert!(site.get("/empty/").starts_with("HTTP/1.1 403 "));
    site.expect_logged(
        "/empty/\" is forbidden, client: 127.0.0.1, server: , request: \"GET /empty/ HTTP/1.1\"",
    );
    assert!(site.get("/none").starts_with("HTTP/1.1 404 "));
    site.expect_logged(
        "/none\" failed (2: No such file or directory), client: 127.0.0.1, server: , request: \"G",
    );
    assert!(site.get("/dir/a.txt/x").starts_with("HTTP/1.1 404 "));
    assert!(site.get("/none/").starts_with("HTTP/1.1 404 "));
    site.expect_logged("/none/index.html\" is not found (2: No such file or directory), client: ");
    let fifo = site.root.join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).spawn().unwrap().wait().unwrap().success());
    assert!(site.get("/fifo").starts_with("HTTP/1.1 404 "));
}

#[test]
fn methods() {
    let site = site();
    for (method, status) in [("POST", "405"), ("PUT", "405"), ("DELETE", "405"), ("HEAD", "200")] {
        let mut client = site.connect();
        client.send(&format!("{method} /dir/a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let answer = String::from_utf8(client.read_to_end()).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method}: {answer}");
        if method == "HEAD" {
            assert!(answer.contains("Content-Length: 4\r\n") && body(&answer).is_empty(), "{answer}");
        }
    }
}

#[test]
fn files_of_every_size_arrive_whole() {
    let site = site();
    for size in [0_usize, 1, 4096, 4097, 65_535, 65_536, 65_537, 200_000, 3_000_000] {
        let content: Vec<u8> = (0..size).map(|at| b'a' + (at * 7 / 3 % 26) as u8).collect();
        site.file("sized", &content);
        let answer = site.get("/sized");
        assert!(answer.contains(&format!("Content-Length: {size}\r\n")));
        assert!(body(&answer).as_bytes() == content, "{size} bytes differ");
    }
}

#[test]
fn names_of_any_bytes() {
    let site = site();
    site.file("a b;?%#\u{e4}", b"odd");
    assert_eq!(body(&site.get("/a%20b%3b%3F%25%23%c3%a4")), "odd");
    assert!(site.get("/%00").starts_with("HTTP/1.1 400 "));
    assert!(site.get("/dir/%2e%2e/%2e%2e/etc/passwd").starts_with("HTTP/1.1 400 "));
    assert!(site.get("/dir%2f..%2fdir%2fa.txt").starts_with("HTTP/1.1 200 "));
}

#[test]
fn what_the_client_has_is_not_sent_again() {
    let site = site();
    let answer = site.get("/dir/a.txt");
    let value = |name: &str| {
        let line = answer.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(": ").unwrap().1.to_owned()
    };
    for condition in [
        format!("If-None-Match: {}", value("ETag")),
        format!("If-Modified-Since: {}", value("Last-Modified")),
    ] {
        let mut client = site.connect();
        client
            .send(&format!("GET /dir/a.txt HTTP/1.1\r\nHost: a\r\n{condition}\r\nConnection: close\r\n\r\n"));
        let answer = String::from_utf8(client.read_to_end()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 304 Not Modified\r\n"), "{answer}");
        assert!(answer.contains("ETag: ") && !answer.contains("Content-"), "{answer}");
        assert_eq!(body(&answer), "");
    }
}

#[test]
fn the_access_log_has_a_line_per_request() {
    let site = site();
    let mut client = site.connect();
    client.send(
        "GET /dir/a.txt HTTP/1.1\r\nHost: a\r\nReferer: \"quoted\\\"\r\nUser-Agent: \x7f\u{e4}\r\n\
         Connection: close\r\n\r\n",
    );
    client.read_to_end();
    site.wait_lines("access.log", 1);
    site.get("/none");
    let log = site.wait_lines("access.log", 2);
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].starts_with("127.0.0.1 - - ["), "{log}");
    let tail = r#"] "GET /dir/a.txt HTTP/1.1" 200 4 "\x22quoted\x5C\x22" "\x7F\xC3\xA4""#;
    assert!(lines[0].ends_with(tail), "{log}");
    assert!(lines[1].contains("] \"GET /none HTTP/1.1\" 404 "), "{log}");
    assert_eq!(lines.len(), 2);
}
