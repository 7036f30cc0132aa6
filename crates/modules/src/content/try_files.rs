//! `try_files`: the first of several files or directories that is there answers, or else another path,
//! a named location or a status. All are looked for on the loop, or where that might wait on a pool in one
//! hop.

use clearway_base::log::Level as LogLevel;
use clearway_base::log::{Verbatim, bytes_of};
use clearway_base::units;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::uri::split_args;
use clearway_http::{
    Answer, ConfKey, Cost, Exchange, Level, Load, Module, Own, Phase, PhaseHandler, Redirect, Request,
    RootKind, Step, Value, context, paths,
};
use clearway_offload::At;
use clearway_offload::file::Kind;
use clearway_offload::files::Attempt;
use clearway_os::stat::Stat;

use crate::content::files::{ABSENT, Failure, is_any, log_failure, on_pool_at, to_path};
use crate::content::lookup::Failed;
use crate::content::names::Names;

/// The module.
pub static TRY_FILES: Module = Module {
    name: "try_files",
    directives: DIRECTIVES,
    confs: &[&TRY_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

const SERVER_LOCATION: Contexts = context::SERVER.or(context::LOCATION);

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "try_files",
    contexts: SERVER_LOCATION,
    args: Args::TWO_MORE,
    syntax: "try_files FILE … URI\ntry_files FILE … =CODE",
    default: "",
    doc: "Takes the first file that is there (a directory where the name ends in a slash) in place of the \
          path. If none is, the last argument answers: a path, a named location (`@NAME`) or a status \
          (`=CODE`); below 300, only 201 and 204 give a response, as in nginx. May have variables.",
    example: "
        location / {
            try_files $uri $uri/ /index.html;
        }

        location /images/ {
            try_files $uri =404;
        }",
    see: &["root", "index", "error_page"],
    handler: read_try_files,
}];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::PreContent,
    cost: Cost::Cheap,
    enabled: |enabling| enabling.confs.of(&TRY_CONF).is_some(),
    handler,
}];

static TRY_CONF: ConfKey<Own<Option<Tries>>> = ConfKey::new(Level::Location);

struct Tries {
    files: Vec<Try>,
    last: Last,
}

struct Try {
    name: Value,
    kind: Wanted,
}

/// The kind of object that a name has to lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    File,
    Directory,
}

enum Last {
    Code(u16),
    Path(Value),
}

fn read_try_files(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.location(&TRY_CONF).is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let (last, names) = directive.args.split_last().expect("the table asks for two arguments");
    let mut files = Vec::new();
    for name in names {
        let (name, kind) = match name.strip_suffix(b"/") {
            Some(directory) => (name.slice_ref(directory), Wanted::Directory),
            None => (name.clone(), Wanted::File),
        };
        files.push(Try { name: scope.conf.variables.compile(&name, &directive.pos)?, kind });
    }
    let code = match last.strip_prefix(b"=") {
        Some(digits) => {
            let code = units::parse_number(digits).filter(|&code| code <= 999);
            let text = Verbatim(last);
            code.ok_or_else(|| directive.error(bytes_of(&format!("invalid code \"{text}\""))))? as u16
        }
        None => 0,
    };
    // A code of 0 is none, in nginx too: `=0` is a path.
    let last = match code {
        0 => Last::Path(scope.conf.variables.compile(last, &directive.pos)?),
        code => Last::Code(code),
    };
    **scope.conf.location(&TRY_CONF) = Some(Tries { files, last });
    Ok(())
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some(tries) = &**exchange.request.conf(&TRY_CONF) else { return Step::Declined };
    let view = exchange.view();
    let root = paths::document_root(&view);
    let candidates = tries.files.iter().map(|file| {
        let name = relative_name(exchange.request, file.name.eval(&view).into_owned(), &file.name);
        let path = [&root[..], &name].concat();
        Candidate { lookup: Names::of(&view, &path), path, name, wanted: file.kind }
    });
    let candidates: Vec<_> = candidates.collect();
    let last = match &tries.last {
        Last::Code(code) => Answer::Status(*code),
        Last::Path(path) => redirect(relative_name(exchange.request, path.eval(&view).into_owned(), path)),
    };
    match look(&candidates, |candidate| candidate.lookup.stat(&candidate.path)) {
        Attempt::Done(looked) => act(exchange.request, &candidates, looked, last),
        Attempt::Cold => Step::Wait(Box::pin(search(exchange, candidates, last))),
    }
}

