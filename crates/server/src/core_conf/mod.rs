//! The directives outside `http`: processes, events, logs, hand-over. Read at boot and at reload into one
//! typed structure, by the master and again by the worker; nothing here is looked at per request.
//!
//! `directives` is the table, `no_effect` the list of those for which nothing is left to do, the other
//! files are what the larger directives mean.

mod affinity;
mod directives;
mod environment;
mod error_log;
mod groups;
mod limits;
mod load_module;
mod no_effect;
mod paths;
#[cfg(test)]
mod tests;
mod thread_pool;
mod user;

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_conf::{Contexts, Directive, Error, Spec};
use clearway_http::WantedRights;
use clearway_os::process;
use clearway_os::users::User;

use affinity::Affinity;
use environment::EnvSpec;
use groups::{GROUPS_MAX, Groups};

pub use environment::EnvValue;
pub(crate) use error_log::error_log;
pub use error_log::{ErrorLogSpec, ErrorLogTarget};
pub use groups::Duty;
pub use limits::{HANDOVER_AFTER_DEFAULT, HANDOVER_CARRIERS_DEFAULT, WORKER_CONNECTIONS_DEFAULT};
pub use no_effect::{NO_EFFECT, NoEffect};
pub(crate) use paths::bytes_path;
pub use thread_pool::ThreadPoolSpec;

use crate::places::PID_DEFAULT;

/// Outside of all blocks.
pub const MAIN: Contexts = Contexts::bit(0);
/// In `events`.
pub const EVENTS: Contexts = Contexts::bit(1);

/// The directives outside `http`.
pub const TABLES: &[&[Spec<CoreConf>]] = &[directives::DIRECTIVES, no_effect::DIRECTIVES];

/// The process that reads the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The process that was started: everything is looked up and checked.
    Master,
    /// One that the master has started, which gets what the master has checked: what needs the rights of
    /// the master is read for its form only, and gives no second warning.
    Worker(Duty),
}

/// The `http` block.
#[derive(Clone, Debug)]
pub struct HttpBlock {
    /// The whole directive.
    pub directive: Directive,
    /// How many warnings stand before it.
    pub warnings_before: usize,
}

/// The settings outside `http`.
#[derive(Debug)]
pub struct CoreConf {
    /// Where relative paths begin; ends in a slash.
    prefix: PathBuf,
    reader: Reader,
    /// `error_log` directives in order.
    pub error_logs: Vec<ErrorLogSpec>,
    worker_processes: Option<u64>,
    worker_groups: Option<Groups>,
    pid: Option<PathBuf>,
    daemon: Option<bool>,
    master_process: Option<bool>,
    user: Option<User>,
    /// File names of `load_module`.
    modules: Vec<Bytes>,
    env: Vec<EnvSpec>,
    rlimit_nofile: Option<u64>,
    rlimit_core: Option<u64>,
    /// 0: not given, as in nginx.
    priority: i32,
    affinity: Option<Affinity>,
    shutdown_timeout: Option<Duration>,
    working_directory: Option<PathBuf>,
    no_new_privileges: Option<bool>,
    ssl_object_cache_inheritable: Option<bool>,
    thread_pools: Vec<ThreadPoolSpec>,
    worker_connections: Option<u64>,
    multi_accept: Option<bool>,
    handover_after: Option<Option<Duration>>,
    handover_carriers: Option<u64>,
    stall_report_after: Option<Option<Duration>>,
    stall_report_rate: Option<clearway_watchdog::Rate>,
    /// Given once, and without effect.
    formal: no_effect::Formal,
    /// The `events` block has been read.
    events: Option<()>,
    /// The `http` block, to be loaded when the logs are open.
    pub http: Option<HttpBlock>,
    /// The rights that directives in `http` need, once it is loaded.
    pub rights: WantedRights,
}

