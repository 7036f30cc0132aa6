//! Functions of ours that Lua calls. Each has a trampoline, in three parts: what is called for is set up;
//! the function, which is safe Rust, runs in mode Host with its panics caught; then, in a frame that owns
//! nothing, what it said is done: values are returned, an error is raised, the thread yields. Errors of Lua
//! unwind through the last part only.
//!
//! A panic poisons the VM: from then on each instruction of Lua raises an error, so that nothing catches it.
#![expect(unsafe_code, reason = "functions that Lua calls")]

use std::any::TypeId;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use crate::ffi::{self, LuaState};
use crate::host::{Halt, Host};
use crate::stack::{Push, Stack};
use crate::value::Value;

/// Slots that a function of ours has beside its arguments, or gets when it pushes so much; for more it asks
/// ([`Stack::reserve`]).
pub const SLOTS: i32 = 64;

/// The context of functions during a run: a request, a timer. The type that implements it names the value
/// that they get.
pub trait Context: 'static {
    /// The type for the length of one run.
    type Of<'a>: ?Sized;
}

/// Nothing.
pub struct NoContext;

impl Context for NoContext {
    type Of<'a> = ();
}

/// The results of a function of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// The topmost values.
    Values(i32),
    /// The thread is to yield with the topmost values, and returns what it is resumed with. Where it cannot
    /// (below a metamethod or a C function) this is an error.
    Yield(i32),
}

/// An error of a function of ours: its text is on top of the stack.
#[derive(Debug)]
#[must_use = "it is to be returned"]
pub struct Raise(Objection);

#[derive(Clone, Copy, Debug)]
enum Objection {
    Value,
    Argument(i32),
}

/// A function of ours: a function item or a closure that captures nothing.
pub trait HostFunction: Fn(&mut Call<'_>) -> Result<Returns, Raise> + Copy + 'static {}

impl<F: Fn(&mut Call<'_>) -> Result<Returns, Raise> + Copy + 'static> HostFunction for F {}

/// One call of a function of ours.
pub struct Call<'vm> {
    /// The arguments, from slot 1 on.
    pub stack: Stack<'vm>,
    arguments: i32,
    /// How many calls above this one the place is that errors name.
    level: i32,
}

impl Call<'_> {
    /// How many arguments there are.
    #[must_use]
    pub fn arguments(&self) -> i32 {
        self.arguments
    }

    /// Calls a function with the context of the run, if it is of this kind.
    pub fn with_context<C: Context, R>(
        &mut self,
        work: impl for<'a> FnOnce(&mut C::Of<'a>) -> R,
    ) -> Option<R> {
        let place = self.stack.host().context(TypeId::of::<C>())?;
        // SAFETY: `Vm::resume_for` put the address of a pointer of this type here, and borrows what that
        // points to until the run is over; `work` takes it for any lifetime. Nobody else has it: it is
        // reached by a `Call` alone, which is borrowed, so no other call of the run is under way beneath.
        let context: &mut C::Of<'_> = unsafe { &mut **place.cast::<*mut C::Of<'_>>() };
        Some(work(context))
    }

    /// Errors name the place where the function was called that has called this one, which is Lua of the
    /// server's own.
    pub fn speak_for_caller(&mut self) {
        self.level = 2;
    }

    /// An error with this text, behind the place where this function was called.
    pub fn raise(&mut self, text: impl Push) -> Raise {
        self.stack.reserve(2);
        let state = self.stack.state();
        // SAFETY: room; in mode Host no error is raised.
        unsafe { ffi::luaL_where(state, self.level) };
        self.stack.push(text);
        // SAFETY: two texts are there.
        unsafe { ffi::lua_concat(state, 2) };
        Raise(Objection::Value)
    }

    /// An error that is the topmost value.
    pub fn raise_value(&mut self) -> Raise {
        Raise(Objection::Value)
    }

    /// `bad argument #1 to 'name' (text)`.
    pub fn bad_argument(&mut self, argument: i32, text: impl Push) -> Raise {
        self.stack.push(text);
        Raise(Objection::Argument(argument))
    }

    /// A bad argument: `string expected, got nil`.
    pub fn expected(&mut self, argument: i32, what: &str) -> Raise {
        let got = if argument > self.arguments { "no value" } else { self.stack.get(argument).type_name() };
        self.bad_argument(argument, &*format!("{what} expected, got {got}"))
    }

    /// An argument that is a number, or text that is one.
    ///
    /// # Errors
    /// A bad argument.
    pub fn number(&mut self, argument: i32) -> Result<f64, Raise> {
        match self.stack.number(argument) {
            Some(number) => Ok(number),
            None => Err(self.expected(argument, "number")),
        }
    }

    /// An argument that is a text, or a number in its place.
    ///
    /// # Errors
    /// A bad argument.
    pub fn text(&mut self, argument: i32) -> Result<&[u8], Raise> {
        if self.stack.text(argument).is_none() {
            return Err(self.expected(argument, "string"));
        }
        let Value::Text(text) = self.stack.get(argument) else { unreachable!("made one just now") };
        Ok(text)
    }

    /// Which thread of Lua this is called by: the same number for as long as it lives.
    #[must_use]
    pub fn thread(&self) -> usize {
        self.stack.state().addr()
    }

    /// Whether the thread can yield where it is: not below a metamethod or a C function.
    #[must_use]
    pub fn may_yield(&self) -> bool {
        // SAFETY: the thread runs.
        unsafe { ffi::lua_isyieldable(self.stack.state()) == 1 }
    }
}

