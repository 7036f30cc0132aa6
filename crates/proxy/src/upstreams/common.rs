//! The state of servers that worker processes share (`worker_groups`): memory beside the zone of an
//! `upstream`, in blocks that are found by the names of their servers. Any thread of any process.
//!
//! Rules.
//! 1. A block is taken by writing its key, from FREE or from that of a block that nobody has held for
//!    [`HELD_MS`], by compare-and-swap to TAKING; then it is cleared, and the key is written. Of two blocks
//!    with one key the first one counts, and the process that sees it gives its own back.
//! 2. A process stamps the blocks that it holds once a second (`Lasting::follow_others`).
//! 3. The attempts of a process are counted in the word at its place of the zone, with its number. When a
//!    process is gone, the process that exchanges this word for 0 takes its attempts off the sum.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use clearway_os::clock::monotonic_ms;
use clearway_upstream::{Common, Memory, PEER_WORDS, PeerConfig, PeerMemory};
use clearway_zone::Zone;

/// Bytes beside a zone: four thousand blocks. Only blocks that are used take memory.
pub(crate) const COMMON_BYTES: u64 = 4096 * (BLOCK_WORDS * size_of::<u64>()) as u64;

/// Words of a block: its key, its stamp, the sum of attempts, its contents, and the attempts of each place.
const BLOCK_WORDS: usize = 96;
const STAMP_AT: usize = 1;
const HELD_AT: usize = 2;
const CONTENT_AT: usize = 3;
const PLACES_AT: usize = 32;
const CONTENT_WORDS: usize = PLACES_AT - CONTENT_AT;
/// Words of contents in a block that holds no server: the words of the places hold contents as well.
const WORDS_MAX: usize = BLOCK_WORDS - CONTENT_AT;

const FREE: u64 = 0;
const TAKING: u64 = 1;

/// A block that no process has stamped for so long is free.
const HELD_MS: u64 = 60_000;

/// The most blocks that are looked at for a key.
const PROBES_MAX: usize = 64;

const _: () = assert!(PEER_WORDS <= CONTENT_WORDS, "a server is in one block");

/// The blocks of one zone, as a process uses them.
pub(crate) struct Blocks {
    zone: Arc<Zone>,
    /// Blocks that are in use.
    held: Mutex<Vec<Weak<Block>>>,
}

/// A block that is held.
struct Block {
    blocks: Arc<Blocks>,
    first: usize,
    /// The place of this process, and its number there.
    own: (usize, u32),
    holds: Holds,
}

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// A server, with the attempts of each process.
    Server,
    Words,
}

/// The memory of one group.
pub(crate) struct OfGroup {
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) name: Box<[u8]>,
}

/// A run of words, in as many blocks as it needs.
struct Words(Box<[Arc<Block>]>);

impl Blocks {
    pub(crate) fn new(zone: Arc<Zone>) -> Arc<Self> {
        Arc::new(Self { zone, held: Mutex::default() })
    }

