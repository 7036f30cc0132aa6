//! The context that Lua runs in: the phase, the VM's own state, and the request where there is one. A
//! function of the server gets it by [`current`], for as long as it is called.

use std::fmt;
use std::sync::Arc;

use clearway_base::log::{Level, Sink};
use clearway_http::{Answer, Balancing, Exchange, Filtering, Next, Request, ResponseHead, View};
use clearway_luajit::{Address, Call, Context, Coroutine, Raise, Resumed, Returns, Vm};
use clearway_runtime::LoopRef;

use crate::alone::Alone;
use crate::request_state::{Kept, RequestState};
use crate::socket::operations::{Receiving, Sending};
pub(crate) use crate::threads::BodyWork;
use crate::threads::{Operation, Threads};
use crate::vm::state::VmState;

/// Which directive's code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LuaPhase {
    /// `init_by_lua*`.
    Init = 0,
    /// `init_worker_by_lua*`.
    InitWorker,
    /// `exit_worker_by_lua*`.
    ExitWorker,
    /// `set_by_lua*`.
    Set,
    /// `server_rewrite_by_lua*`.
    ServerRewrite,
    /// `rewrite_by_lua*`.
    Rewrite,
    /// `access_by_lua*`.
    Access,
    /// `precontent_by_lua*`.
    Precontent,
    /// `content_by_lua*`.
    Content,
    /// `header_filter_by_lua*`.
    HeaderFilter,
    /// `body_filter_by_lua*`.
    BodyFilter,
    /// `log_by_lua*`.
    Log,
    /// A timer's function.
    Timer,
    /// `balancer_by_lua*`.
    Balancer,
    /// `ssl_client_hello_by_lua*`.
    SslClientHello,
    /// `ssl_certificate_by_lua*`.
    SslCertificate,
    /// `ssl_session_fetch_by_lua*`.
    SslSessionFetch,
    /// `ssl_session_store_by_lua*`.
    SslSessionStore,
    /// A function that `ngx.run_worker_thread` has called.
    WorkerThread,
    /// `proxy_ssl_certificate_by_lua*`.
    ProxySslCertificate,
    /// `proxy_ssl_verify_by_lua*`.
    ProxySslVerify,
}

impl LuaPhase {
    /// The phase as the bit that upstream has for it; -1 where it has none.
    pub(crate) const fn core_bit(self) -> i32 {
        match self {
            Self::Init | Self::WorkerThread => -1,
            Self::Set => 0x1,
            Self::Rewrite => 0x2,
            Self::Access => 0x4,
            Self::Content => 0x8,
            Self::Log => 0x10,
            Self::HeaderFilter => 0x20,
            Self::BodyFilter => 0x40,
            Self::Timer => 0x80,
            Self::InitWorker => 0x100,
            Self::Balancer => 0x200,
            Self::SslCertificate => 0x400,
            Self::SslSessionStore => 0x800,
            Self::SslSessionFetch => 0x1000,
            Self::ExitWorker => 0x2000,
            Self::SslClientHello => 0x4000,
            Self::ServerRewrite => 0x8000,
            Self::ProxySslVerify => 0x1_0000,
            Self::Precontent => 0x2_0000,
            Self::ProxySslCertificate => 0x4_0000,
        }
    }

