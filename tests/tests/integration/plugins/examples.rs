//! The examples of `plugins/` are built and asked. Those that want more than C and Rust: `./x plugins`.

use std::path::Path;
use std::process::Command;
use std::thread;

use clearway_testkit::{Server, expect_soon};
use rustix::process::Signal;

use super::{ask, compile, source};
use crate::deployed;

/// Where an example may run.
const BOTH: &[&str] = &["process", ""];
const BESIDE: &[&str] = &["process"];

/// Asks an example for all that each of them does. `build` makes its library, and files that `config` names.
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
        let mut server =
            deployed("events { }", &http).prepared(move |prefix| build(&prefix.join("example.so"))).start();
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
fn compile_host(path: &str, more: &[String], library: &Path) {
    let source = source(path);
    let mut options = vec!["-shared", "-fPIC", "-O1", "-Wall", "-Werror", &source];
    options.extend(more.iter().map(String::as_str));
    options.push("-lpthread");
    compile("cc", &options, library);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn the_example_in_rust_does_the_same() {
    ask_example("Rust", BOTH, "key", build_rust);
}

#[test]
#[ignore = "wants Go: ./x plugins"]
fn the_example_in_go_does_the_same() {
    ask_example("Go", BOTH, "key", build_go);
}

#[test]
#[ignore = "wants Python with its headers: ./x plugins"]
fn the_example_in_python_does_the_same() {
    ask_example("Python", BOTH, "%%PREFIX%%/example.py", build_python);
}

#[test]
#[ignore = "wants a JDK: ./x plugins"]
fn the_example_in_java_does_the_same() {
    ask_example("Java", BOTH, "%%PREFIX%%/classes", build_java);
}

#[test]
#[ignore = "wants Node: ./x plugins"]
fn the_example_for_node_does_the_same() {
    ask_example("Node", BESIDE, &node_command(), build_node);
}

pub(super) fn build_rust(library: &Path) {
    let options = ["--edition", "2024", "--crate-type", "cdylib", &source("rust/example.rs")];
    compile("rustc", &options, library);
}

pub(super) fn build_go(library: &Path) {
    let made = Command::new("go")
        .args(["build", "-buildmode=c-shared", "-o"])
        .arg(library)
        .arg(".")
        .env("GOFLAGS", "-mod=mod")
        .current_dir(source("go"))
        .output()
        .expect("go is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

pub(super) fn build_python(library: &Path) {
    // The interpreter writes beside the files that it reads.
    for name in ["example.py", "clearway.py"] {
        std::fs::copy(source(&format!("python/{name}")), library.with_file_name(name))
            .expect("there is room");
    }
    let options = words("python3-config", &["--includes", "--ldflags", "--embed"]);
    compile_host("python/host.c", &options, library);
}

pub(super) fn build_java(library: &Path) {
    let made = Command::new("javac")
        .arg("-d")
        .arg(library.with_file_name("classes"))
        .arg(source("java/Example.java"))
        .output()
        .expect("javac is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let shown =
        words("sh", &["-c", "java -XshowSettings:properties -version 2>&1 | sed -n 's/.*java.home = //p'"]);
    let home = shown.first().expect("a JDK says where it is");
    let options = [
        format!("-I{home}/include"),
        format!("-I{home}/include/linux"),
        format!("-L{home}/lib/server"),
        format!("-Wl,-rpath,{home}/lib/server"),
        "-ljvm".to_owned(),
    ];
    compile_host("java/host.c", &options, library);
}

pub(super) fn build_node(library: &Path) {
    compile_host("node/host.c", &[], library);
}

/// The command of the example for Node.
pub(super) fn node_command() -> String {
    format!("node {}", source("node/example.js"))
}
