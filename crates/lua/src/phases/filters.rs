//! `header_filter_by_lua` and `body_filter_by_lua`. A response often reaches its filters while its handler is
//! in the VM, so the code waits for its turn: the head is held, pieces of the body are kept, and what sends
//! the response has them go on. In the request's task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use clearway_base::log::{Level, Verbatim};
use clearway_http::{BodyFilter, Chunk, Filtering, Hold, Mark, Next, Request};
use clearway_luajit::{Fault, FaultKind, Resumed};

use crate::code::{Code, Source};
use crate::current::{Args, Current, End, LuaPhase, Pause, Run, Stage};
use crate::request_state::RequestState;
use crate::vm::interpreter::Interpreter;
use crate::vm::of_loop::{Chosen, LoopVms};
use crate::vm::settings::{LUA_CONF, LUA_MAIN};
use crate::vm::vms::Described;

/// Waits for a VM.
enum Entrance {
    Choosing(Arc<LoopVms>),
    Chosen(Chosen),
}

impl Entrance {
    fn of(request: &Request<'_>) -> Option<Self> {
        if let Some(state) = RequestState::of(request)
            && !state.slot.is_poisoned()
        {
            return Some(Self::Chosen(Chosen::again(Arc::clone(&state.slot))));
        }
        let vms = request.main_conf(&LUA_MAIN).vms.get()?;
        Some(Self::Choosing(Arc::clone(&vms[request.home()])))
    }

    fn poll(&mut self, home: clearway_runtime::LoopRef, cx: &Context<'_>) -> Poll<&mut Chosen> {
        if let Self::Choosing(of_loop) = self {
            let chosen = ready!(of_loop.poll_choose(home, cx));
            *self = Self::Chosen(chosen);
        }
        match self {
            Self::Chosen(chosen) => Poll::Ready(chosen),
            Self::Choosing(_) => Poll::Pending,
        }
    }
}

pub(super) fn header_filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let conf = filtering.request.conf(&LUA_CONF);
    if let Some(code) = &*conf.header_filter {
        let entrance = Entrance::of(filtering.request)?;
        filtering.hold(HeadHold { entrance, code });
        return None;
    }
    body_filter(filtering)
}

fn body_filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let code = Option::as_ref(&filtering.request.conf(&LUA_CONF).body_filter)?;
    let entrance = Entrance::of(filtering.request)?;
    // The code may change how long it is.
    filtering.head().content_length = None;
    Some(Box::new(BodyCode { entrance, code, pieces: VecDeque::new(), ended: End::No }))
}

/// The head waits for the VM.
struct HeadHold<'c> {
    entrance: Entrance,
    code: &'c Arc<Code>,
}

impl<'c> Hold<'c> for HeadHold<'c> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        filtering: &mut Filtering<'_, 'c>,
    ) -> Poll<Option<Box<dyn BodyFilter + 'c>>> {
        let chosen = ready!(self.entrance.poll(filtering.request.home(), cx));
        let slot = Arc::clone(chosen.slot());
        let mut held = ready!(chosen.poll(cx));
        let request = filtering.request;
        let outcome = run_filter(&mut held, self.code, LuaPhase::HeaderFilter, filtering, Args::None);
        if held.vm.is_poisoned() {
            slot.poison();
        }
        match outcome {
            Ok((Some(Pause::Exit(code)), _)) if code >= 300 => {
                filtering.refuse(u16::try_from(code).unwrap_or(500));
                Poll::Ready(None)
            }
            Ok((Some(Pause::Exit(code)), _)) if code < 0 => {
                filtering.abandon();
                Poll::Ready(None)
            }
            Ok(_) => Poll::Ready(body_filter(filtering)),
            Err(broken) => {
                broken.log(request, self.code);
                filtering.abandon();
                Poll::Ready(None)
            }
        }
    }
}

