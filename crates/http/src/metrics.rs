//! The counters of connections and requests: the states that `stub_status` tells, with nginx's meaning, and
//! the statuses of responses. Numbers only grow, apart for each loop; the page that shows them subtracts.
//!
//! A task can be polled away from its loop while the loop goes on, so two threads may count for one loop
//! at once: these are atomic additions, three for a request, to lines that as a rule one processor has.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use clearway_metrics::{Counter, Family, Kind, Label, Metric, PerLoop, Put, Value};
use clearway_site::regex;

/// The metrics of this file, for the module `core`.
pub(crate) static ALL: &[Metric] = &[
    Metric::Values(&HANDLED, put_handled),
    Metric::Values(&CONNECTIONS, put_connections),
    Metric::Values(&REQUESTS, put_requests),
    Metric::Values(&RESPONSES, put_responses),
    Metric::Counter(&regex::LIMITS_HIT),
    Metric::Counter(&CONNECTIONS_MOVED),
    Metric::Counter(&TLS_BROKEN),
];

pub(crate) static CONNECTIONS_MOVED: Counter = Counter::new(
    "connections_moved_total",
    "connections",
    "Connections that became idle on a loop that lagged, and were moved to another loop.",
);

pub(crate) static TLS_BROKEN: Counter = Counter::new(
    "tls_connections_broken_total",
    "connections",
    "Connections of clients with TLS that were ended behind their handshake: a record that was changed, an \
     alert, or a flood of updates of keys, of empty records or of wishes for another handshake.",
);

const LOOP: Label = Label { name: "loop", help: "Which event loop, from 0." };

/// Connections that are served, see [`put_handled`].
pub(crate) static HANDLED: Family = Family::new(
    Kind::Counter,
    "connections_handled_total",
    "connections",
    "Connections that were given to a loop to be served, by that loop: `handled` of `stub_status`.",
)
.by(&[LOOP]);

/// Connections by state, see [`put_connections`].
pub(crate) static CONNECTIONS: Family = Family::new(
    Kind::Gauge,
    "connections",
    "connections",
    "Connections of clients, by state, as `stub_status` counts them. One that lingers after its last \
     response counts twice, as in nginx: as what it was, and as waiting.",
)
.by(&[
    LOOP,
    Label {
        name: "state",
        help: "`active`: all. `reading`: the head of a request is read. `writing`: a request is answered. \
               `waiting`: for a request, its first or another.",
    },
]);

/// Requests, see [`put_requests`].
pub(crate) static REQUESTS: Family = Family::new(
    Kind::Counter,
    "requests_total",
    "requests",
    "Requests that began, by the loop of their connection: `requests` of `stub_status`.",
)
.by(&[LOOP]);

/// Responses, see [`put_responses`].
pub(crate) static RESPONSES: Family = Family::new(
    Kind::Counter,
    "responses_total",
    "requests",
    "Requests that ended, by the status in the access log (`$status`). Of a request that began and of which \
     nothing was received there is none.",
)
.by(&[Label {
    name: "code",
    help: "Status, or `other` below 100 and from 600 on. Codes that were never used are left out.",
}]);

/// Statuses that are counted apart begin here.
const CODES_FIRST: usize = 100;
/// How many there are; what is outside is counted together.
const CODES: usize = 500;

/// The counters of one loop's connections.
#[repr(align(128))]
struct Tally {
    handled: AtomicU64,
    /// Connections that came from other loops, where they count as closed.
    moved_here: AtomicU64,
    closed: AtomicU64,
    /// Requests that began with a part of their head.
    begun: AtomicU64,
    /// Requests whose head is complete.
    headed: AtomicU64,
    /// Requests that began with a complete head.
    begun_headed: AtomicU64,
    ended_unheaded: AtomicU64,
    ended_headed: AtomicU64,
    /// Connections that linger, now.
    lingering: AtomicU64,
    others: AtomicU64,
    codes: [AtomicU64; CODES],
}

