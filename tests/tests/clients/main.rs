//! Clients as people have them, each with and without a session of an earlier connection: curl, OpenSSL,
//! Python, Go, Java, Chromium, Firefox. They are run where they are installed, on demand:
//!
//! ```sh
//! CLEARWAY_BIN=… cargo test -p clearway-tests --test clients -- --ignored --nocapture
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]
#![allow(clippy::disallowed_macros, reason = "test programs talk to their terminal")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Server, Setup, wait_until};

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../../../crates/tls/tests/data/", $name))[..]
    };
}

mod http2;
mod site;

const HTTP: &str = "
    log_format told '$http_user_agent|$ssl_protocol|$ssl_cipher|$ssl_curve|$ssl_session_reused|$uri';
    access_log logs/told.log told;
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name www.example.com;
        ssl_certificate example.pem;
        ssl_certificate_key example.key;
        ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
        ssl_ciphers DEFAULT:@SECLEVEL=0;
        keepalive_timeout 0;
        location / { return 200 '$ssl_protocol $ssl_session_reused'; }
        location /page {
            default_type text/html;
            return 200 '<title>fetched</title><img src=/one><img src=/two><img src=/three><p>fetched</p>';
        }
    }";

fn start() -> Server {
    let setup = Setup::http(Binary::under_test(), HTTP).file("ca.pem", data!("ca.pem"));
    setup.file("example.pem", data!("ecdsa.pem")).file("example.key", data!("ecdsa.key")).start()
}

fn authority(server: &Server) -> PathBuf {
    server.prefix().join("ca.pem")
}

/// A program of the machine, if it is there.
fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let dirs: Vec<PathBuf> =
        std::env::split_paths(&path).chain([PathBuf::from("/usr/local/go/bin")]).collect();
    let found =
        names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name))).find(|p| p.is_file());
    if found.is_none() {
        eprintln!("skipped: none of {names:?} is installed");
    }
    found
}

fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().expect("it runs");
    let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}\n{said}\n{complained}");
    said.into_owned()
}

/// What a client of both versions is told that connects twice with each.
const BOTH_TWICE: [&str; 4] = ["TLSv1.2 .", "TLSv1.2 r", "TLSv1.3 .", "TLSv1.3 r"];

