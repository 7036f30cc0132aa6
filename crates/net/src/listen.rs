//! The first argument of `listen`: what nginx accepts, what it says about the rest, and which sockets
//! a set of addresses needs. Boot only, where asking the resolver is allowed.

use clearway_base::log::Verbatim;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::peer::V6Text;

/// The port of a `listen` without one.
pub const DEFAULT_PORT: u16 = 80;

/// Longest path of a unix socket in bytes.
pub const UNIX_PATH_MAX_BYTES: usize = 107;

/// An address to listen on. Equal addresses are one socket; displays as in nginx's messages and
/// configuration dumps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddr {
    /// IPv4 or IPv6; flow label and scope are 0.
    Inet(SocketAddr),
    /// Path of a unix socket.
    Unix(Box<[u8]>),
}

impl ListenAddr {
    /// Whether it stands for all addresses of the machine.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Self::Inet(address) if address.ip().is_unspecified())
    }

    /// The port, where there is one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Inet(address) => Some(address.port()),
            Self::Unix(_) => None,
        }
    }

    /// Addresses of one family and port may share a wildcard socket.
    fn shares_port_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inet(one), Self::Inet(two)) => one.is_ipv4() == two.is_ipv4() && one.port() == two.port(),
            (Self::Unix(one), Self::Unix(two)) => one == two,
            _ => false,
        }
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(SocketAddr::V4(v4)) => v4.fmt(f),
            Self::Inet(SocketAddr::V6(v6)) => write!(f, "[{}]:{}", V6Text(*v6.ip()), v6.port()),
            Self::Unix(path) => write!(f, "unix:{}", Verbatim(path)),
        }
    }
}

/// Why an address is refused; displays nginx's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrError {
    /// A slash, a missing bracket, or something else behind one.
    InvalidHost,
    /// No number from 1 to 65535.
    InvalidPort,
    /// The second port is below the first.
    InvalidPortRange,
    /// No host in front of the port.
    NoHost,
    /// The text in brackets is no IPv6 address.
    InvalidIpv6,
    /// The resolver knows no such name.
    HostNotFound,
    /// `unix:` alone.
    NoPath,
    /// Longer than [`UNIX_PATH_MAX_BYTES`].
    PathTooLong,
}

impl AddrError {
    /// The error of a `listen` directive with this argument, in nginx's words.
    #[must_use]
    pub fn message(self, argument: &[u8]) -> String {
        format!("{self} in \"{}\" of the \"listen\" directive", Verbatim(argument))
    }
}

impl fmt::Display for AddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidHost => "invalid host",
            Self::InvalidPort => "invalid port",
            Self::InvalidPortRange => "invalid port range",
            Self::NoHost => "no host",
            Self::InvalidIpv6 => "invalid IPv6 address",
            Self::HostNotFound => "host not found",
            Self::NoPath => "no path in the unix domain socket",
            Self::PathTooLong => "too long path in the unix domain socket",
        })
    }
}

impl std::error::Error for AddrError {}

/// Resolves names of the configuration while it is loaded.
pub trait Resolve {
    /// The addresses of a host in the order of preference; empty when it is unknown. Ports are ignored.
    fn resolve(&self, host: &str) -> Vec<SocketAddr>;
}

/// Asks the system, which may take seconds: boot only.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    #[expect(clippy::disallowed_methods, reason = "configuration is loaded before any loop runs")]
    fn resolve(&self, host: &str) -> Vec<SocketAddr> {
        let Ok(addresses) = std::net::ToSocketAddrs::to_socket_addrs(&(host, 0)) else { return Vec::new() };
        let mut addresses: Vec<_> = addresses.collect();
        // As with AI_ADDRCONFIG: where IPv6 is not configured a name means its IPv4 addresses.
        if addresses.iter().any(SocketAddr::is_ipv4) && !ipv6_is_configured() {
            addresses.retain(SocketAddr::is_ipv4);
        }
        addresses
    }
}

