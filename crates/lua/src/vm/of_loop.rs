//! The VMs of one loop in one generation: which one a request enters, and how they come to be and go.
//!
//! 1. A loop has one VM of its own, made before its generation serves requests, and reserves (`choice`). A
//!    VM is made by a thread that may take its time, never by a poll of a loop.
//! 2. A VM is entered with its token, inside a poll. What runs in it keeps a [`Slot`], so a VM lives as long
//!    as the generation or the last request that has something in it.
//! 3. A slot whose VM is poisoned takes nobody in any more. The first request that finds it so has another
//!    one made and published in its place; what is under way in the old one ends with 500.
//! 4. What is published is swapped as a whole: a request sees a slot or its successor. After publishing the
//!    builder wakes everything in `line`; a request registers there first and looks again then, so it misses
//!    no slot (rules of `waiting`, with its models).
//! 5. What waits in `line` has a limit ([`WAITING_MAX`]); what comes beyond it is refused.
//! 6. One reserve is made at a time (`building`), and one own VM (`rebuilding`). Where none could be made
//!    requests that need one are refused for a while ([`RETRY_MS`]), and then it is tried again.
//! 7. With `lua_code_cache off` a VM is made for one request, and goes with it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use clearway_runtime::{Entering, Guarded, HeldValue, LoopRef};

use crate::metrics;
use crate::vm::choice::{self, Build, Choice, Own, Reserve, Reserves, Standing};
use crate::vm::interpreter::Interpreter;
use crate::vm::waiting::{Line, Making};

/// Requests of one loop that wait for a VM to be made.
pub const WAITING_MAX: usize = 4096;

/// For how long nothing is tried where a VM could not be made, milliseconds.
pub const RETRY_MS: u64 = 1000;

/// Why a request gets no VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVm {
    /// Too many requests wait for one already.
    Crowded,
    /// None can be made, for a reason that was logged.
    NotMade,
}

/// Makes VMs, on a thread that may take its time.
pub trait Builder: Send + Sync {
    /// Has a VM made. `publish` is called with it on that thread, or dropped where none can be made, which is
    /// logged.
    fn build(&self, of_loop: usize, wanted: Wanted, publish: Publish);
}

/// Which VM is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The loop's own.
    Own,
    /// One of its reserves, by its index.
    Reserve(usize),
    /// One for a single request (rule 7).
    Fresh,
}

/// What is to be done with a VM that was made. Dropped, it says that none was.
pub struct Publish(Option<Box<dyn FnOnce(Option<Interpreter>) + Send>>);

impl Publish {
    fn new(publish: impl FnOnce(Option<Interpreter>) + Send + 'static) -> Self {
        Self(Some(Box::new(publish)))
    }

    /// There it is.
    pub fn made(mut self, interpreter: Interpreter) {
        if let Some(publish) = self.0.take() {
            publish(Some(interpreter));
        }
    }
}

impl Drop for Publish {
    fn drop(&mut self) {
        if let Some(publish) = self.0.take() {
            publish(None);
        }
    }
}

/// A VM that is being made for one request.
pub struct Fresh(Arc<OnceLock<Option<Arc<Slot>>>>);

/// A VM and its token.
pub struct Slot {
    guarded: Guarded<Interpreter>,
    is_poisoned: AtomicBool,
    /// Requests that have chosen it.
    users: AtomicU32,
}

