//! `limit_conn`: how many requests of each value of a key are served at once. Runs in the preaccess phase
//! on a loop; the counts lie in shared memory, which no lock guards (`clearway_zone`), and go down again
//! when the request ends, or its worker.

mod metrics;

use std::sync::Arc;

use clearway_base::log::Level as LogLevel;
use clearway_base::units;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    ConfKey, Cost, Enabling, Exchange, Level, Load, Module, Phase, PhaseHandler, Presence, Step,
    VariableKind, VariableSpec, Verbatim, context,
};
use clearway_zone::{Counted, Refused, Zone};
use smallvec::SmallVec;

use crate::access_control::limits::{
    ConclusionKey, Family, LimitConf, LimitZone, LimitZones, Refusal, conclude, conclusion, no_zone, refuse,
    zone_and_size,
};

/// The module. It wants the shared memory zones among the services of the environment, as `Arc<Zones>`.
pub static LIMIT_CONN: Module = Module {
    name: "limit_conn",
    directives: DIRECTIVES,
    confs: &[&ZONES_CONF, &LIMIT_CONF],
    variables: VARIABLES,
    phases: PHASES,
    metrics: metrics::ALL,
    ..Module::EMPTY
};

static FAMILY: Family<()> =
    Family { module: "limit_conn", zones: &ZONES_CONF, zone_word: "limit_conn_zone", key_max_bytes: 255 };

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
        example: EXAMPLE_OF_ZONE,
        see: &["limit_conn", "limit_conn_status", "limit_rate", "limit_req"],
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
        example: EXAMPLE_OF_ZONE,
        see: &["limit_conn_zone", "limit_conn_status", "limit_rate", "limit_req"],
        handler: read_limit,
    },
    Spec {
        name: "limit_conn_log_level",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "limit_conn_log_level info | notice | warn | error",
        default: "limit_conn_log_level error",
        doc: "How severe a line about a request that was refused is.",
        example: EXAMPLE_OF_REFUSALS,
        see: &["limit_conn_status", "limit_conn_dry_run", "limit_conn"],
        handler: |scope, directive| scope.conf.location(&LIMIT_CONF).refusal.read_log_level(directive),
    },
    Spec {
        name: "limit_conn_status",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "limit_conn_status CODE",
        default: "limit_conn_status 503",
        doc: "The status of requests that are refused, from 400 to 599.",
        example: EXAMPLE_OF_REFUSALS,
        see: &["limit_conn_log_level", "limit_conn_dry_run", "limit_conn"],
        handler: |scope, directive| scope.conf.location(&LIMIT_CONF).refusal.read_status(directive),
    },
    Spec {
        name: "limit_conn_dry_run",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "limit_conn_dry_run on | off",
        default: "limit_conn_dry_run off",
        doc: "Counts and logs, but lets all requests pass.",
        example: EXAMPLE_OF_REFUSALS,
        see: &["limit_conn_status", "limit_conn_log_level", "limit_conn"],
        handler: |scope, directive| scope.conf.location(&LIMIT_CONF).refusal.read_dry_run(directive),
    },
];

/// The example of `limit_conn_zone` and `limit_conn`.
const EXAMPLE_OF_ZONE: &str = "
    limit_conn_zone $binary_remote_addr zone=addresses:10m;

    server {
        location /download/ {
            limit_conn addresses 4;
        }
    }";

/// The example of `limit_conn_log_level`, `limit_conn_status` and `limit_conn_dry_run`.
const EXAMPLE_OF_REFUSALS: &str = "
    limit_conn_zone $binary_remote_addr zone=addresses:10m;

    server {
        limit_conn addresses 20;
        limit_conn_status 429;
        limit_conn_log_level warn;
        # Only the log and $limit_conn_status tell what would have been refused.
        limit_conn_dry_run on;
    }";

static VARIABLES: &[VariableSpec] = &[VariableSpec {
    name: "limit_conn_status",
    kind: VariableKind::Exact,
    doc: "The outcome of `limit_conn`: `PASSED`, `REJECTED` or `REJECTED_DRY_RUN`.",
    eval: |view, _, out| {
        let status = conclusion(view.request, &CONCLUSION, |outcome: &LimitOutcome| outcome.status.as_str());
        Presence::put(status.map(str::as_bytes), out)
    },
}];

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::PreAccess, cost: Cost::Cheap, enabled: is_enabled, handler }];

static ZONES_CONF: ConfKey<LimitZones<()>> = ConfKey::new(Level::Main);

static LIMIT_CONF: ConfKey<LimitConf<Limit>> = ConfKey::new(Level::Location);

/// A `limit_conn`.
#[derive(Clone)]
struct Limit {
    zone: Arc<LimitZone<()>>,
    most: u64,
}

/// The verdict on a request, and where it is counted until it ends.
struct LimitOutcome {
    status: Status,
    _marks: Marks,
}

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

static CONCLUSION: ConclusionKey<LimitOutcome> = ConclusionKey::new();

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    if conclusion(exchange.request, &CONCLUSION, |_: &LimitOutcome| ()).is_some() {
        return Step::Declined;
    }
    let conf = exchange.request.conf(&LIMIT_CONF);
    let (status, marks) = match count(&exchange, &conf.limits) {
        Ok(marks) if marks.is_empty() => return Step::Declined,
        Ok(marks) => (Status::Passed, marks),
        Err((zone, refused)) => {
            log_refused(&exchange, &conf.refusal, zone, refused);
            let status = if *conf.refusal.dry_run { Status::RejectedDryRun } else { Status::Rejected };
            (status, Marks::new())
        }
    };
    metrics::of(status).increment();
    conclude(exchange.request, &CONCLUSION, LimitOutcome { status, _marks: marks });
    if status == Status::Rejected { Step::status(*conf.refusal.status) } else { Step::Declined }
}

/// Counts the request in all zones whose key has a value, or in none.
fn count<'c>(exchange: &Exchange<'_, 'c>, limits: &'c [Limit]) -> Result<Marks, (&'c Zone, Refused)> {
    let mut marks = Marks::new();
    for limit in limits {
        let Some((value, ())) = FAMILY.key(&limit.zone, &exchange.view()) else { continue };
        let zone = &limit.zone.zone;
        marks.push(zone.count(&value, limit.most).map_err(|refused| (&**zone, refused))?);
    }
    Ok(marks)
}

fn log_refused(exchange: &Exchange<'_, '_>, conf: &Refusal, zone: &Zone, refused: Refused) {
    let name = Verbatim(zone.name());
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
    let key = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
    let parameter = &directive.args[1];
    let Some(named) = parameter.strip_prefix(b"zone=") else {
        return Err(refuse(directive, "invalid parameter", parameter));
    };
    let (name, bytes) = zone_and_size(directive, parameter, named)?;
    if name.is_empty() {
        return Err(no_zone(directive));
    }
    FAMILY.make(scope.conf, directive, (name, bytes), key, ())
}

fn read_limit(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let (name, number) = (&directive.args[0], &directive.args[1]);
    let zone = FAMILY.declare(scope.conf, directive, name, 0)?;
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
