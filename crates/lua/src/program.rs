//! Programs that code has started (`ngx.pipe`): their pipes, their end, and what waits for either. They
//! belong to the request or timer that has started them and are killed with it. What waits is polled by the
//! task of its run; a task of its own takes the end of each program.
//!
//! 1. A pipe has one that waits for it at a time; closing it wakes that one.
//! 2. A program is over once: when its end was told (`wait`), or it is not wanted any more.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};

use clearway_os::child::Exit;
use clearway_os::piped::{self, Piped};
use clearway_runtime::{LoopRef, PipeEnd, Tag, Timer};

use crate::waiter::{Bell, Waiter};

/// The longest output that one read waits for.
const HELD_BYTES_MAX: usize = 1 << 30;
/// The most that one read(2) takes, whatever `buffer_size` says.
const CHUNK_BYTES_MAX: usize = 65_536;
/// Programs of all VMs that are not over.
const PROGRAMS_MAX: usize = 65_536;

/// Which of the pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Input,
    Output,
    Errors,
}

/// The purpose of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Bytes(usize),
    Line,
    Any(usize),
}

/// Why there is nothing of what was wanted.
#[derive(Debug)]
pub(crate) enum Lack {
    Closed,
    Timeout,
    /// The pipe was closed by code meanwhile.
    Aborted,
    TooMuch,
    System(io::Error),
}

impl Lack {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Closed => "closed".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Aborted => "aborted".to_owned(),
            Self::TooMuch => "too much data".to_owned(),
            Self::System(error) => {
                error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
            }
        }
    }
}

/// The result of a read: the data, or the part that there was.
pub(crate) type Taken = Result<Vec<u8>, (Lack, Vec<u8>)>;

#[derive(Default)]
struct Pipe {
    end: Option<Arc<PipeEnd>>,
    is_busy: bool,
    /// Wakes the one that waits (rule 1).
    waker: Option<Waker>,
    /// Bytes that were read and not taken.
    held: Vec<u8>,
    has_ended: bool,
}

impl Pipe {
    fn new(end: PipeEnd) -> Mutex<Self> {
        Mutex::new(Self { end: Some(Arc::new(end)), ..Self::default() })
    }

    fn close(&mut self) {
        self.end = None;
        self.held = Vec::new();
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        debug_assert!(self.end.is_none() && self.waker.is_none(), "nothing waits for a pipe that is closed");
    }

    /// Takes the wanted data, if it is there; `seen` bytes were looked at before.
    fn take(&mut self, wanted: Wanted, seen: &mut usize) -> Option<Taken> {
        let is_over = self.has_ended;
        debug_assert!(*seen <= self.held.len(), "what was looked at is there until it is taken");
        let rest = |held: &mut Vec<u8>| Some(Err((Lack::Closed, std::mem::take(held))));
        match wanted {
            Wanted::All => is_over.then(|| Ok(std::mem::take(&mut self.held))),
            Wanted::Bytes(count) if self.held.len() >= count => Some(Ok(self.held.drain(..count).collect())),
            Wanted::Line => {
                let end = self.held[*seen..].iter().position(|&byte| byte == b'\n').map(|at| *seen + at);
                *seen = self.held.len();
                match end {
                    Some(end) => {
                        let mut line: Vec<u8> = self.held.drain(..=end).collect();
                        line.retain(|byte| !matches!(byte, b'\r' | b'\n'));
                        Some(Ok(line))
                    }
                    None if is_over => {
                        self.held.retain(|&byte| byte != b'\r');
                        rest(&mut self.held)
                    }
                    None => None,
                }
            }
            Wanted::Any(most) if !self.held.is_empty() => {
                let count = most.min(self.held.len());
                Some(Ok(self.held.drain(..count).collect()))
            }
            Wanted::Bytes(_) | Wanted::Any(_) if is_over => rest(&mut self.held),
            Wanted::Bytes(_) | Wanted::Any(_) => None,
        }
    }
}

/// How far a program is.
enum ProgramState {
    Running(Option<Bell>),
    /// `None`: something else has taken its end.
    Ended(Option<Exit>),
    /// The program has ended (rule 2).
    Over,
}

/// A program that code has started.
pub(crate) struct Program {
    pub(crate) number: u64,
    pub(crate) pid: u32,
    /// Bytes of a read.
    chunk: usize,
    end: Arc<PipeEnd>,
    input: Mutex<Pipe>,
    output: Mutex<Pipe>,
    /// `None`: they go with the output.
    errors: Option<Mutex<Pipe>>,
    state: Mutex<ProgramState>,
    staged: Mutex<Staged>,
}

