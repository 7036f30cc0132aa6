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
            let options =
                ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", &source("c/example.c"), "-lpthread"];
            compile("cc", &options, &prefix.join("example.so"));
        })
        .start()
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
                scope.spawn(move || {
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(server.get(path).status, 200, "{path}");
                        count += 1;
                    }
                    count
                })
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
    expect_soon("it ends", || children_with(&server) == 0);
    assert_eq!(server.get("/inside/counted").text(), "3");
}

/// Its process ends with the server.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn processes_of_plugins_end() {
    let mut server = start();
    assert_eq!(server.get("/beside/greet").status, 200);
    assert_eq!(children_with(&server), 1);
    server.stop();
    expect_soon("it ends", || children_with(&server) == 0);
}

/// How many processes have the environment of a plugin and this server's prefix in it.
fn children_with(server: &Server) -> usize {
    let library = server.prefix().join("example.so");
    let wanted = format!("CLEARWAY_PLUGIN_LIBRARY={}", library.display());
    let processes = std::fs::read_dir("/proc").expect("procfs").filter_map(Result::ok);
    let has = |directory: &Path| {
        let environment = std::fs::read(directory.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    processes.filter(|entry| has(&entry.path())).count()
}

/// Where an example may run.
const BOTH: &[&str] = &["process", ""];
const BESIDE: &[&str] = &["process"];

/// Asks an example for what all of them do. `build` puts its library into the prefix, as `example.so`, and
/// whatever `config` names.
fn ask_example(language: &str, places: &[&str], config: &str, build: fn(&Path)) {
    for place in places {
        let http = format!(
            "plugin example library=example.so 'config={config}' {place};
            plugin_timeout 60s;
            server {{
                listen 127.0.0.1:%%PORT%%;
                location /greet {{ plugin_pass example greet; }}
                location /echo {{ plugin_pass example echo; }}
                location /unknown {{ plugin_pass example unknown; }}
                location /private {{ plugin_access example check; echo -n private; }}
            }}"
        );
        let mut server = deployed("events { }", &http).prepared(build).start();
        ask_each(&server, language);
        server.signal(Signal::HUP);
        server.wait_log("logs/error.log", "reconfiguring");
        expect_soon("it answers", || {
            server.get("/greet?then").text() == format!("hello then from {language}\n")
        });
        assert!(server.stop().success(), "{language} {place}: TERM reaches the server");
    }
}

fn ask_each(server: &Server, language: &str) {
    assert_eq!(server.get("/greet?you").text(), format!("hello you from {language}\n"));
    for body in ["", "a body", &"0123456789".repeat(1000)] {
        assert_eq!(ask(server, "POST", "/echo", "", body).text(), body);
    }
    assert_eq!(server.get("/private").status, 403);
    assert_eq!(ask(server, "GET", "/private", "X-Key: key\r\n", "").text(), "private");
    assert_eq!(server.get("/unknown").status, 404);
    thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                for nth in 0..50 {
                    let said = server.get(&format!("/greet?{client}-{nth}")).text();
                    assert_eq!(said, format!("hello {client}-{nth} from {language}\n"));
                }
            });
        }
    });
}

/// Words that a program prints.
fn words(program: &str, arguments: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

/// Builds a library of C.
fn compile_host(path: &str, more: &[String], prefix: &Path) {
    let source = source(path);
    let mut options = vec!["-shared", "-fPIC", "-O1", "-Wall", "-Werror", &source];
    options.extend(more.iter().map(String::as_str));
    options.push("-lpthread");
    compile("cc", &options, &prefix.join("example.so"));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn the_example_in_rust_does_the_same() {
    ask_example("Rust", BOTH, "key", |prefix| {
        let options = ["--edition", "2024", "--crate-type", "cdylib", &source("rust/example.rs")];
        compile("rustc", &options, &prefix.join("example.so"));
    });
}

#[test]
#[ignore = "wants Go: ./x plugins"]
fn the_example_in_go_does_the_same() {
    ask_example("Go", BOTH, "key", |prefix| {
        let library = prefix.join("example.so");
        let made = Command::new("go")
            .args(["build", "-buildmode=c-shared", "-o"])
            .arg(&library)
            .arg(".")
            .env("GOFLAGS", "-mod=mod")
            .current_dir(source("go"))
            .output()
            .expect("go is there");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    });
}

#[test]
#[ignore = "wants Python with its headers: ./x plugins"]
fn the_example_in_python_does_the_same() {
    ask_example("Python", BOTH, "%%PREFIX%%/example.py", |prefix| {
        // The interpreter writes beside what it reads.
        for name in ["example.py", "clearway.py"] {
            std::fs::copy(source(&format!("python/{name}")), prefix.join(name)).expect("there is room");
        }
        let options = words("python3-config", &["--includes", "--ldflags", "--embed"]);
        compile_host("python/host.c", &options, prefix);
    });
}

#[test]
#[ignore = "wants a JDK: ./x plugins"]
fn the_example_in_java_does_the_same() {
    ask_example("Java", BOTH, "%%PREFIX%%/classes", |prefix| {
        let made = Command::new("javac")
            .arg("-d")
            .arg(prefix.join("classes"))
            .arg(source("java/Example.java"))
            .output()
            .expect("javac is there");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let shown = words(
            "sh",
            &["-c", "java -XshowSettings:properties -version 2>&1 | sed -n 's/.*java.home = //p'"],
        );
        let home = shown.first().expect("a JDK says where it is");
        let options = [
            format!("-I{home}/include"),
            format!("-I{home}/include/linux"),
            format!("-L{home}/lib/server"),
            format!("-Wl,-rpath,{home}/lib/server"),
            "-ljvm".to_owned(),
        ];
        compile_host("java/host.c", &options, prefix);
    });
}

#[test]
#[ignore = "wants Node: ./x plugins"]
fn the_example_for_node_does_the_same() {
    ask_example("Node", BESIDE, &format!("node {}", source("node/example.js")), |prefix| {
        compile_host("node/host.c", &[], prefix);
    });
}
