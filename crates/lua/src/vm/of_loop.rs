//! The VMs of one loop in one generation: which one a request enters, and how they come to be and go.
//!
//! 1. A loop has one VM of its own and reserves (`choice`), made by threads that may take their time.
//! 2. A VM is entered with its token, inside a poll. What runs in it keeps a [`Slot`], so a VM lives as long
//!    as the generation or the last request that has something in it.
//! 3. A slot whose VM is poisoned takes nobody in any more. The first request that finds it so has another
//!    one made and published in its place; what is under way in the old one ends with 500.
//! 4. What is published is swapped as a whole, and then everything in `line` is woken; a request registers
//!    there first and looks again then, so it misses no slot (rules of `waiting`, with its models).
//! 5. What waits in `line` has a limit ([`WAITING_MAX`]); what comes beyond it is refused.
//! 6. One reserve is made at a time (`building`), and one own VM (`rebuilding`). Where none could be made
//!    requests that need one are refused for a while ([`RETRY_MS`]), and then it is tried again.
//! 7. With `lua_code_cache off` a VM is made for one request.
//! 8. What waits for its first VM looks again at times ([`AGAIN_MS`]), as what holds that may never end.
//! 9. A location blocks whose poll began away from its loop and holds a VM for [`HABIT_MS`] (`Slot::look`).

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use clearway_base::log::{Level, Sink};
use clearway_runtime::{Entering, Guarded, HeldValue, LoopRef, PollId, Timer, Token};

use crate::metrics;
use crate::socket::pool::LoopPools;
use crate::vm::choice::{self, Build, Choice, Own, Reserve, Reserves, Standing};
use crate::vm::interpreter::Interpreter;
use crate::vm::waiting::{Line, Making};

/// Requests of one loop that wait for a VM to be made.
pub const WAITING_MAX: usize = 4096;

/// The time for which no VM is made again after a failure, milliseconds.
pub const RETRY_MS: u64 = 1000;

/// After how long a request that waits for its first VM looks again, milliseconds, then after twice that, and
/// so on. It changes to another one that has fewer before it.
const AGAIN_MS: u64 = 2;

/// The most that this is after some times.
const AGAIN_MAX_MS: u64 = 16;

/// The longest such time for requests whose own location blocks.
const AGAIN_MAX_BLOCKS_MS: u64 = 512;

/// How long a poll is in a VM until others look for another one, milliseconds.
const HELD_MS: u64 = 5;

/// See rule 9; milliseconds. At the priority of polls that use the processor for long a short one may take
/// some turns.
const HABIT_MS: u64 = 20;

/// For how long a location counts as one that blocks (rule 9), milliseconds.
const HABIT_MEMORY_MS: u64 = 10_000;

/// Entries of the table of rule 9; locations that meet in one displace each other.
const HABITS: usize = 64;

/// How long a poll is in a VM until that counts as gone, milliseconds.
const GONE_MS: u64 = 1000;

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
    /// A VM for a single request (rule 7).
    Fresh,
}

/// The function that takes a VM that was made. If it is dropped, none was made.
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
    /// The number of requests whose location blocks.
    blocking: AtomicU32,
    /// The poll that was seen in it last, and since when, milliseconds of the loop's clock; its location, or
    /// 0 if that is good.
    seen: AtomicU64,
    seen_ms: AtomicU64,
    seen_tag: AtomicU32,
    /// The owners of a VM for a single request: the request, and its timers.
    owners: Option<AtomicU32>,
    home: LoopRef,
    /// The VMs of its loop.
    vms: Weak<LoopVms>,
}

impl Slot {
    fn new(interpreter: Interpreter, home: LoopRef, vms: &Weak<LoopVms>) -> Arc<Self> {
        Self::owned(interpreter, home, vms, None)
    }

