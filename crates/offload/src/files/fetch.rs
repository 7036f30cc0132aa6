//! Reading on a pool thread what a loop would have to wait for, in the way that leaves it nothing to wait
//! for, and remembering what is in memory then.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Once};

use clearway_base::memory;
use clearway_metrics::Counter;
use clearway_os::clock;
use clearway_os::memory_limit::memory_limit_bytes;
use clearway_os::page_cache::{self, Wait};
use crossbeam_queue::ArrayQueue;

use super::mounts::{Class, Mount};
use super::recent::{BLOCK_BYTES, Evidence, Trust};
use super::tally::FileOutcome;
use super::{Opened, POLICY, now_ms};
use crate::Blocking;
use crate::faults::{self, Call};

/// The most bytes that a pool thread reads ahead of a response. Disks that seek want it large (with four
/// spindles, 1 MiB has 2.8 times the throughput of 128 KiB), and it has to stay in memory until it is sent.
pub(super) const COLD_READ_BYTES: u64 = 1 << 20;
/// The most bytes that are copied for a response at a time.
pub(super) const COPY_BYTES: usize = 512 << 10;
/// Bytes that may be copied at a time in any case: as many as nginx's `output_buffers` hold.
pub(super) const COPY_MIN_BYTES: usize = 64 << 10;
/// Bytes that are read into memory at a time in any case.
const WARM_MIN_BYTES: usize = BLOCK_BYTES as usize;
/// The most bytes of all reads for responses and all copies together before reads are kept short: disks and
/// clients may be slow to bring and to take them. Mounts share it ([`Held::take`]).
const HELD_MAX_BYTES: usize = 128 << 20;
/// And at most this part of the memory that the process may have: what a disk is bringing can no more be
/// pushed out of memory than a copy, and where there is nothing else left the kernel ends the process.
const HELD_MAX_PART: usize = 8;
/// Room in a copy's buffer for what goes before it, a response's head, bytes.
const HEAD_BYTES: usize = 16 << 10;
/// The sizes of buffers for copies, bytes: of large ones, and of those of `COPY_MIN_BYTES`.
const LARGE_BYTES: usize = COPY_BYTES + HEAD_BYTES;
const SMALL_BYTES: usize = COPY_MIN_BYTES + HEAD_BYTES;
/// A part so short is copied in any case, rather than read twice, bytes.
const COPY_ALWAYS_BYTES: u64 = 64 << 10;
/// A part that was read so lately, and is there when it is asked for again, is wanted, and not only on its
/// way out of memory.
const LATELY: Trust = Trust { read_ms: 3000, in_memory_ms: 10_000 };
/// Where nothing can be asked, a pool thread that reads faster than this has found what it read in memory,
/// or on a disk for which a loop could wait as well: for each read, ns.
const FOUND_NS: u64 = 200_000;
/// And for each KiB of it, ns.
const FOUND_NS_PER_KIB: u64 = 500;
/// How far a pool thread that found a part of a file in memory looks for more, bytes.
const LOOK_AHEAD_BYTES: u64 = 16 << 20;
/// For so long after a read from the disk the bytes that the kernel has read ahead may be in memory, ms.
const READ_AHEAD_MS: u32 = 5000;

#[expect(missing_docs, reason = "the metric's text says it")]
pub static COPIES_CUT: Counter = Counter::new(
    "files_copies_cut_total",
    "reads",
    "Reads for responses that were kept short because slow disks and clients held as much as they may.",
);

/// The bound on what is held, bytes; from its first use on. **Blocks** then.
pub(super) fn held_max_bytes() -> usize {
    static HELD_MAX: LazyLock<usize> = LazyLock::new(|| {
        let limit = usize::try_from(memory_limit_bytes()).unwrap_or(usize::MAX);
        (limit / HELD_MAX_PART).min(HELD_MAX_BYTES)
    });
    *HELD_MAX
}

/// The result of a pool thread's work for a response.
#[derive(Debug)]
pub enum Fetched {
    /// A part of the file is in memory: the loop sends or reads it, soon.
    Warm(Warmed),
    /// What was there from the wanted place on, fewer than wanted or none at the end of the file. It was
    /// copied since by the time that it is sent it may be in memory no more.
    Data(Vec<u8>, Held),
}

/// All that is held.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) bytes: AtomicUsize,
    /// Mounts of whose files something is held.
    pub(super) mounts: AtomicUsize,
}

impl Holding {
    pub(super) const fn new() -> Self {
        Self { bytes: AtomicUsize::new(0), mounts: AtomicUsize::new(0) }
    }
}

/// Keep it as long as the copy that came with it: all copies and reads together are bounded.
#[derive(Debug)]
#[must_use = "dropping it says that the memory is free"]
pub struct Held {
    pub(super) bytes: usize,
    all: &'static Holding,
    mount: &'static Mount,
}

impl Held {
    /// Takes `bytes` for a file of this mount, or the `least` that each response may have in any case. Where
    /// all together hold too much only those mounts are held short that have more than an equal part: a slow
    /// disk, whose reads hold theirs for long, takes nothing from the others.
    pub(super) fn take(all: &'static Holding, mount: &'static Mount, bytes: usize, least: usize) -> Self {
        let held = Self { bytes, all, mount };
        let taken = all.bytes.fetch_add(bytes, Ordering::Relaxed);
        let own = mount.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        if own == 0 && bytes > 0 {
            all.mounts.fetch_add(1, Ordering::Relaxed);
        }
        let part = held_max_bytes() / all.mounts.load(Ordering::Relaxed).max(1);
        if bytes <= least || taken + bytes <= held_max_bytes() || own + bytes <= part {
            return held;
        }
        COPIES_CUT.increment();
        held.cut(least)
    }

