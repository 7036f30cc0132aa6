//! The phases of a request in order, from the complete head to the log. Runs in the request's task:
//! one poll loop, in which only handlers that answer `Step::Wait` wait.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use clearway_base::log::Level;
use clearway_message::{Method, Text as HeadText, uri, uri::Escape};
use clearway_runtime::Tag;

use crate::client::Way;
use crate::config::body_directives::BODY_CONF;
use crate::output::{Output, OutputState};
use crate::phases::protocol::{Cut, READING_HEADERS};
use crate::phases::{Exchange, Step, Wait};
use crate::request::account;
use crate::request::answer::Answer;
use crate::request::answer::Wanted;
use crate::request::body::{Body, BodyState};
use crate::request::strands::Lookout;
use crate::request::{GivenUp, Host, KeepAlive, Origin, Request, Text, reading_line};
use crate::tables::{Location, PhaseEntry};
use clearway_site::{LocationAccess, LocationId, Part, Phase, Protocols, locations::Found};

/// A request with its body and its response: what one task works on.
pub struct Active<'c> {
    pub(crate) request: Request<'c>,
    pub(crate) body: BodyState,
    pub(crate) output: OutputState<'c>,
}

/// Where phases begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Server,
    Location,
    /// At the handlers that answer, in the location where the request is.
    Content,
}

/// Where a request is in its phases: which handlers of its location are still to be asked.
struct Walk<'c> {
    location: &'c Location,
    part: Part,
    left: Range<usize>,
}

/// The next action of the engine for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The engine asks handlers, beginning here.
    Ask(Start),
    /// The engine answers in place of a handler.
    Answer(Answer),
    /// Nothing: the response is made, and may have to be sent.
    Send,
    /// Nothing: the connection is closed without a response, or with what was sent of one.
    Close,
}

/// Which handler is asked next in the phases; an error is what they have come to without another one.
type Next<'c> = Result<Asked<'c>, Step<'static>>;

/// One handler, or those of the access phase together.
type Asked<'c> = Option<&'c PhaseEntry>;

impl<'c> Walk<'c> {
    fn new(location: &'c Location, part: Part) -> Self {
        Self { location, part, left: location.phases.part(part) }
    }

    /// Leaves out what comes before the content phase.
    fn skip_to_content(&mut self) {
        let phases = &self.location.phases;
        let is_content = |&index: &usize| matches!(phases.entry(index).phase, Phase::Content | Phase::Pass);
        let first = self.left.clone().find(is_content);
        self.left.start = first.unwrap_or(self.left.end);
        debug_assert!(self.left.start <= self.left.end, "no handler is asked twice");
    }

    /// Takes what a handler has said into account that did not end the phases: one that has moved the
    /// request to another location is followed by those that come behind it there.
    #[inline]
    fn pass(&mut self, entry: &PhaseEntry, location: &'c Location) {
        if !std::ptr::eq(self.location, location) {
            self.location = location;
            self.left = location.phases.part_behind(self.part, entry.order);
            debug_assert!(
                self.left.clone().all(|at| location.phases.entry(at).order > entry.order),
                "handlers that come before are not asked again"
            );
        }
    }
}

impl<'c> Active<'c> {
    /// Answers a request whose head is complete. The response may still have to be [sent](Self::send_rest).
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub fn run(&mut self) -> impl Future<Output = Result<(), Cut>> + Send {
        let turn = match self.route() {
            Ok(()) => Turn::Ask(Start::Server),
            Err(answer) => Turn::Answer(answer),
        };
        self.pursue(turn)
    }

    /// Acts on answers until there is a response, if it takes several internal redirects.
    pub(crate) fn follow(&mut self, answer: Answer) -> impl Future<Output = Result<(), Cut>> + Send {
        self.pursue(Turn::Answer(answer))
    }

