//! The state of Lua that a request keeps from one phase to the next. Owned by the request; touched by its
//! task.

use std::sync::Arc;
#[cfg(feature = "tls")]
use std::sync::{
    Weak,
    atomic::{AtomicBool, Ordering},
};

use clearway_base::log::{Level, Sink};
#[cfg(feature = "tls")]
use clearway_http::About;
use clearway_http::{ContextKey, Exchange, Lasts, MadeBody, Request};
use clearway_luajit::{Coroutine, Reference};
use clearway_offload::Pool;
#[cfg(feature = "tls")]
use clearway_runtime::LoopRef;
use clearway_runtime::TaskCell;

use crate::place::AlonePlace;
use crate::program::Programs;
use crate::socket::Sockets;
use crate::vm::of_loop::Slot;
use crate::vm::settings::LUA_CONF;
#[cfg(feature = "tls")]
use crate::vm::{settings::LUA_MAIN, vms::Vms};

static STATE: ContextKey<RequestState> = ContextKey::new(Lasts::UntilRedirect);
/// The status that code has ended with: code of an error page begins with it.
static EXITED: ContextKey<u16> = ContextKey::new(Lasts::ToTheEnd);

/// The state of Lua for one request.
pub(crate) struct RequestState {
    /// The VM that everything of the request stays in, once one is chosen.
    slot: TaskCell<Option<Arc<Slot>>>,
    pub(crate) kept: TaskCell<Kept>,
    /// Takes debug lines, where somebody wants them.
    debug: Option<Arc<dyn Sink>>,
    /// Closes the VM with the request, where it is that one's alone: finalizers take their time.
    closer: Option<Arc<Pool>>,
}

impl Drop for RequestState {
    fn drop(&mut self) {
        if let Some(sink) = &self.debug
            && let Some(ctx) = &self.kept.enter().ctx
        {
            sink.log(Level::Debug, format_args!("lua release ngx.ctx at ref {}", ctx.number()));
        }
        if let (Some(pool), Some(slot)) = (self.closer.take(), self.slot.enter().take()) {
            slot.note_left(self.debug.as_deref().map(|sink| sink as &dyn Sink));
            pool.submit(move |_: &_| drop(slot)).detach();
        }
    }
}

/// The state that changes.
#[derive(Default)]
pub(crate) struct Kept {
    /// The table `ngx.ctx`.
    pub(crate) ctx: Option<Reference>,
    /// A body that is kept until its length is known, as the client needs that.
    pub(crate) buffered: Option<Vec<u8>>,
    pub(crate) response: Response,
    /// The last code of `ngx.exit`; 0: none.
    pub(crate) exit_code: i32,
    /// Code has chosen the status of an error page.
    pub(crate) has_status: bool,
    /// Code reads the body itself (`ngx.req.socket`).
    pub(crate) has_body_socket: bool,
    /// A body that code makes for the request, piece by piece.
    pub(crate) made_body: Option<MadeBody>,
    /// Runs when the client leaves.
    pub(crate) on_abort: OnAbort,
    /// Connections to other servers.
    pub(crate) sockets: Sockets,
    /// Programs that it has started.
    pub(crate) programs: Programs,
    /// Where calls stand that run in pools, once there was one.
    pub(crate) place: Option<AlonePlace>,
    /// Whether the type of the response was chosen, so that the extension of the path does not.
    pub(crate) content_type: ContentType,
    /// The server that shakes hands with the request now, where code has a say.
    #[cfg(feature = "tls")]
    pub(crate) meeting: Option<Box<crate::shaking::Meeting>>,
}

/// The function that runs when the client leaves (`ngx.on_abort`).
#[derive(Default)]
pub(crate) enum OnAbort {
    #[default]
    Nothing,
    /// This, as a thread of the coroutine with that number.
    Code(Coroutine, usize),
    /// The function has begun.
    Begun,
}

/// How far Lua is with the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Response {
    #[default]
    Open,
    /// `ngx.eof`, or it was sent by something else.
    Ended,
    /// Code writes to the client itself (`ngx.req.socket(true)`).
    Raw,
}

/// Where the type of the response comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ContentType {
    #[default]
    ByExtension,
    Chosen,
}

impl Response {
    /// Why nothing can be written, if nothing can.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Open => None,
            Self::Ended => Some("seen eof"),
            Self::Raw => Some("raw request socket acquired"),
        }
    }
}

impl RequestState {
    /// The state of a request, if Lua has run for it.
    pub(crate) fn of<'a>(request: &'a Request<'_>) -> Option<&'a Self> {
        request.context(&STATE)
    }

