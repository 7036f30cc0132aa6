//! The interface to a TLS library, behind which another library can stand. A session takes bytes and gives
//! bytes, and knows no socket. Certificates by variables and sessions of a cache, which may have to be waited
//! for, are looked up before and handed over in [`Given`], so that no call here waits.
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

/// A set of TLS versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions(u8);

impl Default for Versions {
    /// The default of `ssl_protocols`.
    fn default() -> Self {
        Self::none().and(Version::Tls12).and(Version::Tls13)
    }
}

impl Versions {
    /// The empty set.
    #[must_use]
    pub fn none() -> Self {
        Self(0)
    }

    /// The set with one more version.
    #[must_use]
    pub fn and(self, version: Version) -> Self {
        Self(self.0 | 1 << version as u8)
    }

    /// Whether the set has a version.
    #[must_use]
    pub fn has(self, version: Version) -> bool {
        self.0 & (1 << version as u8) != 0
    }

    /// The versions, oldest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Version> {
        Version::ALL.into_iter().filter(move |&version| self.has(version))
    }

    /// The newest one that another side speaks as well.
    pub fn newest_of(self, spoken: impl Iterator<Item = u16>) -> Option<Version> {
        spoken.filter_map(|number| self.iter().find(|version| version.number() == number)).max()
    }
}

/// The side whose order of cipher suites counts (`ssl_prefer_server_ciphers`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Preference {
    #[default]
    Client,
    Server,
}

/// Session tickets: how clients resume sessions that the server does not store.
#[derive(Clone, Default)]
pub enum Tickets {
    /// `ssl_session_tickets off`.
    #[default]
    Off,
    /// Tickets are encrypted with the first key of a ring and opened with any of its keys.
    Ring(Arc<KeyRing>),
}

/// Whether the server stores sessions (`ssl_session_cache`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// `off`: clients are told that sessions cannot be resumed.
    Off,
    /// `none`: sessions are not stored, and clients are not told so.
    #[default]
    None,
    /// The caller stores the sessions of [`Session::take_kept`], and gives them back in [`Given::kept`].
    Kept,
}

/// Whether peers' certificates are checked (`ssl_verify_client`, `proxy_ssl_verify`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// They are not checked, and clients are not asked for any.
    #[default]
    Off,
    /// They are checked. The handshake goes on in any case; the result is in [`Info::verification`].
    On,
}

/// How a peer's certificate is checked.
#[derive(Clone, Default)]
pub struct Verification {
    /// Whether it is checked.
    pub asking: Asking,
    /// Certificates in PEM that are trusted, and whose names are sent to clients (`ssl_client_certificate`).
    pub authorities: Vec<u8>,
    /// Further trusted certificates in PEM, whose names are not sent (`ssl_trusted_certificate`).
    pub trusted: Vec<u8>,
    /// Lists of revoked certificates in PEM (`ssl_crl`); empty: revocation is not checked.
    pub revoked: Vec<u8>,
    /// The most certificates between the peer's and a trusted one (`ssl_verify_depth`).
    pub depth: u32,
}

/// Whether early data is accepted: data that clients send with the handshake (`ssl_early_data`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum EarlyData {
    #[default]
    Refused,
    Taken,
}

/// The side of the connection that a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Side {
    #[default]
    Server,
    Client,
}

/// Whether certificates are sent compressed to clients that support it (`ssl_certificate_compression`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Compression {
    #[default]
    Off,
    Zlib,
}

/// Whether OCSP answers about the certificates are sent to clients that ask for them (`ssl_stapling`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stapling {
    /// None is sent.
    #[default]
    Off,
    /// The staples in [`Given::staples`] are sent.
    On,
}

/// All parameters of a context. Equal plans make equal contexts.
pub struct Plan<P> {
    /// The side that the context's sessions are. Tickets, scope and early data matter to servers only.
    pub side: Side,
    /// `ssl_protocols`.
    pub versions: Versions,
    /// `ssl_ciphers`.
    pub ciphers: CipherList,
    /// Names of the suites for TLS 1.3 (`ssl_conf_command Ciphersuites`); `None`: the library's default.
    pub suites_of_13: Option<String>,
    /// `@SECLEVEL`.
    pub level: Level,
    /// Names of signature algorithms (`ssl_conf_command SignatureAlgorithms`); `None`: those of the security
    /// level.
    pub signatures: Option<String>,
    /// `ssl_prefer_server_ciphers`.
    pub preference: Preference,
    /// Names of key exchange groups in their order, separated by colons (`ssl_ecdh_curve`); `None`: the
    /// library's default.
    pub groups: Option<String>,
    /// Certificates with their keys, at most one for each kind of key. The peer gets one that it can verify.
    pub pairs: Vec<Arc<P>>,
    /// Protocols in this side's order of preference (ALPN); none: ALPN is not used.
    pub protocols: Vec<Vec<u8>>,
    /// Tickets.
    pub tickets: Tickets,
    /// Number of tickets that a client of TLS 1.3 gets (`ssl_conf_command NumTickets`); `None`: the library's
    /// default.
    pub tickets_count: Option<u32>,
    /// Whether the server stores sessions.
    pub keeping: Keeping,
    /// A session can be resumed at servers with the same scope only.
    pub scope: [u8; 32],
    /// `ssl_session_timeout`, seconds.
    pub timeout_s: u32,
    /// How certificates of peers are checked.
    pub verification: Verification,
    /// Whether early data is accepted.
    pub early_data: EarlyData,
    /// Whether this side's certificates are sent compressed.
    pub compression: Compression,
    /// Whether OCSP answers about them are sent.
    pub stapling: Stapling,
}

