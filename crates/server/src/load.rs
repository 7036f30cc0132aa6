//! From files to something that can be run: reads the configuration, opens the logs it names, and
//! loads its `http` block. Done by the master, and again by the worker from what the master has read;
//! no thread is started. Main threads only.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Level, Sink};
use clearway_cache::disks::{Caches, Role};
use clearway_conf::{Directive, Error, KeptFiles, Loader, ReadFile, Source, Table};
use clearway_http::temp_paths::TempPaths;
use clearway_http::{
    Balancers, Checked, ConfPrefix, Environment, HttpLoader, Scripts, Services, Snapshot, ThreadPools,
    WantedRights,
};
use clearway_log::{Destination, ErrorLog, ErrorTarget, Writer};
use clearway_modules::access_log::DefaultAccessLog;
use clearway_net::listen::HostNames;
use clearway_proxy::upstreams::Lasting;
use clearway_zone::{Zone, Zones};

use crate::board;
use crate::core_conf::{self, CoreConf, ErrorLogSpec, ErrorLogTarget, HttpBlock, MAIN, Reader, TABLES};
use crate::modules::MODULES;
use crate::options::{DefaultErrorLog, Options};
use crate::pools::Pools;
use crate::stock;

/// The means with which a configuration is loaded.
pub(crate) struct Means<'a> {
    /// The process that reads.
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
    /// The state of other servers, if there was a configuration before.
    pub(crate) lasting: Option<Arc<Lasting>>,
    /// Caches of the configurations before.
    pub(crate) caches: Option<Arc<Caches>>,
    /// Resolves names of the configuration.
    pub(crate) names: &'a Arc<HostNames>,
    /// Reads the files that directives name.
    pub(crate) kept_files: &'a Arc<KeptFiles>,
}

/// A configuration that can be run.
pub(crate) struct Loaded {
    /// The settings outside `http`.
    pub(crate) core: CoreConf,
    /// The `http` block, if there is one, for a worker to run.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// The result of a check by a master, which runs none of it.
    pub(crate) checked: Option<Checked>,
    /// The error log of `main`.
    pub(crate) log: Arc<ErrorLog>,
    /// Its pools; those that are new have no threads yet.
    pub(crate) pools: Pools,
    /// The state of other servers.
    pub(crate) lasting: Arc<Lasting>,
    pub(crate) caches: Arc<Caches>,
    /// Where worker processes show each other what they have counted, if there are several.
    pub(crate) board: Option<Arc<Zone>>,
    /// Directories that it wants to have.
    pub(crate) temp_paths: TempPaths,
    /// The files that were read.
    pub(crate) files: Vec<ReadFile>,
    /// The warnings.
    pub(crate) warnings: Warnings,
}

/// The `http` loader with all modules, and the table outside of it, each knowing the other's names.
#[must_use]
pub fn tables() -> (Table<CoreConf>, HttpLoader) {
    let http = clearway_http::loader(MODULES).with_names_of(&Table::new(TABLES));
    let core = Table::new(TABLES).with_names_of(http.table());
    (core, http)
}

/// Why a configuration is not loaded.
pub(crate) struct Refused {
    /// The first mistake, in nginx's words.
    pub(crate) error: Error,
    /// Warnings that came before it.
    pub(crate) warnings: Warnings,
}

/// Warnings about a configuration, in nginx's order.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// In its text.
    pub(crate) text: Vec<Error>,
    /// In what it comes to; `None`: there is a mistake in the text, and it came to nothing.
    pub(crate) whole: Option<Vec<Error>>,
}

impl Warnings {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Error> {
        self.text.iter().chain(self.whole.iter().flatten())
    }
}

/// Reads and loads.
///
/// # Errors
/// The first mistake, with what was strange before it.
pub(crate) fn load(source: &dyn Source, options: &Options, means: &Means<'_>) -> Result<Loaded, Refused> {
    let mut warnings = Warnings::default();
    load_with(source, options, means, &mut warnings)
        .map(|loaded| Loaded { warnings: std::mem::take(&mut warnings), ..loaded })
        .map_err(|error| Refused { error, warnings })
}

