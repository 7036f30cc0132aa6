//! What lines of access logs say: formats, escapes, conditions.

use clearway_testkit::differential::both_refuse;
use clearway_testkit::{Case, Exchange};

/// What both must say alike; sizes of error pages are not among it, they have the product's name in them.
const FORMATS: &str = r#"
    default_type text/plain;
    log_format request '$uri|$remote_addr|$remote_user|$request|$status|$http_referer|$http_x_y|$arg_a'
                       '|$cookie_c|$content_length|$content_type|$request_length|$request_method|$args'
                       '|$is_args|$query_string|$scheme|$https|$server_name|$server_protocol|$host|$pipe'
                       '|$connection_requests|$binary_remote_addr|$document_uri|$request_uri|$http_cookie';
    log_format answer '${uri}|$status|$sent_http_content_type|$sent_http_location|$sent_http_etag'
                      "|$sent_http_last_modified|$sent_http_connection|$sent_http_keep_alive"
                      |$sent_http_transfer_encoding|$sent_http_server|$sent_http_nothing|$request_completion;
    log_format json escape=json '{"uri":"$uri","a":"$arg_a","agent":"$http_user_agent","none":"$http_none"}';
    log_format plain escape=none '$uri $arg_a $http_user_agent $http_none.';
    log_format explicit escape=default '$uri $arg_a $http_none $body_bytes_sent';
    server { listen %%PORT%%; server_name main.test;
        access_log logs/access.log request;
        access_log logs/access.log answer;
        location /text { return 200 "text"; }
        location /moved { return 301 /there; }
        location /found { return 302 http://other.test/; }
        location /empty { return 204; }
        location /close { return 444; }
        location /off { access_log off; return 200 x; }
        location /escape {
            access_log logs/access.log json;
            access_log logs/access.log plain;
            access_log logs/access.log explicit;
            return 200 "text";
        }
        location /if {
            access_log logs/access.log explicit if=$arg_l;
            access_log logs/access.log COMBINED if=$arg_l$arg_m;
            access_log logs/access.log plain if=0;
            return 200 "text";
        }
    }
"#;

fn case() -> Case {
    Case::http(FORMATS).file("html/file.html", "a file\n").with_access_log()
}

#[test]
fn requests_and_answers() {
    let close = "Connection: close\r\n";
    case()
        .ask(
            b"GET /text?a=1&b HTTP/1.1\r\nHost: H.test:81\r\nUser-Agent: a\"b\\c\x01\xff\r\n\
              Referer: http://r/\r\nX-Y: 1\r\nCookie: a=b; c=d; e\r\nCookie: c=z\r\nConnection: close\r\n\r\n"
                .to_vec(),
        )
        .ask(format!("GET /text? HTTP/1.1\r\nHost: h\r\n{close}\r\n"))
        .exchange(
            Exchange::new(format!(
                "GET /text HTTP/1.1\r\nHost: h\r\n\r\nGET /empty HTTP/1.1\r\nHost: h\r\n{close}\r\n"
            ))
            .answers(2),
        )
        .ask("HEAD /text HTTP/1.0\r\n\r\n")
        .ask(format!("GET /moved HTTP/1.1\r\nHost: h\r\n{close}\r\n"))
        .ask(format!("GET /found HTTP/1.1\r\nHost: h\r\n{close}\r\n"))
        .ask(format!(
            "POST /text HTTP/1.1\r\nHost: h\r\nContent-Type: t/x\r\nContent-Length: 5\r\n{close}\r\nhello"
        ))
        .ask(format!("GET /missing HTTP/1.1\r\nHost: h\r\n{close}\r\n"))
        .exchange(Exchange::new(format!("GET /close HTTP/1.1\r\nHost: h\r\n{close}\r\n")).answers(0))
        .ask(format!("GET /off HTTP/1.1\r\nHost: h\r\n{close}\r\n"))
        .exchange(Exchange::new("bad\r\n\r\n").until_end())
        .ask("GET / HTTP/1.1\r\nHost: a b\r\n\r\n")
        .exchange(Exchange::new("GET /text\r\n").until_end())
        .run();
}

/// Arguments that are not there are `-`, those that became empty on the way are nothing.
#[test]
fn arguments_that_are_empty() {
    let targets = ["", "?", "?q"];
    let places = [
        "a", "%61", "/b/../a", "none", "f", "named", "dropped", "kept", "other", "tried", "set", "d/", "once",
    ];
    let case = Case::http(
        r#"
        log_format args '$request_uri|$args|$query_string|$is_args|$uri|$status';
        access_log logs/access.log args;
        server { listen %%PORT%%;
            error_page 404 /a;
            error_page 403 =200 /a?x=1;
            error_page 402 @named;
            location = /a { return 200 a; }
            location /f { return 403; }
            location /named { return 402; }
            location @named { return 200 named; }
            location /dropped { rewrite ^ /a?; }
            location /kept { rewrite ^ /a; }
            location /other { rewrite ^ /a?y=1; }
            location /tried { try_files /nothing /a; }
            location /once { try_files /nothing /a?$args; }
            location /set { set $args ""; return 200 set; }
            location /d/ { index nothing.html file.html; }
        }
        "#,
    )
    .file("html/d/file.html", "a file\n")
    .with_access_log();
    let asks = places
        .iter()
        .flat_map(|place| targets.map(|target| format!("GET /{place}{target} HTTP/1.0\r\n\r\n")));
    asks.fold(case, Case::ask).run();
}

#[test]
fn users_of_basic_authentication() {
    let users =
        ["Basic dXM6cHc=", "basic  dTpw", "Basic dQ==", "Basic OnB3", "Basic !!!!", "Basic", "Bearer dTpw"];
    let ask = |user: &&str| format!("GET /text HTTP/1.0\r\nAuthorization: {user}\r\n\r\n");
    users.iter().fold(case(), |case, user| case.ask(ask(user))).run();
}

#[test]
fn escapes() {
    let targets = ["/escape", "/escape%22%5c%01%1f%7f%c3%a4%0a%0d%09%08%0c?a=\"\\", "/escape?a=%22"];
    let agents: [&[u8]; 3] = [b"plain", b"\"\\\t\xc3\xa4\x7f", b""];
    let asks = targets.iter().zip(agents).map(|(target, agent)| {
        [format!("GET {target} HTTP/1.0\r\nUser-Agent: ").as_bytes(), agent, b"\r\n\r\n"].concat()
    });
    asks.fold(case(), Case::ask).run();
}

#[test]
fn conditions() {
    ["/if", "/if?l=", "/if?l=0", "/if?l=00", "/if?l=1", "/if?l=no&m=0", "/if?l=0&m=0", "/if?m=0"]
        .iter()
        .fold(case(), |case, target| case.get(target))
        .run();
}

#[test]
fn refusals() {
    for directives in [
        "log_format combined x;",
        "log_format a x; log_format a y;",
        "log_format a escape=x y;",
        "log_format a '$';",
        "log_format a '${a';",
        "log_format a $1; access_log logs/x a;",
        "access_log logs/x nope;",
        "access_log logs/x combined buffer=0;",
        "access_log logs/x combined flush=1s;",
        "access_log logs/x combined gzip=10;",
        "access_log logs/$host combined gzip;",
        "access_log syslog:server=127.0.0.1 combined buffer=1k;",
        "access_log syslog:server=;",
        "access_log logs/x combined gzip; access_log logs/x combined buffer=32k;",
        "access_log off x;",
        "open_log_file_cache inactive=1s;",
        "open_log_file_cache max=1 x=2;",
        "open_log_file_cache off; open_log_file_cache max=1;",
    ] {
        both_refuse(&format!("error_log stderr; events {{ }} http {{ {directives} }}"));
    }
}

#[test]
fn connections_that_send_nothing_but_empty_lines() {
    let config = "log_format all '[$request] $status $request_length $body_bytes_sent $connection_requests';
        client_header_timeout 300ms;
        server { listen %%PORT%%; access_log logs/access.log all; root %%PREFIX%%/site; }";
    let get = "GET /f HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut case = Case::http(config).file("site/f", "a file");
    for lines in ["\r\n", "\n\n\n", "\r", "", "\r\nG"] {
        case = case
            .exchange(Exchange::new(lines).answers(0).finish_sending())
            .exchange(Exchange::new(lines).answers(0))
            .exchange(Exchange::new(format!("{get}{lines}")).finish_sending().until_end());
    }
    case.exchange(Exchange::new(format!("\r\n{get}\r\n\r\n{get}")).answers(2)).with_access_log().run();
}

#[test]
fn the_length_of_a_body_in_chunks() {
    let config = "log_format all '$uri $content_length $request_length';
        server { listen %%PORT%%; access_log logs/access.log all; root %%PREFIX%%/site;
        add_header X-Length \"$content_length $request_length\" always;
        location /set { set $before \"$content_length\"; return 200 \"<$before> $content_length\"; }
        location /mirrored { mirror /set; }
        location /limited { client_max_body_size 4; mirror /set; }
        location /ssi { ssi on; }
        location /error { error_page 404 /set; return 404; }
        }";
    let mut case = Case::http(config)
        .file("site/f", "a file")
        .file("site/mirrored/f", "mirrored")
        .file("site/limited/f", "limited")
        .file("site/ssi/f.html", "<!--#include virtual=\"/set\" -->");
    for path in ["/f", "/set", "/mirrored/f", "/limited/f", "/ssi/f.html", "/error", "/none"] {
        for method in ["GET", "POST"] {
            let chunks = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n2;x=y\r\n, \r\n0\r\n\r\n";
            case = case
                .ask(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{chunks}"))
                .ask(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"))
                .ask(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 00\r\n\r\n"));
        }
    }
    case.with_access_log().run();
}
