//! `allow` and `deny`: access control by address. The rules of a level are compared in their order; the first
//! that has the client's address decides. Runs in the access phase on a loop.

use std::net::IpAddr;

use clearway_base::log::Level as LogLevel;
use clearway_conf::error::message;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{
    ConfKey, Cost, Enabling, Exchange, Level, Load, Module, Phase, PhaseHandler, Satisfy, Setting, Step,
    context, settings,
};

use crate::cidr::{Cidr, LowBits};

/// The module.
pub static ACCESS: Module = Module {
    name: "access",
    directives: DIRECTIVES,
    confs: &[&ACCESS_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

const ANYWHERE: Contexts = context::ALL.or(context::LIMIT_EXCEPT);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "allow",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "allow ADDRESS | NETWORK | unix: | all",
        default: "",
        doc: "Lets clients with this address, of this network (`10.0.0.0/8`, `2001:db8::/32`) or on unix \
              sockets pass. Of the `allow` and `deny` of a level the first one counts that has the client's \
              address; a level that has any inherits none.",
        example: EXAMPLE_OF_ADDRESSES,
        see: &["deny", "satisfy", "limit_except", "auth_basic", "set_real_ip_from"],
        handler: |scope, directive| add(scope, directive, Verdict::Allow),
    },
    Spec {
        name: "deny",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "deny ADDRESS | NETWORK | unix: | all",
        default: "",
        doc: "Refuses clients with this address, of this network or on unix sockets (403).",
        example: EXAMPLE_OF_ADDRESSES,
        see: &["allow", "satisfy", "limit_except", "auth_basic", "set_real_ip_from"],
        handler: |scope, directive| add(scope, directive, Verdict::Deny),
    },
];

/// The example of `allow` and `deny`.
const EXAMPLE_OF_ADDRESSES: &str = "
    location /status/ {
        deny 192.0.2.1;
        allow 192.0.2.0/24;
        allow 2001:db8::/32;
        deny all;
    }";

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::Access, cost: Cost::Cheap, enabled: is_enabled, handler }];

static ACCESS_CONF: ConfKey<AccessConf> = ConfKey::new(Level::Location);

settings! {
    struct AccessConf {
        rules: Setting<Rules>,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allow,
    Deny,
}

/// The rules of a level, by what they are about.
#[derive(Clone, Default)]
struct Rules {
    v4: Vec<Rule<u32>>,
    v6: Vec<Rule<u128>>,
    /// The first one is the last word.
    unix: Option<Verdict>,
}

#[derive(Clone, Copy)]
struct Rule<T> {
    address: T,
    mask: T,
    verdict: Verdict,
}

impl Rules {
    fn add(&mut self, network: Cidr, verdict: Verdict) {
        let free_bits = |width: u32| width - u32::from(network.prefix_bits);
        match network.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(free_bits(32)).unwrap_or(0);
                self.v4.push(Rule { address: ip.to_bits(), mask, verdict });
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(free_bits(128)).unwrap_or(0);
                self.v6.push(Rule { address: ip.to_bits(), mask, verdict });
            }
        }
    }

    fn add_unix(&mut self, verdict: Verdict) {
        self.unix.get_or_insert(verdict);
    }

    fn add_all(&mut self, verdict: Verdict) {
        self.v4.push(Rule { address: 0, mask: 0, verdict });
        self.v6.push(Rule { address: 0, mask: 0, verdict });
        self.add_unix(verdict);
    }

    /// The verdict for an address, or for a unix socket.
    fn find(&self, ip: Option<IpAddr>) -> Option<Verdict> {
        let v4 =
            |ip: u32| self.v4.iter().find(|rule| ip & rule.mask == rule.address).map(|rule| rule.verdict);
        match ip {
            None => self.unix,
            Some(IpAddr::V4(ip)) => v4(ip.to_bits()),
            Some(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
                Some(ip) if !self.v4.is_empty() => v4(ip.to_bits()),
                _ => {
                    let ip = ip.to_bits();
                    self.v6.iter().find(|rule| ip & rule.mask == rule.address).map(|rule| rule.verdict)
                }
            },
        }
    }
}

fn add(scope: &mut Scope<'_, Load>, directive: &Directive, verdict: Verdict) -> Result<(), Error> {
    let argument = &directive.args[0];
    let network = match &argument[..] {
        b"all" | b"unix:" => None,
        text => {
            let refused = || directive.error(message(&[&"invalid parameter \"", argument, &"\""]));
            let (network, low_bits) = Cidr::parse(text).ok_or_else(refused)?;
            if low_bits == LowBits::Ignored {
                let text = message(&[&"low address bits of ", argument, &" are meaningless"]);
                scope.warn(directive.error(text));
            }
            Some(network)
        }
    };
    let rules = scope.conf.location(&ACCESS_CONF).rules.here();
    match network {
        Some(network) => rules.add(network, verdict),
        None if argument == "all" => rules.add_all(verdict),
        None => rules.add_unix(verdict),
    }
    Ok(())
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    enabling.confs.of(&ACCESS_CONF).rules.is_set()
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let request = exchange.request;
    match request.conf(&ACCESS_CONF).rules.find(request.peer().ip()) {
        None => Step::Declined,
        Some(Verdict::Allow) => Step::Allowed,
        Some(Verdict::Deny) => {
            // Where another handler may still allow it, the engine says so in the end.
            if request.satisfy() == Satisfy::All {
                request.log(LogLevel::Error, format_args!("access forbidden by rule"));
            }
            Step::status(403)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Rules {
        let mut rules = Rules::default();
        for text in texts {
            let (verdict, text) = match text.split_at(1) {
                ("+", text) => (Verdict::Allow, text),
                (_, text) => (Verdict::Deny, text),
            };
            match text {
                "all" => rules.add_all(verdict),
                "unix:" => rules.add_unix(verdict),
                text => rules.add(Cidr::parse(text.as_bytes()).unwrap().0, verdict),
            }
        }
        rules
    }

    #[test]
    fn the_first_rule_decides() {
        let find = |texts: &[&str], ip: &str| rules(texts).find(ip.parse().ok());
        let (allow, deny) = (Some(Verdict::Allow), Some(Verdict::Deny));
        for (texts, ip, verdict) in [
            (&["+10.0.0.0/8", "-all"][..], "10.1.2.3", allow),
            (&["+10.0.0.0/8", "-all"], "11.1.2.3", deny),
            (&["+10.0.0.0/8", "-all"], "::1", deny),
            (&["+10.0.0.0/8", "-all"], "unix", deny),
            (&["-10.0.0.1", "+10.0.0.0/8"], "10.0.0.1", deny),
            (&["-10.0.0.1", "+10.0.0.0/8"], "10.0.0.2", allow),
            (&["-10.0.0.1", "+10.0.0.0/8"], "11.0.0.2", None),
            (&["-10.0.0.1"], "::ffff:10.0.0.1", deny),
            (&["-10.0.0.1"], "::ffff:10.0.0.2", None),
            (&["-::ffff:0:0/96"], "::ffff:10.0.0.2", deny),
            (&["-::ffff:0:0/96", "+10.0.0.1"], "::ffff:10.0.0.2", None),
            (&["-2001:db8::/32"], "2001:db8::1", deny),
            (&["-2001:db8::/32"], "2001:db9::1", None),
            (&["-0.0.0.0/0"], "::1", None),
            (&["+unix:", "-unix:"], "unix", allow),
            (&["+unix:", "-all"], "10.0.0.1", deny),
            (&["+10.0.0.1"], "unix", None),
        ] {
            assert_eq!(find(texts, ip), verdict, "{texts:?} {ip}");
        }
    }
}
