//! `realip`: the client's address behind trusted proxies, by a header or by the PROXY protocol. Settings are
//! read at load, where names are resolved; the address is changed on a loop, once per request: before a
//! location is looked for, or else in the location. Everything that asks for the client's address afterwards
//! sees the changed one, for the rest of the request.

use bytes::Bytes;
use clearway_base::log::{Verbatim, bytes_of};
use clearway_conf::error::printed;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    ConfKey, Cost, Enabling, Exchange, HeaderName, Level, Load, Module, Phase, PhaseHandler, Presence,
    Request, Setting, Step, VariableKind, VariableSpec, context, put_decimal, set, settings,
};
use clearway_net::PeerAddr;
use clearway_net::listen::Resolve;

use crate::cidr::{Cidr, Depth, LowBits, forwarded_peer};

/// The module.
pub static REALIP: Module = Module {
    name: "realip",
    directives: DIRECTIVES,
    confs: &[&REALIP_CONF],
    variables: VARIABLES,
    phases: PHASES,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "set_real_ip_from",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "set_real_ip_from ADDRESS[/BITS] | NAME | unix:",
        default: "",
        doc: "Proxies that are trusted to tell the client's address; `unix:` are all unix sockets. Names \
              are resolved when the configuration is read.",
        example: EXAMPLE_OF_BEHIND_BALANCERS,
        see: &["real_ip_header", "real_ip_recursive", "listen", "allow"],
        handler: set_real_ip_from,
    },
    Spec {
        name: "real_ip_header",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "real_ip_header HEADER | X-Real-IP | X-Forwarded-For | proxy_protocol",
        default: "real_ip_header X-Real-IP;",
        doc: "Where trusted proxies write the address of the client, with or without a port. Of addresses in \
              a list the last one counts.",
        example: EXAMPLE_OF_BEHIND_BALANCERS,
        see: &["set_real_ip_from", "real_ip_recursive", "listen", "allow"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&REALIP_CONF).place, |directive| {
                Ok(AddressSource::parse(&directive.args[0]))
            })
        },
    },
    Spec {
        name: "real_ip_recursive",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "real_ip_recursive on | off",
        default: "real_ip_recursive off;",
        doc: "Whether of addresses in a list the last one counts that is not trusted itself.",
        example: EXAMPLE_OF_BEHIND_BALANCERS,
        see: &["set_real_ip_from", "real_ip_header", "listen", "allow"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&REALIP_CONF).depth, |directive| {
                Ok(if directive.flag(0)? { Depth::Untrusted } else { Depth::Last })
            })
        },
    },
];

/// The example of `set_real_ip_from`, `real_ip_header` and `real_ip_recursive`.
const EXAMPLE_OF_BEHIND_BALANCERS: &str = "
    # Behind two balancers, which append to X-Forwarded-For.
    set_real_ip_from 192.0.2.0/24;
    set_real_ip_from 2001:db8:1::/48;
    real_ip_header X-Forwarded-For;
    real_ip_recursive on;";

static VARIABLES: &[VariableSpec] = &[
    VariableSpec {
        name: "realip_remote_addr",
        kind: VariableKind::Exact,
        doc: "Address of the connection's other end, before `realip` changed `$remote_addr`.",
        eval: |view, _, out| Presence::put(Some(view.request.connection_peer().to_string().as_bytes()), out),
    },
    VariableSpec {
        name: "realip_remote_port",
        kind: VariableKind::Exact,
        doc: "Port of the connection's other end, before `realip` changed `$remote_port`.",
        eval: |view, _, out| {
            if let Some(port) = view.request.connection_peer().port().filter(|&port| port > 0) {
                put_decimal(out, u64::from(port));
            }
            Presence::Found
        },
    },
];

static PHASES: &[PhaseHandler] = &[
    PhaseHandler { phase: Phase::PostRead, cost: Cost::Cheap, enabled: is_enabled, handler },
    PhaseHandler { phase: Phase::PreAccess, cost: Cost::Cheap, enabled: is_enabled, handler },
];

static REALIP_CONF: ConfKey<RealipConf> = ConfKey::new(Level::Location);

