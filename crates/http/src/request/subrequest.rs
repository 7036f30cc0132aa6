//! Subrequests: what else is asked within a request, by the server itself. One is a request of its own, with
//! its path, location, head of a response and module contexts; it shares what the client has sent, and
//! variables, with the request it belongs to (`tree`). How one is answered is the engine's to know
//! (`phases::subrequest`).
//!
//! A handler that asks for one says what becomes of its response: it stands in its place in the body of its
//! parent (`relay`), it is kept in memory, or it has no body, and somebody waits for its status, or nobody.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_runtime::TaskCell;

use crate::link::departure::Departure;
use crate::request::contexts::ContextKey;
use crate::request::strands::{Lookout, StrandId, Strands};
use crate::request::tree::{Asked, OwnHead, PartsRef, Tree};
use crate::request::{Request, Stage};
use crate::tables::{Load, Module};
use clearway_base::log::Verbatim;
use clearway_message::{Method, ResponseHead};
use clearway_site::{ConfKey, Level, Setting, context, set, settings};

/// How deep subrequests may be nested: nginx counts 50 besides the outermost one.
const NESTED_MAX: u8 = 51;
/// How many a request may have that have not ended, as in nginx.
const OUTSTANDING_MAX: u32 = 65_535 - 1_000;

/// The engine's own part of the tables, as far as subrequests go.
pub(crate) static SUBREQUESTS: Module =
    Module { name: "core subrequests", directives: DIRECTIVES, confs: &[&SUBREQUEST_CONF], ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "subrequest_output_buffer_size",
    contexts: context::ALL,
    args: Args::TAKE1,
    syntax: "subrequest_output_buffer_size SIZE",
    default: "subrequest_output_buffer_size 4k;",
    doc: "How much of the response of a subrequest is kept in memory where it is not sent; more is an error.",
    example: "
        subrequest_output_buffer_size 32k;",
    see: &["ssi", "auth_request"],
    handler: |scope, directive| {
        let setting = &mut scope.conf.location(&SUBREQUEST_CONF).output_buffer_bytes;
        set(directive, setting, |directive| directive.size(0))
    },
}];

pub(crate) static SUBREQUEST_CONF: ConfKey<SubrequestConf> = ConfKey::new(Level::Location);

settings! {
    pub(crate) struct SubrequestConf {
        /// `subrequest_output_buffer_size`
        pub(crate) output_buffer_bytes: Setting<u64> = 4096,
    }
}

/// The fate of the response of a subrequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The response is inserted into the parent's body where it was asked for.
    InOrder,
    /// The response is kept in memory for the caller, up to `subrequest_output_buffer_size`.
    InMemory,
    /// The response is kept in memory, up to so many bytes ([`Capture`]).
    Captured {
        /// The most bytes of the body; a longer one is an error.
        most_bytes: u64,
    },
    /// The response has no body.
    HeadOnly,
}

/// How a subrequest asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// With `GET`.
    Get,
    /// With this method.
    With(Method),
    /// As the request that it belongs to.
    LikeParent,
}

/// Where a subrequest begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// With the phases of the server: its location is looked for.
    Server,
    /// With the content phase, in the location of the request that it belongs to.
    Content,
}

/// A subrequest that is asked for.
#[derive(Debug)]
pub struct Subrequest {
    /// The path, decoded.
    pub path: Vec<u8>,
    /// The arguments, as they would be sent.
    pub args: Vec<u8>,
    /// The point at which the request enters the phases.
    pub entry: Entry,
    /// The method.
    pub asking: Asking,
    /// The fate of the response.
    pub delivery: Delivery,
    /// The body in place of one that is empty, or of an error; it is of the parent's type.
    pub stub: Option<Bytes>,
    /// The differences of a subrequest whose response a script wants.
    pub capture: Option<Box<Capture>>,
}

/// The request whose variables a captured subrequest uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturedVariables {
    /// Variables of its own, from the beginning.
    Own,
    /// Variables of its own, which begin as those of its parent.
    Copied,
    /// The variables of its parent.
    Shared,
}

