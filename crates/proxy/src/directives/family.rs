//! The directives that families share: one row each, to which [`pass_directives`] gives the family's
//! prefix. What they say stands in one `PassConf` for each family.

/// A row: name, arguments, how they are written, the default, an example, text, what to see, what it does.
macro_rules! row {
    (@default $p:literal, $name:literal, -) => {
        ""
    };
    (@default $p:literal, $name:literal, $default:literal) => {
        concat!($p, "_", $name, " ", $default, ";")
    };
    (
        $p:literal, $around:literal, $name:literal, $args:ident, $syntax:literal, $default:tt,
        $example:literal,
        $doc:literal,
        [$($see:literal),*],
        $handler:expr
    ) => {
        Spec {
            name: concat!($p, "_", $name),
            contexts: context::ALL,
            args: Args::$args,
            syntax: concat!($p, "_", $name, " ", $syntax),
            default: row!(@default $p, $name, $default),
            doc: $doc,
            example: concat!(
                "\nlocation / {\n    ", $around, "\n    ", $p, "_", $name, " ", $example, ";\n}"
            ),
            see: &[$(concat!($p, "_", $see)),*],
            handler: $handler,
        }
    };
}

/// The table of a family about connections: the rows that all families have, and those of its own. `at` gives
/// its `PassConf` at the level that is read; `buffer` says what `buffer_size` is for.
macro_rules! connection_directives {
    ($p:literal, $at:ident, $example:literal, $buffer:literal, [$($own:expr),* $(,)?]) => {
        &[
            $($own,)*
            row! {
                $p, $example, "bind", TAKE12, "ADDRESS [transparent] | off", "off", "127.0.0.1",
                "The local address, or address and port, that connections to servers come from; it may \
                 have variables in it. With `transparent` it need not be one of this machine (such as \
                 that of the client: `$remote_addr`): the worker keeps the right to do so (CAP_NET_RAW) \
                 where it is started as root, and routing has to lead answers back.",
                ["socket_keepalive", "connect_timeout"],
                |s, d| readers::read_bind(s, d, |load| &mut $at(load).bind)
            },
            row! {
                $p, $example, "socket_keepalive", FLAG, "on | off", "off", "on",
                "Whether the kernel looks now and then if a silent server is there (`SO_KEEPALIVE`).",
                ["bind", "read_timeout"],
                |s, d| set(d, &mut $at(s.conf).socket_keepalive, |d| d.flag(0))
            },
            row! {
                $p, $example, "connect_timeout", TAKE1, "TIME", "60s", "5s",
                "How long it may take to connect to a server.",
                ["send_timeout", "read_timeout", "next_upstream"],
                |s, d| set(d, &mut $at(s.conf).connect_timeout_ms, msec)
            },
            row! {
                $p, $example, "send_timeout", TAKE1, "TIME", "60s", "10s",
                "How long a server may take none of what is sent to it.",
                ["connect_timeout", "read_timeout"],
                |s, d| set(d, &mut $at(s.conf).send_timeout_ms, msec)
            },
            row! {
                $p, $example, "buffer_size", TAKE1, "SIZE", "4k", "8k",
                $buffer,
                ["read_timeout"],
                |s, d| set(d, &mut $at(s.conf).buffer_bytes, |d| d.size(0))
            },
            row! {
                $p, $example, "read_timeout", TAKE1, "TIME", "60s", "300s",
                "How long a server may send nothing of its response.",
                ["connect_timeout", "send_timeout", "next_upstream"],
                |s, d| set(d, &mut $at(s.conf).read_timeout_ms, msec)
            },
            row! {
                $p, $example, "next_upstream_tries", TAKE1, "NUMBER", "0", "3",
                "How many servers are asked at most; 0 is no limit.",
                ["next_upstream", "next_upstream_timeout"],
                |s, d| set(d, &mut $at(s.conf).next_upstream_tries, |d| d.number(0))
            },
            row! {
                $p, $example, "next_upstream_timeout", TAKE1, "TIME", "0", "10s",
                "How long other servers are tried; 0 is no limit.",
                ["next_upstream", "next_upstream_tries"],
                |s, d| set(d, &mut $at(s.conf).next_upstream_timeout_ms, msec)
            },
        ]
    };
}