impl<P> Plan<P> {
    /// A plan with nginx's defaults and these certificates.
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

/// A part of the configuration that the library refuses: the function that refused it, by the name that nginx
/// logs, and its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// `PEM_read_bio_PrivateKey()` and the like.
    pub call: &'static str,
    /// The library's errors, the first cause first.
    pub reasons: Vec<Reason>,
}

impl LoadError {
    /// Adds the kind of object that a text in PEM was searched for, if it has none.
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

/// A stored session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The key by which a client asks for it: a session id, or the beginning of a ticket. Empty on the
    /// client's side.
    pub key: Vec<u8>,
    /// The session in the library's own form.
    pub content: Vec<u8>,
}

/// Length of the key of a stored session, bytes.
pub const KEPT_KEY_LENGTH: usize = 32;

/// The key of the session that a client asks to resume. `None` if it asks for none.
#[must_use]
pub fn kept_key(hello: &Hello) -> Option<&[u8]> {
    // A client of TLS 1.3 that has no ticket sends a session id that means nothing.
    let handle = hello.identity().or_else(|| hello.ticket().filter(|ticket| !ticket.is_empty()));
    match handle {
        Some(handle) => handle.get(..KEPT_KEY_LENGTH),
        None => Some(hello.session_id()).filter(|id| !id.is_empty()),
    }
}

/// Parameters of one connection of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// The host name that is sent (SNI, `proxy_ssl_server_name`); `None` for addresses.
    pub name: Option<&'a str>,
    /// A session of an earlier connection to the same server, from [`Session::take_kept`].
    pub session: Option<&'a [u8]>,
}

/// Things that the caller looked up for a handshake before it begins.
pub struct Given<P> {
    /// Certificates that replace those of the context, if any: those of directives with variables.
    pub pairs: Vec<Arc<P>>,
    /// The session that the client asks for ([`kept_key`]), if it is stored.
    pub kept: Option<Kept>,
    /// OCSP answers about the context's certificates, for a client that asks.
    pub staples: Vec<Staple<P>>,
    /// An OCSP answer in DER that is sent with any certificate, instead of `staples`.
    pub answer: Option<Arc<[u8]>>,
    /// Versions that are allowed, if not those of the context.
    pub versions: Option<Versions>,
    /// One of the context's protocols (ALPN) that is not offered to this client.
    pub withheld: Option<&'static [u8]>,
    /// How this client's certificate is checked, if not as the context says.
    pub check: Option<ClientCheck>,
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
            check: None,
        }
    }
}

/// A client is asked for its certificate, and what is wrong with that is found in [`Info::verification`].
#[derive(Clone, Default)]
pub struct ClientCheck {
    /// Certificates that are trusted in place of the context's, and whose names the client is told: a chain
    /// of the engine, others are passed over.
    pub authorities: Option<Arc<dyn Any + Send + Sync>>,
    /// Likewise, but the client is not told.
    pub trusted: Option<Arc<dyn Any + Send + Sync>>,
    /// Certificates between the client's and a trusted one; without a number it is the context's.
    pub depth: Option<u32>,
}

/// Bytes that both sides of a connection have in common; empty where they are not known.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The random bytes of the client's hello.
    pub client_random: Vec<u8>,
    /// Those of the server's.
    pub server_random: Vec<u8>,
    /// The secret of the session.
    pub master_key: Vec<u8>,
}

/// An OCSP answer about a certificate.
pub struct Staple<P> {
    /// The certificate.
    pub pair: Arc<P>,
    /// The answer of the OCSP responder, in DER.
    pub answer: Arc<[u8]>,
}

/// The state of a handshake after a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The output is to be sent; then the handshake goes on when more was received.
    Need,
    /// The handshake is complete. With [`EarlyData::Taken`] the client's Finished may still be to come.
    Done,
    /// The server asks for a certificate, and the caller has to choose one ([`Session::answer`]) before the
    /// next step.
    Asked,
    /// The peer has closed the session in order.
    Closed,
    /// The handshake has failed; the output may hold an alert to send.
    Failed(Failure),
}

