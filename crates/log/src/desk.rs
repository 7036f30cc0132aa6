//! The state that the writer's threads share behind one lock: destinations, the lines that wait for them, and
//! which thread does what. Nothing that can block for long happens under the lock: a destination is taken out
//! with its lines as a `Job`, worked on, and put back.
//!
//! 1. One thread is *on duty*: it takes lines off the queue and does jobs. `duty` is its number.
//! 2. A job that is found at work by two looks in a row is stuck. The thread that looked takes the duty over:
//!    the number grows, and the job's *lane* is stuck, which are the destinations that block together (files
//!    of one device). Nobody else begins a job of a stuck lane.
//! 3. A thread that comes back from a job and is not on duty any more does the jobs that have gathered for
//!    its lane, until there are none, and frees the lane under the same lock that says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::chunk::{Chunk, Report};
use crate::files::{self, LogTarget, OpenError, Opener};
use crate::metrics::LINES_LOST;
use crate::named::NamedTarget;
use crate::syslog::Peer;

/// Bytes that may wait for one destination that is stuck.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Lines that may wait for one destination that is stuck.
const WAITING_LINES_MAX: u64 = 65_536;
/// Bytes that may wait for all stuck destinations together.
const WAITING_BYTES_ALL_MAX: usize = 32 << 20;
/// Bytes that may wait for one destination even if others use up the common limit.
const WAITING_BYTES_SURE: usize = 256 << 10;

/// Destinations that block together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Regular files of a device.
    Device(u64),
    /// A destination that blocks by itself, by its number.
    Own(u64),
    /// The data base of time zones.
    Zone,
}

/// Where lines go in the end.
#[derive(Debug)]
pub(crate) enum Target {
    File(LogTarget),
    Named(NamedTarget),
    Syslog(Peer),
}

/// The parameters `buffer=`, `flush=` and `gzip=` of an `access_log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffering {
    /// Lines gather until the next one would go beyond this many bytes.
    pub size: usize,
    /// A line is written at the latest after this many milliseconds.
    pub flush_ms: Option<u64>,
    /// The level of compression, 1 to 9.
    pub gzip: Option<u32>,
}

/// A destination that handles exist of, or lines.
#[derive(Debug)]
pub(crate) struct Slot {
    /// No more lines come.
    closed: Arc<AtomicBool>,
    /// In the order of writing; only the last one may be open.
    waiting: Vec<Chunk>,
    waiting_bytes: usize,
    waiting_lines: u64,
    /// Lines lost and not reported yet.
    lost: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Target {
        lane: Lane,
        /// None while a job has it.
        target: Option<Box<Target>>,
        /// For lists of what is open; of files with a name.
        file: Option<(PathBuf, Arc<File>)>,
        reopen: bool,
    },
    /// Lines wait here on their way to the destination with this number.
    Buffer {
        behind: u64,
        config: Buffering,
        /// When they must go on, on the monotonic clock in milliseconds.
        due_ms: Option<u64>,
    },
}

impl Slot {
    pub(crate) fn of_target(id: u64, target: Target, closed: Arc<AtomicBool>) -> Self {
        let (device, file) = match &target {
            Target::File(target) => (files::device(target.file()), named_file(target)),
            Target::Named(_) | Target::Syslog(_) => (None, None),
        };
        let lane = device.map_or(Lane::Own(id), Lane::Device);
        Self::new(closed, Kind::Target { lane, target: Some(Box::new(target)), file, reopen: false })
    }

    pub(crate) fn of_buffer(behind: u64, config: Buffering, closed: Arc<AtomicBool>) -> Self {
        Self::new(closed, Kind::Buffer { behind, config, due_ms: None })
    }

    fn new(closed: Arc<AtomicBool>, kind: Kind) -> Self {
        Self { closed, waiting: Vec::new(), waiting_bytes: 0, waiting_lines: 0, lost: 0, kind }
    }

