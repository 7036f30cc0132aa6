//! The worker: everything that touches the network. It is given a loaded configuration and open
//! listening sockets, runs the loops, and is told to stop. A later process boundary runs here.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clearway_base::log::Sink;
use clearway_http::{Generation, GenerationParts, Listener};
use clearway_net::accept::{AcceptPolicy, AcceptStop, Accepted, Acceptor, MultiAccept};
use clearway_net::bind::Sockets;
use clearway_net::on_loop::LoopSource;
use clearway_runtime::{Config, LoopRef, Runtime, Tag};

use crate::load::Loaded;

/// A running worker.
pub(crate) struct Worker {
    runtime: Runtime,
    listeners: Vec<Arc<Listener>>,
    policies: Vec<Arc<AcceptPolicy>>,
    /// Of the accept tasks of all listeners.
    stop: Arc<AcceptStop>,
    stopping: AtomicBool,
}

impl Worker {
    /// Starts the loops and accepts on `sockets`, which are those of the snapshot in its order.
    ///
    /// # Errors
    /// When threads or descriptors are refused.
    pub(crate) fn start(loaded: &Loaded, sockets: Vec<Sockets>) -> io::Result<Self> {
        let core = &loaded.core;
        let sink: Arc<dyn Sink> = Arc::clone(&loaded.log) as _;
        let config = Config {
            loops: core.loops(),
            handover_after: core.handover_after(),
            handover_carriers: core.handover_carriers(),
            sink: Arc::clone(&sink),
        };
        let runtime = Runtime::start(&config)?;
        let connections_max = core.worker_connections();
        let multi_accept = if core.multi_accept() { MultiAccept::On } else { MultiAccept::Off };
        let policies = runtime.loops().map(|_| AcceptPolicy::new(connections_max, multi_accept)).collect();
        let mut worker = Self {
            runtime,
            listeners: Vec::new(),
            policies,
            stop: AcceptStop::new(),
            stopping: AtomicBool::new(false),
        };
        let Some(snapshot) = &loaded.snapshot else { return Ok(worker) };
        let (snapshot, identities) = (Arc::clone(snapshot), runtime.identities()?);
        let generation = Generation::new(GenerationParts { number: 1, snapshot, identities }, drop);
        for (index, sockets) in sockets.into_iter().enumerate() {
            let listener = Arc::new(Listener::new(Arc::clone(&generation), index));
            for (home, fd) in runtime.loops().zip(per_loop(sockets, runtime.len())) {
                let acceptor = Acceptor {
                    source: LoopSource::new(clearway_runtime::Listener::new(home, fd)?),
                    policy: Arc::clone(&worker.policies[home.index()]),
                    log: listener.accept_log(home),
                    stop: Arc::clone(&worker.stop),
                };
                accept(home, acceptor, Arc::clone(&listener));
            }
            worker.listeners.push(listener);
        }
        Ok(worker)
    }

    /// Stops accepting and has connections end with what they do now. Idle ones end at once.
    pub(crate) fn drain(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.stop();
        self.listeners.iter().for_each(|listener| listener.stop());
        self.runtime.wake_all();
    }

    /// Connections (and listening sockets) that are still there. While draining, tasks that were
    /// about to wait when it began are woken once more.
    #[must_use]
    pub(crate) fn connections(&self) -> u64 {
        if self.stopping.load(Ordering::Acquire) {
            self.runtime.wake_all();
        }
        self.policies.iter().map(|policy| u64::from(policy.connections())).sum()
    }

    /// Ends the loops after their present turn.
    pub(crate) fn stop(&self) {
        self.runtime.stop();
    }
}

/// Accepts until the worker stops.
fn accept(home: LoopRef, acceptor: Acceptor<LoopSource>, listener: Arc<Listener>) {
    home.spawn(
        Tag::NONE,
        acceptor.run(move |accepted: Accepted| {
            home.spawn(Tag::NONE, clearway_http::serve(Arc::clone(&listener), home, accepted));
        }),
    );
}

/// The socket that each of `loops` loops accepts from.
fn per_loop(sockets: Sockets, loops: usize) -> Vec<Arc<OwnedFd>> {
    match sockets {
        Sockets::Shared(fd) => {
            let fd = Arc::new(fd);
            (0..loops).map(|_| Arc::clone(&fd)).collect()
        }
        Sockets::PerLoop(fds) => fds.into_iter().map(Arc::new).collect(),
    }
}
