//! Loops of tests that are lent all the time: with `CLEARWAY_CHAOS_LEND=N` in the environment every N-th poll
//! of a loop runs away from it, so that every task meets the hand-over. Without the feature `chaos` no poll
//! does, at no cost. The owner of the loop, in RUN.

#[cfg(not(feature = "chaos"))]
pub(super) use calm::Chaos;
#[cfg(feature = "chaos")]
pub(super) use wild::Chaos;

#[cfg(not(feature = "chaos"))]
mod calm {
    pub(in super::super) struct Chaos;

    impl Chaos {
        pub(in super::super) fn new() -> Self {
            Self
        }

        #[inline]
        pub(in super::super) fn is_due(&mut self) -> bool {
            false
        }
    }
}

#[cfg(feature = "chaos")]
mod wild {
    use std::sync::LazyLock;

    /// The environment's wish; 0: no poll is lent.
    static EVERY: LazyLock<u64> = LazyLock::new(|| {
        let Some(text) = std::env::var_os("CLEARWAY_CHAOS_LEND") else { return 0 };
        let every = text.to_str().and_then(|text| text.parse().ok());
        let every = every.expect("CLEARWAY_CHAOS_LEND is a number");
        assert!(every == 0 || !cfg!(clearway_no_lease), "without the lease nothing can be lent");
        every
    });

    pub(in super::super) struct Chaos {
        every: u64,
        polls: u64,
    }

    impl Chaos {
        pub(in super::super) fn new() -> Self {
            Self { every: *EVERY, polls: 0 }
        }

        /// Counts polls; `true` for every N-th.
        #[inline]
        pub(in super::super) fn is_due(&mut self) -> bool {
            self.polls += 1;
            // A multiple of 0 is only 0.
            self.polls.is_multiple_of(self.every)
        }
    }
}