impl Default for Tally {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            handled: zero(),
            moved_here: zero(),
            closed: zero(),
            begun: zero(),
            headed: zero(),
            begun_headed: zero(),
            ended_unheaded: zero(),
            ended_headed: zero(),
            lingering: zero(),
            others: zero(),
            codes: [const { AtomicU64::new(0) }; CODES],
        }
    }
}

static TALLIES: PerLoop<Tally> = PerLoop::new();

/// Makes what so many loops count in, so that none of them has to.
pub fn prepare(loops: usize) {
    for index in 0..loops {
        TALLIES.of(index);
    }
}

/// The connection waits for a request.
const WAITING: u8 = 0;
/// A request has begun, its head is not complete.
const READING: u8 = 1;
/// A request is answered.
const WRITING: u8 = 2;
/// Beside one of the two above: the response is sent, and what the client still sends is dropped.
const LINGERING: u8 = 4;

/// The state under which a connection is counted. Written by its task only; the number is that of its loop.
#[derive(Debug, Default)]
pub struct Stage(AtomicU8);

impl Stage {
    /// The count of a connection of loop `index` that begins, and waits for its first request.
    pub fn new(index: usize) -> Self {
        count(&TALLIES.of(index).handled);
        Self(AtomicU8::new(WAITING))
    }

    /// A request has begun with its complete head, and will be answered.
    #[inline]
    pub fn begin_headed(&self, index: usize) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), WAITING, "one request at a time");
        count(&TALLIES.of(index).begun_headed);
        self.0.store(WRITING, Ordering::Relaxed);
    }

    /// A request has begun.
    pub fn begin(&self, index: usize) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), WAITING, "one request at a time");
        count(&TALLIES.of(index).begun);
        self.0.store(READING, Ordering::Relaxed);
    }

    /// Its head is complete, and it will be answered.
    pub fn head_is_complete(&self, index: usize) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), READING, "a head that is complete was read");
        count(&TALLIES.of(index).headed);
        self.0.store(WRITING, Ordering::Relaxed);
    }

    /// The request is over, with this status, unless its connection lingers.
    #[inline]
    pub fn end(&self, index: usize, code: Option<u16>) {
        let of_loop = TALLIES.of(index);
        of_loop.count_answer(code);
        match self.0.load(Ordering::Relaxed) {
            WRITING => count(&of_loop.ended_headed),
            READING => count(&of_loop.ended_unheaded),
            _ => return,
        }
        self.0.store(WAITING, Ordering::Relaxed);
    }

    /// A request has begun on a stream, beside others of its connection.
    pub fn begin_stream(index: usize) {
        count(&TALLIES.of(index).begun_headed);
    }

    /// The request of a stream is over, with this status.
    pub fn end_stream(index: usize, code: u16) {
        let of_loop = TALLIES.of(index);
        of_loop.count_answer(Some(code));
        count(&of_loop.ended_headed);
    }

    /// Its connection lingers, and it is over when the connection is.
    pub fn linger(&self, index: usize, code: Option<u16>) {
        let of_loop = TALLIES.of(index);
        of_loop.count_answer(code);
        count(&of_loop.lingering);
        let before = self.0.fetch_or(LINGERING, Ordering::Relaxed);
        debug_assert!(matches!(before, READING | WRITING), "a connection lingers behind a request");
    }

    /// The connection, which waits for a request, is moved to another loop.
    pub fn moved(&self, from: usize, to: usize) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), WAITING, "a connection moves between requests");
        debug_assert_ne!(from, to, "a move leads elsewhere");
        count(&TALLIES.of(to).moved_here);
        count(&TALLIES.of(from).closed);
        CONNECTIONS_MOVED.increment();
    }

    /// The connection ends.
    pub fn close(&self, index: usize) {
        if self.0.fetch_and(!LINGERING, Ordering::Relaxed) & LINGERING != 0 {
            let before = TALLIES.of(index).lingering.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "a connection that lingers is counted");
        }
        self.end(index, None);
        count(&TALLIES.of(index).closed);
    }
}

#[inline]
fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::Relaxed);
}

