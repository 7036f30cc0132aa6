//! The threads of a run: its entry thread, and light threads (`ngx.thread`). Owned by the run, whose
//! scheduler (`phases/scheduler.rs`) resumes them; functions look at them and end them while one of them
//! runs.
//!
//! 1. A thread is known by the address of its coroutine, which no other has while it is in the table. What
//!    was waited for or killed is remembered until another coroutine has its address.
//! 2. Its parent is the coroutine that has spawned it, which may be one that the user has made: that one
//!    alone waits for it or ends it.
//! 3. The coroutine of the thread that runs is out of its place, so nothing resumes or drops it.
//! 4. A thread that is over and not waited for keeps its results.
//! 5. A line and a waiter name a thread by its number beside its address: another one that has got the
//!    address since then is not meant.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;

use clearway_base::log::Level;
use clearway_http::Afterwards;
use clearway_luajit::{Coroutine, Stack};
use clearway_runtime::Timer;

use crate::socket::operations::{Receiving, Sending};

/// Threads of one run that are not over: each has a stack of its own.
pub(crate) const THREADS_MAX: usize = 65_536;

/// The values that a function returns after it has waited.
pub(crate) enum Answers {
    /// Nothing, or what is on the stack already.
    None,
    /// 1.
    One,
    /// This number.
    Number(f64),
    /// `nil` and a text.
    Failed(Cow<'static, str>),
    /// A function that pushes them, and a line for the log.
    Push(Box<dyn FnOnce(&mut Stack<'_>) + Send>, Option<Box<Line>>),
    /// Responses of subrequests.
    Captured(Box<Captured>),
}

/// Responses of subrequests.
pub(crate) struct Captured {
    pub(crate) push: Box<dyn FnOnce(&mut Stack<'_>) + Send>,
    /// The last action of the last one, for the error log; empty: nothing that is said.
    pub(crate) action: &'static str,
}

/// A line of the log about what a thread has waited for.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) text: String,
}

impl Answers {
    /// The line for the log.
    pub(crate) fn line(&self) -> Option<&Line> {
        match self {
            Self::Push(_, line) => line.as_deref(),
            _ => None,
        }
    }

    /// Pushes them.
    pub(crate) fn push(self, stack: &mut Stack<'_>) {
        match self {
            Self::None => {}
            Self::One => stack.push(1.0),
            Self::Number(number) => stack.push(number),
            Self::Failed(text) => {
                stack.push(());
                stack.push(&*text);
            }
            Self::Push(push, _) => push(stack),
            Self::Captured(captured) => (captured.push)(stack),
        }
    }
}

/// A wait of a function that needs neither its VM nor its request. Dropping it gives it up.
pub(crate) struct Operation(pub(crate) Pin<Box<dyn Future<Output = Answers> + Send>>);

impl Operation {
    pub(crate) fn new(future: impl Future<Output = Answers> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operation")
    }
}

/// The code's work with the body of its request that takes a file.
#[derive(Debug)]
pub(crate) enum BodyWork {
    /// The body that is made is more than its buffer has room for.
    PutAside,
    /// The body is complete.
    Finish,
    /// A file takes its place.
    UseFile { path: Vec<u8>, afterwards: Afterwards },
}

/// The wait of a thread.
pub(crate) enum Wait {
    /// Other tasks have their turn; the thread goes on at the second poll from now on.
    Turn(Polls),
    /// Nothing, but what was written is to leave.
    Push,
    /// Its time (`ngx.sleep`).
    Sleep(Timer),
    /// The client has taken what was written.
    Flush,
    /// The request's body is there.
    Body,
    /// This is done with the body, once.
    BodyWork(Option<Box<BodyWork>>),
    /// Something of the request's body, or of its client's connection.
    Receive(Box<Receiving>),
    /// The client has something.
    Send(Box<Sending>),
    /// It waits until one of these threads is over.
    Threads(Box<[usize]>),
    /// See [`Operation`].
    Operation(Operation),
}

/// How often something was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polls {
    None,
    One,
}

/// Whether a thread can be left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    #[default]
    None,
    /// The thread waits for subrequests, which cannot be taken back.
    Subrequests,
}

/// How a thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadOutcome {
    Returned,
    Raised,
}

pub(crate) enum State {
    /// The thread is to be resumed with this.
    Ready(Answers),
    Running,
    Waiting(Wait, Hold),
    /// The thread is over; its results, or its error, are on its stack.
    Over(ThreadOutcome),
}

/// A thread that sleeps has this, its coroutine and a timer.
const _: () = assert!(size_of::<Thread>() <= 112);

