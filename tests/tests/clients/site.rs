//! The site with everything in it (`clearway_testkit::site`) through its public face, as programs of others
//! see it: curl, Chromium, wrk and h2load.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::site::services::object;
use clearway_testkit::site::{Site, WORDS};
use clearway_testkit::wait_until;

use crate::{authority, installed, said, trust};

/// Of these a page loads two each: one that the cache keeps and one that it does not.
const PAIRS: usize = 50;
/// What a browser uploads.
const UPLOADED_BYTES: usize = 300_000;

/// What a browser does with the site; what it says of it in the end it asks for.
const PAGE: &str = r#"<!doctype html><title>visit</title><script>
    const size = async url => (await (await fetch(url, {cache: "no-store"})).arrayBuffer()).byteLength;
    const load = async () => {
        const all = [];
        for (let of = 0; of < 50; of++) all.push(`/cached/object?of=${of}`, `/app/part?of=${of}`);
        const sizes = await Promise.all(all.map(size));
        return `${sizes.length} of ${sizes.reduce((sum, size) => sum + size, 0)}`;
    };
    const talk = () => new Promise((resolve, reject) => {
        const socket = new WebSocket(`wss://${location.host}/socket`);
        socket.onopen = () => socket.send("a word");
        socket.onmessage = message => { socket.close(); resolve(message.data); };
        socket.onerror = () => reject(new Error("the socket failed"));
    });
    const upload = async () =>
        (await fetch("/app/upload", {method: "POST", body: new Uint8Array(300000).fill(1)})).text();
    (async () => [await load(), await load(), await talk(), await upload()])()
        .then(all => all.join("; "), error => `failed: ${error}`)
        .then(said => fetch("/app/said", {method: "POST", headers: {"X-Client": said.trim()}}));
</script>
"#;

/// A program that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The site, which has the authority that vouches for it beside it.
fn start() -> Site {
    let site = Site::start();
    fs::write(authority(&site.server), data!("ca.pem")).expect("it is ours");
    fs::write(site.server.prefix().join("html/visit.html"), PAGE).expect("it is ours");
    site
}

fn part(of: usize) -> String {
    format!("GET /app/part?of={of} from www.example.com over https user nobody with 0 bytes, sum 0\n")
}

#[test]
#[ignore = "runs a program of the machine"]
fn chromium() {
    let Some(chromium) = installed(&["chromium", "chromium-browser", "google-chrome"]) else { return };
    let site = start();
    let (home, port) = (site.server.prefix().join("home"), site.server.port());
    if !trust(&site.server, &home.join(".pki/nssdb")) {
        return;
    }
    let mut command = Command::new(chromium);
    // It stays until it is ended.
    command.env("HOME", &home).args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
    ]);
    command.arg(format!("--user-data-dir={}", home.join("data").display()));
    command.arg(format!("--host-resolver-rules=MAP www.example.com 127.0.0.1:{port}"));
    command
        .arg(format!("https://www.example.com:{port}/visit.html"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let browser = Ended(command.spawn().expect("it runs"));
    let log = site.server.wait_log("logs/access.log", "/app/said");
    drop(browser);
    let bytes: usize =
        (0..PAIRS).map(|of| object(&format!("/cached/object?of={of}")).len() + part(of).len()).sum();
    let loaded = format!("{} of {bytes}", 2 * PAIRS);
    let uploaded = format!("user nobody with {UPLOADED_BYTES} bytes, sum {UPLOADED_BYTES}");
    assert!(log.contains(&format!("\"client\":\"{loaded}; {loaded}; a word; POST /app/upload")), "{log}");
    assert!(log.contains(&uploaded), "{log}");
    assert_eq!(site.fetched(), PAIRS, "what can be kept is fetched once");
    let log = || site.server.access_log();
    let count = |text: &str| log().lines().filter(|line| line.contains(text)).count();
    wait_until(PATIENCE, || count("GET /socket") == 1 && count("GET /app/part") == 2 * PAIRS);
    assert_eq!(count("\"http2\":\"h2\""), log().lines().count() - 1, "all but the socket: {}", log());
    assert_eq!(count("\"cache\":\"HIT\""), PAIRS);
}

#[test]
#[ignore = "runs a program of the machine"]
fn curl() {
    let Some(curl) = installed(&["curl"]) else { return };
    let site = start();
    let port = site.server.port();
    let url = format!("https://www.example.com:{port}");
    let fetch = |args: &[&str]| {
        let mut command = Command::new(&curl);
        command.args(["-sS", "--fail"]).arg("--cacert").arg(authority(&site.server));
        said(command.args(["--resolve", &format!("www.example.com:{port}:127.0.0.1")]).args(args))
    };
    for version in ["--http1.1", "--http2"] {
        let copies: PathBuf = site.server.prefix().join(format!("copies{version}"));
        fs::create_dir_all(&copies).expect("it is ours");
        let output = copies.join("#1").display().to_string();
        fetch(&[version, "-Z", "-o", &output, &format!("{url}/cached/object?of=[1-{PAIRS}]")]);
        for of in 1..=PAIRS {
            let copy = fs::read(copies.join(of.to_string())).expect("it was written");
            assert_eq!(copy, object(&format!("/cached/object?of={of}")), "{version} {of}");
        }
        assert_eq!(fetch(&[version, &format!("{url}/app/part?of=1")]), part(1));
        let sent = "b".repeat(100_000);
        let file = copies.join("sent");
        fs::write(&file, &sent).expect("it is ours");
        let answer = fetch(&[version, "-T", &file.display().to_string(), &format!("{url}/app/put")]);
        assert!(answer.ends_with(&format!("with 100000 bytes, sum {}\n", 98 * 100_000)), "{answer}");
        assert_eq!(fetch(&[version, "-r", "46-91", &format!("{url}/large.txt")]), WORDS);
        let whole = fetch(&[version, "--compressed", &format!("{url}/large.txt")]);
        assert!(whole == WORDS.repeat(3000), "{version}: {} bytes", whole.len());
    }
    assert_eq!(site.fetched(), PAIRS, "what can be kept is fetched once");
}

/// What is asked for again and again.
const TARGETS: [&str; 5] = ["/cached/object?of=1", "/app/part?of=1", "/large.txt", "/lua?a=b", "/page.html"];

#[test]
#[ignore = "runs a program of the machine"]
fn wrk() {
    let Some(wrk) = installed(&["wrk"]) else { return };
    let site = start();
    for target in TARGETS {
        let mut command = Command::new(&wrk);
        command.args(["-t1", "-c16", "-d1s", "-H", "Host: www.example.com"]);
        let table = said(command.arg(format!("https://127.0.0.1:{}{target}", site.server.port())));
        assert!(table.contains(" requests in ") && !table.contains("\n  0 requests"), "{target}: {table}");
        assert!(!table.contains("Non-2xx") && !table.contains("Socket errors"), "{target}: {table}");
    }
}

#[test]
#[ignore = "runs a program of the machine"]
fn h2load() {
    let Some(h2load) = installed(&["h2load"]) else { return };
    let site = start();
    let mut command = Command::new(&h2load);
    command.args(["-n", "1000", "-c", "8", "-m", "16"]);
    for target in TARGETS {
        command.arg(format!("https://127.0.0.1:{}{target}", site.server.port()));
    }
    let table = said(&mut command);
    assert!(table.contains("1000 succeeded, 0 failed, 0 errored"), "{table}");
    assert!(table.contains("status codes: 1000 2xx"), "{table}");
}
