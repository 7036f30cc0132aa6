//! `proxy_store`: which responses are kept as files, where, and what else is asked of other servers by header
//! (`X-Accel-Charset`, `X-Accel-Limit-Rate`). Connections are closed behind each answer: the file is there
//! when that has happened.

use clearway_testkit::Case;

const ORIGIN: &str = "types { text/plain txt; text/html html; }
    charset_map koi8-r utf-8 { C0 D18E; C1 D0B0; }
    server { listen %%PORT2%%; root %%PREFIX%%/origin;
    location /none { return 404 missing; } location /empty { return 200; }
    location /young { return 200 'without a time'; }
    location /part { return 206 part; }
    location /utf { default_type text/html; add_header X-Accel-Charset utf-8; return 200 text; }
    location /koi { default_type text/html; add_header X-Accel-Charset koi8-r; return 200 text; }
    location /latin { default_type text/html; add_header X-Accel-Charset iso-8859-1; return 200 text; }
    location /named { charset koi8-r; default_type text/html;
                      add_header X-Accel-Charset utf-8; return 200 text; }
    location /untyped { default_type ''; add_header X-Accel-Charset utf-8; return 200 text; }
    location /away { add_header X-Accel-Charset utf-8; add_header X-Accel-Redirect /page.html; return 200; }
    location /broken { default_type text/html; add_header X-Accel-Charset utf-8; return 500 text; }
    location /slow { add_header X-Accel-Limit-Rate 100000; return 200 text; } }";

fn case(locations: &str) -> Case {
    Case::http(&format!(
        "{ORIGIN} server {{ listen %%PORT%%; root %%PREFIX%%/kept;
        location /kept/ {{ alias %%PREFIX%%/kept/; etag off; }}
        {locations} }}"
    ))
    .file("origin/a.txt", "a text\n")
    .file("origin/large.txt", "0123456789abcdef".repeat(20_000))
    .file("kept/page.html", "a page\n")
    .file("kept/old.txt", "what was there before\n")
    .file("origin/old.txt", "what is there now\n")
}

fn ask(case: Case, lines: &str) -> Case {
    let (first, rest) =
        lines.split_once('\n').map_or((lines, String::new()), |(first, rest)| (first, format!("{rest}\r\n")));
    case.ask(format!("{first} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{rest}\r\n"))
}

fn ask_all(case: Case, requests: &[&str]) -> Case {
    requests.iter().fold(case, |case, lines| ask(case, lines))
}

#[test]
fn responses_are_kept_where_the_location_leads() {
    let case = case(
        "proxy_store on;
        location / { proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /deep/ { proxy_pass http://127.0.0.1:%%PORT2%%/; proxy_store_access user:rw all:r; }
        location /alias/ { alias %%PREFIX%%/kept/as/; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /path/ { proxy_store %%PREFIX%%/kept/$arg_as; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /off/ { proxy_store off; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /unbuffered/ { proxy_buffering off; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /fetch/ { alias %%PREFIX%%/kept/fetched/; proxy_store off; error_page 404 = @fetch; }
        location @fetch { proxy_store %%PREFIX%%/kept/fetched/young;
                          proxy_pass http://127.0.0.1:%%PORT2%%; }",
    );
    ask_all(
        case,
        &[
            "GET /a.txt",
            "GET /kept/a.txt",
            "GET /old.txt",
            "GET /kept/old.txt",
            "GET /deep/x/../a.txt",
            "GET /kept/deep/a.txt",
            "GET /alias/a.txt",
            "GET /kept/as/a.txt",
            "GET /path/a.txt?as=b/c/d.txt",
            "GET /kept/b/c/d.txt",
            "GET /path/a.txt",
            "GET /off/a.txt",
            "GET /kept/off/a.txt",
            "GET /unbuffered/a.txt",
            "GET /kept/unbuffered/a.txt",
            "HEAD /path/a.txt?as=head.txt",
            "GET /kept/head.txt",
            "GET /path/a.txt?as=range.txt\nRange: bytes=1-3",
            "GET /kept/range.txt",
            "GET /path/none?as=none.txt",
            "GET /kept/none.txt",
            "GET /path/part?as=part.txt",
            "GET /kept/part.txt",
            "GET /path/empty?as=empty.txt",
            "GET /kept/empty.txt",
            "GET /path/large.txt?as=large.txt",
            "HEAD /kept/large.txt",
            "GET /kept/large.txt\nRange: bytes=319990-",
            "GET /fetch/young",
        ],
    )
    .run();
}

#[test]
fn what_cannot_be_kept_is_answered_all_the_same() {
    let case = case(
        "location / { proxy_store %%PREFIX%%/kept/page.html/x; proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /onto { proxy_store %%PREFIX%%/kept; proxy_pass http://127.0.0.1:%%PORT2%%/a.txt; }",
    );
    ask_all(case, &["GET /a.txt", "GET /kept/page.html", "GET /onto", "GET /kept/old.txt"]).run();
}

#[test]
fn servers_choose_charsets_and_rates() {
    let case = case(
        "location / { proxy_pass http://127.0.0.1:%%PORT2%%; add_header X-Rate $limit_rate; }
        location /on/ { charset utf-8; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /source/ { source_charset koi8-r; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /ignored/ { proxy_ignore_headers X-Accel-Charset X-Accel-Limit-Rate;
                             add_header X-Rate $limit_rate; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /shown/ { proxy_pass_header X-Accel-Charset; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /page/ { proxy_intercept_errors on; error_page 500 /page.html;
                          proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /page.html { add_header X-Rate $limit_rate; }",
    );
    let paths = ["utf", "koi", "latin", "named", "untyped", "away", "slow", "broken"];
    let prefixes = ["/", "/on/", "/source/", "/ignored/", "/shown/", "/page/"];
    let requests: Vec<_> = prefixes
        .iter()
        .flat_map(|prefix| paths.iter().map(move |path| format!("GET {prefix}{path}")))
        .collect();
    requests.iter().fold(case, |case, lines| ask(case, lines)).run();
}
