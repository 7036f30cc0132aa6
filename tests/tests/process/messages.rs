//! What the error log says of a server's life: the same as that of nginx, line by line, where
//! process numbers, times and products are replaced by what they stand for. The lines of the masters are
//! compared in their order, those of the workers as far as they have one: which of them is ahead is up to the
//! kernel.

use std::collections::BTreeMap;
use std::fmt;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::Pid;
use clearway_testkit::recorded::compare;
use clearway_testkit::server::send_signal;
use clearway_testkit::{Binary, Server, Setup};
use rustix::process::Signal;

const HTTP: &str = "server { listen 127.0.0.1:%%PORT%%; return 200 ok; }";
const LOG: &str = "logs/error.log";

/// Lines that need not be the same.
const NOT_COMPARED: [(&str, &str); 3] = [
    ("built by ", "since 1.29.1, and Clearway is not built by a C compiler"),
    ("signal 29 (SIGIO) received", "how workers of nginx tell each other of their channels"),
    ("signal 17 (SIGCHLD) received from ", "a reload of Clearway ends no process"),
];

/// What a life's log has: the lines of each master in order, and those of each worker in order, workers
/// in order of their texts.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    masters: Vec<Vec<String>>,
    workers: Vec<Vec<String>>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (who, all) in [("master", &self.masters), ("worker", &self.workers)] {
            all.iter().try_for_each(|lines| writeln!(f, "{who}:\n  {}", lines.join("\n  ")))?;
        }
        Ok(())
    }
}

fn start(binary: &Binary, daemon: &str) -> Server {
    let config = crate::config("", HTTP).replace("info;", "notice;").replace("daemon off;", daemon);
    let setup = Setup::new(binary.clone(), &config).copied();
    let server = if daemon == "daemon on;" { setup.daemon().start() } else { setup.start() };
    assert_eq!(server.get("/").text(), "ok");
    server
}

/// Start, reload, reopen, crash, end.
fn ordinary_life(binary: &Binary) -> Told {
    let mut server = start(binary, "daemon off;");
    server.signal(Signal::HUP);
    server.wait_log(LOG, "exited with code 0");
    server.wait_lines(LOG, "start worker process ", 2);
    server.signal(Signal::USR1);

    server.wait_lines(LOG, ": reopening logs", 2);
    assert_eq!(server.get("/").text(), "ok");
    let worker = server.worker();
    send_signal(worker, Signal::KILL);
    server.wait_log(LOG, "exited on signal 9");
    server.wait_lines(LOG, "start worker process ", 3);
    assert_eq!(server.get("/").text(), "ok");
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).is_some());
    told(&server, &[server.pid()])
}

/// Start, a failed reload, a new binary, the end of the old one and of the new one.
fn life_with_an_upgrade(binary: &Binary) -> Told {
    let mut server = start(binary, "daemon on;");
    let old = server.pid();
    let good = server.read("nginx.conf");
    server.configure("nonsense;");
    server.signal(Signal::HUP);
    server.wait_log(LOG, "unknown directive");
    server.configure(&good);
    let new = server.begin_upgrade();
    server.wait_lines(LOG, "start worker process ", 2);
    assert_eq!(server.get("/").text(), "ok");
    send_signal(old, Signal::QUIT);
    server.wait_gone(old);
    server.follow(new);
    server.signal(Signal::TERM);
    assert!(server.wait_exit(PATIENCE).is_some());
    told(&server, &[old, new])
}

/// Sorts the log by process, and puts names in place of numbers.
fn told(server: &Server, masters: &[Pid]) -> Told {
    let log = server.with_keys(&server.lines(LOG));
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    names.insert(std::process::id().to_string(), "TESTER".to_owned());
    for (number, master) in masters.iter().enumerate() {
        names.insert(master.to_string(), format!("MASTER{}", number + 1));
    }
    for line in log.lines() {
        if let Some((_, worker)) = line.split_once("start worker process ") {
            names.insert(worker.to_owned(), "WORKER".to_owned());
        }
    }
    let mut by_speaker: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in log.lines() {
        // `DATE TIME [LEVEL] PID#TID: MESSAGE`
        let mut words = line.splitn(5, ' ').skip(2);
        let (Some(level), Some(speaker), Some(message)) = (words.next(), words.next(), words.next()) else {
            panic!("{line:?} is not a line of a log");
        };
        let speaker = speaker.trim_end_matches(':').rsplit('#').next().unwrap_or_default();
        // A slow machine holds loops; that is told, and no matter here.
        let is_stall = message.starts_with("stall ") || message.contains(" stall ");
        if !is_stall && !NOT_COMPARED.iter().any(|(start, _)| message.starts_with(start)) {
            let line = format!("{level} {}", named(message, &names));
            by_speaker.entry(speaker.to_owned()).or_default().push(line);
        }
    }
    let masters = masters.iter().map(|pid| by_speaker.remove(&pid.to_string()).unwrap_or_default()).collect();
    let mut workers: Vec<Vec<String>> = by_speaker.into_values().collect();
    workers.sort();
    Told { masters, workers }
}

/// The message with names in place of processes, of products, of systems and of descriptors.
fn named(message: &str, names: &BTreeMap<String, String>) -> String {
    if message.starts_with("nginx/") || message.starts_with("clearway/") {
        return "PRODUCT".to_owned();
    }
    if message.starts_with("OS: ") {
        return "OS: SYSTEM".to_owned();
    }
    if message.starts_with("using inherited sockets from ") {
        return "using inherited sockets".to_owned();
    }
    let word = |word: &str| {
        let bare = word.trim_end_matches(',');
        names.get(bare).map_or_else(|| word.to_owned(), |name| word.replace(bare, name))
    };
    let words: Vec<String> = message.split(' ').map(word).collect();
    match words.as_slice() {
        // The process of a worker, which has another number than its loops.
        [worker, process, _, rest @ ..] if worker == "worker" && process == "process" => {
            format!("worker process WORKER {}", rest.join(" "))
        }
        _ => words.join(" "),
    }
}

#[test]
fn an_ordinary_life() {
    compare(&format!("an ordinary life\n{}", crate::config("", HTTP)), |binary| {
        ordinary_life(binary).to_string()
    });
}

#[test]
fn a_life_with_an_upgrade() {
    compare(&format!("a life with an upgrade\n{}", crate::config("", HTTP)), |binary| {
        life_with_an_upgrade(binary).to_string()
    });
}
