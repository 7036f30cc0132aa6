//! How responses are sent, and how files are read for them: the settings and their directives. Read at
//! boot or reload, immutable afterwards.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_base::units;
use clearway_conf::{Args, Contexts, Directive, Error, Pos, Scope, Spec};
use clearway_offload::Pool;
use clearway_offload::files::Mode;

use crate::config::core_directives::CORE_CONF;
use crate::config::core_directives::{msec, set};
use crate::config::hash_sizes;
use crate::config::load::Load;
use crate::config::module::{Module, context};
use crate::config::setting::Setting;
use crate::output::OutputState;
use crate::request::{Request, Verbatim};
use crate::variables::{Value, View};

/// The engine's part of the tables that this file has.
pub(crate) static SENDING: Module =
    Module { name: "sending", directives: DIRECTIVES, finish: Some(find_pools), ..Module::EMPTY };

/// The pool of everything that names none.
const DEFAULT_POOL: &str = "default";

/// The thread pools of a configuration; a service of the environment.
#[derive(Clone, Debug, Default)]
pub struct ThreadPools(Arc<[Arc<Pool>]>);

impl ThreadPools {
    /// These pools, of which one should be called `default`.
    #[must_use]
    pub fn new(pools: impl IntoIterator<Item = Arc<Pool>>) -> Self {
        Self(pools.into_iter().collect())
    }

    /// The pool with this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Arc<Pool>> {
        self.0.iter().find(|pool| pool.name().as_bytes() == name)
    }
}

/// What is done with work on files that may block (`aio`).
#[derive(Clone, Debug, Default)]
pub enum Aio {
    /// A pool does it.
    #[default]
    Default,
    /// The loop does it (`off`).
    Off,
    /// The pool with this name does it (`threads=NAME`).
    Named(Bytes, Pos),
    /// The pool whose name this is does it (`threads=$NAME`).
    Evaluated(Value),
}

/// A size that may depend on the request.
#[derive(Clone, Debug)]
pub(crate) enum Size {
    /// Bytes.
    Fixed(u64),
    Evaluated(Value),
}

impl Default for Size {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl Size {
    /// Bytes.
    pub(crate) fn eval(&self, view: &View<'_, '_>) -> u64 {
        let mut value = Vec::new();
        match self {
            Self::Fixed(bytes) => return *bytes,
            Self::Evaluated(parts) => parts.append(view, &mut value),
        }
        if value.is_empty() {
            return 0;
        }
        units::parse_size(&value).unwrap_or_else(|| {
            view.request.log(Level::Error, format_args!("invalid size \"{}\"", Verbatim(&value)));
            0
        })
    }
}

/// Which `If-Modified-Since` means that a file has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfModifiedSince {
    /// None.
    Off,
    /// The very date.
    Exact,
    /// The date or a later one.
    Before,
}

/// Files of which size bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directio {
    /// None.
    Off,
    /// From this size on, bytes.
    From(u64),
}

/// How a location sends.
#[derive(Clone)]
pub struct Sending {
    pub(crate) sendfile: Setting<bool>,
    /// Most that sendfile(2) is asked for at once, bytes; 0: no limit.
    pub(crate) sendfile_max_chunk_bytes: Setting<u64>,
    pub(crate) tcp_nopush: Setting<bool>,
    pub(crate) tcp_nodelay: Setting<bool>,
    pub(crate) send_timeout_ms: Setting<u64>,
    pub(crate) reset_timedout_connection: Setting<bool>,
    pub(crate) postpone_output_bytes: Setting<u64>,
    /// Number, and size in bytes.
    pub(crate) output_buffers: Setting<(u64, u64)>,
    /// Bytes per second; 0: no limit.
    pub(crate) limit_rate: Setting<Size>,
    /// What is sent before the limit counts, bytes.
    pub(crate) limit_rate_after: Setting<Size>,
    aio: Setting<Aio>,
    aio_write: Setting<bool>,
    pool: Option<Arc<Pool>>,
    pools: ThreadPools,
    /// `read_ahead`, bytes; 0: off.
    pub read_ahead_bytes: Setting<u64>,
    /// `directio`.
    pub directio: Setting<Directio>,
    /// `directio_alignment`, bytes.
    pub directio_alignment: Setting<u64>,
    /// `if_modified_since`.
    pub if_modified_since: Setting<IfModifiedSince>,
    /// `max_ranges`; `None`: no limit.
    pub max_ranges: Setting<Option<u64>>,
    /// `types_hash_max_size`, `types_hash_bucket_size`; see `hash_sizes`.
    hash_sizes: [Setting<u64>; 2],
    send_lowat_bytes: Setting<u64>,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            sendfile: Setting::new(false),
            sendfile_max_chunk_bytes: Setting::new(2 << 20),
            tcp_nopush: Setting::new(false),
            tcp_nodelay: Setting::new(true),
            send_timeout_ms: Setting::new(60_000),
            reset_timedout_connection: Setting::new(false),
            postpone_output_bytes: Setting::new(1460),
            output_buffers: Setting::new((2, 32 << 10)),
            limit_rate: Setting::default(),
            limit_rate_after: Setting::default(),
            aio: Setting::default(),
            aio_write: Setting::new(false),
            pool: None,
            pools: ThreadPools::default(),
            read_ahead_bytes: Setting::new(0),
            directio: Setting::new(Directio::Off),
            directio_alignment: Setting::new(512),
            if_modified_since: Setting::new(IfModifiedSince::Exact),
            max_ranges: Setting::new(None),
            hash_sizes: [Setting::new(1024), Setting::new(64)],
            send_lowat_bytes: Setting::new(0),
        }
    }
}

