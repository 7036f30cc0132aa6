//! `proxy_pass` and what it says of requests and responses. The origin is a server of the same process, which
//! says what it was asked.

use clearway_testkit::Case;

/// Says how it was asked.
const ECHO: &str = "server { listen %%PORT2%%; location / { return 200
    '$request|$http_host|$http_connection|$http_te|$http_upgrade|$http_x_a|$http_accept|$content_length'; }
    location /status/ { return 404 missing; } location /gone/ { return 503; }
    location /moved/ { return 302 http://127.0.0.1:%%PORT2%%/b/there; }
    location /away/ { return 301 /b/away; }
    location /cookie/ { add_header Set-Cookie 'a=1; Domain=Origin.test; Path=/b/x; Secure'; return 200; }
    location /heads/ { add_header X-Hidden a; add_header X-Shown b; add_header X-Accel-Charset utf-8;
                       add_header Link '</a>'; add_header Cache-Control no-store; return 200 heads; }
    location /accel/ { add_header X-Accel-Redirect /inside/?a=b; return 200; }
    location /accel_named/ { add_header X-Accel-Redirect @inside; return 200; }
    location /accel_out/ { add_header X-Accel-Redirect /../x; return 200; }
    location /file/ { alias html/; }
    location /none/ { return 204; } }";

fn case(locations: &str) -> Case {
    Case::http(&format!("{ECHO} server {{ listen %%PORT%%; {locations} }}"))
}