    /// As errors name it: "API disabled in the context of …".
    #[must_use]
    pub const fn context_name(self) -> &'static str {
        match self {
            Self::Init => "init_by_lua*",
            Self::InitWorker => "init_worker_by_lua*",
            Self::ExitWorker => "exit_worker_by_lua*",
            Self::Set => "set_by_lua*",
            Self::ServerRewrite => "server_rewrite_by_lua*",
            Self::Rewrite => "rewrite_by_lua*",
            Self::Access => "access_by_lua*",
            Self::Precontent => "precontent_by_lua*",
            Self::Content => "content_by_lua*",
            Self::HeaderFilter => "header_filter_by_lua*",
            Self::BodyFilter => "body_filter_by_lua*",
            Self::Log => "log_by_lua*",
            Self::Timer => "ngx.timer",
            Self::Balancer => "balancer_by_lua*",
            Self::SslClientHello => "ssl_client_hello_by_lua*",
            Self::SslCertificate => "ssl_certificate_by_lua*",
            Self::SslSessionFetch => "ssl_session_fetch_by_lua*",
            Self::SslSessionStore => "ssl_session_store_by_lua*",
            Self::WorkerThread => "ngx.run_worker_thread",
            Self::ProxySslCertificate => "proxy_ssl_certificate_by_lua*",
            Self::ProxySslVerify => "proxy_ssl_verify_by_lua*",
        }
    }

    /// The text of `ngx.get_phase()`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::InitWorker => "init_worker",
            Self::ExitWorker => "exit_worker",
            Self::Set => "set",
            Self::ServerRewrite => "server_rewrite",
            Self::Rewrite => "rewrite",
            Self::Access => "access",
            Self::Precontent => "precontent",
            Self::Content => "content",
            Self::HeaderFilter => "header_filter",
            Self::BodyFilter => "body_filter",
            Self::Log => "log",
            Self::Timer => "timer",
            Self::Balancer => "balancer",
            Self::SslClientHello => "ssl_client_hello",
            Self::SslCertificate => "ssl_cert",
            Self::SslSessionFetch => "ssl_session_fetch",
            Self::SslSessionStore => "ssl_session_store",
            Self::WorkerThread => "worker_thread",
            Self::ProxySslCertificate => "proxy_ssl_cert",
            Self::ProxySslVerify => "proxy_ssl_verify",
        }
    }

    /// As debug lines name its handler.
    #[must_use]
    pub const fn handler_name(self) -> &'static str {
        match self {
            Self::ServerRewrite => "server rewrite",
            Self::HeaderFilter => "header filter",
            Self::BodyFilter => "body filter",
            other => other.name(),
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u16
    }
}

/// Some of the phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases(u32);

