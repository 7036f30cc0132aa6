//! How files are sent: ranges, conditions, with and without sendfile, past the page cache, kept open, behind
//! links, under names of any bytes.

#![expect(clippy::disallowed_methods, reason = "tests")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use clearway_testkit::{Binary, Case, Setup};

const SITE: &str = "
    types { text/html html; text/plain txt; }
    server { listen %%PORT%%; server_name localhost; root %%PREFIX%%/site;
        location /off/ { alias %%PREFIX%%/site/; sendfile off; }
        location /on/ { alias %%PREFIX%%/site/; sendfile on; }
        location /chunks/ { alias %%PREFIX%%/site/; sendfile on; tcp_nopush on; sendfile_max_chunk 64k; }
        location /buffers/ { alias %%PREFIX%%/site/; output_buffers 1 1k; postpone_output 0; }
        location /threads/ { alias %%PREFIX%%/site/; aio threads; sendfile on; }
        location /read/ { alias %%PREFIX%%/site/; aio threads; }
        location /loop/ { alias %%PREFIX%%/site/; aio off; }
        location /direct/ { alias %%PREFIX%%/site/; directio 1k; }
        location /aligned/ { alias %%PREFIX%%/site/; directio 512; directio_alignment 4k; }
        location /kept/ { alias %%PREFIX%%/site/; open_file_cache max=10 inactive=10s;
            open_file_cache_errors on; open_file_cache_min_uses 2; }
        location /none/ { alias %%PREFIX%%/site/; max_ranges 0; }
        location /one/ { alias %%PREFIX%%/site/; max_ranges 1; }
        location /three/ { alias %%PREFIX%%/site/; max_ranges 3; }
        location /untyped/ { alias %%PREFIX%%/site/; types { } default_type \"\"; }
        location /added/ { alias %%PREFIX%%/site/; add_header X-Once once;
            add_header X-Always always always; }
        location /page/ { alias %%PREFIX%%/site/; error_page 412 416 /error.html; }
        location /named/ { alias %%PREFIX%%/site/; error_page 412 416 =200 /error.html; }
        location /before/ { alias %%PREFIX%%/site/; if_modified_since before; }
        location /never/ { alias %%PREFIX%%/site/; if_modified_since off; }
        location /tagless/ { alias %%PREFIX%%/site/; etag off; }
        location /ahead/ { alias %%PREFIX%%/site/; read_ahead 1m; }
        location /return/ { return 200 0123456789; }
        location /tried/ { alias %%PREFIX%%/site/; try_files $uri $uri.txt =404; }
    }
";

/// Sizes around those that decide how a file is sent.
const SIZES: [usize; 9] = [0, 1, 100, 4096, 16_384, 16_385, 65_536, 65_537, 700_000];

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| b'a' + (at * 7 / 3 % 26) as u8).collect()
}

fn site() -> Case {
    let case = SIZES
        .iter()
        .fold(Case::http(SITE), |case, &size| case.file(&format!("site/{size}.txt"), content(size)));
    case.file("site/error.html", "<p>error</p>\n").file("site/unread", "nobody may\n").prepared(|prefix| {
        let mode = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(prefix.join("site/unread"), mode).expect("it is ours");
    })
}

/// nginx says after a 412 that the connection stays, and closes it.
fn ask(case: Case, path: &str, headers: &str) -> Case {
    case.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"))
}

fn ranges<'a>(case: Case, path: &str, values: impl IntoIterator<Item = &'a str>) -> Case {
    values.into_iter().fold(case, |case, value| ask(case, path, &format!("Range: {value}\r\n")))
}

#[test]
fn files_of_all_sizes_arrive_in_every_way() {
    let ways =
        ["off", "on", "chunks", "buffers", "threads", "read", "loop", "direct", "aligned", "kept", "ahead"];
    let paths = ways.iter().flat_map(|way| SIZES.map(|size| format!("/{way}/{size}.txt")));
    paths.fold(site(), |case, path| ask(case, &path, "")).with_access_log().run();
}

#[test]
fn a_file_is_the_same_when_it_is_asked_for_again() {
    let again = ["/100.txt", "/kept/100.txt", "/kept/700000.txt", "/kept/nothing", "/nothing", "/kept"];
    let asked = again.iter().flat_map(|path| [path; 4]);
    asked.fold(site(), |case, path| case.get(path)).with_access_log().run();
}

