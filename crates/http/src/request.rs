//! A request: its head in the bytes as received, and how it was routed. Owned by the connection's
//! task; everything of the configuration is borrowed from the snapshot that the connection holds.
//!
//! What a request is answered from (path, arguments, location) changes with internal redirects, the head
//! never does. A subrequest is a request of its own that shares the head, and the variables, with the one
//! that the client has made (`tree`).

pub(crate) mod account;
pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod body_file;
pub(crate) mod body_source;
pub(crate) mod browser;
pub(crate) mod contexts;
pub(crate) mod errand;
pub(crate) mod log;
pub(crate) mod relay;
pub(crate) mod scripting;
pub(crate) mod sink;
pub(crate) mod stored_body;
pub(crate) mod strands;
pub(crate) mod subrequest;
pub(crate) mod tree;
pub(crate) mod values;

use std::any::Any;
use std::sync::Arc;

use clearway_base::log::Level;

use crate::client::{Client, Way};
use crate::generation::Setup;
use crate::link::Link;
use crate::link::parts::Parts;
use crate::request::answer::Wanted;
use crate::request::body::BodyState;
use crate::request::contexts::{ContextKey, Contexts, Lasts};
use crate::request::strands::Strands;
use crate::request::subrequest::SubPart;
use crate::request::tree::{OwnHead, PartsRef, Tree};
use crate::request::values::Values;
use crate::response::buffer::{Buf, BufferSize};
use crate::tables::{Location, Snapshot, Variables};
use clearway_message::{HeaderLine, HeaderName, Known, Method, ResponseHead, Span, Version, put_ipv4};
use clearway_site::{
    Conf, ConfKey, RedirectHost, RedirectPort, RedirectUrl, Server, ServerId, VariableId, regex::Regex,
};

/// How often a request may be redirected internally.
const REDIRECTS_MAX: u8 = 10;

/// The first action for the error log.
pub(crate) fn reading_line(arrival: Arrival) -> &'static str {
    match arrival {
        Arrival::Alone => "reading client request line",
        Arrival::Pipelined => "reading client pipelined request line",
    }
}

/// The action for the error log in the log phase.
const LOGGING: &str = "logging request";

/// A text of a request: a part of the received head, or made later.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    Received(Span),
    Made(Box<[u8]>),
}

impl Text {
    pub(crate) const EMPTY: fn() -> Self = || Self::Made(Box::default());

    /// Arguments that may be there without being anything (`$args` is then found, and empty).
    pub(crate) fn args(args: Option<Vec<u8>>) -> Self {
        args.map_or(Self::Received(Span::default()), |args| Self::Made(args.into()))
    }
}

/// The origin of the request for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The client.
    Client,
    /// The server, by an internal redirect.
    Internal,
}

/// A path that is to be answered.
pub(crate) struct Node<'c> {
    pub(crate) location: &'c Location,
    pub(crate) path: Text,
    pub(crate) args: Text,
    pub(crate) origin: Origin,
    pub(crate) sent: SentTarget,
    pub(crate) alias_tail: AliasTail,
    pub(crate) rewriting: Rewriting,
}

/// Whether the target of the request line still says what the path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentTarget {
    Valid,
    Replaced,
}

/// The changes that `rewrite` has made to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rewriting {
    /// Whether a location is looked for again when the phase is over.
    pub(crate) wanted: Wanted,
    pub(crate) place: LocationState,
    pub(crate) pass: Pass,
}

impl Rewriting {
    pub(crate) const NONE: Self =
        Self { wanted: Wanted::Nothing, place: LocationState::Found, pass: Pass::AsSaid };
}

/// The fate of a request that one of its former locations passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// As its location says.
    AsSaid,
    /// An error: it was to be passed on, and the `if` where it went on says of no server.
    Nowhere,
}

/// Whether the location is the one for the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocationState {
    /// The location is that of the path: the path begins with the location's name.
    Found,
    /// The path was rewritten in it.
    Lost,
}

/// The rest of an `alias` that names a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasTail {
    /// Nothing.
    Nothing,
    /// The path, since `try_files` has chosen it.
    Path,
}

/// Whether the connection may serve another request afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepAlive {
    Yes,
    No,
}

