//! `upstream` and what may stand in its block. Its directives are executed where they stand, as nginx does: a
//! server may have the parameters that the balancer before it allows.

use clearway_base::units;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Load, Module, context};

use crate::upstreams::draft::{self, UPSTREAMS_CONF, block};
use crate::upstreams::said::RetryShare;
use crate::upstreams::server;

/// The module.
pub static UPSTREAM: Module = Module {
    name: "upstream",
    directives: DIRECTIVES,
    confs: &[&UPSTREAMS_CONF],
    finish: Some(draft::finish),
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "upstream",
        contexts: context::HTTP,
        args: Args::TAKE1.or(Args::BLOCK),
        syntax: "upstream NAME { … }",
        default: "",
        doc: "A group of servers that requests can be passed to, each with a `server` of its own. They take \
              turns by their weights unless another rule stands in the block. The name is used like that of \
              a host, and may be used before the block stands.",
        example: "
            upstream backend {
                server 127.0.0.1:8081 weight=5;
                server 127.0.0.1:8082 max_fails=3 fail_timeout=30s;
                server unix:/run/backend.sock backup;
            }",
        see: &["server", "keepalive", "least_conn", "zone"],
        handler: read_upstream,
    },
    Spec {
        name: "server",
        contexts: context::UPSTREAM,
        args: Args::ONE_MORE,
        syntax: "server ADDRESS [weight=N] [max_conns=N] [max_fails=N] [fail_timeout=TIME] [backup] [down] \
                 [drain] [route=TEXT] [resolve] [service=NAME]",
        default: "",
        doc: "A server of the group: a name or an address, with a port (80 if there is none), or `unix:` and \
              the path of a socket. Each address of a name is a server by itself.\n\n\
              * `weight` (1): its part of the requests.\n\
              * `max_conns` (0, no limit): how many requests it gets at a time; each loop has that many, \
              unless the group has a `zone`.\n\
              * `max_fails` (1) and `fail_timeout` (10 s): after so many failures within that time it is \
              left alone for as long; 0 never.\n\
              * `backup`: it is asked when the others cannot be.\n\
              * `down`: it is not asked. `drain`: only for sessions that it has (`sticky`).\n\
              * `route`: how `sticky` calls it.\n\
              * `resolve`: its name is resolved again and again while serving, which needs a `zone` and a \
              `resolver`; `service` has it looked up as a service (SRV), with ports and weights.",
        example: "
            upstream backend {
                zone backend 64k;
                resolver 192.0.2.53;
                server 127.0.0.1:8081 weight=5 max_conns=100;
                server backend.example.com service=http resolve;
                server 127.0.0.1:8082 backup;
            }",
        see: &["upstream", "zone", "resolver", "sticky"],
        handler: server::read_server,
    },
    Spec {
        name: "upstream_retry_budget",
        contexts: context::HTTP.or(context::UPSTREAM),
        args: Args::TAKE1,
        syntax: "upstream_retry_budget PERCENT | off",
        default: "upstream_retry_budget off;",
        doc: "How many further attempts the requests of a group may make together, for a hundred requests: \
              where all servers are in trouble, trying each of them with each request is trouble more. Ten \
              further attempts there are in any case. What a request may do by itself says \
              `proxy_next_upstream`. Clearway's own.",
        example: "
            upstream_retry_budget 20%;
            upstream backend {
                server 127.0.0.1:8081;
                server 127.0.0.1:8082;
                upstream_retry_budget off;
            }",
        see: &["upstream", "server"],
        handler: read_retry_budget,
    },
    Spec {
        name: "upstream_start_unresolved",
        contexts: context::HTTP,
        args: Args::FLAG,
        syntax: "upstream_start_unresolved on | off",
        default: "upstream_start_unresolved off;",
        doc: "Whether a configuration is used in which names of upstream servers are that nobody knows at \
              present. They are resolved while serving then, as with `resolve`, which needs a `resolver` in \
              `http`; requests that need them are answered with 502 until they are known. It has to stand \
              before those names. Clearway's own.",
        example: "
            upstream_start_unresolved on;
            resolver 192.0.2.53;",
        see: &["resolver", "server"],
        handler: |scope, directive| {
            directive.set(&mut scope.conf.main(&UPSTREAMS_CONF).start_unresolved, |d| d.flag(0))
        },
    },
];

fn read_retry_budget(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let share = |directive: &Directive| match &directive.args[0][..] {
        b"off" => Ok(RetryShare::Unlimited),
        text => {
            let number = text.strip_suffix(b"%").and_then(units::parse_number);
            let percent =
                number.and_then(|number| u32::try_from(number).ok()).filter(|&percent| percent <= 100);
            percent.map(RetryShare::Percent).ok_or_else(|| directive.invalid_value(0))
        }
    };
    if scope.context.meets(context::UPSTREAM) {
        directive.set(&mut block(scope.conf).retry_budget, share)
    } else {
        directive.set(&mut scope.conf.main(&UPSTREAMS_CONF).retry_budget, share)
    }
}

fn read_upstream(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let number = draft::begin_block(scope.conf, directive)?;
    *scope.conf.main(&UPSTREAMS_CONF).open = number;
    scope.block(directive, context::UPSTREAM)?;
    if block(scope.conf).servers.is_empty() {
        return Err(match directive.block() {
            Some(inside) => Error::new("no servers are inside upstream", &inside.close),
            None => directive.error("no servers are inside upstream"),
        });
    }
    Ok(())
}
