//! Bounded, named thread pools for work that would block a loop.
