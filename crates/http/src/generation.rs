//! Configurations in a running worker, and the sockets that connections arrive at. A reload publishes
//! another generation to a listener; its connections take that from their next request on.
//!
//! What is published is swapped off the loops. A connection compares a number, and fetches what is
//! published (lock-free) only where that has changed and no request of its own borrows from what it has.
//! So a generation lives as long as a listener or a connection uses it; idle connections, which are woken
//! after a swap, let go of it then. It is not freed on a loop: its maker is given its parts back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use clearway_base::log::{Level, Record, Sink};
use clearway_log::Progress;
use clearway_runtime::{Identities, LoopRef};
use clearway_site::{Address, CoreServer, Socket};

use crate::link::parts::Stock;
use crate::tables::Snapshot;

/// One configuration in a running worker.
pub struct Generation {
    /// There until it is dropped.
    parts: Option<GenerationParts>,
    ended: Option<Box<Ended>>,
}

/// The parts of a generation.
pub struct GenerationParts {
    /// Which of its worker's generations it is; later ones have higher numbers, the first one 1.
    pub number: u64,
    /// The snapshot of the configuration. When it is not used any more it has to be dropped where that may
    /// take time.
    pub snapshot: Arc<Snapshot>,
    /// The threads that stand for the loops. They end when this is dropped.
    pub identities: Arc<Identities>,
}

/// The function that is called when a generation is not used any more.
type Ended = dyn FnOnce(GenerationParts) + Send + Sync;

impl Generation {
    /// A generation that lives as long as a listener or a connection uses it. Then `ended` is given its
    /// parts, on a loop as a rule: it must not wait, and should have them dropped on another thread.
    pub fn new(
        parts: GenerationParts,
        ended: impl FnOnce(GenerationParts) + Send + Sync + 'static,
    ) -> Arc<Self> {
        assert!((1..CLOSING).contains(&parts.number), "the first generation has number 1");
        Arc::new(Self { parts: Some(parts), ended: Some(Box::new(ended)) })
    }

    /// Its parts.
    pub fn parts(&self) -> &GenerationParts {
        self.parts.as_ref().expect("they are there until the drop")
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if let (Some(parts), Some(ended)) = (self.parts.take(), self.ended.take()) {
            ended(parts);
        }
    }
}

/// The setup of a request: a generation of the configuration, and the address that the connection was made
/// to. Whatever runs a request holds the setup from the first byte to the last. So several requests of one
/// connection can run at once, each in the generation in which it began.
pub struct Setup {
    // Dropped before the generation, which is to be the last that holds them.
    snapshot: Arc<Snapshot>,
    identities: Arc<Identities>,
    number: u64,
    /// Which of the snapshot's sockets the listener is.
    socket: u32,
    /// Number of the address within that socket.
    address: u32,
    _generation: Arc<Generation>,
}

impl Setup {
    /// The number of the generation.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.number
    }

    /// Whether another generation is published.
    #[inline]
    pub fn is_outdated(&self, listener: &Listener) -> bool {
        self.number != listener.number()
    }

    /// The configuration.
    #[inline]
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The configuration, to be kept.
    pub(crate) fn shared_snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// How far logged lines are written.
    pub fn log_progress(&self) -> &Progress {
        &self.snapshot.log_progress
    }

    /// The id that stands for a loop (`$pid`).
    pub(crate) fn identity(&self, home: LoopRef) -> u32 {
        self.identities.of(home.index())
    }

    /// The address that was connected to, as configured.
    pub fn address(&self) -> &Address {
        self.snapshot.sockets[self.socket as usize].address(self.address)
    }

    /// The engine's settings of the server that answers for hosts of no other name.
    pub fn server_core(&self) -> &CoreServer {
        &self.snapshot.server(self.address().default_server).core
    }
}

/// The setup for a listener's new connections: a generation, by the address that they are made to.
struct Published {
    number: u64,
    /// In the order of the addresses of the socket, of which the last is the one that is bound.
    setups: Box<[Arc<Setup>]>,
}

impl Published {
    fn new(generation: &Arc<Generation>, socket: usize) -> Arc<Self> {
        let GenerationParts { number, snapshot, identities } = generation.parts();
        let addresses = snapshot.sockets().get(socket).expect("a listener is one of the snapshot's sockets");
        let setup = |address| {
            Arc::new(Setup {
                snapshot: Arc::clone(snapshot),
                identities: Arc::clone(identities),
                number: *number,
                socket: u32::try_from(socket).expect("a configuration is far smaller than 4 GiB"),
                address,
                _generation: Arc::clone(generation),
            })
        };
        Arc::new(Self { number: *number, setups: (0..addresses.address_count()).map(setup).collect() })
    }

    /// The setup of the address that is bound.
    fn bound(&self) -> &Arc<Setup> {
        self.setups.last().expect("a socket is bound to an address")
    }

    fn socket(&self) -> &Socket {
        let setup = self.bound();
        &setup.snapshot.sockets[setup.socket as usize]
    }
}

