//! A loop's judgement of which parts of a file are in memory, before it sends or reads.
//!
//! Asking a disk's page cache about a page that is not there starts to read it, which waits for seconds
//! if the queue of the disk is full. So: the owner of a file asks by cachestat(2), which starts nothing;
//! what was in memory a moment ago is not asked about; and while pool threads read from the same mount,
//! only what was in memory lately is.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use clearway_os::clock;
use clearway_os::page_cache::{self, Wait};
use rustix::io::Errno;

use crate::faults::{self, Call};

use super::fetch::Warmed;
use super::mounts::Class;
use super::recent::{Evidence, Trust};
use super::tally::{FileOutcome, Operation, is_late, tell};
use super::{Attempt, Mode, Opened, now_ms};

/// Each of so many bytes of a range is asked about, and its last.
const PROBE_BYTES: u64 = 512 << 10;
/// How long a response trusts what it has learned about a range, ms: its client may be slow.
const LEARNED_MS: u32 = 5000;
/// Needs no asking.
const SURE: Trust = Trust { read_ms: 0, in_memory_ms: 1000 };
/// The trust on kernels that cannot tell what is in memory.
const MUTE: Trust = Trust { read_ms: 2000, in_memory_ms: 10_000 };
/// As above, while other readers push parts out of memory.
const MUTE_BUSY: Trust = Trust { read_ms: 0, in_memory_ms: 3000 };
/// Worth asking while the disk is busy.
const LIKELY: Trust = Trust { read_ms: 0, in_memory_ms: 3000 };

/// The knowledge of one response about the file that it sends.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// Known to be in memory.
    warm: Range<u64>,
    since_ms: u32,
    /// A part was cold: the next ones will be.
    pub(super) is_cold: bool,
}

impl Learned {
    /// Takes over what a pool thread did for this response.
    pub fn note(&mut self, warmed: Warmed) {
        self.know(warmed.0, now_ms());
    }

    fn know(&mut self, range: Range<u64>, now_ms: u32) {
        (self.warm, self.since_ms) = (range, now_ms);
    }

    fn knows(&self, range: &Range<u64>, now_ms: u32) -> bool {
        self.warm.start <= range.start
            && range.end <= self.warm.end
            && now_ms.wrapping_sub(self.since_ms) < LEARNED_MS
    }
}

/// Questions of a loop.
impl Opened {
    /// Whether `count` bytes from `offset` can be sent or read by a loop, as far as anybody knows.
    #[must_use]
    pub fn is_warm(&self, offset: u64, count: u64, learned: &mut Learned) -> bool {
        let outcome = self.judge(self.within(offset, count), learned);
        tell(Operation::Read, outcome);
        learned.is_cold |= outcome != FileOutcome::Inline;
        outcome == FileOutcome::Inline
    }

    /// Reads up to `count` bytes from `offset`, appended to `buf`: fewer only at the end of the file.
    ///
    /// # Errors
    /// As preadv2(2).
    #[inline]
    pub fn read_now(&self, buf: &mut Vec<u8>, offset: u64, count: usize) -> Attempt<io::Result<usize>> {
        if faults::ask(Call::Attempt).is_err() {
            return Attempt::Cold;
        }
        let (old, range) = (buf.len(), self.within(offset, count as u64));
        let result = match self.how_to_read(&range) {
            None => Err(FileOutcome::Offloaded),
            Some(Read::AnyWay) => Ok(self.read_fully(buf, offset, count)),
            Some(Read::Cached) => self.read_cached(buf, range, count),
        };
        match result {
            Ok(done) => {
                tell(Operation::Read, FileOutcome::Inline);
                Attempt::Done(done)
            }
            Err(outcome) => {
                tell(Operation::Read, outcome);
                buf.truncate(old);
                Attempt::Cold
            }
        }
    }
}

/// How a loop may read.
enum Read {
    /// The part is in memory, and the kernel reports it if it is not.
    Cached,
    /// Whatever happens.
    AnyWay,
}

/// Decisions of a loop.
impl Opened {
    fn judge(&self, range: Range<u64>, learned: &mut Learned) -> FileOutcome {
        let now_ms = now_ms();
        if self.files.mode == Mode::Inline || range.is_empty() || learned.knows(&range, now_ms) {
            return FileOutcome::Inline;
        }
        let outcome = match self.class() {
            Class::Memory => return FileOutcome::Inline,
            Class::Unknown | Class::Remote => return FileOutcome::Offloaded,
            Class::Mute if self.is_trusted(&range, self.mute(now_ms), now_ms) => FileOutcome::Inline,
            Class::Mute => FileOutcome::Offloaded,
            Class::Telling if self.is_trusted(&range, SURE, now_ms) => FileOutcome::Inline,
            Class::Telling if learned.is_cold && !self.is_trusted(&range, LIKELY, now_ms) => {
                FileOutcome::Offloaded
            }
            Class::Telling => self.ask(&range, now_ms),
        };
        if outcome == FileOutcome::Inline {
            learned.know(range, now_ms);
        }
        outcome
    }

