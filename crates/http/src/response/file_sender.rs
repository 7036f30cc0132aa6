//! The state of a response that sends a file: what of it is in memory, and the job of a pool thread that
//! brings in what is not. Owned by the task of the response.
//!
//! A part that is known to be in memory is sent or read by the loop. Any other is read by a pool thread
//! first, in steps as large as disks like them. A queue that has no room for a response of which nothing
//! was sent is the end of that; once it is under way the queue is asked again, less and less often, for as
//! long as a client would be waited for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use clearway_offload::files::{self, Attempt, Held, Learned, Warmed};
use clearway_offload::{Error as Refused, Pool, TIMEOUTS, Task};
use clearway_runtime::{LoopRef, Timer};
use clearway_site::Sending;

use crate::response::file_part::{FileAccess, FilePart};

/// Files up to this size are read even where sendfile(2) is allowed: behind a head they leave with the
/// same send(2), bytes.
const READ_MAX_BYTES: u64 = 16 * 1024;
/// Bytes that are sent at once if `sendfile_max_chunk` is 0: the most that sendfile(2) takes.
const SENDFILE_MAX_BYTES: u64 = 0x7fff_f000;
/// The largest buffer that a file is read into, whatever `output_buffers` says, bytes.
const BUFFER_MAX_BYTES: u64 = 1 << 20;
/// The first wait for a queue that had no room, milliseconds; it doubles each time.
const RETRY_MIN_MS: u64 = 20;
/// The longest, milliseconds.
const RETRY_MAX_MS: u64 = 1000;

/// Sends the parts of files of one response, one after the other.
pub(crate) struct FileSender {
    /// Where what would block is done; none: on the loop, or nowhere.
    pool: Option<Arc<Pool>>,
    learned: Learned,
    fetch: Fetch,
    /// Up to where a pool thread has read into memory for this response.
    warm_end: u64,
    retry: Option<Retry>,
    /// The timer of the wait for the pool; `None` while there is no wait.
    timeout: Option<Timer>,
    /// The copy that was read last.
    held: Option<Held>,
    means: Means,
    /// Whether something of a file was brought.
    pub(crate) begun: Begun,
    pub(crate) cork: Cork,
}

/// Whether the socket holds back packets that are not full (`tcp_nopush`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cork {
    Out,
    In,
}

/// How bytes may leave a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Any,
    /// A reader needs the bytes in memory.
    Read,
    /// A large file goes so to its end.
    Sendfile,
}

enum Fetch {
    Nothing,
    /// Into memory, or a buffer where memory is short.
    Fetching(Task<io::Result<files::Fetched>>),
    /// Into a buffer.
    Reading(Task<io::Result<Vec<u8>>>),
}

/// Waits until a pool may have room again.
struct Retry {
    timer: Timer,
    since_ms: u64,
    delay_ms: u64,
}

/// The part of a response that there is already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Nothing was sent, nor brought to be sent, so that another answer can be given.
    No,
    Yes,
}

/// The purpose of a fetch.
pub(crate) struct Fetching<'a> {
    /// The next part.
    pub(crate) part: &'a FilePart,
    pub(crate) sending: &'a Sending,
    pub(crate) home: LoopRef,
    pub(crate) begun: Begun,
}

/// How a loop can go on with a file.
pub(crate) enum Way {
    /// So many bytes by sendfile(2).
    Sendfile(usize),
    /// So many bytes behind the buffer were read.
    Read(u64),
    /// The bytes may not be read before a pool thread has read them.
    Cold,
}

/// The result of a pool thread's work.
pub(crate) enum Fetched {
    /// The part that the loop wanted is in memory.
    Warm,
    /// Here it is.
    Data(Vec<u8>),
}

/// Why the rest of a file cannot be sent.
#[derive(Debug)]
pub enum FileFailure {
    /// sendfile(2) failed.
    Sendfile(io::Error),
    /// Reading failed.
    Read(io::Error),
    /// The file ends where sendfile(2) should go on, at this byte.
    Truncated(u64),
    /// The file has fewer bytes than were asked for.
    Short {
        /// Bytes that were there.
        read: u64,
        /// Bytes that were asked for.
        of: u64,
    },
    /// No thread could be had to read it.
    NoThread,
    /// The file was not read within `send_timeout`.
    TimedOut,
}

impl FileFailure {
    /// Whether the file is to blame, and neither the client nor a pool.
    pub(crate) fn is_of_file(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
        match self {
            Self::Sendfile(error) => {
                !matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected)
            }
            Self::Read(_) | Self::Truncated(_) | Self::Short { .. } | Self::TimedOut => true,
            Self::NoThread => false,
        }
    }
}

impl FileSender {
    pub(crate) fn new(pool: Option<Arc<Pool>>, means: Means) -> Self {
        Self {
            pool,
            means,
            learned: Learned::default(),
            fetch: Fetch::Nothing,
            warm_end: 0,
            retry: None,
            timeout: None,
            held: None,
            begun: Begun::No,
            cork: Cork::Out,
        }
    }

