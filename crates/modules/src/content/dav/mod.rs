//! `dav_methods` and its family: files are put, removed, copied and moved by requests. What a request wants
//! is found out on the loop, what is done with files all on the pool, and the lines that this is worth to the
//! log are written when the job is done.

mod destination;
#[cfg(fuzzing)]
pub mod fuzzing;
mod transfer;
mod tree;

use std::sync::Arc;

use clearway_base::date::parse_http_date;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::uri::{self, Escape};
use clearway_http::{
    Chunk, ConfKey, Cost, Enabling, Exchange, Level, Load, Mark, Module, Phase, PhaseHandler, Request,
    Setting, Step, Store, StoredBody, Verbatim, context, file_access, paths, set, settings,
};
use clearway_message::{Known, Method};
use clearway_offload::Blocking;
use clearway_offload::moving::{self, Failed, Journal, PathRights, Written, directory_mode};
use rustix::io::Errno as Code;

use crate::content::files::{change_on_pool, to_path};
use tree::Refusals;

/// The module. It comes behind the lists of directories and before files.
pub static DAV: Module =
    Module { name: "dav", directives: DIRECTIVES, confs: &[&DAV_CONF], phases: PHASES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "dav_methods",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "dav_methods off | PUT | DELETE | MKCOL | COPY | MOVE …",
        default: "dav_methods off;",
        doc: "The methods of WebDAV that change files. A file that is put is written to the place of request \
              bodies first (`client_body_temp_path`), and moved when it is complete.",
        example: EXAMPLE_OF_FILES,
        see: &[
            "create_full_put_path",
            "dav_access",
            "min_delete_depth",
            "client_max_body_size",
            "limit_except",
        ],
        handler: read_methods,
    },
    Spec {
        name: "create_full_put_path",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "create_full_put_path on | off",
        default: "create_full_put_path off;",
        doc: "Whether PUT makes directories that are not there.",
        example: EXAMPLE_OF_FILES,
        see: &["dav_methods", "dav_access", "min_delete_depth", "client_max_body_size", "limit_except"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).full_path, |d| {
                d.flag(0).map(|is_made| if is_made { FullPath::Made } else { FullPath::Expected })
            })
        },
    },
    Spec {
        name: "min_delete_depth",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "min_delete_depth NUMBER",
        default: "min_delete_depth 0;",
        doc: "How many segments a path must have at least to be removed.",
        example: EXAMPLE_OF_FILES,
        see: &["dav_methods", "create_full_put_path", "dav_access", "client_max_body_size", "limit_except"],
        handler: |scope, directive| set(directive, &mut conf(scope).min_delete_depth, |d| d.number(0)),
    },
    Spec {
        name: "dav_access",
        contexts: context::ALL,
        args: Args::TAKE123,
        syntax: "dav_access user:RIGHTS | group:RIGHTS | all:RIGHTS …",
        default: "dav_access user:rw;",
        doc: "The access rights of new files, and of directories with those to search: `r` or `rw` for each.",
        example: EXAMPLE_OF_FILES,
        see: &[
            "dav_methods",
            "create_full_put_path",
            "min_delete_depth",
            "client_max_body_size",
            "limit_except",
        ],
        handler: |scope, directive| set(directive, &mut conf(scope).access, file_access),
    },
];

/// The example of `dav_methods`, `create_full_put_path`, `min_delete_depth` and `dav_access`.
const EXAMPLE_OF_FILES: &str = "
    location /files/ {
        root /data;
        client_max_body_size 1g;

        dav_methods PUT DELETE MKCOL COPY MOVE;
        create_full_put_path on;
        dav_access user:rw group:r;
        # /files/user may not be removed, what is in it may.
        min_delete_depth 3;

        limit_except GET {
            allow 192.0.2.0/24;
            deny all;
        }
    }";

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::Content, cost: Cost::Cheap, enabled, handler }];

static DAV_CONF: ConfKey<DavConf> = ConfKey::new(Level::Location);

