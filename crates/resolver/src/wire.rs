//! Messages of the DNS (RFC 1035, 3596, 2782): queries are written, responses read as nginx reads them: the
//! header, the question and the answers; what stands behind these is not looked at.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the header of a message.
const HEADER: usize = 12;
/// In the flags: response, kind of query, and what has to be zero.
const KIND_MASK: u16 = 0xf870;
const RESPONSE: u16 = 0x8000;
const TRUNCATED: u16 = 0x0200;
/// In the flags of a query: servers that do not know the answer are to look for it.
const RECURSION_DESIRED: u16 = 0x0100;
/// Longest name on the wire, bytes: what a message of 512 has room for. That names have 255 at most (RFC
/// 1035, 2.3.4) is not asked for, as nginx does not.
const NAME_MAX: usize = 512 - HEADER - 4;
/// Longest label, bytes: with more its length would be a pointer.
const LABEL_MAX: usize = 63;
/// In the length of a label: what it points to is the rest of the name.
const POINTER: u8 = 0xc0;
/// Labels and pointers of a name at most, as in nginx: pointers can lead in a circle.
const STEPS_MAX: usize = 128;
/// Bytes of an answer between its name and its data.
const RECORD: usize = 10;
/// The class of the Internet.
const IN: u16 = 1;

/// Types of records (RFC 1035, 3.2.2; 3596; 2782; 6672). Beside a DNAME there is a CNAME for resolvers that
/// do not know it.
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const DNAME: u16 = 39;

/// A name in lower case, its labels joined by dots, without a dot at the end.
pub(crate) type Name = Box<[u8]>;

/// What a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A
    V4,
    /// AAAA
    V6,
    /// SRV
    Service,
}

impl Ask {
    fn record_type(self) -> u16 {
        match self {
            Self::V4 => A,
            Self::V6 => AAAA,
            Self::Service => SRV,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::V4 => "A",
            Self::V6 => "AAAA",
            Self::Service => "SRV",
        }
    }
}

/// By what a message comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Udp,
    Tcp,
}

/// What is wrong with a message, in nginx's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Short,
    Invalid {
        ident: u16,
        flags: u16,
        via: Via,
    },
    Error {
        ident: u16,
        code: u8,
    },
    Questions,
    Pointer,
    ZeroName,
    QueryClass(u16),
    QueryType(u16),
    RecordClass(u16),
    RecordName,
    Unexpected(Ask),
    /// A record of this kind whose data have not the length of an address.
    Record(Ask),
    LabelType,
    NameOutside,
    NameLoop,
    NameLong,
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
            Self::RecordName => f.write_str("invalid name in DNS response"),
            Self::Unexpected(ask) => write!(f, "unexpected {} record in DNS response", ask.text()),
            Self::Record(ask) => write!(f, "invalid {} record in DNS response", ask.text()),
            Self::LabelType => f.write_str("invalid label type in DNS response"),
            Self::NameOutside => f.write_str("name is out of DNS response"),
            Self::NameLoop => f.write_str("compression pointers loop in DNS response"),
            Self::NameLong => f.write_str("too long name in DNS response"),
        }
    }
}

/// What a response code means (RFC 1035, 4.1.1), in nginx's words.
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
    // A length before each label, and the root's behind the last.
    if name.len() + 2 > NAME_MAX {
        return None;
    }
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    let (questions, others) = (1, 0);
    for word in [ident, RECURSION_DESIRED, questions, others, others, others] {
        message.extend(word.to_be_bytes());
    }
    for label in name.split(|&byte| byte == b'.') {
        if label.is_empty() || label.len() > LABEL_MAX {
            return None;
        }
        message.push(label.len() as u8);
        message.extend(label);
    }
    message.push(0);
    message.extend(ask.record_type().to_be_bytes());
    message.extend(IN.to_be_bytes());
    Some(message)
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

