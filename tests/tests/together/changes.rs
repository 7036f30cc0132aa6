//! The site under load while it is changed: reloads, a new binary, logs that are opened anew, applications
//! that go and come back, clients that leave.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::expect_soon;
use clearway_testkit::server::send_signal;
use rustix::process::Signal;

use clearway_testkit::site::visitors::{Ask, BOTH, Way, connect, get, request_http1};
use clearway_testkit::site::{Mode, Site};

/// What visitors ask for while the site changes.
const MIX: &[(&str, u16)] = &[
    ("/plain.txt", 200),
    ("/app/a", 200),
    ("/cached/part?of=1", 200),
    ("/lua", 200),
    ("/visits?of=all", 200),
    ("/php/a", 200),
    ("/page.html", 200),
    ("/gathered", 200),
    ("/digest?of=a", 200),
    ("/greeting?a", 200),
    ("/private/a", 401),
    ("/none", 404),
];

/// Visits the site in both ways until `change` is through; how many answers came.
fn visited_during(site: &Site, change: impl FnOnce()) -> usize {
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for way in BOTH {
            let (is_over, answered) = (&is_over, &answered);
            scope.spawn(move || {
                for (target, status) in MIX.iter().cycle() {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let answer = get(&site.server, way, target);
                    let seen = (answer.status, answer.is_whole);
                    assert_eq!(seen, (*status, true), "{way:?} {target}: {}", answer.text());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let guard = Over(&is_over);
        wait_for_answers(&answered, MIX.len());
        change();
        wait_for_answers(&answered, answered.load(Ordering::SeqCst) + 2 * MIX.len());
        drop(guard);
    });
    answered.load(Ordering::SeqCst)
}

/// Ends the visits, also when what was waited for does not come.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn wait_for_answers(answered: &AtomicUsize, count: usize) {
    expect_soon("visitors are answered", || answered.load(Ordering::SeqCst) >= count);
}

#[test]
fn reloads_and_new_logs_fail_nobody() {
    let site = Site::start();
    visited_during(&site, || {
        for turn in 0..5 {
            let signal = if turn % 2 == 0 { Signal::HUP } else { Signal::USR1 };
            site.server.signal(signal);
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let log = site.server.error_log();
    assert!(!log.contains("[alert]") && !log.contains("[crit]"), "{log}");
}

#[test]
fn clients_that_leave_take_nothing_with_them() {
    let site = Site::start();
    let asked = ["/app/late", "/slowly", "/spins", "/digest?of=long", "/app/large", "/visits?of=gone"];
    let gone = || {
        for target in asked {
            let mut stream = connect(&site.server, Way::Http1);
            let request = request_http1(Ask { target, ..Ask::default() });
            stream.write_all(&request).expect("it is taken");
            // Some leave at once, some with the first bytes in hand.
            if target.len() % 2 == 0 {
                let _ = stream.read(&mut [0; 10]);
            }
        }
    };
    visited_during(&site, || (0..5).for_each(|_| gone()));
    let lines = site.server.wait_lines("logs/access.log", "GET /app/late", 5);
    let late: Vec<&str> = lines.lines().filter(|line| line.contains("GET /app/late")).collect();
    assert!(late.iter().all(|line| line.contains("\"status\":499")), "{late:?}");
}

#[test]
fn a_new_binary_takes_over_with_everything_in_use() {
    let mut site = Site::start_as(Mode::Background);
    let old = site.server.pid();
    let mut new = None;
    visited_during(&site, || {
        new = Some(site.server.begin_upgrade());
        send_signal(old, Signal::WINCH);
        std::thread::sleep(Duration::from_millis(300));
        send_signal(old, Signal::QUIT);
        site.server.wait_gone(old);
    });
    site.server.follow(new.expect("it is there"));
    for way in BOTH {
        let kept = get(&site.server, way, "/cached/part?of=1");
        assert_eq!((kept.status, kept.header("x-cache")), (200, "HIT"), "{way:?}: the disks are the same");
    }
    site.server.signal(Signal::TERM);
    assert!(site.server.wait_exit(PATIENCE).is_some());
}

#[test]
fn a_killed_worker_leaves_what_is_shared() {
    let site = Site::start();
    get(&site.server, Way::Http2, "/cached/part?of=killed");
    let is_kept = || get(&site.server, Way::Http1, "/cached/part?of=killed").header("x-cache") == "HIT";
    expect_soon("it is kept", is_kept);
    let logged = || -> u64 {
        let counts = get(&site.server, Way::Http1, "/counts").text();
        counts.trim_end().rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    let before = logged();
    let fetched = site.fetched();
    let worker = site.server.worker();
    send_signal(worker, Signal::KILL);
    site.server.wait_log("logs/error.log", "exited on signal 9");
    expect_soon("another one serves", || site.server.worker() != worker);
    assert!(is_kept(), "the index of the cache is not the worker's");
    assert_eq!(site.fetched(), fetched);
    assert!(logged() > before, "neither are the counts");
    for (target, status) in MIX {
        assert_eq!(get(&site.server, Way::Http2, target).status, *status, "{target}");
    }
}
