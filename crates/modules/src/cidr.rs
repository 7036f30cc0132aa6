//! Addresses and networks as nginx reads them, and the address behind trusted proxies. Pure functions,
//! run at load and on loops.

#[cfg(fuzzing)]
pub mod fuzzing;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clearway_base::units;
use clearway_net::PeerAddr;

/// Parses an address. IPv4 is four numbers of any length between dots, each of which may be missing; as in
/// nginx `255.255.255.255` is not accepted.
pub(crate) fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    parse_ipv4(text).map(IpAddr::V4).or_else(|| parse_ipv6(text).map(IpAddr::V6))
}

/// Parses an IPv6 address as nginx does: a colon may stand in front of it; behind a `::` an empty group at
/// the end is zero, so that `1::2:` is an address and `1:2:3:4:5:6:7::` is not; an IPv4 address at the end
/// follows the rules of [`parse_ipv4`].
fn parse_ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    let mut parts = text.strip_prefix(b":").unwrap_or(text).split(|&byte| byte == b':');
    let mut last = parts.next()?;
    let (mut groups, mut count, mut left_out) = ([0_u16; 8], 0, None);
    for part in parts {
        if !last.is_empty() {
            *groups.get_mut(count)? = parse_group(last)?;
            count += 1;
        } else if left_out.replace(count).is_some() {
            return None;
        }
        last = part;
    }
    let is_behind_colon = count > 0 || left_out.is_some();
    if is_behind_colon && let Some(dot) = memchr::memchr(b'.', last) {
        parse_group(&last[..dot])?;
        let [a, b, c, d] = parse_ipv4(last)?.octets();
        *groups.get_mut(count)? = u16::from_be_bytes([a, b]);
        *groups.get_mut(count + 1)? = u16::from_be_bytes([c, d]);
        count += 2;
    } else if !last.is_empty() || left_out.is_some() {
        *groups.get_mut(count)? = if last.is_empty() { 0 } else { parse_group(last)? };
        count += 1;
    } else {
        return None;
    }
    match left_out {
        Some(at) if count < 8 => groups[at..].rotate_right(8 - count),
        None if count == 8 => {}
        _ => return None,
    }
    Some(groups.into())
}

/// One to four hexadecimal digits.
fn parse_group(digits: &[u8]) -> Option<u16> {
    let number = |number: u16, &byte: &u8| Some(number << 4 | char::from(byte).to_digit(16)? as u16);
    if digits.is_empty() || digits.len() > 4 { None } else { digits.iter().try_fold(0, number) }
}

/// An IPv4 address in text, as in `parse_ip`.
pub(crate) fn parse_ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split(|&byte| byte == b'.');
    for octet in &mut octets {
        for digit in parts.next()? {
            let digit = digit.checked_sub(b'0').filter(|&digit| digit <= 9)?;
            *octet = octet.checked_mul(10)?.checked_add(digit)?;
        }
    }
    let ip = Ipv4Addr::from(octets);
    (parts.next().is_none() && ip != Ipv4Addr::BROADCAST).then_some(ip)
}

/// Parses an address and the port behind it, 0 where there is none. An IPv6 address may stand in brackets,
/// and must if a port follows.
fn parse_ip_port(text: &[u8]) -> Option<SocketAddr> {
    let alone = |ip| SocketAddr::new(ip, 0);
    if let Some(ip) = parse_ip(text) {
        return Some(alone(ip));
    }
    let (ip, rest) = match text.strip_prefix(b"[") {
        Some(inner) => {
            let (ip, rest) = inner.split_at(memchr::memchr(b']', inner)?);
            (ip, &rest[1..])
        }
        None => text.split_at(memchr::memchr(b':', text)?),
    };
    let ip = parse_ip(ip)?;
    if rest.is_empty() {
        return Some(alone(ip));
    }
    let port = units::parse_number(rest.strip_prefix(b":")?)?;
    Some(SocketAddr::new(ip, u16::try_from(port).ok().filter(|&port| port > 0)?))
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    /// Its first address.
    pub(crate) ip: IpAddr,
    /// How many bits of it count.
    pub(crate) prefix_bits: u8,
}

/// Whether a network was written with bits behind its prefix, which is worth a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LowBits {
    Clear,
    Ignored,
}

