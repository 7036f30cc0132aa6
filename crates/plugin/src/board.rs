//! The board: memory in which the server posts questions and a plugin its answers, in one process or in two.
//! The server's threads on one side, the plugin's own on the other.
//!
//! 1. A slot has a word (generation, state), the lengths of both messages, and room for one of them. Only the
//!    server makes POSTED of what it has free; only the plugin takes POSTED → TAKEN → ANSWERING → ANSWERED,
//!    each by a swap of exactly what it has seen. A call is named by slot and generation, so an answer that
//!    comes twice, or for a call that is over, finds another word and is refused.
//! 2. Two rings have numbers of slots: those that were posted, and those that were answered, where nobody is
//!    there to be told directly. A cell says whose turn it is (its sequence); one that is claimed by a
//!    process which dies stays so. After a death nothing of a board is used any more: there is a new one.
//! 3. A ring has twice as many cells as there are slots, so it is full only if a claimed cell is not given
//!    back for a whole round. Attempts at it are counted: memory that somebody spoils holds nobody up.
//! 4. Sleepers count themselves, then look again, then sleep on the bell's value. A post comes before the
//!    look at that count, with a SeqCst fence between: one of the two sees the other.
//! 5. What the server reads here is an allegation: numbers of slots and lengths are checked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use clearway_os::futex;
use clearway_os::shared_memory::SharedMemory;

/// A number by which the two processes check that they use the same layout.
const LAYOUT: u64 = 0xC1EA_0001;

/// Where what is: numbers of words. What different threads write is in lines of its own.
const AT_LAYOUT: usize = 0;
const AT_SLOTS: usize = 1;
const AT_SLOT_BYTES: usize = 2;
const AT_CLOSED: usize = 8;
const POSTED: Ring = Ring { head: 16, tail: 24, bell: 32, sleepers: 33, nth: 0 };
const ANSWERED: Ring = Ring { head: 40, tail: 48, bell: 56, sleepers: 57, nth: 1 };
const CELLS: usize = 64;

/// Words of a slot in front of its message.
const SLOT_HEAD: usize = 2;

const WORD_BYTES: usize = 8;

/// Attempts at a ring until it counts as full or empty.
const ATTEMPTS: usize = 1000;

const STATE_BITS: u32 = 8;

/// See rule 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum CallState {
    Posted = 1,
    Taken = 2,
    Answering = 3,
    Answered = 4,
}

/// A call, for the plugin: slot and generation. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId(u64);

impl CallId {
    pub(crate) fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | (u64::from(slot) + 1))
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    fn slot(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }

    fn word(self, state: CallState) -> u64 {
        self.0 >> 32 << STATE_BITS | state as u64
    }
}

/// The result when a plugin asks for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A call, and how long its question is, bytes.
    Call(CallId, u32),
    /// No message for now.
    Nothing,
    /// No message any more.
    Closed,
}

/// Why an answer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No call waits for the answer: it was given already, or never asked for.
    Unknown,
    /// The message is longer than allowed.
    TooLarge,
}

/// The board between the server and one plugin.
pub(crate) struct Board {
    memory: SharedMemory,
    slots: u32,
    slot_bytes: u32,
}

/// Words of a board of that size.
fn words_of(slots: u32, slot_bytes: u32) -> usize {
    CELLS + 4 * slots as usize + slots as usize * slot_words(slot_bytes)
}

fn slot_words(slot_bytes: u32) -> usize {
    SLOT_HEAD + (slot_bytes as usize).div_ceil(WORD_BYTES)
}

