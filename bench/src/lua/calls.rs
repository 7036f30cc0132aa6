//! `lua worker-thread`: calls of `ngx.run_worker_thread` a second, from one coroutine and from eight light
//! threads, beside nginx; that a keyed VM counts every call and finds its connections again; and how late
//! cheap requests are beside calls. `lua plugins`: the same of tasks of a plugin in C (lua-resty-ffi), from
//! one coroutine and from twenty light threads, beside calls of nginx's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::{Connection, Server};

use super::{server, verdict};
use crate::args::Args;
use crate::closed::Next;
use crate::connection::request;
use crate::open_loop::{self, Requests, Schedule};
use crate::servers::{self, User, config_with, socket_address};
use crate::stats::{Latencies, median};

/// Where the module of calls is.
pub(super) const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");

const LOCATIONS: &str = "
    location /one { content_by_lua_block {
        local call, n = ngx.run_worker_thread, tonumber(ngx.var.arg_n)
        assert(call('w', 'bench_calls', 'echo', 'x'))
        ngx.update_time() local began = ngx.now()
        for i = 1, n do assert(call('w', 'bench_calls', 'echo', 'sixteen bytes...')) end
        ngx.update_time() ngx.say(n / (ngx.now() - began)) } }
    location /eight { content_by_lua_block {
        local call, n, threads = ngx.run_worker_thread, tonumber(ngx.var.arg_n), {}
        assert(call('w', 'bench_calls', 'echo', 'x'))
        ngx.update_time() local began = ngx.now()
        for t = 1, 8 do
            threads[t] = ngx.thread.spawn(function()
                for i = 1, n / 8 do assert(call('w', 'bench_calls', 'echo', 'sixteen bytes...')) end
            end)
        end
        for t = 1, 8 do assert(ngx.thread.wait(threads[t])) end
        ngx.update_time() ngx.say(n / (ngx.now() - began)) } }
    location /count { content_by_lua_block {
        local _, n = ngx.run_worker_thread({ pool = 'w', key = 'k' }, 'bench_calls', 'count')
        ngx.say(n) } }
    location /memory { content_by_lua_block {
        local _, n = ngx.run_worker_thread({ pool = 'w', key = 'k' }, 'bench_calls', 'memory')
        ngx.say(n) } }
    location /reused { content_by_lua_block {
        local reused, port = 0, tonumber(ngx.var.server_port)
        for i = 1, 1000 do
            local ok, times = ngx.run_worker_thread({ pool = 'w', key = 'k' }, 'bench_calls', 'fetch', port)
            assert(ok, times)
            if times > 0 then reused = reused + 1 end
        end
        ngx.say(reused) } }";

/// Locations with a plugin of lua-resty-ffi's kind.
const PLUGIN_LOCATIONS: &str = "
    location /plugin_one { content_by_lua_block {
        local plugin, n = load(), tonumber(ngx.var.arg_n)
        assert(plugin:echo('x'))
        ngx.update_time() local began = ngx.now()
        for i = 1, n do assert(plugin:echo('sixteen bytes...')) end
        ngx.update_time() ngx.say(n / (ngx.now() - began)) } }
    location /plugin_twenty { content_by_lua_block {
        local plugin, n, threads = load(), tonumber(ngx.var.arg_n), {}
        assert(plugin:echo('x'))
        ngx.update_time() local began = ngx.now()
        for t = 1, 20 do
            threads[t] = ngx.thread.spawn(function()
                for i = 1, n / 20 do assert(plugin:echo('sixteen bytes...')) end
            end)
        end
        for t = 1, 20 do assert(ngx.thread.wait(threads[t])) end
        ngx.update_time() ngx.say(n / (ngx.now() - began)) } }";

/// A thread that answers each task with its own text; one that begins with `B` takes it 10 ms before.
const PLUGIN: &str = "
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static long used_us(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * 1000000 + used.tv_nsec / 1000;
}
void *ngx_http_lua_ffi_task_poll(void *queue);
char *ngx_http_lua_ffi_get_req(void *task, int *len);
void ngx_http_lua_ffi_respond(void *task, int code, char *answer, int len);
static void *work(void *queue)
{
    void *task;
    while ((task = ngx_http_lua_ffi_task_poll(queue))) {
        int len = 0;
        char *request = ngx_http_lua_ffi_get_req(task, &len), *answer = malloc(len + 1);
        for (long end_us = used_us() + 10000; *request == 'B' && used_us() < end_us;) {
        }
        memcpy(answer, request, len);
        answer[len] = 0;
        ngx_http_lua_ffi_respond(task, 0, answer, len);
    }
    return NULL;
}
int libffi_init(char *configuration, void *queue)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, work, queue) || pthread_detach(thread);
}
";