settings! {
    struct DavConf {
        methods: Setting<Methods>,
        full_path: Setting<FullPath> = FullPath::Expected,
        min_delete_depth: Setting<u64> = 0,
        access: Setting<u32> = 0o600,
    }
}

/// Whether PUT makes the directories above a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FullPath {
    Made,
    Expected,
}

/// A set of methods. `off` is one of them, so that it is more than nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Methods(u8);

impl Methods {
    const NONE: Self = Self(0);
    const WORDS: [(&str, Self); 6] = [
        ("off", Self(1)),
        ("put", Self(2)),
        ("delete", Self(4)),
        ("mkcol", Self(8)),
        ("copy", Self(16)),
        ("move", Self(32)),
    ];

    /// The set with nothing but a method; empty for those of others.
    fn of(method: Method) -> Self {
        match method {
            Method::Put => Self(2),
            Method::Delete => Self(4),
            Method::Mkcol => Self(8),
            Method::Copy => Self(16),
            Method::Move => Self(32),
            _ => Self::NONE,
        }
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut DavConf {
    scope.conf.location(&DAV_CONF)
}

fn read_methods(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for (at, word) in directive.args.iter().enumerate() {
        let method = directive.choice(at, &Methods::WORDS)?;
        let methods = *conf(scope).methods.here();
        if methods.meets(method) {
            let message = clearway_conf::error::message(&[&"duplicate value \"", word, &"\""]);
            scope.warn(directive.error(message));
        }
        conf(scope).methods.set(Methods(methods.0 | method.0));
    }
    Ok(())
}

fn enabled(enabling: &Enabling<'_>) -> bool {
    let methods = *enabling.confs.of(&DAV_CONF).methods;
    Methods::WORDS[1..].iter().any(|(_, method)| methods.meets(*method))
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let (request, method) = (&exchange.request, exchange.request.method());
    if !request.conf(&DAV_CONF).methods.meets(Methods::of(method)) {
        return Step::Declined;
    }
    let step = match method {
        Method::Put => begin_put(request),
        Method::Delete => begin_delete(&exchange),
        Method::Mkcol => begin_mkcol(&exchange),
        _ => transfer::begin(&exchange),
    };
    match step {
        Ok(Work::Put) => Step::Wait(Box::pin(put(exchange))),
        Ok(Work::Job(job)) => Step::Wait(Box::pin(run(exchange, job))),
        Err(status) => Step::status(status),
    }
}

/// The work for a request.
enum Work {
    /// A body is to be read first.
    Put,
    Job(Job),
}

/// A job for a thread of the pool; the result is a status.
type Job = Box<dyn FnOnce(&Blocking, &mut Journal) -> u16 + Send>;

/// Logs why a request is refused.
fn refuse(request: &Request<'_>, status: u16, message: std::fmt::Arguments<'_>) -> u16 {
    request.log(LogLevel::Error, message);
    status
}

/// Refuses a body.
fn expect_no_body(exchange: &Exchange<'_, '_>, what: &str) -> Result<(), u16> {
    if exchange.body.is_announced() {
        return Err(refuse(exchange.request, 415, format_args!("{what} unsupported")));
    }
    Ok(())
}

/// Does work on the pool and answers with the status that it comes to.
async fn run(mut exchange: Exchange<'_, '_>, job: Job) -> Step<'static> {
    let path = paths::file_path(&exchange.view());
    let done = change_on_pool(exchange.request, &path, move |blocking| {
        let mut journal = Journal::default();
        (job(blocking, &mut journal), journal)
    });
    let (status, journal) = match done.await {
        Ok(done) => done,
        Err(status) => return Step::status(status),
    };
    exchange.request.log_journal(&journal);
    if status == 201 && exchange.request.method() == Method::Mkcol {
        set_location(&mut exchange);
    }
    Step::status(status)
}

/// Says where what was made is.
fn set_location(exchange: &mut Exchange<'_, '_>) {
    let location = uri::escape_uri(exchange.request.path(), Escape::Uri).into_owned();
    exchange.output.head().location = Some(location.into());
}

fn begin_put(request: &Request<'_>) -> Result<Work, u16> {
    if request.path().ends_with(b"/") {
        return Err(refuse(request, 409, format_args!("cannot PUT to a collection")));
    }
    if request.header(Known::ContentRange).is_some() {
        return Err(refuse(request, 501, format_args!("PUT with range is unsupported")));
    }
    Ok(Work::Put)
}

async fn put(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let stored = match exchange.read_body(Store::InFile).await {
        Ok(stored) => stored,
        Err(answer) => return Step::Respond(answer),
    };
    let request = &*exchange.request;
    let Some(stored) = stored.filter(|body| body.file().is_some()) else {
        let problem = if exchange.body.is_dropped() { "is unavailable" } else { "must be in a file" };
        return Step::status(refuse(request, 500, format_args!("PUT request body {problem}")));
    };
    let name = paths::file_path(&exchange.view());
    let path = to_path(&name);
    let conf = request.conf(&DAV_CONF);
    let (access, full_path) = (*conf.access, *conf.full_path);
    let modified = request.header(Known::Date).and_then(parse_http_date);
    let placed = change_on_pool(request, &name, move |blocking| {
        let mut journal = Journal::default();
        let putting = Putting { stored: &stored, access, full_path, modified };
        (putting.place(blocking, &path, &mut journal), journal)
    });
    let (status, journal) = match placed.await {
        Ok(placed) => placed,
        Err(status) => return Step::status(status),
    };
    request.log_journal(&journal);
    if !matches!(status, 201 | 204) {
        return Step::status(status);
    }
    if status == 201 {
        set_location(&mut exchange);
        exchange.output.head().content_length = Some(0);
    }
    exchange.output.head().status = status;
    let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Last);
    Step::Done
}

