//! The directives outside `http`: processes, events, logs, hand-over. Read at boot into one typed
//! structure; nothing here is looked at per request.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clearway_base::log::Level;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};

/// Outside of all blocks.
pub const MAIN: Contexts = Contexts::bit(0);
/// In `events`.
pub const EVENTS: Contexts = Contexts::bit(1);

/// What is found stuck is handed over after one to two times this (docs/performance.md has the
/// measurement behind it).
pub const HANDOVER_AFTER_DEFAULT: Duration = Duration::from_millis(1);

/// Default of `handover_carriers`.
pub const HANDOVER_CARRIERS_DEFAULT: u64 = 512;

/// Most `worker_processes`, as nginx's `NGX_MAX_PROCESSES`.
const WORKER_PROCESSES_MAX: u64 = 1024;

/// Most `handover_carriers`: with as many loops as there can be, a loop's word still tells all apart.
const HANDOVER_CARRIERS_MAX: u64 = 8192;

/// One `error_log`, not opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLogSpec {
    /// Absolute; `None` is standard error.
    pub path: Option<PathBuf>,
    /// Lines of this level and more severe ones.
    pub level: Level,
}

/// What stands outside `http`.
#[derive(Debug)]
pub struct CoreConf {
    /// Where relative paths begin; ends in a slash.
    prefix: PathBuf,
    worker_processes: Option<u64>,
    worker_connections: Option<u64>,
    /// `error_log` directives in order; empty: the default one.
    pub error_logs: Vec<ErrorLogSpec>,
    pid: Option<PathBuf>,
    daemon: Option<bool>,
    master_process: Option<bool>,
    user: Option<()>,
    event_method: Option<()>,
    multi_accept: Option<bool>,
    accept_mutex: Option<bool>,
    handover_after: Option<Option<Duration>>,
    handover_carriers: Option<u64>,
    /// The `events` block has been read.
    events: Option<()>,
    /// The `http` block, to be loaded when the logs are open.
    pub http: Option<Directive>,
}

impl CoreConf {
    /// Nothing said yet.
    #[must_use]
    pub fn new(prefix: &Path) -> Self {
        Self {
            prefix: prefix.to_owned(),
            worker_processes: None,
            worker_connections: None,
            error_logs: Vec::new(),
            pid: None,
            daemon: None,
            master_process: None,
            user: None,
            event_method: None,
            multi_accept: None,
            accept_mutex: None,
            handover_after: None,
            handover_carriers: None,
            events: None,
            http: None,
        }
    }

    /// Event loops.
    #[must_use]
    pub fn loops(&self) -> usize {
        usize::try_from(self.worker_processes.unwrap_or(1)).unwrap_or(1)
    }

    /// Connections that each loop may have.
    #[must_use]
    pub fn worker_connections(&self) -> u32 {
        u32::try_from(self.worker_connections.unwrap_or(512)).unwrap_or(u32::MAX)
    }

