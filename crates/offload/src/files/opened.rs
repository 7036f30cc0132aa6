//! An open file: what it is, what of it is in memory, reading it. Loops ask with [`Opened::is_warm`] and
//! [`Opened::read_now`]; what takes a [`Blocking`] is for pool threads.
//!
//! Asking a disk's page cache about a page that is not there starts to read it, which waits for seconds
//! if the queue of the disk is full. So: the owner of a file asks by cachestat(2), which starts nothing;
//! what was in memory a moment ago is not asked about; and while pool threads read from the same mount,
//! only what was in memory lately is.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use clearway_metrics::Counter;
use clearway_os::clock;
use clearway_os::page_cache::{self, Wait};
use clearway_os::stat::{self, Stat};
use rustix::io::Errno;

use super::mounts::{Class, Mount};
use super::recent::{BLOCK_BYTES, Evidence, Trust};
use super::tally::{Operation, Outcome, is_late, tell};
use super::{Attempt, Files, Mode, now_ms};
use crate::Blocking;
use crate::file::Kind;

/// What a pool thread reads ahead of a response at most, bytes. Disks that seek want it large (with four
/// spindles, 1 MiB has 2.8 times the throughput of 128 KiB), and it has to stay in memory until it is sent.
pub const COLD_READ_BYTES: u64 = 1 << 20;
/// What is copied for a response at a time at most, bytes.
pub(super) const COPY_BYTES: usize = 512 << 10;
/// What may be copied at a time in any case: as much as nginx's `output_buffers` hold, bytes.
const COPY_MIN_BYTES: usize = 64 << 10;
/// What all copies that are larger than that may take together, bytes: clients may be slow to take them.
const COPIES_MAX_BYTES: usize = 128 << 20;
/// What is so short that it is copied anyway, rather than read twice, bytes.
const COPY_ALWAYS_BYTES: u64 = 64 << 10;
/// Each of so many bytes of a range is asked about, and its last.
const PROBE_BYTES: u64 = 512 << 10;
/// What a response learned of a range counts for so long, ms: its client may be slow.
const LEARNED_MS: u32 = 5000;
/// Needs no asking.
const SURE: Trust = Trust { read_ms: 0, in_memory_ms: 1000 };
/// Where nothing can be asked.
const MUTE: Trust = Trust { read_ms: 2000, in_memory_ms: 10_000 };
/// The same while others push out what was read.
const MUTE_BUSY: Trust = Trust { read_ms: 0, in_memory_ms: 3000 };
/// Worth asking while the disk is busy.
const LIKELY: Trust = Trust { read_ms: 0, in_memory_ms: 3000 };
/// What was read so lately and is there when the next one asks for it is wanted, and not only on its way
/// out of memory.
const LATELY: Trust = Trust { read_ms: 3000, in_memory_ms: 10_000 };
/// Where nothing can be asked, a pool thread that reads faster than this has found what it read in memory,
/// or on a disk for which a loop could wait as well: for each read, ns.
const FOUND_NS: u64 = 200_000;
/// And for each KiB of it, ns.
const FOUND_NS_PER_KIB: u64 = 500;
/// How far a pool thread that found a part of a file in memory looks for more, bytes.
const LOOK_AHEAD_BYTES: u64 = 16 << 20;
/// For so long after a read from the disk what the kernel has read ahead may lie in memory, ms.
const READ_AHEAD_MS: u32 = 5000;
/// Removed files of this size take long to go when the last descriptor is closed, bytes.
const DEAR_TO_CLOSE_BYTES: u64 = 1 << 20;

/// See its text.
pub static COPIES_CUT: Counter = Counter::new(
    "files_copies_cut_total",
    "reads",
    "Reads of a busy disk that were kept short because clients were slow to take what had been read for \
     them before.",
);

/// An open file or directory.
#[derive(Debug)]
pub struct Opened {
    fd: OwnedFd,
    stat: Stat,
    pub(super) files: Files,
    pub(super) mount: &'static Mount,
    /// When a pool thread had to wait for its disk last; 0: never.
    cold_ms: AtomicU32,
}

/// What a pool thread has done for a response.
#[derive(Debug)]
pub enum Fetched {
    /// A part of the file is in memory: the loop sends or reads it, soon.
    Warm(Warmed),
    /// What was there from the wanted place on, fewer than wanted or none at the end of the file. It was
    /// copied since by the time that it is sent it may be in memory no more.
    Data(Vec<u8>, Held),
}