/// Which `error_page` applies to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorPages {
    /// As configured.
    Used,
    /// None any more: an error on the way to an error page has the built-in one.
    BuiltIn,
}

/// The source of the request line (`$request`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestLine {
    /// The line, once it was parsed.
    Parsed,
    /// As much of it as there is, although it was refused or never completed.
    AsReceived,
}

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The request came by itself.
    Alone,
    /// The first bytes of the request came together with the request before it.
    Pipelined,
}

/// Whether the directory of the location is known to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootTest {
    Pending,
    Passed,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The request is read and answered.
    Open,
    /// The response is over; a `post_action` runs behind it.
    Behind,
    /// The request is in its log phase, or behind it.
    Logged,
}

/// The value of `set $limit_rate`, bytes per second.
pub(crate) static LIMIT_RATE: ContextKey<u64> = ContextKey::new(Lasts::Inherited);

/// A charset in place of what the location says.
static CHARSET_OVERRIDE: ContextKey<Box<[u8]>> = ContextKey::new(Lasts::ToTheEnd);

/// The client's address, where it is not that of the peer that connected.
static CHANGED_PEER: ContextKey<clearway_net::PeerAddr> = ContextKey::new(Lasts::Inherited);

/// The host that the client has named.
#[derive(Clone)]
pub(crate) enum Host {
    /// Nothing.
    Absent,
    /// As received, in lower case already.
    Received(Span),
    /// In lower case.
    Lowered(Box<[u8]>),
}

/// The state of a body that came in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// The body is unread or stored, or there is none.
    Kept,
    Dropped,
}

/// A request.
pub struct Request<'c> {
    pub(crate) client: &'c Client,
    pub(crate) setup: &'c Arc<Setup>,
    pub(crate) link: Link<'c>,
    pub(crate) snapshot: &'c Snapshot,
    pub(crate) server: &'c Server,
    /// The head, and what was received: this head from `start` on, perhaps requests before and after it.
    pub(crate) parts: PartsRef<'c>,
    pub(crate) start: usize,
    pub(crate) host: Host,
    pub(crate) values: Values<'c>,
    node: Node<'c>,
    /// How the path is asked for from here on: GET after a redirect to an error page.
    pub(crate) method: Method,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) error_pages: ErrorPages,
    pub(crate) redirects_left: u8,
    /// Status that an error page is answered with instead of its own.
    pub(crate) error_status: Option<u16>,
    pub(crate) started_ms: u64,
    /// Which request of its connection this is, from 1.
    pub(crate) number: u64,
    /// The action for the error log: `while …`.
    pub(crate) action: &'static str,
    pub(crate) line: RequestLine,
    pub(crate) arrival: Arrival,
    pub(crate) root_test: RootTest,
    pub(crate) stage: Stage,
    /// Bytes of the body as sent that handlers have read.
    pub(crate) body_bytes: u64,
    /// Whether what came in chunks was dropped: `$content_length` says 0 then.
    pub(crate) chunks: Chunks,
    /// Most requests have none.
    contexts: Contexts<log::UpstreamUrl>,
}

impl<'c> Request<'c> {
    /// A request of which nothing is known yet but what was received.
    #[inline]
    pub(crate) fn new(
        way: Way<'c>,
        strands: &'c Strands<'c>,
        parts: &'c mut Parts,
        start: usize,
        number: u64,
    ) -> Self {
        let Way { client, setup, link } = way;
        let snapshot = setup.snapshot();
        let server = snapshot.server(setup.address().default_server);
        let location = snapshot.location(server.base);
        let main = Node {
            location,
            path: Text::EMPTY(),
            args: Text::args(None),
            origin: Origin::Client,
            sent: SentTarget::Valid,
            alias_tail: AliasTail::Nothing,
            rewriting: Rewriting::NONE,
        };
        Self {
            client,
            setup,
            link,
            snapshot,
            server,
            parts: PartsRef::Own(parts, strands),
            start,
            host: Host::Absent,
            values: Values::default(),
            node: main,
            method: Method::Other,
            keep_alive: KeepAlive::No,
            error_pages: ErrorPages::Used,
            redirects_left: REDIRECTS_MAX + 1,
            error_status: None,
            started_ms: client.home.now_ms(),
            number,
            action: reading_line(if start > 0 { Arrival::Pipelined } else { Arrival::Alone }),
            line: RequestLine::Parsed,
            arrival: if start > 0 { Arrival::Pipelined } else { Arrival::Alone },
            root_test: RootTest::Pending,
            stage: Stage::Open,
            body_bytes: 0,
            chunks: Chunks::Kept,
            contexts: Contexts::default(),
        }
    }