/// A subrequest of a script: it has a head and variables of its own, and all of its response is wanted.
pub struct Capture {
    /// The request whose variables the subrequest uses.
    pub variables: CapturedVariables,
    /// Called before it begins, to change what it asks.
    pub prepare: Box<dyn FnOnce(&mut Request<'_>) + Send>,
    /// Called when it has ended, with the response's head.
    pub conclude: Box<dyn FnOnce(&ResponseHead<'_>) + Send>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("variables", &self.variables).finish_non_exhaustive()
    }
}

impl Subrequest {
    /// A subrequest with `GET`, whose response is inserted into the body of the parent.
    #[must_use]
    pub fn in_order(path: Vec<u8>, args: Vec<u8>) -> Self {
        Self {
            path,
            args,
            entry: Entry::Server,
            asking: Asking::Get,
            delivery: Delivery::InOrder,
            stub: None,
            capture: None,
        }
    }

    /// The same request once more, beginning at its content phase: for a further part of the response, or to
    /// renew a cached one.
    #[must_use]
    pub fn clone_of(request: &Request<'_>, delivery: Delivery) -> Self {
        let (path, args) = (request.path().to_vec(), request.args().to_vec());
        let (entry, asking) = (Entry::Content, Asking::LikeParent);
        Self { path, args, entry, asking, delivery, stub: None, capture: None }
    }

    /// A subrequest with `GET`, of which the status matters and no body is made.
    #[must_use]
    pub fn head_only(path: Vec<u8>, args: Vec<u8>) -> Self {
        Self { delivery: Delivery::HeadOnly, ..Self::in_order(path, args) }
    }
}

/// A subrequest was not made; the reason is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMade;

/// Whether the client gets anything of what a subrequest is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    Client,
    /// Nothing: it is in the background, or part of what is.
    Nobody,
}

/// A subrequest as its caller sees it.
#[derive(Clone, Debug, Default)]
pub struct SubrequestOutcome(Arc<OutcomeState>);

#[derive(Debug, Default)]
struct OutcomeState {
    /// 0 until it has ended; behind the status `TERMINATED`, if it has ended the whole request.
    end: AtomicU32,
    memory: TaskCell<Vec<u8>>,
    /// Its last action, for the error log.
    action: TaskCell<&'static str>,
}

const TERMINATED: u32 = 1 << 16;

impl SubrequestOutcome {
    /// Its status, once it has ended.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.end()?.ok()
    }

    /// How it has ended.
    pub(crate) fn end(&self) -> Option<Result<u16, Terminated>> {
        let end = self.0.end.load(Ordering::Relaxed);
        let status = end as u16;
        (end > 0).then_some(if end & TERMINATED == 0 { Ok(status) } else { Err(Terminated(status)) })
    }

    /// Its status, once it has ended; an error where its response was not made to its end.
    #[must_use]
    pub fn ended(&self) -> Option<Result<u16, u16>> {
        self.end().map(|end| end.map_err(|Terminated(status)| status))
    }

    /// The body that was kept in memory.
    #[must_use]
    pub fn take_body(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.memory.enter())
    }

    /// Whether something of the body was kept.
    pub(crate) fn has_body(&self) -> bool {
        !self.0.memory.enter().is_empty()
    }

    /// Keeps a piece of the body, unless that is too much.
    pub(crate) fn keep(&self, bytes: &[u8], most_bytes: u64) -> bool {
        let mut memory = self.0.memory.enter();
        let fits = (memory.len() + bytes.len()) as u64 <= most_bytes;
        if fits {
            memory.extend_from_slice(bytes);
        }
        fits
    }

    /// Its last action, for the error log: as in nginx requests of one client have one log, so the one that
    /// has asked for it does the same from then on. Empty: nothing that is said.
    #[must_use]
    pub fn action(&self) -> &'static str {
        *self.0.action.enter()
    }

    pub(crate) fn note_action(&self, action: &'static str) {
        *self.0.action.enter() = action;
    }

    pub(crate) fn set_end(&self, end: Result<u16, Terminated>) {
        debug_assert!(self.end().is_none(), "a subrequest ends once");
        let end = match end {
            Ok(status) => u32::from(status).max(1),
            Err(Terminated(status)) => TERMINATED | u32::from(status),
        };
        self.0.end.store(end, Ordering::Relaxed);
    }
}

/// The part of a request that makes it a subrequest.
pub(crate) struct SubPart<'c> {
    pub(crate) tree: Arc<Tree<'c>>,
    /// The strands of the request, and the one that polls it.
    pub(crate) strands: &'c Strands<'c>,
    pub(crate) strand: StrandId,
    /// The number, from 1; tells the subrequest from others of the request.
    pub(crate) number: u32,
    pub(crate) nested_left: u8,
    pub(crate) entry: Entry,
    pub(crate) asking: Asking,
    pub(crate) delivery: Delivery,
    pub(crate) audience: Audience,
    pub(crate) stub: Option<Stub>,
    /// A head of its own.
    pub(crate) head: OwnHead,
}