    fn mute(&self, now_ms: u32) -> Trust {
        if self.is_busy(now_ms) { MUTE_BUSY } else { MUTE }
    }

    /// Asks the kernel, if that is safe.
    fn ask(&self, range: &Range<u64>, now_ms: u32) -> FileOutcome {
        let since_ms = clock::coarse_ms();
        let counted = self.are_all_pages_there(range);
        let outcome = match counted {
            Some(false) => FileOutcome::Cold,
            None if self.is_busy(now_ms) && !self.is_trusted(range, LIKELY, now_ms) => FileOutcome::Offloaded,
            // Pages that are still being read were counted too.
            _ => self.probe(range.clone().step_by(PROBE_BYTES as usize).chain([range.end - 1])),
        };
        match outcome {
            FileOutcome::Inline => self.remember(range, Evidence::InMemory, now_ms),
            FileOutcome::Cold => self.note_cold(since_ms),
            _ => {}
        }
        outcome
    }

    /// The answer of cachestat(2); `None` if it may not be called.
    fn are_all_pages_there(&self, range: &Range<u64>) -> Option<bool> {
        let policy = self.files.policy;
        if !policy.owns(self.stat.uid) {
            return None;
        }
        let length = range.end - range.start;
        match page_cache::count_cached(self.as_fd(), range.start, length) {
            Ok(cached) => Some(cached >= page_cache::pages(range.start, length)),
            Err(_) => {
                // The user may be another one by now.
                policy.ask_euid();
                None
            }
        }
    }

    #[inline]
    pub(super) fn probe(&self, offsets: impl IntoIterator<Item = u64>) -> FileOutcome {
        for offset in offsets {
            match page_cache::is_cached(self.as_fd(), offset) {
                Ok(true) => {}
                Ok(false) => return FileOutcome::Cold,
                Err(error) => {
                    self.learn_from(&error);
                    return FileOutcome::Offloaded;
                }
            }
        }
        FileOutcome::Inline
    }

    fn how_to_read(&self, range: &Range<u64>) -> Option<Read> {
        let now_ms = now_ms();
        match self.class() {
            _ if self.files.mode == Mode::Inline || range.is_empty() => Some(Read::AnyWay),
            Class::Memory => Some(Read::AnyWay),
            Class::Unknown | Class::Remote => None,
            Class::Mute => self.is_trusted(range, self.mute(now_ms), now_ms).then_some(Read::AnyWay),
            // Waiting is not to be expected, and not asking for it is cheaper.
            Class::Telling if self.is_trusted(range, SURE, now_ms) => Some(Read::AnyWay),
            Class::Telling => {
                let is_safe = !self.is_busy(now_ms)
                    || self.is_trusted(range, LIKELY, now_ms)
                    || self.are_all_pages_there(range) == Some(true);
                is_safe.then_some(Read::Cached)
            }
        }
    }

    #[inline]
    fn read_cached(
        &self,
        buf: &mut Vec<u8>,
        range: Range<u64>,
        count: usize,
    ) -> Result<io::Result<usize>, FileOutcome> {
        let since_ms = clock::coarse_ms();
        match page_cache::read_into(self.as_fd(), buf, range.start, count, Wait::Never) {
            Ok(size) if range.start + size as u64 >= range.end => {
                self.remember(&range, Evidence::InMemory, now_ms());
                Ok(Ok(size))
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                if self.learn_from(&error) {
                    Err(FileOutcome::Offloaded)
                } else {
                    Ok(Err(error))
                }
            }
            _ => {
                self.note_cold(since_ms);
                Err(FileOutcome::Cold)
            }
        }
    }

    /// The kernel was asked from `since_ms` on and had to begin to read. (An answer that was late though
    /// the page was there waited for a processor, not for a disk.)
    fn note_cold(&self, since_ms: u64) {
        if is_late(since_ms) {
            tell(Operation::Read, FileOutcome::WrongGuess);
            self.mount.note_late(now_ms());
        }
    }

    /// Whether the error says that here the page cache cannot be asked.
    fn learn_from(&self, error: &io::Error) -> bool {
        let is_mute = matches!(Errno::from_io_error(error), Some(Errno::OPNOTSUPP | Errno::NOSYS));
        if is_mute {
            self.mount.set_class(Class::Mute);
        }
        is_mute
    }
}
