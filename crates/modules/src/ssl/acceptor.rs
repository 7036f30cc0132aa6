//! Handshakes of one server: its context of the library, and what is looked up before the library is asked.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clearway_http::{
    Accept, Begun, Claim, ClientHello, OfferedHttp2, Opening, Unaccepted, View, Weight, Wishes,
};
use clearway_tls::cache::{SessionCache, SharedKeys};
use clearway_tls::engine::{Engine, Given, Kept, kept_key};
use clearway_tls::hello::Hello;
use clearway_tls::level::Key;
use clearway_tls::tickets::KeyRing;
use clearway_tls::{AwsLc, Context, Pair, TlsSession};

use super::named::{Named, NamedPair, Reading};
use super::stapling::Stapling;

/// ECDSA with SHA-256, 384 and 512, and Ed25519 (RFC 8446 §4.2.3).
const CHEAP_SIGNATURES: [u16; 4] = [0x0403, 0x0503, 0x0603, 0x0807];
/// Keys of RSA up to this length are computed with in a fraction of a millisecond, bits.
const SHORT_RSA_BITS: u32 = 2048;

/// The handshakes of one server.
pub(crate) struct Acceptor {
    pub(crate) context: Arc<Context>,
    /// A context without certificates, for servers whose certificates Lua sets.
    pub(crate) bare: Option<Arc<Context>>,
    /// The keys of the certificates that the context has.
    pub(crate) keys: Keys,
    /// Certificates that depend on the client, instead.
    pub(crate) named: Option<Named>,
    /// OCSP answers about the context's certificates.
    pub(crate) stapling: Option<Arc<Stapling>>,
    pub(crate) sessions: Option<Arc<SessionCache>>,
    /// `ssl_session_timeout`, seconds.
    pub(crate) timeout_s: u32,
    /// Keys of tickets, where they stay the same.
    pub(crate) ring: Option<Arc<KeyRing>>,
    /// The keys of a zone, which change.
    pub(crate) shared_keys: Option<SharedKeys>,
}

/// Which kinds of keys there are certificates for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys {
    /// The longest key of RSA, bits; 0 if there is none.
    rsa_bits: u32,
    has_other: bool,
}

impl Keys {
    /// The set of the kinds of these certificates.
    pub(crate) fn of<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> Self {
        let mut keys = Self::default();
        for pair in pairs {
            match pair.certificate().key() {
                Key::Rsa(bits) => keys.rsa_bits = keys.rsa_bits.max(bits),
                _ => keys.has_other = true,
            }
        }
        keys
    }

    /// How much the answer to a client computes that takes up no session.
    fn weight(self, client: Wants) -> Weight {
        if self.rsa_bits == 0 || self.has_other && client.takes_cheap {
            Weight::Light
        } else if self.rsa_bits <= SHORT_RSA_BITS {
            Weight::Moderate
        } else {
            Weight::Heavy
        }
    }
}

/// The parts of a hello that decide how much its answer computes.
#[derive(Clone, Copy, Debug)]
struct Wants {
    /// Whether signatures with elliptic curves will do.
    takes_cheap: bool,
    /// The session that it claims.
    claim: Claim,
}

