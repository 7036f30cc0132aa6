//! Values of a VM that are kept from this side: by their number in its registry. One is dropped by any
//! thread, and the VM lets the value go when it is entered next.

use std::ffi::c_int;
use std::sync::Arc;

use crossbeam_queue::SegQueue;

use crate::host::Host;

/// Numbers of the registry that nobody has any more. Its address stands for the VM.
#[derive(Debug, Default)]
pub(crate) struct Released(SegQueue<c_int>);

impl Released {
    pub(crate) fn pop(&self) -> Option<c_int> {
        self.0.pop()
    }
}

/// A value of one VM: a function, a table, whatever Lua has.
#[derive(Debug)]
pub struct Reference {
    key: c_int,
    vm: Arc<Released>,
}

impl Reference {
    pub(crate) fn new(key: c_int, host: &Host) -> Self {
        Self { key, vm: Arc::clone(host.released()) }
    }

    pub(crate) fn key(&self) -> c_int {
        self.key
    }

    pub(crate) fn is_of(&self, host: &Host) -> bool {
        Arc::ptr_eq(&self.vm, host.released())
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.vm.0.push(self.key);
    }
}
