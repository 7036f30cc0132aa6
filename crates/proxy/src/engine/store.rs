//! A response that is kept as a file (`…_store`) while it goes to its client: its bytes go to a temporary
//! file, which gets its path when all of them have come. Neither a slow client nor one that leaves has a say
//! in that; a disk that is slow makes the server wait, one that fails costs the file alone.

use std::ffi::OsString;
use std::future::Future;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use clearway_base::date::parse_http_date;
use clearway_base::log::Level;
use clearway_http::{Exchange, NotPutAside, Placement, Request, Spool, Step, paths};
use clearway_offload::moving::Journal;

use crate::attempts::Attempts;
use crate::engine::filling::Object;
use crate::engine::protocol::{Protocol, Wanted};
use crate::engine::session::{Flow, Session};
use crate::settings::pass::{PassConf, StoreAt};

type Work<T> = Pin<Box<dyn Future<Output = Result<T, NotPutAside>> + Send>>;

/// The response that is kept beside its client.
pub(super) enum Kept {
    /// A file of its own (`…_store`).
    File(Box<Keeping>),
    /// An object of a cache.
    Object(Box<Object>),
}

impl Kept {
    /// Keeps bytes behind those that there are.
    pub(super) fn put(&mut self, data: Bytes) {
        match self {
            Self::File(keeping) => keeping.put(&data),
            Self::Object(object) => object.put(data),
        }
    }

    /// Whether no more is to be received until some of it is written.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::File(keeping) => keeping.is_full(),
            Self::Object(object) => object.is_full(),
        }
    }

    /// Goes on. Ready when a pool has nothing to do for it.
    pub(super) fn poll(&mut self, request: &Request<'_>, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::File(keeping) => keeping.poll(request, cx),
            Self::Object(object) => object.poll(request, cx),
        }
    }
}

/// A response that is kept as a file.
pub(super) struct Keeping {
    /// Bytes that were received and are not being written.
    received: Vec<u8>,
    /// How much is worth a write, bytes.
    write_bytes: usize,
    /// Bytes that may wait in memory to be written.
    memory_bytes: usize,
    stage: Stage,
}

enum Stage {
    /// More bytes may come.
    Open(Spool),
    Writing(Work<Spool>, Then),
    /// The file gets its path.
    Placing(Work<Journal>),
    /// The file has a name, or there is none.
    Over,
}

/// The step after a write.
enum Then {
    More,
    Place(Placement),
}

impl Keeping {
    /// `None` where nothing can write.
    pub(super) fn new(request: &Request<'_>, pass: &PassConf) -> Option<Box<Self>> {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let place = Option::clone(&pass.temp_path)?;
        let spool = Spool::named(request, Arc::clone(&place)).ok()?;
        Some(Box::new(Self {
            received: Vec::new(),
            write_bytes: size(pass.write_bytes()),
            memory_bytes: size(pass.memory_max_bytes()).max(size(pass.write_bytes())),
            stage: Stage::Open(spool),
        }))
    }

    /// Keeps bytes behind those that there are.
    pub(super) fn put(&mut self, data: &[u8]) {
        if !matches!(self.stage, Stage::Over) {
            self.received.extend_from_slice(data);
        }
    }

    /// Whether no more is to be received until some of it is written.
    pub(super) fn is_full(&self) -> bool {
        self.received.len() >= self.memory_bytes
    }

