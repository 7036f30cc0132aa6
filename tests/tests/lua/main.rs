//! Lua in the configuration: what its functions do, its errors, and what blocks in it while others go on.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

mod answers;
mod bad_input;
mod balancer;
mod beside;
mod core;
mod core_calls;
mod core_ctx;
mod errors;
mod faults;
mod handshake;
mod libraries;
mod lifecycle;
mod network;
mod own;
mod plugins;
mod programs;
mod signals;
mod sockets;
mod trickle;
mod worker_threads;

use std::time::{Duration, Instant};

use clearway_testkit::{Binary, Server, Setup};

fn config(http: &str, locations: &str) -> String {
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\n\
         error_log logs/error.log info;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off;\n{http}\nserver {{ listen 127.0.0.1:%%PORT%%;\n\
         location = /cheap {{ return 200 cheap; }}\n{locations}\n }} }}\n"
    )
}

fn server(http: &str, locations: &str) -> Server {
    Setup::new(Binary::under_test(), &config(http, locations))
        .file("site/f", "file\n")
        .file("code.lua", CODE_FILE)
        .file("filter.lua", "ngx.status = 202")
        .file("set.lua", "return ngx.arg[1] .. '-' .. ngx.arg[2]")
        .start()
}

const CODE_FILE: &str = "ngx.print('from a file: ', ngx.var.arg_x)";

/// The status and the body.
fn ask(server: &Server, path: &str) -> (u16, String) {
    let mut connection = server.connect();
    let response = connection.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    (response.status, String::from_utf8_lossy(&response.body).into_owned())
}

