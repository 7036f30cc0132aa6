//! `lua blocked` and `lua soak`: one location's Lua spins or sleeps for a tenth of a second, 50 times a
//! second; beside it, on a schedule, connections that have nothing to do with Lua and connections whose Lua
//! is short. `lua remedies`: a handler that takes 10 ms of CPU, or waits so long for a program, as often; and
//! the same in a thread of a pool, in a plugin and with `ngx.pipe`.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clearway_testkit::Server;
use clearway_testkit::process::{rss_bytes, threads};

use super::calls::{MODULES, compile};
use super::{server, under_test, verdict};
use crate::args::Args;
use crate::closed::Next;
use crate::connection::request;
use crate::open_loop::{self, Requests, Schedule, ScheduleOutcome};
use crate::servers::{self, User, config, config_with, socket_address, total};
use crate::stats::Latencies;

/// Of the first second the reserve is made, and the location gets known.
const FIRST: Duration = Duration::from_secs(1);
const BLOCKING_PER_SECOND: f64 = 50.0;
const BLOCKING_CONNECTIONS: usize = 50;
/// Answers of those that block may take long: each waits for the one before.
const GRACE: Duration = Duration::from_secs(30);
/// What connections without Lua may be later than beside an idle server, at the 99th percentile, ms.
const CHEAP_LATER_MS: f64 = 3.0;
/// The same of Lua that is short.
const LUA_LATER_MS: f64 = 10.0;
const WINDOW: Duration = Duration::from_secs(10);
const GROWTH_PERCENT: u64 = 10;

/// How much is asked for.
#[derive(Clone, Copy)]
struct Rates {
    cheap: f64,
    lua: f64,
}

/// What was seen in one run.
struct Seen {
    cheap: Latencies,
    lua: Latencies,
    /// The location's own.
    blocking: Latencies,
    held: usize,
    lost: usize,
}

