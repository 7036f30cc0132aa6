//! `site`: CPU per request of a site behind HTTPS of which 70 % of the requests are answered by its cache,
//! 20 % by an application and 10 % by files, 4 KiB each, over HTTP/2 and over HTTP/1.1; its memory. The load
//! is nghttp2's `h2load`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clearway_testkit::process::{cpu_time_of_threads, pss_bytes};
use clearway_testkit::{Server, Setup};

use crate::args::Args;
use crate::cpu::{CLIENT_CORE, SERVER_CORES, range};
use crate::origin::{Manner, Origin};
use crate::servers::{self, Named, total};
use crate::stats::median;

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../../crates/tls/tests/data/", $name))[..]
    };
}

/// The length of each body, bytes.
const BODY_BYTES: usize = 4096;
/// Objects of the cache that are asked for.
const OBJECTS: usize = 70;

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let servers = servers::named(&args.words())?;
    let repetitions: usize = args.take("reps", 3)?;
    let seconds: u64 = args.take("secs", 3)?;
    args.finish()?;
    for (name, protocol) in [("HTTP/2", &["-m", "8"][..]), ("HTTP/1.1", &["--h1"][..])] {
        println!("\n{name}: CPU µs per request, in turn on one core; the ratio is to {}", servers[0].name);
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); servers.len()];
        for _ in 0..repetitions {
            let mut first = 0.0;
            for (server, ratios) in servers.iter().zip(&mut ratios) {
                let (us, mib, failed) = one(server, protocol, seconds)?;
                first = if first == 0.0 { us } else { first };
                ratios.push(us / first);
                print!("  {} {us:.2} ({:.3}; {mib:.1} MiB; {failed} failed)", server.name, us / first);
            }
            println!();
        }
        let medians = servers.iter().zip(&ratios);
        let medians =
            medians.map(|(server, all)| format!("{} {:.3} ({})", server.name, median(all), range(all)));
        println!("median ratios: {}", medians.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// CPU per request (µs), memory (MiB), and requests that failed.
fn one(server: &Named, protocol: &[&str], seconds: u64) -> Result<(f64, f64, u64), String> {
    let origin = Origin::start(Manner::Length(BODY_BYTES), CLIENT_CORE).map_err(|e| e.to_string())?;
    let running = start(server, &origin);
    let list = running.prefix().join("uris");
    fs::write(&list, uris(&running)).map_err(|e| e.to_string())?;
    load(&list, protocol, 1)?;
    let before = total(&running, cpu_time_of_threads);
    let (answered, failed) = load(&list, protocol, seconds)?;
    let used: Duration = total(&running, cpu_time_of_threads).saturating_sub(before);
    let mib = total(&running, pss_bytes) as f64 / f64::from(1 << 20);
    Ok((used.as_secs_f64() * 1e6 / answered.max(1) as f64, mib, failed))
}

fn start(server: &Named, origin: &Origin) -> Server {
    let address = origin.address;
    let config = format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid nginx.pid;\nerror_log logs/error.log error;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ %%TEMP%%\naccess_log logs/access.log combined buffer=64k;\nsendfile on;\n\
         keepalive_requests 1000000000;\nopen_file_cache max=1000;\n\
         proxy_cache_path %%PREFIX%%/cache levels=1:2 keys_zone=pages:16m use_temp_path=off;\n\
         proxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         upstream application {{ server {address}; keepalive 64; }}\n\
         server {{ listen 127.0.0.1:%%PORT%% ssl;\nhttp2 on;\nroot %%PREFIX%%/html;\n\
         ssl_certificate example.pem;\nssl_certificate_key example.key;\n\
         location /cached/ {{ proxy_pass http://application; proxy_cache pages;\n\
         proxy_cache_valid 200 1h; }}\n\
         location /app/ {{ proxy_pass http://application; }}\n}} }}\n"
    );
    Setup::new(server.binary.clone(), &config)
        .file("example.pem", data!("ecdsa.pem"))
        .file("example.key", data!("ecdsa.key"))
        .file("html/page.html", "x".repeat(BODY_BYTES))
        .through(&["taskset", "-c", SERVER_CORES])
        .start()
}

/// Seven of the cache, two of the application and a file, again and again.
fn uris(server: &Server) -> String {
    let at = format!("https://127.0.0.1:{}", server.port());
    let mut uris = String::new();
    for object in 0..OBJECTS {
        writeln!(uris, "{at}/cached/{object}").expect("memory");
        match object % 7 {
            2 | 5 => writeln!(uris, "{at}/app/{object}").expect("memory"),
            6 => writeln!(uris, "{at}/page.html").expect("memory"),
            _ => {}
        }
    }
    uris
}

/// How many requests were answered, and how many failed.
fn load(list: &Path, protocol: &[&str], seconds: u64) -> Result<(u64, u64), String> {
    let mut command = Command::new("taskset");
    command.args(["-c", &CLIENT_CORE.to_string(), "h2load", "-t", "1", "-c", "32", "-D"]);
    command.arg(seconds.to_string()).args(protocol).arg("-i").arg(list);
    let output = command.output().map_err(|e| format!("h2load: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // `requests: 1 total, 1 started, 1 done, 1 succeeded, 0 failed, 0 errored, 0 timeout`
    let count = |what: &str| {
        let mut parts =
            said.lines().filter(|line| line.starts_with("requests:")).flat_map(|l| l.split([':', ',']));
        let part = parts.find(|part| part.ends_with(what))?;
        part.trim().split(' ').next()?.parse().ok()
    };
    match (count(" succeeded"), count(" failed")) {
        (Some(answered), Some(failed)) => Ok((answered, failed)),
        _ => Err(format!("h2load: {said}{}", String::from_utf8_lossy(&output.stderr))),
    }
}
