//! Which counter a limit has that was met.

use clearway_h2::connection::{Failure, Note, Reason};
use clearway_h2::request::Unreadable;

use crate::metrics;

/// A connection has to end.
pub(super) fn count_failure(failure: &Failure) {
    let counter = match failure.reason {
        Reason::Resets => &metrics::RESETS,
        Reason::Refused => &metrics::REFUSALS,
        Reason::Priorities => &metrics::PRIORITIES,
        Reason::Useless => &metrics::USELESS,
        Reason::Flood => &metrics::FLOODS,
        Reason::Unreadable(Unreadable::LargeField | Unreadable::LargeHead) => &metrics::LARGE_HEADS,
        _ => &metrics::FAULTS,
    };
    counter.increment();
}

/// A stream is refused or reset.
pub(super) fn count_note(note: &Note) {
    match note {
        Note::Concurrent(_) | Note::AtOnce | Note::Early => metrics::STREAMS_REFUSED.increment(),
        Note::Window(..) | Note::Increment(..) | Note::HalfClosed(..) | Note::OpenTrailers(_) => {
            metrics::STREAMS_CUT.increment();
        }
    }
}