impl Board {
    /// A new one for so many calls at a time, a power of two from 1 to 65536, with messages of so many bytes
    /// at most. Memory is taken when it is used.
    ///
    /// # Errors
    /// As [`SharedMemory::create`].
    pub(crate) fn create(slots: u32, slot_bytes: u32) -> std::io::Result<(Self, OwnedFd)> {
        debug_assert!(slots.is_power_of_two() && slots <= 1 << 16, "as directives say");
        let bytes = words_of(slots, slot_bytes) * WORD_BYTES;
        let (memory, fd) = SharedMemory::create("clearway plugin", bytes)?;
        let words = memory.words();
        for ring in [&POSTED, &ANSWERED] {
            let cells = &words[ring.cells(slots)];
            (0_u64..).zip(cells).for_each(|(nth, cell)| cell.store(nth << 32, Relaxed));
        }
        words[AT_SLOTS].store(slots.into(), Relaxed);
        words[AT_SLOT_BYTES].store(slot_bytes.into(), Relaxed);
        words[AT_LAYOUT].store(LAYOUT, Release);
        Ok((Self { memory, slots, slot_bytes }, fd))
    }

    /// Opens a board that another process has made.
    ///
    /// # Errors
    /// As [`SharedMemory::map`]; `InvalidData` where it is something else.
    pub(crate) fn open(fd: BorrowedFd<'_>) -> std::io::Result<Self> {
        let head = SharedMemory::map(fd.as_fd(), CELLS * WORD_BYTES)?;
        let word = |at: usize| head.words()[at].load(Acquire);
        let slots = u32::try_from(word(AT_SLOTS)).ok().filter(|slots| slots.is_power_of_two());
        let slot_bytes = u32::try_from(word(AT_SLOT_BYTES)).ok();
        let (LAYOUT, Some(slots), Some(slot_bytes)) = (word(AT_LAYOUT), slots, slot_bytes) else {
            return Err(std::io::ErrorKind::InvalidData.into());
        };
        let memory = SharedMemory::map(fd, words_of(slots, slot_bytes) * WORD_BYTES)?;
        Ok(Self { memory, slots, slot_bytes })
    }

