//! The tree of RFC 7540 §5.3: a stream waits for what it depends on, and shares with its siblings by weight.
//! Streams that are not open may stand in it, so that others depend on them: clients group streams so.
//!
//! Shares are kept by start times: a frame is due when the one before it was, and as much later as it cost by
//! weight. What is due first goes first, of equals the one with the larger weight.

use crate::frame::{Placing, Priority};

/// Streams in the tree that are not open; more of them push the oldest ones out.
const ABSENT_MAX: usize = 64;
/// How far up the tree is looked for what a stream depends on. What is deeper is as if it was so deep.
const DEPTH_MAX: usize = 16;
/// The weight of a stream of which nothing was said.
const USUAL_WEIGHT: u16 = 16;
/// The cost of a byte for a stream with the whole weight.
const UNIT: u64 = 1 << 8;
/// The whole weight.
const WHOLE: u64 = 1 << 32;

/// The tree of dependencies of one connection.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// By number.
    nodes: Vec<Node>,
    /// Counts what was put into the tree.
    clock: u64,
    /// When the frame was due that was sent last.
    pub(super) now: u64,
}

#[derive(Debug)]
struct Node {
    id: u32,
    /// 0 is the root.
    parent: u32,
    weight: u16,
    presence: Presence,
}

/// Whether a stream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Open,
    /// Not yet, or not any more, since then.
    Absent(u64),
}