/// The directives of a family whose requests and responses have bodies.
macro_rules! pass_directives {
    ($p:literal, $at:ident, $example:literal, [$($own:expr),* $(,)?]) => {
        connection_directives!($p, $at, $example, "The largest head of a response; a larger one gets 502.", [
            $($own,)*
            socket_rcvbuf!($p, $at, $example),
            socket_sndbuf!($p, $at, $example),
            row! {
                $p, $example, "intercept_errors", FLAG, "on | off", "off", "on",
                "Whether responses with a status of 300 and above are replaced by the `error_page` for \
                 it, where there is one.",
                ["next_upstream", "ignore_headers"],
                |s, d| set(d, &mut $at(s.conf).intercept_errors, |d| d.flag(0))
            },
            row! {
                $p, $example, "pass_request_headers", FLAG, "on | off", "on", "off",
                "Whether the header lines of the client are passed on.",
                ["pass_request_body"],
                |s, d| set(d, &mut $at(s.conf).pass_request_headers, |d| d.flag(0))
            },
            row! {
                $p, $example, "pass_request_body", FLAG, "on | off", "on", "off",
                "Whether the body of the request is passed on.",
                ["pass_request_headers", "request_buffering"],
                |s, d| set(d, &mut $at(s.conf).pass_request_body, |d| d.flag(0))
            },
            row! {
                $p, $example, "buffers", TAKE2, "NUMBER SIZE", "8 4k", "16 8k",
                "How much of a response is kept in memory while its client takes it: more goes to a \
                 file, or waits at its server.",
                ["buffer_size", "busy_buffers_size", "max_temp_file_size"],
                |s, d| set(d, &mut $at(s.conf).buffers, |d| d.buffers(0))
            },
            row! {
                $p, $example, "busy_buffers_size", TAKE1, "SIZE", "8k", "8k",
                "How much of a response may wait to be sent; checked against the others.",
                ["buffers", "buffer_size"],
                |s, d| set(d, &mut $at(s.conf).busy_bytes, |d| d.size(0).map(Some))
            },
            row! {
                $p, $example, "force_ranges", FLAG, "on | off", "off", "on",
                "Whether parts are sent of responses that do not say that they may be (`Accept-Ranges`).",
                ["buffering"],
                |s, d| set(d, &mut $at(s.conf).force_ranges, |d| d.flag(0))
            },
            row! {
                $p, $example, "limit_rate", TAKE1, "RATE", "0", "200k",
                "How many bytes a second are read of a response; 0 is no limit. It may have variables in \
                 it, and holds for responses that are buffered.",
                ["buffering", "read_timeout"],
                |s, d| readers::read_rate(s, d, |load| &mut $at(load).limit_rate)
            },
            row! {
                $p, $example, "buffering", FLAG, "on | off", "on", "off",
                "Whether a response is read as fast as its server sends it, into memory and a file, \
                 whatever the client takes. Otherwise it is passed on as it comes, and the server waits \
                 for the client. `X-Accel-Buffering` says so for one response.",
                ["buffers", "request_buffering", "ignore_headers"],
                |s, d| set(d, &mut $at(s.conf).buffering, |d| d.flag(0))
            },
            row! {
                $p, $example, "request_buffering", FLAG, "on | off", "on", "off",
                "Whether the body of a request is read to its end before a server is asked. Otherwise it \
                 is passed on as it comes, and no second server is asked once a part of it was sent.",
                ["buffering", "next_upstream"],
                |s, d| set(d, &mut $at(s.conf).request_buffering, |d| d.flag(0))
            },
            row! {
                $p, $example, "ignore_client_abort", FLAG, "on | off", "off", "on",
                "Whether the server is asked on when the client has left.",
                ["read_timeout"],
                |s, d| set(d, &mut $at(s.conf).ignore_client_abort, |d| d.flag(0))
            },
            row! {
                $p, $example, "temp_path", TAKE1234,
                "DIRECTORY [LEVEL1 [LEVEL2 [LEVEL3]]]",
                -, "/var/spool/clearway/responses 1 2",
                "The directory for what of responses does not fit into memory; the levels are the lengths \
                 of the names of its subdirectories.",
                ["max_temp_file_size", "temp_file_write_size"],
                |s, d| readers::read_temp_path(s, d, |load| &mut $at(load).temp_path)
            },
            row! {
                $p, $example, "max_temp_file_size", TAKE1, "SIZE", "1024m", "64m",
                "How much of a response may wait in a file for its client; 0: there is none. The rest \
                 waits at its server.",
                ["temp_path", "buffers"],
                |s, d| set(d, &mut $at(s.conf).max_temp_file_bytes, |d| d.size(0).map(Some))
            },
            row! {
                $p, $example, "temp_file_write_size", TAKE1, "SIZE", "8k", "64k",
                "How much is written to such a file at once.",
                ["temp_path", "max_temp_file_size"],
                |s, d| set(d, &mut $at(s.conf).temp_file_write_bytes, |d| d.size(0).map(Some))
            },
            row! {
                $p, $example, "pass_header", TAKE1, "NAME", -, "Server",
                "Passes a header to clients that they are not shown otherwise.",
                ["hide_header", "ignore_headers"],
                |s, d| readers::read_name(d, &mut $at(s.conf).pass_headers)
            },
            row! {
                $p, $example, "hide_header", TAKE1, "NAME", -, "X-Powered-By",
                "Does not pass a header to clients.",
                ["pass_header", "ignore_headers"],
                |s, d| readers::read_name(d, &mut $at(s.conf).hide_headers)
            },
            row! {
                $p, $example, "ignore_headers", ONE_MORE, "NAME …", -, "X-Accel-Redirect X-Accel-Buffering",
                "Headers of responses that are not acted on: `X-Accel-Redirect`, `X-Accel-Limit-Rate`, \
                 `X-Accel-Buffering`, `X-Accel-Charset`; and of those about caching `X-Accel-Expires`, \
                 `Expires`, `Cache-Control`, `Set-Cookie`, `Vary`.",
                ["hide_header", "buffering"],
                |s, d| read_mask(s, d, |load| &mut $at(load).ignore_headers)
            },
            row! {
                $p, $example, "store", TAKE1, "on | off | PATH", "off", "/data/www$uri",
                "Whether responses with the status 200 are kept as files: at PATH, which may have variables \
                 in it, or with `on` where `root` or `alias` leads. A file has its name when it is complete, \
                 and the time of `Last-Modified`. Whether it is there is asked with `error_page` or \
                 `try_files`; nothing removes it. A response that is not buffered is not kept.",
                ["store_access", "temp_path", "buffering"],
                |s, d| readers::read_store(s, d, $p, |load| &mut $at(load).keeping)
            },
            row! {
                $p, $example, "store_access", TAKE123,
                "user:RIGHTS | group:RIGHTS | all:RIGHTS …",
                "user:rw", "user:rw group:r",
                "The access rights of files that are stored, and of their directories.",
                ["store"],
                |s, d| set(d, &mut $at(s.conf).store_access, file_access)
            },
            row! {
                $p, $example, "cache", TAKE1, "ZONE | off", "off", "off",
                "The cache that responses are kept in and taken from: the name of a zone that a \
                 `cache_path` of this family makes, perhaps from variables. `off`: none.",
                ["cache_path", "cache_key", "cache_valid", "store"],
                |s, d| cache::read_cache(s, d, &FAMILY)
            },
            Spec {
                name: concat!($p, "_cache_path"),
                contexts: context::HTTP,
                args: Args::TWO_MORE,
                syntax: concat!(
                    $p,
                    "_cache_path PATH [levels=LEVELS] [use_temp_path=on|off] keys_zone=NAME:SIZE \
                     [inactive=TIME] [max_size=SIZE] [min_free=SIZE] [manager_files=NUMBER] \
                     [manager_sleep=TIME] [manager_threshold=TIME] [loader_files=NUMBER] \
                     [loader_sleep=TIME] [loader_threshold=TIME] [disk=PATH[:WEIGHT] …]"
                ),
                default: "",
                doc: "A directory for responses that are kept, in nginx's format, with a zone that knows \
                      of them: 64 bytes for each. Responses that no request has asked for within \
                      `inactive` (10 minutes) are removed, and so are those that were asked for longest \
                      ago when all have more than `max_size`, or less than `min_free` is left on the disk. \
                      Files are written below the `temp_path` of the location first, or with \
                      `use_temp_path=off` beside their place. Further directories, each on a disk of its \
                      own with threads of its own, are named by `disk`; objects are shared out to all of \
                      them by their weights (1).",
                example: concat!(
                    "\n",
                    $p,
                    "_cache_path /var/cache/clearway levels=1:2 keys_zone=one:10m max_size=1g inactive=1h\n\
                     \x20   use_temp_path=off;"
                ),
                see: &[concat!($p, "_cache"), concat!($p, "_temp_path")],
                handler: |s, d| cache_path::read(s, d, &FAMILY),
            },
            row! {
                $p, $example, "cache_key", TAKE1, "TEXT", -, "$host$request_uri",
                "The key of a response in the cache: requests with the same key get the same response. \
                 Without it: the server that is asked, and the URI that it is asked for.",
                ["cache", "cache_methods"],
                |s, d| readers::read_value(s, d, |load| &mut $at(load).cache.key)
            },
            row! {
                $p, $example, "cache_bypass", ONE_MORE, "TEXT …", -, "$cookie_nocache $arg_nocache",
                "When a response is not taken from the cache: one of the texts is neither empty nor `0`.",
                ["cache", "no_cache"],
                |s, d| cache::read_values(s, d, |load| &mut $at(load).cache.bypass)
            },
            row! {
                $p, $example, "no_cache", ONE_MORE, "TEXT …", -, "$http_pragma $http_authorization",
                "When a response is not kept: one of the texts is neither empty nor `0`.",
                ["cache", "cache_bypass"],
                |s, d| cache::read_values(s, d, |load| &mut $at(load).cache.no_cache)
            },
            row! {
                $p, $example, "cache_valid", ONE_MORE, "[STATUS … | any] TIME", -, "200 302 10m",
                "How long responses with a status may be used that do not say it themselves \
                 (`X-Accel-Expires`, `Cache-Control`, `Expires`); without a status those with 200, 301 and \
                 302. The first time that fits rules.",
                ["cache", "ignore_headers"],
                |s, d| cache::read_valid(d, $at(s.conf))
            },
            row! {
                $p, $example, "cache_min_uses", TAKE1, "NUMBER", "1", "2",
                "After how many requests a response is kept.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.min_uses, |d| d.number(0))
            },
            row! {
                $p, $example, "cache_max_range_offset", TAKE1, "SIZE", -, "1m",
                "A request for a part that begins at this byte or behind it is passed on as it is, and \
                 its response not kept, unless it is there already.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.max_range_offset, |d| d.offset(0).map(Some))
            },
            row! {
                $p, $example, "cache_use_stale", ONE_MORE,
                "error | timeout | invalid_header | updating | http_500 | http_502 | http_503 | http_504 \
                 | http_403 | http_404 | http_429 | off …",
                "off", "error timeout updating",
                "When a response is sent that may not be used any longer: because no server answers, or \
                 none as it should, or because another request fetches the new one (`updating`).",
                ["cache", "cache_background_update", "next_upstream"],
                |s, d| read_words(s, d, Failures::words_of($p), |load| &mut $at(load).cache.use_stale)
            },
            row! {
                $p, $example, "cache_methods", ONE_MORE, "GET | HEAD | POST …", "GET HEAD", "GET HEAD POST",
                "Requests with which methods are answered from the cache, and their responses kept; `GET` \
                 and `HEAD` always.",
                ["cache", "cache_key"],
                |s, d| read_mask(s, d, |load| &mut $at(load).cache.methods)
            },
            row! {
                $p, $example, "cache_lock", FLAG, "on | off", "off", "on",
                "Whether one request at a time fetches a response that is not there. The others send what \
                 comes as it comes, or once all of it is there, where its length is not announced. For \
                 two seconds after a response that may not be kept nobody waits for the next one.",
                ["cache_lock_timeout", "cache_lock_age"],
                |s, d| set(d, &mut $at(s.conf).cache.lock, |d| d.flag(0))
            },
            row! {
                $p, $example, "cache_lock_timeout", TAKE1, "TIME", "5s", "2s",
                "For how long others wait for the head of a response; then they ask themselves, and what \
                 they get is not kept.",
                ["cache_lock", "cache_lock_age"],
                |s, d| set(d, &mut $at(s.conf).cache.lock_timeout_ms, msec)
            },
            row! {
                $p, $example, "cache_lock_age", TAKE1, "TIME", "5s", "10s",
                "How long the one that fetches a response may take until another one does, too.",
                ["cache_lock", "cache_lock_timeout"],
                |s, d| set(d, &mut $at(s.conf).cache.lock_age_ms, msec)
            },
            row! {
                $p, $example, "cache_revalidate", FLAG, "on | off", "off", "on",
                "Whether servers are asked if a response that may not be used any longer has changed \
                 (`If-Modified-Since`, `If-None-Match`).",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.revalidate, |d| d.flag(0))
            },
            row! {
                $p, $example, "cache_background_update", FLAG, "on | off", "off", "on",
                "Whether a response is fetched anew while the old one is sent; `cache_use_stale` has to \
                 allow that (`updating`), or the response itself.",
                ["cache_use_stale", "cache_lock"],
                |s, d| set(d, &mut $at(s.conf).cache.background_update, |d| d.flag(0))
            },
        ])
    };
}

