//! What becomes of the answers that code gives in the server's own ways: error pages, heads that filters
//! refuse, subrequests that are logged, bodies that code reads and makes anew.

use std::io::{Read, Write};

use clearway_testkit::client::PATIENCE;

use super::{ask, check, server};

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn exits_have_error_pages() {
    let server = server(
        "",
        "location = /own { error_page 404 = /page; content_by_lua_block { ngx.exit(404) } }
         location = /other { error_page 404 =202 /page; content_by_lua_block { ngx.exit(404) } }
         location = /files { error_page 404 = /cheap; content_by_lua_block { ngx.exit(404) } }
         location = /page { content_by_lua_block { ngx.print('page ', ngx.status) } }
         location = /refused {
             content_by_lua_block { ngx.print('hi') }
             header_filter_by_lua_block { return ngx.exit(403) }
         }
         location = /twice {
             error_page 582 = /again;
             content_by_lua_block { ngx.print('hi') }
             header_filter_by_lua_block { return ngx.exit(582) }
         }
         location = /jump { rewrite_by_lua_block { ngx.ctx.a = 1 ngx.req.set_uri('/jumped', true) } }
         location = /jumped { content_by_lua_block { ngx.print('ctx ', ngx.ctx.a) } }
         location = /condition { rewrite_by_lua_block { ngx.send_headers() } }
         location = /said { content_by_lua_block { ngx.log(ngx.WARN, 'said: ', select(2, ngx.say('hi'))) } }
         location = /again {
             content_by_lua_block { ngx.print('again') }
             header_filter_by_lua_block { return ngx.exit(302) }
         }",
    );
    check(
        &server,
        &[
            ("/own", 404, "page 404"),
            ("/other", 202, ""),
            ("/files", 200, "cheap"),
            ("/refused", 403, ""),
            ("/twice", 302, ""),
            ("/jump", 200, "ctx nil"),
        ],
    );
    // A filter that comes before says no: that is the answer, also where it is code of an early phase.
    let answer = server.connect().ask("GET /condition HTTP/1.1\r\nHost: a\r\nIf-Match: \"1\"\r\n\r\n");
    assert_eq!(answer.status, 412);
    let answer = server.connect().ask("GET /said HTTP/1.1\r\nHost: a\r\nIf-Match: \"1\"\r\n\r\n");
    assert_eq!(answer.status, 412);
    server.wait_log("logs/error.log", "said: nginx output filter error");
}

/// A body filter that returns an error ends the response where it is, and with it the connection.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn filters_of_bodies_break_off() {
    let server = server(
        "",
        "location = /broken {
             content_by_lua_block { ngx.print('one') ngx.flush(true) ngx.print('two') }
             body_filter_by_lua_block { if ngx.arg[1] == 'two' then return ngx.ERROR end }
         }
         location = /kept {
             content_by_lua_block { ngx.print('one') }
             body_filter_by_lua_block { return 1 }
         }",
    );
    check(&server, &[("/kept", 200, "one")]);
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    stream.write_all(b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.contains("one") && !answer.contains("two") && !answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn subrequests_are_logged_where_that_is_said() {
    let server = server(
        "log_by_lua_block {
             ngx.req.set_uri('/logged' .. ngx.var.uri)
             ngx.log(ngx.NOTICE, 'seen ', ngx.var.uri)
         }",
        "location = /a { log_subrequest on; return 200 a; }
         location = /b { return 200 b; }
         location = /t {
             content_by_lua_block {
                 ngx.print(ngx.location.capture('/b').body, ngx.location.capture('/a').body)
             }
         }",
    );
    check(&server, &[("/t", 200, "ba")]);
    let log = server.wait_log("logs/error.log", "seen /logged/t");
    assert!(log.contains("seen /logged/a"), "{log}");
    assert!(!log.contains("seen /logged/b"), "{log}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn bodies_are_read_by_code_and_made_anew() {
    let server = server(
        "",
        "location = /t {
             content_by_lua_block {
                 ngx.print(select(2, pcall(ngx.req.set_body_file, '/nowhere')), '; ')
                 local socket = assert(ngx.req.socket())
                 ngx.req.init_body(100)
                 repeat
                     local data, err = socket:receive(1)
                     if data then ngx.req.append_body(data:upper()) end
                 until err
                 ngx.req.finish_body()
                 ngx.print(ngx.var.http_content_length, ' ', ngx.req.get_body_data())
             }
         }",
    );
    let mut connection = server.connect();
    for _ in 0..2 {
        let head = "POST /t HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
        let answer = connection.ask(head).text();
        assert!(answer.ends_with("request body not read yet; 4 BODY"), "{answer}");
    }
}

