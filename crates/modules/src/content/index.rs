//! `index`: which file answers for a directory. The candidates are looked for on the loop, or where that
//! might wait on a pool in one hop; the first one that is there is reached by an internal redirect, as its
//! location may be another one.

use std::io;

use clearway_base::Errno;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Answer, ConfKey, Cost, Exchange, Level, Load, Module, Phase, PhaseHandler, Redirect, Request, Setting,
    Step, Value, Verbatim, View, context, paths, settings,
};
use clearway_message::Method;
use clearway_offload::file::Kind;
use clearway_offload::files::Attempt;
use clearway_os::stat::Stat;
use rustix::io::Errno as Code;

use crate::content::files::{Failure, is_any, log_failure, on_pool};
use crate::content::lookup::Failed;
use crate::content::names::Names;

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
    example: "
        location / {
            index index.$host.html index.html;
        }",
    see: &["autoindex", "random_index", "try_files"],
    handler: read_index,
}];

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::Content, cost: Cost::Cheap, enabled: |_| true, handler }];

static INDEX_CONF: ConfKey<IndexConf> = ConfKey::new(Level::Location);

settings! {
    struct IndexConf {
        names: Setting<Vec<Value>> = vec![Value::literal(bytes::Bytes::from_static(b"index.html"))],
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
    let lookups = candidates.lookups(&view);
    match candidates.look(|lookup, path| lookup.stat(path), &lookups) {
        Attempt::Done(outcome) => candidates.act(exchange.request, &lookups, outcome),
        Attempt::Cold => Step::Wait(Box::pin(search(exchange, candidates, lookups))),
    }
}

/// The files that may answer for a directory.
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

/// How the names are looked up, and at last the directory.
type Lookups = Vec<Names>;

/// The result of looking for the candidates.
enum LookupOutcome {
    Found(usize, Stat),
    None,
    /// The candidate with this number could not be looked at.
    Failed(usize, Failed),
    /// There is no such directory.
    NoDirectory(io::Error),
    NotADirectory,
    DirectoryFailed(Failed),
}

async fn search(exchange: Exchange<'_, '_>, candidates: Candidates, lookups: Lookups) -> Step<'static> {
    let directory = candidates.directory.clone();
    let job = move |blocking: &_| {
        let look = |lookup: &Names, path: &[u8]| Attempt::Done(lookup.stat_blocking(blocking, path));
        (candidates.look(look, &lookups), candidates, lookups)
    };
    match on_pool(exchange.request, &directory, job).await {
        Ok((Attempt::Done(outcome), candidates, lookups)) => {
            candidates.act(exchange.request, &lookups, outcome)
        }
        Ok((Attempt::Cold, ..)) => unreachable!("a pool thread waits"),
        Err(status) => Step::status(status),
    }
}

