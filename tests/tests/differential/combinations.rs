//! Files together with what sites of files use: headers, character sets, error pages, other methods and
//! versions of HTTP, names that are spelled in unusual ways.

use clearway_testkit::{Case, Exchange};

const SITE: &str = "
    types { text/html html shtml; text/plain txt; text/css css; image/gif gif; application/x-own own; }
    default_type application/octet-stream;
    server { listen %%PORT%%; server_name localhost; root %%PREFIX%%/site;
        location /utf8/ { alias %%PREFIX%%/site/; charset utf-8; }
        location /some/ { alias %%PREFIX%%/site/; charset koi8-r; charset_types text/css application/x-own; }
        location /typed/ { alias %%PREFIX%%/site/; default_type 'text/x-mine; charset=ascii'; charset utf-8; }
        location /added/ { alias %%PREFIX%%/site/; add_header X-A a; add_header X-B b always; expires max; }
        location /epoch/ { alias %%PREFIX%%/site/; expires epoch; add_header Last-Modified ''; }
        location /past/ { alias %%PREFIX%%/site/; expires epoch; add_header Cache-Control public; }
        location /max/ { alias %%PREFIX%%/site/; expires max; etag off; if_modified_since before; }
        location /kept/ { alias %%PREFIX%%/site/; open_file_cache max=50; open_file_cache_errors on;
            open_file_cache_min_uses 2; add_header X-Kept yes; expires epoch; }
        location /page/ { alias %%PREFIX%%/site/; error_page 404 /pages/404.html;
            error_page 403 =200 /x.txt; }
        location /code/ { alias %%PREFIX%%/site/; error_page 404 =410 /pages/404.html; }
        location /away/ { alias %%PREFIX%%/site/; error_page 404 http://localhost/elsewhere; }
        location /named/ { alias %%PREFIX%%/site/; error_page 404 = @else; }
        location /broken/ { alias %%PREFIX%%/site/; error_page 404 /no/such/page; }
        location /tried/ { alias %%PREFIX%%/site/; try_files $uri $uri/ /x.txt; }
        location /try2/ { try_files $uri $uri.html $uri/index.html /pages/404.html; }
        location /idx/ { alias %%PREFIX%%/site/; index none.html sub/ x.txt /pages/404.html; }
        location /idxdir/ { alias %%PREFIX%%/site/; index sub; }
        location ~ ^/cap/(?<name>[^/]+)$ { alias %%PREFIX%%/site/$name; add_header X-Name $name; }
        location @else { return 202 \"else $uri\"; }
    }
    server { listen %%PORT%%; server_name plain; root %%PREFIX%%/site; absolute_redirect off; }
    server { listen %%PORT%%; server_name named.example; root %%PREFIX%%/site; server_name_in_redirect on;
        port_in_redirect off; autoindex on; }
";

fn site() -> Case {
    let long = |size: usize| format!("site/{}", "l".repeat(size));
    Case::http(SITE)
        .file("site/x.txt", "a text of some length, for ranges\n")
        .file("site/x.html", "<p>html</p>\n")
        .file("site/x.css", "p { }\n")
        .file("site/x.gif", "GIF89a\n")
        .file("site/x.own", "own\n")
        .file("site/x.SHTML", "upper\n")
        .file("site/x", "no extension\n")
        .file("site/x.", "a dot\n")
        .file("site/.html", "only an extension\n")
        .file("site/.txt.css", "two of them\n")
        .file("site/x.txt.gz", "not really\n")
        .file(&format!("site/x.{}", "e".repeat(100)), "a long extension\n")
        .file("site/empty.txt", "")
        .file("site/a+b;c=d&e.txt", "delimiters\n")
        .file("site/per%cent.txt", "a percent sign\n")
        .file("site/sub/index.html", "an index\n")
        .file("site/try2/page.html", "a page\n")
        .file("site/try2/dir/index.html", "a directory\n")
        .file("site/pages/404.html", "not here\n")
        .file(&long(255), "the longest name\n")
}

fn ask(case: Case, line: &str, headers: &str) -> Case {
    case.ask(format!("{line}\r\nHost: localhost\r\n{headers}\r\n"))
}

fn all_of<'a>(case: Case, ways: &[&str], names: &[&str], headers: impl AsRef<[&'a str]>) -> Case {
    let headers = headers.as_ref();
    ways.iter()
        .flat_map(|way| names.iter().map(move |name| format!("GET {way}{name} HTTP/1.1")))
        .flat_map(|line| headers.iter().map(move |headers| (line.clone(), *headers)))
        .fold(case, |case, (line, headers)| ask(case, &line, headers))
}

#[test]
fn types_and_character_sets() {
    let names = [
        "x.txt",
        "x.html",
        "x.css",
        "x.gif",
        "x.own",
        "x.SHTML",
        "x",
        "x.",
        ".html",
        ".txt.css",
        "x.txt.gz",
        "empty.txt",
        "none.txt",
    ];
    let ways = ["/", "/utf8/", "/some/", "/typed/"];
    let case = all_of(site(), &ways, &names, ["", "Range: bytes=0-1\r\n"]);
    let long = format!("x.{}", "e".repeat(100));
    all_of(case, &ways, &[&long], [""]).run();
}