/// Under `alias`, a name made of the path of the request loses the name of the location.
fn relative_name(request: &Request<'_>, name: Vec<u8>, value: &Value) -> Vec<u8> {
    match request.location().root().kind {
        RootKind::Alias(len) if value.as_literal().is_none() && name.starts_with(prefix(request, len)) => {
            name[len..].to_vec()
        }
        _ => name,
    }
}

fn prefix<'a>(request: &'a Request<'_>, len: usize) -> &'a [u8] {
    &request.path()[..len.min(request.path().len())]
}

fn redirect(target: Vec<u8>) -> Answer {
    if target.starts_with(b"@") {
        return Answer::Named(target.into());
    }
    let (path, args) = split_args(&target);
    Answer::Redirect(Box::new(Redirect { path: path.to_vec(), args: Some(args.to_vec()) }))
}

struct Candidate {
    /// The text in place of the path.
    name: Vec<u8>,
    /// The path that is looked for.
    path: Vec<u8>,
    lookup: Names,
    wanted: Wanted,
}

/// The candidate that is there, and what could not be looked at before it.
struct Looked {
    found: Option<(usize, Stat)>,
    failures: Vec<(usize, Failed)>,
}

async fn search(exchange: Exchange<'_, '_>, candidates: Vec<Candidate>, last: Answer) -> Step<'static> {
    let at = At::any_of(candidates.iter().map(|one| to_path(&one.path)));
    let job = move |blocking: &_| {
        let stat = |one: &Candidate| Attempt::Done(one.lookup.stat_blocking(blocking, &one.path));
        (look(&candidates, stat), candidates)
    };
    match on_pool_at(exchange.request, at, job).await {
        Ok((Attempt::Done(looked), candidates)) => act(exchange.request, &candidates, looked, last),
        Ok((Attempt::Cold, _)) => unreachable!("a pool thread waits"),
        Err(status) => Step::status(status),
    }
}

fn act(request: &mut Request<'_>, candidates: &[Candidate], looked: Looked, last: Answer) -> Step<'static> {
    for (at, Failed { call, error }) in &looked.failures {
        let failure = Failure { call, path: &candidates[*at].path, error };
        log_failure(request, LogLevel::Crit, failure);
    }
    let Some((found, stat)) = looked.found else { return Step::Respond(last) };
    let Candidate { name, path, lookup, wanted } = &candidates[found];
    if *wanted == Wanted::File {
        lookup.tell(request, path.clone(), stat);
    }
    match request.location().root().kind {
        RootKind::Root => request.set_path(name.clone()),
        RootKind::Alias(len) => request.set_path([prefix(request, len), name].concat()),
        RootKind::AliasWhole if *wanted == Wanted::File => request.set_path_in_alias(name.clone()),
        RootKind::AliasWhole => {}
    }
    Step::Declined
}

fn look(
    candidates: &[Candidate],
    mut stat: impl FnMut(&Candidate) -> Attempt<Result<Stat, Failed>>,
) -> Attempt<Looked> {
    let mut looked = Looked { found: None, failures: Vec::new() };
    for (at, candidate) in candidates.iter().enumerate() {
        match stat(candidate) {
            Attempt::Cold => return Attempt::Cold,
            Attempt::Done(Ok(stat)) => {
                let is_directory = Kind::of_mode(stat.mode) == Kind::Directory;
                if is_directory == (candidate.wanted == Wanted::Directory) {
                    looked.found = Some((at, stat));
                    break;
                }
            }
            Attempt::Done(Err(failed)) if is_any(&failed.error, &ABSENT) => {}
            Attempt::Done(Err(failed)) => looked.failures.push((at, failed)),
        }
    }
    Attempt::Done(looked)
}
