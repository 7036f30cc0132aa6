//! `index`: which file answers for a directory. The candidates are looked for on the pool in one hop;
//! the first one that is there is reached by an internal redirect, as its location may be another one.

use std::io;

use clearway_base::Errno;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_h1::Method;
use clearway_http::{
    Answer, Conf, ConfKey, Cost, Exchange, Level, Load, Lossy, Module, Phase, PhaseHandler, Redirect,
    Request, Setting, Step, Value, context, paths,
};
use clearway_offload::{Blocking, file};
use rustix::io::Errno as Code;

use crate::files::{Failure, is_any, log_failure, on_pool, to_path};

/// The module.
pub static INDEX: Module =
    Module { name: "index", directives: DIRECTIVES, confs: &[&INDEX_CONF], phases: PHASES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "index",
    contexts: context::ALL,
    args: Args::ONE_MORE,
    syntax: "index FILE …",
    default: "index index.html;",
    doc: "The file that answers for a path that ends in a slash: the first of these that is in the \
          directory. The last one may be an absolute path. May have variables.",
    handler: read_index,
}];

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::Content, cost: Cost::Cheap, enabled: |_| true, handler }];

static INDEX_CONF: ConfKey<IndexConf> = ConfKey::new(Level::Location);

struct IndexConf {
    names: Setting<Vec<Value>>,
}

impl Default for IndexConf {
    fn default() -> Self {
        Self { names: Setting::new(vec![Value::literal(bytes::Bytes::from_static(b"index.html"))]) }
    }
}

impl Conf for IndexConf {
    fn merge(&mut self, parent: &Self) {
        self.names.merge(&parent.names);
    }
}

fn read_index(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for (at, name) in directive.args.iter().enumerate() {
        if name.starts_with(b"/") && at + 1 < directive.args.len() {
            let message = "only the last index in \"index\" directive should be absolute";
            scope.warn(directive.error(message));
        }
        if name.is_empty() {
            return Err(directive.error("index \"\" in \"index\" directive is invalid"));
        }
        let name = scope.conf.variables.compile(name, &directive.pos)?;
        scope.conf.location(&INDEX_CONF).names.here().push(name);
    }
    Ok(())
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let request = &exchange.request;
    if !request.path().ends_with(b"/")
        || !matches!(request.method(), Method::Get | Method::Head | Method::Post)
    {
        return Step::Declined;
    }
    let view = exchange.view();
    let names = request.conf(&INDEX_CONF).names.iter().map(|name| name.eval(&view).into_owned());
    let mut candidates = Candidates { directory: paths::file_path(&view), names: Vec::new(), last: None };
    for name in names {
        if name.starts_with(b"/") {
            candidates.last = Some(name);
            break;
        }
        candidates.names.push(name);
    }
    if candidates.names.is_empty() {
        return candidates.finish(request);
    }
    Step::Wait(Box::pin(search(exchange, candidates)))
}

/// What may answer for a directory.
struct Candidates {
    /// Ends in a slash as a rule.
    directory: Vec<u8>,
    /// Relative to it.
    names: Vec<Vec<u8>>,
    /// Absolute path that is redirected to unseen.
    last: Option<Vec<u8>>,
}

impl Candidates {
    fn file(&self, at: usize) -> Vec<u8> {
        [&self.directory[..], &self.names[at]].concat()
    }

    /// None of the names is there.
    fn finish(self, request: &Request<'_>) -> Step<'static> {
        self.last.map_or(Step::Declined, |path| redirect(request, path))
    }
}

/// What looking for the candidates came to.
enum Outcome {
    Found(usize),
    None,
    /// The candidate with this number could not be looked at.
    Failed(usize, io::Error),
    /// There is no such directory.
    NoDirectory(usize, io::Error),
    NotADirectory,
    DirectoryFailed(io::Error),
}

async fn search(exchange: Exchange<'_, '_>, candidates: Candidates) -> Step<'static> {
    let request = exchange.request;
    let looked = on_pool(request, move |blocking| (candidates.look(blocking), candidates)).await;
    let (outcome, candidates) = match looked {
        Ok(looked) => looked,
        Err(status) => return Step::status(status),
    };
    match outcome {
        Outcome::None => candidates.finish(request),
        Outcome::Found(at) => {
            let path = [request.path(), &candidates.names[at]].concat();
            redirect(request, path)
        }
        Outcome::Failed(at, error) => Step::status(refuse(request, &candidates.file(at), &error)),
        Outcome::NoDirectory(at, error) => Step::status(refuse(request, &candidates.file(at), &error)),
        Outcome::NotADirectory => {
            let message = format_args!("\"{}\" is not a directory", Lossy(&candidates.directory));
            request.log(LogLevel::Alert, message);
            Step::status(500)
        }
        Outcome::DirectoryFailed(error) => {
            let failure = Failure { call: "open()", path: &candidates.directory, error: &error };
            log_failure(request, LogLevel::Crit, failure);
            Step::status(500)
        }
    }
}

fn redirect(request: &Request<'_>, path: Vec<u8>) -> Step<'static> {
    let args = request.args().to_vec();
    Step::Respond(Answer::Redirect(Box::new(Redirect { path, args })))
}

impl Candidates {
    fn look(&self, blocking: &Blocking) -> Outcome {
        for at in 0..self.names.len() {
            let error = match file::metadata(blocking, &to_path(&self.file(at))) {
                Ok(_) => return Outcome::Found(at),
                Err(error) => error,
            };
            if !is_any(&error, &[Code::NOENT]) {
                return Outcome::Failed(at, error);
            }
            if at == 0
                && let Some(problem) = self.look_at_directory(blocking)
            {
                return problem;
            }
        }
        Outcome::None
    }

    /// Why the first name was not there, if it is the directory's fault.
    fn look_at_directory(&self, blocking: &Blocking) -> Option<Outcome> {
        match file::metadata(blocking, &to_path(&self.directory)) {
            Ok(metadata) if metadata.is_dir() => None,
            Ok(_) => Some(Outcome::NotADirectory),
            Err(error) if is_any(&error, &[Code::NOENT]) => Some(Outcome::NoDirectory(0, error)),
            // Names in it could be looked up, so that it is there.
            Err(error) if is_any(&error, &[Code::ACCESS]) => None,
            Err(error) => Some(Outcome::DirectoryFailed(error)),
        }
    }
}

/// Logs a candidate that could not be looked at, and says with which status to answer.
fn refuse(request: &Request<'_>, path: &[u8], error: &io::Error) -> u16 {
    if is_any(error, &[Code::MLINK, Code::LOOP]) {
        return 403;
    }
    let (path_shown, errno) = (Lossy(path), Errno(error));
    if is_any(error, &[Code::ACCESS]) {
        request.log(LogLevel::Error, format_args!("\"{path_shown}\" is forbidden {errno}"));
        return 403;
    }
    if is_any(error, &[Code::NOENT, Code::NOTDIR, Code::NAMETOOLONG]) {
        request.log_not_found(format_args!("\"{path_shown}\" is not found {errno}"));
        return 404;
    }
    log_failure(request, LogLevel::Crit, Failure { call: "stat()", path, error });
    500
}
