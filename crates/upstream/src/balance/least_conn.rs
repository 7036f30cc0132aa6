//! `least_conn`: the server with the fewest requests for its weight; several of which this is true take
//! turns.

use crate::balance::Look;
use crate::peer::Peer;

pub(crate) fn choose(look: &Look<'_>) -> Option<usize> {
    // Requests that come and go meanwhile are for the next look.
    let load = |peer: &Peer| (i64::from(peer.conns()), peer.risen_weight(look.moment.now_ms));
    look.least(load, load, |(conns, weight), (least, of)| (conns * of).cmp(&(least * weight)))
}
