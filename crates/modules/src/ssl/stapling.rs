//! Authorities' answers about a server's certificates, for clients that ask for it (`ssl_stapling`). A loop
//! hands out what is known and never waits; when that is to be renewed a task asks the responder, a pool
//! judges the answer, and until then clients get what there is, or nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use clearway_base::log::{Level, Sink};
use clearway_http::AskedServers;
use clearway_net::connect::Connector;
use clearway_offload::Pool;
use clearway_runtime::{LoopRef, Tag};
use clearway_tls::Pair;
use clearway_tls::engine::Staple;
use clearway_tls::ocsp::{Good, OcspError, Subject};

use super::responder::{Lines, Means, Responder, ask};

/// Answers hold at least so long before others are asked for, and a responder that has given none is asked
/// again after so long, seconds.
const RENEW_MIN_S: u64 = 300;
/// After so long others are asked for in any case, seconds.
const RENEW_MAX_S: u64 = 3_600;
/// A new answer is asked for so long before the present one ends, seconds.
const RENEW_BEFORE_S: u64 = 300;
/// Heavy jobs, in the pool's lanes.
const HEAVY: usize = 1;

/// Makes connections to responders, from the start of the worker on.
static CONNECTOR: OnceLock<Connector> = OnceLock::new();

/// Tells with what connections to responders are made. Without it none is asked.
pub fn start(connector: Connector) {
    // The first one holds: there is one in a process.
    let _ = CONNECTOR.set(connector);
}

/// The stapling of one server.
pub(crate) struct Stapling {
    pub(crate) of_pairs: Vec<OfPair>,
    /// Warnings about certificates for which clients get no staple, with the reason.
    pub(crate) warnings: Vec<String>,
    /// Judges answers.
    pub(crate) pool: Option<Arc<Pool>>,
    /// Where is said what goes wrong.
    pub(crate) log: Arc<dyn Sink>,
}

/// The OCSP answer about one certificate.
pub(crate) enum OfPair {
    /// The contents of a file (`ssl_stapling_file`), as long as the configuration is used.
    File(Arc<Pair>, Arc<[u8]>),
    /// The answer of its authority.
    Asked(Arc<Question>),
}

/// A certificate of which an authority is asked.
pub(crate) struct Question {
    pub(crate) subject: Subject,
    pub(crate) responder: Responder,
    /// The certificate, as lines of the log name it.
    pub(crate) name: String,
    state: StaplingState,
}

#[derive(Default)]
struct StaplingState {
    answer: ArcSwapOption<Answer>,
    /// When others are asked for.
    renew_s: AtomicU64,
    is_asked: AtomicBool,
}

struct Answer {
    der: Arc<[u8]>,
    until_s: u64,
}

impl StaplingState {
    /// The answer, as long as it holds.
    fn current(&self, now_s: u64) -> Option<Arc<[u8]>> {
        let answer = self.answer.load();
        answer.as_ref().filter(|answer| answer.until_s >= now_s).map(|answer| Arc::clone(&answer.der))
    }

    /// Whether the caller is to ask.
    fn begin(&self, now_s: u64) -> bool {
        self.renew_s.load(Ordering::Relaxed) < now_s && !self.is_asked.swap(true, Ordering::AcqRel)
    }

    fn succeed(&self, der: Vec<u8>, good: Good, now_s: u64) {
        let until_s = good.until_s.map_or(u64::MAX, |until_s| u64::try_from(until_s).unwrap_or(0));
        let renew_s = until_s.saturating_sub(RENEW_BEFORE_S).min(now_s + RENEW_MAX_S);
        self.answer.store(Some(Arc::new(Answer { der: der.into(), until_s })));
        self.end(renew_s.max(now_s + RENEW_MIN_S));
    }

    fn end(&self, renew_s: u64) {
        self.renew_s.store(renew_s, Ordering::Relaxed);
        self.is_asked.store(false, Ordering::Release);
    }
}

impl Question {
    pub(crate) fn new(subject: Subject, responder: Responder, name: String) -> Arc<Self> {
        Arc::new(Self { subject, responder, name, state: StaplingState::default() })
    }
}

