//! A server's settings for TLS, as connections need them: made at load by the module that has the directives,
//! read when a handshake begins. Nothing in here waits.

use std::sync::Arc;

use clearway_base::log::Level;
use clearway_message::{status::internal as status, validate_host};
use clearway_offload::{Pool, Task};
use clearway_runtime::LoopRef;
use clearway_site::regex::Captures;
use clearway_site::{Address, ConfKey, Own, ServerId, settings};
use clearway_tls::engine::{Kept, LoadError, Session, Verified};
use clearway_tls::hello::Hello;

use crate::generation::Setup;
use crate::handshake_code::Wishes;
use crate::link::tls::{RecordSize, Tls};
use crate::name_servers::{AskedServers, NAME_SERVERS};
use crate::output::view::View;
use crate::request::Request;

/// The TLS settings of each server; `None` if it has no certificate and refuses no handshakes.
pub static SERVER_TLS: ConfKey<TlsConf> = ConfKey::new(clearway_site::Level::Server);

settings! {
    /// See [`SERVER_TLS`].
    pub struct TlsConf {
        /// Made when all levels are merged.
        pub server: Own<Option<Arc<ServerTls>>>,
    }
}

/// How a server speaks TLS.
pub struct ServerTls {
    /// The acceptor of handshakes; `None` if the server has no certificate.
    pub acceptor: Option<Arc<dyn Accept>>,
    /// Which clients are spoken with.
    pub handling: SniHandling,
    /// `ssl_verify_client`.
    pub verify: Verify,
    /// `ssl_buffer_size`.
    pub records: RecordSize,
    /// Where steps of handshakes run that would keep a loop from others.
    pub pool: Option<Arc<Pool>>,
}

/// Which clients a server speaks with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SniHandling {
    /// All that ask for it, or for nobody else.
    #[default]
    Served,
    /// None (`ssl_reject_handshake`).
    Rejected,
}

/// Whether clients have to show a certificate (`ssl_verify_client`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Clients are not asked for a certificate.
    #[default]
    Off,
    /// Clients have to send a valid certificate.
    On,
    /// Clients may send a certificate, which must then be valid.
    Optional,
    /// Clients may send a certificate, which need not be signed by a known authority.
    OptionalNoCa,
}

/// Whether a client may agree on HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum OfferedHttp2 {
    Yes,
    No,
}

/// How much a step of a handshake computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Some 10 µs: a session is taken up, or the client has confirmed a handshake.
    Resumed,
    /// At most some 100 µs: a signature with an elliptic curve is made.
    Light,
    /// Some 300 µs on processors of today: a signature with RSA of 2048 bits is made.
    Moderate,
    /// A millisecond and more: longer keys of RSA, certificates of clients.
    Heavy,
}

/// Begins handshakes.
pub trait Accept: Send + Sync {
    /// Whether it has to know values of variables to begin.
    fn needs_values(&self) -> bool {
        false
    }

    /// Begins the server's side. `view` is there where [values](Self::needs_values) are needed, and only
    /// there; it knows what the client has said, and no request.
    ///
    /// # Errors
    /// Why there is no handshake.
    fn accept(&self, client: ClientHello<'_>, view: Option<&View<'_, '_>>) -> Result<Begun, Unaccepted>;

    /// The version that such a client is spoken with, by number.
    fn version(&self, hello: &Hello, wishes: &Wishes) -> Option<u16> {
        let (_, _) = (hello, wishes);
        None
    }

    /// The numbers of the cipher suites that are spoken, in the server's order.
    fn suites(&self, wishes: &Wishes) -> Vec<u16> {
        let _ = wishes;
        Vec::new()
    }

    /// Keeps sessions that clients may want to take up.
    fn keep(&self, sessions: Vec<Kept>);
}

/// A client that has said hello.
#[derive(Clone, Copy)]
pub struct ClientHello<'a> {
    /// The ClientHello.
    pub hello: &'a Hello,
    /// Whether it may agree on HTTP/2.
    pub http2: OfferedHttp2,
    /// The loop that its connection is at home on.
    pub home: LoopRef,
    /// Name servers of the server whose handshake it is.
    pub names: &'a AskedServers,
    /// Wishes of handshake code.
    pub wishes: &'a Wishes,
}

/// A handshake that has begun, or will have.
pub enum Begun {
    /// Its first step can be taken.
    Ready(Opening),
    /// A pool reads certificates for it.
    Loading(Task<Result<Opening, Unaccepted>>),
}

/// A session before its first step.
pub struct Opening {
    /// The session.
    pub session: Box<dyn Session>,
    /// How much the answer to the hello computes if no session is taken up.
    pub weight: Weight,
    /// Whether one is, as far as can be told before it is opened.
    pub claim: Claim,
}

/// The session that a client claims to have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing.
    None,
    /// That it takes one up: an old one, or one that is none, makes a full handshake after all.
    Session,
}

/// Why a handshake cannot begin: the server is to blame.
#[derive(Debug)]
pub enum Unaccepted {
    /// The library refuses something.
    Library(LoadError),
    /// A certificate by variables cannot be used; nginx's words for it.
    Certificate(String),
}

impl From<LoadError> for Unaccepted {
    fn from(error: LoadError) -> Self {
        Self::Library(error)
    }
}