/// Keep it as long as the copy that came with it: all copies together are bounded.
#[derive(Debug)]
#[must_use = "dropping it says that the copy is gone"]
pub struct Held {
    bytes: usize,
    total: &'static AtomicUsize,
}

impl Held {
    /// Takes `bytes` of what is left for copies, or as little as each response may have in any case.
    fn take(total: &'static AtomicUsize, bytes: usize) -> Self {
        let taken = total.fetch_add(bytes, Ordering::Relaxed);
        let mut held = Self { bytes, total };
        if taken + bytes > COPIES_MAX_BYTES && bytes > COPY_MIN_BYTES {
            COPIES_CUT.increment();
            total.fetch_sub(bytes - COPY_MIN_BYTES, Ordering::Relaxed);
            held.bytes = COPY_MIN_BYTES;
        }
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What one response has learned about the file that it sends.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// Known to be in memory.
    warm: Range<u64>,
    since_ms: u32,
    /// A part was cold: the next ones will be.
    pub(super) is_cold: bool,
}

/// A part of a file that a pool thread has read into memory.
#[derive(Clone, Debug)]
pub struct Warmed(pub(super) Range<u64>);

impl Warmed {
    /// Up to where the file is in memory now, bytes; not beyond where it was to begin: it ends there.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.end
    }
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

impl Opened {
    pub(super) fn new(files: Files, fd: OwnedFd, stat: Stat) -> Self {
        Self { mount: files.policy.mounts.find(&stat), fd, stat, files, cold_ms: AtomicU32::new(0) }
    }

    /// What it was when it was opened.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// What [`Opened::stat`] says.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::of_mode(self.stat.mode)
    }

