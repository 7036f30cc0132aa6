//! `gzip` and its kin: which clients get which bodies compressed, and the head that says so.

use clearway_testkit::{Case, Exchange};

fn get(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

fn text(lines: usize) -> Vec<u8> {
    (0..lines)
        .map(|n| format!("line {} of {} and {}\n", n % 1000, n * n % 97, n / 300))
        .collect::<String>()
        .into_bytes()
}

#[test]
fn what_is_compressed() {
    let config = "types { text/html html; text/plain txt; text/CSS css; image/png png; }
        default_type ''; gzip on; gzip_vary on; expires $arg_expires;
        server { listen %%PORT%%;
        location / { }
        location /off { gzip off; }
        location /types { gzip_types TEXT/plain text/css; }
        location /any { gzip_types *; }
        location /long { gzip_types *; gzip_min_length 1000; }
        location /short { gzip_min_length 0; gzip_types *; }
        location /novary { gzip_vary off; }
        location /if { gzip off; if ($arg_a) { gzip on; } }
        location /gone { return 410 'a text that is longer than twenty bytes'; }
        location /made { return 200 'a text that is longer than twenty bytes'; }
        location /no { return 403; }
        location /etag { etag off; }
        location /post { gzip_types *; postpone_gzipping 1000; }
        location /levels { gzip_types *; gzip_comp_level 9; gzip_window 512;
            gzip_hash 1k; gzip_buffers 2 1k; }
        }";
    let mut case = Case::http(config);
    for directory in ["", "off/", "types/", "any/", "long/", "short/", "novary/", "if/", "post/", "levels/"] {
        for (name, lines) in [("a.html", 100), ("a.txt", 100), ("a.css", 40), ("a.png", 5), ("a", 20)] {
            let target = format!("/{directory}{name}");
            case = case.file(&format!("html{target}"), text(lines));
            case = case.ask(get(&target, "Accept-Encoding: gzip\r\n"));
        }
        case = case
            .file(&format!("html/{directory}empty.html"), "")
            .file(&format!("html/{directory}small.html"), "nineteen bytes here")
            .file(&format!("html/{directory}large.html"), text(40_000))
            .ask(get(&format!("/{directory}empty.html"), "Accept-Encoding: gzip\r\n"))
            .ask(get(&format!("/{directory}small.html"), "Accept-Encoding: gzip\r\n"))
            .ask(get(&format!("/{directory}large.html"), "Accept-Encoding: gzip\r\n"))
            .ask(get(&format!("/{directory}a.html"), ""));
    }
    case = case.file("html/etag/a.html", text(50));
    for target in ["/if/a.html?a=1", "/gone", "/made", "/no", "/missing", "/etag/a.html"] {
        case = case.ask(get(target, "Accept-Encoding: gzip\r\n"));
    }
    case.ask("HEAD /a.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
        .ask(get("/a.html", "Accept-Encoding: gzip\r\nRange: bytes=0-9\r\n"))
        .ask(get("/a.html", "Accept-Encoding: gzip\r\nIf-None-Match: *\r\n"))
        .ask(get("/a.html", "Accept-Encoding: gzip\r\nConnection: close\r\n"))
        .ask("GET /a.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
        .run();
}

#[test]
fn who_accepts_it() {
    let config = "gzip on; gzip_vary on; server { listen %%PORT%%;
        location / { }
        location /old { gzip_http_version 1.0; }
        location /ie { gzip_disable msie6 'Opera [1-7]' bot; }
        }";
    let mut case = Case::http(config);
    for directory in ["", "old/", "ie/"] {
        case = case.file(&format!("html/{directory}a.html"), text(50));
    }
    for value in [
        "gzip",
        "GZIP",
        "gzi",
        "xgzip",
        "x-gzip",
        "gzip;q=0",
        "gzip;q=0.0",
        "gzip;q=0.001",
        "gzip;q=0.0001",
        "gzip; q=1",
        "gzip ; q=1.000",
        "gzip;q=1.001",
        "gzip;q=2",
        "gzip;q",
        "gzip;q=",
        "gzip;",
        "gzip;x",
        "deflate, gzip",
        "deflate,gzip",
        "deflate;gzip",
        "deflate gzip",
        "*",
        "identity",
        "gzip, deflate;q=0",
        "gzip,;q=0",
        "gzipx, gzip",
        "gzip;q=0, gzip;q=1",
        "br;q=1.0, gzip;q=0.8, *;q=0.1",
        "gzip;q=0.5x",
        "gzip;q=.5",
        "gzip;Q=0.5",
    ] {
        case = case.ask(get("/a.html", &format!("Accept-Encoding: {value}\r\n")));
    }
    for agent in [
        "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.0)",
        "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)",
        "Mozilla/4.0 (compatible; MSIE 5.5; Windows 98)",
        "Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 5.1)",
        "opera 6",
        "Googlebot",
        "curl",
    ] {
        let headers = format!("Accept-Encoding: gzip\r\nUser-Agent: {agent}\r\n");
        case = case.ask(get("/ie/a.html", &headers)).ask(get("/a.html", &headers));
    }
    case.exchange(Exchange::new("GET /old/a.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n").until_end())
        .exchange(Exchange::new("GET /a.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n").until_end())
        .run();
}

#[test]
fn what_proxies_get() {
    let flags = [
        "off",
        "expired",
        "no-cache",
        "no-store",
        "private",
        "no_last_modified",
        "no_etag",
        "auth",
        "any",
        "expired no-cache no-store",
        "any off",
    ];
    let mut config = "gzip on; add_header Cache-Control $arg_cc; expires $arg_expires;
        server { listen %%PORT%%; "
        .to_owned();
    for (number, flag) in flags.iter().enumerate() {
        config += &format!("location /{number}/ {{ gzip_proxied {flag}; }} ");
    }
    let mut case = Case::http(&(config + "}"));
    let headers = "Accept-Encoding: gzip\r\nVia: 1.1 proxy\r\n";
    for number in 0..flags.len() {
        case = case.file(&format!("html/{number}/a.html"), text(50));
        for args in ["", "?cc=no-cache", "?cc=private,max-age=5", "?cc=no-store", "?cc=x", "?expires=epoch"] {
            case = case.ask(get(&format!("/{number}/a.html{args}"), headers));
        }
        let with = format!("{headers}Authorization: x\r\n");
        case = case.ask(get(&format!("/{number}/a.html"), &with));
    }
    case.run();
}