/// The exit of a function of ours. It owns nothing.
#[derive(Clone, Copy)]
enum Exit {
    Returns(Returns),
    Value,
    Argument(i32),
    Memory,
    Overflow,
    Panicked,
}

/// The function of C's kind that calls this one.
pub(crate) fn trampoline_of<F: HostFunction>(_: F) -> ffi::Function {
    const { assert!(size_of::<F>() == 0, "a function of ours captures nothing") };
    trampoline::<F>
}

unsafe extern "C-unwind" fn trampoline<F: HostFunction>(state: *mut LuaState) -> c_int {
    // SAFETY: `trampoline_of` was given a value of this type, which has no bytes and is `Copy`.
    let function = unsafe { NonNull::<F>::dangling().read() };
    // SAFETY: Lua calls this, in mode Lua, in a VM that `Host` has taken over.
    let exit = unsafe { run(state, function) };
    // SAFETY: mode Lua again; what the function has left is on the stack.
    unsafe { leave(state, exit) }
}

/// The second part.
///
/// # Safety
/// Called by Lua, in mode Lua, with the function's arguments on the stack.
#[inline]
unsafe fn run(state: *mut LuaState, function: impl HostFunction) -> Exit {
    // SAFETY: the VM is open for as long as its code runs.
    let host = unsafe { Host::of(state) };
    host.enter_host();
    // SAFETY: `state` runs, on this thread, and everything above waits for this call.
    let mut stack = unsafe { Stack::new(state, host) };
    let exit = if stack.can_have(SLOTS) { call(stack, function) } else { Exit::Overflow };
    let exit = match exit {
        Exit::Returns(_) if host.is_over_limit() => Exit::Memory,
        other => other,
    };
    host.leave_host();
    exit
}

/// In mode Host.
#[inline]
fn call(stack: Stack<'_>, function: impl HostFunction) -> Exit {
    let (state, host, arguments) = (stack.state(), stack.host(), stack.len());
    let mut call = Call { stack, arguments, level: 1 };
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let answer = function(&mut call);
        // SAFETY: the thread that this was called by. The function may have put another stack into its call.
        let mut stack = unsafe { Stack::new(state, host) };
        match &answer {
            Ok(Returns::Values(count) | Returns::Yield(count)) => {
                assert!((0..=stack.len()).contains(count), "{count} of {} values", stack.len());
            }
            // It may have taken the text away again.
            Err(Raise(_)) if stack.is_empty() => stack.push(()),
            Err(Raise(_)) => {}
        }
        answer
    }));
    match answer {
        Ok(Ok(returns)) => Exit::Returns(returns),
        Ok(Err(Raise(Objection::Value))) => Exit::Value,
        Ok(Err(Raise(Objection::Argument(argument)))) => Exit::Argument(argument),
        Err(thrown) => {
            // To drop what was thrown may panic as well.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
                let _kept = ManuallyDrop::new(again);
            }
            // SAFETY: in mode Host, by the thread that holds the VM.
            unsafe { host.halt_for(state, Halt::Poisoned) };
            Exit::Panicked
        }
    }
}

/// The third part: its frame owns nothing, as an error may unwind through it.
///
/// # Safety
/// As of `run`, after it.
unsafe fn leave(state: *mut LuaState, exit: Exit) -> c_int {
    let say = |text: &'static [u8]| {
        // SAFETY: a function of Lua's has twenty free slots, or its values are not needed any more.
        unsafe {
            ffi::lua_settop(state, 0);
            ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
        }
    };
    match exit {
        Exit::Returns(Returns::Values(count)) => return count,
        // SAFETY: as many values are there.
        Exit::Returns(Returns::Yield(count)) => return unsafe { ffi::lua_yield(state, count) },
        Exit::Argument(argument) => {
            // SAFETY: an error unwinds from here; the text stays on the stack until it is copied.
            unsafe {
                let text = ffi::lua_tolstring(state, -1, ptr::null_mut());
                let text = if text.is_null() { c"invalid".as_ptr() } else { text };
                return ffi::luaL_argerror(state, argument, text);
            }
        }
        Exit::Value => {}
        Exit::Memory => say(b"not enough memory"),
        Exit::Overflow => say(b"stack overflow"),
        Exit::Panicked => say(b"the server's function has panicked"),
    }
    // SAFETY: a value is there; the error unwinds from here.
    unsafe { ffi::lua_error(state) }
}
