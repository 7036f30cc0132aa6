//! The common part of modules that look at files: the pool that does what may block, what errors mean to a
//! client, and how much memory copies of small files may take.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clearway_base::Errno;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_http::{
    ConfKey, Errand, Level, Load, Module, Request, Setting, Verbatim, context, set, settings,
};
use clearway_offload::{At, Blocking};
use rustix::io::Errno as Code;

use super::copies;

/// The module.
pub static FILES: Module = Module {
    name: "files",
    directives: DIRECTIVES,
    confs: &[&FILES_CONF],
    metrics: copies::ALL,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "file_copies",
    contexts: context::HTTP,
    args: Args::TAKE1,
    syntax: "file_copies SIZE | off",
    default: "file_copies 64m;",
    doc: "How much memory copies of small files (up to 64 KiB) may take, for all loops together. A copy is \
          used only if the file, asked after the request has come, is still the same. Clearway's own.",
    example: "
        file_copies 256m;",
    see: &["open_file_cache", "sendfile"],
    handler: |scope, directive| {
        set(directive, &mut scope.conf.main(&FILES_CONF).copies_bytes, |directive| {
            if &directive.args[0][..] == b"off" { Ok(0) } else { directive.offset(0) }
        })
    },
}];

static FILES_CONF: ConfKey<FilesConf> = ConfKey::new(Level::Main);

settings! {
    struct FilesConf {
        /// 0: there are none.
        copies_bytes: Setting<u64> = 64 << 20,
    }
}

/// How much memory copies of small files may take, bytes.
pub(crate) fn copies_limit(request: &Request<'_>) -> usize {
    usize::try_from(*request.main_conf(&FILES_CONF).copies_bytes).unwrap_or(usize::MAX)
}

/// Runs a job that may block on the pool of the location, to find out something about what `path` leads to.
///
/// # Errors
/// The answer to give: the job was not taken, or not answered in time (503), or it panicked.
pub(crate) async fn on_pool<T: Send + 'static>(
    request: &Request<'_>,
    path: &[u8],
    job: impl FnOnce(&Blocking) -> T + Send + 'static,
) -> Result<T, u16> {
    on_pool_at(request, At::path(&to_path(path)), job).await
}

/// As [`on_pool`], for a job that goes to another file system, or to none.
///
/// # Errors
/// As [`on_pool`].
pub(crate) async fn on_pool_at<T: Send + 'static>(
    request: &Request<'_>,
    at: At,
    job: impl FnOnce(&Blocking) -> T + Send + 'static,
) -> Result<T, u16> {
    let pool = request.file_pool().ok_or(500_u16)?;
    request.wait_for(pool.submit_at(at, job), Errand::Question).await
}

/// As [`on_pool`], for a job that changes something: once it has begun it is waited for.
///
/// # Errors
/// As [`on_pool`].
pub(crate) async fn change_on_pool<T: Send + 'static>(
    request: &Request<'_>,
    path: &[u8],
    job: impl FnOnce(&Blocking) -> T + Send + 'static,
) -> Result<T, u16> {
    let pool = request.file_pool().ok_or(500_u16)?;
    request.wait_for(pool.submit_at(At::path(&to_path(path)), job), Errand::Deed).await
}

/// The bytes of a path as a path.
pub(crate) fn to_path(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}

/// Whether the system says with one of these codes why it failed.
pub(crate) fn is_any(error: &io::Error, codes: &[Code]) -> bool {
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

/// The errors that mean that there is no file of that name.
pub(crate) const ABSENT: [Code; 3] = [Code::NOENT, Code::NOTDIR, Code::NAMETOOLONG];
/// Errors of files that exist but may not be read.
const FORBIDDEN: [Code; 3] = [Code::ACCESS, Code::MLINK, Code::LOOP];

/// Logs a file that could not be opened, and says with which status to answer.
pub(crate) fn refuse(request: &Request<'_>, call: &str, path: &[u8], error: &io::Error) -> u16 {
    let failure = Failure { call, path, error };
    if is_any(error, &ABSENT) {
        request.log_not_found(format_args!("{failure}"));
        return 404;
    }
    let (level, status) =
        if is_any(error, &FORBIDDEN) { (LogLevel::Error, 403) } else { (LogLevel::Crit, 500) };
    log_failure(request, level, failure);
    status
}

/// A call on a file that failed.
pub(crate) struct Failure<'a> {
    pub(crate) call: &'a str,
    pub(crate) path: &'a [u8],
    pub(crate) error: &'a io::Error,
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\" failed {}", self.call, Verbatim(self.path), Errno(self.error))
    }
}

pub(crate) fn log_failure(request: &Request<'_>, level: LogLevel, failure: Failure<'_>) {
    request.log(level, format_args!("{failure}"));
}
