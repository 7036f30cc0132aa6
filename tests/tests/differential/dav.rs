//! `dav_methods` and its family: what each method answers, and what is there afterwards.

use clearway_testkit::Case;

/// A file that was just made has a time of its own, which is not shown.
const SITE: &str = "
    types { text/plain txt; }
    server { listen %%PORT%%; server_name site.test; root %%PREFIX%%/site; client_body_temp_path temp/put;
        etag off; add_header Last-Modified ''; dav_methods PUT DELETE MKCOL COPY MOVE;
        location /full/ { alias %%PREFIX%%/site/; create_full_put_path on; }
        location /deep/ { alias %%PREFIX%%/site/; min_delete_depth 3; }
        location /al/ { alias %%PREFIX%%/site/d/; }
        location /some/ { alias %%PREFIX%%/site/; dav_methods PUT; }
        location /off/ { alias %%PREFIX%%/site/; dav_methods off; }
        location /small/ { alias %%PREFIX%%/site/; client_max_body_size 10; error_page 413 /full; }
        location = /full { return 200 'too large'; }
    }
";

fn site() -> Case {
    Case::http(SITE)
        .file("site/f", "content\n")
        .file("site/g", "other\n")
        .file("site/d/a", "in d\n")
        .file("site/d/sub/b", "deeper\n")
        .file("site/empty/x", "x\n")
}

/// Asks with header lines behind the request line, and a body.
fn ask(case: Case, lines: &str, body: Option<&str>) -> Case {
    let mut request = String::new();
    for (at, line) in lines.lines().enumerate() {
        request.push_str(line);
        request.push_str(if at == 0 { " HTTP/1.1\r\nHost: site.test\r\n" } else { "\r\n" });
    }
    if let Some(body) = body {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    case.ask(format!("{request}\r\n{}", body.unwrap_or_default()))
}

/// What is at these paths.
fn look(case: Case, paths: &[&str]) -> Case {
    paths.iter().fold(case, |case, path| case.get_host(path, "site.test"))
}

#[test]
fn what_is_refused() {
    let requests = [
        ("PUT /d/", Some("x")),
        ("PUT /d", Some("x")),
        ("PUT /f\nContent-Range: bytes 0-1/2", Some("xx")),
        ("PUT /f", None),
        ("PUT /none/x", Some("x")),
        ("PUT /f/x", Some("x")),
        ("PUT /off/x", Some("x")),
        ("DELETE /some/f", None),
        ("PUT /small/x", Some("much too large")),
        ("PUT /small/x\nExpect: 100-continue", Some("much too large")),
        ("DELETE /none", None),
        ("DELETE /d", None),
        ("DELETE /f/", None),
        ("DELETE /f/x", None),
        ("DELETE /f", Some("x")),
        ("DELETE /d/\nDepth: 0", None),
        ("DELETE /d/\nDepth: x", None),
        ("DELETE /f\nDepth: 1", None),
        ("DELETE /deep/f", None),
        ("DELETE /deep/d/", None),
        ("MKCOL /new", None),
        ("MKCOL /d/", None),
        ("MKCOL /none/x/", None),
        ("MKCOL /f/x/", None),
        ("MKCOL /new/", Some("x")),
        ("PROPFIND /", None),
        ("LOCK /f", None),
    ];
    requests.iter().fold(site(), |case, (lines, body)| ask(case, lines, *body)).run();
}

#[test]
fn what_cannot_be_copied_or_moved() {
    let requests = [
        "COPY /f",
        "COPY /f\nDestination: ",
        "COPY /f\nDestination: x",
        "COPY /f\nDestination: http://other.test/x",
        "COPY /f\nDestination: https://site.test/x",
        "COPY /f\nDestination: http://site.test",
        "COPY /f\nDestination: /d/",
        "COPY /f\nDestination: /d",
        "COPY /f\nDestination: /../x",
        "COPY /f\nDestination: /%2e%2e/x",
        "COPY /f\nDestination: /a%00b",
        "COPY /f\nDestination: /none/x",
        "COPY /f\nDestination: /f/x",
        "COPY /f\nDestination: /g\nOverwrite: F",
        "COPY /f\nDestination: /g\nOverwrite: maybe",
        "COPY /none\nDestination: /x",
        "COPY /d\nDestination: /x",
        "COPY /d/\nDestination: /empty/\nOverwrite: f",
        "COPY /d/\nDestination: /x/\nDepth: 1",
        "COPY /d/\nDestination: /none/x/",
        "COPY /al/a\nDestination: /x",
        "MOVE /f\nDestination: /x\nDepth: 0",
        "MOVE /f\nDestination: /d",
        "MOVE /d\nDestination: /x",
        "MOVE /none/\nDestination: /x/",
    ];
    let case = requests.iter().fold(site(), |case, lines| ask(case, lines, None));
    look(case, &["/f", "/g", "/x", "/d/a", "/empty/x"]).run();
}

#[test]
fn what_is_done() {
    let requests = [
        ("PUT /new", Some("hello\n")),
        ("PUT /new", Some("again\n")),
        ("PUT /empty/none", Some("")),
        ("PUT /full/p/q/r\nDate: Sun, 06 Nov 1994 08:49:37 GMT", Some("deep\n")),
        ("PUT /%C3%A9%20x", Some("é\n")),
        ("MKCOL /made/", None),
        ("COPY /f\nDestination: /made/f", None),
        ("COPY /f\nDestination: http://site.test:1/made/g%20h?i", None),
        ("COPY /f\nDestination: /g\nOverwrite: T", None),
        ("COPY /d/\nDestination: /copied/", None),
        ("COPY /d/\nDestination: /empty/", None),
        ("MOVE /g\nDestination: /far/away/g", None),
        ("MOVE /copied/\nDestination: /made/moved/", None),
        ("DELETE /made/f", None),
        ("DELETE /d/\nDepth: infinity", None),
        ("DELETE /deep/made/moved/sub/", None),
    ];
    let case = requests.iter().fold(site(), |case, (lines, body)| ask(case, lines, *body));
    let chunks = "3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
    let chunked = "PUT /chunks HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let case = case.ask(format!("{chunked}{chunks}"));
    let paths = [
        "/new",
        "/empty/none",
        "/empty/x",
        "/empty/sub/b",
        "/p/q/r",
        "/%C3%A9%20x",
        "/made/g%20h",
        "/g",
        "/far/away/g",
        "/copied/a",
        "/made/moved/a",
        "/made/moved/sub/b",
        "/d/a",
        "/chunks",
    ];
    look(case, &paths).run();
}
