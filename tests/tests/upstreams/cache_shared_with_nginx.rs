//! One directory of a cache, used by nginx and Clearway in turn: each finds all that the other one has kept.

use std::io::Write;
use std::path::PathBuf;

use clearway_testkit::{Binary, Connection, Setup};

use crate::config;
use crate::origins::{Origin, read_target};

/// Objects that a server finds, and those that it adds.
const OBJECTS: usize = 60;

/// Removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("clearway-swapped-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Files that are left behind are in nobody's way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The number of an object repeated, one in seven large, with variants.
fn content(target: &str) -> Vec<u8> {
    let number: usize = target.trim_start_matches('/').parse().unwrap_or_default();
    let length = if number.is_multiple_of(7) { 150_000 } else { number * 37 % 3000 };
    format!("{target}\n").into_bytes().into_iter().cycle().take(length).collect()
}

fn origin() -> Origin {
    Origin::start(|mut stream| {
        while let Some(target) = read_target(&mut stream) {
            let body = content(&target);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: max-age=600\r\nETag: \"{}\"\r\n\
                 Vary: X-V\r\n\r\n",
                body.len(),
                body.len()
            );
            if stream.write_all(head.as_bytes()).is_err() || stream.write_all(&body).is_err() {
                return;
            }
        }
    })
}

fn ask(client: &mut Connection, target: &str) -> String {
    let response = client.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-V: v\r\n\r\n"));
    assert!(response.body == content(target), "{target}: {} bytes", response.body.len());
    assert_eq!(response.header("X-Pad"), None);
    response.header("X-Cache").unwrap_or_default().to_owned()
}

#[test]
#[ignore = "needs a running nginx"]
fn each_server_finds_what_the_other_one_has_kept() {
    let (directory, origin) = (Directory::new(), origin());
    let http = format!(
        "proxy_cache_path {} levels=1:2 keys_zone=one:1m inactive=1d use_temp_path=off;
        server {{ listen 127.0.0.1:%%PORT%%; proxy_cache one; proxy_cache_key $uri;
        add_header X-Cache $upstream_cache_status; location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
        directory.0.display(),
        origin.port
    );
    let mut kept = 0;
    for binary in [Binary::under_test(), Binary::oracle(), Binary::under_test(), Binary::oracle()] {
        let mut server = Setup::new(binary.clone(), &config("events { }", &http)).start();
        let mut client = server.connect();
        for (targets, status) in
            [(0..kept, "HIT"), (kept..kept + OBJECTS, "MISS"), (0..kept + OBJECTS, "HIT")]
        {
            for number in targets {
                let found = ask(&mut client, &format!("/{number}"));
                assert_eq!(found, status, "{number} of {}", binary.path.display());
            }
        }
        kept += OBJECTS;
        drop(client);
        server.stop();
    }
}
