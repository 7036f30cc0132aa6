//! Runs code that may wait: resumes its threads in its VM, one after the other, until all of them wait,
//! leaves the VM, and waits for all of that at once. In the task of the request, or of the timer.
//!
//! A thread that is spawned runs at once, and its parent behind it. A thread that yields for nothing is
//! resumed when the others had their turn. A body is waited for by all threads together, as reading it takes
//! the request.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use clearway_base::log::{Level, Sink, Verbatim};
use clearway_http::{Answer, Exchange, Store};
use clearway_luajit::{Coroutine, Fault, FaultKind, Resumed};
use clearway_runtime::{LoopRef, Timer};

use crate::alone::Alone;
use crate::current::{BodyWork, Current, LuaPhase, Pause};
use crate::metrics;
use crate::phases::made_body;
use crate::request_state::{OnAbort, RequestState};
use crate::socket::connection::TcpSource;
use crate::socket::operations::{Receiving, Sending};
use crate::threads::{Answers, Hold, Number, Polls, State, ThreadOutcome, Threads, Wait, push_results};
use crate::vm::interpreter::{Interpreter, Recovery};
use crate::vm::of_loop::{Chosen, Slot};
use crate::vm::settings::LUA_CONF;
use crate::vm::vms::Described;

/// How often threads are resumed before others of the loop have their turn: each takes a microsecond at
/// least. Operations that are done within a run count as much.
const RESUMES_MAX: u32 = 256;

/// How many operations may be done within one run of a thread.
const AT_ONCE_MAX: u32 = 32;

/// Said to code that waits for a client that has left.
const CLIENT_ABORTED: &str = "client aborted";

/// Said of a sleep that nobody waits for any more.
pub(crate) const SLEEP_GIVEN_UP: std::fmt::Arguments<'_> =
    format_args!("lua clean up the timer for pending ngx.sleep");

/// How code has ended.
pub(crate) enum Ended {
    Finished,
    Asked(Pause),
    Failed(Failure),
    /// The client has left, with an error if the connection broke.
    Left(io::Result<()>),
}

/// Why it has not run to its end.
pub(crate) enum Failure {
    Load(Vec<u8>),
    Run(Fault),
}

