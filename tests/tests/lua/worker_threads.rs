//! Functions in threads of pools (`ngx.run_worker_thread`): what they get and give, what stays in their VMs,
//! and what goes on beside them.

use clearway_testkit::{Binary, Server, Setup};
use rustix::process::Signal;

use super::{ask, check};

const MODULE: &str = "
local state = require 'state'
local M = {}
function M.echo(...) return ... end
function M.count() state.n = state.n + 1 return state.n end
function M.raise(text) error(text) end
function M.raise_table() error({}) end
function M.function_back() return { print } end
function M.sleep(seconds) ngx.sleep(seconds) return 'slept' end
function M.hold() while not ngx.shared.d:get('go') do ngx.sleep(0.01) end return 'held' end
function M.block() while not ngx.shared.d:get('go') do os.execute('sleep 0.05') end return 'blocked' end
function M.phase() return ngx.get_phase(), pcall(ngx.say, 'x') end
function M.timer() return pcall(ngx.timer.at, 0, print) end
function M.nested() return pcall(ngx.run_worker_thread, 'p', 'm', 'echo', 1) end
function M.api()
    ngx.log(ngx.WARN, 'from a worker thread')
    ngx.shared.d:incr('calls', 1, 0)
    local t = ngx.thread.spawn(function() ngx.sleep(0.001) return 'light' end)
    local _, light = ngx.thread.wait(t)
    return ngx.encode_base64('x'), ngx.re.match('a1', '[0-9]')[0], ngx.md5('') ~= nil, ngx.now() > 0, light,
        ngx.escape_uri(' ')
end
function M.get(port)
    local s = ngx.socket.tcp()
    s:settimeout(20000)
    assert(s:connect('127.0.0.1', port))
    local used = s:getreusedtimes()
    assert(s:send('GET /plain HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'))
    local head = assert(s:receiveuntil('\\r\\n\\r\\n')())
    local body = assert(s:receive(tonumber(head:match('Content%-Length: (%d+)'))))
    assert(s:setkeepalive(0, 10))
    return body, used
end
function M.global() left_behind = (left_behind or 0) + 1 return left_behind end
function M.garbage() local t = {} for i = 1, 2e5 do t[i] = { i } end return #t end
return M
";

