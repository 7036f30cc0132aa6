//! The scheduler of a request. What goes on beside its handler is a *strand*: a subrequest in the response,
//! or one in the background. Strands are polled from the root of the request, by its one task, whatever the
//! handler waits for; each has a waker of its own, so one that was not woken costs nothing.
//!
//! 1. A root is polled whenever its task is woken, and once more where a strand asks for it (`notify`).
//! 2. A strand is polled when its waker was used or it was notified. Parts of a request that wait for each
//!    other (a full pipe, an empty one) keep no wakers: the part that changes something notifies the other.
//! 3. While a strand is polled it is out of its place, so that it can begin, notify and drop others.
//! 4. What flushes a response lets the strands in it go first that were notified: in which order documents
//!    and what they include are read depends on it.
//! 5. A strand ends at the latest when what has begun it is dropped.
//!
//! A client that leaves is looked for once for all strands: a socket knows one waiter.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use clearway_runtime::{Entered, TaskCell};

use crate::link::Link;
use crate::link::departure::Departure;

/// How often strands are polled, and the root of the request with them, before others of the loop have their
/// turn: each takes a few microseconds at least, and a poll should take a fraction of a millisecond.
const POLLS_MAX: u32 = 128;

/// Work that goes on beside a handler.
pub(crate) type Strand<'c> = Pin<Box<dyn Future<Output = ()> + Send + 'c>>;

/// The root of a request, or one of its strands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StrandId(u32);

impl StrandId {
    /// The client's request, with all that it waits for itself.
    pub(crate) const ROOT: Self = Self(0);

    fn place(self) -> usize {
        debug_assert!(self != Self::ROOT, "the root lives in no place");
        self.0 as usize - 1
    }
}

/// The strands of a request. They may refer to this, so it has to be emptied (`clear`) and drops nothing.
#[derive(Default)]
pub struct Strands<'c> {
    state: TaskCell<ManuallyDrop<Option<Box<StrandsState<'c>>>>>,
    /// Whether there is a state, known without entering: most requests have none.
    has_state: AtomicBool,
}

/// Once there was a strand.
#[derive(Default)]
struct StrandsState<'c> {
    places: Vec<StrandPlace<'c>>,
    live: u32,
    /// The root is to be polled once more.
    root: Wish,
    /// Wakes the task of the request.
    task: Option<Waker>,
    client: Client<'c>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Nothing,
    Poll,
}

/// Whether what follows a request waits for one of its strands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bond {
    /// The request has not ended before.
    Joined,
    /// Its connection goes on.
    Apart,
}

/// Looks for the client while something waits for its sake.
pub(crate) enum Lookout<'c> {
    /// The output is for no client.
    Nobody,
    Root(Departure),
    /// The root does, for all strands.
    Strand(&'c Strands<'c>),
}

impl<'c> Lookout<'c> {
    /// Ready when the client has left; with an error if the connection broke.
    pub(crate) fn poll(&mut self, link: Link<'c>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Nobody => Poll::Pending,
            Self::Root(departure) => departure.poll(link, cx),
            Self::Strand(strands) => strands.poll_left(link),
        }
    }
}

/// Whether strands want to know of a client that leaves.
#[derive(Default)]
enum Client<'c> {
    #[default]
    Unwatched,
    Watched(Watch<'c>),
}

/// The state of the client, with an error if the connection broke.
struct Watch<'c> {
    link: Link<'c>,
    departure: Departure,
    /// The result once the client has closed its direction.
    closed: Option<Result<(), i32>>,
    left: Option<Result<(), i32>>,
}

impl Watch<'_> {
    /// Looks for the client; whether more is known of it than before.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let is_news = self.closed.is_none();
        if is_news {
            let Poll::Ready(closed) = self.link.poll_closed(cx) else { return false };
            self.closed = Some(reason(closed));
        } else if self.left.is_some() {
            return false;
        }
        match self.departure.poll(self.link, cx) {
            Poll::Ready(left) => self.left = Some(reason(left)),
            Poll::Pending => return is_news,
        }
        true
    }
}

fn reason(ended: io::Result<()>) -> Result<(), i32> {
    ended.map_err(|error| error.raw_os_error().unwrap_or_default())
}

/// Where a strand lives. Its waker is used again for others.
struct StrandPlace<'c> {
    occupant: Occupant<'c>,
    bond: Bond,
    call: Call,
    alarm: Arc<Alarm>,
    waker: Waker,
}

/// The reason for which a strand is to be polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Nothing, unless its waker was used.
    Nothing,
    /// Another part of the request has notified it.
    Notified,
}

enum Occupant<'c> {
    Nobody,
    Waiting(Strand<'c>),
    /// The strand is being polled.
    Away,
    /// The strand is being polled, and dropped afterwards.
    Dropped,
}

