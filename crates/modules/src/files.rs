//! What modules that look at files share: the pool that does it, and what its errors mean to a client.
//! Every call on a file runs on a thread of the pool, never on a loop.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_base::Errno;
use clearway_base::log::Level as LogLevel;
use clearway_conf::Error;
use clearway_http::{Conf, ConfKey, Level, Load, Lossy, Module, Request};
use clearway_offload::{Blocking, Pool};
use rustix::io::Errno as Code;

/// Gives the other modules the pool that the environment has among its services, as `Arc<Pool>`.
pub static FILES: Module =
    Module { name: "files", confs: &[&FILES_CONF], finish: Some(find_pool), ..Module::EMPTY };

static FILES_CONF: ConfKey<FilesConf> = ConfKey::new(Level::Main);

#[derive(Default)]
struct FilesConf {
    pool: Option<Arc<Pool>>,
}

impl Conf for FilesConf {
    fn merge(&mut self, _: &Self) {}
}

fn find_pool(load: &mut Load) -> Result<(), Error> {
    let pool = load.environment().services.find::<Arc<Pool>>().cloned();
    load.main(&FILES_CONF).pool = pool;
    Ok(())
}

/// Runs a job that may block on the pool.
///
/// # Errors
/// The answer to give: the job was not taken, or it panicked.
pub(crate) async fn on_pool<T: Send + 'static>(
    request: &Request<'_>,
    job: impl FnOnce(&Blocking) -> T + Send + 'static,
) -> Result<T, u16> {
    let Some(pool) = &request.main_conf(&FILES_CONF).pool else {
        request.log(LogLevel::Alert, format_args!("no thread pool for files"));
        return Err(500);
    };
    // An overflow is logged by the pool.
    pool.submit(job).await.map_err(|_| 500)
}

/// The bytes of a path as a path.
pub(crate) fn to_path(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}

/// Whether the system says with one of these codes why it failed.
pub(crate) fn is_any(error: &io::Error, codes: &[Code]) -> bool {
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

/// Nothing is there under that name.
pub(crate) const ABSENT: [Code; 3] = [Code::NOENT, Code::NOTDIR, Code::NAMETOOLONG];
/// It is there, but not for us.
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
        write!(f, "{} \"{}\" failed {}", self.call, Lossy(self.path), Errno(self.error))
    }
}

pub(crate) fn log_failure(request: &Request<'_>, level: LogLevel, failure: Failure<'_>) {
    request.log(level, format_args!("{failure}"));
}