    fn append(&mut self, line: &[u8]) {
        match self.waiting.last_mut() {
            Some(chunk) if chunk.is_open() => chunk.push(line),
            _ => {
                let mut chunk = Chunk::default();
                chunk.push(line);
                self.waiting.push(chunk);
            }
        }
        self.waiting_bytes += line.len();
        self.waiting_lines += 1;
    }

    fn take_waiting(&mut self) -> Vec<Chunk> {
        (self.waiting_bytes, self.waiting_lines) = (0, 0);
        std::mem::take(&mut self.waiting)
    }

    /// Whether not too much waits already; `waiting_bytes_all` is what waits everywhere. What comes first
    /// always finds room: a buffer may be larger than the limit.
    fn has_room(&self, bytes: usize, lines: u64, waiting_bytes_all: usize) -> bool {
        let after = self.waiting_bytes + bytes;
        self.waiting.is_empty()
            || after <= WAITING_BYTES_SURE
            || (after <= WAITING_BYTES_MAX
                && self.waiting_lines + lines <= WAITING_LINES_MAX
                && waiting_bytes_all + bytes <= WAITING_BYTES_ALL_MAX)
    }

    /// Whether a job could be made of it, now or when its target is back.
    fn has_work(&self) -> bool {
        matches!(self.kind, Kind::Target { reopen, .. } if reopen || !self.waiting.is_empty())
    }
}

fn named_file(target: &LogTarget) -> Option<(PathBuf, Arc<File>)> {
    target.path().map(|path| (path.to_owned(), Arc::clone(target.file())))
}

/// A destination and what is to be done with it, in the hands of one thread.
#[derive(Debug)]
pub(crate) struct Job {
    id: u64,
    /// The lane of the file that is open; a job that reopens may change it.
    pub(crate) lane: Lane,
    target: Box<Target>,
    chunks: Vec<Chunk>,
    bytes: usize,
    reopen: bool,
}

impl Job {
    /// Does it; what is left would have had to wait. May **block** for as long as the destination does, with
    /// [`Patience::None`] for as long as a disk does.
    pub(crate) fn run(&mut self, opener: &dyn Opener, now_s: u64, patience: Patience) -> Told {
        let mut told = Told { about: self.id, failures: Vec::new(), unopened: None };
        match &mut *self.target {
            Target::File(target) => {
                match patience {
                    Patience::Waits => {
                        target.write(&self.chunks, now_s, &mut told.failures);
                        self.chunks.clear();
                    }
                    Patience::None => target.write_at_once(&mut self.chunks, now_s, &mut told.failures),
                }
                if self.reopen {
                    told.unopened = target.reopen(opener).err();
                    self.lane = files::device(target.file()).map_or(Lane::Own(self.id), Lane::Device);
                }
            }
            Target::Named(target) => {
                target.write(&self.chunks, now_s, &mut told.failures);
                self.chunks.clear();
            }
            Target::Syslog(peer) => {
                peer.write(&self.chunks, now_s, &mut told.failures);
                self.chunks.clear();
            }
        }
        told
    }
}

/// Whether a thread may wait for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Waits,
    /// No hold: the thread answers signals, and a reader of a pipe that held it would hold the whole server.
    None,
}

/// The messages after a job.
#[derive(Debug)]
pub(crate) struct Told {
    /// The destination of the job.
    pub(crate) about: u64,
    /// Failures to be reported elsewhere, as the destination itself is in trouble.
    pub(crate) failures: Vec<Report>,
    /// An error for all logs.
    pub(crate) unopened: Option<OpenError>,
}

/// The state that the writer's threads share.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    slots: BTreeMap<u64, Slot>,
    /// Destinations with work whose target is not being written.
    ready: BTreeSet<u64>,
    buffers: BTreeSet<u64>,
    /// Slots with lines for which a pipe had no room, in a writer without threads.
    held: Vec<u64>,
    waiting_bytes: usize,
    /// Targets that jobs have.
    out: usize,
    stuck: Vec<Lane>,
    /// Lines lost and not reported yet, of all slots.
    lost: u64,
    pub(crate) roles: Roles,
}