    /// Whether it lies where others are asked for every call: nothing of it stays in memory for sure, so
    /// it is read by pool threads into buffers and never sent by a loop itself.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.class() == Class::Remote && self.files.mode == Mode::Offload
    }

    /// Whether dropping it may take long: the close(2) that a remote file waits for, or that frees the
    /// blocks of a large file which was removed meanwhile. Such a one is for a pool to drop.
    #[must_use]
    pub fn is_dear_to_close(&self) -> bool {
        if self.files.mode == Mode::Inline {
            return false;
        }
        let is_removed = || stat::of(self.as_fd()).is_ok_and(|stat| stat.links == 0);
        self.is_remote() || (self.stat.size >= DEAR_TO_CLOSE_BYTES && is_removed())
    }

    /// Whether `count` bytes from `offset` can be sent or read by a loop, as far as anybody knows.
    #[must_use]
    pub fn is_warm(&self, offset: u64, count: u64, learned: &mut Learned) -> bool {
        let outcome = self.judge(self.within(offset, count), learned);
        tell(Operation::Read, outcome);
        learned.is_cold |= outcome != Outcome::Inline;
        outcome == Outcome::Inline
    }

    /// Reads up to `count` bytes from `offset`, appended to `buf`: fewer only at the end of the file.
    ///
    /// # Errors
    /// As preadv2(2).
    pub fn read_now(&self, buf: &mut Vec<u8>, offset: u64, count: usize) -> Attempt<io::Result<usize>> {
        let (old, range) = (buf.len(), self.within(offset, count as u64));
        let result = match self.how_to_read(&range) {
            None => Err(Outcome::Offloaded),
            Some(Read::AnyWay) => Ok(read_fully(self.as_fd(), buf, offset, count)),
            Some(Read::Cached) => self.read_cached(buf, range, count),
        };
        match result {
            Ok(done) => {
                tell(Operation::Read, Outcome::Inline);
                Attempt::Done(done)
            }
            Err(outcome) => {
                tell(Operation::Read, outcome);
                buf.truncate(old);
                Attempt::Cold
            }
        }
    }

    /// Reads what a response will send next, some of `count` bytes from `offset`, in the way that leaves a
    /// loop nothing to wait for. While a disk has more to do than it can, memory is short as well: what
    /// was read is pushed out by what others read before a loop comes to it. **Blocks.**
    ///
    /// # Errors
    /// As preadv(2).
    pub fn fetch(&self, blocking: &Blocking, offset: u64, count: u64) -> io::Result<Fetched> {
        let is_pressed = || self.is_remote() || self.is_busy(now_ms());
        if count > COPY_ALWAYS_BYTES && !is_pressed() {
            let warmed = self.warm(blocking, offset, count)?;
            if !is_pressed() {
                return Ok(Fetched::Warm(warmed));
            }
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(COPY_BYTES);
        let held = Held::take(&self.files.policy.copied_bytes, count);
        Ok(Fetched::Data(self.read(blocking, offset, held.bytes)?, held))
    }

    /// Reads into memory some of `count` bytes from `offset`, the first of them certainly, and as much
    /// around it as a disk does at a time.
    pub(super) fn warm(&self, _: &Blocking, offset: u64, count: u64) -> io::Result<Warmed> {
        let start = offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = offset.saturating_add(count).next_multiple_of(BLOCK_BYTES).min(start + COLD_READ_BYTES);
        let count = usize::try_from(end - start).expect("COLD_READ_BYTES at most");
        let size = self.read_on_pool(start, count, |from, wait| {
            page_cache::read_through(self.as_fd(), from, count - (from - start) as usize, wait)
        })?;
        Ok(Warmed(start..start + size))
    }

    /// Reads up to `count` bytes from `offset`: fewer only at the end of the file. **Blocks.**
    ///
    /// # Errors
    /// As pread(2).
    pub fn read(&self, _: &Blocking, offset: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut data = Vec::with_capacity(count);
        self.read_on_pool(offset, count, |from, wait| {
            let left = count - data.len();
            match wait {
                Wait::Never => page_cache::read_cached(self.as_fd(), &mut data, from, left),
                Wait::Disk => read_fully(self.as_fd(), &mut data, from, left),
            }
        })?;
        Ok(data)
    }

    /// What it is now: fstat(2), which does not wait where the file is not remote.
    ///
    /// # Errors
    /// As statx(2).
    pub fn stat_again(&self) -> io::Result<Stat> {
        stat::of(self.as_fd())
    }

    /// Whether what stat(2) says of it is the truth and its contents stay in memory: no file of a network
    /// or of another process, as far as is known.
    #[must_use]
    pub fn is_local(&self) -> bool {
        if self.class() == Class::Unknown
            && self.files.mode == Mode::Inline
            && let Ok(magic) = stat::filesystem_magic(self.as_fd())
        {
            self.mount.set_class(Class::of_magic(magic));
        }
        matches!(self.class(), Class::Memory | Class::Telling | Class::Mute)
    }

    /// Has it read past the page cache from here on (`O_DIRECT`): by [`Opened::read_direct`] only.
    ///
    /// # Errors
    /// As fcntl(2): EINVAL where the file system cannot do that.
    pub fn set_direct(&self) -> io::Result<()> {
        page_cache::bypass(self.as_fd())
    }

    /// Tells the kernel that it will be read from its beginning to its end.
    ///
    /// # Errors
    /// As posix_fadvise(2).
    pub fn expect_sequential(&self) -> io::Result<()> {
        page_cache::expect_sequential(self.as_fd())
    }

    /// Reads up to `count` bytes from `offset` past the page cache, in places and sizes that are multiples
    /// of `alignment`, a power of two: fewer only at the end of the file. **Blocks.**
    ///
    /// # Errors
    /// As pread(2).
    pub fn read_direct(
        &self,
        _: &Blocking,
        offset: u64,
        count: usize,
        alignment: u32,
    ) -> io::Result<Vec<u8>> {
        let _reading = self.mount.reading();
        page_cache::read_direct(self.as_fd(), offset, count, alignment)
    }

    pub(super) fn class(&self) -> Class {
        self.mount.class()
    }

    /// Asks what file system this is, unless that is known. **Blocks.**
    pub(super) fn learn_class(&mut self, _: &Blocking) -> io::Result<()> {
        if self.class() == Class::Unknown {
            self.mount.set_class(Class::of_magic(stat::filesystem_magic(self.as_fd())?));
        }
        Ok(())
    }

    /// Tells open files apart.
    pub(super) fn identity(&self) -> u64 {
        self.stat.mount ^ self.stat.device.rotate_left(32) ^ self.stat.inode.rotate_left(17)
    }
}

/// How a loop may read.
enum Read {
    /// What is in memory, and the kernel says if it is not.
    Cached,
    /// Whatever happens.
    AnyWay,
}