/// Results of reads and writes, for code that fetches them.
#[derive(Default)]
pub(crate) struct Staged {
    output: Option<Taken>,
    errors: Option<Taken>,
    pub(crate) written: Option<Result<usize, Lack>>,
}

impl Staged {
    pub(crate) fn taken(&mut self, which: Which) -> &mut Option<Taken> {
        if which == Which::Errors { &mut self.errors } else { &mut self.output }
    }
}

fn enter<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By number, for code that has nothing but that: the collector calls for no request.
static PROGRAMS: LazyLock<Mutex<HashMap<u64, Weak<Program>>>> = LazyLock::new(Mutex::default);

/// The program of a number; `None` where it is gone.
pub(crate) fn find(number: u64) -> Option<Arc<Program>> {
    enter(&PROGRAMS).get(&number)?.upgrade()
}

/// Programs of a request or timer, which are killed with it.
#[derive(Default)]
pub(crate) struct Programs(Vec<Owned>);

struct Owned(Arc<Program>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Programs {
    /// Takes care of one that was started; `None` where there are too many, and it is killed.
    pub(crate) fn add(&mut self, home: LoopRef, piped: Piped, chunk: usize) -> Option<Arc<Program>> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        self.0.retain(|owned| !owned.0.is_over());
        let Piped { pid, end, input, output, errors } = piped;
        let end = Arc::new(PipeEnd::new(home, end));
        let pipe = |fd| Pipe::new(PipeEnd::new(home, fd));
        let program = Arc::new(Program {
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            pid,
            chunk: chunk.clamp(1, CHUNK_BYTES_MAX),
            end,
            input: pipe(input),
            output: pipe(output),
            errors: errors.map(pipe),
            state: Mutex::new(ProgramState::Running(None)),
            staged: Mutex::default(),
        });
        home.spawn_bound(Tag::NONE, take_end(Arc::clone(&program)));
        let owned = Owned(Arc::clone(&program));
        let mut programs = enter(&PROGRAMS);
        if programs.len() >= PROGRAMS_MAX {
            return None;
        }
        let before = programs.insert(program.number, Arc::downgrade(&program));
        debug_assert!(before.is_none(), "a number stands for one program");
        debug_assert!(programs.len() <= PROGRAMS_MAX, "no more run than may");
        drop(programs);
        self.0.push(owned);
        Some(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        enter(&PROGRAMS).remove(&self.number);
    }
}

/// Hears of the end, so that nothing of the process stays in the system.
async fn take_end(program: Arc<Program>) {
    let exit = poll_fn(|cx| program.end.poll_end(cx)).await.ok();
    let mut state = enter(&program.state);
    debug_assert!(!matches!(*state, ProgramState::Ended(_)), "a program ends once");
    if let ProgramState::Running(bell) = &mut *state {
        let bell = bell.take();
        *state = ProgramState::Ended(exit);
        drop(state);
        if let Some(bell) = bell {
            bell.ring();
        }
    }
}

/// Marks a pipe as in use until it is dropped.
struct Busy(Arc<Program>, Which);

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(pipe) = self.0.pipe(self.1) {
            let mut pipe = enter(pipe);
            debug_assert!(pipe.is_busy, "rule 1");
            pipe.is_busy = false;
            pipe.waker = None;
        }
    }
}

/// The result of asking for the end of a program.
pub(crate) enum Asked {
    Refused(&'static str),
    Ended(Option<Exit>),
    Waits(Waiter),
}

impl Program {
    fn pipe(&self, which: Which) -> Option<&Mutex<Pipe>> {
        match which {
            Which::Input => Some(&self.input),
            Which::Output => Some(&self.output),
            Which::Errors => self.errors.as_ref(),
        }
    }

    fn is_over(&self) -> bool {
        matches!(*enter(&self.state), ProgramState::Over)
    }

