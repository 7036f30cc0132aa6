//! The order of the smooth weighted round robin, written down once: while nothing is wrong with a group's
//! servers, the next one is the next place of a [`Cycle`], one atomic step for a request. After as many turns
//! as the weights come to together (less what they have in common) the order begins anew, so the cycle is
//! exactly what nginx would choose.
//!
//! 1. A loop's [`Turn`] is one word: the place of the next turn and the number that the [`Alarm`] showed when
//!    the turns began, or AWAY. A place is given out by compare-and-swap, so no two requests get the same.
//! 2. A server that fails is changed first; then the alarm moves. A turn that finds another number than its
//!    own gives nothing out: weights are reckoned for each request then, and servers that failed left out.
//! 3. Reckoning begins where the cycle was left ([`Cycle::weights_at`]). Turns begin again only with a number
//!    that was read before all servers were found well: one that fails meanwhile has moved the alarm, or was
//!    seen.

use std::sync::Arc;

use crate::common::{ALARM_AT, Memory, Numbers};
use crate::sync::{AtomicU64, Ordering};

/// Longest cycle, turns.
const TURNS_MAX: u64 = 4096;

/// Turns times servers: what it takes to make a cycle of weights that differ.
const WORK_MAX: u64 = 1 << 18;

/// In place of a place: weights are reckoned.
const AWAY: u32 = u32::MAX;

/// Moves when something becomes wrong with a server of a group.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Numbers<1>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Shares the alarm with other processes from now on, by a word of their group's.
    pub(crate) fn share(&self, of_group: &Arc<dyn Memory>) {
        self.0.share(of_group, ALARM_AT);
    }

    /// Rule 2: what is wrong was written before.
    pub(crate) fn raise(&self) {
        self.0.at(0).fetch_add(1, Ordering::Release);
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.at(0).load(Ordering::Acquire) as u32
    }
}

/// The order of one group. Servers are their numbers in the group.
#[derive(Debug)]
pub(crate) struct Cycle {
    order: Box<[u16]>,
    /// The weights of servers in the cycle; 0 is a server without a part in it.
    weights: Box<[u32]>,
}

/// Where a loop is in the cycle, or several are: a word. 0 is at the beginning, if the alarm was not raised
/// yet.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a>(pub(crate) &'a AtomicU64);

impl Turn<'_> {
    /// At the beginning; the alarm was at `number` before all servers were found well.
    pub(crate) fn first(number: u32) -> u64 {
        word(number, 0)
    }

    /// Weights are to be reckoned; all of them are 0.
    pub(crate) fn away() -> u64 {
        word(0, AWAY)
    }
}

fn word(alarm: u32, place: u32) -> u64 {
    u64::from(alarm) << 32 | u64::from(place)
}

fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Cycle {
    /// The cycle of these weights, of which 0 is a server that takes no part; `None` if it would be too long.
    pub(crate) fn new(weights: Box<[u32]>) -> Option<Self> {
        if weights.len() as u64 > TURNS_MAX {
            return None;
        }
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let common = weights.iter().fold(0, |common, &weight| greatest_divisor(common, weight));
        let turns = total.checked_div(common.into()).filter(|turns| *turns <= TURNS_MAX)?;
        let taking_part = weights.iter().zip(0_u16..).filter(|(weight, _)| **weight > 0);
        let is_even = weights.iter().all(|&weight| weight == 0 || weight == common);
        let order = match is_even {
            true => taking_part.map(|(_, at)| at).collect(),
            false if turns * weights.len() as u64 > WORK_MAX => return None,
            false => {
                let mut current = vec![0_i64; weights.len()];
                let servers: Vec<(i64, u16)> =
                    taking_part.map(|(&weight, at)| (i64::from(weight), at)).collect();
                (0..turns).map(|_| turn(&servers, &mut current)).collect()
            }
        };
        Some(Self { order, weights })
    }

    /// Rule 1. `None`: weights are to be reckoned.
    #[inline]
    pub(crate) fn next(&self, turn: Turn<'_>, alarm: &Alarm) -> Option<usize> {
        let mut seen = turn.0.load(Ordering::Relaxed);
        loop {
            let (since, place) = parts(seen);
            let server = self.order.get(place as usize);
            let server = server.filter(|_| since == alarm.number())?;
            let following = if place as usize + 1 == self.order.len() { 0 } else { place + 1 };
            let next = word(since, following);
            match turn.0.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((*server).into()),
                Err(now) => seen = now,
            }
        }
    }

    /// Leaves the cycle, if that was not done: where.
    pub(crate) fn leave(&self, turn: Turn<'_>) -> Option<usize> {
        let (_, place) = parts(turn.0.fetch_or(AWAY.into(), Ordering::Relaxed));
        ((place as usize) < self.order.len()).then_some(place as usize)
    }

    /// Rule 3: goes on from a place, as the alarm was at `number` before all servers were found well.
    pub(crate) fn begin(&self, turn: Turn<'_>, number: u32, place: usize) {
        turn.0.store(word(number, place as u32), Ordering::Relaxed);
    }

    /// Behind which place weights are most like these, if this server was the last to have a turn.
    pub(crate) fn place_like(&self, current: &[i64], last: usize) -> usize {
        let behind = |place: usize| (place + 1) % self.order.len();
        let turns_of_last = || self.order.iter().enumerate().filter(|(_, at)| usize::from(**at) == last);
        let weight = self.weights.get(last);
        if self.weights.iter().all(|other| *other == 0 || Some(other) == weight) {
            return turns_of_last().next().map_or(0, |(place, _)| behind(place));
        }
        let total: i64 = self.weights.iter().map(|&weight| i64::from(weight)).sum();
        let mut weights = vec![0; self.weights.len()];
        let mut best = (i64::MAX, 0);
        for (place, &at) in self.order.iter().enumerate() {
            weights.iter_mut().zip(&self.weights).for_each(|(now, &weight)| *now += i64::from(weight));
            weights[usize::from(at)] -= total;
            if usize::from(at) == last {
                let pairs = weights.iter().zip(current);
                let apart = pairs.map(|(one, other)| one.saturating_sub(*other).saturating_abs());
                best = best.min((apart.fold(0, i64::saturating_add), behind(place)));
            }
        }
        best.1
    }

    /// The current weights of all servers, as they are at a place.
    pub(crate) fn weights_at(&self, place: usize) -> Vec<i64> {
        let total: i64 = self.weights.iter().map(|&weight| i64::from(weight)).sum();
        let mut current: Vec<i64> =
            self.weights.iter().map(|&weight| i64::from(weight) * place as i64).collect();
        self.order[..place].iter().for_each(|&at| current[usize::from(at)] -= total);
        current
    }

    /// After how many turns it begins anew.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }
}

/// One turn: each server gets its weight, the one with the most is taken and pays for all.
fn turn(servers: &[(i64, u16)], current: &mut [i64]) -> u16 {
    let mut best = None::<(u16, i64)>;
    let mut total = 0;
    for &(weight, at) in servers {
        total += weight;
        let now = &mut current[usize::from(at)];
        *now += weight;
        if best.is_none_or(|(_, most)| *now > most) {
            best = Some((at, *now));
        }
    }
    let (at, _) = best.expect("a cycle has turns");
    current[usize::from(at)] -= total;
    at
}

