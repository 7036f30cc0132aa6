//! Plugins: what they answer, what they may not do, and that a crash of one in its own process costs nothing
//! but its own requests. The examples of `plugins/` are built and asked.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clearway_testkit::http2::{Http2, Settings};
use clearway_testkit::{Response, Server, expect_soon};
use rustix::process::Signal;

use crate::deployed;

mod examples;
mod lives;

/// Two plugins of one library, in the server's process and beside it.
const HTTP: &str = "
    plugin inside library=example.so config=secret calls=8 message=16k;
    plugin beside library=example.so config=secret calls=8 message=16k process;
    plugin missing library=missing.so;
    plugin missing_beside library=missing.so process;
    client_body_buffer_size 1k;
    server {
        listen 127.0.0.1:%%PORT%%;
        http2 on;
        error_page 404 /page;
        plugin_timeout 30s;
        location /page { return 200 page; }
        location /cheap { return 200 cheap; }
        location /inside/greet { plugin_pass inside greet; }
        location /beside/greet { plugin_pass beside greet; }
        location /inside/echo { plugin_pass inside echo; }
        location /beside/echo { plugin_pass beside echo; }
        location /inside/private { plugin_access inside check; echo -n private; }
        location /beside/private { plugin_access beside check; echo -n private; }
        location /inside/satisfied { satisfy any; deny all; plugin_access inside check; echo -n private; }
        location /beside/satisfied { satisfy any; deny all; plugin_access beside check; echo -n private; }
        location /inside/logged { plugin_log inside count; return 200 logged; }
        location /beside/logged { plugin_log beside count; return 200 logged; }
        location /inside/counted { plugin_pass inside counted; }
        location /beside/counted { plugin_pass beside counted; }
        location /inside/unknown { plugin_pass inside unknown; }
        location /beside/unknown { plugin_pass beside unknown; }
        location /inside/nonsense { plugin_pass inside nonsense; }
        location /beside/nonsense { plugin_pass beside nonsense; }
        location /inside/twice { plugin_pass inside twice; }
        location /beside/twice { plugin_pass beside twice; }
        location /inside/silence { plugin_timeout 100ms; plugin_pass inside silence; }
        location /beside/silence { plugin_timeout 100ms; plugin_pass beside silence; }
        location /inside/late { plugin_timeout 100ms; plugin_pass inside sleep; }
        location /beside/late { plugin_timeout 100ms; plugin_pass beside sleep; }
        location /beside/crash { plugin_pass beside crash; }
        location /beside/sleep { plugin_pass beside sleep; }
        location /inside/sleep { plugin_pass inside sleep; }
        location /inside/flood { plugin_pass inside flood; }
        location /beside/flood { plugin_pass beside flood; }
        location /missing { plugin_pass missing greet; }
        location /missing_beside { plugin_pass missing_beside greet; }
    }";

/// Where the plugin is.
const WAYS: [&str; 2] = ["inside", "beside"];

fn compile(program: &str, arguments: &[&str], to: &Path) {
    let made = Command::new(program).args(arguments).arg("-o").arg(to).output();
    let made = made.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(made.status.success(), "{program}: {}", String::from_utf8_lossy(&made.stderr));
}

fn source(path: &str) -> String {
    format!("{}/../plugins/{path}", env!("CARGO_MANIFEST_DIR"))
}

fn start() -> Server {
    deployed("events { }", HTTP)
        .prepared(|prefix| {
            build_c(&prefix.join("example.so"));
        })
        .start()
}

fn build_c(library: &Path) {
    let options = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", &source("c/example.c"), "-lpthread"];
    compile("cc", &options, library);
}

