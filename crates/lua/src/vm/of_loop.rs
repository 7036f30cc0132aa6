//! The VMs of one loop in one generation: which one a request enters, and how they come to be and go.
//!
//! 1. A loop has one VM of its own, made before its generation serves requests, and reserves (`choice`). A
//!    VM is made by a thread that may take its time, never by a poll of a loop.
//! 2. A VM is entered with its token, inside a poll. What runs in it keeps a [`Slot`], so a VM lives as long
//!    as the generation or the last request that has something in it.
//! 3. A slot whose VM is poisoned takes nobody in any more. The first request that finds it so has another
//!    one made and published in its place; what is under way in the old one ends with 500.
//! 4. What is published is swapped as a whole: a request sees a slot or its successor. After publishing the
//!    builder wakes everything in `waiting`; a request registers there first and looks again then, so it
//!    misses no slot (both in SeqCst).
//! 5. What waits in `waiting` has a limit ([`WAITING_MAX`]); what comes beyond it is refused.
//! 6. One reserve is made at a time: `building` is taken by compare-and-swap and given back behind rule 4.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use clearway_runtime::{Entering, Guarded, HeldValue, LoopRef};
use crossbeam_queue::ArrayQueue;

use crate::metrics;
use crate::vm::choice::{self, Build, Choice, Own, Reserve, Reserves, Standing};
use crate::vm::interpreter::Interpreter;

/// Requests of one loop that wait for a VM to be made.
pub const WAITING_MAX: usize = 4096;

/// Too many requests wait for a VM already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

/// Makes VMs, on a thread that may take its time.
pub trait Builder: Send + Sync {
    /// Has a VM made: the loop's own, or one of its reserves by its index. `publish` is called with it on
    /// that thread, or dropped where none can be made, which is logged.
    fn build(&self, of_loop: usize, reserve: Option<usize>, publish: Publish);
}

/// What is to be done with a VM that was made.
pub type Publish = Box<dyn FnOnce(Result<Interpreter, String>) + Send>;

/// A VM and its token.
pub struct Slot {
    guarded: Guarded<Interpreter>,
    is_poisoned: AtomicBool,
    /// Requests that have chosen it.
    users: AtomicU32,
}

impl Slot {
    fn new(interpreter: Interpreter) -> Arc<Self> {
        Arc::new(Self {
            guarded: Guarded::new(interpreter),
            is_poisoned: AtomicBool::new(false),
            users: AtomicU32::new(0),
        })
    }

    /// Says that nothing is to be run in it any more.
    pub fn poison(&self) {
        self.is_poisoned.store(true, Ordering::SeqCst);
    }

    /// Whether that was said.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::SeqCst)
    }

    /// Enters at once, if nobody holds it or waits for it.
    pub fn try_enter(&self, cx: &Context<'_>) -> Option<HeldValue<'_, Interpreter>> {
        self.guarded.try_enter(cx)
    }
}

/// A request's hold on the VM that it has chosen.
pub struct Chosen {
    entering: Entering<Handle>,
    slot: Arc<Slot>,
}

struct Handle(Arc<Slot>);

impl std::ops::Deref for Handle {
    type Target = Guarded<Interpreter>;

    fn deref(&self) -> &Self::Target {
        &self.0.guarded
    }
}

impl Chosen {
    /// Of a slot that the request has used before.
    #[must_use]
    pub fn again(slot: Arc<Slot>) -> Self {
        slot.users.fetch_add(1, Ordering::Relaxed);
        Self { entering: Entering::new(Handle(Arc::clone(&slot))), slot }
    }

    /// The VM.
    #[must_use]
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Enters the VM when it is its turn; the guard is dropped in the same poll.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<HeldValue<'_, Interpreter>> {
        self.entering.poll_value(cx)
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.slot.users.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See the file's head.
pub struct LoopVms {
    index: usize,
    policy: Reserves,
    own: ArcSwap<Slot>,
    reserves: ArcSwap<Vec<Arc<Slot>>>,
    building: AtomicBool,
    rebuilding: AtomicBool,
    waiting: ArrayQueue<Waker>,
    builder: Arc<dyn Builder>,
}

impl LoopVms {
    /// With the loop's own VM, and its first reserves.
    #[must_use]
    pub fn new(
        index: usize,
        policy: Reserves,
        own: Interpreter,
        reserves: Vec<Interpreter>,
        builder: Arc<dyn Builder>,
    ) -> Arc<Self> {
        let reserves = reserves.into_iter().map(Slot::new).collect();
        Arc::new(Self {
            index,
            policy,
            own: ArcSwap::new(Slot::new(own)),
            reserves: ArcSwap::from_pointee(reserves),
            building: AtomicBool::new(false),
            rebuilding: AtomicBool::new(false),
            waiting: ArrayQueue::new(WAITING_MAX),
            builder,
        })
    }

