//! From files to something that can be run: reads the configuration, opens the logs it names, and
//! loads its `http` block. Done by the master, and again by the worker from what the master has read;
//! no thread is started. Main threads only.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Level, Sink};
use clearway_conf::{Directive, Error, Loader, ReadFile, Source, Table};
use clearway_http::{Environment, HttpLoader, Services, Snapshot};
use clearway_log::{Destination, ErrorLog, ErrorTarget, Writer};
use clearway_modules::access_log::DefaultAccessLog;
use clearway_zone::Zones;

use crate::core_conf::{self, CoreConf, ErrorLogSpec, MAIN, Reader, TABLES};
use crate::modules::MODULES;
use crate::options::{DefaultErrorLog, Options};
use crate::pools::Pools;

/// Debian's places, as its nginx has them.
pub const PREFIX_DEFAULT: &str = "/usr/share/nginx/";
/// The configuration file.
pub const CONF_DEFAULT: &str = "/etc/nginx/nginx.conf";
/// Where errors go that no `error_log` takes.
pub const ERROR_LOG_DEFAULT: &str = "/var/log/nginx/error.log";
/// Where requests go that no `access_log` takes.
pub const ACCESS_LOG_DEFAULT: &str = "/var/log/nginx/access.log";
/// The file with the number of the process.
pub const PID_DEFAULT: &str = "/run/nginx.pid";

/// What a configuration is loaded with.
pub(crate) struct Means<'a> {
    /// Who reads.
    pub(crate) reader: Reader,
    /// Opens and keeps the logs.
    pub(crate) writer: &'a Arc<Writer>,
    /// Makes or has the shared zones.
    pub(crate) zones: &'a Arc<Zones>,
    /// The pools of the configuration before this one.
    pub(crate) pools: &'a Pools,
    /// The port of a server without `listen`: 80, or 8000 without root.
    pub(crate) default_port: u16,
    /// Where requests go that no `access_log` takes.
    pub(crate) default_access_log: DefaultAccessLog,
    /// Where pools report to, which outlive configurations.
    pub(crate) lasting_log: Option<Arc<dyn Sink>>,
}

/// A configuration that can be run.
pub(crate) struct Loaded {
    /// What stands outside `http`.
    pub(crate) core: CoreConf,
    /// The `http` block, if there is one.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// The error log of `main`.
    pub(crate) log: Arc<ErrorLog>,
    /// Its pools; those that are new have no threads yet.
    pub(crate) pools: Pools,
    /// The files that were read.
    pub(crate) files: Vec<ReadFile>,
    /// What was strange, in the order of the text.
    pub(crate) warnings: Vec<Error>,
}

/// The `http` loader with all modules, and the table outside of it, each knowing the other's names.
#[must_use]
pub fn tables() -> (Table<CoreConf>, HttpLoader) {
    let http = HttpLoader::new(MODULES).with_names_of(&Table::new(TABLES));
    let core = Table::new(TABLES).with_names_of(http.table());
    (core, http)
}

/// Why a configuration is not loaded.
pub(crate) struct Refused {
    /// The first mistake, in nginx's words.
    pub(crate) error: Error,
    /// What was strange before it.
    pub(crate) warnings: Vec<Error>,
}

/// Reads and loads.
///
/// # Errors
/// The first mistake, with what was strange before it.
pub(crate) fn load(source: &dyn Source, options: &Options, means: &Means<'_>) -> Result<Loaded, Refused> {
    let mut warnings = Vec::new();
    load_with(source, options, means, &mut warnings)
        .map(|loaded| Loaded { warnings: std::mem::take(&mut warnings), ..loaded })
        .map_err(|error| Refused { error, warnings })
}

fn load_with(
    source: &dyn Source,
    options: &Options,
    means: &Means<'_>,
    warnings: &mut Vec<Error>,
) -> Result<Loaded, Error> {
    let (table, http) = tables();
    let mut core = CoreConf::new(&options.prefix, means.reader);
    let mut loader = Loader::new(source, &options.conf);
    // As nginx reads them: first what `-g` says, then the file.
    table.run(&loader.param(&options.params), MAIN, &mut core, warnings)?;
    table.run(&loader.file(&options.conf), MAIN, &mut core, warnings)?;
    let log = open_main_log(&core, options, means.writer)?;
    means.writer.report_to(&log);
    let sink: Arc<dyn Sink> = Arc::clone(&log) as _;
    let pools = Pools::prepare(&core, means.pools, means.lasting_log.as_ref().unwrap_or(&sink));
    let snapshot = match core.http.take() {
        Some(directive) => {
            let environment = environment(options, means, &pools, sink);
            Some(Arc::new(http.load(&directive, environment, warnings)?))
        }
        None => None,
    };
    core.finish(warnings)?;
    Ok(Loaded { core, snapshot, log, pools, files: loader.files().to_vec(), warnings: Vec::new() })
}

fn environment(options: &Options, means: &Means<'_>, pools: &Pools, sink: Arc<dyn Sink>) -> Environment {
    let (prefix, logs) = (options.prefix.clone(), Arc::clone(means.writer));
    let open_error_log = move |directive: &Directive| -> Result<Arc<dyn Sink>, Error> {
        let spec = core_conf::error_log(&prefix, directive)?;
        Ok(open_error_logs(&[spec], &logs)?)
    };
    Environment {
        prefix: options.prefix.clone(),
        hostname: Bytes::from(clearway_os::process::hostname()),
        utc_offset: means.writer.utc_offset(),
        error_log: sink,
        open_error_log: Box::new(open_error_log),
        default_port: means.default_port,
        services: Services::default()
            .with(pools.default_pool())
            .with(Arc::clone(means.writer))
            .with(Arc::clone(means.zones))
            .with(means.default_access_log.clone()),
    }
}

/// Opens the error log of `main`.
///
/// # Errors
/// As open(2), with nginx's message.
pub(crate) fn open_main_log(
    core: &CoreConf,
    options: &Options,
    writer: &Writer,
) -> Result<Arc<ErrorLog>, Error> {
    open_error_logs(&error_logs(core, options), writer)
}

/// The error logs of `main`: where the configuration names none, the one of the command line.
pub(crate) fn error_logs(core: &CoreConf, options: &Options) -> Vec<ErrorLogSpec> {
    if !core.error_logs.is_empty() {
        return core.error_logs.clone();
    }
    let path = match &options.error_log {
        DefaultErrorLog::Stderr => None,
        DefaultErrorLog::File(path) => Some(path.clone()),
    };
    vec![ErrorLogSpec { path, level: Level::Error }]
}

fn open_error_logs(specs: &[ErrorLogSpec], writer: &Writer) -> Result<Arc<ErrorLog>, Error> {
    let mut targets = Vec::new();
    for spec in specs {
        let file = match &spec.path {
            Some(path) => writer.open(path).map_err(|error| Error::unplaced(error.to_string()))?,
            None => writer.stderr().map_err(|error| Error::unplaced(error.to_string()))?,
        };
        targets.push(ErrorTarget { to: Destination::File(file), level: spec.level });
    }
    Ok(Arc::new(ErrorLog::new(writer, targets)))
}
