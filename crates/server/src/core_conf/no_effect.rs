//! Directives of nginx for which nothing is left to do here: they are checked for form, and that is all.
//! The list is the one place that says so, and the manual's pages are made from it.

use std::time::Duration;

use clearway_conf::{Args, Directive, Error, Spec};

use super::{CoreConf, EVENTS, MAIN};

/// Why a directive has no effect.
#[derive(Clone, Copy, Debug)]
pub struct NoEffect {
    /// Its name.
    pub directive: &'static str,
    /// The part that does its work, or why there is none.
    pub reason: &'static str,
}

/// All directives that have no effect, by name.
pub const NO_EFFECT: &[NoEffect] = &[
    NoEffect {
        directive: "accept_mutex",
        reason: "loops take turns anyway: the kernel wakes one of them for one connection, and a loop that \
                 was woken goes to the end",
    },
    NoEffect { directive: "accept_mutex_delay", reason: "loops never wait for a turn to accept" },
    NoEffect { directive: "aio_write", reason: "threads of a pool write temporary files in any case" },
    NoEffect {
        directive: "client_body_in_single_buffer",
        reason: "a body that is kept in memory is always in one buffer",
    },
    NoEffect {
        directive: "connection_pool_size",
        reason: "a connection is one allocation of fixed size; must not exceed a large header buffer",
    },
    NoEffect {
        directive: "debug_connection",
        reason: "there are no debug lines; warns as an nginx without `--with-debug`",
    },
    NoEffect { directive: "debug_points", reason: "there are none: what must not happen is an assertion" },
    NoEffect {
        directive: "epoll_events",
        reason: "a loop makes everything ready that one `epoll_wait` returns, in a batch of fixed size",
    },
    NoEffect { directive: "gzip_hash", reason: "the table of the compressor has one size" },
    NoEffect {
        directive: "http2_idle_timeout",
        reason: "obsolete in nginx as well; warns, `keepalive_timeout` does it",
    },
    NoEffect {
        directive: "http2_max_concurrent_pushes",
        reason: "obsolete in nginx as well; warns, as nothing is pushed",
    },
    NoEffect {
        directive: "http2_max_field_size",
        reason: "obsolete in nginx as well; warns, `large_client_header_buffers` does it",
    },
    NoEffect {
        directive: "http2_max_header_size",
        reason: "obsolete in nginx as well; warns, `large_client_header_buffers` does it",
    },
    NoEffect {
        directive: "http2_max_requests",
        reason: "obsolete in nginx as well; warns, `keepalive_requests` does it",
    },
    NoEffect { directive: "http2_pool_size", reason: "there are no pools whose size could be set" },
    NoEffect { directive: "http2_push", reason: "obsolete in nginx as well; warns, as nothing is pushed" },
    NoEffect {
        directive: "http2_push_preload",
        reason: "obsolete in nginx as well; warns, as nothing is pushed",
    },
    NoEffect {
        directive: "http2_recv_timeout",
        reason: "obsolete in nginx as well; warns, `client_header_timeout` does it",
    },
    NoEffect {
        directive: "http2_streams_index_size",
        reason: "streams are found by their numbers, in one list",
    },
    NoEffect { directive: "lock_file", reason: "loops share memory, no lock needs a file" },
    NoEffect {
        directive: "lua_sa_restart",
        reason: "signals are read from a descriptor, so they interrupt no call",
    },
    NoEffect { directive: "map_hash_bucket_size", reason: "tables have the size that they need" },
    NoEffect { directive: "map_hash_max_size", reason: "tables have the size that they need" },
    NoEffect { directive: "open_file_cache_events", reason: "Linux has no such events for nginx either" },
    NoEffect {
        directive: "pcre_jit",
        reason: "expressions are always compiled to machine code where the library can",
    },
    NoEffect {
        directive: "proxy_busy_buffers_size",
        reason: "a response is sent as soon as its client takes it; checked against the other sizes",
    },
    NoEffect { directive: "proxy_headers_hash_bucket_size", reason: "tables have the size that they need" },
    NoEffect { directive: "proxy_headers_hash_max_size", reason: "tables have the size that they need" },
    NoEffect { directive: "proxy_send_lowat", reason: "Linux has nothing for it" },
    NoEffect { directive: "referer_hash_bucket_size", reason: "tables have the size that they need" },
    NoEffect { directive: "referer_hash_max_size", reason: "tables have the size that they need" },
    NoEffect {
        directive: "request_pool_size",
        reason: "the memory of a request is used again for others, as it has grown",
    },
    NoEffect { directive: "server_names_hash_bucket_size", reason: "tables have the size that they need" },
    NoEffect { directive: "server_names_hash_max_size", reason: "tables have the size that they need" },
    NoEffect {
        directive: "ssi_ignore_recycled_buffers",
        reason: "no buffers are used again before they are sent",
    },
    NoEffect { directive: "ssi_min_file_chunk", reason: "a document with commands is sent from memory" },
    #[cfg(feature = "tls")]
    NoEffect { directive: "ssl_dhparam", reason: "key exchanges with DHE are not made; warns" },
    #[cfg(feature = "tls")]
    NoEffect { directive: "ssl_ech_file", reason: "the library has no Encrypted Client Hello; warns" },
    #[cfg(feature = "tls")]
    NoEffect { directive: "ssl_ocsp_cache", reason: "authorities are not asked about clients" },
    #[cfg(feature = "tls")]
    NoEffect { directive: "ssl_ocsp_responder", reason: "authorities are not asked about clients" },
    NoEffect { directive: "timer_resolution", reason: "the clock is read once per turn of a loop anyway" },
    NoEffect { directive: "types_hash_bucket_size", reason: "tables have the size that they need" },
    NoEffect { directive: "types_hash_max_size", reason: "tables have the size that they need" },
    NoEffect { directive: "use", reason: "events come by `epoll`; `poll` and `select` mean the same" },
    NoEffect {
        directive: "variables_hash_bucket_size",
        reason: "variables are numbered when they are loaded",
    },
    NoEffect { directive: "variables_hash_max_size", reason: "variables are numbered when they are loaded" },
    NoEffect {
        directive: "worker_aio_requests",
        reason: "files are read by pools of threads, not by the kernel's asynchronous I/O",
    },
];