impl Tree {
    fn find(&self, id: u32) -> Option<&Node> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok().map(|at| &self.nodes[at])
    }

    /// The node of a stream, which is made if there is none.
    fn node(&mut self, id: u32) -> &mut Node {
        let at = match self.nodes.binary_search_by_key(&id, |node| node.id) {
            Ok(at) => at,
            Err(at) => {
                self.clock += 1;
                let presence = Presence::Absent(self.clock);
                self.nodes.insert(at, Node { id, parent: 0, weight: USUAL_WEIGHT, presence });
                at
            }
        };
        &mut self.nodes[at]
    }

    /// A stream begins.
    pub(super) fn open(&mut self, id: u32) {
        self.node(id).presence = Presence::Open;
    }

    /// A stream is over; others may go on to depend on it.
    pub(super) fn close(&mut self, id: u32) {
        self.clock += 1;
        let clock = self.clock;
        self.node(id).presence = Presence::Absent(clock);
        self.forget();
    }

    /// Takes out the oldest of those that are not open, where they are too many. What depends on one depends
    /// on what that did.
    fn forget(&mut self) {
        let absent = |node: &Node| match node.presence {
            Presence::Absent(since) => Some(since),
            Presence::Open => None,
        };
        while self.nodes.iter().filter_map(absent).count() > ABSENT_MAX {
            let oldest =
                self.nodes.iter().enumerate().filter_map(|(at, node)| Some((absent(node)?, at))).min();
            let Some((_, at)) = oldest else { return };
            let gone = self.nodes.remove(at);
            for node in self.nodes.iter_mut().filter(|node| node.parent == gone.id) {
                node.parent = gone.parent;
            }
        }
    }

    /// Gives a stream its place.
    pub(super) fn place(&mut self, id: u32, priority: Priority) {
        let Priority { depends_on, placing, weight } = priority;
        debug_assert!(id != depends_on && id != 0, "frames that say so are refused");
        let before = self.node(id).parent;
        if depends_on != 0 {
            // A stream that is not known counts as a child of the root; it may begin later.
            self.node(depends_on);
            if self.is_below(depends_on, id) {
                self.node(depends_on).parent = before;
            }
        }
        if placing == Placing::Exclusive {
            for node in self.nodes.iter_mut().filter(|node| node.parent == depends_on && node.id != id) {
                node.parent = id;
            }
        }
        let node = self.node(id);
        (node.parent, node.weight) = (depends_on, weight);
        self.forget();
        debug_assert!(!self.is_below(depends_on, id), "nothing depends on itself");
    }

    /// Whether a stream depends on another one, over any others.
    fn is_below(&self, id: u32, above: u32) -> bool {
        let mut at = id;
        for _ in 0..=self.nodes.len() {
            let Some(node) = self.find(at) else { return false };
            if node.parent == above {
                return true;
            }
            at = node.parent;
        }
        false
    }

    /// The streams that a stream depends on, from below.
    fn above(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let parent = |id: u32| self.find(id).map(|node| node.parent).filter(|parent| *parent != 0);
        std::iter::successors(parent(id), move |above| parent(*above)).take(DEPTH_MAX)
    }

    /// A stream's part of the whole weight.
    fn share(&self, id: u32) -> u64 {
        let weight = |id: u32| u64::from(self.find(id).map_or(USUAL_WEIGHT, |node| node.weight));
        let shares =
            self.above(id).fold(WHOLE * weight(id) / 256, |share, above| share * weight(above) / 256);
        shares.max(1)
    }

    /// The cost of so many bytes for a stream.
    pub(super) fn cost(&self, id: u32, bytes: usize) -> u64 {
        let cost =
            u128::from(bytes as u64) * u128::from(UNIT) * u128::from(WHOLE) / u128::from(self.share(id));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// The one to send of those that are ready, which come with when they are due, by number.
    pub(super) fn choose(&mut self, ready: impl Iterator<Item = (u32, u64)> + Clone) -> Option<u32> {
        let ids: Vec<u32> = ready.clone().map(|(id, _)| id).collect();
        let is_free = |id: u32| !self.above(id).any(|above| ids.binary_search(&above).is_ok());
        let key = |(id, due): (u32, u64)| (due, std::cmp::Reverse(self.share(id)), id);
        let chosen = ready.filter(|(id, _)| is_free(*id)).min_by_key(|entry| key(*entry));
        // Deep trees may hide what all depend on; one stream has to go on.
        let (id, due) = chosen.or_else(|| ids.first().map(|id| (*id, self.now)))?;
        self.now = self.now.max(due);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(depends_on: u32, weight: u16, placing: Placing) -> Priority {
        Priority { depends_on, placing, weight }
    }

    fn parents(tree: &Tree) -> Vec<(u32, u32)> {
        tree.nodes.iter().map(|node| (node.id, node.parent)).collect()
    }

    #[test]
    fn exclusive_ones_come_between_and_circles_are_opened() {
        let mut tree = Tree::default();
        tree.place(3, on(1, 16, Placing::Shared));
        tree.place(5, on(1, 16, Placing::Shared));
        tree.place(7, on(1, 16, Placing::Exclusive));
        assert_eq!(parents(&tree), [(1, 0), (3, 7), (5, 7), (7, 1)]);
        tree.place(1, on(5, 16, Placing::Shared));
        assert_eq!(parents(&tree), [(1, 5), (3, 7), (5, 0), (7, 1)]);
        tree.place(1, on(3, 16, Placing::Exclusive));
        assert_eq!(parents(&tree), [(1, 3), (3, 5), (5, 0), (7, 1)]);
    }

    #[test]
    fn what_is_not_open_is_forgotten_in_the_end() {
        let mut tree = Tree::default();
        tree.open(1);
        tree.place(3, on(0, 16, Placing::Shared));
        tree.place(1, on(3, 200, Placing::Shared));
        for id in 10..200 {
            tree.place(id, on(1, 16, Placing::Shared));
        }
        assert_eq!(tree.nodes.len(), ABSENT_MAX + 1);
        assert_eq!(tree.find(1).map(|node| node.parent), Some(0), "3 is gone");
    }

    #[test]
    fn shares_follow_weights_on_all_levels() {
        let mut tree = Tree::default();
        tree.place(3, on(0, 128, Placing::Shared));
        tree.place(1, on(3, 128, Placing::Shared));
        assert_eq!(tree.cost(1, 10), 10 * UNIT * 4);
        assert_eq!(tree.choose([(1, 5), (3, 9)].into_iter()), Some(3), "1 waits for it");
        assert_eq!(tree.choose([(1, 5), (9, 5)].into_iter()), Some(1));
    }
}
