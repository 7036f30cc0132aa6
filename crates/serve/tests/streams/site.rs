//! Configurations for a listener without a socket, and a module to answer with.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use clearway_base::log::{Discard, Sink};
use clearway_conf::{Args, Spec};
use clearway_http::testing::load_http;
use clearway_http::{
    BodyFilter, Chunk, ConfKey, Cost, Exchange, FilterSpec, Generation, GenerationParts, Level, Listener,
    Mark, Module, Next, Own, POSTPONE, Phase, PhaseHandler, Services, Snapshot, Step, Store, context,
    settings,
};
use clearway_modules::filters::addition::ADDITION;
use clearway_modules::rewrite::REWRITE;
use clearway_runtime::{Config, LoopRef, Runtime};

fn runtime() -> Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let start = || Runtime::start(&Config { loops: 2, handover_carriers: 64, ..Config::default() });
    *RUNTIME.get_or_init(|| start().unwrap())
}

/// Answers with a word and the request's body, after a pause; or with digits. Requests are written down when
/// they are logged.
static ECHO: Module = Module {
    name: "echo",
    directives: &[
        Spec {
            name: "echo",
            contexts: context::LOCATION,
            args: Args::TAKE1,
            syntax: "echo WORD",
            default: "",
            doc: "",
            example: "",
            see: &[],
            handler: |scope, directive| {
                *scope.conf.location(&ECHOED).word = Some(directive.args[0].to_vec());
                Ok(())
            },
        },
        Spec {
            name: "pause",
            contexts: context::LOCATION,
            args: Args::TAKE1,
            syntax: "pause MILLISECONDS",
            default: "",
            doc: "",
            example: "",
            see: &[],
            handler: |scope, directive| {
                *scope.conf.location(&ECHOED).pause_ms = number(&directive.args[0]);
                Ok(())
            },
        },
        Spec {
            name: "large",
            contexts: context::LOCATION,
            args: Args::TAKE1,
            syntax: "large BYTES",
            default: "",
            doc: "",
            example: "",
            see: &[],
            handler: |scope, directive| {
                *scope.conf.location(&ECHOED).large_bytes = number(&directive.args[0]);
                Ok(())
            },
        },
    ],
    confs: &[&ECHOED],
    phases: &[
        PhaseHandler {
            phase: Phase::Content,
            cost: Cost::Cheap,
            enabled: |enabling| enabling.confs.of(&ECHOED).word.is_some(),
            handler: |exchange| Step::Wait(Box::pin(echo(exchange))),
        },
        PhaseHandler {
            phase: Phase::Content,
            cost: Cost::Cheap,
            enabled: |enabling| *enabling.confs.of(&ECHOED).large_bytes > 0,
            handler: |exchange| Step::Wait(Box::pin(send_digits(exchange))),
        },
        PhaseHandler {
            phase: Phase::Log,
            cost: Cost::Cheap,
            enabled: |_| true,
            handler: |exchange| {
                note(&exchange);
                Step::Declined
            },
        },
    ],
    ..Module::EMPTY
};

static ECHOED: ConfKey<Echoed> = ConfKey::new(Level::Location);

