//! The only raw system calls.
