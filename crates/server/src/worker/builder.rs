//! Builds configurations from what a master hands over, and brings them to a worker, in whichever process
//! that lives. A main thread.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use clearway_conf::{KeptFiles, Memory};
use clearway_log::Writer;
use clearway_lua::ProcessType;
use clearway_modules::access_log::DefaultAccessLog;
use clearway_net::listen::HostNames;
use clearway_zone::{ZoneKey, Zones};

use super::handed::HandedFiles;
use super::{FLUSH_LIMIT, Prepared, Worker};
use crate::control::{Handover, Report};
use crate::core_conf::Reader;
use crate::load::{self, Loaded, Means};
use crate::places::ACCESS_LOG_DEFAULT;
use crate::pools::Pools;
use crate::start::give_memory_back;

/// How long lines of the worker may keep those of the master that are to follow them waiting.
const ORDER_LIMIT: Duration = Duration::from_millis(100);

/// The builder of one worker's configurations.
pub(crate) struct Builder {
    files: HandedFiles,
    writer: Arc<Writer>,
    /// The names of the logs that came with the last configuration.
    names: Vec<PathBuf>,
}

impl Builder {
    /// Has nothing yet.
    pub(crate) fn new() -> Self {
        let files = HandedFiles::default();
        let writer = Arc::new(Writer::new(Box::new(files.clone())));
        Self { files, writer, names: Vec::new() }
    }

    /// Builds the first configuration and starts the worker for it. Between loading and the first thread
    /// `settle` does what a process does once.
    ///
    /// # Errors
    /// The report for the master.
    pub(crate) fn first(
        &mut self,
        mut handover: Handover,
        settle: impl FnOnce(&Loaded) -> Result<(), Report>,
    ) -> Result<(Worker, Prepared), Report> {
        let (number, sockets) = (handover.number, std::mem::take(&mut handover.sockets));
        clearway_lua::show_arguments(std::mem::take(&mut handover.words));
        let loaded = self.load(handover, None)?;
        clearway_lua::run_in(process_type(&loaded));
        if loaded.core.wants_privileged_start()
            && let Some(snapshot) = &loaded.snapshot
        {
            let log: Arc<dyn Sink> = Arc::clone(&loaded.log) as _;
            clearway_lua::count_workers(loaded.core.share(), loaded.core.all_loops());
            clearway_lua::make_ahead(snapshot, loaded.core.loops(), &log).map_err(refused_by_code)?;
        }
        settle(&loaded)?;
        self.writer.start().map_err(|error| cannot_run(&error))?;
        Worker::start(loaded, number, sockets, &self.writer)
    }

    /// Runs the code of a configuration that runs when it comes into use, and nothing else of it. What it
    /// logs is written where it fails; elsewhere the worker that runs it next has the same to say. `settle`
    /// as of [`first`](Self::first).
    ///
    /// # Errors
    /// The report for the master.
    pub(crate) fn try_out(
        &mut self,
        mut handover: Handover,
        settle: impl FnOnce(&Loaded) -> Result<(), Report>,
    ) -> Result<(), Report> {
        clearway_lua::show_arguments(std::mem::take(&mut handover.words));
        let loaded = self.load(handover, None)?;
        clearway_lua::run_in(process_type(&loaded));
        settle(&loaded)?;
        let Some(snapshot) = &loaded.snapshot else { return Ok(()) };
        let log: Arc<dyn Sink> = Arc::clone(&loaded.log) as _;
        clearway_lua::count_workers(loaded.core.share(), loaded.core.all_loops());
        let tried = clearway_lua::try_out(snapshot, loaded.core.loops(), &log).map_err(refused_by_code);
        // No thread writes here: lines are written when they are asked for.
        self.flush();
        tried
    }

    /// Builds a further configuration.
    ///
    /// # Errors
    /// The report for the master.
    pub(crate) fn next(&mut self, mut handover: Handover, worker: &Worker) -> Result<Prepared, Report> {
        let (number, sockets) = (handover.number, std::mem::take(&mut handover.sockets));
        debug_assert!(number > 1, "it is not the first one");
        let loaded = self.load(handover, Some(worker))?;
        worker.prepare(loaded, number, sockets)
    }

