//! The server's side of a board: which slots are free, and which task waits for which. Calls are made by
//! loops; answers are told of by the thread that gave or found them. Nothing here waits for another thread.
//!
//! 1. An entry is IDLE while its slot is in `free`. A call makes it WAITED, or UNWAITED where no answer is
//!    wanted.
//! 2. An answer makes WAITED → DONE and wakes the task, which gives the slot back when it drops its [`Call`];
//!    of UNWAITED it gives the slot back itself. A task that drops its call before makes WAITED → UNWAITED.
//! 3. Where the plugin is gone all that are WAITED become FAILED. A call looks at `is_over` behind the store
//!    of WAITED, with a SeqCst fence between, and so does the end the other way round: none is left waiting.
//! 4. A task stores its waker, then looks at the state again; the other side changes the state, then takes
//!    the waker.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::task::{Context, Poll, Waker};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::atomic::AtomicCell;

use crate::board::{Board, CallId};

const IDLE: u32 = 0;
const WAITED: u32 = 1;
const UNWAITED: u32 = 2;
const DONE: u32 = 3;
const FAILED: u32 = 4;

/// Why a call is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotMade {
    /// As many are under way as may be.
    Full,
    /// The question is longer than a message may be.
    TooLarge,
    /// The plugin is gone, or was not loaded.
    Over,
}

/// The error of a call without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

#[derive(Default)]
struct Entry {
    generation: AtomicU32,
    state: AtomicU32,
    waker: AtomicCell<Option<Waker>>,
}

impl Entry {
    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }
}

/// The server's side of a board.
pub(crate) struct Desk {
    board: Board,
    memory: OwnedFd,
    free: ArrayQueue<u32>,
    entries: Box<[Entry]>,
    is_over: AtomicBool,
}

