//! A configuration as the master holds it: the files that it read, the files and sockets that it opened with
//! its rights, and the part of these that a worker is given. The master's thread only.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_conf::{KeptFiles, ReadFile, Source};
use clearway_http::Remains;
use clearway_log::{Disk, Opener, Writer};
use clearway_modules::access_log::DefaultAccessLog;
use clearway_net::bind::Request;
use clearway_net::listen::HostNames;
use clearway_os::file::{self, GiveError, OwnerRights};
use clearway_zone::Zones;

use super::listening::Listening;
use crate::control::{HandedZone, Handover};
use crate::core_conf::{CoreConf, Duty, ErrorLogSpec, ErrorLogTarget, Reader};
use crate::fresh_files::FreshFiles;
use crate::invocation::Invocation;
use crate::load::{self, Means};
use crate::messages::{Boot, DirectLog};
use crate::options::Options;
use crate::places::ACCESS_LOG_DEFAULT;
use crate::pools::Pools;
use crate::start::Failed;
use crate::temp_directories;

#[cfg(feature = "tls")]
use clearway_modules::ssl::make_ticket_key;

/// Without TLS nobody uses the key.
#[cfg(not(feature = "tls"))]
fn make_ticket_key() -> Vec<u8> {
    Vec::new()
}

/// A configuration as the master holds it.
pub(crate) struct Configuration {
    pub(crate) core: CoreConf,
    /// The addresses to listen on, in the order of the snapshot.
    pub(crate) requests: Vec<Request>,
    /// The error log of `main`.
    pub(crate) log: DirectLog,
    files: Vec<ReadFile>,
    /// All logs, also those of `http`; the master itself writes to few of them.
    logs: Vec<(PathBuf, OwnedFd)>,
    zones: Arc<Zones>,
    names: Arc<HostNames>,
    kept_files: Arc<KeptFiles>,
    /// The key of session tickets, the same for all workers as long as the master lives.
    ticket_key: Vec<u8>,
    default_port: u16,
    /// Memory to be freed while the worker loads.
    remains: Option<Remains>,
}

impl Configuration {
    /// Reads and checks the configuration, opens its logs, makes its zones (`old` supplies those that stay).
    ///
    /// # Errors
    /// After the reason has been logged.
    pub(crate) fn read(
        source: &dyn Source,
        options: &Options,
        old: Option<&Self>,
        log: &dyn Sink,
    ) -> Result<Self, Failed> {
        let fresh = FreshFiles::default();
        let writer = Arc::new(Writer::direct(Box::new(fresh.clone())));
        let zones = Arc::new(Zones::create(old.map(|old| &*old.zones)));
        let names = Arc::new(HostNames::default());
        let heir = old.filter(|old| old.core.hands_objects_on());
        let kept_files =
            Arc::new(heir.map_or_else(KeptFiles::default, |old| KeptFiles::following(&old.kept_files)));
        let default_port = if clearway_os::process::is_root() { 80 } else { 8000 };
        let means = Means {
            reader: Reader::Master,
            writer: &writer,
            zones: &zones,
            pools: &Pools::default(),
            default_port,
            default_access_log: DefaultAccessLog::File(ACCESS_LOG_DEFAULT.into()),
            lasting_log: None,
            lasting: None,
            caches: None,
            names: &names,
            kept_files: &kept_files,
        };
        let say = |error: &clearway_conf::Error| {
            log.log(error.level(), format_args!("{}", Verbatim(&error.text())));
        };
        let loaded = load::load(source, options, &means).map_err(|refused| {
            refused.warnings.iter().for_each(say);
            say(&refused.error);
            fresh.remove();
            Failed
        })?;
        loaded.warnings.iter().for_each(say);
        temp_directories::make(&loaded.temp_paths, loaded.core.user(), log)?;
        // Messages of modules that were written while they were loaded.
        let _ = writer.flush(Duration::ZERO);
        let logs = writer.files().map_err(|error| {
            log.log(Level::Emerg, format_args!("fcntl(F_DUPFD_CLOEXEC) failed {}", Errno(&error)));
            Failed
        })?;
        debug_assert!(
            logs.iter().all(|(path, _)| logs.iter().filter(|(other, _)| other == path).count() == 1),
            "each log is opened once"
        );
        let (requests, remains) = loaded.checked.map(|http| (http.requests, http.remains)).unzip();
        Ok(Self {
            requests: requests.unwrap_or_default(),
            remains,
            core: loaded.core,
            log: DirectLog { writer, log: loaded.log },
            files: loaded.files,
            logs: logs.into_iter().map(|(path, file)| (path, file.into())).collect(),
            zones,
            names,
            kept_files,
            ticket_key: old.map_or_else(make_ticket_key, |old| old.ticket_key.clone()),
            default_port,
        })
    }