    /// Whether it waits for a pool, and not for the client.
    pub(crate) fn is_waiting(&self) -> bool {
        !matches!(self.fetch, Fetch::Nothing) || self.retry.is_some()
    }

    /// Another file follows.
    pub(crate) fn forget(&mut self) {
        debug_assert!(!self.is_waiting(), "a file is done when nobody reads it");
        (self.learned, self.warm_end) = (Learned::default(), 0);
        if self.means == Means::Sendfile {
            self.means = Means::Any;
        }
    }

    /// Finds out how the loop can send the beginning of a part: of what is to be read, as much as has room
    /// in `buf`.
    ///
    /// # Errors
    /// The part cannot be read to its end.
    pub(crate) fn way(
        &mut self,
        part: &FilePart,
        buf: &mut Vec<u8>,
        sending: &Sending,
    ) -> Result<Way, FileFailure> {
        if self.is_waiting() || part.file().access() != FileAccess::Cached {
            return Ok(Way::Cold);
        }
        if self.uses_sendfile(part, sending) {
            self.means = Means::Sendfile;
            let count = self.sendfile_bytes(part, sending);
            debug_assert!(0 < count && count <= part.len(), "what is sent lies within the part");
            let is_warm = part.file().opened().is_warm(part.start(), count, &mut self.learned);
            return Ok(if is_warm { Way::Sendfile(count as usize) } else { Way::Cold });
        }
        let room = buffer_bytes(sending).saturating_sub(buf.len() as u64).max(1);
        let count = part.len().min(room);
        self.read_now(part, count, buf)
    }