impl Phases {
    /// These.
    #[must_use]
    pub const fn of(phases: &[LuaPhase]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < phases.len() {
            bits |= phases[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// All but these.
    #[must_use]
    pub const fn but(phases: &[LuaPhase]) -> Self {
        Self(!Self::of(phases).0)
    }

    /// The union of two sets.
    #[must_use]
    pub const fn or(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These, but for others.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// These, and this one.
    #[must_use]
    pub const fn and(self, phase: LuaPhase) -> Self {
        Self(self.0 | phase.bit())
    }

    /// Whether `phase` is one of them.
    #[must_use]
    pub const fn has(self, phase: LuaPhase) -> bool {
        self.0 & phase.bit() != 0
    }
}

/// The purpose of a run of Lua. Touched by the poll that runs it.
pub struct Current<'a> {
    /// Which directive's code it is.
    pub phase: LuaPhase,
    /// The state of this VM in Rust: caches, and settings of the configuration.
    pub vm: &'a mut VmState,
    pub(crate) stage: Option<&'a mut (dyn Stage + 'a)>,
    /// Takes lines where there is no request.
    pub(crate) sink: Option<&'a dyn Sink>,
    /// The wait or the end of the code; looked at when it has yielded.
    pub(crate) pause: Option<Pause>,
    /// The values of `ngx.arg`.
    pub(crate) args: Args,
    /// The threads of the run, where there can be some.
    pub(crate) threads: Option<&'a mut Threads>,
    /// How many operations may still be done within the run as they need not wait; more of them yield, so
    /// that others have their turn.
    pub(crate) at_once_left: u32,
    /// Whether debug lines go anywhere, once that was asked.
    debugged: Option<bool>,
    /// The purpose of code that runs for no request.
    pub(crate) alone: Option<&'a Arc<Alone>>,
    /// State of code that runs once, without a request.
    own: Option<Box<Kept>>,
}

/// The values of `ngx.arg`.
#[derive(Debug, Default)]
pub(crate) enum Args {
    /// Nothing.
    #[default]
    None,
    /// A piece of a body, and whether it is the last one.
    Chunk { data: Option<Vec<u8>>, end: End },
    /// The arguments of a `set_by_lua`.
    Set(Vec<Vec<u8>>),
    /// None, but what is said of an attempt (`balancer_by_lua`).
    Balancing(Box<Balancing>),
}

/// Whether a body ends behind a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    No,
    Yes,
}

/// Why code has yielded to the server.
#[derive(Debug)]
pub(crate) enum Pause {
    /// So many milliseconds.
    Sleep(u64),
    /// Until the client has taken what was written.
    Flush,
    /// Pause until the output was pushed, as far as possible.
    Push,
    /// Until the request's body is there.
    ReadBody,
    /// Pause to begin a light thread.
    Spawn {
        child: Coroutine,
        /// The thread that has spawned it ([`Call::thread`]).
        parent: usize,
    },
    /// Until one of these light threads is over.
    Threads(Vec<usize>),
    /// Pause for an operation beside the request.
    Operation(Operation),
    /// Pause for the request's body, or for its client's connection.
    Receive(Receiving),
    /// Until the client has this.
    Send(Sending),
    /// Pause for subrequests that have begun.
    Captures(Operation),
    /// The code ends with `ngx.exit`.
    Exit(i32),
    /// The code ends: the client is redirected.
    Redirect { status: u16, location: Vec<u8> },
    /// The code ends: another path answers (`ngx.exec`).
    Exec { path: Vec<u8>, args: Option<Vec<u8>> },
    /// The code ends: the engine sends this answer.
    Answer(Answer),
    /// The code ends: the request goes on with the path that was set.
    Jump,
    /// Until this is done with the request's body.
    Body(BodyWork),
}

/// Where the code of a request runs, as its functions see it.
pub(crate) enum Scene<'s, 'a, 'c> {
    /// A handler has the request.
    Handler(&'s mut Exchange<'a, 'c>),
    /// A header filter.
    Head(&'s mut Filtering<'a, 'c>),
    /// A body filter.
    Body(&'s mut Next<'a, 'c>),
}

impl<'c> Scene<'_, '_, 'c> {
    /// The request.
    pub(crate) fn request(&self) -> &Request<'c> {
        match self {
            Scene::Handler(exchange) => exchange.request,
            Scene::Head(filtering) => filtering.request,
            Scene::Body(next) => next.request(),
        }
    }

    /// The request as variables see it.
    pub(crate) fn view(&self) -> View<'_, 'c> {
        match self {
            Scene::Handler(exchange) => exchange.view(),
            Scene::Head(filtering) => filtering.view(),
            Scene::Body(next) => next.view(),
        }
    }

    /// The head of the response, while it can be changed.
    pub(crate) fn head_mut(&mut self) -> Option<&mut ResponseHead<'c>> {
        match self {
            Scene::Handler(exchange) => (!exchange.output.head_sent()).then(|| exchange.output.head()),
            Scene::Head(filtering) => Some(filtering.head()),
            Scene::Body(_) => None,
        }
    }
}

/// Gives out a [`Scene`]: what has it differs in its lifetimes from one request to the next.
pub(crate) trait Stage {
    /// Calls `work` once.
    fn show(&mut self, work: &mut dyn for<'s, 'a, 'c> FnMut(Scene<'s, 'a, 'c>));
}

impl Stage for Exchange<'_, '_> {
    fn show(&mut self, work: &mut dyn for<'s, 'a, 'c> FnMut(Scene<'s, 'a, 'c>)) {
        work(Scene::Handler(self));
    }
}

impl Stage for Filtering<'_, '_> {
    fn show(&mut self, work: &mut dyn for<'s, 'a, 'c> FnMut(Scene<'s, 'a, 'c>)) {
        work(Scene::Head(self));
    }
}

impl Stage for Next<'_, '_> {
    fn show(&mut self, work: &mut dyn for<'s, 'a, 'c> FnMut(Scene<'s, 'a, 'c>)) {
        work(Scene::Body(self));
    }
}

impl<'a> Current<'a> {
    /// For code that runs for no request.
    pub fn alone(phase: LuaPhase, vm: &'a mut VmState, sink: &'a dyn Sink) -> Self {
        Self { sink: Some(sink), own: Some(Box::default()), ..Self::new(phase, vm) }
    }

