//! The engine's own directives: servers, locations, listening, where files are, error pages, how long
//! connections live, sizes and timeouts of heads. Executed at boot or reload.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Verbatim, bytes_of};
use clearway_base::units;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_net::listen::parse_listen;
use clearway_site::{
    CORE_CONF, CORE_SERVER, ErrorPage, KeepaliveDisable, KeepaliveTimeout, ListenOptions, LocationAccess,
    LocationForm, MATCH_LIMIT, Overwrite, ROOT, Root, RootKind, context, match_limit, millis, msec,
    server_names::ServerName, set,
};

use crate::config::request_directives::PAGES;
use crate::group_editing::GROUP_EDITING;
use crate::metrics;
use crate::name_servers::NAME_SERVERS;
use crate::tables::{Load, Module};
use crate::variables::core_variables::VARIABLES;

/// The engine's own part of the tables.
pub(crate) static CORE: Module = Module {
    name: "core",
    directives: DIRECTIVES,
    confs: &[&CORE_CONF, &CORE_SERVER, &ROOT, &NAME_SERVERS, &GROUP_EDITING],
    variables: VARIABLES,
    metrics: metrics::ALL,
    ..Module::EMPTY
};

const HTTP_SERVER: Contexts = context::HTTP.or(context::SERVER);
const ALL_AND_IF: Contexts = context::ALL.or(context::LOCATION_IF);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "server",
        contexts: context::HTTP,
        args: Args::BLOCK.or(Args::NOARGS),
        syntax: "server { … }",
        default: "",
        doc: "A virtual server: what is served on its addresses (`listen`) for its names (`server_name`).",
        example: "
            server {
                listen 80;
                server_name example.com www.example.com;
                root /var/www/example;
            }

            server {
                listen 80 default_server;
                return 444;
            }",
        see: &["listen", "server_name", "location"],
        handler: Load::read_server,
    },
    Spec {
        name: "location",
        contexts: context::SERVER.or(context::LOCATION),
        args: Args::BLOCK.or(Args::TAKE12),
        syntax: "location [ = | ~ | ~* | ^~ ] URI { … }\nlocation @NAME { … }",
        default: "",
        doc: "Applies the block's directives to requests whose path fits. An exact name (`=`) wins; else \
              the longest prefix, unless it has no `^~` and an expression (`~`, or `~*` in any case) of \
              the same level matches, of which the first in the text counts. `@NAME` is reached by \
              redirects only.",
        example: r#"
            location = / {
                index start.html;
            }

            location /images/ {
                root /data;
            }

            location ~* \.(gif|jpe?g|png)$ {
                expires 30d;
            }

            location @missing {
                return 404 "not here\n";
            }"#,
        see: &["alias", "root", "try_files", "if", "internal"],
        handler: Load::read_location,
    },
    Spec {
        name: "listen",
        contexts: context::SERVER,
        args: Args::ONE_MORE,
        syntax: "listen ADDRESS[:PORT] | PORT | unix:PATH [default_server] [proxy_protocol] [bind] \
                 [backlog=NUMBER] [deferred] [reuseport] [multipath] [ipv6only=on|off] [fastopen=NUMBER] \
                 [rcvbuf=SIZE] [sndbuf=SIZE] [so_keepalive=on|off|[IDLE]:[INTERVAL]:[COUNT]]",
        default: "listen *:80 | *:8000;",
        doc: "An address that the server answers on. `default_server` makes it the one that answers for \
              names that no server of the address has; without it the first one does. `proxy_protocol` says \
              that connections begin with a header of the PROXY protocol. `reuseport` opens one socket per \
              loop, `multipath` takes clients that use several paths at once.",
        example: "
            server {
                listen 192.0.2.7:80 default_server backlog=1024;
                listen [::]:8080 ipv6only=on;
                listen unix:/run/clearway.sock proxy_protocol;
            }",
        see: &["server", "server_name", "reset_timedout_connection", "set_real_ip_from"],
        handler: listen,
    },
    Spec {
        name: "server_name",
        contexts: context::SERVER,
        args: Args::ONE_MORE,
        syntax: "server_name NAME …",
        default: "server_name \"\";",
        doc: "The names of the server: exact, with a wildcard at the front or the end (`*.example.com`, \
              `www.example.*`, `.example.com` for both), or expressions (`~^www\\d+\\.`), whose groups can \
              be used as variables.",
        example: r"
            server {
                server_name example.com *.example.com ~^(?<user>[a-z]+)\.users\.example\.org$;
                root /var/www/$user;
            }",
        see: &["listen", "server", "server_names_hash_max_size"],
        handler: server_name,
    },
    Spec {
        name: "internal",
        contexts: context::LOCATION,
        args: Args::NOARGS,
        syntax: "internal",
        default: "",
        doc: "The location is for redirects inside the server; clients get 404.",
        example: "
            error_page 404 /404.html;

            location = /404.html {
                internal;
                root /var/www/errors;
            }",
        see: &["error_page", "try_files", "location"],
        handler: |scope, directive| {
            let access = &mut *scope.conf.core_location().access;
            if *access == LocationAccess::Internal {
                return Err(directive.reject("is duplicate"));
            }
            *access = LocationAccess::Internal;
            Ok(())
        },
    },
    Spec {
        name: "root",
        contexts: ALL_AND_IF,
        args: Args::TAKE1,
        syntax: "root PATH",
        default: "root html;",
        doc: "The directory of files: the path of the request is appended. May have variables in it.",
        example: "
            location /images/ {
                # /images/top.gif is the file /data/images/top.gif
                root /data;
            }",
        see: &["alias", "index", "try_files"],
        handler: |scope, directive| root(scope, directive, "root"),
    },
    Spec {
        name: "alias",
        contexts: context::LOCATION,
        args: Args::TAKE1,
        syntax: "alias PATH",
        default: "",
        doc: "Replaces the location's prefix in the path of the file: with `location /i/ { alias \
              /data/images/; }`, `/i/top.gif` is answered with `/data/images/top.gif`. In a location with \
              an expression it is the whole path, and should use the expression's captures.",
        example: "
            location /i/ {
                # /i/top.gif is the file /data/images/top.gif
                alias /data/images/;
            }",
        see: &["root", "location"],
        handler: |scope, directive| root(scope, directive, "alias"),
    },
    Spec {
        name: "types",
        contexts: context::ALL,
        args: Args::BLOCK.or(Args::NOARGS),
        syntax: "types { TYPE EXTENSION …; … }",
        default: "types { text/html html; image/gif gif; image/jpeg jpg; }",
        doc: "The `Content-Type` of files by the extension of their names.",
        example: EXAMPLE_OF_TYPES,
        see: &["default_type", "charset_types", "include"],
        handler: types,
    },
    Spec {
        name: "default_type",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "default_type TYPE",
        default: "default_type text/plain;",
        doc: "The `Content-Type` of files whose extension `types` does not have.",
        example: EXAMPLE_OF_TYPES,
        see: &["types", "charset_types", "include"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_location().default_type, |d| d.value(0))
        },
    },
    Spec {
        name: "error_page",
        contexts: ALL_AND_IF,
        args: Args::TWO_MORE,
        syntax: "error_page CODE … [=[RESPONSE]] URI",
        default: "",
        doc: "Answers errors with another path, a named location or a redirect to a URL. `=RESPONSE` \
              replaces the status, `=` alone takes that of the page.",
        example: "
            error_page 404 /404.html;
            error_page 500 502 503 504 /50x.html;
            error_page 403 =404 /404.html;

            location / {
                error_page 404 = @fallback;
            }

            location @fallback {
                return 302 /;
            }",
        see: &["recursive_error_pages", "return", "internal"],
        handler: error_page,
    },
    Spec {
        name: "error_log",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "error_log FILE | stderr [LEVEL]",
        default: "error_log logs/error.log error;",
        doc: "Where messages about requests go, and from which level on: `debug`, `info`, `notice`, `warn`, \
              `error`, `crit`, `alert`, `emerg`.",
        example: "
            error_log logs/error.log warn;

            http {
                server {
                    error_log syslog:server=unix:/dev/log;
                }
            }",
        see: &["access_log", "log_not_found"],
        handler: |scope, directive| {
            let sink = (scope.conf.environment().open_error_log)(directive)?;
            scope.conf.core_location().error_log.here().push(sink);
            Ok(())
        },
    },
    Spec {
        name: "log_not_found",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "log_not_found on | off",
        default: "log_not_found on;",
        doc: "Whether files that are asked for and not there are logged as errors.",
        example: "
            location = /favicon.ico {
                log_not_found off;
                access_log off;
            }",
        see: &["error_log", "access_log"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_location().log_not_found, |d| d.flag(0))
        },
    },
    Spec {
        name: "log_subrequest",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "log_subrequest on | off",
        default: "log_subrequest off;",
        doc: "Whether subrequests are logged as well: written to access logs, and seen by `log_by_lua`.",
        example: "
            location / {
                ssi on;
                log_subrequest on;
            }",
        see: &["access_log", "ssi"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_location().log_subrequest, |d| d.flag(0))
        },
    },
    Spec {
        name: "keepalive_timeout",
        contexts: context::ALL,
        args: Args::TAKE12,
        syntax: "keepalive_timeout TIME [HEADER_TIME]",
        default: "keepalive_timeout 75s;",
        doc: "How long an idle connection waits for another request; 0 closes after each. The second one is \
              sent to the client in `Keep-Alive`.",
        example: EXAMPLE_OF_KEEPALIVE,
        see: &[
            "keepalive_requests",
            "keepalive_time",
            "keepalive_min_timeout",
            "keepalive_disable",
            "client_header_timeout",
        ],
        handler: keepalive_timeout,
    },
    Spec {
        name: "keepalive_min_timeout",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "keepalive_min_timeout TIME",
        default: "keepalive_min_timeout 0;",
        doc: "For how long after a request an idle connection is not closed although the server stops.",
        example: "
            keepalive_timeout 65s;
            keepalive_min_timeout 10s;",
        see: &["keepalive_timeout", "worker_shutdown_timeout"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_location().keepalive_min_timeout_ms, msec)
        },
    },
    Spec {
        name: "keepalive_requests",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "keepalive_requests NUMBER",
        default: "keepalive_requests 1000;",
        doc: "After how many requests a connection is closed.",
        example: EXAMPLE_OF_KEEPALIVE,
        see: &["keepalive_timeout", "keepalive_time"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_location().keepalive_requests, |d| d.number(0))
        },
    },
    Spec {
        name: "keepalive_time",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "keepalive_time TIME",
        default: "keepalive_time 1h;",
        doc: "After which time a connection is closed with the next response.",
        example: EXAMPLE_OF_KEEPALIVE,
        see: &["keepalive_timeout", "keepalive_requests"],
        handler: |scope, directive| set(directive, &mut scope.conf.core_location().keepalive_time_ms, msec),
    },
    Spec {
        name: "keepalive_disable",
        contexts: context::ALL,
        args: Args::TAKE12,
        syntax: "keepalive_disable none | BROWSER …",
        default: "keepalive_disable msie6;",
        doc: "Browsers that get one request per connection: `msie6` after POST, `safari` on macOS.",
        example: "
            keepalive_disable msie6 safari;",
        see: &["keepalive_timeout"],
        handler: keepalive_disable,
    },
    Spec {
        name: "client_header_timeout",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "client_header_timeout TIME",
        default: "client_header_timeout 60s;",
        doc: "How long a client may take for the head of a request before its connection is closed (408).",
        example: EXAMPLE_OF_REQUEST_HEADS,
        see: &[
            "client_header_buffer_size",
            "large_client_header_buffers",
            "max_headers",
            "client_body_timeout",
            "underscores_in_headers",
        ],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_server().client_header_timeout_ms, msec)
        },
    },
    Spec {
        name: "client_header_buffer_size",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "client_header_buffer_size SIZE",
        default: "client_header_buffer_size 1k;",
        doc: "How much of a head is read before the large buffers are used. Of the default server of an \
              address.",
        example: EXAMPLE_OF_REQUEST_HEADS,
        see: &[
            "client_header_timeout",
            "large_client_header_buffers",
            "max_headers",
            "client_body_timeout",
            "underscores_in_headers",
        ],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_server().client_header_buffer_bytes, |d| d.size(0))
        },
    },
    Spec {
        name: "large_client_header_buffers",
        contexts: HTTP_SERVER,
        args: Args::TAKE2,
        syntax: "large_client_header_buffers NUMBER SIZE",
        default: "large_client_header_buffers 4 8k;",
        doc: "How many large buffers a head may need and their size. A request line beyond one is answered \
              with 414, a header line with 400.",
        example: EXAMPLE_OF_REQUEST_HEADS,
        see: &[
            "client_header_timeout",
            "client_header_buffer_size",
            "max_headers",
            "client_body_timeout",
            "underscores_in_headers",
        ],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_server().large_client_header_buffers, |d| d.buffers(0))
        },
    },
    Spec {
        name: MATCH_LIMIT,
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "pcre_match_limit NUMBER",
        default: "pcre_match_limit 10000000;",
        doc: "How many steps of backtracking one match of an expression may take, at most ten million. A \
              match that would take more is given up: an alert in the error log, and 500. Clearway's own.",
        example: "
            pcre_match_limit 100000;",
        see: &["location", "rewrite"],
        handler: |_, directive| match_limit(directive).map(|_| ()),
    },
];