    /// Holds a block by rule 1. `None`: all blocks for the key are taken.
    fn hold(self: &Arc<Self>, holds: Holds, name: &impl Hash) -> Option<Arc<Block>> {
        let own = self.zone.own_place()?;
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let key = hasher.finish().max(TAKING + 1);
        let first = self.find(key).or_else(|| self.take(key))?;
        let block = Arc::new(Block { blocks: Arc::clone(self), first, own, holds });
        block.stamp(monotonic_ms());
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|block| block.strong_count() > 0);
        held.push(Arc::downgrade(&block));
        Some(block)
    }

    /// The offsets of the blocks that are looked at for a key, in words.
    fn probes(&self, key: u64) -> impl Iterator<Item = usize> {
        let blocks = self.zone.words().len() / BLOCK_WORDS;
        let start = usize::try_from(key % blocks as u64).unwrap_or(0);
        (0..PROBES_MAX.min(blocks)).map(move |step| (start + step) % blocks * BLOCK_WORDS)
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.probes(key).find(|&first| self.zone.words()[first].load(Ordering::Acquire) == key)
    }

    fn take(&self, key: u64) -> Option<usize> {
        let (words, now_ms) = (self.zone.words(), monotonic_ms());
        let is_left = |key: u64, first: usize| {
            key > TAKING && words[first + STAMP_AT].load(Ordering::Relaxed) + HELD_MS < now_ms
        };
        let first = self.probes(key).find(|&first| {
            let before = words[first].load(Ordering::Acquire);
            (before == FREE || is_left(before, first))
                && words[first].compare_exchange(before, TAKING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        words[first + 1..first + BLOCK_WORDS].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        words[first + STAMP_AT].store(now_ms, Ordering::Relaxed);
        words[first].store(key, Ordering::SeqCst);
        let earliest = self.find(key).unwrap_or(first);
        if earliest != first {
            words[first].store(FREE, Ordering::Release);
        }
        Some(earliest)
    }

    /// Stamps the blocks that are held, and takes back the attempts of processes that are gone (rules 2 and
    /// 3).
    pub(crate) fn keep(&self) {
        let now_ms = monotonic_ms();
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for block in held.iter().filter_map(Weak::upgrade) {
            block.stamp(now_ms);
            if block.holds == Holds::Server {
                block.take_back();
            }
        }
    }
}

impl Block {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.blocks.zone.words()[self.first + at]
    }

    fn stamp(&self, now_ms: u64) {
        self.word(STAMP_AT).store(now_ms, Ordering::Relaxed);
    }

    /// Takes back the attempts of all processes that are gone (rule 3).
    fn take_back(&self) {
        for place in 0..BLOCK_WORDS - PLACES_AT {
            let word = self.word(PLACES_AT + place);
            let counted = word.load(Ordering::Acquire);
            let number = (counted >> 32) as u32;
            if counted != 0 && number != self.own.1 && !self.blocks.zone.has_worker(number) {
                self.take_back_of(word, counted);
            }
        }
    }

    fn take_back_of(&self, word: &AtomicU64, counted: u64) {
        if word.compare_exchange(counted, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.lower(counted & u64::from(u32::MAX));
        }
    }

    fn lower(&self, by: u64) {
        let less = |held: u64| Some(held.saturating_sub(by));
        let _ = self.word(HELD_AT).fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }

    /// The word of this process. Attempts that another process has left there are taken back.
    fn own(&self) -> &AtomicU64 {
        let (place, number) = self.own;
        let word = self.word(PLACES_AT + place);
        let counted = word.load(Ordering::Acquire);
        if (counted >> 32) as u32 != number {
            self.take_back_of(word, counted);
            let _ = word.compare_exchange(0, u64::from(number) << 32, Ordering::AcqRel, Ordering::Relaxed);
        }
        word
    }
}

/// The memory of one server.
struct OfPeer(Arc<Block>);

impl Memory for OfPeer {
    fn word(&self, at: usize) -> &AtomicU64 {
        self.0.word(CONTENT_AT + at.min(CONTENT_WORDS - 1))
    }
}

impl PeerMemory for OfPeer {
    fn enter(&self) -> u32 {
        self.0.own().fetch_add(1, Ordering::AcqRel);
        let before = self.0.word(HELD_AT).fetch_add(1, Ordering::AcqRel);
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    fn leave(&self) {
        self.0.lower(1);
        let less = |own: u64| (own as u32 > 0).then(|| own - 1);
        let _ = self.0.own().fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }

    fn held(&self) -> u32 {
        u32::try_from(self.0.word(HELD_AT).load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }
}

impl Memory for Words {
    fn word(&self, at: usize) -> &AtomicU64 {
        let block = self.0.get(at / WORDS_MAX).unwrap_or(&self.0[0]);
        block.word(CONTENT_AT + at % WORDS_MAX)
    }
}

impl Common for OfGroup {
    fn peer(&self, config: &PeerConfig) -> Option<Arc<dyn PeerMemory>> {
        let block = self.blocks.hold(Holds::Server, &("server", &self.name, &config.server, &config.name))?;
        block.take_back();
        Some(Arc::new(OfPeer(block)))
    }

    fn words(&self, name: u64, count: usize) -> Option<Arc<dyn Memory>> {
        let parts = 0..count.div_ceil(WORDS_MAX).max(1);
        let blocks = parts.map(|part| self.blocks.hold(Holds::Words, &("words", &self.name, name, part)));
        Some(Arc::new(Words(blocks.collect::<Option<_>>()?)))
    }
}

impl fmt::Debug for OfGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfGroup").field("name", &String::from_utf8_lossy(&self.name)).finish_non_exhaustive()
    }
}

impl fmt::Debug for OfPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfPeer").field("held", &self.held()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("blocks", &self.0.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_zone::Zones;

    fn blocks(bytes: u64) -> Arc<Blocks> {
        let zones = Zones::create(None);
        let zone = zones.declare(b"one", bytes, "upstream servers").unwrap();
        zones.open().unwrap();
        Blocks::new(zone)
    }

    fn of_peer(blocks: &Arc<Blocks>, name: &str) -> Option<OfPeer> {
        Some(OfPeer(blocks.hold(Holds::Server, &name)?))
    }

    #[test]
    fn a_name_is_found_again_and_others_have_their_own() {
        let blocks = blocks(COMMON_BYTES);
        let [one, same, other] = ["a", "a", "b"].map(|name| of_peer(&blocks, name).unwrap());
        one.word(0).store(7, Ordering::Relaxed);
        assert_eq!([&same, &other].map(|it| it.word(0).load(Ordering::Relaxed)), [7, 0]);
        assert_eq!((one.enter(), same.enter(), other.enter()), (0, 1, 0));
        same.leave();
        assert_eq!((one.held(), other.held()), (1, 1));
    }

    #[test]
    fn lists_have_as_many_blocks_as_they_take() {
        let of_group = OfGroup { blocks: blocks(COMMON_BYTES), name: b"g".as_slice().into() };
        let words = of_group.words(1, 300).unwrap();
        (0..300).for_each(|at| words.word(at).store(at as u64 + 1, Ordering::Relaxed));
        let same = of_group.words(1, 300).unwrap();
        assert!((0..300).all(|at| same.word(at).load(Ordering::Relaxed) == at as u64 + 1));
    }

    #[test]
    fn what_a_process_has_left_is_taken_back() {
        let blocks = blocks(COMMON_BYTES);
        let peer = of_peer(&blocks, "a").unwrap();
        peer.enter();
        // Three of a process that nobody knows.
        peer.0.word(PLACES_AT + 9).store(u64::from(u32::MAX) << 32 | 3, Ordering::Relaxed);
        peer.0.word(HELD_AT).fetch_add(3, Ordering::Relaxed);
        peer.0.take_back();
        assert_eq!(peer.held(), 1);
        // The place of this one was another one's.
        let (place, _) = peer.0.own;
        peer.0.word(PLACES_AT + place).store(u64::from(u32::MAX) << 32 | 1, Ordering::Relaxed);
        assert_eq!((peer.enter(), peer.held()), (0, 1));
    }

    #[test]
    fn a_full_memory_gives_away_what_nobody_holds() {
        // A header, and room for two.
        let blocks = blocks(1024 + 2 * (BLOCK_WORDS * size_of::<u64>()) as u64);
        let [one, two] = ["a", "b"].map(|name| of_peer(&blocks, name).unwrap());
        assert!(of_peer(&blocks, "c").is_none());
        one.word(0).store(7, Ordering::Relaxed);
        let Some(early) = monotonic_ms().checked_sub(2 * HELD_MS) else { return };
        one.0.stamp(early);
        let third = of_peer(&blocks, "c").unwrap();
        assert_eq!((third.word(0).load(Ordering::Relaxed), third.0.first), (0, one.0.first));
        drop(two);
    }
}
