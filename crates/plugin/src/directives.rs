//! The `plugin` directives. Boot, and when a configuration is read.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    ConfKey, Cost, Enabling, Level, Load, Module, Own, Phase, PhaseHandler, Setting, context, msec, set,
    settings,
};

use crate::calls;
use crate::metrics;
use crate::plugin::{Plugin, PluginPlace, Wanted};

/// Calls under way at a time, unless `calls` says something else; and the most of them.
const CALLS_DEFAULT: u32 = 1024;
const CALLS_MAX: u64 = 65_536;

/// The longest message, bytes, unless `message` says something else; and what that may say.
const MESSAGE_DEFAULT_BYTES: u32 = 64 << 10;
const MESSAGE_BYTES: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

/// The module. Its locations are answered before files are looked for, and what it asks about access comes
/// behind what the server can tell by itself.
pub static PLUGIN: Module = Module {
    name: "plugin",
    directives: DIRECTIVES,
    confs: &[&PLUGINS, &PLUGIN_CONF],
    phases: &[
        PhaseHandler {
            phase: Phase::Access,
            cost: Cost::Cheap,
            enabled: |enabling| conf(enabling).access.is_some(),
            handler: calls::access,
        },
        PhaseHandler {
            phase: Phase::Content,
            cost: Cost::Cheap,
            enabled: |enabling| conf(enabling).pass.is_some(),
            handler: calls::pass,
        },
        PhaseHandler {
            phase: Phase::Log,
            cost: Cost::Cheap,
            enabled: |enabling| conf(enabling).log.is_some(),
            handler: calls::log,
        },
    ],
    metrics: metrics::ALL,
    ..Module::EMPTY
};

fn conf<'e>(enabling: &Enabling<'e>) -> &'e PluginConf {
    enabling.confs.of(&PLUGIN_CONF)
}

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "plugin",
        contexts: context::HTTP,
        args: Args::TWO_MORE,
        syntax: "plugin NAME library=FILE [config=TEXT] [process] [calls=NUMBER] [message=SIZE]",
        default: "",
        doc: "Names a library that takes part in requests: it is loaded with the first of them, and asks for \
              work with threads of its own, so that nothing it does holds a loop. What it has to export \
              stands in `plugins/clearway_plugin.h`; `config` is for itself. With `process` it runs in a \
              process of its own: if that crashes, requests that wait for it are answered with 502, and it \
              is started anew. So many `calls` may be under way at a time (1024, at most 65536, rounded up \
              to a power of two), with questions and answers no longer than `message` (64k, from 4k to 64m). \
              A reload with the same words leaves it alone.",
        example: "
            plugin greeter library=/usr/lib/clearway/greeter.so config=hello process;

            server {
                location /hello {
                    plugin_pass greeter greet;
                }
            }",
        see: &["plugin_pass", "plugin_access", "plugin_log", "plugin_timeout"],
        handler: read_plugin,
    },
    Spec {
        name: "plugin_pass",
        contexts: context::LOCATION.or(context::LOCATION_IF),
        args: Args::TAKE2,
        syntax: "plugin_pass NAME FUNCTION",
        default: "",
        doc: "Has a plugin answer: it is given the request with its body, and what it is to do by name. The \
              answer is 503 where too many calls are under way, 413 for a request that is too long for a \
              message, 502 where the plugin crashes or answers with something else than a response, and 504 \
              behind `plugin_timeout`.",
        example: "
            plugin greeter library=/usr/lib/clearway/greeter.so;

            server {
                location /hello {
                    plugin_pass greeter greet;
                }
            }",
        see: &["plugin", "plugin_access", "plugin_timeout", "client_max_body_size"],
        handler: |scope, directive| {
            let asked = asked(scope, directive)?;
            set(directive, &mut scope.conf.location(&PLUGIN_CONF).pass, |_| Ok(Some(asked)))
        },
    },
    Spec {
        name: "plugin_access",
        contexts: context::ALL,
        args: Args::TAKE12,
        syntax: "plugin_access NAME FUNCTION | off",
        default: "plugin_access off;",
        doc: "Asks a plugin whether a request may go on: it may if the status of the answer is one of 200 to \
              299, and gets that answer if not. The body is not part of the question.",
        example: "
            plugin keys library=/usr/lib/clearway/keys.so config=/etc/keys;

            server {
                location /api/ {
                    plugin_access keys check;
                }
            }",
        see: &["plugin", "plugin_pass", "auth_request", "satisfy"],
        handler: |scope, directive| {
            let asked = asked_or_off(scope, directive)?;
            set(directive, &mut scope.conf.location(&PLUGIN_CONF).access, |_| Ok(asked))
        },
    },
    Spec {
        name: "plugin_log",
        contexts: context::ALL,
        args: Args::TAKE12,
        syntax: "plugin_log NAME FUNCTION | off",
        default: "plugin_log off;",
        doc: "Tells a plugin of each request that is over, with the status and the bytes that were sent. \
              Its answer is dropped; requests of which it could not be told are counted.",
        example: "
            plugin bills library=/usr/lib/clearway/bills.so process;

            server {
                location /api/ {
                    plugin_log bills count;
                }
            }",
        see: &["plugin", "access_log"],
        handler: |scope, directive| {
            let asked = asked_or_off(scope, directive)?;
            set(directive, &mut scope.conf.location(&PLUGIN_CONF).log, |_| Ok(asked))
        },
    },
    Spec {
        name: "plugin_timeout",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "plugin_timeout TIME",
        default: "plugin_timeout 60s;",
        doc: "How long a request waits for the answer of a plugin. One that comes later is dropped.",
        example: "
            plugin greeter library=/usr/lib/clearway/greeter.so;

            server {
                location /hello {
                    plugin_pass greeter greet;
                    plugin_timeout 5s;
                }
            }",
        see: &["plugin_pass", "plugin_access"],
        handler: |scope, directive| set(directive, &mut scope.conf.location(&PLUGIN_CONF).timeout_ms, msec),
    },
];

