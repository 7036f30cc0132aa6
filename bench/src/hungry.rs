//! `hungry`: cheap requests, on connections that stay and on new ones, beside clients whose requests take
//! much CPU, in few long polls or in many short ones. Each row has a server of its own; its cheap requests
//! are measured first while it has nothing else to do, then beside the hungry clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clearway_testkit::{Binary, Product, Server, Setup};
use rustix::process::setpriority_process;

use crate::args::Args;
use crate::closed::{self, End, Load, Next, Tally};
use crate::connection::request;
use crate::open_loop::{self, Requests, Schedule};
use crate::servers::{self, config, socket_address};
use crate::stats::Latencies;

const KEPT_CONNECTIONS: usize = 32;
const KEPT_PER_SECOND: f64 = 1000.0;
const NEW_CONNECTIONS: usize = 64;
const NEW_PER_SECOND: f64 = 300.0;
const IDLE: Duration = Duration::from_secs(2);
/// The hungry clients run alone for so long before cheap requests are counted.
const LEAD: Duration = Duration::from_secs(1);
/// The client must not be what is late: it goes before what the server runs, where that is permitted.
const CLIENT_NICE: i32 = -10;

/// Commands in the SSI page, and bytes of the text that is compressed: about 60 ms of CPU each.
const SSI_INCLUDES: usize = 6_000;
const TEXT_BYTES: usize = 512 << 10;

/// (name, paths of the hungry clients, who take them in turn)
const KINDS: [(&str, &[&str]); 9] = [
    ("ssi", &["/ssi/page.html"]),
    ("gzip", &["/gzip/text"]),
    ("spin-0.5", &["/slices"]),
    ("spin-1", &["/spin/1"]),
    ("spin-5", &["/spin/5"]),
    ("spin-60", &["/spin/60"]),
    ("spin-200", &["/spin/200"]),
    ("spin-sleep", &["/spin/200", "/sleep/200"]),
    ("mix", &["/ssi/page.html", "/gzip/text", "/slices", "/spin/1", "/spin/60"]),
];

/// One server under test.
struct Subject {
    name: &'static str,
    binary: Binary,
}

/// What one row measured.
struct Row {
    kept: Latencies,
    new: Latencies,
    kept_idle: Latencies,
    new_idle: Latencies,
    lost: usize,
    hungry: Tally,
}

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let before: String = args.take("before", String::new())?;
    let with_nginx: bool = args.take("nginx", true)?;
    let loops = args.list("loops", "1,2");
    let clients = args.list("clients", "16,60,150");
    let kinds = args.list("kinds", "");
    let seconds: u64 = args.take("secs", 4)?;
    args.finish()?;
    let mut subjects = vec![Subject { name: "clearway", binary: Binary::under_test() }];
    if !before.is_empty() {
        subjects.insert(0, Subject { name: "before", binary: Binary::at(before) });
    }
    if with_nginx {
        subjects.push(Subject { name: "nginx", binary: Binary::oracle() });
    }
    for count in &loops {
        let loops: usize = count.parse().map_err(|_| format!("--loops {count}: not a number"))?;
        println!("\n{loops} loop(s), {seconds} s; times in milliseconds\n{}", head());
        for (kind, paths) in KINDS {
            if kinds != [""] && !kinds.iter().any(|wanted| wanted == kind) {
                continue;
            }
            for clients in &clients {
                let clients: usize =
                    clients.parse().map_err(|_| format!("--clients {clients}: not a number"))?;
                let mut rate_before = None;
                for subject in &subjects {
                    let server = start(&subject.binary, loops);
                    let row = measure(socket_address(&server), paths, clients, Duration::from_secs(seconds))?;
                    println!("{}", line(&format!("{clients} x {kind}"), subject.name, &row, rate_before));
                    if subject.name == "before" {
                        rate_before = Some(row.hungry.per_second());
                    }
                }
            }
        }
    }
    Ok(())
}

fn start(binary: &Binary, loops: usize) -> Server {
    let product = binary.product;
    let mut locations: String = [1, 5, 60, 200]
        .iter()
        .map(|ms| servers::blockers(product, &format!("/spin/{ms}"), &format!("/sleep/{ms}"), *ms))
        .collect();
    let slices = match product {
        Product::Clearway => "testing_spin 60ms 500;",
        // A thread of Lua gives others their turn where it sleeps.
        Product::Nginx => {
            "content_by_lua_block { for i = 1, 120 do local till = os.clock() + 0.0005\n\
             while os.clock() < till do end ngx.sleep(0) end ngx.say(\"done\") }"
        }
    };
    locations += &format!(
        "location /slices {{ {slices} }}\n\
         location /ssi/ {{ ssi on; }}\n\
         location /gzip/ {{ gzip on; gzip_comp_level 9; gzip_types *; gzip_proxied any; }}\n"
    );
    let main = if product == Product::Nginx { servers::lua_modules() } else { String::new() };
    let include = "<!--#include virtual=\"/cheap\" -->\n";
    Setup::new(binary.clone(), &config(loops, &main, &locations))
        .file("html/ssi/page.html", include.repeat(SSI_INCLUDES))
        .file("html/gzip/text", text(TEXT_BYTES))
        .start()
}

