//! `header_filter_by_lua` and `body_filter_by_lua`. A response often reaches its filters while its handler is
//! in the VM, so the code waits for its turn: the head is held, pieces of the body are kept, and go on when
//! the response is polled. In the request's task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use clearway_base::log::{Level, Verbatim};
use clearway_http::{BodyFilter, Chunk, Filtering, Hold, Mark, Next, Request};

use crate::code::Code;
use crate::current::{Args, End, LuaPhase, Pause};
use crate::phases::at_once::{Broken, Over, run_at_once};
use crate::phases::code_file::{FilterFile, Unread};
use crate::phases::run::log_no_vm;
use crate::request_state::RequestState;
use crate::vm::of_loop::{Chosen, Fresh, LoopVms, NoVm};
use crate::vm::settings::{LUA_CONF, LUA_MAIN};

/// Waits for a VM.
pub(super) enum Entrance {
    Choosing(Arc<LoopVms>),
    /// A VM is made for this request alone.
    Making(Arc<LoopVms>, Fresh),
    Chosen(Chosen),
}

impl Entrance {
    pub(super) fn of(request: &Request<'_>) -> Option<Self> {
        if let Some(state) = RequestState::of(request)
            && let Some(slot) = state.usable_slot()
        {
            return Some(Self::Chosen(Chosen::again(slot)));
        }
        let vms = request.main_conf(&LUA_MAIN).vms.get()?;
        let of_loop = Arc::clone(&vms[request.home()]);
        if *request.conf(&LUA_CONF).code_cache {
            return Some(Self::Choosing(of_loop));
        }
        let fresh = of_loop.begin_fresh();
        Some(Self::Making(of_loop, fresh))
    }

    pub(super) fn poll(
        &mut self,
        request: &Request<'_>,
        cx: &Context<'_>,
    ) -> Poll<Result<&mut Chosen, NoVm>> {
        let found = match self {
            Self::Chosen(chosen) if chosen.is_settled() => None,
            // Another filter may have had a VM made meanwhile.
            _ if let Some(slot) = RequestState::of(request).and_then(RequestState::usable_slot) => {
                Some(Ok(Chosen::again(slot)))
            }
            Self::Chosen(_) => None,
            Self::Choosing(of_loop) => Some(ready!(of_loop.poll_choose(cx))),
            Self::Making(of_loop, fresh) => Some(ready!(of_loop.poll_fresh(fresh, cx))),
        };
        match found {
            None => {}
            Some(Ok(chosen)) => {
                if chosen.is_settled() {
                    RequestState::settle(request, chosen.slot());
                }
                *self = Self::Chosen(chosen);
            }
            Some(Err(why)) => return Poll::Ready(Err(why)),
        }
        match self {
            Self::Chosen(chosen) => Poll::Ready(Ok(chosen)),
            Self::Choosing(_) | Self::Making(..) => Poll::Pending,
        }
    }
}

pub(super) fn header_filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let conf = filtering.request.conf(&LUA_CONF);
    log_begin(filtering.request, LuaPhase::HeaderFilter);
    if let Some(code) = &*conf.header_filter {
        let entrance = Entrance::of(filtering.request)?;
        filtering.hold(HeadHold { entrance, code, file: FilterFile::default() });
        return None;
    }
    body_filter(filtering)
}

fn body_filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let code = Option::as_ref(&filtering.request.conf(&LUA_CONF).body_filter)?;
    let entrance = Entrance::of(filtering.request)?;
    // The code may change the length of the body.
    filtering.head().content_length = None;
    let (pieces, file) = (VecDeque::new(), FilterFile::default());
    Some(Box::new(BodyCode { entrance, code, file, pieces, ended: End::No }))
}

/// The head waits for the VM.
struct HeadHold<'c> {
    entrance: Entrance,
    code: &'c Arc<Code>,
    file: FilterFile,
}

