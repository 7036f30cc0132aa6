//! What a worker process may do: its limits and its rights.

use std::path::Path;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::Pid;
use clearway_testkit::server::is_root;
use clearway_testkit::wait_until;
use rustix::process::Signal;

use crate::{config, setup};

const HTTP: &str = "server { listen 127.0.0.1:%%PORT%%; return 200 ok; }";

/// What stands behind `key` in a file of /proc.
fn proc_field(pid: Pid, file: &str, key: &str) -> String {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join(file));
    let text = text.expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn descriptors(pid: Pid) -> String {
    proc_field(pid, "limits", "Max open files")
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx logs an [alert], and its worker stays with the soft limit")]
fn a_limit_above_the_hard_one_is_the_hard_one() {
    for master in ["master_process on;", "master_process off;"] {
        let main = format!("worker_rlimit_nofile 3000; {master}");
        let config = config(&main, HTTP).replace("worker_processes 1;", "worker_processes 2;");
        let setup = clearway_testkit::Setup::new(clearway_testkit::Binary::under_test(), &config);
        let setup = setup.through(&["sh", "-c", "ulimit -Sn 1024; ulimit -Hn 4096; exec \"$@\"", "sh"]);
        // Root may raise the hard limit as well.
        let server = if is_root() { setup.as_nobody().start() } else { setup.start() };
        assert_eq!(server.get("/").text(), "ok");
        let pid = if master.contains("on") { server.worker() } else { server.pid() };
        assert_eq!(descriptors(pid), "4096 4096 files");
        let said =
            "setrlimit(RLIMIT_NOFILE, 6000) failed (1: Operation not permitted), 4096 are used instead";
        let log = server.wait_log("logs/error.log", said);
        assert!(log.lines().any(|line| line.contains("[warn]") && line.contains(said)), "{log}");
    }
}

#[test]
fn a_limit_that_is_allowed_is_set() {
    let wrapper = ["sh", "-c", "ulimit -Sn 1024; ulimit -Hn 4096; exec \"$@\"", "sh"];
    let server = setup("worker_rlimit_nofile 2000;", HTTP).through(&wrapper).start();
    assert_eq!(server.get("/").text(), "ok");
    assert_eq!(descriptors(server.worker()), "2000 2000 files");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does otherwise")]
fn a_worker_without_capabilities_gains_none_by_executing_programs() {
    let refuses = |pid: Pid| proc_field(pid, "status", "NoNewPrivs:") == "1";
    // The process that runs the tests may have been told to itself.
    if refuses(std::process::id()) {
        return;
    }
    let user = if is_root() { "user nobody nogroup;" } else { "" };
    let mut server = setup(user, HTTP).start();
    assert_eq!(server.get("/").text(), "ok");
    let worker = server.worker();
    assert!(!refuses(server.pid()), "the master starts new binaries, which may need rights");
    assert!(refuses(worker));
    server.configure(&config(&format!("{user} no_new_privileges off;"), HTTP));
    server.signal(Signal::HUP);
    assert!(
        wait_until(PATIENCE, || server.workers().iter().all(|&pid| pid != worker)),
        "{}",
        server.described()
    );
    assert_eq!(server.get("/").text(), "ok");
    assert!(!refuses(server.worker()));
    drop(server);
    if is_root() {
        let server = setup("user root;", HTTP).start();
        assert_eq!(server.get("/").text(), "ok");
        assert!(!refuses(server.worker()), "it keeps its capabilities");
    }
}

/// The second server says which address it was connected to from.
const TRANSPARENT: &str = "server { listen 127.0.0.1:%%PORT%%; location /plain { return 200 plain; }
        location / { proxy_bind 127.0.0.2 transparent; proxy_pass http://127.0.0.1:%%PORT%%/from; }
        location /from { return 200 $remote_addr; } }";

#[test]
fn connections_from_other_addresses_need_one_capability() {
    if !is_root() {
        return;
    }
    const NET_RAW: &str = "0000000000002000";
    let (user, held) = ("user nobody nogroup;", |pid: Pid| proc_field(pid, "status", "CapPrm:"));
    let without = TRANSPARENT.replace(" transparent", "");
    let mut server = setup(user, &without).start();
    assert_eq!(server.get("/").text(), "127.0.0.2");
    let worker = server.worker();
    assert_eq!(held(worker), "0000000000000000");
    // What a running process has given up it cannot gain: another one takes its place.
    server.configure(&config(user, TRANSPARENT));
    server.signal(Signal::HUP);
    assert!(
        wait_until(PATIENCE, || server.workers().iter().all(|&pid| pid != worker)),
        "{}",
        server.described()
    );
    assert_eq!(server.get("/").text(), "127.0.0.2");
    let worker = server.worker();
    assert_eq!((held(worker), proc_field(worker, "status", "CapEff:")), (NET_RAW.into(), NET_RAW.into()));
    // Nothing that it executes has it.
    if clearway_testkit::Binary::under_test().is_clearway() {
        assert_eq!(proc_field(worker, "status", "NoNewPrivs:"), "1");
    }
}
