//! Code that has a say in handshakes (`ssl_client_hello_by_lua_block` and its kin): it is run before the TLS
//! library is asked, as everything is that may wait, and says what the library is to be given. The crate that
//! has the code writes it into the configuration; the connection's task runs it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_base::log::Sink;
use clearway_net::PeerAddr;
use clearway_runtime::LoopRef;
use clearway_site::{ConfKey, ServerId, Setting, settings};
use clearway_tls::engine::{ClientCheck, Kept, Shown, Versions};
use clearway_tls::hello::Hello;

use crate::client::Client;
use crate::generation::Setup;
use crate::link::tls::Remembered;
use crate::phases::Exchange;
use crate::tables::Snapshot;

/// The code of each server.
pub static HANDSHAKE_CODE: ConfKey<HandshakeCodes> = ConfKey::new(clearway_site::Level::Server);

settings! {
    /// See [`HANDSHAKE_CODE`].
    pub struct HandshakeCodes {
        /// Code of an address's default server: run for a hello, before its server is chosen.
        pub client_hello: Setting<Option<Arc<dyn HandshakeCode>>>,
        /// Run when the server is chosen.
        pub certificate: Setting<Option<Arc<dyn HandshakeCode>>>,
        /// Run for a client that asks for a session.
        pub session_fetch: Setting<Option<Arc<dyn HandshakeCode>>>,
        /// Run with a session that a client was given.
        pub session_store: Setting<Option<Arc<dyn HandshakeCode>>>,
    }
}

/// Code of one directive.
pub trait HandshakeCode: Send + Sync {
    /// Runs it: what is wished for then, which `wishes` is a part of.
    fn run(&self, about: About, wishes: Wishes) -> HandshakeWait;
}

/// Code that runs.
pub type HandshakeWait = Pin<Box<dyn Future<Output = Result<Wishes, Denied>> + Send>>;

/// The code wants no handshake, or has failed, which is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

/// The client that shakes hands, and what is known of it.
pub struct About {
    /// The ClientHello.
    pub hello: Arc<Hello>,
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// The server whose code it is.
    pub server: ServerId,
    /// The loop of the connection.
    pub home: LoopRef,
    /// Its address.
    pub peer: PeerAddr,
    /// The address that it has connected to; none of a unix socket.
    pub local: Option<SocketAddr>,
    /// The address as it is configured.
    pub listen: String,
    /// Take lines about it.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// The thread that stands for the loop in them.
    pub identity: u32,
    /// The number of the connection.
    pub serial: u64,
    /// The version that will be spoken, by number; none where that is not known.
    pub version: Option<u16>,
    /// The cipher suites of the server, by number, in its order; none where it is not chosen yet.
    pub suites: Vec<u16>,
    /// The session that is to be kept.
    pub session: Option<Kept>,
}

impl About {
    /// A client that has said `hello`.
    pub fn new(client: &Client, setup: &Setup, server: ServerId, hello: &Arc<Hello>) -> Self {
        let base = setup.snapshot().server(setup.address().default_server).base;
        Self {
            hello: Arc::clone(hello),
            snapshot: setup.shared_snapshot(),
            server,
            home: client.home,
            peer: client.peer(),
            local: None,
            listen: setup.address().text.to_string(),
            sinks: setup.snapshot().location(base).core.error_log.iter().cloned().collect(),
            identity: setup.identity(client.home),
            serial: client.serial,
            version: None,
            suites: Vec::new(),
            session: None,
        }
    }
}

impl Setup {
    /// The code of a server.
    pub fn handshake_code(&self, server: ServerId) -> &HandshakeCodes {
        self.snapshot().server(server).conf(&HANDSHAKE_CODE)
    }
}

/// Wishes of the code to the TLS library.
#[derive(Clone, Default)]
pub struct Wishes {
    /// Certificates beside those of the configuration, or in place of them.
    pub shown: Shown,
    /// An OCSP answer for the certificate that is sent, in DER.
    pub answer: Option<Arc<[u8]>>,
    /// Versions that may be spoken, if not those of the configuration.
    pub versions: Option<Versions>,
    /// How the client's certificate is checked, if not as the configuration says.
    pub check: Option<ClientCheck>,
    /// The session that the client asks for, in the library's own form.
    pub session: Option<Vec<u8>>,
    /// State that the code keeps of the client.
    pub remembered: Option<Remembered>,
}

/// The code of a location that has a say in handshakes with servers.
pub static UPSTREAM_CODE: ConfKey<UpstreamCodes> = ConfKey::new(clearway_site::Level::Location);

settings! {
    /// See [`UPSTREAM_CODE`].
    pub struct UpstreamCodes {
        /// Run for a server that asks for a certificate.
        pub certificate: Setting<Option<Arc<dyn UpstreamCode>>>,
        /// Run with the certificate of a server.
        pub verify: Setting<Option<Arc<dyn UpstreamCode>>>,
        /// Whether that code alone looks at certificates, not behind the library.
        pub skips_default: Setting<bool> = false,
    }
}

/// Code of one directive.
pub trait UpstreamCode: Send + Sync {
    /// A handshake is there that it has a say in.
    fn begin(&self) -> Box<dyn Consulting>;

    /// Its directive, without the ending that says where the code is.
    fn name(&self) -> &'static str;
}

/// Code that runs for a request, and may wait. Polled by the request's task.
pub trait Consulting: Send {
    /// Ready when it is over; what it has said is in `met` then.
    fn poll(
        &mut self,
        exchange: &mut Exchange<'_, '_>,
        met: &mut Met,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Denied>>;
}

/// A server in whose handshake code has a say, and what the code says.
#[derive(Clone, Default)]
pub struct Met {
    /// The version that is spoken, by number.
    pub version: Option<u16>,
    /// The server's certificate in DER.
    pub certificate: Option<Vec<u8>>,
    /// The result of checking it, by OpenSSL's number; 0 is valid. Code may set another number.
    pub verification: i32,
    /// The certificates for the server.
    pub shown: Shown,
}