    fn owned(
        mut interpreter: Interpreter,
        home: LoopRef,
        vms: &Weak<LoopVms>,
        owners: Option<AtomicU32>,
    ) -> Arc<Self> {
        interpreter.state.home = Some(home);
        interpreter.state.pools = LoopPools::of(home);
        Arc::new_cyclic(|slot| {
            interpreter.state.slot = Weak::clone(slot);
            Self {
                guarded: Guarded::new(interpreter),
                is_poisoned: AtomicBool::new(false),
                users: AtomicU32::new(0),
                blocking: AtomicU32::new(0),
                seen: AtomicU64::new(0),
                seen_ms: AtomicU64::new(0),
                seen_tag: AtomicU32::new(0),
                owners,
                home,
                vms: Weak::clone(vms),
            }
        })
    }

    /// A slot that belongs to no loop: its owner ensures that it is entered by one thread at a time.
    pub(crate) fn apart(interpreter: Interpreter, home: LoopRef) -> Arc<Self> {
        Self::new(interpreter, home, &Weak::new())
    }

    fn token(&self) -> &Token {
        self.guarded.as_ref()
    }

    /// For how long the poll has been in it that is there now, milliseconds: since that came in if it began
    /// away from its loop, or else since the first look, which is taken when something is wrong.
    fn held_ms(&self) -> Option<u64> {
        let holder = self.token().holder()?;
        if self.seen.load(Ordering::Relaxed) != holder.number() {
            self.note(holder, 0);
            return Some(0);
        }
        Some(self.home.now_ms().saturating_sub(self.seen_ms.load(Ordering::Relaxed)))
    }

    /// The poll is in it.
    fn note(&self, holder: PollId, tag: u32) {
        self.seen_ms.store(self.home.now_ms(), Ordering::Relaxed);
        self.seen_tag.store(tag, Ordering::Relaxed);
        self.seen.store(holder.number(), Ordering::Relaxed);
    }

    /// For how long the poll has been in it that is there now, and its location's number. Rule 9: it counts
    /// where it sleeps or uses a processor, not where others keep it from one, and is seen by requests that
    /// look for a VM.
    fn look(&self, habits: &Habits) -> (Option<u64>, u32) {
        let holder = self.token().holder();
        let (held_ms, now_ms) = (self.held_ms(), self.home.now_ms());
        let tag = held_ms.map_or(0, |_| self.seen_tag.load(Ordering::Relaxed));
        if held_ms >= Some(HABIT_MS)
            && !habits.has(tag, now_ms)
            && holder.is_some_and(|holder| self.home.is_blocking(holder))
        {
            habits.add(tag, now_ms);
        }
        (held_ms, tag)
    }

