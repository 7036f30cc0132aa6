//! The phases of a request in order, from the complete head to the log. Runs in the request's task:
//! one poll loop, in which only handlers that answer `Step::Wait` wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_base::log::Level;
use clearway_runtime::Tag;

use crate::config::body_directives::BODY_CONF;
use crate::connection::Conn;
use crate::connection::account;
use crate::output::{Output, OutputState};
use crate::phases::{Answer, Exchange, Part, Phase, PhaseEntry, Step, Wait};
use crate::request::body::{Body, BodyState};
use crate::request::redirect::{BuiltIn, Onward, Wanted};
use crate::request::subrequest::Background;
use crate::request::uri::{self, Escape};
use crate::request::{GivenUp, Host, KeepAlive, Origin, Request, Text};
use crate::response::Text as HeadText;
use crate::snapshot::locations::Found;
use crate::snapshot::{Location, LocationAccess, LocationId};

/// A request with its body and its response: what one task works on.
pub(crate) struct Active<'c> {
    pub(crate) request: Request<'c>,
    pub(crate) body: BodyState,
    pub(crate) output: OutputState<'c>,
}

/// Where phases begin.
enum Start {
    Server,
    Location,
}

impl<'c> Active<'c> {
    /// Answers a subrequest.
    pub(crate) async fn run_subrequest(&mut self, conn: &'c Conn) -> Onward {
        let answer = self.run_phases(conn, Start::Server).await;
        self.follow(conn, answer).await
    }

    /// Answers a request whose head is complete. The response may still have to be flushed.
    pub(crate) async fn run(&mut self, conn: &'c Conn) -> Onward {
        let answer = match self.route() {
            Ok(()) => self.run_phases(conn, Start::Server).await,
            Err(answer) => Some(answer),
        };
        if answer.is_none() {
            return Onward::Answered;
        }
        self.follow(conn, answer).await
    }

