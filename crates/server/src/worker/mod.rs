//! The worker: everything that touches the network. It is given configurations with open sockets, runs
//! them on its loops one after the other, and is told to end. Driven by a main thread, its own process's
//! or (with `master_process off`) the only one's; connections are served on the loops.

pub(crate) mod builder;
mod handed;
pub(crate) mod privileges;
pub mod process;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use clearway_base::log::{Level, Record, Sink};
use clearway_cache::disks::Caches;
use clearway_http::{Generation, GenerationParts, Listener, Snapshot};
use clearway_log::{ErrorLog, Writer};
use clearway_net::accept::{AcceptPolicy, AcceptStop, Accepted, Acceptor, MultiAccept};
use clearway_net::connect::Connector;
use clearway_net::on_loop::{LoopSource, OTHERS_MAX};
use clearway_os::clock;
use clearway_os::epoll::EventFd;
use clearway_os::thread::Processors;
use clearway_proxy::upstreams::Lasting;
use clearway_runtime::{Config, Identities, LoopRef, Runtime, Tag};
use clearway_watchdog::{Watchdog, WorkPlace};
use crossbeam_queue::SegQueue;

use crate::board;
use crate::control::{HandedSocket, Report, SocketKind};
use crate::core_conf::CoreConf;
use crate::load::Loaded;
use crate::metrics::{self, AcceptTally, Running};
use crate::pools::Pools;
use builder::cannot_run;

/// How often it is looked whether the last timers of a configuration are over.
const ENDING_STEP: Duration = Duration::from_millis(20);

/// How often it is looked what other worker processes have changed in zones, and told what was counted.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// How long the log writer may take to write what is queued when a process ends.
pub(crate) const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// The error log of the configuration that is in use, for what outlives configurations.
pub(crate) struct CurrentLog(ArcSwap<ErrorLog>);

impl CurrentLog {
    fn new(log: Arc<ErrorLog>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(log)))
    }
}

impl Sink for CurrentLog {
    fn enabled(&self, level: Level) -> bool {
        self.0.load().enabled(level)
    }

    fn write(&self, record: &Record<'_>) {
        self.0.load().write(record);
    }
}

/// Configurations that nobody uses any more, on their way from the loops to the main thread.
struct Ended {
    parts: SegQueue<GenerationParts>,
    bell: EventFd,
}

/// A configuration that is built and not used yet.
pub(crate) struct Prepared {
    number: u64,
    loaded: Loaded,
    sockets: Vec<HandedSocket>,
    identities: Arc<Identities>,
}

impl Prepared {
    /// The ids that stand for its loops.
    pub(crate) fn identities(&self) -> &[u32] {
        self.identities.all()
    }

    /// The connections of the privileged agent that its code wants.
    pub(crate) fn agent(&self) -> Option<u32> {
        clearway_lua::wanted_agent(self.loaded.snapshot.as_ref()?)
    }
}

/// An address that is listened on.
struct Active {
    address: String,
    serial: u64,
    listener: Arc<Listener>,
    kind: SocketKind,
    stop: Arc<AcceptStop>,
    accepts: Arc<AcceptTally>,
}

impl Active {
    /// Has nobody accept any more while other sockets, or other processes, go on with the address.
    fn stop_accepting(&self) {
        match self.kind {
            SocketKind::Shared => self.stop.stop(),
            SocketKind::PerLoop => self.stop.leave(),
        }
    }
}

/// The configuration in use.
struct Current {
    identities: Arc<Identities>,
    /// Absent where there is no `http` block. Kept for as long as it is the current one, used or not.
    generation: Option<Arc<Generation>>,
}

/// What a process runs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Clients,
    /// It is the privileged agent, which serves nobody: what is done for clients is left to workers.
    Agent,
}

/// A running worker.
pub(crate) struct Worker {
    runtime: Runtime,
    /// Since 1970.
    started_ms: u64,
    watchdog: Watchdog,
    policies: &'static [AcceptPolicy],
    active: Vec<Active>,
    current: Option<Current>,
    pools: Pools,
    lasting: Arc<Lasting>,
    caches: Arc<Caches>,
    /// Where what outlives configurations writes.
    log: Arc<CurrentLog>,
    writer: Arc<Writer>,
    /// Whether other loops, of this process or others, listen on the same sockets.
    takes_turns: bool,
    /// When it is looked next what other processes have changed in zones; `None`: there are none.
    follow_at: Option<Instant>,
    shutdown_timeout: Option<Duration>,
    /// When connections that are older than a configuration are closed (`worker_shutdown_timeout`).
    deadlines: Vec<(Instant, u64)>,
    /// Listeners that were removed, for as long as they have connections.
    retired: Vec<Weak<Listener>>,
    ended: Arc<Ended>,
    /// The identities of configurations that ended without having had anything to serve.
    unserved: Vec<Arc<Identities>>,
    /// Configurations that only timers of Lua use.
    ending: Vec<GenerationParts>,
    draining: bool,
    purpose: Purpose,
}

