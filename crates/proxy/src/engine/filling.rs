//! The bytes of a response on their way into a cache: what was received is written by the pool of the disk, a
//! job after the other, and others that want the same are told how far it is. Polled by the request's task.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_cache::disks::{DiskError, Filling, Growing, Identity};
use clearway_cache::{End, Led, Verdict};
use clearway_http::Request;
use clearway_offload::Task;

use crate::engine::object::{Cached, Updating};

/// An object on its way in.
pub(super) struct Object {
    stage: Stage,
    received: Vec<Bytes>,
    received_bytes: usize,
    /// What may wait in memory to be written, bytes.
    memory_bytes: usize,
    length: Length,
    /// Whether all of it has come.
    progress: Progress,
    growing: Option<Growing>,
    lead: Option<Led<Growing>>,
    update: Option<Updating>,
}

/// Whether it is known how much will come. Others begin to send a response only if it is: where it just ends
/// nobody could tell that from a connection that breaks, or for how long nothing more will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Unknown,
    Announced,
}

enum Stage {
    Creating(Task<Result<Filling, DiskError>>),
    /// More may be written.
    Open(Filling),
    Writing(Task<Result<Filling, DiskError>>),
    Publishing(Task<Result<Identity, DiskError>>),
    /// It has its place, or there is none.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    UnderWay,
    Received,
}

impl Object {
    /// Begins one with the job that makes its file.
    pub(super) fn new(
        creating: Task<Result<Filling, DiskError>>,
        (length, memory_bytes): (Length, usize),
        cached: &mut Cached,
    ) -> Box<Self> {
        Box::new(Self {
            stage: Stage::Creating(creating),
            received: Vec::new(),
            received_bytes: 0,
            memory_bytes,
            length,
            progress: Progress::UnderWay,
            growing: None,
            lead: cached.lead.take(),
            update: cached.update.take(),
        })
    }

    /// Whether no more is to be received until some of it is written.
    pub(super) fn is_full(&self) -> bool {
        self.received_bytes >= self.memory_bytes
    }

    /// Keeps bytes behind those that there are.
    pub(super) fn put(&mut self, data: &[u8]) {
        if !matches!(self.stage, Stage::Over) {
            self.received.push(Bytes::copy_from_slice(data));
            self.received_bytes += data.len();
        }
    }

    /// All of it has come: it gets its place once everything is written.
    pub(super) fn finish(&mut self) {
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
            match &mut self.stage {
                Stage::Over => return Poll::Ready(()),
                Stage::Open(_) if self.received.is_empty() && self.progress == Progress::UnderWay => {
                    return Poll::Ready(());
                }
                Stage::Open(_) => self.go_on(),
                Stage::Creating(task) | Stage::Writing(task) => {
                    let written = ready!(Pin::new(task).poll(cx));
                    let Some(filling) = self.outcome(request, written) else { return Poll::Ready(()) };
                    self.note_written(&filling);
                    self.stage = Stage::Open(filling);
                }
                Stage::Publishing(task) => {
                    let published = ready!(Pin::new(task).poll(cx));
                    if self.outcome(request, published).is_some() {
                        self.end();
                    }
                    self.stage = Stage::Over;
                }
            }
        }
    }

    /// The next job: what was received is written, or the file gets its place.
    fn go_on(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open(filling) if self.received.is_empty() => Stage::Publishing(filling.publish()),
            Stage::Open(filling) => {
                self.received_bytes = 0;
                Stage::Writing(filling.append(std::mem::take(&mut self.received)))
            }
            stage => stage,
        };
    }

    /// Tells others how far it is.
    fn note_written(&mut self, filling: &Filling) {
        if self.growing.is_none() {
            self.growing = Some(filling.growing());
            self.decide();
        }
        if let Some(led) = &self.lead {
            led.leader().grown(filling.written());
        }
    }

    /// It is in its place.
    fn end(&mut self) {
        if let Some(update) = self.update.take() {
            update.end_published();
        }
        if let Some(led) = self.lead.take() {
            led.finish(End::Complete);
        }
    }

    /// What a job came to; nothing is kept where it has failed.
    fn outcome<T>(
        &mut self,
        request: &Request<'_>,
        outcome: Result<Result<T, DiskError>, clearway_offload::Error>,
    ) -> Option<T> {
        let failure = match outcome {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(failure)) => Some(failure),
            Err(_) => None,
        };
        if let Some(failure @ DiskError::Failed(_)) = failure {
            request.log(Level::Crit, format_args!("{failure}"));
        }
        self.stage = Stage::Over;
        self.received = Vec::new();
        self.received_bytes = 0;
        if let Some(led) = self.lead.take() {
            led.leader().decide(Verdict::NotStored);
        }
        self.update = None;
        None
    }
}
