//! The state of one VM beside the interpreter: a field for each room that has something to keep.

use std::sync::{Arc, Weak};

use clearway_base::log::Sink;
use clearway_http::{NamedVariable, Snapshot};
use clearway_log::UtcOffset;
use clearway_luajit::Fault;
use clearway_luajit::exports::{self, Stored};
use clearway_os::clock::unix_ms;
use clearway_runtime::LoopRef;
use clearway_zone::Zone;
use clearway_zone::dict::{Got, KEY_MAX_BYTES};

use crate::socket::Owners;
use crate::socket::pool::LoopPools;
use crate::vm::net_settings::NET_MAIN;
use crate::vm::of_loop::Slot;
use crate::vm::timers::Timers;
use crate::vm::workers;
use crate::waiter::Bells;

use super::regexes::{RegexConf, Regexes};

/// The state of one VM beside the interpreter.
#[derive(Default)]
pub struct VmState {
    /// The dictionaries of `ngx.shared`.
    pub dictionaries: Dictionaries,
    /// How local time differs from UTC, as the log's writer keeps it up to date; UTC where nobody has said.
    pub utc_offset: Option<UtcOffset>,
    /// Settings for `ngx.re`.
    pub regex_conf: RegexConf,
    /// The state of `ngx.re`, once it was used; taken out while it is used.
    pub(crate) regexes: Option<Box<Regexes>>,
    /// Variables that have numbers (`api::compiled`).
    pub(crate) variables: Vec<NamedVariable>,
    /// The place of the VM among those of its worker.
    pub place: VmPlace,
    /// The loop that it belongs to.
    pub home: Option<LoopRef>,
    /// Itself, once it can be entered.
    pub(crate) slot: Weak<Slot>,
    /// The configuration that it was made for.
    pub snapshot: Weak<Snapshot>,
    /// Takes lines of what is not made by a request.
    pub sink: Option<Arc<dyn Sink>>,
    /// Connections that its loop has put aside, once it belongs to one.
    pub(crate) pools: Arc<LoopPools>,
    /// The last error that left threads of `coroutine.wrap`.
    pub(crate) wrapped: Wrapped,
    /// The owner of sockets.
    pub(crate) owners: Owners,
    /// Threads that wait for semaphores.
    pub(crate) bells: Bells,
    /// Where relative paths of the configuration begin (`ngx.config.prefix()`).
    pub prefix: bytes::Bytes,
    /// The values that the call of a pool's VM has returned, or the reason why they cannot leave it.
    pub(crate) delivered: Option<Result<Vec<u8>, String>>,
}

impl VmState {
    /// The timers of its configuration, once that is about to be used.
    pub(crate) fn timers(&self) -> Option<Arc<Timers>> {
        self.snapshot.upgrade()?.conf(&NET_MAIN).timers.get().cloned()
    }

    /// `init_by_lua` wants a privileged agent, which may have so many connections.
    pub(crate) fn want_agent(&self, connections: u32) {
        if let Some(snapshot) = self.snapshot.upgrade() {
            // The code runs in each VM, and says the same in each.
            let _ = snapshot.conf(&NET_MAIN).agent.set(connections);
        }
    }

    /// `ngx.worker.pids()`: a loop is a worker, and has the number that `$pid` has, so that seeds of random
    /// numbers, which code makes of it, differ between the loops; those of other processes are there as well.
    /// Before there are any there is the process.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let snapshot = self.snapshot.upgrade();
        let pids = snapshot.as_ref().and_then(|snapshot| snapshot.conf(&NET_MAIN).pids.get());
        pids.map_or_else(|| vec![std::process::id()], |own| workers::pids(own))
    }

    /// `ngx.worker.pid()`.
    pub(crate) fn pid(&self) -> u32 {
        let snapshot = self.snapshot.upgrade();
        let pids = snapshot.as_ref().and_then(|snapshot| snapshot.conf(&NET_MAIN).pids.get());
        let own = pids.zip(self.home).and_then(|(pids, home)| pids.get(home.index()).copied());
        own.unwrap_or_else(std::process::id)
    }
}

/// Which VM it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmPlace {
    /// The result of `ngx.worker.id()`.
    pub worker_id: u32,
    /// The result of `ngx.worker.count()`: the number of loops.
    pub workers: u32,
}

/// The dictionaries of a configuration, as one VM has them.
#[derive(Default)]
pub struct Dictionaries {
    pub(crate) list: Vec<Arc<Dictionary>>,
    /// A buffer for values on their way to Lua.
    pub(crate) text: Vec<u8>,
}

impl Dictionaries {
    /// Dictionaries of these zones, by the names of the zones.
    pub fn new(zones: impl IntoIterator<Item = Arc<Zone>>) -> Self {
        let list = zones.into_iter().map(|zone| {
            exports::set(zone.name(), Box::new(ForC(Arc::downgrade(&zone))));
            Arc::new(Dictionary { zone })
        });
        Self { list: list.collect(), text: Vec::new() }
    }
}

/// A dictionary as C modules ask for it, by name: the one of the configuration that came last.
struct ForC(Weak<Zone>);

impl exports::Dictionary for ForC {
    fn get(&self, key: &[u8]) -> Option<Stored> {
        let zone = self.0.upgrade()?;
        let dict = zone.dict().filter(|_| !key.is_empty() && key.len() <= KEY_MAX_BYTES)?;
        let (mut text, now_ms) = (Vec::new(), unix_ms());
        let found = dict.get(&zone.dict_key(key), now_ms, &mut text);
        let found = found.filter(|found| !found.is_stale(now_ms))?;
        Some(match found.got {
            Got::Text => Stored::Text(text),
            Got::Number(number) => Stored::Number(number),
            Got::Boolean(boolean) => Stored::Boolean(boolean),
            Got::List => Stored::List,
        })
    }
}

/// A dictionary, in an `Arc` of one VM's own, so that loops do not count its users in the same word.
pub(crate) struct Dictionary {
    pub(crate) zone: Arc<Zone>,
}

/// How many tracebacks of one error are kept.
const TRACEBACKS_MAX: usize = 20;

/// An error on its way through threads of `coroutine.wrap`, and the tracebacks of those, innermost first.
#[derive(Default)]
pub(crate) struct Wrapped {
    text: Vec<u8>,
    tracebacks: Vec<Vec<u8>>,
}

impl Wrapped {
    /// Notes the error of a thread.
    pub(crate) fn note(&mut self, text: &[u8], traceback: &[u8]) {
        if self.text != text {
            self.tracebacks.clear();
            self.text = text.to_vec();
        }
        if self.tracebacks.len() < TRACEBACKS_MAX {
            let traceback = traceback.strip_prefix(b"stack traceback:").unwrap_or(traceback);
            self.tracebacks.push(traceback.to_vec());
        }
        debug_assert!(self.tracebacks.len() <= TRACEBACKS_MAX, "an error that goes on is bounded");
    }

    /// The fault with the tracebacks of the threads that it has come through before its own.
    pub(crate) fn put(&mut self, fault: Fault) -> Fault {
        let Self { text, tracebacks } = std::mem::take(self);
        if tracebacks.is_empty() || text != fault.text() {
            return fault;
        }
        let own = fault.traceback();
        let own = own.strip_prefix(b"stack traceback:").unwrap_or(own).to_vec();
        let mut all = Vec::new();
        for (number, traceback) in tracebacks.iter().chain([&own]).enumerate() {
            if number > 0 {
                all.extend_from_slice(format!("\ncoroutine {number}:").as_bytes());
            }
            all.extend_from_slice(traceback);
        }
        fault.with_traceback(all)
    }
}