impl Worker {
    /// Starts the loops for the first configuration, which is to be committed next.
    ///
    /// # Errors
    /// When threads or descriptors are refused, or as of `prepare`.
    pub(crate) fn start(
        loaded: Loaded,
        number: u64,
        sockets: Vec<HandedSocket>,
        writer: &Arc<Writer>,
    ) -> Result<(Self, Prepared), Report> {
        let (worker, loaded) = Self::start_loops(loaded, writer).map_err(|error| cannot_run(&error))?;
        let prepared = worker.prepare(loaded, number, sockets)?;
        Ok((worker, prepared))
    }

    fn start_loops(loaded: Loaded, writer: &Arc<Writer>) -> io::Result<(Self, Loaded)> {
        let log = CurrentLog::new(Arc::clone(&loaded.log));
        let core = &loaded.core;
        let config = Config {
            loops: core.loops(),
            handover_after: core.handover_after(),
            handover_carriers: core.handover_carriers(),
            processors: (0..core.loops()).map(|index| processors(core, index)).collect(),
            sink: Arc::clone(&log) as _,
        };
        let runtime = Runtime::start(&config)?;
        let (settings, sink) = (core.stall_reports(), Arc::clone(&log) as _);
        let watchdog = Watchdog::start(runtime, core.share().start, settings, sink)?;
        clearway_lua::count_workers(core.share(), core.all_loops());
        let (most, multi_accept) = (connections_max(core), multi_accept(core));
        let policies = AcceptPolicy::for_loops(runtime.len(), most, multi_accept);
        clearway_http::metrics::prepare(runtime.len());
        metrics::number_loops_from(core.share().start);
        clearway_proxy::start(Connector::new(policies));
        clearway_lua::connect_with(Connector::new(policies));
        clearway_lua::say_configured(crate::version::arguments());
        clearway_lua::say_environment(core.said_environment());
        #[cfg(feature = "tls")]
        clearway_modules::ssl::start_stapling(Connector::new(policies));
        let worker = Self {
            runtime,
            started_ms: clock::unix_ms(),
            watchdog,
            policies,
            active: Vec::new(),
            current: None,
            pools: loaded.pools.clone(),
            lasting: Arc::clone(&loaded.lasting),
            caches: Arc::clone(&loaded.caches),
            log,
            writer: Arc::clone(writer),
            takes_turns: core.all_loops() > 1,
            follow_at: None,
            shutdown_timeout: None,
            deadlines: Vec::new(),
            retired: Vec::new(),
            ended: Arc::new(Ended { parts: SegQueue::new(), bell: EventFd::new()? }),
            ending: Vec::new(),
            unserved: Vec::new(),
            draining: false,
            purpose: if core.is_agent() { Purpose::Agent } else { Purpose::Clients },
        };
        worker.lasting.log_to(&worker.lasting_log());
        worker.caches.log_to(&worker.lasting_log());
        Ok((worker, loaded))
    }

    /// Makes what a configuration needs beside what there is.
    ///
    /// # Errors
    /// When threads are refused, or code of the configuration fails; what to tell the master.
    pub(crate) fn prepare(
        &self,
        loaded: Loaded,
        number: u64,
        sockets: Vec<HandedSocket>,
    ) -> Result<Prepared, Report> {
        loaded.pools.launch().map_err(|error| cannot_run(&error))?;
        if !self.is_agent() {
            loaded.caches.launch().map_err(|error| cannot_run(&error))?;
        }
        if let Some(snapshot) = &loaded.snapshot {
            let log: Arc<dyn Sink> = Arc::clone(&loaded.log) as _;
            clearway_lua::prepare(snapshot, self.runtime, &log).map_err(builder::refused_by_code)?;
        }
        let identities = self.runtime.identities().map_err(|error| cannot_run(&error))?;
        debug_assert_eq!(identities.all().len(), self.runtime.len(), "each loop has an identity");
        Ok(Prepared { number, loaded, sockets, identities })
    }

    /// The pools in use, for the next configuration to take over from.
    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// The state of other servers, whatever the configuration.
    pub(crate) fn lasting(&self) -> Arc<Lasting> {
        Arc::clone(&self.lasting)
    }

