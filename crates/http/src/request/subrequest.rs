//! Subrequests: what else is asked within a request, by the server itself. One is a request of its own, with
//! its path, location, head of a response and module contexts; it shares what the client has sent, and
//! variables, with the request it belongs to (`tree`). Those that nobody waits for in place are strands of
//! the request (`strands`).
//!
//! Who asks for one says what becomes of its response: it stands in its place in the body of its parent
//! (`relay`), it is kept in memory, or it has no body, and somebody waits for its status, or nobody.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_runtime::TaskCell;

use crate::link::departure::Departure;
use crate::output::OutputState;
use crate::output::view::View;
use crate::phases::Exchange;
use crate::phases::engine::{Active, Start};
use crate::phases::redirect::Onward;
use crate::request::answer::Answer;
use crate::request::body::BodyState;
use crate::request::contexts::ContextKey;
use crate::request::relay::Sink;
use crate::request::strands::{Lookout, Strand, StrandId, Strands};
use crate::request::tree::{Asked, PartsRef, Tree};
use crate::request::{AliasTail, Node, Origin, Request, Rewriting, Text};
use crate::response::chunk::{Chunk, Mark};
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

/// What becomes of the response of a subrequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It stands in the body of the parent, where it was asked for.
    InOrder,
    /// It is kept in memory for who asks, if it is not too much (`subrequest_output_buffer_size`).
    InMemory,
    /// It has no body.
    HeadOnly,
}

/// How a subrequest asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// With `GET`.
    Get,
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

/// What is asked for.
#[derive(Debug)]
pub struct Subrequest {
    /// The path, decoded.
    pub path: Vec<u8>,
    /// The arguments, as they would be sent.
    pub args: Vec<u8>,
    /// Where it begins.
    pub entry: Entry,
    /// The method.
    pub asking: Asking,
    /// What becomes of the response.
    pub delivery: Delivery,
    /// The body in place of one that is empty, or of an error; it is of the parent's type.
    pub stub: Option<Bytes>,
}

impl Subrequest {
    /// What stands in the body of the parent, asked for with `GET`.
    #[must_use]
    pub fn in_order(path: Vec<u8>, args: Vec<u8>) -> Self {
        Self {
            path,
            args,
            entry: Entry::Server,
            asking: Asking::Get,
            delivery: Delivery::InOrder,
            stub: None,
        }
    }

    /// The same once more as a request asks for, from its content phase on: for a further part of it, or to
    /// have what is cached of it renewed.
    #[must_use]
    pub fn clone_of(request: &Request<'_>, delivery: Delivery) -> Self {
        let (path, args) = (request.path().to_vec(), request.args().to_vec());
        let (entry, asking) = (Entry::Content, Asking::LikeParent);
        Self { path, args, entry, asking, delivery, stub: None }
    }

    /// What has a status and no body, asked for with `GET`.
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
enum Audience {
    Client,
    /// Nothing: it is in the background, or part of what is.
    Nobody,
}

/// What is known of a subrequest by who has asked for it.
#[derive(Clone, Debug, Default)]
pub struct Outcome(Arc<OutcomeState>);

#[derive(Debug, Default)]
struct OutcomeState {
    /// 0 until it has ended; behind the status `TERMINATED`, if it has ended the whole request.
    end: AtomicU32,
    memory: TaskCell<Vec<u8>>,
}

const TERMINATED: u32 = 1 << 16;

impl Outcome {
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

    /// The body that was kept in memory.
    #[must_use]
    pub fn take_body(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.memory.enter())
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

    fn set_end(&self, end: Result<u16, Terminated>) {
        let end = match end {
            Ok(status) => u32::from(status).max(1),
            Err(Terminated(status)) => TERMINATED | u32::from(status),
        };
        self.0.end.store(end, Ordering::Relaxed);
    }
}

/// What makes a request a subrequest.
pub(crate) struct SubPart<'c> {
    pub(crate) tree: Arc<Tree<'c>>,
    /// Those of the request, and the one that polls it.
    pub(crate) strands: &'c Strands<'c>,
    pub(crate) strand: StrandId,
    /// From 1; tells it from others of the request.
    number: u32,
    nested_left: u8,
    entry: Entry,
    asking: Asking,
    delivery: Delivery,
    audience: Audience,
    stub: Option<Stub>,
}