impl Sending {
    /// Refuses sizes that the table of types cannot have.
    pub(crate) fn check_hash_sizes(&self) -> Result<(), Error> {
        hash_sizes::check("types_hash", *self.hash_sizes[0], *self.hash_sizes[1])
    }

    /// Takes from the enclosing level what this one leaves open.
    pub(crate) fn merge(&mut self, parent: &Self) {
        self.sendfile.merge(&parent.sendfile);
        self.sendfile_max_chunk_bytes.merge(&parent.sendfile_max_chunk_bytes);
        self.tcp_nopush.merge(&parent.tcp_nopush);
        self.tcp_nodelay.merge(&parent.tcp_nodelay);
        self.send_timeout_ms.merge(&parent.send_timeout_ms);
        self.reset_timedout_connection.merge(&parent.reset_timedout_connection);
        self.postpone_output_bytes.merge(&parent.postpone_output_bytes);
        self.output_buffers.merge(&parent.output_buffers);
        self.limit_rate.merge(&parent.limit_rate);
        self.limit_rate_after.merge(&parent.limit_rate_after);
        self.aio.merge(&parent.aio);
        self.aio_write.merge(&parent.aio_write);
        self.read_ahead_bytes.merge(&parent.read_ahead_bytes);
        self.directio.merge(&parent.directio);
        self.directio_alignment.merge(&parent.directio_alignment);
        self.if_modified_since.merge(&parent.if_modified_since);
        self.max_ranges.merge(&parent.max_ranges);
        let sizes = self.hash_sizes.iter_mut().zip(&parent.hash_sizes);
        sizes.for_each(|(size, parent)| size.merge(parent));
    }

    /// What loops do with work on files that may block.
    #[must_use]
    pub fn files_mode(&self) -> Mode {
        if matches!(*self.aio, Aio::Off) { Mode::Inline } else { Mode::Offload }
    }

    /// Whether every file's name of its pool is worked out anew, and may name none.
    fn find_pool(&mut self, pools: &ThreadPools) -> Result<(), Error> {
        self.pools = pools.clone();
        let name = match &*self.aio {
            Aio::Named(name, _) => &name[..],
            _ => DEFAULT_POOL.as_bytes(),
        };
        self.pool = pools.find(name).cloned();
        match &*self.aio {
            Aio::Named(name, pos) if self.pool.is_none() => {
                let message = clearway_conf::error::message(&[&"unknown thread pool \"", name, &"\""]);
                Err(Error::new(message, pos))
            }
            _ => Ok(()),
        }
    }
}

impl Request<'_> {
    /// The pool for work on files that would block the loop (`aio`). If it cannot be had, that is logged.
    #[must_use]
    pub fn file_pool(&self) -> Option<Arc<Pool>> {
        let sending = &self.location().core.sending;
        let Aio::Evaluated(parts) = &*sending.aio else {
            if sending.pool.is_none() {
                self.log(Level::Alert, format_args!("no thread pool for files"));
            }
            return sending.pool.clone();
        };
        // There may be a response already, but a pool does not depend on it.
        let (no_response, mut name) = (OutputState::new(Vec::new()), Vec::new());
        parts.append(&View::new(self, &no_response), &mut name);
        let pool = sending.pools.find(&name).cloned();
        if pool.is_none() {
            self.log(Level::Error, format_args!("thread pool \"{}\" not found", Verbatim(&name)));
        }
        pool
    }
}