    /// Made when Lua begins, or where filters have code that may keep something.
    pub(crate) fn begin(request: &mut Request<'_>) {
        let sinks = &request.location().core.error_log;
        let debug = sinks.iter().find(|sink| sink.enabled(Level::Debug)).cloned();
        let closer = if *request.conf(&LUA_CONF).code_cache { None } else { request.file_pool() };
        let state = Self { slot: TaskCell::default(), kept: TaskCell::default(), debug, closer };
        #[cfg(feature = "tls")]
        if let Some(slot) = Self::slot_of_handshake(request) {
            state.choose(&slot);
        }
        request.set_context(&STATE, state);
    }

    /// The VM that the handshake's code has left something in for the requests of its connection.
    #[cfg(feature = "tls")]
    fn slot_of_handshake(request: &Request<'_>) -> Option<Arc<Slot>> {
        let known = Remembered::of(request).filter(|_| *request.conf(&LUA_CONF).code_cache)?;
        Some(Arc::clone(&known.slot))
    }

    /// The request is in this VM, and stays in it.
    pub(crate) fn settle(request: &Request<'_>, slot: &Arc<Slot>) {
        if let Some(state) = Self::of(request) {
            state.choose(slot);
        }
    }

    /// The VM is chosen.
    pub(crate) fn choose(&self, slot: &Arc<Slot>) {
        // One that was chosen before is poisoned, and what belongs to it is over.
        let mut chosen = self.slot.enter();
        if chosen.is_none() {
            *chosen = Some(Arc::clone(slot));
            slot.note_owner();
        } else {
            debug_assert!(
                chosen.as_ref().is_some_and(|old| old.is_poisoned() || Arc::ptr_eq(old, slot)),
                "a request stays in its VM while that can be used"
            );
        }
        debug_assert!(chosen.is_some(), "a VM is chosen from here on");
    }

    /// Whether no VM is chosen yet.
    pub(crate) fn slot_is_free(&self) -> bool {
        self.slot.enter().is_none()
    }

    /// The VM, if one is chosen that can be used.
    pub(crate) fn usable_slot(&self) -> Option<Arc<Slot>> {
        self.slot.enter().as_ref().filter(|slot| !slot.is_poisoned()).cloned()
    }
}

/// `ngx.ctx` of a handshake: its next phase goes on with it, and that of a request falls back on it. Owned by
/// the connection; what is in it belongs to the VM.
#[cfg(feature = "tls")]
pub(crate) struct Remembered {
    /// The VM, which the rest of the connection stays in.
    pub(crate) slot: Arc<Slot>,
    pub(crate) ctx: Reference,
    /// The loop that the VM belongs to, and all VMs of its configuration: a connection may move on to other
    /// ones, whose code finds nothing of this.
    home: LoopRef,
    vms: Weak<Vms>,
    /// Takes debug lines, where somebody wants them.
    debug: Option<Arc<dyn Sink>>,
    /// Whether this state is outdated, as another VM was entered since.
    is_replaced: AtomicBool,
}

#[cfg(feature = "tls")]
impl Remembered {
    pub(crate) fn new(slot: Arc<Slot>, ctx: Reference, about: &About) -> Option<Self> {
        let vms = Arc::downgrade(about.snapshot.conf(&LUA_MAIN).vms.get()?);
        let debug = about.sinks.iter().find(|sink| sink.enabled(Level::Debug)).cloned();
        Some(Self { slot, ctx, home: about.home, vms, debug, is_replaced: AtomicBool::new(false) })
    }

    /// Marks this state as outdated.
    pub(crate) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// The state of a request's connection, if its VM can be used.
    pub(crate) fn of<'a>(request: &'a Request<'_>) -> Option<&'a Self> {
        let known: &Self = request.tls()?.offer.remembered.as_ref()?.downcast_ref()?;
        let vms = request.main_conf(&LUA_MAIN).vms.get()?;
        let is_here = known.home == request.home() && Weak::as_ptr(&known.vms) == Arc::as_ptr(vms);
        (is_here && !known.slot.is_poisoned()).then_some(known)
    }
}

#[cfg(feature = "tls")]
impl Drop for Remembered {
    fn drop(&mut self) {
        if let Some(sink) = self.debug.as_ref().filter(|_| !self.is_replaced.load(Ordering::Relaxed)) {
            sink.log(Level::Debug, format_args!("lua release ngx.ctx at ref {}", self.ctx.number()));
        }
    }
}

/// Code ends with this status, and has said no other one before.
pub(crate) fn note_exit(exchange: &mut Exchange<'_, '_>, status: u16) {
    if !exchange.output.head_sent() && exchange.output.head().status == 0 {
        exchange.request.set_context(&EXITED, status);
    }
}

/// Code is about to answer: with the status that other code has ended with, as upstream.
pub(crate) fn take_exit(exchange: &mut Exchange<'_, '_>) {
    if let Some(&status) = exchange.request.context(&EXITED)
        && !exchange.output.head_sent()
        && exchange.output.head().status == 0
    {
        exchange.output.head().status = status;
    }
}