fn load_with(
    source: &dyn Source,
    options: &Options,
    means: &Means<'_>,
    warnings: &mut Warnings,
) -> Result<Loaded, Error> {
    let (table, http) = tables();
    let Warnings { text, whole } = warnings;
    let mut core = CoreConf::new(&options.prefix, means.reader);
    let mut loader = Loader::new(source, &options.conf).with_stock(stock::FILES);
    // As nginx reads them: first what `-g` says, then the file.
    let read = table.run(&loader.param(&options.params), MAIN, &mut core, text);
    let read = read.and_then(|()| table.run(&loader.file(&options.conf), MAIN, &mut core, text));
    if let Err(behind) = read {
        return Err(mistake_in_http(&http, &mut core, options, means, text).unwrap_or(behind));
    }
    let log = open_main_log(&core, options, means.writer)?;
    means.writer.report_to(&log);
    let sink: Arc<dyn Sink> = Arc::clone(&log) as _;
    let pools = match means.reader {
        Reader::Master => Pools::idle(&core, &sink),
        Reader::Worker(_) => Pools::prepare(&core, means.pools, means.lasting_log.as_ref().unwrap_or(&sink)),
    };
    let lasting = means.lasting.clone().unwrap_or_else(|| Lasting::among(core.loops(), core.groups()));
    let caches = means.caches.clone().unwrap_or_else(|| Caches::new(&sink, cache_role(&core)));
    let temp_paths = TempPaths::default();
    let (mut snapshot, mut checked) = (None, None);
    if let Some(HttpBlock { directive, warnings_before }) = core.http.take() {
        let mut environment = environment(options, means, &pools, &temp_paths, sink);
        let rights = WantedRights::default();
        let services = environment.services.with(Arc::clone(&lasting)).with(Arc::clone(&caches));
        environment.services = services.with(rights.clone());
        assert!(warnings_before <= text.len(), "what was strange before a block stays");
        let behind = text.split_off(warnings_before);
        let loaded = match means.reader {
            Reader::Master => http.check(directive, environment, text).map(|http| checked = Some(http)),
            Reader::Worker(_) => {
                http.load(directive, environment, text).map(|http| snapshot = Some(Arc::new(http)))
            }
        };
        loaded?;
        core.rights = rights;
        text.extend(behind);
    }
    debug_assert!(core.http.is_none(), "the block was executed");
    debug_assert!(snapshot.is_none() || checked.is_none(), "a configuration is run or checked");
    core.finish(whole.insert(Vec::new()))?;
    let planned = checked.as_ref().map(|http: &Checked| http.requests.len());
    let sockets = planned.or(snapshot.as_ref().map(|http: &Arc<Snapshot>| http.sockets().len()));
    core.check_connections(sockets.unwrap_or(0))?;
    let declare = || means.zones.declare(board::NAME, board::BYTES, "worker_groups");
    // Code that is tried may want a privileged agent, a process more.
    let board =
        (core.groups() > 1 || core.wants_trial()).then(declare).transpose().map_err(Error::unplaced)?;
    means.zones.open().map_err(Error::unplaced)?;
    let (files, warnings) = (loader.files().to_vec(), Warnings::default());
    Ok(Loaded { core, snapshot, checked, log, pools, lasting, caches, board, temp_paths, files, warnings })
}

/// The role of the process for caches: the first group looks after those of all.
fn cache_role(core: &CoreConf) -> Role {
    match (core.groups(), core.share().start) {
        _ if core.is_agent() => Role::Assists,
        (1, _) => Role::Alone,
        (_, 0) => Role::Manages,
        _ => Role::Assists,
    }
}