fn find_pools(load: &mut Load) -> Result<(), Error> {
    // Whoever says nothing of pools does not want to know whether they are there.
    let Some(pools) = load.environment().services.find::<ThreadPools>().cloned() else { return Ok(()) };
    load.all_locations(&CORE_CONF).try_for_each(|core| core.sending.find_pool(&pools))
}

/// In the contexts of most, and in an `if` of a location.
const ALL_AND_IF: Contexts = context::ALL.or(context::LOCATION_IF);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "sendfile",
        contexts: ALL_AND_IF,
        args: Args::FLAG,
        syntax: "sendfile on | off",
        default: "sendfile off;",
        doc: "Whether files of more than 16 KiB are sent by sendfile(2), without being copied; small ones \
              leave together with the head of the response in either case.",
        handler: |scope, d| set(d, &mut scope.conf.sending().sendfile, |d| d.flag(0)),
    },
    Spec {
        name: "sendfile_max_chunk",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "sendfile_max_chunk SIZE",
        default: "sendfile_max_chunk 2m;",
        doc: "How much one call of sendfile(2) sends; 0 is no limit. A fast client does not keep the loop \
              from others for longer than that.",
        handler: |scope, d| set(d, &mut scope.conf.sending().sendfile_max_chunk_bytes, |d| d.size(0)),
    },
    Spec {
        name: "tcp_nopush",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "tcp_nopush on | off",
        default: "tcp_nopush off;",
        doc: "Whether a file that takes several calls of sendfile(2) leaves in full packets all the same \
              (TCP_CORK). The head of a response and the beginning of its file share packets always.",
        handler: |scope, d| set(d, &mut scope.conf.sending().tcp_nopush, |d| d.flag(0)),
    },
    Spec {
        name: "tcp_nodelay",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "tcp_nodelay on | off",
        default: "tcp_nodelay on;",
        doc: "Whether the last packet of a response leaves at once, without waiting until the client has \
              acknowledged those before it.",
        handler: |scope, d| set(d, &mut scope.conf.sending().tcp_nodelay, |d| d.flag(0)),
    },
    Spec {
        name: "send_timeout",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "send_timeout TIME",
        default: "send_timeout 60s;",
        doc: "How long a client may take nothing of a response before its connection is closed.",
        handler: |scope, d| set(d, &mut scope.conf.sending().send_timeout_ms, msec),
    },
    Spec {
        name: "reset_timedout_connection",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "reset_timedout_connection on | off",
        default: "reset_timedout_connection off;",
        doc: "Whether connections that timed out, or that `return 444` closes, are reset: nothing is kept \
              then of what they were not sent.",
        handler: |scope, d| set(d, &mut scope.conf.sending().reset_timedout_connection, |d| d.flag(0)),
    },
    Spec {
        name: "send_lowat",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "send_lowat SIZE",
        default: "send_lowat 0;",
        doc: "As in nginx on Linux there is no such thing: it warns and does nothing.",
        handler: |scope, d| {
            set(d, &mut scope.conf.sending().send_lowat_bytes, |d| d.size(0))?;
            scope.warn(d.error("\"send_lowat\" is not supported, ignored"));
            Ok(())
        },
    },
    Spec {
        name: "postpone_output",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "postpone_output SIZE",
        default: "postpone_output 1460;",
        doc: "With less than this nothing is sent while more of the response is to come, unless whoever \
              makes it wants that.",
        handler: |scope, d| set(d, &mut scope.conf.sending().postpone_output_bytes, |d| d.size(0)),
    },
    Spec {
        name: "output_buffers",
        contexts: context::ALL,
        args: Args::TAKE2,
        syntax: "output_buffers NUMBER SIZE",
        default: "output_buffers 2 32k;",
        doc: "How much of a file is in memory at a time while it is sent without sendfile(2): so many \
              buffers of that size, 1m at most.",
        handler: |scope, d| set(d, &mut scope.conf.sending().output_buffers, |d| d.buffers(0)),
    },
    Spec {
        name: "limit_rate",
        contexts: ALL_AND_IF,
        args: Args::TAKE1,
        syntax: "limit_rate RATE",
        default: "limit_rate 0;",
        doc: "Bytes per second that a response may be sent with; 0 is no limit. May have variables in it, \
              and `set $limit_rate` says otherwise for one request.",
        handler: |scope, d| read_size(scope, d, |sending| &mut sending.limit_rate),
    },
    Spec {
        name: "limit_rate_after",
        contexts: ALL_AND_IF,
        args: Args::TAKE1,
        syntax: "limit_rate_after SIZE",
        default: "limit_rate_after 0;",
        doc: "How much of a response is sent before its rate is limited. May have variables in it.",
        handler: |scope, d| read_size(scope, d, |sending| &mut sending.limit_rate_after),
    },
    Spec {
        name: "aio",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "aio on | off | threads[=POOL]",
        default: "",
        doc: "Who opens and reads files that are not in memory: the threads of a pool (`threads=POOL`, \
              which may have variables in it), or with `off` the loop itself, which keeps other clients \
              waiting. Without the directive and with `on` and `threads` it is the pool `default`. What is \
              in memory never goes to a pool.",
        handler: aio,
    },
    Spec {
        name: "aio_write",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "aio_write on | off",
        default: "aio_write off;",
        doc: "Whether nginx has a pool write temporary files where `aio threads` is in force.",
        handler: |scope, d| set(d, &mut scope.conf.sending().aio_write, |d| d.flag(0)),
    },
    Spec {
        name: "read_ahead",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "read_ahead SIZE",
        default: "read_ahead 0;",
        doc: "Unless it is 0 the kernel is told that files of more than 128 KiB are read in order. How far \
              it reads ahead is its own decision.",
        handler: |scope, d| set(d, &mut scope.conf.sending().read_ahead_bytes, |d| d.size(0)),
    },
    Spec {
        name: "directio",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "directio SIZE | off",
        default: "directio off;",
        doc: "Files of this size and above are read past the page cache (O_DIRECT), always by threads of a \
              pool.",
        handler: |scope, d| {
            set(d, &mut scope.conf.sending().directio, |d| match &d.args[0][..] {
                b"off" => Ok(Directio::Off),
                _ => d.offset(0).map(Directio::From),
            })
        },
    },
    Spec {
        name: "directio_alignment",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "directio_alignment SIZE",
        default: "directio_alignment 512;",
        doc: "What `directio` reads begins and ends at multiples of this; XFS on some disks wants 4k.",
        handler: |scope, d| set(d, &mut scope.conf.sending().directio_alignment, |d| d.offset(0)),
    },
    Spec {
        name: "if_modified_since",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "if_modified_since off | exact | before",
        default: "if_modified_since exact;",
        doc: "Which `If-Modified-Since` is answered with 304: none, the very date of the file, or any date \
              from that on.",
        handler: |scope, d| {
            const WORDS: [(&str, IfModifiedSince); 3] = [
                ("off", IfModifiedSince::Off),
                ("exact", IfModifiedSince::Exact),
                ("before", IfModifiedSince::Before),
            ];
            set(d, &mut scope.conf.sending().if_modified_since, |d| d.choice(0, &WORDS))
        },
    },
    Spec {
        name: "max_ranges",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "max_ranges NUMBER",
        default: "",
        doc: "How many ranges of a file one request may ask for; with more it gets the whole file. 0: ranges \
              are ignored.",
        handler: |scope, d| set(d, &mut scope.conf.sending().max_ranges, |d| d.number(0).map(Some)),
    },
    Spec {
        name: "types_hash_max_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "types_hash_max_size SIZE",
        default: "types_hash_max_size 1024;",
        doc: "How large nginx makes the tables of `types`.",
        handler: |scope, d| set(d, &mut scope.conf.sending().hash_sizes[0], |d| d.number(0)),
    },
    Spec {
        name: "types_hash_bucket_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "types_hash_bucket_size SIZE",
        default: "types_hash_bucket_size 64;",
        doc: "How large nginx makes the tables of `types`.",
        handler: |scope, d| set(d, &mut scope.conf.sending().hash_sizes[1], |d| d.number(0)),
    },
];

fn read_size(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    setting: fn(&mut Sending) -> &mut Setting<Size>,
) -> Result<(), Error> {
    let value = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
    set(directive, setting(scope.conf.sending()), |directive| match value.as_literal() {
        Some(_) => directive.size(0).map(Size::Fixed),
        None => Ok(Size::Evaluated(value)),
    })
}

fn aio(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let argument = &directive.args[0];
    let name = argument.strip_prefix(b"threads=").map(|name| argument.slice_ref(name));
    let name = match name {
        Some(name) => Some(scope.conf.variables.compile(&name, &directive.pos)?),
        None => None,
    };
    set(directive, &mut scope.conf.sending().aio, |directive| match (&argument[..], name) {
        (_, Some(name)) => Ok(match name.as_literal() {
            Some(text) => Aio::Named(Bytes::copy_from_slice(text), directive.pos.clone()),
            None => Aio::Evaluated(name),
        }),
        (b"off", _) => Ok(Aio::Off),
        (b"on" | b"threads", _) => Ok(Aio::Default),
        _ => Err(directive.reject("invalid value")),
    })
}