    /// Reads `count` bytes of the beginning of a part behind what is in `buf`, if a loop can.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn read_now(
        &mut self,
        part: &FilePart,
        count: u64,
        buf: &mut Vec<u8>,
    ) -> Result<Way, FileFailure> {
        debug_assert!(0 < count && count <= part.len(), "what is read lies within the part");
        match part.file().opened().read_now(buf, part.start(), count as usize) {
            Attempt::Cold => Ok(Way::Cold),
            Attempt::Done(Err(error)) => Err(FileFailure::Read(error)),
            Attempt::Done(Ok(read)) if (read as u64) < count => {
                Err(FileFailure::Short { read: read as u64, of: count })
            }
            Attempt::Done(Ok(read)) => Ok(Way::Read(read as u64)),
        }
    }

    fn uses_sendfile(&self, part: &FilePart, sending: &Sending) -> bool {
        match self.means {
            Means::Read => false,
            Means::Sendfile => true,
            Means::Any => {
                *sending.sendfile && part.len() > READ_MAX_BYTES && !part.file().opened().is_remote()
            }
        }
    }

    /// What a pool thread has warmed is sent before the next is asked for.
    fn sendfile_bytes(&self, part: &FilePart, sending: &Sending) -> u64 {
        let chunk = Some(*sending.sendfile_max_chunk_bytes).filter(|&bytes| bytes > 0);
        let count = part.len().min(chunk.unwrap_or(SENDFILE_MAX_BYTES)).min(SENDFILE_MAX_BYTES);
        match self.warm_end.checked_sub(part.start()) {
            Some(warm) if warm > 0 => count.min(warm),
            _ => count,
        }
    }

    /// Has a pool thread read the beginning of a part.
    ///
    /// # Errors
    /// The part cannot be read to its end.
    pub(crate) fn poll_fetch(
        &mut self,
        wanted: &Fetching<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Fetched, FileFailure>> {
        let Fetching { part, sending, home, begun } = *wanted;
        loop {
            if let Some(retry) = &self.retry {
                ready!(retry.timer.poll_expired(cx));
            }
            let refused = match &mut self.fetch {
                Fetch::Nothing => {
                    self.fetch = self.begin(part, sending)?;
                    continue;
                }
                Fetch::Fetching(task) => match Pin::new(task).poll(cx) {
                    Poll::Pending => return self.poll_timeout(home, sending, cx),
                    Poll::Ready(Ok(fetched)) => {
                        return Poll::Ready(self.take_fetched(part, sending, fetched));
                    }
                    Poll::Ready(Err(refused)) => refused,
                },
                Fetch::Reading(task) => match Pin::new(task).poll(cx) {
                    Poll::Pending => return self.poll_timeout(home, sending, cx),
                    Poll::Ready(Ok(data)) => return Poll::Ready(self.take_data(part, sending, data)),
                    Poll::Ready(Err(refused)) => refused,
                },
            };
            self.timeout = None;
            self.fetch = Fetch::Nothing;
            let may_wait = refused == Refused::Overflow && begun == Begun::Yes;
            if !may_wait || !self.wait_for_room(home, *sending.send_timeout_ms) {
                self.retry = None;
                return Poll::Ready(Err(FileFailure::NoThread));
            }
        }
    }

    /// Ready when the pool has been waited for long enough.
    fn poll_timeout(
        &mut self,
        home: LoopRef,
        sending: &Sending,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Fetched, FileFailure>> {
        let timeout = self.timeout.get_or_insert_with(|| {
            let timer = Timer::new(home);
            timer.arm(home.now_ms() + *sending.send_timeout_ms);
            timer
        });
        ready!(timeout.poll_expired(cx));
        (self.fetch, self.retry, self.timeout) = (Fetch::Nothing, None, None);
        TIMEOUTS.increment();
        Poll::Ready(Err(FileFailure::TimedOut))
    }

    /// The copy that was brought last is gone.
    pub(crate) fn drop_copy(&mut self) {
        self.held = None;
    }

    fn begin(&mut self, part: &FilePart, sending: &Sending) -> Result<Fetch, FileFailure> {
        debug_assert!(matches!(self.fetch, Fetch::Nothing), "one thread at a time reads for a response");
        debug_assert!(!part.is_empty(), "there is something to read");
        let pool = self.pool.as_ref().ok_or(FileFailure::NoThread)?;
        // The copy before has been sent, or there is another file.
        self.held = None;
        let (file, start) = (Arc::clone(part.file()), part.start());
        let at = file.opened().at();
        let count = part.len().min(buffer_bytes(sending));
        if let FileAccess::Direct { alignment } = file.access() {
            let read =
                move |blocking: &_| file.opened().read_direct(blocking, start, count as usize, alignment);
            return Ok(Fetch::Reading(pool.submit_at(at, read)));
        }
        // What was read into memory and is gone again is not read there once more.
        if self.warm_end > start {
            let read = move |blocking: &_| file.opened().read(blocking, start, count as usize);
            return Ok(Fetch::Reading(pool.submit_at(at, read)));
        }
        let len = part.len();
        Ok(Fetch::Fetching(pool.submit_at(at, move |blocking| file.opened().fetch(blocking, start, len))))
    }

    /// `false` when it has waited long enough.
    fn wait_for_room(&mut self, home: LoopRef, timeout_ms: u64) -> bool {
        let now_ms = home.now_ms();
        let retry = self.retry.get_or_insert_with(|| Retry {
            timer: Timer::new(home),
            since_ms: now_ms,
            delay_ms: RETRY_MIN_MS / 2,
        });
        retry.delay_ms = (retry.delay_ms * 2).min(RETRY_MAX_MS);
        debug_assert!(
            (RETRY_MIN_MS..=RETRY_MAX_MS).contains(&retry.delay_ms),
            "waits grow up to the longest"
        );
        retry.timer.arm(now_ms + retry.delay_ms);
        now_ms.saturating_sub(retry.since_ms) < timeout_ms
    }

    fn take_fetched(
        &mut self,
        part: &FilePart,
        sending: &Sending,
        fetched: io::Result<files::Fetched>,
    ) -> Result<Fetched, FileFailure> {
        (self.fetch, self.retry, self.timeout) = (Fetch::Nothing, None, None);
        match fetched.map_err(FileFailure::Read)? {
            files::Fetched::Warm(warmed) => self.take_warmed(part, sending, warmed),
            files::Fetched::Data(data, _) if data.is_empty() => {
                Err(FileFailure::Short { read: 0, of: part.len() })
            }
            files::Fetched::Data(data, held) => {
                debug_assert!(data.len() as u64 <= part.len(), "no more is read than the part has");
                self.held = Some(held);
                Ok(Fetched::Data(data))
            }
        }
    }

    fn take_warmed(
        &mut self,
        part: &FilePart,
        sending: &Sending,
        warmed: Warmed,
    ) -> Result<Fetched, FileFailure> {
        self.warm_end = warmed.end();
        if self.warm_end <= part.start() {
            return Err(if self.uses_sendfile(part, sending) {
                FileFailure::Truncated(part.start())
            } else {
                FileFailure::Short { read: 0, of: part.len().min(buffer_bytes(sending)) }
            });
        }
        self.learned.note(warmed);
        Ok(Fetched::Warm)
    }

    fn take_data(
        &mut self,
        part: &FilePart,
        sending: &Sending,
        data: io::Result<Vec<u8>>,
    ) -> Result<Fetched, FileFailure> {
        (self.fetch, self.retry, self.timeout) = (Fetch::Nothing, None, None);
        let data = data.map_err(FileFailure::Read)?;
        let (read, of) = (data.len() as u64, part.len().min(buffer_bytes(sending)));
        debug_assert!(read <= of, "no more is read than was asked for");
        if read < of { Err(FileFailure::Short { read, of }) } else { Ok(Fetched::Data(data)) }
    }
}

/// Bytes that are read at once: all of `output_buffers`.
pub(crate) fn buffer_bytes(sending: &Sending) -> u64 {
    let (number, size) = *sending.output_buffers;
    number.saturating_mul(size).clamp(1, BUFFER_MAX_BYTES)
}

impl FileFailure {
    /// The status to answer with if nothing was sent; `None`: nothing can be sent, as the file has changed.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::NoThread | Self::TimedOut => Some(503),
            Self::Read(_) | Self::Sendfile(_) => Some(500),
            Self::Truncated(_) | Self::Short { .. } => None,
        }
    }
}
