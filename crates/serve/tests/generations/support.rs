//! A listener whose configuration is exchanged, and a module of the simplest kind to answer with.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, Weak};
use std::task::{Poll, Waker};

use clearway_base::log::{Level as LogLevel, Record, Sink};
use clearway_conf::{Args, Spec};
use clearway_http::testing::load_http;
use clearway_http::{
    Chunk, ConfKey, Cost, Exchange, Generation, GenerationParts, Level, Listener, Mark, Module, Own, Phase,
    PhaseHandler, Services, Snapshot, Step, Store, Value, context, settings,
};
use clearway_net::accept::{AcceptPolicy, AcceptStop, Accepted, Acceptor, MultiAccept};
use clearway_net::on_loop::LoopSource;
use clearway_runtime::{Config, Runtime, Tag};
use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Address, Connection, wait_until};

const LOOPS: usize = 2;

/// What most tests run on.
fn shared_runtime() -> Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    *RUNTIME.get_or_init(|| start_runtime(LOOPS))
}

fn start_runtime(loops: usize) -> Runtime {
    Runtime::start(&Config { loops, handover_carriers: 64, ..Config::default() }).unwrap()
}

/// Answers with a text, when a gate is open, and after the request body. Requests are written down when
/// they are logged.
static SAY: Module = Module {
    name: "say",
    directives: &[
        Spec {
            name: "say",
            contexts: context::LOCATION,
            args: Args::TAKE1,
            syntax: "say TEXT",
            default: "",
            doc: "",
            example: "",
            see: &[],
            handler: |scope, directive| {
                let text = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
                *scope.conf.location(&SAID).text = Some(text);
                Ok(())
            },
        },
        Spec {
            name: "gate",
            contexts: context::LOCATION,
            args: Args::TAKE1,
            syntax: "gate NAME",
            default: "",
            doc: "",
            example: "",
            see: &[],
            handler: |scope, directive| {
                let name = String::from_utf8(directive.args[0].to_vec()).unwrap();
                *scope.conf.location(&SAID).gate = Some(gate(&name));
                Ok(())
            },
        },
    ],
    confs: &[&SAID],
    phases: &[
        PhaseHandler {
            phase: Phase::Content,
            cost: Cost::Cheap,
            enabled: |enabling| enabling.confs.of(&SAID).text.is_some(),
            handler: |exchange| Step::Wait(Box::pin(say(exchange))),
        },
        PhaseHandler {
            phase: Phase::Log,
            cost: Cost::Cheap,
            enabled: |_| true,
            handler: |exchange| {
                LOGGED.lock().unwrap().push(String::from_utf8_lossy(exchange.request.path()).into_owned());
                Step::Declined
            },
        },
    ],
    ..Module::EMPTY
};

static SAID: ConfKey<Said> = ConfKey::new(Level::Location);
static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// How often a path was logged.
pub(crate) fn logged(path: &str) -> usize {
    LOGGED.lock().unwrap().iter().filter(|logged| *logged == path).count()
}

settings! {
    struct Said {
        text: Own<Option<Value>>,
        gate: Own<Option<Arc<Gate>>>,
    }
}

async fn say(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let said = exchange.request.conf(&SAID);
    if let Some(gate) = &*said.gate {
        gate.pass().await;
    }
    if let Err(answer) = exchange.read_body(Store::AsConfigured).await {
        return Step::Respond(answer);
    }
    let text = said.text.as_ref().unwrap().eval(&exchange.view()).into_owned();
    let head = exchange.output.head();
    head.status = 200;
    head.content_length = Some(text.len() as u64);
    let _ = exchange.output.write(exchange.request, Chunk::Owned(text), Mark::Last);
    Step::Done
}

