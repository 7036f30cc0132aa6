//! `lua redis`, `lua capture` and `lua threads`: what waits beside requests costs, next to nginx with Lua.
//! The redis-server is Debian's, and is not counted; the client for it is lua-resty-redis from
//! `CLEARWAY_LUA_LIBRARIES`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clearway_testkit::client::End as ConnectionEnd;
use clearway_testkit::process::rss_bytes;
use clearway_testkit::{Connection, Server, wait_until};

use super::figures::SideBySide;
use super::{server, verdict};
use crate::args::Args;
use crate::cpu::SERVER_CORES;
use crate::servers::{self, User, config_with, total};

/// Which share of nginx's CPU a request may use that asks redis.
const REDIS_MOST: f64 = 0.95;
/// The same of one that captures a location of 1 KiB.
const CAPTURE_MOST: f64 = 0.90;
/// Which share of nginx's memory light threads may use that sleep.
const THREADS_MOST: f64 = 1.0;
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends with the measurement.
struct Redis(Child);

impl Redis {
    fn start(socket: &Path) -> Result<Self, String> {
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let redis = Self(command.spawn().map_err(|error| format!("redis-server: {error}"))?);
        match wait_until(PATIENCE, || socket.exists()) {
            true => Ok(redis),
            false => Err("redis-server does not listen".to_owned()),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It is gone, at worst.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `incr`, with a connection that is put aside behind each request.
pub(super) fn redis(args: Args) -> Result<(), String> {
    let libraries = std::env::var("CLEARWAY_LUA_LIBRARIES")
        .map_err(|_| "CLEARWAY_LUA_LIBRARIES names a directory with resty/redis.lua")?;
    let dir = std::env::temp_dir().join(format!("clearway-bench-redis-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let socket = dir.join("redis");
    let http = format!("lua_package_path '{libraries}/?.lua;;';");
    let locations = format!(
        "location /incr {{ content_by_lua_block {{
             local redis = require('resty.redis'):new()
             redis:set_timeout(10000)
             assert(redis:connect('unix:{}'))
             ngx.print(assert(redis:incr('n')))
             redis:set_keepalive(60000, 100) }} }}",
        socket.display()
    );
    let outcome =
        Redis::start(&socket).and_then(|_redis| side_by_side(args, (&http, &locations), "/incr", REDIS_MOST));
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

pub(super) fn capture(args: Args) -> Result<(), String> {
    let locations = format!(
        "location /k {{ return 200 {}; }}
         location /capture {{ content_by_lua_block {{ ngx.print(ngx.location.capture('/k').body) }} }}",
        "x".repeat(1024)
    );
    side_by_side(args, ("", &locations), "/capture", CAPTURE_MOST)
}

/// CPU per request, by turns on one core.
fn side_by_side(args: Args, conf: (&str, &str), path: &str, most: f64) -> Result<(), String> {
    let servers = SideBySide::start(args, |name| start(name, conf, Some(SERVER_CORES)))?;
    for server in &servers.running {
        let mut connection = Connection::open(&server.address()).map_err(|error| error.to_string())?;
        let response = connection.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        if response.status != 200 {
            return Err(format!("{path}: {}\n{}", response.status, server.error_log()));
        }
    }
    let (ratio, _) = servers.compare(path)?;
    verdict(&[(ratio <= most, format!("{path}: {ratio:.3} of {}, not {most}", servers.first()))])
}

fn start(name: &str, (http, locations): (&str, &str), cores: Option<&str>) -> Result<Server, String> {
    let (binary, main) = server(name)?;
    Ok(servers::start(&binary, &config_with(1, &main, http, locations), User::Same, cores))
}

/// What so many light threads that sleep take, beyond what there is without them.
pub(super) fn threads(mut args: Args) -> Result<(), String> {
    let names = args.list("servers", "nginx,clearway");
    let count: u64 = args.take("threads", 10_000)?;
    args.finish()?;
    let locations = format!(
        "location /sleepers {{ content_by_lua_block {{
             for i = 1, {count} do ngx.thread.spawn(function() ngx.sleep(600) end) end
             ngx.say('up')
             ngx.flush(true)
             ngx.sleep(600) }} }}"
    );
    let mut grown = Vec::new();
    for name in &names {
        let running = start(name, ("lua_check_client_abort on;", &locations), None)?;
        let mut connection = Connection::open(&running.address()).map_err(|error| error.to_string())?;
        // What the first request makes is there before.
        connection.ask("GET /cheap HTTP/1.1\r\nHost: a\r\n\r\n");
        let before = total(&running, rss_bytes);
        connection.send(b"GET /sleepers HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut said = Vec::new();
        while !said.windows(3).any(|part| part == b"up\n") {
            if connection.next_event(PATIENCE) != ConnectionEnd::Data {
                return Err(format!("{name} does not answer: {}", running.error_log()));
            }
            said.extend(connection.take_received());
        }
        let more = total(&running, rss_bytes) - before;
        println!(
            "{name}: {count} light threads take {:.1} MiB, {} bytes each",
            more as f64 / 1048576.0,
            more / count.max(1)
        );
        grown.push(more as f64);
    }
    let ratio = grown[grown.len() - 1] / grown[0];
    println!("ratio {ratio:.3}");
    verdict(&[(ratio <= THREADS_MOST, format!("light threads take {ratio:.3} of {}", names[0]))])
}
