//! What breaks the rules of `circles` and `bools` today. Nothing may be added; what is mended has to go, or
//! `tidy` fails.

/// Crate, and how many files its largest circle has.
pub(crate) const CIRCLES: &[(&str, usize)] = &[("http", 20), ("runtime", 11)];

/// Crate, the folder that imports, and the one above it that it imports from.
pub(crate) const UPWARD: &[(&str, &str, &str)] = &[
    ("http", "request", "output"),
    ("http", "request", "phases"),
    ("runtime", "event_loop", "handover"),
    ("runtime", "event_loop", "timer"),
    ("runtime", "task", "event_loop"),
    ("runtime", "task", "handover"),
];

/// File, and the function that takes a `bool` or the struct that has more than two.
pub(crate) const BOOLS: &[(&str, &str)] = &[];