fn redirect(request: &Request<'_>, path: Vec<u8>) -> Step<'static> {
    let args = request.args_found().map(<[u8]>::to_vec);
    Step::Respond(Answer::Redirect(Box::new(Redirect { path, args })))
}

/// Returns a result, or does the same again on a pool.
macro_rules! done {
    ($attempt:expr) => {
        match $attempt {
            Attempt::Done(result) => result,
            Attempt::Cold => return Attempt::Cold,
        }
    };
}

impl Candidates {
    fn lookups(&self, view: &View<'_, '_>) -> Lookups {
        let names = (0..self.names.len()).map(|at| Names::of(view, &self.file(at)));
        names.chain([Names::of(view, self.directory_name())]).collect()
    }

    /// Without the slash at its end, but for the root.
    fn directory_name(&self) -> &[u8] {
        match self.directory.strip_suffix(b"/") {
            Some(name) if !name.is_empty() => name,
            _ => &self.directory,
        }
    }

    fn look(
        &self,
        mut stat: impl FnMut(&Names, &[u8]) -> Attempt<Result<Stat, Failed>>,
        lookups: &Lookups,
    ) -> Attempt<LookupOutcome> {
        let mut directory_seen = false;
        for at in 0..self.names.len() {
            let failed = match done!(stat(&lookups[at], &self.file(at))) {
                Ok(stat) => return Attempt::Done(LookupOutcome::Found(at, stat)),
                Err(failed) => failed,
            };
            if is_any(&failed.error, DIRECT_ANSWERS) {
                return Attempt::Done(LookupOutcome::Failed(at, failed));
            }
            if !std::mem::replace(&mut directory_seen, true) {
                let found = done!(stat(&lookups[self.names.len()], self.directory_name()));
                if let Some(problem) = judge_directory(found) {
                    return Attempt::Done(problem);
                }
            }
            if !is_any(&failed.error, &[Code::NOENT]) {
                return Attempt::Done(LookupOutcome::Failed(at, failed));
            }
        }
        Attempt::Done(LookupOutcome::None)
    }

    fn act(self, request: &mut Request<'_>, lookups: &Lookups, outcome: LookupOutcome) -> Step<'static> {
        match outcome {
            LookupOutcome::None => self.finish(request),
            LookupOutcome::Found(at, stat) => {
                lookups[at].tell(request, self.file(at), stat);
                let path = [request.path(), &self.names[at]].concat();
                redirect(request, path)
            }
            LookupOutcome::Failed(at, Failed { call, error }) => {
                Step::status(refuse(request, call, &self.file(at), &error))
            }
            LookupOutcome::NoDirectory(error) => Step::status(refuse(request, "", &self.file(0), &error)),
            LookupOutcome::NotADirectory => {
                let message = format_args!("\"{}\" is not a directory", Verbatim(self.directory_name()));
                request.log(LogLevel::Alert, message);
                Step::status(500)
            }
            LookupOutcome::DirectoryFailed(Failed { call, error }) if is_any(&error, LINKS) => {
                Step::status(refuse(request, call, self.directory_name(), &error))
            }
            LookupOutcome::DirectoryFailed(Failed { call, error }) => {
                let failure = Failure { call, path: self.directory_name(), error: &error };
                log_failure(request, LogLevel::Crit, failure);
                Step::status(500)
            }
        }
    }
}

/// Links where there may be none.
const LINKS: &[Code] = &[Code::MLINK, Code::LOOP];
/// Errors of a candidate that are answered without a look at its directory.
const DIRECT_ANSWERS: &[Code] = &[Code::MLINK, Code::LOOP, Code::NOTDIR, Code::NAMETOOLONG, Code::ACCESS];

/// Why the first name was not there, if it is the directory's fault.
fn judge_directory(found: Result<Stat, Failed>) -> Option<LookupOutcome> {
    match found {
        Ok(stat) if Kind::of_mode(stat.mode) == Kind::Directory => None,
        Ok(_) => Some(LookupOutcome::NotADirectory),
        Err(Failed { error, .. }) if is_any(&error, &[Code::NOENT]) => {
            Some(LookupOutcome::NoDirectory(error))
        }
        // Names in it could be looked up, so that it is there.
        Err(Failed { error, .. }) if is_any(&error, &[Code::ACCESS]) => None,
        Err(failed) => Some(LookupOutcome::DirectoryFailed(failed)),
    }
}

/// Logs a candidate that could not be looked at, and says with which status to answer.
fn refuse(request: &Request<'_>, call: &str, path: &[u8], error: &io::Error) -> u16 {
    if is_any(error, LINKS) {
        return 403;
    }
    let (path_shown, errno) = (Verbatim(path), Errno(error));
    if is_any(error, &[Code::ACCESS]) {
        request.log(LogLevel::Error, format_args!("\"{path_shown}\" is forbidden {errno}"));
        return 403;
    }
    if is_any(error, &[Code::NOENT, Code::NOTDIR, Code::NAMETOOLONG]) {
        request.log_not_found(format_args!("\"{path_shown}\" is not found {errno}"));
        return 404;
    }
    log_failure(request, LogLevel::Crit, Failure { call, path, error });
    500
}
