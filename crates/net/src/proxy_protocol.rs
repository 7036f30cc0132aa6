//! The PROXY protocol as a proxy sends it at the start of a connection: version 1, a line of text, and
//! version 2, binary with typed values behind the addresses. Sees no socket and no clock; runs on loops.
//!
//! The same headers are accepted as in nginx, with the same messages; but here a header may arrive in pieces.
//! Source: the PROXY protocol's specification, versions 1 and 2.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use clearway_base::log::Verbatim;

use crate::peer::V6Text;

/// Longest header of version 1 that may arrive in pieces, bytes with its line end.
pub const V1_MAX_BYTES: usize = 107;

const V1_PREFIX: &[u8] = b"PROXY ";
/// The shortest thing that is looked at as a header, bytes.
const V1_MIN_BYTES: usize = 8;

const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The part of version 2 that has a fixed size, bytes.
const V2_FIXED_BYTES: usize = 16;
const V2_COMMAND_PROXY: u8 = 1;
const V2_TRANSPORT_STREAM: u8 = 1;
const V2_FAMILY_INET: u8 = 1;
const V2_FAMILY_INET6: u8 = 2;

/// Type and length of a typed value, bytes.
const TLV_HEAD_BYTES: usize = 3;
const TLV_SSL: u64 = 0x20;
/// Bytes in front of the values within the one about TLS: a byte and the result of the verification.
const TLV_SSL_FIXED_BYTES: usize = 5;

/// Names of typed values.
const TLV_NAMES: &[(&[u8], u64)] =
    &[(b"alpn", 0x01), (b"authority", 0x02), (b"unique_id", 0x05), (b"ssl", TLV_SSL), (b"netns", 0x30)];

/// Names of those within the one about TLS.
const TLV_SSL_NAMES: &[(&[u8], u64)] =
    &[(b"version", 0x21), (b"cn", 0x22), (b"cipher", 0x23), (b"sig_alg", 0x24), (b"key_alg", 0x25)];

/// The facts in a header about the connection that the proxy has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxied {
    /// The client that connected to the proxy.
    pub source: Endpoint,
    /// Where the proxy was connected to.
    pub destination: Endpoint,
    /// Typed values, one behind the other, as received.
    tlvs: Box<[u8]>,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address as text; as it was sent in version 1, where nothing says that it is one.
    pub address: Box<str>,
    /// The port.
    pub port: u16,
}

/// The kind of a connection's first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The beginning of a header.
    Incomplete,
    /// A header.
    Complete {
        /// Its contents; `None` for a connection that the proxy has made for itself, or of an unknown kind.
        proxied: Option<Box<Proxied>>,
        /// Its length, bytes.
        length: usize,
    },
}

/// Why bytes are no header. Displays nginx's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken<'a> {
    /// No header of version 1; the line as far as it goes.
    Line(&'a [u8]),
    /// Another version than 2 behind the signature.
    Version(u8),
    /// A header of version 2 that is larger than the buffer.
    TooLarge,
    /// Addresses that are cut short, of which nginx says nothing.
    Addresses,
}

impl fmt::Display for Broken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "broken header: \"{}\"", Verbatim(line)),
            Self::Version(version) => write!(f, "unknown PROXY protocol version: {version}"),
            Self::TooLarge => f.write_str("header is too large"),
            Self::Addresses => f.write_str("broken addresses"),
        }
    }
}