    /// The longest message, bytes.
    pub(crate) fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }

    /// The words of a slot: (generation, state); lengths; message. `None`: there is no such slot.
    fn slot(&self, slot: u32) -> Option<(&AtomicU64, &AtomicU64, &[AtomicU64])> {
        let size = slot_words(self.slot_bytes);
        let begin = CELLS + 4 * self.slots as usize + slot as usize * size;
        match (slot < self.slots).then(|| &self.memory.words()[begin..begin + size])? {
            [state, length, message @ ..] => Some((state, length, message)),
            _ => None,
        }
    }

    /// The server posts a question in a slot that is free. `false`: it is too long, or the ring is full.
    pub(crate) fn post(&self, id: CallId, message: &[u8]) -> bool {
        let Some(slot) = id.slot() else { return false };
        let Some((state, length, words)) = self.slot(slot) else { return false };
        if message.len() > self.slot_bytes as usize {
            return false;
        }
        write(words, message);
        length.store(message.len() as u64, Relaxed);
        state.store(id.word(CallState::Posted), Release);
        let is_posted = POSTED.push(self, slot);
        if is_posted {
            self.ring(&POSTED, 1);
        }
        is_posted
    }

    /// The answer to a call. `None`: there is none, or what there is cannot be one.
    pub(crate) fn answer_to(&self, id: CallId) -> Option<Vec<u8>> {
        let (state, length, words) = self.slot(id.slot()?)?;
        if state.load(Acquire) != id.word(CallState::Answered) {
            return None;
        }
        let count = usize::try_from(length.load(Relaxed)).ok().filter(|&n| n <= self.slot_bytes as usize)?;
        let mut bytes = vec![0; count];
        read(words, 0, &mut bytes);
        Some(bytes)
    }

    /// The plugin asks for work, and waits for it so long, or less where another one was faster. **Blocks.**
    pub(crate) fn next(&self, timeout: Duration) -> Found {
        let find = || {
            while let Some(slot) = POSTED.pop(self) {
                let Some((state, length, _)) = self.slot(slot) else { continue };
                let seen = state.load(Acquire);
                let id = CallId::new(slot, (seen >> STATE_BITS) as u32);
                let taken = id.word(CallState::Taken);
                if seen == id.word(CallState::Posted)
                    && state.compare_exchange(seen, taken, AcqRel, Relaxed).is_ok()
                {
                    return Some(Found::Call(id, u32::try_from(length.load(Relaxed)).unwrap_or(0)));
                }
            }
            self.is_closed().then_some(Found::Closed)
        };
        find().unwrap_or_else(|| self.sleep(&POSTED, timeout, find).unwrap_or(Found::Nothing))
    }

    /// The plugin reads the question of a call that it has taken, from a byte on. How much there was, bytes.
    pub(crate) fn read(&self, id: CallId, from: u32, to: &mut [u8]) -> usize {
        let Some((state, length, words)) = id.slot().and_then(|slot| self.slot(slot)) else { return 0 };
        if state.load(Acquire) != id.word(CallState::Taken) {
            return 0;
        }
        let end = length.load(Relaxed).min(self.slot_bytes.into()) as usize;
        let count = end.saturating_sub(from as usize).min(to.len());
        read(words, from as usize, &mut to[..count]);
        count
    }

    /// The plugin answers. The slot, of which the server is to be told.
    ///
    /// # Errors
    /// Why not; the call stays as it was.
    pub(crate) fn answer(&self, id: CallId, bytes: &[u8]) -> Result<u32, Refused> {
        let slot = id.slot().ok_or(Refused::Unknown)?;
        let (state, length, words) = self.slot(slot).ok_or(Refused::Unknown)?;
        if bytes.len() > self.slot_bytes as usize {
            return Err(Refused::TooLarge);
        }
        let (from, to) = (id.word(CallState::Taken), id.word(CallState::Answering));
        if state.compare_exchange(from, to, AcqRel, Relaxed).is_err() {
            return Err(Refused::Unknown);
        }
        write(words, bytes);
        length.store(bytes.len() as u64, Relaxed);
        state.store(id.word(CallState::Answered), Release);
        Ok(slot)
    }

    /// Tells the server of a slot that was answered, from another process.
    pub(crate) fn tell_answered(&self, slot: u32) {
        if ANSWERED.push(self, slot) {
            self.ring(&ANSWERED, 1);
        }
    }

    /// The next slot that was answered in another process. Waits for it so long, or less; not where the board
    /// is closed. **Blocks.**
    pub(crate) fn next_answered(&self, timeout: Duration) -> Option<u32> {
        let find = || ANSWERED.pop(self).map(Some).or_else(|| self.is_closed().then_some(None));
        find().unwrap_or_else(|| self.sleep(&ANSWERED, timeout, find).flatten())
    }

    /// The plugin is to end when it has nothing left to do.
    pub(crate) fn close(&self) {
        self.memory.half_word(AT_CLOSED).store(1, SeqCst);
        futex::wake_shared(self.memory.half_word(AT_CLOSED), u32::MAX >> 1);
        for ring in [&POSTED, &ANSWERED] {
            self.ring(ring, u32::MAX >> 1);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.memory.half_word(AT_CLOSED).load(SeqCst) != 0
    }

    /// Waits until it is closed, and then until nothing is left that nobody has taken; so long at most from
    /// then on. **Blocks.**
    pub(crate) fn wait_closed(&self, linger: Duration) {
        let closed = self.memory.half_word(AT_CLOSED);
        while closed.load(SeqCst) == 0 {
            futex::wait_shared(closed, 0, None);
        }
        let end = std::time::Instant::now() + linger;
        while !POSTED.is_empty(self) && std::time::Instant::now() < end {
            futex::wait_shared(closed, 1, Some(Duration::from_millis(10)));
        }
    }

    /// Rule 4, behind what was pushed.
    fn ring(&self, ring: &Ring, sleepers: u32) {
        fence(SeqCst);
        if self.memory.half_word(ring.sleepers).load(Relaxed) > 0 {
            let bell = self.memory.half_word(ring.bell);
            bell.fetch_add(1, AcqRel);
            futex::wake_shared(bell, sleepers);
        }
    }

    /// Rule 4: sleeps until something is found or the time is over.
    fn sleep<T>(&self, ring: &Ring, timeout: Duration, find: impl Fn() -> Option<T>) -> Option<T> {
        let (bell, sleepers) = (self.memory.half_word(ring.bell), self.memory.half_word(ring.sleepers));
        sleepers.fetch_add(1, SeqCst);
        let seen = bell.load(SeqCst);
        fence(SeqCst);
        let found = find().or_else(|| {
            futex::wait_shared(bell, seen, Some(timeout));
            find()
        });
        sleepers.fetch_sub(1, SeqCst);
        found
    }
}

