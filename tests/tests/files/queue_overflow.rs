//! Thread pools whose queue is full, and files that are not in memory: a request whose first read is refused
//! is answered with 503, one that is under way waits, or is closed in the end; nobody else notices. Needs a
//! build with the `testing` feature.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::cold::evict;
use clearway_testkit::server::is_root;
use clearway_testkit::{Binary, Connection, End, Server, Setup, expect_soon, wait_until};

/// What is asked for cold, bytes: no small file, none that is read in one piece.
const FILE_BYTES: usize = 300_000;
/// More than the buffers of a connection can hold, bytes.
const LARGE_BYTES: usize = 32 << 20;

/// A server with a pool of one thread, and `files` that can be cold.
fn server(max_queue: usize, files: &[&str]) -> Server {
    let user = if is_root() { "user nobody nogroup;" } else { "" };
    let config = format!(
        "daemon off;\n{user}\nworker_processes 1;\npid nginx.pid;\nerror_log logs/error.log info;\n\
         thread_pool narrow threads=1 max_queue={max_queue};\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; aio threads=narrow; default_type text/plain; root %%PREFIX%%/site;\n\
         sendfile on; charset_map windows-1251 koi8-r {{ 80 E1; }}\n\
         server {{ listen 127.0.0.1:%%PORT%%;\n\
         location = /hold {{ testing_pool %%PREFIX%%/held; }}\n\
         location = /queued {{ testing_pool %%PREFIX%%/nowhere/held; }}\n\
         location /read/ {{ alias %%PREFIX%%/site/; sendfile off; }}\n\
         location /bytes/ {{ alias %%PREFIX%%/site/; charset koi8-r; source_charset windows-1251; }}\n\
         location /direct/ {{ alias %%PREFIX%%/site/; directio 1; }}\n\
         location /impatient/ {{ alias %%PREFIX%%/site/; send_timeout 1s; }}\n\
         }} }}\n"
    );
    let setup = Setup::new(Binary::under_test(), &config).file("site/hot", "hot\n");
    let setup = files.iter().fold(setup, |setup, name| setup.file(&format!("site/{name}"), contents(name)));
    let server = setup.ready_at("127.0.0.1:%%PORT%%").start();
    // What kind of file system it is, is found out by a pool thread.
    assert_eq!(server.get("/hot").text(), "hot\n");
    server
}

/// Different for each name, long, in ASCII.
fn contents(name: &str) -> String {
    let bytes = if name == "large" { LARGE_BYTES } else { FILE_BYTES };
    let line = format!("this is {name}, and this is ");
    line.repeat(bytes / line.len() + 1)[..bytes].to_owned()
}

fn path(server: &Server, name: &str) -> PathBuf {
    server.prefix().join("site").join(name)
}

/// Whether what is asked of a server can be asked here: it is ours, and its files can be cold.
fn can_be_cold(server: &Server, name: &str) -> bool {
    let can = evict(&path(server, name), 0);
    if !can {
        println!("skipped: files in {} are always in memory", server.prefix().display());
    }
    can
}

/// Takes a file out of memory, which a response of just before may hold for a while.
fn make_cold(server: &Server, name: &str) {
    expect_soon("it can be cold", || evict(&path(server, name), 0));
}

/// Takes out of memory what is not on its way to the client, and lets it be forgotten that it was there.
fn make_rest_cold(server: &Server) {
    thread::sleep(Duration::from_millis(1500));
    evict(&path(server, "large"), 0);
}

/// Keeps the one thread of the pool busy until it is dropped, and the queue full.
struct Hold {
    path: PathBuf,
    held: Connection,
    queued: Vec<Connection>,
}

impl Hold {
    fn begin(server: &Server, max_queue: usize) -> Self {
        let path = server.prefix().join("held");
        let ask = |target| {
            let mut connection = server.connect();
            connection.send(request(target).as_bytes());
            connection
        };
        let mut held = ask("/hold");
        let is_held = wait_until(PATIENCE, || {
            if is_answered(&mut held) {
                // The thread was reading a file.
                assert_eq!(held.response().status, 503);
                held = ask("/hold");
            }
            path.exists()
        });
        assert!(is_held, "the thread is held");
        let mut queued: Vec<Connection> = (0..=max_queue).map(|_| ask("/queued")).collect();
        let mut refused = None;
        wait_until(PATIENCE, || {
            refused = queued.iter_mut().position(is_answered);
            refused.is_some()
        });
        let mut refused = queued.swap_remove(refused.expect("the queue is full"));
        assert_eq!(refused.response().status, 503);
        Self { path, held, queued }
    }

    fn end(mut self) {
        self.let_go();
        let waiting = std::iter::once(&mut self.held).chain(&mut self.queued);
        waiting.for_each(|connection| assert_eq!(connection.response().text(), "held a pool\n"));
    }

