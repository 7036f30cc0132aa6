//! `root`, `alias`, `index`, `try_files`, `types`, `default_type`: what is found, under which name and
//! with which type, and that nothing outside is.

use clearway_testkit::Case;

const SITE: &str = "
    types { text/html html htm; text/css css; image/png png; application/x-custom foo; }
    server { listen %%PORT%%; server_name site.test; root %%PREFIX%%/site;
        location /other/ { root %%PREFIX%%/elsewhere; }
        location /al/ { alias %%PREFIX%%/site/sub/; }
        location /alno { alias %%PREFIX%%/site/sub; }
        location = /one { alias %%PREFIX%%/site/page.html; }
        location ~ ^/re/(.+)$ { alias %%PREFIX%%/site/$1; }
        location /idx/ { alias %%PREFIX%%/site/sub/; index nothing.html page.html; }
        location /idxabs/ { index /page.html; }
        location /idxvar/ { alias %%PREFIX%%/site/; index $arg_i; }
        location /noindex/ { alias %%PREFIX%%/site/sub/; index none.html; }
        location /def/ { alias %%PREFIX%%/site/; default_type text/x-own; }
        location /nodef/ { alias %%PREFIX%%/site/; default_type \"\"; }
        location /types/ { alias %%PREFIX%%/site/; types { text/x-mine html; } }
        location /notypes/ { alias %%PREFIX%%/site/; types { } default_type text/x-own; }
        location /rel/ { root site; }
    }
    server { listen %%PORT2%%; server_name relative.test; root site; }
";

fn site() -> Case {
    Case::http(SITE)
        .file("site/index.html", "<p>index</p>\n")
        .file("site/page.html", "<p>page</p>\n")
        .file("site/style.css", "p { }\n")
        .file("site/image.PNG", "not really\n")
        .file("site/plain", "no extension\n")
        .file("site/empty.html", "")
        .file("site/a b.html", "space\n")
        .file("site/ä.html", "umlaut\n")
        .file("site/x.foo", "foo\n")
        .file("site/x.foo.html", "two\n")
        .file("site/.hidden", "hidden\n")
        .file("site/dir.html/x", "x\n")
        .file("site/sub/index.html", "sub index\n")
        .file("site/sub/page.html", "sub page\n")
        .file("site/noindex/file.txt", "text\n")
        .file("site/big.html", "0123456789abcdef".repeat(20_000))
        .file("site/rel/r.html", "relative\n")
        .file("elsewhere/other/o.html", "other\n")
        .file("secret.html", "must not be seen\n")
}

#[test]
fn what_is_found() {
    let targets = [
        "/",
        "/index.html",
        "/page.html",
        "/page.html?x",
        "/page.html/",
        "/page.html/x",
        "/style.css",
        "/image.PNG",
        "/plain",
        "/empty.html",
        "/a%20b.html",
        "/%c3%a4.html",
        "/x.foo",
        "/x.foo.html",
        "/.hidden",
        "/big.html",
        "/missing",
        "/missing.html",
        "/missing/",
        "/sub",
        "/sub?x=y",
        "/sub/",
        "/sub//page.html",
        "/noindex/",
        "/noindex",
        "/dir.html",
        "/dir.html/",
        "/other/o.html",
        "/rel/r.html",
        "/plain/",
    ];
    targets.iter().fold(site(), |case, target| case.get_host(target, "site.test")).with_access_log().run();
}

#[test]
fn aliases_and_indexes() {
    let targets = [
        "/al/",
        "/al/page.html",
        "/al",
        "/al/none",
        "/alno/page.html",
        "/alno",
        "/alno/",
        "/one",
        "/re/page.html",
        "/re/sub/",
        "/re/sub",
        "/idx/",
        "/idxabs/",
        "/idxvar/?i=page.html",
        "/idxvar/?i=/plain",
        "/noindex/",
    ];
    targets.iter().fold(site(), |case, target| case.get_host(target, "site.test")).run();
}

#[test]
fn types() {
    let targets = ["/def/plain", "/def/page.html", "/nodef/plain", "/types/page.html", "/types/style.css"];
    let more = ["/notypes/page.html", "/def/x.foo", "/def/image.PNG"];
    targets.iter().chain(&more).fold(site(), |case, target| case.get_host(target, "site.test")).run();
}

#[test]
fn methods() {
    ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]
        .iter()
        .flat_map(|method| ["/page.html", "/", "/missing", "/sub", "/noindex/"].map(|path| (method, path)))
        .fold(site(), |case, (method, path)| {
            case.ask(format!("{method} {path} HTTP/1.1\r\nHost: site.test\r\nContent-Length: 0\r\n\r\n"))
        })
        .run();
}