/// The names of one configuration. Each is asked for once; a worker is handed what its master has found, so
/// that both mean the same, whatever the system says a moment later.
#[derive(Debug, Default)]
pub struct HostNames(Mutex<BTreeMap<String, Vec<SocketAddr>>>);

impl HostNames {
    /// Names that were resolved before, by the master.
    #[must_use]
    pub fn handed(names: Vec<(String, Vec<SocketAddr>)>) -> Self {
        Self(Mutex::new(names.into_iter().collect()))
    }

    /// All that were found.
    #[must_use]
    pub fn list(&self) -> Vec<(String, Vec<SocketAddr>)> {
        self.names().iter().map(|(name, addresses)| (name.clone(), addresses.clone())).collect()
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Vec<SocketAddr>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolve for HostNames {
    fn resolve(&self, host: &str) -> Vec<SocketAddr> {
        if let Some(known) = self.names().get(host) {
            return known.clone();
        }
        let found = SystemResolver.resolve(host);
        if !found.is_empty() {
            self.names().insert(host.to_owned(), found.clone());
        }
        found
    }
}

/// Whether an interface other than loopback has an IPv6 address.
fn ipv6_is_configured() -> bool {
    #[expect(clippy::disallowed_methods, reason = "boot only, and /proc is memory")]
    let interfaces = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    interfaces.lines().any(|line| !line.trim_end().ends_with(" lo"))
}

/// Reads the first argument of `listen`: `ADDRESS[:PORT[-LAST]]`, `PORT[-LAST]`, `*:PORT`,
/// `[IPV6]:PORT`, `NAME:PORT` or `unix:PATH`. More than one address comes from a range of ports or a
/// name; none is there twice.
///
/// # Errors
/// When the configuration is to be refused.
pub fn parse_listen(argument: &[u8], resolver: &dyn Resolve) -> Result<Vec<ListenAddr>, AddrError> {
    if argument.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"unix:")) {
        return match &argument[5..] {
            [] => Err(AddrError::NoPath),
            path if path.len() > UNIX_PATH_MAX_BYTES => Err(AddrError::PathTooLong),
            path => Ok(vec![ListenAddr::Unix(path.into())]),
        };
    }
    match argument {
        [b'[', rest @ ..] => parse_inet6(rest),
        _ => parse_inet(argument, resolver),
    }
}

/// First and last port.
type Ports = (u16, u16);

const DEFAULT_PORTS: Ports = (DEFAULT_PORT, DEFAULT_PORT);

/// Parses the text behind the opening bracket.
fn parse_inet6(rest: &[u8]) -> Result<Vec<ListenAddr>, AddrError> {
    let end = position(rest, b']').ok_or(AddrError::InvalidHost)?;
    let (host, behind) = (&rest[..end], &rest[end + 1..]);
    if behind.contains(&b'/') {
        return Err(AddrError::InvalidHost);
    }
    let ports = match behind {
        [] => DEFAULT_PORTS,
        [b':', ports @ ..] => parse_ports(ports)?,
        _ => return Err(AddrError::InvalidHost),
    };
    if host.is_empty() {
        return Err(AddrError::NoHost);
    }
    let text = std::str::from_utf8(host).map_err(|_| AddrError::InvalidIpv6)?;
    let ip: Ipv6Addr = text.parse().map_err(|_| AddrError::InvalidIpv6)?;
    Ok(with_ports(&[SocketAddrV6::new(ip, 0, 0, 0).into()], ports))
}