#[test]
fn one_range() {
    let values = [
        "bytes=0-0",
        "bytes=0-",
        "bytes=5-",
        "bytes=99-",
        "bytes=-1",
        "bytes=-100",
        "bytes=-500",
        "bytes=0-99",
        "bytes=0-500",
        "bytes=10-19",
        "Bytes=10-19",
        "bytes= 10 - 19 ",
        "bytes=0010-019",
    ];
    let case = ranges(site(), "/100.txt", values);
    let case =
        ranges(case, "/on/700000.txt", ["bytes=0-9", "bytes=65530-65540", "bytes=100000-", "bytes=-5"]);
    let case =
        ranges(case, "/off/700000.txt", ["bytes=0-9", "bytes=65530-65540", "bytes=100000-", "bytes=-5"]);
    let case =
        ranges(case, "/direct/700000.txt", ["bytes=0-9", "bytes=513-70001", "bytes=100000-", "bytes=-5"]);
    ranges(case, "/kept/65536.txt", ["bytes=0-9", "bytes=1-", "bytes=-1"]).with_access_log().run();
}

#[test]
fn ranges_that_are_not_there_or_none() {
    let values = [
        "bytes=100-",
        "bytes=100-200",
        "bytes=-0",
        "bytes=x",
        "bytes=1",
        "bytes=1-x",
        "bytes=x-1",
        "bytes=--1",
        "bytes=1--2",
        "bytes=1-2x",
        "bytes=1 2-3",
        "bytes=5-3",
        "bytes=- 5",
        "bytes=9223372036854775807-",
        "bytes=9223372036854775808-",
        "bytes=0-9223372036854775808",
        "bytes=-9223372036854775808",
        "bytes=1-9223372036854775807",
        "bytes=,",
        "bytes=1-2,",
        "bytes=",
        "bytes",
        "items=0-1",
        "bytes:0-1",
        "bytes 0-1",
        "",
        "bytes=0",
        "bytes=a-",
        "bytes=\t0-1",
    ];
    let case = ranges(site(), "/100.txt", values);
    ranges(case, "/0.txt", ["bytes=0-", "bytes=0-0", "bytes=-5", "bytes=1-", "bytes=-0"]).run();
}

#[test]
fn several_ranges() {
    let values = [
        "bytes=0-0,2-2",
        "bytes=0-9, 20-29 ,-10",
        "bytes=90-,0-9",
        "bytes=5-9,5-9",
        "bytes=0-49,40-99",
        "bytes=0-99,0-0",
        "bytes=200-,5-9",
        "bytes=5-9,200-",
        "bytes=5-9,7-3",
        "bytes=0-0,0-,1-1",
    ];
    let case = ranges(site(), "/100.txt", values);
    let far = ["bytes=0-1,699990-", "bytes=600000-600009,1-9", "bytes=65530-65540,1-2,-3"];
    let case = ["/on", "/off", "/direct", "/kept", "/untyped"]
        .iter()
        .fold(case, |case, way| ranges(case, &format!("{way}/700000.txt"), far));
    ranges(case, "/65536.txt", ["bytes=0-1,65530-", "bytes=60000-60009,1-9"]).with_access_log().run();
}

/// The whole body, whatever an oracle says.
#[test]
fn parts_of_a_file_to_the_byte() {
    for binary in Binary::expected_alike() {
        let server = Setup::http(binary, SITE).file("site/100.txt", content(100)).start();
        let asked = "GET /100.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-2,10-11,-1\r\n\r\n";
        let answer = server.connect().ask(asked);
        let kind = answer.header("content-type").unwrap_or_default();
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect("it has parts");
        assert!(boundary.len() == 20 && boundary.bytes().all(|byte| byte.is_ascii_digit()), "{boundary}");
        let part = |range: &str, text: &str| {
            let head = "\r\nContent-Type: text/plain\r\nContent-Range: bytes ";
            format!("\r\n--{boundary}{head}{range}/100\r\n\r\n{text}")
        };
        let parts = part("0-2", "ace") + &part("10-11", "xz") + &part("99-99", "x");
        assert_eq!((answer.status, answer.text()), (206, format!("{parts}\r\n--{boundary}--\r\n")));
        assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()));
        assert_eq!(answer.header("content-range"), None);
    }
}

/// The heads of the parts count as well.
#[test]
fn many_small_ranges_are_the_whole() {
    let many: Vec<String> = (0..17).map(|at| format!("{at}-{at}")).collect();
    let request = format!("GET /100.txt HTTP/1.1\r\nHost: a\r\nRange: bytes={}\r\n\r\n", many.join(","));
    site().ask(request).run();
}

