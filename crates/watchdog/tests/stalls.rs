//! Tasks that hold their threads on purpose, on a runtime of their own, and what is reported of them.
#![allow(clippy::unwrap_used, reason = "what goes wrong is a failed test")]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::fmt::Write;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use clearway_base::log::{Level, Record, Sink};
use clearway_os::thread;
use clearway_runtime::{Account, Config, LoopRef, Runtime, Tag, yield_now};
use clearway_watchdog::{Handover, Rate, Report, Settings, Watchdog};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_mins(3);

/// A report that is not there by then was not made.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

const SETTINGS: Settings = Settings {
    report_after: Some(Duration::from_millis(50)),
    report_rate: Rate { count: 10, per: Duration::from_hours(1) },
};

/// Keeps all lines.
#[derive(Default)]
struct Lines(Mutex<String>);

impl Sink for Lines {
    fn enabled(&self, level: Level) -> bool {
        level <= Level::Warn
    }

    fn write(&self, record: &Record<'_>) {
        writeln!(self.0.lock().unwrap(), "[{}] {}", record.level.as_str(), record.message).unwrap();
    }
}

struct Watched {
    home: LoopRef,
    watchdog: Watchdog,
    lines: Arc<Lines>,
}

fn start(handover_after: Option<Duration>) -> Watched {
    let config = Config { handover_after, handover_carriers: 64, ..Config::default() };
    let runtime = Runtime::start(&config).unwrap();
    let lines = Arc::new(Lines::default());
    let watchdog = Watchdog::start(runtime, 0, SETTINGS, Arc::clone(&lines) as _).unwrap();
    Watched { home: runtime.at(0), watchdog, lines }
}

impl Watched {
    /// Runs `hold` as a task, which then gives an account of itself, and says how long it took.
    fn hold(&self, name: &'static str, hold: impl FnOnce() + Send + 'static) -> Duration {
        let (sender, receiver) = mpsc::channel();
        let home = self.home;
        home.spawn(Tag::NONE, async move {
            let begun = Instant::now();
            hold();
            let took = begun.elapsed();
            home.account(|| Account { place: name.to_owned(), step: "testing", ..Account::default() });
            // The poll ends, and with it the stall.
            yield_now().await;
            sender.send(took).unwrap();
        });
        receiver.recv_timeout(PATIENCE).unwrap()
    }