/// Runs code that cannot wait; what it asked for, and what is in `ngx.arg`. The error is a line for the log.
fn run_filter<'a>(
    interpreter: &'a mut Interpreter,
    code: &Code,
    phase: LuaPhase,
    stage: &'a mut (dyn Stage + 'a),
    args: Args,
) -> Result<(Option<Pause>, Args), Broken> {
    if !interpreter.has_compiled(code) {
        match code.source() {
            Source::Inline(_) => interpreter.compile(code).map_err(Broken::Load)?,
            Source::File(_) => return Err(Broken::File),
        }
    }
    let mut coroutine = interpreter.start(code);
    let mut current = Current::of(phase, &mut interpreter.state, stage);
    current.args = args;
    let resumed = interpreter.vm.resume_for::<Run>(&mut coroutine, &mut current);
    let (pause, args) = (current.pause.take(), std::mem::take(&mut current.args));
    match resumed {
        Resumed::Finished(_) => {
            interpreter.vm.give_back(coroutine);
            Ok((pause, args))
        }
        Resumed::Yielded(_) if pause.is_some() => Ok((pause, args)),
        Resumed::Yielded(_) => {
            Err(Broken::Run(Fault::of(FaultKind::Runtime, "attempt to yield across C-call boundary")))
        }
        Resumed::Failed(fault) => Err(Broken::Run(fault)),
    }
}

/// Why a filter's code has not run to its end.
enum Broken {
    /// It is no Lua.
    Load(Fault),
    /// Its file could not be read when the VM was made, or is no Lua; the log had that then.
    File,
    Run(Fault),
}

impl Broken {
    fn log(&self, request: &Request<'_>, code: &Code) {
        let name = code.directive();
        match self {
            Self::Load(fault) => {
                let text = Verbatim(fault.text());
                request.log(Level::Error, format_args!("failed to load inlined Lua code: {text}"));
            }
            Self::File => request.log(Level::Error, format_args!("the file of {name}_file was not loaded")),
            Self::Run(fault) => {
                request.log(Level::Error, format_args!("failed to run {name}*: {}", Described(fault)));
            }
        }
    }
}

/// Pieces of a body on their way through the code.
struct BodyCode<'c> {
    entrance: Entrance,
    code: &'c Arc<Code>,
    /// What the code has not seen.
    pieces: VecDeque<(Vec<u8>, Mark)>,
    /// Whether the code has ended the body.
    ended: End,
}

impl BodyFilter for BodyCode<'_> {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, _: &mut Next<'_, 'c>) {
        if chunk.is_empty() && mark == Mark::More {
            return;
        }
        self.pieces.push_back((chunk.bytes().to_vec(), mark));
    }

    fn is_busy(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn poll_resume(&mut self, cx: &mut Context<'_>, next: &mut Next<'_, '_>) -> Poll<()> {
        let home = next.request().home();
        while let Some((piece, mark)) = self.pieces.pop_front() {
            if self.ended == End::Yes {
                if mark == Mark::Last {
                    next.push(Chunk::EMPTY, Mark::Last);
                }
                continue;
            }
            let entered = self.entrance.poll(home, cx);
            let Poll::Ready(chosen) = entered else {
                self.pieces.push_front((piece, mark));
                return Poll::Pending;
            };
            let slot = Arc::clone(chosen.slot());
            let Poll::Ready(mut held) = chosen.poll(cx) else {
                self.pieces.push_front((piece, mark));
                return Poll::Pending;
            };
            let end = if mark == Mark::Last { End::Yes } else { End::No };
            let args = Args::Chunk { data: Some(piece), end };
            let outcome = run_filter(&mut held, self.code, LuaPhase::BodyFilter, next, args);
            if held.vm.is_poisoned() {
                slot.poison();
            }
            drop(held);
            match outcome {
                Ok((_, Args::Chunk { data, end })) => {
                    let data = data.unwrap_or_default();
                    let mark = if mark == Mark::Last { Mark::Last } else { mark };
                    if end == End::Yes && mark != Mark::Last {
                        self.ended = End::Yes;
                    }
                    next.push(Chunk::Owned(data), mark);
                }
                Ok(_) => {}
                Err(broken) => {
                    broken.log(next.request(), self.code);
                    self.ended = End::Yes;
                    next.terminate();
                    return Poll::Ready(());
                }
            }
        }
        Poll::Ready(())
    }
}
