//! Addresses of other servers as directives name them (`server`, `resolver`, `proxy_pass`): what nginx takes
//! (`ngx_parse_url`), and what it says about the rest. Boot only where names are resolved; what a request has
//! evaluated is read with [`Names::Kept`].

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;

use clearway_base::log::Verbatim;
use clearway_os::outgoing::{Remote, UNIX_PATH_MAX_BYTES};

use crate::listen::{AddrError, Resolve, check_port, parse_ipv4, position};
use crate::peer::V6Text;

/// How an address is to be read.
#[derive(Clone, Copy)]
pub struct UrlRules<'a> {
    /// The port of an address without one; 0 is none.
    pub default_port: u16,
    /// Whether a path may follow.
    pub path: UrlPath,
    /// The treatment of names.
    pub names: Names<'a>,
}

/// Whether a path may follow an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlPath {
    /// The address may have a path (`proxy_pass`).
    Allowed,
    /// A slash makes the host invalid.
    Refused,
}

/// The treatment of names.
#[derive(Clone, Copy)]
pub enum Names<'a> {
    /// Names are resolved at once.
    Resolved(&'a dyn Resolve),
    /// Names stay names.
    Kept,
}

/// The parts of an address. Ranges are those of the text that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The name, address (with its brackets) or path of the socket.
    pub host: Range<usize>,
    /// The port as written; `None`: it has the default one.
    pub port_text: Option<Range<usize>>,
    /// The port, 0 of a unix socket or where there is none.
    pub port: u16,
    /// The path, with its slash or question mark; empty if there is none.
    pub path: Range<usize>,
    /// The addresses; empty for names that are kept.
    pub addresses: Vec<Remote>,
    /// Whether it is a unix socket.
    pub kind: UrlKind,
}

/// The kind of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlKind {
    /// An internet address.
    Inet,
    /// A name.
    Name,
    /// A unix socket.
    Unix,
}

/// Reads an address.
///
/// # Errors
/// In nginx's words.
pub fn parse_url(text: &[u8], rules: UrlRules<'_>) -> Result<Url, AddrError> {
    if text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"unix:")) {
        return parse_unix(text, rules.path);
    }
    match text.first() {
        Some(b'[') => parse_inet6(text, rules),
        _ => parse_inet(text, rules),
    }
}

fn parse_unix(text: &[u8], path: UrlPath) -> Result<Url, AddrError> {
    let colon = match path {
        UrlPath::Allowed => position(&text[5..], b':').map(|at| at + 5),
        UrlPath::Refused => None,
    };
    let end = colon.unwrap_or(text.len());
    match &text[5..end] {
        [] => Err(AddrError::NoPath),
        socket if socket.len() > UNIX_PATH_MAX_BYTES => Err(AddrError::PathTooLong),
        socket => Ok(Url {
            host: 5..end,
            port_text: None,
            port: 0,
            path: colon.map_or(end..end, |colon| colon + 1..text.len()),
            addresses: vec![Remote::Unix(socket.into())],
            kind: UrlKind::Unix,
        }),
    }
}

fn parse_inet6(text: &[u8], rules: UrlRules<'_>) -> Result<Url, AddrError> {
    let close = position(text, b']').ok_or(AddrError::InvalidHost)?;
    let end = match position(&text[close..], b'/') {
        Some(_) if rules.path == UrlPath::Refused => return Err(AddrError::InvalidHost),
        Some(at) => close + at,
        None => text.len(),
    };
    let port_text = match text.get(close + 1..end) {
        None | Some([]) => None,
        Some([b':', ..]) => Some(close + 2..end),
        Some(_) => return Err(AddrError::InvalidHost),
    };
    let port = port_of(text, port_text.as_ref(), rules)?;
    let address = &text[1..close];
    if address.is_empty() {
        return Err(AddrError::NoHost);
    }
    let address = std::str::from_utf8(address).map_err(|_| AddrError::InvalidIpv6)?;
    let ip: Ipv6Addr = address.parse().map_err(|_| AddrError::InvalidIpv6)?;
    Ok(Url {
        host: 0..close + 1,
        port_text,
        port,
        path: end..text.len(),
        addresses: vec![Remote::Inet(SocketAddrV6::new(ip, port, 0, 0).into())],
        kind: UrlKind::Inet,
    })
}

fn parse_inet(text: &[u8], rules: UrlRules<'_>) -> Result<Url, AddrError> {
    let end = match text.iter().position(|byte| matches!(byte, b'/' | b'?')) {
        Some(_) if rules.path == UrlPath::Refused => return Err(AddrError::InvalidHost),
        Some(at) => at,
        None => text.len(),
    };
    let colon = position(&text[..end], b':');
    let port_text = colon.map(|colon| colon + 1..end);
    let port = port_of(text, port_text.as_ref(), rules)?;
    let host = 0..colon.unwrap_or(end);
    if host.is_empty() {
        return Err(AddrError::NoHost);
    }
    let name = &text[host.clone()];
    let (kind, addresses) = match (parse_ipv4(name), rules.names) {
        (Some(ip), _) => (UrlKind::Inet, vec![Remote::Inet(SocketAddr::new(ip.into(), port))]),
        (None, Names::Kept) => (UrlKind::Name, Vec::new()),
        (None, Names::Resolved(resolver)) => (UrlKind::Name, resolve(name, port, resolver)?),
    };
    Ok(Url { host, port_text, port, path: end..text.len(), addresses, kind })
}