    fn let_go(&self) {
        // It may be gone already.
        drop(fs::remove_file(&self.path));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn is_answered(connection: &mut Connection) -> bool {
    connection.next_event(Duration::from_millis(1)) == End::Data
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn closing(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

const WAYS: [&str; 4] = ["/", "/read/", "/bytes/", "/direct/"];

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_first_read_that_is_refused_is_503() {
    let server = server(0, &["cold"]);
    if !can_be_cold(&server, "cold") {
        return;
    }
    let hold = Hold::begin(&server, 0);
    for way in WAYS {
        // Asking whether it is in memory has the kernel begin to read it: it may be there in time, or a part
        // of it, the rest of which waits for the pool.
        expect_soon("it is wanted before it is there", || {
            make_cold(&server, "cold");
            let mut client = server.connect();
            client.send(closing(&format!("{way}cold")).as_bytes());
            let (answer, _) = client.read_to_end(Duration::from_millis(500));
            let is_refused = answer.starts_with(b"HTTP/1.1 503 ");
            let answer = String::from_utf8_lossy(&answer);
            assert_eq!(is_refused, answer.contains("503 Service Temporarily Unavailable"), "{way}");
            is_refused
        });
        assert_eq!(server.get("/hot").text(), "hot\n", "others are not disturbed");
    }
    hold.end();
    for way in WAYS {
        make_cold(&server, "cold");
        let answer = server.get(&format!("{way}cold"));
        assert_eq!(answer.status, 200, "{way}");
        assert!(answer.text() == contents("cold"), "{way}: {} bytes", answer.text().len());
    }
    let wanted = "[error] ";
    let log =
        server.wait_lines("logs/error.log", "thread pool \"narrow\" queue overflow: 0 tasks waiting", 5);
    let line = log.lines().find(|line| line.contains("queue overflow")).expect("there are five");
    assert!(line.contains(wanted), "{line}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_response_that_is_under_way_waits() {
    for way in WAYS {
        // What the kernel reads ahead may be there in time.
        let has_waited = (0..ATTEMPTS).any(|_| match interrupt(way) {
            Interrupted::Waited | Interrupted::NeverCold => true,
            Interrupted::WasInMemory => false,
        });
        assert!(has_waited, "{way}: asks again");
    }
}

/// How often a response is interrupted until it has to wait.
const ATTEMPTS: usize = 5;

/// What a response did of which the rest was to be read by a pool that is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupted {
    Waited,
    WasInMemory,
    /// Files here are always in memory.
    NeverCold,
}

fn interrupt(way: &str) -> Interrupted {
    let server = server(0, &["large"]);
    if !can_be_cold(&server, "large") {
        return Interrupted::NeverCold;
    }
    let mut client = server.connect();
    client.send(closing(&format!("{way}large")).as_bytes());
    assert_eq!(client.next_event(PATIENCE), End::Data, "{way}: it begins");
    let refused = Hold::begin(&server, 0);
    let known = overflows(&server);
    make_rest_cold(&server);
    let reader = thread::spawn(move || client.read_to_end(PATIENCE));
    wait_until(PATIENCE, || {
        // The kernel reads ahead of what was asked for.
        evict(&path(&server, "large"), 0);
        overflows(&server) >= known + 3 || reader.is_finished()
    });
    assert_eq!(server.get("/hot").text(), "hot\n", "others are not disturbed");
    let has_waited = !reader.is_finished();
    refused.end();
    let (bytes, end) = reader.join().expect("it does not panic");
    assert_eq!(end, End::Closed, "{way}: {} bytes", bytes.len());
    assert!(bytes.starts_with(b"HTTP/1.1 200") && bytes.ends_with(contents("large").as_bytes()), "{way}");
    if has_waited { Interrupted::Waited } else { Interrupted::WasInMemory }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn one_that_waits_too_long_is_closed() {
    // What the kernel reads ahead may be there in time.
    assert!((0..ATTEMPTS).any(|_| is_closed_or_never_cold()), "a response that has to wait is given up");
}

fn is_closed_or_never_cold() -> bool {
    let server = server(0, &["large"]);
    if !can_be_cold(&server, "large") {
        return true;
    }
    let mut client = server.connect();
    client.send(closing("/impatient/large").as_bytes());
    assert_eq!(client.next_event(PATIENCE), End::Data, "it begins");
    let _hold = Hold::begin(&server, 0);
    make_rest_cold(&server);
    let (bytes, end) = client.read_to_end(PATIENCE);
    assert_ne!(end, End::Open);
    assert_eq!(server.get("/hot").text(), "hot\n");
    bytes.len() < LARGE_BYTES
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn of_many_each_is_whole_or_refused() {
    const MAX_QUEUE: usize = 2;
    let names: Vec<String> = (0..40).map(|number| format!("cold{number}")).collect();
    let server = server(MAX_QUEUE, &names.iter().map(String::as_str).collect::<Vec<_>>());
    if !can_be_cold(&server, &names[0]) {
        return;
    }
    let hold = Hold::begin(&server, MAX_QUEUE);
    let known = overflows(&server);
    let ask = |(at, name): (usize, &String)| {
        // Evicted just before it is asked for: the kernel may have begun to read what lies beside it.
        make_cold(&server, name);
        let mut client = server.connect();
        client.send(request(&format!("{}{name}", WAYS[at % WAYS.len()])).as_bytes());
        client
    };
    let (early, late) = names.split_at(names.len() / 2);
    let mut clients: Vec<Connection> = early.iter().enumerate().map(ask).collect();
    // Some may be there in time all the same; these wait with what is missing of them.
    assert!(wait_until(PATIENCE, || overflows(&server) > known), "the queue is full");
    hold.end();
    clients.extend(late.iter().enumerate().map(ask));
    let mut refused = 0;
    for (client, name) in clients.iter_mut().zip(&names) {
        let answer = client.response();
        match answer.status {
            200 => assert!(answer.text() == contents(name), "{name}"),
            503 => {
                assert!(answer.text().contains("503 Service Temporarily Unavailable"), "{name}");
                refused += 1;
            }
            other => panic!("{name}: {other}"),
        }
    }
    let line = format!("queue overflow: {MAX_QUEUE} tasks waiting");
    server.wait_lines("logs/error.log", &line, refused);
}

fn overflows(server: &Server) -> usize {
    server.lines("logs/error.log").lines().filter(|line| line.contains("queue overflow")).count()
}
