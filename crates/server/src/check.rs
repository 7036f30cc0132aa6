//! `-t` and `-T`: reads a configuration, and tries what it names (the pid file, logs, addresses) without
//! using it. In nginx's order, so that what a mistake hides is the same. The main thread; nothing runs yet.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_conf::{KeptFiles, Source};
use clearway_log::{Disk, Opener, Writer};
use clearway_modules::access_log::DefaultAccessLog;
use clearway_net::bind::{self, Request};
use clearway_net::tune::Tuning;
use clearway_zone::Zones;

use crate::core_conf::{CoreConf, Reader};
use crate::early_log::{EarlyLog, say};
use crate::load::{self, Loaded, Means};
use crate::master::PID_FILE_MODE;
use crate::messages::{Boot, DirectLog};
use crate::options::{Extent, Options, Test};
use crate::pools::Pools;
use crate::start::Failed;
use crate::temp_directories;

/// Tests a configuration and says how it is, in nginx's words; with `-T`, prints it.
///
/// # Errors
/// It cannot be used, and why has been said.
pub fn run(source: &dyn Source, options: &Options, test: Test) -> Result<(), Failed> {
    let log = EarlyLog::open(&options.error_log, Level::Info);
    let conf = Verbatim::path(&options.conf);
    let files = attempt(source, options, test, &log).inspect_err(|Failed| {
        say(format_args!("configuration file {conf} test failed"));
    })?;
    if !test.quiet {
        say(format_args!("configuration file {conf} test is successful"));
    }
    if test.dump {
        // A failed write is ignored: the reader has closed standard output.
        let _ = io::stdout().write_all(&clearway_conf::dump(&files));
    }
    Ok(())
}

fn attempt(
    source: &dyn Source,
    options: &Options,
    test: Test,
    log: &EarlyLog,
) -> Result<Vec<clearway_conf::ReadFile>, Failed> {
    let Unopened { loaded, logs } = Unopened::read(source, options, &Arc::default(), log, || {
        if !test.quiet {
            say(format_args!("the configuration file {} syntax is ok", Verbatim::path(&options.conf)));
        }
    })?;
    if test.extent == Extent::Everything {
        try_pid_file(loaded.core.pid_file(), log)?;
        temp_directories::make(&loaded.temp_paths, loaded.core.user(), log)?;
        for path in &logs {
            Disk.open(path).map_err(|error| not_opened(path, &error, log))?;
        }
        let log = open_log(&loaded.core, options, log)?;
        let requests = loaded.checked.iter().flat_map(|http| &http.requests);
        requests.into_iter().try_for_each(|request| try_address(request, &log))?;
        if let Some(warning) = loaded.core.descriptor_warning() {
            log.log(Level::Warn, format_args!("{warning}"));
        }
    }
    // The process is about to end, which is faster.
    let _ = loaded.checked.map(|http| ManuallyDrop::new(http.remains));
    Ok(loaded.files)
}

/// A configuration that is read, and the logs that it names, which are not opened or made.
pub(crate) struct Unopened {
    pub(crate) loaded: Loaded,
    pub(crate) logs: Vec<PathBuf>,
}

impl Unopened {
    /// Reads a configuration; warnings and the first mistake are logged. `well_formed` is called between what
    /// is said of its text and what is said of the whole, if nothing in the text is wrong.
    pub(crate) fn read(
        source: &dyn Source,
        options: &Options,
        kept_files: &Arc<KeptFiles>,
        log: &dyn Sink,
        well_formed: impl FnOnce(),
    ) -> Result<Self, Failed> {
        let logs = Deferred::default();
        let means = Means {
            reader: Reader::Master,
            writer: &Arc::new(Writer::direct(Box::new(logs.clone()))),
            zones: &Arc::new(Zones::create(None)),
            pools: &Pools::default(),
            default_port: if clearway_os::process::is_root() { 80 } else { 8000 },
            // A server that may not write the one that holds where nothing is said runs without it.
            default_access_log: DefaultAccessLog::Off,
            lasting_log: None,
            lasting: None,
            caches: None,
            names: &Arc::default(),
            kept_files,
        };
        let say = |error: &clearway_conf::Error| {
            log.log(error.level(), format_args!("{}", Verbatim(&error.text())));
        };
        let result = load::load(source, options, &means);
        let warnings = match &result {
            Ok(loaded) => &loaded.warnings,
            Err(refused) => &refused.warnings,
        };
        warnings.text.iter().for_each(say);
        if let Some(whole) = &warnings.whole {
            well_formed();
            whole.iter().for_each(say);
        }
        let loaded = result.map_err(|refused| {
            say(&refused.error);
            Failed
        })?;
        Ok(Self { loaded, logs: logs.take() })
    }
}

/// Remembers which files are to be opened, each once, and opens none of them.
#[derive(Clone, Debug, Default)]
struct Deferred(Arc<Mutex<Vec<PathBuf>>>);

impl Deferred {
    fn take(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Opener for Deferred {
    fn open(&self, path: &Path) -> io::Result<std::fs::File> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
        Disk.open(Path::new("/dev/null"))
    }
}

/// As nginx, which leaves an empty file where there was none.
#[expect(clippy::disallowed_methods, reason = "the main thread, which runs no loop")]
fn try_pid_file(path: &Path, log: &dyn Sink) -> Result<(), Failed> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PID_FILE_MODE);
    options.open(path).map(drop).map_err(|error| not_opened(path, &error, log))
}

fn not_opened(path: &Path, error: &io::Error, log: &dyn Sink) -> Failed {
    log.log(Level::Emerg, format_args!("open() \"{}\" failed {}", Verbatim::path(path), Errno(error)));
    Failed
}

/// An address that somebody has, probably the server that runs, is no mistake.
fn try_address(request: &Request, log: &dyn Sink) -> Result<(), Failed> {
    let options = bind::Options { tuning: Tuning::default(), ..request.options };
    match bind::bind(&request.address, &options, log) {
        Ok(_) => bind::close_unix(&request.address, log),
        Err(error) if error.is_in_use() => {}
        Err(error) => {
            log.log(Level::Emerg, format_args!("{error}"));
            return Err(Failed);
        }
    }
    Ok(())
}

/// The error log of the configuration, and standard error beside it.
fn open_log(core: &CoreConf, options: &Options, early: &EarlyLog) -> Result<Boot, Failed> {
    let writer = Arc::new(Writer::direct(Box::new(Disk)));
    let log = load::open_main_log(core, options, &writer).map_err(|error| {
        early.log(error.level(), format_args!("{error}"));
        Failed
    })?;
    Ok(Boot::new(DirectLog { writer, log }, &load::error_logs(core, options)))
}