/// Light threads go on while another one waits for a body, and may end the request.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn threads_go_on_while_one_reads_the_body() {
    let server = server(
        "",
        "location = /t {
             content_by_lua_block {
                 local function f() ngx.sleep(0.001) ngx.print('thread ') ngx.flush(true) end
                 local thread = ngx.thread.spawn(f)
                 ngx.req.read_body()
                 ngx.thread.wait(thread)
                 ngx.print(ngx.req.get_body_data(), '.')
             }
         }
         location = /exit {
             content_by_lua_block {
                 ngx.thread.spawn(function() ngx.sleep(0.001) ngx.print('left.') ngx.exit(0) end)
                 ngx.req.read_body()
             }
         }",
    );
    let open = |path: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo");
        stream.write_all(head.as_bytes()).expect("it reads");
        stream
    };
    let mut stream = open("/t");
    assert!(until(&mut stream, "thread ").contains("200 OK"));
    stream.write_all(b"dy").expect("it reads");
    let rest = until(&mut stream, "body.");
    assert!(!rest.contains("thread"), "{rest}");
    assert!(until(&mut open("/exit"), "left.").contains("200 OK"));
}

/// What comes until that has come.
fn until(stream: &mut std::net::TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(end) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).ok(), Some(1), "{}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Errors name the user's own line, also of functions that are Lua of the server's, and an error that came
/// through threads of `coroutine.wrap` is told with the stack of each.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn errors_name_the_place_in_the_users_code() {
    let server = server(
        "",
        "location = /file {
             content_by_lua_block {
                 local ok, err = pcall(function()
                     ngx.req.set_body_file()
                 end)
                 ngx.print(ok, ' ', string.match(err, ':(%d+): expecting'))
             }
         }
         location = /self {
             content_by_lua_block {
                 local ok, err = pcall(ngx.socket.tcp().receiveuntil, 32, 'ab')
                 ngx.print(err)
             }
         }
         location = /dfa { content_by_lua_block { ngx.print(ngx.re.match('\u{4f60}', '.', 'Ud')[0]) } }
         location = /wrap {
             content_by_lua_block {
                 local inner = coroutine.wrap(function() error('inmost') end)
                 local outer = coroutine.wrap(function() inner() end)
                 outer()
             }
         }",
    );
    check(
        &server,
        &[
            ("/file", 200, "false 3"),
            ("/self", 200, "bad argument #1 to 'receiveuntil' (table expected, got number)"),
            ("/dfa", 200, "\u{4f60}"),
            ("/wrap", 500, ""),
        ],
    );
    let log = server.wait_log("logs/error.log", "coroutine 2:");
    for line in ["inmost", "coroutine 0:", "coroutine 1:"] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

/// What code chooses of the line in front of a response, and of what is asked under a condition.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn status_lines_and_conditions_are_codes_own() {
    let server = server(
        "",
        "location = /switch { content_by_lua_block { ngx.status = 101 ngx.send_headers() } }
         location = /phrase { content_by_lua_block {
             require('ngx.resp').set_status(404, 'Gone Fishing') ngx.print('x') } }
         location = /changed { content_by_lua_block {
             require('ngx.resp').set_status(404, 'Gone Fishing') ngx.status = 403 ngx.print('x') } }
         location = /file { header_filter_by_lua_block { require('ngx.resp').set_status(200, 'Fine') }
             alias site/f; }
         location = /wrong { content_by_lua_block {
             require('ngx.resp').set_status(99, 'Low') ngx.print(ngx.status) } }
         location = /matched { content_by_lua_block {
             if ngx.var.arg_b then require('ngx.resp').bypass_if_checks() end
             ngx.print('hello') } }",
    );
    let first_line = |path: &str, lines: &str| {
        let mut connection = server.connect();
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes());
        let response = connection.response();
        format!("{} {} {}", response.version, response.status, response.reason)
    };
    for (path, lines, expected) in [
        ("/switch", "", "HTTP/1.1 101 Switching Protocols"),
        ("/phrase", "", "HTTP/1.1 404 Gone Fishing"),
        ("/changed", "", "HTTP/1.1 403 Forbidden"),
        ("/file", "", "HTTP/1.1 200 Fine"),
        ("/wrong", "", "HTTP/1.1 200 OK"),
        ("/matched", "If-Match: 1\r\n", "HTTP/1.1 412 Precondition Failed"),
        ("/matched?b=1", "If-Match: 1\r\n", "HTTP/1.1 200 OK"),
    ] {
        assert_eq!(first_line(path, lines), expected, "{path}");
    }
    server.wait_log("logs/error.log", "invalid HTTP status code 99");
}