/// How much later cheap requests may be beside calls than beside nothing, at the 99th percentile, ms.
const CHEAP_LATER_MS: f64 = 3.0;
const CHEAP_PER_SECOND: f64 = 1000.0;
const CHEAP_SECONDS: u64 = 4;
/// Of a thousand calls so many find the connection of the one before.
const REUSED_MIN: f64 = 990.0;

/// What is promised beside the first server, from one coroutine and from eight light threads.
const PROMISES: [(&str, f64); 2] = [("/one", 1.0), ("/eight", 1.7)];

fn start(name: &str, threads: u32) -> Result<Server, String> {
    let (binary, main) = server(name)?;
    let main = format!("{main}\nthread_pool w threads={threads};");
    let http = format!("lua_package_path \"{MODULES}/?.lua;;\";");
    Ok(servers::start(&binary, &config_with(1, &main, &http, LOCATIONS), User::Same, None))
}

fn ask(server: &Server, path: &str) -> Result<f64, String> {
    let mut connection = Connection::open(&server.address()).map_err(|error| error.to_string())?;
    let text = connection.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).text();
    text.trim().parse().map_err(|_| format!("{path}: {text}"))
}

/// Runs `lua worker-thread`.
pub(super) fn command(mut args: Args) -> Result<(), String> {
    let names = args.list("servers", "nginx,clearway");
    let repetitions: usize = args.take("reps", 5)?;
    let calls: u32 = args.take("calls", 100_000)?;
    let threads: u32 = args.take("threads", 1)?;
    let seconds: u64 = args.take("secs", 0)?;
    args.finish()?;
    let running = names.iter().map(|name| start(name, threads)).collect::<Result<Vec<_>, _>>()?;
    let mut promises = Vec::new();
    for (path, least) in PROMISES {
        let mut ratios = Vec::new();
        for _ in 0..repetitions {
            let rates = running
                .iter()
                .map(|server| ask(server, &format!("{path}?n={calls}")))
                .collect::<Result<Vec<_>, _>>()?;
            println!("{path}: calls/s {rates:.0?}");
            ratios.push(rates[rates.len() - 1] / rates[0]);
        }
        let ratio = median(&ratios);
        println!("{path}: median ratio {ratio:.3}");
        if running.len() > 1 {
            promises.push((ratio >= least, format!("{path}: {ratio:.3} of {}", names[0])));
        }
    }
    let own = &running[running.len() - 1];
    if names[names.len() - 1] == "clearway" {
        promises.extend(keeps(own, Duration::from_secs(seconds))?);
        let reused = ask(own, "/reused")?;
        println!("{reused} of 1000 calls of one key have found their connection");
        promises.push((reused >= REUSED_MIN, format!("only {reused} of 1000 connections were used again")));
        promises.extend(beside(own, &["/one", "/eight"])?);
    }
    verdict(&promises)
}

