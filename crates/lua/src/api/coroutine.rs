//! `coroutine`, as code that may wait for the server needs it: what the server waits for suspends all threads
//! down to the entry thread, what the user yields goes to the one that has resumed it.

use clearway_luajit::Fault;

use super::room::Install;
use crate::current::MARK;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        stack.push(MARK);
        stack.raw_set_field(-2, "_mark");
    });
    install.run(include_str!("coroutine.lua"), c"=coroutine")
}
