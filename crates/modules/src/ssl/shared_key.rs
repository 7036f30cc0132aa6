//! The key of session tickets where no file has one: the same for all servers, and for all worker processes
//! of a master, which makes it. Any thread.

use std::sync::{Arc, OnceLock};

use clearway_tls::random;
use clearway_tls::tickets::{KeyRing, TicketKey};

/// Secret bytes of the key.
const KEY_BYTES: usize = 80;

static RING: OnceLock<Arc<KeyRing>> = OnceLock::new();

/// Makes a key, for [`share_ticket_key`].
#[must_use]
pub fn make_ticket_key() -> Vec<u8> {
    random::<KEY_BYTES>().to_vec()
}

/// Has servers of this process use a key that others have as well. The first one holds.
pub fn share_ticket_key(key: &[u8]) {
    if let Some(key) = TicketKey::from_file(key) {
        let _ = RING.set(ring_of(key));
    }
}

/// The ring of that key, or of one that is made now.
pub(super) fn ring() -> Arc<KeyRing> {
    Arc::clone(RING.get_or_init(|| ring_of(TicketKey::from_random(&random()))))
}

fn ring_of(key: TicketKey) -> Arc<KeyRing> {
    Arc::new(KeyRing::new(vec![key]).expect("it has a key"))
}
