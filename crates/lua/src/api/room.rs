//! The argument with which a room of functions (`api`) is installed.

use clearway_luajit::{Fault, HostFunction, Stack, Vm};

use crate::vm::state::VmState;

/// The VM that a room is installed into.
pub struct Install<'a> {
    /// A VM with LuaJIT's libraries and the table `ngx`.
    pub vm: &'a mut Vm,
    /// The state that the VM's functions find by `current`.
    pub state: &'a mut VmState,
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

/// Puts a table without fields of its own into the table on top of the stack: `index` reads its fields and
/// `new_index` writes them.
pub(super) fn put_virtual<I: HostFunction, N: HostFunction>(
    stack: &mut Stack<'_>,
    name: &str,
    index: I,
    new_index: N,
) {
    stack.push_table(0, 0);
    stack.push_table(0, 2);
    put(stack, "__index", index);
    put(stack, "__newindex", new_index);
    stack.set_metatable(-2);
    stack.raw_set_field(-2, name);
}

/// Puts a function into the table on top of the stack.
pub fn put<F: HostFunction>(stack: &mut Stack<'_>, name: &str, function: F) {
    stack.push_function(function);
    stack.raw_set_field(-2, name);
}
