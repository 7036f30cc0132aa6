//! Messages of the DNS (RFC 1035, 3596, 2782): queries are written, responses read as nginx reads them: the
//! header, the question and the answers; what stands behind these is not looked at.

use std::fmt;
use std::net::IpAddr;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{DNSClass, Name as WireName, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

/// Bytes of the header of a message.
const HEADER: usize = 12;
/// In the flags: response, kind of query, and what has to be zero.
const KIND_MASK: u16 = 0xf870;
const RESPONSE: u16 = 0x8000;
const TRUNCATED: u16 = 0x0200;
/// Longest name on the wire, bytes.
const NAME_MAX: usize = 255;

/// A name in lower case, its labels joined by dots, without a dot at the end.
pub(crate) type Name = Box<[u8]>;

/// The type of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A
    V4,
    /// AAAA
    V6,
    /// SRV
    Service,
}

/// The transport of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Udp,
    Tcp,
}

/// The fault of a message, in nginx's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Short,
    Invalid { ident: u16, flags: u16, via: Via },
    Error { ident: u16, code: u8 },
    Questions,
    Pointer,
    ZeroName,
    QueryClass(u16),
    QueryType(u16),
    RecordClass(u16),
    Unexpected(Ask),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Short => f.write_str("short DNS response"),
            Self::Invalid { ident, flags, via } => {
                let via = if via == Via::Udp { "UDP" } else { "TCP" };
                write!(f, "invalid {via} DNS response {ident} fl:{flags:04X}")
            }
            Self::Error { ident, code } => {
                write!(f, "DNS error ({code}: {}), query id:{ident}", code_text(code))
            }
            Self::Questions => f.write_str("invalid number of questions in DNS response"),
            Self::Pointer => f.write_str("unexpected compression pointer in DNS response"),
            Self::ZeroName => f.write_str("zero-length domain name in DNS response"),
            Self::QueryClass(class) => write!(f, "unknown query class {class} in DNS response"),
            Self::QueryType(kind) => write!(f, "unknown query type {kind} in DNS response"),
            Self::RecordClass(class) => write!(f, "unexpected RR class {class} in DNS response"),
            Self::Unexpected(ask) => {
                let kind = if ask == Ask::V4 { "A" } else { "AAAA" };
                write!(f, "unexpected {kind} record in DNS response")
            }
        }
    }
}

/// The text of a response code (RFC 1035, 4.1.1), in nginx's words.
pub(crate) fn code_text(code: u8) -> &'static str {
    match code {
        1 => "Format error",
        2 => "Server failure",
        3 => "Host not found",
        4 => "Unimplemented",
        5 => "Operation refused",
        _ => "Unknown error",
    }
}

/// The bytes of a query; `None` where that is no name.
pub(crate) fn query(ident: u16, name: &[u8], ask: Ask) -> Option<Vec<u8>> {
    let kind = match ask {
        Ask::V4 => RecordType::A,
        Ask::V6 => RecordType::AAAA,
        Ask::Service => RecordType::SRV,
    };
    let labels = name.split(|&byte| byte == b'.');
    if labels.clone().any(<[u8]>::is_empty) {
        return None;
    }
    let mut message = Message::new(ident, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(WireName::from_labels(labels).ok()?, kind));
    message.to_vec().ok()
}

/// A response of which the header and the question were read.
#[derive(Debug)]
pub(crate) struct Response<'a> {
    pub(crate) ident: u16,
    /// 0, or the response code of an error.
    pub(crate) code: u8,
    pub(crate) is_truncated: bool,
    pub(crate) name: Name,
    pub(crate) ask: Ask,
    /// How many answers there are.
    pub(crate) answers: u16,
    message: &'a [u8],
    /// Where the answers begin.
    at: usize,
}

/// Where a service is (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) priority: u16,
    /// At least 1.
    pub(crate) weight: u16,
    pub(crate) port: u16,
    pub(crate) name: Name,
}

/// The contents of the answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// The least of all, seconds.
    pub(crate) ttl_s: u32,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) targets: Vec<Target>,
    /// The last CNAME.
    pub(crate) alias: Option<Name>,
    /// Types that do not belong there.
    pub(crate) odd: Vec<u16>,
}

