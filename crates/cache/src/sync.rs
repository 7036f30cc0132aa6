//! Primitives of synchronisation: those of `std` and `crossbeam`, or those of `loom` when models are checked.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
};

use std::task::Waker;

/// A cell for one waker, which any thread may exchange.
#[cfg(not(loom))]
#[derive(Default)]
pub(crate) struct WakerPlace(crossbeam_utils::atomic::AtomicCell<Option<Box<Waker>>>);

#[cfg(not(loom))]
impl WakerPlace {
    pub(crate) fn swap(&self, waker: Option<Waker>) -> Option<Waker> {
        self.0.swap(waker.map(Box::new)).map(|waker| *waker)
    }
}

/// The cell for models: loom tries all orders of its uses.
#[cfg(loom)]
#[derive(Default)]
pub(crate) struct WakerPlace(loom::sync::Mutex<Option<Waker>>);

#[cfg(loom)]
impl WakerPlace {
    pub(crate) fn swap(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.0.lock().expect("no model panics in here"), waker)
    }
}

/// A queue that any thread may use, without a lock.
#[cfg(not(loom))]
pub(crate) struct Queue<T>(crossbeam_queue::SegQueue<T>);

#[cfg(not(loom))]
impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self(crossbeam_queue::SegQueue::new())
    }

    pub(crate) fn push(&self, item: T) {
        self.0.push(item);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(loom)]
pub(crate) struct Queue<T>(loom::sync::Mutex<std::collections::VecDeque<T>>);

#[cfg(loom)]
impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self(loom::sync::Mutex::default())
    }

    pub(crate) fn push(&self, item: T) {
        self.0.lock().expect("no model panics in here").push_back(item);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.lock().expect("no model panics in here").pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("no model panics in here").len()
    }
}

/// A value that is set once.
#[cfg(not(loom))]
pub(crate) struct Once<T>(std::sync::OnceLock<T>);

#[cfg(not(loom))]
impl<T: Clone> Once<T> {
    pub(crate) fn new() -> Self {
        Self(std::sync::OnceLock::new())
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.0.get().cloned()
    }
}

#[cfg(loom)]
pub(crate) struct Once<T>(loom::sync::Mutex<Option<T>>);

#[cfg(loom)]
impl<T: Clone> Once<T> {
    pub(crate) fn new() -> Self {
        Self(loom::sync::Mutex::new(None))
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let mut place = self.0.lock().expect("no model panics in here");
        if place.is_some() {
            return Err(value);
        }
        *place = Some(value);
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.0.lock().expect("no model panics in here").clone()
    }
}
