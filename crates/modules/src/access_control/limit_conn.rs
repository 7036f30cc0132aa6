//! `limit_conn`: how many requests of each value of a key are served at once. Runs in the preaccess phase
//! on a loop; the counts lie in shared memory, which no lock guards (`clearway_zone`), and go down again
//! when the request ends, or its worker.

pub mod metrics;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_base::units;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Conf, ConfKey, Cost, Enabling, Exchange, Level, Load, Lossy, Module, Phase, PhaseHandler, Presence,
    Setting, Step, Value, VariableKind, VariableSpec, context, set,
};
use clearway_zone::{Counted, Refused, Zone};
use smallvec::SmallVec;

use crate::access_control::limit_req::directives::{LOG_LEVELS, no_zone, refuse, zone_and_size};
use crate::access_control::limit_req::zones;

/// The module. It wants the shared memory zones among the services of the environment, as `Arc<Zones>`.
pub static LIMIT_CONN: Module = Module {
    name: "limit_conn",
    directives: DIRECTIVES,
    confs: &[&ZONES_CONF, &LIMIT_CONF],
    variables: VARIABLES,
    phases: PHASES,
    ..Module::EMPTY
};

/// Longest value of a key, bytes.
const KEY_MAX_BYTES: usize = 255;

/// As many as a limit can let pass at once.
const CONNECTIONS_MAX: u64 = 65_535;

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "limit_conn_zone",
        contexts: context::HTTP,
        args: Args::TAKE2,
        syntax: "limit_conn_zone KEY zone=NAME:SIZE",
        default: "",
        doc: "Makes room in shared memory to count how many requests there are of each value of a key, which \
              may have variables. Requests whose key is empty are not counted. A zone of 1m has room for 30 \
              thousand values, whatever their length; where it is full, requests with another value are \
              refused. Counts outlive reloads; what a worker has counted that was killed counts no more. The \
              key of a zone cannot be changed by a reload.",
        handler: read_zone,
    },
    Spec {
        name: "limit_conn",
        contexts: context::ALL,
        args: Args::TAKE2,
        syntax: "limit_conn NAME NUMBER",
        default: "",
        doc: "How many requests with the same value of the zone's key are served at once, up to 65535. \
              Connections that are idle do not count. Several at one level all hold.",
        handler: read_limit,
    },
    Spec {
        name: "limit_conn_log_level",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "limit_conn_log_level info | notice | warn | error",
        default: "limit_conn_log_level error",
        doc: "How severe a line about a request that was refused is.",
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&LIMIT_CONF).log_level;
            set(directive, setting, |directive| directive.choice(0, &LOG_LEVELS))
        },
    },
    Spec {
        name: "limit_conn_status",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "limit_conn_status CODE",
        default: "limit_conn_status 503",
        doc: "What a request that is refused is answered with, from 400 to 599.",
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&LIMIT_CONF).status, |directive| {
                Ok(directive.number_within(0, 400, Some(599))? as u16)
            })
        },
    },
    Spec {
        name: "limit_conn_dry_run",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "limit_conn_dry_run on | off",
        default: "limit_conn_dry_run off",
        doc: "Counts and logs, but lets all requests pass.",
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&LIMIT_CONF).dry_run;
            set(directive, setting, |directive| directive.flag(0))
        },
    },
];

static VARIABLES: &[VariableSpec] = &[VariableSpec {
    name: "limit_conn_status",
    kind: VariableKind::Exact,
    doc: "What `limit_conn` made of the request: `PASSED`, `REJECTED` or `REJECTED_DRY_RUN`.",
    eval: |view, _, out| {
        let outcome = view.request.common_context::<Outcome>();
        Presence::put(outcome.0.get().map(|(status, _)| status.as_str().as_bytes()), out)
    },
}];

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::PreAccess, cost: Cost::Cheap, enabled: is_enabled, handler }];

static ZONES_CONF: ConfKey<ZonesConf> = ConfKey::new(Level::Main);

static LIMIT_CONF: ConfKey<LimitConf> = ConfKey::new(Level::Location);

/// All zones that a directive of this module names.
#[derive(Default)]
struct ZonesConf {
    zones: Vec<Arc<LimitZone>>,
}

impl Conf for ZonesConf {
    fn merge(&mut self, _: &Self) {}
}

/// A zone and what `limit_conn_zone` says of it, which may come after its first use.
struct LimitZone {
    zone: Arc<Zone>,
    key: OnceLock<Key>,
}

struct Key {
    value: Value,
    /// As it is written.
    text: Bytes,
}

/// A `limit_conn`.
#[derive(Clone)]
struct Limit {
    zone: Arc<LimitZone>,
    most: u64,
}

struct LimitConf {
    limits: Setting<Vec<Limit>>,
    log_level: Setting<LogLevel>,
    status: Setting<u16>,
    dry_run: Setting<bool>,
}

impl Default for LimitConf {
    fn default() -> Self {
        Self {
            limits: Setting::default(),
            log_level: Setting::new(LogLevel::Error),
            status: Setting::new(503),
            dry_run: Setting::new(false),
        }
    }
}

impl Conf for LimitConf {
    fn merge(&mut self, parent: &Self) {
        self.limits.merge(&parent.limits);
        self.log_level.merge(&parent.log_level);
        self.status.merge(&parent.status);
        self.dry_run.merge(&parent.dry_run);
    }
}

/// What became of a request, with all its subrequests, and where it is counted until it ends.
#[derive(Default)]
struct Outcome(OnceLock<(Status, Marks)>);

