//! `sub_filter`: texts replaced, across all borders.

use clearway_testkit::Case;

fn text(lines: usize) -> Vec<u8> {
    let line = |n: usize| format!("Foo {} bar foobar BAZ fofoo ab{}abc xyz\n", n % 100, "a".repeat(n % 7));
    (0..lines).map(line).collect::<String>().into_bytes()
}

#[test]
fn replacements() {
    let long = "0123456789abcdef".repeat(20);
    let config = format!(
        "types {{ text/html html; text/plain txt; }} sub_filter_once off; sub_filter foo 'X';
        server {{ listen %%PORT%%;
        location / {{ }}
        location /once {{ sub_filter_once on; sub_filter foo 1; sub_filter BAZ ''; sub_filter bar '$uri'; }}
        location /many {{ sub_filter abaabc 1; sub_filter ab 2; sub_filter abc 3; sub_filter x 4;
            sub_filter 'o b' 5; sub_filter '\\n' 6; }}
        location /longer {{ sub_filter foobar A; sub_filter foo B; sub_filter fo C; sub_filter f D; }}
        location /shorter {{ sub_filter f D; sub_filter fo C; sub_filter foo B; sub_filter foobar A; }}
        location /one {{ sub_filter a '{long}'; }}
        location /longtext {{ sub_filter {long}x no; sub_filter {long} yes; }}
        location /variables {{ sub_filter $arg_a '<$arg_b>'; sub_filter bar [$arg_c]; }}
        location /types {{ sub_filter_types text/plain; }}
        location /any {{ sub_filter_types *; }}
        location /dates {{ sub_filter_last_modified on; }}
        location /headers {{ add_header Last-Modified x; }}
        location /own {{ sub_filter_once on; }}
        location /self {{ sub_filter foo foofoo; }}
        location /gone {{ return 404 'a foo with a Foo'; }}
        location /made {{ return 200 'a foo with a fo'; }}
        location /gzip {{ gzip on; }}
        }}"
    );
    let mut case = Case::http(&config);
    let directories = [
        "",
        "once/",
        "many/",
        "longer/",
        "shorter/",
        "one/",
        "longtext/",
        "variables/",
        "types/",
        "any/",
        "dates/",
        "headers/",
        "own/",
        "self/",
        "gzip/",
    ];
    for directory in directories {
        let at = |name: &str| format!("html/{directory}{name}");
        case = case
            .file(&at("a.html"), text(30))
            .file(&at("long.html"), [long.as_bytes(), long.as_bytes(), b"0123456789abcdef01"].concat())
            .file(&at("large.html"), text(9000))
            .file(&at("end.html"), "it ends in fo")
            .file(&at("empty.html"), "")
            .file(&at("a.txt"), text(3));
        for name in ["a.html", "long.html", "large.html", "end.html", "empty.html", "a.txt"] {
            case = case.get(&format!("/{directory}{name}"));
        }
    }
    case.get("/variables/a.html?a=FOO&b=y")
        .get("/variables/a.html?a=foobar")
        .get("/variables/large.html?a=a&b=aa&c=c")
        .get("/gone")
        .get("/made")
        .get("/missing")
        .ask("HEAD /a.html HTTP/1.1\r\nHost: a\r\n\r\n")
        .ask("GET /a.html HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9\r\n\r\n")
        .ask("GET /gzip/a.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
        .ask("GET /gzip/large.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
        .run();
}
