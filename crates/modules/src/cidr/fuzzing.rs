//! Invariants for any addresses that clients and proxies write, checked by the fuzz target `header_values`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Cidr, Depth, LowBits, forwarded, parse_ip, parse_ip_port};

/// The first line is a network, the second an address; the others are lines of `X-Forwarded-For`.
///
/// # Panics
/// If an address that is accepted is another one when it is written and read again, a network has other
/// addresses than those that begin with its bits, or proxies are followed in another way than word by word.
pub fn check(input: &[u8]) {
    let mut lines = input.split(|&byte| byte == b'\n');
    let network = lines.next().and_then(Cidr::parse).map(|(network, _)| network);
    let ip = lines.next().and_then(parse_ip);
    let lines: Vec<&[u8]> = lines.collect();
    for text in input.split(|byte| b"\n, /".contains(byte)) {
        check_address(text);
    }
    let (Some(network), Some(ip)) = (network, ip) else { return };
    let printed = format!("{}/{}", network.ip, network.prefix_bits);
    if is_printable(network.ip) {
        assert_eq!(Cidr::parse(printed.as_bytes()), Some((network, LowBits::Clear)));
    }
    assert_eq!(network.contains(ip), has(&network, ip));
    for depth in [Depth::Last, Depth::Untrusted] {
        let found = forwarded(ip, lines.iter().copied(), &[network], depth);
        assert_eq!(found, follow(ip, &lines, &network, depth));
    }
}

fn check_address(text: &[u8]) {
    let standard = std::str::from_utf8(text).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let ip = parse_ip(text);
    // The last of eight parts cannot be left out.
    let is_short = !text.ends_with(b"::") || text.iter().filter(|&&byte| byte == b':').count() < 8;
    if let Some(standard) = standard.filter(|&ip| is_short && is_printable(ip)) {
        assert_eq!(ip, Some(standard));
    }
    if let Some(ip) = ip.filter(|&ip| is_printable(ip)) {
        assert_eq!(parse_ip(ip.to_string().as_bytes()), Some(ip));
        assert_eq!(parse_ip_port(text), Some(SocketAddr::new(ip, 0)));
    }
    if let Some(address) = parse_ip_port(text).filter(|address| is_printable(address.ip())) {
        let printed = if address.port() == 0 { address.ip().to_string() } else { address.to_string() };
        assert_eq!(parse_ip_port(printed.as_bytes()), Some(address));
    }
}

/// All but the one that is none as it is written.
fn is_printable(ip: IpAddr) -> bool {
    ip.to_canonical() != IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Compares bit by bit.
fn has(network: &Cidr, ip: IpAddr) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => format!("4{:032b}", ip.to_bits()),
        IpAddr::V6(ip) => format!("6{:0128b}", ip.to_bits()),
    };
    let count = usize::from(network.prefix_bits) + 1;
    bits(ip.to_canonical()).starts_with(&bits(network.ip)[..count])
}

fn follow(mut ip: IpAddr, lines: &[&[u8]], network: &Cidr, depth: Depth) -> IpAddr {
    let mut words: Vec<Vec<u8>> = Vec::new();
    for line in lines {
        // The first byte of a line belongs to its first word, whatever it is.
        let (first, rest) = line.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
        let mut parts: Vec<Vec<u8>> = rest.split(|byte| b" ,".contains(byte)).map(<[u8]>::to_vec).collect();
        parts[0].splice(..0, first.copied());
        let is_empty = first.is_none();
        words.extend(parts.into_iter().filter(|word| is_empty || !word.is_empty()));
    }
    for word in words.iter().rev() {
        if !has(network, ip) {
            break;
        }
        let Some(named) = parse_ip_port(word) else { break };
        ip = named.ip();
        if depth == Depth::Last {
            break;
        }
    }
    ip
}
