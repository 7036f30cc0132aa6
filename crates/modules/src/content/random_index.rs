//! `random_index`: for a directory, one of its files, another one each time. The directory is read on the
//! pool; of its names one is kept at any time.

use std::ffi::CStr;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;

use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_http::{
    Answer, ConfKey, Cost, Exchange, Level, Load, Module, Phase, PhaseHandler, Redirect, Request, Setting,
    Step, context, paths, set,
};
use clearway_message::Method;
use clearway_offload::Blocking;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno as Code;

use crate::content::files::{ABSENT, Failure, is_any, log_failure, on_pool, to_path};

/// The module. It comes before `index`.
pub static RANDOM_INDEX: Module = Module {
    name: "random index",
    directives: DIRECTIVES,
    confs: &[&RANDOM_INDEX_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "random_index",
    contexts: context::LOCATION,
    args: Args::FLAG,
    syntax: "random_index on | off",
    default: "random_index off;",
    doc: "Whether a path that ends in a slash is answered with one of the files in its directory, whichever. \
          Files whose names begin with a dot are not among them.",
    example: "
        location /banners/ {
            random_index on;
        }",
    see: &["index", "autoindex"],
    handler: |scope, directive| set(directive, scope.conf.location(&RANDOM_INDEX_CONF), |d| d.flag(0)),
}];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| **enabling.confs.of(&RANDOM_INDEX_CONF),
    handler,
}];

static RANDOM_INDEX_CONF: ConfKey<Setting<bool>> = ConfKey::new(Level::Location);

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let request = &exchange.request;
    let is_asked = matches!(request.method(), Method::Get | Method::Head | Method::Post);
    if !request.path().ends_with(b"/") || !is_asked {
        return Step::Declined;
    }
    let mut path = paths::file_path(&exchange.view());
    path.pop();
    Step::Wait(Box::pin(choose(exchange.request, path)))
}

/// A call that failed.
struct Problem {
    call: &'static str,
    path: Vec<u8>,
    error: io::Error,
}

async fn choose(request: &Request<'_>, path: Vec<u8>) -> Step<'static> {
    let directory = path.clone();
    match on_pool(request, &path, move |blocking| choose_from(blocking, &directory)).await {
        Ok(Ok(Some(name))) => {
            let path = [request.path(), &name].concat();
            let args = request.args_found().map(<[u8]>::to_vec);
            Step::Respond(Answer::Redirect(Box::new(Redirect { path, args })))
        }
        Ok(Ok(None)) => Step::Declined,
        Ok(Err(problem)) => Step::status(refuse(request, &problem)),
        Err(status) => Step::status(status),
    }
}

/// One of the files in a directory, each as likely as the others.
fn choose_from(_: &Blocking, path: &[u8]) -> Result<Option<Vec<u8>>, Problem> {
    let fail = |call, path: &[u8], error: Code| Problem { call, path: path.to_vec(), error: error.into() };
    let mut directory = open(&to_path(path)).map_err(|error| fail("opendir()", path, error))?;
    let (mut chosen, mut count) = (None, 0_u64);
    let random = RandomState::new();
    while let Some(entry) = directory.read() {
        let entry = entry.map_err(|error| fail("readdir()", path, error))?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        let is_file = is_file(&directory, name, entry.file_type());
        let is_file =
            is_file.map_err(|(call, error)| fail(call, &[path, b"/", name.to_bytes()].concat(), error))?;
        if is_file {
            // The last of so many takes the place with their probability.
            count += 1;
            if random.hash_one(count) % count == 0 {
                chosen = Some(name.to_bytes().to_vec());
            }
        }
    }
    Ok(chosen)
}

fn open(path: &Path) -> Result<Dir, Code> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty()).and_then(Dir::new)
}

/// Whether an entry is a file, or a link to one.
fn is_file(directory: &Dir, name: &CStr, kind: FileType) -> Result<bool, (&'static str, Code)> {
    if !matches!(kind, FileType::Unknown | FileType::Symlink) {
        return Ok(kind == FileType::RegularFile);
    }
    let fd = directory.fd().map_err(|error| ("stat()", error))?;
    let stat = match rustix::fs::statat(fd, name, AtFlags::empty()) {
        // A link that leads nowhere is not chosen; an entry that is gone is an error as in nginx.
        Err(Code::NOENT) => {
            rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| ("lstat()", error))?
        }
        looked => looked.map_err(|error| ("stat()", error))?,
    };
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Logs why there is nothing to choose from, and says with which status to answer.
fn refuse(request: &Request<'_>, problem: &Problem) -> u16 {
    let Problem { call, path, error } = problem;
    let is_opening = *call == "opendir()";
    let (level, status) = if is_opening && is_any(error, &ABSENT) {
        (LogLevel::Error, 404)
    } else if is_opening && is_any(error, &[Code::ACCESS]) {
        (LogLevel::Error, 403)
    } else {
        (LogLevel::Crit, 500)
    };
    log_failure(request, level, Failure { call, path, error });
    status
}
