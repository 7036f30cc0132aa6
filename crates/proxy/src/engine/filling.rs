//! The bytes of a response on their way into a cache: what was received is written by the pool of the disk, a
//! job after the other, and others that want the same are told how far it is. Polled by the request's task.
//!
//! What was received waits a moment for what comes behind it, so that a page is made, written and published
//! by one job: until [`HELD_MAX_BYTES`] are there, it is [`HELD_MS`] old, or all followers wait for it. Where
//! most of the followers are not done with what there is it waits for [`HELD_BEHIND_MS`]: a thousand of them
//! that are sent little by little keep the loops from those that have nothing yet.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_cache::disks::{DiskError, Filling, Growing, Part};
use clearway_cache::{Crowd, End, Led, Verdict};
use clearway_http::Request;
use clearway_offload::Task;
use clearway_runtime::{LoopRef, Timer};

use crate::engine::object::{Cached, Updating};

/// The most bytes that are held before they are written.
const HELD_MAX_BYTES: usize = 128 * 1024;
/// How long what was received waits for more, ms.
const HELD_MS: u64 = 5;
/// As above, if fewer than half of the followers wait for it, ms.
const HELD_BEHIND_MS: u64 = 20;

/// The longest wait for a job without which the response cannot go on, ms. A disk that takes longer costs the
/// object, not the response.
const PATIENCE_MS: u64 = 5_000;

/// An object on its way in.
pub(super) struct Object {
    stage: Stage,
    received: Vec<Bytes>,
    received_bytes: usize,
    /// Bytes that may wait in memory to be written.
    memory_bytes: usize,
    home: LoopRef,
    /// Since when what was received waits for more.
    held_since_ms: u64,
    /// Until when it may; armed while something waits.
    held: Timer,
    length: Length,
    /// Whether all of it has come.
    progress: Progress,
    growing: Option<Growing>,
    lead: Option<Led<Growing>>,
    update: Option<Updating>,
    /// There while the response cannot go on without the job.
    patience: Option<Timer>,
}

/// Whether it is known how much will come. Others begin to send a response only if it is: where it just ends
/// nobody could tell that from a connection that breaks, or for how long nothing more will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Unknown,
    Announced,
}

enum Stage {
    /// More bytes may be written.
    Open(Filling),
    Writing(Task<Result<Filling, DiskError>>),
    /// The file has its name, or there is none.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    UnderWay,
    Received,
}

impl Object {
    /// Begins one, of which nothing is written yet.
    pub(super) fn new(
        filling: Filling,
        (length, memory_bytes): (Length, usize),
        cached: &mut Cached,
        home: LoopRef,
    ) -> Box<Self> {
        Box::new(Self {
            stage: Stage::Open(filling),
            received: Vec::new(),
            received_bytes: 0,
            memory_bytes: memory_bytes.max(HELD_MAX_BYTES),
            home,
            held_since_ms: 0,
            held: Timer::new(home),
            length,
            progress: Progress::UnderWay,
            growing: None,
            lead: cached.lead.take(),
            update: cached.update.take(),
            patience: None,
        })
    }

    /// Whether no more is to be received until some of it is written.
    pub(super) fn is_full(&self) -> bool {
        self.received_bytes >= self.memory_bytes
    }

    /// Keeps bytes behind those that there are.
    pub(super) fn put(&mut self, data: Bytes) {
        if !matches!(self.stage, Stage::Over) {
            if self.received.is_empty() {
                self.held_since_ms = self.home.now_ms();
            }
            debug_assert!(self.progress == Progress::UnderWay, "nothing follows all of it");
            self.received_bytes += data.len();
            self.received.push(data);
        }
    }

    /// The whole response has come: the object gets its place once everything is written.
    pub(super) fn finish(&mut self) {
        debug_assert!(self.progress == Progress::UnderWay, "all of it comes once");
        self.progress = Progress::Received;
        if let Some(led) = &self.lead {
            led.leader().note_received();
        }
        self.decide();
    }

    /// Lets others follow, if they may already.
    fn decide(&self) {
        let may_follow = self.length == Length::Announced || self.progress == Progress::Received;
        if let (true, Some(led), Some(growing)) = (may_follow, &self.lead, &self.growing) {
            led.leader().decide(Verdict::Stored(growing.clone()));
        }
    }