/// 0 has all divisors.
fn greatest_divisor(mut one: u32, mut other: u32) -> u32 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn text(weights: &[u32]) -> Option<String> {
        let cycle = Cycle::new(weights.into())?;
        Some(cycle.order.iter().map(|&at| char::from(b'a' + at as u8)).collect())
    }

    #[test]
    fn the_order_is_smooth_and_as_short_as_may_be() {
        assert_eq!(text(&[5, 1, 1]).as_deref(), Some("aabacaa"));
        assert_eq!(text(&[50, 10, 10]).as_deref(), Some("aabacaa"));
        assert_eq!(text(&[7, 0, 7, 7]).as_deref(), Some("acd"));
        assert_eq!(text(&[3, 0, 2]).as_deref(), Some("acaca"));
        assert_eq!(text(&[4]).as_deref(), Some("a"));
        for none in [&[][..], &[0, 0], &[4096, 1], &[u32::MAX, u32::MAX - 1]] {
            assert_eq!(text(none), None, "{none:?}");
        }
        let many: Vec<u32> = (0..600).map(|number| 1 + number % 2).collect();
        assert_eq!(text(&many), None, "it takes too long to make");
        assert_eq!(Cycle::new([9; 4096].into()).map(|cycle| cycle.len()), Some(4096));
        assert!(Cycle::new([1; 4097].into()).is_none());
    }

    /// Reckoning that goes on from a place chooses as the cycle would have.
    #[test]
    fn it_can_be_left_anywhere() {
        let weights = [5, 0, 3, 1, 4];
        let cycle = Cycle::new(weights.into()).expect("it is short");
        let servers: Vec<(i64, u16)> =
            weights.iter().zip(0..).map(|(&weight, at)| (weight.into(), at)).filter(|it| it.0 > 0).collect();
        for place in 0..cycle.len() {
            let mut current = cycle.weights_at(place);
            assert_eq!(current.iter().sum::<i64>(), 0);
            let last = cycle.order[(place + cycle.len() - 1) % cycle.len()];
            assert_eq!(cycle.place_like(&current, last.into()), place);
            for step in place..place + 2 * cycle.len() {
                assert_eq!(turn(&servers, &mut current), cycle.order[step % cycle.len()], "{place} {step}");
            }
        }
    }

    #[test]
    fn turns_end_with_the_alarm_and_begin_where_it_is_said() {
        let cycle = Cycle::new([2, 1].into()).expect("it is short");
        let (word, alarm) = (AtomicU64::new(Turn::first(0)), Alarm::new());
        let turn = Turn(&word);
        let next = || cycle.next(turn, &alarm);
        assert_eq!([next(), next(), next(), next()], [Some(0), Some(1), Some(0), Some(0)]);
        alarm.raise();
        assert_eq!([next(), next()], [None, None]);
        assert_eq!([cycle.leave(turn), cycle.leave(turn)], [Some(1), None]);
        cycle.begin(turn, 0, 0);
        assert_eq!(next(), None, "the alarm has moved since");
        cycle.begin(turn, alarm.number(), 1);
        assert_eq!([next(), next()], [Some(1), Some(0)]);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::AtomicU32;
    use loom::sync::Arc;
    use loom::thread;

    /// Requests that choose at once get different places, one behind the other.
    #[test]
    fn no_place_is_given_twice() {
        loom::model(|| {
            let shared =
                Arc::new((Cycle::new([2, 1].into()).expect("short"), AtomicU64::new(0), Alarm::new()));
            let choosing: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.0.next(Turn(&shared.1), &shared.2))
                })
                .collect();
            let mut chosen = vec![shared.0.next(Turn(&shared.1), &shared.2)];
            chosen.extend(choosing.into_iter().map(|thread| thread.join().expect("it ends")));
            chosen.sort_unstable();
            assert_eq!(chosen, [Some(0), Some(0), Some(1)]);
        });
    }

    /// A server fails while another thread finds all of them well and begins the turns again: none is given
    /// to a server that has failed without anybody knowing.
    #[test]
    fn a_failure_ends_the_turns() {
        loom::model(|| {
            let cycle = Cycle::new([1, 1].into()).expect("short");
            let shared = Arc::new((cycle, AtomicU64::new(0), Alarm::new(), AtomicU32::new(0)));
            shared.0.leave(Turn(&shared.1));
            let failing = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.3.store(1, Ordering::Relaxed);
                    shared.2.raise();
                })
            };
            let number = shared.2.number();
            if shared.3.load(Ordering::Relaxed) == 0 {
                shared.0.begin(Turn(&shared.1), number, 0);
            }
            if shared.0.next(Turn(&shared.1), &shared.2).is_some() {
                assert_eq!(number, 0);
            }
            failing.join().expect("it ends");
            assert_eq!(shared.0.next(Turn(&shared.1), &shared.2), None);
        });
    }

    /// Two leave at once: one of them carries on from the place, and no turn is given out behind that.
    #[test]
    fn one_carries_on() {
        loom::model(|| {
            let shared =
                Arc::new((Cycle::new([1, 1].into()).expect("short"), AtomicU64::new(0), Alarm::new()));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    (shared.0.next(Turn(&shared.1), &shared.2), shared.0.leave(Turn(&shared.1)))
                })
            };
            let left = shared.0.leave(Turn(&shared.1));
            assert_eq!(shared.0.next(Turn(&shared.1), &shared.2), None);
            let (chosen, other_left) = other.join().expect("it ends");
            assert_eq!(left.is_some() as u8 + other_left.is_some() as u8, 1);
            assert_eq!(left.or(other_left), Some(chosen.map_or(0, |_| 1)));
        });
    }
}
