//! A bad day of the [site](crate::site), at random times that follow from a seed. Workers are killed; disks
//! hang, are full or gone; the servers behind the site die and come back; code spins and sleeps; handshakes
//! and streams flood the site; it is reloaded, and its logs are moved; clients leave. The report has requests
//! that failed without such a reason, wrong answers, the time of cheap requests, and the resources that the
//! server holds in the end. To be played as root, since it mounts file systems.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::http2_attacks::ATTACKS;
use super::random::Random;
use crate::client::PATIENCE;
use crate::http2::{Frames, Settings};
use crate::hung::HungMount;
use crate::process::Pid;
use crate::server::send_signal;
use crate::site::Site;
use crate::site::services::{Mood, object};
use crate::site::visitors::{Answered, Ask, BOTH, Way, request_http1, try_ask, try_connect};
use crate::{Address, process, wait_until};

/// Objects that visitors ask the cache for.
const OBJECTS: u64 = 400;
/// How much longer than a fault its effects last: servers that have failed are left alone for a second.
const AFTERMATH: Duration = Duration::from_secs(4);
/// How long a fault lasts, milliseconds.
const FAULT_MS: std::ops::Range<u64> = 300..2_000;
/// Time between two events at most, milliseconds.
const PAUSE_MS: u64 = 1_200;
/// Handshakes of a flood.
const HANDSHAKES: u64 = 200;
/// The pause between two cheap requests.
const CHEAP_EVERY: Duration = Duration::from_millis(5);

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    /// How long the day lasts.
    pub length: Duration,
    /// Clients that send requests all the time.
    pub visitors: u64,
    /// The seed from which all events follow.
    pub seed: u64,
}

/// Resources that the server holds at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Resident memory of all processes, bytes.
    pub rss_bytes: u64,
    /// Threads of all processes.
    pub threads: usize,
    /// Descriptors of all processes.
    pub descriptors: usize,
}

/// The outcome.
#[derive(Clone, Debug, Default)]
pub struct DayReport {
    /// Answers that were right.
    pub answered: u64,
    /// Answers with a byte that should not be there.
    pub wrong: u64,
    /// Requests that failed because of an event, by event.
    pub explained: BTreeMap<&'static str, u64>,
    /// Requests that failed without a reason, by the failure that the client saw.
    pub failed: BTreeMap<String, u64>,
    /// The events and their counts.
    pub events: BTreeMap<&'static str, u64>,
    /// How long cheap requests took outside the seconds of a kill, sorted.
    pub cheap: Vec<Duration>,
    /// Resources after a tenth of the day, and after the whole day.
    pub holds: (Holds, Holds),
    /// Lines of the error log that nobody wants to see.
    pub alerts: Vec<String>,
}

impl DayReport {
    /// The quantile of the latency of cheap requests: `part` of them took less.
    #[must_use]
    pub fn cheap_quantile(&self, part: f64) -> Duration {
        let at = (self.cheap.len() as f64 * part) as usize;
        self.cheap.get(at.min(self.cheap.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

impl fmt::Display for DayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} answers, {} wrong; events {:?}", self.answered, self.wrong, self.events)?;
        writeln!(f, "failed with a reason: {:?}", self.explained)?;
        writeln!(f, "failed without: {:?}", self.failed)?;
        let [half, most, last] = [0.5, 0.99, 1.0].map(|part| self.cheap_quantile(part));
        writeln!(f, "{} cheap ones: {half:?} (median), {most:?} (p99), {last:?} (last)", self.cheap.len())?;
        writeln!(f, "held before and after: {:?}", self.holds)?;
        write!(f, "alerts: {:?}", self.alerts)
    }
}

/// An event that excuses a request that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Application,
    Counts,
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "a killed worker",
            Self::Application => "no application",
            Self::Counts => "no counts",
        }
    }
}

/// One request of a visitor: its target, the event that excuses its failure (beside a kill), and the answer
/// that is expected.
struct Visit {
    target: String,
    excuse: Option<Fault>,
    /// The expected statuses.
    statuses: &'static [u16],
    /// The expected body, where it is known.
    body: Option<Vec<u8>>,
}