fn parse_inet(argument: &[u8], resolver: &dyn Resolve) -> Result<Vec<ListenAddr>, AddrError> {
    if argument.contains(&b'/') || argument.contains(&b'?') {
        return Err(AddrError::InvalidHost);
    }
    let (host, ports) = match position(argument, b':') {
        Some(colon) => (&argument[..colon], parse_ports(&argument[colon + 1..])?),
        None => match parse_ports_alone(argument) {
            Some(ports) => (&b"*"[..], ports?),
            None => (argument, DEFAULT_PORTS),
        },
    };
    let ip = match host {
        b"" => return Err(AddrError::NoHost),
        b"*" => Some(Ipv4Addr::UNSPECIFIED),
        host => parse_ipv4(host),
    };
    if let Some(ip) = ip {
        return Ok(with_ports(&[SocketAddrV4::new(ip, 0).into()], ports));
    }
    let addresses = std::str::from_utf8(host).map(|host| resolver.resolve(host)).unwrap_or_default();
    if addresses.is_empty() {
        return Err(AddrError::HostNotFound);
    }
    Ok(with_ports(&addresses, ports))
}

/// An argument that is a port or a range of ports and nothing else. A dash does not make it one: it
/// may stand in a name.
fn parse_ports_alone(argument: &[u8]) -> Option<Result<Ports, AddrError>> {
    let (first, last) = match position(argument, b'-') {
        Some(dash) => (number(&argument[..dash])?, number(&argument[dash + 1..])?),
        None => {
            let port = number(argument)?;
            (port, port)
        }
    };
    Some(check_ports(first, last))
}

fn parse_ports(text: &[u8]) -> Result<Ports, AddrError> {
    let (first, last) = match position(text, b'-') {
        Some(dash) => (number(&text[..dash]), number(&text[dash + 1..])),
        None => (number(text), number(text)),
    };
    check_ports(first.ok_or(AddrError::InvalidPort)?, last.ok_or(AddrError::InvalidPort)?)
}

fn check_ports(first: u64, last: u64) -> Result<Ports, AddrError> {
    let port = |number: u64| u16::try_from(number).ok().filter(|&port| port > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        (Some(_), Some(_)) => Err(AddrError::InvalidPortRange),
        _ => Err(AddrError::InvalidPort),
    }
}

/// Checks a port.
pub(crate) fn check_port(text: &[u8]) -> Result<u16, AddrError> {
    let port = number(text).and_then(|number| u16::try_from(number).ok());
    port.filter(|&port| port > 0).ok_or(AddrError::InvalidPort)
}

/// Digits only, as nginx's ngx_atoi.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Four numbers up to 255. As in nginx one may have zeros in front or be missing, which is 0.
pub(crate) fn parse_ipv4(host: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = host.split(|&byte| byte == b'.');
    for octet in &mut octets {
        for &digit in parts.next()? {
            let value = u16::from(*octet) * 10 + u16::from(digit.is_ascii_digit().then(|| digit - b'0')?);
            *octet = u8::try_from(value).ok()?;
        }
    }
    parts.next().is_none().then(|| octets.into())
}

pub(crate) fn position(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().position(|&other| other == byte)
}

fn with_ports(addresses: &[SocketAddr], (first, last): Ports) -> Vec<ListenAddr> {
    let mut unique: Vec<SocketAddr> = Vec::with_capacity(addresses.len());
    for address in addresses {
        if unique.iter().all(|other| other.ip() != address.ip()) {
            unique.push(*address);
        }
    }
    let ports = |address: SocketAddr| {
        (first..=last).map(move |port| ListenAddr::Inet(SocketAddr::new(address.ip(), port)))
    };
    unique.into_iter().flat_map(ports).collect()
}

/// Whether a `listen` has options that ask for a socket of its own (`bind`, `backlog=`, `reuseport` …).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnSocket {
    /// No: a wildcard of the same port may serve it.
    No,
    /// Yes.
    Yes,
}

/// One socket to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPlan {
    /// Index of the address to bind.
    pub bind: usize,
    /// Indices of the addresses whose connections arrive there, the bound one last. With more than one
    /// the local address of a connection tells them apart, and the last is for all others.
    pub serves: Vec<usize>,
}

