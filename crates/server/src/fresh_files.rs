//! Log files that did not exist until a configuration named them. If a later part of the configuration turns
//! out to be wrong, they are removed: nginx opens files after it has read the whole configuration, Clearway
//! while it reads. The master's thread.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_log::{Disk, Opener};

/// Access rights of a new log file, less the umask.
const MODE: u32 = 0o644;

/// Opens files by their names, and remembers those that were not there. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreshFiles(Arc<Mutex<Vec<PathBuf>>>);

impl FreshFiles {
    /// Removes the files that nobody has written to.
    #[expect(clippy::disallowed_methods, reason = "the master's thread, which runs no loop")]
    pub(crate) fn remove(&self) {
        let paths = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for path in paths {
            if std::fs::metadata(&path).is_ok_and(|file| file.len() == 0) {
                // A file that cannot be removed stays: it is empty, and the error in the configuration has
                // been reported.
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

impl Opener for FreshFiles {
    #[expect(clippy::disallowed_methods, reason = "the master's thread, which runs no loop")]
    fn open(&self, path: &Path) -> io::Result<File> {
        match OpenOptions::new().append(true).create_new(true).mode(MODE).open(path) {
            Ok(file) => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Disk.open(path),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may")]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_there_or_is_used_stays() {
        let dir = std::env::temp_dir().join(format!("clearway-fresh-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let [old, new, used] = ["old", "new", "used"].map(|name| dir.join(name));
        std::fs::write(&old, "").unwrap();
        let files = FreshFiles::default();
        for path in [&old, &new, &used] {
            files.open(path).unwrap();
        }
        files.open(&used).unwrap().write_all(b"x").unwrap();
        files.remove();
        assert_eq!([&old, &new, &used].map(|path| path.exists()), [true, false, true]);
        assert_eq!(std::fs::read(&used).unwrap(), b"x");
        assert!(files.open(&dir.join("none/x")).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
