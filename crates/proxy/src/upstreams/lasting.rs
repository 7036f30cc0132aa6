//! The state that outlives configurations: resolvers with their answers, and the state of servers, by group,
//! name and address. There is one in a worker; it is used while a configuration is loaded, off the loops.
//!
//! Failures of servers do not outlive a configuration, as in nginx.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwap;
use clearway_base::log::{Discard, Sink};
use clearway_http::{Load, Snapshot};
use clearway_resolver::{Config, Resolver};
use clearway_runtime::LoopRef;
use clearway_upstream::{Peer, PeerConfig};
use clearway_zone::Zone;

use crate::upstreams::common::Blocks;
use crate::upstreams::draft::UPSTREAMS_CONF;
use crate::upstreams::found::FoundGroups;
use crate::upstreams::group::{GroupCell, UpstreamGroup};
use crate::upstreams::refresh;
use crate::upstreams::state_file::StateFile;

/// The state that outlives configurations, among the services of the environment. A process that serves
/// nothing has none.
#[derive(Default)]
pub struct Lasting {
    loops: usize,
    /// Worker processes that serve beside each other.
    groups: usize,
    known: Mutex<Known>,
    log: OnceLock<Arc<dyn Sink>>,
    /// Groups that no configuration names.
    found: OnceLock<Arc<FoundGroups>>,
    /// The groups of the configuration in use.
    in_use: ArcSwap<Vec<Weak<GroupCell>>>,
}

#[derive(Default)]
struct Known {
    resolvers: Vec<Weak<SharedResolver>>,
    /// The latest last; those of configurations that were given up are gone.
    groups: Vec<(Box<[u8]>, Weak<GroupCell>)>,
    state_files: Vec<Weak<StateFile>>,
    /// The state that other processes share.
    common: Vec<(Weak<Zone>, Weak<Blocks>)>,
}

/// A resolver that all directives share that say the same.
pub(crate) struct SharedResolver {
    config: Config,
    running: OnceLock<Resolver>,
    /// Which of the resolvers it is: they run on different loops.
    number: usize,
    lasting: Arc<Lasting>,
}

impl std::fmt::Debug for SharedResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedResolver").field("config", &self.config).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Lasting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lasting").field("loops", &self.loops).finish_non_exhaustive()
    }
}

impl Lasting {
    /// The state for so many loops.
    #[must_use]
    pub fn new(loops: usize) -> Arc<Self> {
        Self::among(loops, 1)
    }

    /// The state for so many loops of one of so many processes (`worker_groups`).
    #[must_use]
    pub fn among(loops: usize, groups: usize) -> Arc<Self> {
        Arc::new(Self { loops: loops.max(1), groups: groups.max(1), ..Self::default() })
    }

    /// Whether other processes serve beside this one.
    pub(crate) fn has_company(&self) -> bool {
        self.groups > 1
    }