    /// A subrequest of `parent` for another path, in the same server. It knows what modules keep of the
    /// request for its whole life, and the body if that was read.
    pub(crate) fn new_subrequest(parent: &Self, node: Node<'c>, sub: SubPart<'c>) -> Self {
        let contexts = parent.contexts.of_subrequest();
        Self {
            client: parent.client,
            setup: parent.setup,
            link: parent.link,
            snapshot: parent.snapshot,
            server: parent.server,
            values: Values::of_tree(&sub.tree),
            start: 0,
            host: parent.host.clone(),
            node,
            method: sub.method(parent),
            parts: PartsRef::Shared(Box::new(sub)),
            keep_alive: KeepAlive::No,
            error_pages: ErrorPages::Used,
            redirects_left: REDIRECTS_MAX + 1,
            error_status: None,
            started_ms: parent.client.home.now_ms(),
            number: parent.number,
            action: "",
            line: RequestLine::Parsed,
            arrival: parent.arrival,
            root_test: RootTest::Pending,
            stage: Stage::Open,
            body_bytes: 0,
            chunks: parent.chunks,
            contexts,
        }
    }

    /// The state that it shares with its subrequests, and those with theirs.
    pub(crate) fn tree(&self) -> Arc<Tree<'c>> {
        self.values.tree(|| self.parts.copy_head(self.start))
    }

    /// The head for a subrequest that may change its own.
    pub(crate) fn head_for_capture(&self, tree: &Tree<'c>) -> OwnHead {
        match self.parts.head_changes == tree.head_changes() {
            true => OwnHead::Unchanged,
            false => OwnHead::Copied(Box::new(self.parts.copy_head(self.start))),
        }
    }

    /// The client, the configuration that answers the request, and the link that carries it.
    pub(crate) fn way(&self) -> Way<'c> {
        Way { client: self.client, setup: self.setup, link: self.link }
    }

    pub(crate) fn node(&self) -> &Node<'c> {
        &self.node
    }

    pub(crate) fn node_mut(&mut self) -> &mut Node<'c> {
        &mut self.node
    }

    /// The head's bytes and all that follows.
    pub(crate) fn received(&self) -> &[u8] {
        debug_assert!(self.start <= self.parts.input.len(), "a request begins in what was received");
        &self.parts.input[self.start..]
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        span.of(self.received())
    }

    fn text<'a>(&'a self, text: &'a Text) -> &'a [u8] {
        match text {
            Text::Received(span) => self.bytes(*span),
            Text::Made(bytes) => bytes,
        }
    }
}

/// The request of the client.
impl<'c> Request<'c> {
    /// The method; `Other` has its name in `method_name`.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method as text.
    pub fn method_name(&self) -> &[u8] {
        if self.method == self.parts.head.method() {
            self.bytes(self.parts.head.line.method_name)
        } else {
            self.method.name()
        }
    }

    /// The method of what the client has asked for (`$request_method`); empty while the request line is
    /// incomplete.
    pub(crate) fn client_method_name(&self) -> &[u8] {
        if self.parts.head.line.line.is_empty() {
            return b"";
        }
        if self.is_main() { self.method_name() } else { self.bytes(self.parts.head.line.method_name) }
    }

    /// Decoded and normalized path (`$uri`).
    pub fn path(&self) -> &[u8] {
        self.text(&self.node().path)
    }

    /// Arguments as sent (`$args`); empty if there are none.
    pub fn args(&self) -> &[u8] {
        self.text(&self.node().args)
    }

    /// Arguments as sent, or as they were made since: those can be empty and there all the same.
    pub fn args_found(&self) -> Option<&[u8]> {
        let args = self.args();
        (!args.is_empty() || matches!(self.node().args, Text::Made(_))).then_some(args)
    }