/// Looks at the first bytes of a connection, of which at most `max_bytes` are kept.
///
/// # Errors
/// When they are no header, whatever follows.
pub fn parse(received: &[u8], max_bytes: usize) -> Result<Progress, Broken<'_>> {
    if starts_alike(received, V2_SIGNATURE) {
        let Some(fixed) = received.first_chunk::<V2_FIXED_BYTES>() else {
            return match received.len() < max_bytes {
                true => Ok(Progress::Incomplete),
                false => Err(broken_line(received)),
            };
        };
        return parse_v2(received, fixed, max_bytes);
    }
    if !starts_alike(received, V1_PREFIX) {
        return Err(broken_line(received));
    }
    let Some(line_end) = received.iter().position(|&byte| byte == b'\n') else {
        return match received.len() < V1_MAX_BYTES.min(max_bytes) {
            true => Ok(Progress::Incomplete),
            false => Err(broken_line(received)),
        };
    };
    if received.len() < V1_MIN_BYTES {
        return Err(broken_line(received));
    }
    parse_v1(received, line_end).ok_or_else(|| broken_line(received))
}

/// Whether the shorter one is how the longer one begins.
fn starts_alike(one: &[u8], two: &[u8]) -> bool {
    one.iter().zip(two).all(|(one, two)| one == two)
}

fn broken_line(received: &[u8]) -> Broken<'_> {
    let end = received.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    Broken::Line(&received[..end.unwrap_or(received.len())])
}

/// A line that ends at `line_end`; `None` when it is broken.
fn parse_v1(received: &[u8], line_end: usize) -> Option<Progress> {
    let rest = &received[V1_PREFIX.len()..=line_end];
    if let Some(rest) = rest.strip_prefix(b"UNKNOWN") {
        // A bare line feed ends nothing here, and more of the line may follow it.
        let behind = received.len() - line_end - 1;
        let rest = &received[received.len() - behind - rest.len()..];
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        return Some(Progress::Complete { proxied: None, length: received.len() - rest.len() + end + 2 });
    }
    let rest = rest.strip_prefix(b"TCP4 ").or_else(|| rest.strip_prefix(b"TCP6 "))?;
    let (source, rest) = split_address(rest)?;
    let (destination, rest) = split_address(rest)?;
    let (source_port, rest) = split_port(rest, b' ')?;
    let (destination_port, rest) = split_port(rest, b'\r')?;
    if rest != b"\n" {
        return None;
    }
    let endpoint = |address: &str, port| Endpoint { address: address.into(), port };
    let proxied = Proxied {
        source: endpoint(source, source_port),
        destination: endpoint(destination, destination_port),
        tlvs: Box::default(),
    };
    Some(Progress::Complete { proxied: Some(Box::new(proxied)), length: line_end + 1 })
}

/// The possible address, and the text behind the space that follows it.
fn split_address(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|byte| !(byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')))?;
    let rest = text[end..].strip_prefix(b" ")?;
    let address = std::str::from_utf8(&text[..end]).expect("hexadecimal digits, colons and dots");
    Some((address, rest))
}

/// A port, and what follows the byte behind it.
fn split_port(text: &[u8], separator: u8) -> Option<(u16, &[u8])> {
    let end = text.iter().position(|&byte| byte == separator)?;
    let port = clearway_base::units::parse_number(&text[..end])?;
    Some((u16::try_from(port).ok()?, &text[end + 1..]))
}

fn parse_v2<'a>(
    received: &'a [u8],
    fixed: &[u8; V2_FIXED_BYTES],
    max_bytes: usize,
) -> Result<Progress, Broken<'a>> {
    let [.., version_command, family_transport, length_high, length_low] = *fixed;
    if version_command >> 4 != 2 {
        return Err(Broken::Version(version_command >> 4));
    }
    let length = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([length_high, length_low]));
    if length > max_bytes {
        return Err(Broken::TooLarge);
    }
    let Some(header) = received.get(V2_FIXED_BYTES..length) else { return Ok(Progress::Incomplete) };
    let is_proxied =
        version_command & 0x0f == V2_COMMAND_PROXY && family_transport & 0x0f == V2_TRANSPORT_STREAM;
    let proxied = match family_transport >> 4 {
        V2_FAMILY_INET if is_proxied => {
            Some(addresses::<4>(header, |octets| Ipv4Addr::from(octets).to_string())?)
        }
        V2_FAMILY_INET6 if is_proxied => {
            Some(addresses::<16>(header, |octets| V6Text(Ipv6Addr::from(octets)).to_string())?)
        }
        _ => None,
    };
    Ok(Progress::Complete { proxied: proxied.map(Box::new), length })
}

