//! What this server adds to OpenResty's Lua, and what it does where that has files: slices of time, VMs of
//! one request, bodies that are made.

use clearway_testkit::End;
use clearway_testkit::client::PATIENCE;

use crate::{ask, check, server};

/// Code that spins makes way for code of the same VM.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn slices_let_others_into_the_vm() {
    let server = server(
        "lua_reserve_vms 0; init_by_lua_block { n = 0 }",
        "location = /spin {
             lua_time_slice 5ms;
             content_by_lua_block {
                 local began, before = os.time(), n
                 ngx.log(ngx.WARN, 'it spins')
                 while n - before < 3 and os.time() - began < 60 do end
                 ngx.print(n - before)
             }
         }
         location = /count { content_by_lua_block { n = n + 1 ngx.print('counted') } }",
    );
    let mut spinning = server.connect();
    spinning.send(b"GET /spin HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_log("logs/error.log", "it spins");
    for _ in 0..3 {
        check(&server, &[("/count", 200, "counted")]);
    }
    assert_eq!(spinning.response().text(), "3");
}

/// With `lua_code_cache off` nothing is left of a request for the next one.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn without_the_code_cache_each_request_begins_anew() {
    let server = server(
        "lua_reserve_vms 0; lua_package_path \"$prefix/?.lua;;\"; init_by_lua_block { kept = 1 }",
        "lua_code_cache off;
         location = /global { content_by_lua_block { kept = kept + 1 ngx.print(kept) } }
         location = /write { content_by_lua_block {
             local file = assert(io.open(ngx.config.prefix() .. '/fresh.lua', 'w'))
             file:write('return { value = \"', ngx.var.arg_v, '\" }') file:close()
             ngx.print('written') } }
         location = /module { content_by_lua_block { ngx.print(require('fresh').value) } }
         location = /phases {
             set_by_lua_block $s { seen = 'set' return seen }
             header_filter_by_lua_block { ngx.header['X-Seen'] = seen .. ' header' }
             body_filter_by_lua_block { if ngx.arg[2] then ngx.arg[1] = seen .. ' body' end }
             return 200 '';
         }
         location = /filter { header_filter_by_lua_block { ngx.header['X-A'] = kept } return 200 f; }
         location = /cached {
             lua_code_cache on;
             content_by_lua_block { counted = (counted or 0) + 1 ngx.print(counted) }
         }",
    );
    check(
        &server,
        &[
            ("/global", 200, "2"),
            ("/global", 200, "2"),
            ("/write?v=one", 200, "written"),
            ("/module", 200, "one"),
            ("/write?v=two", 200, "written"),
            ("/module", 200, "two"),
            ("/phases", 200, "set body"),
            ("/filter", 200, "f"),
            ("/cached", 200, "1"),
            ("/cached", 200, "2"),
        ],
    );
}

/// Bodies that are made go to a file when a buffer has no room for them, and are passed on from there; so is
/// a file that takes the place of a body.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn bodies_that_are_made_may_be_in_files() {
    let server = server(
        "client_body_buffer_size 1k; client_body_temp_path tmp;",
        "location = /made {
             rewrite_by_lua_block {
                 ngx.req.read_body()
                 ngx.req.init_body()
                 for i = 1, 1000 do ngx.req.append_body('0123456789') end
                 ngx.req.finish_body()
                 ngx.ctx.file = ngx.req.get_body_file() and 'file' or 'memory'
             }
             content_by_lua_block {
                 local file = io.open(ngx.req.get_body_file())
                 ngx.print(ngx.ctx.file, ' ', ngx.var.http_content_length, ' ', #file:read('*a'))
             }
         }
         location = /small { content_by_lua_block {
             ngx.req.read_body()
             ngx.req.init_body(100) ngx.req.append_body('abc') ngx.req.finish_body()
             ngx.print(ngx.req.get_body_data(), tostring(ngx.req.get_body_file()))
         } }
         location = /given {
             rewrite_by_lua_block {
                 ngx.req.read_body()
                 ngx.req.set_body_file(ngx.config.prefix() .. '/site/f', false)
                 ngx.header['X-Set'] = 'kept'
             }
             proxy_pass http://127.0.0.1:%%PORT%%/echo;
         }
         location = /missing { content_by_lua_block {
             ngx.req.read_body()
             local ok, err = pcall(ngx.req.set_body_file, '/nonexistent/file')
             ngx.print(ok, ' ', err)
         } }
         location = /echo { content_by_lua_block {
             ngx.req.read_body() ngx.print(ngx.req.get_body_data()) } }",
    );
    check(
        &server,
        &[
            ("/made", 200, "file 10000 10000"),
            ("/small", 200, "abcnil"),
            ("/missing", 200, "false open() \"/nonexistent/file\" failed"),
        ],
    );
    let response = server.connect().ask("GET /given HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nold");
    assert_eq!((response.status, response.text()), (200, "file\n".to_owned()));
    assert_eq!(response.header("X-Set"), Some("kept"), "set before the request was passed on");
    assert_eq!(ask(&server, "/cheap").0, 200);
}

