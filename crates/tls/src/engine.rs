//! What is asked of a TLS library: the seam behind which another one can stand. A session takes bytes and
//! gives bytes, wherever they come from; whatever may wait (certificates by variables, sessions of a cache)
//! is looked up before and handed over in [`Given`], so that no call here waits.
#![forbid(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use crate::ciphers::CipherList;
use crate::hello::Hello;
use crate::level::{Level, Version};
use crate::reason::Reason;
use crate::tickets::KeyRing;

/// Versions that are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions(u8);

impl Default for Versions {
    /// What `ssl_protocols` is without being written.
    fn default() -> Self {
        Self::none().and(Version::Tls12).and(Version::Tls13)
    }
}

impl Versions {
    /// None; a set to begin with.
    #[must_use]
    pub fn none() -> Self {
        Self(0)
    }

    /// These and another one.
    #[must_use]
    pub fn and(self, version: Version) -> Self {
        Self(self.0 | 1 << version as u8)
    }

    /// Whether it is among them.
    #[must_use]
    pub fn has(self, version: Version) -> bool {
        self.0 & (1 << version as u8) != 0
    }

    /// The oldest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Version> {
        Version::ALL.into_iter().filter(move |&version| self.has(version))
    }
}

/// Whose order of suites counts (`ssl_prefer_server_ciphers`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Preference {
    #[default]
    Client,
    Server,
}

/// How sessions are taken up again without the server keeping them.
#[derive(Clone, Default)]
pub enum Tickets {
    /// `ssl_session_tickets off`.
    #[default]
    Off,
    /// Tickets are encrypted with the first key of a ring and opened with any of it.
    Ring(Arc<KeyRing>),
}

/// Whether sessions are kept by the server (`ssl_session_cache`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// `off`: clients are told that sessions are not taken up.
    Off,
    /// `none`: they are told nothing.
    #[default]
    None,
    /// Sessions are handed out ([`Session::take_kept`]), and asked for in [`Given::kept`].
    Kept,
}

/// Whether peers' certificates are checked (`ssl_verify_client`, `proxy_ssl_verify`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// They are not, and clients are not asked for any.
    #[default]
    Off,
    /// They are, and what is wrong with one is found in [`Info::verification`]: it is not the handshake that
    /// fails.
    On,
}

/// How a peer's certificate is checked.
#[derive(Clone, Default)]
pub struct Verification {
    /// Whether it is; servers always send theirs.
    pub asking: Asking,
    /// Certificates in PEM that are trusted and whose names clients are told (`ssl_client_certificate`).
    pub authorities: Vec<u8>,
    /// Certificates in PEM that are trusted as well (`ssl_trusted_certificate`).
    pub trusted: Vec<u8>,
    /// Lists of revoked certificates in PEM (`ssl_crl`); empty: they are not looked at.
    pub revoked: Vec<u8>,
    /// Certificates between the peer's and a trusted one (`ssl_verify_depth`).
    pub depth: u32,
}

/// Whether what clients send with the handshake is taken (`ssl_early_data`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum EarlyData {
    #[default]
    Refused,
    Taken,
}

/// Which side of connections sessions are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Side {
    #[default]
    Server,
    Client,
}

/// Whether certificates are sent compressed to clients that take it (`ssl_certificate_compression`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Compression {
    #[default]
    Off,
    Zlib,
}

/// Whether clients that ask are told what authorities say of certificates (`ssl_stapling`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stapling {
    /// They are not.
    #[default]
    Off,
    /// They are told what is [given](Given::staples).
    On,
}

/// Everything that a context is made from. Equal plans make equal contexts.
pub struct Plan<P> {
    /// Which side its sessions are. Tickets, the scope and early data are the server's.
    pub side: Side,
    /// `ssl_protocols`.
    pub versions: Versions,
    /// `ssl_ciphers`.
    pub ciphers: CipherList,
    /// Suites of TLS 1.3 by name (`ssl_conf_command Ciphersuites`), or the library's.
    pub suites_of_13: Option<String>,
    /// `@SECLEVEL`.
    pub level: Level,
    /// Signature algorithms by name (`ssl_conf_command SignatureAlgorithms`), or those of the level.
    pub signatures: Option<String>,
    /// `ssl_prefer_server_ciphers`.
    pub preference: Preference,
    /// Groups in their order, by name, with colons (`ssl_ecdh_curve`), or the library's.
    pub groups: Option<String>,
    /// One for each kind of key at most; the peer gets one that it can check.
    pub pairs: Vec<Arc<P>>,
    /// Protocols in the order of this side (ALPN); none: the peer is told nothing.
    pub protocols: Vec<Vec<u8>>,
    /// Tickets.
    pub tickets: Tickets,
    /// Tickets for a client of TLS 1.3 (`ssl_conf_command NumTickets`), or as many as the library gives.
    pub tickets_count: Option<u32>,
    /// Sessions that the server keeps.
    pub keeping: Keeping,
    /// For which servers a session is good: those with the same bytes.
    pub scope: [u8; 32],
    /// `ssl_session_timeout`, seconds.
    pub timeout_s: u32,
    /// Certificates of peers.
    pub verification: Verification,
    /// What comes with the handshake.
    pub early_data: EarlyData,
    /// Certificates of this side.
    pub compression: Compression,
    /// What authorities say of them.
    pub stapling: Stapling,
}