impl<'a> Response<'a> {
    /// Reads the header and the question.
    ///
    /// # Errors
    /// Where that is no response to a query of ours.
    pub(crate) fn parse(message: &'a [u8], via: Via) -> Result<Self, Fault> {
        let (header, _) = message.split_first_chunk::<HEADER>().ok_or(Fault::Short)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (ident, flags, questions, answers) = (word(0), word(2), word(4), word(6));
        let is_truncated = flags & TRUNCATED != 0;
        if flags & KIND_MASK != RESPONSE || (is_truncated && via == Via::Tcp) {
            return Err(Fault::Invalid { ident, flags, via });
        }
        let code = (flags & 0xf) as u8;
        // A server that has not understood a query need not repeat it.
        if code == 1 || code > 5 {
            return Err(Fault::Error { ident, code });
        }
        if questions != 1 {
            return Err(Fault::Questions);
        }
        let (name, at) = read_question(message)?;
        let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
        let kind = word(at).ok_or(Fault::Short)?;
        let class = word(at + 2).ok_or(Fault::Short)?;
        if class != u16::from(DNSClass::IN) {
            return Err(Fault::QueryClass(class));
        }
        let ask = match RecordType::from(kind) {
            RecordType::A => Ask::V4,
            RecordType::AAAA => Ask::V6,
            RecordType::SRV => Ask::Service,
            _ => return Err(Fault::QueryType(kind)),
        };
        Ok(Self { ident, code, is_truncated, name, ask, answers, message, at: at + 4 })
    }

    /// Reads the answers.
    ///
    /// # Errors
    /// Where one is broken, or does not belong there.
    pub(crate) fn answers(&self) -> Result<Answers, Fault> {
        let at = u16::try_from(self.at).map_err(|_| Fault::Short)?;
        let mut decoder = BinDecoder::new(self.message).clone(at);
        let mut found = Answers { ttl_s: u32::MAX, ..Answers::default() };
        for _ in 0..self.answers {
            let record = Record::<RData>::read(&mut decoder).map_err(|_| Fault::Short)?;
            if record.dns_class != DNSClass::IN {
                return Err(Fault::RecordClass(record.dns_class.into()));
            }
            // Above the range of a signed number it is 0 (RFC 2181, 8).
            let ttl_s = if record.ttl > i32::MAX as u32 { 0 } else { record.ttl };
            found.ttl_s = found.ttl_s.min(ttl_s);
            self.take(&record, &mut found)?;
        }
        found.targets.sort_by_key(|target| target.priority);
        Ok(found)
    }

    fn take(&self, record: &Record<RData>, found: &mut Answers) -> Result<(), Fault> {
        match (&record.data, self.ask) {
            (RData::A(address), Ask::V4) => found.addresses.push(address.0.into()),
            (RData::AAAA(address), Ask::V6) => found.addresses.push(address.0.into()),
            (RData::SRV(service), Ask::Service) => found.targets.push(Target {
                priority: service.priority,
                weight: service.weight.max(1),
                port: service.port,
                name: joined(service.target.iter()),
            }),
            (RData::CNAME(alias), _) => found.alias = Some(joined(alias.iter())),
            (RData::A(_), Ask::V6) => return Err(Fault::Unexpected(Ask::V4)),
            (RData::AAAA(_), Ask::V4) => return Err(Fault::Unexpected(Ask::V6)),
            _ if record.record_type() == RecordType::from(DNAME) => {}
            _ => found.odd.push(record.record_type().into()),
        }
        Ok(())
    }
}

/// DNAME (RFC 6672), beside which there is a CNAME for resolvers that do not know it.
const DNAME: u16 = 39;

/// The name of the question, and where it ends.
fn read_question(message: &[u8]) -> Result<(Name, usize), Fault> {
    let mut at = HEADER;
    let mut labels = Vec::new();
    loop {
        let &len = message.get(at).ok_or(Fault::Short)?;
        if len & 0xc0 != 0 {
            return Err(Fault::Pointer);
        }
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(message.get(at..at + usize::from(len)).ok_or(Fault::Short)?);
        at += usize::from(len);
        if at - HEADER > NAME_MAX {
            return Err(Fault::Short);
        }
    }
    if labels.is_empty() {
        return Err(Fault::ZeroName);
    }
    Ok((joined(labels.into_iter()), at))
}

