//! Bodies that are read to their end before anything is done with them: kept in memory up to a limit,
//! otherwise in a file. A handler asks for that with [`Exchange::read_body`]; what is stored belongs to the
//! request from then on, and can be read as often as one likes.
//!
//! Runs in the request's task. Bytes go from the socket into the buffer that is kept or written, chunked
//! framing is taken out in place. While the pool writes one buffer the next one is filled, and then
//! nothing more is read: the client has to wait for the disk.

use std::future::poll_fn;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_h1::Fault;
use clearway_message::BodyLength;
use clearway_offload::Error as PoolError;

use crate::config::body_directives::{BODY_CONF, BODY_MAIN, BodyConf, InFileOnly};
use crate::phases::Exchange;
use crate::request::Request;
use crate::request::answer::Answer;
use crate::request::body::{BodyState, Receiving};
use crate::request::body_file::{Fate, Keeper, Making, Unwritten, Writer};
use crate::request::body_source::BodyError;
use crate::request::stored_body::{BodyPlace, KEPT, StoredBody};
use clearway_base::log::Verbatim;

/// Bytes that are written to a file at once, unless buffers are larger: each write is a way to the pool and
/// back.
const WRITE_BYTES: u64 = 64 * 1024;
/// The smallest buffer, whatever is configured, bytes.
const BUFFER_MIN_BYTES: u64 = 64;
/// Access rights of files, less the umask: the owner.
const MODE: u32 = 0o600;
/// Access rights of files that are moved to their final place: the group may read and write them, too.
const SHARED_MODE: u32 = 0o660;

/// How a body is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// As the configuration says.
    AsConfigured,
    /// As above, but the file keeps its name until the request is over, since others are told the name.
    Named,
    /// In a file, also if it is empty, of which nothing is said in the log. The file has a name and is
    /// removed with the request, unless it is given away.
    InFile,
    /// Before there is a location to say how, and without a word in the log.
    Early,
}

impl Exchange<'_, '_> {
    /// Reads the body to its end, unless that was done before, and keeps it with the request. `None` where
    /// the request has no body, not even an empty one, or it was dropped already ([`is_dropped`]).
    ///
    /// [`is_dropped`]: crate::request::body::Body::is_dropped
    ///
    /// # Errors
    /// The answer to give instead; the reason is logged.
    pub async fn read_body(&mut self, store: Store) -> Result<Option<Arc<StoredBody>>, Answer> {
        if let Some(kept) = self.request.context(&KEPT) {
            return Ok(kept.clone());
        }
        if self.body.is_dropped() {
            return Ok(None);
        }
        if self.output.state.invite(self.request.link, self.body.state) {
            // nginx has chosen the status 500 for the log before it sees that nobody would get it.
            self.output.ready(self.request).await.map_err(|_| Answer::Abandon(500))?;
        }
        let stored = match self.body.state.receiving() {
            Some(receiving) if receiving.length != BodyLength::Empty => {
                let mut gathering = Gathering::new(self.request, receiving, store);
                let stored = match gathering.run().await {
                    Ok(stored) => stored,
                    Err(failure) => return Err(gathering.refuse(failure)),
                };
                Some(Arc::new(stored))
            }
            _ => None,
        };
        self.request.note_body(self.body.state);
        self.request.set_context(&KEPT, stored.clone());
        Ok(stored)
    }
}