impl Slot {
    fn new(mut interpreter: Interpreter, home: LoopRef) -> Arc<Self> {
        interpreter.state.home = Some(home);
        Arc::new_cyclic(|slot| {
            interpreter.state.slot = Weak::clone(slot);
            Self {
                guarded: Guarded::new(interpreter),
                is_poisoned: AtomicBool::new(false),
                users: AtomicU32::new(0),
            }
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
    building: Making,
    rebuilding: Making,
    line: Line,
    /// When a VM could not be made, milliseconds of the loop's clock; 0: never.
    failed_ms: AtomicU64,
    home: LoopRef,
    builder: Arc<dyn Builder>,
}

impl LoopVms {
    /// With the loop's own VM, and its first reserves.
    #[must_use]
    pub fn new(
        home: LoopRef,
        policy: Reserves,
        own: Interpreter,
        reserves: Vec<Interpreter>,
        builder: Arc<dyn Builder>,
    ) -> Arc<Self> {
        let reserves = reserves.into_iter().map(|reserve| Slot::new(reserve, home)).collect();
        Arc::new(Self {
            index: home.index(),
            policy,
            own: ArcSwap::new(Slot::new(own, home)),
            reserves: ArcSwap::from_pointee(reserves),
            building: Making::new(),
            rebuilding: Making::new(),
            line: Line::new(WAITING_MAX),
            failed_ms: AtomicU64::new(0),
            home,
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
    /// [`NoVm`].
    pub fn poll_choose(self: &Arc<Self>, home: LoopRef, cx: &Context<'_>) -> Poll<Result<Chosen, NoVm>> {
        let found = self.line.poll(cx.waker(), || match self.choose(home, cx) {
            None if self.has_failed() => Some(Err(NoVm::NotMade)),
            chosen => chosen.map(Ok),
        });
        found.map(|found| match found {
            Ok(chosen) => chosen,
            Err(_) => {
                metrics::CROWDED.increment();
                Err(NoVm::Crowded)
            }
        })
    }

    /// Rule 7: has one made.
    #[must_use]
    pub fn begin_fresh(self: &Arc<Self>) -> Fresh {
        let (vms, made) = (Arc::clone(self), Arc::new(OnceLock::new()));
        let place = Arc::clone(&made);
        let publish = Publish::new(move |interpreter| {
            let is_first = place.set(interpreter.map(|fresh| Slot::new(fresh, vms.home))).is_ok();
            debug_assert!(is_first, "it is made once");
            vms.line.wake_all();
        });
        self.builder.build(self.index, Wanted::Fresh, publish);
        Fresh(made)
    }

    /// Waits for one that was begun.
    ///
    /// # Errors
    /// [`NoVm`].
    pub fn poll_fresh(&self, fresh: &Fresh, cx: &Context<'_>) -> Poll<Result<Chosen, NoVm>> {
        self.line.poll(cx.waker(), || fresh.0.get()).map(|found| match found {
            Ok(Some(slot)) => Ok(Chosen::again(Arc::clone(slot))),
            Ok(None) => Err(NoVm::NotMade),
            Err(_) => {
                metrics::CROWDED.increment();
                Err(NoVm::Crowded)
            }
        })
    }

    fn has_failed(&self) -> bool {
        let failed_ms = self.failed_ms.load(Ordering::Relaxed);
        failed_ms > 0 && self.home.now_ms().saturating_sub(failed_ms) < RETRY_MS
    }

    fn choose(self: &Arc<Self>, home: LoopRef, cx: &Context<'_>) -> Option<Chosen> {
        let own = self.own.load_full();
        let (state, standing) = look(&own, home, cx);
        if standing == Standing::Good && matches!(state, Own::Free | Own::Held) {
            return Some(Chosen::again(own));
        }
        if state == Own::Poisoned {
            self.rebuild_own();
        }
        // Before the reserves: one that is ready by now is among them then.
        let is_building = self.building.is_under_way();
        let reserves = self.reserves.load();
        let mut states: Vec<Reserve> = reserves
            .iter()
            .map(|slot| match slot.is_poisoned() {
                true => Reserve::Poisoned,
                false => Reserve::Ready { waiting: slot.users.load(Ordering::Relaxed) },
            })
            .collect();
        if is_building {
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
            Choice::First if state == Own::Free => Some(Chosen::again(own)),
            Choice::First if state != Own::Poisoned && self.has_failed() => Some(Chosen::again(own)),
            Choice::Own | Choice::First => None,
        }
    }

    /// Rule 6.
    fn build_reserve(self: &Arc<Self>, index: usize) {
        let is_wanted = || self.reserves.load().get(index).is_none_or(|slot| slot.is_poisoned());
        if self.has_failed() || !self.building.begin(is_wanted) {
            return;
        }
        let vms = Arc::clone(self);
        let publish = Publish::new(move |made| {
            match made {
                Some(interpreter) => {
                    let mut reserves = Vec::clone(&vms.reserves.load());
                    let slot = Slot::new(interpreter, vms.home);
                    match reserves.get_mut(index) {
                        Some(place) => *place = slot,
                        None => reserves.push(slot),
                    }
                    vms.reserves.store(Arc::new(reserves));
                }
                None => vms.note_failure(),
            }
            vms.building.end(&vms.line);
        });
        self.builder.build(self.index, Wanted::Reserve(index), publish);
    }

    /// Rule 3.
    fn rebuild_own(self: &Arc<Self>) {
        if self.has_failed() || !self.rebuilding.begin(|| self.own.load().is_poisoned()) {
            return;
        }
        let vms = Arc::clone(self);
        let publish = Publish::new(move |made| {
            match made {
                Some(interpreter) => vms.own.store(Slot::new(interpreter, vms.home)),
                None => vms.note_failure(),
            }
            vms.rebuilding.end(&vms.line);
        });
        self.builder.build(self.index, Wanted::Own, publish);
    }

    fn note_failure(&self) {
        self.failed_ms.store(self.home.now_ms().max(1), Ordering::Relaxed);
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
