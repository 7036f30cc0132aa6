//! Where and when a server is chosen.

/// Where and when a server is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The number of the loop.
    pub at_loop: usize,
    /// The loop's clock.
    pub now_ms: u64,
}

impl Moment {
    /// The time in whole seconds.
    pub(crate) fn now_s(self) -> u64 {
        self.now_ms / 1000
    }
}
