//! What `health_check` says of the servers of a location's group, and what a `match` block says of answers.
//! Plain data, made when a configuration is read; tests are pure functions.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use clearway_conf::Pos;
use clearway_http::regex::{Captures, Regex};
use clearway_http::{ConfKey, Level, Own, settings};
use clearway_message::{Header, HeaderName};

#[cfg(feature = "tls")]
use crate::settings::tls::ServerTls;
use crate::upstreams::group::GroupCell;

pub(crate) static HEALTH: ConfKey<HealthConf> = ConfKey::new(Level::Main);

/// What of a body is looked at, bytes.
pub(crate) const BODY_MAX_BYTES: usize = 256 * 1024;

settings! {
    /// All checks and blocks of tests of a configuration.
    pub(crate) struct HealthConf {
        pub(crate) checks: Own<Vec<Arc<Check>>>,
        pub(crate) tests: Own<Vec<(Bytes, Arc<Tests>)>>,
    }
}

/// See the file's head. What other directives have to say is there when all is read.
#[derive(Debug)]
pub(crate) struct Check {
    /// Where it stands.
    pub(crate) pos: Pos,
    pub(crate) rhythm: Rhythm,
    pub(crate) uri: Bytes,
    /// Where servers are asked, if that is not where requests go.
    pub(crate) port: Option<u16>,
    pub(crate) first: First,
    /// For how long one connection serves for several questions (`keepalive_time`).
    pub(crate) keepalive_ms: Option<u64>,
    /// The name of its `match`.
    pub(crate) tests_name: Option<Bytes>,
    pub(crate) aim: OnceLock<Aim>,
    pub(crate) times: OnceLock<Times>,
    /// How servers are asked that speak TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: OnceLock<CheckTls>,
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

/// What a server counts as before it was asked for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Healthy,
    /// It gets no requests (`mandatory`).
    Checking,
    /// The same, unless it was healthy in the configuration before (`mandatory persistent`).
    AsBefore,
}

/// Whom a check asks.
#[derive(Debug)]
pub(crate) struct Aim {
    pub(crate) group: Weak<GroupCell>,
    pub(crate) group_name: Box<str>,
    /// The request.
    pub(crate) head: Vec<u8>,
    /// What the servers are called (`$proxy_host`).
    #[cfg(feature = "tls")]
    pub(crate) host: Bytes,
}

/// TLS with servers that are asked.
#[cfg(feature = "tls")]
pub(crate) struct CheckTls {
    pub(crate) server: Arc<ServerTls>,
    /// `proxy_ssl_name`, if it says something.
    pub(crate) name: Option<Bytes>,
    /// `proxy_ssl_server_name` and `proxy_ssl_verify`.
    pub(crate) tells_name: bool,
    pub(crate) verifies: bool,
}

#[cfg(feature = "tls")]
impl std::fmt::Debug for CheckTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckTls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What the location says of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) connect_ms: u64,
    pub(crate) read_ms: u64,
    /// What the head of a response may have, bytes.
    pub(crate) head_max_bytes: usize,
}

/// What an answer has to be like (`match`): all of it.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    pub(crate) statuses: Vec<StatusTest>,
    pub(crate) headers: Vec<HeaderTest>,
    pub(crate) bodies: Vec<BodyTest>,
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
    /// From and to.
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

/// What a server has answered.
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

    /// What is wrong with an answer.
    pub(crate) fn find_fault(&self, answer: &Answered<'_>) -> Option<&'static str> {
        match self.tests.get().and_then(Option::as_ref) {
            Some(tests) => tests.find_fault(answer),
            None => (!(200..400).contains(&answer.status)).then_some("status"),
        }
    }
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
