//! Shows polls that do not come back to the observer, and has them give their accounts: the watchdog's side
//! and the stuck thread's. The rules are at the head of observer.rs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::handover::away::Sight;
use crate::handover::lenders::is_under_way;
use crate::handover::observer::{Account, Observer, StuckPoll, Wish};
use crate::handover::suspects::Tag;
use crate::handover::word::{Lease, PollId};
use crate::shared::{CARRIER_STACK, Carrier, Shared};

/// Shows the observer what is stuck. `attached` are polls that hold their loops, with its index. On the
/// watchdog's thread.
pub(crate) fn show(shared: &'static Shared, attached: impl Iterator<Item = (usize, Lease, Sight)>) {
    let Some(observer) = shared.observer.get() else { return };
    for (loop_index, word, sight) in attached {
        show_one(shared, &**observer, word.carrier(), (word.bits(), loop_index, sight));
    }
    let were_asked = shared.asked.load(Ordering::Relaxed) > 0;
    if !were_asked && shared.detached.load(Ordering::Relaxed) == 0 {
        return count_asked(shared);
    }
    for index in 0..shared.started.load(Ordering::Acquire) as usize {
        let away = &shared.carriers[index].away;
        let Some(poll) = away.lenders.poll() else { continue };
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let sight = Sight {
            since_ns: load(&away.since_ns),
            seen_ns: load(&away.seen_ns),
            cpu_ns: load(&away.cpu_ns),
        };
        let loop_index = away.loop_index.load(Ordering::Relaxed) as usize;
        show_one(shared, &**observer, index, (poll, loop_index, sight));
    }
    count_asked(shared);
}

fn show_one(shared: &'static Shared, observer: &dyn Observer, index: usize, found: (u64, usize, Sight)) {
    let (poll, loop_index, sight) = found;
    let carrier = &shared.carriers[index];
    if carrier.away.announced.load(Ordering::Relaxed) == poll {
        return;
    }
    let stuck = StuckPoll {
        id: PollId(poll),
        tid: carrier.tid.load(Ordering::Relaxed),
        loop_index,
        tag: Tag(carrier.tag.load(Ordering::Relaxed)),
        since_ns: sight.since_ns,
        seen_ns: sight.seen_ns,
        cpu_ns: sight.cpu_ns,
        stack_base: carrier.away.stack_base.load(Ordering::Relaxed),
        word: &shared.remotes()[loop_index].word,
        away: &carrier.away,
    };
    if observer.stuck(&stuck) == Wish::Account {
        carrier.away.announced.store(poll, Ordering::Relaxed);
        carrier.away.asked.store(poll, Ordering::Release);
        // At once, so that a poll that ends before the next look still gives its account.
        shared.asked.fetch_add(1, Ordering::Release);
    }
}

/// Takes back what was asked of polls that are over, and counts the rest (rule 3).
fn count_asked(shared: &'static Shared) {
    if shared.asked.load(Ordering::Relaxed) == 0 {
        return;
    }
    let started = shared.started.load(Ordering::Acquire) as usize;
    let is_asked = |carrier: &Carrier| {
        let poll = carrier.away.asked.load(Ordering::Relaxed);
        if poll == 0 {
            return false;
        }
        let under_way =
            shared.remotes().iter().any(|home| is_under_way(&home.word, &carrier.away.lenders, poll));
        if !under_way {
            let asked = &carrier.away.asked;
            // The carrier may have taken it just now.
            let _ = asked.compare_exchange(poll, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        under_way
    };
    let left = shared.carriers[..started].iter().filter(|carrier| is_asked(carrier)).count();
    shared.asked.store(u32::try_from(left).unwrap_or(u32::MAX), Ordering::Relaxed);
}

/// Gives the account of the poll that calls this, if it is asked for. A task may be polled by any
/// carrier, but a poll stays on the stack of one: an address on it says which this is.
#[cold]
pub(crate) fn give_account(shared: &Shared, describe: impl FnOnce() -> Account) {
    let Some(observer) = shared.observer.get() else { return };
    let here = (&raw const observer).addr();
    let started = shared.started.load(Ordering::Acquire) as usize;
    let mine = shared.carriers[..started].iter().find(|carrier| {
        let base = carrier.away.stack_base.load(Ordering::Relaxed);
        let is_on_it = base.checked_sub(here).is_some_and(|used| used < CARRIER_STACK);
        is_on_it && carrier.away.asked.load(Ordering::Acquire) != 0
    });
    let Some(carrier) = mine else { return };
    let poll = carrier.away.asked.swap(0, Ordering::AcqRel);
    if poll != 0 && shared.remotes().iter().any(|home| is_under_way(&home.word, &carrier.away.lenders, poll))
    {
        observer.account(PollId(poll), describe());
    }
}