    /// Acts on answers until there is a response, if it takes several internal redirects.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    pub(crate) fn follow(
        &mut self,
        conn: &'c Conn,
        mut answer: Option<Answer>,
    ) -> impl Future<Output = Onward> + Send {
        async move {
            loop {
                let Some(given) = answer.take() else { return Onward::Answered };
                let start = match self.answer(given) {
                    Onward::FromServer => Start::Server,
                    Onward::FromLocation => Start::Location,
                    end => return end,
                };
                answer = self.run_phases(conn, start).await;
            }
        }
    }

    /// Answers without a handler: an error, or where a handler redirects to. Who answers there may want
    /// the body; a page of our own never waits for it.
    fn answer(&mut self, answer: Answer) -> Onward {
        if matches!(answer, Answer::Status(_)) && self.push_stub() {
            return Onward::Answered;
        }
        self.request.answer(&mut self.output, answer).unwrap_or_else(|BuiltIn(code)| {
            self.body.take_expectation();
            if self.body.discard_received().is_err() {
                self.request.keep_alive = KeepAlive::No;
            }
            self.request.answer_builtin(&mut self.output, code);
            Onward::Answered
        })
    }

    /// Finds the server, and takes the target apart.
    fn route(&mut self) -> Result<(), Answer> {
        let request = &mut self.request;
        request.method = request.parts.head.method();
        request.take_target().map_err(Answer::Status)?;
        request.find_server().map_err(Answer::Status)?;
        if !request.parts.head.ignored().is_empty() {
            request.log_ignored_lines();
        }
        request.action = "";
        if request.parts.head.wants_keep_alive() {
            request.keep_alive = KeepAlive::Yes;
        }
        Ok(())
    }

    /// Runs the phases up to an answer; `None` when a handler has pushed the response.
    async fn run_phases(&mut self, conn: &'c Conn, start: Start) -> Option<Answer> {
        match self.run_parts(conn, start).await {
            Flow::Done => self.output.take_refusal(),
            Flow::Answer(answer) => Some(answer),
            Flow::Next | Flow::Allowed => {
                self.request.log(Level::Error, format_args!("no handler found"));
                Some(Answer::Status(404))
            }
        }
    }

    async fn run_parts(&mut self, conn: &'c Conn, start: Start) -> Flow {
        let mut wanted = Wanted::Location;
        match start {
            Start::Server => {
                let flow = self.run_part(conn, Part::Server).await;
                if !matches!(flow, Flow::Next) {
                    return flow;
                }
            }
            Start::Location => wanted = Wanted::Nothing,
        }
        loop {
            if wanted == Wanted::Location
                && let Err(answer) = self.find_config()
            {
                return Flow::Answer(answer);
            }
            let flow = self.run_part(conn, Part::Rewrite).await;
            if !matches!(flow, Flow::Next) {
                return flow;
            }
            match self.request.post_rewrite() {
                Ok(Wanted::Nothing) => break,
                Ok(Wanted::Location) => wanted = Wanted::Location,
                Err(status) => return Flow::Answer(Answer::Status(status)),
            }
        }
        self.run_answer(conn).await
    }

    /// The phases behind the choice of a location.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    fn run_answer(&mut self, conn: &'c Conn) -> impl Future<Output = Flow> + Send {
        async move {
            let flow = self.run_part(conn, Part::Limits).await;
            if !matches!(flow, Flow::Next) {
                return flow;
            }
            if self.is_guarded() {
                let flow = self.run_access(conn).await;
                if !matches!(flow, Flow::Next) {
                    return flow;
                }
            }
            self.run_part(conn, Part::Answer).await
        }
    }

    /// Whether anybody asks who may. Of subrequests nobody does.
    fn is_guarded(&self) -> bool {
        !self.request.location().phases.part(Part::Access).is_empty() && self.request.is_main()
    }

    /// Runs handlers of the location up to the first one that has something to say. One that does not wait
    /// is a plain call; one that moves the request to another location is followed by those that come
    /// behind it there.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    fn run_part(&mut self, conn: &'c Conn, part: Part) -> impl Future<Output = Flow> + Send {
        async move {
            let mut location = self.request.location();
            let mut left = location.phases.part(part);
            while let Some(index) = left.next() {
                let entry = location.phases.entry(index);
                let flow = self.run_entry(conn, entry).await;
                if !matches!(flow, Flow::Next | Flow::Allowed) {
                    return flow;
                }
                if !std::ptr::eq(location, self.request.location()) {
                    location = self.request.location();
                    left = location.phases.part_behind(part, entry.order);
                }
            }
            Flow::Next
        }
    }

    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    pub(crate) fn run_entry(
        &mut self,
        conn: &'c Conn,
        entry: &'c PhaseEntry,
    ) -> impl Future<Output = Flow> + Send {
        async move {
            let flow = match entry.tag {
                // Boxed, as nobody else should have to have room for it.
                Some(tag) => Box::pin(self.run_suspect(conn, entry, tag)).await,
                None => {
                    let (background, location) = (self.output.background(), self.request.location());
                    match (entry.handler)(self.exchange(conn)) {
                        Step::Wait(wait) => Settle { wait, background, conn, entry, location }.await,
                        step => Flow::of(step),
                    }
                }
            };
            self.request.account(entry.phase.step());
            flow
        }
    }

    async fn run_suspect(&mut self, conn: &'c Conn, entry: &'c PhaseEntry, tag: Tag) -> Flow {
        clearway_runtime::enter(tag).await;
        let (background, location) = (self.output.background(), self.request.location());
        let flow = match (entry.handler)(self.exchange(conn)) {
            Step::Wait(wait) => Settle { wait, background, conn, entry, location }.await,
            step => Flow::of(step),
        };
        // What follows, such as waiting for the next request, is not suspect.
        clearway_runtime::enter(Tag::NONE).await;
        flow
    }

    /// Runs the log phase, in which nothing waits.
    pub(crate) fn log(&mut self, conn: &'c Conn) {
        self.request.begin_logging(self.body.taken_bytes());
        for index in self.request.location().phases.part(Part::Log) {
            let PhaseEntry { handler, .. } = self.request.location().phases.entry(index);
            let step = handler(self.exchange(conn));
            debug_assert!(!matches!(step, Step::Wait(_)), "the log phase does not wait");
        }
        self.request.account(Phase::Log.step());
    }

    pub(crate) fn exchange(&mut self, conn: &'c Conn) -> Exchange<'_, 'c> {
        let timeout_ms = *self.request.conf(&BODY_CONF).timeout_ms;
        Exchange {
            body: Body { state: &mut self.body, conn, timeout_ms },
            output: Output { state: &mut self.output, conn },
            request: &mut self.request,
        }
    }

    /// Finds the location for the path.
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
        if request.origin() == Origin::Client && location.core.access == LocationAccess::Internal {
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

/// What comes after a handler.
pub(crate) enum Flow {
    Next,
    /// The next one, and what that means is for the access phase to say.
    Allowed,
    Done,
    Answer(Answer),
}

impl Flow {
    #[inline]
    fn of(step: Step<'_>) -> Self {
        match step {
            Step::Declined => Self::Next,
            Step::Allowed => Self::Allowed,
            Step::Done => Self::Done,
            Step::Respond(answer) => Self::Answer(answer),
            Step::Wait(_) => unreachable!("who calls a handler waits for it"),
        }
    }
}

/// Waits until a handler has decided, while subrequests go on that nobody waits for.
struct Settle<'a, 'c> {
    wait: Wait<'a>,
    background: Option<Arc<Background<'c>>>,
    conn: &'c Conn,
    entry: &'c PhaseEntry,
    location: &'c Location,
}

impl Future for Settle<'_, '_> {
    type Output = Flow;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Flow> {
        if let Some(background) = &self.background {
            // Whoever waits for the next request of the connection waits for them.
            let _ = background.poll(cx);
        }
        loop {
            match self.wait.as_mut().poll(cx) {
                Poll::Ready(Step::Wait(next)) => self.wait = next,
                Poll::Ready(step) => return Poll::Ready(Flow::of(step)),
                Poll::Pending => {
                    let step = self.entry.phase.step();
                    self.conn.home.account(|| account::of_location(self.conn, self.location, step));
                    return Poll::Pending;
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

impl<'c> Exchange<'_, 'c> {
    /// Drops the request body, as handlers do that have no use for one, before they answer. What is
    /// still to come is dropped after the response.
    ///
    /// # Errors
    /// The answer to give instead: the body is malformed.
    pub fn discard_body(&mut self) -> Result<(), Answer> {
        if self.body.state.take_expectation() {
            self.output.state.send_continue();
        }
        self.body.state.discard_received().map_err(|fault| {
            self.request.log(Level::Error, format_args!("{fault}"));
            Answer::Status(fault.page())
        })
    }
}

impl Request<'_> {
    /// Makes of an incomplete head what can be made: its server's error pages and logs hold.
    pub(crate) fn route_refused(&mut self) {
        self.method = self.parts.head.method();
        if !self.parts.head.request_line().is_empty()
            && self.take_target().is_ok()
            && self.parts.head.host().is_some()
        {
            // Of two problems the first one is answered.
            let _ = self.find_server();
        }
    }

    /// Finds the server that the host names among those of the address.
    fn find_server(&mut self) -> Result<(), u16> {
        let Some(host) = self.parts.head.host() else { return self.find_server_of_host() };
        self.host = if host.is_lowercase {
            Host::Received(host.name)
        } else {
            Host::Lowered(self.bytes(host.name).to_ascii_lowercase().into())
        };
        if self.conn.address().names.is_empty() {
            return Ok(());
        }
        self.find_server_of_host()
    }

    fn find_server_of_host(&mut self) -> Result<(), u16> {
        let host = self.host().unwrap_or_default();
        let found = self.conn.address().names.find(host, |regex| self.matches(regex, host));
        if let Some(id) = found.map_err(|GivenUp| 500_u16)? {
            self.server = self.snapshot.server(id);
            self.node_mut().location = self.snapshot.location(self.server.base);
        }
        Ok(())
    }

    fn find_location(&self) -> Result<Found<LocationId>, u16> {
        let tree = &self.server.tree;
        if tree.is_empty() {
            return Ok(Found::Nothing);
        }
        let path = self.path();
        tree.find(path, |regex| self.matches(regex, path)).map_err(|GivenUp| 500)
    }

    fn take_target(&mut self) -> Result<(), u16> {
        if self.parts.head.path_is_plain() {
            let (path, args) = (self.parts.head.path(), self.parts.head.args());
            let node = self.node_mut();
            node.path = Text::Received(path);
            node.args = Text::Received(args);
            return Ok(());
        }
        let target = uri::parse_target(self.raw_target(), *self.conn.server_core().merge_slashes);
        let Ok(target) = target.map(|target| (target.path.into_owned(), target.args.to_vec())) else {
            self.log(Level::Info, format_args!("client sent invalid request"));
            return Err(400);
        };
        let node = self.node_mut();
        node.path = Text::Made(target.0.into());
        node.args = Text::Made(target.1.into());
        Ok(())
    }
}