/// Chooses the next request of a visitor.
fn visit(random: &mut Random) -> Visit {
    let plain = |target: &str, body: &str| Visit {
        target: target.to_owned(),
        excuse: None,
        statuses: &[200],
        body: Some(body.as_bytes().to_vec()),
    };
    let behind = |target: &str, fault| Visit {
        target: target.to_owned(),
        excuse: Some(fault),
        statuses: &[200],
        body: None,
    };
    match random.below(16) {
        0 => plain("/plain.txt", "plain\n"),
        1 => plain("/php/a", "from PHP\n"),
        2 => plain("/lua", "REWRITE ACCESS CONTENT GET 0\n"),
        3 => plain("/digest?of=words", "1931188857\n"),
        4 => plain("/greeting?you", "hello you from greeter\n"),
        5 => plain("/spins", "spun\n"),
        6 => plain("/sleeps", "slept\n"),
        7 => plain("/matches", "none\n"),
        8 => behind("/app/a", Fault::Application),
        9 => behind("/page.html", Fault::Application),
        10 => behind("/gathered", Fault::Application),
        11 => behind("/visits?of=day", Fault::Counts),
        12 => Visit { statuses: &[401], ..behind("/private/a", Fault::Application) },
        _ => {
            let target = format!("/cached/object?of={}", random.below(OBJECTS));
            let body = Some(object(&target));
            Visit { body, ..behind(&target, Fault::Application) }
        }
    }
}

/// The course of the day, and its results.
#[derive(Default)]
struct Course {
    is_over: AtomicBool,
    answered: AtomicU64,
    wrong: AtomicU64,
    explained: Mutex<BTreeMap<&'static str, u64>>,
    failed: Mutex<BTreeMap<String, u64>>,
    cheap: Mutex<Vec<Duration>>,
    /// Faults with their begin and, once it is known, their end.
    faults: Mutex<Vec<(Fault, Instant, Option<Instant>)>>,
    /// Workers that were killed.
    killed: Mutex<Vec<Pid>>,
}

impl Course {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn begin(&self, fault: Fault) -> usize {
        let mut faults = self.faults.lock().expect("no thread has failed");
        faults.push((fault, Instant::now(), None));
        faults.len() - 1
    }

    fn end(&self, number: usize) {
        self.faults.lock().expect("no thread has failed")[number].2 = Some(Instant::now());
    }

    /// The event since then that excuses a failure.
    fn excuse(&self, since: Instant, of: Option<Fault>) -> Option<Fault> {
        let faults = self.faults.lock().expect("no thread has failed");
        let goes_on = |end: &Option<Instant>| end.is_none_or(|end| end + AFTERMATH >= since);
        let found = faults
            .iter()
            .rev()
            .find(|(fault, _, end)| (*fault == Fault::Kill || Some(*fault) == of) && goes_on(end));
        found.map(|(fault, ..)| *fault)
    }

    /// Notes how a visit went.
    fn judge(&self, way: Way, visit: &Visit, since: Instant, answer: std::io::Result<Answered>) {
        let seen = match answer {
            Ok(answer) if answer.is_whole && visit.statuses.contains(&answer.status) => {
                let is_right = visit.body.as_ref().is_none_or(|body| *body == answer.body);
                let counter = if is_right { &self.answered } else { &self.wrong };
                counter.fetch_add(1, Ordering::SeqCst);
                return;
            }
            Ok(answer) => format!("{} {}", answer.status, if answer.is_whole { "whole" } else { "cut" }),
            Err(error) => error.to_string(),
        };
        match self.excuse(since, visit.excuse) {
            Some(fault) => {
                let mut explained = self.explained.lock().expect("no thread has failed");
                *explained.entry(fault.name()).or_default() += 1;
            }
            None => {
                let target = visit.target.split('?').next().unwrap_or_default();
                let mut failed = self.failed.lock().expect("no thread has failed");
                *failed.entry(format!("{way:?} {target}: {seen}")).or_default() += 1;
            }
        }
    }

    fn visit_all_day(&self, address: &Address, mut random: Random) {
        while !self.is_over() {
            let (way, visit) = (BOTH[random.below(2) as usize], visit(&mut random));
            let since = Instant::now();
            let answer = try_ask(address, way, Ask { target: &visit.target, ..Ask::default() });
            self.judge(way, &visit, since, answer);
        }
    }

