//! One file per directive family.