#[test]
fn numbers_of_ranges_are_limited() {
    let values = ["bytes=0-9", "bytes=0-9,20-29", "bytes=0-0,2-2,4-4", "bytes=0-0,2-2,4-4,6-6", "bytes=x"];
    ["/none", "/one", "/three"]
        .iter()
        .fold(site(), |case, way| ranges(case, &format!("{way}/100.txt"), values))
        .run();
}

#[test]
fn ranges_under_a_condition() {
    let conditions = [
        "\"65937d25-64\"",
        "\"65937d25-65\"",
        "W/\"65937d25-64\"",
        "Tue, 02 Jan 2024 03:04:05 GMT",
        "Tue, 02 Jan 2024 03:04:06 GMT",
        "Mon, 01 Jan 2024 03:04:05 GMT",
        "yesterday",
        "\"",
        "*",
    ];
    let asked = conditions
        .iter()
        .flat_map(|condition| ["/100.txt", "/tagless/100.txt"].map(|path| (path, condition)));
    asked
        .fold(site(), |case, (path, condition)| {
            ask(case, path, &format!("Range: bytes=0-9\r\nIf-Range: {condition}\r\n"))
        })
        .run();
}

#[test]
fn ranges_of_other_responses_and_methods() {
    let case = ranges(site(), "/return/", ["bytes=0-1", "bytes=50-"]);
    let case = ranges(case, "/nothing", ["bytes=0-1"]);
    let case = ranges(case, "/kept", ["bytes=0-1"]);
    let case = ranges(case, "/tried/100", ["bytes=0-1", "bytes=100-"]);
    let more = ["HEAD /100.txt HTTP/1.1", "GET /100.txt HTTP/1.0", "HEAD /none/100.txt HTTP/1.1"];
    let wanted = ["bytes=0-9", "bytes=0-0,2-2", "bytes=100-"];
    more.iter()
        .flat_map(|line| wanted.map(|range| (line, range)))
        .fold(case, |case, (line, range)| {
            case.ask(format!("{line}\r\nHost: localhost\r\nRange: {range}\r\nConnection: close\r\n\r\n"))
        })
        .run();
}

#[test]
fn what_a_filter_refuses_has_its_page() {
    // Behind a 416 nginx leaves what the file's own head had.
    let case = ["/added", ""]
        .iter()
        .fold(site(), |case, way| ask(case, &format!("{way}/100.txt"), "Range: bytes=100-\r\n"));
    let failed = ["If-Match: \"x\"\r\n", "If-Unmodified-Since: Mon, 01 Jan 2024 03:04:05 GMT\r\n"];
    ["/added", "/page", "/named", ""]
        .iter()
        .flat_map(|way| failed.map(|headers| (way, headers)))
        .fold(case, |case, (way, headers)| ask(case, &format!("{way}/100.txt"), headers))
        .with_access_log()
        .run();
}

#[test]
fn conditions() {
    let dates = [
        "Tue, 02 Jan 2024 03:04:05 GMT",
        "Tue, 02 Jan 2024 03:04:06 GMT",
        "Mon, 01 Jan 2024 03:04:05 GMT",
        "x",
    ];
    let case = ["", "/before", "/never", "/tagless", "/added", "/kept", "/return"]
        .iter()
        .flat_map(|way| dates.map(|date| (way, date)))
        .fold(site(), |case, (way, date)| {
            let case = ask(case, &format!("{way}/100.txt"), &format!("If-Modified-Since: {date}\r\n"));
            ask(case, &format!("{way}/100.txt"), &format!("If-Unmodified-Since: {date}\r\n"))
        });
    let tags =
        ["\"65937d25-64\"", "W/\"65937d25-64\"", "\"x\", \"65937d25-64\"", "\"65937d25-64", "*", "\"x\"", ""];
    ["", "/tagless", "/return"]
        .iter()
        .flat_map(|way| tags.map(|tag| (way, tag)))
        .fold(case, |case, (way, tag)| {
            let case = ask(case, &format!("{way}/100.txt"), &format!("If-None-Match: {tag}\r\n"));
            let case = ask(case, &format!("{way}/100.txt"), &format!("If-Match: {tag}\r\n"));
            let both =
                format!("If-None-Match: {tag}\r\nIf-Modified-Since: Tue, 02 Jan 2024 03:04:05 GMT\r\n");
            ask(case, &format!("{way}/100.txt"), &both)
        })
        .run();
}