    /// The whole response has come: the file gets its path once everything is written.
    pub(super) fn finish(&mut self, placement: Placement) {
        debug_assert!(!matches!(self.stage, Stage::Placing(_)), "a file gets its path once");
        let data = std::mem::take(&mut self.received);
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open(spool) if data.is_empty() => Stage::Placing(Box::pin(spool.place(placement))),
            Stage::Open(spool) => Stage::Writing(Box::pin(spool.append(data)), Then::Place(placement)),
            Stage::Writing(work, _) => {
                self.received = data;
                Stage::Writing(work, Then::Place(placement))
            }
            stage => stage,
        };
        debug_assert!(!matches!(self.stage, Stage::Open(_)), "nothing follows all of it");
    }

    /// Goes on. Ready when the pool has nothing to do for it.
    pub(super) fn poll(&mut self, request: &Request<'_>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Over => return Poll::Ready(()),
                Stage::Open(_) if self.received.len() < self.write_bytes => return Poll::Ready(()),
                Stage::Open(_) => self.begin_write(),
                Stage::Writing(work, _) => {
                    let written = ready!(work.as_mut().poll(cx));
                    self.end_write(request, written);
                }
                Stage::Placing(work) => {
                    match ready!(work.as_mut().poll(cx)) {
                        Ok(journal) => request.log_journal(&journal),
                        Err(why) => tell(request, &why),
                    }
                    self.stage = Stage::Over;
                }
            }
        }
    }

    fn begin_write(&mut self) {
        debug_assert!(matches!(self.stage, Stage::Open(_)), "one write at a time");
        debug_assert!(!self.received.is_empty(), "a write has something to write");
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open(spool) => {
                let data = std::mem::take(&mut self.received);
                Stage::Writing(Box::pin(spool.append(data)), Then::More)
            }
            stage => stage,
        };
    }

    fn end_write(&mut self, request: &Request<'_>, written: Result<Spool, NotPutAside>) {
        debug_assert!(matches!(self.stage, Stage::Writing(..)), "one write at a time");
        let spool = match written {
            Ok(spool) => spool,
            Err(why) => {
                tell(request, &why);
                self.received = Vec::new();
                self.stage = Stage::Over;
                return;
            }
        };
        let Stage::Writing(_, then) = std::mem::replace(&mut self.stage, Stage::Open(spool)) else { return };
        if let Then::Place(placement) = then {
            self.finish(placement);
        }
    }
}

fn tell(request: &Request<'_>, why: &NotPutAside) {
    if let NotPutAside::Failed(failure) = why {
        request.log(Level::Crit, format_args!("{failure}"));
    }
}

impl<'c, P: Protocol> Session<'c, P> {
    /// Whether the body is wanted although the client gets none.
    pub(super) fn keeps_body(&self) -> bool {
        self.relay.keeping.is_some() && self.asked.wanted != Wanted::Head
    }

    /// Goes on with the file; whether no more is to be received before something is written.
    pub(super) fn poll_keeping(&mut self, exchange: &Exchange<'_, 'c>, cx: &mut Context<'_>) -> bool {
        let Some(keeping) = &mut self.relay.keeping else { return false };
        keeping.poll(exchange.request, cx).is_pending() && keeping.is_full()
    }

    /// Everything is pushed: the client is sent what it takes while the file gets its path.
    pub(super) fn poll_storing(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        // The engine, which answers the client, says what became of that.
        let _ = exchange.output.poll_ready(exchange.request, cx);
        let keeping = self.relay.keeping.as_mut();
        match keeping.map_or(Poll::Ready(()), |keeping| keeping.poll(exchange.request, cx)) {
            Poll::Ready(()) => Flow::End(Step::Done),
            Poll::Pending => Flow::Wait,
        }
    }

    /// The response is complete: the file is to get its path, if it has what was announced.
    pub(super) fn begin_storing(&mut self, exchange: &Exchange<'_, 'c>) {
        let length = self.relay.length;
        let is_whole = self.protocol.content_length().is_none_or(|announced| announced == length);
        let mut keeping = match self.relay.keeping.take() {
            Some(Kept::File(keeping)) if self.asked.wanted == Wanted::Whole => keeping,
            Some(Kept::Object(mut filling)) if is_whole || self.asked.wanted == Wanted::Head => {
                filling.finish();
                self.relay.keeping = Some(Kept::Object(filling));
                return;
            }
            Some(Kept::File(_) | Kept::Object(_)) | None => return,
        };
        let path = match self.asked.pass.keeping.store.as_ref() {
            Some(StoreAt::Root) => paths::file_path(&exchange.view()),
            Some(StoreAt::Path(path)) => path.eval(&exchange.view()).into_owned(),
            None => Vec::new(),
        };
        if !is_whole || path.is_empty() {
            return;
        }
        let access = *self.asked.pass.store_access;
        let head = Attempts::of(exchange.request).and_then(|attempts| attempts.head.as_ref());
        let modified = head.and_then(|head| head.named(b"Last-Modified").next().and_then(parse_http_date));
        let path = PathBuf::from(OsString::from_vec(path));
        keeping.finish(Placement { path, access, modified });
        self.relay.keeping = Some(Kept::File(keeping));
    }
}
