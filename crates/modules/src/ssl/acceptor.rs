//! Handshakes of one server: its context of the library, and what is looked up before the library is asked.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clearway_http::{Accept, OfferedHttp2, Weight};
use clearway_tls::cache::{SessionCache, SharedKeys};
use clearway_tls::engine::{Engine, Given, Kept, LoadError, Session};
use clearway_tls::hello::Hello;
use clearway_tls::level::Key;
use clearway_tls::tickets::KeyRing;
use clearway_tls::{AwsLc, Context, Pair};

/// ECDSA with SHA-256, 384 and 512, and Ed25519 (RFC 8446 §4.2.3).
const CHEAP_SIGNATURES: [u16; 4] = [0x0403, 0x0503, 0x0603, 0x0807];

/// See the file's head.
pub(crate) struct Acceptor {
    pub(crate) context: Arc<Context>,
    pub(crate) keys: Keys,
    pub(crate) sessions: Option<Arc<SessionCache>>,
    /// `ssl_session_timeout`, seconds.
    pub(crate) timeout_s: u32,
    /// Keys of tickets, where they stay the same.
    pub(crate) ring: Option<Arc<KeyRing>>,
    /// Those of a zone, where they change.
    pub(crate) shared_keys: Option<SharedKeys>,
}

/// Which kinds of keys there are certificates for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys {
    has_rsa: bool,
    has_other: bool,
}

impl Keys {
    /// Those of these certificates.
    pub(crate) fn of(pairs: &[Arc<Pair>]) -> Self {
        let is_rsa = |pair: &Arc<Pair>| matches!(pair.certificate().key(), Key::Rsa(_));
        Self { has_rsa: pairs.iter().any(is_rsa), has_other: pairs.iter().any(|pair| !is_rsa(pair)) }
    }
}

impl Acceptor {
    /// Whether a session is taken up, as far as can be told before it is opened.
    fn takes_up(&self, hello: &Hello) -> bool {
        if self.ring.is_none() {
            return hello.identity().is_some() || hello.ticket().is_some_and(|ticket| !ticket.is_empty());
        }
        let ticket = hello.identity().or_else(|| hello.ticket()).unwrap_or_default();
        let mut keys = self.ring.iter().flat_map(|ring| ring.keys());
        keys.any(|key| ticket.starts_with(key.name()))
    }
}

impl Accept for Acceptor {
    fn weight(&self, hello: &Hello) -> Weight {
        let takes_cheap = hello.signatures().any(|number| CHEAP_SIGNATURES.contains(&number));
        let is_light = !self.keys.has_rsa || self.keys.has_other && takes_cheap || self.takes_up(hello);
        if is_light { Weight::Light } else { Weight::Heavy }
    }

    fn accept(&self, hello: &Hello, http2: OfferedHttp2) -> Result<Box<dyn Session>, LoadError> {
        let now_s = now_s();
        if let Some(ring) = self.shared_keys.as_ref().and_then(|keys| keys.rotated(now_s)) {
            self.context.rotate(&ring)?;
        }
        let kept = self.sessions.as_ref().and_then(|sessions| sessions.find(hello, now_s));
        let withheld = (http2 == OfferedHttp2::No).then_some(super::HTTP2);
        let session = AwsLc::accept(&self.context, hello, Given { kept, withheld, ..Given::default() })?;
        Ok(Box::new(session))
    }

    fn keep(&self, kept: Vec<Kept>) {
        let Some(sessions) = &self.sessions else { return };
        for session in kept {
            // A client whose session has no room makes another full handshake.
            let _ = sessions.keep(&session, self.timeout_s, now_s());
        }
    }
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