impl Acceptor {
    fn wants(&self, hello: &Hello) -> Wants {
        let takes_cheap = hello.signatures().any(|number| CHEAP_SIGNATURES.contains(&number));
        let claim = if self.takes_up(hello) { Claim::Session } else { Claim::None };
        Wants { takes_cheap, claim }
    }

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

/// Has a session present certificates whose names depend on its client: at once where they are known, else
/// when a pool has read them.
fn present(
    session: TlsSession,
    wants: Wants,
    named: &Named,
    view: &View<'_, '_>,
) -> Result<Begun, Unaccepted> {
    match named.look_up(view) {
        Reading::Known(pairs) => Ok(Begun::Ready(with_pairs(session, wants, &pairs)?)),
        Reading::None(why) => Err(Unaccepted::Certificate(why)),
        Reading::Needed(pool, files) => {
            let at = files.place();
            Ok(Begun::Loading(pool.submit_at(at, move |witness| {
                let pairs = files.read(witness).map_err(Unaccepted::Certificate)?;
                with_pairs(session, wants, &pairs)
            })))
        }
    }
}

fn with_pairs(mut session: TlsSession, wants: Wants, pairs: &[NamedPair]) -> Result<Opening, Unaccepted> {
    for NamedPair { name, pair } in pairs {
        let refused = |error| Unaccepted::Certificate(name.names().refusal(&error));
        session.present(pair).map_err(refused)?;
    }
    let weight = Keys::of(pairs.iter().map(|named| &named.pair)).weight(wants);
    Ok(Opening { session: Box::new(session), weight, claim: wants.claim })
}

/// Has a session present certificates that code has chosen.
fn with_wishes(mut session: TlsSession, wants: Wants, wishes: &Wishes) -> Result<Opening, Unaccepted> {
    let pairs: Vec<&Pair> = wishes.shown.pairs.iter().filter_map(|pair| pair.downcast_ref()).collect();
    for pair in &pairs {
        session.present(pair).map_err(|error| Unaccepted::Certificate(error.to_string()))?;
    }
    let weight = Keys::of(pairs).weight(wants);
    Ok(Opening { session: Box::new(session), weight, claim: wants.claim })
}

impl Accept for Acceptor {
    fn needs_values(&self) -> bool {
        self.named.is_some()
    }

    fn accept(&self, client: ClientHello<'_>, view: Option<&View<'_, '_>>) -> Result<Begun, Unaccepted> {
        let ClientHello { hello, http2, home, names, wishes } = client;
        let now_s = now_s();
        if let Some(ring) = self.shared_keys.as_ref().and_then(|keys| keys.rotated(now_s)) {
            [Some(&self.context), self.bare.as_ref()]
                .into_iter()
                .flatten()
                .try_for_each(|one| one.rotate(&ring))?;
        }
        let said = wishes.session.as_ref().zip(kept_key(hello));
        let kept = match said {
            Some((content, key)) => Some(Kept { key: key.to_vec(), content: content.clone() }),
            None => self.sessions.as_ref().and_then(|sessions| sessions.find(hello, now_s)),
        };
        let withheld = (http2 == OfferedHttp2::No).then_some(super::HTTP2);
        let stapling = self.stapling.as_ref().filter(|_| hello.asks_for_status());
        let staples = stapling.map(|stapling| stapling.staples(home, names, now_s)).unwrap_or_default();
        let answer = wishes.answer.clone();
        let (versions, check) = (wishes.versions, wishes.check.clone());
        let given = Given { kept, withheld, staples, answer, versions, check, ..Given::default() };
        let bare = self.bare.as_ref().filter(|_| wishes.shown.is_cleared);
        let session = AwsLc::accept(bare.unwrap_or(&self.context), hello, given)?;
        let wants = self.wants(hello);
        if wishes.shown.is_cleared || !wishes.shown.pairs.is_empty() {
            return with_wishes(session, wants, wishes).map(Begun::Ready);
        }
        match self.named.as_ref().zip(view) {
            Some((named, view)) => present(session, wants, named, view),
            None => {
                let weight = self.keys.weight(wants);
                Ok(Begun::Ready(Opening { session: Box::new(session), weight, claim: wants.claim }))
            }
        }
    }

    fn version(&self, hello: &Hello, wishes: &Wishes) -> Option<u16> {
        let spoken = self.context.spoken(wishes.versions);
        spoken.newest_of(hello.versions()).map(|version| version.number())
    }

    fn suites(&self, wishes: &Wishes) -> Vec<u16> {
        self.context.suites(self.context.spoken(wishes.versions))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_is_that_of_the_key_that_signs() {
        for (rsa_bits, has_other, takes_cheap, weight) in [
            (0, true, true, Weight::Light),
            (0, true, false, Weight::Light),
            (2048, false, true, Weight::Moderate),
            (4096, false, true, Weight::Heavy),
            (4096, true, true, Weight::Light),
            (4096, true, false, Weight::Heavy),
        ] {
            let keys = Keys { rsa_bits, has_other };
            let wants = Wants { takes_cheap, claim: Claim::None };
            assert_eq!(keys.weight(wants), weight, "{keys:?} {takes_cheap}");
        }
    }
}
