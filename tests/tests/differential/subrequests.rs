//! Subrequests and the modules that make them: `auth_request`, `addition`, `mirror`.

use clearway_testkit::{Case, Exchange};

const POST: &str = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd";

#[test]
fn authorization_is_asked_for() {
    let config = "auth_request_set $who $sent_http_x_who;
        server { listen %%PORT%%; error_page 404 /404.html;
        location /open { auth_request /yes; }
        location /closed { auth_request /no; }
        location /unauthorized { auth_request /who; }
        location /broken { auth_request /error; }
        location /missing { auth_request /nowhere/; }
        location /moved { auth_request /redirect; }
        location /off { auth_request /no; location /off/off { auth_request off; } }
        location /set { auth_request /named; auth_request_set $who $uri:$status:$sent_http_x_a$arg_a;
                        auth_request_set $args2 $args; add_header X-Who \"$who|$args2\";
                        error_page 403 /403.html; }
        location /unset { add_header X-Who \"<$who>\"; }
        location /set403 { auth_request /no; auth_request_set $who $status; error_page 403 @refused; }
        location @refused { return 200 \"refused $who $uri\"; }
        location /page { auth_request /fallback; }
        location /any { satisfy any; deny all; auth_request $arg_x; }
        location /any1 { satisfy any; deny all; auth_request /yes; }
        location /any2 { satisfy any; deny all; auth_request /who; }
        location /any3 { satisfy any; allow all; auth_request /no; }
        location /all1 { satisfy all; deny all; auth_request /yes; }
        location /body { auth_request /yes; }
        location = /yes { internal; return 204; }
        location = /no { return 403 text; }
        location = /who { add_header WWW-Authenticate 'Basic realm=\"a\"' always; return 401; }
        location = /error { return 500; }
        location = /redirect { return 302 /x; }
        location = /named { set $x 1; return 200 body; }
        location = /fallback { error_page 404 =200 /open/a; try_files /nothing =404; }
        }";
    let mut case = Case::http(config).file("html/404.html", "not here").file("html/403.html", "no");
    for name in ["open", "closed", "unauthorized", "broken", "missing", "moved", "off", "off/off", "set"] {
        case = case.file(&format!("html/{name}/a"), name).get(&format!("/{name}/a?a=b"));
    }
    for name in ["unset", "set403", "page", "any", "any1", "any2", "any3", "all1", "body"] {
        case = case.file(&format!("html/{name}/a"), name).get(&format!("/{name}/a?a=b"));
    }
    case.ask("HEAD /open/a HTTP/1.1\r\nHost: a\r\n\r\n")
        .ask("HEAD /closed/a HTTP/1.1\r\nHost: a\r\n\r\n")
        .exchange(Exchange::new(format!("{POST}{POST}")).answers(2))
        .run();
}

#[test]
fn something_is_added() {
    let config = "default_type text/html; server { listen %%PORT%%; chunked_transfer_encoding on;
        location /both { add_before_body /before; add_after_body /after; }
        location /first { add_before_body /before; }
        location /last { add_after_body /after; }
        location /types { add_after_body /after; addition_types text/plain;
                          location ~ txt$ { default_type text/plain; }
                          location ~ css$ { default_type text/css; } }
        location /any { add_after_body /after; addition_types *; location ~ css$ { default_type text/css; } }
        location /empty { add_before_body /nothing; add_after_body /nothing; }
        location /gone { add_before_body /missing; add_after_body /missing; }
        location /return { add_before_body /before; add_after_body /after; return 200 'text'; }
        location /error { add_before_body /before; return 404; }
        location /inherit { add_before_body /before; location /inherit/a { add_after_body /after; }
                            location /inherit/b { add_before_body ''; } }
        location /cycle { add_before_body /cycle/b; add_after_body /cycle/c; }
        location /large { add_before_body /large; add_after_body /bytes; sendfile on; }
        location /redirected { add_before_body /moved; }
        location /variable { add_before_body /var; add_after_body /var; }
        location = /var { set $count x$count; return 200 \"[$uri $request_uri $count $args]\"; }
        location = /moved { rewrite ^ /after; }
        location = /before { return 200 'before '; }
        location = /after { return 200 ' after'; }
        location = /nothing { return 204; }
        }";
    let large: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let mut case = Case::http(config).file("html/large", large.clone()).file("html/bytes", large);
    for name in ["both", "first", "last", "empty", "gone", "inherit/a", "inherit/b", "inherit/c"] {
        case = case.file(&format!("html/{name}.html"), name).get(&format!("/{name}.html?x=y"));
    }
    for target in ["types/a.txt", "types/a.css", "types/a.html", "any/a.css"] {
        case = case.file(&format!("html/{target}"), target).get(&format!("/{target}"));
    }
    for name in ["redirected", "variable"] {
        case = case.file(&format!("html/{name}/a"), name).get(&format!("/{name}/a?q=1"));
    }
    for target in ["/return", "/error", "/large"] {
        case = case.get(target);
    }
    case.file("html/cycle/a", "a")
        .file("html/cycle/b", "b")
        .file("html/cycle/c", "c")
        .get("/cycle/a")
        .ask("HEAD /both.html HTTP/1.1\r\nHost: a\r\n\r\n")
        .ask("GET /both.html HTTP/1.1\r\nHost: a\r\nRange: bytes=2-3\r\n\r\n")
        .ask("GET /both.html HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n")
        .exchange(
            Exchange::new("GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET /return HTTP/1.1\r\nHost: a\r\n\r\n")
                .answers(2),
        )
        .run();
}

#[test]
fn requests_are_mirrored() {
    let config = "log_format main '$request_method $uri $args $status $request_body';
        server { listen %%PORT%%; access_log logs/access.log main;
        location / { mirror /mirror; log_subrequest on; }
        location = /two { mirror /mirror; mirror /other; log_subrequest on; return 200 two; }
        location = /off { mirror off; return 200 off; }
        location = /body { client_max_body_size 10; mirror /mirror; return 200 body; }
        location = /nobody { mirror /mirror; mirror_request_body off; return 200 nobody; }
        location = /mirror { log_subrequest on; return 200 dropped; }
        location = /other { log_subrequest on; try_files /none =404; }
        location = /quiet { mirror /silent; return 200 quiet; }
        location = /silent { return 200 silent; }
        }";
    Case::http(config)
        .file("html/a", "a")
        .get("/a?x=y")
        .get("/none")
        .get("/two?x=y")
        .get("/off")
        .get("/quiet")
        .ask("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")
        .exchange(Exchange::new(format!("{POST}{POST}")).answers(2))
        .ask("POST /nobody HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd")
        .ask("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n")
        .ask("POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        .with_access_log()
        .run();
}