fn check(server: &Server, cases: &[(&str, u16, &str)]) {
    for (path, status, body) in cases {
        let (got, text) = ask(server, path);
        assert_eq!(got, *status, "{path}: {text}");
        assert!(body.is_empty() || text == *body, "{path}: {text:?}");
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_runs_in_each_phase() {
    let server = server(
        "init_by_lua_block { greeting = 'hi' } init_worker_by_lua_block { id = ngx.worker.id() }",
        "location = /init {
             content_by_lua_block { ngx.print(greeting, ' ', id == ngx.worker.id(), ' ', ngx.get_phase()) }
         }
         location = /ctx {
             rewrite_by_lua_block { ngx.ctx.n = 1 }
             access_by_lua_block { ngx.ctx.n = ngx.ctx.n + 1 }
             precontent_by_lua_block { ngx.ctx.n = ngx.ctx.n + 1 }
             content_by_lua_block { ngx.print(ngx.ctx.n) }
         }
         location = /filters {
             header_filter_by_lua_block { ngx.header['X-A'] = 'a' }
             body_filter_by_lua_block { ngx.arg[1] = string.upper(ngx.arg[1]) }
             content_by_lua_block { ngx.print('abc') ngx.print('def') }
         }
         location = /static {
             body_filter_by_lua_block { ngx.arg[1] = string.rep(ngx.arg[1], 1) }
             return 200 s;
         }
         location = /quoted { content_by_lua 'ngx.print(\"q\")'; }
         location = /file { content_by_lua_file code.lua; }
         location = /filter_file { header_filter_by_lua_file filter.lua; return 200 f; }
         location = /jump { rewrite_by_lua_block { ngx.req.set_uri('/init', true) } }
         location = /exec { content_by_lua_block { ngx.exec('/cheap') } }
         location = /denied { access_by_lua_block { ngx.exit(403) } return 200 no; }
         location = /redirect { content_by_lua_block { ngx.redirect('/cheap') } }",
    );
    check(
        &server,
        &[
            ("/init", 200, "hi true content"),
            ("/ctx", 200, "3"),
            ("/filters", 200, "ABCDEF"),
            ("/static", 200, "s"),
            ("/quoted", 200, "q"),
            ("/file?x=7", 200, "from a file: 7"),
            ("/filter_file", 202, "f"),
            ("/jump", 200, "hi true content"),
            ("/exec", 200, "cheap"),
            ("/redirect", 302, ""),
        ],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn functions_do_what_openresty_documents() {
    let server = server(
        "lua_shared_dict counts 1m; lua_regex_match_limit 100000;",
        "location = /shared { content_by_lua_block {
             ngx.shared.counts:set('a', 1) ngx.print(ngx.shared.counts:incr('a', 1)) } }
         location = /regex { content_by_lua_block { ngx.print((ngx.re.gsub('a1', '[a-z]', 'x-', 'jo'))) } }
         location = /values { content_by_lua_block { ngx.say(1, nil, true, {'a', {2.5}}, ngx.null) } }
         location = /header { content_by_lua_block {
             ngx.header.x_a = {'1', '2'} ngx.print(ngx.header['X-A'][2], ngx.req.get_headers().host) } }
         location = /args { content_by_lua_block {
             local args = ngx.req.get_uri_args() ngx.print(args.a[2], args.b, args['c d']) } }
         location = /var {
             set $v 1;
             content_by_lua_block { ngx.var.v = 'w' ngx.print(ngx.var.v, ngx.var.uri) }
         }
         location = /sleep { content_by_lua_block {
             local thread = coroutine.wrap(function()
                 ngx.sleep(0.01) coroutine.yield(1) ngx.sleep(0) return 2
             end)
             ngx.print(thread(), thread()) } }
         location = /status { content_by_lua_block { ngx.status = 202 ngx.print('x') } }",
    );
    check(
        &server,
        &[
            ("/shared", 200, "2"),
            ("/regex", 200, "x-1"),
            ("/values", 200, "1niltruea2.5null\n"),
            ("/header", 200, "2a"),
            ("/args?a=1&a=2&b&c+d=%41", 200, "2trueA"),
            ("/var", 200, "w/var"),
            ("/sleep", 200, "12"),
            ("/status", 202, "x"),
        ],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn errors_end_their_request_and_nothing_else() {
    let server = server(
        "lua_max_memory 8m;",
        "location = /raise { content_by_lua_block { error('on purpose') } }
         location = /syntax { content_by_lua_block { local = 1 } }
         location = /deep { content_by_lua_block { local function f() return 1 + f() end f() } }
         location = /large { content_by_lua_block { local t = {} for i = 1, 1e9 do t[i] = 'x' .. i end } }
         location = /wrong { header_filter_by_lua_block { ngx.say('x') } return 200 x; }
         location = /fine { content_by_lua_block { ngx.print('fine') } }",
    );
    for path in ["/raise", "/syntax", "/deep", "/large"] {
        assert_eq!(ask(&server, path).0, 500, "{path}");
        check(&server, &[("/fine", 200, "fine")]);
    }
    for line in [
        "lua entry thread aborted: runtime error: content_by_lua(nginx.conf:",
        "on purpose",
        "failed to load inlined Lua code: content_by_lua(nginx.conf:",
        "coroutine 0:",
        "stack overflow",
        "lua entry thread aborted: memory allocation error: not enough memory",
    ] {
        server.wait_log("logs/error.log", line);
    }
}

/// What spins holds its VM, and neither its loop nor the next request of Lua.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn others_go_on_beside_code_that_spins() {
    // Where all polls are lent all locations are suspects, which share one reserve.
    let server = server(
        if cfg!(chaos_lend) { "lua_reserve_vms 2;" } else { "" },
        "location = /spin { content_by_lua_block {
             local began = os.clock() while os.clock() - began < 1 do end ngx.print('spun') } }
         location = /fine { content_by_lua_block { ngx.print('fine') } }",
    );
    check(&server, &[("/fine", 200, "fine")]);
    let mut spinning = server.connect();
    spinning.send(b"GET /spin HTTP/1.1\r\nHost: a\r\n\r\n");
    let began = Instant::now();
    for _ in 0..5 {
        check(&server, &[("/cheap", 200, "cheap"), ("/fine", 200, "fine")]);
    }
    let took = began.elapsed();
    assert_eq!(spinning.response().body, b"spun");
    let spun = began.elapsed();
    assert!(took + Duration::from_millis(300) < spun, "{took:?} beside a spin that took {spun:?}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_gives_variables_their_values_in_its_place() {
    let server = server(
        "upstream_list stores store_a store_b;",
        "location = /set {
             set $a 1;
             set_by_lua_block $b { return ngx.var.a + 1 }
             set_by_lua $c 'return ngx.arg[1] * 10' $b;
             set $a $c;
             return 200 $a;
         }
         location = /file { set_by_lua_file $x set.lua $arg_a $arg_b; return 200 $x; }
         location = /if {
             set_by_lua_block $x { return 'yes' }
             if ($x = yes) { set_by_lua_block $y { return 'inside' } return 200 $y; }
             return 200 outside;
         }
         location = /none { set_by_lua_block $x { return nil } return 200 [$x]; }
         location = /phase { set_by_lua_block $x { return ngx.get_phase() } return 200 $x; }
         location = /fails { set_by_lua_block $x { error('on purpose') } return 200 no; }
         location = /waits { set_by_lua_block $x { ngx.sleep(1) } return 200 no; }
         location = /misc {
             set_unescape_uri $a $arg_a;
             set_quote_sql_str $b $a;
             set_escape_uri $c $a;
             set_hashed_upstream $d stores $arg_a;
             return 200 \"$a $b $c $d\";
         }
         location = /ndk { content_by_lua_block {
             ngx.print(ndk.set_var.set_unescape_uri('a%20b'), ndk.set_var.set_escape_uri(' ')) } }",
    );
    check(
        &server,
        &[
            ("/set", 200, "20"),
            ("/file?a=1&b=2", 200, "1-2"),
            ("/if", 200, "inside"),
            ("/none", 200, "[]"),
            ("/phase", 200, "set"),
            ("/fails", 500, ""),
            ("/waits", 500, ""),
            ("/misc?a=it%27s+1", 200, "it's 1 'it\\'s 1' it's%201 store_a"),
            ("/ndk", 200, "a b%20"),
        ],
    );
    server.wait_log("logs/error.log", "failed to run set_by_lua*: set_by_lua(nginx.conf:");
    server.wait_log("logs/error.log", "API disabled in the context of set_by_lua*");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such module")]
fn header_lines_of_requests_are_set_and_removed() {
    let server = server(
        "more_set_input_headers 'X-Always: $arg_a';",
        "location = /set {
             more_set_input_headers -r 'X-There: new' 'X-Not-There: new';
             more_clear_input_headers 'X-Hidden-*' Accept;
             content_by_lua_block {
                 local var = ngx.var
                 ngx.print(var.http_x_always, '|', var.http_x_there, '|', var.http_x_not_there, '|',
                           var.http_x_hidden_1, '|', ngx.req.get_headers().accept)
             }
         }
         location = /type {
             more_set_input_headers -t 'text/plain' 'X-Type: plain';
             content_by_lua_block { ngx.print(ngx.var.http_x_type) }
         }",
    );
    let mut connection = server.connect();
    let mut asked = |path: &str, lines: &str| {
        let response = connection.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        String::from_utf8_lossy(&response.body).into_owned()
    };
    let lines = "X-There: old\r\nX-Hidden-1: x\r\nAccept: y\r\n";
    assert_eq!(asked("/set?a=1", lines), "1|new|nil|nil|nil");
    assert_eq!(asked("/type", "Content-Type: text/plain; charset=utf-8\r\n"), "plain");
    assert_eq!(asked("/type", "Content-Type: text/html\r\n"), "nil");
}