fn port_of(text: &[u8], port: Option<&Range<usize>>, rules: UrlRules<'_>) -> Result<u16, AddrError> {
    match port {
        Some(port) => check_port(&text[port.clone()]),
        None => Ok(rules.default_port),
    }
}

/// Where a name leads, at this port.
///
/// # Errors
/// If the system does not know it.
pub fn resolve(name: &[u8], port: u16, resolver: &dyn Resolve) -> Result<Vec<Remote>, AddrError> {
    let addresses = std::str::from_utf8(name).map(|name| resolver.resolve(name)).unwrap_or_default();
    if addresses.is_empty() {
        return Err(AddrError::HostNotFound);
    }
    Ok(addresses.into_iter().map(|address| Remote::Inet(SocketAddr::new(address.ip(), port))).collect())
}

/// An address as logs show it.
#[derive(Clone, Copy, Debug)]
pub struct RemoteText<'a>(pub &'a Remote);

impl fmt::Display for RemoteText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Remote::Inet(SocketAddr::V4(v4)) => v4.fmt(f),
            Remote::Inet(SocketAddr::V6(v6)) => write!(f, "[{}]:{}", V6Text(*v6.ip()), v6.port()),
            Remote::Unix(path) => write!(f, "unix:{}", Verbatim(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows one name, with both families.
    struct Known;

    impl Resolve for Known {
        fn resolve(&self, host: &str) -> Vec<SocketAddr> {
            let addresses = ["127.0.0.1:0", "[::1]:0"].map(|text| text.parse().unwrap());
            if host == "known" { addresses.to_vec() } else { Vec::new() }
        }
    }

    fn told(text: &str, path: UrlPath) -> Result<String, String> {
        let rules = UrlRules { default_port: 80, path, names: Names::Resolved(&Known) };
        let url = parse_url(text.as_bytes(), rules).map_err(|error| error.to_string())?;
        let addresses: Vec<_> = url.addresses.iter().map(|remote| RemoteText(remote).to_string()).collect();
        let port = url.port_text.map_or("-", |port| &text[port]);
        Ok(format!("{} {port} {} {} {}", &text[url.host], url.port, &text[url.path], addresses.join(",")))
    }

    #[test]
    fn addresses_with_a_path() {
        for (text, expected) in [
            ("127.0.0.1", "127.0.0.1 - 80  127.0.0.1:80"),
            ("127.0.0.1:81/a?b", "127.0.0.1 81 81 /a?b 127.0.0.1:81"),
            ("127.0.0.1?a/b:1", "127.0.0.1 - 80 ?a/b:1 127.0.0.1:80"),
            ("known:8080/", "known 8080 8080 / 127.0.0.1:8080,[::1]:8080"),
            ("[::1]:9/x", "[::1] 9 9 /x [::1]:9"),
            ("unix:/a/b:/c", "/a/b - 0 /c unix:/a/b"),
            ("UNIX:/a", "/a - 0  unix:/a"),
        ] {
            assert_eq!(told(text, UrlPath::Allowed).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (text, error) in [
            ("", "no host"),
            (":80", "no host"),
            ("a:0", "invalid port"),
            ("a:65536", "invalid port"),
            ("a:", "invalid port"),
            ("unknown", "host not found"),
            ("a/b", "invalid host"),
            ("a?b", "invalid host"),
            ("[::1", "invalid host"),
            ("[::1]x", "invalid host"),
            ("[::1]/x", "invalid host"),
            ("[]", "no host"),
            ("[::x]", "invalid IPv6 address"),
            ("unix:", "no path in the unix domain socket"),
        ] {
            assert_eq!(told(text, UrlPath::Refused), Err(error.to_owned()), "{text}");
        }
        assert_eq!(told("unix::/x", UrlPath::Allowed), Err("no path in the unix domain socket".to_owned()));
        assert_eq!(told("unix:/a:b", UrlPath::Refused).as_deref(), Ok("/a:b - 0  unix:/a:b"));
    }

    #[test]
    fn names_that_are_kept_have_no_address() {
        let rules = UrlRules { default_port: 0, path: UrlPath::Refused, names: Names::Kept };
        let url = parse_url(b"unknown", rules).unwrap();
        assert_eq!((url.kind, url.port, url.addresses.len()), (UrlKind::Name, 0, 0));
    }
}