static PLUGINS: ConfKey<Plugins> = ConfKey::new(Level::Main);
pub(crate) static PLUGIN_CONF: ConfKey<PluginConf> = ConfKey::new(Level::Location);

settings! {
    /// All that were named.
    struct Plugins {
        named: Own<Vec<Arc<Plugin>>>,
    }
}

settings! {
    /// The settings of locations.
    pub(crate) struct PluginConf {
        pub(crate) access: Setting<Option<Asked>>,
        pub(crate) pass: Setting<Option<Asked>>,
        pub(crate) log: Setting<Option<Asked>>,
        pub(crate) timeout_ms: Setting<u64> = 60_000,
    }
}

/// Which plugin is asked, for what.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) function: Bytes,
}

fn asked(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<Asked, Error> {
    let [name, function, ..] = &directive.args[..] else {
        return Err(directive.error(message(&[
            &"invalid number of arguments in \"",
            &directive.name,
            &"\" directive",
        ])));
    };
    let named = &scope.conf.main(&PLUGINS).named;
    let plugin = named.iter().find(|plugin| plugin.name() == &name[..]).cloned();
    let plugin = plugin.ok_or_else(|| directive.error(message(&[&"unknown plugin \"", &name, &"\""])))?;
    Ok(Asked { plugin, function: function.clone() })
}

fn asked_or_off(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<Option<Asked>, Error> {
    match &directive.args[..] {
        [word] if word == "off" => Ok(None),
        _ => asked(scope, directive).map(Some),
    }
}

fn read_plugin(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let prefix = scope.conf.environment().prefix.clone();
    let c_text = |at: usize, text: &[u8]| CString::new(text).map_err(|_| invalid(directive, at));
    let mut wanted = Wanted {
        name: c_text(0, &directive.args[0])?,
        library: CString::default(),
        config: CString::default(),
        place: PluginPlace::Here,
        calls: CALLS_DEFAULT,
        message_bytes: MESSAGE_DEFAULT_BYTES,
    };
    for (at, argument) in directive.args.iter().enumerate().skip(1) {
        let (word, value) = match argument.iter().position(|&byte| byte == b'=') {
            Some(end) => (&argument[..end], Some(&argument[end + 1..])),
            None => (&argument[..], None),
        };
        let failed = || invalid(directive, at);
        match (word, value) {
            (b"library", Some(path)) if !path.is_empty() => {
                let path = prefix.join(std::path::Path::new(std::ffi::OsStr::from_bytes(path)));
                wanted.library = c_text(at, path.as_os_str().as_bytes())?;
            }
            (b"config", Some(text)) => wanted.config = c_text(at, text)?,
            (b"calls", Some(text)) => {
                let calls = units::parse_number(text).filter(|calls| (1..=CALLS_MAX).contains(calls));
                wanted.calls =
                    u32::try_from(calls.ok_or_else(failed)?).map_err(|_| failed())?.next_power_of_two();
            }
            (b"message", Some(text)) => {
                let bytes = units::parse_size(text).filter(|bytes| MESSAGE_BYTES.contains(bytes));
                wanted.message_bytes = u32::try_from(bytes.ok_or_else(failed)?).map_err(|_| failed())?;
            }
            (b"process", None) => wanted.place = PluginPlace::Beside,
            _ => return Err(failed()),
        }
    }
    if wanted.library.is_empty() {
        return Err(directive.reject("must have \"library\" parameter"));
    }
    make(scope, directive, wanted)
}

fn invalid(directive: &Directive, at: usize) -> Error {
    directive.error(message(&[&"invalid parameter \"", &directive.args[at], &"\""]))
}

fn make(scope: &mut Scope<'_, Load>, directive: &Directive, wanted: Wanted) -> Result<(), Error> {
    let log = Arc::clone(&scope.conf.environment().error_log);
    let named = &mut scope.conf.main(&PLUGINS).named;
    if named.iter().any(|plugin| plugin.name() == wanted.name.as_bytes()) {
        let name = &directive.args[0];
        return Err(directive.error(message(&[&"plugin \"", name, &"\" is defined already"])));
    }
    let plugin = Plugin::find_or_make(wanted, &log);
    let no_memory = |error| directive.error(message(&[&"no memory for plugin: ", &format!("{error}")]));
    named.push(plugin.map_err(no_memory)?);
    Ok(())
}