/// What a loop decides.
impl Opened {
    fn judge(&self, range: Range<u64>, learned: &mut Learned) -> Outcome {
        let now_ms = now_ms();
        if self.files.mode == Mode::Inline || range.is_empty() || learned.knows(&range, now_ms) {
            return Outcome::Inline;
        }
        let outcome = match self.class() {
            Class::Memory => return Outcome::Inline,
            Class::Unknown | Class::Remote => return Outcome::Offloaded,
            Class::Mute if self.is_trusted(&range, self.mute(now_ms), now_ms) => Outcome::Inline,
            Class::Mute => Outcome::Offloaded,
            Class::Telling if self.is_trusted(&range, SURE, now_ms) => Outcome::Inline,
            Class::Telling if learned.is_cold && !self.is_trusted(&range, LIKELY, now_ms) => {
                Outcome::Offloaded
            }
            Class::Telling => self.ask(&range, now_ms),
        };
        if outcome == Outcome::Inline {
            learned.know(range, now_ms);
        }
        outcome
    }

    fn mute(&self, now_ms: u32) -> Trust {
        if self.is_busy(now_ms) { MUTE_BUSY } else { MUTE }
    }

    fn is_busy(&self, now_ms: u32) -> bool {
        self.files.policy.is_busy(self.mount, now_ms)
    }

    /// Asks the kernel, if that is safe.
    fn ask(&self, range: &Range<u64>, now_ms: u32) -> Outcome {
        let since_ms = clock::coarse_ms();
        let counted = self.are_all_pages_there(range);
        let outcome = match counted {
            Some(false) => Outcome::Cold,
            None if self.is_busy(now_ms) && !self.is_trusted(range, LIKELY, now_ms) => Outcome::Offloaded,
            // Pages that are still being read were counted too; the last one is read last.
            Some(true) => self.probe([range.end - 1]),
            None => self.probe(range.clone().step_by(PROBE_BYTES as usize).chain([range.end - 1])),
        };
        match outcome {
            Outcome::Inline => self.remember(range, Evidence::InMemory, now_ms),
            Outcome::Cold => self.note_cold(since_ms),
            _ => {}
        }
        outcome
    }

    /// What cachestat(2) says; `None` if it may not be asked.
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

    fn probe(&self, offsets: impl IntoIterator<Item = u64>) -> Outcome {
        for offset in offsets {
            match page_cache::is_cached(self.as_fd(), offset) {
                Ok(true) => {}
                Ok(false) => return Outcome::Cold,
                Err(error) => {
                    self.learn_from(&error);
                    return Outcome::Offloaded;
                }
            }
        }
        Outcome::Inline
    }

    fn how_to_read(&self, range: &Range<u64>) -> Option<Read> {
        let now_ms = now_ms();
        match self.class() {
            _ if self.files.mode == Mode::Inline || range.is_empty() => Some(Read::AnyWay),
            Class::Memory => Some(Read::AnyWay),
            Class::Unknown | Class::Remote => None,
            Class::Mute => self.is_trusted(range, self.mute(now_ms), now_ms).then_some(Read::AnyWay),
            Class::Telling => {
                let is_safe = !self.is_busy(now_ms)
                    || self.is_trusted(range, LIKELY, now_ms)
                    || self.are_all_pages_there(range) == Some(true);
                is_safe.then_some(Read::Cached)
            }
        }
    }

    fn read_cached(
        &self,
        buf: &mut Vec<u8>,
        range: Range<u64>,
        count: usize,
    ) -> Result<io::Result<usize>, Outcome> {
        let since_ms = clock::coarse_ms();
        match page_cache::read_cached(self.as_fd(), buf, range.start, count) {
            Ok(size) if range.start + size as u64 >= range.end => {
                self.remember(&range, Evidence::InMemory, now_ms());
                Ok(Ok(size))
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                if self.learn_from(&error) {
                    Err(Outcome::Offloaded)
                } else {
                    Ok(Err(error))
                }
            }
            _ => {
                self.note_cold(since_ms);
                Err(Outcome::Cold)
            }
        }
    }

