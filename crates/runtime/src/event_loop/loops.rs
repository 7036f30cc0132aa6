//! The loops of a runtime, as what runs them and what uses them finds them. Below a loop stands what all of
//! them share (`Shared`), which knows of each what any thread may touch (`Remote`) and no more.

use std::sync::OnceLock;

use crate::event_loop::Loop;
use crate::shared::Shared;

/// The loops of a runtime; never freed.
pub(crate) struct Loops {
    pub(crate) shared: &'static Shared,
    all: OnceLock<Box<[&'static Loop]>>,
}

impl Loops {
    pub(crate) fn new(shared: &'static Shared) -> Self {
        Self { shared, all: OnceLock::new() }
    }

    /// All there will ever be, before the first of them runs.
    pub(crate) fn set(&self, all: Box<[&'static Loop]>) {
        self.shared.set_remotes(all.iter().map(|l| &l.remote).collect());
        let set = self.all.set(all);
        debug_assert!(set.is_ok(), "a fresh runtime");
    }

    pub(crate) fn all(&self) -> &[&'static Loop] {
        self.all.get().map_or(&[], |all| all)
    }
}