    /// For code that runs for a request.
    pub(crate) fn of(phase: LuaPhase, vm: &'a mut VmState, stage: &'a mut (dyn Stage + 'a)) -> Self {
        Self { stage: Some(stage), ..Self::new(phase, vm) }
    }

    /// For code of a timer.
    pub(crate) fn of_timer(phase: LuaPhase, vm: &'a mut VmState, alone: &'a Arc<Alone>) -> Self {
        Self { sink: Some(&**alone), alone: Some(alone), ..Self::new(phase, vm) }
    }

    fn new(phase: LuaPhase, vm: &'a mut VmState) -> Self {
        Self {
            phase,
            vm,
            stage: None,
            sink: None,
            pause: None,
            args: Args::None,
            threads: None,
            at_once_left: 0,
            debugged: None,
            alone: None,
            own: None,
        }
    }

    /// Resumes a thread for what this is for, with its `ngx.ctx` at hand.
    pub(crate) fn resume(&mut self, vm: &mut Vm, coroutine: &mut Coroutine) -> Resumed {
        let is_shown = self.kept(|kept| vm.show(kept.ctx.as_ref())).is_some();
        let resumed = vm.resume_for::<Run>(coroutine, self);
        if is_shown {
            vm.show(None);
        }
        resumed
    }

    /// Whether one more operation may be done within the run, if it need not wait.
    pub(crate) fn may_act_at_once(&mut self) -> bool {
        let is_left = self.at_once_left > 0;
        self.at_once_left = self.at_once_left.saturating_sub(1);
        is_left
    }

    /// Does something with what Lua keeps of the request, or of the timer; `None` where there is neither.
    pub(crate) fn kept<R>(&mut self, work: impl FnOnce(&mut Kept) -> R) -> Option<R> {
        debug_assert!(self.alone.is_none() || self.own.is_none(), "there is one that keeps");
        if let Some(alone) = self.alone {
            return Some(work(&mut alone.kept.enter()));
        }
        if let Some(own) = &mut self.own {
            return Some(work(own));
        }
        self.scene(|scene| RequestState::of(scene.request()).map(|state| work(&mut state.kept.enter())))?
    }

    /// Does something with the request; `None` where there is none.
    pub(crate) fn scene<R>(
        &mut self,
        work: impl for<'s, 'b, 'c> FnOnce(Scene<'s, 'b, 'c>) -> R,
    ) -> Option<R> {
        let stage = self.stage.as_mut()?;
        let (mut work, mut answer) = (Some(work), None);
        stage.show(&mut |scene| {
            if let Some(work) = work.take() {
                answer = Some(work(scene));
            }
        });
        debug_assert!(work.is_none(), "a stage is shown once");
        answer
    }

    /// The loop that it runs on, where there is one.
    pub(crate) fn home(&mut self) -> Option<LoopRef> {
        match self.alone {
            Some(alone) => Some(alone.home),
            None => self.scene(|scene| scene.request().home()).or(self.vm.home),
        }
    }

    /// Whether lines of this level go anywhere.
    pub fn is_logged(&mut self, level: Level) -> bool {
        self.sink.is_some_and(|sink| sink.enabled(level))
            || self.scene(|scene| scene.request().logs(level)).unwrap_or(false)
    }

    /// Whether debug lines go anywhere: for what runs so often that even this is asked once.
    pub(crate) fn is_debugged(&mut self) -> bool {
        match self.debugged {
            Some(is_debugged) => is_debugged,
            None => {
                let is_debugged = self.is_logged(Level::Debug);
                self.debugged = Some(is_debugged);
                is_debugged
            }
        }
    }

    /// Writes a line to the error log: of the request, with what is known of it, or of the server.
    pub fn log(&mut self, level: Level, message: fmt::Arguments<'_>) {
        debug_assert!(self.sink.is_none() || self.stage.is_none(), "a line is written once");
        match (self.sink, self.phase) {
            (Some(sink), LuaPhase::InitWorker) => {
                sink.log(level, format_args!("{message}, context: {}", self.phase.context_name()));
            }
            (Some(sink), _) => sink.log(level, message),
            (None, _) => {}
        }
        self.scene(|scene| scene.request().log(level, message));
    }
}