settings! {
    struct RealipConf {
        trusted: Setting<Vec<Trusted>>,
        place: Setting<AddressSource> = AddressSource::RealIp,
        depth: Setting<Depth> = Depth::Last,
    }
}

/// The networks that are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trusted {
    Network(Cidr),
    Unix,
}

impl Trusted {
    fn has(&self, peer: PeerAddr) -> bool {
        match (self, peer.ip()) {
            (Self::Network(network), Some(ip)) => network.contains(ip),
            (Self::Unix, None) => true,
            _ => false,
        }
    }
}

/// Where the address of the client is written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AddressSource {
    /// `X-Real-IP`.
    RealIp,
    /// All lines of `X-Forwarded-For`.
    ForwardedFor,
    /// Another header, of which the first line counts.
    Header(Bytes),
    /// The header of the PROXY protocol.
    ProxyProtocol,
}

impl AddressSource {
    /// Names of headers are the same in any case, but these are not looked for in any other than the usual
    /// one: `x-forwarded-for` is a header of which one line counts, as in nginx.
    fn parse(argument: &Bytes) -> Self {
        match &argument[..] {
            b"X-Real-IP" => Self::RealIp,
            b"X-Forwarded-For" => Self::ForwardedFor,
            b"proxy_protocol" => Self::ProxyProtocol,
            _ => Self::Header(argument.clone()),
        }
    }
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    !enabling.confs.of(&REALIP_CONF).trusted.is_empty()
}

fn handler(exchange: Exchange<'_, '_>) -> Step<'static> {
    let request = exchange.request;
    if !request.has_changed_peer()
        && let Some(peer) = find(request, request.conf(&REALIP_CONF))
    {
        request.set_peer(peer);
    }
    Step::Declined
}

/// The client's address, if a trusted proxy names it.
fn find(request: &Request<'_>, conf: &RealipConf) -> Option<PeerAddr> {
    let named = |wanted: &'static [u8]| lines(request, wanted);
    let follow = |lines: &[&[u8]]| {
        let trusts = |peer: PeerAddr| conf.trusted.iter().any(|trusted| trusted.has(peer));
        forwarded_peer(request.connection_peer(), lines.iter().copied(), trusts, *conf.depth)
    };
    match &*conf.place {
        AddressSource::RealIp => follow(&[named(b"x-real-ip").next()?]),
        AddressSource::ForwardedFor => {
            let lines: smallvec::SmallVec<[&[u8]; 4]> = named(b"x-forwarded-for").collect();
            follow(&lines)
        }
        AddressSource::Header(name) => follow(&[lines(request, name).next()?]),
        AddressSource::ProxyProtocol => {
            let source = &request.proxied()?.source;
            Some(match follow(&[source.address.as_bytes()])? {
                PeerAddr::V4(ip, _) => PeerAddr::V4(ip, source.port),
                PeerAddr::V6(ip, _) => PeerAddr::V6(ip, source.port),
                PeerAddr::Unix => PeerAddr::Unix,
            })
        }
    }
}

fn lines<'a>(request: &'a Request<'_>, wanted: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    request.headers_named(HeaderName::new(wanted))
}

fn set_real_ip_from(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let argument = &directive.args[0];
    let mut found: Vec<Trusted> = Vec::new();
    if &argument[..] == b"unix:" {
        found.push(Trusted::Unix);
    } else if let Some((network, low_bits)) = Cidr::parse(argument) {
        if low_bits == LowBits::Ignored {
            let text = Verbatim(argument);
            scope.warn(directive.error(bytes_of(&format!("low address bits of {text} are meaningless"))));
        }
        found.push(Trusted::Network(network));
    } else {
        let host = std::str::from_utf8(argument).unwrap_or_default();
        let addresses = if host.is_empty() { Vec::new() } else { scope.conf.resolver().resolve(host) };
        if addresses.is_empty() {
            let message = clearway_conf::error::message(&[
                &"host not found in set_real_ip_from \"",
                &printed(argument),
                &"\"",
            ]);
            return Err(directive.error(message));
        }
        found.extend(addresses.iter().map(|address| Trusted::Network(Cidr::only(address.ip()))));
    }
    scope.conf.location(&REALIP_CONF).trusted.here().extend(found);
    Ok(())
}