/// A server with a pool of this many threads.
fn server(threads: u32, http: &str, locations: &str) -> Server {
    let config = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\n\
         error_log logs/error.log info;\nthread_pool p threads={threads} max_queue=100;\n\
         thread_pool none threads=1 max_queue=0;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; lua_shared_dict d 1m; lua_package_path \"$prefix/?.lua;;\";\n{http}\n\
         init_by_lua_block {{
             function call(...)
                 local t = {{ ngx.run_worker_thread('p', 'm', ...) }}
                 for i = 1, table.maxn(t) do t[i] = tostring(t[i]) end
                 return table.concat(t, ' ')
             end
         }}
         server {{ listen 127.0.0.1:%%PORT%%;\n\
         location = /plain {{ return 200 plain; }}\n{locations}\n }} }}\n"
    );
    Setup::new(Binary::under_test(), &config)
        .file("m.lua", MODULE)
        .file("state.lua", "return { n = 0 }")
        .file("bad.lua", "return 7")
        .file("worse.lua", "local = 1")
        .start()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn what_a_function_returns_comes_back() {
    let server = server(
        4,
        "",
        "location = /echo { content_by_lua_block {
             ngx.print(call('echo', 1, nil, true, 'a\\0b', ngx.null), ' ', call('echo')) } }
         location = /table { content_by_lua_block {
             local ok, t = ngx.run_worker_thread('p', 'm', 'echo', { 1, 2, x = { 'deep' } })
             ngx.print(ok, #t, t.x[1]) } }
         location = /api { content_by_lua_block {
             ngx.print(call('api'), ' ', ngx.shared.d:get('calls')) } }
         location = /phase { content_by_lua_block { ngx.print(call('phase')) } }
         location = /timer { content_by_lua_block { ngx.print(call('timer')) } }
         location = /nested { content_by_lua_block { ngx.print(call('nested')) } }
         location = /global { content_by_lua_block { ngx.print(call('global')) } }
         location = /phases {
             rewrite_by_lua_block { ngx.ctx.a = call('echo', 'r') }
             access_by_lua_block { ngx.ctx.a = ngx.ctx.a .. call('echo', 'a') }
             content_by_lua_block { ngx.print(ngx.ctx.a, call('echo', 'c')) }
         }
         location = /co { content_by_lua_block {
             ngx.print(coroutine.wrap(function() return call('sleep', 0.001) end)()) } }
         location = /set { set_by_lua_block $x { return (select(2, pcall(call, 'echo'))) } return 200 $x; }",
    );
    check(
        &server,
        &[
            ("/echo", 200, "true 1 nil true a\0b userdata: NULL true"),
            ("/table", 200, "true2deep"),
            ("/api", 200, "true eA== 1 true true light %20 1"),
            ("/phase", 200, "true worker_thread false API disabled in the context of ngx.run_worker_thread"),
            ("/timer", 200, "true false API disabled in the context of ngx.run_worker_thread"),
            ("/nested", 200, "true false API disabled in the context of ngx.run_worker_thread"),
            ("/global", 200, "true 1"),
            ("/phases", 200, "true rtrue atrue c"),
            ("/co", 200, "true slept"),
        ],
    );
    let log = server.wait_log("logs/error.log", "from a worker thread");
    assert!(log.contains(", context: ngx.run_worker_thread, client: 127.0.0.1"), "{log}");
    assert!(!log.contains("writing a global Lua variable"), "what is in a VM of a pool is its own: {log}");
    let (status, text) = ask(&server, "/set");
    assert!(status == 200 && text.contains("API disabled in the context of set_by_lua*"), "{text}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn what_is_wrong_is_said_as_upstream_says_it() {
    let say = |name: &str, arguments: &str| {
        format!(
            "location = /{name} {{ content_by_lua_block {{
                 local ok, err = ngx.run_worker_thread({arguments}) ngx.print(ok, ' ', err) }} }}\n"
        )
    };
    let cases = [
        ("few", "'p', 'm'", "false expecting at least 3 arguments"),
        ("pool", "print, 'm', 'echo'", "false threadpool should be a string"),
        ("options", "{ key = 1 }, 'm', 'echo'", "false threadpool should be a string"),
        ("unknown", "'q', 'm', 'echo'", "false thread pool q not found"),
        ("module", "'p', print, 'echo'", "false module name should be a string"),
        ("function", "'p', 'm', print", "false function name should be a string"),
        ("bad", "'p', 'bad', 'echo'", "false invalid lua module"),
        ("none", "'p', 'm', 'none'", "false invalid function"),
        ("argument", "'p', 'm', 'echo', print", "false unsupported Lua type: LUA_TFUNCTION in the argument"),
        (
            "result",
            "'p', 'm', 'function_back'",
            "false unsupported Lua type: LUA_TFUNCTION in the return value",
        ),
    ];
    let mut locations: String = cases.iter().map(|(name, arguments, _)| say(name, arguments)).collect();
    locations += &say("raise", "'p', 'm', 'raise', 'on purpose'");
    locations += &say("raise_table", "'p', 'm', 'raise_table'");
    locations += &say("missing", "'p', 'not_there', 'echo'");
    locations += &say("worse", "'p', 'worse', 'echo'");
    let server = server(1, "", &locations);
    for (name, _, expected) in cases {
        check(&server, &[(&format!("/{name}"), 200, expected)]);
    }
    let text = |path| ask(&server, path).1;
    assert!(text("/raise").starts_with("false ") && text("/raise").ends_with("m.lua:6: on purpose"));
    assert!(text("/raise_table").starts_with("false "));
    assert!(text("/missing").starts_with("false module 'not_there' not found:"), "{}", text("/missing"));
    assert!(text("/worse").starts_with("false error loading module 'worse'"), "{}", text("/worse"));
    assert_eq!(text("/none"), "false invalid function", "the VM goes on");
}

