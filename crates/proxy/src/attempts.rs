//! The attempts of a request at other servers: kept with the request, for variables and logs, to its end.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::Bytes;
use clearway_http::{ContextKey, Lasts, Request, Verbatim};
use clearway_message::{Header, HeaderName, Headers, name_hash};
use clearway_upstream::Peer;
use smallvec::SmallVec;

use crate::settings::proxy::Origin;

/// The key of the attempts among the contexts of a request.
static ATTEMPTS: ContextKey<Attempts> = ContextKey::new(Lasts::ToTheEnd);

/// The attempts of one request.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) list: SmallVec<[Attempt; 1]>,
    /// The head of the last response.
    pub(crate) head: Option<KeptHead>,
    pub(crate) trailers: Headers,
    /// The scheme before the address in the log.
    scheme: &'static str,
    /// The server that the last location names, if it is one with `proxy_pass`.
    pub(crate) origin: Option<Origin>,
    /// The URI that it is asked for.
    pub(crate) uri: AskedUri,
    pub(crate) body: BodyForm,
    /// How a cache takes part.
    pub(crate) cache: CacheNotes,
}

/// The cache's facts for variables.
#[derive(Debug, Default)]
pub(crate) struct CacheNotes {
    /// `None`: there is none.
    pub(crate) status: Option<CacheStatus>,
    /// `Last-Modified` of an object that is to be validated, Unix seconds.
    pub(crate) last_modified: Option<i64>,
    /// Its tag.
    pub(crate) etag: Option<Bytes>,
    /// Whether the response may be kept: it is asked for without the conditions of this client.
    pub(crate) may_keep: bool,
    /// Whether all of it is asked for where its client wants the head alone.
    pub(crate) wants_whole: bool,
    /// The part of an object that could not be read, if the server is asked for it.
    pub(crate) missing: Option<Box<Missing>>,
}

/// The rest of an object, as the server is asked for it.
#[derive(Debug)]
pub(crate) struct Missing {
    /// The range in the body, bytes.
    pub(crate) range: Range<u64>,
    /// The length of the whole body, bytes.
    pub(crate) whole: u64,
    /// The value of `If-Range`.
    pub(crate) validator: Bytes,
}

impl Missing {
    /// The value of `Range`.
    pub(crate) fn wanted(&self) -> String {
        debug_assert!(!self.range.is_empty(), "what is asked for is missing");
        format!("bytes={}-{}", self.range.start, self.range.end - 1)
    }

    /// The value of `Content-Range` of a response that has it.
    pub(crate) fn given(&self) -> String {
        debug_assert!(self.range.end <= self.whole, "what is missing lies within the whole");
        format!("bytes {}-{}/{}", self.range.start, self.range.end - 1, self.whole)
    }
}

/// How a cache took part in a response: `$upstream_cache_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheStatus {
    Miss,
    Bypass,
    Expired,
    Stale,
    Updating,
    Revalidated,
    Hit,
}

impl CacheStatus {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Miss => "MISS",
            Self::Bypass => "BYPASS",
            Self::Expired => "EXPIRED",
            Self::Stale => "STALE",
            Self::Updating => "UPDATING",
            Self::Revalidated => "REVALIDATED",
            Self::Hit => "HIT",
        }
    }
}

impl CacheNotes {
    /// Whether an object is to be validated.
    fn is_validated(&self) -> bool {
        self.status == Some(CacheStatus::Expired)
    }

    pub(crate) fn date(&self) -> Option<[u8; clearway_base::date::HTTP_DATE_LEN]> {
        self.last_modified.filter(|_| self.is_validated()).map(clearway_base::date::http_date)
    }

    pub(crate) fn tag(&self) -> Option<&[u8]> {
        self.etag.as_deref().filter(|_| self.is_validated())
    }
}

/// The beginning of a location's attempts.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// The scheme before the address in the log.
    pub(crate) scheme: &'static str,
    pub(crate) origin: Option<Origin>,
    pub(crate) uri: AskedUri,
    pub(crate) body: BodyForm,
}

/// The URI that a server is asked for.
#[derive(Debug, Default)]
pub(crate) enum AskedUri {
    /// The client's URI, unchanged.
    #[default]
    AsReceived,
    Made(Vec<u8>),
}

impl AskedUri {
    pub(crate) fn text<'a>(&'a self, request: &'a Request<'_>) -> &'a [u8] {
        match self {
            Self::AsReceived => request.raw_target(),
            Self::Made(uri) => uri,
        }
    }
}

/// How the body of the request is passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyForm {
    /// There is none.
    #[default]
    None,
    /// The body has so many bytes.
    Counted(u64),
    /// In chunks.
    Chunked,
}

/// A head as it came, with what is not passed to the client.
#[derive(Debug, Default)]
pub(crate) struct KeptHead {
    pub(crate) bytes: Bytes,
    pub(crate) lines: Lines,
}

/// The lines of a head.
#[derive(Debug)]
pub(crate) enum Lines {
    /// Lines that were read for this request.
    Own(Vec<Header>),
    /// A copy of an object has them.
    Shared(Arc<[Header]>),
}

impl Default for Lines {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Deref for Lines {
    type Target = [Header];

    fn deref(&self) -> &[Header] {
        match self {
            Self::Own(lines) => lines,
            Self::Shared(lines) => lines,
        }
    }
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
    /// How long it waited until a server could be used, milliseconds.
    pub(crate) queue_ms: Option<u64>,
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
    /// The connection had served another request before.
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

impl From<Begun> for Attempts {
    fn from(begun: Begun) -> Self {
        let Begun { scheme, origin, uri, body } = begun;
        Self { scheme, origin, uri, body, ..Self::default() }
    }
}

impl Attempts {
    /// The attempts of a request, if other servers were asked.
    pub(crate) fn of<'a>(request: &'a Request<'_>) -> Option<&'a Self> {
        request.context(&ATTEMPTS)
    }

    /// The attempts of a request, to be changed.
    pub(crate) fn of_mut<'a>(request: &'a mut Request<'_>) -> &'a mut Self {
        request.context_mut(&ATTEMPTS).expect("it has begun, and subrequests do not know it")
    }

    /// A location begins to ask.
    pub(crate) fn begin(request: &mut Request<'_>, begun: Begun) {
        if let Some(attempts) = request.context_mut(&ATTEMPTS) {
            attempts.begin_again(begun);
            return;
        }
        let attempts = Self::from(begun);
        request.set_context(&ATTEMPTS, attempts);
    }

    fn begin_again(&mut self, begun: Begun) {
        if !self.list.is_empty() {
            self.list.push(Attempt::default());
        }
        let list = std::mem::take(&mut self.list);
        *self = Self { list, ..Self::from(begun) };
    }

    /// Writes the server and the URI asked for, as the error log shows them.
    pub(crate) fn write_url(request: &Request<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(attempts) = Self::of(request) else { return Ok(()) };
        let scheme = attempts.scheme;
        let name = attempts.list.last().and_then(Attempt::name).unwrap_or_default();
        let uri = attempts.uri.text(request);
        let separator = match uri.first() {
            _ if name.starts_with("unix:") => ":",
            Some(b'/') | None => "",
            _ => "/",
        };
        write!(f, "{scheme}{name}{separator}{}", Verbatim(uri))
    }

    /// Sets the text in front of the address in the log.
    pub(crate) fn set_scheme(&mut self, scheme: &'static str) {
        self.scheme = scheme;
    }

    /// Says how a cache takes part.
    pub(crate) fn note_cache(request: &mut Request<'_>, status: CacheStatus) {
        Self::of_mut(request).cache.status = Some(status);
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
