//! The files that a worker was handed, where it opens its logs: it could not open them itself, or not
//! create them. The worker's main thread and the log writer's.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_log::{Disk, Opener};

/// Log files by name. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandedFiles(Arc<Mutex<HashMap<PathBuf, File>>>);

impl HandedFiles {
    /// Takes files over; of the same name the new one counts.
    pub(crate) fn add(&self, files: Vec<(PathBuf, OwnedFd)>) {
        self.lock().extend(files.into_iter().map(|(path, fd)| (path, File::from(fd))));
    }

    /// Forgets those that are not `wanted`.
    pub(crate) fn keep(&self, wanted: impl Fn(&Path) -> bool) {
        self.lock().retain(|path, _| wanted(path));
    }

    /// Forgets all, so that names are opened by the worker itself from now on.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        self.lock().contains_key(path)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opener for HandedFiles {
    /// The handed file; a name that came up later, such as one with variables in it, is opened by the worker
    /// itself.
    fn open(&self, path: &Path) -> io::Result<File> {
        match self.lock().get(path) {
            Some(file) => file.try_clone(),
            None => Disk.open(path),
        }
    }
}
