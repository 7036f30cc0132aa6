//! `return`: answers with a code, a text or another URL. Runs in the rewrite phases of server and
//! location, takes microseconds, never waits.

use std::borrow::Cow;

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Answer, Chunk, Conf, ConfKey, Cost, Exchange, Level, Load, Mark, Module, Phase, PhaseHandler, Step,
    Value, context,
};

/// The module.
pub static REWRITE: Module =
    Module { name: "rewrite", directives: DIRECTIVES, confs: &[&RETURN], phases: PHASES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "return",
    contexts: context::SERVER.or(context::LOCATION),
    args: Args::TAKE12,
    syntax: "return CODE [TEXT]\nreturn CODE URL\nreturn URL",
    default: "",
    doc: "Answers at once with a code: with a text, or for 301, 302, 303, 307 and 308 with another URL, both \
          of which may have variables. A URL alone is a 302. The code 444 closes the connection without an \
          answer.",
    handler: read_return,
}];

static PHASES: &[PhaseHandler] = &[
    PhaseHandler { phase: Phase::ServerRewrite, cost: Cost::Cheap, enabled: is_enabled, handler },
    PhaseHandler { phase: Phase::Rewrite, cost: Cost::Cheap, enabled: is_enabled, handler },
];

static RETURN: ConfKey<ReturnConf> = ConfKey::new(Level::Location);

/// The first `return` of a level; later ones are never reached.
#[derive(Default)]
struct ReturnConf {
    answer: Option<Return>,
}

struct Return {
    code: u16,
    /// Text or URL.
    text: Option<Value>,
}

impl Conf for ReturnConf {
    /// What a server returns it returns before locations are looked for; locations do not inherit it.
    fn merge(&mut self, _: &Self) {}
}

fn is_enabled(enabling: &clearway_http::Enabling<'_>) -> bool {
    enabling.confs.of(&RETURN).answer.is_some()
}

fn read_return(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let first = &directive.args[0];
    let invalid = || {
        let text = String::from_utf8_lossy(first);
        directive.error(format!("invalid return code \"{text}\""))
    };
    let (code, text) = match units::parse_number(first) {
        Some(code @ 0..=999) => (code as u16, directive.args.get(1)),
        Some(_) => return Err(invalid()),
        None if directive.args.len() == 1 && is_url(first) => (302, Some(first)),
        None => return Err(invalid()),
    };
    let text = text.map(|text| scope.conf.variables.compile(text, &directive.pos)).transpose()?;
    scope.conf.location(&RETURN).answer.get_or_insert(Return { code, text });
    Ok(())
}

fn is_url(text: &Bytes) -> bool {
    text.starts_with(b"http://") || text.starts_with(b"https://") || text.starts_with(b"$scheme")
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some(answer) = &exchange.request.conf(&RETURN).answer else { return Step::Declined };
    if answer.code == 444 {
        return Step::Respond(Answer::Close);
    }
    let has_text = answer.text.as_ref().is_some_and(|text| text.as_literal() != Some(b""));
    if answer.code >= 400 && !has_text {
        return Step::status(answer.code);
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    exchange.output.head().status = answer.code;
    let text = match &answer.text {
        Some(text) => text.eval(&exchange.view()),
        None => Cow::Borrowed(&b""[..]),
    };
    if matches!(answer.code, 301 | 302 | 303 | 307 | 308) {
        exchange.output.head().location = Some(text);
        return Step::status(answer.code);
    }
    let content_type = exchange.request.content_type();
    let head = exchange.output.head();
    head.content_length = Some(text.len() as u64);
    head.content_type = content_type.map(Cow::Borrowed);
    let chunk = match text {
        Cow::Borrowed(text) => Chunk::Borrowed(text),
        Cow::Owned(text) => Chunk::Owned(text),
    };
    // It is all there is, so that nothing has to wait for room.
    let _ = exchange.output.write(exchange.request, chunk, Mark::Last);
    Step::Done
}