/// Where requests wait until a test lets them go on.
#[derive(Default)]
pub(crate) struct Gate {
    open: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

/// The gate of that name.
pub(crate) fn gate(name: &str) -> Arc<Gate> {
    static GATES: LazyLock<Mutex<HashMap<String, Arc<Gate>>>> = LazyLock::new(Mutex::default);
    Arc::clone(GATES.lock().unwrap().entry(name.to_owned()).or_default())
}

impl Gate {
    async fn pass(&self) {
        poll_fn(|cx| {
            *self.waiting.lock().unwrap() = Some(cx.waker().clone());
            if self.open.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Waits until a request waits.
    pub(crate) fn wait_reached(&self) {
        assert!(wait_until(PATIENCE, || self.waiting.lock().unwrap().is_some()), "nobody came to the gate");
    }

    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
        if let Some(waker) = self.waiting.lock().unwrap().take() {
            waker.wake();
        }
    }
}

/// Lines of the error log, with their identities.
#[derive(Default)]
struct Lines(Mutex<Vec<(u32, String)>>);

impl Sink for Lines {
    fn enabled(&self, level: LogLevel) -> bool {
        level < LogLevel::Debug
    }

    fn write(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push((record.tid, format!("[{}] {}", record.level.as_str(), record.message)));
    }
}

/// The generations of a listener.
struct Generations {
    runtime: Runtime,
    port: u16,
    lines: Arc<Lines>,
    /// All so far.
    snapshots: Vec<Weak<Snapshot>>,
    /// Numbers of those that nobody uses any more.
    ended: Arc<Mutex<Vec<u64>>>,
}

impl Generations {
    fn next(&mut self, http: &str) -> Arc<Generation> {
        let snapshot = Arc::new(load(&http.replace("PORT", &self.port.to_string()), &self.lines));
        self.snapshots.push(Arc::downgrade(&snapshot));
        let (number, ended) = (self.snapshots.len() as u64, Arc::clone(&self.ended));
        let identities = self.runtime.identities().unwrap();
        Generation::new(GenerationParts { number, snapshot, identities }, move |parts| {
            let number = parts.number;
            drop(parts);
            ended.lock().unwrap().push(number);
        })
    }
}

/// A listener that serves.
pub(crate) struct Site {
    pub(crate) listener: Arc<Listener>,
    generations: Generations,
    stop: Arc<AcceptStop>,
    policies: Vec<&'static AcceptPolicy>,
}

impl Site {
    /// Serves the content of an `http` block, in which `PORT` stands for the listener's port.
    pub(crate) fn start(http: &str) -> Self {
        Self::start_on(shared_runtime(), http, 10_000)
    }

    /// The same with other `worker_connections`, on a loop that does nothing else.
    pub(crate) fn start_alone(http: &str, connections_max: u32) -> Self {
        Self::start_on(start_runtime(1), http, connections_max)
    }

    fn start_on(runtime: Runtime, http: &str, connections_max: u32) -> Self {
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        let (lines, ended) = (Arc::default(), Arc::default());
        let mut generations = Generations { runtime, port, lines, snapshots: Vec::new(), ended };
        let listener = Arc::new(Listener::new(generations.next(http), 0));
        let policy = |_| AcceptPolicy::new(connections_max, MultiAccept::On);
        let policies = runtime.loops().map(policy).collect();
        let site = Self { listener, generations, stop: AcceptStop::new(), policies };
        let socket = Arc::new(socket.into());
        for home in runtime.loops() {
            let listening = clearway_runtime::Listener::new(home, Arc::clone(&socket)).unwrap();
            let acceptor = Acceptor {
                source: LoopSource::new(listening),
                policy: site.policies[home.index()],
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

    /// What a reload does to a listener that stays.
    pub(crate) fn publish(&mut self, http: &str) {
        self.listener.publish(self.generations.next(http), 0);
        self.wake_all();
    }

    /// What one does to a listener that goes.
    pub(crate) fn remove(&self) {
        self.stop.remove();
        self.listener.stop();
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        self.generations.runtime.wake_all();
    }

    pub(crate) fn is_alive(&self, number: usize) -> bool {
        self.generations.snapshots[number - 1].strong_count() > 0
    }

    /// Waits until nobody uses a generation, and its owner was told so.
    pub(crate) fn wait_ended(&self, number: usize) {
        let told = || self.generations.ended.lock().unwrap().contains(&(number as u64));
        assert!(
            wait_until(PATIENCE, || told() && !self.is_alive(number)),
            "generation {number} is still in use"
        );
    }

    /// Waits until the server has read what was sent to it: nothing is in the receive queues of its
    /// connections.
    pub(crate) fn wait_read(&self) {
        let own = format!(":{:04X}", self.generations.port);
        let read = || {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            table
                .lines()
                .filter(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&own)))
                .all(|line| {
                    line.split_whitespace().nth(4).is_some_and(|queues| queues.ends_with(":00000000"))
                })
        };
        assert!(wait_until(PATIENCE, read), "something is unread");
    }

    /// Waits until so many connections are open while the accept tasks run.
    pub(crate) fn wait_connections(&self, count: usize) {
        let wanted = (count + self.policies.len()) as u32;
        assert!(wait_until(PATIENCE, || self.places() == wanted), "{} is not {wanted}", self.places());
    }

    /// Connections and accept tasks that are there.
    pub(crate) fn places(&self) -> u32 {
        self.policies.iter().map(|policy| policy.connections()).sum()
    }

    /// The first line of the error log with this text, and its identity.
    pub(crate) fn wait_line(&self, text: &str) -> (u32, String) {
        let find =
            || self.generations.lines.0.lock().unwrap().iter().find(|(_, line)| line.contains(text)).cloned();
        assert!(wait_until(PATIENCE, || find().is_some()), "no {text:?}");
        find().unwrap()
    }

    pub(crate) fn address(&self) -> Address {
        Address::Tcp(([127, 0, 0, 1], self.generations.port).into())
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.address()).unwrap()
    }
}

fn load(http: &str, lines: &Arc<Lines>) -> Snapshot {
    let log: Arc<dyn Sink> = lines.clone();
    load_http(http, &[&SAY], &log, Services::default())
}
