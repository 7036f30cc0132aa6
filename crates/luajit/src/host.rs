//! The server's state for one VM, at an address that does not change: LuaJIT has it as its allocator's data,
//! so every function that Lua calls finds it. Touched by the thread that holds the VM, except for `halt`.
//!
//! A VM is in one of two modes, and `in_lua` and the trampolines of `call.rs` alone change it:
//! 1. *Lua*: code of Lua or of a C module runs, below a protected call. Errors unwind; the limit of memory
//!    holds; the collector works and runs finalizers.
//! 2. *Host*: our code runs. The collector stands still, so no finalizer, which is Lua, runs inside a push,
//!    and no error of memory unwinds through our frames: what a host function makes beyond the limit is an
//!    error when it returns. If the system has no memory the process ends, as everywhere in Rust.
#![expect(unsafe_code, reason = "an allocator, a hook, fields of LuaJIT's structures")]

use std::any::TypeId;
use std::cell::{Cell, OnceCell};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::entered;
use crate::ffi::{self, Activation, Allocate, LuaState};
use crate::layout::layout;
use crate::reference::{Keeper, Reference, Released};
use crate::registry::Presence;
use crate::reply::Replies;
use crate::stack::{TOOLS, Tool};

/// A size that is never reached, so that the collector has nothing to do; LuaJIT uses the same number.
const NEVER: u64 = 1 << 47;

/// Why Lua has to end, whatever it catches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Other coroutines have their turn; this one goes on afterwards.
    Slice,
    /// The code has run for too long.
    TimeLimit,
    /// A function of the server has panicked, so the state of the VM is unknown.
    Poisoned,
}

const GO_ON: u8 = 0;
const SLICE: u8 = 1;
const TIME_LIMIT: u8 = 2;
const POISONED: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Lua,
    Host,
}

/// The server's state for one VM.
pub(crate) struct Host {
    /// LuaJIT's own allocator, which has an arena for each VM.
    inner: (Allocate, *mut c_void),
    main: *mut LuaState,
    global: *mut u8,
    memory_max: usize,
    /// Bytes beyond the limit that may be used at the moment: the collector needs some to begin.
    reserve: Cell<usize>,
    mode: Cell<Mode>,
    /// Runs inside each other.
    depth: Cell<u32>,
    /// When the collector would go on, while it stands still.
    threshold: Cell<u64>,
    /// The context of host functions: its type, and where the pointer to it is.
    context: Cell<Option<(TypeId, *mut ())>>,
    halt: AtomicU8,
    /// The thread that the outermost run has resumed: the one that a slice may end for.
    resumed: Cell<*mut LuaState>,
    /// The run that has just yielded was ended by its slice.
    sliced: Cell<bool>,
    tools: Cell<[c_int; TOOLS]>,
    released: Arc<Released>,
    /// The shelf, wherever it is in the registry; each VM has one from its beginning.
    shelf: OnceCell<Reference>,
    presence: Presence,
    replies: Replies,
    /// Room on the shelf for a value that compiled code makes.
    spare: Cell<Option<Reference>>,
    /// There is none, and code has wanted one.
    is_spare_used: Cell<bool>,
}

impl Host {
    /// Takes over a VM that was just made, in mode Host. It lives until `close`.
    ///
    /// # Safety
    /// `main` is the main thread of a VM that nobody else uses, and that `close` alone closes.
    pub(crate) unsafe fn adopt(main: *mut LuaState, memory_max: usize) -> *mut Self {
        // SAFETY: a live state; the offset is that of its pointer to what the whole VM has.
        let global = unsafe { main.byte_add(layout().state_global as usize).cast::<*mut u8>().read() };
        let mut data = ptr::null_mut();
        // SAFETY: a live state, and a place for the answer.
        let allocate = unsafe { ffi::lua_getallocf(main, &raw mut data) };
        let host = Box::into_raw(Box::new(Self {
            inner: (allocate, data),
            main,
            global,
            memory_max,
            reserve: Cell::new(0),
            mode: Cell::new(Mode::Host),
            depth: Cell::new(0),
            threshold: Cell::new(0),
            context: Cell::new(None),
            halt: AtomicU8::new(GO_ON),
            resumed: Cell::new(ptr::null_mut()),
            sliced: Cell::new(false),
            tools: Cell::new([0; TOOLS]),
            released: Arc::default(),
            shelf: OnceCell::new(),
            presence: Presence::new(global.expose_provenance()),
            replies: Replies::default(),
            spare: Cell::new(None),
            is_spare_used: Cell::new(false),
        }));
        // SAFETY: what was allocated by `inner` goes on to be; `host` lives until `close`.
        unsafe {
            ffi::lua_setallocf(main, on_allocate, host.cast());
            ffi::lua_atpanic(main, on_panic);
            (*host).stop_collector();
        }
        host
    }

