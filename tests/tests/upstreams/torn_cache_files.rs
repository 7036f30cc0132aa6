//! Files of a cache that are cut short while they are sent.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Connection, End, Server};

use crate::origins::{Origin, read_request};
use crate::start;

/// More than the buffers of two sockets hold.
const WHOLE_BYTES: usize = 48 << 20;
/// What is left of the file.
const LEFT_BYTES: u64 = 40 << 20;

/// No two places look alike.
fn content() -> Vec<u8> {
    (0..WHOLE_BYTES as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

/// Has the whole and parts of it, with this line among the others of its heads. Says what it was asked.
fn origin(line: &'static str) -> (Origin, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let (heads, content) = (Arc::clone(&asked), Arc::new(content()));
    let origin = Origin::start(move |mut stream| {
        while let Some(head) = read_request(&mut stream) {
            let first = head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
            let first = first.and_then(|range| range.split('-').next()?.parse::<usize>().ok());
            heads.lock().expect("nobody panics").push(head);
            let (status, range) = match first {
                Some(first) => {
                    let last = WHOLE_BYTES - 1;
                    ("206 Part", format!("Content-Range: bytes {first}-{last}/{WHOLE_BYTES}\r\n"))
                }
                None => ("200 OK", String::new()),
            };
            let body = &content[first.unwrap_or(0)..];
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nX-Accel-Expires: 60\r\n{range}{line}\r\n",
                body.len()
            );
            if stream.write_all(head.as_bytes()).is_err() || stream.write_all(body).is_err() {
                return;
            }
        }
    });
    (origin, asked)
}

/// Everything is in the cache, and a client has begun to take it.
fn begun(origin: &Origin) -> (Server, Connection) {
    let pass = format!("proxy_pass http://127.0.0.1:{};", origin.port);
    let server = start(
        "proxy_cache_path %%PREFIX%%/cache keys_zone=one:1m;",
        &format!(
            "location / {{ proxy_cache one; proxy_cache_key $uri; {pass} }}
            location /plain {{ return 200 plain; }}"
        ),
    );
    assert!(server.get("/page").body == content(), "it is kept");
    let mut client = server.connect();
    client.send(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    client.wait_for_silence();
    (server, client)
}

fn only_file(directory: &Path) -> PathBuf {
    let entries = std::fs::read_dir(directory).expect("a cache").flatten().map(|entry| entry.path());
    let mut files = entries.filter(|path| path.is_file());
    files.next().expect("one is kept")
}

fn cut(server: &Server) {
    let path = only_file(&server.prefix().join("cache"));
    let file = File::options().write(true).open(path).expect("it is there");
    file.set_len(LEFT_BYTES).expect("shorter");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx cuts the response")]
fn the_rest_comes_from_the_server_if_it_has_the_same() {
    let (origin, asked) = origin("ETag: \"v1\"\r\n");
    let (server, mut client) = begun(&origin);
    cut(&server);
    assert!(client.response().body == content(), "not a byte is wrong");
    let asked = std::mem::take(&mut *asked.lock().expect("nobody panics"));
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1].contains("If-Range: \"v1\"\r\n") && asked[1].contains("Range: bytes="), "{asked:?}");
    let plain = client.ask("GET /plain HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(plain.text(), "plain", "the connection goes on");
    server.wait_log("logs/error.log", "the rest of a cached response is fetched from byte ");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has its own words")]
fn a_response_is_cut_where_nobody_knows_whether_it_is_the_same() {
    let (origin, asked) = origin("");
    let (server, mut client) = begun(&origin);
    cut(&server);
    let (received, end) = client.read_to_end(PATIENCE);
    assert_ne!(end, End::Open);
    let start = received.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    let body = &received[start..];
    assert!(body.len() < WHOLE_BYTES && content().starts_with(body), "what has come is right");
    assert_eq!(asked.lock().expect("nobody panics").len(), 1);
    assert!(server.get("/page").body == content(), "it is fetched anew");
}
