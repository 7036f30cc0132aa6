//! What the error log says of requests that held their threads on purpose. Needs a build with the `testing`
//! feature. The tests run one after the other, so that they measure the server and not each other.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Connection, Server, Setup, wait_until};

/// What the second half of many stalls may add to the memory, bytes: what allocators keep varies.
const MEMORY_GROWTH_MAX: u64 = 10 << 20;

/// Where the functions are that hold a thread.
const HOLDER: &str = "(crates/modules/src/testing.rs:";

/// A report that is not there by then was not made.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

/// One after the other. A test that failed does not keep the others from running.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn setup(main: &str) -> Setup {
    let config = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\n\
         error_log logs/error.log warn;\n{main}\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:%%PORT%%; server_name a;\n\
         location /cheap {{ return 200 cheap; }}\n\
         location /slow {{ limit_rate 4k; alias %%PREFIX%%/site/; }}\n\
         location /spin {{ testing_spin 400ms; }}\n\
         location /sleep {{ testing_sleep 600ms; }}\n\
         location /short {{ testing_sleep 8ms; }}\n\
         location ~ ^/regex/(a+)+$ {{ return 200 matched; }} }} }}\n"
    );
    Setup::new(Binary::under_test(), &config).file("site/f", "x".repeat(8 * 1024))
}

fn get(server: &Server, path: &str) -> Duration {
    let begun = Instant::now();
    let response = server.connect().ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(response.status, 200, "{path}");
    begun.elapsed()
}

/// One report, in lines without what comes before the message.
struct Report {
    lines: Vec<String>,
}

impl Report {
    /// That of the stall whose headline has the text, up to the function that was called on purpose.
    fn of(server: &Server, text: &str) -> Self {
        let log = server.wait_log("logs/error.log", text);
        let headline = log.lines().find(|line| line.contains(text)).unwrap_or_default();
        let number = headline.split_once("stall ").and_then(|(_, rest)| rest.split_once(':'));
        let mark = format!("stall {}:", number.unwrap_or_else(|| panic!("{log}")).0);
        // The times are behind the headline, and functions behind those, a line after the other.
        let mut log = String::new();
        let is_whole = wait_until(PATIENCE, || {
            log = server.lines("logs/error.log");
            log.lines().any(|line| line.contains(&mark) && line.contains(HOLDER))
        });
        assert!(is_whole, "no {HOLDER} in {log}");
        let lines = log.lines().filter_map(|line| {
            assert!(!line.contains(&mark) || line.contains("[warn]"), "{line}");
            line.split_once(&mark).map(|(_, rest)| rest.to_owned())
        });
        Self { lines: lines.collect() }
    }

    fn headline(&self) -> &str {
        &self.lines[0]
    }

    fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// The milliseconds before the first of these words.
    fn number_before(&self, words: &str) -> Duration {
        Duration::from_millis(self.digits_before(words))
    }

    fn digits_before(&self, words: &str) -> u64 {
        let text = self.text();
        let before = text.split_once(words).unwrap_or_else(|| panic!("{words}: {text}")).0;
        let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or_else(|_| panic!("{words}: {text}"))
    }
}

/// Asks until that is reported: on a busy machine the thread may have waited for a processor all the time,
/// which is no stall. How long the request took, what it asked for, and its report.
fn reported(server: &Server, path: &str) -> (Duration, String, Report) {
    for attempt in 0..30 {
        let target = format!("{path}/{attempt}");
        let took = get(server, &target);
        let text = format!("request: \"GET {target} ");
        if wait_until(REPORT_LIMIT, || server.error_log().contains(&text)) {
            return (took, target, Report::of(server, &text));
        }
    }
    panic!("no report of {path}: {}", server.error_log());
}

/// How many stalls the log has of requests for a path, when that of one that follows is there. Those that
/// were over before anybody looked at them do not count: it may have been a processor that they waited for.
fn count_until_last(server: &Server, path: &str) -> usize {
    reported(server, "/spin/last");
    let text = format!("request: \"GET {path}");
    let log = server.error_log();
    let is_known = |line: &&str| {
        let number =
            line.split_once("stall ").and_then(|(_, rest)| rest.split_once(':')).map(|(number, _)| number);
        let unknown = format!("stall {}:   not known: what it did", number.unwrap_or_default());
        !log.contains(&unknown)
    };
    log.lines()
        .filter(|line| line.contains("held its thread") && line.contains(&text))
        .filter(is_known)
        .count()
}

/// The same of a spinner that was first looked at where it spins: on a busy machine it may have waited for a
/// processor somewhere else on its way.
fn reported_in_content(server: &Server) -> (Duration, String, Report) {
    (0..10)
        .map(|turn| reported(server, &format!("/spin/{turn}")))
        .find(|(_, _, report)| report.headline().contains("while in the content phase"))
        .unwrap_or_else(|| panic!("never seen in the content phase: {}", server.error_log()))
}