impl<'c> Hold<'c> for HeadHold<'c> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        filtering: &mut Filtering<'_, 'c>,
    ) -> Poll<Option<Box<dyn BodyFilter + 'c>>> {
        let outcome = match ready!(self.run(cx, filtering)) {
            Ok(outcome) => outcome,
            Err(Unfit::NoVm(why)) => {
                let status = log_no_vm(filtering.request, why);
                filtering.refuse(status);
                return Poll::Ready(None);
            }
            Err(Unfit::Unread(unread)) => {
                unread.log(filtering.request);
                filtering.abandon();
                return Poll::Ready(None);
            }
        };
        match outcome {
            Ok(over) => match over.pause {
                Some(Pause::Exit(code)) if was_followed(filtering, code) => {
                    Poll::Ready(body_filter(filtering))
                }
                Some(Pause::Exit(444)) => {
                    // As upstream: the status is sent, with nothing behind it.
                    filtering.head().status = 444;
                    filtering.head().content_length = Some(0);
                    Poll::Ready(Some(Box::new(NoBody)))
                }
                Some(Pause::Exit(code)) if (200..300).contains(&code) => {
                    filtering.head().status = u16::try_from(code).unwrap_or(200);
                    filtering.head().content_length = None;
                    Poll::Ready(Some(Box::new(NoBody)))
                }
                Some(Pause::Exit(code)) if code >= 300 => {
                    filtering.refuse(u16::try_from(code).unwrap_or(500));
                    Poll::Ready(None)
                }
                Some(Pause::Exit(code)) if code < 0 => {
                    filtering.abandon();
                    Poll::Ready(None)
                }
                _ => Poll::Ready(body_filter(filtering)),
            },
            Err(broken) => {
                broken.log(filtering.request, self.code);
                filtering.abandon();
                Poll::Ready(None)
            }
        }
    }
}

/// Whether this is the answer to an exit with the same code: its head goes on, as upstream.
fn was_followed(filtering: &mut Filtering<'_, '_>, code: i32) -> bool {
    let Some(state) = RequestState::of(filtering.request) else {
        return i32::from(filtering.head().status) == code;
    };
    std::mem::replace(&mut state.kept.enter().exit_code, code) == code
}

impl<'c> HeadHold<'c> {
    /// Runs the code when it is its turn.
    fn run(&mut self, cx: &mut Context<'_>, filtering: &mut Filtering<'_, 'c>) -> Poll<Result<Ran, Unfit>> {
        loop {
            ready!(self.file.poll(filtering.request, cx))?;
            let chosen = ready!(self.entrance.poll(filtering.request, cx))?;
            let is_settled = chosen.is_settled();
            let (mut held, slot) = ready!(chosen.poll_with_slot(cx));
            if !is_settled {
                RequestState::settle(filtering.request, &slot);
            }
            if self.file.is_missing(&held, self.code) {
                drop(held);
                self.file = FilterFile::begin(&filtering.view(), self.code)?;
                continue;
            }
            let code = (&**self.code, self.file.get());
            let outcome = run_at_once(&mut held, code, LuaPhase::HeaderFilter, filtering, Args::None);
            if held.vm.is_poisoned() {
                slot.poison();
            }
            return Poll::Ready(Ok(outcome));
        }
    }
}

/// How code has ended.
type Ran = Result<Over, Broken>;

/// Why code cannot run.
enum Unfit {
    NoVm(NoVm),
    Unread(Unread),
}

impl From<NoVm> for Unfit {
    fn from(why: NoVm) -> Self {
        Self::NoVm(why)
    }
}

impl From<Unread> for Unfit {
    fn from(unread: Unread) -> Self {
        Self::Unread(unread)
    }
}

fn log_begin(request: &Request<'_>, phase: LuaPhase) {
    let path = Verbatim(request.path());
    let line = format_args!("lua {} for user lua code, uri \"{path}\"", phase.handler_name());
    request.log(Level::Debug, line);
}

/// The code has ended the response behind its head.
struct NoBody;

impl BodyFilter for NoBody {
    fn push<'c>(&mut self, _: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        if mark == Mark::Last {
            next.push(Chunk::EMPTY, Mark::Last);
        }
    }
}

