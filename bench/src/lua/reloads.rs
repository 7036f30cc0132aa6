//! `lua reload`: reloads while requests of Lua come, each tenth with an `init_by_lua` that fails: no request
//! fails, the old configuration goes on where the new one cannot, and memory stays as it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clearway_testkit::process::rss_bytes;
use clearway_testkit::{Setup, wait_until};
use rustix::process::Signal;

use super::{under_test, verdict};
use crate::args::Args;
use crate::closed::{self, End, Load, Next};
use crate::connection::request;
use crate::servers::{config_with, socket_address, total};

const PATIENCE: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 16;
/// By how much memory may grow over all reloads but the first few.
const GROWTH_PERCENT: u64 = 5;
/// Each so many reloads one fails.
const FAILING: usize = 10;

fn text(main: &str, number: usize, fails: bool) -> String {
    let init = if fails { "error('on purpose')" } else { "" };
    let http = format!(
        "lua_shared_dict counters 1m; init_by_lua_block {{ number = {number} {init} }}\n\
         init_worker_by_lua_block {{ ngx.shared.counters:incr('workers', 1, 0) }}"
    );
    let locations = "location /lua { content_by_lua_block {
            ngx.ctx.n = ngx.shared.counters:incr('n', 1, 0)
            ngx.say(number) } }";
    config_with(1, main, &http, locations)
}

pub(super) fn command(mut args: Args) -> Result<(), String> {
    let rounds: usize = args.take("rounds", 100)?;
    args.finish()?;
    let (binary, main) = under_test();
    let mut server = Setup::new(binary, &text(&main, 0, false)).start();
    let load = Load {
        to: socket_address(&server),
        request: request("/lua", "keep-alive"),
        connections: CONNECTIONS,
        next: Next::SameConnection,
        end: End::Awaited,
    };
    let stop = AtomicBool::new(false);
    let (tally, stuck, sizes) = thread::scope(|scope| {
        let load = scope.spawn(|| closed::run(&load, &stop));
        let (mut expected, mut stuck, mut failures, mut sizes) = (0, 0, 0, Vec::new());
        for round in 1..=rounds {
            let fails = round % FAILING == 0;
            server.configure(&text(&main, round, fails));
            server.signal(Signal::HUP);
            failures += usize::from(fails);
            let done = wait_until(PATIENCE, || match fails {
                true => server.error_log().matches("init_by_lua error: ").count() >= failures,
                false => server.get("/lua").text().trim() == round.to_string(),
            });
            expected = if fails { expected } else { round };
            let answers = server.get("/lua").text().trim() == expected.to_string();
            stuck += usize::from(!done || !answers);
            if round % (rounds / 10).max(1) == 0 {
                sizes.push(total(&server, rss_bytes));
                println!("{round:>4} reloads, RSS {:.1} MiB", sizes[sizes.len() - 1] as f64 / 1_048_576.0);
            }
        }
        stop.store(true, Ordering::Relaxed);
        (load.join().expect("the client does not panic"), stuck, sizes)
    });
    let tally = tally.map_err(|error| format!("load: {error}"))?;
    println!("{} requests answered, {} failed", tally.answered, tally.failed);
    let (early, late) = (sizes[sizes.len() / 5], sizes[sizes.len() - 1]);
    verdict(&[
        (tally.failed == 0, format!("{} requests failed", tally.failed)),
        (stuck == 0, format!("{stuck} reloads did not end as they should")),
        (late <= early + early * GROWTH_PERCENT / 100, format!("memory grew from {early} to {late} bytes")),
    ])
}