    /// Extension of the path, without its dot.
    pub fn exten(&self) -> &[u8] {
        // One look from the end: this is asked for every response that has a type.
        let path = self.path();
        match path.iter().rposition(|byte| matches!(byte, b'.' | b'/')) {
            Some(at) if at > 0 && path[at] == b'.' && path[at - 1] != b'/' => &path[at + 1..],
            _ => &[],
        }
    }

    /// The target as sent (`$request_uri`).
    pub fn raw_target(&self) -> &[u8] {
        self.bytes(self.parts.head.line.raw)
    }

    /// The request line as received; `None` while it is incomplete. It is empty where nothing but empty lines
    /// came, and that was logged.
    pub fn request_line(&self) -> Option<&[u8]> {
        let line = self.parts.head.line.line;
        if !line.is_empty() {
            return Some(self.bytes(line));
        }
        (self.line == RequestLine::AsReceived).then(|| self.received_line().unwrap_or_default())
    }

    /// The received part of the request line.
    fn received_line(&self) -> Option<&[u8]> {
        let line = self.parts.parser.received_line(self.received());
        (!line.is_empty()).then_some(line)
    }

    /// The protocol as received, such as `HTTP/1.1`.
    pub fn protocol(&self) -> &[u8] {
        self.bytes(self.parts.head.line.protocol)
    }

    /// Host that the request is for, in lower case and without port; `None` where there was none.
    pub fn host(&self) -> Option<&[u8]> {
        match &self.host {
            Host::Absent => None,
            Host::Received(span) => Some(self.bytes(*span)),
            Host::Lowered(name) => Some(name),
        }
    }

    /// Value of the first header line of a kind.
    pub fn header(&self, known: Known) -> Option<&[u8]> {
        self.parts.head.find(self.received(), known)
    }

    /// All header lines.
    pub fn headers(&self) -> impl Iterator<Item = HeaderLine<'_>> {
        self.parts.head.headers.iter(self.received())
    }

    /// The values of all header lines with a name.
    pub fn headers_named<'a>(&'a self, name: HeaderName<'a>) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.parts.head.headers.named(self.received(), name)
    }

    /// Whether no body is to be sent.
    pub fn is_head(&self) -> bool {
        self.method == Method::Head
    }

    /// The protocol's version.
    pub fn version(&self) -> Version {
        self.parts.head.version()
    }

    /// Whether its connection stays open behind the response, as far as is known yet.
    pub fn is_persistent(&self) -> bool {
        self.keep_alive == KeepAlive::Yes && !self.client.is_stopping()
    }
}

/// An expression was given up because a match took too much; what to answer with is 500. That is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp;

/// Results of expressions and variables.
impl<'c> Request<'c> {
    /// Runs an expression. If it matches, `$1` to `$9` and its named groups are what it has captured.
    ///
    /// # Errors
    /// [`GivenUp`].
    pub fn matches(&self, regex: &Regex, subject: &[u8]) -> Result<bool, GivenUp> {
        self.values.exec(regex, subject).map_err(|error| {
            self.log(Level::Alert, format_args!("{}", error.describe(subject, regex)));
            GivenUp
        })
    }

    /// Forgets `$1` to `$9`, as what runs expressions in turn does after one that did not match.
    pub fn clear_captures(&self) {
        self.values.clear_groups();
    }

    /// Gives a variable a value for the rest of the request.
    pub fn set_variable(&self, variable: VariableId, value: clearway_message::Text<'c>) {
        self.values.keep(variable, Some(value));
    }
}

