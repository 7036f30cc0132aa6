//! Loops that are held on purpose: whatever holds one, everybody else goes on. Needs a build with the
//! `testing` feature. The tests run one after the other, so that they measure the server and not each
//! other.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::server::is_root;
use clearway_testkit::{Address, Binary, Connection, Product, Server, Setup};

/// How long the held requests hold their thread.
const HOLD: Duration = Duration::from_millis(300);
/// How long a cheap request may take meanwhile; without a hand-over it would be [`HOLD`] at least.
const CHEAP_LIMIT: Duration = Duration::from_millis(100);
const CHEAP_REQUESTS: usize = 200;

/// One after the other. A test that failed does not keep the others from running.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// nginx knows none of these directives.
fn is_clearway() -> bool {
    Binary::under_test().product == Product::Clearway
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
    let answered = AtomicUsize::new(0);
    let hold = || {
        let mut connection = Connection::open(address).expect("it listens");
        while !done.load(Ordering::Relaxed) {
            assert_eq!(connection.ask(&ask(path)).status, 200);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let result = thread::scope(|scope| {
        for _ in 0..holders {
            scope.spawn(hold);
        }
        thread::sleep(Duration::from_millis(50));
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    });
    (result, answered.into_inner())
}

/// The slowest of [`CHEAP_REQUESTS`] over four connections, spread over some 600 ms.
fn slowest_cheap(address: &Address, path: &str) -> Duration {
    let mut connections: Vec<_> = (0..4).map(|_| Connection::open(address).expect("it listens")).collect();
    let mut slowest = Duration::ZERO;
    for i in 0..CHEAP_REQUESTS {
        let connection = &mut connections[i % 4];
        let began = Instant::now();
        assert_eq!(connection.ask(&ask(path)).status, 200);
        slowest = slowest.max(began.elapsed());
        thread::sleep(Duration::from_millis(3));
    }
    slowest
}

fn others_go_on(server: &Server, path: &str, holders: usize) {
    let address = server.address();
    let (slowest, answered) = while_held(&address, path, holders, || slowest_cheap(&address, "/cheap"));
    assert!(slowest < CHEAP_LIMIT, "beside {holders} × {path}: {slowest:?}");
    assert!(answered >= holders, "{answered} answers to {holders} clients");
}

#[test]
fn as_we_are() {
    let _alone = alone();
    if !is_clearway() {
        return;
    }
    let server = setup("").start();
    for (path, holders) in [("/spin", 1), ("/spin", 4), ("/sleep", 1), ("/sleep", 4), ("/sleep", 32)] {
        others_go_on(&server, path, holders);
    }
}

#[test]
fn as_nobody() {
    let _alone = alone();
    if !is_clearway() || !is_root() {
        return;
    }
    let server = setup("").as_nobody().start();
    for (path, holders) in [("/spin", 4), ("/sleep", 4), ("/sleep", 32)] {
        others_go_on(&server, path, holders);
    }
}

#[test]
fn files_go_on_too() {
    let _alone = alone();
    if !is_clearway() {
        return;
    }
    let server = setup("").start();
    let address = server.address();
    let (slowest, _) = while_held(&address, "/sleep", 4, || slowest_cheap(&address, "/files/f"));
    assert!(slowest < CHEAP_LIMIT, "{slowest:?}");
}

#[test]
fn new_connections_are_accepted() {
    let _alone = alone();
    if !is_clearway() {
        return;
    }
    let server = setup("").start();
    let address = server.address();
    let (slowest, _) = while_held(&address, "/spin", 4, || {
        let one = || {
            let began = Instant::now();
            assert_eq!(server.get("/cheap").status, 200);
            began.elapsed()
        };
        (0..50).map(|_| one()).max().unwrap_or_default()
    });
    assert!(slowest < CHEAP_LIMIT, "{slowest:?}");
}

/// The test that the others test something.
#[test]
fn without_the_hand_over_everybody_waits() {
    let _alone = alone();
    // A build that lends after every Nth poll does so whatever is configured.
    if !is_clearway() || std::env::var_os("CLEARWAY_CHAOS_LEND").is_some() {
        return;
    }
    let server = setup("handover_after off;").start();
    let address = server.address();
    let mut holder = Connection::open(&address).expect("it listens");
    let mut cheap = server.connect();
    assert_eq!(cheap.ask(&ask("/cheap")).status, 200);
    holder.send(ask("/sleep").as_bytes());
    thread::sleep(Duration::from_millis(50));
    let began = Instant::now();
    assert_eq!(cheap.ask(&ask("/cheap")).status, 200);
    assert!(began.elapsed() > HOLD / 2, "{:?}", began.elapsed());
    assert_eq!(holder.response().status, 200);
}

/// Running out of spare carriers is said, at most once a second, and the cheap requests go on between
/// two held ones.
#[test]
fn running_out_of_carriers() {
    let _alone = alone();
    if !is_clearway() {
        return;
    }
    let server = setup("handover_carriers 4;").start();
    let address = server.address();
    let began = Instant::now();
    let (_, answered) = while_held(&address, "/sleep", 16, || slowest_cheap(&address, "/cheap"));
    assert!(answered >= 16, "{answered} answers");
    let alerts = server.error_log().lines().filter(|line| line.contains("[alert]")).count();
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("a test is short");
    assert!(alerts >= 1 && alerts <= seconds + 2, "{alerts} alerts: {}", server.error_log());
}

#[test]
fn threads_are_not_lost() {
    let _alone = alone();
    if !is_clearway() {
        return;
    }
    let server = setup("").start();
    let address = server.address();
    while_held(&address, "/sleep", 32, || slowest_cheap(&address, "/cheap"));
    let after_one = clearway_testkit::process::threads(server.pid());
    while_held(&address, "/sleep", 32, || slowest_cheap(&address, "/cheap"));
    let after_two = clearway_testkit::process::threads(server.pid());
    assert!(after_two <= after_one + 8, "{after_one} threads, then {after_two}");
}
