//! The file behind a name: from the cache of open files if there is one and it knows, else from the file
//! system. On the loop of the request where that cannot wait, else on a thread of a pool.

use std::sync::Arc;

use clearway_base::log::Level as LogLevel;
use clearway_http::{ContextKey, Directio, FileAccess, Lasts, OpenFile, Request, View};
use clearway_offload::Blocking;
use clearway_offload::file::Kind;
use clearway_offload::files::{Attempt, Opened};
use clearway_os::stat::Stat;

use crate::content::copies::COPY_MAX_BYTES;
use crate::content::files::{Failure, copies_limit, log_failure, on_pool};
use crate::content::lookup::{Failed, Lookup};
use crate::content::open_file_cache::{CacheUse, Held, Known};

/// From this size on the kernel is told of `read_ahead`, bytes.
const READ_AHEAD_MIN_BYTES: u64 = 128 * 1024;

static SEEN: ContextKey<Seen> = ContextKey::new(Lasts::ToTheEnd);

/// The name that a request has looked up last, and its status.
struct Seen {
    path: Vec<u8>,
    stat: Stat,
    /// The time of the entry, on the monotonic clock.
    at_ms: u64,
}

/// How a location finds out what is behind one name.
#[derive(Clone)]
pub(crate) struct Names {
    lookup: Lookup,
    cache: Option<CacheUse>,
}

/// The result of opening a name.
pub(crate) enum Search {
    /// The cache knows.
    Known(Result<Found, Failed>),
    /// The file system was asked.
    Asked(Result<Reply, Failed>),
    /// A pool has to ask it.
    Cold(Question),
}

/// The question to a pool.
pub(crate) struct Question {
    lookup: Lookup,
    /// The entry for the name so far.
    held: Option<Held>,
}

/// The answer of the pool.
pub(crate) enum Reply {
    /// The name still leads to the same file.
    Same(Held),
    Opened(Opened),
}

/// The object with a name.
pub(crate) enum Found {
    /// A regular file of this request's own.
    Opened(Opened, FileAccess),
    /// A regular file that other requests use as well.
    Shared(Arc<OpenFile>),
    Directory,
    /// A FIFO, a socket or a device.
    Other,
}

impl Names {
    /// How the location of the request looks up `path`.
    pub(crate) fn of(view: &View<'_, '_>, path: &[u8]) -> Self {
        Self { lookup: Lookup::of(view, path), cache: CacheUse::of(view.request) }
    }

    /// Whether nothing but the name and the file system decides what is found.
    pub(crate) fn are_plain(&self) -> bool {
        self.cache.is_none() && self.lookup.follows_links()
    }

    /// Tells the request's content handler what was just found behind a name, so that it need not ask again.
    pub(crate) fn tell(&self, request: &mut Request<'_>, path: Vec<u8>, stat: Stat) {
        if self.are_plain() && stat.size <= COPY_MAX_BYTES && copies_limit(request) > 0 {
            let at_ms = request.now_ms();
            request.set_context(&SEEN, Seen { path, stat, at_ms });
        }
    }

    /// The status that the request got for the name, if that was just now.
    pub(crate) fn told(&self, request: &Request<'_>, path: &[u8]) -> Option<Stat> {
        let seen = request.context(&SEEN)?;
        (self.are_plain() && seen.at_ms == request.now_ms() && seen.path == path).then_some(seen.stat)
    }

    /// The status of the file with this name, unless finding it may wait.
    pub(crate) fn stat(&self, path: &[u8]) -> Attempt<Result<Stat, Failed>> {
        if let Some(known) = self.known_stat(path) {
            return Attempt::Done(known);
        }
        let found = self.lookup.stat(path);
        if let Attempt::Done(found) = &found {
            self.note_stat(path, found);
        }
        found
    }

    /// The status of the file with this name. **Blocks.**
    pub(crate) fn stat_blocking(&self, blocking: &Blocking, path: &[u8]) -> Result<Stat, Failed> {
        if let Some(known) = self.known_stat(path) {
            return known;
        }
        let found = self.lookup.stat_blocking(blocking, path);
        self.note_stat(path, &found);
        found
    }

    fn known_stat(&self, path: &[u8]) -> Option<Result<Stat, Failed>> {
        let CacheUse { files, terms } = self.cache.as_ref()?;
        match files.find(path, self.lookup.rule(), *terms) {
            Known::Fresh(held) => held.stat(),
            Known::Stale(_) | Known::Nothing => None,
        }
    }

    /// Files are kept when they are opened.
    fn note_stat(&self, path: &[u8], found: &Result<Stat, Failed>) {
        match found {
            Ok(stat) if Kind::of_mode(stat.mode) == Kind::Directory => {
                self.keep(path, Ok(Held::Directory(*stat)));
            }
            Ok(_) => {}
            Err(failed) => self.keep(path, Err(failed)),
        }
    }

    fn keep(&self, path: &[u8], found: Result<Held, &Failed>) {
        if let Some(CacheUse { files, terms }) = &self.cache {
            files.keep(path, self.lookup.rule(), *terms, found);
        }
    }