/// The example of `keepalive_timeout`, `keepalive_requests` and `keepalive_time`.
const EXAMPLE_OF_KEEPALIVE: &str = "
    keepalive_timeout 65s 60s;
    keepalive_requests 10000;
    keepalive_time 30m;";

/// The example of `types` and `default_type`.
const EXAMPLE_OF_TYPES: &str = "
    types {
        text/html       html htm;
        image/avif      avif;
        application/wasm wasm;
    }

    default_type application/octet-stream;";

/// The example of `client_header_timeout`, `client_header_buffer_size` and `large_client_header_buffers`.
const EXAMPLE_OF_REQUEST_HEADS: &str = "
    client_header_timeout 20s;
    client_header_buffer_size 2k;
    large_client_header_buffers 8 16k;
    max_headers 100;";

fn listen(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let argument = &directive.args[0];
    let addresses = parse_listen(argument, &*scope.conf.resolver())
        .map_err(|error| directive.error(bytes_of(&error.message(argument))))?;
    let options = ListenOptions::parse(directive, scope.conf.ssl(), |message| scope.say(message))?;
    // The path of a unix socket is in them.
    let said = |message: String| directive.error(bytes_of(&message));
    for address in addresses {
        if let Some(warning) = scope.conf.add_listen(address, options).map_err(said)? {
            scope.warn(said(warning));
        }
    }
    Ok(())
}

