//! The writer thread: takes lines off the queue, gathers them per file and writes each batch at once.
//!
//! While lines come it naps between batches and does not listen to the bell, so that producers find
//! nobody to wake (a futex call costs a loop as much as a hundred lines). Naps that bring nothing get
//! longer, and after the longest it sleeps until the bell rings. What was asked for (stop, flush) is
//! read before a drain, so that the drain covers the lines before it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clearway_base::log::Level;
use clearway_offload::{Blocking, Stop};

use crate::files::{Failure, Target};
use crate::writer::{Shared, lock};

/// How long the writer lets lines gather while they keep coming.
const NAP_MIN: Duration = Duration::from_millis(1);
/// The nap after which it sleeps; a line waits so long at most while the disk keeps up.
const NAP_MAX: Duration = Duration::from_millis(8);
/// Lost lines are reported at most this often.
const LOSS_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What the one who writes works on.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    targets: BTreeMap<u64, Target>,
    /// Minutes since the epoch when the time zone was read and closed files were let go.
    swept_minute: u64,
    /// The second in which losses were reported last.
    losses_told_second: u64,
}

/// Runs until `stop`, which ends it after one more pass over the queue.
pub(crate) fn run(shared: &Shared, blocking: &Blocking, stop: &Stop) {
    let mut nap = NAP_MAX;
    loop {
        let stopping = stop.is_requested();
        let flush_asked = shared.flush_asked.load(Ordering::SeqCst);
        let drained = pass(shared);
        if shared.flush_done.swap(flush_asked, Ordering::AcqRel) != flush_asked {
            clearway_os::futex::wake(&shared.flush_done, u32::from(u16::MAX));
        }
        if stopping {
            return;
        }
        nap = if drained > 0 { NAP_MIN } else { (2 * nap).min(2 * NAP_MAX) };
        if nap > NAP_MAX {
            sleep(shared, blocking, stop, flush_asked);
        } else {
            #[expect(clippy::disallowed_methods, reason = "a thread of its own, whose purpose is to wait")]
            std::thread::sleep(nap);
        }
    }
}

/// Writes what is queued and does what is due; how many lines there were.
pub(crate) fn pass(shared: &Shared) -> usize {
    let mut desk = lock(&shared.desk);
    let drained = desk.drain(shared);
    desk.keep_house(shared);
    // What keep_house reported goes out with what it is about.
    desk.drain(shared);
    drained
}

fn sleep(shared: &Shared, blocking: &Blocking, stop: &Stop, flush_done: u32) {
    let to_next_minute = Duration::from_secs(60 - now_second() % 60);
    let losses_wait = shared.lost.load(Ordering::Relaxed) > 0;
    let limit = if losses_wait { LOSS_REPORT_INTERVAL } else { to_next_minute };
    shared.bell.sleep(blocking, Some(limit), || {
        shared.queue.is_ready()
            || stop.is_requested()
            || shared.reopen.load(Ordering::SeqCst)
            || shared.flush_asked.load(Ordering::SeqCst) != flush_done
    });
}

impl Desk {
    /// Writes what is in the queue, at most one queue's length, and says how many lines there were.
    fn drain(&mut self, shared: &Shared) -> usize {
        let now = now_second();
        let (mut taken, mut bytes) = (0, 0);
        let mut failures = Vec::new();
        while taken < crate::writer::QUEUE_LINES
            && let Some(line) = shared.queue.pop()
        {
            taken += 1;
            bytes += line.bytes.len();
            if !self.targets.contains_key(&line.file) {
                self.adopt(shared);
            }
            let target =
                self.targets.get_mut(&line.file).expect("registered before its handle was given out");
            if target.gather(&line.bytes) {
                shared.queued_bytes.fetch_sub(std::mem::take(&mut bytes), Ordering::Relaxed);
                failures.extend(target.write_out(now));
            }
        }
        if taken > 0 {
            shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            failures.extend(self.targets.values_mut().filter_map(|target| target.write_out(now)));
        }
        for failure in failures {
            report(shared, &failure);
        }
        taken
    }

    /// Takes over the files that were opened lately.
    pub(crate) fn adopt(&mut self, shared: &Shared) {
        let added = std::mem::take(&mut lock(&shared.registry).added);
        self.targets.extend(added.into_iter().map(|target| (target.id, target)));
    }

    /// The files with handles, their descriptors duplicated.
    pub(crate) fn files(&self) -> std::io::Result<Vec<(PathBuf, File)>> {
        self.targets.values().filter_map(Target::duplicate).collect()
    }

    /// What is due between two drains.
    fn keep_house(&mut self, shared: &Shared) {
        let now = now_second();
        if shared.reopen.swap(false, Ordering::SeqCst) {
            self.reopen(shared);
        }
        if self.swept_minute != now / 60 {
            self.swept_minute = now / 60;
            shared.utc_offset.refresh(now.cast_signed());
            self.adopt(shared);
            let queue = &shared.queue;
            // Closed first: an empty queue then means that its last lines have been written.
            self.targets.retain(|_, target| !(target.is_closed() && queue.is_empty()));
        }
        self.tell_losses(shared, now);
    }

    fn reopen(&mut self, shared: &Shared) {
        self.adopt(shared);
        let log = lock(&shared.report).upgrade();
        for target in self.targets.values_mut() {
            if let (Err(error), Some(log)) = (target.reopen(&*shared.opener), &log) {
                log.report(None, Level::Emerg, format_args!("{error}"));
            }
        }
    }

    fn tell_losses(&mut self, shared: &Shared, now: u64) {
        if shared.lost.load(Ordering::Relaxed) == 0 || self.losses_told_second == now {
            return;
        }
        if let Some(log) = lock(&shared.report).upgrade() {
            self.losses_told_second = now;
            let lost = shared.lost.swap(0, Ordering::Relaxed);
            log.report(None, Level::Alert, format_args!("log queue overflow: {lost} lines lost"));
        }
    }
}

fn report(shared: &Shared, failure: &Failure) {
    if let Some(log) = lock(&shared.report).upgrade() {
        log.report(Some(failure.id), Level::Alert, format_args!("{failure}"));
    }
}

/// The wall clock in seconds.
fn now_second() -> u64 {
    clearway_os::clock::unix_ms() / 1000
}
