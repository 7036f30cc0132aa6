//! A file whose content is replaced as a whole: readers see the old one or the new one, also after the
//! machine has failed. For pool threads.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::{Blocking, temp_file};

/// Puts `content` in place of what the file has, which is made if there is none. It keeps the owner's and the
/// group's right to read it, as the umask allows.
///
/// # Errors
/// As open(2), write(2), fsync(2) and rename(2); the file is as before then.
pub fn replace(_: &Blocking, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.{:010}", std::process::id(), temp_file::next_number()));
    let beside = PathBuf::from(beside);
    let replaced = write_whole(&beside, content).and_then(|()| Ok(rustix::fs::rename(&beside, path)?));
    if replaced.is_err() {
        // The first failure is the one to report.
        let _ = rustix::fs::unlink(&beside);
    }
    replaced
}

#[expect(clippy::disallowed_methods, reason = "the caller has a witness that this is a pool thread")]
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::disallowed_methods, reason = "tests make their own files")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_replaced_or_stays_as_it_is() {
        let blocking = Blocking::on_this_thread();
        let dir = std::env::temp_dir().join(format!("clearway-replacing-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("file");
        replace(&blocking, &path, b"one").unwrap();
        replace(&blocking, &path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(replace(&blocking, &dir.join("none/file"), b"three").is_err());
        assert!(replace(&blocking, &dir, b"four").is_err(), "a directory");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing else is left");
        fs::remove_dir_all(&dir).unwrap();
    }
}