    /// Sends cheap requests, one after another on one connection.
    fn ask_cheaply(&self, address: &Address) {
        let headers = [("connection", "keep-alive")];
        let request = request_http1(Ask { target: "/cheap", headers: &headers, ..Ask::default() });
        let mut kept = None;
        while !self.is_over() {
            thread::sleep(CHEAP_EVERY);
            let since = Instant::now();
            let mut answer = || -> std::io::Result<bool> {
                if kept.is_none() {
                    kept = Some(try_connect(address, Way::Http1)?);
                }
                let Some(stream) = &mut kept else { return Ok(false) };
                stream.write_all(&request)?;
                let mut received = Vec::new();
                let mut piece = [0; 4096];
                while !received.ends_with(b"cheap\n") {
                    match stream.read(&mut piece)? {
                        0 => return Ok(false),
                        len => received.extend_from_slice(&piece[..len]),
                    }
                }
                Ok(true)
            };
            let is_answered = answer().unwrap_or(false);
            let is_killed = self.excuse(since, None).is_some();
            if !is_answered {
                // A keep-alive connection may end between two requests; the client then sends the request
                // again.
                kept = None;
            } else if !is_killed {
                self.cheap.lock().expect("no thread has failed").push(since.elapsed());
            }
        }
    }
}

impl Day {
    /// Plays the day.
    ///
    /// # Panics
    /// If the server does not start, does not live through it, or this process may not mount.
    #[must_use]
    pub fn play(&self) -> DayReport {
        let site = Site::start();
        let address = site.server.address();
        // The master counts a worker that is killed before it has answered as a failed start.
        let first = try_ask(&address, Way::Http1, Ask { target: "/cheap", ..Ask::default() });
        assert!(first.is_ok_and(|answer| answer.status == 200), "it does not answer");
        let course = Course::default();
        let mut random = Random(self.seed);
        let mut before = Holds::default();
        let mut events = BTreeMap::new();
        thread::scope(|scope| {
            for number in 0..self.visitors {
                let (course, address) = (&course, &address);
                let random = Random(self.seed ^ ((number + 1) << 32));
                scope.spawn(move || course.visit_all_day(address, random));
            }
            scope.spawn(|| course.ask_cheaply(&address));
            // Resources that each part allocates once are there before the measurement.
            let begin = Instant::now();
            while begin.elapsed() < self.length {
                if before == Holds::default() && begin.elapsed() > self.length / 10 {
                    before = holds(&site);
                }
                let event = EVENTS[random.below(EVENTS.len() as u64) as usize];
                *events.entry(event.0).or_default() += 1;
                event.1(&site, &course, &mut random);
                thread::sleep(Duration::from_millis(random.below(PAUSE_MS)));
            }
            course.is_over.store(true, Ordering::SeqCst);
        });
        // Work that is under way ends.
        thread::sleep(AFTERMATH);
        let after = holds(&site);
        report(&site, course, events, (before, after))
    }
}

fn report(
    site: &Site,
    course: Course,
    events: BTreeMap<&'static str, u64>,
    holds: (Holds, Holds),
) -> DayReport {
    let mut cheap = course.cheap.into_inner().expect("no thread has failed");
    cheap.sort_unstable();
    let log = site.server.error_log();
    let killed = course.killed.into_inner().expect("no thread has failed");
    // Just as it began with another configuration, for one.
    let is_of_a_killed_one = |line: &str| {
        let of = |pid: &Pid| format!("worker process {pid} ended while it was starting");
        killed.iter().any(|pid| line.ends_with(&of(pid)))
    };
    let is_meant = |line: &&str| line.contains("exited on signal 9") || is_of_a_killed_one(line);
    let is_alert = |line: &&str| ["[alert]", "[emerg]", "panicked"].iter().any(|word| line.contains(word));
    let alerts = log.lines().filter(is_alert).filter(|line| !is_meant(line)).map(str::to_owned);
    DayReport {
        answered: course.answered.into_inner(),
        wrong: course.wrong.into_inner(),
        explained: course.explained.into_inner().expect("no thread has failed"),
        failed: course.failed.into_inner().expect("no thread has failed"),
        events,
        cheap,
        holds,
        alerts: alerts.collect(),
    }
}