/// A body that is to become a file.
struct Putting<'a> {
    stored: &'a Arc<StoredBody>,
    access: u32,
    full_path: FullPath,
    /// `Date` of the request, seconds since the epoch.
    modified: Option<i64>,
}

impl Putting<'_> {
    fn place(&self, blocking: &Blocking, path: &std::path::Path, journal: &mut Journal) -> u16 {
        let status = match tree::is_directory(blocking, path) {
            None => 201,
            Some(false) => 204,
            Some(true) => {
                journal.could_not_be_created(path, Code::ISDIR);
                return 409;
            }
        };
        let file = self.stored.file().expect("it was stored in a file");
        let open = file.file().expect("nobody else gives it away");
        let rights = PathRights {
            directories: match self.full_path {
                FullPath::Made => Some(directory_mode(self.access)),
                FullPath::Expected => None,
            },
            file: Some(self.access),
            modified: self.modified,
        };
        let written = Written { file: &open, path: file.path() };
        match written.place(blocking, path, &rights, journal) {
            Ok(()) => {
                file.give_away(blocking);
                status
            }
            Err(Failed) => 500,
        }
    }
}

fn begin_mkcol(exchange: &Exchange<'_, '_>) -> Result<Work, u16> {
    let request = &exchange.request;
    expect_no_body(exchange, "MKCOL with body is")?;
    if !request.path().ends_with(b"/") {
        return Err(refuse(request, 409, format_args!("MKCOL can create a collection only")));
    }
    let mut path = paths::file_path(&exchange.view());
    path.pop();
    let (path, mode) = (to_path(&path), directory_mode(*request.conf(&DAV_CONF).access));
    Ok(Work::Job(Box::new(move |blocking, journal| match tree::make_directory(blocking, &path, mode) {
        Ok(()) => 201,
        Err(error) => journal.refuse("mkdir()", &path, error, 409),
    })))
}

fn begin_delete(exchange: &Exchange<'_, '_>) -> Result<Work, u16> {
    let request = &exchange.request;
    expect_no_body(exchange, "DELETE with body is")?;
    check_depth_of_path(request)?;
    let path = to_path(&paths::file_path(&exchange.view()));
    let named = Named::by(request.path());
    let depth = request.header(Known::Depth).map(<[u8]>::to_vec);
    Ok(Work::Job(Box::new(move |blocking, journal| {
        delete(blocking, &path, named, depth.as_deref(), journal)
    })))
}

