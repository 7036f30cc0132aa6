//! Code that is out of hand: each kind is an error of its own request with a traceback, or of the
//! configuration with its place, and everything else goes on.

use std::time::{Duration, Instant};

use crate::{ask, check, server};

/// What a request dies of, and what the log says of it.
const CASES: &[(&str, &str, &str)] = &[
    ("loop", "while true do end", "has run for too long (lua_max_run_time)"),
    (
        "caught_loop",
        "while true do pcall(function() while true do end end) end",
        "has run for too long (lua_max_run_time)",
    ),
    (
        "coroutine_loop",
        "local thread = coroutine.create(function() while true do end end) coroutine.resume(thread) \
         while true do end",
        "has run for too long (lua_max_run_time)",
    ),
    ("recursion", "local function f() return 1 + f() end f()", "stack overflow"),
    (
        "mutual",
        "local g local function f() return 1 + g() end g = function() return 1 + f() end f()",
        "stack overflow",
    ),
    (
        "metamethods",
        "local t = {} setmetatable(t, { __index = function(t, k) return t[k .. 'x'] end }) return t.a",
        "stack overflow",
    ),
    ("memory", "local t = {} for i = 1, 1e9 do t[i] = 'x' .. i end", "not enough memory"),
    ("rep", "return #string.rep('x', 1e9)", "not enough memory"),
    ("concat", "local s = 'x' while true do s = s .. s end", "not enough memory"),
    (
        "buffers",
        "local t = {} for i = 1, 60 do t[i] = string.rep('x', 1e6) .. i end ngx.print(t)",
        "not enough memory",
    ),
    ("nested", "local t = {} for i = 1, 200 do t = { t } end ngx.print(t)", "too many nested tables"),
    ("errors", "error(setmetatable({}, { __tostring = function() error('again') end }))", "runtime error"),
    ("parse", "return assert(loadstring(string.rep('(', 1e5)))", "runtime error"),
];

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn what_is_out_of_hand_ends_its_request_and_nothing_else() {
    let locations: String = CASES
        .iter()
        .map(|(name, code, _)| format!("location = /{name} {{ content_by_lua_block {{ {code} }} }}\n"))
        .collect();
    let server = server(
        "lua_max_memory 32m; lua_max_run_time 2s;",
        &(locations + "location = /fine { content_by_lua_block { ngx.print('fine') } }"),
    );
    for (name, _, said) in CASES {
        let began = Instant::now();
        let (status, text) = ask(&server, &format!("/{name}"));
        assert_eq!(status, 500, "{name}: {text}");
        assert!(began.elapsed() < Duration::from_secs(30), "{name}");
        let log = server.wait_log("logs/error.log", &format!("request: \"GET /{name} HTTP"));
        assert!(log.contains(said), "{name}: {log}");
        check(&server, &[("/fine", 200, "fine"), ("/cheap", 200, "cheap")]);
    }
    server.wait_log("logs/error.log", "stack traceback:");
}

/// Expressions that go back and forth end with an error of the call.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn patterns_that_backtrack_are_refused() {
    let server = server(
        "lua_regex_match_limit 5000; lua_max_run_time 2s;",
        "location = /regex { content_by_lua_block {
             local subject = string.rep('a', 30) .. 'b'
             local from, to, err = ngx.re.find(subject, '(a+)+$')
             ngx.print(tostring(from), ' ', err)
         } }
         location = /pattern { content_by_lua_block {
             local s = string.rep('a', 200)
             ngx.print(tostring(string.find(s, string.rep('a-', 30) .. 'b')))
         } }
         location = /fine { content_by_lua_block { ngx.print('fine') } }",
    );
    let (status, text) = ask(&server, "/regex");
    assert_eq!(status, 200);
    assert!(text.starts_with("nil pcre_exec() failed: "), "{text}");
    // The matcher of Lua's own is C, which nothing can interrupt: others go on beside it.
    let mut held = server.connect();
    held.send(b"GET /pattern HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..5 {
        check(&server, &[("/fine", 200, "fine"), ("/cheap", 200, "cheap")]);
    }
}

/// What keeps all memory of its VM takes it from everybody: the VM is given up, and another one is made.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_vm_that_stays_full_is_replaced() {
    let server = server(
        "lua_max_memory 16m;",
        "location = /hoard { content_by_lua_block {
             hoard = hoard or {} for i = 1, 1e9 do hoard[#hoard + 1] = 'x' .. #hoard end } }
         location = /passing { content_by_lua_block {
             local t = {} for i = 1, 1e9 do t[i] = 'x' .. i end } }
         location = /fine { content_by_lua_block { ngx.print(#string.rep('x', 1e6)) } }",
    );
    for _ in 0..3 {
        assert_eq!(ask(&server, "/hoard").0, 500);
        check(&server, &[("/cheap", 200, "cheap"), ("/fine", 200, "1000000")]);
        assert_eq!(ask(&server, "/passing").0, 500);
        check(&server, &[("/fine", 200, "1000000")]);
    }
    server.wait_lines("logs/error.log", "a Lua VM is full, and is replaced", 3);
}