/// Connections by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// All that there are.
    pub active: u64,
    /// In which the head of a request is read.
    pub reading: u64,
    /// In which a request is answered.
    pub writing: u64,
    /// That wait for a request, and those that linger.
    pub waiting: u64,
}

impl Tally {
    /// Requests that began.
    fn requests(&self) -> u64 {
        self.begun.load(Ordering::Relaxed) + self.begun_headed.load(Ordering::Relaxed)
    }

    #[inline]
    fn count_answer(&self, code: Option<u16>) {
        if let Some(code) = code {
            let of_code = self.codes.get(usize::from(code).wrapping_sub(CODES_FIRST));
            count(of_code.unwrap_or(&self.others));
        }
    }

    fn connections(&self) -> Connections {
        let value = |number: &AtomicU64| number.load(Ordering::Relaxed);
        // What comes later in the life of a request is read first: so it is not more than what comes before.
        let (closed, lingering) = (value(&self.closed), value(&self.lingering));
        let (ended_headed, ended_unheaded) = (value(&self.ended_headed), value(&self.ended_unheaded));
        let headed_later = value(&self.headed);
        let headed = headed_later + value(&self.begun_headed);
        let begun = value(&self.begun);
        let active = (value(&self.handled) + value(&self.moved_here)).saturating_sub(closed);
        let reading = begun.saturating_sub(headed_later + ended_unheaded);
        let writing = headed.saturating_sub(ended_headed);
        let waiting = (active + lingering).saturating_sub(reading + writing);
        Connections { active, reading, writing, waiting }
    }
}

/// The numbers of `stub_status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Connections by state.
    pub connections: Connections,
    /// Connections that were accepted, those included that there was no room for.
    pub accepted: u64,
    /// Connections that loops were given.
    pub handled: u64,
    /// Requests that began.
    pub requests: u64,
}

impl Connections {
    fn plus(self, other: Self) -> Self {
        Self {
            active: self.active + other.active,
            reading: self.reading + other.reading,
            writing: self.writing + other.writing,
            waiting: self.waiting + other.waiting,
        }
    }
}

impl Numbers {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            connections: self.connections.plus(other.connections),
            accepted: self.accepted + other.accepted,
            handled: self.handled + other.handled,
            requests: self.requests + other.requests,
        }
    }

    /// As another process reads them.
    #[must_use]
    pub fn to_words(self) -> [u64; 7] {
        let Connections { active, reading, writing, waiting } = self.connections;
        [active, reading, writing, waiting, self.accepted, self.handled, self.requests]
    }

    /// As another process has written them.
    #[must_use]
    pub fn of_words([active, reading, writing, waiting, accepted, handled, requests]: [u64; 7]) -> Self {
        Self { connections: Connections { active, reading, writing, waiting }, accepted, handled, requests }
    }
}

/// The other processes of the server.
struct Beside {
    /// Their counts.
    others: fn() -> Numbers,
    /// The next serial number of a connection, which all draw from one place.
    next_serial: fn() -> u64,
}

static BESIDE: OnceLock<Beside> = OnceLock::new();

/// Other processes serve beside this one: what they have counted, and what gives serial numbers of
/// connections.
pub fn count_beside(others: fn() -> Numbers, next_serial: fn() -> u64) {
    let _ = BESIDE.set(Beside { others, next_serial });
}

/// The serial number of a connection (`$connection`), unlike those of all others of the server.
pub(crate) fn next_serial() -> u64 {
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    match BESIDE.get() {
        None => SERIAL.fetch_add(1, Ordering::Relaxed),
        Some(beside) => (beside.next_serial)(),
    }
}

/// The counts of all processes of the server, since it began.
#[must_use]
pub fn numbers() -> Numbers {
    match BESIDE.get() {
        None => here(),
        Some(beside) => here().plus((beside.others)()),
    }
}