/// What runs for too long is ended, compiled or not, whatever it catches, with its place in the log.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_that_runs_for_too_long_is_ended() {
    let server = server(
        "lua_max_run_time 200ms;",
        "location = /compiled { content_by_lua_block { local i = 0 while true do i = i + 1 end } }
         location = /interpreted { content_by_lua_block {
             jit.off(true, true) local i = 0 while true do i = i + 1 end } }
         location = /caught { content_by_lua_block {
             while true do pcall(function() local i = 0 while true do i = i + 1 end end) end } }
         location = /filter {
             header_filter_by_lua_block { while true do end }
             return 200 x;
         }
         location = /free {
             lua_max_run_time off;
             content_by_lua_block {
                 local began = os.clock() while os.clock() - began < 0.5 do end ngx.print('spun') }
         }
         location = /sleeps { content_by_lua_block { ngx.sleep(0.5) ngx.print('slept') } }
         location = /fine { content_by_lua_block { ngx.print('fine') } }",
    );
    for path in ["/compiled", "/interpreted", "/caught"] {
        let began = Instant::now();
        assert_eq!(ask(&server, path).0, 500, "{path}");
        assert!(began.elapsed() < Duration::from_secs(20), "{path}");
        check(&server, &[("/fine", 200, "fine")]);
    }
    check(&server, &[("/free", 200, "spun"), ("/sleeps", 200, "slept")]);
    server.wait_log("logs/error.log", "has run for too long (lua_max_run_time)");
    server.wait_log("logs/error.log", "stack traceback:");
}

