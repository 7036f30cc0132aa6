//! Queues side by side, from which jobs are taken in turn, for what strangers can ask for any number of
//! times (stochastic fairness queueing). A client gets two of the lanes by the hash of its address, and the
//! shorter of the two takes the job: with 128 lanes one busy client fills two of them, and any other client
//! shares both with it once in 8,128 cases.
//!
//! Producers never wait, as in [`ring`](crate::ring): each lane is one. Lanes are served one job each;
//! threads that look for their next job at the same moment may take two of the same lane.

use crate::ring::Ring;
use crate::sync::{AtomicUsize, Ordering};

/// Queues that are served in turn.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    lanes: Box<[Ring<T>]>,
    /// The lane whose turn it is.
    next: AtomicUsize,
}

impl<T> Lanes<T> {
    /// So many lanes for up to `limit` (at least 1) entries each.
    pub(crate) fn new(lanes: usize, limit: usize) -> Self {
        Self { lanes: (0..lanes.max(1)).map(|_| Ring::new(limit)).collect(), next: AtomicUsize::new(0) }
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

    fn lanes_of(&self, who: u64) -> (&Ring<T>, &Ring<T>) {
        let count = self.lanes.len();
        let first = (who >> 32) as usize % count;
        // Another one, if there is another.
        let second = (first + 1 + who as u32 as usize % count.saturating_sub(1).max(1)) % count;
        (&self.lanes[first], &self.lanes[second])
    }

    /// Takes the first entry of the next lane that has one. Never waits.
    pub(crate) fn pop(&self) -> Option<T> {
        let (first, count) = (self.next.load(Ordering::Relaxed), self.lanes.len());
        let (at, value) = (0..count).find_map(|step| {
            let at = (first + step) % count;
            Some((at, self.lanes[at].pop()?))
        })?;
        // Where another thread was faster, its turn holds.
        let _ = self.next.compare_exchange(first, (at + 1) % count, Ordering::Relaxed, Ordering::Relaxed);
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

    /// Hashes of clients, one for each number.
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
    fn a_client_is_refused_by_few_others() {
        let lanes = Lanes::new(128, 64);
        // Eight that fill all they can.
        (0..8).for_each(|client| while lanes.push(who(client), client).is_ok() {});
        let refused = (100..1100).filter(|&client| lanes.push(who(client), client).is_err()).count();
        assert!(refused < 60, "{refused} of 1,000 found no place");
    }
}