    /// Runs phases, or acts on an answer, and so on until there is a response.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    pub(super) fn pursue(&mut self, mut turn: Turn) -> impl Future<Output = Result<(), Cut>> + Send {
        async move {
            loop {
                turn = match turn {
                    Turn::Ask(start) => {
                        let step = self.run_phases(start).await;
                        self.conclude_phases(step)
                    }
                    Turn::Answer(answer) => self.answer(answer),
                    Turn::Send => return Ok(()),
                    Turn::Close => return Err(Cut),
                };
            }
        }
    }

    /// Answers without a handler: an error, or where a handler redirects to. The handler there may want the
    /// body; a built-in page never waits for it.
    fn answer(&mut self, answer: Answer) -> Turn {
        let code = match answer {
            _ if !self.request.is_captured() => None,
            Answer::Status(code) | Answer::Abandon(code) => Some(code),
            Answer::Close => Some(500),
            _ => None,
        };
        if let Some(code) = code {
            // A script gets the status alone, or that of the head that it has.
            if !self.output.head_sent() {
                self.output.head.status = code;
            }
            return Turn::Close;
        }
        self.output.take_back();
        if matches!(answer, Answer::Status(_)) && self.push_stub() {
            return Turn::Send;
        }
        let turn = self.request.answer(&mut self.output, answer);
        // A client that gets an error is not told to send its body first, whatever makes the page.
        if self.request.error_status().is_some_and(|status| status != 200) {
            self.body.take_expectation();
        }
        turn.unwrap_or_else(|code| {
            self.body.take_expectation();
            if self.body.discard_received().is_err() {
                self.request.keep_alive = KeepAlive::No;
            }
            self.request.note_body(&self.body);
            self.request.answer_builtin(&mut self.output, code);
            Turn::Send
        })
    }

    /// Finds the server, and takes the target apart.
    #[inline]
    fn route(&mut self) -> Result<(), Answer> {
        let request = &mut self.request;
        request.method = request.parts.head.method();
        request.take_target().map_err(Answer::Status)?;
        request.find_server().map_err(Answer::Status)?;
        request.check_http2().map_err(Answer::Status)?;
        if request.setup.address().protocols.has(Protocols::SSL) {
            request.action = READING_HEADERS;
            request.check_tls().map_err(Answer::Status)?;
        }
        if !request.parts.parser.ignored().is_empty() {
            request.log_ignored_lines();
        }
        request.action = "";
        if request.method == Method::Connect {
            // No request follows one for a tunnel, whatever becomes of it.
            return request.admit_connect().map_err(Answer::Status);
        }
        if request.parts.parser.wants_keep_alive(&request.parts.head) {
            request.keep_alive = KeepAlive::Yes;
        }
        Ok(())
    }

    /// What comes of what the phases have come to.
    #[inline]
    fn conclude_phases(&mut self, step: Step<'static>) -> Turn {
        match step {
            Step::Done => self.output.take_refusal().map_or(Turn::Send, Turn::Answer),
            Step::Respond(answer) => Turn::Answer(answer),
            Step::Left(left) => Turn::Answer(self.leave(&left)),
            Step::Declined | Step::Allowed => {
                self.request.log(Level::Error, format_args!("no handler found"));
                Turn::Answer(Answer::Status(404))
            }
            Step::Wait(_) | Step::WaitRegardless(_) => unreachable!("a handler that waits is waited for"),
        }
    }

    /// Says that the client has left while a handler waited, and what to do about that.
    #[cold]
    fn leave(&mut self, left: &io::Result<()>) -> Answer {
        self.request.log_left(left);
        self.output.note_left();
        Answer::Abandon(self.output.status())
    }

    /// Runs handlers up to the first one that has something to say. One that does not wait is a plain call.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    #[inline]
    fn run_phases(&mut self, start: Start) -> impl Future<Output = Step<'static>> + Send {
        async move {
            let mut walk = Walk::new(
                self.request.location(),
                match start {
                    Start::Server => Part::Server,
                    Start::Location => Part::Rewrite,
                    Start::Content => Part::Answer,
                },
            );
            if start == Start::Content {
                walk.skip_to_content();
            }
            loop {
                let entry = match self.next(&mut walk) {
                    Ok(Some(entry)) => entry,
                    Ok(None) => match self.run_access().await {
                        Step::Declined => continue,
                        end => return end,
                    },
                    Err(step) => return step,
                };
                let step = match entry.tag {
                    // Boxed, as nobody else should have to have room for it.
                    Some(tag) => Box::pin(self.run_suspect(entry, tag)).await,
                    None => match self.call(entry) {
                        Ok(step) => step,
                        Err(ref mut settle) => settle.await,
                    },
                };
                self.request.account(entry.phase.step());
                if !matches!(step, Step::Declined | Step::Allowed) {
                    return step;
                }
                walk.pass(entry, self.request.location());
            }
        }
    }

    /// The next handler, and the engine's own work between two parts of the phases.
    #[inline]
    fn next(&mut self, walk: &mut Walk<'c>) -> Next<'c> {
        loop {
            if let Some(index) = walk.left.next() {
                return Ok(Some(walk.location.phases.entry(index)));
            }
            let next = match walk.part {
                Part::Server => self.find_config().map(|()| Part::Rewrite),
                Part::Rewrite => self.leave_rewrite(),
                Part::Limits if self.is_guarded() => {
                    // Handlers of the access phase are asked together; when that is done, an empty part
                    // remains.
                    walk.part = Part::Access;
                    return Ok(None);
                }
                Part::Limits | Part::Access => self.request.check_pass().map(|()| Part::Answer),
                Part::Answer | Part::Log => return Err(Step::Declined),
            };
            match next {
                Ok(part) => *walk = Walk::new(self.request.location(), part),
                Err(answer) => return Err(Step::Respond(answer)),
            }
        }
    }

    /// Which part comes behind the rewrite phase: the same again where the path was changed.
    fn leave_rewrite(&mut self) -> Result<Part, Answer> {
        match self.request.post_rewrite().map_err(Answer::Status)? {
            Wanted::Nothing => Ok(Part::Limits),
            Wanted::Location => self.find_config().map(|()| Part::Rewrite),
        }
    }

    /// Whether the access phase has handlers; subrequests and internal requests skip it.
    fn is_guarded(&self) -> bool {
        !self.request.location().phases.part(Part::Access).is_empty()
            && self.request.is_main()
            && !self.request.is_internal()
    }

    /// Asks a handler that is not known to block; the error is that it has to be waited for.
    #[inline]
    fn call(&mut self, entry: &'c PhaseEntry) -> Result<Step<'static>, Settle<'_, 'c>> {
        let (way, location) = (self.request.way(), self.request.location());
        let lookout = self.request.lookout();
        match (entry.handler)(self.exchange()) {
            Step::Wait(wait) => Err(Settle { wait, lookout, way, entry, location }),
            Step::WaitRegardless(wait) => {
                Err(Settle { wait, lookout: Lookout::Nobody, way, entry, location })
            }
            Step::Declined => Ok(Step::Declined),
            Step::Allowed => Ok(Step::Allowed),
            Step::Done => Ok(Step::Done),
            Step::Respond(answer) => Ok(Step::Respond(answer)),
            Step::Left(left) => Ok(Step::Left(left)),
        }
    }

    /// Asks a handler, and waits for what it says.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    pub(crate) fn run_entry(&mut self, entry: &'c PhaseEntry) -> impl Future<Output = Step<'static>> + Send {
        async move {
            let step = match entry.tag {
                // Boxed, as nobody else should have to have room for it.
                Some(tag) => Box::pin(self.run_suspect(entry, tag)).await,
                None => match self.call(entry) {
                    Ok(step) => step,
                    Err(ref mut settle) => settle.await,
                },
            };
            self.request.account(entry.phase.step());
            step
        }
    }

    async fn run_suspect(&mut self, entry: &'c PhaseEntry, tag: Tag) -> Step<'static> {
        self.request.link.note_acted();
        // Work behind the handler, such as waiting for the next request, is not suspect.
        clearway_runtime::within(tag, async {
            match self.call(entry) {
                Ok(step) => step,
                Err(ref mut settle) => settle.await,
            }
        })
        .await
    }

    /// Whether the log phase has handlers that may have to wait ([`Self::log_slowly`]).
    #[inline]
    pub fn logs_slowly(&self) -> bool {
        let phases = &self.request.location().phases;
        phases.part(Part::Log).any(|index| phases.entry(index).tag.is_some())
    }

    /// Runs those handlers of the log phase that may have to wait; before [`Self::log`]. A request whose task
    /// is dropped does without them.
    pub async fn log_slowly(&mut self) {
        self.request.begin_logging(&self.body);
        for index in self.request.location().phases.part(Part::Log) {
            let entry = self.request.location().phases.entry(index);
            if entry.tag.is_some() {
                self.run_entry(entry).await;
            }
        }
    }

    /// Runs the log phase, in which nothing waits.
    pub fn log(&mut self) {
        self.request.begin_logging(&self.body);
        for index in self.request.location().phases.part(Part::Log) {
            let PhaseEntry { handler, tag, .. } = self.request.location().phases.entry(index);
            if tag.is_some() {
                continue;
            }
            let step = handler(self.exchange());
            let waits = matches!(step, Step::Wait(_) | Step::WaitRegardless(_));
            debug_assert!(!waits, "the log phase does not wait");
        }
        self.request.account(Phase::Log.step());
    }

    /// The request as handlers have it.
    pub fn exchange(&mut self) -> Exchange<'_, 'c> {
        Exchange {
            body: Body { state: &mut self.body },
            output: Output { state: &mut self.output },
            request: &mut self.request,
        }
    }

    /// Finds the location for the path.
    #[inline]
    fn find_config(&mut self) -> Result<(), Answer> {
        let request = &mut self.request;
        request.begin_search();
        let found = request.find_location().map_err(Answer::Status);
        request.account(account::FINDING_LOCATION);
        let found = found?;
        let id = match found {
            Found::Nothing => request.server.base,
            Found::Location(id) | Found::Redirect(id) => id,
        };
        let location = request.snapshot.location(id);
        request.node_mut().location = location;
        if request.origin() == Origin::Client && *location.core.access == LocationAccess::Internal {
            return Err(Answer::Status(404));
        }
        request.enter_location(location);
        self.body.check_size(request)?;
        if matches!(found, Found::Redirect(_)) {
            self.output.head.location = Some(redirect_url(request));
            return Err(Answer::Status(301));
        }
        Ok(())
    }
}

/// Waits until a handler has decided. A handler whose client leaves is dropped, and what it waits for with
/// it.
struct Settle<'a, 'c> {
    wait: Wait<'a>,
    lookout: Lookout<'c>,
    way: Way<'c>,
    entry: &'c PhaseEntry,
    location: &'c Location,
}

impl Future for Settle<'_, '_> {
    type Output = Step<'static>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Step<'static>> {
        loop {
            match self.wait.as_mut().poll(cx) {
                Poll::Ready(Step::Wait(next)) => self.wait = next,
                Poll::Ready(Step::WaitRegardless(next)) => {
                    (self.wait, self.lookout) = (next, Lookout::Nobody);
                }
                Poll::Ready(step) => return Poll::Ready(step),
                Poll::Pending => {
                    let step = self.entry.phase.step();
                    let Way { client, setup, link } = self.way;
                    client.home.account(|| account::of_location(client, setup, self.location, step));
                    return self.lookout.poll(link, cx).map(Step::Left);
                }
            }
        }
    }
}

/// The name of the location and the arguments of the request, as a URL.
fn redirect_url<'c>(request: &Request<'c>) -> HeadText<'c> {
    let name = uri::escape_uri(request.location().name(), Escape::Uri);
    if request.args().is_empty() {
        return name;
    }
    [&*name, b"?", request.args()].concat().into()
}

