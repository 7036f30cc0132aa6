//! A connection to a server that may be used for several requests, and which requests those are.

use std::hash::{Hash, Hasher};

use clearway_net::accept::ConnectionSlot;
use clearway_net::connect::{Local, Outbound};
use clearway_os::outgoing::Remote;
use clearway_runtime::Probe;
use clearway_tls::engine::Session;

use super::tls::TlsStream;
use super::transport::Transport;

/// Idle for so long a connection is looked at before a request goes out on it that cannot be repeated, in
/// milliseconds.
pub const LOOK_AFTER_MS: u64 = 1000;

/// Which connections one request may use instead of another's: those to the same address, from the same one,
/// of the same scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity<'a> {
    /// The server.
    pub remote: &'a Remote,
    /// Where the connection comes from.
    pub local: Option<Local>,
    /// Stands for the location where connections are not shared by locations (`keepalive … local`).
    pub scope: u64,
}

impl Identity<'_> {
    /// By this it is found among others, some of which may have the same.
    pub(crate) fn tag(&self) -> u64 {
        let mut hasher = TagHasher(0);
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Addresses of a configuration are not chosen by attackers, and a search that finds another connection with
/// the same tag goes on.
struct TagHasher(u64);

impl Hasher for TagHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..block.len()].copy_from_slice(block);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Whether a request that was sent may be sent again to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The request may be repeated.
    Possible,
    /// The request must not be repeated, so the connection should be reliable.
    Impossible,
}

/// A connection in use, or idle. In a box from the first request on, so that no later one allocates for it.
pub struct Connection {
    /// The transport of its bytes.
    pub transport: Transport,
    pub(crate) slot: Option<ConnectionSlot>,
    remote: Remote,
    local: Option<Local>,
    scope: u64,
    pub(crate) tag: u64,
    /// Requests that were sent on it, the present one included.
    pub(crate) requests: u32,
    pub(crate) born_ms: u64,
    pub(crate) idle_since_ms: u64,
    /// Bytes that earlier requests have sent on it.
    sent_bytes: u64,
    /// How long it may be idle, where that is not for its pool to say; milliseconds.
    pub(crate) timeout_ms: Option<u64>,
    /// How many requests it may have, likewise.
    pub(crate) requests_max: Option<u32>,
}

impl Connection {
    /// A connection that was made for a request, now.
    #[must_use]
    pub fn new(made: Outbound, identity: Identity<'_>, now_ms: u64) -> Box<Self> {
        Self::carried_by(Transport::Plain(made.socket), made.slot, identity, now_ms)
    }

    /// A connection with TLS, whose handshake is still to come.
    #[must_use]
    pub fn with_tls(
        made: Outbound,
        session: Box<dyn Session>,
        identity: Identity<'_>,
        now_ms: u64,
    ) -> Box<Self> {
        let transport = Transport::Tls(TlsStream::new(made.socket, session));
        Self::carried_by(transport, made.slot, identity, now_ms)
    }

    /// A connection to a server in memory.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn in_memory(
        end: clearway_net::memory::MemoryEnd,
        slot: ConnectionSlot,
        identity: Identity<'_>,
        now_ms: u64,
    ) -> Box<Self> {
        Self::carried_by(Transport::Memory(end), slot, identity, now_ms)
    }

    fn carried_by(
        transport: Transport,
        slot: ConnectionSlot,
        identity: Identity<'_>,
        now_ms: u64,
    ) -> Box<Self> {
        Box::new(Self {
            transport,
            slot: Some(slot),
            remote: identity.remote.clone(),
            local: identity.local,
            scope: identity.scope,
            tag: identity.tag(),
            requests: 1,
            born_ms: now_ms,
            idle_since_ms: now_ms,
            sent_bytes: 0,
            timeout_ms: None,
            requests_max: None,
        })
    }

    /// Which requests may use it.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        Identity { remote: &self.remote, local: self.local, scope: self.scope }
    }

    /// Whether it was used before.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.requests > 1
    }

    /// Limits for this connection in place of its pool's: idle time in milliseconds, and number of requests;
    /// 0 is unlimited.
    pub fn keep_for(&mut self, timeout_ms: u64, requests_max: u32) {
        self.timeout_ms = Some(if timeout_ms == 0 { u64::MAX } else { timeout_ms });
        self.requests_max = Some(if requests_max == 0 { u32::MAX } else { requests_max });
    }

    /// Whether its loop wants its place for another connection.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.transport.is_reclaimed()
    }

    /// A request that sent so many bytes is over.
    pub fn note_sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
        self.transport.note_idle();
    }

    /// Whether the server had ended the connection before any of the present request came there; to be asked
    /// when the end was read and nothing before it. Each segment acknowledges what has come in its order, and
    /// so does the one with the end: where that did not take in a byte of the request, nobody can have
    /// read one, and what comes later is refused by the server's kernel. Of a reset nothing is known.
    #[must_use]
    pub fn ended_unasked(&self) -> bool {
        self.transport.acknowledged_bytes().is_ok_and(|bytes| bytes <= self.sent_bytes)
    }

    /// Whether nothing has come on it since the last response, as far as the loop has learned.
    pub(crate) fn is_quiet(&self) -> bool {
        self.transport.is_quiet()
    }

    /// As [`is_quiet`](Self::is_quiet), for a request: asks the kernel where that matters.
    pub(crate) fn is_fit(&self, repeat: Repeat, now_ms: u64) -> bool {
        let idle_ms = now_ms.saturating_sub(self.idle_since_ms);
        let trusted = repeat == Repeat::Possible || idle_ms < LOOK_AFTER_MS;
        self.is_quiet() && (trusted || self.transport.probe() == Probe::Quiet)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("remote", &self.remote)
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}
