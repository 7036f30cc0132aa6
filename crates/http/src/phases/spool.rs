//! A temporary file for bytes that a handler receives (`proxy_temp_path` and others), because its client does
//! not take them yet, or to keep them. Threads of the pool write and read it. It is removed when it is not
//! used any more, unless it was given a final path.

use std::path::PathBuf;
use std::sync::Arc;

use clearway_offload::moving::{Journal, PathRights, Written, directory_mode};
use clearway_offload::temp_file::Failure;
use clearway_offload::{At, Blocking};
use clearway_site::temp_paths::TempPath;

use crate::config::body_directives::BODY_MAIN;
use crate::request::Request;
use crate::request::body_file::{Fate, Keeper, Making, TempFile, Unwritten, Writer};

/// Access rights of the file: the owner's alone.
const MODE: u32 = 0o600;

/// Why something could not be put aside. Displays nginx's text.
#[derive(Debug)]
pub enum NotPutAside {
    /// The system has refused the file, or to write to it.
    Failed(Failure),
    /// The pool takes no more, which it has logged, or the configuration has none.
    NotTaken,
}

/// Where a file is to be kept, and how.
#[derive(Debug)]
pub struct Placement {
    /// The path, in place of what is there.
    pub path: PathBuf,
    /// The access rights of the file; directories that are made above it have those that go with them.
    pub access: u32,
    /// When it was changed, if that is to be said, seconds since the epoch.
    pub modified: Option<i64>,
}

/// The temporary file of one response; new bytes are added at its end.
pub struct Spool {
    keeper: Arc<Keeper>,
    place: Arc<TempPath>,
    fate: Fate,
    writer: Option<Writer>,
}

impl Spool {
    /// A spool without a file: that is made when the first bytes are put aside.
    ///
    /// # Errors
    /// There is no pool that could do it.
    pub fn new(request: &Request<'_>, place: Arc<TempPath>) -> Result<Self, NotPutAside> {
        Self::begin(request, place, Fate::Brief)
    }

    /// A file that may be [moved to its final place](Self::place): it keeps a name until then.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn named(request: &Request<'_>, place: Arc<TempPath>) -> Result<Self, NotPutAside> {
        Self::begin(request, place, Fate::Clean)
    }

    pub(crate) fn begin(
        request: &Request<'_>,
        place: Arc<TempPath>,
        fate: Fate,
    ) -> Result<Self, NotPutAside> {
        let pool = request.file_pool().ok_or(NotPutAside::NotTaken)?;
        let keeper = Keeper {
            pool,
            home: request.client.home,
            log: Option::clone(&request.main_conf(&BODY_MAIN).log),
            _setup: Arc::clone(request.setup),
        };
        Ok(Self { keeper: Arc::new(keeper), place, fate, writer: None })
    }

    /// Writes behind what there is, and is ready when that is done. The first time it makes the file.
    ///
    /// # Errors
    /// What was given is lost, and so is the rest.
    pub async fn append(mut self, data: Vec<u8>) -> Result<Self, NotPutAside> {
        match &mut self.writer {
            Some(writer) => {
                writer.write(data).await?;
                writer.settle().await?;
            }
            None => {
                let making = Making { place: Arc::clone(&self.place), mode: MODE, fate: self.fate };
                let (writer, _) = Writer::create(Arc::clone(&self.keeper), making, data, |_| {}).await?;
                self.writer = Some(writer);
            }
        }
        Ok(self)
    }

    /// Gives the file the path that it is kept under; an empty one is made where nothing was written. The
    /// journal has what the log is to be told.
    ///
    /// # Errors
    /// The pool has not taken the work, or not made an empty file. The file is removed.
    pub async fn place(mut self, placement: Placement) -> Result<Journal, NotPutAside> {
        debug_assert!(self.fate == Fate::Clean, "a file without a name cannot be moved");
        if self.writer.is_none() {
            self = self.append(Vec::new()).await?;
        }
        let Self { keeper, writer: Some(writer), .. } = self else { return Err(NotPutAside::NotTaken) };
        let file = Arc::clone(writer.file());
        let path = &placement.path;
        let at = if path.is_absolute() { At::path(path) } else { At::Anywhere };
        let job = move |blocking: &Blocking| {
            let mut journal = Journal::default();
            move_to(blocking, &file, &placement, &mut journal);
            journal
        };
        keeper.pool.submit_at(at, job).await.map_err(|_| NotPutAside::NotTaken)
    }

    /// The file, once something was put aside.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<TempFile>> {
        self.writer.as_ref().map(Writer::file)
    }

    /// How much was put aside, bytes.
    #[must_use]
    pub(crate) fn len(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.offset)
    }

    /// The file's content is not needed any more: it is written anew from its beginning.
    pub fn rewind(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.offset = 0;
        }
    }
}

fn move_to(blocking: &Blocking, file: &TempFile, placement: &Placement, journal: &mut Journal) {
    let Some(open) = file.file() else { return };
    let Placement { path, access, modified } = placement;
    let directories = Some(directory_mode(*access));
    let rights = PathRights { directories, file: Some(*access), modified: *modified };
    if (Written { file: &open, path: file.path() }).place(blocking, path, &rights, journal).is_ok() {
        file.give_away(blocking);
    }
}

impl From<Unwritten> for NotPutAside {
    fn from(unwritten: Unwritten) -> Self {
        match unwritten {
            Unwritten::Failed(failure) => Self::Failed(failure),
            Unwritten::NotTaken(_) => Self::NotTaken,
        }
    }
}