/// A socket that connections arrive at, through all generations in which there is one for its address.
///
/// What changes here is noticed by connections that are busy at their next request, and by idle ones as
/// soon as they are woken: each change is to be followed by `Runtime::wake_all`.
pub struct Listener {
    published: ArcSwap<Published>,
    /// The number of what is published, written after it, and [`STOPPING`] and [`CLOSING`]. While it is
    /// the number of what a connection has, there is nothing to look at.
    state: AtomicU64,
    /// Connections that began no request in this generation or a later one are closed.
    close_below: AtomicU64,
    pub(crate) stock: Stock,
}

/// Connections are to end with their requests.
const STOPPING: u64 = 1 << 63;
/// Older connections are to be closed, or were.
const CLOSING: u64 = 1 << 62;

impl Listener {
    /// For one of the sockets of the generation's snapshot, by its number in `Snapshot::sockets`.
    ///
    /// # Panics
    /// If there is no such socket.
    pub fn new(generation: Arc<Generation>, socket: usize) -> Self {
        let published = Published::new(&generation, socket);
        Self {
            state: AtomicU64::new(published.number),
            published: ArcSwap::new(published),
            close_below: AtomicU64::new(0),
            stock: Stock::new(),
        }
    }

    /// From here on connections and requests that begin are served with another generation, in whose
    /// snapshot the listener is socket number `socket`. To be called off the loops, by one thread at a
    /// time.
    ///
    /// # Panics
    /// If there is no such socket, or the generation is not later than the one before.
    pub fn publish(&self, generation: Arc<Generation>, socket: usize) {
        let published = Published::new(&generation, socket);
        let number = published.number;
        assert!(number & (STOPPING | CLOSING) == 0, "numbers leave room for what else is said");
        let before = self.number();
        assert!(number > before, "generations follow each other");
        self.published.store(published);
        self.state.fetch_add(number - before, Ordering::Release);
        debug_assert_eq!(self.number(), number, "one thread at a time publishes");
        debug_assert_eq!(self.published.load().number, number, "the number is that of what is published");
    }

    /// From here on responses close their connections, and idle connections end as soon as they are
    /// woken, `keepalive_min_timeout` permitting.
    pub fn stop(&self) {
        self.state.fetch_or(STOPPING, Ordering::Release);
    }

    /// Ends all connections that neither were accepted nor began a request since generation `number`
    /// was published, idle or not, without waiting for anything (`worker_shutdown_timeout`).
    pub fn close_older(&self, number: u64) {
        self.close_below.fetch_max(number, Ordering::Relaxed);
        self.state.fetch_or(CLOSING, Ordering::Release);
    }

    /// Closes all connections.
    pub fn close_all(&self) {
        self.close_older(u64::MAX);
    }

    /// Where lines about accepting on a loop go: the error log of the address's default server, as of
    /// the generation that is published when they are written, with the loop's identity in it.
    pub fn accept_log(self: &Arc<Self>, home: LoopRef) -> Arc<dyn Sink> {
        Arc::new(AcceptLog { listener: Arc::clone(self), home })
    }

    /// The published setup for a connection to the address that `local` finds out.
    pub fn published(&self, local: impl FnOnce() -> Option<SocketAddr>) -> Arc<Setup> {
        let published = self.published.load();
        let socket = published.socket();
        if !socket.needs_local_address() {
            return Arc::clone(published.bound());
        }
        let at = socket.find(local()) as usize;
        debug_assert!(at < published.setups.len(), "each address of a socket has its setup");
        Arc::clone(&published.setups[at])
    }

    /// The number of what is published.
    pub(crate) fn number(&self) -> u64 {
        self.state.load(Ordering::Acquire) & !(STOPPING | CLOSING)
    }

    /// Whether nothing has happened since generation `number` was published. If not, what has is told by
    /// the other questions.
    #[inline]
    pub fn is_as_of(&self, number: u64) -> bool {
        self.state.load(Ordering::Acquire) == number
    }

    /// Whether connections are to end with their requests.
    pub fn is_stopping(&self) -> bool {
        self.state.load(Ordering::Acquire) & STOPPING != 0
    }

    /// Whether connections whose latest request was of generation `number` are to be closed at once.
    pub fn closes(&self, number: u64) -> bool {
        self.state.load(Ordering::Acquire) & CLOSING != 0 && number < self.close_below.load(Ordering::Relaxed)
    }
}

/// See [`Listener::accept_log`].
struct AcceptLog {
    listener: Arc<Listener>,
    home: LoopRef,
}

impl Sink for AcceptLog {
    fn enabled(&self, level: Level) -> bool {
        sinks(self.listener.published.load().bound()).iter().any(|sink| sink.enabled(level))
    }

    fn write(&self, record: &Record<'_>) {
        let published = self.listener.published.load();
        let setup = published.bound();
        let record = Record { tid: setup.identity(self.home), ..*record };
        for sink in sinks(setup).iter().filter(|sink| sink.enabled(record.level)) {
            sink.write(&record);
        }
    }
}

/// The error log of the default server.
fn sinks(setup: &Setup) -> &[Arc<dyn Sink>] {
    let server = setup.snapshot.server(setup.address().default_server);
    &setup.snapshot.location(server.base).core.error_log
}