/// Where a ring stands in the board.
struct Ring {
    head: usize,
    tail: usize,
    bell: usize,
    sleepers: usize,
    nth: usize,
}

impl Ring {
    fn cells(&self, slots: u32) -> std::ops::Range<usize> {
        let count = 2 * slots as usize;
        CELLS + self.nth * count..CELLS + (self.nth + 1) * count
    }

    fn is_empty(&self, board: &Board) -> bool {
        let words = board.memory.words();
        words[self.head].load(SeqCst) == words[self.tail].load(SeqCst)
    }

    /// Claims a place: `turn` is what its cell says when it is free for this. The position and the cell.
    fn claim<'b>(&self, board: &'b Board, at: usize, turn: u32) -> Option<(u32, &'b AtomicU64, u64)> {
        let words = board.memory.words();
        let cells = &words[self.cells(board.slots)];
        for _ in 0..ATTEMPTS {
            let position = words[at].load(Relaxed) as u32;
            let cell = &cells[position as usize % cells.len()];
            let value = cell.load(Acquire);
            let ahead = ((value >> 32) as u32).wrapping_sub(position.wrapping_add(turn)).cast_signed();
            if ahead < 0 {
                return None;
            }
            let next = u64::from(position.wrapping_add(1));
            if ahead == 0 && words[at].compare_exchange(position.into(), next, AcqRel, Relaxed).is_ok() {
                return Some((position, cell, value));
            }
        }
        None
    }

    fn push(&self, board: &Board, slot: u32) -> bool {
        let Some((position, cell, _)) = self.claim(board, self.tail, 0) else { return false };
        cell.store(u64::from(position.wrapping_add(1)) << 32 | u64::from(slot), Release);
        true
    }

    fn pop(&self, board: &Board) -> Option<u32> {
        let (position, cell, value) = self.claim(board, self.head, 1)?;
        let next = position.wrapping_add(2 * board.slots);
        cell.store(u64::from(next) << 32, Release);
        Some(value as u32)
    }
}

/// Copies bytes into words, which are as many at least.
fn write(words: &[AtomicU64], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks(WORD_BYTES)) {
        let mut padded = [0; WORD_BYTES];
        padded[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_ne_bytes(padded), Relaxed);
    }
}

