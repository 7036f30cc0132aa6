//! The threads of a runtime: carriers and the starter that makes them ahead of need, the watchdog, and what
//! it shows an observer.

pub(crate) mod carriers;
pub(crate) mod stuck;
pub(crate) mod watchdog;
