//! A loop's VMs: its own one, and reserves for what would have to wait for it.

pub mod choice;
pub mod interpreter;
pub mod of_loop;
pub mod regexes;
pub(crate) mod settings;
pub mod state;
pub(crate) mod vms;
