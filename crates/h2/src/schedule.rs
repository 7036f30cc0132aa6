//! Which stream of a connection sends next. Owned by the connection; its owner says what is ready, and takes
//! one stream after the other, a frame of each.
//!
//! 1. Until the client says anything of priorities its streams have equal turns.
//! 2. With `priority` or PRIORITY_UPDATE (RFC 9218) those of the lowest urgency number go first. Among them
//!    incremental ones have equal turns; the others follow each other by number, and have one turn together.
//! 3. With PRIORITY, or a priority in HEADERS, and until the client speaks of RFC 9218 or says that it does
//!    not use the tree, that tree (RFC 7540) decides.
//! 4. A stream that is ready is found once in its queue; one that is closed may be left there.

mod tree;
mod urgency;

use std::collections::{BTreeSet, VecDeque};

use crate::frame;
use tree::Tree;
pub use urgency::Urgency;

/// Priorities that are kept of streams that have not begun; later ones push earlier ones out.
pub const EARLY_PRIORITIES_MAX: usize = 64;

/// The streams of a connection that are open, and their order.
#[derive(Debug, Default)]
pub struct Schedule {
    /// The streams by number.
    entries: VecDeque<Entry>,
    order: Order,
    /// Streams that have not begun.
    early: VecDeque<(u32, Urgency)>,
    /// Whether the client has said that it does not use the tree, or anything that takes its place.
    has_left_tree: bool,
}

/// A stream.
#[derive(Debug)]
struct Entry {
    id: u32,
    urgency: Urgency,
    is_ready: bool,
    /// When its next frame is due, by the tree's measure.
    due: u64,
}

/// The rule that decides which stream is next.
#[derive(Debug)]
enum Order {
    /// Streams have equal turns (rule 1).
    Turns(VecDeque<u32>),
    /// Streams have levels of urgency (rule 2).
    Urgencies(Box<[Turns; Urgency::LEVELS]>),
    /// Streams have the tree of RFC 7540 (rule 3).
    Tree(Box<Tree>),
}

impl Default for Order {
    fn default() -> Self {
        Self::Turns(VecDeque::new())
    }
}

/// Streams of one urgency that are ready.
#[derive(Debug, Default)]
struct Turns {
    incremental: VecDeque<u32>,
    /// The numbers of streams whose whole body is ready.
    whole: BTreeSet<u32>,
    /// Whether one of the others has had its turn last.
    was_whole: bool,
}

impl Turns {
    fn next(&mut self) -> Option<u32> {
        let is_whole = !self.whole.is_empty() && (self.incremental.is_empty() || !self.was_whole);
        self.was_whole = is_whole;
        if is_whole { self.whole.pop_first() } else { self.incremental.pop_front() }
    }
}

impl Schedule {
    /// A stream begins; it is not ready.
    pub(crate) fn open(&mut self, id: u32) {
        debug_assert!(self.entries.back().is_none_or(|last| last.id < id), "numbers only grow");
        let mut urgency = Urgency::default();
        if let Some(at) = self.early.iter().position(|(early, _)| *early == id) {
            urgency = self.early.remove(at).map_or(urgency, |(_, early)| early);
        }
        self.entries.push_back(Entry { id, urgency, is_ready: false, due: 0 });
        if let Order::Tree(tree) = &mut self.order {
            tree.open(id);
        }
    }

    /// A stream is over.
    pub(crate) fn close(&mut self, id: u32) {
        let Some(at) = self.position(id) else { return };
        self.entries.remove(at);
        if let Order::Tree(tree) = &mut self.order {
            tree.close(id);
        }
        if self.entries.is_empty() {
            self.clear_queues();
        }
    }

    /// Removes closed streams from the queues.
    fn clear_queues(&mut self) {
        match &mut self.order {
            Order::Turns(queue) => queue.clear(),
            Order::Urgencies(levels) => {
                levels.iter_mut().for_each(|turns| {
                    turns.incremental.clear();
                    turns.whole.clear();
                });
            }
            Order::Tree(_) => {}
        }
    }

    /// Gives memory back while there are no streams.
    pub(crate) fn rest(&mut self) {
        debug_assert!(self.entries.is_empty(), "a connection that rests has no streams");
        self.entries = VecDeque::new();
        match &mut self.order {
            Order::Turns(queue) => *queue = VecDeque::new(),
            Order::Urgencies(levels) => **levels = Default::default(),
            Order::Tree(_) => {}
        }
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }

    /// A stream has something to send and may.
    pub fn make_ready(&mut self, id: u32) {
        let is_first = matches!(self.order, Order::Tree(_)) && !self.entries.iter().any(|e| e.is_ready);
        if is_first {
            // No stream has waited: bytes that were sent before count for nothing.
            self.entries.iter_mut().for_each(|entry| entry.due = 0);
            if let Order::Tree(tree) = &mut self.order {
                tree.now = 0;
            }
        }
        let Some(at) = self.position(id) else { return };
        let entry = &mut self.entries[at];
        if !std::mem::replace(&mut entry.is_ready, true) {
            Self::queue(&mut self.order, entry);
        }
    }

