//! Directories that a configuration wants to have for files of its own (`client_body_temp_path` and the
//! like): what it says of them, by nginx's rules. The process that loads the configuration makes them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error, Pos};

use crate::setting::Setting;

/// The directory of request bodies where no `client_body_temp_path` names another one: Debian's.
pub const CLIENT_BODY_TEMP_DEFAULT: &str = "/var/lib/nginx/body";

/// Characters of the names of all subdirectories together at most.
const LEVEL_CHARACTERS_MAX: u64 = 10;

/// One directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempPath {
    /// Absolute, without a slash at its end.
    pub directory: PathBuf,
    /// Characters in the names of the subdirectories that files are spread over, outermost first.
    pub levels: Vec<u64>,
    /// Where a directive names it.
    pos: Option<Pos>,
    purpose: Purpose,
}

/// The purpose of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Files that come and go with requests: directives may share it.
    Temporary,
    /// One cache's.
    Cache,
}

impl TempPath {
    /// Reads `PATH [LEVEL1 [LEVEL2 [LEVEL3]]]`; a relative path begins at `prefix`.
    ///
    /// # Errors
    /// In nginx's words.
    pub fn read(prefix: &Path, directive: &Directive) -> Result<Self, Error> {
        let name = directive.value(0)?;
        let name = name.strip_suffix(b"/").map_or(name.clone(), Bytes::copy_from_slice);
        let level = |text: &Bytes| units::parse_number(text).filter(|&level| level > 0);
        let levels: Option<Vec<u64>> = directive.args[1..].iter().map(level).collect();
        let fits = |levels: &Vec<u64>| {
            let sum = levels.iter().try_fold(0_u64, |sum, &level| sum.checked_add(level));
            sum.is_some_and(|sum| sum <= LEVEL_CHARACTERS_MAX)
        };
        let levels = levels.filter(fits).ok_or_else(|| directive.reject("invalid value"))?;
        let directory = prefix.join(std::ffi::OsStr::from_bytes(&name));
        Ok(Self { directory, levels, pos: Some(directive.pos.clone()), purpose: Purpose::Temporary })
    }

    /// The directory of a cache, which the directive at `pos` names; the path is absolute.
    #[must_use]
    pub fn of_cache(directory: PathBuf, levels: Vec<u64>, pos: &Pos) -> Self {
        Self { directory, levels, pos: Some(pos.clone()), purpose: Purpose::Cache }
    }

    /// A directory that no directive names.
    #[must_use]
    pub fn default_at(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), levels: Vec::new(), pos: None, purpose: Purpose::Temporary }
    }

    /// Whether no directive names it, so that a server does without it if it cannot be made.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.pos.is_none()
    }
}

impl TempPath {
    /// The error for another directive that names the directory, if one of the two is of a cache.
    fn is_taken(&self, other: &Self) -> Error {
        let name = self.directory.as_os_str().as_bytes();
        let place = self.pos.as_ref().map_or_else(String::new, ToString::to_string);
        let parts: [&dyn AsRef<[u8]>; 5] = [&"the same path name \"", &name, &"\" used in ", &place, &" and"];
        match &other.pos {
            Some(pos) => Error::new(message(&parts), pos),
            None => Error::unplaced(message(&parts)),
        }
    }

    /// The error for a second path to the same directory with other levels.
    fn differ(&self, other: &Self) -> Error {
        let name = self.directory.as_os_str().as_bytes();
        let place = self.pos.as_ref().map_or_else(String::new, ToString::to_string);
        match &other.pos {
            Some(pos) => {
                let parts: [&dyn AsRef<[u8]>; 5] =
                    [&"the same path name \"", &name, &"\" in ", &place, &" has the different levels than"];
                Error::new(message(&parts), pos)
            }
            None => Error::unplaced(message(&[
                &"the path name \"",
                &name,
                &"\" in ",
                &place,
                &" has the same name as default path, but the different levels, you need to define default \
                  path in http section",
            ])),
        }
    }
}

/// The directories of one configuration. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct TempPaths(Arc<Mutex<Vec<TempPath>>>);

impl TempPaths {
    /// Adds a directory; one that several directives name must be spread in the same way, and is no cache's.
    ///
    /// # Errors
    /// In nginx's words.
    pub fn declare(&self, path: TempPath) -> Result<(), Error> {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match paths.iter().find(|known| known.directory == path.directory) {
            Some(known) if [known, &path].iter().any(|of| of.purpose == Purpose::Cache) => {
                Err(known.is_taken(&path))
            }
            Some(known) if known.levels != path.levels => Err(known.differ(&path)),
            Some(_) => Ok(()),
            None => {
                paths.push(path);
                Ok(())
            }
        }
    }

    /// All of them, each once.
    #[must_use]
    pub fn list(&self) -> Vec<TempPath> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Gives the settings without a directory the default one, which is declared if one of them uses it.
///
/// # Errors
/// If another use of the directory says something else of it.
pub fn complete<'a>(
    settings: impl Iterator<Item = &'a mut Setting<Option<Arc<TempPath>>>>,
    default: &Path,
    paths: Option<&TempPaths>,
) -> Result<(), Error> {
    let default = Arc::new(TempPath::default_at(default));
    let mut is_used = false;
    for setting in settings.filter(|setting| setting.is_none()) {
        setting.set(Some(Arc::clone(&default)));
        is_used = true;
    }
    match paths {
        Some(paths) if is_used => paths.declare((*default).clone()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_conf::parse_bytes;

    fn read(text: &str) -> Result<TempPath, String> {
        let tree = parse_bytes(format!("p {text};").as_bytes()).unwrap();
        TempPath::read(Path::new("/p/"), &tree.directives[0]).map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_levels() {
        let path = read("temp/").unwrap();
        assert_eq!((path.directory.as_path(), path.levels), (Path::new("/p/temp"), vec![]));
        let path = read("/a/b 1 2 3").unwrap();
        assert_eq!((path.directory.as_path(), path.levels), (Path::new("/a/b"), vec![1, 2, 3]));
        assert!(read("a 10").is_ok() && read("a 1 9").is_ok() && read("a 3 3 4").is_ok());
        for text in ["a 0", "a x", "a -1", "a 11", "a 1 10", "a 4 3 4"] {
            assert_eq!(read(text).unwrap_err(), "\"p\" directive invalid value in nginx.conf:1", "{text}");
        }
    }

    #[test]
    fn one_directory_is_spread_in_one_way() {
        let paths = TempPaths::default();
        for text in ["a 1 2", "a/ 1 2", "b"] {
            paths.declare(read(text).unwrap()).unwrap();
        }
        assert_eq!(paths.list().len(), 2);
        let error = paths.declare(read("a 1").unwrap()).unwrap_err();
        let text =
            "the same path name \"/p/a\" in nginx.conf:1 has the different levels than in nginx.conf:1";
        assert_eq!(error.to_string(), text);
    }
}
