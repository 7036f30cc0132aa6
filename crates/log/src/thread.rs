//! The writer's threads. One is on duty: it takes lines off the queue, gathers them per destination
//! and writes each batch at once. Another looks every `STUCK_AFTER` whether the one on duty got stuck
//! in a destination, such as a disk that hangs; if so it takes the duty over, and only what goes to
//! that disk waits. While nothing is logged all of them sleep.
//!
//! While many lines come the one on duty naps between batches and does not listen to the bell, so that
//! producers find nobody to wake (a futex call costs a loop as much as a hundred lines). What was asked
//! for (stop, flush) is read before the queue, so that the lines before it are covered.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clearway_base::log::{Level, Verbatim};
use clearway_offload::{Blocking, Promptness, Receipt, Service};
use clearway_os::thread;

use crate::desk::{Desk, End, Flush, Lane, Patience, Told};
use crate::writer::{Shared, lock};

/// After one to two times this in one destination, others are served by another thread.
const STUCK_AFTER: Duration = Duration::from_millis(100);
/// Threads at most: one destination less may be stuck before others have to wait.
const THREADS_MAX: usize = 8;
/// Bytes that are taken off the queue before they are written.
const BATCH_BYTES: usize = 256 << 10;
/// How long lines gather while many come.
const NAP: Duration = Duration::from_millis(5);
/// A nap that brings fewer lines was not worth it …
const NAP_LINES: usize = 20;
/// … and after so many of them in a row sleeping until the bell rings is better.
const THIN_NAPS: u32 = 8;
/// When bells have ended so many sleeps …
const WAKES_MAX: u32 = 256;
/// … within this time, it is time for naps. A few requests in a row that write ten lines each are not many:
/// where their client reads the log at once it finds the lines there, not after a nap.
const WAKES_TIME: Duration = Duration::from_millis(50);
/// The slice of time that the thread asks for, microseconds, the least that is allowed: a thread that wakes
/// for a line is let in before the slice of the running thread is over.
const SLICE_US: u64 = 100;
/// Lost lines are reported at most this often.
const LOSS_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Someone else is on duty by now.
struct Relieved;

/// Starts a thread that stands by, or is on duty at once if nobody is.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let (bell, shared_there) = (Arc::clone(&shared.bell), Arc::clone(shared));
    lock(&shared.desk).roles.threads += 1;
    // The threads end together by a flag of their own, so the handle is not needed.
    Service::start("log writer", bell, move |blocking, _| run(&shared_there, blocking))
        .map(drop)
        .inspect_err(|_| lock(&shared.desk).roles.threads -= 1)
}

fn run(shared: &Arc<Shared>, blocking: &Blocking) {
    // A test that wrote and reads the log right afterwards finds the line there, also on a busy machine.
    let tid = thread::current();
    if let Ok(nice) = thread::nice(tid) {
        // If the policy is refused, lines come a little later.
        let _ = thread::schedule(tid, thread::Policy::Normal, nice, SLICE_US);
    }
    while let Some(duty) = stand_by(shared) {
        have_another(shared);
        serve(shared, blocking, duty);
    }
}

/// Waits until there is a duty to take, and for the end.
fn stand_by(shared: &Shared) -> Option<u32> {
    // One watches, others wait here.
    let _seat = lock(&shared.seat);
    let mut seen = None;
    loop {
        let idle = {
            let mut desk = lock(&shared.desk);
            let roles = &mut desk.roles;
            if roles.end == End::Over {
                return None;
            }
            let same = seen == Some(roles.jobs);
            seen = Some(roles.jobs);
            if roles.duty == 0 || (same && roles.working.is_some()) {
                roles.duty += 1;
                let (duty, lane) = (roles.duty, roles.working.take());
                lane.into_iter().for_each(|lane| desk.abandon(lane));
                return Some(duty);
            }
            let idle = same && roles.working.is_none();
            shared.watching.store(u32::from(!idle), Ordering::SeqCst);
            idle
        };
        let limit = (!idle).then_some(STUCK_AFTER);
        clearway_os::futex::wait(&shared.watching, u32::from(!idle), limit);
    }
}

/// Sees to it that somebody stands by.
fn have_another(shared: &Arc<Shared>) {
    let missing = {
        let desk = lock(&shared.desk);
        desk.roles.threads < THREADS_MAX && desk.roles.threads - desk.threads_stuck() < 2
    };
    if missing && let Err(error) = start(shared) {
        shared.report(None, Level::Alert, format_args!("cannot start a thread of the log writer ({error})"));
    }
}