    fn queue(order: &mut Order, entry: &mut Entry) {
        match order {
            Order::Turns(queue) => queue.push_back(entry.id),
            Order::Urgencies(levels) => {
                let turns = &mut levels[entry.urgency.level()];
                if entry.urgency.is_incremental() {
                    turns.incremental.push_back(entry.id);
                } else {
                    turns.whole.insert(entry.id);
                }
            }
            Order::Tree(tree) => entry.due = entry.due.max(tree.now),
        }
    }

    /// The stream whose turn it is. It is not ready any more, unless that is said again.
    pub fn next_ready(&mut self) -> Option<u32> {
        loop {
            let id = match &mut self.order {
                Order::Turns(queue) => queue.pop_front()?,
                Order::Urgencies(levels) => levels.iter_mut().find_map(Turns::next)?,
                Order::Tree(tree) => {
                    let ready = self.entries.iter().filter(|entry| entry.is_ready);
                    tree.choose(ready.map(|entry| (entry.id, entry.due)))?
                }
            };
            if let Some(at) = self.position(id)
                && std::mem::replace(&mut self.entries[at].is_ready, false)
            {
                return Some(id);
            }
        }
    }

    /// A stream has sent so many bytes in its turn.
    pub fn charge(&mut self, id: u32, bytes: usize) {
        let Order::Tree(tree) = &self.order else { return };
        let cost = tree.cost(id, bytes);
        if let Some(at) = self.position(id) {
            self.entries[at].due = self.entries[at].due.saturating_add(cost);
        }
    }
}

/// Priorities from the client.
impl Schedule {
    /// The urgency of a stream, which is open or begins later.
    pub(crate) fn set_urgency(&mut self, id: u32, urgency: Urgency) {
        self.leave_tree();
        if !matches!(self.order, Order::Urgencies(_)) {
            self.order = Order::Urgencies(Box::default());
            for entry in self.entries.iter_mut().filter(|entry| entry.is_ready) {
                Self::queue(&mut self.order, entry);
            }
        }
        let Some(at) = self.position(id) else { return self.note_early(id, urgency) };
        let entry = &mut self.entries[at];
        let before = std::mem::replace(&mut entry.urgency, urgency);
        if let (Order::Urgencies(levels), true) = (&mut self.order, entry.is_ready && before != urgency) {
            let turns = &mut levels[before.level()];
            turns.incremental.retain(|queued| *queued != id);
            turns.whole.remove(&id);
            Self::queue(&mut self.order, entry);
        }
    }

    fn note_early(&mut self, id: u32, urgency: Urgency) {
        if self.entries.back().is_some_and(|last| id <= last.id) {
            return;
        }
        self.early.retain(|(early, _)| *early != id);
        if self.early.len() == EARLY_PRIORITIES_MAX {
            self.early.pop_front();
        }
        self.early.push_back((id, urgency));
    }

    /// The place of a stream in the tree, whether it is open or not.
    pub(crate) fn place(&mut self, id: u32, priority: frame::Priority) {
        if self.has_left_tree {
            return;
        }
        if !matches!(self.order, Order::Tree(_)) {
            let mut tree = Box::<Tree>::default();
            self.entries.iter().for_each(|entry| tree.open(entry.id));
            self.order = Order::Tree(tree);
        }
        if let Order::Tree(tree) = &mut self.order {
            tree.place(id, priority);
        }
    }