/// The threads and their jobs.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    /// The number of the thread on duty; 0 before there was one.
    pub(crate) duty: u32,
    /// The lane that the thread on duty works at.
    pub(crate) working: Option<Lane>,
    /// Jobs that were begun on duty.
    pub(crate) jobs: u64,
    /// Threads that were started.
    pub(crate) threads: usize,
    pub(crate) end: End,
}

/// How far the writer's end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    NotYet,
    /// Everything is written; nobody is on duty any more.
    Over,
}

/// Lines.
impl Desk {
    pub(crate) fn add(&mut self, id: u64, slot: Slot) {
        if matches!(slot.kind, Kind::Buffer { .. }) {
            self.buffers.insert(id);
        }
        self.slots.insert(id, slot);
    }

    pub(crate) fn knows(&self, id: u64) -> bool {
        self.slots.contains_key(&id)
    }

    /// Takes a line for a destination that it knows.
    pub(crate) fn take_line(&mut self, id: u64, line: &[u8], now_ms: u64) {
        let slot = self.slots.get_mut(&id).expect("added before its handle was given out");
        let Kind::Buffer { behind, config, due_ms } = &mut slot.kind else {
            return self.put(id, line);
        };
        let (behind, config) = (*behind, *config);
        let fits = line.len() <= config.size;
        if slot.waiting_bytes == 0 || slot.waiting_bytes + line.len() > config.size {
            *due_ms = config.flush_ms.filter(|_| fits).map(|flush_ms| now_ms + flush_ms);
            self.flush_buffer(id);
        }
        if fits {
            self.slots.get_mut(&id).expect("found above").append(line);
        } else {
            let mut chunk = Chunk::default();
            chunk.push(line);
            self.put_chunk(behind, chunk.close(config.gzip));
        }
    }

    /// Adds a line to what waits for a target.
    fn put(&mut self, id: u64, line: &[u8]) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if !slot.has_room(line.len(), 1, self.waiting_bytes) {
            return self.lose(id, 1);
        }
        slot.append(line);
        self.waiting_bytes += line.len();
        self.is_ready(id);
    }

    fn put_chunk(&mut self, id: u64, chunk: Chunk) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if !slot.has_room(chunk.len(), chunk.count(), self.waiting_bytes) {
            return self.lose(id, chunk.count());
        }
        slot.waiting_bytes += chunk.len();
        slot.waiting_lines += chunk.count();
        self.waiting_bytes += chunk.len();
        slot.waiting.push(chunk);
        self.is_ready(id);
    }

    fn lose(&mut self, id: u64, lines: u64) {
        self.slots.entry(id).and_modify(|slot| slot.lost += lines);
        self.lost += lines;
        LINES_LOST.add(lines);
    }

    fn is_ready(&mut self, id: u64) {
        let home = |slot: &Slot| matches!(&slot.kind, Kind::Target { target: Some(_), .. });
        if self.slots.get(&id).is_some_and(|slot| slot.has_work() && home(slot)) {
            self.ready.insert(id);
        }
    }

    /// Hands what a buffer holds to its target.
    fn flush_buffer(&mut self, id: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let Kind::Buffer { behind, config, .. } = slot.kind else { return };
        for chunk in slot.take_waiting() {
            self.put_chunk(behind, chunk.close(config.gzip));
        }
    }

    /// Hands on what buffers hold: all of it, or what has waited for long enough.
    pub(crate) fn flush_buffers(&mut self, which: Flush) {
        let ids: Vec<u64> = self.buffers.iter().copied().collect();
        for id in ids {
            let Some(Slot { kind: Kind::Buffer { due_ms, .. }, .. }) = self.slots.get_mut(&id) else {
                continue;
            };
            let is_due = match which {
                Flush::All => true,
                Flush::Due { now_ms } => due_ms.is_some_and(|due_ms| due_ms <= now_ms),
            };
            if is_due {
                *due_ms = None;
                self.flush_buffer(id);
            }
        }
    }

    /// When the next buffer is due.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let due = |id| match self.slots.get(id).map(|slot| &slot.kind) {
            Some(Kind::Buffer { due_ms, .. }) => *due_ms,
            _ => None,
        };
        self.buffers.iter().filter_map(due).min()
    }

    /// Lets go destinations without handles. `is_quiet` says that the queue was empty after their handles
    /// were found gone: then their last lines are here.
    pub(crate) fn sweep(&mut self, is_quiet: impl Fn() -> bool) {
        let closed: Vec<u64> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.closed.load(Ordering::Acquire))
            .map(|(&id, _)| id)
            .collect();
        if closed.is_empty() || !is_quiet() {
            return;
        }
        for id in closed.into_iter().rev() {
            // A buffer is younger than its target, so it comes first here.
            self.flush_buffer(id);
            let slot = &self.slots[&id];
            let is_out = matches!(&slot.kind, Kind::Target { target: None, .. });
            if slot.waiting.is_empty() && !is_out {
                self.slots.remove(&id);
                self.ready.remove(&id);
                self.buffers.remove(&id);
            }
        }
    }

    /// Whether lines were lost since the last time.
    pub(crate) fn has_losses(&self) -> bool {
        self.lost > 0
    }

    /// Lines lost since the last time: how many, and where if it has a name.
    pub(crate) fn take_losses(&mut self) -> Vec<(u64, Option<PathBuf>)> {
        self.lost = 0;
        let take = |slot: &mut Slot| {
            let lost = std::mem::take(&mut slot.lost);
            let file = match &slot.kind {
                Kind::Target { file: Some((path, _)), .. } => Some(path.clone()),
                _ => None,
            };
            (lost > 0).then_some((lost, file))
        };
        self.slots.values_mut().filter_map(take).collect()
    }
}