impl Cidr {
    /// Parses `ADDRESS[/BITS]`.
    pub(crate) fn parse(text: &[u8]) -> Option<(Self, LowBits)> {
        let (ip, bits) = match memchr::memchr(b'/', text) {
            Some(slash) => (&text[..slash], Some(&text[slash + 1..])),
            None => (text, None),
        };
        let ip = parse_ip(ip)?;
        let max_bits = if ip.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => units::parse_number(bits).filter(|&bits| bits <= max_bits)?,
            None => max_bits,
        };
        let network = Self { ip, prefix_bits: bits as u8 }.masked();
        Some((network, if network.ip == ip { LowBits::Clear } else { LowBits::Ignored }))
    }

    /// The network of one address.
    pub(crate) fn only(ip: IpAddr) -> Self {
        Self { ip, prefix_bits: if ip.is_ipv4() { 32 } else { 128 } }
    }

    fn masked(self) -> Self {
        let shift = |width: u32| width - u32::from(self.prefix_bits);
        let ip = match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(shift(32)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(shift(128)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
        };
        Self { ip, ..self }
    }

    /// Whether the network has an address. An IPv4 address mapped into IPv6 counts as IPv4.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.ip.is_ipv4() && Self { ip, ..*self }.masked().ip == self.ip
    }
}

/// How far a chain of proxies is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// To the address that the last proxy names.
    Last,
    /// To the first address that is not trusted.
    Untrusted,
}

/// Follows the addresses in `lines` (those of `X-Forwarded-For`, in their order) from the last one on, as
/// long as the address that names the next one is in one of the networks. `ip` is the sender of the request.
pub(crate) fn forwarded<'a>(
    ip: IpAddr,
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: &[Cidr],
    depth: Depth,
) -> IpAddr {
    let trusts =
        |peer: PeerAddr| peer.ip().is_some_and(|ip| trusted.iter().any(|network| network.contains(ip)));
    let found = forwarded_peer(SocketAddr::new(ip, 0).into(), lines, trusts, depth);
    found.and_then(PeerAddr::ip).unwrap_or(ip)
}

/// As [`forwarded`], with ports, and with a function that decides which senders are trusted; `None` where no
/// trusted sender has named another address.
pub(crate) fn forwarded_peer<'a>(
    mut peer: PeerAddr,
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusts: impl Fn(PeerAddr) -> bool,
    depth: Depth,
) -> Option<PeerAddr> {
    let mut found = None;
    for line in lines.rev() {
        let mut rest = line;
        loop {
            if !trusts(peer) {
                return found;
            }
            let Some((before, named)) = take_last(rest) else { return found };
            peer = named.into();
            found = Some(peer);
            rest = before;
            if depth == Depth::Last {
                return found;
            }
            if rest.is_empty() {
                break;
            }
        }
    }
    found
}