/// The purpose of a run.
pub(crate) enum Ground<'g, 'a, 'c> {
    Request(&'g mut Exchange<'a, 'c>),
    Alone(&'g Arc<Alone>),
}

impl Ground<'_, '_, '_> {
    fn home(&self) -> LoopRef {
        match self {
            Self::Request(exchange) => exchange.request.home(),
            Self::Alone(alone) => alone.home,
        }
    }

    /// It is in this VM, and stays in it.
    fn settle(&self, slot: &Arc<Slot>) {
        if let Self::Request(exchange) = self {
            RequestState::settle(exchange.request, slot);
        }
    }

    fn log(&self, level: Level, message: std::fmt::Arguments<'_>) {
        match self {
            Self::Request(exchange) => exchange.request.log(level, message),
            Self::Alone(alone) => alone.log(level, message),
        }
    }

    /// Sends what the code has written; whether the client has taken it, or why not.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match self {
            // What cannot be sent any more is found out when something is written.
            Self::Request(exchange) => {
                let sent = ready!(exchange.output.poll_ready(exchange.request, cx));
                Poll::Ready(sent.map_err(|_| match exchange.output.has_timed_out() {
                    true => "timeout",
                    false => CLIENT_ABORTED,
                }))
            }
            Self::Alone(_) => Poll::Ready(Ok(())),
        }
    }

    /// Goes on with the body while threads do other things; false: it is to be waited for alone.
    fn poll_body_beside(
        &mut self,
        patience: &mut Option<Timer>,
        cx: &mut Context<'_>,
    ) -> Result<Poll<bool>, Answer> {
        let Self::Request(exchange) = self else { return Ok(Poll::Ready(false)) };
        if let Poll::Ready(read) = exchange.poll_body_beside(cx) {
            *patience = None;
            return read.map(Poll::Ready);
        }
        let timer = patience.get_or_insert_with(|| {
            let home = exchange.request.home();
            let timer = Timer::new(home);
            timer.arm(home.now_ms() + exchange.body_timeout_ms());
            timer
        });
        // Then it is given as much again, and nothing else goes on.
        Ok(timer.poll_expired(cx).map(|()| false))
    }

    /// Goes on with what is received of the body, or of the client.
    fn poll_receive(&mut self, receiving: &mut Receiving, cx: &mut Context<'_>) -> Poll<Answers> {
        let Self::Request(exchange) = self else { return Poll::Ready(Answers::Failed("no request".into())) };
        let is_raw = receiving.tcp.source == TcpSource::Client;
        receiving.poll(
            &mut |_, buffer, cx| {
                if is_raw {
                    let read = ready!(exchange.poll_raw_read(cx, buffer));
                    let is_end = matches!(read, Ok(0));
                    let is_abort = is_end && *exchange.request.conf(&LUA_CONF).check_client_abort;
                    return Poll::Ready(if is_abort { Err(io::Error::other(CLIENT_ABORTED)) } else { read });
                }
                let len = buffer.len();
                match ready!(exchange.poll_body(buffer, cx)) {
                    Ok(()) => Poll::Ready(Ok(buffer.len() - len)),
                    Err(_) => Poll::Ready(Err(io::Error::other(CLIENT_ABORTED))),
                }
            },
            cx,
        )
    }

    /// Goes on with what the client is sent.
    fn poll_send(&mut self, sending: &mut Sending, cx: &mut Context<'_>) -> Poll<Answers> {
        let Self::Request(exchange) = self else { return Poll::Ready(Answers::Failed("no request".into())) };
        sending.poll(&mut |_, data, cx| exchange.poll_raw_write(cx, data), cx)
    }

    /// Ready when the client has left, where that is looked for.
    fn poll_left(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Request(exchange) if *exchange.request.conf(&LUA_CONF).check_client_abort => {
                exchange.request.poll_closed(cx)
            }
            _ => Poll::Pending,
        }
    }

    fn await_cut(&self, cx: &mut Context<'_>) {
        if let Self::Request(exchange) = self {
            exchange.request.await_cut(cx);
        }
    }

    /// Takes the function that runs when the client has left.
    fn take_on_abort(&self) -> OnAbort {
        let Self::Request(exchange) = self else { return OnAbort::Nothing };
        let state = RequestState::of(exchange.request);
        let take = |state: &RequestState| std::mem::replace(&mut state.kept.enter().on_abort, OnAbort::Begun);
        state.map_or(OnAbort::Nothing, take)
    }

    /// How long code may run, and for how long at a time.
    fn run_times(&self) -> (Option<Duration>, Option<Duration>) {
        match self {
            Self::Request(exchange) => {
                let conf = exchange.request.conf(&LUA_CONF);
                (*conf.max_run_time, *conf.time_slice)
            }
            Self::Alone(alone) => (alone.place.conf.max_run_time, alone.place.conf.time_slice),
        }
    }
}

/// Makes the entry thread.
pub(crate) type Start<'s> = &'s mut (dyn FnMut(&mut Interpreter) -> Result<Coroutine, Failure> + Send + 's);

/// The result of a poll.
enum Event {
    Ended(Ended),
    /// All threads wait until the body is there for this one.
    Body(Number),
}

/// Binds the task where something is waited for.
type Bind = fn(&mut Context<'_>) -> Poll<()>;

/// The threads of one run.
pub(crate) struct Schedule {
    threads: Threads,
    phase: LuaPhase,
    entry: Option<Number>,
    is_bound: bool,
    client: Client,
    turns: Turns,
    /// How often threads are still resumed in this poll.
    resumes_left: u32,
    /// How long a body may take that is read while other threads do something.
    patience: Option<Timer>,
}

/// Whether others of the VM are to have their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    Go,
    Over,
}

/// Whether the client is known to have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    There,
    Left,
}

impl Schedule {
    pub(crate) fn new(phase: LuaPhase) -> Self {
        Self {
            threads: Threads::default(),
            phase,
            entry: None,
            is_bound: false,
            client: Client::There,
            turns: Turns::Go,
            resumes_left: 0,
            patience: None,
        }
    }