/// All that a running worker process cannot change: if it differs between two configurations the new one
/// needs a new worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessTraits {
    loops: usize,
    groups: usize,
    worker_connections: u32,
    user: Option<User>,
    environment: Vec<(OsString, EnvValue)>,
    rlimit_nofile: Option<u64>,
    rlimit_core: Option<u64>,
    priority: i32,
    affinity: Option<Affinity>,
    working_directory: Option<PathBuf>,
    no_new_privileges: bool,
    foreign_addresses: bool,
    handover_after: Option<Duration>,
    handover_carriers: usize,
}

impl CoreConf {
    /// The settings before any directive.
    #[must_use]
    pub fn new(prefix: &Path, reader: Reader) -> Self {
        Self {
            prefix: prefix.to_owned(),
            reader,
            error_logs: Vec::new(),
            worker_processes: None,
            worker_groups: None,
            pid: None,
            daemon: None,
            master_process: None,
            user: None,
            modules: Vec::new(),
            env: Vec::new(),
            rlimit_nofile: None,
            rlimit_core: None,
            priority: 0,
            affinity: None,
            shutdown_timeout: None,
            working_directory: None,
            no_new_privileges: None,
            ssl_object_cache_inheritable: None,
            thread_pools: Vec::new(),
            worker_connections: None,
            multi_accept: None,
            handover_after: None,
            handover_carriers: None,
            stall_report_after: None,
            stall_report_rate: None,
            formal: no_effect::Formal::default(),
            events: None,
            http: None,
            rights: WantedRights::default(),
        }
    }

    /// To be called when everything is read, `http` included: what can only be said of the whole, in
    /// nginx's order.
    ///
    /// # Errors
    /// The first thing that is missing.
    pub fn finish(&mut self, warnings: &mut Vec<Error>) -> Result<(), Error> {
        if let Some(warning) = self.affinity.as_ref().and_then(|masks| masks.warning(self.worker_processes)) {
            warnings.push(warning);
        }
        if self.user.is_none() && self.reader == Reader::Master && process::is_root() {
            self.user = Some(user::default_user()?);
        }
        if self.events.is_none() {
            return Err(Error::unplaced("no \"events\" section in configuration"));
        }
        self.check_groups(warnings)
    }

    /// Whether the master is to have a worker: with `worker_processes 0` it holds the sockets, and what comes
    /// waits there for a configuration that has one.
    #[must_use]
    pub fn wants_worker(&self) -> bool {
        self.worker_processes != Some(0)
    }

    /// Whether the connections of a loop are enough to listen on so many sockets, behind
    /// [`finish`](Self::finish).
    ///
    /// # Errors
    /// They are not: nginx counts one for each, and one for the master.
    pub fn check_connections(&self, sockets: usize) -> Result<(), Error> {
        let connections = self.worker_connections();
        if connections as usize > sockets || self.is_agent() {
            return Ok(());
        }
        let text = format!("{connections} worker_connections are not enough for {sockets} listening sockets");
        Err(Error::unplaced(text))
    }

    /// Connections that each loop may have.
    #[must_use]
    pub fn worker_connections(&self) -> u32 {
        if let Reader::Worker(Duty::Agent { connections }) = self.reader {
            return connections;
        }
        let number = self.worker_connections.unwrap_or(WORKER_CONNECTIONS_DEFAULT);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// `pid`, absolute.
    #[must_use]
    pub fn pid_file(&self) -> &Path {
        self.pid.as_deref().unwrap_or(Path::new(PID_DEFAULT))
    }

    /// Whether the configuration asks for a daemon.
    #[must_use]
    pub fn daemon(&self) -> bool {
        self.daemon.unwrap_or(true)
    }

    /// Whether it asks for a master process.
    #[must_use]
    pub fn master_process(&self) -> bool {
        self.master_process.unwrap_or(true)
    }

    /// Whether the configuration behind this one takes certificates over from it.
    #[must_use]
    pub fn hands_objects_on(&self) -> bool {
        self.ssl_object_cache_inheritable.unwrap_or(true)
    }

    /// The user that the worker process becomes; `None` where it cannot change its user: the master has not
    /// the rights, or this was read by the worker.
    #[must_use]
    pub fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// The variables that the worker is to have, in order (of two of one name the first counts): those
    /// of `env`, and `TZ` in any case.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, EnvValue)> {
        environment::environment(&self.env)
    }

