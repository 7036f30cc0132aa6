//! Disks of a cache that do not answer, or answer with errors: nobody waits for them longer than for a
//! moment, and nobody is told. Mounts file systems over the directories of a cache.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::hung::HungMount;
use clearway_testkit::{Connection, Server, wait_until};

use crate::origins::{Origin, read_target};
use crate::start;
use std::io::Write;

const OBJECTS: usize = 32;
/// A request waits for a disk that hangs for two seconds, and for one that is to be written to for five.
const LONG: Duration = Duration::from_secs(20);

/// One in four objects is larger than what stays in memory until it is written.
fn content(target: &str) -> Vec<u8> {
    let number: usize = target.trim_start_matches('/').parse().unwrap_or_default();
    let length = if number.is_multiple_of(4) { 300_000 } else { 5_000 };
    format!("{target}\n").into_bytes().into_iter().cycle().take(length).collect()
}

fn origin() -> Origin {
    Origin::start(|mut stream| {
        while let Some(target) = read_target(&mut stream) {
            let body = content(&target);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: max-age=600\r\n\r\n",
                body.len()
            );
            if stream.write_all(head.as_bytes()).is_err() || stream.write_all(&body).is_err() {
                return;
            }
        }
    })
}

fn caching(origin: &Origin) -> Server {
    start(
        "proxy_cache_path %%PREFIX%%/cache levels=1 keys_zone=one:1m use_temp_path=off;",
        &format!(
            "add_header X-Cache $upstream_cache_status; proxy_cache_key $uri;
            location / {{ proxy_cache one; proxy_pass http://127.0.0.1:{}; }}",
            origin.port
        ),
    )
}

/// The directories that files lie in.
fn directories(server: &Server) -> Vec<PathBuf> {
    let cache = server.prefix().join("cache");
    let directories: Vec<PathBuf> = (0..16).map(|number| cache.join(format!("{number:x}"))).collect();
    directories.iter().for_each(|directory| std::fs::create_dir_all(directory).expect("it is ours"));
    directories
}

/// Asks for these at once, and says how many were hits.
fn ask(server: &Server, numbers: std::ops::Range<usize>) -> usize {
    let begin = |number: usize| {
        let mut client = server.connect();
        let target = format!("/{number}");
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        (target, client)
    };
    let asked: Vec<(String, Connection)> = numbers.map(begin).collect();
    let answered = asked.into_iter().map(|(target, mut client)| {
        let response = client.response();
        assert_eq!(response.status, 200, "{target}: {}", server.error_log());
        assert!(response.body == content(&target), "{target}: {} bytes", response.body.len());
        response.header("X-Cache") == Some("HIT")
    });
    answered.filter(|is_hit| *is_hit).count()
}

#[test]
#[cfg_attr(not_root, ignore = "mounts file systems")]
#[cfg_attr(nginx_under_test, ignore = "nginx stops")]
fn a_disk_that_hangs_or_fails_costs_its_objects_alone() {
    let origin = origin();
    let server = caching(&origin);
    let directories = directories(&server);
    assert_eq!(ask(&server, 0..OBJECTS), 0);
    assert!(wait_until(PATIENCE, || ask(&server, 0..1) == 1), "it is kept");
    let mut mounts: Vec<HungMount> = directories.iter().map(|directory| HungMount::over(directory)).collect();
    // What is there and what is not.
    let since = Instant::now();
    ask(&server, 1..2 * OBJECTS);
    assert!(since.elapsed() < LONG, "{:?}", since.elapsed());
    server.wait_log("logs/error.log", "cache directory does not answer within 2000 ms");
    // From here on each call fails.
    mounts.iter_mut().for_each(HungMount::give_up);
    ask(&server, 2 * OBJECTS..3 * OBJECTS);
    drop(mounts);
    directories.iter().for_each(|directory| drop(std::fs::create_dir_all(directory)));
    let all_hit = || {
        ask(&server, 0..4 * OBJECTS);
        ask(&server, 0..4 * OBJECTS) == 4 * OBJECTS
    };
    assert!(wait_until(PATIENCE, all_hit), "the disk is used again: {}", server.error_log());
}