impl BodyState {
    /// Refuses a body beyond the limit of the location, and begins to drop it.
    ///
    /// # Errors
    /// The answer to give instead; the reason is logged.
    #[inline]
    pub(crate) fn check_size(&mut self, request: &Request<'_>) -> Result<(), Answer> {
        if self.is_absent() {
            return Ok(());
        }
        self.limit(*request.conf(&BODY_CONF).max_bytes).map_err(|bytes| {
            request.log(Level::Error, format_args!("client intended to send too large body: {bytes} bytes"));
            self.take_expectation();
            // The connection is closed in any case.
            let _ = self.discard_received();
            Answer::Status(413)
        })
    }
}

impl<'c> Exchange<'_, 'c> {
    /// Drops the request body, as handlers do that have no use for one, before they answer. What is
    /// still to come is dropped after the response.
    ///
    /// # Errors
    /// The answer to give instead: the body is malformed.
    #[inline]
    pub fn discard_body(&mut self) -> Result<(), Answer> {
        if self.body.state.is_absent() {
            return Ok(());
        }
        self.output.state.invite(self.request.link, self.body.state);
        let outcome = self.body.state.discard_received();
        self.request.note_body(self.body.state);
        outcome.map_err(|fault| {
            self.request.log(Level::Error, format_args!("{fault}"));
            Answer::Status(fault.page())
        })
    }
}