/// On duty until everything ends or somebody else takes over.
fn serve(shared: &Shared, blocking: &Blocking, duty: u32) {
    let mut pace = Pace::new();
    loop {
        let ending = shared.ending.load(Ordering::SeqCst);
        let (asked, mark) = (shared.receipts.asked(), shared.queue.mark());
        let Ok(lines) = pass(shared, Some(duty)) else { return };
        let is_clean = lock(&shared.desk).is_clean() && shared.queue.is_past(mark);
        if is_clean && ending {
            return end(shared);
        } else if is_clean {
            shared.receipts.settle(asked);
        }
        let mode = pace.next(lines);
        // Where something hangs nobody is to wait for the rest either: it cannot be told apart.
        let is_prompt = is_clean && *mode == Mode::Sleeps;
        shared.receipts.set(if is_prompt { Promptness::Prompt } else { Promptness::Slow });
        match mode {
            #[expect(clippy::disallowed_methods, reason = "a thread of its own, whose purpose is to wait")]
            Mode::Naps => std::thread::sleep(NAP),
            Mode::Sleeps => sleep(shared, blocking, asked),
        }
    }
}

/// Ends all threads. A waiter for a flush finds that they have ended, and writes what came since.
fn end(shared: &Shared) {
    lock(&shared.desk).roles.end = End::Over;
    // Read behind the lock: a flush asked for earlier counts, a later one sees that no thread is left.
    shared.receipts.settle(shared.receipts.asked());
    shared.receipts.set(Promptness::Slow);
    shared.wake_watch();
}

/// Whether to sleep until the bell rings or to look again after a while.
struct Pace {
    mode: Mode,
    /// Sleeps since `since`; naps in a row that brought little.
    count: u32,
    since: Instant,
}

#[derive(PartialEq, Eq)]
enum Mode {
    Sleeps,
    Naps,
}

impl Pace {
    fn new() -> Self {
        Self { mode: Mode::Sleeps, count: 0, since: Instant::now() }
    }

    /// The next action after so many lines have been written.
    fn next(&mut self, lines: usize) -> &Mode {
        match self.mode {
            Mode::Naps => {
                self.count = if lines < NAP_LINES { self.count + 1 } else { 0 };
                if self.count >= THIN_NAPS {
                    *self = Self::new();
                }
            }
            Mode::Sleeps => {
                // A connection that only waits for its lines wakes the writer, too.
                self.count += u32::from(lines > 0);
                if self.since.elapsed() > WAKES_TIME {
                    *self = Self::new();
                } else if self.count >= WAKES_MAX {
                    *self = Self { mode: Mode::Naps, ..Self::new() };
                }
            }
        }
        &self.mode
    }
}

fn sleep(shared: &Shared, blocking: &Blocking, asked: Receipt) {
    let mut limit = Duration::from_secs(60 - now_s() % 60);
    if has_losses(shared) {
        limit = limit.min(LOSS_REPORT_INTERVAL);
    }
    if let Some(due_ms) = lock(&shared.desk).next_due_ms() {
        limit = limit.min(Duration::from_millis(due_ms.saturating_sub(now_ms())));
    }
    shared.bell.sleep(blocking, Some(limit), || {
        shared.queue.is_ready() || shared.chores.load(Ordering::SeqCst) || shared.receipts.asked() != asked
    });
}

/// Writes what is queued and does what is due, on duty or, in a writer without threads, for the caller of
/// `flush`; returns the number of lines.
fn pass(shared: &Shared, duty: Option<u32>) -> Result<usize, Relieved> {
    let mut taken = 0;
    lock(&shared.desk).retry_held();
    loop {
        let lines = drain(shared);
        work(shared, duty)?;
        taken += lines;
        if lines == 0 || taken >= crate::writer::QUEUE_LINES {
            break;
        }
    }
    keep_house(shared);
    work(shared, duty)?;
    check_zone(shared, duty)?;
    lock(&shared.desk).sweep(|| shared.queue.is_empty());
    tell_losses(shared);
    Ok(taken)
}

/// `pass` for a writer without threads.
pub(crate) fn pass_alone(shared: &Shared) {
    // What the first pass reports is written by the second.
    for _ in 0..2 {
        let done = pass(shared, None);
        debug_assert!(done.is_ok(), "nobody relieves who works alone");
    }
}

/// Takes lines off the queue.
fn drain(shared: &Shared) -> usize {
    let now_ms = now_ms();
    let (mut lines, mut bytes) = (0, 0);
    let mut desk = lock(&shared.desk);
    while bytes < BATCH_BYTES
        && lines < crate::writer::QUEUE_LINES
        && let Some(line) = shared.queue.pop()
    {
        lines += 1;
        bytes += line.bytes.len();
        if !desk.knows(line.to) {
            shared.adopt(&mut desk);
        }
        desk.take_line(line.to, &line.bytes, now_ms);
    }
    shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    lines
}

