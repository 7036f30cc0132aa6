//! The client that requests are answered for. Shared by all requests of a connection, of which several may
//! run at once; what carries their bytes it does not know (`link`).

use std::sync::Arc;

use clearway_base::log::{Level, Record};
use clearway_net::PeerAddr;
use clearway_net::proxy_protocol::Proxied;
use clearway_runtime::LoopRef;

use crate::generation::{Listener, Setup};
use crate::link::Link;
use crate::link::parts::Parts;
use crate::metrics;

/// The peer of a connection, as far as answering requests has to know it.
pub struct Client {
    /// The loop that the connection is at home on.
    pub home: LoopRef,
    listener: Arc<Listener>,
    pub(crate) peer: PeerAddr,
    pub(crate) serial: u64,
    /// When it was accepted, on the clock of its loop.
    pub start_ms: u64,
    /// Facts that a proxy has sent before the first request.
    pub front: Option<Box<Front>>,
}

impl Client {
    /// The client of a connection that was accepted on `home`.
    pub fn new(listener: Arc<Listener>, home: LoopRef, peer: PeerAddr) -> Self {
        Self { home, peer, serial: metrics::next_serial(), start_ms: home.now_ms(), front: None, listener }
    }

    /// The same client for another request of its connection, with the address that a proxy has sent.
    #[must_use]
    pub fn share(&mut self) -> Self {
        Self {
            home: self.home,
            listener: Arc::clone(&self.listener),
            peer: self.peer,
            serial: self.serial,
            start_ms: self.start_ms,
            front: self.front.take(),
        }
    }

    /// The listener at which the client arrived.
    #[inline]
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Its address, as it has connected.
    pub fn peer(&self) -> PeerAddr {
        self.peer
    }

    /// Whether connections are to end with their requests.
    pub(crate) fn is_stopping(&self) -> bool {
        self.listener.is_stopping()
    }

    /// Empty buffers for a request.
    pub fn take_parts(&self, setup: &Setup) -> Box<Parts> {
        let bytes = setup.server_core().options.client_header_buffer_size;
        self.listener.stock.take(self.home.index(), bytes)
    }

    /// Takes the buffers of a request back.
    pub fn put_back(&self, parts: Box<Parts>) {
        self.listener.stock.put_back(self.home.index(), parts);
    }

    /// Writes a line about the connection where there is no request to tell more.
    pub fn log(&self, setup: &Setup, level: Level, action: &str, message: std::fmt::Arguments<'_>) {
        let (client, server) = (self.peer, &setup.address().text);
        let circumstances = format_args!(" while {action}, client: {client}, server: {server}");
        self.log_plain(setup, level, format_args!("{message}{circumstances}"));
    }

    /// Writes a line as it stands.
    pub fn log_plain(&self, setup: &Setup, level: Level, message: std::fmt::Arguments<'_>) {
        let base = setup.snapshot().server(setup.address().default_server).base;
        let sinks = setup.snapshot().location(base).core.error_log.iter();
        for sink in sinks.filter(|sink| sink.enabled(level)) {
            let tid = setup.identity(self.home);
            sink.write(&Record { level, tid, connection: Some(self.serial), message });
        }
    }
}

/// The client of a request, the configuration that answers it, and the link that carries it.
#[derive(Clone, Copy)]
pub struct Way<'c> {
    /// The client that sends it.
    pub client: &'c Client,
    /// The generation that answers it to its end.
    pub setup: &'c Arc<Setup>,
    /// The link that carries it.
    pub link: Link<'c>,
}

/// Bytes that have arrived before the first request of a connection.
pub struct Front {
    proxied: Option<Box<Proxied>>,
    /// Bytes that were received together with it.
    rest: Option<Box<Parts>>,
}

impl Front {
    /// With what was received behind the header.
    pub fn new(proxied: Option<Box<Proxied>>, rest: Option<Box<Parts>>) -> Self {
        Self { proxied, rest }
    }

    /// The contents of the header.
    pub(crate) fn proxied(&self) -> Option<&Proxied> {
        self.proxied.as_deref()
    }

    /// Keeps bytes that were received before the connection turned out to begin with a request.
    pub fn put_rest(&mut self, rest: Box<Parts>) {
        self.rest = Some(rest);
    }

    /// Takes the bytes that were received behind the header: the beginning of the first request.
    pub fn take_rest(&mut self) -> Option<Box<Parts>> {
        self.rest.take()
    }
}
