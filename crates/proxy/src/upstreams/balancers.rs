//! The directives of an `upstream` block that choose the rule of balancing.

use std::time::Duration;

use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Load, Module, Said, context};
use clearway_upstream::{Method, TimeRule, Waiting};

use crate::upstreams::draft::{UPSTREAMS_CONF, block};
use crate::upstreams::said::QueueDraft;

/// How long a request waits for a server where nothing is said.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);

/// The module.
pub static BALANCERS: Module = Module { name: "upstream_balancers", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "hash",
        contexts: context::UPSTREAM,
        args: Args::TAKE12,
        syntax: "hash KEY [consistent]",
        default: "",
        doc: "Requests with the same key, a text with variables, get the same server. With `consistent` few \
              keys move to another one when a server comes or goes (ketama); without it most do. Keys fall \
              on the servers on which they fall in nginx.",
        example: "
            upstream caches {
                hash $request_uri consistent;
                server 127.0.0.1:8081;
                server 127.0.0.1:8082;
            }",
        see: &["ip_hash", "upstream"],
        handler: read_hash,
    },
    Spec {
        name: "ip_hash",
        contexts: context::UPSTREAM,
        args: Args::NOARGS,
        syntax: "ip_hash",
        default: "",
        doc: "Clients whose addresses begin alike (three bytes of IPv4, all of IPv6) get the same server as \
              long as it is there.",
        example: "
            upstream backend {
                ip_hash;
                server 127.0.0.1:8081;
                server 127.0.0.1:8082;
            }",
        see: &["hash", "sticky"],
        handler: |scope, directive| {
            choose(scope, directive, Method::IpHash);
            Ok(())
        },
    },
    Spec {
        name: "least_conn",
        contexts: context::UPSTREAM,
        args: Args::NOARGS,
        syntax: "least_conn",
        default: "",
        doc: "The server with the fewest requests for its weight is next.",
        example: "
            upstream backend {
                least_conn;
                server 127.0.0.1:8081 weight=2;
                server 127.0.0.1:8082;
            }",
        see: &["least_time", "random"],
        handler: |scope, directive| {
            choose(scope, directive, Method::LeastConn);
            Ok(())
        },
    },
    Spec {
        name: "least_time",
        contexts: context::UPSTREAM,
        args: Args::TAKE12,
        syntax: "least_time header | last_byte [inflight]",
        default: "",
        doc: "The server is next that is estimated to be done first, for its weight: by how long it took on \
              average until the head of a response was there, or until its end, and by how many requests it \
              has. With `inflight` requests count that wait for it.",
        example: "
            upstream backend {
                least_time last_byte inflight;
                server 127.0.0.1:8081;
                server 127.0.0.1:8082;
            }",
        see: &["least_conn"],
        handler: read_least_time,
    },
    Spec {
        name: "random",
        contexts: context::UPSTREAM,
        args: Args::NOARGS.or(Args::TAKE12),
        syntax: "random [two [least_conn]]",
        default: "",
        doc: "A server by chance, as likely as its weight says. With `two`: of two such the one with fewer \
              requests.",
        example: "
            upstream backend {
                random two least_conn;
                server 127.0.0.1:8081;
                server 127.0.0.1:8082;
                server 127.0.0.1:8083;
            }",
        see: &["least_conn"],
        handler: read_random,
    },
    Spec {
        name: "queue",
        contexts: context::UPSTREAM,
        args: Args::TAKE12,
        syntax: "queue NUMBER [timeout=TIME]",
        default: "",
        doc: "How many requests wait until a server of the group can be used, as all have `max_conns` or \
              have failed: they are served in the order in which they came. Where there is no room, or no \
              server is found within `timeout` (60 s), the answer is 502. All loops have one queue. It \
              stands behind the directive that says how servers are chosen.",
        example: "
            upstream backend {
                zone backend 64k;
                least_conn;
                queue 1000 timeout=10s;
                server 127.0.0.1:8081 max_conns=20;
                server 127.0.0.1:8082 max_conns=20;
            }",
        see: &["server", "least_conn", "upstream"],
        handler: read_queue,
    },
];