#[test]
fn nothing_outside_is_found() {
    let targets = [
        "/../secret.html",
        "/%2e%2e/secret.html",
        "/sub/../../secret.html",
        "/sub/%2e%2e/%2e%2e/secret.html",
        "/sub/..%2f..%2fsecret.html",
        "/sub/..%5c..%5csecret.html",
        "/al/../secret.html",
        "/al/%2e%2e/secret.html",
        "/al/..%2f..%2f..%2fsecret.html",
        "/al../../secret.html",
        "/alno/../secret.html",
        "/./../secret.html",
        "/.../secret.html",
        "//../secret.html",
        "/..;/secret.html",
        "/re/../secret.html",
        "/re/..%2fsecret.html",
        "/%252e%252e/secret.html",
        "/%c0%ae%c0%ae/secret.html",
        "/%u002e%u002e/secret.html",
        "/\\..\\secret.html",
        "/page.html%00",
        "/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
    ];
    targets.iter().fold(site(), |case, target| case.get_host(target, "site.test")).run();
}

#[test]
fn conditions_and_ranges() {
    let ask = |headers: &str| format!("GET /page.html HTTP/1.1\r\nHost: site.test\r\n{headers}\r\n");
    site()
        .ask(ask("If-Modified-Since: Tue, 02 Jan 2024 03:04:05 GMT\r\n"))
        .ask(ask("If-Modified-Since: Mon, 01 Jan 2024 03:04:05 GMT\r\n"))
        .ask(ask("If-None-Match: *\r\n"))
        .ask(ask("If-None-Match: \"65937d25-c\"\r\n"))
        .ask(ask("If-None-Match: W/\"65937d25-c\"\r\n"))
        .ask(ask("If-Match: \"none\"\r\nConnection: close\r\n"))
        .ask(ask("If-Unmodified-Since: Mon, 01 Jan 2024 03:04:05 GMT\r\nConnection: close\r\n"))
        .run();
}

#[test]
fn try_files() {
    let config = "server { listen %%PORT%%; root %%PREFIX%%/site;
        location /a/ { try_files $uri $uri/ /fallback.html; }
        location /code/ { try_files $uri =410; }
        location /named/ { try_files $uri $uri.html @last; }
        location /args/ { try_files $uri /args.txt?from=$uri; }
        location /dir/ { try_files $uri/ =404; }
        location /dirs/ { try_files /sub/ =404; }
        location /loop/ { try_files $uri /loop/again; }
        location /al/ { alias %%PREFIX%%/site/sub/; try_files $uri /fallback.html; }
        location = /args.txt { return 200 \"$args $uri $request_uri\"; }
        location @last { return 200 \"last $uri\"; }
    }";
    let targets = [
        "/a/there.html",
        "/a/dir",
        "/a/dir/",
        "/a/none",
        "/code/x",
        "/code/there",
        "/named/x",
        "/named/there",
        "/args/x",
        "/args/x?own=1",
        "/dir/a",
        "/dir/a/",
        "/dir/none",
        "/dirs/x",
        "/loop/x",
        "/al/page.html",
        "/al/none",
    ];
    let case = Case::http(config)
        .file("site/fallback.html", "fallback\n")
        .file("site/a/there.html", "there\n")
        .file("site/a/dir/index.html", "dir index\n")
        .file("site/code/there", "there\n")
        .file("site/named/there.html", "there\n")
        .file("site/dir/a/index.html", "a index\n")
        .file("site/sub/index.html", "sub index\n")
        .file("site/sub/page.html", "sub page\n");
    targets.iter().fold(case, |case, target| case.get(target)).run();
}

#[test]
fn roots_are_relative_to_the_prefix() {
    Case::http("server { listen %%PORT%%; root site; location /v/ { root $arg_r; } }")
        .file("site/index.html", "index\n")
        .file("site/v/x", "variable\n")
        .get("/")
        .get("/v/x?r=site")
        .run();
}