fn ask(server: &Server, method: &str, path: &str, more: &str, body: &str) -> Response {
    let length = body.len();
    server.connect().ask(&format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n\
         {body}"
    ))
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn plugins_take_part_in_requests() {
    let server = start();
    for way in WAYS {
        let get = |path: &str, more: &str| ask(&server, "GET", &format!("/{way}/{path}"), more, "");
        let greeting = get("greet?you", "");
        assert_eq!((greeting.status, greeting.text()), (200, format!("hello you from {way}\n")));
        assert_eq!(greeting.header("content-type"), Some("text/plain"));
        assert_eq!(greeting.header("x-greeter"), Some("secret"));
        assert_eq!(ask(&server, "POST", &format!("/{way}/echo"), "", "a body").text(), "a body");
        let large = "0123456789".repeat(1000);
        assert_eq!(ask(&server, "POST", &format!("/{way}/echo"), "", &large).text(), large);
        let too_large = "0123456789".repeat(2000);
        assert_eq!(ask(&server, "POST", &format!("/{way}/echo"), "", &too_large).status, 413);
        let refused = get("private", "X-Key: other\r\n");
        assert_eq!((refused.status, refused.text()), (403, "wrong key\n".to_owned()));
        assert_eq!(get("private", "X-Key: secret\r\n").text(), "private");
        assert_eq!(get("satisfied", "").status, 403);
        assert_eq!(get("satisfied", "X-Key: secret\r\n").text(), "private");
        assert_eq!(get("unknown", "").text(), "no such function\n");
        for _ in 0..10 {
            assert_eq!(get("logged", "").text(), "logged");
        }
        expect_soon("all are told of", || get("counted", "").text() == "10");
        let mut client = Http2::open(&server.address(), Settings::default());
        client.get(1, &format!("/{way}/greet?two"));
        assert_eq!(client.answer(1).text(), format!("hello two from {way}\n"));
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn plugins_that_do_wrong_harm_their_own_requests_only() {
    let server = start();
    for way in WAYS {
        let get = |path: &str| server.get(&format!("/{way}/{path}"));
        for _ in 0..20 {
            assert_eq!(get("twice").text(), "once\n");
        }
        assert_eq!(get("nonsense").status, 502);
        assert_eq!(get("late").status, 504);
        for _ in 0..7 {
            assert_eq!(get("silence").status, 504);
        }
        // The late one gives its place back when it is answered.
        let still = format!("hello still from {way}\n");
        expect_soon("others are answered", || get("greet?still").text() == still);
        assert_eq!(get("silence").status, 504);
        assert_eq!(get("greet").status, 503, "what was never answered keeps its place");
    }
    for path in ["/missing", "/missing_beside"] {
        assert_eq!(server.get(path).status, 502, "{path}");
    }
    server.wait_log("logs/error.log", "plugin \"missing\" was not loaded");
    server.wait_log("logs/error.log", "plugin \"missing_beside\" exited with code 1");
    assert_eq!(server.get("/cheap").text(), "cheap");
}

/// Answers that nobody waits for are dropped, however many there are, and others are served meanwhile.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_plugin_that_floods_is_heard_once() {
    let server = start();
    for way in WAYS {
        let is_over = AtomicBool::new(false);
        let flooded = thread::scope(|scope| {
            let other = scope.spawn(|| visit(&server, "/cheap", &is_over));
            let texts: Vec<_> = (0..5).map(|_| server.get(&format!("/{way}/flood")).text()).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(other.join().expect("all are answered") > 0);
            texts
        });
        assert_eq!(flooded, ["flooded\n"; 5]);
        expect_soon("one answer of each was taken", || server.get(&format!("/{way}/counted")).text() == "1");
        assert_eq!(server.get(&format!("/{way}/greet?then")).text(), format!("hello then from {way}\n"));
    }
}

/// A client that leaves before its answer costs its place until that comes, and nothing else.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn answers_to_clients_that_have_left_are_dropped() {
    let server = start();
    for way in WAYS {
        for round in 0..3 {
            let leaving: Vec<_> = (0..4)
                .map(|_| {
                    let mut client = server.connect();
                    client.send(format!("GET /{way}/sleep HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
                    client
                })
                .collect();
            assert_eq!(server.get("/cheap").text(), "cheap");
            drop(leaving);
            let greeting = format!("hello {round} from {way}\n");
            expect_soon("places come back", || {
                server.get(&format!("/{way}/greet?{round}")).text() == greeting
            });
        }
    }
}

/// Asks until that is over; how often.
fn visit(server: &Server, path: &str, is_over: &AtomicBool) -> usize {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        assert_eq!(server.get(path).status, 200, "{path}");
        count += 1;
    }
    count
}

/// Requests that it has not answered get a 502, it is there again, and nobody else notices.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_plugin_that_crashes_beside_the_server_is_started_again() {
    let server = start();
    let is_over = AtomicBool::new(false);
    let served = thread::scope(|scope| {
        let others: Vec<_> = ["/cheap", "/inside/greet"]
            .map(|path| {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || visit(server, path, is_over))
            })
            .into();
        (0..3).for_each(|round| crash(&server, round));
        is_over.store(true, Ordering::Relaxed);
        others.into_iter().map(|other| other.join().expect("all are answered")).sum::<usize>()
    });
    assert!(served > 0);
}

fn crash(server: &Server, round: usize) {
    expect_soon("it is there", || server.get("/beside/greet").status == 200);
    let mut waiting = server.connect();
    waiting.send(b"GET /beside/sleep HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(server.get("/beside/crash").status, 502, "round {round}");
    let other = waiting.response().status;
    assert!(other == 502 || other == 200, "it was answered before, or crashed with the process: {other}");
    server.wait_lines("logs/error.log", "plugin \"beside\" exited on signal 6", round + 1);
}

/// What a plugin knows it still knows afterwards; one that is not named any more ends.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_reload_leaves_plugins_alone() {
    let mut server = start();
    for way in WAYS {
        (0..3).for_each(|_| assert_eq!(server.get(&format!("/{way}/logged")).text(), "logged"));
        expect_soon("all are told of", || server.get(&format!("/{way}/counted")).text() == "3");
    }
    let text = server.read("nginx.conf").replace("return 200 page;", "return 200 second;");
    server.configure(&text);
    server.signal(Signal::HUP);
    expect_soon("it is read", || server.get("/page").text() == "second");
    for way in WAYS {
        assert_eq!(server.get(&format!("/{way}/counted")).text(), "3");
    }
    let is_kept = |line: &&str| !line.contains("beside");
    let text: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
    server.configure(&text);
    server.signal(Signal::HUP);
    expect_soon("it is not named any more", || server.get("/beside/greet").status == 404);
    expect_soon("it ends", || children_with(&server, "example.so") == 0);
    assert_eq!(server.get("/inside/counted").text(), "3");
}

/// Its process ends with the server.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn processes_of_plugins_end() {
    let mut server = start();
    assert_eq!(server.get("/beside/greet").status, 200);
    assert_eq!(children_with(&server, "example.so"), 1);
    server.stop();
    expect_soon("it ends", || children_with(&server, "example.so") == 0);
}

/// How many processes have the environment of a plugin and this library of the server's in it.
fn children_with(server: &Server, library: &str) -> usize {
    let library = server.prefix().join(library);
    let wanted = format!("CLEARWAY_PLUGIN_LIBRARY={}", library.display());
    let processes = std::fs::read_dir("/proc").expect("procfs").filter_map(Result::ok);
    let has = |directory: &Path| {
        let environment = std::fs::read(directory.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    processes.filter(|entry| has(&entry.path())).count()
}
