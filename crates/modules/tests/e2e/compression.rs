//! Bodies that are compressed and decompressed on their way, in parts that leave the loop to others.

use std::io::{Read, Write};

use clearway_http::Module;
use clearway_modules::content::gzip_static::GZIP_STATIC;
use clearway_modules::filters::gunzip::GUNZIP;
use clearway_modules::filters::gzip::GZIP;
use clearway_modules::filters::gzip::acceptance::GZIP_ACCEPTANCE;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::support::Site;

const MODULES: &[&Module] = &[&GUNZIP, &GZIP_ACCEPTANCE, &GZIP, &GZIP_STATIC];

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// The answer to a request of HTTP/1.0, whose body ends with the connection: head and body.
fn get(site: &Site, target: &str, headers: &str) -> (String, Vec<u8>) {
    let mut client = site.connect();
    client.send(&format!("GET {target} HTTP/1.0\r\n{headers}\r\n"));
    let answer = client.read_to_end();
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec())
}

fn words(count: u32) -> Vec<u8> {
    (0..count).flat_map(|n| format!("{} {n:x} ", n.wrapping_mul(2_654_435_761) % 997).into_bytes()).collect()
}

#[test]
fn large_bodies_are_compressed_whole_at_every_level() {
    let levels: String = (1..=9)
        .map(|level| format!("location /{level}/ {{ gzip_comp_level {level}; alias ROOT/; }} "))
        .collect();
    let http = format!(
        "log_format ratio '$uri $gzip_ratio'; access_log ROOT/log ratio; gzip on; gzip_types *;
         gzip_http_version 1.0; server {{ listen PORT; {levels} location / {{ root ROOT; }} }}"
    );
    let site = Site::start_with(&http, MODULES);
    let text = words(200_000);
    site.file("large", &text).file("x", &[b'x'; 2000]);
    for level in 1..=9 {
        let (head, body) = get(&site, &format!("/{level}/large"), "Accept-Encoding: gzip\r\n");
        assert!(head.contains("\r\nContent-Encoding: gzip\r\n") || head.ends_with("gzip"), "{head}");
        assert!(body.len() < text.len() / 2, "{} of {} bytes", body.len(), text.len());
        let mut decoded = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut decoded).unwrap();
        assert!(decoded == text, "level {level}");
    }
    let (head, body) = get(&site, "/large", "");
    assert!(!head.contains("gzip") && body == text);
    get(&site, "/x", "Accept-Encoding: gzip\r\n");
    let log = site.wait_lines("log", 11);
    let ratio = |target: &str| {
        let line = log.lines().find(|line| line.starts_with(target)).expect("a line");
        line.rsplit(' ').next().map(str::to_owned).expect("a ratio")
    };
    assert_eq!(ratio("/large"), "-");
    let ratio: f64 = ratio("/x").parse().unwrap();
    assert!(ratio > 40.0, "{ratio}");
    site.stop();
}

#[test]
fn what_is_much_larger_decompressed_comes_whole() {
    let site = Site::start_with("gunzip on; gzip_static always; server { listen PORT; root ROOT; }", MODULES);
    let zeros = vec![0; 20_000_000];
    site.file("zeros.gz", &gzip(&zeros)).file("small.gz", &gzip(b"small"));
    let mut slow = site.connect();
    slow.send("GET /zeros HTTP/1.0\r\n\r\n");
    // Nobody reads that one, and others are answered meanwhile.
    for _ in 0..20 {
        assert_eq!(get(&site, "/small", "").1, b"small");
    }
    let answer = slow.read_to_end();
    assert!(answer.ends_with(&zeros) && answer.starts_with(b"HTTP/1.1 200 "), "{} bytes", answer.len());
    site.stop();
}

#[test]
fn what_is_not_gzip_ends_the_connection() {
    let site = Site::start_with("gunzip on; gzip_static always; server { listen PORT; root ROOT; }", MODULES);
    let whole = gzip(&words(50_000));
    let mut broken = whole.clone();
    broken[30_000..30_100].fill(0xff);
    site.file("broken.gz", &broken).file("cut.gz", &whole[..40_000]).file("text.gz", b"no gzip at all");
    for name in ["broken", "cut", "text"] {
        let mut client = site.connect();
        client.send(&format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.read_to_end();
        assert!(!answer.ends_with(b"0\r\n\r\n"), "{name} seems to be whole");
    }
    site.expect_logged("inflate() failed: ");
    site.expect_logged("inflate() returned -5 on response end");
    site.stop();
}