    /// Whether something was waited for.
    #[cfg(feature = "tls")]
    pub(crate) fn has_waited(&self) -> bool {
        self.is_bound
    }

    /// Runs to the end of all threads.
    pub(crate) async fn run(
        &mut self,
        ground: &mut Ground<'_, '_, '_>,
        chosen: &mut Chosen,
        start: Start<'_>,
    ) -> Ended {
        let ended = loop {
            // Two carriers at one token would gain nothing.
            let bind: Bind = |cx| pin!(clearway_runtime::bind()).poll(cx);
            match poll_fn(|cx| self.poll(ground, chosen, (start, bind), cx)).await {
                Event::Ended(ended) => break ended,
                Event::Body(number) => {
                    let Ground::Request(exchange) = ground else { continue };
                    match Box::pin(work_on_body(exchange, self.threads.take_work(number))).await {
                        Ok(answers) => self.threads.make_ready(number, answers),
                        Err(pause) => break Ended::Asked(pause),
                    }
                }
            }
        };
        for _ in 0..self.threads.sleeping() {
            ground.log(Level::Debug, SLEEP_GIVEN_UP);
        }
        if self.is_bound {
            clearway_runtime::unbind().await;
        }
        ended
    }

    /// As [`run`](Self::run), for a stage of something else: its task may be taken by another carrier, and
    /// the code cannot read the body.
    #[cfg(feature = "tls")]
    pub(crate) fn poll_ended(
        &mut self,
        ground: &mut Ground<'_, '_, '_>,
        chosen: &mut Chosen,
        start: Start<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Ended> {
        loop {
            match ready!(self.poll(ground, chosen, (start, |_| Poll::Ready(())), cx)) {
                Event::Ended(ended) => {
                    for _ in 0..self.threads.sleeping() {
                        ground.log(Level::Debug, SLEEP_GIVEN_UP);
                    }
                    return Poll::Ready(ended);
                }
                Event::Body(number) => {
                    self.threads.make_ready(number, Answers::Failed("no body can be read here".into()));
                }
            }
        }
    }

    fn poll(
        &mut self,
        ground: &mut Ground<'_, '_, '_>,
        chosen: &mut Chosen,
        (start, bind): (Start<'_>, Bind),
        cx: &mut Context<'_>,
    ) -> Poll<Event> {
        let mut has_looked = false;
        self.resumes_left = RESUMES_MAX;
        while self.resumes_left > 0 {
            if self.entry.is_some() && (self.threads.ready.is_empty() || !has_looked) {
                if let Some(left) = self.poll_left(ground, cx) {
                    return Poll::Ready(Event::Ended(Ended::Left(left)));
                }
                let body = match self.poll_waits(ground, cx) {
                    Ok(body) => body,
                    Err(answer) => return Poll::Ready(Event::Ended(Ended::Asked(Pause::Answer(answer)))),
                };
                has_looked = true;
                match body {
                    _ if !self.threads.ready.is_empty() => {}
                    Some(number) => return Poll::Ready(Event::Body(number)),
                    None => {
                        if !self.is_bound {
                            self.is_bound = true;
                            // If the task is polled elsewhere, it is polled again at home.
                            let _ = bind(cx);
                        }
                        ground.await_cut(cx);
                        return Poll::Pending;
                    }
                }
            }
            let (mut held, slot) = ready!(chosen.poll_with_slot(cx));
            if self.entry.is_none() {
                ground.settle(&slot);
            }
            let interpreter = &mut *held;
            let ended = self.step(interpreter, ground, start);
            if interpreter.vm.is_poisoned() {
                slot.poison();
            }
            if let Some(ended) = ended {
                return Poll::Ready(Event::Ended(ended));
            }
            if std::mem::replace(&mut self.turns, Turns::Go) == Turns::Over && ground.run_times().1.is_some()
            {
                break;
            }
        }
        // Other tasks have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Has the code for it run when the client has left; where there is none, the run ends.
    fn poll_left(&mut self, ground: &Ground<'_, '_, '_>, cx: &mut Context<'_>) -> Option<io::Result<()>> {
        if self.client == Client::Left || self.phase == LuaPhase::Log || self.threads.reads_client() {
            return None;
        }
        let Poll::Ready(left) = ground.poll_left(cx) else { return None };
        self.client = Client::Left;
        match ground.take_on_abort() {
            OnAbort::Nothing => Some(left),
            OnAbort::Begun => None,
            OnAbort::Code(code, parent) => {
                ground.log(Level::Info, format_args!("client prematurely closed connection"));
                let number = self.threads.add(code, parent);
                self.threads.ready.push_back(number);
                None
            }
        }
    }

    /// Looks at what threads wait for; one that waits for the body alone. The error ends the run.
    fn poll_waits(
        &mut self,
        ground: &mut Ground<'_, '_, '_>,
        cx: &mut Context<'_>,
    ) -> Result<Option<Number>, Answer> {
        let is_beside = self.threads.alive() > 1;
        let output = ground.poll_output(cx);
        let (mut ready, mut body) = (Vec::new(), None);
        for (number, thread) in self.threads.iter_mut() {
            let State::Waiting(wait, _) = &mut thread.state else { continue };
            let answers = match wait {
                Wait::Turn(Polls::None) => {
                    cx.waker().wake_by_ref();
                    *wait = Wait::Turn(Polls::One);
                    None
                }
                Wait::Turn(Polls::One) => {
                    log_expired(ground);
                    Some(Answers::None)
                }
                Wait::Push => Some(Answers::One),
                Wait::Sleep(timer) => timer.poll_expired(cx).is_ready().then(|| {
                    log_expired(ground);
                    Answers::None
                }),
                Wait::Flush => match output {
                    Poll::Ready(Ok(())) => Some(Answers::One),
                    Poll::Ready(Err(text)) => Some(Answers::Failed(text.into())),
                    Poll::Pending => None,
                },
                Wait::Body if is_beside => match ground.poll_body_beside(&mut self.patience, cx)? {
                    Poll::Ready(true) => Some(Answers::None),
                    Poll::Ready(false) => {
                        body = Some(body.map_or(number, |first: Number| first.min(number)));
                        None
                    }
                    Poll::Pending => None,
                },
                Wait::Body | Wait::BodyWork(_) => {
                    body = Some(body.map_or(number, |first: Number| first.min(number)));
                    None
                }
                Wait::Threads(_) => None,
                Wait::Receive(receiving) => said(ground.poll_receive(receiving, cx), ground),
                Wait::Send(sending) => said(ground.poll_send(sending, cx), ground),
                Wait::Operation(operation) => said(operation.0.as_mut().poll(cx), ground),
            };
            ready.extend(answers.map(|answers| (number, answers)));
        }
        // As they were made.
        ready.sort_unstable_by_key(|(number, _)| *number);
        for (number, answers) in ready {
            self.threads.make_ready(number, answers);
        }
        Ok(body)
    }

    /// Resumes the thread whose turn it is. What comes back ends the run.
    fn step(
        &mut self,
        interpreter: &mut Interpreter,
        ground: &mut Ground<'_, '_, '_>,
        start: Start<'_>,
    ) -> Option<Ended> {
        let number = match self.entry {
            Some(_) => self.threads.ready.pop_front()?,
            None => match self.begin(interpreter, ground, start) {
                Ok(number) => number,
                Err(failure) => return Some(Ended::Failed(failure)),
            },
        };
        let thread = self.threads.get_mut(number)?;
        debug_assert!(matches!(thread.state, State::Ready(_)), "a thread in line is to be resumed");
        let State::Ready(answers) = std::mem::replace(&mut thread.state, State::Running) else { return None };
        debug_assert!(thread.coroutine.is_some(), "one thread runs at a time");
        let mut coroutine = thread.coroutine.take()?;
        answers.push(&mut interpreter.vm.stack(&coroutine));
        let (limit, slice) = ground.run_times();
        interpreter.vm.limit_runs(limit, slice);
        let (resumed, pause) = self.resume(interpreter, ground, &mut coroutine);
        if matches!((&resumed, &pause), (Resumed::Finished(_) | Resumed::Failed(_), Some(Pause::Sleep(_)))) {
            // The thread could not yield there.
            ground.log(Level::Debug, SLEEP_GIVEN_UP);
        }
        match resumed {
            Resumed::Yielded(values) => {
                let mut stack = interpreter.vm.stack(&coroutine);
                stack.pop(values);
                if let Some(Pause::Spawn { child, .. }) = &pause {
                    stack.push(child);
                }
                if let Some(thread) = self.threads.get_mut(number) {
                    debug_assert!(thread.coroutine.is_none(), "the place of a thread that runs stays free");
                    thread.coroutine = Some(coroutine);
                }
                self.pause(number, pause, ground)
            }
            Resumed::Finished(_) => self.finish(number, coroutine, interpreter, ground),
            Resumed::Failed(fault) => self.fail((number, coroutine), fault, interpreter, ground),
        }
    }

    /// Resumes one thread; why it has yielded comes beside.
    fn resume(
        &mut self,
        interpreter: &mut Interpreter,
        ground: &mut Ground<'_, '_, '_>,
        coroutine: &mut Coroutine,
    ) -> (Resumed, Option<Pause>) {
        let mut current = match ground {
            Ground::Request(exchange) => Current::of(self.phase, &mut interpreter.state, &mut **exchange),
            Ground::Alone(alone) => Current::of_timer(self.phase, &mut interpreter.state, alone),
        };
        current.threads = Some(&mut self.threads);
        let at_once = AT_ONCE_MAX.min(self.resumes_left);
        current.at_once_left = at_once;
        let resumed = current.resume(&mut interpreter.vm, coroutine);
        let pause = current.pause.take();
        let used = 1 + at_once - current.at_once_left;
        self.resumes_left = self.resumes_left.saturating_sub(used);
        (resumed, pause)
    }

    fn begin(
        &mut self,
        interpreter: &mut Interpreter,
        ground: &Ground<'_, '_, '_>,
        start: Start<'_>,
    ) -> Result<Number, Failure> {
        if interpreter.vm.has_idle() {
            ground.log(Level::Debug, format_args!("lua reusing cached lua thread"));
        }
        let number = self.threads.add(start(interpreter)?, 0);
        debug_assert!(self.entry.is_none(), "a run begins once");
        self.entry = Some(number);
        Ok(number)
    }

    /// A thread has yielded to the server.
    fn pause(&mut self, number: Number, pause: Option<Pause>, ground: &Ground<'_, '_, '_>) -> Option<Ended> {
        let wait = match pause {
            None => {
                // The thread has yielded, or its slice is over.
                self.threads.make_ready(number, Answers::None);
                self.turns = Turns::Over;
                return None;
            }
            Some(Pause::Spawn { child, parent }) => {
                self.threads.make_ready(number, Answers::None);
                let child = self.threads.add(child, parent);
                self.threads.ready.push_front(child);
                return None;
            }
            Some(Pause::Threads(ids)) => {
                self.threads.wait_for(number, ids);
                return None;
            }
            Some(Pause::Captures(operation)) => {
                self.threads.set_waiting(number, Wait::Operation(operation), Hold::Subrequests);
                return None;
            }
            Some(Pause::Push) => Wait::Push,
            Some(Pause::Sleep(ms)) => sleep(ground, ms),
            Some(Pause::Flush) => Wait::Flush,
            Some(Pause::ReadBody) => Wait::Body,
            Some(Pause::Body(work)) => Wait::BodyWork(Some(Box::new(work))),
            Some(Pause::Operation(operation)) => Wait::Operation(operation),
            Some(Pause::Receive(receiving)) => Wait::Receive(Box::new(receiving)),
            Some(Pause::Send(sending)) => Wait::Send(Box::new(sending)),
            Some(end) => return Some(Ended::Asked(end)),
        };
        self.threads.set_waiting(number, wait, Hold::None);
        None
    }

    /// A thread has returned.
    fn finish(
        &mut self,
        number: Number,
        coroutine: Coroutine,
        interpreter: &mut Interpreter,
        ground: &Ground<'_, '_, '_>,
    ) -> Option<Ended> {
        if Some(number) == self.entry {
            let entry = self.threads.remove(number);
            debug_assert!(entry.is_some(), "the entry thread ends once");
            if interpreter.vm.give_back(coroutine) {
                ground.log(Level::Debug, format_args!("lua caching unused lua thread"));
            }
        } else {
            self.end(number, coroutine, ThreadOutcome::Returned, interpreter);
        }
        (self.threads.alive() == 0).then_some(Ended::Finished)
    }

    /// A thread has raised an error that nothing has caught.
    fn fail(
        &mut self,
        (number, coroutine): (Number, Coroutine),
        fault: Fault,
        interpreter: &mut Interpreter,
        ground: &Ground<'_, '_, '_>,
    ) -> Option<Ended> {
        if fault.kind() == FaultKind::TimeLimit {
            metrics::ENDED.increment();
        }
        if interpreter.recover(&fault) == Recovery::GivenUp {
            ground.log(Level::Alert, format_args!("{}", Recovery::FULL));
        }
        let fault = interpreter.state.wrapped.put(fault);
        if Some(number) == self.entry || interpreter.vm.is_poisoned() {
            return Some(Ended::Failed(Failure::Run(fault)));
        }
        let described = Described(&fault);
        ground.log(Level::Error, format_args!("lua user thread aborted: runtime error: {described}"));
        self.end(number, coroutine, ThreadOutcome::Raised, interpreter);
        (self.threads.alive() == 0).then_some(Ended::Finished)
    }

    /// A light thread is over: what waits for it goes on at once.
    fn end(
        &mut self,
        number: Number,
        coroutine: Coroutine,
        outcome: ThreadOutcome,
        interpreter: &mut Interpreter,
    ) {
        if let Some(thread) = self.threads.get_mut(number) {
            thread.coroutine = Some(coroutine);
        }
        let Some(waiter) = self.threads.end(number, outcome) else { return };
        self.threads.end_wait(waiter);
        let Some(thread) = self.threads.take_over(number) else { return };
        let Some(waiting) = self.threads.get_mut(waiter) else { return };
        if let Some(coroutine) = &waiting.coroutine {
            push_results(&mut interpreter.vm.stack(coroutine), &thread);
        }
        debug_assert!(!matches!(waiting.state, State::Over(_)), "a thread that waits is not over");
        waiting.state = State::Ready(Answers::None);
        debug_assert!(!self.threads.ready.contains(&waiter), "a thread stands in line once");
        self.threads.ready.push_front(waiter);
    }
}

/// Reads the body, or does this with it. The error ends the code.
async fn work_on_body(exchange: &mut Exchange<'_, '_>, work: Option<BodyWork>) -> Result<Answers, Pause> {
    match work {
        Some(work) => made_body::run(exchange, work).await,
        None => match exchange.read_body(Store::Named).await {
            Ok(_) => Ok(Answers::None),
            Err(answer) => Err(Pause::Answer(answer)),
        },
    }
}

/// What a function answers, whose line goes to the log.
fn said(answers: Poll<Answers>, ground: &mut Ground<'_, '_, '_>) -> Option<Answers> {
    let Poll::Ready(answers) = answers else { return None };
    if let (Answers::Captured(captured), Ground::Request(exchange)) = (&answers, &mut *ground) {
        exchange.request.set_action(captured.action);
    }
    if let Some(line) = answers.line() {
        ground.log(line.level, format_args!("{}", line.text));
    }
    Some(answers)
}

/// Sends what there is meanwhile.
fn sleep(ground: &Ground<'_, '_, '_>, ms: u64) -> Wait {
    ground.log(Level::Debug, format_args!("lua ready to sleep for {ms} ms"));
    if ms == 0 {
        return Wait::Turn(Polls::None);
    }
    let home = ground.home();
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + ms);
    Wait::Sleep(timer)
}

fn log_expired(ground: &Ground<'_, '_, '_>) {
    let Ground::Request(exchange) = ground else {
        return ground.log(Level::Debug, format_args!("lua sleep timer expired: \"?\""));
    };
    let (path, args) = (Verbatim(exchange.request.path()), Verbatim(exchange.request.args()));
    let line = format_args!("lua sleep timer expired: \"{path}?{args}\"");
    exchange.request.log(Level::Debug, line);
}