fn server_name(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for argument in &directive.args {
        let parsed = ServerName::parse(argument, &scope.conf.environment().hostname);
        let (mut name, warning) = parsed.map_err(|error| directive.error(error.to_string()))?;
        if let Some(warning) = warning {
            scope.warn(directive.error(bytes_of(&warning.message(argument))));
        }
        if let ServerName::Regex(regex) = &mut name {
            scope.conf.bind_names(regex).map_err(|message| directive.error(message))?;
        }
        scope.conf.add_server_name(argument);
    }
    Ok(())
}

fn root(scope: &mut Scope<'_, Load>, directive: &Directive, which: &str) -> Result<(), Error> {
    let (form, name_len) = (scope.conf.location_form(), scope.conf.location_name().len());
    let present = scope.conf.location(&ROOT);
    if present.is_here() {
        let other = if present.kind == RootKind::Root { "root" } else { "alias" };
        if other == which {
            return Err(directive.reject("is duplicate"));
        }
        return Err(directive.error(format!(
            "\"{which}\" directive is duplicate, \"{other}\" directive was specified earlier"
        )));
    }
    if which == "alias" && form == LocationForm::Named {
        return Err(directive.error("the \"alias\" directive cannot be used inside the named location"));
    }
    for variable in ["document_root", "realpath_root"] {
        let uses = |text: String| memchr::memmem::find(&directive.args[0], text.as_bytes()).is_some();
        if uses(format!("${variable}")) || uses(format!("${{{variable}}}")) {
            return Err(directive
                .error(format!("the ${variable} variable cannot be used in the \"{which}\" directive")));
        }
    }
    let kind = match (which, form) {
        ("root", _) => RootKind::Root,
        (_, LocationForm::Regex) => RootKind::AliasWhole,
        _ => RootKind::Alias(name_len),
    };
    let mut path = &directive.args[0][..];
    if kind == RootKind::Root {
        path = path.strip_suffix(b"/").unwrap_or(path);
    }
    let path = match path.first() {
        Some(b'$') => path.to_vec(),
        _ => scope.conf.full_name(path),
    };
    let path = scope.conf.variables.compile(&Bytes::from(path), &directive.pos)?;
    scope.conf.location(&ROOT).set(Root { kind, path });
    Ok(())
}

