//! The directives of captures, timers and sockets. Executed when a configuration is read.

use std::time::Duration;

use clearway_conf::{Args, Contexts, Spec};
use clearway_http::{Load, Module, context, set};

use crate::vm::net_settings::{NET_CONF, NET_MAIN};

const PLACES: Contexts = context::ALL.or(context::LOCATION_IF);

/// The module.
pub static LUA_NET: Module =
    Module { name: "lua_net", directives: DIRECTIVES, confs: &[&NET_CONF, &NET_MAIN], ..Module::EMPTY };

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Directives with a time.
macro_rules! time {
    ($name:literal, $doc:literal, $see:expr, $field:ident) => {
        Spec {
            name: $name,
            contexts: PLACES,
            args: Args::TAKE1,
            syntax: concat!($name, " TIME"),
            default: concat!($name, " 60s;"),
            doc: $doc,
            example: concat!("\n            ", $name, " 5s;"),
            see: $see,
            handler: |scope, directive| {
                let setting = &mut scope.conf.location(&NET_CONF).$field;
                set(directive, setting, |directive| directive.msec(0).map(ms))
            },
        }
    };
}

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "lua_capture_max_size",
        contexts: PLACES,
        args: Args::TAKE1,
        syntax: "lua_capture_max_size SIZE",
        default: "lua_capture_max_size 64m;",
        doc: "How long the body of a response may be that `ngx.location.capture` keeps in memory. One that \
              is longer is cut there (`truncated`), which is logged. Clearway's own directive.",
        example: "
            lua_capture_max_size 8m;",
        see: &["content_by_lua_block"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&NET_CONF).capture_max_bytes;
            set(directive, setting, |directive| directive.size(0))
        },
    },
    time!(
        "lua_socket_connect_timeout",
        "How long `connect` of a socket of Lua waits, unless `settimeout` says something else.",
        &["lua_socket_send_timeout", "lua_socket_read_timeout"],
        socket_connect_timeout_ms
    ),
    time!(
        "lua_socket_send_timeout",
        "How long `send` of a socket of Lua waits for the peer to take something, unless `settimeout` says \
         something else.",
        &["lua_socket_connect_timeout", "lua_socket_read_timeout"],
        socket_send_timeout_ms
    ),
    time!(
        "lua_socket_read_timeout",
        "How long `receive` and the like of a socket of Lua wait for something to come, unless `settimeout` \
         says something else.",
        &["lua_socket_connect_timeout", "lua_socket_send_timeout"],
        socket_read_timeout_ms
    ),
    time!(
        "lua_socket_keepalive_timeout",
        "How long a connection that `setkeepalive` has put aside is kept; 0: for as long as its peer keeps \
         it.",
        &["lua_socket_pool_size"],
        socket_keepalive_timeout_ms
    ),
    Spec {
        name: "lua_socket_buffer_size",
        contexts: PLACES,
        args: Args::TAKE1,
        syntax: "lua_socket_buffer_size SIZE",
        default: "lua_socket_buffer_size 4k;",
        doc: "How much a socket of Lua reads at a time.",
        example: "
            lua_socket_buffer_size 16k;",
        see: &["lua_socket_read_timeout"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&NET_CONF).socket_buffer_bytes;
            set(directive, setting, |directive| directive.size(0))
        },
    },
    Spec {
        name: "lua_socket_pool_size",
        contexts: PLACES,
        args: Args::TAKE1,
        syntax: "lua_socket_pool_size NUMBER",
        default: "lua_socket_pool_size 30;",
        doc: "How many connections to the same server a loop puts aside for `connect`; the one that was idle \
              for longest is closed when there are more.",
        example: "
            lua_socket_pool_size 100;",
        see: &["lua_socket_keepalive_timeout"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&NET_CONF).socket_pool_size;
            set(directive, setting, |directive| directive.number(0))
        },
    },
    Spec {
        name: "lua_socket_log_errors",
        contexts: PLACES,
        args: Args::FLAG,
        syntax: "lua_socket_log_errors on | off",
        default: "lua_socket_log_errors on;",
        doc: "Whether the error log has a line where a socket of Lua fails.",
        example: "
            lua_socket_log_errors off;",
        see: &["lua_socket_connect_timeout"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&NET_CONF).socket_logs_errors;
            set(directive, setting, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "lua_max_pending_timers",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_max_pending_timers NUMBER",
        default: "lua_max_pending_timers 1024;",
        doc: "How many timers (`ngx.timer.at`) of a loop may wait for their time.",
        example: "
            lua_max_pending_timers 4096;",
        see: &["lua_max_running_timers"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.main(&NET_MAIN).max_pending_timers;
            set(directive, setting, |directive| directive.number(0))
        },
    },
    Spec {
        name: "lua_max_running_timers",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_max_running_timers NUMBER",
        default: "lua_max_running_timers 256;",
        doc: "How many timers of a loop may run at a time; one whose time comes then is dropped, which is \
              logged.",
        example: "
            lua_max_running_timers 1024;",
        see: &["lua_max_pending_timers"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.main(&NET_MAIN).max_running_timers;
            set(directive, setting, |directive| directive.number(0))
        },
    },
];