/// The counts of this process, since it started.
#[must_use]
pub fn here() -> Numbers {
    let none = Numbers { accepted: clearway_net::metrics::ACCEPTED.value(), ..Numbers::default() };
    TALLIES.iter().fold(none, |sum, (_, of_loop)| {
        sum.plus(Numbers {
            connections: of_loop.connections(),
            accepted: 0,
            handled: of_loop.handled.load(Ordering::Relaxed),
            requests: of_loop.requests(),
        })
    })
}

/// Gives the values of [`HANDLED`].
fn put_handled(put: &mut Put<'_>) {
    put_by_loop(put, |of_loop| of_loop.handled.load(Ordering::Relaxed));
}

/// Gives the values of [`REQUESTS`].
fn put_requests(put: &mut Put<'_>) {
    put_by_loop(put, Tally::requests);
}

fn put_by_loop(put: &mut Put<'_>, value: impl Fn(&Tally) -> u64) {
    for (index, of_loop) in TALLIES.iter() {
        put(&[("loop", &index.to_string())], Value::Number(value(of_loop)));
    }
}

/// Gives the values of [`CONNECTIONS`].
fn put_connections(put: &mut Put<'_>) {
    for (index, of_loop) in TALLIES.iter() {
        let Connections { active, reading, writing, waiting } = of_loop.connections();
        let states = [("active", active), ("reading", reading), ("writing", writing), ("waiting", waiting)];
        for (state, value) in states {
            put(&[("loop", &index.to_string()), ("state", state)], Value::Number(value));
        }
    }
}

/// Gives the values of [`RESPONSES`].
fn put_responses(put: &mut Put<'_>) {
    let sum = |of: &dyn Fn(&Tally) -> &AtomicU64| -> u64 {
        TALLIES.iter().map(|(_, of_loop)| of(of_loop).load(Ordering::Relaxed)).sum()
    };
    for at in 0..CODES {
        let value = sum(&|of_loop| &of_loop.codes[at]);
        if value > 0 {
            put(&[("code", &(at + CODES_FIRST).to_string())], Value::Number(value));
        }
    }
    put(&[("code", "other")], Value::Number(sum(&|of_loop| &of_loop.others)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop that no other test counts for.
    const APART: usize = 1000;

    fn seen() -> (u64, u64, u64, u64) {
        let Connections { active, reading, writing, waiting } = TALLIES.of(APART).connections();
        (active, reading, writing, waiting)
    }

    #[test]
    fn a_connection_is_counted_as_nginx_counts_it() {
        let first = Stage::new(APART);
        let second = Stage::new(APART);
        assert_eq!(seen(), (2, 0, 0, 2));
        first.begin(APART);
        assert_eq!(seen(), (2, 1, 0, 1));
        first.head_is_complete(APART);
        assert_eq!(seen(), (2, 0, 1, 1));
        first.end(APART, Some(200));
        first.end(APART, None);
        assert_eq!(seen(), (2, 0, 0, 2));
        first.moved(APART, APART + 2);
        assert_eq!(seen(), (1, 0, 0, 1));
        first.moved(APART + 2, APART);
        assert_eq!(seen(), (2, 0, 0, 2));
        second.begin(APART);
        second.linger(APART, Some(400));
        assert_eq!(seen(), (2, 1, 0, 2), "a refused request, of which more may come");
        first.begin_headed(APART);
        first.linger(APART, Some(200));
        first.end(APART, None);
        assert_eq!(seen(), (2, 1, 1, 2));
        first.close(APART);
        assert_eq!(seen(), (1, 1, 0, 1));
        second.close(APART);
        assert_eq!(seen(), (0, 0, 0, 0));
        assert_eq!(TALLIES.of(APART).requests(), 3);
    }

    #[test]
    fn statuses_are_counted_apart() {
        let of_loop = TALLIES.of(APART + 1);
        [0, 99, 100, 200, 200, 599, 600, 999].into_iter().for_each(|code| of_loop.count_answer(Some(code)));
        let value = |code: usize| of_loop.codes[code - CODES_FIRST].load(Ordering::Relaxed);
        assert_eq!([value(100), value(200), value(599)], [1, 2, 1]);
        assert_eq!(of_loop.others.load(Ordering::Relaxed), 4);
    }
}
