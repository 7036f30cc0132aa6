//! `least_time`: the server with the least estimated time in proportion to its weight; several with the least
//! one take turns (`ngx_http_upstream_least_time_module.c`).

use crate::balance::Look;
use crate::peer::Peer;
use crate::times::TimeRule;

/// Servers that take longer than this count as equally slow, so that their load decides.
const TIME_MAX_MS: u64 = 5000;

/// Times are rounded up to multiples of this, so that small differences do not count.
const CLUSTER_MS: u64 = 20;

pub(crate) fn choose(look: &Look<'_>, rule: TimeRule) -> Option<usize> {
    let now_ms = look.moment.now_ms;
    let cost = |peer: &Peer, waits: Option<u64>| {
        (estimate(look, peer, rule, waits), peer.risen_weight(now_ms).unsigned_abs())
    };
    look.least(
        |peer| cost(peer, peer.times().look(now_ms)),
        |peer| cost(peer, peer.times().seen()),
        |(eta, weight), (least, of)| eta.saturating_mul(of).cmp(&least.saturating_mul(weight)),
    )
}

/// Estimates how long the server takes for its present requests and one more.
fn estimate(look: &Look<'_>, peer: &Peer, rule: TimeRule, waiting_ms: Option<u64>) -> u64 {
    let known_ms = match rule {
        TimeRule::Header(_) => peer.times().header_ms(),
        TimeRule::LastByte(_) | TimeRule::None => peer.times().response_ms(),
    };
    // A server that was not tried for a while gets another chance: its time is halved for each
    // `fail_timeout`.
    let halvings = u32::try_from(peer.rests(look.moment.now_s())).unwrap_or(u32::MAX);
    let ms = known_ms.checked_shr(halvings).unwrap_or(0).max(waiting_ms.unwrap_or(0));
    let ms = if ms > TIME_MAX_MS { TIME_MAX_MS } else { ms + CLUSTER_MS - ms % CLUSTER_MS };
    ms * (1 + u64::from(peer.conns()))
}