    /// The client does not use the tree.
    pub(crate) fn leave_tree(&mut self) {
        self.has_left_tree = true;
        if !matches!(self.order, Order::Tree(_)) {
            return;
        }
        self.order = Order::default();
        for entry in self.entries.iter_mut().filter(|entry| entry.is_ready) {
            Self::queue(&mut self.order, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Placing, Priority};

    fn all_ready(count: u32) -> Schedule {
        let mut schedule = Schedule::default();
        for id in (1..2 * count).step_by(2) {
            schedule.open(id);
            schedule.make_ready(id);
        }
        schedule
    }

    /// The next `count` turns of streams that always have more.
    fn turns(schedule: &mut Schedule, count: usize) -> Vec<u32> {
        let turn = || {
            let id = schedule.next_ready()?;
            schedule.charge(id, 8_192);
            schedule.make_ready(id);
            Some(id)
        };
        std::iter::from_fn(turn).take(count).collect()
    }

    fn urgency(text: &str) -> Urgency {
        Urgency::parse(text.as_bytes())
    }

    #[test]
    fn streams_without_priorities_have_equal_turns() {
        let mut schedule = all_ready(3);
        assert_eq!(turns(&mut schedule, 5), [1, 3, 5, 1, 3]);
        schedule.close(5);
        assert_eq!(turns(&mut schedule, 3), [1, 3, 1]);
    }

    #[test]
    fn urgent_streams_go_first_and_one_after_the_other() {
        let mut schedule = all_ready(5);
        schedule.set_urgency(7, urgency("u=1"));
        schedule.set_urgency(9, urgency("u=1"));
        assert_eq!(turns(&mut schedule, 3), [7, 7, 7]);
        schedule.close(7);
        assert_eq!(turns(&mut schedule, 2), [9, 9]);
        schedule.set_urgency(9, urgency("u=7"));
        assert_eq!(turns(&mut schedule, 2), [1, 1]);
        schedule.set_urgency(3, urgency("i"));
        schedule.set_urgency(5, urgency("i"));
        assert_eq!(turns(&mut schedule, 6), [3, 1, 5, 1, 3, 1]);
    }

    #[test]
    fn what_is_said_before_a_stream_begins_counts() {
        let mut schedule = Schedule::default();
        schedule.set_urgency(3, urgency("u=0"));
        for id in 101..200 {
            schedule.set_urgency(id, urgency("u=6"));
        }
        assert_eq!(schedule.early.len(), EARLY_PRIORITIES_MAX);
        schedule.set_urgency(3, urgency("u=0"));
        for id in [1, 3] {
            schedule.open(id);
            schedule.make_ready(id);
        }
        assert_eq!(turns(&mut schedule, 2), [3, 3]);
    }

    #[test]
    fn the_tree_counts_until_the_client_leaves_it() {
        let on = |depends_on, weight| Priority { depends_on, placing: Placing::Shared, weight };
        let mut schedule = all_ready(3);
        schedule.place(1, on(5, 256));
        schedule.place(3, on(5, 1));
        assert_eq!(turns(&mut schedule, 2), [5, 5]);
        schedule.close(5);
        let shares = turns(&mut schedule, 257);
        assert_eq!(shares.iter().filter(|id| **id == 3).count(), 1, "by weight");
        schedule.leave_tree();
        assert_eq!(turns(&mut schedule, 4), [1, 3, 1, 3]);
        schedule.place(1, on(3, 1));
        assert_eq!(turns(&mut schedule, 2), [1, 3], "it stays so");
    }

    /// Actions that may come in any order.
    #[derive(Clone, Debug)]
    enum Act {
        Open,
        Close(u32),
        Ready(u32),
        Next,
        Urgency(u32, u8, bool),
        Place(u32, u32, u16, bool),
        Leave,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let id = (0..20_u32).prop_map(|nth| nth * 2 + 1);
        let act = prop_oneof![
            4 => Just(Act::Open),
            2 => id.clone().prop_map(Act::Close),
            6 => id.clone().prop_map(Act::Ready),
            6 => Just(Act::Next),
            1 => (id.clone(), 0..8_u8, any::<bool>()).prop_map(|(id, u, i)| Act::Urgency(id, u, i)),
            2 => (id.clone(), id, 1..=256_u16, any::<bool>()).prop_map(|(a, b, w, e)| Act::Place(a, b, w, e)),
            1 => Just(Act::Leave),
        ];
        prop::collection::vec(act, 0..120)
    }

    proptest! {
        /// Whatever is said, each ready stream is chosen once, and none that is not.
        #[test]
        fn what_is_ready_is_chosen_once(acts in acts()) {
            let mut schedule = Schedule::default();
            let (mut open, mut ready, mut next) = (BTreeSet::new(), BTreeSet::new(), 1);
            for act in acts {
                match act {
                    Act::Open => {
                        schedule.open(next);
                        open.insert(next);
                        next += 2;
                    }
                    Act::Close(id) => {
                        schedule.close(id);
                        open.remove(&id);
                        ready.remove(&id);
                    }
                    Act::Ready(id) => {
                        schedule.make_ready(id);
                        if open.contains(&id) {
                            ready.insert(id);
                        }
                    }
                    Act::Next => {
                        let chosen = schedule.next_ready();
                        prop_assert_eq!(chosen.is_some(), !ready.is_empty());
                        prop_assert!(chosen.is_none_or(|id| ready.remove(&id)));
                    }
                    Act::Urgency(id, level, is_incremental) => {
                        let text = format!("u={level}{}", if is_incremental { ", i" } else { "" });
                        schedule.set_urgency(id, urgency(&text));
                    }
                    Act::Place(id, depends_on, weight, is_exclusive) if id != depends_on => {
                        let placing = if is_exclusive { Placing::Exclusive } else { Placing::Shared };
                        schedule.place(id, Priority { depends_on, placing, weight });
                    }
                    Act::Place(..) => {}
                    Act::Leave => schedule.leave_tree(),
                }
            }
            let rest: BTreeSet<u32> = std::iter::from_fn(|| schedule.next_ready()).collect();
            prop_assert_eq!(rest, ready);
        }

        /// Nobody of the same priority gets more than one turn more than another.
        #[test]
        fn equals_are_treated_alike(
            count in 2..40_u32, is_incremental in any::<bool>(), rounds in 1..10_usize,
        ) {
            let mut schedule = all_ready(count);
            if is_incremental {
                for id in (1..2 * count).step_by(2) {
                    schedule.set_urgency(id, urgency("u=5, i"));
                }
            }
            let turns = turns(&mut schedule, rounds * count as usize);
            for id in (1..2 * count).step_by(2) {
                prop_assert_eq!(turns.iter().filter(|turn| **turn == id).count(), rounds);
            }
        }
    }
}