    /// The logs, with duplicates of their descriptors.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn logs(&self) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
        self.logs.iter().map(|(path, fd)| Ok((path.clone(), fd.try_clone()?))).collect()
    }

    /// Frees memory that is not needed any more, as it is known now that the configuration can be loaded. To
    /// be called when a worker has received the configuration, so that nobody waits, and before the process
    /// forks.
    pub(crate) fn clear_up(&mut self) {
        self.remains = None;
    }

    /// A worker process has ended: its counts in zones are taken off.
    pub(crate) fn forget_worker(&self, pid: u32) {
        self.zones.forget_worker(pid);
    }

    /// Opens the logs anew by their names, and gives them to the worker's user, as a worker may have to open
    /// them itself later. For a log that cannot be opened the error is reported, and the old file stays in
    /// use.
    pub(crate) fn reopen_logs(&mut self) {
        self.log.writer.reopen();
        let owner = self.core.user().filter(|_| self.core.master_process()).map(|user| user.uid);
        for (path, fd) in &mut self.logs {
            let opened = Disk.open(path);
            match opened {
                Ok(file) => *fd = file.into(),
                Err(error) => {
                    let (name, errno) = (Verbatim::path(path), Errno(&error));
                    self.log.log(Level::Emerg, format_args!("open() \"{name}\" failed {errno}"));
                    continue;
                }
            }
            if let Some(uid) = owner
                && let Err(error) = file::give_to(fd.as_fd(), uid, OwnerRights::ReadWrite)
            {
                let (name, errno) = (Verbatim::path(path), Errno(error.error()));
                let call = match &error {
                    GiveError::Stat(_) => format!("stat() \"{name}\""),
                    GiveError::Chown(_) => format!("chown(\"{name}\", {uid})"),
                    GiveError::Chmod(_) => format!("chmod() \"{name}\""),
                };
                self.log.log(Level::Emerg, format_args!("{call} failed {errno}"));
            }
        }
    }

    /// Makes the error log anew for this process: a log writes the number of the process in which it was
    /// made.
    ///
    /// # Errors
    /// After the reason has been logged.
    pub(crate) fn renew_log(&mut self, options: &Options) -> Result<(), Failed> {
        let log = load::open_main_log(&self.core, options, &self.log.writer).map_err(|error| {
            self.log.log(error.level(), format_args!("{error}"));
            Failed
        })?;
        self.log.log = log;
        Ok(())
    }

    /// Where standard error of a daemon goes: the first error log that is a file. `None`: standard error
    /// is the log, and stays.
    pub(crate) fn stderr_file(&self, options: &Options) -> Option<OwnedFd> {
        let specs = load::error_logs(&self.core, options);
        if specs.iter().any(|spec| spec.target == ErrorLogTarget::Stderr) {
            return None;
        }
        let path = specs.iter().find_map(ErrorLogSpec::path)?;
        let (_, fd) = self.logs.iter().find(|(known, _)| known == path)?;
        fd.try_clone().ok()
    }

    /// The parts that a process needs to run this. The agent keeps its user and listens on nothing.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn hand(
        &self,
        (number, duty): (u64, Duty),
        invocation: &Invocation,
        listening: &Listening,
    ) -> io::Result<Handover> {
        let mut zones = Vec::new();
        for (key, fd) in self.zones.list() {
            zones.push(HandedZone {
                name: key.name.to_vec(),
                module: key.module.to_string(),
                bytes: key.bytes,
                fd: fd.try_clone()?,
            });
        }
        debug_assert_eq!(listening.len(), self.requests.len(), "each address has its sockets");
        debug_assert!(number > 0, "configurations are counted from 1 on");
        let (user, sockets) = match duty {
            Duty::Group(group) => (self.core.user().cloned(), listening.hand(self.core.loops_of(group))?),
            Duty::Agent { .. } => (None, Vec::new()),
        };
        Ok(Handover {
            number,
            duty,
            options: invocation.options.clone(),
            words: invocation.args.iter().map(|word| word.as_bytes().to_vec()).collect(),
            user,
            default_port: self.default_port,
            files: self.files.iter().map(|file| (file.path.to_path_buf(), file.text.clone())).collect(),
            sockets,
            logs: self.logs()?,
            zones,
            names: self.names.list(),
            kept_files: self.kept_files.list(),
            ticket_key: self.ticket_key.clone(),
        })
    }

    /// nginx's lines when a configuration has its sockets, at a start and at a reload.
    pub(crate) fn announce_events(&self, log: &dyn Sink) {
        log.log(Level::Notice, format_args!("using the \"epoll\" event method"));
        if let Some(warning) = self.core.descriptor_warning() {
            log.log(Level::Warn, format_args!("{warning}"));
        }
    }

    /// Where the messages of a start go.
    pub(crate) fn boot(&self, options: &Options) -> Boot {
        Boot::new(self.log.clone(), &load::error_logs(&self.core, options))
    }

    /// Logs a line about a normal event (level `notice`).
    pub(crate) fn notice(&self, message: std::fmt::Arguments<'_>) {
        self.log.log(Level::Notice, message);
    }
}
