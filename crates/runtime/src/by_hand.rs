//! A runtime of one loop that has no threads: a test turns it, beside the clock that the test moves
//! (`clearway_os::clock::testing`), so that the same steps are the same run. Owned by the test's thread.
#![expect(unsafe_code, reason = "the test's thread stands for the loop's carrier")]

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use clearway_base::log::Sink;

use clearway_os::spin::Spin;

use crate::event_loop::Loop;
use crate::event_loop::loops::Loops;
use crate::handle::{LoopRef, Runtime};
use crate::handover::word::Lease;
use crate::shared::{Config, Restore, Shared};

pub use crate::event_loop::Left;

/// The only carrier of such a runtime: what holds it turns the loop.
pub struct Hand {
    turned: &'static Loop,
    lease: Lease,
    /// Not `Send`: a loop is turned by the thread that made it.
    _here: PhantomData<*const ()>,
}

impl Runtime {
    /// One loop without a carrier, and what turns it. Tasks that panic are told of by `sink`.
    ///
    /// # Errors
    /// When descriptors are refused.
    pub fn by_hand(sink: Arc<dyn Sink>) -> io::Result<(Self, Hand)> {
        let config =
            Config { loops: 1, handover_after: None, handover_carriers: 0, processors: Vec::new(), sink };
        let shared: &'static Shared = Box::leak(Box::new(Shared::new(&config, Restore::Batch(0))));
        let all: &'static Loops = Box::leak(Box::new(Loops::new(shared)));
        let (new, lease) = Loop::new(0, Spin::beside(usize::MAX), all)?;
        let turned: &'static Loop = Box::leak(Box::new(new));
        all.set([turned].into());
        Ok((Self(all), Hand { turned, lease, _here: PhantomData }))
    }
}

impl Hand {
    /// The loop.
    #[must_use]
    pub fn home(&self) -> LoopRef {
        LoopRef(self.turned)
    }

    /// One turn of the loop: makes ready what events and timers name, and polls what is ready.
    pub fn turn(&mut self) -> Left {
        // SAFETY: the loop has no carrier but this value, which is not copied and stays on its thread.
        unsafe { self.turned.turn_by_hand(&mut self.lease) }
    }
}
