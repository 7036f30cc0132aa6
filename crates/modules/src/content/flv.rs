//! `flv`: Flash videos, from a byte on that `start` names, with the head that players want before it.

use clearway_conf::{Args, Spec};
use clearway_http::{
    Answers, ConfKey, Cost, Exchange, FilePart, Level, Load, Module, Phase, PhaseHandler, Ranges, Step,
    context,
};

use crate::content::media::{self, Asked, Body};

/// The module. Its locations are answered before files are looked for, so it comes before `index`.
pub static FLV: Module =
    Module { name: "flv", directives: DIRECTIVES, confs: &[&FLV_CONF], phases: PHASES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "flv",
    contexts: context::LOCATION,
    args: Args::NOARGS,
    syntax: "flv",
    default: "",
    doc: "Sends files from the byte on that the argument `start` of the request names, behind the head of a \
          Flash video.",
    example: r"
        location ~ \.flv$ {
            flv;
        }",
    see: &["mp4"],
    handler: |scope, _| {
        scope.conf.location(&FLV_CONF).set(true);
        Ok(())
    },
}];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| **enabling.confs.of(&FLV_CONF),
    handler,
}];

static FLV_CONF: ConfKey<Answers<bool>> = ConfKey::new(Level::Location);

/// Version 1, with sound and pictures, nine bytes long; and the size of the tag before the first.
const HEAD: [u8; 13] = *b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    match media::ask(&mut exchange) {
        Ok(asked) => Step::Wait(Box::pin(answer(exchange, asked))),
        Err(step) => step,
    }
}

async fn answer(exchange: Exchange<'_, '_>, asked: Asked) -> Step<'static> {
    let file = match asked.open(exchange.request).await {
        Ok(file) => file,
        Err(step) => return step,
    };
    exchange.request.set_action("sending flv to client");
    let size = file.opened().stat().size;
    let start = exchange.request.arg(b"start").and_then(offset).filter(|&start| start < size).unwrap_or(0);
    let part = FilePart::new(file, start..size);
    if start == 0 {
        return media::send(exchange, Body { front: Vec::new(), part }, Ranges::Allowed).await;
    }
    media::send(exchange, Body { front: HEAD.to_vec(), part }, Ranges::OnePart).await
}

fn offset(digits: &[u8]) -> Option<u64> {
    let digits =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|&offset| offset <= i64::MAX as u64)
}