#[test]
fn paths_are_passed_as_they_came_or_replaced() {
    let mut case = case(
        "location / { proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /a/ { proxy_pass http://127.0.0.1:%%PORT2%%/b/; }
        location /c { proxy_pass http://127.0.0.1:%%PORT2%%/d; }
        location /bare/ { proxy_pass http://127.0.0.1:%%PORT2%%?x=y; }
        location ~ ^/regex { proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /rewritten/ { rewrite ^/rewritten/(.*) /new/$1?z=1 break;
                               proxy_pass http://127.0.0.1:%%PORT2%%/b/; }
        location /inside { rewrite ^ /a/inside last; }
        location /if { if ($arg_x) { proxy_pass http://127.0.0.1:%%PORT2%%; } return 403; }
        location /ifs { if ($arg_x) { proxy_pass http://127.0.0.1:%%PORT2%%; } if ($arg_y) { add_header A b; }
                        if ($arg_z) { proxy_pass http://127.0.0.1:%%PORT2%%; add_header Z z; }
                        error_page 404 = @named; error_page 418 = @named; if ($arg_t) { return 418; } }
        location /limited/ { proxy_pass http://127.0.0.1:%%PORT2%%/l/; limit_except GET { deny 127.0.0.2; } }
        location /named { try_files /nothing @named; }
        location @named { proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /page { error_page 404 = @named; return 404; }
        location /var { proxy_pass http://127.0.0.1:%%PORT2%%$request_uri; }
        location /var2 { set $up 127.0.0.1; proxy_pass http://$up:%%PORT2%%/fixed?q; }
        location /var3 { proxy_pass http://127.0.0.1:%%PORT2%%$arg_empty; }
        location /args { set $args $args&t=1; proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /args/var { set $args $args&t=1; set $up http://127.0.0.1:%%PORT2%%; proxy_pass $up; }
        location /args/same { set $args $args; proxy_pass http://127.0.0.1:%%PORT2%%; }",
    );
    for path in [
        "/",
        "/x?y=1",
        "/%41%20b?c=%20",
        "//x/../y",
        "/a/",
        "/a/b/c?d",
        "/a/%41%20%3f",
        "/a",
        "/c",
        "/cc/d",
        "/bare/x",
        "/regex/%20?a",
        "/rewritten/a%20b?c=d",
        "/inside",
        "/if/a?x=1",
        "/if/a",
        "/ifs?x=1",
        "/ifs?y=1",
        "/ifs?x=1&y=1",
        "/ifs?x=1&y=1&z=1",
        "/ifs?x=1&y=1&t=1",
        "/limited/x",
        "/named/%41",
        "/page/%41?a",
        "/var/%41?b",
        "/var2/x",
        "/var3/y%41",
        "/args",
        "/args/%41%20%3f?a=%20",
        "/args/var?",
        "/args/var/%41+b?x",
        "/args/same/%41?x",
        "/args/same/y",
    ] {
        case = case.get(path);
    }
    case.run();
}

#[test]
fn heads_of_requests_are_made() {
    let mut case = case(
        "location / { proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /old { proxy_http_version 1.0; proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /set { proxy_set_header Host $host; proxy_set_header X-A '$uri-$arg_a';
                        proxy_set_header Accept ''; proxy_set_header Connection $http_x_conn;
                        proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /nohost { proxy_set_header Host ''; proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /none { proxy_pass_request_headers off; proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /method { proxy_method PUT; proxy_set_body 'text $arg_a';
                           proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /vars { proxy_set_header X-A '$proxy_host:$proxy_port:$proxy_add_x_forwarded_for';
                         proxy_pass http://127.0.0.1:%%PORT2%%; }",
    );
    for path in ["/", "/old", "/set?a=1", "/nohost", "/none", "/method?a=b", "/vars"] {
        case = case.get(path).ask(format!(
            "GET {path} HTTP/1.1\r\nHost: h.test\r\nTE: gzip\r\nUpgrade: x\r\nX-A: 1\r\nX-Conn: x\r\n\
             X-Forwarded-For: 192.0.2.1\r\nAccept: a\r\nAccept: b\r\nConnection: close\r\n\r\n"
        ));
    }
    for body in ["Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"] {
        case = case.ask(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"));
        case = case.ask(format!("POST /method HTTP/1.1\r\nHost: a\r\n{body}"));
    }
    case.run();
}

#[test]
fn heads_of_responses_are_passed_on() {
    let mut case = case(
        "location / { proxy_pass http://127.0.0.1:%%PORT2%%; proxy_hide_header X-Hidden; }
        location /a/ { proxy_pass http://127.0.0.1:%%PORT2%%/b/; }
        location /a/moved/ { proxy_pass http://127.0.0.1:%%PORT2%%/moved/;
                             proxy_redirect http://127.0.0.1:%%PORT2%%/b/ /a/; }
        location /a/away/ { proxy_pass http://127.0.0.1:%%PORT2%%/away/;
                             proxy_redirect ~^(?<p>.*)$ http://x$p; }
        location /a/off/ { proxy_pass http://127.0.0.1:%%PORT2%%/moved/; proxy_redirect off; }
        location /a/cookie/ { proxy_pass http://127.0.0.1:%%PORT2%%/cookie/;
                              proxy_cookie_domain origin.test me.test;
                              proxy_cookie_path /b/ /a/;
                              proxy_cookie_flags a nosecure httponly samesite=lax; }
        location /a/page/ { proxy_pass http://127.0.0.1:%%PORT2%%/status/;
                            proxy_intercept_errors on;
                            error_page 404 /missing; }
        location /a/nopage/ { proxy_pass http://127.0.0.1:%%PORT2%%/gone/; proxy_intercept_errors on; }
        location /a/ignore/ { proxy_pass http://127.0.0.1:%%PORT2%%/accel/;
                              proxy_ignore_headers X-Accel-Redirect; }
        location = /missing { return 200 'page $upstream_status'; }
        location /inside/ { internal; return 200 'inside $uri $args'; }
        location @inside { return 200 'named $uri $upstream_http_x_accel_redirect'; }",
    );
    for path in [
        "/heads/",
        "/status/",
        "/gone/",
        "/none/",
        "/file/t.txt",
        "/accel/",
        "/accel_named/",
        "/accel_out/",
        "/a/moved/",
        "/a/away/",
        "/a/off/",
        "/a/cookie/",
        "/a/page/",
        "/a/nopage/",
        "/a/ignore/",
    ] {
        case = case.get(path).ask(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    case.file("html/t.txt", "a text").run();
}

#[test]
fn servers_that_are_not_there() {
    case(
        "location / { proxy_pass http://127.0.0.1:1; }
        location /group/ { proxy_pass http://group; add_header X-Up $upstream_status always; }
        location /page { proxy_pass http://127.0.0.1:1; error_page 502 =200 /fallback; }
        location = /fallback { return 200 'fallback $upstream_status'; }
        location /scheme { proxy_pass ftp$arg_x://a; }
        location /port { proxy_pass http://127.0.0.1:$arg_x; }
        } upstream group { server 127.0.0.1:1; server 127.0.0.1:%%PORT2%%; } server { listen %%PORT3%%;",
    )
    .get("/")
    .get("/group/a")
    .get("/group/b")
    .get("/page")
    .get("/scheme")
    .get("/port?x=y")
    .run();
}