    /// As a reserve.
    fn state(&self, habits: &Habits, asker: Option<&Chosen>) -> Reserve {
        if self.is_poisoned() {
            return Reserve::Poisoned;
        }
        let mut waiting = self.users.load(Ordering::Relaxed);
        if asker.is_some_and(|asker| ptr::eq(&*asker.slot, self)) {
            // On average half of those that are there came before it.
            waiting = waiting.saturating_sub(1) / 2;
        }
        let (held_ms, tag) = self.look(habits);
        if held_ms >= Some(GONE_MS) {
            return Reserve::Gone { waiting };
        }
        let is_clean = self.blocking.load(Ordering::Relaxed) == 0 && !habits.has(tag, self.home.now_ms());
        Reserve::Ready { waiting, is_clean, is_held: held_ms >= Some(HELD_MS) }
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

    /// A request, or a timer, keeps it from now on.
    pub(crate) fn note_owner(&self) {
        if let Some(owners) = &self.owners {
            owners.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One of these keeps it no more: where it is a single request's, the log is told how many it had.
    pub(crate) fn note_left(&self, sink: Option<&dyn Sink>) {
        let Some(owners) = &self.owners else { return };
        let count = owners.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(count > 0, "each owner leaves once");
        let Some(sink) = sink else { return };
        sink.log(Level::Debug, format_args!("lua decrementing the reference count for Lua VM: {count}"));
        if count == 1 {
            sink.log(Level::Debug, format_args!("lua close the global Lua VM {:p}", ptr::from_ref(self)));
        }
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
    by: By,
    stage: Stage,
}

/// The request that has chosen.
#[derive(Clone, Copy)]
struct By {
    standing: Standing,
    /// Its location and phase, as a number; 0 if its poll began on its loop.
    tag: u32,
}

/// Rule 9: the locations that block, by tag.
struct Habits([AtomicU64; HABITS]);

impl Habits {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn entry(&self, tag: u32) -> &AtomicU64 {
        &self.0[tag as usize % HABITS]
    }

    /// In a unit that is worth its half of a word for two years.
    fn units(ms: u64) -> u64 {
        (ms / 16) & u64::from(u32::MAX)
    }

    fn add(&self, tag: u32, now_ms: u64) {
        if tag != 0 {
            let until = Self::units(now_ms + HABIT_MEMORY_MS);
            debug_assert!(until >> 32 == 0, "a time fits below its tag");
            self.entry(tag).store(u64::from(tag) << 32 | until, Ordering::Relaxed);
        }
    }

    fn has(&self, tag: u32, now_ms: u64) -> bool {
        let value = self.entry(tag).load(Ordering::Relaxed);
        tag != 0 && value >> 32 == u64::from(tag) && (value & u64::from(u32::MAX)) >= Self::units(now_ms)
    }
}

/// Whether another VM would do as well.
enum Stage {
    /// The request belongs to this VM.
    Settled,
    /// The request has not entered a VM yet (rule 8).
    Open,
    /// Nor has it, and it waits.
    Waiting { timer: Timer, again_ms: u64 },
}

struct Handle(Arc<Slot>);

impl std::ops::Deref for Handle {
    type Target = Guarded<Interpreter>;

    fn deref(&self) -> &Self::Target {
        &self.0.guarded
    }
}

impl Chosen {
    /// The choice of a slot that the request has used before.
    #[must_use]
    pub fn again(slot: Arc<Slot>) -> Self {
        Self::of(slot, By { standing: Standing::Good, tag: 0 }, Stage::Settled)
    }

    fn of(slot: Arc<Slot>, by: By, stage: Stage) -> Self {
        slot.users.fetch_add(1, Ordering::Relaxed);
        if by.standing == Standing::Blocks {
            slot.blocking.fetch_add(1, Ordering::Relaxed);
        }
        Self { entering: Entering::new(Handle(Arc::clone(&slot))), slot, by, stage }
    }

    /// The VM; until it was entered another one may take its place.
    #[must_use]
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Whether it was entered, so that it stays the request's.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Settled)
    }

    /// Enters the VM when it is its turn; the guard is dropped in the same poll.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<HeldValue<'_, Interpreter>> {
        self.look_again(cx);
        self.poll_here(cx)
    }

    fn poll_here(&mut self, cx: &mut Context<'_>) -> Poll<HeldValue<'_, Interpreter>> {
        let polled = self.entering.poll_value(cx);
        if polled.is_ready()
            && let Some(poll) = away(self.slot.home, cx)
        {
            self.slot.note(poll, tag_of(cx));
        }
        match (&polled, &mut self.stage) {
            (_, Stage::Settled) => {}
            (Poll::Ready(_), stage) => *stage = Stage::Settled,
            (Poll::Pending, stage @ Stage::Open) => {
                if let Some(vms) = self.slot.vms.upgrade() {
                    let timer = Timer::new(vms.home);
                    timer.arm(vms.home.now_ms() + AGAIN_MS);
                    // Before there is a waker it may have expired.
                    if timer.poll_expired(cx).is_ready() {
                        cx.waker().wake_by_ref();
                    }
                    *stage = Stage::Waiting { timer, again_ms: AGAIN_MS };
                }
            }
            (Poll::Pending, Stage::Waiting { .. }) => {}
        }
        polled
    }

    /// As [`Chosen::poll`], with the slot that was entered.
    pub fn poll_with_slot(&mut self, cx: &mut Context<'_>) -> Poll<(HeldValue<'_, Interpreter>, Arc<Slot>)> {
        self.look_again(cx);
        // The slot cannot change after the look.
        let slot = Arc::clone(&self.slot);
        debug_assert!(self.slot.users.load(Ordering::Relaxed) > 0, "a request counts as a user of its VM");
        self.poll_here(cx).map(|held| (held, slot))
    }

    /// Looks again while the request waits (rule 8): a request that turns out to block, or may block, goes to
    /// the VMs for such requests.
    fn look_again(&mut self, cx: &mut Context<'_>) {
        let Stage::Waiting { timer, again_ms } = &mut self.stage else { return };
        let Some(vms) = self.slot.vms.upgrade() else { return };
        let by = vms.by(self.by.tag, cx);
        let is_worse = by.standing > self.by.standing;
        if timer.poll_expired(cx).is_ready() {
            let most = if by.standing == Standing::Blocks { AGAIN_MAX_BLOCKS_MS } else { AGAIN_MAX_MS };
            debug_assert!(*again_ms >= AGAIN_MS, "each look is further away");
            *again_ms = (*again_ms * 2).min(most);
            timer.arm(vms.home.now_ms() + *again_ms);
            if timer.poll_expired(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        } else if !is_worse {
            return;
        }
        let Some(better) = vms.choose(by, Some(self)) else { return };
        if is_worse || !Arc::ptr_eq(&better.slot, &self.slot) {
            let stage = std::mem::replace(&mut self.stage, Stage::Settled);
            *self = better;
            self.stage = stage;
        }
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        let before = self.slot.users.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a request leaves the VM that it has chosen once");
        if self.by.standing == Standing::Blocks {
            let before = self.slot.blocking.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "a request that blocks was counted as one");
        }
    }
}

/// The VMs of one loop in one generation.
pub struct LoopVms {
    index: usize,
    policy: Reserves,
    own: ArcSwap<Slot>,
    reserves: ArcSwap<Vec<Arc<Slot>>>,
    habits: Habits,
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
        Arc::new_cyclic(|vms| {
            let reserves = reserves.into_iter().map(|reserve| Slot::new(reserve, home, vms)).collect();
            Self {
                index: home.index(),
                policy,
                own: ArcSwap::new(Slot::new(own, home, vms)),
                reserves: ArcSwap::from_pointee(reserves),
                habits: Habits::new(),
                building: Making::new(),
                rebuilding: Making::new(),
                line: Line::new(WAITING_MAX),
                failed_ms: AtomicU64::new(0),
                home,
                builder,
            }
        })
    }

    /// All of its VMs as of now.
    pub fn slots(&self) -> impl Iterator<Item = Arc<Slot>> {
        let reserves: Vec<_> = self.reserves.load().iter().cloned().collect();
        std::iter::once(self.own.load_full()).chain(reserves)
    }

    /// Chooses for a request that has not entered one yet, and has a reserve made where one is wanted. By a
    /// poll of this loop.
    ///
    /// # Errors
    /// [`NoVm`].
    pub fn poll_choose(self: &Arc<Self>, cx: &Context<'_>) -> Poll<Result<Chosen, NoVm>> {
        let found = self.line.poll(cx.waker(), || match self.choose(self.by(0, cx), None) {
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

    /// Has a fresh VM made (rule 7).
    #[must_use]
    pub fn begin_fresh(self: &Arc<Self>) -> Fresh {
        let (vms, made) = (Arc::clone(self), Arc::new(OnceLock::new()));
        let place = Arc::clone(&made);
        let publish = Publish::new(move |interpreter| {
            let owners = Some(AtomicU32::new(0));
            let slot = interpreter.map(|fresh| Slot::owned(fresh, vms.home, &Weak::new(), owners));
            let is_first = place.set(slot).is_ok();
            assert!(is_first, "a VM for one request is made once");
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

    /// The asker; `known`: the tag of its location, if a poll of it began away from its loop before.
    fn by(&self, known: u32, cx: &Context<'_>) -> By {
        let tag = away(self.home, cx).map_or(known, |_| tag_of(cx));
        let standing = match tag {
            0 => Standing::Good,
            tag if self.habits.has(tag, self.home.now_ms()) => Standing::Blocks,
            _ if clearway_runtime::repeats(cx) => Standing::Accused,
            _ => Standing::Good,
        };
        By { standing, tag }
    }

    /// `asker`: what waits already, and may have something better.
    fn choose(self: &Arc<Self>, by: By, asker: Option<&Chosen>) -> Option<Chosen> {
        let own = self.own.load_full();
        let state = self.state_of(&own);
        let chosen = |slot| Some(Chosen::of(slot, by, Stage::Open));
        if state == Own::Good && by.standing == Standing::Good {
            return chosen(own);
        }
        if state == Own::Poisoned {
            self.rebuild_own();
        }
        // Before the reserves: one that is ready by now is among them then.
        let is_building = self.building.is_under_way();
        let reserves = self.reserves.load();
        let mut states: Vec<Reserve> = reserves.iter().map(|slot| slot.state(&self.habits, asker)).collect();
        if is_building {
            states.push(Reserve::Building);
        }
        let decision = choice::choose(self.policy, state, by.standing, &states);
        if let Build::One { instead_of } = decision.build {
            self.build_reserve(instead_of.unwrap_or(reserves.len()));
        }
        match decision.choice {
            Choice::Reserve(index) => {
                debug_assert!(index < reserves.len(), "a reserve that is chosen is there");
                debug_assert!(states[index] != Reserve::Poisoned, "nothing is run in a poisoned VM");
                chosen(Arc::clone(&reserves[index]))
            }
            Choice::Own if state != Own::Poisoned => chosen(own),
            // It does not come.
            Choice::Later if state != Own::Poisoned && self.has_failed() => chosen(own),
            Choice::Own | Choice::Later => None,
        }
    }

    fn state_of(&self, own: &Slot) -> Own {
        if own.is_poisoned() {
            return Own::Poisoned;
        }
        match own.token().holder() {
            Some(poll) if self.home.is_away(poll) => match own.look(&self.habits).0 {
                Some(GONE_MS..) => Own::Gone,
                Some(HELD_MS..) => Own::Stuck,
                _ => Own::Held,
            },
            _ => Own::Good,
        }
    }

    /// Builds a reserve (rule 6).
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
                    assert!(index <= reserves.len(), "reserves are made one behind the other");
                    debug_assert!(vms.building.is_under_way(), "one reserve is made at a time");
                    let slot = Slot::new(interpreter, vms.home, &Arc::downgrade(&vms));
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

    /// Builds the loop's own VM anew (rule 3).
    fn rebuild_own(self: &Arc<Self>) {
        if self.has_failed() || !self.rebuilding.begin(|| self.own.load().is_poisoned()) {
            return;
        }
        let vms = Arc::clone(self);
        let publish = Publish::new(move |made| {
            match made {
                Some(interpreter) => {
                    debug_assert!(vms.own.load().is_poisoned(), "a VM that can be used stays");
                    vms.own.store(Slot::new(interpreter, vms.home, &Arc::downgrade(&vms)));
                }
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

/// The poll if it is one that may block: such a one is away from its loop before it begins.
fn away(home: LoopRef, cx: &Context<'_>) -> Option<PollId> {
    Token::poll_of(cx).filter(|poll| home.is_away(*poll))
}

/// The tag of the poll, as a number that is not 0.
fn tag_of(cx: &Context<'_>) -> u32 {
    clearway_runtime::tag_of(cx).number().max(1)
}