impl<P> Plan<P> {
    /// nginx's defaults, with these pairs.
    #[must_use]
    pub fn new(ciphers: CipherList, pairs: Vec<Arc<P>>) -> Self {
        const TIMEOUT_S: u32 = 300;
        const DEPTH: u32 = 1;
        Self {
            side: Side::default(),
            versions: Versions::default(),
            level: ciphers.level().map_or_else(Level::default, Level::new),
            ciphers,
            suites_of_13: None,
            signatures: None,
            preference: Preference::default(),
            groups: None,
            pairs,
            protocols: Vec::new(),
            tickets: Tickets::default(),
            tickets_count: None,
            keeping: Keeping::default(),
            scope: [0; 32],
            timeout_s: TIMEOUT_S,
            verification: Verification { depth: DEPTH, ..Verification::default() },
            early_data: EarlyData::default(),
            compression: Compression::default(),
            stapling: Stapling::default(),
        }
    }
}

/// Why something of a configuration cannot be used: the library's function that refused it, as nginx names
/// it, and its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// `PEM_read_bio_PrivateKey()` and the like.
    pub call: &'static str,
    /// The library's errors, the first cause first.
    pub reasons: Vec<Reason>,
}

impl LoadError {
    /// Says what was looked for in a text in PEM that has nothing of the kind.
    #[must_use]
    pub fn expecting(mut self, kind: &str) -> Self {
        const NO_START_LINE: &str = "no start line";
        let detailed = self.reasons.into_iter().map(|reason| match reason.text() {
            NO_START_LINE => reason.with_detail(format!("Expecting: {kind}")),
            _ => reason,
        });
        self.reasons = detailed.collect();
        self
    }
}

impl fmt::Display for LoadError {
    /// As nginx logs it: `CALL failed (SSL: error:…)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed", self.call)?;
        if !self.reasons.is_empty() {
            write!(f, " (SSL:{})", Reasons(&self.reasons))?;
        }
        Ok(())
    }
}

/// Reasons as they stand in a line of the log, each behind a space.
pub struct Reasons<'a>(pub &'a [Reason]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|reason| write!(f, " {reason}"))
    }
}

/// A session as the server keeps it, by what the client shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// A session id, or the beginning of a ticket. A client's own sessions have none.
    pub key: Vec<u8>,
    /// The session in the library's own form.
    pub content: Vec<u8>,
}

/// Bytes of a key of [`Kept`].
pub const KEPT_KEY_LENGTH: usize = 32;

/// The key under which a kept session would be that a client asks for. Nothing if it asks for none.
#[must_use]
pub fn kept_key(hello: &Hello) -> Option<&[u8]> {
    // A client of TLS 1.3 that has no ticket sends a session id that means nothing.
    let handle = hello.identity().or_else(|| hello.ticket().filter(|ticket| !ticket.is_empty()));
    match handle {
        Some(handle) => handle.get(..KEPT_KEY_LENGTH),
        None => Some(hello.session_id()).filter(|id| !id.is_empty()),
    }
}

/// What a client begins a connection with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// The host that is asked for (`proxy_ssl_server_name`). Addresses are not names.
    pub name: Option<&'a str>,
    /// A session of an earlier connection to it, as [`Session::take_kept`] gave it.
    pub session: Option<&'a [u8]>,
}

/// What was looked up for a handshake before it begins.
pub struct Given<P> {
    /// Certificates by variables, instead of those of the context.
    pub pairs: Vec<Arc<P>>,
    /// The session that the client asks for ([`kept_key`]), if it is kept.
    pub kept: Option<Kept>,
    /// What authorities say of the context's certificates, for a client that asks.
    pub staples: Vec<Staple<P>>,
    /// What an authority says of the certificate that is shown, whichever it is (OCSP, in DER).
    pub answer: Option<Arc<[u8]>>,
    /// Versions that may be spoken, if not those of the context.
    pub versions: Option<Versions>,
    /// One of the context's protocols (ALPN) that this client is not to have.
    pub withheld: Option<&'static [u8]>,
}

impl<P> Default for Given<P> {
    fn default() -> Self {
        Self {
            pairs: Vec::new(),
            kept: None,
            staples: Vec::new(),
            answer: None,
            versions: None,
            withheld: None,
        }
    }
}

/// What an authority says of a certificate.
pub struct Staple<P> {
    /// The certificate.
    pub pair: Arc<P>,
    /// The answer of its responder (OCSP), in DER.
    pub answer: Arc<[u8]>,
}

/// What a handshake has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on when more has been received, after what there is to be sent has been.
    Need,
    /// It is over; with [`EarlyData::Taken`] maybe before the client has said its last.
    Done,
    /// The server asks for a certificate, which is said first ([`Session::answer`]): of a session that was
    /// told to ask for it.
    Asked,
    /// The peer closed in order.
    Closed,
    /// It has failed; what there is to be sent may be an alert.
    Failed(Failure),
}

