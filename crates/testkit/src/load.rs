//! Load on threads of this process, that misses nothing: every request is either answered as expected
//! or a failure with its kind and time. Clients keep their connections alive or open a new one for each
//! request; each has one request on its way at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::client::{Address, Connection, End, NoAnswer};
use crate::response::{Answer, Response};

/// How long a client whose request failed waits before its next one.
const AFTER_FAILURE: Duration = Duration::from_millis(2);

/// How many failures of a kind are kept in words; all are counted.
const FAILURES_KEPT: u64 = 3;

/// The failure of a request that was not answered as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// Nobody listens.
    Refused,
    /// No connection for another reason.
    NotConnected,
    /// The connection was reset before the answer was complete.
    Reset,
    /// The connection was closed instead of an answer.
    Closed,
    /// The connection was closed in the middle of the answer.
    Short,
    /// Another status than 200.
    Status,
    /// Another body than expected.
    Body,
    /// Nothing came for as long as tests wait.
    TimedOut,
    /// Something came that is not HTTP.
    Malformed,
}

/// A load that could be started.
#[derive(Clone, Debug)]
pub struct Load {
    to: Address,
    target: String,
    bodies: Vec<String>,
    keep_alive: usize,
    new: usize,
    pause: Duration,
}

impl Load {
    /// GET / from two clients that keep their connections and two that do not, each with a millisecond
    /// between requests. Any body will do.
    pub fn new(to: Address) -> Self {
        Self {
            to,
            target: "/".to_owned(),
            bodies: Vec::new(),
            keep_alive: 2,
            new: 2,
            pause: Duration::from_millis(1),
        }
    }

    /// Asks for something else.
    #[must_use]
    pub fn target(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// Every answer must be one of these.
    #[must_use]
    pub fn bodies(mut self, bodies: &[&str]) -> Self {
        self.bodies = bodies.iter().map(|&body| body.to_owned()).collect();
        self
    }

    /// How many clients keep their connections, and how many do not.
    #[must_use]
    pub fn clients(mut self, keep_alive: usize, new: usize) -> Self {
        (self.keep_alive, self.new) = (keep_alive, new);
        self
    }

    /// The time between an answer and the next request of a client.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Starts it.
    pub fn start(self) -> Running {
        let shared = Arc::new(Shared::default());
        let client = |reuse| {
            let (load, shared) = (self.clone(), Arc::clone(&shared));
            thread::spawn(move || Client::new(load, reuse).run(&shared))
        };
        let clients = (0..self.keep_alive).map(|_| Reuse::KeepAlive).chain((0..self.new).map(|_| Reuse::No));
        let threads = clients.map(client).collect();
        Running { shared, threads }
    }
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicU64,
}

/// A load that runs until it is finished or dropped.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Tally>>,
}

impl Running {
    /// How many answers have come so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many more answers have come.
    ///
    /// # Panics
    /// If they do not come.
    pub fn wait_answers(&self, count: u64) {
        let wanted = self.answered() + count;
        let there = crate::wait_until(2 * crate::client::PATIENCE, || self.answered() >= wanted);
        assert!(there, "only {} answers of {wanted}", self.answered());
    }

    /// Lets every client have its last answer, and says what has come of all.
    pub fn finish(mut self) -> Tally {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for thread in self.threads.drain(..) {
            all.add(thread.join().expect("a client that panics is a mistake in this file"));
        }
        all
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// The results of a load.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that were answered as expected.
    pub answered: u64,
    /// Times that a kept connection was found closed when it was to be used again, with nothing
    /// answered. The request was sent again on a new one, as clients do (RFC 9112 §9.3.1), and counts there.
    pub stale: u64,
    /// Connections that were made.
    pub connections: u64,
    /// From request to answer, in no order.
    pub latencies: Vec<Duration>,
    failed: BTreeMap<Failure, u64>,
    told: Vec<String>,
}

impl Tally {
    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Requests that failed in this way.
    pub fn failed_by(&self, kind: Failure) -> u64 {
        self.failed.get(&kind).copied().unwrap_or_default()
    }

    /// The latency that this part (0 to 1) of the answers did not exceed.
    pub fn quantile(&mut self, part: f64) -> Duration {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * part) as usize).copied().unwrap_or_default()
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.stale += other.stale;
        self.connections += other.connections;
        self.latencies.extend(other.latencies);
        for (kind, count) in other.failed {
            *self.failed.entry(kind).or_default() += count;
        }
        self.told.extend(other.told);
    }

    fn fail(&mut self, kind: Failure, why: &str) {
        let count = self.failed.entry(kind).or_default();
        *count += 1;
        if *count <= FAILURES_KEPT {
            self.told.push(format!("{kind:?}: {why}"));
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answered, connections, stale) = (self.answered, self.connections, self.stale);
        write!(f, "{answered} answered over {connections} connections, {stale} found closed, ")?;
        match self.failed() {
            0 => write!(f, "none failed")?,
            _ => write!(f, "failed: {:?}", self.failed)?,
        }
        self.told.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    KeepAlive,
    No,
}

struct Client {
    load: Load,
    reuse: Reuse,
    request: Vec<u8>,
    kept: Option<Connection>,
    began: Instant,
    tally: Tally,
}

impl Client {
    fn new(load: Load, reuse: Reuse) -> Self {
        let close = if reuse == Reuse::No { "Connection: close\r\n" } else { "" };
        let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n{close}\r\n", load.target).into_bytes();
        Self { load, reuse, request, kept: None, began: Instant::now(), tally: Tally::default() }
    }

