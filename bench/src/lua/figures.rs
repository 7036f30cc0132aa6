//! `lua cpu`, `lua garbage`, `lua loops`: what short Lua costs.

use std::time::Duration;

use clearway_testkit::{Connection, Server};

use super::{server, under_test, verdict};
use crate::args::Args;
use crate::closed::{End, Load, Next};
use crate::connection::request;
use crate::cpu::{self, CONNECTIONS, SERVER_CORES};
use crate::servers::{self, Named, User, config_with, socket_address};
use crate::stats::median;

const HTTP: &str = "lua_shared_dict counters 1m;";

const LOCATIONS: &str = "
    location /hello { content_by_lua_block { ngx.say(\"hello\") } }
    location /operations { content_by_lua_block {
        local n = 0
        for i = 1, 10 do
            local m = ngx.re.match(\"/user/\" .. i .. \"/posts\", [[^/user/(\\d+)/(\\w+)$]], \"jo\")
            ngx.ctx.sum = (ngx.ctx.sum or 0) + m[1]
            n = n + #ngx.var.request_method
        end
        ngx.say(n + ngx.ctx.sum) } }
    location /incr { content_by_lua_block { ngx.say(ngx.shared.counters:incr(\"n\", 1, 0)) } }
    location /incr_own { content_by_lua_block {
        ngx.say(ngx.shared.counters:incr(\"n\" .. ngx.worker.id(), 1, 0)) } }
    location /count { content_by_lua_block { ngx.say(collectgarbage(\"count\")) } }
    location /stop { content_by_lua_block {
        collectgarbage() collectgarbage(\"stop\") ngx.say(\"stopped\") } }";

/// What is measured, and which share of nginx's CPU it may use.
const ROWS: [(&str, f64); 4] =
    [("/cheap", f64::INFINITY), ("/hello", 0.97), ("/operations", 0.85), ("/incr", 0.97)];

/// What a request of Lua may cost beyond `return 200`, microseconds.
const SHARE_MAX_US: f64 = 0.5;

fn start(name: &str, loops: usize, cores: Option<&str>) -> Result<Server, String> {
    let (binary, main) = server(name)?;
    Ok(servers::start(&binary, &config_with(loops, &main, HTTP, LOCATIONS), User::Same, cores))
}

fn load(server: &Server, path: &str) -> Load {
    Load {
        to: socket_address(server),
        request: request(path, "keep-alive"),
        connections: CONNECTIONS,
        next: Next::SameConnection,
        end: End::Dropped,
    }
}

/// Servers that run side by side on one core, the one under test last.
pub(super) struct SideBySide {
    pub(super) running: Vec<Server>,
    named: Vec<Named>,
    repetitions: usize,
    length: Duration,
}

impl SideBySide {
    /// Starts the servers that the arguments name, each by `start`.
    pub(super) fn start(
        mut args: Args,
        start: impl Fn(&str) -> Result<Server, String>,
    ) -> Result<Self, String> {
        let names = args.list("servers", "nginx,clearway");
        let repetitions = args.take("reps", 5)?;
        let length = Duration::from_secs(args.take("secs", 3)?);
        args.finish()?;
        let named = names
            .iter()
            .map(|name| Ok(Named { name: name.clone(), binary: server(name)?.0 }))
            .collect::<Result<Vec<_>, String>>()?;
        let running = names.iter().map(|name| start(name)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { running, named, repetitions, length })
    }

    /// The name of the server that the others are compared with.
    pub(super) fn first(&self) -> &str {
        &self.named[0].name
    }

    /// Requests of one path, by turns: the median ratio of the last server to the first one, and the median
    /// CPU of the last one, microseconds per request.
    pub(super) fn compare(&self, path: &str) -> Result<(f64, f64), String> {
        println!("{path}: CPU µs per request, side by side on one core; the ratio is to {}", self.first());
        let loads: Vec<Load> = self.running.iter().map(|server| load(server, path)).collect();
        let (mut ratios, mut last_us) = (Vec::new(), Vec::new());
        for repetition in 0..self.repetitions {
            let measured = cpu::measure(&self.running, &loads, self.length)?;
            println!("{}", cpu::row(&format!("{}", repetition + 1), &self.named, &measured));
            let own = measured[measured.len() - 1].0;
            ratios.push(own / measured[0].0);
            last_us.push(own);
        }
        let ratio = median(&ratios);
        println!("median ratio {ratio:.3} ({})", cpu::range(&ratios));
        Ok((ratio, median(&last_us)))
    }
}

/// Side by side on one core, as `cpu` does it.
pub(super) fn cpu(args: Args) -> Result<(), String> {
    let servers = SideBySide::start(args, |name| start(name, 1, Some(SERVER_CORES)))?;
    let (mut promises, mut costs_us) = (Vec::new(), Vec::new());
    for (path, most) in ROWS {
        println!();
        let (ratio, last_us) = servers.compare(path)?;
        costs_us.push(last_us);
        promises.push((ratio <= most, format!("{path}: {ratio:.3} of {}", servers.first())));
    }
    let share_us = costs_us[1] - costs_us[0];
    println!("\n{}'s /hello beyond /cheap: {share_us:.2} µs", servers.named[servers.named.len() - 1].name);
    promises.push((share_us <= SHARE_MAX_US, format!("Lua costs {share_us:.2} µs beyond return 200")));
    verdict(&promises)
}

/// Without its collector a VM keeps all that a request leaves behind.
pub(super) fn garbage(mut args: Args) -> Result<(), String> {
    let requests: u32 = args.take("requests", 100_000)?;
    args.finish()?;
    let (binary, main) = under_test();
    let server = servers::start(&binary, &config_with(1, &main, HTTP, LOCATIONS), User::Same, None);
    let mut connection = Connection::open(&server.address()).map_err(|error| error.to_string())?;
    let mut ask = |path: &str| connection.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).text();
    let count = |ask: &mut dyn FnMut(&str) -> String| {
        ask("/count").trim().parse::<f64>().map_err(|_| "no number".to_owned())
    };
    // What is compiled, and what the pools of a VM begin with, is made before.
    (0..2000).for_each(|_| drop(ask("/hello")));
    ask("/stop");
    let before = count(&mut ask)?;
    (0..requests).for_each(|_| drop(ask("/hello")));
    let after = count(&mut ask)?;
    let each = (after - before) * 1024.0 / f64::from(requests);
    println!("{requests} requests: {before:.1} -> {after:.1} KiB, {each:.3} bytes for each");
    verdict(&[(each < 0.1, format!("a request leaves {each:.2} bytes behind"))])
}

/// Different keys from one loop and from two.
pub(super) fn loops(mut args: Args) -> Result<(), String> {
    let seconds: u64 = args.take("secs", 3)?;
    let least: f64 = args.take("least", 1.7)?;
    args.finish()?;
    let mut rates = Vec::new();
    for count in [1, 2] {
        let running = [start("clearway", count, None)?];
        let measured =
            cpu::measure(&running, &[load(&running[0], "/incr_own")], Duration::from_secs(seconds))?;
        let (us, tally) = &measured[0];
        println!("{count} loop(s): {:.0} requests/s, {us:.2} µs each", tally.per_second());
        // What a processor could do, as the load takes a part of the same ones.
        rates.push(count as f64 / us);
    }
    let ratio = rates[1] / rates[0];
    println!("two loops do {ratio:.2} times as much as one, by CPU time");
    verdict(&[(ratio >= least, format!("only {ratio:.2} times as much"))])
}