/// Both addresses, both ports, typed values.
fn addresses<const BYTES: usize>(
    header: &[u8],
    text: fn([u8; BYTES]) -> String,
) -> Result<Proxied, Broken<'static>> {
    let split = || {
        let (source, rest) = header.split_first_chunk::<BYTES>()?;
        let (destination, rest) = rest.split_first_chunk::<BYTES>()?;
        let (source_port, rest) = rest.split_first_chunk::<2>()?;
        let (destination_port, tlvs) = rest.split_first_chunk::<2>()?;
        let endpoint = |octets: &[u8; BYTES], port: &[u8; 2]| Endpoint {
            address: text(*octets).into(),
            port: u16::from_be_bytes(*port),
        };
        Some(Proxied {
            source: endpoint(source, source_port),
            destination: endpoint(destination, destination_port),
            tlvs: tlvs.into(),
        })
    };
    split().ok_or(Broken::Addresses)
}

/// Why a typed value cannot be had. Displays nginx's words, but for the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlvError {
    /// The values are cut short.
    Broken,
    /// The name begins with `0x`, and no hexadecimal number follows.
    Invalid,
    /// No name of a value.
    Unknown,
    /// The part about TLS is too short; nginx does not report that.
    Short,
}

impl Proxied {
    /// A typed value by its name or by its number (`0x01`); names of values about TLS begin with `ssl_`.
    ///
    /// # Errors
    /// When the values or the name are broken.
    pub fn tlv(&self, name: &[u8]) -> Result<Option<Cow<'_, [u8]>>, TlvError> {
        let Some(name) = name.strip_prefix(b"ssl_") else {
            return find_named(&self.tlvs, name, TLV_NAMES).map(|found| found.map(Cow::Borrowed));
        };
        let Some(ssl) = find(&self.tlvs, TLV_SSL)? else { return Ok(None) };
        let Some((fixed, tlvs)) = ssl.split_first_chunk::<TLV_SSL_FIXED_BYTES>() else {
            return Err(TlvError::Short);
        };
        if name == b"verify" {
            let [_, result @ ..] = *fixed;
            return Ok(Some(u32::from_be_bytes(result).to_string().into_bytes().into()));
        }
        find_named(tlvs, name, TLV_SSL_NAMES).map(|found| found.map(Cow::Borrowed))
    }
}

fn find_named<'a>(tlvs: &'a [u8], name: &[u8], names: &[(&[u8], u64)]) -> Result<Option<&'a [u8]>, TlvError> {
    if let Some(digits) = name.strip_prefix(b"0x") {
        let number = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
        let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        return find(tlvs, number.ok_or(TlvError::Invalid)?);
    }
    let known = names.iter().find(|(known, _)| *known == name);
    find(tlvs, known.ok_or(TlvError::Unknown)?.1)
}

