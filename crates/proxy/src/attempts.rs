//! What has become of a request so far at other servers: kept with the request, for variables and logs, to
//! its end.

use std::sync::Arc;

use bytes::Bytes;
use clearway_http::{ContextKey, Lasts, Request};
use clearway_message::{Header, HeaderName, Headers, name_hash};
use clearway_upstream::Peer;
use smallvec::SmallVec;

use crate::settings::proxy::Origin;

/// Where it is kept.
static ATTEMPTS: ContextKey<Attempts> = ContextKey::new(Lasts::ToTheEnd);

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) list: SmallVec<[Attempt; 1]>,
    /// The head of the last response.
    pub(crate) head: Option<KeptHead>,
    pub(crate) trailers: Headers,
    /// Whom the last location names.
    pub(crate) origin: Option<Origin>,
    pub(crate) body: BodyForm,
}

/// How the body of the request is passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyForm {
    /// There is none.
    #[default]
    None,
    /// So many bytes.
    Counted(u64),
    /// In chunks.
    Chunked,
}

/// A head as it came, with what is not passed to the client.
#[derive(Debug)]
pub(crate) struct KeptHead {
    pub(crate) bytes: Bytes,
    pub(crate) lines: Box<[Header]>,
}

impl KeptHead {
    /// The values of lines with a name.
    pub(crate) fn named<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let hash = name_hash(name);
        let lines = self.lines.iter().filter(move |line| line.hash == hash);
        lines
            .filter(move |line| HeaderName::new(line.name.of(&self.bytes)).is(name))
            .map(|line| line.value.of(&self.bytes))
    }
}

/// One server that was asked, or what parts those of one location from those of the next.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    pub(crate) peer: PeerName,
    /// 0: there was no answer.
    pub(crate) status: u16,
    pub(crate) connect_ms: Option<u64>,
    pub(crate) header_ms: Option<u64>,
    pub(crate) response_ms: Option<u64>,
    /// How long a server was looked for and connected to, milliseconds.
    pub(crate) wait_ms: Option<u64>,
    /// How long the request took to leave, milliseconds.
    pub(crate) send_ms: Option<u64>,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) length: u64,
    pub(crate) connection: Connection,
}

/// Which servers are asked.
#[derive(Debug, Default)]
pub(crate) enum PeerName {
    /// Nobody: it parts two lists.
    #[default]
    Separator,
    Peer(Arc<Peer>),
    /// A group of which nobody could be asked.
    Group(Box<str>),
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Connection {
    #[default]
    New,
    /// It had served another request before.
    Reused,
}

impl Attempt {
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.peer {
            PeerName::Separator => None,
            PeerName::Peer(peer) => Some(&peer.config().name),
            PeerName::Group(name) => Some(name),
        }
    }
}

impl Attempts {
    /// What is known of a request, if other servers were asked.
    pub(crate) fn of<'a>(request: &'a Request<'_>) -> Option<&'a Self> {
        request.context(&ATTEMPTS)
    }

    /// The same, to be changed.
    pub(crate) fn of_mut<'a>(request: &'a mut Request<'_>) -> &'a mut Self {
        if request.context(&ATTEMPTS).is_none() {
            request.set_context(&ATTEMPTS, Self::default());
        }
        request.context_mut(&ATTEMPTS).expect("subrequests do not know it")
    }

    /// A location begins to ask.
    pub(crate) fn begin(&mut self, origin: Origin, body: BodyForm) {
        if !self.list.is_empty() {
            self.list.push(Attempt::default());
        }
        (self.head, self.trailers) = (None, Headers::default());
        (self.origin, self.body) = (Some(origin), body);
    }

    /// The attempt that is under way.
    pub(crate) fn last(&mut self) -> &mut Attempt {
        if self.list.is_empty() {
            self.list.push(Attempt::default());
        }
        let last = self.list.len() - 1;
        &mut self.list[last]
    }
}
