//! `random`: a server by chance, as likely as its weight says; or the less busy of two.

use crate::balance::{Look, Progress, TRIES_MAX};

pub(crate) fn one(look: &Look<'_>, progress: &mut Progress) -> Option<usize> {
    draw(look, progress, |_| true)
}

pub(crate) fn two(look: &Look<'_>, progress: &mut Progress) -> Option<usize> {
    let first = draw(look, progress, |_| true)?;
    let second = draw(look, progress, |at| at != first)?;
    let load = |at: usize| (i64::from(look.peers.list[at].conns()), look.peers.list[at].weight());
    let ((one, one_weight), (other, other_weight)) = (load(first), load(second));
    Some(if other * one_weight > one * other_weight { first } else { second })
}

fn draw(look: &Look<'_>, progress: &mut Progress, wanted: impl Fn(usize) -> bool) -> Option<usize> {
    if look.peers.list.len() < 2 {
        return None;
    }
    while progress.tries <= TRIES_MAX {
        let at = look.peers.at_weight(rand::random());
        if wanted(at) && look.is_usable(at) {
            return Some(at);
        }
        progress.tries += 1;
    }
    None
}
