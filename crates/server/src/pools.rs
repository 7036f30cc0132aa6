//! The thread pools of a configuration: what stays the same over a reload stays, with its threads and
//! what waits in it; what has other numbers is a new pool, and the old one ends when its last job is
//! done. Boot and the worker's main thread.

use std::io;
use std::sync::Arc;

use clearway_base::log::Sink;
use clearway_http::ThreadPools;
use clearway_offload::{CRYPTO_POOL, PASSWORDS_POOL, Pool, PoolConfig};

use crate::core_conf::CoreConf;

/// The pool of everything that names none.
const DEFAULT: &str = "default";

/// Pools by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools(Vec<Arc<Pool>>);

impl Pools {
    /// For a process that reads a configuration and runs nothing: the pools' names, and no room.
    pub(crate) fn idle(core: &CoreConf, sink: &Arc<dyn Sink>) -> Self {
        let names = core.thread_pools().iter().map(|spec| String::from_utf8_lossy(&spec.name).into_owned());
        let names = names.chain([DEFAULT, PASSWORDS_POOL, CRYPTO_POOL].map(str::to_owned));
        let config = |name: String| PoolConfig { threads: 1, max_queue: 1, ..PoolConfig::new(&name) };
        Self(names.map(|name| Arc::new(Pool::new(config(name), Arc::clone(sink)))).collect())
    }

    /// The pools that a configuration wants, without threads where they are new.
    pub(crate) fn prepare(core: &CoreConf, old: &Self, sink: &Arc<dyn Sink>) -> Self {
        let loops = u32::try_from(core.loops()).unwrap_or(u32::MAX);
        let mut wanted = Vec::new();
        for spec in core.thread_pools() {
            let name = String::from_utf8_lossy(&spec.name);
            let usual = match &*name {
                PASSWORDS_POOL => PoolConfig::passwords(),
                CRYPTO_POOL => PoolConfig::crypto(),
                name => PoolConfig::new(name),
            };
            let (threads, max_queue) = (spec.threads, spec.max_queue);
            wanted.push(PoolConfig { threads, max_queue, loops, ..usual });
        }
        if wanted.iter().all(|config| config.name != PASSWORDS_POOL) {
            wanted.push(PoolConfig::passwords());
        }
        if wanted.iter().all(|config| config.name != CRYPTO_POOL) {
            wanted.push(PoolConfig::crypto());
        }
        if wanted.iter().all(|config| config.name != DEFAULT) {
            wanted.push(PoolConfig { loops, ..PoolConfig::new(DEFAULT) });
        }
        debug_assert!(
            wanted.iter().all(|one| wanted.iter().filter(|other| other.name == one.name).count() == 1),
            "a name stands for one pool"
        );
        debug_assert!(
            wanted.iter().any(|config| config.name == DEFAULT),
            "there is one for all that name none"
        );
        let same = |config: &PoolConfig| old.0.iter().find(|pool| pool.config() == config).cloned();
        let pool = |config| same(&config).unwrap_or_else(|| Arc::new(Pool::new(config, Arc::clone(sink))));
        Self(wanted.into_iter().map(pool).collect())
    }

    /// Starts the threads of those that are new.
    ///
    /// # Errors
    /// When the system refuses one.
    pub(crate) fn launch(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|pool| pool.launch())
    }

    /// All pools, to be found by name.
    pub(crate) fn by_name(&self) -> ThreadPools {
        ThreadPools::new(self.0.iter().cloned())
    }

    /// All pools.
    pub(crate) fn all(&self) -> &[Arc<Pool>] {
        &self.0
    }

    /// The pool of everything that names none.
    pub(crate) fn default_pool(&self) -> Arc<Pool> {
        let pool = self.0.iter().find(|pool| pool.name() == DEFAULT);
        Arc::clone(pool.expect("prepared in any case"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_conf::{CoreConf, MAIN, Reader, TABLES};
    use clearway_base::log::Discard;
    use clearway_conf::{Table, parse_bytes};

    fn core(text: &str) -> CoreConf {
        let mut core = CoreConf::new(std::path::Path::new("/"), Reader::Master);
        let tree = parse_bytes(text.as_bytes()).unwrap();
        Table::new(TABLES).run(&tree, MAIN, &mut core, &mut Vec::new()).unwrap();
        core
    }

    #[test]
    fn what_has_the_same_numbers_stays() {
        let sink: Arc<dyn Sink> = Arc::new(Discard);
        let one = core("thread_pool a threads=2; thread_pool b threads=3 max_queue=7;");
        let two =
            core("thread_pool a threads=2; thread_pool b threads=4 max_queue=7; thread_pool c threads=1;");
        let first = Pools::prepare(&one, &Pools::default(), &sink);
        let second = Pools::prepare(&two, &first, &sink);
        let find = |pools: &Pools, name: &str| pools.0.iter().find(|pool| pool.name() == name).cloned();
        let same = |name| match (find(&first, name), find(&second, name)) {
            (Some(one), Some(two)) => Arc::ptr_eq(&one, &two),
            _ => false,
        };
        assert!(
            same("a") && same(DEFAULT) && same(PASSWORDS_POOL) && !same("b") && find(&second, "c").is_some()
        );
    }
}
