//! `hash … consistent`: the server of the point that a text belongs to, on the ring of the group.

use crate::balance::{Look, Progress, TRIES_MAX};
use crate::peer::{Company, Peer};

/// The server of the point, or of those behind it; the addresses of one server take turns.
pub(crate) fn choose(look: &Look<'_>, text: &[u8], progress: &mut Progress) -> Option<usize> {
    if look.peers.company == Company::Alone || text.is_empty() {
        return None;
    }
    while progress.tries <= TRIES_MAX {
        let server = look.peers.ring().server_at(progress.hash)?;
        let is_it = |at: usize, peer: &Peer| peer.config().server == *server && look.may(at, peer);
        if let Some(at) = look.peers.next_in_turn(look.moment, is_it) {
            return Some(at);
        }
        progress.hash = progress.hash.wrapping_add(1);
        progress.tries += 1;
    }
    None
}
