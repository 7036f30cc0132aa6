//! `charset` and its kin.

use clearway_testkit::{Case, Exchange};

const MAPS: &str = "charset_map one two { 58 59; 59 58; e1 C1; 7f 80; }
    charset_map koi8-r utf-8 { E1 D090; e2 D091; C1 d0b0; a3 d191; 9E E284A2; 80 C2A0; }
    charset_map koi8-r windows-1251 { E1 C0; E2 C1; C1 E0; }";

#[test]
fn charsets_are_told_for_texts() {
    let config =
        "types { text/html html; text/foo foo; text/plain txt; application/javascript js; text/CSS css; }
        default_type application/octet-stream; map $arg_c $named { default $arg_c; none ''; } charset utf-8;
        server { listen %%PORT%%;
        location / { add_header X-Type $sent_http_content_type; }
        location /off { charset off; }
        location /types { charset_types text/foo TEXT/css; }
        location /any { charset_types *; }
        location /named { charset $named; }
        location /if { if ($arg_a) { charset koi8-r; } if ($arg_b) { charset off; } }
        location /same { source_charset UTF-8; }
        location /redirect { return 301 /x; }
        location /redirect2 { return 302 /x; }
        location /redirect7 { return 307 /x; }
        location /gone { return 410; }
        location /text { default_type text/plain; return 200 text; }
        location /empty { default_type ''; return 200 text; }
        location /with { default_type 'text/html; x=y'; return 200 text; }
        }";
    let mut case = Case::http(config);
    for name in ["html", "foo", "txt", "js", "css", "bin"] {
        for directory in ["", "off/", "types/", "any/", "if/", "same/", "named/"] {
            case =
                case.file(&format!("html/{directory}a.{name}"), name).get(&format!("/{directory}a.{name}"));
        }
    }
    for target in [
        "/if/a.html?a=1",
        "/if/a.html?b=1",
        "/if/a.html?a=1&b=1",
        "/named/a.html?c=x-y",
        "/named/a.html?c=none",
    ] {
        case = case.get(target);
    }
    for target in ["/redirect", "/redirect2", "/redirect7", "/gone", "/text", "/empty", "/with", "/missing"] {
        case = case.get(target);
    }
    case.ask("HEAD /a.html HTTP/1.1\r\nHost: a\r\n\r\n")
        .ask("GET /a.html HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n")
        .run();
}

#[test]
fn bodies_are_converted() {
    let config = format!(
        "{MAPS} default_type text/plain; server {{ listen %%PORT%%;
        location /there {{ source_charset one; charset two; }}
        location /back {{ source_charset two; charset ONE; }}
        location /koi {{ source_charset koi8-r; charset utf-8; }}
        location /utf {{ source_charset utf-8; charset koi8-r; }}
        location /win {{ source_charset koi8-r; charset windows-1251; }}
        location /var {{ source_charset $arg_s; charset $arg_c; }}
        location /known {{ source_charset koi8-r; charset $arg_c; }}
        location /error {{ source_charset utf-8; charset koi8-r; return 404; }}
        location /plain {{ source_charset utf-8; charset koi8-r; return 200 text; }}
        }}"
    );
    let bytes: Vec<u8> = (0..=255).collect();
    let words = "\u{410}\u{411} \u{430}\u{451} \u{2122} \u{20ac} \u{1f600} abc".repeat(30).into_bytes();
    let broken =
        b"a\xd0\x90\xd0 b\xe2\x84 c\xf0\x9f\x98d\xff\xfe\x80\xc0\x80\xe0\x80\x80\xf4\x90\x80\x80 end \xd0"
            .to_vec();
    let long = [vec![b'x'; 600], vec![0x80, 0xe1, 0x81, 0xe2]].concat();
    let long_utf = [vec![b'x'; 600], b"\xd0\x90 \xd1\x82".to_vec()].concat();
    let unmapped = vec![b'a', 0x81, 0x82, b'b'];
    let mut case = Case::http(&config);
    let files = [
        ("bytes", bytes),
        ("words", words),
        ("broken", broken),
        ("long", long),
        ("longutf", long_utf),
        ("unmapped", unmapped),
        ("ascii", b"nothing to do".to_vec()),
        ("empty", Vec::new()),
    ];
    for (name, content) in files {
        for directory in ["there", "back", "koi", "utf", "win"] {
            // Since 1.31 nginx takes fewer bytes for one character that is none.
            if directory == "utf" && matches!(name, "bytes" | "broken") {
                continue;
            }
            case = case.file(&format!("html/{directory}/{name}"), content.clone());
            case = case.get(&format!("/{directory}/{name}"));
            let old = format!("GET /{directory}/{name} HTTP/1.0\r\n\r\n");
            case = case.exchange(Exchange::new(old));
        }
    }
    case = case.file("html/var/f", vec![0xe1, 0xe2, b'X']).file("html/known/f", vec![0xe1, 0xe2, b'X']);
    for target in [
        "/var/f?s=koi8-r&c=utf-8",
        "/var/f?s=koi8-r&c=koi8-r",
        "/var/f?s=koi8-r&c=none",
        "/var/f?s=none&c=utf-8",
        "/var/f?s=x&c=x",
        "/var/f?s=X&c=x",
        "/var/f?s=one&c=two",
        "/var/f?s=one&c=koi8-r",
        "/known/f?c=KOI8-R",
        "/known/f?c=utf-8",
        "/known/f?c=x",
        "/error",
        "/plain",
    ] {
        case = case.get(target);
    }
    case.ask("HEAD /koi/bytes HTTP/1.1\r\nHost: a\r\n\r\n")
        .ask("HEAD /there/bytes HTTP/1.1\r\nHost: a\r\n\r\n")
        .run();
}