/// The waker of a strand: it wakes the task, and tells it which strand to poll.
struct Alarm {
    is_due: AtomicBool,
    task: Waker,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl<'c> StrandPlace<'c> {
    fn new(task: &Waker) -> Self {
        let alarm = Arc::new(Alarm { is_due: AtomicBool::new(false), task: task.clone() });
        Self {
            occupant: Occupant::Nobody,
            bond: Bond::Joined,
            call: Call::Nothing,
            waker: Waker::from(Arc::clone(&alarm)),
            alarm,
        }
    }

    fn is_notified(&self) -> bool {
        self.call == Call::Notified && matches!(self.occupant, Occupant::Waiting(_))
    }

    /// Takes the strand to be polled, if that is due.
    fn take_due(&mut self) -> Option<Strand<'c>> {
        let is_due = self.call == Call::Notified || self.alarm.is_due.load(Ordering::Relaxed);
        if !is_due || !matches!(self.occupant, Occupant::Waiting(_)) {
            return None;
        }
        // Values that were stored before the wake-up are seen by the poll.
        self.alarm.is_due.swap(false, Ordering::AcqRel);
        self.call = Call::Nothing;
        match std::mem::replace(&mut self.occupant, Occupant::Away) {
            Occupant::Waiting(strand) => Some(strand),
            _ => None,
        }
    }
}

impl<'c> StrandsState<'c> {
    /// The place of a strand that begins.
    fn vacancy(&mut self) -> usize {
        let vacant = self.places.iter().position(|place| matches!(place.occupant, Occupant::Nobody));
        vacant.unwrap_or_else(|| {
            // Before the first poll of the request that has strands nobody can be woken.
            self.places.push(StrandPlace::new(self.task.as_ref().unwrap_or(Waker::noop())));
            self.places.len() - 1
        })
    }

    /// Has wakers wake this task; they do as a rule.
    fn set_task(&mut self, task: &Waker) {
        if self.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            return;
        }
        self.task = Some(task.clone());
        for place in &mut self.places {
            let occupant = std::mem::replace(&mut place.occupant, Occupant::Nobody);
            *place =
                StrandPlace { occupant, bond: place.bond, call: Call::Notified, ..StrandPlace::new(task) };
        }
    }

    fn notify(&mut self, id: StrandId) {
        match id {
            StrandId::ROOT => self.root = Wish::Poll,
            _ => self.places[id.place()].call = Call::Notified,
        }
    }

    fn notify_all(&mut self) {
        self.root = Wish::Poll;
        self.places.iter_mut().for_each(|place| place.call = Call::Notified);
    }

    /// Takes the next strand that is due, from a place on.
    fn take_due(&mut self, from: usize) -> Option<(usize, Strand<'c>, Waker)> {
        let due = |(at, place): (usize, &mut StrandPlace<'c>)| {
            let strand = place.take_due()?;
            Some((from + at, strand, std::mem::replace(&mut place.waker, Waker::noop().clone())))
        };
        self.places[from..].iter_mut().enumerate().find_map(due)
    }

    /// Takes one back that was polled; the result is to be dropped.
    fn put_back(&mut self, at: usize, strand: Strand<'c>, waker: Waker, end: Poll<()>) -> Option<Strand<'c>> {
        let place = &mut self.places[at];
        debug_assert!(
            matches!(place.occupant, Occupant::Away | Occupant::Dropped),
            "no other strand has taken the place meanwhile"
        );
        place.waker = waker;
        let stays = end.is_pending() && matches!(place.occupant, Occupant::Away);
        if stays {
            place.occupant = Occupant::Waiting(strand);
            return None;
        }
        place.occupant = Occupant::Nobody;
        assert!(self.live > 0, "a strand that was polled is counted");
        self.live -= 1;
        // It may be what the root waits for.
        self.root = Wish::Poll;
        Some(strand)
    }
}

impl<'c> Strands<'c> {
    fn state(&self) -> Entered<'_, ManuallyDrop<Option<Box<StrandsState<'c>>>>> {
        self.state.enter()
    }

