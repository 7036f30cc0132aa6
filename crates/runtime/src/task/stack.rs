//! A queue into a loop from any thread: an intrusive stack that is taken whole and turned around,
//! so that it is FIFO. Pushing is one compare-and-swap, looking is one load, no allocation.
#![expect(unsafe_code, reason = "an intrusive list of pointers")]

use std::ptr::{self, NonNull};

use crate::sync::{AtomicPtr, Ordering};

/// An entry of a [`Stack`].
///
/// # Safety
/// `link` always returns the same field, and nothing else uses it while the node is in a stack.
pub(crate) unsafe trait Linked: Sized {
    fn link(&self) -> &AtomicPtr<Self>;
}

/// The stack. It owns what it holds in the sense of its users: pushing gives a reference away,
/// taking gets it back.
#[derive(Debug)]
pub(crate) struct Stack<T> {
    head: AtomicPtr<T>,
}

impl<T: Linked> Stack<T> {
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Rule 6 of word.rs pairs this look with a fence on each side.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Adds `node`.
    ///
    /// # Safety
    /// `node` is valid until it is taken, and is in no stack now.
    pub(crate) unsafe fn push(&self, node: NonNull<T>) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: `node` is valid by contract and not yet visible to others.
            unsafe { node.as_ref() }.link().store(head, Ordering::Relaxed);
            match self.head.compare_exchange(head, node.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything, oldest first.
    pub(crate) fn take(&self) -> Taken<T> {
        let mut newest = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest = ptr::null_mut();
        while let Some(node) = NonNull::new(newest) {
            // SAFETY: nodes are valid until taken; this list was taken by us alone.
            let link = unsafe { node.as_ref() }.link();
            newest = link.load(Ordering::Relaxed);
            link.store(oldest, Ordering::Relaxed);
            oldest = node.as_ptr();
        }
        Taken { next: oldest }
    }
}

/// The taken entries. All of them must be used: the rest is lost.
pub(crate) struct Taken<T: Linked> {
    next: *mut T,
}

impl<T: Linked> Iterator for Taken<T> {
    type Item = NonNull<T>;

    fn next(&mut self) -> Option<NonNull<T>> {
        let node = NonNull::new(self.next)?;
        // SAFETY: the node is ours since `take` and has not been given out yet.
        self.next = unsafe { node.as_ref() }.link().load(Ordering::Relaxed);
        Some(node)
    }
}

impl<T: Linked> Drop for Taken<T> {
    fn drop(&mut self) {
        debug_assert!(self.next.is_null(), "what was taken must be used up");
    }
}