/// A body for want of another.
pub(crate) struct Stub {
    pub(crate) body: Bytes,
    pub(crate) content_type: Option<Vec<u8>>,
}

impl SubPart<'_> {
    pub(crate) fn method(&self, parent: &Request<'_>) -> Method {
        match self.asking {
            Asking::Get => Method::Get,
            Asking::With(method) => method,
            Asking::LikeParent => parent.method(),
        }
    }
}

impl<'c> Request<'c> {
    /// Whether it is what the client has asked, and not a subrequest.
    #[inline]
    pub fn is_main(&self) -> bool {
        self.parts.sub().is_none()
    }

    /// Whether it asks once more for what the request that it belongs to asks for ([`Subrequest::clone_of`]).
    pub fn is_clone(&self) -> bool {
        self.parts.sub().is_some_and(|sub| sub.entry == Entry::Content)
    }

    /// Whether its response is for a script.
    pub(crate) fn is_captured(&self) -> bool {
        self.parts.sub().is_some_and(|sub| matches!(sub.delivery, Delivery::Captured { .. }))
    }

    /// The strands beside its handlers, and those of its subrequests.
    pub(crate) fn strands(&self) -> &'c Strands<'c> {
        match &self.parts {
            PartsRef::Own(_, strands) => strands,
            PartsRef::Shared(sub) => sub.strands,
        }
    }

    /// The strand that polls it: the root, or the strand that it is part of.
    pub(crate) fn strand(&self) -> StrandId {
        self.parts.sub().map_or(StrandId::ROOT, |sub| sub.strand)
    }

    /// Tells it from other subrequests of the request, which is 0 itself.
    pub fn node_number(&self) -> u32 {
        self.parts.sub().map_or(0, |sub| sub.number)
    }

    /// The state of a module for the request and all of its subrequests; made at its first use.
    pub fn common_context<T: Any + Default + Send + Sync>(&self, key: &'static ContextKey<T>) -> Arc<T> {
        self.tree().contexts().get(key)
    }

    /// The common context, if it was made.
    pub fn find_common_context<T: Any + Send + Sync>(&self, key: &'static ContextKey<T>) -> Option<Arc<T>> {
        self.values.find_tree()?.contexts().find(key)
    }

    /// Whether it is in vain once the client is gone. What is in the background is not: as in nginx it goes
    /// on as long as its request, which does not look for the client when the response is sent.
    pub(crate) fn is_for_client(&self) -> bool {
        self.audience() == Audience::Client
    }

    /// The lookout for the event that it waits for.
    #[inline]
    pub(crate) fn lookout(&self) -> Lookout<'c> {
        match self.strand() {
            _ if !self.is_for_client() || self.stage == Stage::Behind => Lookout::Nobody,
            StrandId::ROOT => Lookout::Root(Departure::default()),
            _ => Lookout::Strand(self.strands()),
        }
    }

    pub(crate) fn audience(&self) -> Audience {
        self.parts.sub().map_or(Audience::Client, |sub| sub.audience)
    }

    pub(crate) fn nested_left(&self) -> u8 {
        self.parts.sub().map_or(NESTED_MAX, |sub| sub.nested_left)
    }

    fn delivery(&self) -> Option<Delivery> {
        self.parts.sub().map(|sub| sub.delivery)
    }

    /// Whether a subrequest may be made.
    ///
    /// # Errors
    /// It may not; that is logged.
    pub(crate) fn ask(&self, wanted: &Subrequest) -> Result<Asked<'c>, NotMade> {
        let path = Verbatim(&wanted.path);
        if self.nested_left() == 0 {
            let whose = if matches!(wanted.delivery, Delivery::Captured { .. }) { "lua " } else { "" };
            self.log(LogLevel::Error, format_args!("{whose}subrequests cycle while processing \"{path}\""));
            return Err(NotMade);
        }
        let Some(asked) = self.tree().ask(OUTSTANDING_MAX) else {
            let overflow = format_args!("request reference counter overflow while processing \"{path}\"");
            self.log(LogLevel::Crit, overflow);
            return Err(NotMade);
        };
        if matches!(self.delivery(), Some(Delivery::InMemory)) {
            self.log(LogLevel::Error, format_args!("nested in-memory subrequest \"{path}\""));
            return Err(NotMade);
        }
        Ok(asked)
    }
}

/// The whole request is to be ended, with this status for the log: a subrequest has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terminated(pub(crate) u16);
