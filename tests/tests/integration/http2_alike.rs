//! The same requests over HTTP/1 and HTTP/2: answers, what is logged, what servers behind are asked, what
//! code in Lua did in each phase, and limits are the same.

use clearway_h2::frame::{Rest, flag, kind};
use clearway_h2::settings::Settings;
use clearway_testkit::client::{Connection, PATIENCE};
use clearway_testkit::http2::{Frames, Http2};
use clearway_testkit::response::Answer as HowAnswered;
use clearway_testkit::{Server, Setup, expect_soon, wait_until};

use crate::deployed;

/// What is asked both ways: phases, subrequests, SSI, limits, bodies, errors, servers behind.
const BOTH_WAYS: &str = "
    limit_req_zone $arg_key$http_x_way zone=rate:1m rate=1r/m;
    limit_conn_zone $arg_key zone=open:1m;
    log_format told '$http_x_way $http_x_nth $request_method $request_uri $status $upstream_status \
                     $sent_http_content_type $sent_http_location $request_completion $uri $remote_user';
    access_log logs/told.log told;
    server {
        listen 127.0.0.1:%%PORT%%;
        http2 on;
        root %%PREFIX%%/site;
        client_body_buffer_size 64k;
        error_page 404 /missing.html;
        location /return { return 200 '$request_method $uri $args $http_x_a $cookie_c'; }
        location /rewrite { rewrite ^/rewrite(.*)$ /return$1?more; }
        location /last { rewrite ^ /away permanent; }
        location /if { if ($arg_a = b) { return 203 $arg_a; } return 200 $arg_a; }
        location /private { auth_basic closed; auth_basic_user_file %%PREFIX%%/users; }
        location /denied { deny all; }
        location /auth { auth_request /allowed; auth_request_set $by $upstream_http_x_by; echo \"by $by\"; }
        location = /allowed { proxy_pass http://behind/allowed; proxy_pass_request_body off;
                              proxy_set_header Content-Length ''; internal; }
        location /refused { auth_request /forbidden; echo never; }
        location = /forbidden { return 403; }
        location /unsure { auth_request /unauthorized; error_page 401 = @login; echo never; }
        location = /unauthorized { return 401; }
        location @login { return 302 /login?$uri; }
        location /ssi { ssi on; }
        location /body { echo_read_request_body; echo_request_body; }
        location /small { client_max_body_size 4; echo_read_request_body; echo_request_body; }
        location /rate { limit_req zone=rate; return 200 slow; }
        location /open { limit_conn open 1; return 200 open; }
        location /try { try_files /none $uri.html /return?tried; }
        location /named { try_files /none @named; }
        location @named { return 202 named; }
        location /sub { sub_filter_types text/plain; sub_filter hello goodbye; alias %%PREFIX%%/site/file; }
        location /around { add_before_body /return/before; add_after_body /file; addition_types *;
                           alias %%PREFIX%%/site/file; }
        location /zipped { gzip on; gzip_types *; gzip_min_length 1; alias %%PREFIX%%/site/file; }
        location /parts { echo_location /return/a 'b=c'; echo between; echo_location_async /file; }
        location /pages { error_page 403 =203 /file; deny all; }
        location /named_page { error_page 410 @gone; return 410; }
        location @gone { return 404 gone; }
        location /slowly { limit_rate 20; alias %%PREFIX%%/site/file; }
        location /satisfied {
            satisfy any;
            deny all;
            auth_basic closed;
            auth_basic_user_file %%PREFIX%%/users;
        }
        location /host { if ($host != other) { return 421; } return 200 $host; }
        location /moved { return 301 /elsewhere; }
        location /early { add_header Link '</a.css>; rel=preload'; return 200 early; }
        location /internal { internal; return 200 never; }
        location /proxied/ { proxy_pass http://behind/; }
        location /unbuffered/ { proxy_buffering off; proxy_request_buffering off; proxy_pass http://behind/; }
        location /accelerated { proxy_pass http://behind/accelerate; }
        location /files/ { internal; alias %%PREFIX%%/site/; }
        location /caught { proxy_intercept_errors on; error_page 410 /file; proxy_pass http://behind/gone; }
        location /nobody { proxy_pass http://127.0.0.1:1; error_page 502 = @named; }
        location /sliced { slice 4; proxy_set_header Range $slice_range; proxy_pass http://behind/data; }
        location /mirrored { mirror /copy; proxy_pass http://behind/echo; }
        location /bare { mirror /copy; mirror_request_body off; proxy_pass http://behind/echo; }
        location = /copy { internal; proxy_pass http://behind/copied; }
    }
    upstream behind { server 127.0.0.1:%%PORT:behind%%; keepalive 4; }
    log_format asked '$http_x_way $http_x_nth $request_method $request_uri $http_content_length $http_range';
    server {
        listen 127.0.0.1:%%PORT:behind%%;
        access_log logs/asked.log asked;
        root %%PREFIX%%/site;
        location / { echo_read_request_body; echo -n \"$request_method $uri \"; echo_request_body; }
        location /allowed { add_header X-By me; return 204; }
        location /accelerate { add_header X-Accel-Redirect /files/file; add_header X-A b; return 200 never; }
        location /gone { return 410 gone; }
        location /data { }
        location /copied { return 204; }
    }";

/// Method, path, more lines and a body.
type Question = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

const QUESTIONS: &[Question] = &[
    ("GET", "/return/a?b=c", &[("x-a", "d"), ("cookie", "c=1; e=2")], ""),
    ("GET", "/rewrite/x?y", &[], ""),
    ("GET", "/last", &[], ""),
    ("GET", "/if?a=b", &[], ""),
    ("GET", "/if?a=c", &[], ""),
    ("GET", "/private/", &[], ""),
    ("GET", "/private/file", &[("authorization", "Basic YTpi")], ""),
    ("GET", "/denied/", &[], ""),
    ("GET", "/auth/", &[], ""),
    ("POST", "/auth/", &[], "a body"),
    ("GET", "/refused", &[], ""),
    ("GET", "/unsure/a", &[], ""),
    ("GET", "/ssi/page.html", &[], ""),
    ("HEAD", "/ssi/page.html", &[], ""),
    ("GET", "/ssi/nested.html?a=b", &[], ""),
    ("GET", "/ssi/broken.html", &[], ""),
    ("GET", "/none", &[], ""),
    ("GET", "/file", &[], ""),
    ("GET", "/file", &[("range", "bytes=1-2")], ""),
    ("GET", "/file", &[("range", "bytes=-2")], ""),
    ("GET", "/file", &[("range", "bytes=1-2"), ("if-range", "\"x\"")], ""),
    ("GET", "/file", &[("if-none-match", "*")], ""),
    ("POST", "/file", &[], "x"),
    ("POST", "/body/", &[], "a body"),
    ("POST", "/small/", &[], "a body"),
    ("GET", "/rate?key=a", &[], ""),
    ("GET", "/rate?key=a", &[], ""),
    ("GET", "/open/?key=a", &[], ""),
    ("GET", "/try", &[], ""),
    ("GET", "/named", &[], ""),
    ("GET", "/sub", &[], ""),
    ("GET", "/around", &[], ""),
    ("GET", "/zipped", &[("accept-encoding", "gzip")], ""),
    ("GET", "/parts", &[], ""),
    ("GET", "/pages", &[], ""),
    ("GET", "/named_page", &[], ""),
    ("GET", "/slowly", &[], ""),
    ("GET", "/satisfied", &[], ""),
    ("GET", "/satisfied", &[("authorization", "Basic YTpi")], ""),
    ("GET", "/host", &[], ""),
    ("HEAD", "/file", &[], ""),
    ("PUT", "/file", &[], "x"),
    ("GET", "/file", &[("if-match", "\"x\"")], ""),
    ("GET", "/file", &[("if-modified-since", "Sun, 09 Sep 2040 01:46:40 GMT")], ""),
    ("GET", "/file", &[("range", "bytes=9-")], ""),
    ("GET", "/moved", &[], ""),
    ("GET", "/early", &[], ""),
    ("GET", "/internal", &[], ""),
    ("GET", "/proxied/a", &[], ""),
    ("POST", "/proxied/a", &[], "a body"),
    ("POST", "/unbuffered/a", &[], "a body"),
    ("GET", "/proxied/gone", &[], ""),
    ("GET", "/accelerated", &[], ""),
    ("GET", "/accelerated", &[("range", "bytes=1-2")], ""),
    ("POST", "/accelerated", &[], "a body"),
    ("GET", "/caught", &[], ""),
    ("GET", "/nobody", &[], ""),
    ("GET", "/sliced", &[], ""),
    ("GET", "/sliced", &[("range", "bytes=3-8")], ""),
    ("HEAD", "/sliced", &[], ""),
    ("POST", "/mirrored", &[], "a body"),
    ("POST", "/bare", &[], "a body"),
];

/// What servers behind are asked for besides what the questions say: each counts once for each way.
const COPIES: usize = 2;

/// Headers that say the same whatever carries them.
fn told<'l>(lines: impl Iterator<Item = &'l str>) -> Vec<String> {
    let names = [
        "content-type",
        "content-length",
        "content-encoding",
        "content-range",
        "location",
        "etag",
        "link",
        "www-authenticate",
        "x-a",
        "vary",
    ];
    let mut told: Vec<String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .filter(|(name, _)| names.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    told.sort();
    told
}

fn open(server: &Server) -> Http2 {
    Http2::open(&server.address(), Settings { window_bytes: Some(1 << 20), ..Settings::default() })
}

/// Asks each question both ways, and compares the answers. Which way and which question it is says
/// a line of the request.
fn ask_both_ways(server: &Server, questions: &[Question]) {
    let mut client = open(server);
    for (nth, question) in questions.iter().enumerate() {
        let (method, path, ..) = *question;
        let first = ask_http1(server, nth, question);
        let second = ask_http2(&mut client, nth, question);
        assert_eq!(first, second, "{method} {path} over HTTP/1 (left) and HTTP/2");
    }
}

/// Status, headers, body.
type Told = (String, Vec<String>, String);

fn ask_http1(server: &Server, nth: usize, (method, path, more, body): &Question) -> Told {
    let lines: String = more.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: www.example.com\r\nX-Way: 1\r\nX-Nth: {nth}\r\n{lines}{length}\r\n\
         {body}"
    );
    let asked = if *method == "HEAD" { HowAnswered::HeadOnly } else { HowAnswered::Whole };
    let mut connection = server.connect();
    connection.send(text.as_bytes());
    let answer = connection.try_response(asked).expect("an answer");
    let lines: Vec<String> = answer.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    (answer.status.to_string(), told(lines.iter().map(String::as_str)), answer.text())
}

fn ask_http2(client: &mut Http2, nth: usize, (method, path, more, body): &Question) -> Told {
    let stream = 2 * u32::try_from(nth).expect("few") + 1;
    let number = nth.to_string();
    let fields = [more, &[("x-way", "2"), ("x-nth", &number)][..]].concat();
    let answer = client.ask(stream, (method, path), &fields, body);
    let lines = answer.heads[0].iter().map(String::as_str);
    (answer.status().to_owned(), told(lines), answer.text())
}

/// The lines of a log that belong to one way, without its number, in the order of questions.
fn of_way(lines: &str, way: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        lines.lines().filter_map(|line| line.strip_prefix(way)).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Waits until at least `count` lines of each way are in a log and say the same.
fn compare_log(server: &Server, path: &str, count: usize) {
    let both = || ["1 ", "2 "].map(|way| of_way(&server.lines(path), way));
    let are_alike = wait_until(PATIENCE, || {
        let [first, second] = both();
        first.len() >= count && first == second
    });
    let [first, second] = both();
    assert!(are_alike, "{path}: {} of {count} lines\n{first:#?}\n{second:#?}", first.len());
}

fn setup() -> Setup {
    deployed("events { }", BOTH_WAYS)
        .file("site/file", "hello")
        .file("site/data", "0123456789")
        .file("site/missing.html", "missing")
        .file("site/ssi/page.html", "<!--#include virtual=\"/return/part\" --> <!--#echo var=\"uri\" -->")
        .file(
            "site/ssi/nested.html",
            "<!--#set var=\"v\" value=\"w\" --><!--#if expr=\"$arg_a = b\" -->\
             <!--#include virtual=\"/ssi/page.html?$v\" --><!--#else -->no<!--#endif -->\
             <!--#include virtual=\"/proxied/part\" wait=\"yes\" --><!--#include file=\"page.html\" -->",
        )
        .file(
            "site/ssi/broken.html",
            "<!--#block name=\"b\" -->stub<!--#endblock -->\
             <!--#include virtual=\"/nothing\" stub=\"b\" --><!--#unknown -->",
        )
        .file("users", "a:{PLAIN}b\n")
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "modules that are not nginx's own")]
fn both_protocols_are_answered_alike() {
    let server = setup().start();
    ask_both_ways(&server, QUESTIONS);
    compare_log(&server, "logs/told.log", QUESTIONS.len());
    ask_both_ways(&server, &[("GET", "/%2e%2e/%00", &[], "")]);
    let proxied = |question: &&Question| {
        ["/proxied/", "/unbuffered/", "/accelerated", "/caught", "/mirrored", "/bare"]
            .iter()
            .any(|path| question.1.starts_with(path))
    };
    compare_log(&server, "logs/asked.log", QUESTIONS.iter().filter(proxied).count() + COPIES);
}

/// A request with a body that is not there yet, in a location that lets one in at a time.
fn hold_http1(server: &Server) -> Connection {
    let mut connection = server.connect();
    let text = "POST /held?key=a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n";
    connection.send(text.as_bytes());
    connection
}

/// One that is under way is counted whatever carries it and the next one.
#[test]
#[cfg_attr(nginx_under_test, ignore = "modules that are not nginx's own")]
fn both_protocols_share_limits_of_what_is_under_way() {
    let http = "limit_conn_zone $arg_key zone=open:1m;
        server {
            listen 127.0.0.1:%%PORT%%;
            http2 on;
            # Room for one that is asked beside it.
            location /held { limit_conn open 3; echo_read_request_body; echo_request_body; }
            location /asked { limit_conn open 1; limit_conn_status 429; echo_read_request_body;
                              echo_request_body; }
        }";
    let server = deployed("events { }", http).start();
    let is_refused = |path: &str| {
        let first = server.get(path).status;
        let mut client = open(&server);
        client.get(1, path);
        let second = client.answer(1).status().to_owned();
        first == 429 && second == "429"
    };
    let mut first = hold_http1(&server);
    expect_soon("what HTTP/1 holds is counted", || is_refused("/asked?key=a"));
    assert!(!is_refused("/asked?key=b"), "it has another key");
    first.send(b"text");
    assert_eq!(first.response().text(), "text");

    let mut client = open(&server);
    let begun =
        |stream: u32, path| Frames::request(stream, "POST", path, &[("content-length", "4")], Rest::Open);
    client.send(&begun(1, "/held?key=c"));
    expect_soon("what HTTP/2 holds is counted", || is_refused("/asked?key=c"));
    client.send(&begun(3, "/asked?key=c"));
    assert_eq!(client.answer(3).status(), "429", "of the same connection");
    client.say(kind::DATA, flag::END_STREAM, 1, b"text");
    assert_eq!(client.answer(1).text(), "text");
    expect_soon("none is held any more", || server.get("/asked?key=c").status == 200);
}

/// Code in each phase that requests have. What log phases see is counted, as nobody is told.
const LUA: &str = "
    lua_shared_dict logged 1m;
    lua_package_path '%%PREFIX%%/?.lua;;';
    log_format told '$http_x_way $http_x_nth $request_method $status $logged $sent_http_content_type';
    access_log logs/told.log told;
    init_by_lua_block { function both(text) return text .. text end }
    server {
        listen 127.0.0.1:%%PORT%%;
        http2 on;
        root %%PREFIX%%/site;
        set $logged '';
        server_rewrite_by_lua_block { ngx.ctx.n = 'first' }
        log_by_lua_block {
            ngx.var.logged = ngx.status .. (ngx.ctx.n or '-')
            ngx.shared.logged:incr('way' .. (ngx.var.http_x_way or '0'), 1, 0)
        }
        location /return { return 200 '$request_method $uri $args $http_x_a'; }
        location /lua {
            set_by_lua_block $set { return both(ngx.var.request_method) }
            rewrite_by_lua_block { ngx.req.set_header('X-A', 'rewritten'); ngx.ctx.n = 1 }
            access_by_lua_block {
                if ngx.var.arg_key == 'no' then ngx.exit(403) end
                ngx.ctx.n = ngx.ctx.n + 1
            }
            content_by_lua_block {
                ngx.req.read_body()
                local part = ngx.location.capture('/return/part', { args = 'a=b' })
                local head = ngx.req.get_headers()
                ngx.print(ngx.ctx.n, ' ', head['x-a'], ' ', ngx.req.get_body_data(), ' ')
                ngx.print(part.status, part.body)
                ngx.flush(true)
                ngx.sleep(0.01)
                ngx.print(' ', ngx.var.set)
            }
            header_filter_by_lua_block { ngx.header['Link'] = ngx.status .. ngx.req.get_method() }
            body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() }
        }
        location /exec { rewrite_by_lua_block { ngx.exec('/return', 'from=lua') } }
        location /exec_named { content_by_lua_block { ngx.exec('@named') } }
        location @named { content_by_lua_block { ngx.say('named ', ngx.var.uri) } }
        location /away { access_by_lua_block { ngx.redirect('/elsewhere', 302) } }
        location /broken { content_by_lua_block { error('on purpose') } }
        location /broken_late { content_by_lua_block { ngx.exit(503) } error_page 503 /return/late; }
        location /uri {
            rewrite_by_lua_block { ngx.req.set_uri_args('c=d'); ngx.req.set_uri('/return/b', true) }
        }
        location /method {
            content_by_lua_block {
                ngx.req.read_body()
                local made = ngx.location.capture_multi {
                    { '/return/one', { method = ngx.HTTP_POST, body = 'text' } },
                    { '/body', { method = ngx.HTTP_PUT, always_forward_body = true } },
                }
                ngx.say(made and 'both')
            }
        }
        location /several {
            content_by_lua_block {
                local one, two = ngx.location.capture_multi {
                    { '/return/one', { method = ngx.HTTP_POST, body = 'text' } },
                    { '/body', { method = ngx.HTTP_PUT, body = 'made' } },
                }
                ngx.say(one.status, one.body, two.status, two.body)
            }
        }
        location /body { echo_read_request_body; echo_request_body; }
        location /captured_file {
            content_by_lua_block {
                local made = ngx.location.capture('/file')
                ngx.print(made.body, made.header['Content-Type'])
            }
        }
        location /set_body {
            rewrite_by_lua_block { ngx.req.read_body(); ngx.req.set_body_data('other text') }
            proxy_pass http://balanced/made;
        }
        location /balanced { proxy_pass http://balanced/seen; }
        location /threads {
            content_by_lua_block {
                local function wait(ms) ngx.sleep(ms / 1000) return ms end
                local a, b = ngx.thread.spawn(wait, 20), ngx.thread.spawn(wait, 1)
                local _, x = ngx.thread.wait(b)
                local _, y = ngx.thread.wait(a)
                ngx.say(x, ' ', y)
            }
        }
        location /socket {
            content_by_lua_block {
                local sock = ngx.socket.tcp()
                assert(sock:connect('127.0.0.1', %%PORT:behind%%))
                assert(sock:send('GET /made HTTP/1.0\\r\\nHost: a\\r\\n\\r\\n'))
                ngx.print((assert(sock:receive('*l'))))
                sock:close()
            }
        }
        location /eof { content_by_lua_block { ngx.say('all'); ngx.eof(); ngx.ctx.n = 'behind' } }
        location /head { content_by_lua_block { ngx.header['X-A'] = { 'b', 'c' }
                                                ngx.header.content_length = 3
                                                ngx.send_headers(); ngx.print('abc') } }
        location /variables { content_by_lua_block { ngx.print(ngx.var.uri, ngx.var.arg_a, ngx.var.http_x_a,
            ngx.req.get_uri_args().a, ngx.req.get_method(), ngx.var.cookie_c, ngx.var.host) } }
        location /form { content_by_lua_block { ngx.req.read_body(); ngx.print(ngx.req.get_post_args().a) } }
        location /in_ssi { ssi on; ssi_types *; }
        location /part {
            content_by_lua_block { ngx.print('part of ', ngx.is_subrequest and 'a whole' or 'none') }
        }
        location /asked { auth_request /may; return 200 yes; }
        location /may { content_by_lua_block { ngx.exit(ngx.var.arg_key == 'no' and 401 or 204) } }
        location /early { precontent_by_lua_block { ngx.ctx.n = 'early' } return 200 early; }
        location /filtered { body_filter_by_lua_block { ngx.arg[1] = both(ngx.arg[1]) }
                             header_filter_by_lua_block { ngx.header.content_length = nil }
                             alias %%PREFIX%%/site/file; }
    }
    upstream balanced {
        server 0.0.0.1;
        balancer_by_lua_block {
            ngx.ctx.n = 'balanced'
            assert(require('ngx.balancer').set_current_peer('127.0.0.1', %%PORT:behind%%))
        }
    }
    server {
        listen 127.0.0.1:%%PORT:behind%%;
        access_log off;
        location / { echo_read_request_body; echo -n \"$request_method $uri \"; echo_request_body; }
    }
    server {
        listen 127.0.0.1:%%PORT:told%%;
        access_log off;
        location / {
            content_by_lua_block { ngx.print(ngx.shared.logged:get('way' .. ngx.var.arg_way) or 0) }
        }
    }";

const LUA_QUESTIONS: &[Question] = &[
    ("GET", "/lua?key=yes", &[("x-a", "b")], ""),
    ("POST", "/lua", &[], "a body"),
    ("HEAD", "/lua", &[], ""),
    ("GET", "/lua?key=no", &[], ""),
    ("GET", "/exec", &[], ""),
    ("GET", "/exec_named/a", &[], ""),
    ("GET", "/away", &[], ""),
    ("GET", "/broken", &[], ""),
    ("GET", "/broken_late", &[], ""),
    ("GET", "/uri?a=b", &[], ""),
    ("POST", "/method", &[], "a body"),
    ("GET", "/several", &[], ""),
    ("GET", "/captured_file", &[], ""),
    ("POST", "/set_body", &[], "a body"),
    ("GET", "/balanced", &[], ""),
    ("POST", "/balanced", &[], "a body"),
    ("GET", "/threads", &[], ""),
    ("GET", "/socket", &[], ""),
    ("GET", "/eof", &[], ""),
    ("GET", "/head", &[], ""),
    ("HEAD", "/head", &[], ""),
    ("GET", "/variables?a=b", &[("x-a", "c"), ("cookie", "c=d")], ""),
    ("POST", "/form", &[("content-type", "application/x-www-form-urlencoded")], "a=b+c"),
    ("GET", "/in_ssi/page.html", &[], ""),
    ("GET", "/asked", &[], ""),
    ("GET", "/asked?key=no", &[], ""),
    ("GET", "/filtered", &[], ""),
    ("GET", "/filtered", &[("range", "bytes=1-2")], ""),
    ("GET", "/early", &[], ""),
    ("GET", "/none", &[], ""),
];

#[test]
#[cfg_attr(nginx_under_test, ignore = "modules that are not nginx's own")]
fn code_in_each_phase_does_the_same_for_both_protocols() {
    let server = deployed("events { }", LUA)
        .file("site/file", "hello")
        .file(
            "site/in_ssi/page.html",
            "<!--#include virtual=\"/part\" --> <!--#include virtual=\"/file\" -->",
        )
        .start();
    ask_both_ways(&server, LUA_QUESTIONS);
    compare_log(&server, "logs/told.log", LUA_QUESTIONS.len());
    for way in ["1", "2"] {
        let address = server.address_of("127.0.0.1:%%PORT:told%%");
        let mut connection = Connection::open(&address).expect("the server listens");
        let count = connection.ask(&format!("GET /?way={way} HTTP/1.1\r\nHost: a\r\n\r\n")).text();
        assert_eq!(count, LUA_QUESTIONS.len().to_string(), "logged of way {way}");
    }
}
