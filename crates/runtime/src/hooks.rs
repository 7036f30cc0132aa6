//! Hooks of the runtime's users on each loop, such as when a configuration begins and ends, and the values
//! that they keep for each. Boot, reload and stop call this; the hooks run on the loops.

use std::future::Future;
use std::ops::Index;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::handle::{LoopRef, Runtime};
use crate::handover::suspects::Tag;

/// A value for each loop of a runtime. One that belongs to a configuration is kept by that, and ends with it;
/// one that outlives configurations is shared by them.
pub struct PerLoop<T>(Box<[T]>);

impl<T> PerLoop<T> {
    /// The results of `make` for each loop, in their order.
    pub fn new(runtime: Runtime, make: impl FnMut(LoopRef) -> T) -> Self {
        Self(runtime.loops().map(make).collect())
    }

    /// The values of all loops, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

impl<T> Index<LoopRef> for PerLoop<T> {
    type Output = T;

    fn index(&self, home: LoopRef) -> &T {
        &self.0[home.index()]
    }
}

/// The hooks of one call that have not ended yet.
#[must_use = "hooks may still be under way"]
pub struct Hooks {
    ended: Receiver<()>,
    left: usize,
}

/// Tells that a hook has ended, also when it has panicked.
struct Ending(Sender<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        // The receiver may be gone.
        let _ = self.0.send(());
    }
}

impl Hooks {
    /// Waits until all have ended, at most so long; whether they have. Not to be called on a loop.
    pub fn wait(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.left > 0 {
            match self.ended.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(()) => self.left -= 1,
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => self.left = 0,
            }
        }
        true
    }
}

impl Runtime {
    /// Runs what `hook` makes on each loop, as a task that no other loop polls: it is begun before all tasks
    /// that are spawned later. Like every task it loses its loop where it blocks; then they go on beside it.
    pub fn on_each_loop<F>(self, hook: impl Fn(LoopRef) -> F) -> Hooks
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, ended) = channel();
        for home in self.loops() {
            let (ending, future) = (Ending(sender.clone()), hook(home));
            home.spawn_bound(Tag::NONE, async move {
                let _ending = ending;
                future.await;
            });
        }
        Hooks { ended, left: self.len() }
    }
}
