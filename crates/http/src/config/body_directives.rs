//! The directives about request bodies: how large they may be, where they are kept, for how long one waits
//! for them, and what is done with those that nobody wants. Executed at boot or reload; the variables and the
//! one phase handler run in the request's task.

use std::path::Path;
use std::sync::Arc;

use clearway_base::log::Sink;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_site::{
    ConfKey, Level, Own, Setting, Value, context, msec, set, settings,
    temp_paths::CLIENT_BODY_TEMP_DEFAULT,
    temp_paths::{self, TempPath, TempPaths},
};

use crate::output::view::Presence;
use crate::tables::{Load, Module, VariableKind, VariableSpec};

/// The engine's own module for bodies.
pub(crate) static BODY: Module = Module {
    name: "client body",
    directives: DIRECTIVES,
    confs: &[&BODY_CONF, &BODY_MAIN],
    variables: VARIABLES,
    finish: Some(finish),
    ..Module::EMPTY
};

const HTTP_SERVER: Contexts = context::HTTP.or(context::SERVER);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "client_max_body_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "client_max_body_size SIZE",
        default: "client_max_body_size 1m;",
        doc: "How large the body of a request may be; a larger one is answered with 413. 0 is no limit.",
        example: EXAMPLE_OF_UPLOADS,
        see: &[
            "client_body_buffer_size",
            "client_body_timeout",
            "client_body_temp_path",
            "client_body_in_file_only",
        ],
        handler: |scope, directive| set(directive, &mut conf(scope).max_bytes, |d| d.offset(0)),
    },
    Spec {
        name: "client_body_buffer_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "client_body_buffer_size SIZE",
        default: "client_body_buffer_size 8k;",
        doc: "How much of a body is kept in memory. One that is longer by a quarter still is, if its length \
              is known; all others are written to a file.",
        example: EXAMPLE_OF_UPLOADS,
        see: &[
            "client_max_body_size",
            "client_body_timeout",
            "client_body_temp_path",
            "client_body_in_file_only",
        ],
        handler: |scope, directive| set(directive, &mut conf(scope).buffer_bytes, |d| d.size(0)),
    },
    Spec {
        name: "client_body_in_file_only",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "client_body_in_file_only on | clean | off",
        default: "client_body_in_file_only off;",
        doc: "Whether every body is written to a file (`$request_body_file`). It stays with `on`, and is \
              removed after the request with `clean`.",
        example: "
            location /debugged/ {
                client_body_in_file_only clean;
            }",
        see: &["client_body_temp_path", "client_body_buffer_size"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).in_file_only, |d| d.choice(0, &InFileOnly::WORDS))
        },
    },
    Spec {
        name: "client_body_in_single_buffer",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "client_body_in_single_buffer on | off",
        default: "client_body_in_single_buffer off;",
        doc: "Whether a body in memory is in one piece.",
        example: "",
        see: &[],
        handler: |scope, directive| set(directive, &mut conf(scope).in_single_buffer, |d| d.flag(0)),
    },
    Spec {
        name: "client_body_temp_path",
        contexts: context::ALL,
        args: Args::TAKE1234,
        syntax: "client_body_temp_path DIRECTORY [LEVEL1 [LEVEL2 [LEVEL3]]]",
        default: "client_body_temp_path /var/lib/nginx/body;",
        doc: "The directory for bodies that are too large for memory, and how many characters the names of \
              its subdirectories have. It is made when the server starts, and belongs to the user that the \
              worker process runs as. Where the default one cannot be made, the server starts all the same.",
        example: "
            client_body_temp_path /var/spool/clearway/bodies 1 2;",
        see: &["client_body_buffer_size", "client_max_body_size"],
        handler: read_temp_path,
    },
    Spec {
        name: "client_body_timeout",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "client_body_timeout TIME",
        default: "client_body_timeout 60s;",
        doc: "How long a client may send nothing of a body before its connection is closed (408).",
        example: EXAMPLE_OF_UPLOADS,
        see: &[
            "client_max_body_size",
            "client_body_buffer_size",
            "client_body_temp_path",
            "client_body_in_file_only",
        ],
        handler: |scope, directive| set(directive, &mut conf(scope).timeout_ms, msec),
    },
    Spec {
        name: "client_body_early_read",
        contexts: HTTP_SERVER,
        args: Args::ONE_MORE,
        syntax: "client_body_early_read STRING …",
        default: "",
        doc: "The body is read before anything else is done with the request if one of the values is neither \
              empty nor `0`.",
        example: "
            map $request_method $has_body {
                POST    1;
                PUT     1;
                default 0;
            }

            server {
                client_body_early_read $has_body;
            }",
        see: &["client_body_buffer_size", "client_body_timeout"],
        handler: read_early_read,
    },
    Spec {
        name: "lingering_close",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "lingering_close off | on | always",
        default: "lingering_close on;",
        doc: "Whether a connection that is to be closed is read from for a while, so that a client that \
              still sends gets to read the answer: `on` if it seems to do so.",
        example: "
            lingering_close always;
            lingering_time 10s;
            lingering_timeout 2s;",
        see: &["lingering_time", "lingering_timeout", "client_body_timeout", "reset_timedout_connection"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).lingering_close, |d| d.choice(0, &LingeringClose::WORDS))
        },
    },
    Spec {
        name: "lingering_time",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "lingering_time TIME",
        default: "lingering_time 30s;",
        doc: "The longest time for which a request's unread body is read and dropped before the connection \
              is closed.",
        example: "
            lingering_close always;
            lingering_time 10s;
            lingering_timeout 2s;",
        see: &["lingering_close", "lingering_timeout", "client_body_timeout", "reset_timedout_connection"],
        handler: |scope, directive| set(directive, &mut conf(scope).lingering_time_ms, msec),
    },
    Spec {
        name: "lingering_timeout",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "lingering_timeout TIME",
        default: "lingering_timeout 5s;",
        doc: "How long the server waits for more of an unread body before it closes the connection.",
        example: "
            lingering_close always;
            lingering_time 10s;
            lingering_timeout 2s;",
        see: &["lingering_close", "lingering_time", "client_body_timeout", "reset_timedout_connection"],
        handler: |scope, directive| set(directive, &mut conf(scope).lingering_timeout_ms, msec),
    },
];

