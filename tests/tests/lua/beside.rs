//! What code does beside its request: light threads, captures, timers, sockets.

use std::time::{Duration, Instant};

use super::{ask, check, server};

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn light_threads_run_beside_each_other() {
    let server = server(
        "",
        "location = /spawn {
             content_by_lua_block {
                 local function f(n)
                     ngx.print('<', n) ngx.sleep(0.1 * n) ngx.print(n, '>')
                     return n, n + 1
                 end
                 local a, b = ngx.thread.spawn(f, 20), ngx.thread.spawn(f, 1)
                 ngx.print('both')
                 local ok, x, y = ngx.thread.wait(a, b)
                 ngx.print(ok, x, y, coroutine.status(a), coroutine.status(b))
             }
         }
         location = /fails {
             content_by_lua_block {
                 local ok, err = ngx.thread.wait(ngx.thread.spawn(function() error('no') end))
                 ngx.print(ok, ' ', string.match(err, 'no$'))
             }
         }
         location = /kill {
             content_by_lua_block {
                 local t = ngx.thread.spawn(function() ngx.sleep(10) ngx.print('never') end)
                 ngx.print(ngx.thread.kill(t), select(2, ngx.thread.kill(t)), select(2, ngx.thread.wait(t)))
             }
         }
         location = /exit {
             content_by_lua_block {
                 ngx.thread.spawn(function() ngx.sleep(0.001) ngx.exit(403) end)
                 ngx.sleep(10)
             }
         }
         location = /coroutines {
             content_by_lua_block {
                 local c = coroutine.wrap(function()
                     ngx.sleep(0.001) coroutine.yield(1) ngx.sleep(0.001)
                     return 2
                 end)
                 ngx.print(c(), c(), ' ', select(2, pcall(c)))
             }
         }
         location = /many {
             content_by_lua_block {
                 local n = 0
                 for _ = 1, 2000 do ngx.thread.spawn(function() ngx.sleep(0.01) n = n + 1 end) end
                 while n < 2000 do ngx.sleep(0.005) end
                 ngx.print(n)
             }
         }",
    );
    check(
        &server,
        &[
            ("/spawn", 200, "<20<1both1>true12runningdead20>"),
            ("/fails", 200, "false no"),
            ("/kill", 200, "1already waited or killedalready waited or killed"),
            ("/exit", 403, ""),
            ("/coroutines", 200, "12 cannot resume dead coroutine"),
            ("/many", 200, "2000"),
        ],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn semaphores_wake_threads() {
    let server = server(
        "init_worker_by_lua_block {
             local s = require('ngx.semaphore').new() s:post(2)
             ngx.log(ngx.WARN, 'left: ', s:count(), ' ', select(2, s:wait(0.1)))
         }",
        "location = /lost {
             content_by_lua_block {
                 local s = require('ngx.semaphore').new()
                 local t = ngx.thread.spawn(function() s:wait(60) end)
                 s:post() ngx.thread.kill(t)
                 ngx.print(s:count(), s:wait(0), s:count())
             }
         }
         location = /turns {
             content_by_lua_block {
                 local s = require('ngx.semaphore').new()
                 local t = ngx.thread.spawn(function() return s:wait(60) end)
                 s:post(2)
                 local _, err = s:wait(0)
                 ngx.print(err, select(2, ngx.thread.wait(t)), s:wait(0), s:count())
             }
         }
         location = /semaphore {
             content_by_lua_block {
                 local s = require('ngx.semaphore').new()
                 local t = ngx.thread.spawn(function() ngx.print('w', s:wait(10)) end)
                 ngx.print('c', s:count()) s:post() ngx.thread.wait(t)
                 ngx.print(select(2, s:wait(0.001)), s:count())
             }
         }",
    );
    check(
        &server,
        &[
            ("/semaphore", 200, "c-1wtruetimeout0"),
            // What a thread was given that is killed before it goes on is there for others.
            ("/lost", 200, "1true0"),
            ("/turns", 200, "timeouttruetrue0"),
        ],
    );
    let disabled = "API disabled in the context of init_worker_by_lua*";
    server.wait_log("logs/error.log", &format!("left: 2 {disabled}, context: init_worker_by_lua*"));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn captures_are_requests_of_their_own() {
    let server = server(
        "lua_capture_max_size 1k;",
        "location = /sub {
             set $v unset;
             content_by_lua_block {
                 ngx.req.read_body()
                 ngx.header['X-A'] = { 'one', 'two' }
                 ngx.print(ngx.req.get_method(), ngx.var.args, ngx.req.get_body_data(), ngx.var.v,
                     ngx.ctx.n, ngx.is_subrequest, ngx.req.get_headers()['x-sub'])
             }
         }
         location = /slow { content_by_lua_block { ngx.sleep(0.05) ngx.print(ngx.var.arg_n) } }
         location = /404 { return 404; }
         location = /long { content_by_lua_block { ngx.print(string.rep('x', 2000)) } }
         location = /options {
             content_by_lua_block {
                 local ctx = { n = 7 }
                 local r = ngx.location.capture('/sub?a=1', { method = ngx.HTTP_POST, body = 'body',
                     args = { b = 2 }, ctx = ctx, headers = { ['X-Sub'] = 's' } })
                 ngx.print(r.status, ' ', r.body, ' ', table.concat(r.header['X-A'], '+'), ' ', r.truncated)
             }
         }
         location = /multi {
             content_by_lua_block {
                 local all = {}
                 for n = 1, 10 do all[n] = { '/slow?n=' .. n } end
                 for _, r in ipairs({ ngx.location.capture_multi(all) }) do ngx.print(r.body) end
             }
         }
         location = /none {
             content_by_lua_block {
                 local r, l = ngx.location.capture('/404'), ngx.location.capture('/long')
                 ngx.print(r.status, r.truncated, l.truncated)
             }
         }",
    );
    check(
        &server,
        &[("/options", 200, "200 POSTa=1&b=2bodyunset7trues one+two false"), ("/none", 200, "404truetrue")],
    );
    let begun = Instant::now();
    check(&server, &[("/multi", 200, "12345678910")]);
    assert!(begun.elapsed() < Duration::from_millis(400), "they run beside each other");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn captures_have_heads_of_their_own() {
    let server = server(
        "",
        "location = /head { content_by_lua_block { ngx.print(ngx.var.http_x or '-') } }
         location = /change {
             content_by_lua_block {
                 ngx.req.set_header('X', 'changed')
                 ngx.print(ngx.var.http_x, ngx.location.capture('/head').body)
             }
         }
         location = /heads {
             content_by_lua_block {
                 local function get(path) ngx.print(ngx.location.capture(path).body, ' ') end
                 get('/head') get('/change') get('/head')
                 ngx.req.set_header('X', 'own')
                 get('/head') get('/change') get('/head')
                 ngx.print(ngx.var.http_x)
             }
         }
         location = /moved { content_by_lua_block { ngx.header.Location = '/x' ngx.print('m') } }
         location = /lines {
             content_by_lua_block { ngx.print(ngx.location.capture('/moved').header.Location) }
         }",
    );
    check(
        &server,
        &[("/heads", 200, "- changedchanged - own changedchanged own own"), ("/lines", 200, "/x")],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn timers_run_without_a_request() {
    let server = server(
        "lua_shared_dict d 1m; lua_max_pending_timers 3;
         init_worker_by_lua_block { ngx.timer.at(0, function() ngx.shared.d:incr('begun', 1, 0) end) }",
        "location = /at {
             content_by_lua_block {
                 ngx.timer.at(0.001, function(premature, a, b)
                     ngx.ctx.n = a + b ngx.sleep(0.001)
                     ngx.shared.d:set('at', tostring(premature) .. ngx.ctx.n .. ngx.get_phase())
                 end, 1, 2)
                 while not ngx.shared.d:get('at') do ngx.sleep(0.001) end
                 ngx.print(ngx.shared.d:get('at'), ngx.shared.d:get('begun'), ngx.timer.pending_count())
             }
         }
         location = /full {
             content_by_lua_block {
                 local ok, err
                 for _ = 1, 4 do ok, err = ngx.timer.at(100, function() end) end
                 ngx.print(err)
             }
         }",
    );
    check(&server, &[("/at", 200, "false3timer10"), ("/full", 200, "too many pending timers")]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn sockets_talk_to_other_servers() {
    let other = server("", "location = /lines { return 200 'one\\ntwo--three'; }");
    let port = other.port();
    let locations = "location = /talk {
             content_by_lua_block {
                 local s = ngx.socket.tcp()
                 s:settimeout(2000)
                 assert(s:connect('127.0.0.1', PORT))
                 assert(s:send({ 'GET /lines HTTP/1.1\\r\\n', { 'Host: a\\r\\n' }, '\\r\\n' }))
                 local status = s:receive()
                 repeat local line = s:receive('*l') until line == ''
                 ngx.print(status, ' ', s:receive(3), s:receive(), ' ', s:receiveuntil('--')(), ' ',
                     s:receive(5), ' ', s:getreusedtimes())
                 assert(s:setkeepalive(1000, 5))
                 ngx.print(' ', select(2, s:send('x')))
                 assert(s:connect('127.0.0.1', PORT))
                 ngx.print(' ', s:getreusedtimes(), s:close())
             }
         }
         location = /refused {
             content_by_lua_block {
                 local s = ngx.socket.tcp()
                 ngx.print(select(2, s:connect('127.0.0.1', 1)), ' ', select(2, s:connect('a.test', 1)))
             }
         }
         location = /late {
             content_by_lua_block {
                 local s = ngx.socket.connect('127.0.0.1', PORT)
                 s:settimeout(20)
                 ngx.print(select(2, s:receive()), ' ', select(2, s:receiveany(10)))
             }
         }"
    .replace("PORT", &port.to_string());
    let server = server("", &locations);
    check(
        &server,
        &[
            ("/talk", 200, "HTTP/1.1 200 OK one two three 0 closed 11"),
            ("/refused", 200, "connection refused no resolver defined to resolve \"a.test\""),
            ("/late", 200, "timeout timeout"),
        ],
    );
    assert_eq!(ask(&other, "/cheap").0, 200);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn datagrams_are_sent_and_received() {
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let locations = "location = /ask {
             content_by_lua_block {
                 local s = ngx.socket.udp()
                 s:settimeout(2000)
                 assert(s:setpeername('127.0.0.1', PORT))
                 assert(s:send({ 'pi', 'ng' }))
                 ngx.print(s:receive(), ' ')
                 s:settimeout(10)
                 ngx.print(select(2, s:receive()), ' ', s:close(), ' ', select(2, s:send('x')))
             }
         }"
    .replace("PORT", &port);
    let server = server("", &locations);
    let answering = std::thread::spawn(move || {
        let mut datagram = [0; 64];
        let (len, from) = other.recv_from(&mut datagram).unwrap();
        assert_eq!(&datagram[..len], b"ping");
        other.send_to(b"pong", from).unwrap();
        // What is asked again is not answered.
        other
    });
    check(&server, &[("/ask", 200, "pong timeout 1 closed")]);
    drop(answering.join());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_runs_when_its_client_leaves() {
    let server = server(
        "lua_shared_dict d 1m; lua_check_client_abort on;",
        "location = /asks {
             content_by_lua_block {
                 local n = ngx.shared.d:incr('n', 1, 0)
                 assert(ngx.on_abort(function() ngx.shared.d:set('left', n) ngx.exit(499) end))
                 ngx.shared.d:set('again', select(2, ngx.on_abort(function() end)))
                 ngx.sleep(10)
                 ngx.shared.d:set('left', 'never')
             }
         }
         location = /plain {
             content_by_lua_block { ngx.shared.d:set('plain', 1) ngx.sleep(0.3) ngx.shared.d:set('plain', 2) }
         }
         location = /off {
             lua_check_client_abort off;
             content_by_lua_block { ngx.print(select(2, ngx.on_abort(function() end))) }
         }
         location = /wait {
             content_by_lua_block {
                 for _ = 1, 1000 do
                     if ngx.shared.d:get(ngx.var.arg_key) then break end
                     ngx.sleep(0.005)
                 end
                 ngx.print(ngx.shared.d:get(ngx.var.arg_key), ' ', ngx.shared.d:get('again'))
             }
         }",
    );
    for path in ["/asks", "/plain"] {
        let mut connection = server.connect();
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let key = if path == "/plain" { "plain" } else { "n" };
        ask(&server, &format!("/wait?key={key}"));
    }
    check(&server, &[("/wait?key=left", 200, "1 duplicate call")]);
    std::thread::sleep(Duration::from_millis(400));
    check(
        &server,
        &[("/wait?key=plain", 200, "1 duplicate call"), ("/off", 200, "lua_check_client_abort is off")],
    );
}