/// Certificates that Lua has set in place of those of the configuration.
#[derive(Clone, Default)]
pub struct Shown {
    /// Certificates with their keys: pairs of this engine; values of other types are ignored.
    pub pairs: Vec<Arc<dyn Any + Send + Sync>>,
    /// Whether the certificates of the configuration are dropped.
    pub is_cleared: bool,
}

/// The result of decrypting.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// All whole records of the input were used; more input is needed.
    Need,
    /// The buffer for plain text is full, and there is more.
    Full,
    /// The peer has closed the session in order: nothing follows.
    Closed,
    /// The session is over: a record is invalid, or the peer sent an alert.
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

/// Facts about a session, for variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The protocol version.
    pub version: Option<Version>,
    /// The cipher suite, in OpenSSL's spelling.
    pub suite: Option<&'static str>,
    /// The group of the key exchange, by number; 0 where there was none.
    pub group: u16,
    /// The signature algorithm of this side's part of the handshake, by number; 0 where there was none.
    pub signature: u16,
    /// The signature algorithm of the peer's certificate message, by number; 0 where there was none.
    pub peer_signature: u16,
    /// The protocol that was agreed on (ALPN).
    pub protocol: Option<Vec<u8>>,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
    /// The session's id, empty until there is one. TLS 1.3 has no ids: there it is a value that is unique to
    /// the connection, as with OpenSSL.
    pub session_id: Vec<u8>,
    /// The result of checking the peer's certificate.
    pub verification: Verified,
}

/// The result of checking a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verified {
    /// There was no certificate.
    #[default]
    None,
    /// The certificate is valid.
    Sound,
    /// The check failed: OpenSSL's number of the error (`X509_V_ERR_…`), and its text.
    Failed(i64, &'static str),
}

/// A TLS library.
pub trait Engine {
    /// A certificate with its chain and key.
    type Pair: Send + Sync;
    /// The parameters that sessions have in common.
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
    /// If the library refuses a part of `given`.
    fn accept(
        context: &Arc<Self::Context>,
        hello: &Hello,
        given: Given<Self::Pair>,
    ) -> Result<Self::Session, LoadError>;

    /// Begins the client's side of a connection. The first step writes the ClientHello.
    ///
    /// # Errors
    /// If the library refuses the name.
    fn connect(context: &Arc<Self::Context>, target: Target<'_>) -> Result<Self::Session, LoadError>;
}

/// One side of a connection. It may move between threads; one thread at a time uses it.
pub trait Session: Send {
    /// Goes on with the handshake: takes bytes from the front of `input`, appends bytes to be sent to
    /// `output`.
    fn step(&mut self, input: &mut &[u8], output: &mut Vec<u8>) -> Step;

    /// Decrypts records of `input` to the end of `plain`, as far as it has room. Records that have to be sent
    /// in answer (an update of keys) are appended to `output`.
    fn open(&mut self, input: &mut &[u8], plain: &mut Vec<u8>, output: &mut Vec<u8>) -> Opened;

    /// Encrypts all of `parts` into records of at most `record` bytes at the end of `output`.
    ///
    /// # Errors
    /// If the session is over.
    fn seal(&mut self, parts: &[IoSlice<'_>], record: usize, output: &mut Vec<u8>) -> Result<(), Failure>;

    /// Appends the alert that ends the session (close_notify) to `output`.
    fn close(&mut self, output: &mut Vec<u8>);

    /// Facts about the session.
    fn info(&self) -> Info;

    /// The peer's certificate in DER, if it has sent one. For a resumed session it is the one of the first
    /// handshake.
    fn peer_certificate(&self) -> Option<Vec<u8>> {
        None
    }

    /// What the two sides have in common.
    fn secrets(&self) -> Secrets {
        Secrets::default()
    }

    /// So many bytes that both sides can derive, and nobody else (RFC 5705), for a purpose that `label`
    /// names. `None` where the handshake is not over, or for so many.
    fn export(&self, label: &[u8], context: Option<&[u8]>, bytes: usize) -> Option<Vec<u8>> {
        let _ = (label, context, bytes);
        None
    }

    /// Numbers of the cipher suites that this side speaks, in its order.
    fn suites(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Takes the sessions that the caller is to store. Each is returned once.
    fn take_kept(&mut self) -> Vec<Kept> {
        Vec::new()
    }

    /// Whether data can be read though the peer's Finished is still to come. Such data may have been recorded
    /// and sent again by an attacker (`$ssl_early_data`).
    fn is_early(&self) -> bool {
        false
    }

    /// Sets the certificates for a server that asks for one ([`Step::Asked`]). The next step goes on with
    /// them.
    ///
    /// # Errors
    /// If a certificate is weaker than the security level allows, or the library refuses it.
    fn answer(&mut self, shown: &Shown) -> Result<(), LoadError> {
        let _ = shown;
        Ok(())
    }
}