/// What the answers say.
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
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (ident, flags, questions, answers) = (field(0), field(2), field(4), field(6));
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
        let kind = word(message, at).ok_or(Fault::Short)?;
        let class = word(message, at + 2).ok_or(Fault::Short)?;
        if class != IN {
            return Err(Fault::QueryClass(class));
        }
        let asks = [Ask::V4, Ask::V6, Ask::Service];
        let ask = asks.into_iter().find(|ask| ask.record_type() == kind).ok_or(Fault::QueryType(kind))?;
        Ok(Self { ident, code, is_truncated, name, ask, answers, message, at: at + 4 })
    }

    /// Reads the answers.
    ///
    /// # Errors
    /// Where one is broken, or does not belong there.
    pub(crate) fn answers(&self) -> Result<Answers, Fault> {
        let mut found = Answers { ttl_s: u32::MAX, ..Answers::default() };
        let mut alias = None;
        let mut at = self.at;
        for _ in 0..self.answers {
            let record = Record::read(self.message, at)?;
            found.ttl_s = found.ttl_s.min(record.ttl_s);
            match record.kind {
                CNAME => alias = Some(record.data),
                _ => self.take(&record, &mut found)?,
            }
            at = record.data + record.len;
        }
        // Beside addresses it does not matter which name they belong to.
        if let Some(alias) = alias.filter(|_| found.addresses.is_empty()) {
            found.alias = Some(read_name(self.message, alias)?);
        }
        found.targets.sort_by_key(|target| target.priority);
        Ok(found)
    }

    fn take(&self, record: &Record, found: &mut Answers) -> Result<(), Fault> {
        let data = &self.message[record.data..];
        match (record.kind, self.ask) {
            (A, Ask::V4) => {
                let octets: [u8; 4] = address(data, record.len, self.ask)?;
                found.addresses.push(Ipv4Addr::from(octets).into());
            }
            (AAAA, Ask::V6) => {
                let octets: [u8; 16] = address(data, record.len, self.ask)?;
                found.addresses.push(Ipv6Addr::from(octets).into());
            }
            (SRV, Ask::Service) => {
                let number = |at: usize| word(data, at).ok_or(Fault::Short);
                found.targets.push(Target {
                    priority: number(0)?,
                    weight: number(2)?.max(1),
                    port: number(4)?,
                    name: read_name(self.message, record.data + 6)?,
                });
            }
            (A, Ask::V6) => return Err(Fault::Unexpected(Ask::V4)),
            (AAAA, Ask::V4) => return Err(Fault::Unexpected(Ask::V6)),
            (DNAME, _) => {}
            (kind, _) => found.odd.push(kind),
        }
        Ok(())
    }
}

/// An answer without its name.
struct Record {
    kind: u16,
    ttl_s: u32,
    /// Where its data begin, which is inside of the message.
    data: usize,
    /// What it says their length is.
    len: usize,
}

impl Record {
    fn read(message: &[u8], start: usize) -> Result<Self, Fault> {
        let at = skip_name(message, start)?;
        // As in nginx nothing ends with a record that has no data.
        let [kind, class, ttl_high, ttl_low, len] = match message.get(at..at + RECORD) {
            Some(fields) if at + RECORD < message.len() => {
                std::array::from_fn(|field| u16::from_be_bytes([fields[2 * field], fields[2 * field + 1]]))
            }
            _ => return Err(Fault::Short),
        };
        if class != IN {
            return Err(Fault::RecordClass(class));
        }
        let ttl_s = u32::from(ttl_high) << 16 | u32::from(ttl_low);
        // Above the range of a signed number it is 0 (RFC 2181, 8).
        let ttl_s = if ttl_s > i32::MAX as u32 { 0 } else { ttl_s };
        Ok(Self { kind, ttl_s, data: at + RECORD, len: usize::from(len) })
    }
}

fn word(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]))
}

fn address<const BYTES: usize>(data: &[u8], len: usize, ask: Ask) -> Result<[u8; BYTES], Fault> {
    if len != BYTES {
        return Err(Fault::Record(ask));
    }
    data.first_chunk().copied().ok_or(Fault::Short)
}

/// Where a name in front of an answer ends. Whose answer it is does not matter.
fn skip_name(message: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = start;
    loop {
        match *message.get(at).ok_or(Fault::Short)? {
            0 if at == start => return Err(Fault::RecordName),
            0 => return Ok(at + 1),
            len if len & POINTER != 0 => return Ok(at + 2),
            len => at += 1 + usize::from(len),
        }
    }
}

