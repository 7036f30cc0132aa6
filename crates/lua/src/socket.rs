//! Sockets of Lua: connections of a request, or of a timer, to other servers. `receive` finds what is wanted
//! in what has come, `connection` makes connections, reads and writes, `pool` keeps those for the next use,
//! and `keeper` looks after one meanwhile.

pub(crate) mod conf;
pub(crate) mod connection;
pub(crate) mod datagrams;
mod keeper;
pub(crate) mod operations;
pub(crate) mod pool;
pub(crate) mod receive;
#[cfg(feature = "tls")]
pub(crate) mod secure;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use clearway_net::connect::Connector;
use connection::Tcp;
use datagrams::Udp;

/// Sockets of one kind that a request has open at a time.
const SOCKETS_MAX: usize = 16_384;

/// Makes connections, once the server has begun.
static CONNECTOR: std::sync::OnceLock<Connector> = std::sync::OnceLock::new();

/// Has sockets of Lua count among the connections of the loops. Called once, before requests are served.
pub fn connect_with(connector: Connector) {
    // A second one would be the same.
    let _ = CONNECTOR.set(connector);
}

pub(crate) fn connector() -> Option<Connector> {
    CONNECTOR.get().copied()
}

/// The sockets of one request, or of one timer, most of which have none.
#[derive(Default)]
pub(crate) struct Sockets {
    /// Tells them from those of others; 0 before the first one.
    pub(crate) owner: u64,
    pub(crate) tcp: Slab<Tcp>,
    pub(crate) udp: Slab<Udp>,
    life: Option<Arc<()>>,
}

impl Sockets {
    /// The number that tells these sockets from others, and a value that ends with them.
    pub(crate) fn own(&mut self) -> (u64, Weak<()>) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        if self.owner == 0 {
            self.owner = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        }
        (self.owner, Arc::downgrade(self.life.get_or_insert_default()))
    }
}

/// Requests and timers that have had sockets of a VM, so that those of what is over are known for closed
/// ones. What a subrequest had belongs to its main request, as far as code can tell, and stays another's.
#[derive(Default)]
pub(crate) struct Owners {
    alive: HashMap<u64, Weak<()>, BuildHasherDefault<OfOwner>>,
    swept: usize,
}

/// The hash of an owner, which nobody outside can choose.
#[derive(Default)]
struct OfOwner(u64);

impl Hasher for OfOwner {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.is_empty(), "owners are numbers");
    }

    fn write_u64(&mut self, owner: u64) {
        // By 2 to the power of 64, divided by the golden ratio: numbers in a row are far apart.
        self.0 = owner.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Owners {
    /// Owners before those that are over are forgotten.
    const MIN: usize = 64;

    pub(crate) fn note(&mut self, owner: u64, life: Weak<()>) {
        if self.alive.len() >= 2 * self.swept.max(Self::MIN) {
            self.alive.retain(|_, life| life.strong_count() > 0);
            self.swept = self.alive.len();
        }
        self.alive.insert(owner, life);
    }

    pub(crate) fn is_alive(&self, owner: u64) -> bool {
        self.alive.get(&owner).is_none_or(|life| life.strong_count() > 0)
    }
}

/// Sockets of one kind, by number.
pub(crate) struct Slab<T> {
    list: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { list: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps one: its number; `None` where there are too many.
    pub(crate) fn add(&mut self, socket: Arc<T>) -> Option<usize> {
        if let Some(number) = self.free.pop() {
            self.list[number] = Some(socket);
            return Some(number);
        }
        if self.list.len() >= SOCKETS_MAX {
            return None;
        }
        self.list.push(Some(socket));
        Some(self.list.len() - 1)
    }

    pub(crate) fn find(&self, number: usize) -> Option<&Arc<T>> {
        self.list.get(number)?.as_ref()
    }

    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(place) = self.list.get_mut(number)
            && place.take().is_some()
        {
            self.free.push(number);
        }
    }
}