/// Words in no order, from a fixed seed.
fn text(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "loop", "carrier", "request", "the", "of", "a", "response", "filter", "buffer", "and", "socket",
        "timer", "turn", "is", "poll", "watchdog",
    ];
    let mut state = 1_u32;
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(WORDS[(state >> 28) as usize].as_bytes());
        text.push(if state >> 8 & 15 == 0 { b'\n' } else { b' ' });
    }
    text
}

fn measure(to: SocketAddr, paths: &[&str], clients: usize, length: Duration) -> Result<Row, String> {
    let (kept_idle, new_idle, lost_idle) = cheap(to, IDLE)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let loads: Vec<Load> = paths
            .iter()
            .zip(0..)
            .map(|(path, at)| Load {
                to,
                request: hungry_request(path),
                // As many each, or one more.
                connections: (clients + paths.len() - 1 - at) / paths.len(),
                next: Next::SameConnection,
                end: End::Awaited,
            })
            .collect();
        let stop = &stop;
        let threads: Vec<_> =
            loads.into_iter().map(|load| scope.spawn(move || closed::run(&load, stop))).collect();
        thread::sleep(LEAD);
        let measured = cheap(to, length);
        stop.store(true, Ordering::Relaxed);
        let mut hungry = Tally::default();
        for thread in threads {
            let tally = thread.join().expect("the client does not panic");
            let tally = tally.map_err(|e| format!("hungry requests: {e}"))?;
            hungry.answered += tally.answered;
            hungry.failed += tally.failed;
            hungry.elapsed = hungry.elapsed.max(tally.elapsed);
        }
        let (kept, new, lost) = measured?;
        Ok(Row { kept, new, kept_idle, new_idle, lost: lost + lost_idle, hungry })
    })
}

fn hungry_request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n").into_bytes()
}

/// Cheap requests of both kinds at once for so long: on connections that stay, on new ones, how many failed.
fn cheap(to: SocketAddr, duration: Duration) -> Result<(Latencies, Latencies, usize), String> {
    let play = |next: Next| {
        let (connections, requests_per_second, connection) = match next {
            Next::SameConnection => (KEPT_CONNECTIONS, KEPT_PER_SECOND, "keep-alive"),
            Next::NewConnection => (NEW_CONNECTIONS, NEW_PER_SECOND, "close"),
        };
        let requests = Requests::Same(request("/cheap", connection));
        let schedule = Schedule { to, requests, connections, requests_per_second, duration, next };
        // Without the permission the client stays as it is, and the row shows what it shows.
        let _ = setpriority_process(None, CLIENT_NICE);
        open_loop::run(&schedule, |_| {}).map_err(|e| format!("cheap requests: {e}"))
    };
    let (kept, new) = thread::scope(|scope| {
        let kept = scope.spawn(|| play(Next::SameConnection));
        let new = scope.spawn(|| play(Next::NewConnection));
        (kept.join().expect("the client does not panic"), new.join().expect("the client does not panic"))
    });
    let (kept, new) = (kept?, new?);
    let lost = kept.failed.len() + new.failed.len();
    let latencies = |outcome: open_loop::Outcome| {
        Latencies::new(outcome.answered.into_iter().map(|(_, latency)| latency).collect())
    };
    Ok((latencies(kept), latencies(new), lost))
}

fn head() -> String {
    format!(
        "{:<16} {:<9} | {:>20} | {:>26} | {:>20} | {:>26} | {:>4} | hungry req/s",
        "hungry clients",
        "server",
        "kept, idle: p50  p99",
        "beside: p50      p99    max",
        "new, idle: p50   p99",
        "beside: p50      p99    max",
        "over"
    )
}

fn line(name: &str, server: &str, row: &Row, rate_before: Option<f64>) -> String {
    let idle = |all: &Latencies| format!("{:>12.2} {:>7.2}", all.quantile_ms(0.5), all.quantile_ms(0.99));
    let beside = |all: &Latencies| {
        format!("{:>10.2} {:>8.2} {:>6.0}", all.quantile_ms(0.5), all.quantile_ms(0.99), all.max_ms())
    };
    let over = |beside: &Latencies, idle: &Latencies| beside.quantile_ms(0.99) - idle.quantile_ms(0.99);
    let worst = over(&row.kept, &row.kept_idle).max(over(&row.new, &row.new_idle));
    let rate = row.hungry.per_second();
    let ratio = rate_before.map_or_else(String::new, |before| format!(" ({:.2} of before)", rate / before));
    let failed = row.hungry.failed as usize + row.lost;
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    format!(
        "{name:<16} {server:<9} | {} | {} | {} | {} | {worst:>4.1} | {rate:.1}{ratio}{failed}",
        idle(&row.kept_idle),
        beside(&row.kept),
        idle(&row.new_idle),
        beside(&row.new),
    )
}
