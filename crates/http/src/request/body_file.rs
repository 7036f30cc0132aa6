//! The file of a request body: made and written by threads of the pool, one write at a time, while the
//! request's task reads on. The file goes with the last [`TempFile`] that stands for it: closing it, and
//! removing its name where that is due, are left to the pool as well.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use clearway_offload::temp_file::{self, Failure, Naming};
use clearway_offload::{At, Blocking, Error, Pool, Task, file};
use clearway_os::page_cache::{self, Wait};
use clearway_runtime::{LoopRef, Tag, Timer};
use clearway_site::temp_paths::TempPath;

use crate::generation::Setup;
use clearway_base::log::Verbatim;

/// How long what a full pool has not taken waits until it is offered again, milliseconds.
const RETRY_MS: u64 = 100;

/// The fate of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The name is removed as soon as the file is open.
    Brief,
    /// The name is removed with the request.
    Clean,
    /// The name stays.
    Stays,
}

/// The pool that works on a file.
pub(crate) struct Keeper {
    pub(crate) pool: Arc<Pool>,
    pub(crate) home: LoopRef,
    pub(crate) log: Option<Arc<dyn Sink>>,
    /// A server that stops waits until files are removed that are not to stay.
    pub(crate) _setup: Arc<Setup>,
}

/// A file that the server has made for itself.
pub struct TempFile {
    /// Until it is given away.
    file: Mutex<Option<Arc<File>>>,
    path: PathBuf,
    fate: Fate,
    keeper: Arc<Keeper>,
}

impl TempFile {
    pub(crate) fn new(
        file: Mutex<Option<Arc<File>>>,
        path: PathBuf,
        fate: Fate,
        keeper: Arc<Keeper>,
    ) -> Self {
        Self { file, path, fate, keeper }
    }

    /// The file, open for reading and writing; `None` once it was given away.
    #[must_use]
    pub fn file(&self) -> Option<Arc<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its name, absolute. It may be gone already.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file to the caller, which has moved it elsewhere. **Blocks** to close it.
    pub fn give_away(&self, _: &Blocking) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(file);
    }

    /// Reads up to `count` bytes from `offset`: fewer only at the end of the file. What is in memory, as it
    /// is as a rule after it was written, is read at once, the rest by the pool.
    ///
    /// # Errors
    /// As pread(2); [`io::ErrorKind::ResourceBusy`] where the pool is full.
    pub async fn read(&self, offset: u64, count: usize) -> io::Result<Vec<u8>> {
        let file = self.file().ok_or(io::ErrorKind::NotFound)?;
        let mut data = Vec::new();
        match page_cache::read_into(file.as_fd(), &mut data, offset, count, Wait::Never) {
            Ok(size) if size == count => {
                debug_assert_eq!(data.len(), count, "what was read is what is there");
                return Ok(data);
            }
            // The pool will say what is wrong, if anything is.
            _ => {}
        }
        let read = self.keeper.pool.submit(move |blocking| file::read(blocking, &file, offset, count)).await;
        read.map_err(|error| match error {
            Error::Overflow => io::ErrorKind::ResourceBusy.into(),
            error => io::Error::other(error),
        })?
    }
}

/// The file is closed, and its name removed, by the pool.
impl Drop for TempFile {
    fn drop(&mut self) {
        let file = self.file.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(file) = file else { return };
        let path = (self.fate == Fate::Clean).then(|| std::mem::take(&mut self.path));
        let rest = Rest { _file: file, path, log: self.keeper.log.clone() };
        let rest = Arc::new(Mutex::new(Some(rest)));
        let keeper = Arc::clone(&self.keeper);
        keeper.home.spawn(Tag::NONE, clean_up(Arc::clone(&keeper), rest));
    }
}

/// The rest of a file.
struct Rest {
    _file: Arc<File>,
    /// The name to remove.
    path: Option<PathBuf>,
    log: Option<Arc<dyn Sink>>,
}

impl Rest {
    fn remove(self, blocking: &Blocking) {
        let Some(path) = &self.path else { return };
        match file::unlink(blocking, path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let (path, errno) = (Verbatim(path.as_os_str().as_bytes()), Errno(&error));
                if let Some(log) = &self.log {
                    log.log(Level::Crit, format_args!("unlink() \"{path}\" failed {errno}"));
                }
            }
            _ => {}
        }
    }
}