    fn run(mut self, shared: &Shared) -> Tally {
        while !shared.stop.load(Ordering::Relaxed) {
            if self.one() {
                shared.answered.fetch_add(1, Ordering::Relaxed);
                thread::sleep(self.load.pause);
            } else {
                thread::sleep(AFTER_FAILURE);
            }
        }
        self.tally
    }

    /// Sends one request. Returns whether it was answered.
    fn one(&mut self) -> bool {
        if let Some(connection) = self.kept.take() {
            match self.ask(connection) {
                Err(NoAnswer::Ended(_, data)) if data.is_empty() => self.tally.stale += 1,
                outcome => return self.judge(outcome),
            }
        }
        self.tally.connections += 1;
        let outcome = match Connection::open(&self.load.to) {
            Ok(connection) => self.ask(connection),
            Err(error) => {
                let refused = error.kind() == ErrorKind::ConnectionRefused;
                self.fail(if refused { Failure::Refused } else { Failure::NotConnected }, &error.to_string());
                return false;
            }
        };
        self.judge(outcome)
    }

    fn ask(&mut self, mut connection: Connection) -> Result<Response, NoAnswer> {
        let began = Instant::now();
        connection.send(&self.request);
        let response = connection.try_response(Answer::Whole)?;
        self.tally.latencies.push(began.elapsed());
        if self.reuse == Reuse::KeepAlive && response.keeps_alive() {
            self.kept = Some(connection);
        }
        Ok(response)
    }

    fn judge(&mut self, outcome: Result<Response, NoAnswer>) -> bool {
        let response = match outcome {
            Ok(response) => response,
            Err(why) => {
                self.fail(kind(&why), &why.to_string());
                return false;
            }
        };
        let body = response.text();
        if response.status != 200 {
            self.fail(Failure::Status, &format!("{}: {body}", response.status));
            return false;
        }
        if !self.load.bodies.is_empty() && !self.load.bodies.contains(&body) {
            self.fail(Failure::Body, &body);
            return false;
        }
        self.tally.answered += 1;
        true
    }

    fn fail(&mut self, kind: Failure, why: &str) {
        let at = self.began.elapsed();
        self.tally.fail(kind, &format!("{why} (after {:.3} s)", at.as_secs_f64()));
    }
}

fn kind(why: &NoAnswer) -> Failure {
    match why {
        NoAnswer::Ended(End::Reset, _) => Failure::Reset,
        NoAnswer::Ended(_, data) if data.is_empty() => Failure::Closed,
        NoAnswer::Ended(..) => Failure::Short,
        NoAnswer::TooSlow(_) => Failure::TimedOut,
        NoAnswer::Malformed(_) => Failure::Malformed,
    }
}

/// Connections that were used once and are kept.
pub struct Idle {
    connections: Vec<Connection>,
    request: Vec<u8>,
}

impl Idle {
    /// Opens so many and asks for `target` on each.
    ///
    /// # Panics
    /// If one is not answered.
    pub fn open(to: &Address, target: &str, count: usize) -> Self {
        raise_descriptor_limit();
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
        let one = |number| {
            let mut connection = Connection::open(to).unwrap_or_else(|e| panic!("connection {number}: {e}"));
            connection.send(&request);
            assert_eq!(connection.response().status, 200);
            connection
        };
        Self { connections: (0..count).map(one).collect(), request }
    }

    /// How many are still open, by asking for nothing.
    pub fn still_open(&mut self) -> usize {
        let open = |c: &mut Connection| c.next_event(Duration::from_millis(1)) == End::Open;
        self.connections.iter_mut().map(open).filter(|&open| open).count()
    }

    /// How many are answered when they ask once more.
    pub fn still_answered(&mut self) -> usize {
        let request = &self.request;
        let answered = |connection: &mut Connection| {
            connection.send(request);
            connection.try_response(Answer::Whole).is_ok_and(|response| response.status == 200)
        };
        self.connections.iter_mut().map(answered).filter(|&answered| answered).count()
    }
}

/// Lets this process, and the servers that it starts, have as many descriptors as they may.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is refused the limit is what it was, and a test that needs more will say so.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Answers connections one after the other with these bytes each, and closes.
    fn serve(answers: &'static [&'static [u8]]) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                stream.write_all(answer).unwrap();
            }
        });
        Address::Tcp(address)
    }

    #[test]
    fn every_failure_has_its_kind() {
        let to = serve(&[
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
            b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 what\r\n\r\n",
        ]);
        let mut client = Client::new(Load::new(to).bodies(&["ok"]), Reuse::KeepAlive);
        assert!(client.one());
        assert!(!client.one(), "found closed, and then closed without an answer");
        assert_eq!(client.tally.stale, 1);
        (0..5).for_each(|_| assert!(!client.one()));
        let tally = client.tally;
        let wanted = [Failure::Closed, Failure::Short, Failure::Body, Failure::Status, Failure::Malformed];
        assert_eq!(wanted.map(|kind| tally.failed_by(kind)), [1; 5], "{tally}");
        assert_eq!((tally.answered, tally.failed(), tally.failed_by(Failure::Short)), (1, 6, 1), "{tally}");
    }

    #[test]
    fn quantiles() {
        let mut tally = Tally { latencies: (1..=101).map(Duration::from_secs).collect(), ..Tally::default() };
        assert_eq!(tally.quantile(0.5), Duration::from_secs(51));
        assert_eq!(tally.quantile(1.0), Duration::from_secs(101));
        assert_eq!(Tally::default().quantile(0.5), Duration::ZERO);
    }
}
