//! `autoindex` and its family: what is in a directory, as a page or as data. The directory is read and
//! sorted on the pool, and the response starts when that is done. A short list is written out on the loop,
//! a long one in parts on the pool, each when the client has taken the one before it.

mod format;
mod listing;

use std::borrow::Cow;
use std::io;

use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Answer, Chunk, ConfKey, Cost, Enabling, Exchange, Level, Load, Mark, Module, Phase, PhaseHandler,
    Request, Setting, Step, Verbatim, context, paths, set, settings,
};
use clearway_message::Method;
use rustix::io::Errno as Code;

use clearway_offload::At;

use crate::content::files::{ABSENT, Failure, is_any, log_failure, on_pool, on_pool_at, to_path};
use format::{Encoding, Format, Page, Sizes};
use listing::{Listing, Problem};

/// The module. It answers for directories without an index, so it comes behind `index`.
pub static AUTOINDEX: Module = Module {
    name: "autoindex",
    directives: DIRECTIVES,
    confs: &[&AUTOINDEX_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "autoindex",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "autoindex on | off",
        default: "autoindex off;",
        doc: "Whether a path that ends in a slash, and has no index, is answered with a list of the files in \
              its directory. Those whose names begin with a dot are not shown.",
        example: EXAMPLE_OF_LISTING,
        see: &["autoindex_format", "autoindex_exact_size", "autoindex_localtime", "index", "random_index"],
        handler: |scope, directive| set(directive, &mut conf(scope).enabled, |d| d.flag(0)),
    },
    Spec {
        name: "autoindex_format",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "autoindex_format html | xml | json | jsonp",
        default: "autoindex_format html;",
        doc: "The form of the list. With `jsonp` the argument `callback` is the name of a function to call; \
              without it the list is `json`.",
        example: EXAMPLE_OF_LISTING,
        see: &["autoindex", "autoindex_exact_size", "autoindex_localtime", "index", "random_index"],
        handler: read_format,
    },
    Spec {
        name: "autoindex_localtime",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "autoindex_localtime on | off",
        default: "autoindex_localtime off;",
        doc: "Whether times in the page are local or UTC.",
        example: EXAMPLE_OF_LISTING,
        see: &["autoindex", "autoindex_format", "autoindex_exact_size", "index", "random_index"],
        handler: |scope, directive| set(directive, &mut conf(scope).local_time, |d| d.flag(0)),
    },
    Spec {
        name: "autoindex_exact_size",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "autoindex_exact_size on | off",
        default: "autoindex_exact_size on;",
        doc: "Whether sizes in the page are in bytes, or rounded to kilobytes, megabytes and gigabytes.",
        example: EXAMPLE_OF_LISTING,
        see: &["autoindex", "autoindex_format", "autoindex_localtime", "index", "random_index"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).sizes, |d| {
                d.flag(0).map(|is_exact| if is_exact { Sizes::Exact } else { Sizes::Rounded })
            })
        },
    },
];

/// The example of `autoindex`, `autoindex_format`, `autoindex_localtime` and `autoindex_exact_size`.
const EXAMPLE_OF_LISTING: &str = "
    location /pub/ {
        autoindex on;
        autoindex_format html;
        autoindex_exact_size off;
        autoindex_localtime on;
    }";

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::Content, cost: Cost::Cheap, enabled, handler }];

static AUTOINDEX_CONF: ConfKey<AutoindexConf> = ConfKey::new(Level::Location);

/// Up to so many entries are written out on the loop: that takes less time than a way to the pool.
const INLINE_ENTRIES: usize = 100;
/// How much of a longer list is written out at a time, bytes.
const PART_BYTES: usize = 64 * 1024;
/// Longest name of a function in `callback`, bytes.
const CALLBACK_MAX_BYTES: usize = 128;

settings! {
    struct AutoindexConf {
        enabled: Setting<bool> = false,
        format: Setting<Form> = Form::Html,
        local_time: Setting<bool> = false,
        sizes: Setting<Sizes> = Sizes::Exact,
    }
}

/// `autoindex_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
    Jsonp,
    Xml,
}

fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut AutoindexConf {
    scope.conf.location(&AUTOINDEX_CONF)
}

fn read_format(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    const WORDS: [(&str, Form); 4] =
        [("html", Form::Html), ("json", Form::Json), ("jsonp", Form::Jsonp), ("xml", Form::Xml)];
    set(directive, &mut conf(scope).format, |d| d.choice(0, &WORDS))
}