/// The server that answers a hello.
pub struct Chosen<'a> {
    /// The server that has the host, or the default one.
    pub id: ServerId,
    /// The host that was asked for, if a server has it: in lower case.
    pub host: Option<Box<[u8]>>,
    /// The settings of the server with that name, or of the default one; `None` if it has none for TLS.
    pub server: Option<&'a ServerTls>,
    /// The acceptor of the handshake: that server's, or the default one's.
    pub acceptor: Option<&'a Arc<dyn Accept>>,
    /// Name servers of the server that it is made with.
    pub names: AskedServers,
    /// Whether that server speaks HTTP/2.
    pub http2: OfferedHttp2,
}

impl Setup {
    /// The server that answers a client which asks for the host of this name (SNI).
    ///
    /// # Errors
    /// The name is none, or an expression could not be matched.
    pub fn choose_tls(&self, name: Option<&[u8]>) -> Result<Chosen<'_>, InvalidName> {
        let address = self.address();
        let tls = |id| self.snapshot().server(id).conf(&SERVER_TLS).server.as_deref();
        let default = tls(address.default_server);
        // A name that no host can have is none.
        let host = name.and_then(normalized);
        let found = match &host {
            Some(host) => find_server(address, host)?,
            None => None,
        };
        let server = found.map_or(default, tls);
        let id = found.unwrap_or(address.default_server);
        let acceptor = |id| Some((tls(id)?.acceptor.as_ref()?, id));
        let acceptor = acceptor(id).or_else(|| acceptor(address.default_server));
        let maker = acceptor.map_or(id, |(_, id)| id);
        let names = self.snapshot().location(self.snapshot().server(maker).base).conf(&NAME_SERVERS).asked();
        let acceptor = acceptor.map(|(acceptor, _)| acceptor);
        let speaks = self.speaks_http2(self.snapshot().server(id));
        let http2 = if speaks { OfferedHttp2::Yes } else { OfferedHttp2::No };
        Ok(Chosen { id, host: host.filter(|_| found.is_some()), server, acceptor, names, http2 })
    }
}

impl Setup {
    /// Whether a server has certificates of its own.
    pub fn has_certificates(&self, server: ServerId) -> bool {
        let tls = self.snapshot().server(server).conf(&SERVER_TLS).server.as_deref();
        tls.is_some_and(|tls| tls.acceptor.is_some())
    }

    /// The first name of a server, empty if it has none.
    pub fn server_name(&self, server: ServerId) -> &[u8] {
        self.snapshot().server(server).name()
    }

    /// The server that has this host, in lower case, if one has it.
    pub(crate) fn find_host(&self, host: &[u8]) -> Option<ServerId> {
        find_server(self.address(), host).ok().flatten()
    }
}

/// A name that cannot be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidName;

fn normalized(name: &[u8]) -> Option<Box<[u8]>> {
    let host = validate_host(name, 0)?;
    Some(host.name.of(name).to_ascii_lowercase().into())
}

fn find_server(address: &Address, host: &[u8]) -> Result<Option<ServerId>, InvalidName> {
    let mut captures = Captures::default();
    address.names.find(host, |regex| regex.exec(host, &mut captures).map_err(|_| InvalidName))
}

impl Request<'_> {
    /// TLS, if there is any between the client and the bytes.
    #[inline]
    pub fn tls(&self) -> Option<&Tls> {
        self.link.tls()
    }

    /// Looks at how the client has begun on an address with TLS, before its request is answered.
    ///
    /// # Errors
    /// The status to answer with instead; the reason is logged.
    pub(crate) fn check_tls(&self) -> Result<(), u16> {
        let Some(tls) = self.tls() else {
            self.log(Level::Info, format_args!("client sent plain HTTP request to HTTPS port"));
            return Err(status::HTTP_TO_HTTPS);
        };
        let verify = self.verification();
        if verify == Verify::Off {
            return Ok(());
        }
        match tls.info().verification {
            Verified::Failed(number, text) if !is_forgiven(verify, number) => {
                let line = format_args!("client SSL certificate verify error: ({number}:{text})");
                self.log(Level::Info, line);
                Err(status::SSL_CERTIFICATE_ERROR)
            }
            Verified::None if verify == Verify::On => {
                self.log(Level::Info, format_args!("client sent no required SSL certificate"));
                Err(status::NO_SSL_CERTIFICATE)
            }
            _ => Ok(()),
        }
    }

    /// Finds the server of a request whose host is not that of the handshake, if that named one.
    ///
    /// # Errors
    /// The server asks clients for certificates, which this one was not asked for: 421.
    pub(crate) fn check_negotiated(&self, host: &[u8], server: ServerId) -> Result<(), u16> {
        let negotiated = self.tls().and_then(|tls| tls.offer.host.as_deref());
        let is_other = negotiated.is_some_and(|negotiated| negotiated != host);
        let tls = self.snapshot.server(server).conf(&SERVER_TLS).server.as_deref();
        if is_other && tls.is_some_and(|tls| tls.verify != Verify::Off) {
            let line =
                "client attempted to request the server name different from the one that was negotiated";
            self.log(Level::Info, format_args!("{line}"));
            return Err(421);
        }
        Ok(())
    }

    fn verification(&self) -> Verify {
        self.server().conf(&SERVER_TLS).server.as_ref().map_or(Verify::Off, |tls| tls.verify)
    }
}

/// Whether it only means that no known authority has signed the certificate.
fn is_forgiven(verify: Verify, number: i64) -> bool {
    /// Numbers of X509_V_ERR: the issuer is missing, is the leaf itself, is in the chain itself, the leaf is
    /// unsigned, the issuer is untrusted.
    const UNKNOWN_ISSUERS: [i64; 5] = [18, 19, 20, 21, 27];
    verify == Verify::OptionalNoCa && UNKNOWN_ISSUERS.contains(&number)
}