/// A name in the data of an answer, which may go on elsewhere in the message.
fn read_name(message: &[u8], start: usize) -> Result<Name, Fault> {
    let mut at = start;
    let mut labels = Vec::new();
    let mut bytes = 1;
    for _ in 0..STEPS_MAX {
        let &len = message.get(at).ok_or(Fault::NameOutside)?;
        if len == 0 {
            return Ok(joined(labels.into_iter()));
        }
        if len & POINTER != 0 {
            let target = word(message, at).ok_or(Fault::NameOutside)?;
            if len & POINTER != POINTER {
                return Err(Fault::LabelType);
            }
            at = usize::from(target & 0x3fff);
            continue;
        }
        let end = at + 1 + usize::from(len);
        labels.push(message.get(at + 1..end).ok_or(Fault::NameOutside)?);
        bytes += 1 + usize::from(len);
        if bytes > NAME_MAX {
            return Err(Fault::NameLong);
        }
        at = end;
    }
    Err(Fault::NameLoop)
}

/// The name of the question, and where it ends.
fn read_question(message: &[u8]) -> Result<(Name, usize), Fault> {
    let mut at = HEADER;
    let mut labels = Vec::new();
    loop {
        let &len = message.get(at).ok_or(Fault::Short)?;
        if len & POINTER != 0 {
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
    fn a_name_may_have_more_than_the_255_bytes_of_the_standard() {
        let long = [[b'a'; 63]; 4].join(&b'.');
        let asked = query(1, b"short.example.net", Ask::V4).expect("a name");
        let message = respond(&asked, OK, &[(5, 60, wire_name(std::str::from_utf8(&long).expect("text")))]);
        let answers = Response::parse(&message, Via::Udp).and_then(|response| response.answers());
        assert_eq!(answers.expect("they are whole").alias.as_deref(), Some(&long[..]));
        let asked = query(2, &long, Ask::V4).expect("it fits into a message");
        let message = respond(&asked, OK, &[(1, 60, vec![127, 0, 0, 1])]);
        let response = Response::parse(&message, Via::Udp).expect("a response");
        assert_eq!(*response.name, *long);
        assert_eq!(response.answers().expect("they are whole").addresses, [Ipv4Addr::LOCALHOST]);
        let longest = [[b'a'; 61]; 8].join(&b'.');
        assert_eq!((longest.len() + 1, query(3, &longest, Ask::V4)), (NAME_MAX, None));
        assert_eq!(query(3, &longest[1..], Ask::V4).map(|query| query.len()), Some(512));
    }

    #[test]
    fn names_in_answers_are_followed_but_not_in_circles() {
        let asked = query(1, b"a.b", Ask::V4).expect("a name");
        let alias = |data: &[u8]| {
            let message = respond(&asked, OK, &[(5, 60, data.to_vec())]);
            let answers = Response::parse(&message, Via::Udp).and_then(|response| response.answers());
            answers.map(|answers| answers.alias.unwrap_or_default().to_vec())
        };
        // The question stands from byte 12 on, the alias from byte 33 on.
        assert_eq!(alias(b"\x01C\xc0\x0c"), Ok(b"c.a.b".to_vec()));
        assert_eq!(alias(b"\x01C\xc0\x0e"), Ok(b"c.b".to_vec()));
        assert_eq!(alias(b"\xc0\x21"), Err(Fault::NameLoop));
        let circle = [&[63][..], &[b'x'; 63], &[0xc0, 33]].concat();
        assert_eq!(alias(&circle), Err(Fault::NameLong));
        assert_eq!(alias(b"\x80\x0c"), Err(Fault::LabelType));
        for outside in [&b"\xff\xff"[..], b"\x02ab", b"\x05ab", b"\x01a\xc0"] {
            assert_eq!(alias(outside), Err(Fault::NameOutside));
        }
        let mut message = respond(&asked, OK, &[(5, 60, b"\xc0\x21".to_vec()), (1, 60, vec![1, 2, 3, 4])]);
        let answers = |message: &[u8]| Response::parse(message, Via::Udp).and_then(|found| found.answers());
        assert_eq!(answers(&message).map(|found| found.addresses.len()), Ok(1), "nobody asks for its name");
        *message.last_mut().expect("an address") = 0;
        message.pop();
        assert_eq!(answers(&message), Err(Fault::Short));
        let short = respond(&asked, OK, &[(1, 60, vec![1, 2, 3])]);
        assert_eq!(answers(&short).unwrap_err().to_string(), "invalid A record in DNS response");
        let mut nameless = respond(&asked, OK, &[]);
        nameless[7] = 1;
        nameless.extend([0; 16]);
        assert_eq!(answers(&nameless).unwrap_err().to_string(), "invalid name in DNS response");
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