/// What C modules of OpenResty's look for in the executable.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn c_modules_find_dictionaries_by_name() {
    let server = server(
        "lua_shared_dict dogs 1m; init_by_lua_block { ffi = require 'ffi'
             ffi.cdef[[
                 typedef struct { size_t len; char *data; } ngx_str_t;
                 typedef struct {
                     uint8_t type; union { int b; double n; ngx_str_t s; } value;
                 } ngx_http_lua_value_t;
                 void *ngx_http_lua_find_zone(const char *name, size_t len);
                 intptr_t ngx_http_lua_shared_dict_get(void *zone, const char *key, size_t len,
                     ngx_http_lua_value_t *value);
             ]]
             function get(key, room)
                 local zone = ffi.C.ngx_http_lua_find_zone('dogs', 4)
                 local value, text = ffi.new('ngx_http_lua_value_t'), ffi.new('char[8]')
                 value.value.s.len, value.value.s.data = room or 0, text
                 local code = tonumber(ffi.C.ngx_http_lua_shared_dict_get(zone, key, #key, value))
                 return code, value
             end }",
        "location = /c { content_by_lua_block {
             local d = ngx.shared.dogs
             d:set('n', 2.5) d:set('b', true) d:set('t', 'a text') d:lpush('l', 1) d:set('old', 1, 0.001)
             ngx.sleep(0.05)
             local code, value = get('n')
             ngx.print(code, ' ', value.type, ' ', value.value.n, ', ')
             code, value = get('b')
             ngx.print(code, ' ', value.type, ' ', value.value.b, ', ')
             code, value = get('t', 4)
             ngx.print(code, ' ', value.type, ' ', ffi.string(value.value.s.data, value.value.s.len), ', ')
             code, value = get('t', 8)
             ngx.print(code, ' ', ffi.string(value.value.s.data, value.value.s.len), ', ')
             local none = ffi.C.ngx_http_lua_find_zone('cats', 4)
             ngx.print((get('t')), ' ', (get('l')), ' ', (get('old')), ' ', (get('no')), ' ')
             ngx.print(none == nil, ' ')
             ngx.print(tonumber(ffi.C.ngx_http_lua_shared_dict_get(none, 'n', 1, value))) } }",
    );
    let text = "0 3 2.5, 0 1 1, 0 4 a te, 0 a text, -1 -1 -5 -5 true -1";
    check(&server, &[("/c", 200, text)]);
}

/// The names of files with code may depend on the request, those of filters as well; what was read first
/// counts for all VMs until the configuration is read anew.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn files_with_code_are_named_by_requests_and_read_once() {
    let server = server(
        "",
        "location /write { content_by_lua_block {
             local file = assert(io.open(ngx.config.prefix() .. '/' .. ngx.var.arg_name .. '.lua', 'w'))
             file:write(ngx.unescape_uri(ngx.var.arg_code)) file:close() ngx.print('written') } }
         location ~ ^/content/(.+)$ { content_by_lua_file $1.lua; }
         location ~ ^/head/(.+)$ { header_filter_by_lua_file $1.lua; return 200 body; }
         location ~ ^/body/(.+)$ { body_filter_by_lua_file $1.lua; return 200 body; }
         location = /head { header_filter_by_lua_file late.lua; return 200 body; }",
    );
    check(
        &server,
        &[
            ("/write?name=a&code=ngx.print('first')", 200, "written"),
            ("/content/a", 200, "first"),
            ("/write?name=a&code=ngx.print('second')", 200, "written"),
            ("/content/a", 200, "first"),
            ("/write?name=h&code=ngx.status=202", 200, "written"),
            ("/head/h", 202, "body"),
            ("/write?name=b&code=ngx.arg[1]=ngx.arg[1]:upper()", 200, "written"),
            ("/body/b", 200, "BODY"),
            ("/body/b", 200, "BODY"),
            // It was not there when the configuration was read.
            ("/write?name=late&code=ngx.status=203", 200, "written"),
            ("/head", 203, "body"),
        ],
    );
    let mut connection = server.connect();
    connection.send(b"GET /head/none HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_log("logs/error.log", "none.lua\": cannot open ");
    check(&server, &[("/write?name=none&code=ngx.status=204", 200, "written"), ("/head/none", 204, "")]);
}