fn enabled(enabling: &Enabling<'_>) -> bool {
    *enabling.confs.of(&AUTOINDEX_CONF).enabled
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let request = &exchange.request;
    if !request.path().ends_with(b"/") || !matches!(request.method(), Method::Get | Method::Head) {
        return Step::Declined;
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    match form(exchange.request) {
        Ok(form) => Step::Wait(Box::pin(answer(exchange, form))),
        Err(status) => Step::status(status),
    }
}

/// In which form the list is wanted.
fn form(request: &Request<'_>) -> Result<(Format, &'static [u8]), u16> {
    let json = (Format::Json { callback: None }, &b"application/json"[..]);
    Ok(match *request.conf(&AUTOINDEX_CONF).format {
        Form::Html => (Format::Html, b"text/html"),
        Form::Xml => (Format::Xml, b"text/xml; charset=utf-8"),
        Form::Json => json,
        Form::Jsonp => match request.arg(b"callback") {
            None | Some(b"") => json,
            Some(name) => {
                check_callback(request, name)?;
                (Format::Json { callback: Some(name.into()) }, b"application/javascript")
            }
        },
    })
}

fn check_callback(request: &Request<'_>, name: &[u8]) -> Result<(), u16> {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let fault = if name.len() > CALLBACK_MAX_BYTES {
        "too long"
    } else if !name.iter().all(is_valid) {
        "invalid"
    } else {
        return Ok(());
    };
    request.log(LogLevel::Info, format_args!("client sent {fault} callback name: \"{}\"", Verbatim(name)));
    Err(400)
}

/// The path of the directory as nginx opens it: without its last character, which is a slash unless an
/// `alias` has none.
fn directory_path(exchange: &Exchange<'_, '_>) -> Vec<u8> {
    let mut path = paths::file_path(&exchange.view());
    if path.len() > 1 {
        path.pop();
    }
    path
}

async fn answer(
    exchange: Exchange<'_, '_>,
    (format, content_type): (Format, &'static [u8]),
) -> Step<'static> {
    let path = directory_path(&exchange);
    let directory = to_path(&path);
    let is_head = exchange.request.method() == Method::Head;
    let job = move |blocking: &_| {
        if is_head { Listing::probe(blocking, &directory) } else { Listing::read(blocking, &directory) }
    };
    let listing = match on_pool(exchange.request, &path, job).await {
        Ok(Ok(listing)) => listing,
        Ok(Err(problem)) => return Step::status(refuse(exchange.request, &path, &problem)),
        Err(status) => return Step::status(status),
    };
    for problem in listing.problems() {
        log_problem(exchange.request, LogLevel::Crit, &path, problem);
    }
    send(exchange, listing, format, content_type).await
}

async fn send(
    mut exchange: Exchange<'_, '_>,
    listing: Listing,
    format: Format,
    content_type: &'static [u8],
) -> Step<'static> {
    let head = exchange.output.head();
    head.status = 200;
    head.content_type = Some(Cow::Borrowed(content_type));
    exchange.request.set_action("sending response to client");
    exchange.output.send_head(exchange.request);
    if !exchange.output.wants_body() {
        return Step::Done;
    }
    let encoding = if is_utf8(&exchange) { Encoding::Utf8 } else { Encoding::Unknown };
    let Exchange { request, mut output, .. } = exchange;
    let conf = request.conf(&AUTOINDEX_CONF);
    let offset_minutes = if *conf.local_time { request.utc_offset_minutes() } else { 0 };
    let mut page = Page::new(listing, format, *conf.sizes, offset_minutes);
    page.begin(request.path(), encoding);
    if page.len() <= INLINE_ENTRIES {
        let _ = output.write(request, Chunk::Owned(page.take_part(usize::MAX)), Mark::Last);
        return Step::Done;
    }
    loop {
        let part =
            on_pool_at(request, At::Anywhere, move |_| (page.take_part(PART_BYTES), page.unless_done()))
                .await;
        // A response that is under way cannot be replaced by another one.
        let Ok((part, rest)) = part else { return Step::Respond(Answer::Close) };
        let mark = if rest.is_some() { Mark::More } else { Mark::Last };
        let _ = output.write(request, Chunk::Owned(part), mark);
        match rest {
            Some(rest) if output.ready(request).await.is_ok() => page = rest,
            _ => return Step::Done,
        }
    }
}

/// Whether the page is sent as UTF-8, so that the length of names is counted in characters.
fn is_utf8(exchange: &Exchange<'_, '_>) -> bool {
    let view = exchange.view();
    view.sent_charset().is_some_and(|charset| charset.eq_ignore_ascii_case(b"utf-8"))
}

/// Logs why there is no list, and says with which status to answer.
fn refuse(request: &Request<'_>, path: &[u8], problem: &Problem) -> u16 {
    let Problem::Open(error) = problem else {
        log_problem(request, LogLevel::Crit, path, problem);
        return 500;
    };
    let (level, status) = if is_any(error, &ABSENT) {
        (LogLevel::Error, 404)
    } else if is_any(error, &[Code::ACCESS]) {
        (LogLevel::Error, 403)
    } else {
        (LogLevel::Crit, 500)
    };
    log_problem(request, level, path, problem);
    status
}

fn log_problem(request: &Request<'_>, level: LogLevel, directory: &[u8], problem: &Problem) {
    let fail =
        |call, path: &[u8], error: &io::Error| log_failure(request, level, Failure { call, path, error });
    match problem {
        Problem::Open(error) => fail("opendir()", directory, error),
        Problem::Read(error) => fail("readdir()", directory, error),
        Problem::Stat { call, name, error } => fail(call, &[directory, b"/", name].concat(), error),
    }
}
