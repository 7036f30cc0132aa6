//! How responses are sent, and how files are read for them: the directives, executed at boot or reload, and
//! what of the settings depends on the request.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_offload::Pool;
use clearway_site::{
    Aio, CORE_CONF, Directio, IfModifiedSince, Sending, Setting, Size, ThreadPools, context, msec, set,
};

use crate::output::OutputState;
use crate::output::view::View;
use crate::request::Request;
use crate::tables::{Load, Module};
use clearway_base::log::Verbatim;

/// The engine's part of the tables that this file has.
pub(crate) static SENDING: Module =
    Module { name: "sending", directives: DIRECTIVES, finish: Some(find_pools), ..Module::EMPTY };

impl Request<'_> {
    /// The pool that `aio threads=` names for the location, if it names one.
    #[must_use]
    pub fn named_file_pool(&self) -> Option<Arc<Pool>> {
        match &*self.location().core.sending.aio {
            Aio::Default | Aio::Off => None,
            Aio::Named(..) | Aio::Evaluated(_) => self.file_pool(),
        }
    }

    /// The pool for work on files that would block the loop (`aio`). If it cannot be had, that is logged.
    #[must_use]
    pub fn file_pool(&self) -> Option<Arc<Pool>> {
        let sending = &self.location().core.sending;
        let Aio::Evaluated(parts) = &*sending.aio else {
            if sending.pool.is_none() {
                self.log(Level::Alert, format_args!("no thread pool for files"));
            }
            return Option::clone(&sending.pool);
        };
        // There may be a response already, but a pool does not depend on it.
        let (no_response, mut name) = (OutputState::to_client(Vec::new()), Vec::new());
        parts.append(&View::new(self, &no_response), &mut name);
        let pool = sending.pools.find(&name).cloned();
        if pool.is_none() {
            self.log(Level::Error, format_args!("thread pool \"{}\" not found", Verbatim(&name)));
        }
        pool
    }
}

