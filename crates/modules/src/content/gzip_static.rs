//! `gzip_static`: the file with `.gz` behind its name in place of the file itself, for clients that accept
//! that. Opened on the loop of the request where that cannot wait, else on a thread of a pool.

use std::borrow::Cow;

use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_http::{
    ConfKey, Cost, Exchange, Level, Load, Module, Phase, PhaseHandler, Setting, Step, Verbatim, context,
    paths, set,
};
use clearway_message::Method;

use crate::content::files::{ABSENT, is_any, refuse};
use crate::content::lookup::Failed;
use crate::content::names::{Found, Names, Question, Search};
use crate::content::static_files::{Answered, FileToSend, answer, find_copy, send_bytes};
use crate::filters::gzip::acceptance::{is_accepted, mark_varying, varies};

/// The module. Its place is before the one that answers with files as they are.
pub static GZIP_STATIC: Module = Module {
    name: "gzip_static",
    directives: DIRECTIVES,
    confs: &[&GZIP_STATIC_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "gzip_static",
    contexts: context::ALL,
    args: Args::TAKE1,
    syntax: "gzip_static on | off | always",
    default: "gzip_static off;",
    doc: "Whether the compressed file of the same name with `.gz` behind it is sent where there is one: to \
          clients that accept that (`on`), or to all (`always`).",
    example: "
        location /assets/ {
            gzip_static on;
            gunzip on;
        }",
    see: &["gzip", "gunzip"],
    handler: |scope, d| {
        const WORDS: [(&str, Who); 3] = [("off", Who::Nobody), ("on", Who::Accepting), ("always", Who::All)];
        set(d, scope.conf.location(&GZIP_STATIC_CONF), |d| d.choice(0, &WORDS))
    },
}];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| **enabling.confs.of(&GZIP_STATIC_CONF) != Who::Nobody,
    handler,
}];

static GZIP_STATIC_CONF: ConfKey<Setting<Who>> = ConfKey::new(Level::Location);

/// The clients that get compressed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Who {
    #[default]
    Nobody,
    Accepting,
    All,
}

/// The use of a file that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Sent,
    /// Only `Vary` is sent, since other clients get a compressed file (`gzip_vary`).
    Announced,
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let request = &exchange.request;
    if !matches!(request.method(), Method::Get | Method::Head) || request.path().ends_with(b"/") {
        return Step::Declined;
    }
    let who = **request.conf(&GZIP_STATIC_CONF);
    let is_sent = who == Who::All || is_accepted(exchange.request, exchange.output.head());
    if !is_sent && !varies(exchange.request) {
        return Step::Declined;
    }
    let wanted = if is_sent { Use::Sent } else { Use::Announced };
    let view = exchange.view();
    let mut path = paths::file_path(&view);
    path.extend_from_slice(b".gz");
    let names = Names::of(&view, &path);
    if wanted == Use::Sent
        && names.are_plain()
        && let Some(copy) = find_copy(exchange.request, &names, &path)
    {
        announce(&mut exchange);
        return send(&mut exchange, &path, FileToSend::Copy(copy)).step();
    }
    let found = match names.open(&path) {
        Search::Known(found) => found,
        Search::Asked(reply) => names.settle(exchange.request, &path, reply),
        Search::Cold(question) => {
            return Step::Wait(Box::pin(open_on_pool(exchange, names, path, (question, wanted))));
        }
    };
    match answer_found(&mut exchange, &path, found, wanted) {
        Answered::Unread(part) => Step::Wait(Box::pin(send_bytes(exchange, part))),
        answered => answered.step(),
    }
}

async fn open_on_pool(
    mut exchange: Exchange<'_, '_>,
    names: Names,
    path: Vec<u8>,
    (question, wanted): (Question, Use),
) -> Step<'static> {
    let found = match names.ask_pool(exchange.request, &path, question).await {
        Ok(found) => found,
        Err(status) => return Step::status(status),
    };
    match answer_found(&mut exchange, &path, found, wanted) {
        Answered::Unread(part) => send_bytes(exchange, part).await,
        answered => answered.step(),
    }
}

fn answer_found(
    exchange: &mut Exchange<'_, '_>,
    path: &[u8],
    found: Result<Found, Failed>,
    wanted: Use,
) -> Answered {
    let found = match found {
        Ok(found) => found,
        Err(Failed { call, error }) => {
            if !is_any(&error, &ABSENT) {
                // Whatever it is, the file itself may be there.
                let _ = refuse(exchange.request, call, path, &error);
            }
            return Step::Declined.into();
        }
    };
    announce(exchange);
    match found {
        _ if wanted == Use::Announced => Step::Declined.into(),
        Found::Opened(opened, access) => send(exchange, path, FileToSend::Opened(opened, access)),
        Found::Shared(file) => send(exchange, path, FileToSend::Shared(file)),
        Found::Directory => Step::Declined.into(),
        Found::Other => {
            let message = format_args!("\"{}\" is not a regular file", Verbatim(path));
            exchange.request.log(LogLevel::Crit, message);
            Step::status(404).into()
        }
    }
}

/// There is a compressed file for clients that accept it.
fn announce(exchange: &mut Exchange<'_, '_>) {
    if **exchange.request.conf(&GZIP_STATIC_CONF) == Who::Accepting {
        mark_varying(exchange.request, exchange.output.head());
    }
}

fn send(exchange: &mut Exchange<'_, '_>, path: &[u8], source: FileToSend) -> Answered {
    exchange.output.head().content_encoding = Some(Cow::Borrowed(b"gzip"));
    answer(exchange, path, source)
}