    /// The variables of `env` with a value.
    #[must_use]
    pub fn said_environment(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let said = self.environment().into_iter().filter_map(|(name, value)| match value {
            EnvValue::Given(value) => Some((name.into_encoded_bytes(), value.into_encoded_bytes())),
            EnvValue::Inherited => None,
        });
        said.collect()
    }

    /// `worker_rlimit_nofile`: descriptors that one of nginx's workers may open, so many per loop.
    #[must_use]
    pub fn rlimit_nofile(&self) -> Option<u64> {
        self.rlimit_nofile
    }

    /// `worker_rlimit_core`: bytes of a core file.
    #[must_use]
    pub fn rlimit_core(&self) -> Option<u64> {
        self.rlimit_core
    }

    /// `worker_priority`: the nice value that loops run at; 0 leaves the one that is there.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// `worker_cpu_affinity`: the processors that a loop of this process may run on; `None` leaves them as
    /// they are.
    #[must_use]
    pub fn cpu_affinity(&self, loop_index: usize) -> Option<Vec<usize>> {
        self.affinity.as_ref().filter(|_| !self.is_agent())?.of(self.share().start + loop_index)
    }

    /// `worker_shutdown_timeout`: when connections of an old configuration or of a server that ends are
    /// closed; `None`: never.
    #[must_use]
    pub fn shutdown_timeout(&self) -> Option<Duration> {
        self.shutdown_timeout.filter(|timeout| !timeout.is_zero())
    }

    /// `working_directory` of the worker, as written.
    #[must_use]
    pub fn working_directory(&self) -> Option<&Path> {
        self.working_directory.as_deref()
    }

    /// Whether a worker that has no rights beyond its user's can gain none by executing a program.
    #[must_use]
    pub fn no_new_privileges(&self) -> bool {
        self.no_new_privileges.unwrap_or(true)
    }

    /// Whether a worker that becomes `user` keeps the right to connect from addresses of other machines
    /// (CAP_NET_RAW): a directive needs it, and the user does not have it. Known once `http` is loaded.
    #[must_use]
    pub fn keeps_raw_sockets(&self, user: &User) -> bool {
        user.uid != 0 && self.rights.wants_foreign_addresses()
    }

    /// Whether code that runs when the configuration comes into use is to be tried in a process of its own.
    /// Known once `http` is loaded.
    #[must_use]
    pub fn wants_trial(&self) -> bool {
        self.rights.wants_trial()
    }

    /// Whether a worker runs that code before it gives up rights, so that it takes a new one. Known once
    /// `http` is loaded.
    #[must_use]
    pub fn wants_privileged_start(&self) -> bool {
        self.rights.wants_privileged_start()
    }

    /// `thread_pool` directives in order.
    #[must_use]
    pub fn thread_pools(&self) -> &[ThreadPoolSpec] {
        &self.thread_pools
    }

    /// Whether many connections are accepted in a row.
    #[must_use]
    pub fn multi_accept(&self) -> bool {
        self.multi_accept.unwrap_or(false)
    }

    /// After which time a loop is handed over; `None`: never.
    #[must_use]
    pub fn handover_after(&self) -> Option<Duration> {
        self.handover_after.unwrap_or(Some(HANDOVER_AFTER_DEFAULT))
    }

    /// Carriers beyond one per loop.
    #[must_use]
    pub fn handover_carriers(&self) -> usize {
        usize::try_from(self.handover_carriers.unwrap_or(HANDOVER_CARRIERS_DEFAULT)).unwrap_or(0)
    }

    /// Which stalls are reported.
    #[must_use]
    pub fn stall_reports(&self) -> clearway_watchdog::Settings {
        clearway_watchdog::Settings {
            report_after: self.stall_report_after.unwrap_or(Some(clearway_watchdog::REPORT_AFTER_DEFAULT)),
            report_rate: self.stall_report_rate.unwrap_or(clearway_watchdog::REPORT_RATE_DEFAULT),
        }
    }

