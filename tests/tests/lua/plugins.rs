//! Plugins of lua-resty-ffi's kind: a library in C that echoes, and one that does what it should not.

use std::path::Path;
use std::process::Command;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, End, Server, Setup};

use super::{ask, check};

/// The first letter of a task says it: `N` is not answered, `T` is answered twice, and addresses of no task
/// as well, `Z` is answered a hundred thousand times, `F` fails, `H` is held until there is a file of that
/// name.
const PLUGIN: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void *ngx_http_lua_ffi_task_poll(void *queue);
char *ngx_http_lua_ffi_get_req(void *task, int *len);
void ngx_http_lua_ffi_respond(void *task, int code, char *answer, int len);

static void *work(void *queue)
{
    void *task;
    while ((task = ngx_http_lua_ffi_task_poll(queue))) {
        int len = -1;
        char *request = ngx_http_lua_ffi_get_req(task, &len), *answer = NULL;
        char what = request ? request[0] : 0;
        if (what == 'N') {
            continue;
        }
        while (what == 'H' && access(request + 1, F_OK)) {
            usleep(1000);
        }
        if (request) {
            answer = malloc(len + 1);
            memcpy(answer, request, len + 1);
        }
        ngx_http_lua_ffi_respond(task, what == 'F' ? 7 : 0, answer, len);
        for (int i = 0; what == 'Z' && i < 100000; i++) {
            ngx_http_lua_ffi_respond(task, 0, NULL, 0);
        }
        if (what == 'T') {
            ngx_http_lua_ffi_respond(task, 0, NULL, 0);
            ngx_http_lua_ffi_respond(NULL, 0, NULL, 0);
            ngx_http_lua_ffi_respond(queue, 0, NULL, 0);
            ngx_http_lua_ffi_get_req(task, NULL);
            ngx_http_lua_ffi_get_req(&len, NULL);
        }
    }
    return NULL;
}

int libffi_init(char *configuration, void *queue)
{
    int threads = configuration ? atoi(configuration) : 1;
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, queue);
        pthread_detach(thread);
    }
    return threads ? 0 : 3;
}
"#;

/// Compiles the plugin into the server's directory.
fn compile(prefix: &Path) {
    let (source, library) = (prefix.join("plugin.c"), prefix.join("libplugin.so"));
    std::fs::write(&source, PLUGIN).expect("the directory is there");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-pthread", "-o"]).arg(&library).arg(&source);
    assert!(compiler.status().expect("there is a compiler").success());
}

fn server(locations: &str) -> Server {
    let config = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\n\
         error_log logs/error.log info;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; lua_shared_dict d 1m;\n\
         init_by_lua_block {{
             require 'resty_ffi'
             function load(configuration, options)
                 return ngx.load_ffi(ngx.config.prefix() .. 'libplugin.so', configuration, options)
             end
             function check(text, plugin)
                 local ok, answer, rest = (plugin or assert(load())):echo(text)
                 if not ok or answer ~= text or rest ~= nil then
                     error(tostring(ok) .. ' ' .. tostring(answer) .. ' ' .. tostring(rest))
                 end
                 return 'ok '
             end
         }}
         server {{ listen 127.0.0.1:%%PORT%%;\n\
         location = /plain {{ return 200 plain; }}\n\
         location = /echo {{ content_by_lua_block {{ ngx.print(check('hello')) }} }}\n{locations}\n }} }}\n"
    );
    Setup::new(Binary::under_test(), &config).prepared(compile).start()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn tasks_are_answered() {
    let server = server(
        "location = /values { content_by_lua_block {
             local plugin = assert(load())
             local ok, answer = plugin:anything()
             ngx.print(check('a\\0b'), check(('x'):rep(1048576)), ok, ' ', answer, ' ', load() == plugin, ' ')
             ngx.print(plugin('call'), ' ', plugin:echo('Fails')) } }
         location = /many { content_by_lua_block {
             for i = 1, 500 do check('m' .. i) end
             local threads = {}
             for i = 1, 20 do
                 threads[i] = ngx.thread.spawn(function() for j = 1, 20 do check(i .. '-' .. j) end end)
             end
             for i = 1, 20 do assert(ngx.thread.wait(threads[i])) end
             ngx.print('ok') } }
         location = /phases {
             rewrite_by_lua_block { ngx.ctx.a = check('rewrite') }
             access_by_lua_block { ngx.ctx.b = check('access') }
             content_by_lua_block { ngx.print(ngx.ctx.a, ngx.ctx.b, check('content')) }
         }
         location = /coroutine { content_by_lua_block {
             local ok, text = pcall(check, 'pcall')
             ngx.print(ok, text, coroutine.wrap(function() return check('inner') end)()) } }
         location = /timer { content_by_lua_block {
             ngx.shared.d:delete('t')
             ngx.timer.at(0, function() ngx.shared.d:set('t', check('timer')) end)
             while not ngx.shared.d:get('t') do ngx.sleep(0.001) end
             ngx.print(ngx.shared.d:get('t')) } }
         location = /raw { content_by_lua_block {
             local ffi = require 'ffi'
             ffi.cdef [[
                 void *ngx_http_lua_ffi_create_task_queue(int max_queue);
                 int libffi_init(char *configuration, void *queue);
             ]]
             local queue = ffi.C.ngx_http_lua_ffi_create_task_queue(10)
             plugin = ffi.load(ngx.config.prefix() .. 'libplugin.so')
             assert(plugin.libffi_init(nil, queue) == 0)
             local text = ffi.C.malloc(4)
             ffi.copy(text, 'abc')
             local request = require('resty.core.base').get_request()
             assert(ffi.C.ngx_http_lua_ffi_task_post(request, queue, text, 3) == 0)
             local ok, answer = coroutine._yield()
             ngx.print(ok, answer, ' ', ffi.C.ngx_http_lua_ffi_task_finish(queue), ' ',
                 ffi.C.ngx_http_lua_ffi_task_post(request, queue, nil, 0)) } }",
    );
    check(
        &server,
        &[
            ("/echo", 200, "ok "),
            ("/values", 200, "ok ok true nil true true false7Fails"),
            ("/many", 200, "ok"),
            ("/phases", 200, "ok ok ok "),
            ("/coroutine", 200, "trueok ok "),
            ("/timer", 200, "ok "),
            ("/raw", 200, "trueabc 0 -1"),
        ],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn runtimes_come_and_go() {
    let server = server(
        "location = /unload { content_by_lua_block {
             local plugin = assert(load())
             check('before', plugin)
             plugin:__unload()
             local ok, err = plugin:echo('x')
             ngx.print(ok, ' ', err, ' ', load() ~= plugin, ' ', check('again')) } }
         location = /refused { content_by_lua_block { ngx.print(load('0')) } }
         location = /missing { content_by_lua_block {
             local ok, err = pcall(ngx.load_ffi, 'no_such_library_here')
             ngx.print(ok, ' ', err:find('no_such_library_here', 1, true) ~= nil) } }
         location = /own { content_by_lua_block {
             local own = load(nil, { per_worker = true })
             ngx.print(own ~= load(), check('own', own)) } }
         location = /set { set_by_lua_block $x { return (select(2, pcall(load, '4'))) } return 200 $x; }",
    );
    check(
        &server,
        &[
            ("/unload", 200, "false task queue is finished true ok "),
            ("/refused", 200, "nil3"),
            ("/missing", 200, "false true"),
            ("/own", 200, "trueok "),
            ("/echo", 200, "ok "),
        ],
    );
    let (_, text) = ask(&server, "/set");
    assert!(text.contains("API disabled in the context of set_by_lua*"), "{text}");
}

