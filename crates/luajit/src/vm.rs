//! One VM: LuaJIT with its libraries, handlers that are compiled once, and coroutines that are used again.
//! The holder of its token may use it, on any thread.
#![expect(unsafe_code, reason = "a VM is made, run and closed")]

use std::any::TypeId;
use std::ffi::{CStr, c_int};
use std::ptr;
use std::time::Duration;

use clearway_os::clock;

use crate::call::{Context, NoContext};
use crate::fault::{Fault, FaultKind};
use crate::ffi::{self, LuaState};
use crate::host::{Halt, Host};
use crate::reference::{Keeper, Reference};
use crate::stack::Stack;
use crate::value::Value;

/// Coroutines without work that a VM keeps.
pub const IDLE_MAX: usize = 1024;

const NS_PER_US: u64 = 1000;

/// Limits of the compiler: a server has much code, which runs for long (OpenResty's figures).
const COMPILER: &[u8] = b"jit.opt.start('maxtrace=8000', 'maxrecord=16000', 'minstitch=3', 'maxmcode=40960')";

/// LuaJIT has no memory for a VM, or no random numbers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVm;

/// One VM.
pub struct Vm {
    host: *mut Host,
    main: *mut LuaState,
    idle: Vec<Coroutine>,
    idle_max: usize,
    /// The limits of a run and of a slice, nanoseconds.
    limits_ns: (u64, u64),
}

fn in_ns(limit: Option<Duration>) -> u64 {
    limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX))
}

// SAFETY: LuaJIT has no thread that it belongs to; the sole owner of this uses it.
unsafe impl Send for Vm {}

/// A thread of Lua. It belongs to one VM, and nothing but that VM can use it.
#[derive(Debug)]
pub struct Coroutine {
    state: *mut LuaState,
    anchor: Reference,
    phase: Phase,
    /// How long it has run since it began or yielded by itself, as far as slices of it have ended,
    /// microseconds: up to an hour, as there may be tens of thousands of these.
    ran_us: u32,
}

impl Coroutine {
    /// A coroutine that will run the function on its stack, with the arguments above it.
    pub(crate) fn ready(state: *mut LuaState, anchor: Reference) -> Self {
        Self { state, anchor, phase: Phase::Ready, ran_us: 0 }
    }

    pub(crate) fn state(&self) -> *mut LuaState {
        self.state
    }

    pub(crate) fn anchor(&self) -> &Reference {
        &self.anchor
    }

    /// Tells it from other threads of its VM for as long as it lives ([`crate::Call::thread`]).
    #[must_use]
    pub fn id(&self) -> usize {
        self.state.addr()
    }
}

// SAFETY: what the pointer leads to is touched only by the holder of the VM.
unsafe impl Send for Coroutine {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its stack has a function and that function's arguments.
    Ready,
    /// The coroutine has yielded: its stack has the values that the yield is to return.
    Suspended,
    /// Its function is over: its stack has the results.
    Finished,
    /// The coroutine has raised an error and cannot be resumed.
    Dead,
}

/// The result of resuming a coroutine.
#[derive(Debug)]
pub enum Resumed {
    /// The coroutine is over, and so many results are on its stack.
    Finished(i32),
    /// The coroutine has yielded so many values, which are on its stack; they have to be removed before it is
    /// resumed.
    Yielded(i32),
    /// The coroutine has failed with this error.
    Failed(Fault),
}