fn types(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let mut duplicates = Vec::new();
    let Some(block) = directive.block() else { return Ok(()) };
    let setting = &mut scope.conf.core_location().types;
    if !setting.is_here() {
        setting.set(Arc::new(clearway_site::mime::Types::empty()));
    }
    let types = Arc::make_mut(setting.here());
    let read = block.entries(&mut |line| {
        for extension in &line.args {
            if let Some(duplicate) = types.add(line.name.clone(), extension) {
                duplicates.push(line.error(bytes_of(&duplicate.message())));
            }
        }
        Ok(())
    });
    duplicates.into_iter().for_each(|warning| scope.warn(warning));
    read
}

fn error_page(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let (uri, rest) = directive.args.split_last().expect("the table asks for two arguments");
    let mut codes = rest;
    let mut overwrite = Overwrite::Keep;
    if let Some((last, before)) = rest.split_last()
        && let Some(code) = last.strip_prefix(b"=")
    {
        if before.is_empty() {
            return Err(directive.invalid_value(0));
        }
        codes = before;
        overwrite = match code {
            [] => Overwrite::FromPage,
            digits => match number(digits) {
                // As in nginx, where 0 stands for the page's own.
                Some(0) => Overwrite::FromPage,
                Some(code) => Overwrite::With(code),
                None => return Err(directive.invalid_value(rest.len() - 1)),
            },
        };
    }
    let uri = scope.conf.variables.compile(uri, &directive.pos)?;
    for (index, text) in codes.iter().enumerate() {
        let code = number(text).filter(|&code| code != 499).ok_or_else(|| directive.invalid_value(index))?;
        if !(300..=599).contains(&code) {
            let text = Verbatim(text);
            return Err(directive.error(bytes_of(&format!("value \"{text}\" must be between 300 and 599"))));
        }
        let overwrite = match (overwrite, code) {
            (Overwrite::Keep, 494..=497) => Overwrite::With(400),
            (overwrite, _) => overwrite,
        };
        scope.conf.location(&PAGES).error_pages.here().push(ErrorPage { code, overwrite, uri: uri.clone() });
    }
    Ok(())
}

fn number(digits: &[u8]) -> Option<u16> {
    units::parse_number(digits).map(|number| u16::try_from(number).unwrap_or(u16::MAX))
}

fn keepalive_timeout(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    set(directive, &mut scope.conf.core_location().keepalive_timeout, |directive| {
        let timeout_ms = directive.msec(0).map(millis)?;
        let header_s = match directive.args.len() {
            1 => 0,
            _ => directive.sec(1)?.as_secs(),
        };
        Ok(KeepaliveTimeout { timeout_ms, header_s })
    })
}

fn keepalive_disable(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    const WORDS: [(&str, KeepaliveDisable); 3] = [
        ("none", KeepaliveDisable::NONE),
        ("msie6", KeepaliveDisable::MSIE6),
        ("safari", KeepaliveDisable::SAFARI),
    ];
    set(directive, &mut scope.conf.core_location().keepalive_disable, |directive| {
        let first = directive.choice(0, &WORDS)?;
        match directive.args.len() {
            1 => Ok(first),
            _ => Ok(first.or(directive.choice(1, &WORDS)?)),
        }
    })
}
