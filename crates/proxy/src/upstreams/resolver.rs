//! `resolver` and what belongs to it: name servers that are asked while requests are served.

use std::sync::Arc;

use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Load, Module, NAME_SERVERS, context, set};
use clearway_net::url::{Names, UrlPath, UrlRules, parse_url};
use clearway_os::outgoing::Remote;
use clearway_resolver::{Config, Families, NAMES_MAX_DEFAULT};

use crate::upstreams::draft::block;
use crate::upstreams::lasting::Lasting;
use crate::upstreams::said::{RESOLVER_CONF, ResolverSpec};

/// The module.
pub static RESOLVER: Module =
    Module { name: "resolver", directives: DIRECTIVES, confs: &[&RESOLVER_CONF], ..Module::EMPTY };

/// Where a name server listens that has no port.
const DNS_PORT: u16 = 53;

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "resolver",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "resolver ADDRESS … [valid=TIME] [ipv4=on | off] [ipv6=on | off] [names_max=NUMBER]",
        default: "",
        doc: "Name servers that are asked for the addresses of upstream servers. A name server that is given \
              by its own name must be known when the configuration is loaded. `valid`: how long answers \
              hold, instead of what they say. `names_max` (65536, Clearway's own): how many names are known \
              or asked for at most.",
        example: "
            resolver 192.0.2.53 [2001:db8::53] valid=30s ipv6=off;
            resolver_timeout 5s;",
        see: &["resolver_timeout", "listen"],
        handler: |scope, directive| {
            if scope.conf.location(&RESOLVER_CONF).resolver.is_here() {
                return Err(directive.reject("is duplicate"));
            }
            let spec = read_resolver(directive, scope.conf)?;
            scope.conf.location(&NAME_SERVERS).asked.set(Some(Arc::new(spec.clone())));
            scope.conf.location(&RESOLVER_CONF).resolver.set(Some(spec));
            Ok(())
        },
    },
    Spec {
        name: "resolver",
        contexts: context::UPSTREAM,
        args: Args::ONE_MORE,
        syntax: "resolver ADDRESS … [valid=TIME] [ipv4=on | off] [ipv6=on | off] [names_max=NUMBER]",
        default: "",
        doc: "Name servers for servers of the group that have `resolve`, instead of those of `http`.",
        example: "
            upstream backend {
                zone backend 64k;
                resolver 192.0.2.53 valid=10s;
                server backend.example.com resolve;
            }",
        see: &["server", "resolver_timeout"],
        handler: |scope, directive| {
            if block(scope.conf).resolver.is_some() {
                return Err(directive.reject("is duplicate"));
            }
            let spec = read_resolver(directive, scope.conf)?;
            block(scope.conf).resolver = Some(spec);
            Ok(())
        },
    },
    Spec {
        name: "resolver_timeout",
        contexts: context::UPSTREAM,
        args: Args::TAKE1,
        syntax: "resolver_timeout TIME",
        default: "resolver_timeout 30s;",
        doc: "How long a name server may take to answer for a server of the group.",
        example: "
            upstream backend {
                zone backend 64k;
                resolver 192.0.2.53;
                resolver_timeout 5s;
                server backend.example.com resolve;
            }",
        see: &["resolver"],
        handler: |scope, directive| directive.set(&mut block(scope.conf).resolver_timeout, |d| d.msec(0)),
    },
    Spec {
        name: "resolver_timeout",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "resolver_timeout TIME",
        default: "resolver_timeout 30s;",
        doc: "How long a name server may take to answer.",
        example: "
            resolver 192.0.2.53 [2001:db8::53] valid=30s ipv6=off;
            resolver_timeout 5s;",
        see: &["resolver", "listen"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&RESOLVER_CONF).resolver_timeout, |d| d.msec(0))?;
            scope.conf.location(&NAME_SERVERS).timeout.set(directive.msec(0)?);
            Ok(())
        },
    },
    Spec {
        name: "early_hints",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "early_hints TEXT …",
        default: "",
        doc: "Passes `103 Early Hints` of upstream servers on where one of the texts, which have variables \
              in them, is neither empty nor `0`.",
        example: "
            location /app/ {
                proxy_pass http://127.0.0.1:8080;
                early_hints $http_sec_fetch_mode;
            }",
        see: &["proxy_pass"],
        handler: read_early_hints,
    },
];

fn read_early_hints(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for argument in &directive.args {
        let value = scope.conf.variables.compile(argument, &directive.pos)?;
        scope.conf.location(&RESOLVER_CONF).early_hints.here().push(value);
    }
    Ok(())
}

fn read_resolver(directive: &Directive, load: &Load) -> Result<ResolverSpec, Error> {
    let (mut servers, mut ipv4, mut ipv6) = (Vec::new(), true, true);
    let (mut valid, mut names_max) = (None, NAMES_MAX_DEFAULT);
    let system = load.resolver();
    for argument in &directive.args {
        let invalid = || directive.error(message(&[&"invalid parameter: ", &printed(argument)]));
        if let Some(time) = argument.strip_prefix(b"valid=") {
            valid = Some(units::parse_sec(time).ok_or_else(invalid)?);
        } else if let Some(number) = argument.strip_prefix(b"names_max=") {
            let number = units::parse_number(number).filter(|&number| number > 0).ok_or_else(invalid)?;
            names_max = usize::try_from(number).unwrap_or(usize::MAX);
        } else if let Some(flag) = argument.strip_prefix(b"ipv4=") {
            ipv4 = parse_flag(flag).ok_or_else(invalid)?;
        } else if let Some(flag) = argument.strip_prefix(b"ipv6=") {
            ipv6 = parse_flag(flag).ok_or_else(invalid)?;
        } else {
            let names = Names::Resolved(&*system);
            let rules = UrlRules { default_port: DNS_PORT, path: UrlPath::Refused, names };
            let url = parse_url(argument, rules).map_err(|error| {
                let text = error.to_string();
                directive.error(message(&[&text, &" in resolver \"", &printed(argument), &"\""]))
            })?;
            servers.extend(url.addresses);
        }
    }
    let families = match (ipv4, ipv6) {
        (true, true) => Families::Both,
        (true, false) => Families::V4,
        (false, true) => Families::V6,
        (false, false) => return Err(directive.error("\"ipv4\" and \"ipv6\" cannot both be \"off\"")),
    };
    if servers.is_empty() {
        return Err(directive.error("no name servers defined"));
    }
    // A unix socket is accepted as nginx accepts it; no name server answers there.
    let reachable = servers.into_iter().filter_map(|server| match server {
        Remote::Inet(address) => Some(address),
        Remote::Unix(_) => None,
    });
    let config = Config { valid, families, names_max, ..Config::new(reachable.collect()) };
    Ok(ResolverSpec(Lasting::of(load).resolver(&config)))
}

fn parse_flag(text: &[u8]) -> Option<bool> {
    match text {
        b"on" => Some(true),
        b"off" => Some(false),
        _ => None,
    }
}