    /// Closes the VM: finalizers run.
    ///
    /// # Safety
    /// `host` came from `adopt` with `main`; neither is used again.
    pub(crate) unsafe fn close(host: *mut Self, main: *mut LuaState) {
        // SAFETY: by the contract. Finalizers may call our functions, so the allocator stays ours until the
        // end, and the arena behind it, whose allocator LuaJIT made with the VM, is freed here.
        unsafe {
            (*host).leave_host();
            ffi::lua_close(main);
            let (_, arena) = (*host).inner;
            drop(Box::from_raw(host));
            ffi::lj_alloc_destroy(arena);
        }
    }

    /// The host of a VM, found by a thread of it.
    ///
    /// # Safety
    /// `state` is a live thread of a VM that `adopt` took over and that is open for `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(state: *mut LuaState) -> &'a Self {
        let mut data = ptr::null_mut();
        // SAFETY: `adopt` gave its address as the allocator's data.
        unsafe {
            ffi::lua_getallocf(state, &raw mut data);
            &*data.cast::<Self>()
        }
    }

    /// How long runs may take from now on, and after how long others have their turn.
    pub(crate) fn set_limits_ns(&self, limit_ns: u64, slice_ns: u64) {
        self.presence.set_limits_ns(limit_ns, slice_ns);
    }

    /// How much of the limit is left for the next run.
    pub(crate) fn set_limit_left_ns(&self, left_ns: u64) {
        self.presence.set_limit_left_ns(left_ns);
    }

    /// Which thread is about to be resumed; the one before.
    pub(crate) fn replace_resumed(&self, state: *mut LuaState) -> *mut LuaState {
        self.resumed.replace(state)
    }

    /// Whether the slice of the last run was over; told once.
    pub(crate) fn take_sliced(&self) -> bool {
        self.sliced.take()
    }

    /// Whether nothing is on its way to end the run; a slice's hook goes, as it has had its effect.
    fn end_slice(&self, state: *mut LuaState) -> bool {
        let ended = self.halt.compare_exchange(SLICE, GO_ON, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ended {
            // SAFETY: in the hook itself, by the thread that runs the VM: LuaJIT lets hooks change hooks.
            unsafe { ffi::lua_sethook(state, None, 0, 0) };
        }
        ended
    }

    /// Has Lua run: a protected call, which returns whatever happens.
    pub(crate) fn in_lua(&self, protected: impl FnOnce() -> c_int) -> c_int {
        assert!(self.mode.get() == Mode::Host, "our code runs");
        let depth = self.depth.replace(self.depth.get() + 1);
        let here = 0_u8;
        let mut around = ptr::null();
        if depth == 0 {
            self.end_halt();
            self.presence.enter((&raw const here).addr());
            around = entered::replace(ptr::from_ref(self).cast());
        }
        self.leave_host();
        let status = protected();
        self.enter_host();
        if depth == 0 {
            entered::replace(around);
            self.presence.leave();
        }
        self.depth.set(depth);
        status
    }

    /// Mode Host: at the beginning of what Lua calls.
    #[inline]
    pub(crate) fn enter_host(&self) {
        self.mode.set(Mode::Host);
        self.stop_collector();
    }

    /// Mode Lua: when what Lua has called is about to return to it.
    #[inline]
    pub(crate) fn leave_host(&self) {
        self.start_collector();
        self.mode.set(Mode::Lua);
    }

    #[inline]
    fn stop_collector(&self) {
        let threshold = self.field::<u64>(layout().global_gc_threshold);
        // SAFETY: `field` leads to a field of this type, which nobody else uses now.
        unsafe {
            self.threshold.set(*threshold);
            *threshold = NEVER;
        }
    }

    #[inline]
    fn start_collector(&self) {
        // SAFETY: as above.
        unsafe { *self.field::<u64>(layout().global_gc_threshold) = self.threshold.get() };
    }

    /// Bytes that the VM has in use.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        // SAFETY: as above.
        unsafe { *self.field::<usize>(layout().global_gc_total) }
    }

    /// Whether our functions have made more than the VM may have.
    #[inline]
    pub(crate) fn is_over_limit(&self) -> bool {
        self.memory() > self.memory_max
    }

    /// Does it with some memory more than the VM may have, or has: our functions are not limited.
    pub(crate) fn with_reserve<R>(&self, act: impl FnOnce() -> R) -> R {
        const RESERVE_BYTES: usize = 1 << 20;
        self.reserve.set(self.memory().saturating_sub(self.memory_max) + RESERVE_BYTES);
        let done = act();
        self.reserve.set(0);
        done
    }

    #[inline]
    fn field<T>(&self, offset: u32) -> *mut T {
        self.global.wrapping_add(offset as usize).cast()
    }

    /// Why Lua has to end, if it has to.
    pub(crate) fn halt(&self) -> Option<Halt> {
        match self.halt.load(Ordering::Relaxed) {
            GO_ON => None,
            SLICE => Some(Halt::Slice),
            TIME_LIMIT => Some(Halt::TimeLimit),
            _ => Some(Halt::Poisoned),
        }
    }

    /// Has every instruction of Lua raise an error from now on, in compiled code as well, so that nothing can
    /// catch it for good.
    ///
    /// # Safety
    /// By the thread that holds the VM, in mode Host; or in a handler of a signal that has interrupted the
    /// interpreter's own code or compiled code on that thread (rules of `interrupt.rs`).
    pub(crate) unsafe fn halt_for(&self, state: *mut LuaState, why: Halt) {
        let value = match why {
            Halt::Slice => SLICE,
            Halt::TimeLimit => TIME_LIMIT,
            Halt::Poisoned => POISONED,
        };
        self.halt.fetch_max(value, Ordering::Relaxed);
        // SAFETY: by the contract nothing that changes hooks is under way on this thread, and no other thread
        // uses the VM.
        unsafe { ffi::lua_sethook(state, Some(on_instruction), ffi::HOOK_COUNT, 1) };
    }

    /// A limit of time was that of the last run.
    fn end_halt(&self) {
        if matches!(self.halt(), Some(Halt::TimeLimit | Halt::Slice)) {
            // SAFETY: in mode Host, by the thread that holds the VM, while nothing runs.
            unsafe { ffi::lua_sethook(self.main, None, 0, 0) };
            self.halt.store(GO_ON, Ordering::Relaxed);
        }
    }

    /// The answers of functions that compiled code has called.
    pub(crate) fn replies(&self) -> &Replies {
        &self.replies
    }

    /// Whether a value was shown that code has made, and there is no room for another one.
    pub(crate) fn wants_spare(&self) -> bool {
        self.is_spare_used.get()
    }

    /// There is room for a value that compiled code makes.
    pub(crate) fn put_spare(&self, spare: Reference) {
        self.is_spare_used.set(false);
        self.replies.show_room(spare.key());
        self.spare.set(Some(spare));
    }

    /// Has compiled code put a value there, which is shown.
    pub(crate) fn take_spare(&self) -> Option<Reference> {
        let spare = self.spare.take()?;
        self.is_spare_used.set(true);
        self.replies.show_room(0);
        self.replies.show_value(spare.key());
        Some(spare)
    }

    /// Code makes values to be shown.
    pub(crate) fn want_spare(&self) {
        let spare = self.spare.take();
        self.is_spare_used.set(spare.is_none());
        self.spare.set(spare);
    }

    /// Shows a value of the shelf to compiled code, or none.
    pub(crate) fn show(&self, value: Option<&Reference>) {
        let key = value.map_or(0, |value| {
            assert!(value.is_of(self), "a value belongs to one VM for life");
            debug_assert!(value.keeper() == Keeper::Shelf, "code looks for it there");
            value.key()
        });
        self.replies.show_value(key);
    }

    pub(crate) fn main(&self) -> *mut LuaState {
        self.main
    }

    /// Where in the registry this function is.
    pub(crate) fn tool(&self, which: Tool) -> c_int {
        self.tools.get()[which as usize]
    }

    pub(crate) fn set_tools(&self, keys: [c_int; TOOLS]) {
        self.tools.set(keys);
    }

    /// The place in the registry where the shelf is.
    pub(crate) fn shelf(&self) -> &Reference {
        self.shelf.get().expect("a VM has a shelf from its beginning")
    }

    /// Says where, once.
    pub(crate) fn put_shelf(&self, place: Reference) {
        let is_first = self.shelf.set(place).is_ok();
        debug_assert!(is_first, "it stays there");
    }

    /// Values that nobody refers to any more, to be let go.
    pub(crate) fn released(&self) -> &Arc<Released> {
        &self.released
    }

    /// The context of host functions during a run; the one before it comes back.
    pub(crate) fn replace_context(&self, context: Option<(TypeId, *mut ())>) -> Option<(TypeId, *mut ())> {
        self.context.replace(context)
    }

    /// Where the pointer to the context is, if it is of this family.
    pub(crate) fn context(&self, family: TypeId) -> Option<*mut ()> {
        self.context.get().filter(|(its, _)| *its == family).map(|(_, place)| place)
    }
}