/// `…_socket_rcvbuf`
macro_rules! socket_rcvbuf {
    ($p:literal, $at:ident, $example:literal) => {
        row! {
            $p, $example, "socket_rcvbuf", TAKE1, "SIZE", -, "64k",
            "The kernel's buffer for what a server sends; as the system has it, where this is not said.",
            ["socket_sndbuf", "buffer_size"],
            |s, d| set(d, &mut $at(s.conf).receive_buffer_bytes, |d| d.size(0))
        }
    };
}

/// `…_socket_sndbuf`
macro_rules! socket_sndbuf {
    ($p:literal, $at:ident, $example:literal) => {
        row! {
            $p, $example, "socket_sndbuf", TAKE1, "SIZE", -, "64k",
            "The kernel's buffer for what is sent to a server; as the system has it, where this is not said.",
            ["socket_rcvbuf", "send_timeout"],
            |s, d| set(d, &mut $at(s.conf).send_buffer_bytes, |d| d.size(0))
        }
    };
}

/// `…_send_lowat`
macro_rules! send_lowat {
    ($p:literal, $at:ident, $example:literal) => {
        row! {
            $p, $example, "send_lowat", TAKE1, "SIZE", "0", "0",
            "Checked for form: Linux has nothing for it.",
            ["send_timeout"],
            |s, d| set(d, &mut $at(s.conf).send_lowat, |d| d.size(0))
        }
    };
}

