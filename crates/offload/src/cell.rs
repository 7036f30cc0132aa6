//! A cell whose owner is known from an atomic word beside it. It replaces an `UnsafeCell`: the lock
//! is never contended, because the protocol around the cell gives it to one thread at a time, and it
//! is only ever tried, so that a broken protocol panics instead of making a loop wait.

use std::sync::TryLockError;

use crate::sync::Mutex;

/// Holds a value for the thread that owns the cell at that moment.
#[derive(Debug)]
pub(crate) struct Turn<T>(Mutex<Option<T>>);

impl<T> Turn<T> {
    pub(crate) fn new(value: Option<T>) -> Self {
        Self(Mutex::new(value))
    }

    /// Puts a value in and drops an old one.
    pub(crate) fn put(&self, value: T) {
        drop(self.exchange(Some(value)));
    }

    /// Takes the value out.
    pub(crate) fn take(&self) -> Option<T> {
        self.exchange(None)
    }

    fn exchange(&self, value: Option<T>) -> Option<T> {
        match self.0.try_lock() {
            Ok(mut held) => std::mem::replace(&mut *held, value),
            Err(TryLockError::Poisoned(held)) => std::mem::replace(&mut *held.into_inner(), value),
            Err(TryLockError::WouldBlock) => unreachable!("one owner at a time, by the protocol around it"),
        }
    }
}