/// The method of a block; one that was chosen before, and a session's, is forgotten.
fn choose(scope: &mut Scope<'_, Load>, directive: &Directive, method: Method) {
    let block = block(scope.conf);
    let before = block.method.method.replace(method).is_some();
    let session = block.sticky.as_mut().is_some_and(|sticky| std::mem::replace(&mut sticky.is_on, false));
    let queue = block.queue.as_mut().is_some_and(|queue| std::mem::replace(&mut queue.is_on, false));
    if before || session || queue {
        scope.warn(directive.error("load balancing method redefined"));
    }
}

/// Applies a setting of code that chooses servers to the block that is being read
/// ([`clearway_http::Balancers`]).
///
/// # Errors
/// In nginx's words.
pub fn set_balancer(scope: &mut Scope<'_, Load>, directive: &Directive, said: Said) -> Result<(), Error> {
    match said {
        Said::Keepalive(number) => {
            let by_code = &mut block(scope.conf).keepalive.by_code;
            if by_code.replace(number).is_some() {
                return Err(directive.reject("is duplicate"));
            }
        }
        Said::Balancer(balancer) => {
            if block(scope.conf).balancer.is_some() {
                return Err(directive.reject("is duplicate"));
            }
            let is_kept = block(scope.conf).keepalive.idle.is_some();
            if is_kept || block(scope.conf).method.method.is_some() {
                scope.warn(directive.error("load balancing method redefined"));
            }
            block(scope.conf).balancer = Some(balancer);
            *scope.conf.main(&UPSTREAMS_CONF).has_balancer = true;
        }
    }
    Ok(())
}

fn read_hash(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let key = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
    block(scope.conf).method.key = Some(key);
    let method = match directive.args.get(1).map(|argument| &argument[..]) {
        None => Method::Hash,
        Some(b"consistent") => Method::Consistent,
        Some(_) => {
            choose(scope, directive, Method::Hash);
            return Err(invalid(directive, 1));
        }
    };
    choose(scope, directive, method);
    Ok(())
}

fn read_least_time(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    choose(scope, directive, Method::LeastTime(TimeRule::None));
    let waiting = match directive.args.get(1).map(|argument| &argument[..]) {
        None => Waiting::Ignored,
        Some(b"inflight") => Waiting::Counted,
        Some(_) => return Err(invalid(directive, 1)),
    };
    let method = &mut block(scope.conf).method;
    if std::mem::replace(&mut method.least_time, true) {
        return Err(directive.reject("is duplicate"));
    }
    let rules = [("header", TimeRule::Header(waiting)), ("last_byte", TimeRule::LastByte(waiting))];
    method.method = Some(Method::LeastTime(directive.choice(0, &rules)?));
    Ok(())
}

fn read_random(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let arguments: Vec<&[u8]> = directive.args.iter().map(|argument| &argument[..]).collect();
    let method = if arguments.is_empty() { Method::Random } else { Method::RandomTwo };
    choose(scope, directive, method);
    match arguments[..] {
        [] | [b"two"] | [b"two", b"least_conn"] => Ok(()),
        [b"two", _] => Err(invalid(directive, 1)),
        _ => Err(invalid(directive, 0)),
    }
}

fn read_queue(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let queue = &mut block(scope.conf).queue;
    if queue.is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let number = units::parse_number(&directive.args[0]).filter(|&number| number > 0);
    let number = number.ok_or_else(|| {
        let value = printed(&directive.args[0]);
        directive.error(message(&[&"invalid value \"", &value, &"\" in \"queue\" directive"]))
    })?;
    let timeout = match directive.args.get(1) {
        None => QUEUE_TIMEOUT,
        Some(argument) => {
            let time = argument.strip_prefix(b"timeout=").and_then(units::parse_msec);
            time.ok_or_else(|| invalid(directive, 1))?
        }
    };
    let limit = usize::try_from(number).unwrap_or(usize::MAX);
    *queue = Some(QueueDraft { limit, timeout, is_on: true });
    Ok(())
}

fn invalid(directive: &Directive, index: usize) -> Error {
    directive.error(message(&[&"invalid parameter \"", &printed(&directive.args[index]), &"\""]))
}