    /// Has the worker use what was built last.
    pub(crate) fn commit(&self, prepared: Prepared, worker: &mut Worker) {
        if let Err(error) = worker.commit(prepared) {
            let errno = Errno(&error);
            worker.lasting_log().log(Level::Alert, format_args!("listening on a loop failed {errno}"));
        }
        // Logs that an earlier configuration still writes to are opened by the worker as well if they are
        // asked for again: it must find their names here.
        let live = self.writer.files().unwrap_or_default();
        self.files
            .keep(|path| self.names.iter().chain(live.iter().map(|(path, _)| path)).any(|name| name == path));
        give_memory_back();
    }

    /// Has the worker write to these files from now on.
    pub(crate) fn reopen(&self, files: Vec<(PathBuf, OwnedFd)>, worker: &Worker) {
        self.files.add(files);
        worker.reopen_logs();
    }

    /// Has the worker open its logs itself, with the rights that it has.
    pub(crate) fn reopen_by_itself(&self, worker: &Worker) {
        self.files.clear();
        worker.reopen_logs();
    }

    /// Has what was logged so far written, unless the disk is slow.
    pub(crate) fn flush(&self) {
        // What takes longer is written all the same, a little later.
        let _ = self.writer.flush(ORDER_LIMIT);
    }

    /// Writes what is logged and not written. What cannot be written in time is lost.
    pub(crate) fn finish(&self) {
        let _ = self.writer.shutdown(FLUSH_LIMIT);
    }

    fn load(&mut self, handover: Handover, before: Option<&Worker>) -> Result<Loaded, Report> {
        let none = Pools::default();
        #[cfg(feature = "tls")]
        clearway_modules::ssl::share_ticket_key(&handover.ticket_key);
        let source: Memory = handover.files.into_iter().collect();
        self.names = handover.logs.iter().map(|(path, _)| path.clone()).collect();
        self.files.add(handover.logs);
        debug_assert!(self.names.iter().all(|name| self.files.has(name)), "each log was handed");
        let zone = |zone: crate::control::HandedZone| {
            let key = ZoneKey { name: zone.name.into(), module: zone.module.into(), bytes: zone.bytes };
            (key, zone.fd)
        };
        let zones = Arc::new(Zones::handed(handover.zones.into_iter().map(zone).collect()));
        // Where the master could not open it that has been said.
        let default_access_log = match self.files.has(ACCESS_LOG_DEFAULT.as_ref()) {
            true => DefaultAccessLog::File(ACCESS_LOG_DEFAULT.into()),
            false => DefaultAccessLog::Off,
        };
        let means = Means {
            reader: Reader::Worker(handover.duty),
            writer: &self.writer,
            zones: &zones,
            pools: before.map_or(&none, Worker::pools),
            default_port: handover.default_port,
            default_access_log,
            lasting_log: before.map(Worker::lasting_log),
            lasting: before.map(Worker::lasting),
            caches: before.map(Worker::caches),
            names: &Arc::new(HostNames::handed(handover.names)),
            kept_files: &Arc::new(KeptFiles::handed(handover.kept_files)),
        };
        load::load(&source, &handover.options, &means)
            .map_err(|refused| Report::Failed { level: refused.error.level(), text: refused.error.text() })
    }
}

fn process_type(loaded: &Loaded) -> ProcessType {
    match loaded.core.master_process() {
        _ if loaded.core.is_agent() => ProcessType::PrivilegedAgent,
        true => ProcessType::Worker,
        false => ProcessType::Single,
    }
}

/// Code of the configuration has failed.
pub(super) fn refused_by_code(text: String) -> Report {
    Report::Failed { level: Level::Error, text: text.into_bytes() }
}

pub(super) fn cannot_run(error: &io::Error) -> Report {
    let text = format!("cannot run the configuration {}", Errno(error)).into_bytes();
    Report::Failed { level: Level::Emerg, text }
}