    /// Goes on. Ready when the pool has nothing to do for it.
    pub(super) fn poll(&mut self, request: &Request<'_>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if matches!(self.stage, Stage::Open(_)) && !self.is_due(cx) {
                return Poll::Ready(());
            }
            match &mut self.stage {
                Stage::Over => return Poll::Ready(()),
                Stage::Open(_) => self.go_on(),
                Stage::Writing(task) => {
                    let Poll::Ready(written) = Pin::new(task).poll(cx) else {
                        return self.poll_patience(request, cx);
                    };
                    self.patience = None;
                    let Some(filling) = self.outcome(request, written) else { return Poll::Ready(()) };
                    self.note_written(&filling);
                    self.stage = match filling.published() {
                        None => Stage::Open(filling),
                        Some(_) => {
                            self.end();
                            Stage::Over
                        }
                    };
                }
            }
        }
    }

    /// A job is on its way. Where the response waits for it there is an end to that.
    fn poll_patience(&mut self, request: &Request<'_>, cx: &mut Context<'_>) -> Poll<()> {
        debug_assert!(matches!(self.stage, Stage::Writing(_)), "it is a job that takes long");
        if !self.is_full() && self.progress == Progress::UnderWay {
            self.patience = None;
            return Poll::Pending;
        }
        let home = self.home;
        let patience = self.patience.get_or_insert_with(|| {
            let timer = Timer::new(home);
            timer.arm(home.now_ms() + PATIENCE_MS);
            timer
        });
        ready!(patience.poll_expired(cx));
        let message = format_args!("response is not cached: nothing was written for {PATIENCE_MS} ms");
        request.log(Level::Error, message);
        self.give_up();
        Poll::Ready(())
    }

    /// Gives up keeping the response: other requests for it ask the server themselves.
    fn give_up(&mut self) {
        self.stage = Stage::Over;
        self.received = Vec::new();
        self.received_bytes = 0;
        if let Some(led) = self.lead.take() {
            led.leader().decide(Verdict::NotStored);
        }
        self.update = None;
    }

    /// Whether what was received is to be written now. Looked at again when the time has come.
    fn is_due(&self, cx: &mut Context<'_>) -> bool {
        if self.progress == Progress::Received {
            return true;
        }
        if self.received.is_empty() {
            return false;
        }
        let crowd = self.lead.as_ref().map_or(Crowd::NobodyWaits, |led| led.leader().crowd());
        if crowd == Crowd::AllWait || self.received_bytes >= HELD_MAX_BYTES {
            return true;
        }
        let held_ms = if crowd == Crowd::FewWait { HELD_BEHIND_MS } else { HELD_MS };
        self.held.arm(self.held_since_ms + held_ms);
        self.held.poll_expired(cx).is_ready()
    }

    /// The next job: what was received is written, and the file gets its place if that is all.
    fn go_on(&mut self) {
        let Stage::Open(filling) = std::mem::replace(&mut self.stage, Stage::Over) else { return };
        self.held.disarm();
        debug_assert!(
            !self.received.is_empty() || self.progress == Progress::Received,
            "a job has bytes to write, or a file to put into its place"
        );
        debug_assert_eq!(
            self.received_bytes,
            self.received.iter().map(Bytes::len).sum::<usize>(),
            "what waits to be written is counted"
        );
        debug_assert!(self.patience.is_none(), "a job that has ended is not waited for");
        self.received_bytes = 0;
        let part = match self.progress {
            Progress::UnderWay => Part::Some,
            Progress::Received => Part::Last,
        };
        self.stage = Stage::Writing(filling.add(std::mem::take(&mut self.received), part));
    }

    /// Tells others how far it is.
    fn note_written(&mut self, filling: &Filling) {
        debug_assert!(
            self.growing.is_some() || filling.growing().is_some() || filling.written() == 0,
            "what is written can be read"
        );
        if self.growing.is_none() {
            self.growing = filling.growing().cloned();
            self.decide();
        }
        if let Some(led) = &self.lead {
            led.leader().grown(filling.written());
        }
    }

    /// Ends the filling: the file has its name.
    fn end(&mut self) {
        if let Some(update) = self.update.take() {
            update.end_published();
        }
        debug_assert!(self.progress == Progress::Received, "a file gets its place when all of it has come");
        debug_assert!(self.received.is_empty(), "everything is written");
        if let Some(led) = self.lead.take() {
            led.finish(End::Complete);
        }
    }

    /// The result of a job; nothing is kept if it has failed.
    fn outcome(
        &mut self,
        request: &Request<'_>,
        outcome: Result<Result<Filling, DiskError>, clearway_offload::Error>,
    ) -> Option<Filling> {
        let failure = match outcome {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(failure)) => Some(failure),
            Err(_) => None,
        };
        if let Some(failure @ DiskError::Failed(_)) = failure {
            request.log(Level::Crit, format_args!("{failure}"));
        }
        self.give_up();
        None
    }
}
