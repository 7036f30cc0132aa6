//! Directives that hold a loop on purpose: the hand-over is tested and measured with them. Only with
//! the cargo feature `testing`, which is never shipped.

use std::time::{Duration, Instant};

use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Chunk, Conf, ConfKey, Cost, Exchange, Level, Load, Mark, Module, Phase, PhaseHandler, Step, context,
};

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
        args: Args::TAKE1,
        syntax: "testing_spin TIME",
        default: "",
        doc: "Burns CPU on the thread of the loop until the time has passed, then answers.",
        handler: |scope, directive| read(scope, directive, Hold::Spin),
    },
    Spec {
        name: "testing_sleep",
        contexts: context::LOCATION,
        args: Args::TAKE1,
        syntax: "testing_sleep TIME",
        default: "",
        doc: "Sleeps on the thread of the loop in a system call for the time, then answers.",
        handler: |scope, directive| read(scope, directive, Hold::Sleep),
    },
];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::MayBlock,
    enabled: |enabling| enabling.confs.of(&TESTING_CONF).hold.is_some(),
    handler,
}];

static TESTING_CONF: ConfKey<TestingConf> = ConfKey::new(Level::Location);

#[derive(Default)]
struct TestingConf {
    hold: Option<(Hold, Duration)>,
}

impl Conf for TestingConf {
    /// Not inherited.
    fn merge(&mut self, _: &Self) {}
}

/// How the thread is held.
#[derive(Clone, Copy)]
enum Hold {
    Spin,
    Sleep,
}

fn read(scope: &mut Scope<'_, Load>, directive: &Directive, hold: Hold) -> Result<(), Error> {
    let time = directive.msec(0)?;
    scope.conf.location(&TESTING_CONF).hold = Some((hold, time));
    Ok(())
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some((hold, time)) = exchange.request.conf(&TESTING_CONF).hold else { return Step::Declined };
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    let body: &[u8] = match hold {
        Hold::Spin => {
            let end = Instant::now() + time;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            b"spun\n"
        }
        Hold::Sleep => {
            #[expect(clippy::disallowed_methods, reason = "holding the thread is what it is for")]
            std::thread::sleep(time);
            b"slept\n"
        }
    };
    let head = exchange.output.head();
    head.status = 200;
    head.content_type = Some(b"text/plain".into());
    head.content_length = Some(body.len() as u64);
    let _ = exchange.output.write(exchange.request, Chunk::Borrowed(body), Mark::Last);
    Step::Done
}