/// Does all jobs that are not stuck.
fn work(shared: &Shared, duty: Option<u32>) -> Result<(), Relieved> {
    loop {
        let mut job = {
            let mut desk = lock(&shared.desk);
            let Some(job) = desk.next_job() else { return Ok(()) };
            desk.begin(job.lane);
            job
        };
        begin_watch(shared);
        let lane = job.lane;
        let patience = if duty.is_some() { Patience::Waits } else { Patience::None };
        let told = job.run(&*shared.opener, now_s(), patience);
        tell(shared, &told);
        finish(shared, duty, lane, |desk| desk.settle(job))?;
    }
}

/// A job is watched from here on.
fn begin_watch(shared: &Shared) {
    if shared.watching.load(Ordering::SeqCst) == 0 {
        shared.wake_watch();
    }
}

/// Ends what was begun in a lane. A thread that was relieved meanwhile does the jobs that have gathered for
/// the lane, and frees it.
fn finish(
    shared: &Shared,
    duty: Option<u32>,
    lane: Lane,
    settle: impl FnOnce(&mut Desk) -> Option<(PathBuf, Arc<File>)>,
) -> Result<(), Relieved> {
    // Dropped outside of the lock.
    let _before;
    {
        let mut desk = lock(&shared.desk);
        _before = settle(&mut desk);
        if duty.is_none_or(|duty| duty == desk.roles.duty) {
            desk.roles.working = None;
            return Ok(());
        }
    }
    loop {
        let Some(mut job) = lock(&shared.desk).next_job_of(lane) else { break };
        let told = job.run(&*shared.opener, now_s(), Patience::Waits);
        tell(shared, &told);
        let before = lock(&shared.desk).settle(job);
        drop(before);
    }
    // Someone may wait for all to be written.
    shared.do_chores();
    Err(Relieved)
}

/// The work between two drains: requests from other threads, and timers.
fn keep_house(shared: &Shared) {
    shared.chores.store(false, Ordering::SeqCst);
    let mut desk = lock(&shared.desk);
    shared.adopt(&mut desk);
    desk.sweep(|| shared.queue.is_empty());
    let ending = shared.ending.load(Ordering::SeqCst);
    desk.flush_buffers(if ending { Flush::All } else { Flush::Due { now_ms: now_ms() } });
    if shared.reopen.swap(false, Ordering::SeqCst) {
        desk.ask_to_reopen();
    }
}

/// Reads the time zone once a minute.
fn check_zone(shared: &Shared, duty: Option<u32>) -> Result<(), Relieved> {
    let minute = now_s() / 60;
    if shared.zone_minute.swap(minute, Ordering::Relaxed) == minute {
        return Ok(());
    }
    {
        let mut desk = lock(&shared.desk);
        if desk.is_stuck(Lane::Zone) {
            return Ok(());
        }
        desk.begin(Lane::Zone);
    }
    begin_watch(shared);
    shared.utc_offset.refresh(now_s().cast_signed());
    finish(shared, duty, Lane::Zone, |_| None)
}

fn tell(shared: &Shared, told: &Told) {
    for report in &told.failures {
        shared.report(Some(told.about), report.level, format_args!("{}", report.text));
    }
    if let Some(error) = &told.unopened {
        shared.report(None, Level::Emerg, format_args!("{error}"));
    }
}

/// Says how many lines were lost, at most once in a second.
fn tell_losses(shared: &Shared) {
    let now = now_s();
    if !has_losses(shared) || shared.losses_told_s.swap(now, Ordering::Relaxed) == now {
        return;
    }
    let at_desk = lock(&shared.desk).take_losses();
    let queue = std::iter::once((shared.lost.swap(0, Ordering::Relaxed), None));
    for (lines, path) in queue.filter(|(lines, _)| *lines > 0).chain(at_desk) {
        let place = path.map_or_else(String::new, |path| format!(" for \"{}\"", Verbatim::path(&path)));
        shared.report(None, Level::Alert, format_args!("log queue overflow: {lines} lines lost{place}"));
    }
}

fn has_losses(shared: &Shared) -> bool {
    shared.lost.load(Ordering::Relaxed) > 0 || lock(&shared.desk).has_losses()
}

/// The wall clock in seconds.
pub(crate) fn now_s() -> u64 {
    clearway_os::clock::unix_ms() / 1000
}

fn now_ms() -> u64 {
    clearway_os::clock::monotonic_ms()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_are_for_many_lines() {
        let mut pace = Pace::new();
        let sleeps = (1..WAKES_MAX).filter(|_| *pace.next(1) == Mode::Sleeps).count();
        assert_eq!(sleeps, WAKES_MAX as usize - 1);
        assert!(*pace.next(1) == Mode::Naps, "so many in a moment");
        assert!((0..100).all(|_| *pace.next(NAP_LINES) == Mode::Naps), "they bring lines");
        assert!((1..THIN_NAPS).all(|_| *pace.next(NAP_LINES - 1) == Mode::Naps));
        assert!(*pace.next(0) == Mode::Sleeps, "they bring none");
    }
}