type Marks = SmallVec<[Counted; 1]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Passed,
    Rejected,
    RejectedDryRun,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Rejected => "REJECTED",
            Self::RejectedDryRun => "REJECTED_DRY_RUN",
        }
    }
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    !enabling.confs.of(&LIMIT_CONF).limits.is_empty()
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let outcome = exchange.request.common_context::<Outcome>();
    if outcome.0.get().is_some() {
        return Step::Declined;
    }
    let conf = exchange.request.conf(&LIMIT_CONF);
    let (status, marks) = match count(&exchange, &conf.limits) {
        Ok(marks) if marks.is_empty() => return Step::Declined,
        Ok(marks) => (Status::Passed, marks),
        Err((zone, refused)) => {
            log_refused(&exchange, conf, zone, refused);
            let status = if *conf.dry_run { Status::RejectedDryRun } else { Status::Rejected };
            (status, Marks::new())
        }
    };
    metrics::of(status).increment();
    let first = outcome.0.set((status, marks)).is_ok();
    debug_assert!(first, "one task asks and sets");
    if status == Status::Rejected { Step::status(*conf.status) } else { Step::Declined }
}

/// Counts the request in all zones whose key has a value, or in none.
fn count<'c>(exchange: &Exchange<'_, 'c>, limits: &'c [Limit]) -> Result<Marks, (&'c Zone, Refused)> {
    let mut marks = Marks::new();
    for limit in limits {
        let LimitZone { zone, key } = &*limit.zone;
        let Some(key) = key.get() else { continue };
        let value = key.value.eval(&exchange.view());
        if value.is_empty() {
            continue;
        }
        if value.len() > KEY_MAX_BYTES {
            let (name, value) = (Lossy(&key.text), Lossy(&value));
            let message = format_args!("the value of the \"{name}\" key is more than 255 bytes: \"{value}\"");
            exchange.request.log(LogLevel::Error, message);
            continue;
        }
        marks.push(zone.count(&value, limit.most).map_err(|refused| (&**zone, refused))?);
    }
    Ok(marks)
}

fn log_refused(exchange: &Exchange<'_, '_>, conf: &LimitConf, zone: &Zone, refused: Refused) {
    let name = Lossy(zone.name());
    match refused {
        Refused::Limit => {
            let dry_run = if *conf.dry_run { ", dry run," } else { "" };
            let message = format_args!("limiting connections{dry_run} by zone \"{name}\"");
            exchange.request.log(*conf.log_level, message);
        }
        Refused::NoRoom => {
            let message = format_args!("ngx_slab_alloc() failed: no memory in limit_conn_zone \"{name}\"");
            exchange.request.log(LogLevel::Crit, message);
        }
    }
}

fn read_zone(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let (text, parameter) = (&directive.args[0], &directive.args[1]);
    let value = scope.conf.variables.compile(text, &directive.pos)?;
    let Some(named) = parameter.strip_prefix(b"zone=") else {
        return Err(refuse(directive, "invalid parameter", parameter));
    };
    let (name, bytes) = zone_and_size(directive, parameter, named)?;
    if name.is_empty() {
        return Err(no_zone(directive));
    }
    let zone = declare(scope.conf, directive, &name, bytes)?;
    let label = text.clone();
    zone.zone.when_opened(move |zone| check_key(zone, &label));
    zone.key.set(Key { value, text: text.clone() }).map_err(|_| {
        let bound = zone.key.get().map_or(&b""[..], |key| &key.text);
        let parts: [&dyn AsRef<[u8]>; 6] =
            [&directive.name, &" \"", &name, &"\" is already bound to key \"", &bound, &"\""];
        directive.error(message(&parts))
    })
}

/// The counts in a zone are of the values of one key.
fn check_key(zone: &Zone, key: &[u8]) -> Result<(), Vec<u8>> {
    zone.check_label(key).map_err(|previous| {
        let parts: [&dyn AsRef<[u8]>; 7] = [
            &"limit_conn_zone \"",
            &zone.name(),
            &"\" uses the \"",
            &key,
            &"\" key while previously it used the \"",
            &previous,
            &"\" key",
        ];
        message(&parts)
    })
}

fn read_limit(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let (name, number) = (&directive.args[0], &directive.args[1]);
    let zone = declare(scope.conf, directive, name, 0)?;
    let limits = scope.conf.location(&LIMIT_CONF).limits.here();
    if limits.iter().any(|limit| Arc::ptr_eq(&limit.zone, &zone)) {
        return Err(directive.reject("is duplicate"));
    }
    let most = units::parse_number(number)
        .filter(|&most| most > 0)
        .ok_or_else(|| refuse(directive, "invalid number of connections", number))?;
    if most > CONNECTIONS_MAX {
        return Err(directive.error("connection limit must be less 65536"));
    }
    limits.push(Limit { zone, most });
    Ok(())
}

/// The zone of that name; `bytes` is 0 where the directive does not say its size.
fn declare(load: &mut Load, directive: &Directive, name: &[u8], bytes: u64) -> Result<Arc<LimitZone>, Error> {
    let declared = zones(load)?.declare(name, bytes, LIMIT_CONN.name);
    let zone: Arc<Zone> = declared.map_err(|message| directive.error(message))?;
    let known = &mut load.main(&ZONES_CONF).zones;
    if let Some(known) = known.iter().find(|known| Arc::ptr_eq(&known.zone, &zone)) {
        return Ok(Arc::clone(known));
    }
    let new = Arc::new(LimitZone { zone, key: OnceLock::new() });
    known.push(Arc::clone(&new));
    Ok(new)
}