settings! {
    struct Echoed {
        word: Own<Option<Vec<u8>>>,
        pause_ms: Own<u64>,
        large_bytes: Own<u64>,
    }
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

async fn echo(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let conf = exchange.request.conf(&ECHOED);
    let body = match exchange.read_body(Store::AsConfigured).await {
        Ok(Some(body)) => body.read(0, usize::MAX).await.unwrap(),
        Ok(None) => Bytes::new(),
        Err(answer) => return Step::Respond(answer),
    };
    if *conf.pause_ms > 0
        && let Err(answer) = exchange.pause(*conf.pause_ms).await
    {
        return Step::Respond(answer);
    }
    let text = [conf.word.as_ref().unwrap(), &b"["[..], &body, b"]"].concat();
    let head = exchange.output.head();
    head.status = 200;
    head.content_type = exchange.request.content_type().map(Into::into);
    head.content_length = Some(text.len() as u64);
    let _ = exchange.output.write(exchange.request, Chunk::Owned(text), Mark::Last);
    Step::Done
}

async fn send_digits(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let bytes = *exchange.request.conf(&ECHOED).large_bytes;
    exchange.output.head().status = 200;
    for start in (0..bytes).step_by(10_000) {
        let digits = (start..bytes.min(start + 10_000)).map(|at| b'0' + (at % 10) as u8).collect();
        let _ = exchange.output.write(exchange.request, Chunk::Owned(digits), Mark::More);
        if exchange.output.ready(exchange.request).await.is_err() {
            break;
        }
    }
    Step::Done
}

/// Passes bodies on when a gate is open, which is the path's own.
static LATER: Module = Module {
    name: "later",
    directives: &[Spec {
        name: "later",
        contexts: context::LOCATION,
        args: Args::NOARGS,
        syntax: "later",
        default: "",
        doc: "",
        example: "",
        see: &[],
        handler: |scope, _| {
            *scope.conf.location(&DELAYED).state = Delay::On;
            Ok(())
        },
    }],
    confs: &[&DELAYED],
    filters: &[FilterSpec {
        enabled: |enabling| *enabling.confs.of(&DELAYED).state == Delay::On,
        filter: |filtering| {
            let gate = gate(std::str::from_utf8(filtering.request.path()).unwrap());
            Some(Box::new(Later { gate, kept: Vec::new(), state: Held::Nothing }))
        },
    }],
    ..Module::EMPTY
};

static DELAYED: ConfKey<Delayed> = ConfKey::new(Level::Location);

settings! {
    struct Delayed {
        state: Own<Delay>,
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Delay {
    #[default]
    Off,
    On,
}

/// What a filter waits for, and how often it has looked.
#[derive(Default)]
pub(crate) struct Gate {
    open: AtomicBool,
    pub(crate) looks: AtomicUsize,
    waiting: Mutex<Option<Waker>>,
}

/// The gate of a path.
pub(crate) fn gate(path: &str) -> Arc<Gate> {
    static GATES: Mutex<BTreeMap<String, Arc<Gate>>> = Mutex::new(BTreeMap::new());
    Arc::clone(GATES.lock().unwrap().entry(path.to_owned()).or_default())
}

impl Gate {
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        if let Some(waker) = self.waiting.lock().unwrap().take() {
            waker.wake();
        }
    }
}

struct Later {
    gate: Arc<Gate>,
    kept: Vec<u8>,
    state: Held,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    Some,
    All,
}

impl BodyFilter for Later {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, _: &mut Next<'_, 'c>) {
        self.kept.extend_from_slice(chunk.bytes());
        self.state = if mark == Mark::Last { Held::All } else { Held::Some };
    }

    fn is_busy(&self) -> bool {
        self.state != Held::Nothing
    }

    fn poll_resume(&mut self, cx: &mut Context<'_>, next: &mut Next<'_, '_>) -> Poll<()> {
        self.gate.looks.fetch_add(1, Ordering::SeqCst);
        *self.gate.waiting.lock().unwrap() = Some(cx.waker().clone());
        if !self.gate.open.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        let mark = if self.state == Held::All { Mark::Last } else { Mark::More };
        self.state = Held::Nothing;
        next.push(Chunk::Owned(std::mem::take(&mut self.kept)), mark);
        Poll::Ready(())
    }
}

static LOGGED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

fn note(exchange: &Exchange<'_, '_>) {
    let view = exchange.view();
    let value = |name: &str| {
        let value = view.variable_named(name.as_bytes()).unwrap_or_default();
        String::from_utf8(value.into_owned()).unwrap()
    };
    let length = number(value("request_length").as_bytes());
    let head = format!("{} {} HTTP/1.1\r\nHost: a\r\n\r\n", value("request_method"), value("request_uri"));
    let lines: usize =
        exchange.request.headers().skip(1).map(|line| line.name.len() + line.value.len() + 4).sum();
    let body = length.saturating_sub((head.len() + lines) as u64);
    let line = format!(
        "{} {} body {body} sent {} request {}",
        value("request_method"),
        value("status"),
        value("body_bytes_sent"),
        value("connection_requests")
    );
    LOGGED.lock().unwrap().push((value("uri"), line));
}

/// The line about a path, once it was logged.
pub(crate) fn logged(path: &str) -> Option<String> {
    let logged = LOGGED.lock().unwrap();
    let mut lines = logged.iter().filter(|(of, _)| of == path);
    let line = lines.next().map(|(_, line)| line.clone());
    assert!(lines.next().is_none(), "{path} was logged twice");
    line
}

/// A listener without a socket.
pub(crate) struct Site {
    pub(crate) listener: Arc<Listener>,
    snapshots: Vec<Weak<Snapshot>>,
}

impl Site {
    pub(crate) fn start(http: &str) -> Self {
        let mut snapshots = Vec::new();
        let listener = Arc::new(Listener::new(generation(http, &mut snapshots), 0));
        Self { listener, snapshots }
    }

    pub(crate) fn home(&self, index: usize) -> LoopRef {
        runtime().loops().nth(index).unwrap()
    }

    /// What a reload does.
    pub(crate) fn publish(&mut self, http: &str) {
        self.listener.publish(generation(http, &mut self.snapshots), 0);
    }

    pub(crate) fn is_alive(&self, number: usize) -> bool {
        self.snapshots[number - 1].strong_count() > 0
    }
}

fn generation(http: &str, snapshots: &mut Vec<Weak<Snapshot>>) -> Arc<Generation> {
    let snapshot = Arc::new(load(http));
    snapshots.push(Arc::downgrade(&snapshot));
    let identities = runtime().identities().unwrap();
    Generation::new(GenerationParts { number: snapshots.len() as u64, snapshot, identities }, drop)
}

fn load(http: &str) -> Snapshot {
    let log: Arc<dyn Sink> = Arc::new(Discard);
    load_http(http, &[&REWRITE, &ECHO, &LATER, &ADDITION, &POSTPONE], &log, Services::default())
}
