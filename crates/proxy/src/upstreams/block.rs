//! `upstream` and what may stand in its block. Its directives are executed where they stand, as nginx does: a
//! server may have the parameters that the balancer before it allows.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clearway_base::{Errno, units};
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Loader, Memory, Scope, Spec};
use clearway_http::{Load, Module, context};
use clearway_upstream::EjectRule;

use crate::upstreams::draft::{self, UPSTREAMS_CONF, block};
use crate::upstreams::lasting::Lasting;
use crate::upstreams::said::{EjectionDraft, RetryShare};
use crate::upstreams::server;
use crate::upstreams::state_file::StateFile;

/// The module.
pub static UPSTREAM: Module = Module {
    name: "upstream",
    directives: DIRECTIVES,
    confs: &[&UPSTREAMS_CONF],
    finish: Some(draft::finish),
    ..Module::EMPTY
};

/// Largest state file, bytes.
const STATE_MAX_BYTES: usize = 1 << 20;

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
        syntax: "server ADDRESS [weight=N] [max_conns=N] [max_fails=N] [fail_timeout=TIME] \
                 [slow_start=TIME] [backup] [down] [drain] [route=TEXT] [resolve] [service=NAME]",
        default: "",
        doc: "A server of the group: a name or an address, with a port (80 if there is none), or `unix:` and \
              the path of a socket. Each address of a name is a server by itself.\n\n\
              * `weight` (1): its part of the requests.\n\
              * `max_conns` (0, no limit): how many requests it gets at a time; each loop has that many, \
              unless the group has a `zone`.\n\
              * `max_fails` (1) and `fail_timeout` (10 s): after so many failures within that time it is \
              left alone for as long; 0 never.\n\
              * `slow_start` (0): for so long its weight rises from nothing to all of it when it is there \
              again after it was left alone. Not with `hash`, `ip_hash` and `random`; the only server of a \
              group is never left alone.\n\
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
        name: "state",
        contexts: context::UPSTREAM,
        args: Args::TAKE1,
        syntax: "state FILE",
        default: "",
        doc: "The servers of the group stand in this file, as `server` lines, instead of in the block, and \
              are added, changed and removed while serving (`status write=on`), which replaces the file: its \
              directory is to be one that worker processes may write to. A file that is not there has no \
              servers. The group needs a `zone`. A file that was changed by hand counts from the next reload \
              on. Changes while a configuration is being loaded may not be seen by it until the next one.",
        example: "
            upstream backend {
                zone backend 64k;
                state /var/lib/clearway/backend.conf;
            }",
        see: &["server", "status", "zone", "upstream"],
        handler: read_state,
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
        name: "upstream_ejection",
        contexts: context::HTTP.or(context::UPSTREAM),
        args: Args::ONE_MORE,
        syntax: "upstream_ejection off | on [fails=N] [slow=N] [time=TIME]",
        default: "upstream_ejection off;",
        doc: "Whether servers are left alone that are worse than the others of their group, half of them at \
              most. Unlike `max_fails` this looks at failures in a row, however long apart, counts answers \
              with a status of 5xx as such, and compares how long servers take. Requests of sessions go to \
              others, too. `status` counts it. Clearway's own.\n\n\
              * `fails` (5): after so many failures in a row; 0 never.\n\
              * `slow` (5): when the head of an answer takes so many times as long as that of the middle one \
              of the group's servers, on average, and a tenth of a second at least; or when a server that is \
              asked has said nothing for so long. 0 never.\n\
              * `time` (10 s): for so long the first time, twice as long the next time, and so on up to ten \
              times; from the beginning when it was well for ten times as long.",
        example: "
            upstream backend {
                upstream_ejection on fails=3 slow=4 time=30s;
                server 127.0.0.1:8081;
                server 127.0.0.1:8082;
                server 127.0.0.1:8083;
            }",
        see: &["server", "upstream", "proxy_next_upstream"],
        handler: read_ejection,
    },
    Spec {
        name: "upstream_start_unresolved",
        contexts: context::HTTP,
        args: Args::FLAG,
        syntax: "upstream_start_unresolved on | off",
        default: "upstream_start_unresolved off;",
        doc: "Whether a configuration is used that has names of upstream servers which cannot be resolved \
              at present. They are resolved while serving then, as with `resolve`, which needs a \
              `resolver` in `http`; requests that need them are answered with 502 until they are known. It \
              has to stand before those names. Clearway's own.",
        example: "
            upstream_start_unresolved on;
            resolver 192.0.2.53;",
        see: &["resolver", "server"],
        handler: |scope, directive| {
            directive.set(&mut scope.conf.main(&UPSTREAMS_CONF).start_unresolved, |d| d.flag(0))
        },
    },
];

