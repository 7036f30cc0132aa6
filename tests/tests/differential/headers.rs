//! `add_header` and `expires`.

use clearway_testkit::{Case, Exchange};

fn gets(case: Case, targets: &[&str]) -> Case {
    targets.iter().fold(case, |case, target| case.get(target))
}

const ADDED: &str = "default_type text/plain; add_header X-Http http; map $args $mapped { default m$args;
        none ''; }
        server { listen %%PORT%%;
        location / { return 200 root; }
        location /own { add_header X-Own own; return 200 own; }
        location /nested { add_header X-Outer outer; location /nested/in { return 200 in; }
            location /nested/more { add_header X-Inner inner; return 200 more; }
            if ($arg_c) { add_header X-If if; } if ($arg_d) { set $x y; } }
        location /codes { add_header X-Safe safe; add_header X-Always always always;
            location /codes/200 { return 200 x; } location /codes/201 { return 201 x; }
            location /codes/202 { return 202 x; } location /codes/204 { return 204; }
            location /codes/206 { return 206 x; } location /codes/301 { return 301 /x; }
            location /codes/302 { return 302 /x; } location /codes/303 { return 303 /x; }
            location /codes/307 { return 307 /x; } location /codes/308 { return 308 /x; }
            location /codes/304 { return 304; } location /codes/400 { return 400; }
            location /codes/403 { return 403 x; } location /codes/404 { } location /codes/500 { return 500;
                } }
        location /values { add_header X-Args $args; add_header X-Two \"$uri $mapped\"; add_header X-Empty '';
            add_header X-Twice a; add_header X-Twice b; add_header x-lower c;
                add_header Cache-Control private;
            add_header X-Sent $sent_http_content_type; add_header X-Status $status; return 200 x; }
        location /mapped { add_header X-Mapped $mapped; add_header X-Again $mapped always; return 200 x; }
        location /file { add_header X-Length $sent_http_content_length; add_header X-Etag $sent_http_etag; }
        location /etag { add_header ETag \"\\\"own\\\"\"; }
        location /noetag { add_header etag ''; add_header Last-Modified ''; }
        location /modified { add_header Last-Modified 'Mon, 28 Sep 1970 06:00:00 GMT'; }
        location /odd { add_header last-modified today; }
        location /missing { add_header Last-Modified 'Mon, 28 Sep 1970 06:00:00 GMT' always; return 404; }
        location /errors { add_header X-A a always; error_page 404 /page; return 404; }
        location /page { add_header X-Page page; add_header X-Pages page always; return 200 page; }
        }";

#[test]
fn headers_are_added_by_level_and_code() {
    let mut case = Case::http(ADDED);
    for name in ["file", "etag", "noetag", "modified", "odd"] {
        case = case.file(&format!("html/{name}"), name);
    }
    let targets = [
        "/",
        "/own",
        "/nested/none",
        "/nested/in",
        "/nested/more",
        "/nested/none?c=1",
        "/nested/none?d=1",
        "/codes/200",
        "/codes/201",
        "/codes/202",
        "/codes/204",
        "/codes/206",
        "/codes/301",
        "/codes/302",
        "/codes/303",
        "/codes/304",
        "/codes/307",
        "/codes/308",
        "/codes/400",
        "/codes/403",
        "/codes/404",
        "/codes/500",
        "/values",
        "/values?a",
        "/mapped?a",
        "/mapped?none",
        "/etag",
        "/noetag",
        "/modified",
        "/odd",
        "/missing",
        "/errors",
    ];
    let ask = |target: &str, lines: &str| {
        Exchange::new(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n"))
    };
    gets(case, &targets)
        .exchange(ask("/modified", "If-Modified-Since: Mon, 28 Sep 1970 06:00:00 GMT\r\n"))
        .exchange(ask("/etag", "If-None-Match: \"own\"\r\n"))
        .run();
}

#[test]
fn trailers_follow_bodies_in_chunks() {
    let config = "default_type text/plain; add_trailer X-Http http; server { listen %%PORT%%;
        location / { }
        location /own { add_trailer X-Size $sent_http_content_length; add_trailer X-Status $status;
            add_trailer X-Empty ''; add_trailer X-Twice a; add_trailer X-Twice b; return 200 body; }
        location /off { chunked_transfer_encoding off; return 200 body; }
        location /error { add_trailer X-Safe s; add_trailer X-Always a always; return 404; }
        location /unsafe { add_trailer X-Safe s; return 404; }
        location /nothing { return 204; } location /empty { return 200; } location /moved { return 301 /x; }
        }";
    let mut case = Case::http(config).file("html/f", "x".repeat(100)).file("html/large", "y".repeat(300_000));
    for target in ["/f", "/large", "/own", "/off", "/error", "/unsafe", "/nothing", "/empty", "/moved"] {
        case = case
            .get(target)
            .ask(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .ask(format!("GET {target} HTTP/1.0\r\n\r\n"));
    }
    case.ask("GET /f HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n").run();
}

#[test]
fn what_the_server_says_of_itself_and_where_it_sends_to() {
    let config = "default_type text/plain; server { listen %%PORT%%; server_name first.test second.test;
        location /on { server_tokens on; location /on/200 { return 200; } location /on/404 { return 404; } }
        location /build { server_tokens build; return 404; }
        location /path { return 301 /to; }
        location /relative { absolute_redirect off; return 301 /to; }
        location /named { server_name_in_redirect on; return 301 /to; }
        location /portless { port_in_redirect off; return 301 /to; }
        location /both { server_name_in_redirect on; port_in_redirect off; return 301 /to; }
        location /dir { absolute_redirect off; }
        location /sent { absolute_redirect off; add_header X-Sent $sent_http_location; return 301 /to; }
        location /etag { } location /noetag { etag off; }
        }";
    let mut case = Case::http(config).file("html/dir/x", "x").file("html/etag", "x").file("html/noetag", "x");
    for target in ["/on/200", "/on/404", "/build", "/dir", "/dir?a", "/sent"] {
        case = case.get(target);
    }
    for path in ["/path", "/relative", "/named", "/portless", "/both"] {
        case = case.get_host(path, "second.test").get_host(path, "other.test:81");
        case = case.ask(format!("GET {path} HTTP/1.0\r\n\r\n"));
    }
    for condition in ["", "If-None-Match: *\r\n", "If-None-Match: \"x\"\r\n", "If-Match: \"x\"\r\n"] {
        for path in ["/etag", "/noetag"] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{condition}\r\n");
            case = case.ask(head);
        }
    }
    case.run();
}

/// Times that pass while the test runs are not compared: `Expires` is left to where it is fixed.
#[test]
fn expiry_dates() {
    let config = "default_type text/plain; expires max; server { listen %%PORT%%;
        location / { return 200 x; }
        location /epoch { expires epoch; return 200 x; }
        location /off { expires off; return 200 x; }
        location /off/in { return 200 x; }
        location /twice { add_header Cache-Control private; add_header Expires never; return 200 x; }
        location /bad { return 400; }
        location /bad/in { expires epoch; return 404; }
        location /var { expires $arg_e; return 200 x; }
        location /varmod { expires modified $arg_e; return 200 x; }
        location /redirect { return 301 /x; }
        location /made { return 202 x; }
        }";
    let targets = [
        "/",
        "/epoch",
        "/off",
        "/off/in",
        "/twice",
        "/bad",
        "/bad/in",
        "/var?e=epoch",
        "/var?e=max",
        "/var?e=off",
        "/var?e=x",
        "/var",
        "/varmod?e=epoch",
        "/varmod?e=@1h",
        "/varmod",
        "/redirect",
        "/made",
    ];
    gets(Case::http(config), &targets).run();
}