fn check_spinner(server: &Server) -> (String, Report) {
    let (took, target, report) = reported_in_content(server);
    let held = report.number_before(" ms, ");
    // It counts from the first look, which comes late on a busy machine.
    assert!(held >= Duration::from_millis(200) && held <= took + Duration::from_millis(1), "{held:?}");
    for text in [
        "while in the content phase, location: \"/spin\" in clearway_modules::testing::",
        ", client: 127.0.0.1, server: a, request: \"GET /spin/",
    ] {
        assert!(report.headline().contains(text), "{text}: {}", report.text());
    }
    let calls = report.number_before(" ms in system calls");
    assert!(calls * 10 <= held, "{}", report.text());
    (target, report)
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_spinner() {
    let _alone = alone();
    let server = setup("").start();
    let (target, report) = check_spinner(&server);
    assert!(!report.headline().contains("not handed over"), "{}", report.text());
    assert_eq!(count_until_last(&server, &target), 1, "{}", server.error_log());
}

#[test]
#[cfg_attr(any(nginx_under_test, not_root), ignore = "its directives are Clearway's, and root starts it")]
fn a_spinner_as_nobody() {
    let _alone = alone();
    check_spinner(&setup("").as_nobody().start());
}

#[test]
#[cfg_attr(any(nginx_under_test, chaos_lend), ignore = "loops are lent whatever is configured, or never")]
fn a_spinner_whose_loop_is_not_handed_over() {
    let _alone = alone();
    let (_, report) = check_spinner(&setup("handover_after off;").start());
    assert!(report.headline().contains("not handed over"), "{}", report.text());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_sleeper() {
    let _alone = alone();
    let server = setup("").start();
    let (took, target, report) = reported(&server, "/sleep");
    assert!(report.headline().contains("location: \"/sleep\" in clearway_modules::testing::"));
    let held = report.number_before(" ms, ");
    let slept = Duration::from_micros(report.digits_before(" us in clock_nanosleep"));
    // A sleeper wakes late on a busy machine, and is looked at late.
    assert!(
        held >= Duration::from_millis(300) && held <= took + Duration::from_millis(1),
        "{held:?}, {took:?}"
    );
    assert!(slept * 10 >= held * 9, "{}", report.text());
    assert_eq!(count_until_last(&server, &target), 1, "{}", server.error_log());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_regex_that_backtracks() {
    let _alone = alone();
    // The expression is given up after some ten milliseconds, and looks are rare while nothing has blocked.
    let server = setup("stall_report_after 4ms;").start();
    let subject = format!("/regex/{}b", "a".repeat(64));
    let is_reported = || {
        assert_eq!(server.get(&subject).status, 500);
        server.error_log().contains("while finding the location")
    };
    assert!(wait_until(PATIENCE, is_reported), "{}", server.error_log());
    let log = server.wait_log("logs/error.log", "while finding the location");
    let headline = log.lines().find(|line| line.contains("while finding the location")).unwrap_or_default();
    assert!(headline.contains("request: \"GET /regex/aaaa"), "{log}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_long_request_that_lets_others_run() {
    let _alone = alone();
    let server = setup("").start();
    let took = get(&server, "/slow/f");
    assert!(took > Duration::from_millis(500), "{took:?}");
    assert_eq!(count_until_last(&server, "/slow"), 0, "{}", server.error_log());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn reports_are_limited_and_can_be_off() {
    let _alone = alone();
    let server = setup("stall_report_after off;").start();
    get(&server, "/sleep");
    let limited = setup("stall_report_rate 1r/m;").start();
    reported(&limited, "/sleep");
    for _ in 0..3 {
        get(&limited, "/sleep");
    }
    let lines = |server: &Server| server.error_log().matches("held its thread").count();
    assert_eq!((lines(&server), lines(&limited)), (0, 1));
}

/// Clients that ask at the same time, and what each of them asks for in all.
const CLIENTS: usize = 40;
const STALLS_EACH: usize = 125;

/// What the process has: threads, descriptors, bytes of memory.
fn held(server: &Server) -> [u64; 3] {
    let pid = server.pid();
    [
        clearway_testkit::process::threads(pid) as u64,
        clearway_testkit::process::descriptors(pid) as u64,
        clearway_testkit::process::rss_bytes(pid),
    ]
}

fn stall_many(server: &Server) {
    let address = server.address();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = Connection::open(&address).expect("it listens");
                for _ in 0..STALLS_EACH {
                    let answer = connection.ask("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
                    assert_eq!(answer.status, 200);
                }
            });
        }
    });
}

/// Ten thousand stalls, the second half of which leaves nothing behind.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn stalls_leave_nothing_behind() {
    let _alone = alone();
    let server = setup("stall_report_after 2ms; stall_report_rate 1r/m;").start();
    stall_many(&server);
    // Whichever it is: of one that is over at once little is known.
    server.wait_log("logs/error.log", "stall 1:");
    let [threads, descriptors, bytes] = held(&server);
    stall_many(&server);
    // What is over is reported and forgotten a little later.
    let is_settled = || {
        let [threads_after, descriptors_after, bytes_after] = held(&server);
        threads_after <= threads.max(CLIENTS as u64 + 40)
            && descriptors_after <= descriptors + 8
            && bytes_after <= bytes + MEMORY_GROWTH_MAX
    };
    let before = [threads, descriptors, bytes];
    assert!(wait_until(PATIENCE, is_settled), "{before:?}, then {:?}", held(&server));
}
