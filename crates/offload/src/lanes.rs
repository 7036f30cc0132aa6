//! Queues side by side, from which jobs are taken in turn.
//!
//! For jobs that clients can cause in any number, all lanes are alike (stochastic fairness queueing): a
//! client gets two of them by the hash of its address, and the shorter of the two takes the job. With 128
//! lanes one busy client fills two, and any other client shares both with it once in 8,128 cases. For jobs of
//! different kinds lanes have shares: the submitter says which one a job goes to.
//!
//! Producers never wait, as in [`ring`](crate::ring): each lane is one. A lane without jobs loses its turn to
//! the next; threads that look for their next job at the same moment may take two of the same lane.

use crate::ring::Ring;
use crate::sync::{AtomicUsize, Ordering};

/// How many lanes there may be.
const LANES_MAX: usize = 1 << u8::BITS;

/// Queues that are served in turn.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    lanes: Box<[Ring<T>]>,
    /// The lanes in the order of their turns: each lane once, or as often as its share.
    turns: Box<[u8]>,
    /// The number of the present turn.
    next: AtomicUsize,
}

impl<T> Lanes<T> {
    /// So many lanes, 256 at most, that are alike, for up to `limit` (at least 1) entries each.
    pub(crate) fn new(lanes: usize, limit: usize) -> Self {
        Self::with_shares((0..lanes.max(1)).map(|_| (limit, 1)))
    }

    /// Lanes by the entries that each has room for (at least 1), and the turns that it has of a round (at
    /// least 1).
    pub(crate) fn with_shares(lanes: impl Iterator<Item = (usize, u8)> + Clone) -> Self {
        let rounds = lanes.clone().map(|(_, share)| share.max(1)).max().unwrap_or(1);
        let of_round =
            |round| (0..=u8::MAX).zip(lanes.clone()).filter(move |(_, (_, share))| share.max(&1) > &round);
        let turns = (0..rounds).flat_map(|round| of_round(round).map(|(lane, _)| lane)).collect();
        let lanes = lanes.take(LANES_MAX).map(|(limit, _)| Ring::new(limit)).collect();
        Self { lanes, turns, next: AtomicUsize::new(0) }
    }

    /// Adds an entry for the one whose hash this is. Never waits.
    ///
    /// # Errors
    /// Gives the value back when both of its lanes are full.
    pub(crate) fn push(&self, who: u64, value: T) -> Result<(), T> {
        let (one, other) = self.lanes_of(who);
        let (shorter, longer) = if other.len() < one.len() { (other, one) } else { (one, other) };
        shorter.push(value).or_else(|value| longer.push(value))
    }

    /// Adds an entry to this lane, or to the last one. Never waits.
    ///
    /// # Errors
    /// Gives the value back when that lane is full.
    pub(crate) fn push_to(&self, lane: usize, value: T) -> Result<(), T> {
        self.lanes[lane.min(self.lanes.len() - 1)].push(value)
    }

    fn lanes_of(&self, who: u64) -> (&Ring<T>, &Ring<T>) {
        let count = self.lanes.len();
        let first = (who >> 32) as usize % count;
        // The second lane, if there is more than one.
        let second = (first + 1 + who as u32 as usize % count.saturating_sub(1).max(1)) % count;
        (&self.lanes[first], &self.lanes[second])
    }

    /// Takes the first entry of the lane whose turn it is, or of the next one that has one. Never waits.
    pub(crate) fn pop(&self) -> Option<T> {
        let (first, count) = (self.next.load(Ordering::Relaxed), self.turns.len());
        let (turn, value) = (0..count).find_map(|step| {
            let turn = (first + step) % count;
            Some((turn, self.lanes[usize::from(self.turns[turn])].pop()?))
        })?;
        // If another thread was faster, its turn counts.
        let _ = self.next.compare_exchange(first, (turn + 1) % count, Ordering::Relaxed, Ordering::Relaxed);
        Some(value)
    }

    /// Whether a pop would find something now.
    pub(crate) fn is_ready(&self) -> bool {
        self.lanes.iter().any(Ring::is_ready)
    }

    /// Entries in all lanes; out of date at once.
    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(Ring::len).sum()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of client `number`.
    fn who(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn those_who_ask_little_do_not_wait_for_those_who_ask_much() {
        let lanes = Lanes::new(128, 64);
        let taken = (0..1000).filter(|_| lanes.push(who(1), 1).is_ok()).count();
        assert_eq!(taken, 128, "two lanes are one client's share");
        for client in [2, 3, 4] {
            lanes.push(who(client), client).expect("room for others");
        }
        let order: Vec<u64> = std::iter::from_fn(|| lanes.pop()).collect();
        assert_eq!(order.len(), 131);
        for client in [2, 3, 4] {
            let at = order.iter().position(|&found| found == client).expect("nothing is lost");
            assert!(at < 6, "{client} has its turn at {at}");
        }
    }

    #[test]
    fn one_lane_is_a_queue() {
        let lanes = Lanes::new(1, 3);
        (0..3).for_each(|n| lanes.push(who(n), n).expect("room"));
        assert_eq!((lanes.push(who(9), 9), lanes.len()), (Err(9), 3));
        assert!(lanes.is_ready());
        assert_eq!([lanes.pop(), lanes.pop(), lanes.pop(), lanes.pop()], [Some(0), Some(1), Some(2), None]);
        assert!(!lanes.is_ready());
    }

    #[test]
    fn lanes_have_their_shares_and_leave_them_to_others() {
        let lanes = Lanes::with_shares([(8, 3), (2, 1)].into_iter());
        (0..8).for_each(|_| lanes.push_to(0, "light").expect("room"));
        assert_eq!(lanes.push_to(0, "light"), Err("light"));
        (0..2).for_each(|_| lanes.push_to(7, "heavy").expect("room in the last one"));
        assert_eq!((lanes.push_to(1, "heavy"), lanes.len()), (Err("heavy"), 10));
        let order: Vec<&str> = std::iter::from_fn(|| lanes.pop()).collect();
        let heavy: Vec<usize> = (0..10).filter(|&at| order[at] == "heavy").collect();
        assert_eq!(heavy, [1, 5], "one in four of those that are taken, until there is no more");
        (0..2).for_each(|_| lanes.push_to(1, "heavy").expect("room"));
        assert_eq!([lanes.pop(), lanes.pop(), lanes.pop()], [Some("heavy"), Some("heavy"), None]);
    }

    #[test]
    fn a_client_is_refused_by_few_others() {
        let lanes = Lanes::new(128, 64);
        // Eight that fill all they can.
        (0..8).for_each(|client| while lanes.push(who(client), client).is_ok() {});
        let refused = (100..1100).filter(|&client| lanes.push(who(client), client).is_err()).count();
        assert!(refused < 60, "{refused} of 1,000 found no place");
    }
}
