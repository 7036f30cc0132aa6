//! Which VM's code a thread runs: for functions that C's side calls without a VM in hand.

use std::cell::Cell;
use std::ptr;

thread_local! {
    static ENTERED: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// The address of the VM's host from now on; the one before, for the end of the run.
pub(crate) fn replace(host: *const ()) -> *const () {
    ENTERED.replace(host)
}

/// The address of the host whose code runs on this thread, or null.
pub(crate) fn current() -> *const () {
    ENTERED.get()
}