/// Small things that upstream's own tests look at.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn levels_arguments_and_phases_are_as_upstream_has_them() {
    let server = server(
        "lua_thread_cache_max_entries 0;",
        "location = /log { content_by_lua_block {
             ngx.log(ngx.STDERR, 'to be seen') ngx.log(ngx.EMERG, 'the worst') } }
         location = /args { content_by_lua_block {
             ngx.var.args = nil ngx.print(tostring(ngx.var.args), '|', tostring(ngx.var.is_args)) } }
         location = /none { content_by_lua_block {
             ngx.var.args = '' ngx.print(tostring(ngx.var.args), '|') } }
         location = /phase { content_by_lua_block { ngx.print(ngx.get_phase(), ngx.get_raw_phase()) } }",
    );
    check(
        &server,
        &[
            ("/log", 200, ""),
            ("/args?a=1", 200, "nil|"),
            ("/none?a=1", 200, "|"),
            ("/phase", 200, "content8"),
        ],
    );
    let log = server.wait_log("logs/error.log", "the worst");
    let levels = ["to be seen", "the worst"].map(|text| {
        let line = log.lines().find(|line| line.contains(text)).expect("it was waited for");
        line.split(' ').nth(2).unwrap_or_default()
    });
    assert_eq!(levels, ["[]", "[emerg]"]);
}

/// `echo_subrequest` asks with a method, arguments and a body, and has variables of its own.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such module")]
fn echo_asks_with_methods_and_bodies() {
    let server = server(
        "",
        "location = /sub { content_by_lua_block {
             ngx.req.read_body()
             ngx.say(ngx.req.get_method(), ' ', ngx.var.args or '-', ' ', ngx.req.get_body_data() or
                 (ngx.req.get_body_file() or '-'):match('site/f') or '-') } }
         location = /all {
             echo_subrequest POST /sub -q a=1 -b $arg_text;
             echo_subrequest PUT /sub?b=2 -f site/f;
             echo_subrequest_async DELETE '/sub?c=3';
             echo end;
         }
         location = /wrong { echo_subrequest GET /sub -x 1; }
         location = /missing { echo_subrequest GET /sub -f none/such; }",
    );
    check(&server, &[("/all?text=hello", 200, "POST a=1 hello\nPUT b=2 site/f\nDELETE c=3 -\nend\n")]);
    assert_eq!(ask(&server, "/wrong").0, 500);
    assert_eq!(ask(&server, "/missing").0, 500);
    server.wait_log("logs/error.log", "unknown option for echo_subrequest*: -x");
    server.wait_log("logs/error.log", "none/such\" failed (2: No such file or directory)");
}

/// Numbers are sent as Lua writes them.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn numbers_are_sent_as_lua_writes_them() {
    let server = server(
        "",
        "location = /numbers { content_by_lua_block {
             for _, n in ipairs({ 0, -0.0, 1, -2, 2.5, -1e13, 99999999999999, -99999999999999, 1e14, -1e14,
                 2^53, 1e300, 1/3, 1/0, -1/0, 0/0 }) do
                 ngx.say(n, ' ', tostring(n))
             end } }",
    );
    let (status, text) = ask(&server, "/numbers");
    assert_eq!((status, text.lines().count()), (200, 16));
    for line in text.lines() {
        let (sent, written) = line.split_once(' ').expect("two numbers");
        assert_eq!(sent, written);
    }
}