/// The given directives, so that none is given twice.
#[derive(Debug, Default)]
pub(super) struct Formal {
    lock_file: Option<bytes::Bytes>,
    timer_resolution: Option<Duration>,
    debug_points: Option<()>,
    pcre_jit: Option<bool>,
    method: Option<()>,
    accept_mutex: Option<bool>,
    accept_mutex_delay: Option<Duration>,
    epoll_events: Option<u64>,
    worker_aio_requests: Option<u64>,
}

fn event_method(d: &Directive) -> Result<(), Error> {
    /// The methods that nginx can have on Linux; the last two only if it is built with them.
    const METHODS: [&str; 3] = ["epoll", "poll", "select"];
    let method = d.value(0)?;
    if METHODS.iter().any(|known| method == *known) {
        return Ok(());
    }
    Err(d.error(clearway_conf::error::message(&[&"invalid event type \"", &method, &"\""])))
}

/// The directives of the list.
pub(super) const DIRECTIVES: &[Spec<CoreConf>] = &[
    Spec {
        name: "timer_resolution",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "timer_resolution INTERVAL",
        default: "",
        doc: "How often nginx reads the clock.",
        example: "",
        see: &[],
        handler: |scope, d| d.set(&mut scope.conf.formal.timer_resolution, |d| d.msec(0)),
    },
    Spec {
        name: "lock_file",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "lock_file FILE",
        default: "lock_file /var/lock/nginx.lock",
        doc: "Prefix of the names of nginx's lock files.",
        example: "",
        see: &[],
        handler: |scope, d| d.set(&mut scope.conf.formal.lock_file, |d| d.value(0)),
    },
    Spec {
        name: "debug_points",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "debug_points abort | stop",
        default: "",
        doc: "In nginx: whether it stops or aborts when it finds a mistake in itself.",
        example: "",
        see: &[],
        handler: |scope, d| {
            d.set(&mut scope.conf.formal.debug_points, |d| d.choice(0, &[("stop", ()), ("abort", ())]))
        },
    },
    Spec {
        name: "pcre_jit",
        contexts: MAIN,
        args: Args::FLAG,
        syntax: "pcre_jit on | off",
        default: "pcre_jit off",
        doc: "Whether nginx compiles regular expressions to machine code.",
        example: "",
        see: &[],
        handler: |scope, d| d.set(&mut scope.conf.formal.pcre_jit, |d| d.flag(0)),
    },
    Spec {
        name: "use",
        contexts: EVENTS,
        args: Args::TAKE1,
        syntax: "use epoll | poll | select",
        default: "use epoll",
        doc: "The method of waiting for events.",
        example: "",
        see: &[],
        handler: |scope, d| d.set(&mut scope.conf.formal.method, event_method),
    },
    Spec {
        name: "accept_mutex",
        contexts: EVENTS,
        args: Args::FLAG,
        syntax: "accept_mutex on | off",
        default: "accept_mutex off",
        doc: "Whether nginx's workers take turns to accept.",
        example: "",
        see: &[],
        handler: |scope, d| d.set(&mut scope.conf.formal.accept_mutex, |d| d.flag(0)),
    },
    Spec {
        name: "accept_mutex_delay",
        contexts: EVENTS,
        args: Args::TAKE1,
        syntax: "accept_mutex_delay TIME",
        default: "accept_mutex_delay 500ms",
        doc: "How long a worker of nginx waits for its turn to accept.",
        example: "",
        see: &[],
        handler: |scope, d| d.set(&mut scope.conf.formal.accept_mutex_delay, |d| d.msec(0)),
    },
    Spec {
        name: "debug_connection",
        contexts: EVENTS,
        args: Args::TAKE1,
        syntax: "debug_connection ADDRESS | CIDR | unix:",
        default: "",
        doc: "For which clients an nginx that was built for it writes debug lines.",
        example: "",
        see: &[],
        handler: |scope, d| {
            let text = "\"debug_connection\" is ignored, you need to rebuild nginx using --with-debug option \
                        to enable it";
            scope.warn(d.error(text));
            Ok(())
        },
    },
    Spec {
        name: "epoll_events",
        contexts: EVENTS,
        args: Args::TAKE1,
        syntax: "epoll_events NUMBER",
        default: "epoll_events 512",
        doc: "How many events nginx takes from the kernel at once.",
        example: "",
        see: &[],
        handler: |scope, d| d.set(&mut scope.conf.formal.epoll_events, |d| d.number(0)),
    },
    Spec {
        name: "worker_aio_requests",
        contexts: EVENTS,
        args: Args::TAKE1,
        syntax: "worker_aio_requests NUMBER",
        default: "worker_aio_requests 32",
        doc: "How many asynchronous reads a worker of nginx has under way.",
        example: "",
        see: &[],
        handler: |scope, d| d.set(&mut scope.conf.formal.worker_aio_requests, |d| d.number(0)),
    },
];
