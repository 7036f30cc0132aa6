//! `gzip_static` and `gunzip`: compressed files for clients that accept them, decompressed ones for others.

use std::io::Write;

use clearway_testkit::Case;
use flate2::Compression;
use flate2::write::GzEncoder;

fn get(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

fn words(count: usize) -> Vec<u8> {
    (0..count).map(|n| format!("word {} {} ", n % 900, n / 900)).collect::<String>().into_bytes()
}

const ACCEPTING: &str = "Accept-Encoding: gzip\r\n";

#[test]
fn compressed_files() {
    let config = "types { text/html html; } default_type text/plain; max_ranges 0;
        server { listen %%PORT%%;
        location / { gzip_static on; }
        location /off { gzip_static off; }
        location /always { gzip_static always; }
        location /vary { gzip_static on; gzip_vary on; }
        location /alwaysvary { gzip_static always; gzip_vary on; }
        location /gzip { gzip_static on; gzip on; gzip_types *; }
        location /unzip { gzip_static always; gunzip on; gzip_vary on; gunzip_buffers 2 100; }
        location /both { gzip_static on; gzip on; gunzip on; gzip_types *; }
        location /charset { gzip_static on; charset utf-8; }
        location /ranges { gzip_static on; max_ranges 9; }
        location /error { error_page 404 /vary/a.html; }
        location /headers { gzip_static on; add_header X-Type $sent_http_content_encoding; etag off; }
        }";
    let mut case = Case::http(config).file("html/only.html.gz/x", "a directory");
    let directories =
        ["", "off/", "always/", "vary/", "alwaysvary/", "gzip/", "unzip/", "both/", "charset/", "headers/"];
    for directory in directories {
        let at = |name: &str| format!("html/{directory}{name}");
        case = case
            .file(&at("a.html"), words(30))
            .file(&at("a.html.gz"), gzip(&words(31)))
            .file(&at("b.html"), words(40))
            .file(&at("c.txt.gz"), gzip(&words(50_000)))
            .file(&at("d/index.html"), words(60))
            .file(&at("d/index.html.gz"), gzip(&words(61)))
            .file(&at("e.html"), words(70))
            .file(&at("e.html.gz/f"), "a directory")
            .file(&at("empty.html.gz"), gzip(b""));
        for name in ["a.html", "b.html", "c.txt", "d/", "e.html", "empty.html", "none", "a.html.gz"] {
            let target = format!("/{directory}{name}");
            case = case.ask(get(&target, ACCEPTING)).ask(get(&target, ""));
        }
        case = case
            .ask(format!("HEAD /{directory}a.html HTTP/1.1\r\nHost: a\r\n{ACCEPTING}\r\n"))
            .ask(format!("HEAD /{directory}a.html HTTP/1.1\r\nHost: a\r\n\r\n"))
            .ask(format!(
                "POST /{directory}a.html HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{ACCEPTING}\r\n"
            ))
            .ask(get(&format!("/{directory}a.html"), &format!("{ACCEPTING}Range: bytes=1-5\r\n")))
            .ask(get(&format!("/{directory}a.html"), "Range: bytes=1-5\r\n"))
            .ask(get(&format!("/{directory}a.html"), &format!("{ACCEPTING}If-None-Match: *\r\n")));
    }
    case.file("html/ranges/a.gz", gzip(&words(9)))
        .ask(get("/ranges/a", &format!("{ACCEPTING}Range: bytes=1-5\r\n")))
        .ask(get("/error/x", ACCEPTING))
        .ask(get("/error/x", ""))
        .run();
}

#[test]
fn what_is_decompressed() {
    let config = "default_type text/plain; gzip_static always; gunzip on; max_ranges 0;
        server { listen %%PORT%%;
        location / { }
        location /off { gunzip off; }
        location /small { gunzip_buffers 1 16; }
        location /old { gzip_http_version 1.0; }
        }";
    let two = [gzip(&words(10)), gzip(&words(2000))].concat();
    let many: Vec<u8> = (0..200).flat_map(|n| gzip(&words(n % 7))).collect();
    let mut case = Case::http(config);
    for directory in ["", "off/", "small/", "old/"] {
        let at = |name: &str| format!("html/{directory}{name}");
        case = case
            .file(&at("a.gz"), gzip(&words(100)))
            .file(&at("two.gz"), two.clone())
            .file(&at("many.gz"), many.clone())
            .file(&at("bomb.gz"), gzip(&vec![0; 3_000_000]))
            .file(&at("empty.gz"), gzip(b""));
        for name in ["a", "two", "many", "bomb", "empty"] {
            case = case.ask(get(&format!("/{directory}{name}"), ""));
        }
    }
    case.ask("GET /old/a HTTP/1.0\r\nAccept-Encoding: gzip\r\nConnection: keep-alive\r\n\r\n").run();
}

/// What filters put off within subrequests comes as well, and in order.
#[test]
fn within_pages_of_parts() {
    let config = "types { text/html html; } default_type text/html; gzip_static always; gunzip on;
        sub_filter_once off; sub_filter word W; max_ranges 0;
        server { listen %%PORT%%;
        location / { ssi on; gzip on; }
        location /part/ { }
        }";
    let page = "<!--# include virtual=\"/part/words\" -->, word,<!--# include virtual=\"/part/zeros\" -->
        <!--# include virtual=\"/part/plain.html\" --> end word";
    let mut case = Case::http(config)
        .file("html/page.html", page)
        .file("html/part/words.gz", gzip(&words(60_000)))
        .file("html/part/zeros.gz", gzip(&vec![b'0'; 1_000_000]))
        .file("html/part/plain.html", words(30_000));
    for _ in 0..2 {
        case = case.ask(get("/page.html", "")).ask(get("/page.html", ACCEPTING));
    }
    case.run();
}
