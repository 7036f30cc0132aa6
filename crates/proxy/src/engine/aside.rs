//! The part of a response that its client has not taken yet and that does not fit into memory: it goes to a
//! temporary file (`…_max_temp_file_size`) and from there to the client, in its order. The server is read as
//! fast as it sends, so that a slow client does not hold it.
//!
//! Invariants: what was received lies, oldest first, in the response's own queue, in the file between
//! `taken` and `written`, in the piece that is being written, in `received`. Nothing overtakes: while
//! something lies here, what comes goes behind it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::{Level, Verbatim};
use clearway_http::temp_paths::TempPath;
use clearway_http::{Chunk, Exchange, Mark, NotPutAside, Request, Spool, TempFile};

use crate::settings::pass::PassConf;

/// How much is read from the file at once, bytes.
const READ_BYTES: u64 = 32 * 1024;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The present user of the file.
enum Holder {
    Idle(Spool),
    /// So many bytes are being written.
    Writing(Work<Result<Spool, NotPutAside>>, u64),
    /// The file was given up.
    Nobody,
}

/// The part of a response that its client has not taken yet.
pub(super) struct Aside {
    place: Arc<TempPath>,
    /// The limit of the file, bytes.
    max_bytes: u64,
    /// How much is worth a write, bytes.
    write_bytes: usize,
    /// The most bytes that wait in memory to be written.
    memory_bytes: usize,
    received: Vec<u8>,
    holder: Holder,
    /// Once there is one.
    file: Option<Arc<TempFile>>,
    written: u64,
    taken: u64,
    reading: Option<Work<io::Result<Vec<u8>>>>,
}

/// Whether the response takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    None,
    Some,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The response has got a piece.
    Moved,
    /// The pool is waited for.
    Waits,
    /// There is nothing to do, before more comes or the response has room.
    Rests,
}

/// The bytes that were put aside are lost, and the log has the reason.
pub(super) struct Lost;

impl Aside {
    /// `None` where the configuration wants no files.
    pub(super) fn new(request: &Request<'_>, pass: &PassConf) -> Option<Box<Self>> {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let max_bytes = pass.file_max_bytes();
        let place = Option::clone(&pass.temp_path).filter(|_| max_bytes > 0)?;
        let spool = Spool::new(request, Arc::clone(&place)).ok()?;
        Some(Box::new(Self {
            place,
            max_bytes,
            write_bytes: size(pass.write_bytes()),
            memory_bytes: size(pass.memory_max_bytes()).max(size(pass.write_bytes())),
            received: Vec::new(),
            holder: Holder::Idle(spool),
            file: None,
            written: 0,
            taken: 0,
            reading: None,
        }))
    }

    /// Whether nothing lies here.
    pub(super) fn is_empty(&self) -> bool {
        self.received.is_empty() && self.written == self.taken && matches!(self.holder, Holder::Idle(_))
    }

    /// Whether a file was made; another one would be as dear.
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether more may be put aside.
    pub(super) fn has_room(&self) -> bool {
        let under_way = match &self.holder {
            Holder::Writing(_, bytes) => *bytes,
            Holder::Idle(_) => 0,
            Holder::Nobody => return false,
        };
        self.received.len() < self.memory_bytes
            && self.written + under_way + (self.received.len() as u64) < self.max_bytes
    }

    /// Puts bytes behind what there is.
    pub(super) fn put(&mut self, mut data: Vec<u8>) {
        if self.received.is_empty() {
            self.received = data;
        } else {
            self.received.append(&mut data);
        }
    }

    /// Goes on: writes what is worth it, and hands a piece to the response where that has room.
    pub(super) fn poll(
        &mut self,
        exchange: &mut Exchange<'_, '_>,
        room: Room,
        cx: &mut Context<'_>,
    ) -> Result<Progress, Lost> {
        debug_assert!(self.taken <= self.written, "no more is taken than was written");
        loop {
            let written = self.poll_written(exchange.request, cx)?;
            if room == Room::Some && self.taken < self.written {
                return self.poll_taken(exchange, cx);
            }
            if written.is_pending() {
                return Ok(Progress::Waits);
            }
            if self.taken == self.written {
                self.rewind();
                if room == Room::Some && !self.received.is_empty() {
                    // The client has caught up: what is in memory need not see the file.
                    debug_assert!(written.is_ready(), "nothing is overtaken that is being written");
                    let data = std::mem::take(&mut self.received);
                    let _ = exchange.output.write(exchange.request, Chunk::Owned(data), Mark::More);
                    return Ok(Progress::Moved);
                }
            }
            if self.received.len() < self.write_bytes {
                return Ok(Progress::Rests);
            }
            self.begin_write();
        }
    }

