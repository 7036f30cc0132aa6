//! The ClientHello, read before the library sees a byte of the connection: which server is meant, and what
//! must be looked up first (certificates, sessions), is known without a session that could only wait.
//!
//! [`HelloReader`] takes the message out of its records (RFC 8446 §5.1) and [`Hello`] is what it says
//! (§4.1.2, RFC 6066 §3, RFC 7301). Both refuse nothing that the library accepts; tests compare the two.
//! Bytes in, a hello out: no socket, no clock. Runs on loops.
#![forbid(unsafe_code)]

mod reader;

use std::fmt;
use std::ops::Range;

use crate::bytes::Bytes;

pub use reader::{EMPTY_RECORDS_MAX, HELLO_MAX, HelloReader, RECEIVED_MAX};

/// Host names in SNI, bytes (the library's limit, and that of names in DNS).
pub const SERVER_NAME_MAX: usize = 255;

/// Session ids, bytes.
const SESSION_ID_MAX: usize = 32;
const RANDOM_LENGTH: usize = 32;

/// Numbers of extensions, as IANA has them.
mod extension {
    pub(super) const SERVER_NAME: u16 = 0;
    pub(super) const STATUS_REQUEST: u16 = 5;
    pub(super) const SUPPORTED_GROUPS: u16 = 10;
    pub(super) const SIGNATURE_ALGORITHMS: u16 = 13;
    pub(super) const ALPN: u16 = 16;
    pub(super) const COMPRESS_CERTIFICATE: u16 = 27;
    pub(super) const SESSION_TICKET: u16 = 35;
    pub(super) const PRE_SHARED_KEY: u16 = 41;
    pub(super) const EARLY_DATA: u16 = 42;
    pub(super) const SUPPORTED_VERSIONS: u16 = 43;
    pub(super) const PSK_MODES: u16 = 45;
    pub(super) const KEY_SHARE: u16 = 51;
    pub(super) const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
}

/// Why bytes are no ClientHello that could be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloError {
    /// A record of another kind than handshake.
    UnexpectedRecord,
    /// An alert: the client gives up before it has begun.
    Alert,
    /// No version of TLS, or of SSL 3.0, in a record's head.
    RecordVersion,
    /// A record that is longer than records may be.
    RecordTooLong,
    /// More records without a byte than [`EMPTY_RECORDS_MAX`] allows.
    EmptyRecords,
    /// The handshake message is no ClientHello.
    UnexpectedMessage,
    /// Longer than [`HELLO_MAX`], or cut into records so small that [`RECEIVED_MAX`] do not hold it.
    TooLong,
    /// The hello ends before its version.
    TooShort,
    /// The fixed part does not have the form of a ClientHello.
    Malformed,
    /// No cipher suites.
    NoSuites,
    /// Half a cipher suite.
    OddSuites,
    /// Uncompressed records are not among what the client takes.
    NoCompression,
    /// The hello asks for SSL 3.0 or less.
    Version,
    /// An empty list of versions.
    NoVersion,
    /// Extensions are not where their lengths say.
    Extensions,
    /// An extension that does not have its form, or stands there twice.
    Extension(u16),
    /// SNI that is not one name of a host.
    ServerNames,
    /// A name in SNI that can be none: empty, too long, or with a NUL.
    ServerName,
}