/// What a plugin does wrong costs the task that it is about, and nothing else.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn faults_of_plugins_stay_with_them() {
    let mut server = server(
        "location = /twice { content_by_lua_block {
             for i = 1, 100 do check('Twice' .. i) end
             ngx.print('ok') } }
         location = /flood { content_by_lua_block {
             local threads = {}
             for i = 1, 5 do threads[i] = ngx.thread.spawn(check, 'Zillions' .. i) end
             for i = 1, 5 do assert(ngx.thread.wait(threads[i])) end
             ngx.print(check('behind')) } }
         location = /late { lua_check_client_abort on; content_by_lua_block {
             local path = ngx.config.prefix() .. 'late'
             os.remove(path)
             ngx.on_abort(function() io.open(path, 'w'):close() ngx.exit(499) end)
             ngx.say('begun') ngx.flush(true)
             assert(load()):echo('H' .. path) } }
         location = /never { content_by_lua_block {
             ngx.print('never' , ngx.flush(true)) assert(load()):echo('Never') } }
         location = /killed { content_by_lua_block {
             local plugin = assert(load('2'))
             local thread = ngx.thread.spawn(plugin.echo, plugin, 'H' .. ngx.config.prefix() .. 'go')
             ngx.thread.kill(thread)
             ngx.print(check('beside', plugin)) } }
         location = /full { content_by_lua_block {
             local path = ngx.config.prefix() .. 'go'
             os.remove(path)
             local plugin, threads, refused = assert(load('1', { max_queue = 2 })), {}, 0
             for i = 1, 4 do
                 threads[i] = ngx.thread.spawn(function()
                     local ok, err = plugin:echo('H' .. path)
                     if not ok then assert(err == 'post failed, queue full', err) refused = refused + 1 end
                 end)
             end
             local before = refused
             io.open(path, 'w'):close()
             for i = 1, 4 do ngx.thread.wait(threads[i]) end
             ngx.print(before > 0 and before == refused) } }",
    );
    check(
        &server,
        &[("/twice", 200, "ok"), ("/flood", 200, "ok "), ("/killed", 200, "ok "), ("/full", 200, "true")],
    );
    for _ in 0..3 {
        // It is held until the client has left, and answered then.
        let mut leaving = server.connect();
        leaving.send(b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut said = Vec::new();
        while !said.windows(5).any(|part| part == b"begun") {
            assert_eq!(leaving.next_event(PATIENCE), End::Data, "{}", server.error_log());
            said.extend(leaving.take_received());
        }
        drop(leaving);
        check(&server, &[("/echo", 200, "ok ")]);
    }
    for _ in 0..3 {
        let mut leaving = server.connect();
        leaving.send(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    check(&server, &[("/echo", 200, "ok "), ("/plain", 200, "plain")]);
    assert!(server.stop().success(), "it ends with threads of a plugin in it");
}

/// A plugin that does not answer is told of, as a stall is.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_plugin_that_does_not_answer_is_reported() {
    let server = server("location = /never { content_by_lua_block { assert(load()):echo('Never') } }");
    let mut waiting = server.connect();
    waiting.send(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_log("logs/error.log", "a plugin has not answered a task of Lua for 5 s");
    check(&server, &[("/echo", 200, "ok "), ("/plain", 200, "plain")]);
}

/// Signals reach the server although threads of a plugin do not block them.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_reload_has_the_same_runtime() {
    let server = server("location = /address { content_by_lua_block { ngx.print(assert(load()).address) } }");
    let (status, address) = ask(&server, "/address");
    assert!(status == 200 && !address.is_empty(), "{address}");
    server.signal(rustix::process::Signal::HUP);
    server.wait_log("logs/error.log", "(SIGHUP) received");
    for _ in 0..20 {
        check(&server, &[("/address", 200, &address), ("/echo", 200, "ok ")]);
    }
}