fn read_state(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if block(scope.conf).state.is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let path = scope.conf.full_name(&directive.args[0]);
    let file = Lasting::of(scope.conf).state_file(Path::new(OsStr::from_bytes(&path)));
    block(scope.conf).state = Some(file);
    Ok(())
}

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

fn read_ejection(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.context.meets(context::UPSTREAM) {
        directive.set(&mut block(scope.conf).ejection, ejection)
    } else {
        directive.set(&mut scope.conf.main(&UPSTREAMS_CONF).ejection, ejection)
    }
}

fn ejection(directive: &Directive) -> Result<EjectionDraft, Error> {
    let is_on = match &directive.args[0][..] {
        b"on" => true,
        b"off" => false,
        _ => return Err(directive.invalid_value(0)),
    };
    let mut rule = EjectRule { fails: 5, slow: 5, time_ms: 10_000 };
    for (argument, index) in directive.args.iter().zip(0..).skip(1) {
        let count = |text| units::parse_number(text).and_then(|number| u32::try_from(number).ok());
        let read = if let Some(number) = argument.strip_prefix(b"fails=") {
            count(number).map(|number| rule.fails = number)
        } else if let Some(number) = argument.strip_prefix(b"slow=") {
            count(number).map(|number| rule.slow = number)
        } else if let Some(time) = argument.strip_prefix(b"time=") {
            let time_ms = units::parse_msec(time).and_then(|time| u64::try_from(time.as_millis()).ok());
            time_ms.filter(|&ms| ms > 0).map(|ms| rule.time_ms = ms)
        } else {
            None
        };
        if read.is_none() || !is_on {
            return Err(directive.invalid_value(index));
        }
    }
    Ok(if is_on { EjectionDraft::On(rule) } else { EjectionDraft::Off })
}

fn read_upstream(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let number = draft::begin_block(scope.conf, directive)?;
    *scope.conf.main(&UPSTREAMS_CONF).open = number;
    scope.block(directive, context::UPSTREAM)?;
    let state = block(scope.conf).state.clone();
    if let Some(state) = &state {
        if !block(scope.conf).servers.is_empty() {
            return Err(directive.error("\"server\" and \"state\" cannot be used together in upstream"));
        }
        read_servers(scope, directive, state)?;
    } else if block(scope.conf).servers.is_empty() && block(scope.conf).balancer.is_none() {
        return Err(match directive.block() {
            Some(inside) => Error::new("no servers are inside upstream", &inside.close),
            None => directive.error("no servers are inside upstream"),
        });
    }
    Ok(())
}

/// Reads the servers of the block that is being read. A file that is not there has none.
fn read_servers(scope: &mut Scope<'_, Load>, directive: &Directive, file: &StateFile) -> Result<(), Error> {
    let path = file.path();
    let shown = path.as_os_str().as_encoded_bytes();
    let text = match scope.conf.kept_files().read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let why = Errno(&error).to_string();
            return Err(directive.error(message(&[&"open() \"", &printed(shown), &"\" failed ", &why])));
        }
    };
    if text.len() > STATE_MAX_BYTES {
        return Err(directive.error(message(&[&"too large state file \"", &printed(shown), &"\""])));
    }
    let source = Memory::new().with(path, text.to_vec());
    let block = Loader::new(&source, path).file(path);
    block.entries(&mut |line| match (&line.name[..], line.args.is_empty()) {
        (b"server", false) => server::read_server(scope, line),
        _ => Err(line.error(message(&[&"unexpected \"", &printed(&line.name), &"\" in a state file"]))),
    })
}