    /// The warning if a loop may have more connections than the process may have descriptors, or than
    /// `worker_rlimit_nofile` gives.
    #[must_use]
    pub fn descriptor_warning(&self) -> Option<String> {
        let connections = u64::from(self.worker_connections());
        let exceeds = |limit: &u64| connections > *limit;
        let limit = process::descriptors_max().filter(exceeds)?;
        let limit = self.rlimit_nofile.map_or(Some(limit), |own| Some(own).filter(exceeds))?;
        Some(format!("{connections} worker_connections exceed open file resource limit: {limit}"))
    }

    /// The settings that need a new worker process.
    #[must_use]
    pub fn process_traits(&self) -> ProcessTraits {
        ProcessTraits {
            loops: self.all_loops(),
            groups: self.groups(),
            worker_connections: self.worker_connections(),
            user: self.user.clone(),
            environment: self.environment(),
            rlimit_nofile: self.rlimit_nofile,
            rlimit_core: self.rlimit_core,
            priority: self.priority,
            affinity: self.affinity.clone(),
            working_directory: self.working_directory.clone(),
            no_new_privileges: self.no_new_privileges(),
            // Without a user to become the rights are those that the process was started with.
            foreign_addresses: self.user.as_ref().is_some_and(|user| self.keeps_raw_sockets(user)),
            handover_after: self.handover_after(),
            handover_carriers: self.handover_carriers(),
        }
    }

    fn full_name(&self, path: &[u8]) -> PathBuf {
        self.prefix.join(bytes_path(path))
    }
}

/// The share of a process in all loops that `worker_processes` asks for.
impl CoreConf {
    /// `worker_processes`: the event loops of all worker processes, where there are any.
    #[must_use]
    pub fn all_loops(&self) -> usize {
        usize::try_from(self.worker_processes.unwrap_or(1)).unwrap_or(1).max(1)
    }

    /// `worker_groups`: into how many processes they are shared out. Without a master there is one.
    #[must_use]
    pub fn groups(&self) -> usize {
        let wanted = match self.worker_groups {
            _ if !self.master_process() => 1,
            None => 1,
            Some(Groups::Number(number)) => number,
            Some(Groups::Auto) => GROUPS_MAX as usize,
        };
        wanted.min(self.all_loops())
    }

    /// The loops of a group, by their numbers among all loops.
    #[must_use]
    pub fn loops_of(&self, group: usize) -> Range<usize> {
        let (loops, groups) = (self.all_loops(), self.groups());
        assert!(group < groups, "group {group} of {groups}");
        let share = group * loops / groups..(group + 1) * loops / groups;
        debug_assert!(!share.is_empty() && share.end <= loops, "each group has loops: {share:?} of {loops}");
        share
    }

    /// The loops of the process that reads this: those of its group, or all where it is no worker. The agent
    /// has one behind all of them.
    #[must_use]
    pub fn share(&self) -> Range<usize> {
        match self.reader {
            Reader::Worker(Duty::Group(group)) => self.loops_of(group.min(self.groups() - 1)),
            Reader::Worker(Duty::Agent { .. }) => self.all_loops()..self.all_loops() + 1,
            Reader::Master => 0..self.all_loops(),
        }
    }

    /// Whether the process that reads this serves nobody and has the rights of the master.
    #[must_use]
    pub fn is_agent(&self) -> bool {
        matches!(self.reader, Reader::Worker(Duty::Agent { .. }))
    }

    /// How many those are.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.share().len()
    }

    fn check_groups(&self, warnings: &mut Vec<Error>) -> Result<(), Error> {
        let Some(Groups::Number(groups)) = self.worker_groups.filter(|_| self.wants_worker()) else {
            return Ok(());
        };
        let loops = self.all_loops();
        if groups > loops {
            return Err(Error::unplaced(format!("{groups} worker_groups exceed {loops} worker_processes")));
        }
        if groups > 1 && !self.master_process() {
            let text = "\"worker_groups\" is ignored: \"master_process\" is off";
            warnings.push(Error::unplaced(text).with_level(Level::Warn));
        }
        Ok(())
    }
}
