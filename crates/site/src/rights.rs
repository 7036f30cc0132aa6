//! Rights of a worker process, besides those of its user, that directives need: found while a configuration
//! is loaded, by the master and by the worker. Main threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const FOREIGN_ADDRESSES: u8 = 1;
const TRIAL: u8 = 2;
const PRIVILEGED_START: u8 = 4;

/// The rights that one configuration needs, among the services that it is loaded with. Clones are the same
/// list.
#[derive(Clone, Debug, Default)]
pub struct WantedRights(Arc<AtomicU8>);

impl WantedRights {
    /// A directive needs connections that come from addresses of other machines (CAP_NET_RAW, for
    /// IP_TRANSPARENT), such as `proxy_bind … transparent`.
    pub fn want_foreign_addresses(&self) {
        self.want(FOREIGN_ADDRESSES);
    }

    /// Whether a directive needs that.
    #[must_use]
    pub fn wants_foreign_addresses(&self) -> bool {
        self.wants(FOREIGN_ADDRESSES)
    }

    /// Code runs when the configuration comes into use, which may crash: a process of its own is to run it
    /// before the worker that serves does.
    pub fn want_trial(&self) {
        self.want(TRIAL);
    }

    /// Whether there is such code.
    #[must_use]
    pub fn wants_trial(&self) -> bool {
        self.wants(TRIAL)
    }

    /// That code is to run before the worker gives up the rights of its master, so that it takes a new one.
    pub fn want_privileged_start(&self) {
        self.want(PRIVILEGED_START);
    }

    /// Whether it is.
    #[must_use]
    pub fn wants_privileged_start(&self) -> bool {
        self.wants(PRIVILEGED_START)
    }

    fn want(&self, what: u8) {
        self.0.fetch_or(what, Ordering::Relaxed);
    }

    fn wants(&self, what: u8) -> bool {
        self.0.load(Ordering::Relaxed) & what != 0
    }
}
