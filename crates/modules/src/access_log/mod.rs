//! `access_log`, `log_format`, `open_log_file_cache`: lines about requests, filled in from formats that
//! were taken apart at load, and handed to the log writer. Runs in the log phase and never waits; what
//! the writer cannot take it counts and reports itself.

mod directives;
mod format;

use std::path::PathBuf;
use std::sync::Arc;

use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Error, Spec};
use clearway_http::{
    ConfKey, Cost, Exchange, Level, Load, Module, Own, Phase, PhaseHandler, Setting, Step, Value, View,
    context, paths, settings,
};
use clearway_log::{Buffering, FileCacheConfig, LogFile, NamedLog, Syslog, Writer};

use format::Format;

/// The module. It wants among the services of the environment the writer, as `Arc<Writer>`, and where
/// nothing is configured the path to write to, as `DefaultAccessLog`.
pub static ACCESS_LOG: Module = Module {
    name: "log",
    directives: DIRECTIVES,
    confs: &[&KNOWN, &LOG_CONF],
    phases: PHASES,
    finish: Some(open_all),
    ..Module::EMPTY
};

/// Where lines go if no `access_log` says otherwise.
#[derive(Clone, Debug)]
pub enum DefaultAccessLog {
    /// Lines go to this file.
    File(PathBuf),
    /// Nowhere.
    Off,
}

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "log_format",
        contexts: context::HTTP,
        args: Args::TWO_MORE,
        syntax: "log_format NAME [escape=default | json | none] TEXT …",
        default: "log_format combined '$remote_addr - $remote_user [$time_local] \"$request\" $status \
                  $body_bytes_sent \"$http_referer\" \"$http_user_agent\"'",
        doc: "Names a format for lines of an access log: texts with variables, which are joined. Values \
              are escaped: `\\xXX` for quotes, backslashes and what is not printable ASCII (`default`, \
              with `-` for a variable that has no value), as in JSON strings (`json`), or not at all \
              (`none`).",
        example: EXAMPLE_OF_LOGS,
        see: &["access_log", "error_log", "open_log_file_cache", "log_subrequest"],
        handler: directives::read_log_format,
    },
    Spec {
        name: "access_log",
        contexts: context::ALL.or(context::LOCATION_IF).or(context::LIMIT_EXCEPT),
        args: Args::ONE_MORE,
        syntax: "access_log PATH | syslog:server=ADDRESS[,PARAMETER=VALUE…] [FORMAT] [buffer=SIZE] \
                 [gzip[=LEVEL]] [flush=TIME] [if=CONDITION]\naccess_log off",
        default: "access_log /var/log/nginx/access.log combined",
        doc: "Where a line about each request goes. Several at one level all get it; `off` ends what the \
              level around has. With variables in the path each line goes to the file that it names, if the \
              directory of `root` exists. `buffer=` gathers lines until the next one would not fit, or the \
              first of them has waited for the time of `flush=`; `gzip` (level 1 to 9, 1 by default) \
              compresses them, 64k if `buffer=` does not say otherwise. A request is not logged if the \
              value of `if=` is empty or `0`. Lines are written by a thread of their own; no loop waits for \
              a disk.",
        example: EXAMPLE_OF_LOGS,
        see: &["log_format", "error_log", "open_log_file_cache", "log_subrequest"],
        handler: directives::read_access_log,
    },
    Spec {
        name: "open_log_file_cache",
        contexts: context::ALL,
        args: Args::TAKE1234,
        syntax: "open_log_file_cache max=NUMBER [inactive=TIME] [min_uses=NUMBER] [valid=TIME]\n\
                 open_log_file_cache off",
        default: "open_log_file_cache off",
        doc: "How many log files with variables in their paths are kept open, until they have not been used \
              for `inactive` (10s), if they were used `min_uses` times (1) by then. After `valid` (60s) it \
              is checked that the file still has the same name.",
        example: "
            server {
                access_log logs/$host.log;
                open_log_file_cache max=1000 inactive=20s min_uses=2 valid=1m;
            }",
        see: &["access_log"],
        handler: directives::read_open_log_file_cache,
    },
];

/// The example of `log_format` and `access_log`.
const EXAMPLE_OF_LOGS: &str = r#"
    log_format timed '$remote_addr "$request" $status $body_bytes_sent $request_time';

    map $status $is_error {
        ~^[45]  1;
        default 0;
    }

    server {
        access_log logs/access.log timed buffer=64k flush=5s;
        access_log logs/errors.log combined if=$is_error;
    }"#;

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Log,
    cost: Cost::Cheap,
    enabled: |enabling| !enabling.confs.of(&LOG_CONF).active().is_empty(),
    handler,
}];

static KNOWN: ConfKey<Known> = ConfKey::new(Level::Main);
static LOG_CONF: ConfKey<LogConf> = ConfKey::new(Level::Location);

settings! {
    /// State that logs of all levels share.
    struct Known {
        formats: Own<Vec<Arc<Format>>> = vec![Arc::new(Format::combined())],
        files: Own<Vec<File>> = Vec::new(),
    }
}

/// A file that an `access_log` names.
struct File {
    path: PathBuf,
    buffering: Option<Buffering>,
    /// Opened when everything is read; a file that nobody writes to stays open, too.
    log: Option<LogFile>,
}

settings! {
    struct LogConf {
        logs: Setting<Logs>,
        cache: Setting<Option<Arc<FileCacheConfig>>>,
        /// Where logs with variables in their paths are written through.
        named: Own<Option<NamedLog>>,
    }
}

