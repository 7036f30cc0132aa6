//! `lua worker-thread`: calls of `ngx.run_worker_thread` a second, from one coroutine and from eight light
//! threads, beside nginx; and that a keyed VM counts every call.

use std::time::{Duration, Instant};

use clearway_testkit::{Connection, Server};

use super::{server, verdict};
use crate::args::Args;
use crate::servers::{self, User, config_with};
use crate::stats::median;

/// Where the module of calls is.
const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");

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
        ngx.say(n) } }";

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

/// See the file's head.
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
    }
    verdict(&promises)
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