fn joined<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Name {
    let mut name = Vec::new();
    for label in labels {
        if !name.is_empty() {
            name.push(b'.');
        }
        name.extend(label.iter().map(u8::to_ascii_lowercase));
    }
    name.into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Writes what a name server says: records of a kind with their data, all under the name of the question.
    pub(crate) fn respond(query: &[u8], flags: u16, records: &[(u16, u32, Vec<u8>)]) -> Vec<u8> {
        let mut message = query.to_vec();
        message[2..4].copy_from_slice(&flags.to_be_bytes());
        message[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for (kind, ttl, data) in records {
            message.extend([0xc0, 12]);
            message.extend(kind.to_be_bytes());
            message.extend(1_u16.to_be_bytes());
            message.extend(ttl.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        message
    }

    pub(crate) fn wire_name(name: &str) -> Vec<u8> {
        let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
        labels.chain([0]).collect()
    }

    const OK: u16 = 0x8180;

    #[test]
    fn a_query_is_read_back() {
        let query = query(0x1234, b"www.example.com", Ask::V4).expect("a name");
        let expected =
            [&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &wire_name("www.example.com"), &[0, 1, 0, 1]];
        assert_eq!(query, expected.concat());
        let message = respond(&query, OK, &[(1, 60, vec![127, 0, 0, 1]), (1, 30, vec![127, 0, 0, 2])]);
        let response = Response::parse(&message, Via::Udp).expect("a response");
        assert_eq!((response.ident, response.code, response.ask), (0x1234, 0, Ask::V4));
        assert_eq!(&*response.name, b"www.example.com");
        let answers = response.answers().expect("they are whole");
        assert_eq!(answers.ttl_s, 30);
        assert_eq!(answers.addresses, [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)]);
        for len in 0..message.len() {
            let cut = Response::parse(&message[..len], Via::Udp).and_then(|response| response.answers());
            assert_eq!(cut, Err(Fault::Short), "{len} bytes");
        }
    }

    #[test]
    fn records_of_every_kind() {
        let query = query(7, b"_http._tcp.A.b", Ask::Service).expect("a name");
        let target = |priority: u8, weight: u8, name: &str| {
            [vec![0, priority, 0, weight, 0x1f, 0x90], wire_name(name)].concat()
        };
        let records = [
            (33, 90, target(2, 0, "Far.b")),
            (33, u32::MAX, target(1, 5, "near.b")),
            (5, 10, wire_name("other.c")),
            (39, 10, wire_name("c")),
            (16, 10, b"\x03txt".to_vec()),
        ];
        let message = respond(&query, OK, &records);
        let response = Response::parse(&message, Via::Tcp).expect("a response");
        assert_eq!(&*response.name, b"_http._tcp.a.b");
        let answers = response.answers().expect("they are whole");
        let near = Target { priority: 1, weight: 5, port: 8080, name: b"near.b"[..].into() };
        let far = Target { priority: 2, weight: 1, port: 8080, name: b"far.b"[..].into() };
        assert_eq!(answers.targets, [near, far]);
        assert_eq!((answers.alias, answers.odd, answers.ttl_s), (Some(b"other.c"[..].into()), vec![16], 0));
    }

    #[test]
    fn what_is_no_response_is_told_in_nginx_words() {
        let query = query(258, b"a.b", Ask::V6).expect("a name");
        let told = |message: &[u8], via| match Response::parse(message, via).and_then(|found| found.answers())
        {
            Ok(_) => String::new(),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(told(&query, Via::Udp), "invalid UDP DNS response 258 fl:0100");
        assert_eq!(told(&respond(&query, 0x8380, &[]), Via::Tcp), "invalid TCP DNS response 258 fl:8380");
        assert_eq!(
            told(&respond(&query, 0x8181, &[]), Via::Udp),
            "DNS error (1: Format error), query id:258"
        );
        assert_eq!(
            told(&respond(&query, 0x8189, &[]), Via::Udp),
            "DNS error (9: Unknown error), query id:258"
        );
        let edited = |at: usize, byte: u8| {
            let mut message = respond(&query, OK, &[(28, 1, Ipv6Addr::LOCALHOST.octets().to_vec())]);
            message[at] = byte;
            told(&message, Via::Udp)
        };
        assert_eq!(edited(0, 1), "");
        assert_eq!(edited(5, 2), "invalid number of questions in DNS response");
        assert_eq!(edited(12, 0xc0), "unexpected compression pointer in DNS response");
        assert_eq!(edited(12, 0), "zero-length domain name in DNS response");
        assert_eq!(edited(18, 15), "unknown query type 15 in DNS response");
        assert_eq!(edited(20, 3), "unknown query class 3 in DNS response");
        assert_eq!(edited(26, 3), "unexpected RR class 3 in DNS response");
        let wrong = respond(&query, OK, &[(1, 1, vec![127, 0, 0, 1])]);
        assert_eq!(told(&wrong, Via::Udp), "unexpected A record in DNS response");
    }

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        let long = [b'a'; 64];
        let many = b"abcdefghi.".repeat(26);
        for name in [&b""[..], b".", b"a..b", b".a", &long, &many] {
            assert_eq!(query(1, name, Ask::V4), None, "{}", name.escape_ascii());
        }
        assert!(query(1, b"\xff_a.\x01b", Ask::V4).is_some(), "bytes are bytes");
    }
}
