//! Starting, in the foreground and in the background, the users that the processes run as, and what a failed
//! start leaves behind.

use std::os::unix::fs::MetadataExt;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::{
    children, is_running, parent_of, rss_of_files_bytes, rss_peak_bytes, user_and_group,
};
use clearway_testkit::{Answer, Binary, Connection, Server, Setup, wait_until};
use rustix::process::Signal;

use crate::{config, is_clearway, setup};

const HTTP: &str = "server { listen 127.0.0.1:%%PORT%%; listen unix:%%PREFIX%%/sock; return 200 ok; }";
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// `nobody` and its group, on Debian.
const NOBODY: (u32, u32) = (65534, 65534);

fn daemon() -> Server {
    let config = config("", HTTP).replace("daemon off;", "daemon on;");
    Setup::new(Binary::under_test(), &config).daemon().start()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx returns before its worker is there")]
fn a_daemon_serves_when_the_command_has_returned() {
    let config = config("", HTTP).replace("daemon off;", "daemon on;");
    // Nothing to be waited for: the connection below must find everything in place.
    let server = Setup::new(Binary::under_test(), &config).daemon().ready_at("unix:%%PREFIX%%/sock").start();
    assert_eq!(server.pid_file(), Some(server.pid()));
    assert_eq!(server.workers().len(), 1, "{}", server.described());
    assert_eq!(server.get("/").text(), "ok");
}

#[test]
fn a_daemon_is_on_its_own_and_ends_by_command() {
    let mut server = daemon();
    assert_eq!(server.get("/").text(), "ok");
    assert_ne!(parent_of(server.pid()), Some(std::process::id()));
    let worker = server.worker();
    for (command, log) in [("reopen", "reopening logs"), ("reload", "reconfiguring")] {
        let output = server.run(&["-s", command]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{said}");
        assert!(said.lines().all(|line| line.ends_with("signal process started")), "{said}");
        server.wait_log("logs/error.log", log);
    }
    let output = server.run(&["-s", "quit"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(server.wait_exit(PATIENCE).is_some());
    server.wait_gone(worker);
    assert!(wait_until(PATIENCE, || server.processes().is_empty()), "{}", server.described());
    assert!(!server.prefix().join("nginx.pid").exists());
    assert!(!server.prefix().join("sock").exists());
    let output = server.run(&["-s", "quit"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("[error]") && said.contains("nginx.pid\" failed (2: No such file"), "{said}");
}

#[test]
fn stop_ends_at_once() {
    let mut server = daemon();
    let mut idle = server.connect();
    assert_eq!(idle.ask(ASK).text(), "ok");
    assert_eq!(server.run(&["-s", "stop"]).status.code(), Some(0));
    assert!(server.wait_exit(PATIENCE).is_some());
    assert!(wait_until(PATIENCE, || server.processes().is_empty()), "{}", server.described());
    assert_eq!(server.pid_file(), None);
}

#[test]
fn unix_sockets_are_there_while_the_server_is() {
    let mut server = setup("", HTTP).ready_at("unix:%%PREFIX%%/sock").start();
    let to = server.address_of("unix:%%PREFIX%%/sock");
    let socket = server.prefix().join("sock");
    let mut connection = Connection::open(&to).expect("it listens");
    assert_eq!(connection.ask(ASK).text(), "ok");
    // Everybody may connect, as with nginx.
    assert_eq!(socket.metadata().expect("it is there").mode() & 0o777, 0o666);
    server.configure(&config("", &HTTP.replace("200 ok", "200 again")));
    server.signal(Signal::HUP);
    let reloaded = wait_until(PATIENCE, || {
        let mut connection = Connection::open(&to).expect("it listens all the time");
        connection.ask(ASK).text() == "again"
    });
    assert!(reloaded, "{}", server.described());
    server.configure(&config("", "server { listen 127.0.0.1:%%PORT%%; return 200 without; }"));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || server.get("/").text() == "without"), "{}", server.described());
    assert!(wait_until(PATIENCE, || !socket.exists()), "a listener that is gone leaves no file");
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
#[cfg_attr(not_root, ignore = "needs the rights of root")]
fn the_worker_runs_as_the_user_that_is_named() {
    let server = setup("user nobody nogroup;", HTTP).file("logs/access.log", "").start();
    let (master, worker) = (server.pid(), server.worker());
    assert_eq!(server.get("/").text(), "ok");
    assert_eq!(user_and_group(master), Some((0, 0)));
    assert_eq!(user_and_group(worker), Some(NOBODY));
    // After that the worker may open its logs itself.
    server.signal(Signal::USR1);
    let log = server.prefix().join("logs/access.log");
    let owner = || log.metadata().map(|meta| meta.uid()).ok();
    assert!(wait_until(PATIENCE, || owner() == Some(NOBODY.0)), "{:?}", owner());
}

#[test]
fn one_process_is_enough() {
    let mut server = setup("master_process off;", HTTP).start();
    assert_eq!(server.get("/").text(), "ok");
    assert_eq!(server.processes(), [server.pid()]);
    assert!(wait_until(PATIENCE, || server.pid_file() == Some(server.pid())));
    server.signal(Signal::QUIT);
    assert_eq!(server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
    assert_eq!(server.pid_file(), None);
}

/// What is in the way, and what is said of it.
const BROKEN: [(&str, &str); 6] = [
    ("server { listen 127.0.0.1:%%PORT%%; nonsense; }", "unknown directive \"nonsense\""),
    (
        "server { listen unix:%%PREFIX%%/sock; listen 127.0.0.1:TAKEN; }",
        "failed (98: Address already in use)",
    ),
    ("server { listen unix:%%PREFIX%%/sock; listen 192.0.2.1:%%PORT%%; }", "failed (99: Cannot assign"),
    ("server { listen unix:%%PREFIX%%/none/sock; listen unix:%%PREFIX%%/sock; }", "failed (2: No such file"),
    (
        "server { listen unix:%%PREFIX%%/sock; access_log none/a.log; }",
        "failed (2: No such file or directory)",
    ),
    ("include none.conf; server { listen unix:%%PREFIX%%/sock; }", "none.conf\" failed (2: No such file"),
];

#[test]
fn a_failed_start_leaves_nothing_behind() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    for daemon in ["daemon off;", "daemon on;"] {
        for (http, said) in BROKEN {
            let config = config("", &http.replace("TAKEN", &port)).replace("daemon off;", daemon);
            let refusal = Setup::new(Binary::under_test(), &config).refusal();
            assert_eq!(refusal.code, Some(1), "{http}: {refusal:?}");
            assert!(refusal.said.contains(said), "{http}: {refusal:?}");
            assert!(!refusal.left.contains(&"nginx.pid".to_owned()), "{http}: {refusal:?}");
            if is_clearway() {
                // nginx leaves the socket behind.
                let strange = refusal.left.iter().find(|file| !file.starts_with("logs/"));
                assert_eq!(strange, None, "{http}: {refusal:?}");
            }
        }
    }
}

/// A master that waits has few pages of the program and its libraries: less than half of what it had in all
/// as it started, nine tenths of which were such pages. How many a fault brings differs by kernel and file
/// system.
#[test]
fn a_master_keeps_no_pages_of_a_start() {
    if !is_clearway() {
        return;
    }
    let mut server = setup("", HTTP).start();
    let master = server.pid();
    let is_small = || rss_of_files_bytes(master) < rss_peak_bytes(master) / 2;
    let sizes = || format!("{} of {} bytes", rss_of_files_bytes(master), rss_peak_bytes(master));
    assert!(wait_until(PATIENCE, is_small), "{}", sizes());
    let worker = children(master);
    server.configure(&config("", &HTTP.replace("200 ok", "200 new")));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || server.get("/").text() == "new"), "{}", server.described());
    assert!(wait_until(PATIENCE, is_small), "{} after a reload", sizes());
    assert_eq!(children(master), worker, "it goes on");
}

#[test]
fn a_second_server_does_not_disturb_the_first() {
    let server = setup("", HTTP).start();
    let pid = server.pid();
    assert!(wait_until(PATIENCE, || server.pid_file() == Some(pid)));
    let output = server.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("still could not bind()"), "{said}");
    assert!(is_running(pid));
    assert_eq!(server.pid_file(), Some(pid), "the file is that of the first");
    let to = server.address_of("unix:%%PREFIX%%/sock");
    for to in [server.address(), to] {
        let mut connection = Connection::open(&to).expect("the first still listens");
        connection.send(ASK.as_bytes());
        assert!(connection.try_response(Answer::Whole).is_ok_and(|response| response.text() == "ok"));
    }
}