/// Copies bytes out of words, from a byte on.
fn read(words: &[AtomicU64], from: usize, to: &mut [u8]) {
    let (first, mut skip) = (from / WORD_BYTES, from % WORD_BYTES);
    let mut rest = to;
    for word in words.get(first..).unwrap_or_default() {
        let bytes = word.load(Relaxed).to_ne_bytes();
        let count = rest.len().min(WORD_BYTES - skip);
        let (now, behind) = rest.split_at_mut(count);
        now.copy_from_slice(&bytes[skip..skip + count]);
        (rest, skip) = (behind, 0);
        if rest.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SHORT: Duration = Duration::from_millis(1);

    fn board(slots: u32) -> Board {
        Board::create(slots, 100).unwrap().0
    }

    #[test]
    fn a_question_is_answered_once() {
        let board = board(2);
        let id = CallId::new(1, 7);
        assert!(board.post(id, b"a question"));
        assert_eq!(board.answer(id, b"too early"), Err(Refused::Unknown));
        assert_eq!(board.next(SHORT), Found::Call(id, 10));
        assert_eq!(board.next(SHORT), Found::Nothing);
        let mut text = [0; 20];
        assert_eq!((board.read(id, 0, &mut text), &text[..10]), (10, &b"a question"[..]));
        assert_eq!((board.read(id, 5, &mut text[..3]), &text[..3]), (3, &b"sti"[..]));
        assert_eq!(board.read(id, 11, &mut text), 0);
        assert_eq!(board.answer(id, &[0; 101]), Err(Refused::TooLarge));
        assert_eq!(board.answer_to(id), None);
        assert_eq!(board.answer(id, b"an answer"), Ok(1));
        assert_eq!(board.answer(id, b"again"), Err(Refused::Unknown));
        assert_eq!(board.answer_to(id).unwrap(), b"an answer");
        assert_eq!(board.read(id, 0, &mut text), 0, "it is none of the plugin's any more");
        assert!(board.post(CallId::new(1, 8), b"the next"));
        assert_eq!(board.answer(id, b"late"), Err(Refused::Unknown));
        assert_eq!(board.answer_to(id), None, "the slot is another call's");
        assert!(!board.post(CallId::new(0, 1), &[0; 101]), "longer than a message may be");
        assert!(!board.post(CallId::new(2, 1), b"") && !board.post(CallId::from_bits(0), b""), "no slots");
    }

    #[test]
    fn both_processes_see_the_same() {
        let (board, fd) = Board::create(4, 64).unwrap();
        let other = Board::open(fd.as_fd()).unwrap();
        assert_eq!((other.slots, other.slot_bytes()), (4, 64));
        assert!(board.post(CallId::new(3, 1), b"question"));
        let Found::Call(id, 8) = other.next(SHORT) else { panic!("it was posted") };
        other.tell_answered(other.answer(id, b"answer").unwrap());
        assert_eq!(board.next_answered(SHORT), Some(3));
        assert_eq!(board.answer_to(id).unwrap(), b"answer");
        board.close();
        assert_eq!(other.next(SHORT), Found::Closed);
        other.wait_closed(Duration::from_secs(10));
        assert!(Board::open(SharedMemory::create("other", 8192).unwrap().1.as_fd()).is_err());
    }

    #[test]
    fn each_call_is_taken_by_one_thread() {
        const CALLS: u32 = 5000;
        let board = board(8);
        let free = crossbeam_queue::ArrayQueue::new(8);
        (0..8).for_each(|slot| free.push(slot).unwrap());
        let answered = thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        match board.next(Duration::from_secs(30)) {
                            Found::Call(id, 4) => {
                                let mut text = [0; 4];
                                assert_eq!(board.read(id, 0, &mut text), 4);
                                board.tell_answered(board.answer(id, &text).unwrap());
                            }
                            Found::Closed => return,
                            // Another one was faster.
                            Found::Nothing => {}
                            Found::Call(id, length) => panic!("{id:?} has {length} bytes"),
                        }
                    }
                });
            }
            let (mut generation, mut posted, mut answered) = ([0_u32; 8], 0, 0);
            let mut asked = [0_u32; 8];
            while answered < CALLS {
                while posted < CALLS
                    && let Some(slot) = free.pop()
                {
                    generation[slot as usize] += 1;
                    asked[slot as usize] = posted;
                    assert!(board.post(CallId::new(slot, generation[slot as usize]), &posted.to_ne_bytes()));
                    posted += 1;
                }
                let Some(slot) = board.next_answered(Duration::from_secs(30)) else { continue };
                let id = CallId::new(slot, generation[slot as usize]);
                assert_eq!(board.answer_to(id).unwrap(), asked[slot as usize].to_ne_bytes());
                free.push(slot).unwrap();
                answered += 1;
            }
            board.close();
            answered
        });
        assert_eq!(answered, CALLS);
    }

    #[test]
    fn spoilt_memory_holds_nobody_up() {
        let board = board(2);
        board.memory.words()[POSTED.tail].store(77, Relaxed);
        assert_eq!(board.next(SHORT), Found::Nothing);
        board.memory.words()[POSTED.cells(2)].iter().for_each(|cell| cell.store(u64::MAX, Relaxed));
        let _ = board.post(CallId::new(0, 1), b"text");
        let _ = board.next(SHORT);
        let id = CallId::new(1, 1);
        let (state, length, _) = board.slot(1).unwrap();
        length.store(u64::MAX, Relaxed);
        state.store(id.word(CallState::Answered), Release);
        assert_eq!(board.answer_to(id), None, "longer than there is");
    }
}