/// Certificates in place of those of the configuration.
#[derive(Clone, Default)]
pub struct Shown {
    /// These, with their keys: pairs of the engine, others are passed over.
    pub pairs: Vec<Arc<dyn Any + Send + Sync>>,
    /// Whether those of the configuration are not shown.
    pub is_cleared: bool,
}

/// What reading has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// All input that makes whole records was used.
    Need,
    /// The buffer is full, and there is more.
    Full,
    /// The peer has closed in order: nothing follows.
    Closed,
    /// A record that is none.
    Failed(Failure),
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The library's errors, the first cause first.
    pub reasons: Vec<Reason>,
}

impl fmt::Display for Failure {
    /// As nginx logs it: `(SSL: error:…)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reasons.is_empty() { Ok(()) } else { write!(f, "(SSL:{})", Reasons(&self.reasons)) }
    }
}

/// What variables say of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its version.
    pub version: Option<Version>,
    /// The suite, in OpenSSL's spelling.
    pub suite: Option<&'static str>,
    /// The group of the key exchange, by number; 0 where there was none.
    pub group: u16,
    /// The signature algorithm of this side's part of the handshake, by number; 0 where there was none.
    pub signature: u16,
    /// The signature algorithm of the peer's certificate message, by number; 0 where there was none.
    pub peer_signature: u16,
    /// The protocol that was agreed on (ALPN).
    pub protocol: Option<Vec<u8>>,
    /// Whether a session was taken up.
    pub is_resumed: bool,
    /// The session's id, which is empty until it has one. In TLS 1.3, which has none, it is something that no
    /// other connection has, as with OpenSSL.
    pub session_id: Vec<u8>,
    /// What the check of the peer's certificate said.
    pub verification: Verified,
}

/// What the check of a certificate said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verified {
    /// There was no certificate.
    #[default]
    None,
    /// Nothing is wrong with it.
    Sound,
    /// The number of X509_V_ERR, which OpenSSL shares, and its text.
    Failed(i64, &'static str),
}

/// A library.
pub trait Engine {
    /// A certificate with its chain and key.
    type Pair: Send + Sync;
    /// State that sessions have in common.
    type Context: Send + Sync;
    /// One side of a connection.
    type Session: Session;

    /// Makes a context.
    ///
    /// # Errors
    /// If the library refuses a part of the plan.
    fn context(plan: &Plan<Self::Pair>) -> Result<Arc<Self::Context>, LoadError>;

    /// Begins the server's side of a connection.
    ///
    /// # Errors
    /// If the library refuses what is given.
    fn accept(
        context: &Arc<Self::Context>,
        hello: &Hello,
        given: Given<Self::Pair>,
    ) -> Result<Self::Session, LoadError>;

    /// Begins the client's side of a connection: its hello comes out of the first step.
    ///
    /// # Errors
    /// If the library refuses the name.
    fn connect(context: &Arc<Self::Context>, target: Target<'_>) -> Result<Self::Session, LoadError>;
}

/// One side of a connection. It moves between threads, and is used by one at a time.
pub trait Session: Send {
    /// Goes on with the handshake: takes from the front of `input`, appends to `output`.
    fn step(&mut self, input: &mut &[u8], output: &mut Vec<u8>) -> Step;

    /// Decrypts records of `input` to the end of `plain`, as far as it has room. What has to be answered (an
    /// update of keys) is appended to `output`.
    fn open(&mut self, input: &mut &[u8], plain: &mut Vec<u8>, output: &mut Vec<u8>) -> Opened;

    /// Encrypts all of `parts` into records of at most `record` bytes at the end of `output`.
    ///
    /// # Errors
    /// If the session is over.
    fn seal(&mut self, parts: &[IoSlice<'_>], record: usize, output: &mut Vec<u8>) -> Result<(), Failure>;

    /// Says that nothing follows.
    fn close(&mut self, output: &mut Vec<u8>);

    /// What there is to say of it.
    fn info(&self) -> Info;

    /// The peer's certificate, if it has sent one, in DER. That of a session which was taken up is the one
    /// that was sent when it began.
    fn peer_certificate(&self) -> Option<Vec<u8>> {
        None
    }

    /// Sessions that are to be kept, once each.
    fn take_kept(&mut self) -> Vec<Kept> {
        Vec::new()
    }

    /// Whether the peer's Finished is still to come, though data can be read: what is read may have been sent
    /// by an attacker that has recorded it (`$ssl_early_data`).
    fn is_early(&self) -> bool {
        false
    }

    /// Says what a server is shown that has asked ([`Step::Asked`]); the next step goes on with it.
    ///
    /// # Errors
    /// If one is weaker than the level allows, or the library refuses it.
    fn answer(&mut self, shown: &Shown) -> Result<(), LoadError> {
        let _ = shown;
        Ok(())
    }
}
