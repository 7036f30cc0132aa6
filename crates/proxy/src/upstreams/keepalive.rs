//! Connections to the servers of a group that wait for further requests, and the group's `zone`: directives
//! in an `upstream` block.

use std::sync::Arc;

use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Load, Module, context};
use clearway_zone::Zones;

use crate::upstreams::common::COMMON_BYTES;
use crate::upstreams::draft::block;
use crate::upstreams::lasting::Lasting;
use crate::upstreams::said::Reuse;

/// The module.
pub static KEEPALIVE: Module = Module { name: "upstream_keepalive", directives: DIRECTIVES, ..Module::EMPTY };

/// The smallest zone that nginx accepts, bytes: eight pages.
const ZONE_MIN_BYTES: u64 = 8 * 4096;

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "keepalive",
        contexts: context::UPSTREAM,
        args: Args::TAKE12,
        syntax: "keepalive CONNECTIONS [local]",
        default: "keepalive 32 local;",
        doc: "How many connections to the servers of the group wait for further requests, for each loop; any \
              loop may use them. Those above it are closed when they were idle for a moment, and there are \
              never twice as many. With `local` only requests of the location do that they were made for. \
              `keepalive 0` has each request make a connection.",
        example: "
            upstream backend {
                server 127.0.0.1:8081;
                keepalive 64;
                keepalive_requests 10000;
            }",
        see: &["keepalive_timeout", "keepalive_requests", "keepalive_time"],
        handler: read_keepalive,
    },
    Spec {
        name: "keepalive_time",
        contexts: context::UPSTREAM,
        args: Args::TAKE1,
        syntax: "keepalive_time TIME",
        default: "keepalive_time 1h;",
        doc: "A connection to a server is closed behind a request when it is that old.",
        example: "
            upstream backend {
                server 127.0.0.1:8081;
                keepalive_time 30m;
            }",
        see: &["keepalive"],
        handler: |scope, directive| directive.set(&mut block(scope.conf).keepalive.time, |d| d.msec(0)),
    },
    Spec {
        name: "keepalive_timeout",
        contexts: context::UPSTREAM,
        args: Args::TAKE1,
        syntax: "keepalive_timeout TIME",
        default: "keepalive_timeout 60s;",
        doc: "How long a connection to a server waits for a further request.",
        example: "
            upstream backend {
                server 127.0.0.1:8081;
                keepalive_timeout 20s;
            }",
        see: &["keepalive"],
        handler: |scope, directive| directive.set(&mut block(scope.conf).keepalive.timeout, |d| d.msec(0)),
    },
    Spec {
        name: "keepalive_requests",
        contexts: context::UPSTREAM,
        args: Args::TAKE1,
        syntax: "keepalive_requests NUMBER",
        default: "keepalive_requests 1000;",
        doc: "A connection to a server is closed behind so many requests.",
        example: "
            upstream backend {
                server 127.0.0.1:8081;
                keepalive_requests 10000;
            }",
        see: &["keepalive"],
        handler: |scope, directive| {
            directive.set(&mut block(scope.conf).keepalive.requests, |d| {
                Ok(u32::try_from(d.number(0)?).unwrap_or(u32::MAX))
            })
        },
    },
    Spec {
        name: "zone",
        contexts: context::UPSTREAM,
        args: Args::TAKE12,
        syntax: "zone NAME [SIZE]",
        default: "",
        doc: "All loops of a process share the state of the servers in any case. With a zone those of all \
              `worker_groups` do, and `max_conns` is the limit of all loops together, servers can have \
              `resolve`, and be added and changed while serving (`status write=on`): those of all groups of \
              the zone are written down in it, about a hundred in 64k. The size must be one that nginx \
              takes.",
        example: "
            upstream backend {
                zone backend 64k;
                server 127.0.0.1:8081 max_conns=100;
            }",
        see: &["upstream", "server", "state", "status"],
        handler: read_zone,
    },
];

fn read_keepalive(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let idle = &mut block(scope.conf).keepalive.idle;
    if idle.is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let number = units::parse_number(&directive.args[0]).ok_or_else(|| {
        let value = printed(&directive.args[0]);
        directive.error(message(&[&"invalid value \"", &value, &"\" in \"keepalive\" directive"]))
    })?;
    let reuse = match directive.args.get(1).map(|argument| &argument[..]) {
        None => Reuse::All,
        Some(b"local") => Reuse::Location,
        Some(other) => {
            return Err(directive.error(message(&[&"invalid parameter \"", &printed(other), &"\""])));
        }
    };
    *idle = Some((u32::try_from(number).unwrap_or(u32::MAX), reuse));
    Ok(())
}

fn read_zone(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let name = &directive.args[0];
    let refuse = |before: &str, value: &[u8], behind: &str| {
        directive.error(message(&[&before, &" \"", &printed(value), &behind]))
    };
    if name.is_empty() {
        return Err(refuse("invalid zone name", name, "\""));
    }
    let bytes = match directive.args.get(1) {
        None => 0,
        Some(size) => {
            let bytes = units::parse_size(size).ok_or_else(|| refuse("invalid zone size", size, "\""))?;
            if bytes < ZONE_MIN_BYTES {
                return Err(refuse("zone", name, "\" is too small"));
            }
            bytes
        }
    };
    let zones = scope.conf.environment().services.find::<Arc<Zones>>().cloned();
    let zones = zones.ok_or_else(|| Error::unplaced("no shared memory zones"))?;
    let zone = zones.declare(name, bytes, "upstream").map_err(|text| directive.error(text))?;
    // Beside the zone, not in it: the zone's size is that of the descriptions of servers that are changed.
    let beside = || zones.declare(&[b"\0", &name[..]].concat(), COMMON_BYTES, "upstream servers");
    let common = Lasting::of(scope.conf).has_company().then(beside).transpose();
    let common = common.map_err(|text| directive.error(text))?;
    let block = block(scope.conf);
    (block.zone, block.common) = (Some(zone), common);
    Ok(())
}