const LOCATIONS: &str = "
    location /lua { content_by_lua_block { ngx.say(\"hello\") } }
    location /spin { content_by_lua_block {
        ngx.update_time()
        local till = ngx.now() + 0.1
        while ngx.now() < till do ngx.update_time() end
        ngx.say(\"done\") } }
    location /sleep { content_by_lua_block {
        local ffi = require \"ffi\"
        pcall(ffi.cdef, \"int usleep(unsigned int us);\")
        ffi.C.usleep(100000)
        ngx.say(\"done\") } }";

pub(super) fn command(mut args: Args) -> Result<(), String> {
    let names = args.list("servers", "clearway,nginx");
    let loops = args.list("loops", "1,2");
    let seconds: u64 = args.take("secs", 6)?;
    let rates = Rates { cheap: args.take("rate", 5000.0)?, lua: args.take("lua-rate", 500.0)? };
    args.finish()?;
    let mut promises = Vec::new();
    for count in &loops {
        let count: usize = count.parse().map_err(|_| format!("--loops {count}: not a number"))?;
        for name in &names {
            println!("\n{name}, {count} loop(s), {} + {} requests/s, {seconds} s", rates.cheap, rates.lua);
            let mut idle = None;
            for held in ["", "/spin", "/sleep"] {
                let running = start(name, count)?;
                let length = FIRST + Duration::from_secs(seconds);
                let seen = measure(socket_address(&running), held, rates, length)
                    .map_err(|error| format!("{name}: {error}"))?;
                println!("{}", row(held, &seen));
                if name == "clearway" {
                    let what = format!("{count} loop(s), {held}");
                    promises.push((seen.lost == 0, format!("{what}: {} were lost", seen.lost)));
                    if let Some((cheap_ms, lua_ms)) = idle {
                        promises.extend(judge(&what, &seen, cheap_ms, lua_ms));
                    }
                }
                idle.get_or_insert((seen.cheap.quantile_ms(0.99), seen.lua.quantile_ms(0.99)));
            }
        }
    }
    verdict(&promises)
}

/// The rows of `lua remedies`: (a name, the location).
const REMEDIES: [(&str, &str); 6] = [
    ("nothing", ""),
    ("computes in the handler", "/burn"),
    ("computes in a thread of a pool", "/burn_thread"),
    ("computes in a plugin", "/burn_plugin"),
    ("waits in os.execute", "/wait"),
    ("waits with ngx.pipe", "/wait_pipe"),
];

const REMEDY_LOCATIONS: &str = "
    location /lua { content_by_lua_block { ngx.say('hello') } }
    location /burn { content_by_lua_block {
        require('bench_calls').burn(0.01)
        ngx.say('done') } }
    location /burn_thread { content_by_lua_block {
        assert(ngx.run_worker_thread('w', 'bench_calls', 'burn', 0.01))
        ngx.say('done') } }
    location /burn_plugin { content_by_lua_block {
        assert(load():echo('Burn'))
        ngx.say('done') } }
    location /wait { content_by_lua_block {
        os.execute('sleep 0.01')
        ngx.say('done') } }
    location /wait_pipe { content_by_lua_block {
        assert(require('ngx.pipe').spawn({ 'sleep', '0.01' })):wait()
        ngx.say('done') } }";

/// The latencies of others beside each.
pub(super) fn remedies(mut args: Args) -> Result<(), String> {
    let seconds: u64 = args.take("secs", 5)?;
    let rates = Rates { cheap: args.take("rate", 1000.0)?, lua: args.take("lua-rate", 500.0)? };
    args.finish()?;
    let library = compile()?;
    let (binary, main) = under_test();
    let main = format!("{main}\nthread_pool w threads=1;");
    let http = format!(
        "lua_package_path \"{MODULES}/?.lua;;\";
         init_by_lua_block {{ require 'resty_ffi' function load() return assert(ngx.load_ffi('{}')) end }}",
        library.display()
    );
    let mut lost = 0;
    for (what, path) in REMEDIES {
        let config = config_with(1, &main, &http, REMEDY_LOCATIONS);
        let running = servers::start(&binary, &config, User::Same, None);
        let length = FIRST + Duration::from_secs(seconds);
        let seen =
            measure(socket_address(&running), path, rates, length).map_err(|error| error.to_string())?;
        println!("{what}\n  {}", row(path, &seen));
        if seen.held > 0 {
            let own = &seen.blocking;
            println!("  its own p50 {:.1} p99 {:.1} ms", own.quantile_ms(0.5), own.quantile_ms(0.99));
        }
        lost += seen.lost;
    }
    if let Some(dir) = library.parent() {
        let _ = std::fs::remove_dir_all(dir);
    }
    verdict(&[(lost == 0, format!("{lost} requests were lost"))])
}

fn judge(what: &str, seen: &Seen, cheap_ms: f64, lua_ms: f64) -> [(bool, String); 2] {
    let (cheap, lua) = (seen.cheap.quantile_ms(0.99), seen.lua.quantile_ms(0.99));
    [
        (cheap <= cheap_ms + CHEAP_LATER_MS, format!("{what}: p99 {cheap:.2} ms, idle {cheap_ms:.2} ms")),
        (lua <= lua_ms + LUA_LATER_MS, format!("{what}: p99 of Lua {lua:.2} ms, idle {lua_ms:.2} ms")),
    ]
}

fn start(name: &str, loops: usize) -> Result<Server, String> {
    let (binary, main) = server(name)?;
    Ok(servers::start(&binary, &config(loops, &main, LOCATIONS), User::Same, None))
}

fn row(held: &str, seen: &Seen) -> String {
    let name = if held.is_empty() { "idle" } else { held };
    format!(
        "{name:<7} without Lua p50 {:>7.2} p99 {:>8.2} max {:>8.1} ms | Lua p50 {:>7.2} p99 {:>8.2} \
         max {:>8.1} ms | {} held, {} lost",
        seen.cheap.quantile_ms(0.5),
        seen.cheap.quantile_ms(0.99),
        seen.cheap.max_ms(),
        seen.lua.quantile_ms(0.5),
        seen.lua.quantile_ms(0.99),
        seen.lua.max_ms(),
        seen.held,
        seen.lost,
    )
}

/// Three loads at once, each on a thread of its own.
fn measure(to: SocketAddr, held: &str, rates: Rates, length: Duration) -> io::Result<Seen> {
    let schedule = |path: &str, connections, requests_per_second, grace| Schedule {
        to,
        requests: Requests::Same(request(path, "keep-alive")),
        connections,
        requests_per_second,
        duration: length,
        grace,
        next: Next::SameConnection,
    };
    let cheap = schedule("/cheap", 64, rates.cheap, open_loop::GRACE);
    let lua = schedule("/lua", 16, rates.lua, open_loop::GRACE);
    let blocking = schedule(held, BLOCKING_CONNECTIONS, BLOCKING_PER_SECOND, GRACE);
    let (cheap, lua, blocking) = thread::scope(|scope| {
        let run = |schedule| scope.spawn(move || open_loop::run(schedule, |_| {}));
        let (cheap, lua) = (run(&cheap), run(&lua));
        let blocking = (!held.is_empty()).then(|| run(&blocking));
        let end = |thread: thread::ScopedJoinHandle<'_, io::Result<ScheduleOutcome>>| {
            thread.join().expect("the client does not panic")
        };
        (end(cheap), end(lua), blocking.map(end))
    });
    let (cheap, lua, blocking) = (cheap?, lua?, blocking.transpose()?.unwrap_or_default());
    Ok(Seen {
        held: blocking.answered.len(),
        lost: cheap.failed.len() + lua.failed.len() + blocking.failed.len(),
        cheap: behind_first(&cheap),
        lua: behind_first(&lua),
        blocking: behind_first(&blocking),
    })
}

fn behind_first(outcome: &ScheduleOutcome) -> Latencies {
    let late = outcome.answered.iter().filter(|(due, _)| *due >= FIRST);
    Latencies::new(late.map(|(_, latency)| *latency).collect())
}

/// `lua soak MINUTES`: windows of ten seconds, by turns with spins and with sleeps.
pub(super) fn soak(mut args: Args, minutes: u64) -> Result<(), String> {
    let loops: usize = args.take("loops", 2)?;
    let rates = Rates { cheap: args.take("rate", 2000.0)?, lua: args.take("lua-rate", 500.0)? };
    args.finish()?;
    let (binary, main) = under_test();
    let server = servers::start(&binary, &config(loops, &main, LOCATIONS), User::Same, None);
    let to = socket_address(&server);
    let (mut lost, mut sizes) = (0, Vec::new());
    for number in 0..(minutes * 60 / WINDOW.as_secs()).max(3) {
        let held = if number % 2 == 0 { "/spin" } else { "/sleep" };
        let seen = measure(to, held, rates, WINDOW).map_err(|error| error.to_string())?;
        let (rss, threads) = (total(&server, rss_bytes), total(&server, threads));
        println!(
            "{:>5} s {} | RSS {:.1} MiB, {threads} threads",
            (number + 1) * WINDOW.as_secs(),
            row(held, &seen),
            rss as f64 / 1048576.0
        );
        lost += seen.lost;
        sizes.push(rss);
    }
    let (settled, last) = (sizes[sizes.len() / 3], sizes[sizes.len() - 1]);
    verdict(&[
        (lost == 0, format!("{lost} requests were lost")),
        (
            last <= settled + settled * GROWTH_PERCENT / 100,
            format!("memory grew from {settled} to {last} bytes"),
        ),
    ])
}
