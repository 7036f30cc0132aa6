//! Loops that are held on purpose: whatever holds one, everybody else goes on. Needs a build with the
//! `testing` feature. The tests run one after the other, so that they measure the server and not each
//! other.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

mod moving;
mod streams;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Address, Binary, Connection, End, Server, Setup, wait_until};

/// How long `/spin` and `/sleep` hold their thread.
const HOLD: Duration = Duration::from_millis(300);
/// What most cheap requests need less than beside holds of that length. One or the other may wait for a
/// processor, on a busy machine for long; if the loop were held, nearly all would wait for [`HOLD`].
const CHEAP_LIMIT: Duration = Duration::from_millis(150);
const CHEAP_REQUESTS: usize = 200;

/// One after the other. A test that failed does not keep the others from running.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn setup(main: &str) -> Setup {
    let config = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\n\
         error_log logs/error.log;\n{main}\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:%%PORT%%;\n\
         location /cheap {{ return 200 cheap; }}\n\
         location /spin {{ testing_spin 300ms; }}\n\
         location /sleep {{ testing_sleep 300ms; }}\n\
         location /long/spin {{ testing_spin 60s; }}\n\
         location /long/sleep {{ testing_sleep 60s; }}\n\
         location /files/ {{ alias %%PREFIX%%/site/; }} }} }}\n"
    );
    Setup::new(Binary::under_test(), &config).file("site/f", "file\n")
}

fn ask(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Runs `work` while `holders` clients ask for `path` back to back; says how many answers they got.
fn while_held<R>(address: &Address, path: &str, holders: usize, work: impl FnOnce() -> R) -> (R, usize) {
    let done = AtomicBool::new(false);
    let (asked, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let hold = || {
        let mut connection = Connection::open(address).expect("it listens");
        // Once at least, however late this thread begins.
        loop {
            connection.send(ask(path).as_bytes());
            asked.fetch_add(1, Ordering::Relaxed);
            assert_eq!(connection.response().status, 200);
            answered.fetch_add(1, Ordering::Relaxed);
            if done.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    let result = thread::scope(|scope| {
        for _ in 0..holders {
            scope.spawn(hold);
        }
        let have_asked = wait_until(PATIENCE, || asked.load(Ordering::Relaxed) >= holders);
        let result = work();
        done.store(true, Ordering::Relaxed);
        assert!(have_asked, "only {asked:?} of {holders} have asked");
        result
    });
    (result, answered.into_inner())
}

/// What half of [`CHEAP_REQUESTS`] over four connections, spread over some 600 ms, take at most.
fn typical_cheap(address: &Address, path: &str) -> Duration {
    let mut connections: Vec<_> = (0..4).map(|_| Connection::open(address).expect("it listens")).collect();
    let one = |i: usize| {
        let connection = &mut connections[i % 4];
        let began = Instant::now();
        assert_eq!(connection.ask(&ask(path)).status, 200);
        let took = began.elapsed();
        thread::sleep(Duration::from_millis(3));
        took
    };
    let mut took: Vec<Duration> = (0..CHEAP_REQUESTS).map(one).collect();
    took.sort_unstable();
    took[CHEAP_REQUESTS / 2]
}

/// Cheap requests beside clients that hold their threads again and again.
fn others_go_on(server: &Server, path: &str, holders: usize) {
    let address = server.address();
    let (typical, answered) = while_held(&address, path, holders, || typical_cheap(&address, "/cheap"));
    assert!(typical < CHEAP_LIMIT, "beside {holders} × {path}: {typical:?}");
    assert!(answered >= holders, "{answered} answers to {holders} clients");
}

/// Does `work` while so many clients hold their threads from before its start until after its end: what
/// it needs from the server cannot come from a loop that waits for them.
fn while_all_hold(server: &Server, path: &str, holders: usize, work: impl FnOnce()) {
    let hold = |_| {
        let mut connection = server.connect();
        connection.send(ask(path).as_bytes());
        connection
    };
    let mut holding: Vec<Connection> = (0..holders).map(hold).collect();
    work();
    for connection in &mut holding {
        assert_eq!(connection.next_event(Duration::from_millis(1)), End::Open, "{path} still holds");
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn as_we_are() {
    let _alone = alone();
    let server = setup("").start();
    for (path, holders) in [("/spin", 1), ("/spin", 4), ("/sleep", 1), ("/sleep", 4), ("/sleep", 32)] {
        others_go_on(&server, path, holders);
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn while_nobody_lets_go() {
    let _alone = alone();
    for (path, holders) in [("/long/spin", 1), ("/long/spin", 4), ("/long/sleep", 1), ("/long/sleep", 32)] {
        let server = setup("").start();
        while_all_hold(&server, path, holders, || {
            typical_cheap(&server.address(), "/cheap");
        });
    }
}

#[test]
#[cfg_attr(any(nginx_under_test, not_root), ignore = "its directives are Clearway's, and root starts it")]
fn as_nobody() {
    let _alone = alone();
    let server = setup("").as_nobody().start();
    for (path, holders) in [("/spin", 4), ("/sleep", 4), ("/sleep", 32)] {
        others_go_on(&server, path, holders);
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn files_go_on_too() {
    let _alone = alone();
    let server = setup("").start();
    while_all_hold(&server, "/long/sleep", 4, || {
        typical_cheap(&server.address(), "/files/f");
    });
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn new_connections_are_accepted() {
    let _alone = alone();
    let server = setup("").start();
    while_all_hold(&server, "/long/spin", 4, || {
        for _ in 0..50 {
            assert_eq!(server.get("/cheap").status, 200);
        }
    });
}

/// The test that the others test something.
#[test]
#[cfg_attr(any(nginx_under_test, chaos_lend), ignore = "loops are lent whatever is configured, or never")]
fn without_the_hand_over_everybody_waits() {
    let _alone = alone();
    // A build that lends after every Nth poll does so whatever is configured.
    let server = setup("handover_after off;").start();
    let address = server.address();
    let mut cheap = server.connect();
    // One of the cheap requests is on its way when a hold begins, or comes soon after.
    let mut slowest = Duration::ZERO;
    while_held(&address, "/sleep", 1, || {
        wait_until(PATIENCE, || {
            let began = Instant::now();
            assert_eq!(cheap.ask(&ask("/cheap")).status, 200);
            slowest = slowest.max(began.elapsed());
            slowest > HOLD / 2
        })
    });
    assert!(slowest > HOLD / 2, "{slowest:?}");
}

/// Running out of spare carriers is said, at most once a second, and the cheap requests go on between
/// two held ones.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn running_out_of_carriers() {
    let _alone = alone();
    let server = setup("handover_carriers 4;").start();
    let address = server.address();
    let began = Instant::now();
    let (_, answered) = while_held(&address, "/sleep", 16, || typical_cheap(&address, "/cheap"));
    assert!(answered >= 16, "{answered} answers");
    let log = server.wait_log("logs/error.log", "[alert]");
    let alerts = log.lines().filter(|line| line.contains("[alert]")).count();
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("a test is short");
    assert!(alerts <= seconds + 2, "{alerts} alerts: {log}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn threads_are_not_lost() {
    let _alone = alone();
    let server = setup("").start();
    let address = server.address();
    while_held(&address, "/sleep", 32, || typical_cheap(&address, "/cheap"));
    let after_one = clearway_testkit::process::threads(server.pid());
    while_held(&address, "/sleep", 32, || typical_cheap(&address, "/cheap"));
    let after_two = clearway_testkit::process::threads(server.pid());
    assert!(after_two <= after_one + 8, "{after_one} threads, then {after_two}");
}
