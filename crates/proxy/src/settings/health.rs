//! The settings of `health_check` for the servers of a location's group, and the tests of `match` blocks.
//! Plain data, made when a configuration is read; tests are pure functions.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use clearway_conf::Pos;
use clearway_http::regex::{Captures, Regex};
use clearway_http::{ConfKey, Level, LocationId, Own, ServerId, Value, View, settings};
use clearway_message::{Header, HeaderName};

use crate::upstreams::group::GroupCell;

pub(crate) static HEALTH: ConfKey<HealthConf> = ConfKey::new(Level::Main);

/// Bytes of a body that are looked at.
pub(crate) const BODY_MAX_BYTES: usize = 256 * 1024;

settings! {
    /// All checks and blocks of tests of a configuration.
    pub(crate) struct HealthConf {
        pub(crate) checks: Own<Vec<Arc<Check>>>,
        pub(crate) tests: Own<Vec<(Bytes, Arc<Tests>)>>,
    }
}

/// The settings of one `health_check`. They are complete when the whole configuration was read.
#[derive(Debug)]
pub(crate) struct Check {
    /// The position of the directive.
    pub(crate) pos: Pos,
    pub(crate) rhythm: Rhythm,
    pub(crate) uri: Bytes,
    /// Where servers are asked, if that is not where requests go.
    pub(crate) port: Option<u16>,
    pub(crate) first: First,
    /// The longest time for which one connection serves for several questions (`keepalive_time`).
    pub(crate) keepalive_ms: Option<u64>,
    /// The name of its `match`.
    pub(crate) tests_name: Option<Bytes>,
    /// The server and the location whose requests it is like.
    pub(crate) place: (ServerId, LocationId),
    pub(crate) aim: OnceLock<Aim>,
    /// None where any status of 2xx and 3xx will do.
    pub(crate) tests: OnceLock<Option<Arc<Tests>>>,
}

/// How often servers are asked, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rhythm {
    pub(crate) interval_ms: u64,
    /// Each time is later by as much as this by chance.
    pub(crate) jitter_ms: u64,
    /// Failures in a row that make a server unhealthy.
    pub(crate) fails: u32,
    /// Passes in a row that make it healthy again.
    pub(crate) passes: u32,
}

/// The state of a server before its first check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Healthy,
    /// The server gets no requests until it was checked (`mandatory`).
    Checking,
    /// As above, unless it was healthy in the previous configuration (`mandatory persistent`).
    AsBefore,
}

/// The peers that a check asks.
#[derive(Debug)]
pub(crate) struct Aim {
    pub(crate) group: Weak<GroupCell>,
    pub(crate) group_name: Box<str>,
    pub(crate) protocol: Asks,
}

/// In which protocol servers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Http,
    FastCgi,
    Scgi,
    Uwsgi,
    Memcached,
}

/// The tests of an answer (`match`): all have to hold.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    pub(crate) statuses: Vec<StatusTest>,
    pub(crate) headers: Vec<HeaderTest>,
    pub(crate) bodies: Vec<BodyTest>,
    /// Variables that have to be neither empty nor `0`, as they are written.
    pub(crate) required: Vec<(Box<str>, Value)>,
}

/// Whether something is to be so, or not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sense {
    Is,
    IsNot,
}

impl Sense {
    /// Whether it is as it is to be.
    fn holds(self, is_so: impl FnOnce() -> bool) -> bool {
        is_so() == (self == Self::Is)
    }
}

#[derive(Debug)]
pub(crate) struct StatusTest {
    pub(crate) sense: Sense,
    /// The first and the last status of each range.
    pub(crate) ranges: Vec<(u16, u16)>,
}

#[derive(Debug)]
pub(crate) struct HeaderTest {
    pub(crate) name: Bytes,
    pub(crate) rule: HeaderRule,
}

#[derive(Debug)]
pub(crate) enum HeaderRule {
    Present,
    Absent,
    Value(Sense, Bytes),
    Pattern(Sense, Regex),
}

#[derive(Debug)]
pub(crate) struct BodyTest {
    pub(crate) sense: Sense,
    pub(crate) pattern: Regex,
}

/// The answer of a server.
pub(crate) struct Answered<'a> {
    pub(crate) status: u16,
    /// The head, in which the lines are.
    pub(crate) head: &'a [u8],
    pub(crate) lines: &'a [Header],
    pub(crate) body: &'a [u8],
}

impl Check {
    /// Whether it has to read bodies.
    pub(crate) fn reads_body(&self) -> bool {
        self.tests.get().and_then(Option::as_ref).is_some_and(|tests| !tests.bodies.is_empty())
    }

    /// The mistake in an answer.
    pub(crate) fn find_fault(&self, answer: &Answered<'_>) -> Option<&'static str> {
        match self.tests.get().and_then(Option::as_ref) {
            Some(tests) => tests.find_fault(answer),
            None => (!(200..400).contains(&answer.status)).then_some("status"),
        }
    }
}

/// The first variable that the check of a location wants a value of, and that has none: as it is written.
pub(crate) fn find_unmet<'c>(place: (ServerId, LocationId), view: &View<'_, 'c>) -> Option<&'c str> {
    let conf: &'c HealthConf = view.request.main_conf(&HEALTH);
    let check = conf.checks.iter().find(|check| check.place == place)?;
    let tests = check.tests.get().and_then(Option::as_ref)?;
    let unmet = tests.required.iter().find(|(_, value)| matches!(&*value.eval(view), b"" | b"0"));
    unmet.map(|(name, _)| &**name)
}

impl Tests {
    pub(crate) fn find_fault(&self, answer: &Answered<'_>) -> Option<&'static str> {
        let status_is_good = self.statuses.iter().all(|test| test.passes(answer.status));
        let header_is_good = || self.headers.iter().all(|test| test.passes(answer));
        let body_passes = |test: &BodyTest| test.sense.holds(|| matches(&test.pattern, answer.body));
        let body_is_good = || self.bodies.iter().all(body_passes);
        match () {
            () if !status_is_good => Some("status"),
            () if !header_is_good() => Some("header"),
            () if !body_is_good() => Some("body"),
            () => None,
        }
    }
}

impl StatusTest {
    fn passes(&self, status: u16) -> bool {
        self.sense.holds(|| self.ranges.iter().any(|&(from, to)| (from..=to).contains(&status)))
    }
}

impl HeaderTest {
    fn passes(&self, answer: &Answered<'_>) -> bool {
        let lines = answer.lines.iter();
        let named = lines.filter(|line| HeaderName::new(line.name.of(answer.head)).is(&self.name));
        let mut values = named.map(|line| line.value.of(answer.head));
        match &self.rule {
            HeaderRule::Present => values.next().is_some(),
            HeaderRule::Absent => values.next().is_none(),
            HeaderRule::Value(sense, wanted) => values.any(|value| sense.holds(|| value == &wanted[..])),
            HeaderRule::Pattern(sense, pattern) => {
                values.any(|value| sense.holds(|| matches(pattern, value)))
            }
        }
    }
}

/// A match that takes too long is none.
fn matches(pattern: &Regex, text: &[u8]) -> bool {
    pattern.exec(text, &mut Captures::default()).unwrap_or(false)
}
