//! The functions that Lua finds in `ngx`. Each file below is a *room*: a function that installs what it has
//! in a new VM, before any code of the configuration runs. Runs where VMs are made: a pool.
//!
//! To write one: a function item `fn(&mut Call) -> Result<Returns, Raise>` reads its arguments from
//! `call.stack` (slot 1 on), pushes what it answers and says how many values that are. What it is called
//! for, it gets by `current`. Host functions answer `nil, err`; they raise for wrong arguments only.

pub mod arguments;
pub mod encoding;
pub mod regex;
pub mod shared;
#[cfg(test)]
pub(crate) mod testing;
pub mod time;

use clearway_luajit::{Fault, HostFunction, Stack, Vm};

use crate::vm::state::VmState;

/// What a room is installed into.
pub struct Install<'a> {
    /// A VM with LuaJIT's libraries and the table `ngx`.
    pub vm: &'a mut Vm,
    /// What the VM's functions find by `current`.
    pub state: &'a mut VmState,
}

/// Installs what a room has.
pub type Room = fn(&mut Install<'_>) -> Result<(), Fault>;

/// All rooms, in this order.
const ROOMS: &[Room] = &[encoding::install, regex::install, shared::install, time::install];

/// Makes `ngx` and everything in it.
///
/// # Errors
/// What a chunk of the server's own Lua raised.
pub fn install(vm: &mut Vm, state: &mut VmState) -> Result<(), Fault> {
    {
        let mut stack = vm.enter();
        stack.push_globals();
        stack.push_table(0, 128);
        stack.raw_set_field(-2, "ngx");
        stack.pop(1);
    }
    let mut install = Install { vm, state };
    ROOMS.iter().try_for_each(|room| room(&mut install))
}

impl Install<'_> {
    /// Has `work` put fields into a table of `ngx`, which is on top of the stack: `path` is the name within
    /// it, such as `re`, or empty for `ngx` itself. A table that is missing is made.
    pub fn table(&mut self, path: &str, work: impl FnOnce(&mut Stack<'_>)) {
        let mut stack = self.vm.enter();
        stack.push_globals();
        stack.raw_field(-1, "ngx");
        if !path.is_empty() {
            stack.raw_field(-1, path);
            if stack.get(-1) == clearway_luajit::Value::Nil {
                stack.pop(1);
                stack.push_table(0, 8);
                stack.push_slot(-1);
                stack.raw_set_field(-3, path);
            }
        }
        work(&mut stack);
        let len = stack.len();
        stack.pop(len);
    }

    /// Runs a chunk of the server's own Lua, which sees the globals; `chunk` is what errors name, such as
    /// `=ngx.re`.
    ///
    /// # Errors
    /// What is wrong with it, or what it raised.
    pub fn run(&mut self, code: &str, chunk: &std::ffi::CStr) -> Result<(), Fault> {
        let function = self.vm.load(code.as_bytes(), chunk)?;
        let mut stack = self.vm.enter();
        stack.push(&function);
        stack.call(0, Some(0)).map(|_| ())
    }
}

/// Puts a function into the table on top of the stack.
pub fn put<F: HostFunction>(stack: &mut Stack<'_>, name: &str, function: F) {
    stack.push_function(function);
    stack.raw_set_field(-2, name);
}

#[cfg(test)]
mod tests {
    use clearway_luajit::{Returns, Value};

    use super::*;

    #[test]
    fn a_room_puts_functions_into_tables_of_ngx() {
        let mut vm = Vm::new(None).unwrap();
        let mut state = VmState::default();
        install(&mut vm, &mut state).unwrap();
        let mut install = Install { vm: &mut vm, state: &mut state };
        install.table("re", |stack| {
            put(stack, "twice", |call| {
                let number = call.number(1)?;
                call.stack.push(number * 2.0);
                Ok(Returns::Values(1))
            });
        });
        install.run("ngx.answer = ngx.re.twice(21)", c"=test").unwrap();
        install.table("", |stack| {
            stack.raw_field(-1, "answer");
            assert_eq!(stack.get(-1), Value::Number(42.0));
        });
    }

    #[test]
    fn what_needs_a_run_says_so_where_there_is_none() {
        let mut vm = Vm::new(None).unwrap();
        let mut state = VmState::default();
        install(&mut vm, &mut state).unwrap();
        let mut install = Install { vm: &mut vm, state: &mut state };
        install.table("", |stack| {
            put(stack, "phase", |call| {
                let phase = crate::current::current(call, |current| current.phase)?;
                call.stack.push(phase.name());
                Ok(Returns::Values(1))
            });
        });
        let fault = install.run("ngx.phase()", c"=test").unwrap_err();
        assert!(fault.to_string().ends_with("no request found"), "{fault}");
    }
}