/// The example of `client_max_body_size`, `client_body_buffer_size` and `client_body_timeout`.
const EXAMPLE_OF_UPLOADS: &str = "
    location /upload/ {
        client_max_body_size 64m;
        client_body_buffer_size 128k;
        client_body_timeout 30s;
    }";

static VARIABLES: &[VariableSpec] = &[
    VariableSpec {
        name: "request_body",
        kind: VariableKind::Exact,
        doc: "The body of the request, if a handler has read it and it is in memory.",
        eval: |view, _, out| {
            let stored = view.request.stored_body();
            Presence::put(stored.and_then(|body| body.in_memory()).map(|bytes| &bytes[..]), out)
        },
    },
    VariableSpec {
        name: "request_body_file",
        kind: VariableKind::Exact,
        doc: "Name of the file that the body of the request is in, if it is in one.",
        eval: |view, _, out| {
            use std::os::unix::ffi::OsStrExt;
            let file = view.request.stored_body().and_then(|body| body.file());
            Presence::put(file.map(|file| file.path().as_os_str().as_bytes()), out)
        },
    },
];

/// Settings of a location for request bodies.
pub(crate) static BODY_CONF: ConfKey<BodyConf> = ConfKey::new(Level::Location);

/// Settings for all request bodies.
pub(crate) static BODY_MAIN: ConfKey<BodyMain> = ConfKey::new(Level::Main);

settings! {
    /// The settings of a location.
    pub(crate) struct BodyConf {
        /// `client_max_body_size`; 0: no limit.
        pub(crate) max_bytes: Setting<u64> = 1024 * 1024,
        /// `client_body_buffer_size`.
        pub(crate) buffer_bytes: Setting<u64> = 8 * 1024,
        pub(crate) in_file_only: Setting<InFileOnly> = InFileOnly::Off,
        /// Without effect: a body in memory is always in one buffer.
        in_single_buffer: Setting<bool> = false,
        pub(crate) timeout_ms: Setting<u64> = 60_000,
        /// `client_body_temp_path`; there is one when all of the configuration was read.
        pub(crate) temp_path: Setting<Option<Arc<TempPath>>>,
        pub(crate) early_read: Setting<Vec<Value>>,
        pub(crate) lingering_close: Setting<LingeringClose> = LingeringClose::On,
        pub(crate) lingering_time_ms: Setting<u64> = 30_000,
        pub(crate) lingering_timeout_ms: Setting<u64> = 5_000,
    }
}

settings! {
    /// Settings for all of `http`.
    pub(crate) struct BodyMain {
        /// The log for files that could not be removed: the request is over by then.
        pub(crate) log: Own<Option<Arc<dyn Sink>>>,
    }
}

/// `client_body_in_file_only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InFileOnly {
    Off,
    /// The files stay.
    On,
    /// Files are removed after their requests.
    Clean,
}

impl InFileOnly {
    const WORDS: [(&str, Self); 3] = [("off", Self::Off), ("on", Self::On), ("clean", Self::Clean)];
}

/// `lingering_close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LingeringClose {
    /// Never.
    Off,
    /// Where something was received that is unread, or is still to come.
    On,
    /// Whatever was received.
    Always,
}

impl LingeringClose {
    const WORDS: [(&str, Self); 3] = [("off", Self::Off), ("on", Self::On), ("always", Self::Always)];
}

fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut BodyConf {
    scope.conf.location(&BODY_CONF)
}

fn read_temp_path(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if conf(scope).temp_path.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let environment = scope.conf.environment();
    let path = TempPath::read(&environment.prefix, directive)?;
    if let Some(paths) = environment.services.find::<TempPaths>() {
        paths.declare(path.clone())?;
    }
    conf(scope).temp_path.set(Some(Arc::new(path)));
    Ok(())
}

fn read_early_read(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for value in &directive.args {
        let value = scope.conf.variables.compile(value, &directive.pos)?;
        conf(scope).early_read.here().push(value);
    }
    Ok(())
}

/// Every location has a directory for bodies, if only the default one.
fn finish(load: &mut Load) -> Result<(), Error> {
    let paths = load.environment().services.find::<TempPaths>().cloned();
    let log = load.environment().error_log.clone();
    *load.main(&BODY_MAIN).log = Some(log);
    let settings = load.all_locations(&BODY_CONF).map(|conf| &mut conf.temp_path);
    temp_paths::complete(settings, Path::new(CLIENT_BODY_TEMP_DEFAULT), paths.as_ref())
}
