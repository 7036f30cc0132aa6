//! Paths as they stand in configurations: bytes, in whatever encoding.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path of the configuration.
pub(crate) fn bytes_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