/// Which buffers are handed on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flush {
    All,
    Due {
        /// The monotonic clock.
        now_ms: u64,
    },
}

/// Jobs.
impl Desk {
    /// Something to do that is not stuck.
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        let stuck = &self.stuck;
        let id = self.ready.iter().find(|id| !stuck.contains(&lane_of(&self.slots, **id)));
        self.take_job(*id?)
    }

    /// Something to do in a lane, which is freed if there is nothing.
    pub(crate) fn next_job_of(&mut self, lane: Lane) -> Option<Job> {
        let id = self.ready.iter().find(|id| lane_of(&self.slots, **id) == lane).copied();
        if id.is_none() {
            self.stuck.retain(|stuck| *stuck != lane);
        }
        self.take_job(id?)
    }

    fn take_job(&mut self, id: u64) -> Option<Job> {
        self.ready.remove(&id);
        let slot = self.slots.get_mut(&id)?;
        let bytes = slot.waiting_bytes;
        let chunks = slot.take_waiting();
        let Kind::Target { lane, target, reopen, .. } = &mut slot.kind else { return None };
        let job = Job { id, lane: *lane, target: target.take()?, chunks, bytes, reopen: *reopen };
        *reopen = false;
        self.out += 1;
        Some(job)
    }

    /// Puts the target of a job back. What it gives back is to be dropped outside of the lock: closing a
    /// file may take a while.
    pub(crate) fn settle(&mut self, mut job: Job) -> Option<(PathBuf, Arc<File>)> {
        self.out -= 1;
        self.waiting_bytes -= job.bytes;
        let Some(Slot { kind: Kind::Target { lane, target, file, .. }, .. }) = self.slots.get_mut(&job.id)
        else {
            return None;
        };
        let mut before = None;
        if let Target::File(opened) = &*job.target
            && job.reopen
        {
            *lane = job.lane;
            before = std::mem::replace(file, named_file(opened));
        }
        *target = Some(job.target);
        if job.chunks.is_empty() {
            self.is_ready(job.id);
        } else {
            self.hold(job.id, std::mem::take(&mut job.chunks));
        }
        before
    }

    /// Puts lines back that would have had to wait, before those that have come since.
    fn hold(&mut self, id: u64, mut chunks: Vec<Chunk>) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let bytes = chunks.iter().map(Chunk::len).sum::<usize>();
        slot.waiting_bytes += bytes;
        slot.waiting_lines += chunks.iter().map(Chunk::count).sum::<u64>();
        self.waiting_bytes += bytes;
        chunks.append(&mut slot.waiting);
        slot.waiting = chunks;
        self.held.push(id);
    }

    /// Has lines that would have had to wait tried again.
    pub(crate) fn retry_held(&mut self) {
        std::mem::take(&mut self.held).into_iter().for_each(|id| self.is_ready(id));
    }

    /// Takes the lines that would have had to wait, with the names of their files.
    pub(crate) fn take_held(&mut self) -> Vec<(PathBuf, Vec<Chunk>)> {
        let mut taken = Vec::new();
        for id in std::mem::take(&mut self.held) {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let Kind::Target { file: Some((path, _)), .. } = &slot.kind else { continue };
            let path = path.clone();
            self.waiting_bytes -= slot.waiting_bytes;
            taken.push((path, slot.take_waiting()));
        }
        taken
    }

    /// Has lines of another writer's that would have had to wait, if their file is open here.
    pub(crate) fn adopt_held(&mut self, path: &Path, chunks: Vec<Chunk>) {
        let is_it =
            |slot: &Slot| matches!(&slot.kind, Kind::Target { file: Some((known, _)), .. } if known == path);
        let found = self.slots.iter().find(|(_, slot)| is_it(slot)).map(|(&id, _)| id);
        match found {
            Some(id) => self.hold(id, chunks),
            None => {
                let lines = chunks.iter().map(Chunk::count).sum();
                self.lost += lines;
                LINES_LOST.add(lines);
            }
        }
    }

    /// Whether lines are there that would have had to wait.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Has all files opened anew once what is there is written.
    pub(crate) fn ask_to_reopen(&mut self) {
        self.flush_buffers(Flush::All);
        for (&id, slot) in &mut self.slots {
            if let Kind::Target { target, file: Some(_), reopen, .. } = &mut slot.kind {
                *reopen = true;
                if target.is_some() {
                    self.ready.insert(id);
                }
            }
        }
    }

    /// Begins something in a lane, on duty.
    pub(crate) fn begin(&mut self, lane: Lane) {
        self.roles.jobs += 1;
        self.roles.working = Some(lane);
    }

    /// Gives up a lane that the one on duty is stuck in.
    pub(crate) fn abandon(&mut self, lane: Lane) {
        self.stuck.push(lane);
    }

    /// Whether nobody is to begin anything in a lane.
    pub(crate) fn is_stuck(&self, lane: Lane) -> bool {
        self.stuck.contains(&lane)
    }

    /// Threads that are stuck, or were and have not caught up yet.
    pub(crate) fn threads_stuck(&self) -> usize {
        self.stuck.len()
    }

    /// Whether everything that was taken off the queue is written, but for what buffers hold.
    pub(crate) fn is_clean(&self) -> bool {
        self.ready.is_empty() && self.out == 0
    }

    /// The files that handles exist of, their descriptors duplicated.
    pub(crate) fn files(&self) -> io::Result<Vec<(PathBuf, File)>> {
        let open = self.slots.values().filter(|slot| !slot.closed.load(Ordering::Acquire));
        let files = open.filter_map(|slot| match &slot.kind {
            Kind::Target { file: Some((path, file)), .. } => Some((path, file)),
            _ => None,
        });
        files.map(|(path, file)| Ok((path.clone(), file.try_clone()?))).collect()
    }
}

fn lane_of(slots: &BTreeMap<u64, Slot>, id: u64) -> Lane {
    match slots.get(&id).map(|slot| &slot.kind) {
        Some(Kind::Target { lane, .. }) => *lane,
        _ => Lane::Own(id),
    }
}
