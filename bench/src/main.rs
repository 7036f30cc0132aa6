//! Measurements, as programs: `clearway-bench COMMAND`. Servers run in directories of their own with
//! configurations made here; the load comes from threads of this process. Figures of two servers are
//! compared within one run only: a shared machine is not the same a minute later.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a command-line program: there is no loop to block")]
#![allow(clippy::disallowed_macros, reason = "a command-line program talks to its terminal")]

mod args;
mod blocked;
mod cached;
mod choke;
mod closed;
mod connection;
mod cpu;
mod day;
mod files;
mod gateways;
mod handshakes;
mod heal;
mod hiccups;
mod http2;
mod hungry;
mod idle;
mod large;
mod log_latency;
mod lua;
mod mix;
mod open_loop;
mod origin;
mod poller;
mod processes;
mod proxy;
mod servers;
mod soak;
mod stats;

use std::process::ExitCode;

use args::Args;

const USAGE: &str = "\
usage: clearway-bench COMMAND [OPTIONS]

  blocked   cheap requests (open loop) beside clients whose requests hold their thread 200 ms
            --servers clearway,off,nginx   (off: without hand-over; nginx: Debian's, with Lua)
            --users root,nobody  --loops 1,2  --secs 6  --rate 10000  --only TEXT (of a row's name)
            --hiccups true   (tells apart what the machine held up; makes waits shorter itself)
            --proxied true   (the cheap requests are passed on to an origin)
  choke     files while passwords and names on a file system that does not answer wait (as root)
            --passwords 2000  --hung 200  --secs 10  --rate 1000  --loops 2
  cpu       CPU per request, all servers at once on core 0, their load on core 1
            [NAME=PATH …]  --reps 5  --secs 3  --modes keepalive,browser,connect
  day       a site with everything in it while workers are killed, disks hang, services die (as root)
            --secs 3600  --visitors 8  --seed 23
  handshakes  full handshakes above what the server can make: cheap requests and resumptions beside them
            [NAME=PATH …]  --kinds ecdsa,rsa-2048,rsa-4096,mixed  --loops 1,2  --secs 5  --over 500
            --inline true   (first with all handshakes on the loops: wants a build with the `testing` feature)
  h2        what is promised of HTTP/2; PROOF is one of
            streams       a hundred streams of which one holds its thread
                          --streams 100  --rounds 100  --hold 200
            attacks       cheap requests beside each attack, CPU of both sides  --secs 4  --only TEXT
            idle          memory of idle connections with TLS  --connections 10000  --servers NAME=PATH,…
  hungry    cheap requests, kept connections and new ones, beside clients whose requests take much CPU
            --before PATH  --nginx true  --loops 1,2  --clients 16,60,150  --secs 2.5  --rounds 1
            --kinds ssi,gzip,spin-0.5,spin-5,spin-60,spin-200 (also spin-1,spin-sleep,mix)
            --hiccups true   (leaves out what the machine held up; makes waits shorter itself)
  idle      memory of idle keep-alive connections
            [NAME=PATH …]  --connections 10000  --tls true   (after a handshake and a request)
  large     a configuration of thousands of servers: test, start, reload, memory, CPU of requests
            [NAME=PATH …]  --count 10000  --requests 20000
  gateways  CPU per request side by side: PHP-FPM, which is not counted, and memcached, by unix sockets
            [NAME=PATH …]  --reps 3  --secs 3  --only php,php-kept,memcached
  heal      three of ten origins fail, hang, are slow or gone under load: failed requests and times with and
            without what heals groups, nginx beside; one that is there again, with and without slow_start
            [NAME=PATH …]  --secs 10  --rate 500  --only fails,hangs,slow,down,back
  lua       what is promised of Lua; PROOF is one of
            blocked       beside Lua that spins or sleeps 100 ms, 50 times a second
                          --servers clearway,nginx  --loops 1,2  --secs 6  --rate 5000  --lua-rate 500
            site      CPU per request of a site with a cache, an application and files, over TLS; wants h2load
            [NAME=PATH …]  --reps 3  --secs 3
  soak MINUTES  the same for minutes: lost requests, memory  --loops 2
            cpu           CPU per request, side by side  --servers nginx,clearway  --reps 5  --secs 3
            garbage       what a request leaves in its VM  --requests 100000
            loops         incr of different keys from one loop and from two  --secs 3  --least 1.7
            report        what reports say of digests, garbage, and sockets that block  --requests 5
            reload        reloads under load, each tenth of which fails  --rounds 100
            redis         incr with kept connections, CPU side by side (CLEARWAY_LUA_LIBRARIES)
                          --servers nginx,clearway  --reps 5  --secs 3
            capture       of 1 KiB, the same
            threads       memory of light threads that sleep  --servers nginx,clearway  --threads 10000
            faults MINUTES  servers of sockets that end and come back, names nobody answers, full pools,
                          clients that leave: sockets, memory, threads, lost requests  --loops 2  --clients 8
  proxy     requests that are passed on: CPU side by side, kept connections, origins that fail, memory
            [NAME=PATH …]  --only cpu,reuse,faults,slow,tunnels  --reps 3  --secs 3  --connections 1000
  stampede  clients that want one object of a slow origin at once, and what may not be kept
            --clients 1000  --mib 8  --mb-per-second 4  --rounds 200
  torn      a cache whose files are cut and whose disk is full, hangs and fails under load (as root)
            --objects 10000  --faults 200  --requests 500  --seed 16
  objects   a cache of very many objects: hits right after a start and after kills, memory (as root)
            --objects 10000000  --sample 10000  --kills 20
  soak      MINUTES of random spins and sleeps under load: failures, memory, threads
            MINUTES  --loops 2  --blockers 12
  reload    reloads under load: failures, idle connections, lines, memory
            --rounds 100  --idle 1000
  tunnels   reloads under load while connections are WebSockets: lost ones, memory, beside nginx
            --rounds 100  --tunnels 1000
  crash     workers that are killed under load: how soon the next one answers
            --kills 20
  upgrade   another binary takes over, gives back, takes over; also from and to nginx
  logs      a burst of lines, a full disk, a stuck one, logs that are moved
            --lines 1000000
  log-latency  how long after its response a line is in the log: idle, and at 100,000 lines a second
            --requests 2000  --pause 2 (milliseconds)  --connections 16
  never-old files that change while they are asked for, on the disk, tmpfs and overlayfs
            --rounds 1000

The server is CLEARWAY_BIN, or the one built beside this program; nginx is NGINX_BIN or Debian's.";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let outcome = Args::parse(words).and_then(|args| match command.as_str() {
        "blocked" => blocked::command(args),
        "choke" => choke::command(args),
        "cpu" => cpu::command(args),
        "day" => day::command(args),
        "gateways" => gateways::command(args),
        "handshakes" => handshakes::command(args),
        "heal" => heal::command(args),
        "h2" => http2::command(args),
        "hungry" => hungry::command(args),
        "idle" => idle::command(args),
        "large" => large::command(args),
        "lua" => lua::command(args),
        "proxy" => proxy::command(args),
        "soak" => soak::command(args),
        "reload" => processes::reload(args),
        "tunnels" => processes::tunnels(args),
        "crash" => processes::crash(args),
        "upgrade" => processes::upgrade_command(args),
        "logs" => processes::logs(args),
        "log-latency" => log_latency::command(args),
        "objects" => cached::objects(args),
        "site" => mix::command(args),
        "stampede" => cached::stampede(args),
        "torn" => cached::torn(args),
        "never-old" => files::never_old(args),
        _ => Err(USAGE.to_owned()),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
