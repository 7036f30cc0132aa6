//! `limit_req`: how many requests per second or minute are served for each value of a key. What is over
//! that waits, or is refused. Runs in the preaccess phase on a loop; the states of keys lie in shared
//! memory, which no lock guards (`clearway_zone`), and a request that is held back waits for a timer.

mod directives;
mod metrics;
mod rate;

use std::sync::Arc;

use clearway_base::log::Level as LogLevel;
use clearway_http::{
    ConfKey, Cost, Enabling, Exchange, Level, Module, Phase, PhaseHandler, Presence, Step, VariableKind,
    VariableSpec, Verbatim, View,
};
use clearway_zone::{Contended, KeyHash, Updated, Zone};
use smallvec::SmallVec;

use self::rate::{REQUEST, Rate};
use crate::access_control::limits::{
    ConclusionKey, Family, LimitConf, LimitZone, LimitZones, Refusal, conclude, conclusion,
};

/// The module. It wants the shared memory zones among the services of the environment, as `Arc<Zones>`.
pub static LIMIT_REQ: Module = Module {
    name: "limit_req",
    directives: directives::DIRECTIVES,
    confs: &[&ZONES_CONF, &LIMIT_CONF],
    variables: VARIABLES,
    phases: PHASES,
    metrics: metrics::ALL,
    ..Module::EMPTY
};

static FAMILY: Family<Rate> =
    Family { module: "limit_req", zones: &ZONES_CONF, zone_word: "limit_req", key_max_bytes: 65_535 };

static VARIABLES: &[VariableSpec] = &[VariableSpec {
    name: "limit_req_status",
    kind: VariableKind::Exact,
    doc: "The outcome of `limit_req`: `PASSED`, `DELAYED`, `REJECTED`, `DELAYED_DRY_RUN` or \
          `REJECTED_DRY_RUN`.",
    eval: |view, _, out| {
        let status = conclusion(view.request, &CONCLUSION, |status: &Status| status.as_str());
        Presence::put(status.map(str::as_bytes), out)
    },
}];

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::PreAccess, cost: Cost::Cheap, enabled: is_enabled, handler }];

static ZONES_CONF: ConfKey<LimitZones<Rate>> = ConfKey::new(Level::Main);

static LIMIT_CONF: ConfKey<LimitConf<Limit>> = ConfKey::new(Level::Location);

/// A `limit_req`. Burst and delay are in thousandths of a request.
#[derive(Clone)]
struct Limit {
    zone: Arc<LimitZone<Rate>>,
    burst: u64,
    /// An excess up to this does not wait.
    delay: u64,
}

/// The level of lines about requests that wait: one step less severe than that of refused requests.
fn delay_log_level(refusal: &Refusal) -> LogLevel {
    match *refusal.log_level {
        LogLevel::Error => LogLevel::Warn,
        LogLevel::Warn => LogLevel::Notice,
        _ => LogLevel::Info,
    }
}

fn dry_run_text(refusal: &Refusal) -> &'static str {
    if *refusal.dry_run { ", dry run" } else { "" }
}

/// The verdict on a request; kept with it, so that it is counted once however it is redirected, and whatever
/// subrequests it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Passed,
    Delayed,
    Rejected,
    DelayedDryRun,
    RejectedDryRun,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Delayed => "DELAYED",
            Self::Rejected => "REJECTED",
            Self::DelayedDryRun => "DELAYED_DRY_RUN",
            Self::RejectedDryRun => "REJECTED_DRY_RUN",
        }
    }
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    !enabling.confs.of(&LIMIT_CONF).limits.is_empty()
}

static CONCLUSION: ConclusionKey<Status> = ConclusionKey::new();

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    if conclusion(exchange.request, &CONCLUSION, |_: &Status| ()).is_some() {
        return Step::Declined;
    }
    let LimitConf { limits, refusal } = exchange.request.conf(&LIMIT_CONF);
    match check(&exchange.view(), limits) {
        Verdict::Unlimited => Step::Declined,
        Verdict::Passed => {
            end(&mut exchange, Status::Passed);
            Step::Declined
        }
        Verdict::Delayed { by, excess, delay_ms } => {
            let (dry_run, excess, zone) = (dry_run_text(refusal), Requests(excess), Verbatim(by.name()));
            exchange.request.log(
                delay_log_level(refusal),
                format_args!("delaying request{dry_run}, excess: {excess}, by zone \"{zone}\""),
            );
            if *refusal.dry_run {
                end(&mut exchange, Status::DelayedDryRun);
                return Step::Declined;
            }
            end(&mut exchange, Status::Delayed);
            Step::Wait(Box::pin(async move {
                match exchange.pause(delay_ms).await {
                    Ok(()) => Step::Declined,
                    Err(answer) => Step::Respond(answer),
                }
            }))
        }
        Verdict::Rejected { by, excess } => {
            let (dry_run, excess, zone) = (dry_run_text(refusal), Requests(excess), Verbatim(by.name()));
            exchange.request.log(
                *refusal.log_level,
                format_args!("limiting requests{dry_run}, excess: {excess} by zone \"{zone}\""),
            );
            reject(exchange, refusal)
        }
        Verdict::NoRoom { by } => {
            let zone = Verbatim(by.name());
            exchange
                .request
                .log(LogLevel::Alert, format_args!("could not allocate node in limit_req zone \"{zone}\""));
            reject(exchange, refusal)
        }
    }
}

