//! A loop's VMs: its own one, and reserves for what would have to wait for it.

#[cfg(not(loom))]
pub mod choice;
#[cfg(not(loom))]
pub mod interpreter;
#[cfg(not(loom))]
pub(crate) mod net_settings;
#[cfg(not(loom))]
pub mod of_loop;
#[cfg(not(loom))]
pub mod regexes;
#[cfg(not(loom))]
pub(crate) mod settings;
#[cfg(not(loom))]
pub mod state;
#[cfg(not(loom))]
pub(crate) mod texts;
#[cfg(not(loom))]
pub(crate) mod timers;
#[cfg(all(not(loom), feature = "tls"))]
pub(crate) mod tls_settings;
#[cfg(not(loom))]
pub(crate) mod vms;
pub(crate) mod waiting;
#[cfg(not(loom))]
pub(crate) mod workers;
