//! The value of each address: drafts that are filled at load with nginx's rules for ranges and networks that
//! overlap, and the table made of them, which a look-up searches by halving. Immutable once made.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A function of addresses: which value holds from which address on.
pub(super) struct Ranges<A> {
    /// Ascending.
    starts: Box<[A]>,
    values: Box<[Option<u32>]>,
}

/// An address as a number.
pub(super) trait Address: Copy + Ord + Hash {
    const ZERO: Self;
    const BITS: u8;
    fn next(self) -> Option<Self>;
    /// The last address of the network that begins here.
    fn last(self, prefix_bits: u8) -> Self;
    /// The first address of the network in which this one is.
    fn first(self, prefix_bits: u8) -> Self;
}

macro_rules! address {
    ($number:ty, $bits:literal) => {
        impl Address for $number {
            const ZERO: Self = 0;
            const BITS: u8 = $bits;

            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            fn last(self, prefix_bits: u8) -> Self {
                self | Self::MAX.checked_shr(u32::from(prefix_bits)).unwrap_or(0)
            }

            fn first(self, prefix_bits: u8) -> Self {
                self & !Self::MAX.checked_shr(u32::from(prefix_bits)).unwrap_or(0)
            }
        }
    };
}

address!(u32, 32);
address!(u128, 128);

impl<A: Address> Ranges<A> {
    /// The value of an address.
    pub(super) fn find(&self, address: A) -> Option<u32> {
        let behind = self.starts.partition_point(|start| *start <= address);
        self.values[behind.checked_sub(1)?]
    }

    /// From ranges (first, last, value) in the order of their first addresses, of which each is either
    /// behind the one before or within it.
    fn build(ranges: impl Iterator<Item = (A, A, u32)>) -> Self {
        let mut steps: Vec<(A, Option<u32>)> = vec![(A::ZERO, None)];
        // The ranges around the present address, outermost first.
        let mut open: Vec<(A, u32)> = Vec::new();
        for (first, last, value) in ranges {
            close(&mut open, &mut steps, Some(first));
            step(&mut steps, first, Some(value));
            open.push((last, value));
        }
        close(&mut open, &mut steps, None);
        let (starts, values): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
        Self { starts: starts.into(), values: values.into() }
    }
}

/// Ends the ranges that do not reach an address (all, where there is none).
fn close<A: Address>(open: &mut Vec<(A, u32)>, steps: &mut Vec<(A, Option<u32>)>, reach: Option<A>) {
    while let Some(&(last, _)) = open.last()
        && reach.is_none_or(|address| last < address)
    {
        open.pop();
        if let Some(behind) = last.next() {
            step(steps, behind, open.last().map(|(_, value)| *value));
        }
    }
}

fn step<A: Address>(steps: &mut Vec<(A, Option<u32>)>, start: A, value: Option<u32>) {
    if steps.last().is_some_and(|(last, _)| *last == start) {
        steps.pop();
    }
    if steps.last().is_none_or(|(_, before)| *before != value) {
        steps.push((start, value));
    }
}

/// Networks while they are read: of those that an address is in the smallest one counts.
#[derive(Default)]
pub(super) struct Networks<A>(HashMap<(A, u8), u32>);

impl<A: Address> Networks<A> {
    /// Adds a network by its first address. Returns what its first address had for a value, if the very
    /// same network was there: it has the new value then.
    pub(super) fn add(&mut self, first: A, prefix_bits: u8, value: u32) -> Option<u32> {
        let old = self.0.contains_key(&(first, prefix_bits)).then(|| self.find(first)).flatten();
        self.0.insert((first, prefix_bits), value);
        old
    }

    /// Whether the network was there.
    pub(super) fn delete(&mut self, first: A, prefix_bits: u8) -> bool {
        self.0.remove(&(first, prefix_bits)).is_some()
    }

    fn find(&self, address: A) -> Option<u32> {
        (0..=A::BITS).rev().find_map(|bits| self.0.get(&(address.first(bits), bits)).copied())
    }

    pub(super) fn build(self) -> Ranges<A> {
        let mut networks: Vec<_> = self.0.into_iter().collect();
        networks.sort_unstable_by_key(|((first, prefix_bits), _)| (*first, *prefix_bits));
        Ranges::build(
            networks.into_iter().map(|((first, prefix_bits), value)| (first, first.last(prefix_bits), value)),
        )
    }
}

/// Ranges of IPv4 addresses while they are read. As in nginx they are kept in blocks of 65,536 addresses,
/// and what overlaps how is asked for each block.
#[derive(Default)]
pub(super) struct Blocks(BTreeMap<u16, Vec<Piece>>);

/// A part of a range within a block.
#[derive(Clone, Copy)]
struct Piece {
    start: u16,
    end: u16,
    value: u32,
}

/// The clash of a new range with existing ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// A part of it was there with this value, and has the new one now.
    Duplicate(u32),
    /// The new range overlaps an existing one in part; it is refused.
    Overlap(u32, u32),
}

impl Blocks {
    /// Adds a range; what it is within is divided.
    pub(super) fn add(&mut self, start: u32, end: u32, value: u32) -> Vec<Clash> {
        let mut clashes = Vec::new();
        for (block, piece) in pieces(start, end, value) {
            let Some(clash) = insert(self.0.entry(block).or_default(), piece) else { continue };
            let place = u32::from(block) << 16;
            clashes.push(match clash {
                Inserted::Over(old) => Clash::Duplicate(old),
                Inserted::Not(other) => {
                    Clash::Overlap(place | u32::from(other.start), place | u32::from(other.end))
                }
            });
            if matches!(clashes.last(), Some(Clash::Overlap(..))) {
                break;
            }
        }
        clashes
    }

