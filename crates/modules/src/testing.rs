//! Directives that hold a loop, or a thread of a pool, on purpose: the hand-over and full pools are tested
//! and measured with them. Only with the cargo feature `testing`, which is never shipped.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Chunk, ConfKey, Cost, Exchange, Level, Load, Mark, Module, Own, Phase, PhaseHandler, Step, context,
};
use clearway_offload::At;

use crate::content::files::{on_pool_at, to_path};

/// How long a pool is held at most.
const HOLD_MAX: Duration = Duration::from_secs(60);

/// The module. Its locations are answered before files are looked for, so it comes before `index`.
pub static TESTING: Module = Module {
    name: "testing",
    directives: DIRECTIVES,
    confs: &[&TESTING_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "testing_spin",
        contexts: context::LOCATION,
        args: Args::TAKE12,
        syntax: "testing_spin TIME [MICROSECONDS]",
        default: "",
        doc: "Burns CPU on the thread of the loop until the time has passed, then answers. With a second \
              number it burns so many microseconds at a time and lets others of the loop run in between.",
        example: "",
        see: &[],
        handler: read_spin,
    },
    Spec {
        name: "testing_sleep",
        contexts: context::LOCATION,
        args: Args::TAKE1,
        syntax: "testing_sleep TIME",
        default: "",
        doc: "Sleeps on the thread of the loop in a system call for the time, then answers.",
        example: "",
        see: &[],
        handler: |scope, directive| read(scope, directive, Hold::Sleep),
    },
    Spec {
        name: "testing_pool",
        contexts: context::LOCATION,
        args: Args::TAKE1,
        syntax: "testing_pool PATH",
        default: "",
        doc: "Has a thread of the location's pool (`aio`) make a file of this name and wait until it is \
              gone, a minute at most, then answers.",
        example: "",
        see: &[],
        handler: |scope, directive| {
            let path = to_path(&directive.args[0]);
            **scope.conf.location(&TESTING_CONF) = Some(Hold::Pool(path));
            Ok(())
        },
    },
];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::MayBlock,
    enabled: |enabling| enabling.confs.of(&TESTING_CONF).is_some(),
    handler,
}];

static TESTING_CONF: ConfKey<Own<Option<Hold>>> = ConfKey::new(Level::Location);

/// How which thread is held.
#[derive(Clone)]
enum Hold {
    Spin(Duration),
    /// In so many polls of this length each.
    Slices(u128, Duration),
    Sleep(Duration),
    Pool(PathBuf),
}

fn read(scope: &mut Scope<'_, Load>, directive: &Directive, hold: fn(Duration) -> Hold) -> Result<(), Error> {
    **scope.conf.location(&TESTING_CONF) = Some(hold(directive.msec(0)?));
    Ok(())
}

fn read_spin(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let time = directive.msec(0)?;
    let Some(text) = directive.args.get(1) else { return read(scope, directive, Hold::Spin) };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let slice = number.filter(|&us| us > 0).map(Duration::from_micros);
    let slice = slice.ok_or_else(|| directive.reject("invalid value"))?;
    let slices = time.as_micros().div_ceil(slice.as_micros());
    **scope.conf.location(&TESTING_CONF) = Some(Hold::Slices(slices, slice));
    Ok(())
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some(hold) = (**exchange.request.conf(&TESTING_CONF)).clone() else { return Step::Declined };
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    match hold {
        Hold::Spin(time) => {
            spin(time);
            answer(&mut exchange, b"spun\n")
        }
        Hold::Slices(slices, slice) => Step::Wait(Box::pin(async move {
            for _ in 0..slices {
                spin(slice);
                clearway_runtime::yield_now().await;
            }
            answer(&mut exchange, b"spun\n")
        })),
        Hold::Sleep(time) => {
            sleep(time);
            answer(&mut exchange, b"slept\n")
        }
        Hold::Pool(path) => Step::Wait(Box::pin(hold_pool(exchange, path))),
    }
}

fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

async fn hold_pool(mut exchange: Exchange<'_, '_>, path: PathBuf) -> Step<'static> {
    match on_pool_at(exchange.request, At::Anywhere, move |_| hold_until_gone(&path)).await {
        Ok(()) => answer(&mut exchange, b"held a pool\n"),
        Err(status) => Step::status(status),
    }
}

#[expect(clippy::disallowed_methods, reason = "a pool thread may wait")]
fn hold_until_gone(path: &Path) {
    let end = Instant::now() + HOLD_MAX;
    if std::fs::write(path, b"").is_err() {
        return;
    }
    while Instant::now() < end && std::fs::metadata(path).is_ok() {
        sleep(Duration::from_millis(2));
    }
}

#[expect(clippy::disallowed_methods, reason = "holding the thread is what it is for")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

fn answer(exchange: &mut Exchange<'_, '_>, body: &'static [u8]) -> Step<'static> {
    let head = exchange.output.head();
    head.status = 200;
    head.content_type = Some(b"text/plain".into());
    head.content_length = Some(body.len() as u64);
    let _ = exchange.output.write(exchange.request, Chunk::Borrowed(body), Mark::Last);
    Step::Done
}
