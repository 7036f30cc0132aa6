//! Rights that directives need of a worker process besides those of its user: found while a configuration
//! is loaded, given before the worker has threads. Main threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rights that one configuration needs, among the services that it is loaded with. Clones are the same
/// list.
#[derive(Clone, Debug, Default)]
pub struct WantedRights(Arc<AtomicBool>);

impl WantedRights {
    /// A directive needs connections that come from addresses of other machines (CAP_NET_RAW, for
    /// IP_TRANSPARENT), such as `proxy_bind … transparent`.
    pub fn want_foreign_addresses(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a directive needs that.
    #[must_use]
    pub fn wants_foreign_addresses(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
