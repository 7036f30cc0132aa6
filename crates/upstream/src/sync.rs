//! What models replace.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A place that one thread at a time may use, as a protocol says.
#[cfg(not(loom))]
pub(crate) struct Place<T>(crossbeam_utils::atomic::AtomicCell<Option<Box<T>>>);

#[cfg(not(loom))]
impl<T> Place<T> {
    pub(crate) fn new() -> Self {
        Self(crossbeam_utils::atomic::AtomicCell::new(None))
    }

    /// Puts a value in; what was there is given back.
    pub(crate) fn replace(&self, value: Option<Box<T>>) -> Option<Box<T>> {
        self.0.swap(value)
    }
}

/// The same, where a model sees that two use it at once.
#[cfg(loom)]
pub(crate) struct Place<T>(loom::cell::Cell<Option<Box<T>>>);

#[cfg(loom)]
impl<T> Place<T> {
    pub(crate) fn new() -> Self {
        Self(loom::cell::Cell::new(None))
    }

    pub(crate) fn replace(&self, value: Option<Box<T>>) -> Option<Box<T>> {
        self.0.replace(value)
    }
}