/// Which sockets a set of different addresses needs: where a port is bound for all addresses, those of
/// the same port that do not ask for a socket of their own are served by that one.
#[must_use]
pub fn plan_sockets(addresses: &[(ListenAddr, OwnSocket)]) -> Vec<SocketPlan> {
    let mut plans = Vec::new();
    for (at, (address, own)) in addresses.iter().enumerate() {
        let same_port = |(_, (other, _)): &(usize, &(ListenAddr, OwnSocket))| other.shares_port_with(address);
        let mut others = addresses.iter().enumerate().filter(same_port);
        if address.is_wildcard() {
            let implicit = others.filter(|(index, (_, own))| *index != at && *own == OwnSocket::No);
            let mut serves: Vec<usize> = implicit.map(|(index, _)| index).collect();
            serves.push(at);
            plans.push(SocketPlan { bind: at, serves });
        } else if *own == OwnSocket::Yes || !others.any(|(_, (other, _))| other.is_wildcard()) {
            plans.push(SocketPlan { bind: at, serves: vec![at] });
        }
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows one name, with both families and a repetition.
    struct Names;

    impl Resolve for Names {
        fn resolve(&self, host: &str) -> Vec<SocketAddr> {
            let addresses = ["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"].map(|text| text.parse().unwrap());
            if host == "local-host" { addresses.to_vec() } else { Vec::new() }
        }
    }

    fn parse(argument: &str) -> Result<Vec<String>, String> {
        let addresses = parse_listen(argument.as_bytes(), &Names).map_err(|error| error.to_string())?;
        Ok(addresses.iter().map(ListenAddr::to_string).collect())
    }

    #[test]
    fn addresses_as_in_nginx() {
        for (argument, expected) in [
            ("8080", "0.0.0.0:8080"),
            ("*", "0.0.0.0:80"),
            ("*:81", "0.0.0.0:81"),
            ("0.0.0.0", "0.0.0.0:80"),
            ("127.0.0.1", "127.0.0.1:80"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("127.000.000.001:8080", "127.0.0.1:8080"),
            ("127..0.1:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::]:8080"),
            ("[::1]", "[::1]:80"),
            ("[0:0:0:0:0:0:0:1]:8080", "[::1]:8080"),
            ("[::ffff:127.0.0.1]:8080", "[::ffff:127.0.0.1]:8080"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
            ("UNIX:x", "unix:x"),
            ("8080-8082", "0.0.0.0:8080 0.0.0.0:8081 0.0.0.0:8082"),
            ("127.0.0.1:8080-8081", "127.0.0.1:8080 127.0.0.1:8081"),
            ("[::1]:8080-8081", "[::1]:8080 [::1]:8081"),
            ("local-host", "127.0.0.1:80 [::1]:80"),
            ("local-host:1-2", "127.0.0.1:1 127.0.0.1:2 [::1]:1 [::1]:2"),
        ] {
            assert_eq!(parse(argument).map(|list| list.join(" ")), Ok(expected.to_owned()), "{argument}");
        }
        assert_eq!(parse(&format!("unix:/{}", "x".repeat(106))).unwrap().len(), 1);
    }

    /// The words of nginx 1.31.5.
    #[test]
    fn refused_as_in_nginx() {
        for (message, arguments) in [
            ("invalid port", "0|65536|127.0.0.1:0|127.0.0.1:65536|127.0.0.1:x|127.0.0.1:|[::1]:|[::1]:0"),
            ("invalid port", "127.0.0.1:81-|127.0.0.1:-81|0-81|81-0|81-65536|127.0.0.1:+81|a:b:c|::1"),
            ("invalid port", "127.0.0.1:81:1|:x|local-host:99999999999999999999"),
            ("invalid port range", "8082-8080|127.0.0.1:82-81|[::1]:82-81"),
            ("no host", ":81||[]:81"),
            ("invalid host", "127.0.0.1:81/|127.0.0.1:81?|a/b|[::1|[::1]81|[::1]:81/"),
            ("invalid IPv6 address", "[::g]:81|[1.2.3.4]:81|[::1%lo]:81"),
            ("host not found", "99999999999999999999|81-x|x-81|nosuch:81|256.0.0.1:81|1.2.3.4.5:81|-|1.2.3"),
            ("no path in the unix domain socket", "unix:"),
        ] {
            for argument in arguments.split('|') {
                assert_eq!(parse(argument), Err(message.to_owned()), "{argument}");
            }
        }
        assert_eq!(parse_listen(b"\xff", &Names), Err(AddrError::HostNotFound));
        let long = format!("unix:/{}", "x".repeat(107));
        assert_eq!(parse(&long), Err("too long path in the unix domain socket".to_owned()));
        let message = AddrError::InvalidPort.message(b"0");
        assert_eq!(message, "invalid port in \"0\" of the \"listen\" directive");
    }

    #[test]
    fn the_system_knows_localhost() {
        let addresses = parse_listen(b"localhost:8080", &SystemResolver).unwrap();
        assert!(addresses.iter().any(|address| address.to_string() == "127.0.0.1:8080"));
        assert_eq!(parse_listen(b"no such name:8080", &SystemResolver), Err(AddrError::HostNotFound));
    }

    #[test]
    fn equal_addresses_are_one_key() {
        let one = |text| parse_listen(text, &Names).unwrap().remove(0);
        assert_eq!(one(b"80"), one(b"*:80"));
        assert_eq!(one(b"80"), one(b"0.0.0.0"));
        assert_eq!(one(b"[::1]:80"), one(b"[0::1]"));
        assert_ne!(one(b"[::]:80"), one(b"80"));
        assert_ne!(one(b"unix:/a"), one(b"unix:/b"));
        assert!(one(b"80").is_wildcard() && one(b"[::]:80").is_wildcard() && !one(b"[::1]:80").is_wildcard());
        assert_eq!((one(b"81").port(), one(b"unix:a").port()), (Some(81), None));
    }

    /// Each plan as `BOUND<SERVED,SERVED`.
    fn plan(arguments: &[&str]) -> Vec<String> {
        let addresses: Vec<_> = arguments
            .iter()
            .map(|argument| match argument.strip_suffix(" bind") {
                Some(argument) => {
                    (parse_listen(argument.as_bytes(), &Names).unwrap().remove(0), OwnSocket::Yes)
                }
                None => (parse_listen(argument.as_bytes(), &Names).unwrap().remove(0), OwnSocket::No),
            })
            .collect();
        let text = |plan: SocketPlan| {
            let serves: Vec<_> = plan.serves.iter().map(|&at| addresses[at].0.to_string()).collect();
            format!("{}<{}", addresses[plan.bind].0, serves.join(","))
        };
        plan_sockets(&addresses).into_iter().map(text).collect()
    }

    #[test]
    fn a_wildcard_serves_its_port() {
        assert_eq!(
            plan(&["127.0.0.1:1", "127.0.0.2:1"]),
            ["127.0.0.1:1<127.0.0.1:1", "127.0.0.2:1<127.0.0.2:1"]
        );
        assert_eq!(
            plan(&["127.0.0.1:1", "*:1", "127.0.0.2:1"]),
            ["0.0.0.0:1<127.0.0.1:1,127.0.0.2:1,0.0.0.0:1"]
        );
        assert_eq!(
            plan(&["*:1 bind", "127.0.0.1:1 bind"]),
            ["0.0.0.0:1<0.0.0.0:1", "127.0.0.1:1<127.0.0.1:1"]
        );
        assert_eq!(
            plan(&["*:1", "127.0.0.1:2", "[::1]:1", "unix:/a"]),
            ["0.0.0.0:1<0.0.0.0:1", "127.0.0.1:2<127.0.0.1:2", "[::1]:1<[::1]:1", "unix:/a<unix:/a"]
        );
    }
}