/// `ngx.ctx` is each request's own, however it comes to be; a location that `echo` asks for is answered
/// before the next command begins.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn requests_have_their_ctx_and_locations_their_turn() {
    let server = server(
        "lua_reserve_vms 0; init_by_lua_block { state = {} }",
        "location = /ctx { content_by_lua_block {
             local first = ngx.ctx
             for i = 1, 100 do ngx.ctx.n = (ngx.ctx.n or 0) + 1 end
             ngx.print(ngx.ctx.n, ' ', ngx.ctx == first, ' ')
             ngx.ctx = { n = 7 }
             ngx.sleep(0)
             ngx.print(ngx.ctx.n, ' ', first.n) } }
         location = /none { content_by_lua_block { ngx.print(tostring(ngx.ctx.n)) } }
         location = /slow { content_by_lua_block { ngx.sleep(0.05) state.is_done = true ngx.say('slow') } }
         location = /look { content_by_lua_block { ngx.say(tostring(state.is_done)) } }
         location = /both { echo_location /slow; echo_location /look; }",
    );
    for _ in 0..3 {
        check(&server, &[("/ctx", 200, "100 true 7 100"), ("/none", 200, "nil")]);
    }
    check(&server, &[("/both", 200, "slow\ntrue\n")]);
}

/// What the process is, and lines of the log as they are.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_knows_its_process_and_writes_plain_lines() {
    let server = server(
        "",
        "location = /process { content_by_lua_block {
             local process = require 'ngx.process'
             ngx.print(process.type(), ' ', process.get_master_pid() == io.open('/proc/self/stat'):read('*n'),
                 ' ',
                 select(2, process.enable_privileged_agent())) } }
         location = /log { content_by_lua_block {
             local errlog = require 'ngx.errlog'
             errlog.raw_log(ngx.WARN, 'a plain line')
             local _, err = pcall(errlog.raw_log, 'x', 'y')
             local is_level = errlog.get_sys_filter_level() == ngx.INFO
             ngx.print(is_level, err:find('must be a number', 1, true) ~= nil)
         } }",
    );
    check(
        &server,
        &[("/process", 200, "single true API disabled in the current context"), ("/log", 200, "truetrue")],
    );
    let log = server.wait_log("logs/error.log", "a plain line");
    let line = log.lines().find(|line| line.contains("a plain line")).expect("it was waited for");
    assert!(!line.contains("[lua]"), "no place in front: {line}");
}

/// Code gets lines as they were said, and longer ones than the file has.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn lines_that_are_kept_are_not_escaped() {
    let server = server(
        "lua_capture_error_log 32k;",
        "location = /lines { content_by_lua_block {
             local errlog = require 'ngx.errlog'
             errlog.set_filter_level(ngx.ERR)
             ngx.log(ngx.ERR, 'own: one\\nother\\0end')
             ngx.log(ngx.ERR, 'own: ', ('x'):rep(3000))
             ngx.log(ngx.ERR, 'own: ', ('y'):rep(9000))
             local kept = {}
             for i, line in ipairs(errlog.get_logs(100)) do
                 if type(line) == 'string' and line:find('own: ', 1, true) then kept[#kept + 1] = line end
             end
             ngx.print(kept[1]:find('one\\nother\\0end, client', 1, true) ~= nil, ' ',
                 kept[2]:find(('x'):rep(3000) .. ', client', 1, true) ~= nil, ' ', #kept[3])
         } }",
    );
    check(&server, &[("/lines", 200, "true true 4095")]);
    let log = server.wait_log("logs/error.log", "yyyy");
    assert!(log.contains("own: one\\x0Aother\\x00end, client"), "the file has them escaped");
    assert!(log.lines().all(|line| line.len() < 2048), "and shorter");
}