    fn with<R>(&self, look: impl FnOnce(&mut StrandsState<'c>) -> R) -> Option<R> {
        self.state().as_deref_mut().map(look)
    }

    /// Begins a strand, which is told its number; it is polled for the first time soon.
    pub(crate) fn begin(&self, bond: Bond, make: impl FnOnce(StrandId) -> Strand<'c>) -> StrandId {
        let at = {
            self.has_state.store(true, Ordering::Relaxed);
            let mut state = self.state();
            let state = state.get_or_insert_default();
            let at = state.vacancy();
            (state.places[at].occupant, state.places[at].bond) = (Occupant::Away, bond);
            state.live += 1;
            debug_assert!(state.live as usize <= state.places.len(), "each strand has a place");
            at
        };
        let id = StrandId(at as u32 + 1);
        let strand = make(id);
        self.with(|state| {
            debug_assert!(
                matches!(state.places[at].occupant, Occupant::Away),
                "nothing drops a strand that is being made"
            );
            state.places[at].occupant = Occupant::Waiting(strand);
            state.notify(id);
        });
        id
    }

    /// Drops a strand that has not ended.
    pub(crate) fn drop_strand(&self, id: StrandId) {
        let dropped = self.with(|state| {
            let place = &mut state.places[id.place()];
            let is_away = matches!(place.occupant, Occupant::Away);
            let next = if is_away { Occupant::Dropped } else { Occupant::Nobody };
            let dropped = std::mem::replace(&mut place.occupant, next);
            debug_assert!(
                state.live > 0 || matches!(dropped, Occupant::Nobody),
                "a strand that is there is counted"
            );
            state.live -= u32::from(matches!(dropped, Occupant::Waiting(_)));
            dropped
        });
        // Its own strands are dropped with it.
        drop(dropped);
    }

    /// Drops all of them.
    #[inline]
    pub(crate) fn clear(&self) {
        if self.has_state.load(Ordering::Relaxed) {
            self.drop_state();
        }
    }

    #[cold]
    fn drop_state(&self) {
        let state = self.state().take();
        drop(state);
    }

    /// Whether another part of the request wants one of these to look.
    pub(crate) fn is_any_notified(&self, mut ids: impl Iterator<Item = StrandId>) -> bool {
        let is_notified = |state: &mut StrandsState<'c>| ids.any(|id| state.places[id.place()].is_notified());
        self.with(is_notified).unwrap_or_default()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_state.load(Ordering::Relaxed) || self.is_state_empty()
    }

    fn is_state_empty(&self) -> bool {
        self.state().as_ref().is_none_or(|state| state.live == 0)
    }

    /// Has a strand, or the root, polled once more: something that it waits for has changed.
    pub(crate) fn notify(&self, id: StrandId) {
        self.with(|state| state.notify(id));
    }

    /// Waits until all have ended; for the root.
    pub async fn finish(&self) {
        poll_fn(|_| if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Waits until those have ended that belong to the response; for the root.
    pub(crate) async fn finish_joined(&self) {
        poll_fn(|_| if self.has_joined() { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    fn has_joined(&self) -> bool {
        let is_joined = |place: &StrandPlace<'c>| {
            place.bond == Bond::Joined && !matches!(place.occupant, Occupant::Nobody)
        };
        !self.is_empty() && self.state().as_ref().is_some_and(|state| state.places.iter().any(is_joined))
    }

    /// Ready when the client has left; for strands, which are polled when it does.
    fn poll_left(&self, link: Link<'c>) -> Poll<io::Result<()>> {
        self.poll_client(link, |watch| watch.left)
    }

    /// Pending until the client has closed its direction; it may still read.
    pub(crate) fn poll_closed(&self, link: Link<'c>) -> Poll<io::Result<()>> {
        self.poll_client(link, |watch| watch.closed)
    }

    fn poll_client(
        &self,
        link: Link<'c>,
        known: fn(&Watch<'c>) -> Option<Result<(), i32>>,
    ) -> Poll<io::Result<()>> {
        let ended = self.with(|state| match &state.client {
            Client::Watched(watch) => known(watch),
            Client::Unwatched => {
                state.client = Client::Watched(Watch {
                    link,
                    departure: Departure::default(),
                    closed: None,
                    left: None,
                });
                None
            }
        });
        match ended.flatten() {
            Some(ended) => Poll::Ready(ended.map_err(io::Error::from_raw_os_error)),
            None => Poll::Pending,
        }
    }

    /// Polls the root of a request, and its strands beside it.
    #[inline]
    pub fn poll_beside<F: Future>(&self, mut root: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match root.as_mut().poll(cx) {
            Poll::Pending if !self.is_empty() => self.poll(root, cx),
            polled => polled,
        }
    }

    /// The root has been polled, and waits.
    fn poll<F: Future>(&self, mut root: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.with(|state| state.set_task(cx.waker()));
        let mut polls_left = POLLS_MAX;
        while polls_left > 0 {
            let (mut at, mut polled) = (0, 0);
            while let Some(Some((place, strand, waker))) = self.with(|state| state.take_due(at)) {
                self.poll_strand(place, strand, waker);
                (at, polled) = (place + 1, polled + 1);
            }
            self.watch_client(cx);
            let wish = self.with(|state| std::mem::take(&mut state.root));
            if wish == Some(Wish::Poll) {
                if let Poll::Ready(output) = root.as_mut().poll(cx) {
                    return Poll::Ready(output);
                }
            } else if polled == 0 {
                return Poll::Pending;
            }
            polls_left = polls_left.saturating_sub(1 + polled);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_strand(&self, at: usize, mut strand: Strand<'c>, waker: Waker) {
        let end = strand.as_mut().poll(&mut Context::from_waker(&waker));
        let dropped = self.with(|state| state.put_back(at, strand, waker, end));
        drop(dropped);
    }

    /// Looks for the client, if a strand does.
    fn watch_client(&self, cx: &mut Context<'_>) {
        self.with(|state| {
            let Client::Watched(watch) = &mut state.client else { return };
            if watch.poll(cx) {
                state.notify_all();
            }
        });
    }
}
