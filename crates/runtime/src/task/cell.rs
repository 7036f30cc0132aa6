//! A cell for data of one task that several of its parts refer to: only the task's own poll may enter, on
//! whichever thread that is.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A value that the poll of one task reads and writes through shared references. Polls of a task exclude each
/// other, so nobody ever waits here: to enter is one compare-and-swap, and to enter twice is a mistake in the
/// code, which is found where it is made.
#[derive(Debug, Default)]
pub struct TaskCell<T: ?Sized>(Mutex<T>);

/// The way into a [`TaskCell`]. As it is not `Send`, no task can wait while it holds one.
#[derive(Debug)]
pub struct Entered<'a, T: ?Sized>(MutexGuard<'a, T>);

impl<T> TaskCell<T> {
    /// With a value in it.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T: ?Sized> TaskCell<T> {
    /// Enters, until the result is dropped.
    ///
    /// # Panics
    /// If somebody is in there: the caller, further up, or a second task that the value does not belong to.
    #[inline]
    #[track_caller]
    pub fn enter(&self) -> Entered<'_, T> {
        match self.0.try_lock() {
            Ok(guard) => Entered(guard),
            Err(TryLockError::Poisoned(poisoned)) => Entered(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => panic!("a task cell is entered twice, or by another task"),
        }
    }
}

impl<T: ?Sized> Deref for Entered<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_entered_by_one_at_a_time() {
        let cell = TaskCell::new(1);
        *cell.enter() += 1;
        let entered = cell.enter();
        assert!(std::panic::catch_unwind(|| drop(cell.enter())).is_err());
        assert_eq!(*entered, 2);
        drop(entered);
        // A poll that was not let in has changed nothing.
        assert_eq!(*cell.enter(), 2);
    }
}