/// The value that a thread yields when it waits for the server; it is no address.
pub(crate) const MARK: Address = Address(0x10a);

/// Where a client shakes hands, and there is no request.
pub(crate) const HANDSHAKES: Phases = Phases::of(&[
    LuaPhase::SslClientHello,
    LuaPhase::SslCertificate,
    LuaPhase::SslSessionFetch,
    LuaPhase::SslSessionStore,
]);

/// Where code runs for something that has no request.
const WITHOUT_CLIENT: Phases =
    HANDSHAKES.or(Phases::of(&[LuaPhase::InitWorker, LuaPhase::ExitWorker, LuaPhase::Timer]));

/// Where code may wait for the server.
pub(crate) const YIELDABLE: Phases = Phases::of(&[
    LuaPhase::ServerRewrite,
    LuaPhase::Rewrite,
    LuaPhase::Access,
    LuaPhase::Precontent,
    LuaPhase::Content,
    LuaPhase::Timer,
    LuaPhase::SslClientHello,
    LuaPhase::SslCertificate,
    LuaPhase::SslSessionFetch,
    LuaPhase::WorkerThread,
    LuaPhase::ProxySslCertificate,
    LuaPhase::ProxySslVerify,
]);

/// Stands for [`Current`] in [`Call::with_context`].
pub struct Run;

impl Context for Run {
    type Of<'a> = Current<'a>;
}

/// What the function is called for.
///
/// # Errors
/// "no request found": nothing of the server runs this code.
pub fn current<R>(call: &mut Call<'_>, work: impl for<'a> FnOnce(&mut Current<'a>) -> R) -> Result<R, Raise> {
    match call.with_context::<Run, R>(work) {
        Some(answer) => Ok(answer),
        None => Err(call.raise("no request found")),
    }
}

/// The request that the function is called for.
///
/// # Errors
/// "no request found".
pub(crate) fn scene<R>(
    call: &mut Call<'_>,
    work: impl for<'s, 'a, 'c> FnOnce(Scene<'s, 'a, 'c>) -> R,
) -> Result<R, Raise> {
    match call.with_context::<Run, _>(|current| current.scene(work)).flatten() {
        Some(answer) => Ok(answer),
        None => Err(call.raise("no request found")),
    }
}

/// As [`allow`], for functions that need a request, with upstream's words for timers.
///
/// # Errors
/// "API disabled in the current context", and those of [`allow`].
pub(crate) fn allow_request(call: &mut Call<'_>, allowed: Phases) -> Result<LuaPhase, Raise> {
    if current(call, |current| current.phase)? == LuaPhase::Timer {
        return Err(call.raise("API disabled in the current context"));
    }
    allow(call, allowed)
}

/// Refuses phases that are not in `allowed`.
///
/// # Errors
/// "API disabled in the context of …", or "no request found".
pub fn allow(call: &mut Call<'_>, allowed: Phases) -> Result<LuaPhase, Raise> {
    let phase = current(call, |current| current.phase)?;
    match objection(phase, allowed) {
        None => Ok(phase),
        Some(words) => Err(call.raise(&*words)),
    }
}

/// The error for a phase that is not in `allowed`.
pub(crate) fn objection(phase: LuaPhase, allowed: Phases) -> Option<String> {
    if allowed.has(phase) {
        return None;
    }
    if WITHOUT_CLIENT.has(phase) && (allowed.has(LuaPhase::Log) || allowed.has(LuaPhase::Set)) {
        // As upstream says it of what looks at a request, where one is only made for code to run.
        return Some("API disabled in the current context".to_owned());
    }
    Some(format!("API disabled in the context of {}", phase.context_name()))
}

/// Has the code yield for this.
pub(crate) fn pause(call: &mut Call<'_>, pause: Pause) -> Result<Returns, Raise> {
    current(call, |current| current.pause = Some(pause))?;
    call.stack.push(MARK);
    Ok(Returns::Yield(1))
}
