//! `slice`, as far as it goes without an upstream server.

use clearway_testkit::Case;

const CONFIG: &str = "
    map $slice_range $mapped { '' empty; default <$slice_range>; }
    log_format slice '$request $status [$slice_range]';
    server { listen %%PORT%%; default_type text/html; slice 10; access_log logs/access.log slice;
    location /set { set $r $slice_range; return 200 [$r]; }
    location /return { return 200 [$slice_range]; }
    location /map { set $r $mapped; return 200 [$r]; }
    location /twice { set $a $slice_range; set $b $slice_range; return 200 \"$a $b\"; }
    location /header/ { add_header X-Range <$slice_range>; alias html/; }
    location /part { set $r $slice_range; return 206 x; }
    location /unread { return 206 x; }
    location /error { set $r $slice_range; error_page 404 =206 /a.txt; return 404; }
    location /read/ { set $r $slice_range; alias html/; add_header X-Range <$slice_range>; }
    location /rewritten { set $r $slice_range; rewrite ^ /other last; }
    location /other { slice 20; set $q $slice_range; return 200 \"$r $q\"; }
    location /redirected { set $r $slice_range; error_page 404 = /other; return 404; }
    location /off { slice 0; set $r $slice_range; return 200 [$r]; }
    location /off206 { slice 0; set $r $slice_range; return 206 [$r]; }
    location /on206 { set $r $slice_range; rewrite ^ /off206 last; }
    location /ssi { ssi on; alias html/ssi.html; }
    location /named { set $r $slice_range; try_files /none @named; }
    location @named { set $q $slice_range; return 200 \"$r $q\"; }
    location /named206 { set $r $slice_range; try_files /none @named206; }
    location @named206 { return 206 x; }
    location /limited { set $r $slice_range; limit_rate 1k; return 200 $r; }
    location /asked { auth_request /sub; set $r $slice_range; auth_request_set $s $slice_range;
                      alias html/a.txt; add_header X-Range \"$r $s\"; }
    location /sub { set $u $slice_range; return 204; }
    }";

#[test]
fn what_the_variable_is() {
    let text = "0123456789".repeat(4);
    let mut case = Case::http(CONFIG)
        .file("html/a.txt", text.clone())
        .file(
            "html/ssi.html",
            "<!--#echo var=\"slice_range\" -->|<!--#include virtual=\"/return\" -->|\
             <!--#include virtual=\"/set\" -->|<!--#include virtual=\"/part\" -->",
        )
        .with_access_log();
    for target in [
        "/set",
        "/return",
        "/map",
        "/twice",
        "/header/a.txt",
        "/part",
        "/unread",
        "/error",
        "/a.txt",
        "/read/a.txt",
        "/read/missing",
        "/rewritten",
        "/redirected",
        "/off",
        "/off206",
        "/on206",
        "/ssi",
        "/named",
        "/named206",
        "/limited",
        "/asked",
    ] {
        case = case.get(target);
    }
    for range in [
        "bytes=25-",
        "bytes=-5",
        "bytes=25-30,40-50",
        "bytes= 25-",
        "BYTES=25-",
        "bytes=x",
        "bytes=25",
        "bytes=",
        "bytes=9223372036854775807-",
        "bytes=9223372036854775808-",
        "octets=25-",
        "bytes=25x-",
        "bytes=25,",
        "bytes=10-19",
        "x",
    ] {
        for target in ["/set", "/read/a.txt", "/part"] {
            case = case.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n"));
        }
    }
    case.ask("GET /set HTTP/1.1\r\nHost: a\r\nRange: bytes=25-\r\nIf-Range: \"x\"\r\n\r\n")
        .ask("HEAD /set HTTP/1.1\r\nHost: a\r\nRange: bytes=25-\r\n\r\n")
        .run();
}
