//! A listener on a socket of its own, with lines of its error log, and handlers that a test names.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};

use clearway_base::log::{Level as LogLevel, Record, Sink};
use clearway_conf::{Args, Spec};
use clearway_http::testing::load_http;
use clearway_http::{
    ConfKey, Cost, Exchange, Generation, GenerationParts, Level, Listener, Module, Own, POSTPONE, Phase,
    PhaseHandler, Services, Snapshot, Step, context, settings,
};
use clearway_modules::filters::addition::ADDITION;
use clearway_modules::filters::charset::CHARSET;
use clearway_modules::filters::gzip::{GZIP, acceptance::GZIP_ACCEPTANCE};
use clearway_modules::filters::headers::HEADERS;
use clearway_modules::filters::not_modified::NOT_MODIFIED;
use clearway_modules::filters::range_filter::RANGE_FILTER;
use clearway_modules::filters::sub_filter::SUB_FILTER;
use clearway_net::accept::{AcceptPolicy, AcceptStop, Accepted, Acceptor, MultiAccept};
use clearway_net::on_loop::LoopSource;
use clearway_runtime::{Config, Runtime, Tag};
use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

use crate::handlers;
use crate::held_heads::HOLD;

fn runtime() -> Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let start = || Runtime::start(&Config { loops: 2, handover_carriers: 64, ..Config::default() });
    *RUNTIME.get_or_init(|| start().unwrap())
}

/// Answers as its directive says, and writes down what became of each request.
static ACT: Module = Module {
    name: "act",
    directives: &[Spec {
        name: "act",
        contexts: context::LOCATION,
        args: Args::TAKE1,
        syntax: "act NAME",
        default: "",
        doc: "",
        example: "",
        see: &[],
        handler: |scope, directive| {
            let name = std::str::from_utf8(&directive.args[0]).unwrap();
            *scope.conf.location(&ACTING).handler = Some(handlers::named(name));
            Ok(())
        },
    }],
    confs: &[&ACTING],
    phases: &[
        PhaseHandler {
            phase: Phase::Content,
            cost: Cost::Cheap,
            enabled: |enabling| enabling.confs.of(&ACTING).handler.is_some(),
            handler: |exchange| (exchange.request.conf(&ACTING).handler.unwrap())(exchange),
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

static ACTING: ConfKey<Acting> = ConfKey::new(Level::Location);

pub(crate) type Act = for<'a, 'c> fn(Exchange<'a, 'c>) -> Step<'a>;

settings! {
    struct Acting {
        handler: Own<Option<Act>>,
    }
}

static LOGGED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

fn note(exchange: &Exchange<'_, '_>) {
    let view = exchange.view();
    let value = |name: &str| {
        let value = view.variable_named(name.as_bytes()).unwrap_or_default();
        String::from_utf8(value.into_owned()).unwrap()
    };
    let line = format!("{} {}", value("status"), value("body_bytes_sent"));
    LOGGED.lock().unwrap().push((value("uri"), line));
}

/// Status and bytes of the body that were sent, once a path was logged.
pub(crate) fn wait_logged(path: &str) -> String {
    let find = || LOGGED.lock().unwrap().iter().find(|(of, _)| of == path).map(|(_, line)| line.clone());
    assert!(wait_until(PATIENCE, || find().is_some()), "{path} was not logged");
    find().unwrap()
}

/// Lines of the error log.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Sink for Lines {
    fn enabled(&self, level: LogLevel) -> bool {
        level < LogLevel::Debug
    }

    fn write(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push(format!("[{}] {}", record.level.as_str(), record.message));
    }
}

/// A listener that serves.
pub(crate) struct Site {
    port: u16,
    lines: Arc<Lines>,
    listener: Arc<Listener>,
    stop: Arc<AcceptStop>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.remove();
    }
}

impl Site {
    /// Serves the content of an `http` block, in which `PORT` stands for the listener's port.
    pub(crate) fn start(http: &str) -> Self {
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        let lines = Arc::<Lines>::default();
        let snapshot = Arc::new(load(&http.replace("PORT", &port.to_string()), &lines));
        let parts = GenerationParts { number: 1, snapshot, identities: runtime().identities().unwrap() };
        let listener = Arc::new(Listener::new(Generation::new(parts, drop), 0));
        let site = Self { port, lines, listener, stop: AcceptStop::new() };
        let socket = Arc::new(socket.into());
        for home in runtime().loops() {
            let listening = clearway_runtime::Listener::new(home, Arc::clone(&socket)).unwrap();
            let acceptor = Acceptor {
                source: LoopSource::new(listening),
                policy: AcceptPolicy::new(1_000, MultiAccept::On),
                log: site.listener.accept_log(home),
                stop: Arc::clone(&site.stop),
            };
            let listener = Arc::clone(&site.listener);
            let serve = move |accepted: Accepted| {
                home.spawn(Tag::NONE, clearway_serve::serve(Arc::clone(&listener), home, accepted));
            };
            home.spawn(Tag::NONE, acceptor.run(serve));
        }
        site
    }

    /// Ends all connections, as `worker_shutdown_timeout` does.
    pub(crate) fn close(&self) {
        self.listener.close_all();
        runtime().wake_all();
    }

    /// The first line of the error log with this text.
    pub(crate) fn wait_line(&self, text: &str) -> String {
        let find = || self.lines.0.lock().unwrap().iter().find(|line| line.contains(text)).cloned();
        assert!(wait_until(PATIENCE, || find().is_some()), "no {text:?}");
        find().unwrap()
    }

    /// Connects and sends something.
    #[expect(clippy::disallowed_methods, reason = "a test's client may block")]
    pub(crate) fn send(&self, text: &str) -> TcpStream {
        let mut client = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(text.as_bytes()).unwrap();
        client
    }
}

/// Reads up to and with a text.
pub(crate) fn read_to(client: &mut TcpStream, end: &str) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(end.as_bytes()) {
        let count = client.read(&mut byte).unwrap();
        assert_eq!(count, 1, "ends early: {:?}", String::from_utf8_lossy(&all));
        all.push(byte[0]);
    }
    String::from_utf8(all).unwrap()
}

fn load(http: &str, lines: &Arc<Lines>) -> Snapshot {
    let modules = [
        &ACT,
        &HOLD,
        &NOT_MODIFIED,
        &HEADERS,
        &CHARSET,
        &ADDITION,
        &SUB_FILTER,
        &POSTPONE,
        &GZIP_ACCEPTANCE,
        &GZIP,
        &RANGE_FILTER,
    ];
    let log: Arc<dyn Sink> = lines.clone();
    load_http(http, &modules, &log, Services::default())
}