    /// The file is not needed any more: it is written from its beginning again.
    fn rewind(&mut self) {
        if let Holder::Idle(spool) = &mut self.holder {
            debug_assert_eq!(self.written, self.taken, "everything in the file was taken");
            debug_assert!(self.reading.is_none(), "nothing of the file is being read");
            spool.rewind();
            (self.written, self.taken) = (0, 0);
        }
    }

    fn begin_write(&mut self) {
        debug_assert!(!self.received.is_empty() || self.write_bytes == 0, "a write has something to write");
        self.holder = match std::mem::replace(&mut self.holder, Holder::Nobody) {
            Holder::Idle(spool) => {
                let data = std::mem::take(&mut self.received);
                let bytes = data.len() as u64;
                Holder::Writing(Box::pin(spool.append(data)), bytes)
            }
            other => other,
        };
    }

    /// Ready when nothing is being written.
    fn poll_written(&mut self, request: &Request<'_>, cx: &mut Context<'_>) -> Result<Poll<()>, Lost> {
        let Holder::Writing(work, bytes) = &mut self.holder else { return Ok(Poll::Ready(())) };
        let (outcome, bytes) = match work.as_mut().poll(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(outcome) => (outcome, *bytes),
        };
        match outcome {
            Ok(spool) => {
                self.note_file(request, &spool);
                debug_assert!(self.file.is_some(), "what was written is in a file");
                self.holder = Holder::Idle(spool);
                self.written += bytes;
                Ok(Poll::Ready(()))
            }
            Err(why) => {
                self.holder = Holder::Nobody;
                if let NotPutAside::Failed(failure) = why {
                    request.log(Level::Crit, format_args!("{failure}"));
                }
                Err(Lost)
            }
        }
    }

    fn note_file(&mut self, request: &Request<'_>, spool: &Spool) {
        if self.file.is_some() {
            return;
        }
        self.file = spool.file().cloned();
        if let Some(file) = &self.file {
            let path = Verbatim::path(file.path());
            let message = format_args!("an upstream response is buffered to a temporary file {path}");
            request.log(Level::Warn, message);
        }
    }

    /// Takes a piece out of the file.
    fn poll_taken(
        &mut self,
        exchange: &mut Exchange<'_, '_>,
        cx: &mut Context<'_>,
    ) -> Result<Progress, Lost> {
        let work = match &mut self.reading {
            Some(work) => work,
            None => {
                let Some(file) = self.file.clone() else { return Err(Lost) };
                debug_assert!(self.taken < self.written, "there is something to take");
                let (at, count) = (self.taken, (self.written - self.taken).min(READ_BYTES) as usize);
                let read = async move { file.read(at, count).await };
                self.reading.insert(Box::pin(read))
            }
        };
        let read = match work.as_mut().poll(cx) {
            Poll::Pending => return Ok(Progress::Waits),
            Poll::Ready(read) => read,
        };
        self.reading = None;
        let fail = |error: &io::Error| {
            let path = Verbatim::path(&self.place.directory);
            let message = format_args!("pread() below \"{path}\" failed {}", Errno(error));
            exchange.request.log(Level::Crit, message);
            Lost
        };
        let data = read.map_err(|error| fail(&error))?;
        if data.is_empty() {
            return Err(fail(&io::ErrorKind::UnexpectedEof.into()));
        }
        debug_assert!(data.len() as u64 <= READ_BYTES, "no more is read than was asked for");
        self.taken += data.len() as u64;
        assert!(self.taken <= self.written, "no more is taken than was written");
        let _ = exchange.output.write(exchange.request, Chunk::Owned(data), Mark::More);
        Ok(Progress::Moved)
    }
}