/// Lines of the error log are kept for code, up to a size, and taken once (`ngx.errlog`).
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn lines_of_the_log_are_kept_for_code() {
    let server = server(
        "lua_capture_error_log 4k;
         init_by_lua_block {
             -- Other threads may say something as well.
             function own(lines)
                 local found = {}
                 for i = 1, #lines, 3 do
                     if lines[i + 2]:find('own: ', 1, true) then
                         for j = i, i + 2 do found[#found + 1] = lines[j] end
                     end
                 end
                 return found
             end
         }",
        "location = /lines { content_by_lua_block {
             local errlog = require 'ngx.errlog'
             repeat until not errlog.get_logs(100)[1]
             ngx.log(ngx.ERR, 'own: an error') ngx.log(ngx.WARN, 'own: a warning')
             local lines = own(errlog.get_logs())
             ngx.say(#lines, ' ', lines[1] == ngx.ERR, ' ', lines[4] == ngx.WARN, ' ',
                 math.abs(lines[2] - ngx.time()) < 60, ' ',
                 lines[3]:match('%[error%].*an error, client: .*$') ~= nil)
             ngx.print(#own(errlog.get_logs())) } }
         location = /level { content_by_lua_block {
             local errlog = require 'ngx.errlog'
             ngx.print(errlog.set_filter_level(ngx.ERR), ' ')
             repeat until not errlog.get_logs(100)[1]
             ngx.log(ngx.WARN, 'own: a warning') ngx.log(ngx.ERR, 'own: an error')
             ngx.print(#own(errlog.get_logs()), ' ', (select(2, errlog.set_filter_level(99))), ' ')
             ngx.print(errlog.set_filter_level(ngx.DEBUG)) } }
         location = /full { content_by_lua_block {
             local errlog = require 'ngx.errlog'
             for i = 1, 100 do ngx.log(ngx.ERR, 'own: ', i, '.') end
             local lines, reused = errlog.get_logs(5), { 1, 2, 3, 4 }
             local first = tonumber(own(lines)[3]:match('own: (%d+)%.'))
             ngx.print(first > 50, ' ', #lines, ' ', errlog.get_logs(1, reused) == reused, ' ', #reused) } }",
    );
    check(
        &server,
        &[
            ("/lines", 200, "6 true true true true\n0"),
            ("/level", 200, "true 3 bad log level: 99 true"),
            ("/full", 200, "true 15 true 3"),
        ],
    );
}

/// The first run of a handler takes long, as it compiles and requires: the next one finds the values that its
/// module keeps, though another VM is free.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_slow_first_run_leaves_the_next_one_in_its_vm() {
    let server = server(
        "lua_reserve_vms 1;",
        "location = /count {
             content_by_lua_block {
                 local kept = package.loaded.kept
                 if not kept then
                     local began = os.clock()
                     while os.clock() - began < 0.05 do end
                     kept = { n = 0 } package.loaded.kept = kept
                 end
                 kept.n = kept.n + 1 ngx.print(kept.n)
             }
         }",
    );
    let counts: Vec<String> = (1..=5).map(|n| n.to_string()).collect();
    let cases: Vec<_> = counts.iter().map(|count| ("/count", 200, &count[..])).collect();
    check(&server, &cases);
}

/// A location that blocks each time leaves the loop's own VM to others, once it has again since it was known.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
#[cfg_attr(chaos_lend, ignore = "nothing is found out where everything is lent")]
fn what_blocks_again_leaves_the_loops_own_vm() {
    let server = server(
        "lua_reserve_vms 1; init_by_lua_block { blocked = 0 }",
        "location = /block {
             content_by_lua_block {
                 blocked = blocked + 1
                 local began = os.clock()
                 while os.clock() - began < 0.05 do end
                 ngx.print(ngx.worker.id())
             }
         }
         location = /blocked { content_by_lua_block { ngx.print(ngx.worker.id(), ' ', blocked) } }",
    );
    let mut ids = Vec::new();
    while ids.last().is_none_or(|id| id == "0") && ids.len() < 40 {
        ids.push(ask(&server, "/block").1);
    }
    assert_eq!((&ids[..2], &ids[ids.len() - 1][..]), (&["0".to_owned(), "0".to_owned()][..], "1"));
    let (_, own) = ask(&server, "/blocked");
    assert_eq!(own, format!("0 {}", ids.len() - 1));
}

/// A loop is a worker: each has a number of its own, from `init_worker_by_lua` on.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn each_loop_has_the_number_that_the_variable_has() {
    let server = server(
        "init_worker_by_lua_block { first = ngx.worker.pid() }",
        "location = / { content_by_lua_block {
             local is_among, own = false, ngx.worker.pid()
             for _, pid in ipairs(ngx.worker.pids()) do is_among = is_among or pid == own end
             ngx.print(first == own, ' ', own == tonumber(ngx.var.pid), ' ', is_among, ' ',
                 #ngx.worker.pids() == ngx.worker.count())
         } }",
    );
    check(&server, &[("/", 200, "true true true true")]);
}

/// Lines behind a capture have the last action of its request, until another one does something else.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn captures_leave_their_trace_in_the_log() {
    let server = server(
        "",
        "location = /up { proxy_pass http://127.0.0.1:%%PORT%%/cheap; }
         location = / { content_by_lua_block {
             ngx.location.capture('/up') ngx.log(ngx.WARN, 'behind one')
             ngx.location.capture('/cheap') ngx.log(ngx.WARN, 'behind another') ngx.print('done')
         } }",
    );
    check(&server, &[("/", 200, "done")]);
    let log = server.wait_log("logs/error.log", "behind another, client");
    assert!(log.contains("behind one while sending to client, client"), "{log}");
}