impl Request<'_> {
    /// Routes an incomplete request as far as its host is known, so that the right server's error page and
    /// log apply.
    pub(crate) fn route_refused(&mut self) {
        self.method = self.parts.head.method();
        if !self.parts.head.line.line.is_empty()
            && self.take_target().is_ok()
            && self.parts.head.host.is_some()
        {
            // If there are two problems, the first one is answered.
            let _ = self.find_server();
        }
    }

    /// Finds the server that the host names among those of the address.
    #[inline]
    fn find_server(&mut self) -> Result<(), u16> {
        let Some(host) = self.parts.head.host else { return self.find_server_of_host() };
        self.host = if host.is_lowercase {
            Host::Received(host.name)
        } else {
            Host::Lowered(self.bytes(host.name).to_ascii_lowercase().into())
        };
        if self.setup.address().names.is_empty() {
            return Ok(());
        }
        self.find_server_of_host()
    }

    fn find_server_of_host(&mut self) -> Result<(), u16> {
        let address = self.setup.address();
        let negotiated = self.tls().and_then(|tls| tls.offer.host.as_deref());
        let host = self.host().or(negotiated).unwrap_or_default();
        let found = address.names.find(host, |regex| self.matches(regex, host));
        let found = found.map_err(|GivenUp| 500_u16)?;
        if negotiated.is_some() {
            self.check_negotiated(host, found.unwrap_or(address.default_server))?;
        }
        if let Some(id) = found {
            self.server = self.snapshot.server(id);
            self.node_mut().location = self.snapshot.location(self.server.base);
        }
        Ok(())
    }

    pub(super) fn find_location(&self) -> Result<Found<LocationId>, u16> {
        let tree = &self.server.tree;
        if tree.is_empty() {
            return Ok(Found::Nothing);
        }
        let path = self.path();
        tree.find(path, |regex| self.matches(regex, path)).map_err(|GivenUp| 500)
    }

    #[inline]
    pub(super) fn take_target(&mut self) -> Result<(), u16> {
        if self.parts.head.line.path_is_plain {
            let (path, args) = (self.parts.head.line.path, self.parts.head.line.args);
            let node = self.node_mut();
            node.path = Text::Received(path);
            node.args = Text::Received(args);
            return Ok(());
        }
        let target = uri::parse_target(self.raw_target(), *self.setup.server_core().merge_slashes);
        let Ok(target) = target.map(|target| (target.path.into_owned(), target.args.to_vec())) else {
            self.refuse_target();
            return Err(400);
        };
        let node = self.node_mut();
        node.path = Text::Made(target.0.into());
        node.args = Text::args((!target.1.is_empty()).then_some(target.1));
        Ok(())
    }

    /// As in nginx, which looks at the target before it reads on.
    #[cold]
    fn refuse_target(&mut self) {
        let start = self.start;
        let parts = self.parts.own();
        parts.parser.forget_headers(&mut parts.head, &parts.input[start..]);
        self.action = reading_line(self.arrival);
        self.log(Level::Info, format_args!("client sent invalid request"));
    }
}