    /// The blocks in this memory, the same for all groups that have it.
    pub(crate) fn blocks(&self, zone: &Arc<Zone>) -> Arc<Blocks> {
        let mut known = self.known();
        known.common.retain(|(_, blocks)| blocks.strong_count() > 0);
        let same = known.common.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(zone));
        same.and_then(|(_, blocks)| blocks.upgrade()).unwrap_or_else(|| {
            let blocks = Blocks::new(Arc::clone(zone));
            known.common.push((Arc::downgrade(zone), Arc::downgrade(&blocks)));
            blocks
        })
    }

    /// The state that a configuration is loaded with; an empty one if it is not to be served.
    pub(crate) fn of(load: &Load) -> Arc<Self> {
        let found = load.environment().services.find::<Arc<Self>>();
        found.map_or_else(|| Self::new(1), Arc::clone)
    }

    /// Where what runs by itself logs from now on; the first one holds.
    pub fn log_to(&self, log: &Arc<dyn Sink>) {
        let _ = self.log.set(Arc::clone(log));
    }

    /// How many loops there are.
    pub(crate) fn loops(&self) -> usize {
        self.loops.max(1)
    }

    pub(crate) fn log(&self) -> Arc<dyn Sink> {
        self.log.get().map_or_else(|| Arc::new(Discard) as _, Arc::clone)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resolver that does what this says, the same for all that say it.
    pub(crate) fn resolver(self: &Arc<Self>, config: &Config) -> Arc<SharedResolver> {
        let mut known = self.known();
        known.resolvers.retain(|resolver| resolver.strong_count() > 0);
        let live = known.resolvers.iter().filter_map(Weak::upgrade);
        if let Some(same) = live.into_iter().find(|resolver| resolver.config == *config) {
            return same;
        }
        let resolver = Arc::new(SharedResolver {
            config: config.clone(),
            running: OnceLock::new(),
            number: known.resolvers.len(),
            lasting: Arc::clone(self),
        });
        known.resolvers.push(Arc::downgrade(&resolver));
        resolver
    }

    /// The group of this name in the configuration before, while that is used.
    pub(crate) fn group_before(&self, name: &[u8]) -> Option<Arc<GroupCell>> {
        let known = self.known();
        let mut of_name = known.groups.iter().rev().filter(|(known, _)| **known == *name);
        of_name.find_map(|(_, group)| group.upgrade())
    }

    /// A group that the next configuration takes over from.
    pub(crate) fn add_group(&self, name: &[u8], group: &Arc<GroupCell>) {
        let mut known = self.known();
        known.groups.retain(|(_, group)| group.strong_count() > 0);
        known.groups.push((name.into(), Arc::downgrade(group)));
    }

    /// Groups that no configuration names, the same for all configurations.
    pub(crate) fn found(&self) -> Arc<FoundGroups> {
        Arc::clone(self.found.get_or_init(|| Arc::new(FoundGroups::new(self.loops()))))
    }

    pub(crate) fn in_use(&self) -> Arc<Vec<Weak<GroupCell>>> {
        self.in_use.load_full()
    }

    /// Whether a group is one of the configuration in use.
    pub(crate) fn uses(&self, group: &Weak<GroupCell>) -> bool {
        self.in_use.load().iter().any(|known| known.ptr_eq(group))
    }

    /// The file of this path, the same for all that name it.
    pub(crate) fn state_file(&self, path: &Path) -> Arc<StateFile> {
        let mut known = self.known();
        known.state_files.retain(|file| file.strong_count() > 0);
        let same = known.state_files.iter().filter_map(Weak::upgrade).find(|file| file.path() == path);
        same.unwrap_or_else(|| {
            let file = Arc::new(StateFile::new(path.to_owned()));
            known.state_files.push(Arc::downgrade(&file));
            file
        })
    }

    /// Servers of a group were changed: the one of the configuration in use has them as well.
    pub(crate) fn catch_up(&self, name: &[u8]) {
        for cell in self.in_use().iter().filter_map(Weak::upgrade) {
            if let Some(group) = cell.get().filter(|group| group.name() == name) {
                group.catch_up();
            }
        }
    }

    /// Groups in use have the servers that other processes have given them meanwhile, and what they know in
    /// common with those is kept.
    pub fn follow_others(&self) {
        let blocks: Vec<Weak<Blocks>> = self.known().common.iter().map(|(_, it)| Weak::clone(it)).collect();
        blocks.iter().filter_map(Weak::upgrade).for_each(|blocks| blocks.keep());
        let groups = self.in_use();
        let followed = groups.iter().filter_map(Weak::upgrade);
        followed.for_each(|cell| cell.get().into_iter().for_each(UpstreamGroup::follow_others));
    }

    /// A configuration is in use: what its groups do by themselves begins, on these loops.
    pub fn begin(self: &Arc<Self>, snapshot: &Snapshot, home: LoopRef) {
        let groups: Vec<_> = snapshot.conf(&UPSTREAMS_CONF).cells().collect();
        debug_assert!(groups.iter().all(|cell| cell.get().is_some()), "a configuration in use was read");
        for group in groups.iter().filter_map(|cell| cell.get()) {
            group.join_others();
            group.catch_up();
        }
        self.in_use.store(Arc::new(groups.iter().map(|cell| Arc::downgrade(cell)).collect()));
        refresh::begin(self, &groups, home);
    }
}

impl Lasting {
    /// The process serves what it has, and nothing else: connections that wait for requests are closed.
    pub fn end(&self) {
        for group in self.in_use().iter().filter_map(Weak::upgrade) {
            if let Some(group) = group.get() {
                group.close_idle();
            }
        }
    }
}

impl SharedResolver {
    /// The resolver, which begins with the first question. `None`: none of its servers can be asked.
    pub(crate) fn running(&self, home: LoopRef) -> Option<&Resolver> {
        if self.config.servers.is_empty() {
            return None;
        }
        if let Some(running) = self.running.get() {
            return Some(running);
        }
        let at = home.sibling(self.number % self.lasting.loops());
        // Where another loop was faster, this one ends at once.
        let _ = self.running.set(Resolver::start(&self.config, at, self.lasting.log()));
        self.running.get()
    }
}

/// A server, with what another configuration knew of it.
pub(crate) fn peer(config: PeerConfig, before: &[Arc<Peer>]) -> Arc<Peer> {
    let is_same = |peer: &&Arc<Peer>| {
        let known = peer.config();
        known.server == config.server && known.remote == config.remote
    };
    match before.iter().find(is_same) {
        Some(known) => Peer::with_state(config, Arc::clone(known.state())),
        None => Peer::new(config),
    }
}
