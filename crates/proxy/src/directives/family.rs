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
/// its `PassConf` at the level that is read.
macro_rules! connection_directives {
    ($p:literal, $at:ident, $example:literal, [$($own:expr),* $(,)?]) => {
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
                "What the head of a response may have.",
                ["buffers", "busy_buffers_size"],
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

/// The same with those of families whose requests and responses have bodies.
macro_rules! pass_directives {
    ($p:literal, $at:ident, $example:literal, [$($own:expr),* $(,)?]) => {
        connection_directives!($p, $at, $example, [
            $($own,)*
            row! {
                $p, $example, "socket_rcvbuf", TAKE1, "SIZE", -, "64k",
                "The kernel's buffer for what a server sends; as the system has it, where this is not \
                 said.",
                ["socket_sndbuf", "buffers"],
                |s, d| set(d, &mut $at(s.conf).receive_buffer_bytes, |d| d.size(0))
            },
            row! {
                $p, $example, "socket_sndbuf", TAKE1, "SIZE", -, "64k",
                "The kernel's buffer for what is sent to a server; as the system has it, where this is \
                 not said.",
                ["socket_rcvbuf", "send_timeout"],
                |s, d| set(d, &mut $at(s.conf).send_buffer_bytes, |d| d.size(0))
            },
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
                "How much of a response may wait in a file for its client; 0: there is none. What does not \
                 fit waits at its server.",
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
                |s, d| readers::read_store(s, d, |load| &mut $at(load).store)
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
                $p, $example, "cache", TAKE1, "off", "off", "off",
                "Whether responses are cached. No zone can be named yet.",
                ["store", "no_cache"],
                |s, d| cache::read_zone(d, $at(s.conf))
            },
            row! {
                $p, $example, "cache_key", TAKE1, "TEXT", -, "$host$request_uri",
                "What a response is kept under. Checked for form: there is no cache.",
                ["cache"],
                |s, d| cache::read_key(s, d, |load| &mut $at(load).cache.key)
            },
            row! {
                $p, $example, "cache_bypass", ONE_MORE, "TEXT …", -, "$http_pragma",
                "When a response is not taken from the cache. Checked for form: there is no cache.",
                ["cache"],
                cache::check_values
            },
            row! {
                $p, $example, "no_cache", ONE_MORE, "TEXT …", -, "$http_pragma",
                "When a response is not kept. Checked for form: there is no cache.",
                ["cache"],
                cache::check_values
            },
            row! {
                $p, $example, "cache_valid", ONE_MORE, "[STATUS …] TIME", -, "200 302 10m",
                "How long responses are kept. Checked for form: there is no cache.",
                ["cache"],
                |_, d| cache::check_valid(d)
            },
            row! {
                $p, $example, "cache_min_uses", TAKE1, "NUMBER", -, "2",
                "After how many requests a response is kept. Checked for form: there is no cache.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.numbers[0], |d| d.number(0).map(drop))
            },
            row! {
                $p, $example, "cache_max_range_offset", TAKE1, "SIZE", -, "1m",
                "From where on parts are asked for at the server. Checked for form: there is no cache.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.numbers[1], |d| d.offset(0).map(drop))
            },
            row! {
                $p, $example, "cache_use_stale", ONE_MORE,
                "error | timeout | … | updating | off",
                -, "error timeout",
                "When a response that is too old is sent. Checked for form: there is no cache.",
                ["cache"],
                |s, d| read_mask(s, d, |load| &mut $at(load).cache.use_stale)
            },
            row! {
                $p, $example, "cache_methods", ONE_MORE, "GET | HEAD | POST …", -, "GET HEAD",
                "Which requests are answered from the cache. Checked for form: there is no cache.",
                ["cache"],
                |s, d| read_mask(s, d, |load| &mut $at(load).cache.methods)
            },
            row! {
                $p, $example, "cache_lock", FLAG, "on | off", -, "on",
                "Whether one request at a time fetches a response. Checked for form: there is no cache.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.flags[0], |d| d.flag(0).map(drop))
            },
            row! {
                $p, $example, "cache_revalidate", FLAG, "on | off", -, "on",
                "Whether servers are asked if a response has changed. Checked for form: there is no cache.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.flags[1], |d| d.flag(0).map(drop))
            },
            row! {
                $p, $example, "cache_background_update", FLAG, "on | off", -, "on",
                "Whether responses are renewed while an old one is sent. Checked for form: there is no \
                 cache.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.flags[2], |d| d.flag(0).map(drop))
            },
            row! {
                $p, $example, "cache_lock_timeout", TAKE1, "TIME", -, "5s",
                "How long others wait for it. Checked for form: there is no cache.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.numbers[2], |d| d.msec(0).map(drop))
            },
            row! {
                $p, $example, "cache_lock_age", TAKE1, "TIME", -, "5s",
                "When another request fetches it. Checked for form: there is no cache.",
                ["cache"],
                |s, d| set(d, &mut $at(s.conf).cache.numbers[3], |d| d.msec(0).map(drop))
            },
        ])
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

/// `…_next_upstream`: the words that a family has, as they are written and what they mean.
macro_rules! next_upstream {
    ($p:literal, $at:ident, $example:literal, $syntax:literal, $words:expr, $doc:literal) => {
        row! {
            $p, $example, "next_upstream", ONE_MORE, $syntax, "error timeout", "error timeout",
            $doc,
            ["next_upstream_tries", "next_upstream_timeout", "connect_timeout"],
            |s, d| read_words(s, d, $words, |load| &mut $at(load).next_upstream)
        }
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