/// A body for want of another.
struct Stub {
    body: Bytes,
    content_type: Option<Vec<u8>>,
}

impl SubPart<'_> {
    pub(crate) fn method(&self, parent: &Request<'_>) -> Method {
        match self.asking {
            Asking::Get => Method::Get,
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

    /// What goes on beside its handlers, and those of its subrequests.
    pub(crate) fn strands(&self) -> &'c Strands<'c> {
        match &self.parts {
            PartsRef::Own(_, strands) => strands,
            PartsRef::Shared(sub) => sub.strands,
        }
    }

    /// What polls it: the root, or the strand that it is part of.
    pub(crate) fn strand(&self) -> StrandId {
        self.parts.sub().map_or(StrandId::ROOT, |sub| sub.strand)
    }

    /// Tells it from other subrequests of the request, which is 0 itself.
    pub fn node_number(&self) -> u32 {
        self.parts.sub().map_or(0, |sub| sub.number)
    }

    /// What a module keeps for the request and all of its subrequests; made when it is asked for first.
    pub fn common_context<T: Any + Default + Send + Sync>(&self, key: &'static ContextKey<T>) -> Arc<T> {
        self.tree().contexts().get(key)
    }

    /// The same, if it was made.
    pub fn find_common_context<T: Any + Send + Sync>(&self, key: &'static ContextKey<T>) -> Option<Arc<T>> {
        self.values.find_tree()?.contexts().find(key)
    }

    /// Whether it is in vain once the client is gone. What is in the background is not: as in nginx it goes
    /// on as long as its request, which does not look for the client when the response is sent.
    pub(crate) fn is_for_client(&self) -> bool {
        self.audience() == Audience::Client
    }

    /// For what it waits for.
    #[inline]
    pub(crate) fn lookout(&self) -> Lookout<'c> {
        match self.strand() {
            _ if !self.is_for_client() => Lookout::Nobody,
            StrandId::ROOT => Lookout::Root(Departure::default()),
            _ => Lookout::Strand(self.strands()),
        }
    }

    fn audience(&self) -> Audience {
        self.parts.sub().map_or(Audience::Client, |sub| sub.audience)
    }

    /// Where a subrequest begins.
    pub(crate) fn subrequest_start(&self) -> Start {
        match self.parts.sub().map(|sub| sub.entry) {
            Some(Entry::Content) => Start::Content,
            Some(Entry::Server) | None => Start::Server,
        }
    }

    fn nested_left(&self) -> u8 {
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
            self.log(LogLevel::Error, format_args!("subrequests cycle while processing \"{path}\""));
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

/// Answers a subrequest in a strand of its own.
pub(crate) fn answer<'c>(parent: &Request<'c>, wanted: Subrequest, sink: Sink<'c>) -> StrandId {
    let (audience, asker) = (parent.audience(), parent.strand());
    parent.strands().begin(|strand| {
        let outcome = sink.outcome().clone();
        let mut active = Active::subrequest((audience, strand), parent, wanted, sink);
        Box::pin(async move {
            let end = active.answer_subrequest().await;
            outcome.set_end(end.map(|()| active.output.status()));
            active.request.strands().notify(asker);
        })
    })
}

/// Answers one in the background; one that wants the connection closed does not have its way.
fn answer_in_background<'c>(parent: &Request<'c>, wanted: Subrequest, asked: Asked<'c>) {
    parent.strands().begin(|strand| -> Strand<'c> {
        let mut active = Active::subrequest((Audience::Nobody, strand), parent, wanted, Sink::default());
        Box::pin(async move {
            let _asked = asked;
            let _ = active.answer_subrequest().await;
        })
    });
}