    /// All of its VMs as of now.
    pub fn slots(&self) -> impl Iterator<Item = Arc<Slot>> {
        let reserves: Vec<_> = self.reserves.load().iter().cloned().collect();
        std::iter::once(self.own.load_full()).chain(reserves)
    }

    /// Chooses for a request that has not entered one yet, and has a reserve made where one is wanted.
    ///
    /// # Errors
    /// [`Crowded`].
    pub fn poll_choose(self: &Arc<Self>, home: LoopRef, cx: &Context<'_>) -> Poll<Result<Chosen, Crowded>> {
        if let Some(chosen) = self.choose(home, cx) {
            return Poll::Ready(Ok(chosen));
        }
        let pushed = self.waiting.push(cx.waker().clone());
        std::sync::atomic::fence(Ordering::SeqCst);
        match self.choose(home, cx) {
            Some(chosen) => Poll::Ready(Ok(chosen)),
            None if pushed.is_err() => {
                metrics::CROWDED.increment();
                Poll::Ready(Err(Crowded))
            }
            None => Poll::Pending,
        }
    }

    fn choose(self: &Arc<Self>, home: LoopRef, cx: &Context<'_>) -> Option<Chosen> {
        let own = self.own.load_full();
        let (state, standing) = look(&own, home, cx);
        let reserves = self.reserves.load();
        if state == Own::Poisoned {
            self.rebuild_own();
        }
        if standing == Standing::Good && matches!(state, Own::Free | Own::Held) {
            return Some(Chosen::again(own));
        }
        let mut states: Vec<Reserve> = reserves
            .iter()
            .map(|slot| match slot.is_poisoned() {
                true => Reserve::Poisoned,
                false => Reserve::Ready { waiting: slot.users.load(Ordering::Relaxed) },
            })
            .collect();
        if self.building.load(Ordering::SeqCst) {
            states.push(Reserve::Building);
        }
        let decision = choice::choose(self.policy, state, standing, &states);
        if let Build::One { instead_of } = decision.build {
            self.build_reserve(instead_of.unwrap_or(reserves.len()));
        }
        match decision.choice {
            Choice::Reserve(index) => Some(Chosen::again(Arc::clone(&reserves[index]))),
            Choice::Own if state != Own::Poisoned => Some(Chosen::again(own)),
            // One that is free again is as good as a reserve that is still being made.
            Choice::First if matches!(state, Own::Free) => Some(Chosen::again(own)),
            Choice::Own | Choice::First => None,
        }
    }

    /// Rule 6.
    fn build_reserve(self: &Arc<Self>, index: usize) {
        if self.building.swap(true, Ordering::SeqCst) {
            return;
        }
        let vms = Arc::clone(self);
        let publish = move |made: Result<Interpreter, String>| {
            if let Ok(interpreter) = made {
                let mut reserves = Vec::clone(&vms.reserves.load());
                let slot = Slot::new(interpreter);
                match reserves.get_mut(index) {
                    Some(place) => *place = slot,
                    None => reserves.push(slot),
                }
                vms.reserves.store(Arc::new(reserves));
            }
            vms.building.store(false, Ordering::SeqCst);
            vms.wake_all();
        };
        self.builder.build(self.index, Some(index), Box::new(publish));
    }

    /// Rule 3.
    fn rebuild_own(self: &Arc<Self>) {
        if self.rebuilding.swap(true, Ordering::SeqCst) {
            return;
        }
        let vms = Arc::clone(self);
        let publish = move |made: Result<Interpreter, String>| {
            if let Ok(interpreter) = made {
                vms.own.store(Slot::new(interpreter));
            }
            vms.rebuilding.store(false, Ordering::SeqCst);
            vms.wake_all();
        };
        self.builder.build(self.index, None, Box::new(publish));
    }

    /// Rule 4.
    fn wake_all(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        while let Some(waker) = self.waiting.pop() {
            waker.wake();
        }
    }
}

/// What the own VM's token says, and whether the poll that asks is one that may block: such a one is away
/// from its loop before it begins.
fn look(own: &Slot, home: LoopRef, cx: &Context<'_>) -> (Own, Standing) {
    if own.is_poisoned() {
        return (Own::Poisoned, Standing::Good);
    }
    let token: &clearway_runtime::Token = own.guarded.as_ref();
    match own.try_enter(cx) {
        Some(held) => {
            let is_away = token.holder().is_some_and(|poll| home.is_away(poll));
            drop(held);
            (Own::Free, if is_away { Standing::Suspect } else { Standing::Good })
        }
        None => match token.holder() {
            Some(poll) if home.is_away(poll) => (Own::Stuck, Standing::Good),
            _ => (Own::Held, Standing::Good),
        },
    }
}