impl Stapling {
    /// The answers that are known at `now_s`, seconds since 1970. Those that are due are renewed, by a task
    /// of `home`.
    pub(crate) fn staples(&self, home: LoopRef, names: &AskedServers, now_s: u64) -> Vec<Staple<Pair>> {
        let mut staples = Vec::new();
        for of_pair in &self.of_pairs {
            match of_pair {
                OfPair::File(pair, der) => {
                    staples.push(Staple { pair: Arc::clone(pair), answer: Arc::clone(der) });
                }
                OfPair::Asked(question) => {
                    if let Some(answer) = question.state.current(now_s) {
                        staples.push(Staple { pair: Arc::clone(question.subject.pair()), answer });
                    }
                    self.renew(question, home, names, now_s);
                }
            }
        }
        staples
    }

    fn renew(&self, question: &Arc<Question>, home: LoopRef, names: &AskedServers, now_s: u64) {
        let Some(&connector) = CONNECTOR.get() else { return };
        if !question.state.begin(now_s) {
            return;
        }
        let means = Means {
            home,
            connector,
            names: Option::clone(&names.servers),
            names_timeout: names.timeout,
            log: Arc::clone(&self.log),
            certificate: question.name.clone(),
        };
        let asking = Asking { question: Arc::clone(question), now_s, outcome: None };
        home.spawn(Tag::NONE, renew(asking, means, self.pool.clone()));
    }
}

/// A question that is being asked; however that ends, others are asked later.
struct Asking {
    question: Arc<Question>,
    now_s: u64,
    outcome: Option<(Vec<u8>, Good)>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let state = &self.question.state;
        match self.outcome.take() {
            Some((der, good)) => state.succeed(der, good, self.now_s),
            None => state.end(self.now_s + RENEW_MIN_S),
        }
    }
}

async fn renew(mut asking: Asking, means: Means, pool: Option<Arc<Pool>>) {
    let question = Arc::clone(&asking.question);
    let mut lines = Lines::new(&means, &question.responder);
    let asked = match question.subject.question() {
        Ok(asked) => asked,
        Err(error) => return lines.say(Level::Crit, format_args!("{error}")),
    };
    let Some(answer) = ask(&mut lines, &asked).await else { return };
    match judge(Arc::clone(&question), answer, pool).await {
        Some((der, Ok(good))) => asking.outcome = Some((der, good)),
        Some((_, Err(error))) => lines.say(Level::Error, format_args!("{error}")),
        None => {}
    }
}

/// Has a pool look at an answer. Nothing if it took no job, which it has logged.
async fn judge(
    question: Arc<Question>,
    der: Vec<u8>,
    pool: Option<Arc<Pool>>,
) -> Option<(Vec<u8>, Result<Good, OcspError>)> {
    let pool = pool?;
    let job = move |_: &clearway_offload::Blocking| {
        let judged = question.subject.judge(&der);
        (der, judged)
    };
    pool.submit_in(HEAVY, job).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_renewed_before_they_end() {
        let state = StaplingState::default();
        assert!(state.begin(1_000) && !state.begin(1_000), "one asks at a time");
        state.end(1_000 + RENEW_MIN_S);
        assert!(!state.begin(1_300) && state.begin(1_301));
        state.succeed(b"answer".to_vec(), Good { until_s: Some(3_000) }, 1_301);
        assert_eq!(state.current(3_000).as_deref(), Some(&b"answer"[..]));
        assert_eq!(state.current(3_001), None);
        assert!(!state.begin(2_700) && state.begin(2_701));
        state.succeed(b"lasting".to_vec(), Good { until_s: None }, 2_701);
        assert!(!state.begin(2_701 + RENEW_MAX_S) && state.begin(2_702 + RENEW_MAX_S));
        assert!(state.current(u64::MAX).is_some());
    }

    #[test]
    fn a_task_that_is_dropped_is_no_answer() {
        let state = StaplingState::default();
        assert!(state.begin(10));
        state.succeed(b"short".to_vec(), Good { until_s: Some(20) }, 10);
        assert!(!state.begin(10 + RENEW_MIN_S) && state.begin(11 + RENEW_MIN_S));
    }
}
