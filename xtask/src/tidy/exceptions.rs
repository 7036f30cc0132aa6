//! What breaks the rules of `circles` and `bools` today. Nothing may be added; what is mended has to go, or
//! `tidy` fails.

/// Crate, and how many files its largest circle has.
pub(crate) const CIRCLES: &[(&str, usize)] = &[];

/// Crate, the folder that imports, and the one above it that it imports from.
pub(crate) const UPWARD: &[(&str, &str, &str)] = &[];

/// File, and the function that takes a `bool` or the struct that has more than two.
pub(crate) const BOOLS: &[(&str, &str)] = &[];