#[derive(Clone, Default)]
struct Logs {
    state: LogsState,
    logs: Vec<Log>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LogsState {
    #[default]
    On,
    Off,
}

/// One `access_log`.
#[derive(Clone)]
struct Log {
    to: Destination,
    format: Arc<Format>,
    condition: Option<Value>,
}

#[derive(Clone)]
enum Destination {
    /// One of `Known::files`, not opened yet.
    Unopened(usize),
    File(LogFile),
    /// The file at this path, through `LogConf::named`.
    Named(Value),
    Syslog(Syslog),
}

impl LogConf {
    /// `off` wins over other logs of its level.
    fn active(&self) -> &[Log] {
        if self.logs.state == LogsState::Off { &[] } else { &self.logs.logs }
    }
}

fn writer(load: &Load) -> Result<Arc<Writer>, Error> {
    let writer = load.environment().services.find::<Arc<Writer>>().cloned();
    writer.ok_or_else(|| Error::unplaced("no log writer"))
}

/// Opens what was named, in the order in which it was, and the default log if some server or location
/// writes to it.
fn open_all(load: &mut Load) -> Result<(), Error> {
    let files = open_files(load)?;
    let default = open_default(load)?;
    let mut named = NamedLogs::default();
    let writer = load.environment().services.find::<Arc<Writer>>().cloned();
    for conf in load.all_locations(&LOG_CONF) {
        let mut logs = Logs::clone(&conf.logs);
        if !conf.logs.is_set() {
            logs.logs.extend(default.clone());
        }
        for log in &mut logs.logs {
            match (&log.to, &writer) {
                (Destination::Unopened(index), _) => log.to = Destination::File(files[*index].clone()),
                (Destination::Named(_), Some(writer)) => {
                    *conf.named = Some(named.find(writer, conf.cache.as_ref()));
                }
                _ => {}
            }
        }
        conf.logs.set(logs);
    }
    Ok(())
}

fn open_files(load: &mut Load) -> Result<Vec<LogFile>, Error> {
    let mut files = Vec::new();
    for index in 0..load.main(&KNOWN).files.len() {
        let writer = writer(load)?;
        let file = &mut load.main(&KNOWN).files[index];
        let opened = writer.open(&file.path).map_err(|error| Error::said(&error))?;
        let log = match file.buffering {
            Some(buffering) => writer.buffer(&opened, buffering),
            None => opened,
        };
        files.push(log.clone());
        file.log = Some(log);
    }
    Ok(files)
}

/// The log of servers and locations that name none.
fn open_default(load: &mut Load) -> Result<Option<Log>, Error> {
    if load.all_locations(&LOG_CONF).all(|conf| conf.logs.is_set()) {
        return Ok(None);
    }
    let default = load.environment().services.find::<DefaultAccessLog>().cloned();
    let DefaultAccessLog::File(path) = default.unwrap_or(DefaultAccessLog::Off) else { return Ok(None) };
    match writer(load)?.open(&path) {
        Ok(file) => {
            let format = Arc::clone(&load.main(&KNOWN).formats[0]);
            Ok(Some(Log { to: Destination::File(file), format, condition: None }))
        }
        Err(error) => {
            // The default file was not asked for: a server without the right to it, or on a machine that has
            // no such directory, runs all the same and reports the missing log.
            let message = format_args!("{error}, requests without an \"access_log\" are not logged");
            load.environment().error_log.log(LogLevel::Error, message);
            Ok(None)
        }
    }
}

/// One log for each `open_log_file_cache`, and one for where there is none.
#[derive(Default)]
struct NamedLogs(Vec<(Option<Arc<FileCacheConfig>>, NamedLog)>);

impl NamedLogs {
    fn find(&mut self, writer: &Writer, cache: Option<&Arc<FileCacheConfig>>) -> NamedLog {
        let same = |other: &Option<Arc<FileCacheConfig>>| match (cache, other) {
            (Some(cache), Some(other)) => Arc::ptr_eq(cache, other),
            (cache, other) => cache.is_none() && other.is_none(),
        };
        if let Some((_, log)) = self.0.iter().find(|(other, _)| same(other)) {
            return log.clone();
        }
        let log = writer.named(cache.map(|cache| **cache));
        self.0.push((cache.cloned(), log.clone()));
        log
    }
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let conf = exchange.request.conf(&LOG_CONF);
    let is_of_client = exchange.request.is_main() && !exchange.request.is_internal();
    if !is_of_client && !*exchange.request.location().core.log_subrequest {
        return Step::Declined;
    }
    let view = exchange.view();
    for log in conf.active() {
        if log.condition.as_ref().is_none_or(|condition| !matches!(&*condition.eval(&view), b"" | b"0")) {
            log.write(&view, conf.named.as_ref());
        }
    }
    Step::Declined
}

impl Log {
    fn write<'c>(&'c self, view: &View<'_, 'c>, named: Option<&NamedLog>) {
        let capacity = self.format.line_bytes();
        match &self.to {
            Destination::File(file) => {
                let mut line = Vec::with_capacity(capacity);
                self.format.append(view, &mut line);
                line.push(b'\n');
                file.write(line);
            }
            Destination::Named(path) => {
                let Some(named) = named else { return };
                let root = (!view.request.is_root_tested()).then(|| paths::document_root(view));
                let mut line = named.begin(&path.eval(view), root.as_deref(), capacity);
                self.format.append(view, &mut line);
                line.push(b'\n');
                named.write(line);
            }
            Destination::Syslog(syslog) => {
                let (now, offset) = (view.request.now_unix_s(), view.request.utc_offset_minutes());
                let mut message = syslog.begin(None, now, offset, capacity);
                self.format.append(view, &mut message);
                syslog.write(message);
            }
            Destination::Unopened(_) => unreachable!("all logs are opened when a configuration is complete"),
        }
    }
}