impl<'c> Active<'c> {
    fn subrequest(
        (audience, strand): (Audience, StrandId),
        parent: &Request<'c>,
        wanted: Subrequest,
        sink: Sink<'c>,
    ) -> Box<Self> {
        let Subrequest { path, args, entry, asking, delivery, stub } = wanted;
        let tree = parent.tree();
        let stub = stub.map(|body| Stub { body, content_type: sink.content_type().map(<[u8]>::to_vec) });
        let strands = parent.strands();
        let (number, nested_left) = (tree.next_number(), parent.nested_left() - 1);
        let sub =
            SubPart { tree, strands, strand, number, nested_left, entry, asking, delivery, audience, stub };
        let (location, alias_tail) = match entry {
            Entry::Server => (parent.snapshot.location(parent.server.base), AliasTail::Nothing),
            Entry::Content => (parent.location(), parent.alias_tail()),
        };
        let node = Node {
            location,
            path: Text::Made(path.into()),
            args: Text::args((!args.is_empty()).then_some(args)),
            origin: Origin::Internal,
            alias_tail,
            rewriting: Rewriting::NONE,
        };
        Box::new(Self {
            request: Request::new_subrequest(parent, node, sub),
            body: BodyState::default(),
            output: OutputState::of_subrequest(sink, delivery),
        })
    }

    async fn answer_subrequest(&mut self) -> Result<(), Terminated> {
        if self.run_subrequest().await == Onward::Close {
            return Err(Terminated(self.output.status()));
        }
        if !self.output.has_passed_bytes() {
            self.push_stub();
        }
        self.output.finish(&self.request);
        while self.output.flush(&self.request).await.is_err() {
            self.log_send_failure();
            let Some(code) = self.output.start_over() else {
                return Err(Terminated(self.output.status()));
            };
            if self.follow(Answer::Status(code)).await == Onward::Close {
                return Err(Terminated(self.output.status()));
            }
            self.output.finish(&self.request);
        }
        self.log();
        Ok(())
    }

    /// Answers with the stub of a subrequest, if it has one, in place of an error.
    pub(crate) fn push_stub(&mut self) -> bool {
        let Some(stub) = self.request.parts.sub_mut().and_then(|sub| sub.stub.take()) else { return false };
        if !self.output.head_sent() {
            self.output.head.content_type = stub.content_type.map(Into::into);
            self.output.head.status = self.output.head.status.max(200);
        }
        self.output.reopen();
        // It was in memory before.
        let _ = self.output.write(&self.request, Chunk::Shared(stub.body), Mark::More);
        true
    }
}

/// A subrequest without a body that has ended.
pub struct Finished<'c>(Box<Active<'c>>);

impl<'c> Finished<'c> {
    /// Its status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.0.output.status()
    }

    /// What variables are evaluated on, as the subrequest sees them.
    #[must_use]
    pub fn view(&self) -> View<'_, 'c> {
        View::new(&self.0.request, &self.0.output)
    }

    /// The head of its response.
    #[must_use]
    pub fn head(&self) -> &ResponseHead<'c> {
        &self.0.output.head
    }
}

impl<'c> Exchange<'_, 'c> {
    /// Waits for a subrequest, which has no body.
    ///
    /// # Errors
    /// The answer to give instead: it could not be made, or wants the connection closed.
    pub async fn subrequest(&mut self, wanted: Subrequest) -> Result<Finished<'c>, Answer> {
        debug_assert_eq!(wanted.delivery, Delivery::HeadOnly, "a body would have nowhere to go");
        let _asked = self.request.ask(&wanted).map_err(|NotMade| Answer::Abandon(500))?;
        let place = (self.request.audience(), self.request.strand());
        let mut active = Active::subrequest(place, self.request, wanted, Sink::default());
        match active.answer_subrequest().await {
            Ok(()) => Ok(Finished(active)),
            Err(Terminated(status)) => Err(Answer::Abandon(status)),
        }
    }

    /// Has a subrequest answered that nobody waits for, but the next request of the connection.
    ///
    /// # Errors
    /// It could not be made; that is logged.
    pub fn start_background(&mut self, wanted: Subrequest) -> Result<(), NotMade> {
        debug_assert_eq!(wanted.delivery, Delivery::HeadOnly, "a body would have nowhere to go");
        let asked = self.request.ask(&wanted)?;
        answer_in_background(self.request, wanted, asked);
        Ok(())
    }
}
