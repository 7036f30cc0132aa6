//! The directives of the `limit_req` family and nginx's messages about wrong ones. Boot only.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Load, context};

use super::rate::{REQUEST, Rate};
use super::{FAMILY, LIMIT_CONF, Limit};
use crate::access_control::limits::{no_zone, refuse, zone_and_size};

/// `nodelay`: a delay, in thousandths of a request, that no excess reaches.
const NO_DELAY: u64 = u64::MAX;

pub(super) static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "limit_req_zone",
        contexts: context::HTTP,
        args: Args::TAKE3,
        syntax: "limit_req_zone KEY zone=NAME:SIZE rate=NUMBERr/s\n\
                 limit_req_zone KEY zone=NAME:SIZE rate=NUMBERr/m",
        default: "",
        doc: "Makes room in shared memory for the states of the values of a key, which may have variables, \
              and says at which rate requests with the same value are to be served. Requests whose key is \
              empty are not counted. A zone of 1m has room for 30 thousand values, whatever their length; \
              where it is full the value is forgotten that is closest to being within the rate again. The \
              states outlive reloads and workers; the key of a zone cannot be changed by a reload.",
        example: EXAMPLE_OF_ZONE,
        see: &["limit_req", "limit_req_status", "limit_conn"],
        handler: read_zone,
    },
    Spec {
        name: "limit_req",
        contexts: context::ALL,
        args: Args::TAKE123,
        syntax: "limit_req zone=NAME [burst=NUMBER] [nodelay | delay=NUMBER]",
        default: "",
        doc: "Limits how fast requests with the same key are processed. Requests beyond the zone's rate \
              wait until they are within it, up to `burst` of them (default 0); more are refused. With \
              `delay=` that many do not wait, with `nodelay` none does. Several at one level all hold.",
        example: EXAMPLE_OF_ZONE,
        see: &["limit_req_zone", "limit_req_status", "limit_conn"],
        handler: read_limit,
    },
    Spec {
        name: "limit_req_log_level",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "limit_req_log_level info | notice | warn | error",
        default: "limit_req_log_level error",
        doc: "How severe a line about a request that was refused is. One about a request that waits is one \
              step less severe.",
        example: EXAMPLE_OF_REFUSALS,
        see: &["limit_req_status", "limit_req_dry_run", "limit_req"],
        handler: |scope, directive| scope.conf.location(&LIMIT_CONF).refusal.read_log_level(directive),
    },
    Spec {
        name: "limit_req_status",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "limit_req_status CODE",
        default: "limit_req_status 503",
        doc: "The status of requests that are refused, from 400 to 599.",
        example: EXAMPLE_OF_REFUSALS,
        see: &["limit_req_log_level", "limit_req_dry_run", "limit_req"],
        handler: |scope, directive| scope.conf.location(&LIMIT_CONF).refusal.read_status(directive),
    },
    Spec {
        name: "limit_req_dry_run",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "limit_req_dry_run on | off",
        default: "limit_req_dry_run off",
        doc: "Counts and logs, but lets all requests pass.",
        example: EXAMPLE_OF_REFUSALS,
        see: &["limit_req_status", "limit_req_log_level", "limit_req"],
        handler: |scope, directive| scope.conf.location(&LIMIT_CONF).refusal.read_dry_run(directive),
    },
];

/// The example of `limit_req_zone` and `limit_req`.
const EXAMPLE_OF_ZONE: &str = "
    limit_req_zone $binary_remote_addr zone=logins:10m rate=1r/s;

    server {
        location = /login {
            # Up to five wait their turn, further ones are refused.
            limit_req zone=logins burst=5;
        }
    }";

/// The example of `limit_req_log_level`, `limit_req_status` and `limit_req_dry_run`.
const EXAMPLE_OF_REFUSALS: &str = "
    limit_req_zone $binary_remote_addr zone=searches:10m rate=30r/m;

    server {
        location /search {
            limit_req zone=searches burst=10 nodelay;
            limit_req_status 429;
            limit_req_log_level warn;
            # Only the log and $limit_req_status tell what would have been refused.
            limit_req_dry_run on;
        }
    }";

fn read_zone(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let key = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
    let mut named: Option<(Bytes, u64)> = None;
    let mut rate = Rate::new(1, 1);
    for arg in &directive.args[1..] {
        if let Some(zone) = arg.strip_prefix(b"zone=") {
            named = Some(zone_and_size(directive, arg, zone)?);
        } else if arg.starts_with(b"rate=") {
            rate = parse_rate(arg).ok_or_else(|| refuse(directive, "invalid rate", arg))?;
        } else {
            return Err(refuse(directive, "invalid parameter", arg));
        }
    }
    let Some((name, bytes)) = named.filter(|(name, _)| !name.is_empty()) else {
        return Err(no_zone(directive));
    };
    FAMILY.make(scope.conf, directive, (name, bytes), key, rate)
}

/// `rate=NUMBERr/s` or `rate=NUMBERr/m`; without a unit per second.
fn parse_rate(arg: &[u8]) -> Option<Rate> {
    let (digits, seconds) = match arg {
        [digits @ .., b'r', b'/', b's'] => (digits, 1),
        [digits @ .., b'r', b'/', b'm'] => (digits, 60),
        digits => (digits, 1),
    };
    let requests = units::parse_number(digits.strip_prefix(b"rate=")?).filter(|&number| number > 0)?;
    Some(Rate::new(requests, seconds))
}

fn read_limit(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let mut zone = None;
    let (mut burst, mut delay) = (0, 0);
    let positive = |digits: &[u8]| units::parse_number(digits).filter(|&number| number > 0);
    for arg in &directive.args {
        if let Some(name) = arg.strip_prefix(b"zone=") {
            zone = Some(FAMILY.declare(scope.conf, directive, name, 0)?);
        } else if let Some(number) = arg.strip_prefix(b"burst=") {
            burst = positive(number).ok_or_else(|| refuse(directive, "invalid burst value", arg))?;
        } else if let Some(number) = arg.strip_prefix(b"delay=") {
            delay = positive(number).ok_or_else(|| refuse(directive, "invalid delay value", arg))?;
        } else if &arg[..] == b"nodelay" {
            delay = NO_DELAY;
        } else {
            return Err(refuse(directive, "invalid parameter", arg));
        }
    }
    let zone = zone.ok_or_else(|| no_zone(directive))?;
    let limits = scope.conf.location(&LIMIT_CONF).limits.here();
    if limits.iter().any(|limit| Arc::ptr_eq(&limit.zone, &zone)) {
        return Err(directive.reject("is duplicate"));
    }
    let (burst, delay) = (burst.saturating_mul(REQUEST), delay.saturating_mul(REQUEST));
    limits.push(Limit { zone, burst, delay });
    Ok(())
}
