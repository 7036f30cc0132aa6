//! A loop's VMs: its own one, and reserves for what would have to wait for it.

pub mod choice;
pub mod regexes;
pub mod state;