const LINKS: &str = "
    server { listen %%PORT%%; server_name localhost; root %%PREFIX%%/site;
        location /on/ { alias %%PREFIX%%/site/; disable_symlinks on; }
        location /owner/ { alias %%PREFIX%%/site/; disable_symlinks if_not_owner; }
        location /from/ { alias %%PREFIX%%/link/; disable_symlinks on from=%%PREFIX%%/link; }
        location /slash/ { alias %%PREFIX%%/link/; disable_symlinks on from=%%PREFIX%%/link/; }
        location /else/ { alias %%PREFIX%%/link/; disable_symlinks on from=%%PREFIX%%/lin; }
        location /ofrom/ { alias %%PREFIX%%/link/; disable_symlinks if_not_owner from=$document_root; }
        location /var/ { alias %%PREFIX%%/link/; disable_symlinks on from=$arg_from; }
        location /try/ { alias %%PREFIX%%/site/; disable_symlinks on; try_files $uri /file.txt; }
        location /idx/ { alias %%PREFIX%%/site/linked/; disable_symlinks on; }
        location /kept/ { alias %%PREFIX%%/site/; disable_symlinks on; open_file_cache max=9;
            open_file_cache_errors on; }
    }
";

fn make_links(prefix: &Path) {
    for (to, name) in [
        ("file.txt", "site/to-file"),
        ("dir", "site/to-dir"),
        ("nothing", "site/to-nothing"),
        ("loop", "site/loop"),
        ("site", "link"),
        ("../file.txt", "site/linked/index.html"),
    ] {
        symlink(to, prefix.join(name)).expect("the prefix is ours");
    }
}

#[test]
fn links() {
    let names = [
        "file.txt",
        "to-file",
        "to-dir",
        "to-dir/",
        "to-dir/in.txt",
        "dir/in.txt",
        "dir",
        "to-nothing",
        "loop",
        "loop/x",
        "file.txt/",
        "to-file/x",
        "nothing",
        "dir/nothing",
    ];
    let ways = ["", "/on", "/owner", "/from", "/slash", "/else", "/ofrom", "/var", "/try", "/kept", "/kept"];
    let case = Case::http(LINKS)
        .file("site/file.txt", "file\n")
        .file("site/dir/in.txt", "in\n")
        .file("site/linked/x", "x\n")
        .prepared(make_links);
    ways.iter()
        .flat_map(|way| names.map(|name| format!("{way}/{name}")))
        .fold(case, |case, path| ask(case, &path, ""))
        .get("/idx/")
        .run();
}

#[test]
#[cfg_attr(not_root, ignore = "needs the rights of root")]
fn links_to_what_somebody_else_owns() {
    let case = Case::http(LINKS).file("site/foreign.txt", "foreign\n").prepared(|prefix| {
        std::os::unix::fs::chown(prefix.join("site/foreign.txt"), Some(65_534), None).expect("root may");
        symlink("foreign.txt", prefix.join("site/to-foreign")).expect("the prefix is ours");
        symlink("site", prefix.join("link")).expect("the prefix is ours");
    });
    ["", "/on", "/owner", "/from", "/ofrom"]
        .iter()
        .fold(case, |case, way| ask(case, &format!("{way}/to-foreign"), ""))
        .run();
}

#[test]
fn names_of_every_byte() {
    let bytes = (1..=255_u8).filter(|byte| !matches!(byte, b'/' | b'.' | b'%'));
    let case = bytes.clone().fold(Case::http(SITE), |case, byte| {
        let escaped = format!("/names/%{byte:02x}x");
        ask(ask(case, &escaped, ""), &format!("/tried/names/%{byte:02X}y"), "")
    });
    case.prepared(|prefix| {
        let directory = prefix.join("site/names");
        std::fs::create_dir_all(&directory).expect("the prefix is ours");
        for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
            for (suffix, content) in [(&b"x"[..], "plain"), (b"y.txt", "tried")] {
                let name = [&[byte], suffix].concat();
                let path = directory.join(OsStr::from_bytes(&name));
                std::fs::write(&path, content).expect("the prefix is ours");
                let file = std::fs::File::options().write(true).open(&path).expect("just written");
                file.set_modified(UNIX_EPOCH + Duration::from_secs(1_700_000_000)).expect("it is ours");
            }
        }
    })
    .run();
}