/// Where something behind `http` is wrong, or it has no end: the mistake in it that nginx finds first, as it
/// executes what it has read.
fn mistake_in_http(
    http: &HttpLoader,
    core: &mut CoreConf,
    options: &Options,
    means: &Means<'_>,
    warnings: &mut Vec<Error>,
) -> Option<Error> {
    let HttpBlock { directive, warnings_before } = core.http.take()?;
    let sink: Arc<dyn Sink> = open_main_log(core, options, means.writer).ok()?;
    assert!(warnings_before <= warnings.len(), "what was strange before a block stays");
    let behind = warnings.split_off(warnings_before);
    let pools = Pools::idle(core, &sink);
    let caches = Caches::new(&sink, Role::Alone);
    let mut environment = environment(options, means, &pools, &TempPaths::default(), sink);
    // Some pools may stand behind `http`: nginx looks for them at the end.
    let services =
        environment.services.without::<ThreadPools>().with(Lasting::among(core.loops(), core.groups()));
    environment.services = services.with(caches).with(WantedRights::default());
    let mistake = http.check(directive, environment, warnings).err();
    if mistake.is_none() {
        warnings.extend(behind);
    }
    mistake
}

fn environment(
    options: &Options,
    means: &Means<'_>,
    pools: &Pools,
    temp_paths: &TempPaths,
    sink: Arc<dyn Sink>,
) -> Environment {
    let (prefix, logs) = (options.prefix.clone(), Arc::clone(means.writer));
    let open_error_log = move |directive: &Directive| -> Result<Arc<dyn Sink>, Error> {
        let spec = core_conf::error_log(&prefix, directive)?;
        Ok(open_error_logs(&[spec], &logs)?)
    };
    Environment {
        prefix: options.prefix.clone(),
        hostname: Bytes::from(clearway_os::process::hostname()),
        utc_offset: means.writer.utc_offset(),
        log_progress: means.writer.progress(),
        error_log: sink,
        open_error_log: Box::new(open_error_log),
        default_port: means.default_port,
        services: Services::default()
            .with(pools.default_pool())
            .with(pools.by_name())
            .with(Arc::clone(means.writer))
            .with(Arc::clone(means.zones))
            .with(Scripts(clearway_modules::rewrite::append_script))
            .with(Balancers(clearway_proxy::upstreams::balancers::set_balancer))
            .with(Arc::clone(means.names))
            .with(Arc::clone(means.kept_files))
            .with(temp_paths.clone())
            .with(crate::metrics::source())
            .with(ConfPrefix(options.conf.parent().map(|directory| directory.join("")).unwrap_or_default()))
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

/// The error logs of `main`: where the configuration names none, or none but syslog servers, with the one
/// of the command line.
pub(crate) fn error_logs(core: &CoreConf, options: &Options) -> Vec<ErrorLogSpec> {
    let mut specs = core.error_logs.clone();
    if specs.iter().any(|spec| !matches!(spec.target, ErrorLogTarget::Syslog(_))) {
        return specs;
    }
    let target = match &options.error_log {
        DefaultErrorLog::Stderr => ErrorLogTarget::Stderr,
        DefaultErrorLog::File(path) => ErrorLogTarget::File(path.clone()),
    };
    specs.push(ErrorLogSpec { target, level: Level::Error });
    debug_assert!(
        specs.iter().any(|spec| !matches!(spec.target, ErrorLogTarget::Syslog(_))),
        "there is a log on this machine"
    );
    specs
}

fn open_error_logs(specs: &[ErrorLogSpec], writer: &Writer) -> Result<Arc<ErrorLog>, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::said(error);
    let mut targets = Vec::new();
    for spec in specs {
        let to = match &spec.target {
            ErrorLogTarget::File(path) => {
                Destination::File(writer.open(path).map_err(|error| failed(&error))?)
            }
            ErrorLogTarget::Stderr => Destination::File(writer.stderr().map_err(|error| failed(&error))?),
            ErrorLogTarget::Syslog(config) => Destination::Syslog(writer.syslog(config.clone())),
        };
        targets.push(ErrorTarget { to, level: spec.level });
    }
    Ok(Arc::new(ErrorLog::new(writer, targets)))
}
