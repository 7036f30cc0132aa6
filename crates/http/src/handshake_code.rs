//! Code that has a say in handshakes (`ssl_client_hello_by_lua_block` and its kin): it is run before the TLS
//! library is asked, as everything is that may wait, and says what the library is to be given. The crate that
//! has the code writes it into the configuration; the connection's task runs it.

use std::any::Any;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use clearway_base::log::Sink;
use clearway_net::PeerAddr;
use clearway_runtime::LoopRef;
use clearway_site::{ConfKey, ServerId, Setting, settings};
use clearway_tls::engine::{Kept, Versions};
use clearway_tls::hello::Hello;

use crate::client::Client;
use crate::generation::Setup;
use crate::tables::Snapshot;

/// The code of each server.
pub static HANDSHAKE_CODE: ConfKey<HandshakeCodes> = ConfKey::new(clearway_site::Level::Server);

settings! {
    /// See [`HANDSHAKE_CODE`].
    pub struct HandshakeCodes {
        /// Of an address's default server: run for a hello, before its server is chosen.
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
    /// What it has said.
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

/// What code wishes the library to be given.
#[derive(Clone, Default)]
pub struct Wishes {
    /// Certificates with their keys, as the library of the acceptor has them (`clearway_tls::Pair`), beside
    /// those of the configuration.
    pub pairs: Vec<Arc<dyn Any + Send + Sync>>,
    /// Whether those of the configuration are not shown.
    pub is_cleared: bool,
    /// Versions that may be spoken, if not those of the configuration.
    pub versions: Option<Versions>,
    /// The session that the client asks for, in the library's own form.
    pub session: Option<Vec<u8>>,
}
