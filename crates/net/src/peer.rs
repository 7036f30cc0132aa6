//! The address of a peer that connected, small enough to lie in every connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of a client. Displays as `$remote_addr` does: no port, `unix:` for unix sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddr {
    /// Address and port.
    V4(Ipv4Addr, u16),
    /// Address and port.
    V6(Ipv6Addr, u16),
    /// A unix socket; the client's end has no name as a rule, and none is shown.
    Unix,
}

impl PeerAddr {
    /// The address, where there is one.
    #[must_use]
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::V4(ip, _) => Some(IpAddr::V4(ip)),
            Self::V6(ip, _) => Some(IpAddr::V6(ip)),
            Self::Unix => None,
        }
    }

    /// The port (`$remote_port`), where there is one.
    #[must_use]
    pub fn port(self) -> Option<u16> {
        match self {
            Self::V4(_, port) | Self::V6(_, port) => Some(port),
            Self::Unix => None,
        }
    }
}

impl From<SocketAddr> for PeerAddr {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(*v4.ip(), v4.port()),
            SocketAddr::V6(v6) => Self::V6(*v6.ip(), v6.port()),
        }
    }
}

impl From<clearway_os::socket::Peer> for PeerAddr {
    fn from(peer: clearway_os::socket::Peer) -> Self {
        match peer {
            clearway_os::socket::Peer::Inet(address) => address.into(),
            clearway_os::socket::Peer::Unix => Self::Unix,
        }
    }
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip, _) => ip.fmt(f),
            Self::V6(ip, _) => V6Text(*ip).fmt(f),
            Self::Unix => f.write_str("unix:"),
        }
    }
}

/// An IPv6 address as nginx writes it: as RFC 5952 says, and the addresses that embed an IPv4 one
/// behind 96 zero bits with dots.
pub(crate) struct V6Text(pub(crate) Ipv6Addr);

impl fmt::Display for V6Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octets = self.0.octets();
        let [.., a, b, c, d] = octets;
        let zeros = octets[..12].iter().all(|&octet| octet == 0);
        let embedded = if (a, b) == (0, 0) { c != 0 && d != 1 } else { true };
        if zeros && embedded { write!(f, "::{a}.{b}.{c}.{d}") } else { self.0.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_small() {
        assert!(size_of::<PeerAddr>() <= 20);
    }

    #[test]
    fn displays_as_remote_addr() {
        let table = [
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "::1"),
            ("[::]:80", "::"),
            ("[2001:db8:0:0:1:0:0:1]:1", "2001:db8::1:0:0:1"),
            ("[2001:0:1:2:3:4:5:6]:1", "2001:0:1:2:3:4:5:6"),
            ("[::ffff:1.2.3.4]:1", "::ffff:1.2.3.4"),
            ("[::1.2.3.4]:1", "::1.2.3.4"),
            ("[::1234]:1", "::0.0.18.52"),
            ("[::1201]:1", "::1201"),
            ("[::12]:1", "::12"),
            ("[fe80::1]:1", "fe80::1"),
        ];
        for (address, expected) in table {
            let peer = PeerAddr::from(address.parse::<SocketAddr>().unwrap());
            assert_eq!(peer.to_string(), expected);
        }
        assert_eq!(PeerAddr::Unix.to_string(), "unix:");
        let peer = PeerAddr::from("127.0.0.1:80".parse::<SocketAddr>().unwrap());
        assert_eq!((peer.port(), peer.ip()), (Some(80), Some(Ipv4Addr::LOCALHOST.into())));
    }
}