/// The first value of a type.
fn find(tlvs: &[u8], wanted: u64) -> Result<Option<&[u8]>, TlvError> {
    let mut rest = tlvs;
    while !rest.is_empty() {
        let (&[kind, high, low], behind) =
            rest.split_first_chunk::<TLV_HEAD_BYTES>().ok_or(TlvError::Broken)?;
        let (value, behind) =
            behind.split_at_checked(usize::from(u16::from_be_bytes([high, low]))).ok_or(TlvError::Broken)?;
        if u64::from(kind) == wanted {
            return Ok(Some(value));
        }
        rest = behind;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BYTES: usize = 1024;

    fn parsed(text: &[u8]) -> Result<Progress, String> {
        parse(text, MAX_BYTES).map_err(|broken| broken.to_string())
    }

    fn v2(version_command: u8, family_transport: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [V2_SIGNATURE, &[version_command, family_transport], &length, content].concat()
    }

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        [&[kind], &u16::try_from(value.len()).unwrap().to_be_bytes()[..], value].concat()
    }

    fn inet(tlvs: &[u8]) -> Vec<u8> {
        v2(0x21, 0x11, &[&[192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0x16, 0x2e], tlvs].concat())
    }

    fn proxied(header: &[u8]) -> Proxied {
        match parsed(header) {
            Ok(Progress::Complete { proxied: Some(proxied), length }) if length == header.len() => *proxied,
            other => panic!("{other:?}"),
        }
    }

    fn ends(proxied: &Proxied) -> String {
        let Proxied { source, destination, .. } = proxied;
        format!("{} {} {} {}", source.address, source.port, destination.address, destination.port)
    }

    #[test]
    fn headers_of_both_versions() {
        let tcp4 = b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n";
        assert_eq!(ends(&proxied(tcp4)), "192.0.2.1 123 192.0.2.2 5678");
        let tcp6 = b"PROXY TCP6 2001:Db8::1 2001:Db8::2 0 65535\r\n";
        assert_eq!(ends(&proxied(tcp6)), "2001:Db8::1 0 2001:Db8::2 65535");
        assert_eq!(ends(&proxied(&inet(b""))), "192.0.2.1 123 192.0.2.2 5678");
        let v6 = [[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]; 2].concat();
        let inet6 = v2(0x21, 0x21, &[&v6[..], &[0, 123, 0x16, 0x2e]].concat());
        assert_eq!(ends(&proxied(&inet6)), "2001:db8::1 123 2001:db8::1 5678");
    }

    #[test]
    fn headers_that_say_nothing_and_what_follows() {
        for header in [
            &b"PROXY UNKNOWN\r\n"[..],
            b"PROXY UNKNOWN 1 2 3\n 4\r\n",
            &v2(0x21, 0x01, b""),
            &v2(0x21, 0x41, &[1, 2, 3, 4]),
            &v2(0x20, 0x11, &[0; 12]),
            &v2(0x21, 0x12, &[0; 12]),
        ] {
            let received = [header, b"GET / HTTP/1.0\r\n\r\n"].concat();
            let complete = Progress::Complete { proxied: None, length: header.len() };
            assert_eq!(parsed(&received), Ok(complete), "{header:?}");
        }
    }

    #[test]
    fn headers_in_pieces() {
        let tcp6 = b"PROXY TCP6 2001:Db8::1 2001:Db8::2 0 65535\r\n";
        for header in [&tcp6[..], b"PROXY UNKNOWN 1 2\r\n", &inet(&tlv(1, b"h2"))] {
            for end in 0..header.len() {
                assert_eq!(parsed(&header[..end]), Ok(Progress::Incomplete), "{end} of {header:?}");
            }
            assert!(matches!(parsed(header), Ok(Progress::Complete { .. })));
        }
        let long = [b"PROXY TCP6 ", &[b'1'; 200][..]].concat();
        assert_eq!(parsed(&long[..V1_MAX_BYTES - 1]), Ok(Progress::Incomplete));
        assert!(parsed(&long[..V1_MAX_BYTES]).is_err());
        assert!(matches!(parse(&long[..40], 40), Err(Broken::Line(_))));
        assert_eq!(parse(&inet(b"")[..20], 27), Err(Broken::TooLarge));
        assert_eq!(parse(&inet(b"")[..20], 28), Ok(Progress::Incomplete));
        assert!(parse(&inet(b"")[..10], 10).is_err());
    }

    #[test]
    fn broken_headers_in_nginx_words() {
        for (text, line) in [
            (&b"GET / HTTP/1.0\r\n\r\n"[..], "GET / HTTP/1.0"),
            (b"PROXX", "PROXX"),
            (b"PROXY \n", "PROXY "),
            (b"PROXY UDP4 1 2 3 4\r\n", "PROXY UDP4 1 2 3 4"),
            (b"PROXY TCP5 1 2 3 4\r\n", "PROXY TCP5 1 2 3 4"),
            (b"PROXY TCP4 1.x 2 3 4\r\n", "PROXY TCP4 1.x 2 3 4"),
            (b"PROXY TCP4 1 2 3 65536\r\n", "PROXY TCP4 1 2 3 65536"),
            (b"PROXY TCP4 1 2 -3 4\r\n", "PROXY TCP4 1 2 -3 4"),
            (b"PROXY TCP4 1 2 3\r\n", "PROXY TCP4 1 2 3"),
            (b"PROXY TCP4 1 2 3 4\n", "PROXY TCP4 1 2 3 4"),
            (b"PROXY TCP4 1 2 3 4\rx\n", "PROXY TCP4 1 2 3 4"),
            (b"PROXY UNKNOWN\n", "PROXY UNKNOWN"),
            (b"\r\n\r\nGET", ""),
        ] {
            assert_eq!(parsed(text), Err(format!("broken header: \"{line}\"")), "{line}");
        }
        assert_eq!(parsed(&v2(0x31, 0x11, b"")), Err("unknown PROXY protocol version: 3".to_owned()));
        assert_eq!(parse(&v2(0x21, 0x11, &[0; 11]), MAX_BYTES), Err(Broken::Addresses));
        assert_eq!(parse(&v2(0x21, 0x21, &[0; 35]), MAX_BYTES), Err(Broken::Addresses));
    }

    #[test]
    fn typed_values_by_name_and_number() {
        let within = [tlv(0x21, b"TLSv1.3"), tlv(0x22, b"example.com"), tlv(0x25, b"")].concat();
        let ssl = tlv(0x20, &[&[1, 0, 0, 1, 0][..], &within].concat());
        let proxied = proxied(&inet(&[tlv(1, b"h2"), tlv(2, b"a.test"), ssl, tlv(0xae, b"x")].concat()));
        let value = |name: &str| {
            let found = proxied.tlv(name.as_bytes()).unwrap();
            found.map(|value| String::from_utf8(value.into_owned()).unwrap())
        };
        for (name, expected) in [
            ("alpn", Some("h2")),
            ("0x1", Some("h2")),
            ("authority", Some("a.test")),
            ("0x000ae", Some("x")),
            ("0x000AE", Some("x")),
            ("0x1ae", None),
            ("unique_id", None),
            ("ssl_verify", Some("256")),
            ("ssl_version", Some("TLSv1.3")),
            ("ssl_0x22", Some("example.com")),
            ("ssl_key_alg", Some("")),
            ("ssl_cipher", None),
        ] {
            assert_eq!(value(name).as_deref(), expected, "{name}");
        }
        for (name, error) in [
            ("0x", TlvError::Invalid),
            ("0xg", TlvError::Invalid),
            ("0x+1", TlvError::Invalid),
            ("cn", TlvError::Unknown),
            ("ssl_alpn", TlvError::Unknown),
            ("", TlvError::Unknown),
        ] {
            assert_eq!(proxied.tlv(name.as_bytes()), Err(error), "{name}");
        }
    }

    #[test]
    fn typed_values_that_are_cut_short() {
        let end = proxied(&inet(&[&tlv(1, b"h2")[..], &[5, 0, 9, 1]].concat()));
        assert_eq!(end.tlv(b"alpn"), Ok(Some(Cow::Borrowed(&b"h2"[..]))));
        assert_eq!(end.tlv(b"netns"), Err(TlvError::Broken));
        assert_eq!(proxied(&inet(&[5, 0])).tlv(b"netns"), Err(TlvError::Broken));
        assert_eq!(proxied(&inet(&tlv(0x20, &[0; 4]))).tlv(b"ssl_cn"), Err(TlvError::Short));
        assert_eq!(proxied(&inet(b"")).tlv(b"ssl_cn"), Ok(None));
    }
}