/// The resources of all processes of the server.
fn holds(site: &Site) -> Holds {
    let mut all = Holds::default();
    for pid in process::family(site.server.pid()) {
        all.rss_bytes += process::rss_bytes(pid);
        all.threads += process::threads(pid);
        all.descriptors += process::descriptors(pid);
    }
    all
}

/// One event.
type Event = (&'static str, fn(&Site, &Course, &mut Random));

const EVENTS: &[Event] = &[
    ("reload", |site, _, _| site.server.signal(Signal::HUP)),
    ("moved log", |site, _, random| {
        let log = site.server.prefix().join("logs/access.log");
        let _ = std::fs::rename(&log, log.with_extension(format!("{}", random.below(3))));
        site.server.signal(Signal::USR1);
    }),
    ("killed worker", |site, course, _| {
        let number = course.begin(Fault::Kill);
        let worker = site.server.worker();
        course.killed.lock().expect("no thread has failed").push(worker);
        send_signal(worker, Signal::KILL);
        wait_until(PATIENCE, || site.server.worker() != worker);
        course.end(number);
    }),
    ("silent application", |site, course, random| {
        lasts(&site.application.mood, Mood::Silent, (course, Fault::Application), random);
    }),
    ("no application", |site, course, random| {
        lasts(&site.application.mood, Mood::Gone, (course, Fault::Application), random);
    }),
    ("no counts", |site, course, random| {
        lasts(&site.counts.mood, Mood::Gone, (course, Fault::Counts), random);
    }),
    ("full disk", |site, _, random| {
        let disk = disk(site, random);
        let options = ["-t", "tmpfs", "-o", "size=64k,mode=777", "tmpfs"];
        let mount = Command::new("mount").args(options).arg(&disk).status();
        assert!(mount.is_ok_and(|status| status.success()), "may not mount here: this is for root");
        pause(random);
        let _ = Command::new("umount").arg("--lazy").arg(&disk).status();
    }),
    ("hanging disk", |site, _, random| {
        let mut mount = HungMount::over(&disk(site, random));
        pause(random);
        mount.give_up();
    }),
    ("missing disk", |site, _, random| {
        let disk = disk(site, random);
        let away = disk.with_extension("away");
        std::fs::rename(&disk, &away).expect("it is ours");
        pause(random);
        std::fs::rename(&away, &disk).expect("it is ours");
    }),
    ("handshakes", |site, _, _| {
        let address = site.server.address();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..HANDSHAKES / 4).for_each(|_| drop(try_connect(&address, Way::Http2)));
                });
            }
        });
    }),
    ("attack", |site, _, random| {
        let (_, _, attack) = ATTACKS[random.below(ATTACKS.len() as u64) as usize];
        let Ok(mut stream) = try_connect(&site.server.address(), Way::Http2) else { return };
        let _ = stream.write_all(&Frames::hello(Settings::default()));
        for nth in 0..20 {
            if stream.write_all(&attack(nth)).is_err() {
                return;
            }
        }
    }),
    ("clients that leave", |site, _, random| {
        for target in ["/app/large", "/slowly", "/spins", "/page.html", "/video/film"] {
            let way = BOTH[random.below(2) as usize];
            let Ok(mut stream) = try_connect(&site.server.address(), way) else { return };
            let _ = stream.write_all(&request_http1(Ask { target, ..Ask::default() }));
            if random.below(2) == 0 {
                let _ = stream.read(&mut [0; 100]);
            }
        }
    }),
];

fn pause(random: &mut Random) {
    let length = FAULT_MS.start + random.below(FAULT_MS.end - FAULT_MS.start);
    thread::sleep(Duration::from_millis(length));
}

fn disk(site: &Site, random: &mut Random) -> PathBuf {
    site.server.prefix().join(format!("disk{}", 1 + random.below(3)))
}

/// Puts a service into this mood for a while.
fn lasts(of: &Mutex<Mood>, mood: Mood, (course, fault): (&Course, Fault), random: &mut Random) {
    let number = course.begin(fault);
    *of.lock().expect("no thread has failed") = mood;
    pause(random);
    *of.lock().expect("no thread has failed") = Mood::Well;
    course.end(number);
}