/// A response to HTTP/1.0 is kept to find out its length, unless that is said: then it leaves as it is made.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_known_length_is_no_reason_to_keep_a_response() {
    let server = server(
        "",
        "location = / { content_by_lua_block {
             ngx.header['Content-Length'] = 4
             ngx.print('a') ngx.flush(true) ngx.sleep(ngx.var.arg_wait and 60 or 0) ngx.print('bcd')
         } }",
    );
    let mut connection = server.connect();
    connection.send(b"GET /?wait=1 HTTP/1.0\r\n\r\n");
    let mut begun = Vec::new();
    while !begun.ends_with(b"\r\n\r\na") {
        assert_eq!(connection.next_event(PATIENCE), End::Data, "it is sent before the rest is made");
        begun.append(&mut connection.take_received());
    }
    let answer = server.connect().ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!((answer.header("Content-Length"), answer.text()), (Some("4"), "abcd".into()));
}

/// Names of headers, cookies and arguments are no variables to write to, unless the configuration sets them.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn variables_of_arguments_are_written_where_they_are_set() {
    let server = server(
        "",
        "location = /set { set $arg_a 'x';
             content_by_lua_block { ngx.var.arg_a = 'y' ngx.print(ngx.var.arg_a) } }
         location = /not { content_by_lua_block {
             local function write() ngx.var.arg_b = 'y' end
             ngx.print(select(2, pcall(write)):match('not found for writing')) } }
         location = /uri { content_by_lua_block {
             local function write() ngx.var.request_uri = 'y' end
             ngx.print(select(2, pcall(write)):match('not changeable')) } }",
    );
    let cases =
        [("/set", 200, "y"), ("/not?b=1", 200, "not found for writing"), ("/uri", 200, "not changeable")];
    check(&server, &cases);
}

/// With `lua_check_client_abort` the end of a client that is read as a socket has upstream's name.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_raw_socket_tells_that_its_client_has_left() {
    let server = server(
        "",
        "location = / { lua_check_client_abort on; content_by_lua_block {
             assert(ngx.on_abort(function() end))
             ngx.req.read_body()
             local sock = assert(ngx.req.socket(true))
             ngx.log(ngx.WARN, 'raw: ', select(2, sock:receive()))
         } }",
    );
    let mut connection = server.connect();
    connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.finish_sending();
    server.wait_log("logs/error.log", "raw: client aborted");
}