/// One thread.
pub(crate) struct Thread {
    number: Number,
    /// 0: nobody's, the entry thread.
    parent: usize,
    /// The coroutine (rule 3).
    pub(crate) coroutine: Option<Coroutine>,
    pub(crate) state: State,
    /// The thread that waits for it to be over.
    waited_by: Option<Number>,
}

impl Thread {
    /// Whether it sleeps.
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.state, State::Waiting(Wait::Sleep(_) | Wait::Turn(_), _))
    }
}

/// One of a run's threads (rule 5); ordered as they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number {
    made: NonZeroU64,
    /// The identity of the thread (rule 1).
    id: usize,
}

impl Number {
    fn is_entry(self) -> bool {
        self.made == NonZeroU64::MIN
    }
}

/// The state of a thread, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The value is no light thread of this run.
    No,
    /// The thread belongs to another owner.
    OfOthers,
    Alive(Hold),
    /// The thread is over and has results.
    Over,
    /// The thread was waited for or killed.
    Gone,
}

/// The threads of one run.
#[derive(Default)]
pub(crate) struct Threads {
    /// Most runs have no other, and allocate nothing for this one.
    entry: Option<Thread>,
    /// The others, by their addresses. There may be tens of thousands: a node of the map is half empty where
    /// keys come in their order, so a thread is not in it; a table that doubles would leave as much behind.
    list: BTreeMap<usize, Box<Thread>>,
    /// In the order in which they are resumed.
    pub(crate) ready: VecDeque<Number>,
    /// Threads that have ended (rule 1).
    gone: HashSet<usize>,
    last: Option<NonZeroU64>,
    /// The number of threads that are not over.
    alive: usize,
}

impl Threads {
    /// Takes one in that is ready; not yet in line.
    pub(crate) fn add(&mut self, coroutine: Coroutine, parent: usize) -> Number {
        let made = self.last.map_or(NonZeroU64::MIN, next);
        self.last = Some(made);
        let number = Number { made, id: coroutine.id() };
        let state = State::Ready(Answers::None);
        let thread = Thread { number, parent, coroutine: Some(coroutine), state, waited_by: None };
        self.alive += 1;
        if number.is_entry() {
            debug_assert!(self.entry.is_none(), "a run has one entry thread");
            self.entry = Some(thread);
            return number;
        }
        self.gone.remove(&number.id);
        let before = self.list.insert(number.id, Box::new(thread));
        assert!(before.is_none(), "no other thread has this coroutine");
        number
    }

    /// The number of threads that are not over.
    pub(crate) fn alive(&self) -> usize {
        self.alive
    }

    pub(crate) fn get_mut(&mut self, number: Number) -> Option<&mut Thread> {
        self.find_mut(number.id).filter(|thread| thread.number == number)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Number, &mut Thread)> {
        let others = self.list.values_mut().map(|thread| &mut **thread);
        self.entry.as_mut().into_iter().chain(others).map(|thread| (thread.number, thread))
    }

    fn all(&self) -> impl Iterator<Item = &Thread> {
        self.entry.iter().chain(self.list.values().map(|thread| &**thread))
    }

    fn find(&self, id: usize) -> Option<&Thread> {
        match &self.entry {
            Some(entry) if entry.number.id == id => Some(entry),
            _ => self.list.get(&id).map(|thread| &**thread),
        }
    }

    fn find_mut(&mut self, id: usize) -> Option<&mut Thread> {
        match &mut self.entry {
            Some(entry) if entry.number.id == id => Some(entry),
            _ => self.list.get_mut(&id).map(|thread| &mut **thread),
        }
    }

    /// The state of a thread, as `asker` may see it.
    pub(crate) fn look(&self, id: usize, asker: usize) -> Known {
        if self.gone.contains(&id) {
            return Known::Gone;
        }
        match self.find(id) {
            None => Known::No,
            Some(thread) if thread.parent == 0 => Known::No,
            Some(thread) if thread.parent != asker => Known::OfOthers,
            Some(thread) => match &thread.state {
                State::Over(_) => Known::Over,
                State::Waiting(_, hold) => Known::Alive(*hold),
                State::Ready(_) | State::Running => Known::Alive(Hold::None),
            },
        }
    }

    /// Whether one of them waits for the request's body.
    pub(crate) fn waits_for_body(&self) -> bool {
        let waits =
            |thread: &Thread| matches!(thread.state, State::Waiting(Wait::Body | Wait::BodyWork(_), _));
        self.all().any(waits)
    }

    /// Whether one of them reads bytes of the client, and so hears of its end.
    pub(crate) fn reads_client(&self) -> bool {
        self.all().any(|thread| matches!(thread.state, State::Waiting(Wait::Receive(_), _)))
    }

