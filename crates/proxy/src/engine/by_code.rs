//! The part of Lua code that chooses servers in the attempts of a request: the facts that it gets, and the
//! settings that it makes ([`clearway_http::Balancing`]).

use std::hash::{DefaultHasher, Hash, Hasher};

use clearway_http::{BalancedKeepalive, Balancer, Balancing, Choosing, Consulting, LastAttempt, Met};
use clearway_net::connect::{AddressOwner, Local};

use crate::settings::masks::Failures;

/// The timeouts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timeout {
    Connect,
    Send,
    Receive,
}

/// The part of code in the attempts of a request.
pub(super) struct ByCode<'c> {
    pub(super) balancer: &'c dyn Balancer,
    pub(super) balancing: Balancing,
    /// Whether the location says TLS.
    pub(super) is_secure: bool,
    /// The name by which the server of this attempt is asked, if code has set it.
    pub(super) host: Option<Vec<u8>>,
}

/// A server is being chosen.
pub(super) struct ChoosingStage(pub(super) Box<dyn Choosing>);

/// Code has its say in a handshake.
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there is no TLS"))]
pub(super) struct ConsultingStage {
    pub(super) work: Box<dyn Consulting>,
    pub(super) met: Box<Met>,
    pub(super) about: About,
    /// The code's directive.
    pub(super) name: &'static str,
}

/// The subject that code decides on.
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there is no TLS"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The certificate that the server is shown.
    Shown,
    /// The certificate of the server.
    Verified,
}

impl About {
    /// The action for the log.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there is no TLS"))]
    pub(super) fn action(self) -> &'static str {
        match self {
            Self::Shown => "loading proxy ssl certificate by lua",
            Self::Verified => "loading proxy ssl verify by lua",
        }
    }

    /// The name of the code in upstream's lines.
    pub(super) fn callback(self) -> &'static str {
        match self {
            Self::Shown => "cert cb",
            Self::Verified => "cert verify cb",
        }
    }
}

impl<'c> ByCode<'c> {
    /// A request that has so many attempts at most, 0 being no limit.
    pub(super) fn new(balancer: &'c dyn Balancer, tries_max: usize) -> Box<Self> {
        let balancing = Balancing { tries_max, ..Balancing::default() };
        Box::new(Self { balancer, balancing, is_secure: false, host: None })
    }

    /// How the attempt that is over has ended.
    pub(super) fn note_end(&mut self, failure: Failures, status: u16) {
        let is_next = failure == Failures::HTTP_403 || failure == Failures::HTTP_404;
        let last = if is_next { LastAttempt::Next } else { LastAttempt::Failed };
        if self.balancing.peer.is_some() {
            self.balancing.last = Some((last, status));
        }
    }

    /// The timeouts to connect, to send and to receive, if code has set them; milliseconds.
    pub(super) fn timeouts_ms(&self) -> [Option<u64>; 3] {
        self.balancing.timeouts_ms
    }

    /// Where connections come from, where code has said it.
    pub(super) fn local(&self) -> Option<Local> {
        let address = self.balancing.local?;
        Some(Local { address, owner: AddressOwner::Here })
    }

    /// How long the connection of this attempt is kept, where code has said it.
    pub(super) fn keepalive(&self) -> Option<BalancedKeepalive> {
        self.balancing.keepalive
    }

    /// Stands for the name by which the server is asked.
    pub(super) fn scope(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.host.as_ref().map(|host| host.to_ascii_lowercase()).hash(&mut hasher);
        hasher.finish()
    }
}