/// Allocates for a VM: mode Lua has its limit, and near it the collector has no rest.
unsafe extern "C" fn on_allocate(
    data: *mut c_void,
    block: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
) -> *mut c_void {
    // SAFETY: `adopt` gave this, and it lives as long as the VM.
    let host = unsafe { &*data.cast::<Host>() };
    if new_bytes > old_bytes && host.memory_max != usize::MAX && host.mode.get() == Mode::Lua {
        let total = host.memory().saturating_add(new_bytes - old_bytes);
        if total > host.memory_max.saturating_add(host.reserve.get()) {
            return ptr::null_mut();
        }
        if total > host.memory_max / 4 * 3 {
            let threshold = host.field::<u64>(layout().global_gc_threshold);
            // SAFETY: the field's type; finalizers run with the collector stopped, and it stays so.
            unsafe {
                if *threshold < NEVER {
                    *threshold = (*threshold).min(host.memory() as u64);
                }
            }
        }
    }
    // SAFETY: the arguments are LuaJIT's, and so is the allocator.
    unsafe { host.inner.0(host.inner.1, block, old_bytes, new_bytes) }
}

/// No protected call is there: the system has no memory for us.
unsafe extern "C-unwind" fn on_panic(_: *mut LuaState) -> c_int {
    std::process::abort()
}

/// Raises what a halt says, with its place, or yields. This frame owns nothing, as errors unwind through it.
unsafe extern "C-unwind" fn on_instruction(state: *mut LuaState, _: *mut Activation) {
    // SAFETY: LuaJIT calls this for a VM of ours, in mode Lua.
    let host = unsafe { Host::of(state) };
    let Some(why) = host.halt() else { return };
    let text: &[u8] = match why {
        Halt::Slice => {
            // SAFETY: as above; the thread runs.
            let may_yield = host.resumed.get() == state && unsafe { ffi::lua_isyieldable(state) } == 1;
            if host.end_slice(state) && may_yield {
                host.sliced.set(true);
                // SAFETY: from a hook, without values, where the thread can: this unwinds a frame that owns
                // nothing.
                unsafe { ffi::lua_yield(state, 0) };
            }
            // Elsewhere (in a sort, in a thread of the user's own) it goes on until the next sample.
            return;
        }
        Halt::TimeLimit => b"has run for too long (lua_max_run_time)",
        Halt::Poisoned => b"the server's function has panicked",
    };
    // SAFETY: a hook has twenty free slots; errors may unwind from here.
    unsafe {
        ffi::luaL_where(state, 0);
        ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state);
    }
}
