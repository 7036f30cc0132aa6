//! `open_file_cache` and its family: results of lookups by name are kept for a while, with their files open.
//! All loops share a cache, which has room for as many files as nginx's workers together. What names mean is
//! asked again after `open_file_cache_valid`.

mod table;

use std::sync::Arc;

use clearway_base::units;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{ConfKey, Level, Load, Module, Request, Setting, ThreadPools, context, set, settings};

pub(crate) use table::{Errors, Held, Known, OpenFiles, Terms};

/// The module.
pub static OPEN_FILE_CACHE: Module =
    Module { name: "open_file_cache", directives: DIRECTIVES, confs: &[&CACHE_CONF], ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "open_file_cache",
        contexts: context::ALL,
        args: Args::TAKE12,
        syntax: "open_file_cache off\nopen_file_cache max=NUMBER [inactive=TIME]",
        default: "open_file_cache off;",
        doc: "Keeps files open, and what is known of directories and (see `open_file_cache_errors`) of names \
              behind which nothing is: `max` of them per loop, as long as each is asked for within \
              `inactive` (60 seconds).",
        example: EXAMPLE_OF_CACHE,
        see: &[
            "open_file_cache_valid",
            "open_file_cache_min_uses",
            "open_file_cache_errors",
            "file_copies",
            "open_log_file_cache",
        ],
        handler: read_cache,
    },
    Spec {
        name: "open_file_cache_valid",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "open_file_cache_valid TIME",
        default: "open_file_cache_valid 60s;",
        doc: "After which time it is asked again whether a name still means what is in the cache.",
        example: EXAMPLE_OF_CACHE,
        see: &[
            "open_file_cache",
            "open_file_cache_min_uses",
            "open_file_cache_errors",
            "file_copies",
            "open_log_file_cache",
        ],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&CACHE_CONF).valid_s, |directive| {
                directive.sec(0).map(|time| time.as_secs())
            })
        },
    },
    Spec {
        name: "open_file_cache_min_uses",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "open_file_cache_min_uses NUMBER",
        default: "open_file_cache_min_uses 1;",
        doc: "How often a file must have been asked for to be kept open.",
        example: EXAMPLE_OF_CACHE,
        see: &[
            "open_file_cache",
            "open_file_cache_valid",
            "open_file_cache_errors",
            "file_copies",
            "open_log_file_cache",
        ],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&CACHE_CONF).min_uses, |directive| directive.number(0))
        },
    },
    Spec {
        name: "open_file_cache_errors",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "open_file_cache_errors on | off",
        default: "open_file_cache_errors off;",
        doc: "Whether it is kept that there is no such file, or none that may be read.",
        example: EXAMPLE_OF_CACHE,
        see: &[
            "open_file_cache",
            "open_file_cache_valid",
            "open_file_cache_min_uses",
            "file_copies",
            "open_log_file_cache",
        ],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&CACHE_CONF).errors, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "open_file_cache_events",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "open_file_cache_events on | off",
        default: "open_file_cache_events off;",
        doc: "Whether nginx is told of changes by the kernel, where that has such events.",
        example: "",
        see: &[],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&CACHE_CONF).events, |directive| directive.flag(0))
        },
    },
];

/// The example of `open_file_cache`, `open_file_cache_valid`, `open_file_cache_min_uses` and
/// `open_file_cache_errors`.
const EXAMPLE_OF_CACHE: &str = "
    open_file_cache max=10000 inactive=20s;
    open_file_cache_valid 30s;
    open_file_cache_min_uses 2;
    open_file_cache_errors on;";

static CACHE_CONF: ConfKey<CacheConf> = ConfKey::new(Level::Location);

settings! {
    struct CacheConf {
        /// Levels that inherit it share it.
        cache: Setting<Option<Arc<OpenFiles>>>,
        valid_s: Setting<u64> = 60,
        min_uses: Setting<u64> = 1,
        errors: Setting<bool> = false,
        events: Setting<bool> = false,
    }
}

fn read_cache(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let pools = scope.conf.environment().services.find::<ThreadPools>();
    let loops = pools.and_then(|pools| pools.find(b"default")).map_or(1, |pool| pool.config().loops);
    set(directive, &mut scope.conf.location(&CACHE_CONF).cache, |directive| {
        let (mut files, mut inactive_s, mut is_off) = (0, 60, false);
        for argument in &directive.args {
            let invalid = || {
                let text = message(&[&"invalid \"open_file_cache\" parameter \"", argument, &"\""]);
                directive.error(text)
            };
            if let Some(digits) = argument.strip_prefix(b"max=") {
                files = units::parse_number(digits).filter(|&files| files > 0).ok_or_else(invalid)?;
            } else if let Some(time) = argument.strip_prefix(b"inactive=") {
                inactive_s = units::parse_sec(time).ok_or_else(invalid)?.as_secs();
            } else if &argument[..] == b"off" {
                is_off = true;
            } else {
                return Err(invalid());
            }
        }
        if is_off {
            return Ok(None);
        }
        if files == 0 {
            return Err(directive.error("\"open_file_cache\" must have the \"max\" parameter"));
        }
        Ok(Some(Arc::new(OpenFiles::new(files.saturating_mul(u64::from(loops)), inactive_s * 1000))))
    })
}

/// How a location uses its cache.
#[derive(Clone)]
pub(crate) struct CacheUse {
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) terms: Terms,
}

impl CacheUse {
    /// How the location of a request uses its cache, if it has one.
    pub(crate) fn of(request: &Request<'_>) -> Option<Self> {
        let conf = request.conf(&CACHE_CONF);
        let files = Option::clone(&conf.cache)?;
        let errors = if *conf.errors { Errors::Kept } else { Errors::Forgotten };
        let terms = Terms {
            now_ms: request.now_ms(),
            valid_ms: conf.valid_s.saturating_mul(1000),
            min_uses: *conf.min_uses,
            errors,
        };
        Some(Self { files, terms })
    }
}