impl HelloError {
    /// The number of the alert that the client is told.
    #[must_use]
    pub fn alert(self) -> u8 {
        const UNEXPECTED_MESSAGE: u8 = 10;
        const RECORD_OVERFLOW: u8 = 22;
        const HANDSHAKE_FAILURE: u8 = 40;
        const ILLEGAL_PARAMETER: u8 = 47;
        const DECODE_ERROR: u8 = 50;
        const PROTOCOL_VERSION: u8 = 70;
        const UNRECOGNIZED_NAME: u8 = 112;
        match self {
            Self::UnexpectedRecord | Self::Alert | Self::EmptyRecords | Self::UnexpectedMessage => {
                UNEXPECTED_MESSAGE
            }
            Self::RecordVersion | Self::NoVersion => PROTOCOL_VERSION,
            Self::RecordTooLong => RECORD_OVERFLOW,
            Self::TooLong | Self::NoSuites => ILLEGAL_PARAMETER,
            Self::Version => HANDSHAKE_FAILURE,
            Self::TooShort
            | Self::Malformed
            | Self::OddSuites
            | Self::NoCompression
            | Self::Extensions
            | Self::Extension(_)
            | Self::ServerNames => DECODE_ERROR,
            Self::ServerName => UNRECOGNIZED_NAME,
        }
    }
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnexpectedRecord => "unexpected record",
            Self::Alert => "alert before the handshake",
            Self::RecordVersion => "wrong version number",
            Self::RecordTooLong => "packet length too long",
            Self::EmptyRecords => "too many empty fragments",
            Self::UnexpectedMessage => "unexpected message",
            Self::TooLong => "excessive message size",
            Self::TooShort => "length too short",
            Self::Malformed => "length mismatch",
            Self::NoSuites => "no ciphers specified",
            Self::OddSuites => "error in received cipher list",
            Self::NoCompression => "no compression specified",
            Self::Version => "version too low",
            Self::NoVersion => "unsupported protocol",
            Self::Extensions | Self::Extension(_) => "bad extension",
            Self::ServerNames | Self::ServerName => "unrecognized name",
        })
    }
}

/// Where something stands in the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u16,
    end: u16,
}

impl From<Bytes<'_>> for Span {
    fn from(bytes: Bytes<'_>) -> Self {
        let number = |n: usize| u16::try_from(n).expect("a hello is not longer than HELLO_MAX");
        let Range { start, end } = bytes.range();
        Self { start: number(start), end: number(end) }
    }
}

impl Span {
    fn range(self) -> Range<usize> {
        debug_assert!(self.start <= self.end, "a part does not end before it begins");
        usize::from(self.start)..usize::from(self.end)
    }
}

/// A ClientHello. Checked as a whole when it is made, so that later questions cannot fail.
pub struct Hello {
    /// The message without its type and length.
    body: Box<[u8]>,
    session_id: Span,
    suites: Span,
    server_name: Option<Span>,
    protocols: Option<Span>,
    versions: Option<Span>,
    groups: Option<Span>,
    signatures: Option<Span>,
    key_shares: Option<Span>,
    ticket: Option<Span>,
    identity: Option<Span>,
    compressions: Option<Span>,
    offers: Offers,
}

/// Extensions of which it matters that they are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offers(u8);