    /// Why the pipe cannot be used; `doing` is what it would be.
    pub(crate) fn objection(&self, which: Which, doing: &'static str) -> Option<&'static str> {
        if self.is_over() {
            return Some("closed");
        }
        let Some(pipe) = self.pipe(which) else { return Some("merged to stdout") };
        let pipe = enter(pipe);
        match (&pipe.end, pipe.is_busy) {
            (None, _) => Some("closed"),
            (Some(_), true) => Some(doing),
            (Some(_), false) => None,
        }
    }

    /// Closes one of the pipes; why not.
    pub(crate) fn close(&self, which: Which) -> Option<&'static str> {
        if self.is_over() {
            return Some("closed");
        }
        let Some(pipe) = self.pipe(which) else { return Some("merged to stdout") };
        enter(pipe).close();
        None
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// As pidfd_send_signal(2): ESRCH where it has ended.
    pub(crate) fn send_signal(&self, number: i32) -> io::Result<()> {
        piped::send_signal(self.end.as_fd(), number)
    }

    /// Does something with the results that are staged.
    pub(crate) fn stage<R>(&self, work: impl FnOnce(&mut Staged) -> R) -> R {
        work(&mut enter(&self.staged))
    }

    /// Whether it runs, as far as is known.
    pub(crate) fn is_running(&self) -> bool {
        matches!(*enter(&self.state), ProgramState::Running(_))
    }

    /// Nobody waits for the program any more: it is killed if it runs, and its pipes are closed.
    pub(crate) fn give_up(&self) {
        let was = std::mem::replace(&mut *enter(&self.state), ProgramState::Over);
        if matches!(was, ProgramState::Running(_)) {
            // It may have ended meanwhile.
            let _ = self.send_signal(9);
        }
        self.close_all();
        debug_assert!(self.is_over(), "rule 2");
    }

    fn close_all(&self) {
        for which in [Which::Input, Which::Output, Which::Errors] {
            if let Some(pipe) = self.pipe(which) {
                enter(pipe).close();
            }
        }
    }

    /// Asks for its end, for so many milliseconds where there is a limit.
    pub(crate) fn ask(&self, home: LoopRef, limit_ms: Option<u64>) -> Asked {
        let mut state = enter(&self.state);
        match &mut *state {
            ProgramState::Over => Asked::Refused("exited"),
            ProgramState::Running(Some(bell)) if bell.is_waited_for() => Asked::Refused("pipe busy waiting"),
            ProgramState::Running(place) => {
                let (waiter, bell) = Waiter::new(home, limit_ms);
                *place = Some(bell);
                Asked::Waits(waiter)
            }
            ProgramState::Ended(exit) => {
                let exit = *exit;
                *state = ProgramState::Over;
                drop(state);
                self.close_all();
                debug_assert!(self.is_over(), "rule 2");
                Asked::Ended(exit)
            }
        }
    }

    /// Reads what is there already; `Pending` where it has to be waited for.
    pub(crate) fn read_now(&self, which: Which, wanted: Wanted) -> Poll<Taken> {
        self.read_with(which, wanted, &mut 0, |end, buf| match piped::read(end.as_fd(), buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
        })
    }

    fn read_with(
        &self,
        which: Which,
        wanted: Wanted,
        seen: &mut usize,
        mut read: impl FnMut(&PipeEnd, &mut [u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<Taken> {
        let Some(pipe) = self.pipe(which) else { return Poll::Ready(Err((Lack::Closed, Vec::new()))) };
        let mut pipe = enter(pipe);
        let Some(end) = pipe.end.clone() else { return Poll::Ready(Err((Lack::Aborted, Vec::new()))) };
        let mut chunk = vec![0; self.chunk];
        loop {
            if let Some(taken) = pipe.take(wanted, seen) {
                return Poll::Ready(taken);
            }
            if pipe.held.len() > HELD_BYTES_MAX {
                return Poll::Ready(Err((Lack::TooMuch, std::mem::take(&mut pipe.held))));
            }
            debug_assert!(!pipe.has_ended, "nothing comes behind the end");
            match ready!(read(&end, &mut chunk)) {
                Ok(0) => pipe.has_ended = true,
                Ok(count) => pipe.held.extend_from_slice(&chunk[..count]),
                Err(error) => return Poll::Ready(Err((Lack::System(error), std::mem::take(&mut pipe.held)))),
            }
        }
    }

    /// Writes what fits; how much of `data` that was.
    ///
    /// # Errors
    /// See [`Lack`].
    pub(crate) fn write_now(&self, data: &[u8]) -> Result<usize, Lack> {
        let Some(end) = enter(&self.input).end.clone() else { return Err(Lack::Closed) };
        let mut written = 0;
        while written < data.len() {
            match piped::write(end.as_fd(), &data[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(lack_of(error)),
            }
        }
        assert!(written <= data.len(), "a pipe takes no more than it is given");
        Ok(written)
    }

    fn poll_write(&self, cx: &mut Context<'_>, data: &[u8], written: &mut usize) -> Poll<Result<(), Lack>> {
        while *written < data.len() {
            let end = {
                let mut pipe = enter(&self.input);
                pipe.waker = Some(cx.waker().clone());
                pipe.end.clone()
            };
            let Some(end) = end else { return Poll::Ready(Err(Lack::Aborted)) };
            match ready!(end.poll_write(cx, &data[*written..])) {
                Ok(count) => *written += count,
                Err(error) => return Poll::Ready(Err(lack_of(error))),
            }
        }
        assert!(*written == data.len(), "a pipe takes no more than it is given");
        Poll::Ready(Ok(()))
    }
}

fn lack_of(error: io::Error) -> Lack {
    if error.kind() == io::ErrorKind::BrokenPipe { Lack::Closed } else { Lack::System(error) }
}

fn timer(home: LoopRef, limit_ms: Option<u64>) -> Option<Timer> {
    limit_ms.map(|limit_ms| {
        let timer = Timer::new(home);
        timer.arm(home.now_ms() + limit_ms);
        timer
    })
}

fn is_late(timer: Option<&Timer>, cx: &mut Context<'_>) -> bool {
    timer.is_some_and(|timer| timer.poll_expired(cx).is_ready())
}

/// Waits for what is wanted, for so many milliseconds where there is a limit. The pipe is busy meanwhile.
pub(crate) fn read(
    program: Arc<Program>,
    home: LoopRef,
    (which, wanted): (Which, Wanted),
    limit_ms: Option<u64>,
) -> impl Future<Output = Taken> + Send {
    let busy = program.begin(which);
    async move {
        let (timer, mut seen) = (timer(home, limit_ms), 0);
        let taken = poll_fn(|cx| {
            if let Some(pipe) = program.pipe(which) {
                enter(pipe).waker = Some(cx.waker().clone());
            }
            let taken = program.read_with(which, wanted, &mut seen, |end, buf| end.poll_read(cx, buf));
            if taken.is_pending() && is_late(timer.as_ref(), cx) {
                let held = program.pipe(which).map(|pipe| std::mem::take(&mut enter(pipe).held));
                return Poll::Ready(Err((Lack::Timeout, held.unwrap_or_default())));
            }
            taken
        })
        .await;
        drop(busy);
        taken
    }
}

/// Writes the rest of `data`, of which so much was written.
pub(crate) fn write(
    program: Arc<Program>,
    home: LoopRef,
    (data, mut written): (Vec<u8>, usize),
    limit_ms: Option<u64>,
) -> impl Future<Output = Result<usize, Lack>> + Send {
    let busy = program.begin(Which::Input);
    async move {
        let timer = timer(home, limit_ms);
        let done = poll_fn(|cx| match program.poll_write(cx, &data, &mut written) {
            Poll::Pending if is_late(timer.as_ref(), cx) => Poll::Ready(Err(Lack::Timeout)),
            done => done,
        })
        .await;
        drop(busy);
        debug_assert!(done.is_err() || written == data.len(), "a write is over when all of it was written");
        done.map(|()| data.len())
    }
}

impl Program {
    fn begin(self: &Arc<Self>, which: Which) -> Busy {
        if let Some(pipe) = self.pipe(which) {
            let mut pipe = enter(pipe);
            debug_assert!(!pipe.is_busy, "rule 1: the next one is refused");
            pipe.is_busy = true;
        }
        Busy(Arc::clone(self), which)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(held: &str, has_ended: bool, wanted: Wanted) -> (String, String) {
        let mut pipe = Pipe { held: held.into(), has_ended, ..Pipe::default() };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let taken = match pipe.take(wanted, &mut 0) {
            None => "waits".to_owned(),
            Some(Ok(data)) => text(data),
            Some(Err((lack, part))) => format!("{} {}", lack.text(), text(part)),
        };
        (taken, text(pipe.held))
    }

    #[test]
    fn reads_take_what_they_want() {
        let is = |held, has_ended, wanted, taken: &str, rest: &str| {
            assert_eq!(takes(held, has_ended, wanted), (taken.to_owned(), rest.to_owned()), "{wanted:?}");
        };
        is("abc", false, Wanted::All, "waits", "abc");
        is("abc", true, Wanted::All, "abc", "");
        is("", true, Wanted::All, "", "");
        is("abc", false, Wanted::Bytes(2), "ab", "c");
        is("abc", false, Wanted::Bytes(4), "waits", "abc");
        is("abc", true, Wanted::Bytes(4), "closed abc", "");
        is("a\rb\r\nc", false, Wanted::Line, "ab", "c");
        is("a\rb", false, Wanted::Line, "waits", "a\rb");
        is("a\rb", true, Wanted::Line, "closed ab", "");
        is("abc", false, Wanted::Any(2), "ab", "c");
        is("", false, Wanted::Any(2), "waits", "");
        is("", true, Wanted::Any(2), "closed ", "");
    }
}