/// A report of what held a loop names the functions of Lua, where they are, and the request.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such reports")]
fn reports_name_what_lua_was_at() {
    let server = server(
        "",
        "location = /spin { content_by_lua_block {
             local function burn(seconds)
                 local began, n = os.clock(), 0
                 while os.clock() - began < seconds do n = n + 1 end
                 return n
             end
             ngx.print(burn(0.6)) } }",
    );
    assert_eq!(ask(&server, "/spin").0, 200);
    let log = server.wait_log("logs/error.log", "[lua] content_by_lua(nginx.conf:");
    assert!(log.contains("location: \"/spin\""), "{log}");
}

/// What users of OpenResty rely on beside what its reference says of a function.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn what_upstreams_own_tests_look_at() {
    let server = server(
        "header_filter_by_lua_block { ngx.ctx.n = (ngx.ctx.n or 0) + 1 }
         body_filter_by_lua_block {
             if ngx.arg[2] then ngx.arg[1] = ngx.arg[1] .. ngx.ctx.n end
         }",
        "location = /kept { return 200 k; }
         location = /encoded { content_by_lua_block {
             ngx.header['X-A: b\\r'] = 'c\\nd' ngx.print(ngx.resp.get_headers()['x-a%3a%20b%0d']) } }
         location = /global { content_by_lua_block { some_global = 1 ngx.print(some_global) } }
         location = /nothing { content_by_lua_block { error() } }
         location = /unsafe { content_by_lua_block { ngx.redirect('/a\\nb') } }
         location = /modules { content_by_lua_block {
             ngx.print(require('ngx') == ngx, require('ndk') == ndk, type(require('resty.core').version)) } }
         location = /body {
             content_by_lua_block {
                 ngx.req.read_body()
                 ngx.req.init_body() ngx.req.append_body('ab') ngx.req.append_body('c') ngx.req.finish_body()
                 ngx.print(ngx.req.get_body_data(), ngx.req.get_body_data(1))
             }
         }
         location = /missing { content_by_lua_file missing.lua; }
         location = /main { content_by_lua_block {
             local function inner() error('deep') end
             inner() } }",
    );
    check(
        &server,
        &[
            ("/kept", 200, "k1"),
            ("/encoded", 200, "c%0Ad1"),
            ("/global", 200, "11"),
            ("/nothing", 500, ""),
            ("/unsafe", 500, ""),
            ("/modules", 200, "truetruestring1"),
            ("/body", 200, "abca1"),
            ("/missing", 404, ""),
            ("/main", 500, ""),
        ],
    );
    for line in [
        "writing a global Lua variable ('some_global') which may lead to race conditions",
        "lua entry thread aborted: runtime error: unknown reason",
        "unsafe byte \"0x0a\" in redirect uri \"/a\\x0Ab\"",
        "failed to load external Lua file \"",
        ": in main chunk",
    ] {
        server.wait_log("logs/error.log", line);
    }
}