impl Exchange<'_, '_> {
    /// Keeps the body with the request as [`read_body`](Self::read_body) does, if all of it is here already
    /// and fits into a buffer (`client_body_buffer_size`), but never in a file. What is here of another one
    /// is read, and comes first when the body is read.
    ///
    /// # Errors
    /// The answer to give instead; the reason is logged.
    pub fn keep_body_that_is_here(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Option<Arc<StoredBody>>, Answer> {
        let conf = self.request.conf(&BODY_CONF);
        let Some(receiving) = self.body.state.receiving() else { return Ok(None) };
        let room_bytes = buffer_room(receiving.rest(), (*conf.buffer_bytes).max(BUFFER_MIN_BYTES));
        self.keep_ahead(usize::try_from(room_bytes).unwrap_or(usize::MAX), cx)
    }

    fn keep_ahead(&mut self, room: usize, cx: &mut Context<'_>) -> Result<Option<Arc<StoredBody>>, Answer> {
        let Some(receiving) = self.body.state.receiving() else { return Ok(None) };
        let read = receiving.read_ahead(self.request.link, room, cx).and_then(|is_all| {
            let mut data = Vec::new();
            if is_all {
                receiving.take_received(&mut data).map_err(BodyError::Refused)?;
            }
            Ok(is_all.then(|| Bytes::from(data)))
        });
        let read = read.map_err(|error| refuse(self.request, receiving, error));
        self.request.note_body(self.body.state);
        let Some(bytes) = read? else { return Ok(None) };
        let stored = Arc::new(StoredBody { len: bytes.len() as u64, place: BodyPlace::Memory(bytes) });
        self.request.set_context(&KEPT, Some(Arc::clone(&stored)));
        Ok(Some(stored))
    }

    /// Reads the body as [`read_body`](Self::read_body) does, for what has other things to do meanwhile, as
    /// long as that keeps it in a buffer. True: it is with the request. False: `read_body` goes on, as there
    /// is none, or a file is needed. Pending, it has the context woken when there is more; how long that may
    /// take ([`Self::body_timeout_ms`]) is looked at there as well.
    ///
    /// # Errors
    /// The answer to give instead; the reason is logged.
    pub fn poll_body_beside(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Answer>> {
        if self.request.has_read_body() {
            return Poll::Ready(Ok(true));
        }
        let conf = self.request.conf(&BODY_CONF);
        if self.body.is_dropped() || !self.body.is_announced() || Plan::new(Store::Named, conf).to_file {
            return Poll::Ready(Ok(false));
        }
        if self.output.state.invite(self.request.link, self.body.state) {
            // A client that is not there any more is found out by the read.
            let _ = self.output.poll_ready(self.request, cx);
        }
        let most = usize::try_from((*conf.buffer_bytes).max(BUFFER_MIN_BYTES)).unwrap_or(usize::MAX);
        let room =
            |state: &mut BodyState| most.saturating_sub(state.receiving().map_or(most, |it| it.ahead()));
        let is_kept = match room(self.body.state) {
            0 => false,
            room => self.keep_ahead(room, cx)?.is_some(),
        };
        match room(self.body.state) {
            _ if is_kept => Poll::Ready(Ok(true)),
            0 => Poll::Ready(Ok(false)),
            _ => Poll::Pending,
        }
    }

    /// Tells a client that waits for `100 Continue` to go on, before a response is begun that is sent while
    /// its body is read.
    pub fn invite_body(&mut self) {
        self.output.state.invite(self.request.link, self.body.state);
    }

    /// `client_body_timeout`, milliseconds.
    pub fn body_timeout_ms(&self) -> u64 {
        *self.request.conf(&BODY_CONF).timeout_ms
    }

    /// Appends to `data`, which has room, a piece of the body: first what has come with the head, however
    /// much that is, and else what there is room for. Where nothing is appended, the body is over. From the
    /// first piece on nobody else can have the body.
    ///
    /// A client that waits for `100 Continue` is told to go on, by [`Output::poll_ready`], as other things
    /// are. Pending, it has the context woken when there is more, or when time is up
    /// (`client_body_timeout`).
    ///
    /// [`Output::poll_ready`]: crate::output::Output::poll_ready
    ///
    /// # Errors
    /// The answer to give instead; the reason is logged.
    pub fn poll_body(&mut self, data: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<Result<(), Answer>> {
        self.output.state.invite(self.request.link, self.body.state);
        let timeout_ms = *self.request.conf(&BODY_CONF).timeout_ms;
        let Some(receiving) = self.body.state.receiving() else { return Poll::Ready(Ok(())) };
        debug_assert!(data.len() < data.capacity(), "a piece of nothing is the end");
        let read = receiving.poll_piece(self.request.link, data, timeout_ms, cx);
        let read = read.map_err(|error| refuse(self.request, receiving, error));
        if read.is_ready() {
            self.request.note_body(self.body.state);
        }
        read
    }
}

/// How much is read into a buffer that has `usual` bytes: all of the rest if it is not much more.
fn buffer_room(rest: Option<u64>, usual: u64) -> u64 {
    match rest {
        Some(rest) if rest < usual.saturating_add(usual / 4) => rest,
        _ => usual,
    }
}

/// Logs why a body cannot be read, and says what to answer.
fn refuse(request: &Request<'_>, receiving: &Receiving, error: BodyError) -> Answer {
    match error {
        BodyError::Refused(fault) => {
            if fault == Fault::ChunkedBodyTooLarge {
                let (received, chunk) = receiving.sizes();
                request.log(Level::Error, format_args!("{fault}: {received}+{chunk} bytes"));
            } else {
                request.log(Level::Error, format_args!("{fault}"));
            }
            Answer::Status(fault.page())
        }
        BodyError::BeyondLength => {
            request.link.note_malformed();
            let message = "client intended to send body data larger than declared";
            request.log(Level::Info, format_args!("{message}"));
            Answer::Status(400)
        }
        BodyError::BelowLength => {
            request.link.note_malformed();
            request.log(Level::Info, format_args!("client prematurely closed stream"));
            Answer::Status(400)
        }
        BodyError::TimedOut => Answer::Abandon(408),
        BodyError::Closed => {
            request.log(Level::Info, format_args!("client prematurely closed connection"));
            Answer::Abandon(400)
        }
        BodyError::Broken(error) => {
            request.log(Level::Info, format_args!("recv() failed {}", Errno(&error)));
            Answer::Abandon(400)
        }
    }
}

/// Why a body was not stored.
enum Failure {
    Unread(BodyError),
    Unwritten(Unwritten),
    /// There is no pool to write with, which is logged.
    NoPool,
    /// A buffer of so many bytes was refused.
    NoMemory(u64),
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        Self::Unread(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Unread(BodyError::Refused(fault))
    }
}

impl From<Unwritten> for Failure {
    fn from(unwritten: Unwritten) -> Self {
        Self::Unwritten(unwritten)
    }
}

/// Where a body goes.
struct Plan {
    /// Whether it goes to a file, however short it is.
    to_file: bool,
    fate: Fate,
    mode: u32,
    /// The level at which a file is reported.
    level: Option<Level>,
}

impl Plan {
    fn new(store: Store, conf: &BodyConf) -> Self {
        let (to_file, fate, level) = match (store, *conf.in_file_only) {
            (Store::InFile, _) => (true, Fate::Clean, None),
            (Store::Early, _) => (false, Fate::Brief, None),
            (Store::Named, InFileOnly::Off) => (false, Fate::Clean, Some(Level::Warn)),
            (_, InFileOnly::Off) => (false, Fate::Brief, Some(Level::Warn)),
            (_, InFileOnly::On) => (true, Fate::Stays, Some(Level::Notice)),
            (_, InFileOnly::Clean) => (true, Fate::Clean, Some(Level::Notice)),
        };
        let mode = if store == Store::InFile { SHARED_MODE } else { MODE };
        Self { to_file, fate, mode, level }
    }
}

/// A body on its way from the socket to where it is kept.
struct Gathering<'a, 'c> {
    request: &'a Request<'c>,
    receiving: &'a mut Receiving,
    conf: &'c BodyConf,
    plan: Plan,
    /// Bytes in memory, without framing.
    data: Vec<u8>,
    /// How much was read from the socket for `data`, framing included, bytes.
    read_bytes: u64,
    /// How much is read until `data` is written to the file, bytes.
    room_bytes: u64,
    writer: Option<Writer>,
}

impl<'a, 'c> Gathering<'a, 'c> {
    fn new(request: &'a Request<'c>, receiving: &'a mut Receiving, store: Store) -> Self {
        let conf = request.conf(&BODY_CONF);
        let plan = Plan::new(store, conf);
        let (data, writer) = (Vec::new(), None);
        Self { request, receiving, conf, plan, data, read_bytes: 0, room_bytes: 0, writer }
    }

    async fn run(&mut self) -> Result<StoredBody, Failure> {
        // Room at once for a body that stays in memory; the byte more is that of `make_room`, which says what
        // becomes of a request for which there is none.
        let buffer_bytes = (*self.conf.buffer_bytes).max(BUFFER_MIN_BYTES);
        if let Some(bytes) = self.receiving.rest().filter(|&bytes| bytes <= buffer_bytes) {
            let _ = self.data.try_reserve_exact(usize::try_from(bytes).map_or(0, |bytes| bytes + 1));
        }
        self.receiving.take_received(&mut self.data)?;
        self.make_room()?;
        while !self.receiving.is_done() {
            // Behind all that was announced only the end is waited for.
            let is_full = self.read_bytes >= self.room_bytes && self.receiving.rest() != Some(0);
            if is_full || self.data.len() == self.data.capacity() {
                if !self.data.is_empty() {
                    self.write().await?;
                }
                self.make_room()?;
            }
            debug_assert!(self.data.len() < self.data.capacity(), "a read of nothing would be the end");
            self.read_bytes += self.read().await?;
        }
        if self.plan.to_file || self.writer.is_some() {
            return self.finish_file().await;
        }
        debug_assert!(self.receiving.is_done(), "a body is stored when all of it has come");
        let bytes = Bytes::from(std::mem::take(&mut self.data));
        Ok(StoredBody { len: bytes.len() as u64, place: BodyPlace::Memory(bytes) })
    }

    /// Has room in memory for what is read next.
    fn make_room(&mut self) -> Result<(), Failure> {
        let buffer_bytes = (*self.conf.buffer_bytes).max(BUFFER_MIN_BYTES);
        let goes_to_file = self.plan.to_file || self.writer.is_some();
        let usual = if goes_to_file { buffer_bytes.max(WRITE_BYTES) } else { buffer_bytes };
        let rest = self.receiving.rest();
        // On a stream a buffer is never made larger, as in nginx.
        let is_larger = rest.is_some_and(|rest| rest > usual);
        let rest = rest.filter(|_| !(is_larger && self.receiving.is_on_stream()));
        self.room_bytes = buffer_room(rest, usual);
        self.read_bytes = 0;
        // A read that fills all of the room does not say that the socket has no more: the next one would ask.
        let room = usize::try_from(self.room_bytes).unwrap_or(usize::MAX).saturating_add(1);
        self.data.try_reserve_exact(room).map_err(|_| Failure::NoMemory(self.room_bytes))
    }

    /// Reads what the socket has, or waits for it; how much it was, framing included.
    async fn read(&mut self) -> Result<u64, BodyError> {
        let Self { receiving, request, data, conf, .. } = self;
        let (link, home) = (request.link, request.client.home);
        let deadline_ms = home.now_ms() + *conf.timeout_ms;
        poll_fn(|cx| match receiving.poll_read_into(link, data, cx) {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => {
                // The timer serves no other wait while a handler runs.
                link.timer().arm(deadline_ms);
                link.timer().poll_expired(cx).map(|()| Err(BodyError::TimedOut))
            }
        })
        .await
    }

    /// Writes what is in memory to the file, which is made when there is none yet.
    async fn write(&mut self) -> Result<(), Failure> {
        debug_assert!(
            !self.data.is_empty() || self.writer.is_none(),
            "a write has something, or makes the file"
        );
        let data = std::mem::take(&mut self.data);
        self.data = match &mut self.writer {
            Some(writer) => writer.write(data).await?,
            None => {
                let (writer, buffer) = self.create(data).await?;
                self.writer = Some(writer);
                buffer
            }
        };
        Ok(())
    }

    async fn finish_file(&mut self) -> Result<StoredBody, Failure> {
        if !self.data.is_empty() || self.writer.is_none() {
            self.write().await?;
        }
        debug_assert!(self.data.is_empty(), "everything was given to the writer");
        let writer = self.writer.take().expect("a write makes one");
        let len = writer.offset;
        Ok(StoredBody { len, place: BodyPlace::File(writer.finish().await?) })
    }

    async fn create(&self, first: Vec<u8>) -> Result<(Writer, Vec<u8>), Failure> {
        let pool = self.request.file_pool().ok_or(Failure::NoPool)?;
        let place = (*self.conf.temp_path).clone().expect("every location has one");
        let log = Option::clone(&self.request.main_conf(&BODY_MAIN).log);
        let keeper = Arc::new(Keeper {
            pool,
            home: self.request.client.home,
            log,
            _setup: Arc::clone(self.request.setup),
        });
        let making = Making { place, mode: self.plan.mode, fate: self.plan.fate };
        // nginx does not tell of an empty file.
        let level = self.plan.level.filter(|_| !first.is_empty());
        let tell = |path: &Path| {
            if let Some(level) = level {
                let path = Verbatim(path.as_os_str().as_bytes());
                let message = format_args!("a client request body is buffered to a temporary file {path}");
                self.request.log(level, message);
            }
        };
        Ok(Writer::create(keeper, making, first, tell).await?)
    }

    /// Logs why there is no body, and says what to answer.
    fn refuse(&self, failure: Failure) -> Answer {
        let request = self.request;
        match failure {
            Failure::Unread(error) => refuse(request, self.receiving, error),
            Failure::Unwritten(Unwritten::Failed(failure)) => {
                request.log(Level::Crit, format_args!("{failure}"));
                Answer::Status(500)
            }
            // The pool has logged it.
            Failure::Unwritten(Unwritten::NotTaken(PoolError::Overflow)) => Answer::Status(503),
            Failure::Unwritten(Unwritten::NotTaken(_)) | Failure::NoPool => Answer::Status(500),
            Failure::NoMemory(bytes) => {
                request.log(Level::Emerg, format_args!("malloc({bytes}) failed"));
                Answer::Status(500)
            }
        }
    }
}