    /// The caches of all configurations.
    pub(crate) fn caches(&self) -> Arc<Caches> {
        Arc::clone(&self.caches)
    }

    /// The log of what outlives configurations.
    pub(crate) fn lasting_log(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.log) as _
    }

    /// A descriptor that becomes readable when a configuration is not used any more.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.ended.bell.as_fd()
    }

    /// The identities of configurations that nobody uses any more; each is told once.
    pub(crate) fn take_ended(&mut self) -> Vec<Vec<u32>> {
        self.ended.bell.take();
        let mut ended = std::mem::take(&mut self.unserved);
        self.ending.extend(std::iter::from_fn(|| self.ended.parts.pop()));
        for parts in self.ending.extract_if(.., |parts| !clearway_lua::is_busy(&parts.snapshot)) {
            clearway_lua::end(&parts.snapshot, &*self.log);
            ended.push(parts.identities);
        }
        for identities in &ended {
            self.say(identities, "exiting");
            self.say(identities, "exit");
        }
        ended.iter().map(|identities| identities.all().to_vec()).collect()
    }

    /// From now on connections and requests that begin use this configuration.
    ///
    /// # Errors
    /// When descriptors are refused: some addresses are not listened on by all loops then.
    pub(crate) fn commit(&mut self, prepared: Prepared) -> io::Result<()> {
        let has_company = self.is_agent() || prepared.agent().is_some() || prepared.loaded.core.groups() > 1;
        let Prepared { number, loaded, sockets, identities } = prepared;
        let Loaded { core, snapshot, log, pools, board, .. } = loaded;
        for policy in self.policies {
            policy.adapt(connections_max(&core), multi_accept(&core));
        }
        let generation = snapshot.map(|snapshot| {
            if !self.is_agent() {
                self.lasting.begin(&snapshot, self.runtime.at(0));
            }
            clearway_lua::begin(&snapshot, identities.all(), &*log);
            let ended = Arc::clone(&self.ended);
            let identities = Arc::clone(&identities);
            let parts = GenerationParts { number, snapshot, identities };
            let generation = Generation::new(parts, move |parts| {
                ended.parts.push(parts);
                ended.bell.signal();
            });
            if !self.is_agent() {
                clearway_proxy::begin_checks(&self.lasting, &generation, self.runtime.at(0));
            }
            generation
        });
        self.pools = pools;
        if !self.is_agent() {
            self.caches.begin();
        }
        self.follow_at = has_company.then(Instant::now);
        if let Some(board) = board.as_ref().filter(|_| has_company) {
            // The loops are known now that are shown.
            board::join(board);
            board::tell_loops((!core.is_agent()).then(|| core.share().start), identities.all());
        }
        // An early request for `status` is to find the loops, and afterwards the listeners as well.
        self.publish_metrics(number);
        let result = self.listen_on(generation.as_ref(), sockets);
        self.publish_metrics(number);
        debug_assert!(!self.draining, "a worker that drains begins nothing");
        let before = self.current.replace(Current { identities, generation });
        self.shutdown_timeout = core.shutdown_timeout();
        self.watchdog.configure(core.stall_reports());
        self.name_places();
        if let Some(before) = before {
            self.say(&before.identities, "gracefully shutting down");
            if let Some(generation) = &before.generation {
                clearway_lua::retire(&generation.parts().snapshot, &*log);
            }
            let deadline = self.shutdown_timeout.map(|timeout| (Instant::now() + timeout, number));
            self.deadlines.extend(deadline);
            if before.generation.is_none() {
                self.unserved.push(before.identities);
            }
        }
        self.log.0.store(Arc::clone(&log));
        self.writer.report_to(&log);
        // Files that have been moved are left behind, as by a reload of nginx.
        self.writer.reopen();
        self.runtime.wake_all();
        result
    }

    /// Has reports of stalls say which location a tag means, as long as the configuration is in use.
    fn name_places(&self) {
        let generation = self.current.as_ref().and_then(|current| current.generation.as_ref());
        let generation = generation.map_or_else(Weak::new, Arc::downgrade);
        self.watchdog.name_places(move |tag| {
            let generation = generation.upgrade()?;
            let (name, step) = generation.parts().snapshot.tagged(tag)?;
            Some(WorkPlace { name: String::from_utf8_lossy(name).into_owned(), step })
        });
    }

    /// Has `status` show what is in use now.
    fn publish_metrics(&self, number: u64) {
        metrics::publish(Running {
            runtime: Some(self.runtime),
            pools: self.pools.all().iter().cloned().chain(self.caches.pools()).collect(),
            listeners: self.active.iter().map(|active| Arc::clone(&active.accepts)).collect(),
            lasting: Some(self.lasting()),
            caches: Some(self.caches()),
            generation: number,
            loaded_ms: clock::unix_ms(),
            started_ms: self.started_ms,
        });
    }

    /// Listeners of the configuration before go on where the address is still there.
    fn listen_on(
        &mut self,
        generation: Option<&Arc<Generation>>,
        sockets: Vec<HandedSocket>,
    ) -> io::Result<()> {
        let mut before = std::mem::take(&mut self.active);
        let mut result = Ok(());
        for (index, socket) in sockets.into_iter().enumerate() {
            let Some(generation) = generation.map(Arc::clone) else { break };
            let known = before.iter().position(|active| active.address == socket.address);
            let (listener, accepts) = match known {
                Some(at) => {
                    let old = before.swap_remove(at);
                    debug_assert_eq!(old.address, socket.address, "a listener stays with its address");
                    old.listener.publish(generation, index);
                    if old.serial == socket.serial {
                        self.active.push(old);
                        continue;
                    }
                    old.stop_accepting();
                    (old.listener, old.accepts)
                }
                None => {
                    let accepts = AcceptTally::new(&socket.address, self.runtime.len());
                    (Arc::new(Listener::new(generation, index)), accepts)
                }
            };
            let HandedSocket { address, serial, kind, fds } = socket;
            let active = Active { address, serial, listener, kind, stop: AcceptStop::new(), accepts };
            result = result.and(self.accept_on(&active, fds));
            self.active.push(active);
        }
        debug_assert!(
            before.iter().all(|gone| self.active.iter().all(|active| active.address != gone.address)),
            "an address has one listener"
        );
        for active in before {
            active.stop.remove();
            active.listener.stop();
            self.retired.push(Arc::downgrade(&active.listener));
        }
        result
    }

    /// Has every loop accept.
    fn accept_on(&self, active: &Active, fds: Vec<OwnedFd>) -> io::Result<()> {
        for (home, source) in self.runtime.loops().zip(self.sources(active.kind, fds)?) {
            let acceptor = Acceptor {
                source,
                policy: &self.policies[home.index()],
                log: active.listener.accept_log(home),
                stop: Arc::clone(&active.stop),
            };
            accept(home, acceptor, Arc::clone(&active.listener), Arc::clone(&active.accepts));
        }
        Ok(())
    }

    /// Has every loop watch its socket, and where each has one of its own those of some others too.
    fn sources(&self, kind: SocketKind, fds: Vec<OwnedFd>) -> io::Result<Vec<LoopSource>> {
        assert!(!fds.is_empty(), "an address has a socket");
        debug_assert!(kind == SocketKind::Shared || fds.len() == self.runtime.len(), "one for each loop");
        debug_assert!(kind == SocketKind::PerLoop || fds.len() == 1, "loops that share have one socket");
        let fds: Vec<Arc<OwnedFd>> = fds.into_iter().map(Arc::new).collect();
        let watch = |home: LoopRef, distance: usize| {
            let fd = &fds[(home.index() + distance) % fds.len()];
            clearway_runtime::Listener::new(home, Arc::clone(fd))
        };
        // The loops' own sockets come first: the kernel asks them in this order.
        let own: io::Result<Vec<_>> = self.runtime.loops().map(|home| watch(home, 0)).collect();
        let others = OTHERS_MAX.min(fds.len() - 1);
        let source = |own: clearway_runtime::Listener| {
            let home = own.home();
            if kind == SocketKind::Shared {
                let source = LoopSource::new(own);
                return Ok(if self.takes_turns { source.taking_turns() } else { source });
            }
            let others: io::Result<Vec<_>> = (1..=others).map(|distance| watch(home, distance)).collect();
            Ok(LoopSource::new(own).with_others(others?))
        };
        own?.into_iter().map(source).collect()
    }

    /// Stops accepting and has connections end with what they do now. Idle ones end at once. Sockets (by
    /// serial number) that are `removed` nobody else listens on.
    pub(crate) fn drain(&mut self, removed: impl Fn(u64) -> bool) {
        self.draining = true;
        if let Some(current) = &self.current {
            self.say(&current.identities, "gracefully shutting down");
        }
        for active in self.active.drain(..) {
            match removed(active.serial) {
                true => active.stop.remove(),
                false => active.stop_accepting(),
            }
            active.listener.stop();
            self.retired.push(Arc::downgrade(&active.listener));
        }
        debug_assert!(self.active.is_empty(), "a worker that drains accepts nothing");
        let deadline = self.shutdown_timeout.map(|timeout| (Instant::now() + timeout, u64::MAX));
        self.deadlines.extend(deadline);
        self.lasting.end();
        if let Some(snapshot) = self.snapshot() {
            clearway_lua::retire(snapshot, &*self.log);
        }
        clearway_lua::end_connections();
        self.runtime.wake_all();
    }

    /// Whether it is the privileged agent.
    pub(crate) fn is_agent(&self) -> bool {
        self.purpose == Purpose::Agent
    }

    /// How many addresses it accepts on.
    pub(crate) fn listening_on(&self) -> usize {
        self.active.len()
    }

    /// The configuration in use, if it serves HTTP.
    fn snapshot(&self) -> Option<&Snapshot> {
        Some(&self.current.as_ref()?.generation.as_ref()?.parts().snapshot)
    }

    /// Whether nothing is left to do. While draining, tasks that were about to wait when it began are
    /// woken once more.
    pub(crate) fn is_drained(&self) -> bool {
        if self.draining {
            self.runtime.wake_all();
        }
        self.draining
            && self.policies.iter().all(|policy| policy.connections() == 0)
            && !self.snapshot().is_some_and(clearway_lua::is_busy)
    }

    /// Does what is due. Returns how long nothing will be.
    pub(crate) fn keep_house(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let due = self.deadlines.iter().filter(|(at, _)| *at <= now).map(|(_, number)| *number).max();
        self.deadlines.retain(|(at, _)| *at > now);
        self.retired.retain(|listener| listener.strong_count() > 0);
        debug_assert!(self.deadlines.iter().all(|(at, _)| *at > now), "what is due is done once");
        if let Some(number) = due {
            let active = self.active.iter().map(|active| Arc::clone(&active.listener));
            let listeners = active.chain(self.retired.iter().filter_map(Weak::upgrade));
            listeners.for_each(|listener| listener.close_older(number));
            self.runtime.wake_all();
        }
        if self.follow_at.is_some_and(|at| at <= now) {
            self.lasting.follow_others();
            board::publish();
            self.follow_at = Some(now + FOLLOW_EVERY);
        }
        let due = self.deadlines.iter().map(|(at, _)| *at).chain(self.follow_at).min();
        let due = due.map(|at| at.saturating_duration_since(now));
        if self.ending.is_empty() { due } else { Some(due.map_or(ENDING_STEP, |due| due.min(ENDING_STEP))) }
    }

    /// Ends the loops after their present turn.
    pub(crate) fn stop(&self) {
        if let Some(current) = &self.current {
            self.say(&current.identities, "exiting");
        }
        self.runtime.stop();
        board::publish();
        let generation = self.current.as_ref().and_then(|current| current.generation.as_ref());
        if let Some(generation) = generation {
            clearway_lua::end(&generation.parts().snapshot, &*self.log);
        }
        if let Some(current) = &self.current {
            self.say(&current.identities, "exit");
        }
    }

    /// Opens the logs anew.
    pub(crate) fn reopen_logs(&self) {
        self.log.log(Level::Notice, format_args!("reopening logs"));
        self.writer.reopen();
    }

    /// A line from each of those that stand for the loops.
    fn say(&self, identities: &Identities, text: &str) {
        for &tid in identities.all().iter().filter(|_| self.log.enabled(Level::Notice)) {
            let message = format_args!("{text}");
            self.log.write(&Record { level: Level::Notice, tid, connection: None, message });
        }
    }
}

/// Accepts until it is stopped.
fn accept(home: LoopRef, acceptor: Acceptor<LoopSource>, listener: Arc<Listener>, accepts: Arc<AcceptTally>) {
    home.spawn_bound(
        Tag::NONE,
        acceptor.run(move |accepted: Accepted| {
            debug_assert!(accepts.has_loop(home.index()), "each loop counts for itself");
            accepts.count(home.index());
            let serving = home.sibling(accepted.slot.loop_index());
            serving.spawn(Tag::NONE, clearway_serve::serve(Arc::clone(&listener), serving, accepted));
        }),
    );
}

/// `worker_cpu_affinity` of a loop. Processors that no machine has bind nobody.
fn processors(core: &CoreConf, index: usize) -> Option<Processors> {
    Processors::of(&core.cpu_affinity(index)?).ok()
}

/// Connections of each loop. As in nginx the channel to the master is one of the agent's.
fn connections_max(core: &CoreConf) -> u32 {
    core.worker_connections().saturating_sub(core.is_agent().into())
}

fn multi_accept(core: &CoreConf) -> MultiAccept {
    if core.multi_accept() { MultiAccept::On } else { MultiAccept::Off }
}