/// Compiles the plugin into a directory of its own.
pub(super) fn compile() -> Result<PathBuf, String> {
    let dir = std::env::temp_dir().join(format!("clearway-bench-plugin-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let (source, library) = (dir.join("plugin.c"), dir.join("plugin.so"));
    std::fs::write(&source, PLUGIN).map_err(|error| error.to_string())?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-pthread", "-o"]).arg(&library).arg(&source);
    match compiler.status() {
        Ok(status) if status.success() => Ok(library),
        Ok(status) => Err(format!("cc: {status}")),
        Err(error) => Err(format!("cc: {error}")),
    }
}

/// Runs `lua plugins`.
pub(super) fn plugins(mut args: Args) -> Result<(), String> {
    let repetitions: usize = args.take("reps", 5)?;
    let calls: u32 = args.take("calls", 100_000)?;
    args.finish()?;
    let library = compile()?;
    let (nginx, own) = (start("nginx", 1)?, start_with(&library)?);
    let mut promises = Vec::new();
    let rows = [("/plugin_one", "/one", 1.0), ("/plugin_twenty", "/eight", 1.7)];
    for (path, calls_of_nginx, least) in rows {
        let mut ratios = Vec::new();
        for _ in 0..repetitions {
            let before = ask(&nginx, &format!("{calls_of_nginx}?n={calls}"))?;
            let rate = ask(&own, &format!("{path}?n={calls}"))?;
            println!("{path}: tasks/s {rate:.0}, nginx's {calls_of_nginx}: calls/s {before:.0}");
            ratios.push(rate / before);
        }
        let ratio = median(&ratios);
        println!("{path}: median ratio {ratio:.3}");
        promises.push((ratio >= least, format!("{path}: {ratio:.3} of nginx's calls, not {least}")));
    }
    promises.extend(beside(&own, &["/plugin_one", "/plugin_twenty"])?);
    if let Some(dir) = library.parent() {
        let _ = std::fs::remove_dir_all(dir);
    }
    verdict(&promises)
}

fn start_with(library: &Path) -> Result<Server, String> {
    let (binary, main) = server("clearway")?;
    let http = format!(
        "init_by_lua_block {{ require 'resty_ffi' function load() return assert(ngx.load_ffi('{}')) end }}",
        library.display()
    );
    Ok(servers::start(&binary, &config_with(1, &main, &http, PLUGIN_LOCATIONS), User::Same, None))
}

/// Cheap requests on a schedule, beside an idle server and beside each of these.
fn beside(server: &Server, paths: &[&str]) -> Result<Vec<(bool, String)>, String> {
    let idle_ms = cheap_p99_ms(server)?;
    println!("cheap requests beside nothing: p99 {idle_ms:.2} ms");
    let mut promises = Vec::new();
    for path in paths {
        let is_over = AtomicBool::new(false);
        let (p99_ms, calls) = thread::scope(|scope| {
            let calling = scope.spawn(|| {
                let mut calls = 0;
                while !is_over.load(Ordering::Relaxed) && ask(server, &format!("{path}?n=20000")).is_ok() {
                    calls += 20_000;
                }
                calls
            });
            let p99_ms = cheap_p99_ms(server);
            is_over.store(true, Ordering::Relaxed);
            (p99_ms, calling.join().unwrap_or(0))
        });
        let p99_ms = p99_ms?;
        println!("cheap requests beside {path} ({calls} calls): p99 {p99_ms:.2} ms");
        let what = format!("{path}: p99 of cheap requests {p99_ms:.2} ms, idle {idle_ms:.2}");
        promises.push((calls > 0 && p99_ms <= idle_ms + CHEAP_LATER_MS, what));
    }
    Ok(promises)
}

fn cheap_p99_ms(server: &Server) -> Result<f64, String> {
    let schedule = Schedule {
        to: socket_address(server),
        requests: Requests::Same(request("/cheap", "keep-alive")),
        connections: 16,
        requests_per_second: CHEAP_PER_SECOND,
        duration: Duration::from_secs(CHEAP_SECONDS),
        grace: open_loop::GRACE,
        next: Next::SameConnection,
    };
    let outcome = open_loop::run(&schedule, |_| {}).map_err(|error| error.to_string())?;
    match outcome.failed.len() {
        0 => {
            Ok(Latencies::new(outcome.answered.iter().map(|(_, latency)| *latency).collect())
                .quantile_ms(0.99))
        }
        failed => Err(format!("{failed} cheap requests failed")),
    }
}

/// A keyed VM counts every call, and its memory stays.
fn keeps(server: &Server, limit: Duration) -> Result<Vec<(bool, String)>, String> {
    let (began, mut calls) = (Instant::now(), 0.0);
    let before = ask(server, "/memory")?;
    let mut counted = 0.0;
    while calls < 1000.0 || began.elapsed() < limit {
        counted = ask(server, "/count")?;
        calls += 1.0;
    }
    let after = ask(server, "/memory")?;
    println!("{calls} calls of one key, {counted} counted; its VM had {before:.0} KiB and has {after:.0}");
    Ok(vec![
        (counted == calls, format!("{counted} of {calls} calls were counted")),
        (after < 2.0 * before + 8192.0, format!("the VM grew from {before:.0} to {after:.0} KiB")),
    ])
}