#[test]
fn headers_of_what_is_no_200() {
    let conditions = [
        "",
        "Range: bytes=2-5\r\n",
        "Range: bytes=2-5,7-8\r\n",
        "Range: bytes=500-\r\n",
        "If-Modified-Since: Tue, 02 Jan 2024 03:04:05 GMT\r\n",
        "If-None-Match: \"65937d25-22\"\r\n",
        "If-None-Match: \"65937d25-22\"\r\nRange: bytes=2-5\r\n",
        // nginx closes after an answer that a filter gives, though it says that it will not.
        "If-Match: \"x\"\r\nConnection: close\r\n",
        "If-Unmodified-Since: Mon, 01 Jan 2024 03:04:05 GMT\r\nConnection: close\r\n",
        "If-Range: \"65937d25-22\"\r\nRange: bytes=2-5\r\n",
    ];
    let ways = ["/added/", "/past/", "/max/", "/kept/", "/utf8/", "/typed/"];
    all_of(site(), &ways, &["x.txt", "none.txt"], conditions).run();
}

/// `expires epoch` says when it is, which both say alike.
#[test]
fn what_has_expired_long_ago() {
    all_of(site(), &["/epoch/"], &["x.txt", "none", "sub"], ["", "Range: bytes=0-3\r\n"]).run();
}

#[test]
fn pages_of_errors_that_are_files() {
    let conditions = [
        "",
        "Range: bytes=0-1\r\n",
        "If-None-Match: *\r\n",
        "If-Modified-Since: Tue, 02 Jan 2024 03:04:05 GMT\r\n",
    ];
    let ways = ["/page/", "/code/", "/away/", "/named/", "/broken/"];
    let case = all_of(site(), &ways, &["x.txt", "none", "sub", "pages/", "none/"], conditions);
    let case = ways.iter().fold(case, |case, way| ask(case, &format!("HEAD {way}none HTTP/1.1"), ""));
    ways.iter()
        .fold(case, |case, way| {
            ask(case, &format!("POST {way}none HTTP/1.1"), "Content-Length: 3\r\n\r\nabc")
                .ask(format!("GET {way}none HTTP/1.0\r\n\r\n"))
        })
        .run();
}

#[test]
fn names_that_are_tried() {
    let names =
        ["x.txt", "x", "sub", "sub/", "none", "none/", "sub/index.html", "x.txt/", "", "sub?a=b", "x?a"];
    let case = all_of(site(), &["/tried/", "/idx/", "/idxdir/", "/cap/"], &names, [""]);
    all_of(case, &["/try2/"], &["page", "dir", "dir/", "none", "", "page.html", "page/"], [""]).run();
}

#[test]
fn methods_and_versions() {
    let methods = ["HEAD", "OPTIONS", "DELETE", "PATCH", "PUT", "PROPFIND", "LOCK", "FOO", "get"];
    let case = methods.iter().flat_map(|method| ["/x.txt", "/none", "/sub", "/"].map(|path| (method, path)));
    let case = case.fold(site(), |case, (method, path)| {
        ask(case, &format!("{method} {path} HTTP/1.1"), "Connection: close\r\n")
    });
    let heads = ["", "Connection: keep-alive\r\n", "Range: bytes=0-1\r\n", "If-None-Match: *\r\n"];
    let case = heads
        .iter()
        .flat_map(|headers| ["GET", "HEAD"].map(|method| (method, headers)))
        .fold(case, |case, (method, headers)| ask(case, &format!("{method} /x.txt HTTP/1.0"), headers));
    ["/x.txt", "/none", "/sub", "/sub/"]
        .iter()
        .fold(case, |case, path| {
            case.exchange(Exchange::new(format!("GET {path}\r\n")).until_end())
                .ask(format!("TRACE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        })
        .run();
}

#[test]
fn names_in_unusual_spelling() {
    let deep = format!("/{}x.txt", "./".repeat(200));
    let long = |size: usize| format!("/{}", "l".repeat(size));
    let (fits, is_too_long, far_too_long) = (long(255), long(256), long(5000));
    let targets = [
        "/x%2etxt",
        "/x.tx%74",
        "/%78.txt",
        "/x.txt%20",
        "/x.txt%00",
        "/x%",
        "/x%2",
        "/x%zz",
        "/x.txt#f",
        "/a+b;c=d&e.txt",
        "/a%2Bb%3Bc%3Dd%26e.txt",
        "/a%20b",
        "/per%25cent.txt",
        "/per%cent.txt",
        "//x.txt",
        "/./x.txt",
        "/sub/../x.txt",
        "/sub/..",
        "/sub/.",
        "/sub//index.html",
        "/sub%2findex.html",
        "/sub%2Findex.html?x",
        "/none/../x.txt",
        "/..x.txt",
        "/x.txt/..",
        "/x.txt/.",
        "/x.txt?",
        "/x.txt??",
        "/sub?",
        "/sub?a&b#c",
        "/sub#c",
        "/sub%3f",
        "/X.txt",
        "/x.txt.",
        "http://localhost/x.txt",
        "http://localhost/sub",
        "http://other/sub?x",
        &deep,
        &fits,
        &is_too_long,
        &far_too_long,
    ];
    targets.iter().fold(site(), |case, target| ask(case, &format!("GET {target} HTTP/1.1"), "")).run();
}

#[test]
fn redirects_to_directories() {
    let hosts = ["plain", "named.example", "other.example:81", "plain:8080"];
    let targets =
        ["/sub", "//sub", "/sub//", "/sub?a=b", "/pages", "/pages/", "/s%75b", "/none", "/try2/dir"];
    hosts
        .iter()
        .flat_map(|host| targets.map(|target| (host, target)))
        .fold(site(), |case, (host, target)| case.get_host(target, host))
        .run();
}