impl Desk {
    /// As [`Board::create`].
    pub(crate) fn new(slots: u32, slot_bytes: u32) -> io::Result<Self> {
        let (board, memory) = Board::create(slots, slot_bytes)?;
        let free = ArrayQueue::new(slots as usize);
        (0..slots).for_each(|slot| {
            let _ = free.push(slot);
        });
        let entries = (0..slots).map(|_| Entry::default()).collect();
        Ok(Self { board, memory, free, entries, is_over: AtomicBool::new(false) })
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// The shared memory, for the other process.
    pub(crate) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Asks the plugin. Dropping what this returns says that no answer is wanted any more.
    ///
    /// # Errors
    /// Why it was not asked.
    pub(crate) fn ask(self: &Arc<Self>, message: &[u8]) -> Result<Call, NotMade> {
        let id = self.post(message, WAITED)?;
        Ok(Call { desk: Arc::clone(self), slot: id.0, id: id.1 })
    }

    /// Tells the plugin something that has no answer.
    ///
    /// # Errors
    /// Why it was not told.
    pub(crate) fn tell(&self, message: &[u8]) -> Result<(), NotMade> {
        self.post(message, UNWAITED).map(|_| ())
    }

    fn post(&self, message: &[u8], state: u32) -> Result<(u32, CallId), NotMade> {
        if self.is_over.load(Relaxed) {
            return Err(NotMade::Over);
        }
        if message.len() > self.board.slot_bytes() as usize {
            return Err(NotMade::TooLarge);
        }
        let slot = self.free.pop().ok_or(NotMade::Full)?;
        let entry = &self.entries[slot as usize];
        let id = CallId::new(slot, entry.generation.fetch_add(1, Relaxed).wrapping_add(1));
        entry.state.store(state, SeqCst);
        if !self.board.post(id, message) {
            self.give_back(slot);
            return Err(NotMade::Full);
        }
        fence(SeqCst);
        if self.is_over.load(SeqCst) {
            entry.change(WAITED, FAILED);
        }
        Ok((slot, id))
    }

    fn give_back(&self, slot: u32) {
        let entry = &self.entries[slot as usize];
        entry.state.store(IDLE, SeqCst);
        entry.waker.take();
        let _ = self.free.push(slot);
    }

    /// A slot was answered, as is said: rule 2. What nobody has asked for is left alone.
    pub(crate) fn deliver(&self, slot: u32) {
        let Some(entry) = self.entries.get(slot as usize) else { return };
        if entry.change(WAITED, DONE) {
            wake(entry);
        } else if entry.change(UNWAITED, IDLE) {
            let _ = self.free.push(slot);
        }
    }

    /// The plugin is gone: rule 3. How many calls have failed.
    pub(crate) fn end(&self) -> usize {
        self.is_over.store(true, SeqCst);
        fence(SeqCst);
        let failed = self.entries.iter().filter(|entry| entry.change(WAITED, FAILED));
        failed.map(wake).count()
    }
}

fn wake(entry: &Entry) {
    fence(SeqCst);
    if let Some(waker) = entry.waker.take() {
        waker.wake();
    }
}

/// A call that is under way.
pub(crate) struct Call {
    desk: Arc<Desk>,
    slot: u32,
    id: CallId,
}

impl Future for Call {
    type Output = Result<Vec<u8>, Failed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let entry = &self.desk.entries[self.slot as usize];
        if entry.state.load(Acquire) == WAITED {
            entry.waker.store(Some(cx.waker().clone()));
            fence(SeqCst);
        }
        match entry.state.load(Acquire) {
            WAITED => Poll::Pending,
            DONE => Poll::Ready(self.desk.board.answer_to(self.id).ok_or(Failed)),
            _ => Poll::Ready(Err(Failed)),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.desk.entries[self.slot as usize].change(WAITED, UNWAITED) {
            self.desk.give_back(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::board::{Found, Refused};

    fn poll(call: &mut Call) -> Poll<Result<Vec<u8>, Failed>> {
        Pin::new(call).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn taken(desk: &Desk) -> CallId {
        match desk.board.next(Duration::ZERO) {
            Found::Call(id, _) => id,
            other => panic!("{other:?}"),
        }
    }

    fn answer(desk: &Desk, id: CallId, text: &[u8]) {
        desk.deliver(desk.board.answer(id, text).expect("it is waited for"));
    }

    #[test]
    fn slots_come_back_however_a_call_ends() {
        let desk = Arc::new(Desk::new(2, 64).unwrap());
        for _ in 0..10 {
            let mut first = desk.ask(b"a").unwrap();
            let second = desk.ask(b"b").unwrap();
            assert_eq!(desk.ask(b"c").err(), Some(NotMade::Full));
            assert_eq!(desk.tell(b"c"), Err(NotMade::Full));
            assert_eq!(poll(&mut first), Poll::Pending);
            let (one, two) = (taken(&desk), taken(&desk));
            drop(second);
            assert_eq!(desk.tell(b"c"), Err(NotMade::Full), "the plugin still has it");
            answer(&desk, two, b"for nobody");
            assert_eq!(desk.tell(b"c"), Ok(()));
            answer(&desk, one, b"text");
            desk.deliver(0);
            assert_eq!(poll(&mut first), Poll::Ready(Ok(b"text".to_vec())));
            assert_eq!(desk.board.answer(one, b"again"), Err(Refused::Unknown));
            drop(first);
            let told = taken(&desk);
            answer(&desk, told, b"");
            desk.deliver(7);
        }
        assert_eq!(desk.ask(&[0; 65]).err(), Some(NotMade::TooLarge));
        assert_eq!(desk.free.len(), 2);
    }

    #[test]
    fn all_that_wait_fail_when_the_plugin_is_gone() {
        let desk = Arc::new(Desk::new(4, 64).unwrap());
        let (mut first, mut second) = (desk.ask(b"a").unwrap(), desk.ask(b"b").unwrap());
        let one = taken(&desk);
        answer(&desk, one, b"in time");
        assert_eq!(desk.end(), 1);
        assert_eq!(poll(&mut first), Poll::Ready(Ok(b"in time".to_vec())));
        assert_eq!(poll(&mut second), Poll::Ready(Err(Failed)));
        assert_eq!(desk.ask(b"c").err(), Some(NotMade::Over));
    }

    #[test]
    fn an_answer_that_is_said_to_be_there_and_is_not_fails_its_call() {
        let desk = Arc::new(Desk::new(1, 64).unwrap());
        let mut call = desk.ask(b"a").unwrap();
        desk.deliver(0);
        assert_eq!(poll(&mut call), Poll::Ready(Err(Failed)));
        drop(call);
        assert!(desk.ask(b"b").is_ok());
    }
}