    /// Whether one of them waits for subrequests.
    pub(crate) fn has_subrequests(&self) -> bool {
        let waits = |thread: &Thread| matches!(thread.state, State::Waiting(_, Hold::Subrequests));
        self.all().any(waits)
    }

    /// The number of threads that sleep.
    pub(crate) fn sleeping(&self) -> usize {
        self.all().filter(|thread| thread.is_asleep()).count()
    }

    /// The result of `coroutine.status` for a light thread.
    pub(crate) fn status(&self, id: usize) -> Option<&'static str> {
        let thread = self.find(id)?;
        Some(if matches!(thread.state, State::Over(_)) { "zombie" } else { "running" })
    }

    /// Takes one out, and what it waits for is given up.
    pub(crate) fn remove(&mut self, number: Number) -> Option<Thread> {
        self.get_mut(number)?;
        let thread = if number.is_entry() { self.entry.take()? } else { *self.list.remove(&number.id)? };
        if !matches!(thread.state, State::Over(_)) {
            assert!(self.alive > 0, "a thread that is not over is counted");
            self.alive -= 1;
        }
        Some(thread)
    }

    /// Takes a light thread out that is waited for or killed.
    pub(crate) fn take(&mut self, id: usize) -> Option<Thread> {
        let number = self.find(id)?.number;
        self.gone.insert(id);
        self.remove(number)
    }

    /// Takes a thread that is over.
    pub(crate) fn take_over(&mut self, number: Number) -> Option<Thread> {
        self.get_mut(number)?;
        self.take(number.id)
    }

    /// A thread is over: it keeps its place, unless something waits for it, which is told.
    pub(crate) fn end(&mut self, number: Number, outcome: ThreadOutcome) -> Option<Number> {
        let thread = self.get_mut(number)?;
        debug_assert!(!matches!(thread.state, State::Over(_)), "a thread is over once");
        thread.state = State::Over(outcome);
        let waited_by = thread.waited_by;
        assert!(self.alive > 0, "a thread that is not over is counted");
        self.alive -= 1;
        waited_by
    }

    /// Takes a thread's wish for the body, unless that is to read it.
    pub(crate) fn take_work(&mut self, number: Number) -> Option<BodyWork> {
        match &mut self.get_mut(number)?.state {
            State::Waiting(Wait::BodyWork(work), _) => work.take().map(|work| *work),
            _ => None,
        }
    }

    /// Has a thread wait for others; the first one to be over ends that.
    pub(crate) fn wait_for(&mut self, waiter: Number, ids: Vec<usize>) {
        for id in &ids {
            if let Some(thread) = self.find_mut(*id) {
                debug_assert!(
                    !matches!(thread.state, State::Over(_)),
                    "nothing waits for a thread that is over"
                );
                thread.waited_by = Some(waiter);
            }
        }
        self.set_waiting(waiter, Wait::Threads(ids.into()), Hold::None);
    }

    pub(crate) fn set_waiting(&mut self, number: Number, wait: Wait, hold: Hold) {
        if let Some(thread) = self.get_mut(number) {
            debug_assert!(!matches!(thread.state, State::Over(_)), "a thread that is over waits for nothing");
            thread.state = State::Waiting(wait, hold);
        }
    }

    /// Ends what a thread waits for, as one of the others is over.
    pub(crate) fn end_wait(&mut self, waiter: Number) {
        let Some(thread) = self.get_mut(waiter) else { return };
        let before = std::mem::replace(&mut thread.state, State::Running);
        let State::Waiting(Wait::Threads(ids), _) = before else { return };
        for id in ids {
            if let Some(thread) = self.find_mut(id) {
                thread.waited_by = None;
            }
        }
    }

    /// Has one be resumed with this when it is its turn.
    pub(crate) fn make_ready(&mut self, number: Number, answers: Answers) {
        if let Some(thread) = self.get_mut(number) {
            debug_assert!(!matches!(thread.state, State::Over(_)), "a thread that is over is not resumed");
            thread.state = State::Ready(answers);
            debug_assert!(!self.ready.contains(&number), "a thread stands in line once");
            self.ready.push_back(number);
        }
    }
}

fn next(made: NonZeroU64) -> NonZeroU64 {
    made.checked_add(1).expect("no run makes so many threads")
}

/// Pushes what a thread that is over has come to, as `ngx.thread.wait` answers it; how many values.
pub(crate) fn push_results(stack: &mut Stack<'_>, thread: &Thread) -> i32 {
    let State::Over(outcome) = &thread.state else { return 0 };
    stack.push(*outcome == ThreadOutcome::Returned);
    let Some(coroutine) = &thread.coroutine else { return 1 };
    stack.take_all(coroutine) + 1
}