/// Offers the rest of a file to the pool until it is taken.
async fn clean_up(keeper: Arc<Keeper>, rest: Arc<Mutex<Option<Rest>>>) {
    loop {
        let taken = Arc::clone(&rest);
        let job = move |blocking: &Blocking| {
            let rest = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(rest) = rest {
                rest.remove(blocking);
            }
        };
        if keeper.pool.submit(job).await != Err(Error::Overflow) {
            return;
        }
        let timer = Timer::new(keeper.home);
        timer.arm(keeper.home.now_ms() + RETRY_MS);
        std::future::poll_fn(|cx| timer.poll_expired(cx)).await;
    }
}

/// How a file is made.
pub(crate) struct Making {
    pub(crate) place: Arc<TempPath>,
    /// Access rights, less the umask.
    pub(crate) mode: u32,
    pub(crate) fate: Fate,
}

/// A file that is being written.
pub(crate) struct Writer {
    keeper: Arc<Keeper>,
    file: Arc<TempFile>,
    /// How much has been given to the pool, bytes.
    pub(crate) offset: u64,
    under_way: Option<Task<Result<Vec<u8>, Failure>>>,
}

/// Why a file was not made or written.
pub(crate) enum Unwritten {
    /// The system has refused it.
    Failed(Failure),
    /// The pool has.
    NotTaken(Error),
}

/// A file that was made, with its first bytes or not.
struct Made {
    file: TempFile,
    written: Result<Vec<u8>, Failure>,
}

impl Writer {
    /// Makes a file and writes its first bytes, which come to the result as an empty buffer. The pool may
    /// fail at the one or the other: `tell` learns of a file that was made.
    pub(crate) async fn create(
        keeper: Arc<Keeper>,
        making: Making,
        first: Vec<u8>,
        tell: impl FnOnce(&Path),
    ) -> Result<(Self, Vec<u8>), Unwritten> {
        let (owner, offset) = (Arc::clone(&keeper), first.len() as u64);
        let at = At::path(&making.place.directory);
        let job = move |blocking: &Blocking| {
            let naming = if making.fate == Fate::Brief { Naming::Brief } else { Naming::Lasting };
            let TempPath { directory, levels, .. } = &*making.place;
            let (file, path) = temp_file::create(blocking, directory, levels, making.mode, naming)?;
            let file = Mutex::new(Some(Arc::new(file)));
            let file = TempFile { file, path, fate: making.fate, keeper: owner };
            let written = write(blocking, &file, first, 0);
            Ok(Made { file, written })
        };
        let made: Result<Made, Failure> =
            keeper.pool.submit_at(at, job).await.map_err(Unwritten::NotTaken)?;
        let Made { file, written } = made.map_err(Unwritten::Failed)?;
        tell(file.path());
        let mut buffer = written.map_err(Unwritten::Failed)?;
        buffer.clear();
        Ok((Self { keeper, file: Arc::new(file), offset, under_way: None }, buffer))
    }

    /// Gives bytes to the pool once it is done with those before, and an empty buffer back.
    pub(crate) async fn write(&mut self, data: Vec<u8>) -> Result<Vec<u8>, Unwritten> {
        let mut buffer = self.settle().await?;
        buffer.clear();
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        self.offset += data.len() as u64;
        debug_assert!(self.under_way.is_none(), "one write at a time");
        self.under_way = Some(self.keeper.pool.submit(move |blocking| write(blocking, &file, data, offset)));
        Ok(buffer)
    }

    /// The file that is written.
    pub(crate) fn file(&self) -> &Arc<TempFile> {
        &self.file
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(mut self) -> Result<Arc<TempFile>, Unwritten> {
        self.settle().await?;
        debug_assert!(self.under_way.is_none(), "everything is written");
        Ok(self.file)
    }

    /// Waits for what was given to the pool; the buffer that comes back.
    pub(crate) async fn settle(&mut self) -> Result<Vec<u8>, Unwritten> {
        let Some(task) = self.under_way.take() else { return Ok(Vec::new()) };
        task.await.map_err(Unwritten::NotTaken)?.map_err(Unwritten::Failed)
    }
}

fn write(_: &Blocking, file: &TempFile, data: Vec<u8>, offset: u64) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure { call: "pwrite()", path: file.path.clone(), error };
    let open = file.file().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    open.write_all_at(&data, offset).map_err(failed)?;
    Ok(data)
}