impl Vm {
    /// A VM with all of LuaJIT's libraries.
    ///
    /// `memory_max` is in bytes: code of Lua that wants more gets an error.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(memory_max: Option<usize>) -> Result<Self, NoVm> {
        // SAFETY: it asks for nothing.
        let main = unsafe { ffi::luaL_newstate() };
        if main.is_null() {
            return Err(NoVm);
        }
        // SAFETY: a new VM, which nobody else has, and in which nothing runs yet.
        let host = unsafe {
            let host = Host::adopt(main, memory_max.unwrap_or(usize::MAX));
            ffi::luaL_openlibs(main);
            host
        };
        let limits_ns = (u64::MAX, u64::MAX);
        let mut vm = Self { host, main, idle: Vec::new(), idle_max: IDLE_MAX, limits_ns };
        let mut stack = vm.enter();
        stack.install_tools();
        stack.put_shelf();
        let compiler = vm.load(COMPILER, c"=compiler");
        let set = compiler.and_then(|compiler| {
            let mut stack = vm.enter();
            stack.push(&compiler);
            stack.call(0, Some(0))
        });
        debug_assert!(set.is_ok(), "{set:?}");
        Ok(vm)
    }

    fn host(&self) -> &Host {
        // SAFETY: it lives as long as this.
        unsafe { &*self.host }
    }

    /// The stack of the main thread.
    pub fn enter(&mut self) -> Stack<'_> {
        self.let_go();
        // SAFETY: the main thread lives as long as the VM, which is borrowed.
        unsafe { Stack::new(self.main, self.host()) }
    }

    /// Lets the values go that nobody refers to any more.
    fn let_go(&mut self) {
        while let Some((keeper, key)) = self.host().released().pop() {
            // SAFETY: in mode Host; the number was made by `luaL_ref` and nobody has it any more. The main
            // thread has room for a few values always.
            unsafe {
                match keeper {
                    Keeper::Registry => ffi::luaL_unref(self.main, ffi::REGISTRY, key),
                    Keeper::Shelf => {
                        ffi::lua_rawgeti(self.main, ffi::REGISTRY, self.host().shelf().key());
                        ffi::luaL_unref(self.main, -1, key);
                        ffi::lua_settop(self.main, -2);
                    }
                }
            }
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.host().memory()
    }

    /// How long runs may take from the next one on; whether one has taken longer is found out by what samples
    /// its thread ([`crate::samples`]). `limit`: from its beginning until it is over or yields by itself;
    /// code that takes longer gets an error. `slice`: code that has run for so long yields no values
    /// ([`Resumed::Yielded`]) and goes on when it is resumed. `None`: as long as it does.
    pub fn limit_runs(&mut self, limit: Option<Duration>, slice: Option<Duration>) {
        self.limits_ns = (in_ns(limit), in_ns(slice));
        self.host().set_limits_ns(self.limits_ns.0, self.limits_ns.1);
    }

    /// Whether one of our functions has panicked in it: nothing is run any more.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.host().halt() == Some(Halt::Poisoned)
    }

    /// Compiles a handler: a function without arguments, which LuaJIT's compiler takes as a whole, whose
    /// lines are numbered as in `code`. Bytecode is taken as it is. `chunk` is what errors name: `=name`,
    /// `@path`.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn load(&mut self, code: &[u8], chunk: &CStr) -> Result<Reference, Fault> {
        const BYTECODE: u8 = 0x1b;
        let is_bytecode = code.first() == Some(&BYTECODE);
        let (text, mode);
        let whole = if is_bytecode {
            mode = c"b";
            code
        } else {
            mode = c"t";
            text = [b"return function() ".as_slice(), code, b"\nend"].concat();
            &text
        };
        let mut stack = self.enter();
        if let Err(fault) = load_into(&mut stack, whole, chunk, mode) {
            // What is wrong is said of the code as it is written.
            return Err(match load_into(&mut stack, code, chunk, mode) {
                Err(of_code) if fault.kind() == FaultKind::Syntax => of_code,
                Ok(()) | Err(_) => fault,
            });
        }
        if !is_bytecode {
            stack.call(0, Some(1))?;
            if stack.get(-1) != Value::Function {
                stack.pop(1);
                let text = b"the code ends more than it begins".to_vec();
                return Err(Fault::new(ffi::ERROR_SYNTAX, None, text));
            }
        }
        Ok(stack.take_reference())
    }

    /// A coroutine that will run this function, to which arguments may be pushed ([`Vm::stack`]).
    pub fn start(&mut self, function: &Reference) -> Coroutine {
        self.let_go();
        let mut coroutine = self.idle.pop().unwrap_or_else(|| self.new_coroutine());
        self.stack(&coroutine).push(function);
        (coroutine.phase, coroutine.ran_us) = (Phase::Ready, 0);
        coroutine
    }

    /// Whether there is a coroutine that [`Vm::start`] uses again.
    #[must_use]
    pub fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    fn new_coroutine(&mut self) -> Coroutine {
        let mut stack = self.enter();
        stack.reserve(1);
        // SAFETY: room for one; in mode Host no error is raised. The reference keeps it.
        let state = unsafe { ffi::lua_newthread(stack.state()) };
        let anchor = stack.take_reference();
        Coroutine { state, anchor, phase: Phase::Finished, ran_us: 0 }
    }

    /// The stack of a coroutine that does not run: arguments before it is resumed, results afterwards.
    ///
    /// # Panics
    /// If it is another VM's.
    pub fn stack(&mut self, coroutine: &Coroutine) -> Stack<'_> {
        assert!(coroutine.anchor.is_of(self.host()), "a coroutine belongs to one VM for life");
        // SAFETY: the reference keeps it, and the VM is borrowed.
        unsafe { Stack::new(coroutine.state, self.host()) }
    }

    /// Resumes a coroutine with what is on its stack. Functions of ours have no context.
    ///
    /// # Panics
    /// If it is over, or another VM's.
    pub fn resume(&mut self, coroutine: &mut Coroutine) -> Resumed {
        self.resume_for::<NoContext>(coroutine, &mut ())
    }

    /// Resumes a coroutine with what is on its stack, for something that functions of ours can get at.
    ///
    /// # Panics
    /// If it is over, or another VM's.
    pub fn resume_for<C: Context>(&mut self, coroutine: &mut Coroutine, context: &mut C::Of<'_>) -> Resumed {
        let len = self.stack(coroutine).len();
        let values = match coroutine.phase {
            Phase::Ready => len - 1,
            Phase::Suspended => len,
            Phase::Finished | Phase::Dead => panic!("a coroutine that is over is not resumed"),
        };
        assert!(values >= 0, "its function is on its stack");
        if self.is_poisoned() {
            coroutine.phase = Phase::Dead;
            return Resumed::Failed(poisoned());
        }
        let state = coroutine.state;
        let mut place: *mut C::Of<'_> = context;
        let host = self.host();
        let before = host.replace_context(Some((TypeId::of::<C>(), (&raw mut place).cast())));
        let (limit_ns, slice_ns) = self.limits_ns;
        let is_sliced = slice_ns != u64::MAX;
        let began_ns = if is_sliced { clock::monotonic_ns() } else { 0 };
        if is_sliced && limit_ns != u64::MAX {
            host.set_limit_left_ns(limit_ns.saturating_sub(u64::from(coroutine.ran_us) * NS_PER_US));
        }
        let above = host.replace_resumed(if is_sliced { state } else { ptr::null_mut() });
        // SAFETY: a coroutine that is not over, with as many values on its stack.
        let status = host.in_lua(|| unsafe { ffi::lua_resume(state, values) });
        host.replace_resumed(above);
        host.replace_context(before);
        if is_sliced {
            let took_us = clock::monotonic_ns().saturating_sub(began_ns) / NS_PER_US;
            let took_us = u32::try_from(took_us).unwrap_or(u32::MAX);
            coroutine.ran_us = if host.take_sliced() { coroutine.ran_us.saturating_add(took_us) } else { 0 };
        }
        self.what_came(coroutine, status)
    }

    fn what_came(&mut self, coroutine: &mut Coroutine, status: c_int) -> Resumed {
        let is_poisoned = self.is_poisoned();
        let mut stack = self.stack(coroutine);
        let (phase, resumed) = match status {
            ffi::OK if !is_poisoned => (Phase::Finished, Resumed::Finished(stack.len())),
            ffi::YIELDED if !is_poisoned => (Phase::Suspended, Resumed::Yielded(stack.len())),
            ffi::OK | ffi::YIELDED => (Phase::Dead, Resumed::Failed(poisoned())),
            error => {
                let fault = stack.fault(error);
                stack.keep_raised();
                let traceback = self.enter().traceback_of(coroutine.state, 0);
                (Phase::Dead, Resumed::Failed(fault.with_traceback(traceback)))
            }
        };
        coroutine.phase = phase;
        resumed
    }

    /// Keeps a coroutine whose function is over for the next one; others are dropped. Whether it is kept.
    pub fn give_back(&mut self, coroutine: Coroutine) -> bool {
        let is_kept = coroutine.phase == Phase::Finished && self.idle.len() < self.idle_max;
        if is_kept {
            let mut stack = self.stack(&coroutine);
            let len = stack.len();
            stack.pop(len);
            self.idle.push(coroutine);
        }
        is_kept
    }

    /// How many coroutines are kept for the next runs.
    pub fn keep_idle(&mut self, most: usize) {
        self.idle_max = most;
    }

    /// Gives the VM up: no code runs in it any more.
    pub fn give_up(&mut self) {
        let main = self.main;
        // SAFETY: in mode Host, by the holder of the VM.
        unsafe { self.host().halt_for(main, Halt::Poisoned) };
    }

    /// Collects all garbage now: takes as long as that takes.
    pub fn collect(&mut self) {
        let stack = self.enter();
        let state = stack.state();
        let host = stack.host();
        // SAFETY: a protected call: near the limit of memory the collector itself may find none. What it left
        // undone it does next time.
        host.with_reserve(|| host.in_lua(|| unsafe { ffi::lua_cpcall(state, collect_all, ptr::null_mut()) }));
        let len = self.enter().len();
        self.enter().pop(len);
    }

    /// As [`Stack::show`]; where code has made values to be shown before, it finds room for another one.
    ///
    /// # Panics
    /// If it is another VM's.
    pub fn show(&mut self, value: Option<&Reference>) {
        if self.host().wants_spare() {
            let mut stack = self.enter();
            stack.push(true);
            let spare = stack.take_shelved();
            stack.host().put_spare(spare);
        }
        self.host().show(value);
    }

    /// Where a coroutine is, as `debug.traceback` writes it.
    ///
    /// # Panics
    /// If it is another VM's.
    pub fn traceback(&mut self, coroutine: &Coroutine) -> Vec<u8> {
        let of = self.stack(coroutine).state();
        self.enter().traceback_of(of, 0)
    }
}

