//! The same clients and those that come with nghttp2, over HTTP/2: each fetches pages beside each other, a
//! body that is larger than its windows, and posts one that comes back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Server, Setup, wait_until};

use crate::{authority, browse_with_chromium, browse_with_firefox, go_run, installed, said};

const HTTP: &str = "
    log_format told '$http2|$request_method|$uri|$status|$http_user_agent';
    access_log logs/told.log told;
    client_body_buffer_size 1m;
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        listen 127.0.0.1:%%PORT:plain%%;
        http2 on;
        server_name www.example.com;
        ssl_certificate example.pem;
        ssl_certificate_key example.key;
        location / { return 200 '$server_protocol $uri'; }
        location /files/ { alias %%PREFIX%%/; }
        location /body { echo_read_request_body; echo_request_body; add_trailer X-Trailer $http2; }
        location /page {
            default_type text/html;
            return 200 '<title>fetched</title><img src=/one><img src=/two><img src=/three><p id=p>fetched</p>
                <script>
                    fetch(\"/body\", {method: \"POST\", body: \"x\".repeat(200000)})
                        .then(answer => answer.text())
                        .then(text => { p.textContent = \"came back: \" + text.length; });
                </script>';
        }
    }";

const LARGE_BYTES: usize = 1 << 20;
const POSTED_BYTES: usize = 200_000;

fn start() -> Server {
    let large: Vec<u8> = (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect();
    let setup = Setup::http(Binary::under_test(), HTTP).file("large", large);
    let setup = setup.file("posted", "x".repeat(POSTED_BYTES)).file("ca.pem", data!("ca.pem"));
    setup.file("example.pem", data!("ecdsa.pem")).file("example.key", data!("ecdsa.key")).start()
}

fn posted(server: &Server) -> PathBuf {
    server.prefix().join("posted")
}

/// The lines of the log, once there is one that ends so for each request.
fn told(server: &Server, requests: &[&str]) -> Vec<String> {
    let lines = || -> Vec<String> {
        let log = fs::read_to_string(server.prefix().join("logs/told.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    };
    wait_until(PATIENCE, || {
        let lines = lines();
        requests.iter().all(|request| lines.iter().any(|line| line.contains(request)))
    });
    let lines = lines();
    println!("{}", lines.join("\n"));
    assert!(lines.iter().all(|line| line.starts_with("h2")), "another protocol: {lines:?}");
    lines
}

#[test]
#[ignore = "runs a program of the machine"]
fn curl() {
    let Some(curl) = installed(&["curl"]) else { return };
    let server = start();
    let (tls, plain) = (server.port(), server.port_of("PORT:plain"));
    for (option, scheme, port) in [("--http2", "https", tls), ("--http2-prior-knowledge", "http", plain)] {
        let url = format!("{scheme}://www.example.com:{port}");
        let fetch = |args: &[&str]| {
            let mut command = Command::new(&curl);
            command.args(["-sS", option, "--resolve", &format!("www.example.com:{port}:127.0.0.1")]);
            command.arg("--cacert").arg(authority(&server)).args(args);
            said(&mut command)
        };
        let pages = [format!("{url}/one"), format!("{url}/two"), format!("{url}/three")];
        let said = |page: &[String]| {
            let page: Vec<&str> = page.iter().map(String::as_str).collect();
            fetch(&[&["-Z", "-w", " v%{http_version}\n"], &page[..]].concat())
        };
        // With prior knowledge curl 7.88 fails at the second request of a connection, also with nginx.
        let together = if scheme == "https" { pages.len() } else { 1 };
        let pages: String = pages.chunks(together).map(said).collect();
        assert_eq!(pages.matches(" v2\n").count(), 3, "{pages}");
        let copy = server.prefix().join("copy");
        fetch(&["-o", &copy.display().to_string(), &format!("{url}/files/large")]);
        assert!(is_same(&copy, &server.prefix().join("large")));
        let body = format!("@{}", posted(&server).display());
        let back = fetch(&["--data-binary", &body, &format!("{url}/body")]);
        assert_eq!(back.trim_end().len(), POSTED_BYTES);
    }
    told(&server, &["h2|GET|/three|200", "h2c|GET|/three|200", "h2|POST|/body|200", "h2c|POST|/body|200"]);
}

fn is_same(one: &Path, other: &Path) -> bool {
    fs::read(one).expect("it is there") == fs::read(other).expect("it is there")
}

#[test]
#[ignore = "runs a program of the machine"]
fn nghttp() {
    let Some(nghttp) = installed(&["nghttp"]) else { return };
    let server = start();
    let fetch = |args: &[&str]| said(Command::new(&nghttp).arg("--no-verify-peer").args(args));
    for (scheme, port) in [("https", server.port()), ("http", server.port_of("PORT:plain"))] {
        let url = format!("{scheme}://127.0.0.1:{port}");
        assert_eq!(fetch(&[&format!("{url}/one")]), "HTTP/2.0 /one");
        // Twenty at once, of which each is larger than the windows of all.
        let table = fetch(&["-n", "-s", "-m", "20", &format!("{url}/files/large")]);
        let is_whole = |line: &&str| line.ends_with(" 200   1M /files/large");
        assert_eq!(table.lines().filter(is_whole).count(), 20, "{table}");
        let back = fetch(&["-d", &posted(&server).display().to_string(), &format!("{url}/body")]);
        assert_eq!(back.trim_end().len(), POSTED_BYTES);
    }
    told(&server, &["h2|POST|/body|200", "h2c|POST|/body|200"]);
}

#[test]
#[ignore = "runs a program of the machine"]
fn h2load() {
    let Some(h2load) = installed(&["h2load"]) else { return };
    let server = start();
    for path in ["/one", "/files/large"] {
        let mut command = Command::new(&h2load);
        command.args(["-n", "200", "-c", "4", "-m", "16"]);
        let table = said(command.arg(format!("https://127.0.0.1:{}{path}", server.port())));
        assert!(table.contains("200 succeeded, 0 failed, 0 errored"), "{table}");
    }
}

#[test]
#[ignore = "runs a program of the machine"]
fn go() {
    let Some(mut command) = go_run("http2.go") else { return };
    let server = start();
    let lines = said(command.arg(server.port().to_string()).arg(authority(&server)));
    let expected = format!("HTTP/2.0 20 {}\nHTTP/2.0 {LARGE_BYTES}\nHTTP/2.0 {POSTED_BYTES} h2\n", "/page");
    assert_eq!(lines, expected);
    told(&server, &["h2|POST|/body|200|Go-http-client/2.0"]);
}

/// What a page of a browser leads to.
const PAGE: [&str; 5] = [
    "h2|GET|/page|200|Mozilla/",
    "h2|GET|/one|200|Mozilla/",
    "h2|GET|/two|200|Mozilla/",
    "h2|GET|/three|200|Mozilla/",
    "h2|POST|/body|200|Mozilla/",
];

#[test]
#[ignore = "runs a program of the machine"]
fn chromium() {
    let server = start();
    let arguments = ["--virtual-time-budget=20000"];
    let Some(page) = browse_with_chromium(&server, &arguments) else { return };
    assert!(page.contains(&format!("came back: {POSTED_BYTES}")), "{page}");
    told(&server, &PAGE);
}

#[test]
#[ignore = "runs a program of the machine"]
fn firefox() {
    let server = start();
    if browse_with_firefox(&server) {
        told(&server, &PAGE[..4]);
    }
}
