//! Handshakes of one server: its context of the library, and what is looked up before the library is asked.

use std::sync::Arc;

use clearway_http::{Accept, Weight};
use clearway_tls::engine::{Engine, Given, Kept, LoadError, Session, kept_key};
use clearway_tls::hello::Hello;
use clearway_tls::level::Key;
use clearway_tls::tickets::KeyRing;
use clearway_tls::{AwsLc, Context, Pair};

use super::sessions::Sessions;

/// ECDSA with SHA-256, 384 and 512, and Ed25519 (RFC 8446 §4.2.3).
const CHEAP_SIGNATURES: [u16; 4] = [0x0403, 0x0503, 0x0603, 0x0807];

/// See the file's head.
pub(crate) struct Acceptor {
    pub(crate) context: Arc<Context>,
    pub(crate) keys: Keys,
    pub(crate) sessions: Option<Arc<Sessions>>,
    pub(crate) ring: Option<Arc<KeyRing>>,
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

    fn accept(&self, hello: &Hello) -> Result<Box<dyn Session>, LoadError> {
        let kept = self.sessions.as_ref().and_then(|sessions| sessions.find(kept_key(hello)?));
        let session = AwsLc::accept(&self.context, hello, Given { kept, ..Given::default() })?;
        Ok(Box::new(session))
    }

    fn keep(&self, kept: Vec<Kept>) {
        if let (Some(sessions), false) = (&self.sessions, kept.is_empty()) {
            sessions.keep(kept);
        }
    }
}