    /// `pid`, absolute, if given.
    #[must_use]
    pub fn pid(&self) -> Option<&Path> {
        self.pid.as_deref()
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

    /// Whether `user` was given.
    #[must_use]
    pub fn names_user(&self) -> bool {
        self.user.is_some()
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

    /// Whether there was an `events` block.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.events.is_some()
    }

    fn full_name(&self, path: &[u8]) -> PathBuf {
        self.prefix.join(bytes_path(path))
    }
}

/// A path of the configuration.
pub(crate) fn bytes_path(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// Reads the arguments of an `error_log`.
///
/// # Errors
/// What nginx says of a wrong one.
pub(crate) fn error_log(prefix: &Path, directive: &Directive) -> Result<ErrorLogSpec, Error> {
    let target = directive.value(0)?;
    for unsupported in ["syslog:", "memory:"] {
        if target.starts_with(unsupported.as_bytes()) {
            return Err(directive.error(format!("\"{unsupported}\" is not supported in \"error_log\"")));
        }
    }
    let path = (&target[..] != b"stderr").then(|| prefix.join(bytes_path(&target)));
    let mut level = None;
    for word in &directive.args[1..] {
        let Some(found) = Level::from_name(word) else {
            let word = String::from_utf8_lossy(word);
            return Err(directive.error(format!("invalid log level \"{word}\"")));
        };
        if level.replace(found).is_some() {
            return Err(directive.error("duplicate log level"));
        }
    }
    Ok(ErrorLogSpec { path, level: level.unwrap_or(Level::Error) })
}

fn read_user(scope: &mut Scope<'_, CoreConf>, d: &Directive) -> Result<(), Error> {
    d.set(&mut scope.conf.user, |_| Ok(()))?;
    if !clearway_os::process::is_root() {
        let message = "the \"user\" directive makes sense only if the master process runs with super-user \
                       privileges, ignored";
        scope.warn(d.error(message).with_level(Level::Warn));
        return Ok(());
    }
    let user = d.value(0)?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    if !clearway_os::process::user_exists(&user) {
        return Err(d.error(format!("getpwnam(\"{}\") failed", text(&user))));
    }
    let group = d.args.get(1).unwrap_or(&user);
    if !clearway_os::process::group_exists(group) {
        return Err(d.error(format!("getgrnam(\"{}\") failed", text(group))));
    }
    let message = "the \"user\" directive does not take effect yet, the server keeps the rights that it \
                   was started with";
    scope.warn(d.error(message).with_level(Level::Warn));
    Ok(())
}

fn read_worker_processes(d: &Directive) -> Result<u64, Error> {
    if d.value(0)? == "auto" {
        return Ok(clearway_os::process::processors() as u64);
    }
    let invalid = |_| d.reject("invalid value");
    d.number_within(0, 1, Some(WORKER_PROCESSES_MAX)).map_err(invalid)
}

fn read_worker_connections(d: &Directive) -> Result<u64, Error> {
    let invalid = |_| d.error(format!("invalid number \"{}\"", String::from_utf8_lossy(&d.args[0])));
    d.number(0).map_err(invalid)
}

fn read_event_method(d: &Directive) -> Result<(), Error> {
    let method = d.value(0)?;
    if method == "epoll" {
        return Ok(());
    }
    Err(d.error(format!("invalid event type \"{}\"", String::from_utf8_lossy(&method))))
}

fn read_handover_after(d: &Directive) -> Result<Option<Duration>, Error> {
    if d.value(0)? == "off" {
        return Ok(None);
    }
    let time = d.msec(0)?;
    if time.is_zero() {
        return Err(d.error("invalid value \"0\" in \"handover_after\" directive, it is a time or \"off\""));
    }
    Ok(Some(time))
}

/// The directives outside `http`.
pub const DIRECTIVES: &[Spec<CoreConf>] = &[
    Spec {
        name: "user",
        contexts: MAIN,
        args: Args::TAKE12,
        syntax: "user USER [GROUP]",
        default: "user nobody nogroup",
        doc: "The user and group that the server is to run as. Both must exist. It does not take effect \
              yet: started by root, the server says so and stays root.",
        handler: read_user,
    },
    Spec {
        name: "worker_processes",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "worker_processes NUMBER | auto",
        default: "worker_processes 1",
        doc: "How many event loops there are: threads of one process. `auto` is one for each processor.",
        handler: |scope, d| d.set(&mut scope.conf.worker_processes, read_worker_processes),
    },
    Spec {
        name: "error_log",
        contexts: MAIN,
        args: Args::ONE_MORE,
        syntax: "error_log FILE | stderr [LEVEL]",
        default: "error_log /var/log/nginx/error.log error",
        doc: "Where messages of a level (`debug`, `info`, `notice`, `warn`, `error`, `crit`, `alert`, \
              `emerg`) and above go. May be given several times. Lines are written by a thread of their \
              own; no loop waits for the disk.",
        handler: |scope, d| {
            let spec = error_log(&scope.conf.prefix, d)?;
            scope.conf.error_logs.push(spec);
            Ok(())
        },
    },
    Spec {
        name: "pid",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "pid FILE",
        default: "pid /run/nginx.pid",
        doc: "The file with the number of the process, written when everything listens.",
        handler: |scope, d| {
            let path = scope.conf.full_name(&d.value(0)?);
            d.set(&mut scope.conf.pid, |_| Ok(path))
        },
    },
    Spec {
        name: "daemon",
        contexts: MAIN,
        args: Args::FLAG,
        syntax: "daemon on | off",
        default: "daemon on",
        doc: "Whether the server goes to the background. It does not yet: with `on` it says so and stays.",
        handler: |scope, d| d.set(&mut scope.conf.daemon, |d| d.flag(0)),
    },
    Spec {
        name: "master_process",
        contexts: MAIN,
        args: Args::FLAG,
        syntax: "master_process on | off",
        default: "master_process on",
        doc: "Whether a master process supervises the worker. Both live in one process yet; with `on` the \
              server says so.",
        handler: |scope, d| d.set(&mut scope.conf.master_process, |d| d.flag(0)),
    },
    Spec {
        name: "handover_after",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "handover_after TIME | off",
        default: "handover_after 1ms",
        doc: "A task that holds its loop longer than one to two times this loses it to another thread, and \
              everything else on the loop goes on. While nothing has blocked for a second, looks are rarer \
              and the first task to block is found after up to twelve times this.",
        handler: |scope, d| d.set(&mut scope.conf.handover_after, read_handover_after),
    },
    Spec {
        name: "handover_carriers",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "handover_carriers NUMBER",
        default: "handover_carriers 512",
        doc: "How many threads beyond one per loop may exist to take loops over: as many requests can block \
              at the same time. They are started as they are needed. When they run out, an `[alert]` says \
              so, and requests of locations that blocked lately wait; others do not.",
        handler: |scope, d| {
            d.set(&mut scope.conf.handover_carriers, |d| d.number_within(0, 0, Some(HANDOVER_CARRIERS_MAX)))
        },
    },
    Spec {
        name: "events",
        contexts: MAIN,
        args: Args::NOARGS.or(Args::BLOCK),
        syntax: "events { … }",
        default: "",
        doc: "The directives about connections. It must be there, and may be empty.",
        handler: |scope, d| {
            d.set(&mut scope.conf.events, |_| Ok(()))?;
            scope.block(d, EVENTS)
        },
    },
    Spec {
        name: "http",
        contexts: MAIN,
        args: Args::NOARGS.or(Args::BLOCK),
        syntax: "http { … }",
        default: "",
        doc: "The HTTP servers.",
        handler: |scope, d| d.set(&mut scope.conf.http, |d| Ok(d.clone())),
    },
    Spec {
        name: "use",
        contexts: EVENTS,
        args: Args::TAKE1,
        syntax: "use epoll",
        default: "use epoll",
        doc: "The method of waiting for events. There is one.",
        handler: |scope, d| d.set(&mut scope.conf.event_method, read_event_method),
    },
    Spec {
        name: "worker_connections",
        contexts: EVENTS,
        args: Args::TAKE1,
        syntax: "worker_connections NUMBER",
        default: "worker_connections 512",
        doc: "Connections that one event loop may have, its listening sockets included.",
        handler: |scope, d| d.set(&mut scope.conf.worker_connections, read_worker_connections),
    },
    Spec {
        name: "multi_accept",
        contexts: EVENTS,
        args: Args::FLAG,
        syntax: "multi_accept on | off",
        default: "multi_accept off",
        doc: "Whether a loop that shares a listening socket with others takes all connections that wait \
              there at once, or one at a time.",
        handler: |scope, d| d.set(&mut scope.conf.multi_accept, |d| d.flag(0)),
    },
    Spec {
        name: "accept_mutex",
        contexts: EVENTS,
        args: Args::FLAG,
        syntax: "accept_mutex on | off",
        default: "accept_mutex off",
        doc: "Whether loops are kept from being woken for the same connection. The kernel does that here \
              (`EPOLLEXCLUSIVE`), so both values mean the same.",
        handler: |scope, d| d.set(&mut scope.conf.accept_mutex, |d| d.flag(0)),
    },
];