/// Calls of one key, or slot, meet the same VM: its modules are there, and its connections.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn what_a_keyed_vm_has_stays() {
    let server = server(
        3,
        "",
        "location = /count { content_by_lua_block {
             local threads = {}
             for i = 1, 20 do
                 threads[i] = ngx.thread.spawn(function()
                     for j = 1, 5 do
                         assert(ngx.run_worker_thread({ pool = 'p', key = 'k' }, 'm', 'count'))
                     end
                 end)
             end
             for i = 1, 20 do assert(ngx.thread.wait(threads[i])) end
             local _, n = ngx.run_worker_thread({ pool = 'p', key = 'k' }, 'm', 'count')
             local _, a = ngx.run_worker_thread({ pool = 'p', slot = 0 }, 'm', 'count')
             local _, b = ngx.run_worker_thread({ pool = 'p', slot = 3 }, 'm', 'count')
             ngx.print(n, ' ', b - a) } }
         location = /connections { content_by_lua_block {
             local used = 0
             for i = 1, 100 do
                 local ok, body, times = ngx.run_worker_thread(
                     { pool = 'p', key = 'c' }, 'm', 'get', ngx.var.server_port)
                 assert(ok and body == 'plain', body)
                 if times > 0 then used = used + 1 end
             end
             ngx.print(used) } }",
    );
    check(&server, &[("/count", 200, "101 1")]);
    let (status, used) = ask(&server, "/connections");
    assert!(status == 200 && used.parse::<u32>().is_ok_and(|used| used >= 99), "{used}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn calls_have_limits() {
    let http = "lua_worker_thread_vm_pool_size 1;";
    let locations = "
        location = /two { content_by_lua_block {
            local first = ngx.thread.spawn(call, 'hold')
            local second = call('echo', 1)
            ngx.shared.d:set('go', true)
            local _, held = ngx.thread.wait(first)
            ngx.print(second, '; ', held, '; ', call('echo', 1)) } }";
    let limited = server(4, http, locations);
    check(&limited, &[("/two", 200, "false no available Lua vm; true held; true 1")]);
    let free = server(
        1,
        "",
        "location = /queue { content_by_lua_block {
             local threads = {}
             for i = 1, 5 do threads[i] = ngx.thread.spawn(call, 'sleep', 0.01) end
             local last
             for i = 1, 5 do _, last = ngx.thread.wait(threads[i]) end
             ngx.print(last) } }
         location = /full { content_by_lua_block {
             ngx.shared.d:delete('go')
             local first = ngx.thread.spawn(ngx.run_worker_thread, 'none', 'm', 'hold')
             local _, refused = ngx.run_worker_thread('none', 'm', 'echo', 1)
             ngx.shared.d:set('go', true)
             local _, ok = ngx.thread.wait(first)
             ngx.print(refused, ' ', ok) } }
         location = /late { content_by_lua_block {
             ngx.shared.d:delete('go')
             local busy = ngx.thread.spawn(call, 'hold')
             local ok, err = ngx.run_worker_thread({ pool = 'p', timeout = 0.01 }, 'm', 'count')
             ngx.shared.d:set('go', true)
             ngx.thread.wait(busy)
             ngx.print(ok, ' ', err, ' ', call('count')) } }",
    );
    check(
        &free,
        &[
            ("/queue", 200, "true slept"),
            ("/full", 200, "ngx_thread_task_post failed true"),
            // What has not begun by then is not run.
            ("/late", 200, "false timeout true 1"),
        ],
    );
}

/// A function that blocks holds its thread: others go on, and what has called it may leave.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn others_go_on_beside_a_function_that_blocks() {
    let server = server(
        2,
        "",
        "location = /block { content_by_lua_block { ngx.print(call('block')) } }
         location = /go { content_by_lua_block { ngx.shared.d:set('go', true) ngx.print('go') } }
         location = /killed { content_by_lua_block {
             local t = ngx.thread.spawn(call, 'sleep', 0.2)
             ngx.thread.kill(t)
             ngx.print('killed') } }
         location = /echo { content_by_lua_block { ngx.print(call('echo', 1)) } }",
    );
    let mut blocked = server.connect();
    blocked.send(b"GET /block HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut gone = server.connect();
    gone.send(b"GET /killed HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(gone.response().text(), "killed");
    drop(gone);
    for _ in 0..10 {
        check(&server, &[("/plain", 200, "plain"), ("/echo", 200, "true 1")]);
    }
    check(&server, &[("/go", 200, "go")]);
    assert_eq!(blocked.response().text(), "true blocked");
}

/// What calls leave behind is collected.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn garbage_of_calls_goes() {
    let server = server(
        1,
        "lua_max_memory 64m;",
        "location = /garbage { content_by_lua_block {
             for i = 1, 30 do assert(ngx.run_worker_thread('p', 'm', 'garbage')) end
             ngx.print('collected') } }",
    );
    check(&server, &[("/garbage", 200, "collected")]);
}

/// A new configuration has new VMs, and calls of the old one come to their end.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_reload_begins_anew() {
    let server = server(
        2,
        "",
        "location = /count { content_by_lua_block { ngx.print(call('count')) } }
         location = /sleep { content_by_lua_block { ngx.print(call('sleep', 1)) } }",
    );
    check(&server, &[("/count", 200, "true 1"), ("/count", 200, "true 2")]);
    let mut waiting = server.connect();
    waiting.send(b"GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n");
    server.signal(Signal::HUP);
    assert_eq!(waiting.response().text(), "true slept");
    let began = std::time::Instant::now();
    while ask(&server, "/count").1 != "true 1" {
        assert!(began.elapsed().as_secs() < 60, "the new configuration has VMs of its own");
    }
}