/// Pieces of a body on their way through the code.
struct BodyCode<'c> {
    entrance: Entrance,
    code: &'c Arc<Code>,
    file: FilterFile,
    /// Pieces that the code has not seen.
    pieces: VecDeque<(Vec<u8>, Mark)>,
    /// Whether the code has ended the body.
    ended: End,
}

impl BodyFilter for BodyCode<'_> {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, _: &mut Next<'_, 'c>) {
        if chunk.is_empty() && mark == Mark::More {
            return;
        }
        debug_assert!(
            self.pieces.back().is_none_or(|(_, last)| *last != Mark::Last),
            "nothing follows the end of a body"
        );
        debug_assert!(
            !matches!(chunk, Chunk::File(_)),
            "a filter that looks at bytes gets no parts of files"
        );
        self.pieces.push_back((chunk.bytes().to_vec(), mark));
    }

    fn is_busy(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn poll_resume(&mut self, cx: &mut Context<'_>, next: &mut Next<'_, '_>) -> Poll<()> {
        while !self.pieces.is_empty() {
            if self.ended == End::Yes {
                if let Some((_, Mark::Last)) = self.pieces.pop_front() {
                    next.push(Chunk::EMPTY, Mark::Last);
                }
                continue;
            }
            let (mark, outcome) = match ready!(self.run(cx, next)) {
                Ok(ran) => ran,
                Err(why) => {
                    match why {
                        Unfit::NoVm(why) => drop(log_no_vm(next.request(), why)),
                        Unfit::Unread(unread) => unread.log(next.request()),
                    }
                    return self.break_off(next);
                }
            };
            if outcome.as_ref().is_ok_and(gives_up) {
                return self.break_off(next);
            }
            match outcome.map(|over| over.args) {
                Ok(Args::Chunk { data, end }) => {
                    if end == End::Yes && mark != Mark::Last {
                        self.ended = End::Yes;
                    }
                    next.push(Chunk::Owned(data.unwrap_or_default()), mark);
                }
                Ok(_) => {}
                Err(broken) => {
                    broken.log(next.request(), self.code);
                    return self.break_off(next);
                }
            }
        }
        Poll::Ready(())
    }
}

/// Whether the code says that the response is to end here: `return ngx.ERROR`, or a status that is an error.
fn gives_up(over: &Over) -> bool {
    let number = over.text.as_deref().and_then(|text| std::str::from_utf8(text).ok()?.parse::<i32>().ok());
    number.is_some_and(|number| number == -1 || number >= 300)
}

impl BodyCode<'_> {
    /// Runs the code for the first piece when it is its turn; the piece's mark comes back.
    fn run(&mut self, cx: &mut Context<'_>, next: &mut Next<'_, '_>) -> Poll<Result<(Mark, Ran), Unfit>> {
        loop {
            ready!(self.file.poll(next.request(), cx))?;
            let chosen = ready!(self.entrance.poll(next.request(), cx))?;
            let is_settled = chosen.is_settled();
            let (mut held, slot) = ready!(chosen.poll_with_slot(cx));
            if !is_settled {
                RequestState::settle(next.request(), &slot);
            }
            if self.file.is_missing(&held, self.code) {
                drop(held);
                self.file = FilterFile::begin(&next.view(), self.code)?;
                continue;
            }
            debug_assert!(self.ended == End::No, "code sees nothing behind the end of the body");
            let (piece, mark) = self.pieces.pop_front().expect("there is a piece to run it for");
            let end = if mark == Mark::Last { End::Yes } else { End::No };
            let args = Args::Chunk { data: Some(piece), end };
            log_begin(next.request(), LuaPhase::BodyFilter);
            let code = (&**self.code, self.file.get());
            let outcome = run_at_once(&mut held, code, LuaPhase::BodyFilter, next, args);
            if held.vm.is_poisoned() {
                slot.poison();
            }
            return Poll::Ready(Ok((mark, outcome)));
        }
    }

    fn break_off(&mut self, next: &mut Next<'_, '_>) -> Poll<()> {
        self.ended = End::Yes;
        next.terminate();
        Poll::Ready(())
    }
}
