//! Values of a VM that are kept from this side: by their number in its registry, or on its shelf. One is
//! dropped by any thread, and the VM lets the value go when it is entered next.
//!
//! The shelf is a table of its own, which code can number values in as well: lua-resty-core does with those
//! of `ngx.ctx`, by the rules of `luaL_ref`. It is a field of the registry ([`SHELF`]).

use std::ffi::c_int;
use std::sync::Arc;

use crossbeam_queue::SegQueue;

use crate::host::Host;
use crate::stack::Stack;

/// The name of the shelf in the registry, which is upstream's.
pub(crate) const SHELF: &str = "ngx_lua_ctx_tables";

/// The table that has the number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    Registry,
    Shelf,
}

/// Numbers that nobody has any more. Its address stands for the VM.
#[derive(Debug, Default)]
pub(crate) struct Released(SegQueue<(Keeper, c_int)>);

impl Released {
    pub(crate) fn pop(&self) -> Option<(Keeper, c_int)> {
        self.0.pop()
    }
}

/// A value of one VM: a function, a table, whatever Lua has.
#[derive(Debug)]
pub struct Reference {
    keeper: Keeper,
    key: c_int,
    vm: Arc<Released>,
}

impl Reference {
    pub(crate) fn new(keeper: Keeper, key: c_int, host: &Host) -> Self {
        Self { keeper, key, vm: Arc::clone(host.released()) }
    }

    pub(crate) fn keeper(&self) -> Keeper {
        self.keeper
    }

    pub(crate) fn key(&self) -> c_int {
        self.key
    }

    /// The number that code knows the value by, of one that is on the shelf.
    #[must_use]
    pub fn number(&self) -> i32 {
        debug_assert!(self.keeper == Keeper::Shelf, "numbers of the registry are nobody's business");
        self.key
    }

    pub(crate) fn is_of(&self, host: &Host) -> bool {
        Arc::ptr_eq(&self.vm, host.released())
    }
}

impl Stack<'_> {
    /// Takes the topmost value away and keeps it on the shelf.
    pub fn take_shelved(&mut self) -> Reference {
        self.push_shelf();
        self.take_onto_shelf()
    }

    /// Makes the shelf of a new VM.
    pub(crate) fn put_shelf(&mut self) {
        self.push_table(0, 0);
        self.push_slot(-1);
        let place = self.take_reference();
        self.host().put_shelf(place);
        self.set_shelf();
    }

    /// Pushes the table that is the shelf.
    pub(crate) fn push_shelf(&mut self) {
        self.push(self.host().shelf());
    }

    /// Has the table on top, which goes, be the shelf from now on: it has what is on the shelf already.
    pub fn set_shelf(&mut self) {
        let place = self.host().shelf().key();
        self.push_registry();
        self.push_slot(-2);
        self.raw_set_field(-2, SHELF);
        self.push_slot(-2);
        self.raw_set_item(-2, place);
        self.pop(2);
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.vm.0.push((self.keeper, self.key));
    }
}