    /// Has `hold` run until it is reported: on a busy machine it may have waited for a processor all the
    /// time, which is no stall. How long it took, and its report.
    fn report(&self, name: &'static str, hold: fn()) -> (Duration, Arc<Report>) {
        let begun = Instant::now();
        let is_it =
            |report: &&Arc<Report>| report.account.as_ref().is_some_and(|account| account.place == name);
        while begun.elapsed() < PATIENCE {
            let took = self.hold(name, hold);
            let over = Instant::now();
            while over.elapsed() < REPORT_LIMIT {
                if let Some(report) = self.watchdog.status().reports.iter().find(is_it) {
                    return (took, Arc::clone(report));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        panic!("no report of {name}: {:?}", self.watchdog.status().reports);
    }

    /// Has one more reported, behind which no report of something earlier can come. All that there are.
    fn all(&self) -> Vec<Arc<Report>> {
        self.report("last", || spin(Duration::from_millis(150)));
        let reports = self.watchdog.status().reports.clone();
        let is_last =
            |report: &Report| report.account.as_ref().is_some_and(|account| account.place == "last");
        // Of what was over before anybody looked at it nobody knows whether it waited for a processor.
        reports.into_iter().filter(|report| report.looks > 0 && !is_last(report)).collect()
    }
}

fn is_about(part: Duration, whole: Duration) -> bool {
    part.abs_diff(whole) * 10 <= whole
}

/// Uses so much of a processor, however long that takes: to wait for one is no stall.
#[inline(never)]
fn spin(time: Duration) {
    let this = thread::current();
    let used = || Duration::from_nanos(thread::cpu_ns(this).unwrap());
    let end = used() + time;
    while used() < end {
        // Without system calls for a while.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(200) {
            std::hint::spin_loop();
        }
    }
}

fn chaotic() -> bool {
    std::env::var_os("CLEARWAY_CHAOS_LEND").is_some()
}

fn check_spinner(watched: &Watched) -> Arc<Report> {
    let (took, report) = watched.report("spinner", || spin(Duration::from_millis(400)));
    assert!(report.time * 2 >= took && report.time <= took * 2, "{took:?}: {report:?}");
    assert!(report.in_calls * 10 <= report.time, "{report:?}");
    assert!(report.on_cpu + report.waiting + report.in_calls <= report.time + Duration::from_millis(5));
    let all = report.branches.iter().flat_map(|branch| &branch.frames).chain(&report.common);
    let found = all.clone().find(|frame| frame.function.ends_with("stalls::spin"));
    let place = found.unwrap_or_else(|| panic!("{report:?}")).place.as_deref().unwrap();
    assert!(place.starts_with("crates/watchdog/tests/stalls.rs:"), "{place}");
    assert!(all.clone().all(|frame| !frame.function.starts_with("clearway_runtime::")), "{report:?}");
    report
}

#[test]
fn a_spinner_is_reported_once_with_its_function() {
    let watched = start(Some(Duration::from_millis(1)));
    let report = check_spinner(&watched);
    assert_ne!(report.handover, Handover::None);
    assert_eq!(watched.all().len(), 1, "one report");
    let lines = watched.lines.0.lock().unwrap().clone();
    let headlines = lines.lines().filter(|line| line.contains("held its thread")).count();
    assert!(headlines >= 1, "{lines}");
    assert!(lines.contains("while testing, location: \"spinner\""), "{lines}");
    let rows = &watched.watchdog.status().summary;
    assert!(rows.iter().any(|row| row.place == "spinner" && row.stalls == 1), "{rows:?}");
}

#[test]
fn loops_that_are_not_handed_over_are_watched_as_well() {
    let watched = start(None);
    let report = check_spinner(&watched);
    assert!(chaotic() || report.handover == Handover::None, "{report:?}");
}

#[test]
fn a_sleeper_is_reported_with_its_system_call() {
    let watched = start(Some(Duration::from_millis(1)));
    let (took, report) = watched.report("sleeper", || std::thread::sleep(Duration::from_millis(700)));
    let call = report.calls.first().unwrap_or_else(|| panic!("{report:?}"));
    assert_eq!(call.name, "clock_nanosleep", "{report:?}");
    // It counts from the first look, which comes late on a busy machine.
    assert!(
        report.time * 2 >= took && is_about(call.time + report.waiting, report.time),
        "{took:?}: {report:?}"
    );
    let has_caller = call.frames.iter().any(|frame| frame.function.contains("a_sleeper_is_reported"));
    assert!(has_caller, "{report:?}");
    assert_eq!(report.samples, 0, "who sleeps is left alone: {report:?}");
}

#[test]
fn a_library_that_sleeps_in_poll_is_not_disturbed() {
    let watched = start(Some(Duration::from_millis(1)));
    let (sender, receiver) = mpsc::channel();
    watched.hold("library", move || {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        for _ in 0..100 {
            spin(Duration::from_millis(3));
            near.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
            // One recv(2), not tried again: it says EAGAIN when its time is over, EINTR if it was cut short.
            let result = std::io::Read::read(&mut &near, &mut [0; 1]);
            sender.send(result.unwrap_err().kind()).unwrap();
        }
    });
    let kinds: Vec<_> = receiver.iter().collect();
    assert_eq!(kinds, [std::io::ErrorKind::WouldBlock; 100]);
}

#[test]
fn a_long_task_that_lets_others_run_is_not_reported() {
    let watched = start(Some(Duration::from_millis(1)));
    let (sender, receiver) = mpsc::channel();
    watched.home.spawn(Tag::NONE, async move {
        for _ in 0..300 {
            spin(Duration::from_micros(500));
            yield_now().await;
        }
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(watched.all(), []);
}

#[test]
fn settings_can_change() {
    let watched = start(Some(Duration::from_millis(1)));
    watched.watchdog.configure(Settings { report_after: None, ..SETTINGS });
    watched.hold("unseen", || spin(Duration::from_millis(150)));
    watched.watchdog.configure(SETTINGS);
    assert_eq!(watched.all(), []);
}