    fn cut(mut self, bytes: usize) -> Self {
        self.give_back(self.bytes - bytes);
        self.bytes = bytes;
        self
    }

    fn give_back(&self, bytes: usize) {
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if self.mount.held_bytes.fetch_sub(bytes, Ordering::Relaxed) == bytes && bytes > 0 {
            self.all.mounts.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// Buffers of copies that have been sent and wait for the next ones, at most: large ones, and small ones.
const BUFFERS_MAX: usize = HELD_MAX_BYTES / COPY_BYTES;

/// Buffers of copies that have been sent, for the next ones. Pool threads take what loops give back: an
/// allocator would keep one for each thread that has ever had one, until that thread asks for another.
static LARGE: LazyLock<ArrayQueue<Vec<u8>>> = LazyLock::new(|| ArrayQueue::new(BUFFERS_MAX));
static SMALL: LazyLock<ArrayQueue<Vec<u8>>> = LazyLock::new(|| ArrayQueue::new(BUFFERS_MAX));

/// The list of buffers with this capacity.
fn buffers(capacity: usize) -> Option<&'static ArrayQueue<Vec<u8>>> {
    match capacity {
        LARGE_BYTES => Some(&LARGE),
        SMALL_BYTES => Some(&SMALL),
        _ => None,
    }
}

/// A buffer for so many bytes.
fn buffer(bytes: usize) -> Vec<u8> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| memory::register(drop_buffers));
    let capacity = if bytes > COPY_MIN_BYTES { LARGE_BYTES } else { SMALL_BYTES };
    let kept = buffers(capacity).and_then(ArrayQueue::pop);
    kept.unwrap_or_else(|| Vec::with_capacity(capacity))
}

/// Takes the buffer of a copy that has been sent back while other copies are under way; any other buffer is
/// dropped. Never waits.
pub fn give_back(mut buffer: Vec<u8>) {
    if POLICY.held.bytes.load(Ordering::Relaxed) <= COPY_BYTES {
        drop_buffers();
    } else if let Some(all) = buffers(buffer.capacity()) {
        buffer.clear();
        // If there is no more room, the buffer is dropped.
        let _ = all.push(buffer);
    }
}

/// There are no copies under way, or threads have nothing to do.
fn drop_buffers() {
    for all in [&LARGE, &SMALL] {
        while all.pop().is_some() {}
    }
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

impl Opened {
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
        let held = Held::take(&self.files.policy.held, self.mount, count, COPY_MIN_BYTES);
        Ok(Fetched::Data(self.read_into(buffer(held.bytes), offset, held.bytes)?, held))
    }

    /// Reads into memory some of `count` bytes from `offset`, the first of them certainly, and as much
    /// around it as a disk does at a time.
    pub(super) fn warm(&self, _: &Blocking, offset: u64, count: u64) -> io::Result<Warmed> {
        let start = offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = offset.saturating_add(count).next_multiple_of(BLOCK_BYTES).min(start + COLD_READ_BYTES);
        let count = usize::try_from(end - start).expect("COLD_READ_BYTES at most");
        let held = Held::take(&self.files.policy.held, self.mount, count, WARM_MIN_BYTES);
        let size = self.read_on_pool(start, held.bytes, |from, wait| {
            page_cache::read_through(self.as_fd(), from, held.bytes - (from - start) as usize, wait)
        })?;
        Ok(Warmed(start..start + size))
    }

    /// Reads up to `count` bytes from `offset`: fewer only at the end of the file. **Blocks.**
    ///
    /// # Errors
    /// As pread(2).
    pub fn read(&self, _: &Blocking, offset: u64, count: usize) -> io::Result<Vec<u8>> {
        self.read_into(Vec::with_capacity(count), offset, count)
    }

    fn read_into(&self, mut data: Vec<u8>, offset: u64, count: usize) -> io::Result<Vec<u8>> {
        self.read_on_pool(offset, count, |from, wait| {
            let left = count - data.len();
            match wait {
                Wait::Never => page_cache::read_into(self.as_fd(), &mut data, from, left, wait),
                Wait::Disk => self.read_fully(&mut data, from, left),
            }
        })?;
        Ok(data)
    }

    /// Reads on a pool thread with `read`, and remembers what is in memory after it, and why: a file that
    /// is asked for again is found out even while the disk is too busy for a loop to ask.
    fn read_on_pool(
        &self,
        offset: u64,
        count: usize,
        mut read: impl FnMut(u64, Wait) -> io::Result<usize>,
    ) -> io::Result<u64> {
        faults::ask(Call::Read)?;
        let _reading = self.mount.reading();
        let since_ns = clock::monotonic_ns();
        let mut size = match self.class() {
            Class::Telling => read(offset, Wait::Never).unwrap_or(0),
            _ => 0,
        };
        let was_there = size == count || (size > 0 && offset + size as u64 >= self.stat.size);
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

    /// The evidence in the fact that a part was in memory, or was not. Behind a part that had to be read the
    /// kernel has read ahead: that is no evidence that it is wanted.
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
    /// way through the pool for each of them, behind all jobs that really wait for the disk.
    fn look_ahead(&self, offset: u64) {
        let mut start = offset.next_multiple_of(BLOCK_BYTES);
        let end = self.within(start, LOOK_AHEAD_BYTES).end;
        while start < end {
            let next = (start + BLOCK_BYTES).min(end);
            if self.probe([start, next - 1]) != FileOutcome::Inline {
                return;
            }
            self.remember(&(start..next), Evidence::InMemory, now_ms());
            start = next;
        }
    }
}

/// Where a pool thread found what it read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    InMemory,
    OnDisk,
}