    /// The kernel was asked from `since_ms` on and had to begin to read. (An answer that was late though
    /// the page was there waited for a processor, not for a disk.)
    fn note_cold(&self, since_ms: u64) {
        if is_late(since_ms) {
            tell(Operation::Read, Outcome::WrongGuess);
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

/// Where a pool thread found what it read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    InMemory,
    OnDisk,
}

/// What is remembered.
impl Opened {
    /// Reads on a pool thread with `read`, and remembers what is in memory after it, and why: a file that
    /// is asked for again is found out even while the disk is too busy for a loop to ask.
    fn read_on_pool(
        &self,
        offset: u64,
        count: usize,
        mut read: impl FnMut(u64, Wait) -> io::Result<usize>,
    ) -> io::Result<u64> {
        let _reading = self.mount.reading();
        let since_ns = clock::monotonic_ns();
        let mut size = match self.class() {
            Class::Telling => read(offset, Wait::Never).unwrap_or(0),
            _ => 0,
        };
        let was_there = size == count;
        if !was_there {
            size += read(offset + size as u64, Wait::Disk)?;
        }
        let limit_ns = FOUND_NS + size as u64 / 1024 * FOUND_NS_PER_KIB;
        let was_fast = self.class() == Class::Mute && clock::monotonic_ns() - since_ns < limit_ns;
        let found = if was_there || was_fast { Found::InMemory } else { Found::OnDisk };
        let range = offset..offset + size as u64;
        let evidence = self.weigh(found, &range, now_ms());
        self.remember(&range, evidence, now_ms());
        if was_there && evidence == Evidence::InMemory {
            self.look_ahead(range.end);
        }
        Ok(size as u64)
    }

    /// What it means that something was in memory, or was not. Behind what had to be read the kernel has
    /// read ahead: that nobody has asked for it again.
    fn weigh(&self, found: Found, range: &Range<u64>, now_ms: u32) -> Evidence {
        if found == Found::OnDisk {
            self.cold_ms.store(now_ms | 1, Ordering::Relaxed);
            return Evidence::Read;
        }
        let cold_ms = self.cold_ms.load(Ordering::Relaxed);
        let is_read_ahead = cold_ms != 0 && now_ms.wrapping_sub(cold_ms) < READ_AHEAD_MS;
        if !is_read_ahead && self.is_trusted(range, LATELY, now_ms) {
            Evidence::InMemory
        } else {
            Evidence::Read
        }
    }

    /// Where one part of a file is in memory the next ones often are. Knowing that spares the response a
    /// way through the pool for each of them, behind all who really wait for the disk.
    fn look_ahead(&self, offset: u64) {
        let mut start = offset.next_multiple_of(BLOCK_BYTES);
        let end = self.within(start, LOOK_AHEAD_BYTES).end;
        while start < end {
            let next = (start + BLOCK_BYTES).min(end);
            if self.probe([start, next - 1]) != Outcome::Inline {
                return;
            }
            self.remember(&(start..next), Evidence::InMemory, now_ms());
            start = next;
        }
    }

    /// Of blocks that are not covered to their end, or the file's, nothing is known.
    fn remember(&self, range: &Range<u64>, evidence: Evidence, now_ms: u32) {
        let start = range.start.next_multiple_of(BLOCK_BYTES);
        let end = if range.end >= self.stat.size { range.end } else { range.end / BLOCK_BYTES * BLOCK_BYTES };
        if start < end {
            self.files.policy.ranges.note(self.key(), start..end, evidence, now_ms);
        }
    }

    fn is_trusted(&self, range: &Range<u64>, trust: Trust, now_ms: u32) -> bool {
        self.files.policy.ranges.is_trusted(self.key(), range.clone(), trust, now_ms)
    }

    fn key(&self) -> impl Fn(u64) -> u64 {
        let (hash, identity) = (&self.files.policy.hash, self.identity());
        move |block| hash.of_place(identity, block)
    }

    /// The part of `count` bytes from `offset` that the file has.
    fn within(&self, offset: u64, count: u64) -> Range<u64> {
        offset..offset.saturating_add(count).min(self.stat.size).max(offset)
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// pread(2) until `count` bytes are there or the file ends.
fn read_fully(file: BorrowedFd<'_>, buf: &mut Vec<u8>, offset: u64, count: usize) -> io::Result<usize> {
    buf.reserve(count);
    let old = buf.len();
    while buf.len() - old < count {
        let at = offset.saturating_add((buf.len() - old) as u64);
        match rustix::io::pread(file, rustix::buffer::spare_capacity(buf), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The vector may have had more room than was asked for.
    buf.truncate(old + count);
    Ok(buf.len() - old)
}