/// How it is answered.
impl<'c> Request<'c> {
    /// The server that was asked.
    pub fn server(&self) -> &'c Server {
        self.server
    }

    /// The location that answers.
    pub fn location(&self) -> &'c Location {
        self.node().location
    }

    /// A module's settings in the location.
    pub fn conf<T: Conf>(&self, key: &ConfKey<T>) -> &'c T {
        self.location().conf(key)
    }

    /// A module's settings for all of `http`.
    pub fn main_conf<T: Conf>(&self, key: &ConfKey<T>) -> &'c T {
        self.snapshot.conf(key)
    }

    /// `Content-Type` by the extension of the path; none where the default type is empty.
    pub fn content_type(&self) -> Option<&'c [u8]> {
        let core = &self.location().core;
        let content_type = core.types.find(self.exten()).unwrap_or(&core.default_type);
        (!content_type.is_empty()).then_some(&content_type[..])
    }

    /// Whether the path of the request is appended to an `alias` that names a whole file.
    pub(crate) fn alias_tail(&self) -> AliasTail {
        self.node().alias_tail
    }

    /// Goes on with another path, of which an `alias` in a location with an expression gets all
    /// (`try_files`).
    pub fn set_path_in_alias(&mut self, path: Vec<u8>) {
        self.set_path(path);
        self.node_mut().alias_tail = AliasTail::Path;
    }

    /// The status that an error page is answered with in place of its own.
    pub fn error_status(&self) -> Option<u16> {
        self.error_status
    }

    /// Makes this server the request's; `action` is the text for the error log.
    pub(crate) fn enter_server(&mut self, id: ServerId, action: &'static str) {
        self.server = self.snapshot.server(id);
        self.node.location = self.snapshot.location(self.server.base);
        self.action = action;
    }

    /// Ends the request here without a line in the access log.
    pub(crate) fn leave_unlogged(&mut self) {
        self.stage = Stage::Logged;
    }

    /// The log phase begins.
    pub(crate) fn begin_logging(&mut self, body: &BodyState) {
        debug_assert!(self.stage != Stage::Behind, "what is done behind a response is logged with it");
        self.stage = Stage::Logged;
        self.action = LOGGING;
        self.note_body(body);
    }

    /// Keeps in mind what has become of the body so far.
    #[inline]
    pub(crate) fn note_body(&mut self, body: &BodyState) {
        debug_assert!(
            body.is_absent() || self.body_bytes <= body.taken_bytes(),
            "what was read of a body only grows"
        );
        self.body_bytes = body.taken_bytes();
        // A subrequest has no body of its own, and knows what has become of that of its parent.
        if body.chunks() == Chunks::Dropped {
            self.chunks = Chunks::Dropped;
        }
    }

    /// An empty buffer that comes back to the loop of the request.
    pub fn take_buffer(&self, size: BufferSize) -> Buf {
        Buf::take(self.client.home.index(), size)
    }

    /// Has its response sent no faster than so many bytes per second, 0 without limit, in place of what
    /// `limit_rate` says; before something of it is sent.
    pub fn set_limit_rate(&mut self, bytes_per_s: u64) {
        self.set_context(&LIMIT_RATE, bytes_per_s);
    }

    /// Has its response sent as fast as possible, whatever is said of it so far.
    pub fn lift_limit_rate(&mut self) {
        if self.context(&LIMIT_RATE).is_some() || self.location().core.sending.limit_rate.is_set() {
            self.set_limit_rate(0);
        }
    }

    /// Has its response sent in this charset, whatever its location says (`X-Accel-Charset`).
    pub fn set_charset_override(&mut self, name: &[u8]) {
        self.set_context(&CHARSET_OVERRIDE, name.into());
    }

    /// The charset that was asked for so.
    pub fn charset_override(&self) -> Option<&[u8]> {
        self.context(&CHARSET_OVERRIDE).map(|name| &name[..])
    }

    /// Whether it is in the log phase, or behind it.
    pub(crate) fn is_logged(&self) -> bool {
        self.stage == Stage::Logged
    }

    /// Says what is being done, for the error log: `while …`.
    pub fn set_action(&mut self, action: &'static str) {
        self.action = action;
    }

    /// The present action, for the error log; empty: nothing that is said.
    pub(crate) fn action(&self) -> &'static str {
        self.action
    }

    /// Keeps in mind that a file was found below the directory of the location (`root`, `alias`).
    pub fn mark_root_tested(&mut self) {
        self.root_test = RootTest::Passed;
    }

    /// Whether a file was found below the directory of the location.
    pub fn is_root_tested(&self) -> bool {
        self.root_test == RootTest::Passed
    }

    /// Appends the address of the client (`$remote_addr`).
    pub fn put_peer(&self, out: &mut Vec<u8>) {
        if let clearway_net::PeerAddr::V4(ip, _) = self.peer() {
            put_ipv4(out, ip);
        } else {
            out.extend_from_slice(self.peer().to_string().as_bytes());
        }
    }

    /// Address of the client: that of the peer that connected, unless it was changed.
    pub fn peer(&self) -> clearway_net::PeerAddr {
        self.context(&CHANGED_PEER).copied().unwrap_or(self.client.peer)
    }

    /// Takes another address for the client's, for the rest of the request.
    pub fn set_peer(&mut self, peer: clearway_net::PeerAddr) {
        self.set_context(&CHANGED_PEER, peer);
    }

    /// Whether it has taken another address for the client's.
    pub fn has_changed_peer(&self) -> bool {
        self.context(&CHANGED_PEER).is_some()
    }

    /// The origin of the request for the path.
    pub fn origin(&self) -> Origin {
        self.node().origin
    }

    /// Goes on with another path, without looking for its location (`try_files`).
    pub fn set_path(&mut self, path: Vec<u8>) {
        self.node_mut().path = Text::Made(path.into());
    }

    /// Goes on with other arguments.
    pub fn set_args(&mut self, args: Vec<u8>) {
        self.node_mut().args = Text::Made(args.into());
    }

    /// Has it have no arguments, which is another thing than empty ones.
    pub(crate) fn clear_args(&mut self) {
        self.node_mut().args = Text::args(None);
    }

    /// Whether the path that the client sent has percent-encoded bytes or a `+` in it.
    pub fn has_escapes(&self) -> bool {
        let target = self.raw_target();
        let path =
            &target[..target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len())];
        memchr::memchr2(b'%', b'+', path).is_some()
    }

    /// Where relative paths of the configuration begin.
    pub(crate) fn prefix(&self) -> &'c [u8] {
        &self.snapshot.prefix
    }

    pub(crate) fn variables(&self) -> &'c Variables {
        &self.snapshot.variables
    }

    /// A module's own state in this request.
    #[inline]
    pub fn context<T: Any + Send + Sync>(&self, key: &'static ContextKey<T>) -> Option<&T> {
        self.contexts.find(key)
    }

    /// The context, to be changed; `None` also while subrequests have it.
    pub fn context_mut<T: Any + Send + Sync>(&mut self, key: &'static ContextKey<T>) -> Option<&mut T> {
        self.contexts.find_mut(key)
    }

    /// Keeps a module's own state, as long as its key says.
    pub fn set_context<T: Any + Send + Sync>(&mut self, key: &'static ContextKey<T>, state: T) {
        self.contexts.put(key, state);
    }

    pub(crate) fn clear_contexts(&mut self) {
        self.contexts.leave();
    }

    /// Whether the server itself has made it: there is no client, whose addresses mean nothing then.
    pub fn is_internal(&self) -> bool {
        matches!(self.link, Link::Stream(stream) if stream.is_internal())
    }

    /// The status that is sent, where an error page is answered with another than its own.
    pub(crate) fn amend(&self, head: &mut ResponseHead<'_>) {
        if let Some(status) = self.error_status {
            head.status = status;
        }
    }

    /// `https` where TLS is used, else `http` (`$scheme`).
    pub fn scheme(&self) -> &'static str {
        if self.tls().is_some() { "https" } else { "http" }
    }

    /// The URL that is sent for a `Location` that a handler gave as a path.
    pub(crate) fn absolute_url(&self, location: &[u8]) -> Option<Vec<u8>> {
        let core = &self.location().core;
        if location.first() != Some(&b'/') || *core.redirect_url == RedirectUrl::AsGiven {
            return None;
        }
        let mut url = [self.scheme(), "://"].concat().into_bytes();
        self.put_redirect_host(&mut url);
        url.extend_from_slice(location);
        Some(url)
    }

    /// Host and port for a `Location` that a handler gave as a path.
    pub(crate) fn put_redirect_host(&self, out: &mut Vec<u8>) {
        let local = self.local_address();
        let core = &self.location().core;
        match self.host() {
            _ if *core.redirect_host == RedirectHost::ServerName => out.extend_from_slice(self.server.name()),
            Some(host) => out.extend_from_slice(host),
            None => local.put_host(out),
        }
        let is_shown = *core.redirect_port == RedirectPort::Shown;
        let default_port = if self.tls().is_some() { 443 } else { 80 };
        if let Some(port) = local.port().filter(|&port| is_shown && port != default_port) {
            out.extend_from_slice(format!(":{port}").as_bytes());
        }
    }
}