fn find_pools(load: &mut Load) -> Result<(), Error> {
    // Without the service of pools the names are not checked.
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
        example: EXAMPLE_OF_DOWNLOADS,
        see: &["sendfile_max_chunk", "tcp_nopush", "tcp_nodelay", "aio", "directio"],
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
        example: EXAMPLE_OF_DOWNLOADS,
        see: &["sendfile", "tcp_nopush", "tcp_nodelay", "aio", "directio"],
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
        example: EXAMPLE_OF_DOWNLOADS,
        see: &["sendfile", "sendfile_max_chunk", "tcp_nodelay", "aio", "directio"],
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
        example: "
            tcp_nodelay on;",
        see: &["tcp_nopush"],
        handler: |scope, d| set(d, &mut scope.conf.sending().tcp_nodelay, |d| d.flag(0)),
    },
    Spec {
        name: "send_timeout",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "send_timeout TIME",
        default: "send_timeout 60s;",
        doc: "How long a client may take nothing of a response before its connection is closed.",
        example: "
            send_timeout 20s;
            reset_timedout_connection on;",
        see: &["reset_timedout_connection", "lingering_close", "client_body_timeout"],
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
        example: "
            send_timeout 20s;
            reset_timedout_connection on;",
        see: &["send_timeout", "lingering_close", "client_body_timeout"],
        handler: |scope, d| set(d, &mut scope.conf.sending().reset_timedout_connection, |d| d.flag(0)),
    },
    Spec {
        name: "send_lowat",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "send_lowat SIZE",
        default: "send_lowat 0;",
        doc: "As in nginx on Linux there is no such thing: it warns and does nothing.",
        example: "",
        see: &[],
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
        doc: "With less than this nothing is sent while more of the response is to come, unless the module \
              that makes it asks for that.",
        example: EXAMPLE_OF_BUFFERS,
        see: &["output_buffers", "sendfile"],
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
        example: EXAMPLE_OF_BUFFERS,
        see: &["postpone_output", "sendfile"],
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
        example: EXAMPLE_OF_LIMITED_RATE,
        see: &["limit_rate_after", "limit_conn", "limit_req"],
        handler: |scope, d| read_size(scope, d, |sending| &mut sending.limit_rate),
    },
    Spec {
        name: "limit_rate_after",
        contexts: ALL_AND_IF,
        args: Args::TAKE1,
        syntax: "limit_rate_after SIZE",
        default: "limit_rate_after 0;",
        doc: "How much of a response is sent before its rate is limited. May have variables in it.",
        example: EXAMPLE_OF_LIMITED_RATE,
        see: &["limit_rate", "limit_conn", "limit_req"],
        handler: |scope, d| read_size(scope, d, |sending| &mut sending.limit_rate_after),
    },
    Spec {
        name: "aio",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "aio on | off | threads[=POOL]",
        default: "",
        doc: "Chooses the threads that open and read files which are not in memory: those of a pool \
              (`threads=POOL`, which may have variables in it), or with `off` the loop itself, which keeps \
              other clients waiting. Without the directive and with `on` and `threads` it is the pool \
              `default`. What is in memory never goes to a pool.",
        example: EXAMPLE_OF_LARGE_FILES,
        see: &["directio", "directio_alignment", "read_ahead", "thread_pool", "sendfile"],
        handler: aio,
    },
    Spec {
        name: "aio_write",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "aio_write on | off",
        default: "aio_write off;",
        doc: "Whether nginx has a pool write temporary files where `aio threads` is in force.",
        example: "",
        see: &[],
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
        example: EXAMPLE_OF_LARGE_FILES,
        see: &["aio", "directio", "directio_alignment", "thread_pool", "sendfile"],
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
        example: EXAMPLE_OF_LARGE_FILES,
        see: &["aio", "directio_alignment", "read_ahead", "thread_pool", "sendfile"],
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
        doc: "Reads of `directio` begin and end at multiples of this; XFS on some disks wants 4k.",
        example: EXAMPLE_OF_LARGE_FILES,
        see: &["aio", "directio", "read_ahead", "thread_pool", "sendfile"],
        handler: |scope, d| set(d, &mut scope.conf.sending().directio_alignment, |d| d.offset(0)),
    },
    Spec {
        name: "if_modified_since",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "if_modified_since off | exact | before",
        default: "if_modified_since exact;",
        doc: "Chooses the `If-Modified-Since` that gets 304: none, the very date of the file, or any date \
              from that on.",
        example: "
            location /feeds/ {
                etag off;
                if_modified_since before;
            }",
        see: &["etag", "expires", "add_header"],
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
        example: "
            location /firmware/ {
                max_ranges 1;
            }",
        see: &["slice"],
        handler: |scope, d| set(d, &mut scope.conf.sending().max_ranges, |d| d.number(0).map(Some)),
    },
    Spec {
        name: "types_hash_max_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "types_hash_max_size SIZE",
        default: "types_hash_max_size 1024;",
        doc: "How large nginx makes the tables of `types`.",
        example: "",
        see: &[],
        handler: |scope, d| set(d, &mut scope.conf.sending().hash_sizes[0], |d| d.number(0)),
    },
    Spec {
        name: "types_hash_bucket_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "types_hash_bucket_size SIZE",
        default: "types_hash_bucket_size 64;",
        doc: "How large nginx makes the tables of `types`.",
        example: "",
        see: &[],
        handler: |scope, d| set(d, &mut scope.conf.sending().hash_sizes[1], |d| d.number(0)),
    },
];

/// The example of `sendfile`, `sendfile_max_chunk` and `tcp_nopush`.
const EXAMPLE_OF_DOWNLOADS: &str = "
    location /downloads/ {
        sendfile on;
        sendfile_max_chunk 512k;
        tcp_nopush on;
    }";

/// The example of `postpone_output` and `output_buffers`.
const EXAMPLE_OF_BUFFERS: &str = "
    location /stream/ {
        postpone_output 0;
        output_buffers 4 64k;
    }";

/// The example of `limit_rate` and `limit_rate_after`.
const EXAMPLE_OF_LIMITED_RATE: &str = "
    location /video/ {
        # The first 2 MiB as fast as the network takes them, so that the player can begin.
        limit_rate_after 2m;
        limit_rate 500k;
    }";

/// The example of `aio`, `read_ahead`, `directio` and `directio_alignment`.
const EXAMPLE_OF_LARGE_FILES: &str = "
    location /video/ {
        aio threads;
        read_ahead 512k;

        # Large files do not push small ones out of the page cache.
        directio 16m;
        directio_alignment 4k;
    }";

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