fn reject<'a>(mut exchange: Exchange<'a, '_>, refusal: &Refusal) -> Step<'a> {
    if *refusal.dry_run {
        end(&mut exchange, Status::RejectedDryRun);
        return Step::Declined;
    }
    end(&mut exchange, Status::Rejected);
    Step::status(*refusal.status)
}

fn end(exchange: &mut Exchange<'_, '_>, status: Status) {
    metrics::of(status).increment();
    conclude(exchange.request, &CONCLUSION, status);
}

/// Thousandths of a request as nginx prints them.
struct Requests(u64);

impl std::fmt::Display for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / REQUEST, self.0 % REQUEST)
    }
}

/// The common verdict of the limits of a location. Excess is in thousandths of a request.
enum Verdict<'c> {
    /// No key has a value.
    Unlimited,
    Passed,
    Delayed {
        by: &'c Zone,
        excess: u64,
        delay_ms: u64,
    },
    Rejected {
        by: &'c Zone,
        excess: u64,
    },
    NoRoom {
        by: &'c Zone,
    },
}

/// A limit whose key has a value in this request.
struct Applied<'c> {
    limit: &'c Limit,
    rate: Rate,
    key: KeyHash,
}

impl<'c> Applied<'c> {
    fn of(limit: &'c Limit, view: &View<'_, 'c>) -> Option<Self> {
        let (key, &rate) = FAMILY.key(&limit.zone, view)?;
        Some(Self { limit, rate, key: limit.zone.zone.hash(&key) })
    }

    fn zone(&self) -> &'c Zone {
        &self.limit.zone.zone
    }

    fn rejected(&self, excess: u64) -> Verdict<'c> {
        Verdict::Rejected { by: self.zone(), excess }
    }

    /// The excess with this request.
    fn peek(&self, now_ms: u64) -> u64 {
        self.rate.excess(self.zone().table().get(self.key), now_ms)
    }

    /// Counts the request, unless its excess would be more than `most`; the excess.
    fn account(&self, now_ms: u64, most: u64) -> Result<u64, Contended> {
        let mut excess = 0;
        let table = self.zone().table();
        let updated = table.update(self.key, self.rate.forgotten_below(now_ms), |kept| {
            excess = self.rate.excess(kept, now_ms);
            (excess <= most).then(|| self.rate.drained(excess, now_ms))
        })?;
        if updated == Updated::Evicted {
            metrics::FORGOTTEN.increment();
        }
        Ok(excess)
    }

    /// How long a request has to wait that has this excess, milliseconds.
    fn delay_ms(&self, excess: u64) -> u64 {
        self.rate.delay_ms(excess.saturating_sub(self.limit.delay))
    }
}

/// Asks the limits in their order. As nginx does: the first that is exceeded refuses, before any is
/// charged; the last one decides and charges in one step; then the others are charged, from the last to
/// the first, and the longest delay of all holds.
fn check<'c>(view: &View<'_, 'c>, limits: &'c [Limit]) -> Verdict<'c> {
    let now_ms = view.request.now_ms();
    let Some((last, others)) = limits.split_last() else { return Verdict::Unlimited };
    let mut applied: SmallVec<[Applied<'c>; 2]> = SmallVec::new();
    for limit in others {
        let Some(limit) = Applied::of(limit, view) else { continue };
        let excess = limit.peek(now_ms);
        if excess > limit.limit.burst {
            return limit.rejected(excess);
        }
        applied.push(limit);
    }
    let mut worst: Option<(&'c Zone, u64, u64)> = None;
    match Applied::of(last, view) {
        Some(last) => match last.account(now_ms, last.limit.burst) {
            Ok(excess) if excess > last.limit.burst => return last.rejected(excess),
            Ok(excess) => worst = Some((last.zone(), excess, last.delay_ms(excess))),
            Err(Contended) => return Verdict::NoRoom { by: last.zone() },
        },
        None if applied.is_empty() => return Verdict::Unlimited,
        None => {}
    }
    for limit in applied.iter().rev() {
        // It was let in: what others have charged meanwhile does not matter any more.
        let Ok(excess) = limit.account(now_ms, u64::MAX) else { continue };
        let delay_ms = limit.delay_ms(excess);
        if worst.is_none_or(|(_, _, longest_ms)| delay_ms > longest_ms) {
            worst = Some((limit.zone(), excess, delay_ms));
        }
    }
    match worst {
        Some((by, excess, delay_ms @ 1..)) => Verdict::Delayed { by, excess, delay_ms },
        _ => Verdict::Passed,
    }
}