/// `min_delete_depth`
fn check_depth_of_path(request: &Request<'_>) -> Result<(), u16> {
    let (path, min) = (request.path(), *request.conf(&DAV_CONF).min_delete_depth);
    if min == 0 {
        return Ok(());
    }
    let mut depth = 0;
    for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        depth += 1;
        if depth >= min && at + 1 < path.len() {
            return Ok(());
        }
    }
    Err(refuse(request, 409, format_args!("insufficient URI depth:{depth} to DELETE")))
}

/// The kind of object that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// With a slash at its end.
    Collection,
    Resource,
}

impl Named {
    fn by(path: &[u8]) -> Self {
        if path.ends_with(b"/") { Self::Collection } else { Self::Resource }
    }
}

/// The value of `Depth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Zero,
    One,
    Infinity,
    Invalid,
}

impl Depth {
    /// Reads the header; the second part is what to log of it.
    fn read(header: Option<&[u8]>, default: Self) -> (Self, Option<String>) {
        let depth = match header {
            None => default,
            Some(b"0") => Self::Zero,
            Some(b"1") => Self::One,
            Some(b"infinity") => Self::Infinity,
            Some(other) => {
                let problem = format!("client sent invalid \"Depth\" header: \"{}\"", Verbatim(other));
                return (Self::Invalid, Some(problem));
            }
        };
        (depth, None)
    }
}

fn delete(
    blocking: &Blocking,
    path: &std::path::Path,
    named: Named,
    depth: Option<&[u8]>,
    journal: &mut Journal,
) -> u16 {
    let is_directory = match tree::look(blocking, path) {
        Ok(stat) => tree::is_of(&stat, rustix::fs::FileType::Directory),
        Err(error) => {
            let status = if error == Code::NOTDIR { 409 } else { 404 };
            return journal.refuse("lstat()", path, error, status);
        }
    };
    if is_directory && named == Named::Resource {
        let message = format!("DELETE \"{}\" failed {}", moving::shown(path), moving::errno(Code::ISDIR));
        return journal.say(message, 409);
    }
    let (default, wanted) =
        if is_directory { (Depth::Infinity, "infinity") } else { (Depth::Zero, "0 or infinity") };
    let (depth, problem) = Depth::read(depth, default);
    journal.add(LogLevel::Error, problem);
    if depth != default && depth != Depth::Infinity {
        return journal.say(format!("\"Depth\" header must be {wanted}"), 400);
    }
    let removed = if is_directory {
        tree::remove_directory(blocking, path, journal)
    } else {
        tree::remove_file(blocking, path, journal)
    };
    removed.map_or_else(|status| status, |()| 204)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_conf::parse_bytes;

    #[test]
    fn rights_as_nginx_reads_them() {
        let read = |text: &str| {
            let tree = parse_bytes(format!("dav_access {text};").as_bytes()).unwrap();
            file_access(&tree.directives[0]).map_err(|error| error.to_string())
        };
        assert_eq!(read("user:rw"), Ok(0o600));
        assert_eq!(read("group:rw all:r"), Ok(0o664));
        assert_eq!(read("user:r group:r"), Ok(0o440));
        assert_eq!(read("all:rw group:r user:rw"), Ok(0o646));
        for text in ["user", "user:x", "other:r", "user:rwx", "group:"] {
            let error = read(&format!("all:r {text}")).unwrap_err();
            assert_eq!(error, format!("invalid value \"{text}\" in nginx.conf:1"));
        }
    }

    #[test]
    fn depths() {
        let read = |header: Option<&[u8]>| Depth::read(header, Depth::One).0;
        assert_eq!(read(None), Depth::One);
        assert_eq!(read(Some(b"0")), Depth::Zero);
        assert_eq!(read(Some(b"infinity")), Depth::Infinity);
        for header in [&b"Infinity"[..], b"", b"2", b"01"] {
            assert_eq!(read(Some(header)), Depth::Invalid);
        }
    }
}
