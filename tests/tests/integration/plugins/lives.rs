//! Signals that reach a server with runtimes of plugins in it: all of them in one process, a configuration
//! that is read anew, another binary and each way to end.

use std::path::Path;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::server::send_signal;
use clearway_testkit::{Binary, Server, Setup, expect_soon};
use rustix::process::Signal;

use super::examples::{build_go, build_java, build_node, build_python, build_rust, node_command};
use super::{build_c, children_with};

/// An example, its `config`, and where it runs.
struct Runtime {
    language: &'static str,
    config: String,
    place: &'static str,
    build: Build,
}

/// Makes a library of this name, and files beside it.
type Build = fn(&Path);

impl Runtime {
    fn new(language: &'static str, config: &str, place: &'static str, build: Build) -> Self {
        Self { language, config: config.to_owned(), place, build }
    }

    fn greeting(&self, args: &str) -> String {
        // The one in C says its name.
        format!("hello {args} from {}\n", self.language)
    }
}

/// Those that need nothing but compilers which the server needs as well, once in its process and once beside.
fn compiled() -> Vec<Runtime> {
    vec![
        Runtime::new("C", "key", "", build_c),
        Runtime::new("Rust", "key", "", build_rust),
        Runtime::new("C_beside", "key", "process", build_c),
    ]
}

/// All languages; Node is a program of its own, and its library wants a process.
fn all() -> Vec<Runtime> {
    vec![
        Runtime::new("C", "key", "", build_c),
        Runtime::new("Rust", "key", "", build_rust),
        Runtime::new("Go", "key", "", build_go),
        Runtime::new("Python", "%%PREFIX%%/example.py", "", build_python),
        Runtime::new("Java", "%%PREFIX%%/classes", "", build_java),
        Runtime::new("Node", &node_command(), "process", build_node),
    ]
}

fn text(runtimes: &[Runtime], page: &str) -> String {
    let (mut plugins, mut locations) = (String::new(), String::new());
    for Runtime { language, config, place, .. } in runtimes {
        plugins += &format!("plugin {language} library={language}.so 'config={config}' {place};\n");
        locations += &format!("location /{language} {{ plugin_pass {language} greet; }}\n");
    }
    format!(
        "daemon on;\nuser root;\nworker_processes 1;\npid nginx.pid;\nerror_log logs/error.log info;\n\
         events {{ }}\nhttp {{\n%%TEMP%%\naccess_log off;\n{plugins}plugin_timeout 60s;\n\
         server {{ listen 127.0.0.1:%%PORT%%; location /page {{ return 200 {page}; }}\n\
         location /slow {{ echo_sleep 1; echo slow; }}\n{locations} }} }}\n"
    )
}

/// A daemon, as nginx's upgrade wants one.
fn start(runtimes: &[Runtime]) -> Server {
    let builds: Vec<(String, Build)> =
        runtimes.iter().map(|runtime| (format!("{}.so", runtime.language), runtime.build)).collect();
    let setup = Setup::new(Binary::under_test(), &text(runtimes, "first"));
    let build_all = move |prefix: &Path| builds.iter().for_each(|(name, build)| build(&prefix.join(name)));
    setup.prepared(build_all).daemon().start()
}

/// Each answers.
fn greet(server: &Server, runtimes: &[Runtime], args: &str) {
    for runtime in runtimes {
        let said = server.get(&format!("/{}?{args}", runtime.language)).text();
        assert_eq!(said, runtime.greeting(args), "{}", server.described());
    }
}

fn lives(runtimes: &[Runtime]) {
    let mut server = start(runtimes);
    greet(&server, runtimes, "first");
    server.configure(&text(runtimes, "second"));
    server.signal(Signal::HUP);
    expect_soon("it is read", || server.get("/page").text() == "second");
    greet(&server, runtimes, "second");
    take_over(&mut server, runtimes);
    // Of one worker, told by itself: its threads may have any signal open.
    let worker = server.worker();
    send_signal(worker, Signal::TERM);
    server.wait_gone(worker);
    expect_soon("another one serves", || server.worker() != worker);
    greet(&server, runtimes, "replaced");
    let mut waiting = server.connect();
    waiting.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_soon("it is under way", || server.get("/page").status == 200);
    server.signal(Signal::QUIT);
    assert_eq!(waiting.response().text(), "slow\n", "QUIT waits for what is under way");
    assert!(server.wait_exit(PATIENCE).is_some(), "{}", server.described());
    expect_soon("nothing is left", || runtimes.iter().all(|runtime| left(&server, runtime) == 0));
    let log = server.read("logs/error.log");
    assert!(!log.contains("exited on signal"), "{log}");
}

/// Another binary takes over, and the one before ends.
fn take_over(server: &mut Server, runtimes: &[Runtime]) {
    let old = server.pid();
    let new = server.begin_upgrade();
    send_signal(old, Signal::QUIT);
    server.wait_gone(old);
    server.follow(new);
    greet(server, runtimes, "upgraded");
}

fn left(server: &Server, runtime: &Runtime) -> usize {
    children_with(server, &format!("{}.so", runtime.language))
}

fn ends_by_term(runtimes: &[Runtime]) {
    let mut server = start(runtimes);
    greet(&server, runtimes, "first");
    server.signal(Signal::TERM);
    assert!(server.wait_exit(PATIENCE).is_some(), "{}", server.described());
    expect_soon("nothing is left", || runtimes.iter().all(|runtime| left(&server, runtime) == 0));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn signals_reach_a_server_with_compiled_plugins() {
    lives(&compiled());
    ends_by_term(&compiled());
}

#[test]
#[ignore = "wants Go, Python, a JDK and Node: ./x plugins"]
fn signals_reach_a_server_with_all_runtimes() {
    lives(&all());
    ends_by_term(&all());
}
