//! `empty_gif`: a transparent picture of one pixel, from memory.

use std::borrow::Cow;

use clearway_conf::{Args, Spec};
use clearway_http::{
    Answers, Chunk, ConfKey, Cost, Exchange, Level, Load, Mark, Module, Phase, PhaseHandler, Step, context,
};
use clearway_message::Method;

/// The module. Its locations are answered before files are looked for, so it comes before `index`.
pub static EMPTY_GIF: Module = Module {
    name: "empty_gif",
    directives: DIRECTIVES,
    confs: &[&EMPTY_GIF_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "empty_gif",
    contexts: context::LOCATION,
    args: Args::NOARGS,
    syntax: "empty_gif",
    default: "",
    doc: "Answers every GET with a transparent picture of one pixel.",
    example: "
        location = /pixel.gif {
            empty_gif;
        }",
    see: &["location"],
    handler: |scope, _| {
        scope.conf.location(&EMPTY_GIF_CONF).set(Some(&PICTURE));
        Ok(())
    },
}];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| enabling.confs.of(&EMPTY_GIF_CONF).is_some(),
    handler,
}];

static EMPTY_GIF_CONF: ConfKey<Answers<Option<&'static [u8]>>> = ConfKey::new(Level::Location);

/// The date of the picture, seconds since the epoch.
const LAST_MODIFIED: i64 = 23_349_600;

/// GIF89a: a screen of one pixel with a table of two colours, of which the second is transparent, and one
/// image with that colour.
#[rustfmt::skip]
static PICTURE: [u8; 43] = [
    b'G', b'I', b'F', b'8', b'9', b'a', 1, 0, 1, 0, 0x80, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff,
    0x21, 0xf9, 4, 1, 0, 0, 1, 0,
    0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x4c, 1, 0, 0x3b,
];

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some(picture) = **exchange.request.conf(&EMPTY_GIF_CONF) else { return Step::Declined };
    if !matches!(exchange.request.method(), Method::Get | Method::Head) {
        return Step::status(405);
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    let head = exchange.output.head();
    head.status = 200;
    head.last_modified = Some(LAST_MODIFIED);
    head.content_length = Some(picture.len() as u64);
    head.content_type = Some(Cow::Borrowed(b"image/gif"));
    // It is all there is, so that nothing has to wait for room.
    let _ = exchange.output.write(exchange.request, Chunk::Borrowed(picture), Mark::Last);
    Step::Done
}
