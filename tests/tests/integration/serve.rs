//! `clearway serve DIR`: no file needed, a URL on standard error, requests logged as they come.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::ports::free_port;
use clearway_testkit::{Address, Binary, Connection, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::tls;

/// `clearway serve` on a directory of its own.
struct Serve {
    child: Child,
    lines: Receiver<String>,
    dir: PathBuf,
}

impl Serve {
    fn start(name: &str, args: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("clearway-serve-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        std::fs::write(dir.join("hello.txt"), "hello\n").expect("the directory is ours");
        let mut child = Command::new(Binary::under_test().path)
            .arg("serve")
            .arg(&dir)
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server runs");
        let stderr = child.stderr.take().expect("it is piped");
        Self { child, lines: lines_of(stderr), dir }
    }

    /// Waits for a line that holds the text.
    fn line(&self, text: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("{text:?} is not in {seen:?}")
    }

    /// The address in the URL that it prints.
    fn address(&self) -> Address {
        self.address_of("http://")
    }

    fn address_of(&self, scheme: &str) -> Address {
        let line = self.line(scheme);
        let url = line.split(scheme).nth(1).expect("the line has a URL");
        let end = url.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(url.len());
        Address::Tcp(url[..end].parse().unwrap_or_else(|e| panic!("{line}: {e}")))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

fn lines_of(stderr: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn get(address: &Address, target: &str) -> clearway_testkit::Response {
    let mut connection = Connection::open(address).expect("it listens where it says");
    connection.ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such command")]
fn serves_a_directory_and_ends_on_ctrl_c() {
    let listen = format!("127.0.0.1:{}", free_port());
    let mut serve = Serve::start("dir", &["--listen", &listen]);
    let address = serve.address();
    let response = get(&address, "/hello.txt");
    assert_eq!((response.status, response.text().as_str()), (200, "hello\n"));
    assert_eq!(response.header("content-type"), Some("text/plain"));
    assert!(serve.line("GET /hello.txt").contains("200"), "requests are logged as they come");
    assert_eq!(get(&address, "/missing").status, 404);
    assert!(
        get(&address, "/").text().contains("<a href=\"hello.txt\">"),
        "who has no index sees what is there"
    );
    let pid = Pid::from_child(&serve.child);
    kill_process(pid, Signal::INT).expect("it runs");
    let ended = wait_until(PATIENCE, || matches!(serve.child.try_wait(), Ok(Some(_))));
    assert!(ended, "Ctrl-C ends it");
    assert_eq!(serve.child.wait().expect("it has ended").code(), Some(0));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such command")]
fn serves_with_tls_and_redirects_plain_requests() {
    let listen = format!("127.0.0.1:{}", free_port());
    let serve = Serve::start("tls", &["--tls", "--listen", &listen]);
    let secure = serve.address_of("https://");
    let plain = serve.address();
    serve.line("for development");
    for address in [&plain, &secure] {
        let moved = get(address, "/hello.txt?a");
        assert_eq!(moved.status, 301);
        let port = listen.rsplit(':').next().expect("it has a port");
        let target = format!("https://localhost:{port}/hello.txt?a");
        assert_eq!(moved.header("location"), Some(target.as_str()));
    }
    let (answer, certificate) = tls::ask_unknown(&secure, "/hello.txt");
    assert!(answer.ends_with(b"\r\n\r\nhello\n"), "{}", String::from_utf8_lossy(&answer));
    assert!(certificate.windows(9).any(|part| part == b"localhost"));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such command")]
fn takes_the_next_port_when_the_usual_one_is_taken() {
    // A process that holds 8080 for good serves this test as well; one that holds it for a moment may not let
    // it go while this test runs.
    let mut taken = TcpListener::bind("127.0.0.1:8080");
    wait_until(PATIENCE, || {
        if taken.is_err() {
            taken = TcpListener::bind("127.0.0.1:8080");
        }
        taken.is_ok()
    });
    let serve = Serve::start("port", &[]);
    let Address::Tcp(address) = serve.address() else { panic!("not a TCP address") };
    assert!(address.port() > 8080 && address.ip().is_loopback(), "{address}");
    assert_eq!(get(&Address::Tcp(address), "/hello.txt").status, 200);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such command")]
fn prints_the_configuration_that_it_stands_for() {
    let serve = Serve::start("print", &["--listen", &format!("127.0.0.1:{}", free_port())]);
    let output = Command::new(Binary::under_test().path)
        .arg("serve")
        .arg(&serve.dir)
        .args(["--listen", "127.0.0.1:9", "--print-config"])
        .output()
        .expect("the server runs");
    assert!(output.status.success());
    let config = String::from_utf8_lossy(&output.stdout);
    assert!(
        config.contains("listen 127.0.0.1:9") && config.contains(&*serve.dir.to_string_lossy()),
        "{config}"
    );
    assert!(config.contains("http {") && config.contains("events"), "{config}");
}
