//! The file with the master's number: written last at a start, moved at a reload, renamed while a new
//! binary runs, removed at the end. The master's thread only.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};

use crate::start::Failed;

/// Access rights of a pid file, less the umask, which a daemon has none of.
pub(crate) const PID_FILE_MODE: u32 = 0o644;

/// The suffix of an old binary's file while a new one runs.
const OLDBIN_SUFFIX: &str = ".oldbin";

/// A pid file that is there. It is not removed by being dropped: another process may have taken over.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    state: PidFileState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PidFileState {
    InPlace,
    /// Under the name with [`OLDBIN_SUFFIX`].
    Renamed,
}

#[expect(clippy::disallowed_methods, reason = "the master's thread, which runs no loop")]
impl PidFile {
    /// Writes the number of this process.
    ///
    /// # Errors
    /// After the reason has been logged.
    pub(crate) fn write(path: &Path, log: &dyn Sink) -> Result<Self, Failed> {
        let mut options = OpenOptions::new();
        // For reading as well, as nginx: a FIFO in the place of the file makes nobody wait.
        options.read(true).write(true).create(true).truncate(true).mode(PID_FILE_MODE);
        let opened = options.open(path);
        let text = format!("{}\n", std::process::id());
        opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
            let errno = Errno(&error);
            log.log(Level::Emerg, format_args!("open() \"{}\" failed {errno}", Verbatim::path(path)));
            Failed
        })?;
        Ok(Self { path: path.to_owned(), state: PidFileState::InPlace })
    }

    /// Where a reload wants it.
    ///
    /// # Errors
    /// After the reason has been logged; the old file stays.
    pub(crate) fn move_to(&mut self, path: &Path, log: &dyn Sink) -> Result<(), Failed> {
        if self.path == path {
            return Ok(());
        }
        let new = Self::write(path, log)?;
        self.remove(log);
        *self = new;
        Ok(())
    }

    /// Makes room for the file of a new binary.
    ///
    /// # Errors
    /// After the reason has been logged.
    pub(crate) fn set_aside(&mut self, log: &dyn Sink) -> Result<(), Failed> {
        self.rename(&self.path, &self.aside(), log)?;
        self.state = PidFileState::Renamed;
        Ok(())
    }

    /// Takes the name back when the new binary has ended.
    pub(crate) fn take_back(&mut self, log: &dyn Sink) {
        // What went wrong has been logged, and the next attempt is as good as this one.
        if self.state == PidFileState::Renamed && self.rename(&self.aside(), &self.path, log).is_ok() {
            self.state = PidFileState::InPlace;
        }
    }

    /// Removes it.
    pub(crate) fn remove(&self, log: &dyn Sink) {
        let path = match self.state {
            PidFileState::InPlace => self.path.clone(),
            PidFileState::Renamed => self.aside(),
        };
        if let Err(error) = std::fs::remove_file(&path) {
            let errno = Errno(&error);
            log.log(Level::Alert, format_args!("unlink() \"{}\" failed {errno}", Verbatim::path(&path)));
        }
    }

    fn aside(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(OLDBIN_SUFFIX);
        name.into()
    }

    fn rename(&self, from: &Path, to: &Path, log: &dyn Sink) -> Result<(), Failed> {
        std::fs::rename(from, to).map_err(|error| {
            let (from, to, errno) = (Verbatim::path(from), Verbatim::path(to), Errno(&error));
            log.log(Level::Alert, format_args!("rename() {from} to {to} failed {errno}"));
            Failed
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests may read files")]
mod tests {
    use super::*;
    use clearway_base::log::Discard;

    fn read(path: &Path) -> Option<u32> {
        std::fs::read_to_string(path).ok()?.trim_end().parse().ok()
    }

    #[test]
    fn is_written_moved_set_aside_and_removed() {
        let dir = std::env::temp_dir().join(format!("clearway-pid-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (first, second, aside) = (dir.join("a.pid"), dir.join("b.pid"), dir.join("b.pid.oldbin"));
        let mut file = PidFile::write(&first, &Discard).unwrap();
        file.move_to(&second, &Discard).unwrap();
        assert_eq!((read(&first), read(&second)), (None, Some(std::process::id())));
        assert!(file.move_to(&dir.join("none/x.pid"), &Discard).is_err());
        file.set_aside(&Discard).unwrap();
        assert_eq!((read(&second), read(&aside)), (None, Some(std::process::id())));
        file.take_back(&Discard);
        assert_eq!((read(&second), read(&aside)), (Some(std::process::id()), None));
        file.remove(&Discard);
        assert_eq!(read(&second), None);
        std::fs::remove_dir(&dir).unwrap();
    }
}