    /// Deletes a range. Whether it was there, block by block.
    pub(super) fn delete(&mut self, start: u32, end: u32) -> bool {
        let mut was_there = true;
        for (block, piece) in pieces(start, end, 0) {
            let found = self.0.get_mut(&block).and_then(|list| {
                let at = list.iter().position(|old| old.start == piece.start && old.end == piece.end)?;
                list.remove(at);
                Some(())
            });
            was_there &= found.is_some();
        }
        was_there
    }

    pub(super) fn build(self) -> Ranges<u32> {
        let place = |block: u16, low: u16| u32::from(block) << 16 | u32::from(low);
        Ranges::build(self.0.into_iter().flat_map(|(block, list)| {
            list.into_iter().map(move |p| (place(block, p.start), place(block, p.end), p.value))
        }))
    }
}

/// The parts of a range by block.
fn pieces(start: u32, end: u32, value: u32) -> impl Iterator<Item = (u16, Piece)> {
    let (first, last) = ((start >> 16) as u16, (end >> 16) as u16);
    (first..=last).map(move |block| {
        let start = if block == first { start as u16 } else { 0 };
        let end = if block == last { end as u16 } else { u16::MAX };
        (block, Piece { start, end, value })
    })
}

enum Inserted {
    Over(u32),
    Not(Piece),
}

fn insert(list: &mut Vec<Piece>, new: Piece) -> Option<Inserted> {
    let behind = list.partition_point(|old| old.start <= new.end);
    let Some(at) = behind.checked_sub(1).filter(|&at| list[at].end >= new.start) else {
        list.insert(behind, new);
        return None;
    };
    let old = list[at];
    if new.start < old.start || new.end > old.end {
        return Some(Inserted::Not(old));
    }
    if (new.start, new.end) == (old.start, old.end) {
        list[at].value = new.value;
        return Some(Inserted::Over(old.value));
    }
    let mut parts = Vec::with_capacity(3);
    if new.start > old.start {
        parts.push(Piece { end: new.start - 1, ..old });
    }
    parts.push(new);
    if new.end < old.end {
        parts.push(Piece { start: new.end + 1, ..old });
    }
    list.splice(at..=at, parts);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as `first=value` for each step.
    fn steps<A: Address + std::fmt::Display>(ranges: &Ranges<A>) -> String {
        let steps = ranges.starts.iter().zip(&ranges.values);
        let texts = steps.map(|(start, value)| match value {
            Some(value) => format!("{start}={value}"),
            None => format!("{start}-"),
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_smallest_network_counts() {
        let mut networks = Networks::<u32>::default();
        for (first, prefix_bits, value) in [(0, 0, 9), (256, 24, 1), (300, 32, 2), (256, 32, 3), (511, 32, 4)]
        {
            assert_eq!(networks.add(first, prefix_bits, value), None);
        }
        assert_eq!(networks.add(256, 24, 5), Some(3), "as nginx tells it: the value of its first address");
        assert_eq!(networks.add(u32::MAX, 32, 6), None);
        assert!(networks.delete(511, 32) && !networks.delete(511, 32) && !networks.delete(256, 25));
        let ranges = networks.build();
        assert_eq!(steps(&ranges), format!("0=9 256=3 257=5 300=2 301=5 512=9 {}=6", u32::MAX));
        let found = [0, 255, 256, 300, 511, 512, u32::MAX].map(|address| ranges.find(address).unwrap());
        assert_eq!(found, [9, 9, 3, 2, 5, 9, 6]);
    }

    #[test]
    fn nothing_holds_between_networks() {
        let mut networks = Networks::<u128>::default();
        assert_eq!(Networks::<u128>::default().build().find(7), None);
        networks.add(16, 125, 1);
        networks.add(24, 128, 1);
        let ranges = networks.build();
        assert_eq!(steps(&ranges), "0- 16=1 25-");
        assert_eq!((ranges.find(15), ranges.find(24), ranges.find(25)), (None, Some(1), None));
    }

    #[test]
    fn ranges_divide_what_they_are_within() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.add(0, 99, 1), []);
        assert_eq!(blocks.add(10, 19, 2), []);
        assert_eq!(blocks.add(0, 4, 3), []);
        assert_eq!(blocks.add(90, 99, 4), []);
        assert_eq!(blocks.add(0x1_fff0, 0x3_000f, 5), []);
        assert_eq!(blocks.add(10, 19, 6), [Clash::Duplicate(2)]);
        assert_eq!(blocks.add(15, 25, 7), [Clash::Overlap(20, 89)]);
        assert_eq!(
            blocks.add(0x2_0000, 0x3_ffff, 8),
            [Clash::Duplicate(5), Clash::Overlap(0x3_0000, 0x3_000f)]
        );
        assert!(blocks.delete(0, 4) && !blocks.delete(0, 4) && !blocks.delete(20, 88));
        assert!(!blocks.delete(0x1_fff0, 0x3_0000), "the last block has more");
        assert_eq!(
            steps(&blocks.build()),
            format!("0- 5=1 10=6 20=1 90=4 100- {}=5 {}-", 0x3_0000, 0x3_0010)
        );
    }

    #[test]
    fn many_ascending_ranges_are_added_in_no_time() {
        let mut blocks = Blocks::default();
        for n in 0..200_000 {
            assert_eq!(blocks.add(n, n, n), []);
        }
        let ranges = blocks.build();
        assert_eq!((ranges.find(199_999), ranges.find(200_000)), (Some(199_999), None));
    }
}
