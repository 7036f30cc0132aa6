//! A body that a script gives a request in place of the one that was read: made piece by piece, in memory as
//! far as a buffer goes (`client_body_buffer_size`) and then in a file; or in a file that is there already.
//! In the request's task; files are opened and written by threads of the pool.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clearway_base::log::{Level, Verbatim};
use clearway_offload::{At, Blocking, file};

use crate::config::body_directives::{BODY_CONF, BODY_MAIN, InFileOnly};
use crate::phases::spool::{NotPutAside, Spool};
use crate::request::Request;
use crate::request::body_file::{Fate, Keeper, TempFile};
use crate::request::scripting::SharedHead;
use crate::request::stored_body::{BodyPlace, StoredBody};

/// The body that a script gives a request.
pub struct MadeBody {
    data: Vec<u8>,
    room_bytes: usize,
    spool: Option<Spool>,
}

/// Whether a buffer takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The buffer takes more.
    Room,
    /// The contents have to be put aside ([`MadeBody::put_aside`]); until then the buffer grows.
    Full,
}

/// The fate of a file that a script names, at the end of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// The file is kept.
    Kept,
    /// The file is removed.
    Removed,
}

/// Why a body was not put in the place of the one that was read.
#[derive(Debug)]
pub enum NotReplaced {
    /// The file cannot be opened, or is none.
    Unopened(io::Error),
    /// The body could not be written.
    NotPutAside(NotPutAside),
    /// The request has the head of another one.
    SharedHead(SharedHead),
}

impl MadeBody {
    /// An empty body. `room_bytes` is how much stays in memory; `None`: as much as of a body that a client
    /// sends (`client_body_buffer_size`).
    #[must_use]
    pub fn new(request: &Request<'_>, room_bytes: Option<usize>) -> Self {
        let usual = || usize::try_from(*request.conf(&BODY_CONF).buffer_bytes).unwrap_or(usize::MAX);
        Self { data: Vec::new(), room_bytes: room_bytes.unwrap_or_else(usual), spool: None }
    }

    /// Appends a piece.
    pub fn append(&mut self, piece: &[u8]) -> Fill {
        self.data.extend_from_slice(piece);
        if self.data.len() > self.room_bytes { Fill::Full } else { Fill::Room }
    }

    /// Writes what is in memory to a file, which is made when there is none yet.
    ///
    /// # Errors
    /// What was made is lost.
    pub async fn put_aside(mut self, request: &Request<'_>) -> Result<Self, NotPutAside> {
        let spool = match self.spool.take() {
            Some(spool) => spool,
            None => begin(request)?,
        };
        let is_first = spool.file().is_none();
        let spool = spool.append(std::mem::take(&mut self.data)).await?;
        debug_assert!(spool.file().is_some(), "what is put aside is in a file");
        if let Some(file) = spool.file().filter(|_| is_first) {
            let path = Verbatim(file.path().as_os_str().as_bytes());
            let line = format_args!("a client request body is buffered to a temporary file {path}");
            request.log(Level::Warn, line);
        }
        self.spool = Some(spool);
        Ok(self)
    }

    /// Whether some of it is in a file, or will have to be: what ends it may take a while.
    #[must_use]
    pub fn needs_file(&self, request: &Request<'_>) -> bool {
        self.spool.is_some() || *request.conf(&BODY_CONF).in_file_only != InFileOnly::Off
    }

    /// Makes the complete body, which is in memory only, the request's body.
    ///
    /// # Errors
    /// The request keeps the body that it had.
    pub fn finish_in_memory(self, request: &mut Request<'_>) -> Result<(), SharedHead> {
        debug_assert!(self.spool.is_none(), "nothing of it is in a file");
        request.set_stored_body(self.data.into())
    }

    /// Makes the complete body the request's body.
    ///
    /// # Errors
    /// The request keeps the body that it had.
    pub async fn finish(mut self, request: &mut Request<'_>) -> Result<(), NotReplaced> {
        if self.needs_file(request) && !(self.data.is_empty() && self.spool.is_some()) {
            self = self.put_aside(request).await.map_err(NotReplaced::NotPutAside)?;
        }
        let spooled = self.spool.as_ref().and_then(|spool| Some((Arc::clone(spool.file()?), spool.len())));
        let body = match spooled {
            Some((file, len)) => StoredBody { len, place: BodyPlace::File(file) },
            None => StoredBody { len: self.data.len() as u64, place: BodyPlace::Memory(self.data.into()) },
        };
        request.replace_body(body).map_err(NotReplaced::SharedHead)
    }
}

fn begin(request: &Request<'_>) -> Result<Spool, NotPutAside> {
    let conf = request.conf(&BODY_CONF);
    let fate = if *conf.in_file_only == InFileOnly::On { Fate::Stays } else { Fate::Clean };
    let place = (*conf.temp_path).clone().expect("every location has one");
    Spool::begin(request, place, fate)
}

/// Has a regular file be the request's body, as it is now.
///
/// # Errors
/// The request keeps the body that it had.
pub async fn use_body_file(
    request: &mut Request<'_>,
    path: PathBuf,
    afterwards: Afterwards,
) -> Result<(), NotReplaced> {
    let body = open_body_file(request, path, afterwards).await.map_err(NotReplaced::Unopened)?;
    request.replace_body(body).map_err(NotReplaced::SharedHead)
}

/// A body that is a file.
///
/// # Errors
/// It could not be opened.
pub async fn open_body_file(
    request: &Request<'_>,
    path: PathBuf,
    afterwards: Afterwards,
) -> io::Result<StoredBody> {
    let busy = || io::Error::from(io::ErrorKind::ResourceBusy);
    let pool = request.file_pool().ok_or_else(busy)?;
    let opened = path.clone();
    let job = move |blocking: &Blocking| file::open_regular(blocking, &opened);
    let at = if path.is_absolute() { At::path(Path::new(&path)) } else { At::Anywhere };
    let (open, len) = pool.submit_at(at, job).await.map_err(|_| busy())??;
    let keeper = Keeper {
        pool,
        home: request.client.home,
        log: Option::clone(&request.main_conf(&BODY_MAIN).log),
        _setup: Arc::clone(request.setup),
    };
    let fate = if afterwards == Afterwards::Removed { Fate::Clean } else { Fate::Stays };
    let file = TempFile::new(Mutex::new(Some(Arc::new(open))), path, fate, Arc::new(keeper));
    Ok(StoredBody { len, place: BodyPlace::File(Arc::new(file)) })
}