    /// Opens a file for reading, unless that may wait.
    pub(crate) fn open(&self, path: &[u8]) -> Search {
        let mut question = Question { lookup: self.lookup, held: None };
        if let Some(CacheUse { files, terms }) = &self.cache {
            match files.find(path, self.lookup.rule(), *terms) {
                Known::Fresh(held) => match held.into_found() {
                    Some(found) => return Search::Known(found),
                    None => question.held = None,
                },
                Known::Stale(held) => question.held = Some(held),
                Known::Nothing => {}
            }
        }
        if let Some(known) = question.known() {
            match self.lookup.stat(path) {
                Attempt::Cold => return Search::Cold(question),
                Attempt::Done(Ok(stat)) if stat == known => return question.same(),
                Attempt::Done(_) => {}
            }
        }
        match self.lookup.open(path) {
            Attempt::Cold => Search::Cold(question),
            Attempt::Done(found) => Search::Asked(found.map(Reply::Opened)),
        }
    }

    /// Applies a reply to a request, and to the cache.
    pub(crate) fn settle(
        &self,
        request: &Request<'_>,
        path: &[u8],
        reply: Result<Reply, Failed>,
    ) -> Result<Found, Failed> {
        let opened = match reply {
            Ok(Reply::Opened(opened)) => opened,
            Ok(Reply::Same(held)) => {
                self.keep(path, Ok(held.clone()));
                return held.into_found().unwrap_or(Ok(Found::Other));
            }
            Err(failed) => {
                self.keep(path, Err(&failed));
                return Err(failed);
            }
        };
        match opened.kind() {
            Kind::Directory => {
                self.keep(path, Ok(Held::Directory(*opened.stat())));
                Ok(Found::Directory)
            }
            Kind::Other => {
                self.keep(path, Ok(Held::Other(*opened.stat())));
                Ok(Found::Other)
            }
            Kind::Regular => {
                let access = prepare(request, path, &opened);
                if self.cache.is_none() {
                    return Ok(Found::Opened(opened, access));
                }
                let file = Arc::new(OpenFile::new(opened, path, access, request.file_pool()));
                self.keep(path, Ok(Held::File(Arc::clone(&file))));
                Ok(Found::Shared(file))
            }
        }
    }

    /// Has a thread of a pool find out; the error is the status of a response.
    pub(crate) async fn ask_pool(
        &self,
        request: &mut Request<'_>,
        path: &[u8],
        question: Question,
    ) -> Result<Result<Found, Failed>, u16> {
        let name = path.to_vec();
        let reply = on_pool(request, path, move |blocking| question.ask(blocking, &name)).await?;
        Ok(self.settle(request, path, reply))
    }
}

impl Question {
    /// Finds out. **Blocks.**
    pub(crate) fn ask(self, blocking: &Blocking, path: &[u8]) -> Result<Reply, Failed> {
        if let Some(known) = self.known()
            && self.lookup.stat_blocking(blocking, path).is_ok_and(|stat| stat == known)
            && let Some(held) = self.held
        {
            return Ok(Reply::Same(held));
        }
        self.lookup.open_blocking(blocking, path).map(Reply::Opened)
    }

    /// The former status of the name, if there was a file.
    fn known(&self) -> Option<Stat> {
        self.held.as_ref()?.stat()?.ok()
    }

    fn same(self) -> Search {
        let held = self.held.expect("something was known");
        Search::Asked(Ok(Reply::Same(held)))
    }
}

impl Held {
    fn stat(&self) -> Option<Result<Stat, Failed>> {
        match self {
            Self::File(file) => Some(Ok(*file.opened().stat())),
            Self::Directory(stat) | Self::Other(stat) => Some(Ok(*stat)),
            Self::Error(..) => self.failed().map(Err),
            Self::Closed => None,
        }
    }

    fn into_found(self) -> Option<Result<Found, Failed>> {
        match self {
            Self::File(file) => Some(Ok(Found::Shared(file))),
            Self::Directory(_) => Some(Ok(Found::Directory)),
            Self::Other(_) => Some(Ok(Found::Other)),
            Self::Error(..) => self.failed().map(Err),
            Self::Closed => None,
        }
    }
}

/// Makes an open file what the location wants of it.
fn prepare(request: &Request<'_>, path: &[u8], opened: &Opened) -> FileAccess {
    let sending = &request.location().core.sending;
    let size = opened.stat().size;
    if size > READ_AHEAD_MIN_BYTES
        && *sending.read_ahead_bytes > 0
        && let Err(error) = opened.expect_sequential()
    {
        let failure = Failure { call: "posix_fadvise(POSIX_FADV_SEQUENTIAL)", path, error: &error };
        log_failure(request, LogLevel::Alert, failure);
    }
    if !is_direct(request, size) {
        return FileAccess::Cached;
    }
    match opened.set_direct() {
        Ok(()) => {
            let alignment = (*sending.directio_alignment).clamp(1, 1 << 20);
            FileAccess::Direct { alignment: (alignment as u32).next_power_of_two() }
        }
        Err(error) => {
            let failure = Failure { call: "fcntl(O_DIRECT)", path, error: &error };
            log_failure(request, LogLevel::Alert, failure);
            FileAccess::Cached
        }
    }
}

/// Whether a file of this size, bytes, is to be read past the page cache.
pub(crate) fn is_direct(request: &Request<'_>, size: u64) -> bool {
    match *request.location().core.sending.directio {
        Directio::Off => false,
        Directio::From(bytes) => size >= bytes,
    }
}