/// Compiles code into a function, which is left on the stack.
fn load_into(stack: &mut Stack<'_>, code: &[u8], chunk: &CStr, mode: &CStr) -> Result<(), Fault> {
    stack.reserve(1);
    let state = stack.state();
    let status = stack.host().in_lua(|| {
        // SAFETY: a protected call by itself; bytes and names live until it is over; room for one value.
        unsafe {
            let bytes = code.as_ptr().cast();
            ffi::luaL_loadbufferx(state, bytes, code.len(), chunk.as_ptr(), mode.as_ptr())
        }
    });
    if status == ffi::OK { Ok(()) } else { Err(stack.take_fault(status)) }
}

/// Its frame owns nothing, as an error may unwind through it.
unsafe extern "C-unwind" fn collect_all(state: *mut LuaState) -> c_int {
    // SAFETY: LuaJIT calls this with a thread of its VM, in mode Lua.
    unsafe { ffi::lua_gc(state, ffi::COLLECT, 0) };
    0
}

fn poisoned() -> Fault {
    let text = b"a function of the server has panicked in this VM".to_vec();
    let fault = Fault::new(ffi::OK, Some(Halt::Poisoned), text);
    debug_assert!(fault.kind() == FaultKind::Poisoned);
    fault
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.idle.clear();
        // SAFETY: `adopt` gave one for the other, and nobody uses them any more. Coroutines and references
        // that are still there are numbers without a VM, which nothing takes.
        unsafe { Host::close(self.host, self.main) };
    }
}

impl std::fmt::Debug for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vm").field("memory", &self.memory()).finish_non_exhaustive()
    }
}
