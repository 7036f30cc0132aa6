//! Temporary files as nginx names them: ten digits that count up, in subdirectories whose names are the
//! last of these digits. For pool threads. The counter is of the process and knows nothing of files that
//! others have left behind: a name that is taken is skipped.

use clearway_base::log::Verbatim;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clearway_base::Errno;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Code;

use crate::Blocking;

/// Digits of a name.
const DIGITS: usize = 10;
/// Access rights of subdirectories: the owner alone.
const DIRECTORY_MODE: u32 = 0o700;
/// Names that are tried before a directory counts as full.
const ATTEMPTS_MAX: u32 = 10_000;

/// How long a file has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// The file's name is removed as soon as the file is open, so that the kernel frees it with the last
    /// descriptor.
    Brief,
    /// Until somebody removes it.
    Lasting,
}

/// A call that failed. Displays nginx's text.
#[derive(Debug)]
pub struct Failure {
    /// The call, such as `open()`.
    pub call: &'static str,
    /// The path of the failed call.
    pub path: PathBuf,
    /// The reason.
    pub error: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Verbatim::path(&self.path);
        write!(f, "{} \"{path}\" failed {}", self.call, Errno(&self.error))
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A number that no other call of this process has got (but for one of 4,294,967,296).
#[must_use]
pub fn next_number() -> u32 {
    skip_numbers(1)
}

/// Makes a file below `directory`, to be read and written, with the access rights `mode` less the umask,
/// and says what it is called. `levels` are the characters in the names of subdirectories, outermost first,
/// ten at most together; those that are not there are made.
///
/// # Errors
/// `open()` or `mkdir()`.
pub fn create(
    _: &Blocking,
    directory: &Path,
    levels: &[u64],
    mode: u32,
    naming: Naming,
) -> Result<(File, PathBuf), Failure> {
    let mut number = next_number();
    let mut attempts_left = ATTEMPTS_MAX;
    loop {
        let path = path_of(directory, levels, number);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let error = match rustix::fs::open(&path, flags, Mode::from_raw_mode(mode)) {
            Ok(fd) => {
                if naming == Naming::Brief {
                    // nginx does not look at the result either: the name is all that would stay.
                    let _ = rustix::fs::unlink(&path);
                }
                return Ok((File::from(fd), path));
            }
            Err(error) => error,
        };
        attempts_left -= 1;
        match error {
            Code::EXIST if attempts_left > 0 => number = skip_numbers(stride()),
            Code::NOENT if attempts_left > 0 && !levels.is_empty() => make_levels(directory, levels, &path)?,
            error => return Err(Failure { call: "open()", path, error: error.into() }),
        }
    }
}

/// Adds to the counter.
fn skip_numbers(count: u32) -> u32 {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    COUNTER.fetch_add(count, Ordering::Relaxed).wrapping_add(count)
}

/// How many names are skipped when one is taken: differs from process to process, so that two of them do
/// not try the same ones in turn.
fn stride() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.subsec_millis() << 16).wrapping_add(std::process::id()) | 1
}

fn path_of(directory: &Path, levels: &[u64], number: u32) -> PathBuf {
    let digits = format!("{number:010}");
    let mut path = directory.to_path_buf();
    let mut end = DIGITS;
    for &level in levels {
        let start = end.saturating_sub(usize::try_from(level).unwrap_or(DIGITS));
        path.push(&digits[start..end]);
        end = start;
    }
    path.push(digits);
    path
}

fn make_levels(directory: &Path, levels: &[u64], path: &Path) -> Result<(), Failure> {
    let below = path.strip_prefix(directory).expect("the path of a file in the directory");
    let mut made = directory.to_path_buf();
    for name in below.iter().take(levels.len()) {
        made.push(name);
        match rustix::fs::mkdir(&made, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Ok(()) | Err(Code::EXIST) => {}
            Err(error) => return Err(Failure { call: "mkdir()", path: made, error: error.into() }),
        }
    }
    Ok(())
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("clearway-temp-file-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        rustix::fs::mkdir(&path, Mode::RWXU).unwrap();
        path
    }

    #[test]
    fn names_are_digits_spread_by_the_last_of_them() {
        let path = |levels: &[u64], number| path_of(Path::new("/t"), levels, number).display().to_string();
        assert_eq!(path(&[], 1), "/t/0000000001");
        assert_eq!(path(&[1, 2], 123), "/t/3/12/0000000123");
        assert_eq!(path(&[2, 3, 5], u32::MAX), "/t/95/672/42949/4294967295");
    }

    #[test]
    fn files_are_new_and_of_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let (dir, b) = (scratch("new"), &Blocking::on_this_thread());
        let (file, path) = create(b, &dir, &[1, 2], 0o600, Naming::Lasting).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(path.exists());
        let (brief, gone) = create(b, &dir, &[], 0o600, Naming::Brief).unwrap();
        assert!(brief.metadata().is_ok() && !gone.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn taken_names_are_skipped() {
        let (dir, b) = (scratch("taken"), &Blocking::on_this_thread());
        // Other tests count as well, so a few names ahead are taken.
        let first = next_number();
        for ahead in 1..50 {
            File::create_new(path_of(&dir, &[], first.wrapping_add(ahead))).unwrap();
        }
        let (_, path) = create(b, &dir, &[], 0o600, Naming::Lasting).unwrap();
        assert!(path.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn failures_have_nginx_words() {
        let (dir, b) = (scratch("words"), &Blocking::on_this_thread());
        let missing = dir.join("none");
        let plain = create(b, &missing, &[], 0o600, Naming::Brief).unwrap_err().to_string();
        assert!(plain.starts_with(&format!("open() \"{}/none/", dir.display())), "{plain}");
        assert!(plain.ends_with("\" failed (2: No such file or directory)"), "{plain}");
        let spread = create(b, &missing, &[1], 0o600, Naming::Brief).unwrap_err().to_string();
        assert!(spread.starts_with(&format!("mkdir() \"{}/none/", dir.display())), "{spread}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
