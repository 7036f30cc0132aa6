//! `least_conn`: the server with the fewest requests for its weight; several of which this is true take
//! turns.

use crate::balance::Look;
use crate::peer::Peer;

pub(crate) fn choose(look: &Look<'_>) -> Option<usize> {
    // Requests that come and go meanwhile are for the next look.
    let load = |peer: &Peer| (i64::from(peer.conns()), peer.risen_weight(look.moment.now_ms));
    let usable = || look.peers.list.iter().enumerate().filter(|(at, peer)| look.may(*at, peer));
    let (mut best, mut many) = (None::<(usize, (i64, i64))>, false);
    for (at, peer) in usable() {
        let (conns, weight) = load(peer);
        let order = best.map(|(_, (least, of))| (conns * of).cmp(&(least * weight)));
        match order {
            None | Some(std::cmp::Ordering::Less) => (best, many) = (Some((at, (conns, weight))), false),
            Some(std::cmp::Ordering::Equal) => many = true,
            Some(std::cmp::Ordering::Greater) => {}
        }
    }
    let (first, (least, of)) = best?;
    if !many {
        return Some(first);
    }
    let is_least = |at: usize, peer: &Peer| {
        let (conns, weight) = load(peer);
        at >= first && conns * of == least * weight && look.may(at, peer)
    };
    look.peers.next_in_turn(look.moment, is_least).or(Some(first))
}