/// `…_next_upstream`: the words that a family has, as they are written, and those that they stand for.
macro_rules! next_upstream {
    ($p:literal, $at:ident, $example:literal, $syntax:literal, $words:expr, $doc:literal) => {
        row! {
            $p, $example, "next_upstream", ONE_MORE, $syntax, "error timeout", "error timeout",
            $doc,
            ["next_upstream_tries", "next_upstream_timeout", "connect_timeout"],
            |s, d| read_words(s, d, $words, |load| &mut $at(load).next_upstream)
        }
    };
    ($p:literal, $at:ident, $example:literal, $syntax:literal, $words:expr) => {
        next_upstream!(
            $p,
            $at,
            $example,
            $syntax,
            $words,
            "The cases in which another server is asked, as long as nothing was sent to the client: a \
             connection that breaks or cannot be made, a timeout, a broken response, a status. `POST`, \
             `LOCK` and `PATCH` are asked once, unless `non_idempotent` is said or nothing was sent."
        )
    };
}

/// The directive `…_next_upstream` of FastCGI, SCGI and uwsgi.
macro_rules! next_upstream_of_applications {
    ($p:literal, $at:ident, $example:literal) => {
        next_upstream!(
            $p,
            $at,
            $example,
            "error | timeout | invalid_header | http_500 | http_503 | http_403 | http_404 | http_429 \
             | non_idempotent | off …",
            Failures::OF_APPLICATIONS
        )
    };
}

/// The directive `memcached_next_upstream`.
macro_rules! next_upstream_of_memcached {
    ($p:literal, $at:ident, $example:literal) => {
        next_upstream!(
            $p,
            $at,
            $example,
            "error | timeout | invalid_response | not_found | off …",
            Failures::OF_MEMCACHED
        )
    };
}

/// `…_param`
macro_rules! param {
    ($p:literal, $example:literal, $key:expr) => {
        row! {
            $p, $example, "param", TAKE23, "NAME VALUE [if_not_empty]", -, "REQUEST_URI $request_uri",
            "A parameter that is sent; a level with one inherits none. `HTTP_…` replaces header lines.",
            ["pass", "pass_request_headers"],
            |s, d| readers::read_param(s, d, |load| &mut load.location($key).params)
        }
    };
}