impl Offers {
    const EARLY_DATA: u8 = 1;
    const ENCRYPTED_HELLO: u8 = 2;
    const PSK_WITH_EXCHANGE: u8 = 4;
    const STATUS: u8 = 8;

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello")
            .field("server_name", &self.server_name().map(String::from_utf8_lossy))
            .field("length", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl Hello {
    /// Reads a message's body: what follows its type and length.
    ///
    /// # Errors
    /// If it does not have the form of a ClientHello.
    pub fn parse(body: &[u8]) -> Result<Self, HelloError> {
        if body.len() > HELLO_MAX {
            return Err(HelloError::TooLong);
        }
        let mut rest = Bytes::new(body);
        let (session_id, suites) = fixed_part(&mut rest)?;
        let mut hello = Self {
            body: body.into(),
            session_id: session_id.into(),
            suites: suites.into(),
            server_name: None,
            protocols: None,
            versions: None,
            groups: None,
            signatures: None,
            key_shares: None,
            ticket: None,
            identity: None,
            compressions: None,
            offers: Offers::default(),
        };
        if !rest.is_empty() {
            let extensions = rest.prefixed_u16().filter(|_| rest.is_empty());
            hello.read_extensions(extensions.ok_or(HelloError::Malformed)?)?;
        }
        debug_assert!(
            hello.spans().all(|span| span.range().end <= hello.body.len()),
            "parts lie within the message"
        );
        // A list of versions makes the field mean nothing.
        let is_ancient = hello.versions.is_none() && hello.versions().next().is_none();
        if is_ancient { Err(HelloError::Version) } else { Ok(hello) }
    }

    /// All parts that are referred to.
    fn spans(&self) -> impl Iterator<Item = Span> {
        let lists = [self.server_name, self.protocols, self.versions, self.groups, self.signatures];
        let others = [self.key_shares, self.ticket, self.identity, self.compressions];
        [self.session_id, self.suites].into_iter().chain(lists.into_iter().chain(others).flatten())
    }
    fn read_extensions(&mut self, mut rest: Bytes<'_>) -> Result<(), HelloError> {
        let mut seen = Vec::new();
        while !rest.is_empty() {
            let kind = rest.u16().ok_or(HelloError::Extensions)?;
            let content = rest.prefixed_u16().ok_or(HelloError::Extensions)?;
            seen.push(kind);
            self.read_extension(kind, content)?;
        }
        // Sorted: a message can hold 4,000, and a client must not make this quadratic.
        seen.sort_unstable();
        match seen.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(HelloError::Extension(pair[0])),
            None => Ok(()),
        }
    }

    fn read_extension(&mut self, kind: u16, content: Bytes<'_>) -> Result<(), HelloError> {
        let required = |found: Option<Bytes<'_>>| match found {
            Some(found) => Ok(Some(found.into())),
            None => Err(HelloError::Extension(kind)),
        };
        // An extension that only some versions read is left out where it does not have its form: the library
        // refuses it where it reads it.
        match kind {
            extension::SERVER_NAME => {
                self.server_name = Some(host_name(content).ok_or(HelloError::ServerNames)?.into());
                if !self.server_name().is_some_and(is_host_name) {
                    return Err(HelloError::ServerName);
                }
            }
            extension::ALPN => self.protocols = required(protocol_names(content))?,
            extension::SUPPORTED_VERSIONS => {
                self.versions = required(whole(content, Bytes::prefixed_u8))?;
                if self.versions.is_some_and(|span| span.range().is_empty()) {
                    return Err(HelloError::NoVersion);
                }
            }
            extension::SUPPORTED_GROUPS => self.groups = required(numbers(content))?,
            extension::SIGNATURE_ALGORITHMS => self.signatures = required(numbers(content))?,
            extension::KEY_SHARE => self.key_shares = key_shares(content).map(Span::from),
            extension::PRE_SHARED_KEY => self.identity = identity(content).map(Span::from),
            extension::COMPRESS_CERTIFICATE => {
                self.compressions = whole(content, Bytes::prefixed_u8).map(Span::from);
            }
            extension::SESSION_TICKET => self.ticket = Some(content.into()),
            extension::STATUS_REQUEST => self.offers.0 |= Offers::STATUS,
            extension::EARLY_DATA => self.offers.0 |= Offers::EARLY_DATA,
            extension::ENCRYPTED_CLIENT_HELLO => self.offers.0 |= Offers::ENCRYPTED_HELLO,
            extension::PSK_MODES => {
                const WITH_EXCHANGE: u8 = 1;
                let modes = whole(content, Bytes::prefixed_u8);
                if modes.is_some_and(|modes| modes.as_slice().contains(&WITH_EXCHANGE)) {
                    self.offers.0 |= Offers::PSK_WITH_EXCHANGE;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The host that is asked for (SNI), as it was written.
    #[must_use]
    pub fn server_name(&self) -> Option<&[u8]> {
        self.at(self.server_name)
    }

    /// The client's part of the secret's salt.
    #[must_use]
    pub fn random(&self) -> &[u8] {
        const VERSION_LENGTH: usize = 2;
        &self.body[VERSION_LENGTH..VERSION_LENGTH + RANDOM_LENGTH]
    }

    /// Extensions by number with what stands in them, in the client's order, those included that mean none
    /// (GREASE).
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut rest = Bytes::new(&self.body);
        // It was read before.
        let _ = fixed_part(&mut rest);
        let mut rest = rest.prefixed_u16().unwrap_or_else(|| Bytes::new(&[]));
        std::iter::from_fn(move || {
            let kind = rest.u16()?;
            Some((kind, rest.prefixed_u16()?.as_slice()))
        })
    }

    /// Protocols that the client speaks (ALPN), in its order.
    pub fn protocols(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = Bytes::new(self.at(self.protocols).unwrap_or_default());
        std::iter::from_fn(move || rest.prefixed_u8().map(|name| name.as_slice()))
    }

    /// Whether the client says which signatures it can check.
    #[must_use]
    pub fn has_signatures(&self) -> bool {
        self.signatures.is_some()
    }

    /// Whether the client says which groups it knows.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// Whether the client says which protocols it speaks.
    #[must_use]
    pub fn has_protocols(&self) -> bool {
        self.protocols.is_some()
    }

    /// Versions that the client speaks, in its order. One that does not list them speaks all up to the one
    /// that it names, but for TLS 1.3.
    pub fn versions(&self) -> impl Iterator<Item = u16> {
        const UP_TO: [u16; 3] = [0x0303, 0x0302, 0x0301];
        let legacy = u16::from_be_bytes([self.body[0], self.body[1]]);
        let listed = self.at(self.versions);
        let implied = UP_TO.into_iter().filter(move |&version| listed.is_none() && version <= legacy);
        u16s(listed.unwrap_or_default()).chain(implied)
    }

    /// Cipher suites by number, in the client's order, those included that mean none (GREASE, SCSV).
    pub fn suites(&self) -> impl Iterator<Item = u16> {
        u16s(&self.body[self.suites.range()])
    }

    /// Groups for the key exchange by number, in the client's order.
    pub fn groups(&self) -> impl Iterator<Item = u16> {
        u16s(self.at(self.groups).unwrap_or_default())
    }

    /// Signature algorithms by number, in the client's order.
    pub fn signatures(&self) -> impl Iterator<Item = u16> {
        u16s(self.at(self.signatures).unwrap_or_default())
    }

    /// Groups that a key has been sent for: with another one the handshake takes a round trip more.
    pub fn key_shares(&self) -> impl Iterator<Item = u16> {
        let mut rest = Bytes::new(self.at(self.key_shares).unwrap_or_default());
        std::iter::from_fn(move || {
            let group = rest.u16()?;
            rest.prefixed_u16()?;
            Some(group)
        })
    }

    /// Ways to compress certificates that the client knows, by number (RFC 8879).
    pub fn compressions(&self) -> impl Iterator<Item = u16> {
        u16s(self.at(self.compressions).unwrap_or_default())
    }

    /// The session that is asked for by its id; one that is empty asks for none. Clients of TLS 1.3 send
    /// one that means nothing.
    #[must_use]
    pub fn session_id(&self) -> &[u8] {
        &self.body[self.session_id.range()]
    }

    /// The ticket that is shown (TLS 1.2 and before). Empty: the client has none and would take one.
    #[must_use]
    pub fn ticket(&self) -> Option<&[u8]> {
        self.at(self.ticket)
    }

    /// The first ticket that is shown, of those a client of TLS 1.3 shows: the library looks at no other.
    #[must_use]
    pub fn identity(&self) -> Option<&[u8]> {
        self.at(self.identity)
    }

    /// Whether sessions of TLS 1.3 can be taken up: without a new key exchange it is not done.
    #[must_use]
    pub fn takes_up_with_exchange(&self) -> bool {
        self.offers.has(Offers::PSK_WITH_EXCHANGE)
    }

    /// Whether the client asks what an authority says of the certificate (RFC 6066 §8).
    #[must_use]
    pub fn asks_for_status(&self) -> bool {
        self.offers.has(Offers::STATUS)
    }

    /// Whether a request follows before the handshake is over (TLS 1.3).
    #[must_use]
    pub fn has_early_data(&self) -> bool {
        self.offers.has(Offers::EARLY_DATA)
    }

    /// Whether there is another hello in this one, encrypted; many clients send one that is none (GREASE).
    #[must_use]
    pub fn has_encrypted_hello(&self) -> bool {
        self.offers.has(Offers::ENCRYPTED_HELLO)
    }

    fn at(&self, span: Option<Span>) -> Option<&[u8]> {
        span.map(|span| &self.body[span.range()])
    }
}

/// Numbers of two bytes. A byte too many at the end is no number.
fn u16s(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks().0.iter().map(|&pair| u16::from_be_bytes(pair))
}

/// Session id and cipher suites; `rest` stands behind the part that every hello has.
fn fixed_part<'a>(rest: &mut Bytes<'a>) -> Result<(Bytes<'a>, Bytes<'a>), HelloError> {
    const NO_COMPRESSION: u8 = 0;
    rest.u16().ok_or(HelloError::TooShort)?;
    rest.take(RANDOM_LENGTH).ok_or(HelloError::Malformed)?;
    let session_id = rest.prefixed_u8().filter(|id| id.len() <= SESSION_ID_MAX);
    let session_id = session_id.ok_or(HelloError::Malformed)?;
    let suites = rest.prefixed_u16().ok_or(HelloError::Malformed)?;
    let compressions = rest.prefixed_u8().ok_or(HelloError::Malformed)?;
    if suites.is_empty() {
        return Err(HelloError::NoSuites);
    }
    if !suites.len().is_multiple_of(2) {
        return Err(HelloError::OddSuites);
    }
    if !compressions.as_slice().contains(&NO_COMPRESSION) {
        return Err(HelloError::NoCompression);
    }
    Ok((session_id, suites))
}

/// The one name of SNI. The library and OpenSSL refuse several names, and names of another kind.
fn host_name(content: Bytes<'_>) -> Option<Bytes<'_>> {
    const HOST_NAME: u8 = 0;
    let mut names = whole(content, Bytes::prefixed_u16)?;
    names.u8().filter(|&kind| kind == HOST_NAME)?;
    whole(names, Bytes::prefixed_u16)
}

fn is_host_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= SERVER_NAME_MAX && !name.contains(&0)
}

fn protocol_names(content: Bytes<'_>) -> Option<Bytes<'_>> {
    let list = whole(content, Bytes::prefixed_u16).filter(|list| !list.is_empty())?;
    let mut rest = list;
    while !rest.is_empty() {
        rest.prefixed_u8().filter(|name| !name.is_empty())?;
    }
    Some(list)
}

fn numbers(content: Bytes<'_>) -> Option<Bytes<'_>> {
    whole(content, Bytes::prefixed_u16).filter(|list| !list.is_empty() && list.len().is_multiple_of(2))
}

fn key_shares(content: Bytes<'_>) -> Option<Bytes<'_>> {
    let list = whole(content, Bytes::prefixed_u16)?;
    let mut rest = list;
    while !rest.is_empty() {
        rest.u16()?;
        rest.prefixed_u16()?;
    }
    Some(list)
}

fn identity(mut content: Bytes<'_>) -> Option<Bytes<'_>> {
    content.prefixed_u16()?.prefixed_u16()
}

/// The result of `read` for `content`, if it takes all of it.
fn whole<'a>(
    mut content: Bytes<'a>,
    read: impl Fn(&mut Bytes<'a>) -> Option<Bytes<'a>>,
) -> Option<Bytes<'a>> {
    read(&mut content).filter(|_| content.is_empty())
}

#[cfg(test)]
mod tests;