/// The last address of a list, and the list in front of it.
fn take_last(list: &[u8]) -> Option<(&[u8], SocketAddr)> {
    let is_separator = |byte: &u8| matches!(byte, b' ' | b',');
    let end = list.iter().rposition(|byte| !is_separator(byte))? + 1;
    // A separator at the very front belongs to the address, which makes it none.
    let start = list[1..end].iter().rposition(is_separator).map_or(0, |at| at + 2);
    let address = parse_ip_port(&list[start..end])?;
    Some((&list[..start.saturating_sub(1)], address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const NO_IPV6: [&str; 16] = [
        ":",
        "1",
        "1:",
        ":::",
        "1::2::3",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:",
        "1:2:3:4:5:6:7::",
        "1:2:3:4:5:6:7:8:9",
        "1::2:3:4:5:6:7:8",
        "::12345",
        ":1.2.3.4",
        "1:2:3:4:5:6:7:1.2.3.4",
        "::.1.2.3",
        "::ffff:255.255.255.255",
        "::1.2.3.4:5",
    ];

    #[test]
    fn addresses_as_in_nginx() {
        for (text, parsed) in [
            ("127.0.0.1", "127.0.0.1"),
            ("010.0.0.001", "10.0.0.1"),
            ("1..2.3", "1.0.2.3"),
            ("...", "0.0.0.0"),
            ("::1", "::1"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
            ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
            ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
            ("2001:DB8::00a", "2001:db8::a"),
            ("::", "::"),
            ("1::", "1::"),
            ("1:2:3:4:5:6::", "1:2:3:4:5:6::"),
            ("::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"),
            ("1::2:", "1::2:0"),
            ("::2:", "::2:0"),
            (":1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
            (":1::", "1::"),
            ("::1..2.003", "::1.0.2.3"),
        ] {
            assert_eq!(parse_ip(text.as_bytes()), Some(ip(parsed)), "{text}");
        }
        for text in
            ["", "1.2.3", "1.2.3.4.5", "256.0.0.1", "1.2.3.x", "255.255.255.255", "::x", "[::1]", "\u{e9}"]
                .into_iter()
                .chain(NO_IPV6)
        {
            assert_eq!(parse_ip(text.as_bytes()), None, "{text}");
        }
        for (text, parsed) in [
            ("127.0.0.1:80", Some("127.0.0.1:80")),
            ("127.0.0.1", Some("127.0.0.1:0")),
            ("[::1]:8", Some("[::1]:8")),
            ("[::1]", Some("[::1]:0")),
            ("[1.2.3.4]", Some("1.2.3.4:0")),
            ("::1", Some("[::1]:0")),
            ("127.0.0.1:0", None),
            ("127.0.0.1:65536", None),
            ("127.0.0.1:", None),
            ("[::1]8", None),
            ("[::1", None),
            ("unix:", None),
        ] {
            let parsed = parsed.map(|text| text.parse().unwrap());
            assert_eq!(parse_ip_port(text.as_bytes()), parsed, "{text}");
        }
    }

    #[test]
    fn networks_have_their_addresses() {
        let parse = |text: &str| Cidr::parse(text.as_bytes());
        let network = |text: &str| parse(text).unwrap().0;
        assert!(network("10.0.0.0/8").contains(ip("10.255.0.1")));
        assert!(network("10.0.0.0/8").contains(ip("::ffff:10.1.1.1")));
        assert!(!network("10.0.0.0/8").contains(ip("11.0.0.1")));
        assert!(network("0.0.0.0/0").contains(ip("11.0.0.1")) && !network("0.0.0.0/0").contains(ip("::1")));
        assert!(network("2001:db8::/33").contains(ip("2001:db8:7fff::1")));
        assert!(!network("2001:db8::/33").contains(ip("2001:db8:8000::1")));
        assert!(network("::1").contains(ip("::1")) && !network("::1").contains(ip("::2")));
        assert_eq!(parse("10.1.2.3/8").unwrap(), (network("10.0.0.0/8"), LowBits::Ignored));
        assert_eq!(parse("10.0.0.0/8").unwrap().1, LowBits::Clear);
        for text in ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/x", "x/8", "/8", "10.0.0.0/-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn proxies_are_followed_as_far_as_they_are_trusted() {
        let trusted = [Cidr::parse(b"127.0.0.0/8").unwrap().0, Cidr::parse(b"10.0.0.0/8").unwrap().0];
        let follow = |lines: &[&str], depth| {
            forwarded(ip("127.0.0.1"), lines.iter().map(|line| line.as_bytes()), &trusted, depth).to_string()
        };
        for (lines, last, untrusted) in [
            (&["1.1.1.1"][..], "1.1.1.1", "1.1.1.1"),
            (&["1.1.1.1, 10.0.0.1"], "10.0.0.1", "1.1.1.1"),
            (&["1.1.1.1,2.2.2.2 , 10.0.0.1 ,"], "10.0.0.1", "2.2.2.2"),
            (&["1.1.1.1", "10.0.0.1"], "10.0.0.1", "1.1.1.1"),
            (&["10.0.0.2", "10.0.0.1"], "10.0.0.1", "10.0.0.2"),
            (&["1.1.1.1, x, 10.0.0.1"], "10.0.0.1", "10.0.0.1"),
            (&["x"], "127.0.0.1", "127.0.0.1"),
            (&[",1.1.1.1"], "127.0.0.1", "127.0.0.1"),
            (&[""], "127.0.0.1", "127.0.0.1"),
            (&[" , "], "127.0.0.1", "127.0.0.1"),
            (&[], "127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(follow(lines, Depth::Last), last, "{lines:?}");
            assert_eq!(follow(lines, Depth::Untrusted), untrusted, "{lines:?}");
        }
        assert_eq!(
            forwarded(ip("9.9.9.9"), [&b"1.1.1.1"[..]].into_iter(), &trusted, Depth::Last),
            ip("9.9.9.9")
        );
    }
}
