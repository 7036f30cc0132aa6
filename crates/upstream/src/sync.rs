//! The primitives that models replace.

use std::task::Waker;

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Entries that any thread appends and any thread takes.
#[cfg(not(loom))]
pub(crate) type Fifo<T> = crossbeam_queue::SegQueue<T>;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// A place that one thread at a time may use, as a protocol says.
#[cfg(not(loom))]
pub(crate) struct Exclusive<T>(crossbeam_utils::atomic::AtomicCell<Option<Box<T>>>);

#[cfg(not(loom))]
impl<T> Exclusive<T> {
    pub(crate) fn new() -> Self {
        Self(crossbeam_utils::atomic::AtomicCell::new(None))
    }

    /// Puts a value in; what was there is given back.
    pub(crate) fn replace(&self, value: Option<Box<T>>) -> Option<Box<T>> {
        self.0.swap(value)
    }
}

/// The cell for models, which see if two threads use it at once.
#[cfg(loom)]
pub(crate) struct Exclusive<T>(loom::cell::Cell<Option<Box<T>>>);

#[cfg(loom)]
impl<T> Exclusive<T> {
    pub(crate) fn new() -> Self {
        Self(loom::cell::Cell::new(None))
    }

    pub(crate) fn replace(&self, value: Option<Box<T>>) -> Option<Box<T>> {
        self.0.replace(value)
    }
}

/// The queue for models: loom tries all orders of its uses.
#[cfg(loom)]
pub(crate) struct Fifo<T>(loom::sync::Mutex<std::collections::VecDeque<T>>);

#[cfg(loom)]
impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self(loom::sync::Mutex::default())
    }
}

#[cfg(loom)]
impl<T> Fifo<T> {
    pub(crate) fn push(&self, entry: T) {
        self.0.lock().expect("no model panics in here").push_back(entry);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.lock().expect("no model panics in here").pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("no model panics in here").len()
    }
}

/// The waker of a task that waits: one word that is exchanged.
#[derive(Default)]
pub(crate) struct WakerSlot(Slot);

#[cfg(not(loom))]
type Slot = crossbeam_utils::atomic::AtomicCell<Option<Box<Waker>>>;

#[cfg(loom)]
#[derive(Default)]
struct Slot(loom::sync::Mutex<Option<Box<Waker>>>);

#[cfg(loom)]
impl Slot {
    fn swap(&self, waker: Option<Box<Waker>>) -> Option<Box<Waker>> {
        std::mem::replace(&mut *self.0.lock().expect("no model panics in here"), waker)
    }
}

impl WakerSlot {
    pub(crate) fn set(&self, waker: &Waker) {
        self.0.swap(Some(Box::new(waker.clone())));
    }

    pub(crate) fn take(&self) -> Option<Waker> {
        self.0.swap(None).map(|waker| *waker)
    }
}