#[test]
#[ignore = "runs a program of the machine"]
fn curl() {
    let Some(curl) = installed(&["curl"]) else { return };
    let server = start();
    let port = server.port();
    for (version, name) in [("1.0", "TLSv1"), ("1.1", "TLSv1.1"), ("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
        let mut command = Command::new(&curl);
        command.args(["-sS", "--ciphers", "DEFAULT:@SECLEVEL=0", "-w", "\n", "--cacert"]);
        command.arg(authority(&server));
        command.args(["--resolve", &format!("www.example.com:{port}:127.0.0.1"), "--tls-max", version]);
        command.arg(format!("--tlsv{version}"));
        let url = format!("https://www.example.com:{port}/");
        // curl 7.88 takes up what it has of TLS 1.3 alone, also from nginx.
        let again = if version == "1.3" { "r" } else { "." };
        assert_eq!(said(command.args([&url, &url])), format!("{name} .\n{name} {again}\n"));
    }
}

#[test]
#[ignore = "runs a program of the machine"]
fn openssl() {
    let Some(openssl) = installed(&["openssl"]) else { return };
    let server = start();
    for (option, name) in
        [("-tls1", "TLSv1"), ("-tls1_1", "TLSv1.1"), ("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")]
    {
        let session = server.prefix().join(format!("session{option}"));
        for (session_option, reused) in [("-sess_out", "."), ("-sess_in", "r")] {
            let mut command = Command::new(&openssl);
            command.args(["s_client", "-quiet", "-verify_return_error", "-cipher", "DEFAULT:@SECLEVEL=0"]);
            command.args(["-connect", &format!("127.0.0.1:{}", server.port()), option]);
            command.args(["-servername", "www.example.com", "-verify_hostname", "www.example.com"]);
            command.arg("-CAfile").arg(authority(&server)).arg(session_option).arg(&session);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("it runs");
            let request = b"GET / HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n";
            child.stdin.as_mut().expect("it is piped").write_all(request).expect("it is taken");
            let output = child.wait_with_output().expect("it ends");
            let answer = String::from_utf8_lossy(&output.stdout).into_owned();
            let complained = String::from_utf8_lossy(&output.stderr);
            assert!(answer.ends_with(&format!("{name} {reused}")), "{answer}\n{complained}");
        }
    }
}

/// A program in a language, which prints what it is told.
fn lines_of(command: &mut Command, server: &Server) -> Vec<String> {
    let command = command.arg(server.port().to_string()).arg(authority(server));
    said(command).lines().map(str::to_owned).collect()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// The command that runs a program in Go.
fn go_run(name: &str) -> Option<Command> {
    let mut command = Command::new(installed(&["go"])?);
    command.arg("run").arg(source(name)).env("GO111MODULE", "off");
    Some(command)
}

#[test]
#[ignore = "runs a program of the machine"]
fn python() {
    let Some(python) = installed(&["python3"]) else { return };
    assert_eq!(lines_of(Command::new(python).arg(source("client.py")), &start()), BOTH_TWICE);
}

#[test]
#[ignore = "runs a program of the machine"]
fn go() {
    let Some(mut command) = go_run("client.go") else { return };
    let server = start();
    assert_eq!(lines_of(&mut command, &server), BOTH_TWICE);
}

#[test]
#[ignore = "runs a program of the machine"]
fn java() {
    let Some(java) = installed(&["java"]) else { return };
    assert_eq!(lines_of(Command::new(java).arg(source("Client.java")), &start()), BOTH_TWICE);
}

/// Has a browser trust the authority: its own data base is made in this directory.
fn trust(server: &Server, dir: &Path) -> bool {
    let Some(certutil) = installed(&["certutil"]) else { return false };
    fs::create_dir_all(dir).expect("it is ours");
    let base = format!("sql:{}", dir.display());
    said(Command::new(&certutil).args(["-N", "--empty-password", "-d", &base]));
    let mut add = Command::new(&certutil);
    add.args(["-A", "-n", "test", "-t", "C,,", "-d", &base, "-i"]).arg(authority(server));
    said(&mut add);
    true
}

/// What the server was told by a browser that fetched a page with three pictures.
fn fetched(server: &Server) -> Vec<String> {
    let lines = || -> Vec<String> {
        let log = fs::read_to_string(server.prefix().join("logs/told.log")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with("Mozilla/")).map(str::to_owned).collect()
    };
    wait_until(PATIENCE, || {
        let lines = lines();
        ["/page", "/one", "/two", "/three"].iter().all(|uri| lines.iter().any(|line| line.ends_with(uri)))
    });
    let lines = lines();
    println!("{}", lines.join("\n"));
    assert!(lines.len() >= 4, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("|TLSv1.3|")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("|r|")), "no session was taken up: {lines:?}");
    lines
}

/// What Chromium makes of the page, with these arguments; `None` if it is not installed.
fn browse_with_chromium(server: &Server, arguments: &[&str]) -> Option<String> {
    let chromium = installed(&["chromium", "chromium-browser", "google-chrome"])?;
    let (home, port) = (server.prefix().join("home"), server.port());
    if !trust(server, &home.join(".pki/nssdb")) {
        return None;
    }
    let mut command = Command::new(chromium);
    command.env("HOME", &home).args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    command.args(arguments);
    command.arg(format!("--user-data-dir={}", home.join("data").display()));
    command.arg(format!("--host-resolver-rules=MAP www.example.com 127.0.0.1:{port}"));
    Some(said(command.arg(format!("https://www.example.com:{port}/page"))))
}

/// Has Firefox fetch the page; false if it is not installed.
fn browse_with_firefox(server: &Server) -> bool {
    let Some(firefox) = installed(&["firefox-esr", "firefox"]) else { return false };
    let (profile, port) = (server.prefix().join("profile"), server.port());
    if !trust(server, &profile) {
        return false;
    }
    let settings = "user_pref('network.dns.forceResolve', '127.0.0.1');\n\
                    user_pref('browser.shell.checkDefaultBrowser', false);\n";
    fs::write(profile.join("user.js"), settings).expect("it is ours");
    let mut command = Command::new(firefox);
    command.env("HOME", &profile).args(["--headless", "--no-remote", "--profile"]).arg(&profile);
    command.arg("--screenshot").arg(profile.join("page.png"));
    said(command.arg(format!("https://www.example.com:{port}/page")));
    true
}

#[test]
#[ignore = "runs a program of the machine"]
fn chromium() {
    let server = start();
    let Some(page) = browse_with_chromium(&server, &[]) else { return };
    assert!(page.contains("<p>fetched</p>"), "{page}");
    fetched(&server);
}

#[test]
#[ignore = "runs a program of the machine"]
fn firefox() {
    let server = start();
    if browse_with_firefox(&server) {
        fetched(&server);
    }
}
