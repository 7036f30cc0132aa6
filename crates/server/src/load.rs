//! From files to something that can be run: reads the configuration, opens the logs it names, and
//! loads its `http` block. Boot, one thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Level, Sink};
use clearway_conf::{Directive, Error, Loader, Source, Table};
use clearway_http::{Environment, HttpLoader, Services, Snapshot};
use clearway_log::{Destination, ErrorLog, ErrorTarget, Writer};
use clearway_modules::access_log::DefaultAccessLog;
use clearway_offload::{Pool, PoolConfig};

use crate::core_conf::{self, CoreConf, ErrorLogSpec, MAIN, Reader, TABLES};
use crate::modules::MODULES;

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

/// Where to find things.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Where relative paths begin; ends in a slash.
    pub prefix: PathBuf,
    /// The configuration file, absolute.
    pub conf: PathBuf,
}

impl Paths {
    /// As nginx resolves `-p` and `-c`: a relative prefix against the working directory, a relative
    /// configuration file against the prefix.
    #[must_use]
    pub fn resolve(prefix: Option<&Path>, conf: Option<&Path>) -> Self {
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        // Joining an empty component gives the slash at the end.
        let prefix = directory.join(prefix.unwrap_or(Path::new(PREFIX_DEFAULT))).join("");
        let conf = prefix.join(conf.unwrap_or(Path::new(CONF_DEFAULT)));
        Self { prefix, conf }
    }
}

/// A configuration that can be run.
pub struct Loaded {
    /// What stands outside `http`.
    pub core: CoreConf,
    /// The `http` block, if there is one.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The error log of `main`.
    pub log: Arc<ErrorLog>,
    /// What was strange, in the order of the text.
    pub warnings: Vec<Error>,
}

/// The `http` loader with all modules, and the table outside of it, each knowing the other's names.
#[must_use]
pub fn tables() -> (Table<CoreConf>, HttpLoader) {
    let http = HttpLoader::new(MODULES).with_names_of(&Table::new(TABLES));
    let core = Table::new(TABLES).with_names_of(http.table());
    (core, http)
}

/// Reads and loads. What the logs have to say about themselves goes to the writer's own report.
///
/// # Errors
/// The first mistake, in nginx's words; the warnings that came before it are lost.
pub fn load(source: &dyn Source, paths: &Paths, writer: &Arc<Writer>) -> Result<Loaded, Error> {
    let (table, http) = tables();
    let tree = Loader::new(source, &paths.conf).file(&paths.conf);
    let mut core = CoreConf::new(&paths.prefix, Reader::Master);
    let mut warnings = Vec::new();
    table.run(&tree, MAIN, &mut core, &mut warnings)?;
    core.finish(&mut warnings)?;
    let log = open_error_logs(&core.error_logs, writer)?;
    writer.report_to(&log);
    let snapshot = match core.http.take() {
        Some(directive) => {
            let environment = environment(paths, &core, writer, &log)?;
            Some(Arc::new(http.load(&directive, environment, &mut warnings)?))
        }
        None => None,
    };
    Ok(Loaded { core, snapshot, log, warnings })
}

fn environment(
    paths: &Paths,
    core: &CoreConf,
    writer: &Arc<Writer>,
    log: &Arc<ErrorLog>,
) -> Result<Environment, Error> {
    let sink: Arc<dyn Sink> = Arc::clone(log) as _;
    let mut pool = PoolConfig::new("default");
    pool.loops = u32::try_from(core.loops()).unwrap_or(u32::MAX);
    let pool = Pool::start(pool, Arc::clone(&sink))
        .map_err(|error| Error::unplaced(format!("cannot start thread pool \"default\" ({error})")))?;
    let (prefix, logs) = (paths.prefix.clone(), Arc::clone(writer));
    let open_error_log = move |directive: &Directive| -> Result<Arc<dyn Sink>, Error> {
        let spec = core_conf::error_log(&prefix, directive)?;
        Ok(open_error_logs(&[spec], &logs)?)
    };
    Ok(Environment {
        prefix: paths.prefix.clone(),
        hostname: Bytes::from(clearway_os::process::hostname()),
        utc_offset: writer.utc_offset(),
        error_log: sink,
        open_error_log: Box::new(open_error_log),
        default_port: if clearway_os::process::is_root() { 80 } else { 8000 },
        services: Services::default()
            .with(Arc::new(pool))
            .with(Arc::clone(writer))
            .with(DefaultAccessLog::File(ACCESS_LOG_DEFAULT.into())),
    })
}

fn open_error_logs(specs: &[ErrorLogSpec], writer: &Writer) -> Result<Arc<ErrorLog>, Error> {
    let default = [ErrorLogSpec { path: Some(ERROR_LOG_DEFAULT.into()), level: Level::Error }];
    let specs = if specs.is_empty() { &default } else { specs };
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
