//! What the directives of nginx's core say about other servers. Nothing asks one yet, so nothing has a name
//! to look up, or early hints to pass on: they are checked at load as nginx checks them, and that is all.

use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{ConfKey, Level, Load, Module, Setting, Value, context, set, settings};
use clearway_net::listen::{AddrError, Resolve, parse_listen};
use std::time::Duration;

/// The module.
pub static RESOLVER: Module =
    Module { name: "resolver", directives: DIRECTIVES, confs: &[&RESOLVER_CONF], ..Module::EMPTY };

/// Where a name server listens that has no port.
const DNS_PORT: &str = ":53";

static RESOLVER_CONF: ConfKey<ResolverConf> = ConfKey::new(Level::Location);

settings! {
    /// What was given, so that it is not given twice.
    struct ResolverConf {
        resolver: Setting<()>,
        resolver_timeout: Setting<Duration>,
        early_hints: Setting<Vec<Value>>,
    }
}

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "resolver",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "resolver ADDRESS … [valid=TIME] [ipv4=on | off] [ipv6=on | off]",
        default: "",
        doc: "Name servers that are asked for the addresses of upstream servers. A name server that is given \
              by its own name must be known when the configuration is loaded.",
        example: "
            resolver 192.0.2.53 [2001:db8::53] valid=30s ipv6=off;
            resolver_timeout 5s;",
        see: &["resolver_timeout", "listen"],
        handler: |scope, directive| {
            let system = scope.conf.resolver();
            let resolver = &mut scope.conf.location(&RESOLVER_CONF).resolver;
            set(directive, resolver, |directive| check_resolver(directive, &system))
        },
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
            set(directive, &mut scope.conf.location(&RESOLVER_CONF).resolver_timeout, |d| d.msec(0))
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
        example: "",
        see: &[],
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

fn check_resolver(directive: &Directive, system: &dyn Resolve) -> Result<(), Error> {
    let (mut servers, mut ipv4, mut ipv6) = (0, true, true);
    for argument in &directive.args {
        let invalid = || directive.error(message(&[&"invalid parameter: ", &printed(argument)]));
        if let Some(time) = argument.strip_prefix(b"valid=") {
            units::parse_sec(time).ok_or_else(invalid)?;
        } else if let Some(flag) = argument.strip_prefix(b"ipv4=") {
            ipv4 = parse_flag(flag).ok_or_else(invalid)?;
        } else if let Some(flag) = argument.strip_prefix(b"ipv6=") {
            ipv6 = parse_flag(flag).ok_or_else(invalid)?;
        } else {
            check_server(argument, system).map_err(|error| {
                let text = error.to_string();
                directive.error(message(&[&text, &" in resolver \"", &printed(argument), &"\""]))
            })?;
            servers += 1;
        }
    }
    if !ipv4 && !ipv6 {
        return Err(directive.error("\"ipv4\" and \"ipv6\" cannot both be \"off\""));
    }
    if servers == 0 {
        return Err(directive.error("no name servers defined"));
    }
    Ok(())
}

fn parse_flag(text: &[u8]) -> Option<bool> {
    match text {
        b"on" => Some(true),
        b"off" => Some(false),
        _ => None,
    }
}

/// The address of a name server: as that of a `listen`, but one, and of somebody.
fn check_server(text: &[u8], system: &dyn Resolve) -> Result<(), AddrError> {
    let is_unix = text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"unix:"));
    if is_unix || text.starts_with(b"[") {
        let port = text.iter().rposition(|&byte| byte == b']').map(|end| &text[end..]);
        if !is_unix && port.is_some_and(|port| port.contains(&b'-') && !port.contains(&b'/')) {
            return Err(AddrError::InvalidPort);
        }
        return parse_listen(text, system).map(drop);
    }
    if text.iter().any(|byte| matches!(byte, b'/' | b'?')) {
        return Err(AddrError::InvalidHost);
    }
    let (host, port) = match text.iter().position(|&byte| byte == b':') {
        Some(colon) => text.split_at(colon),
        None => (text, DNS_PORT.as_bytes()),
    };
    if port.contains(&b'-') {
        return Err(AddrError::InvalidPort);
    }
    let whole = [host, port].concat();
    match host {
        // To `listen` it would be any address; here its port is looked at before the name.
        b"*" => parse_listen(&whole, system).and(Err(AddrError::HostNotFound)),
        _ => parse_listen(&whole, system).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// Knows one name.
    struct Fixed;

    impl Resolve for Fixed {
        fn resolve(&self, host: &str) -> Vec<SocketAddr> {
            if host == "known" { vec![([127, 0, 0, 1], 0).into()] } else { Vec::new() }
        }
    }

    #[test]
    fn name_servers() {
        for good in ["127.0.0.1", "127.0.0.1:5353", "[::1]", "[::1]:53", "known", "known:1", "unix:/x"] {
            assert_eq!(check_server(good.as_bytes(), &Fixed), Ok(()), "{good}");
        }
        for (bad, error) in [
            ("", AddrError::NoHost),
            (":53", AddrError::NoHost),
            ("*", AddrError::HostNotFound),
            ("*:x", AddrError::InvalidPort),
            ("unknown", AddrError::HostNotFound),
            ("unknown:0", AddrError::InvalidPort),
            ("known:1-2", AddrError::InvalidPort),
            ("[::1]:1-2", AddrError::InvalidPort),
            ("[::1", AddrError::InvalidHost),
            ("[::x]", AddrError::InvalidIpv6),
            ("known/x", AddrError::InvalidHost),
            ("unix:", AddrError::NoPath),
        ] {
            assert_eq!(check_server(bad.as_bytes(), &Fixed), Err(error), "{bad}");
        }
    }
}
