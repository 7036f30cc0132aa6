//! HTTP/2 for clients: what configurations say of it, as nginx's ngx_http_v2_module has it, and `$http2`. The
//! connection is `serve`'s, the frames are `clearway_h2`'s. Boot and reload.

use clearway_base::log::Level;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{
    HTTP2_LOCATION, HTTP2_MAIN, HTTP2_SERVER, Load, Module, Presence, VariableKind, VariableSpec, context,
    set,
};

/// The module.
pub static HTTP2: Module = Module {
    name: "http2",
    directives: DIRECTIVES,
    variables: VARIABLES,
    finish: Some(|load| {
        load.note_preface(&HTTP2_SERVER, |conf| *conf.is_enabled);
        Ok(())
    }),
    ..Module::EMPTY
};

/// As nginx keeps it of a frame that is incomplete, bytes.
const RECEIVE_MIN_BYTES: u64 = 16;
/// The largest window (RFC 9113 §6.9.1), bytes.
const WINDOW_MAX_BYTES: u64 = (1 << 31) - 1;
/// The longest payload of a frame, bytes.
const CHUNK_MAX_BYTES: u64 = (1 << 24) - 1;
/// The least size of a pool in nginx, bytes.
const POOL_MIN_BYTES: u64 = 112;
/// A pool's size is a multiple of it, bytes.
const POOL_ALIGNMENT_BYTES: u64 = 16;

const HTTP_AND_SERVER: Contexts = context::HTTP.or(context::SERVER);

/// The example that most of them share.
const EXAMPLE: &str = "
            server {
                listen 443 ssl;
                http2 on;
                http2_max_concurrent_streams 64;
                http2_body_preread_size 128k;
                ssl_certificate     example.com.pem;
                ssl_certificate_key example.com.key;
            }";

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "http2",
        contexts: HTTP_AND_SERVER,
        args: Args::FLAG,
        syntax: "http2 on | off",
        default: "http2 off;",
        doc: "Whether clients may speak HTTP/2: those with TLS agree on it in the handshake (ALPN), others \
              may begin with its preface where the default server of the address has it on.",
        example: EXAMPLE,
        see: &["http2_max_concurrent_streams", "http2_body_preread_size", "http2_chunk_size", "listen"],
        handler: |scope, d| set(d, &mut scope.conf.server(&HTTP2_SERVER).is_enabled, |d| d.flag(0)),
    },
    Spec {
        name: "http2_recv_buffer_size",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "http2_recv_buffer_size SIZE",
        default: "http2_recv_buffer_size 256k;",
        doc: "How much is read of a connection at once, at most; 16k are, whatever it says, and connections \
              that bring little read no more.",
        example: "
            http2_recv_buffer_size 128k;",
        see: &["http2"],
        handler: |scope, d| {
            set(d, &mut scope.conf.main(&HTTP2_MAIN).receive_bytes, |d| {
                let bytes = d.size(0)?;
                if bytes <= RECEIVE_MIN_BYTES { Err(d.reject("value is too small")) } else { Ok(bytes) }
            })
        },
    },
    Spec {
        name: "http2_pool_size",
        contexts: HTTP_AND_SERVER,
        args: Args::TAKE1,
        syntax: "http2_pool_size SIZE",
        default: "http2_pool_size 4k;",
        doc: "The size of the pool of a connection.",
        example: "",
        see: &["http2"],
        handler: |scope, d| set(d, &mut scope.conf.server(&HTTP2_SERVER).pool_bytes, pool_bytes),
    },
    Spec {
        name: "http2_max_concurrent_streams",
        contexts: HTTP_AND_SERVER,
        args: Args::TAKE1,
        syntax: "http2_max_concurrent_streams NUMBER",
        default: "http2_max_concurrent_streams 128;",
        doc: "How many requests of a connection are answered at once; more are refused, and clients send \
              them again. One that the client has cancelled counts until its handlers have ended.",
        example: EXAMPLE,
        see: &["http2", "keepalive_requests", "limit_conn"],
        handler: |scope, d| set(d, &mut scope.conf.server(&HTTP2_SERVER).streams, |d| d.number(0)),
    },
    Spec {
        name: "http2_body_preread_size",
        contexts: HTTP_AND_SERVER,
        args: Args::TAKE1,
        syntax: "http2_body_preread_size SIZE",
        default: "http2_body_preread_size 64k;",
        doc: "How much a client may send of the body of a request before something reads it.",
        example: EXAMPLE,
        see: &["http2", "client_max_body_size", "client_body_buffer_size"],
        handler: |scope, d| {
            set(d, &mut scope.conf.server(&HTTP2_SERVER).window_bytes, |d| match d.size(0)? {
                bytes if bytes > WINDOW_MAX_BYTES => {
                    let message = format!("the maximum body preread buffer size is {WINDOW_MAX_BYTES}");
                    Err(d.error(message))
                }
                bytes => Ok(bytes),
            })
        },
    },
    Spec {
        name: "http2_streams_index_size",
        contexts: HTTP_AND_SERVER,
        args: Args::TAKE1,
        syntax: "http2_streams_index_size NUMBER",
        default: "http2_streams_index_size 32;",
        doc: "The size of the index of streams.",
        example: "",
        see: &["http2"],
        handler: |scope, d| {
            set(d, &mut scope.conf.server(&HTTP2_SERVER).index_size, |d| {
                let size = d.number(0)?;
                if size.is_power_of_two() { Ok(size) } else { Err(d.reject("must be a power of two")) }
            })
        },
    },
    Spec {
        name: "http2_chunk_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "http2_chunk_size SIZE",
        default: "http2_chunk_size 8k;",
        doc: "The longest frame that bodies of responses are cut into: smaller ones let the responses of a \
              connection take turns more often, and cost more.",
        example: "
            location /large/ {
                http2_chunk_size 16k;
            }",
        see: &["http2"],
        handler: |scope, d| {
            set(d, &mut scope.conf.location(&HTTP2_LOCATION).chunk_bytes, |d| match d.size(0)? {
                0 => Err(d.error("the http2 chunk size cannot be zero")),
                bytes => Ok(bytes.min(CHUNK_MAX_BYTES)),
            })
        },
    },
    obsolete("http2_max_concurrent_pushes", HTTP_AND_SERVER, Args::TAKE1, ignored),
    obsolete("http2_max_requests", HTTP_AND_SERVER, Args::TAKE1, |scope, d| {
        replaced(scope, d, "keepalive_requests")
    }),
    obsolete("http2_max_field_size", HTTP_AND_SERVER, Args::TAKE1, |scope, d| {
        replaced(scope, d, "large_client_header_buffers")
    }),
    obsolete("http2_max_header_size", HTTP_AND_SERVER, Args::TAKE1, |scope, d| {
        replaced(scope, d, "large_client_header_buffers")
    }),
    obsolete("http2_recv_timeout", HTTP_AND_SERVER, Args::TAKE1, |scope, d| {
        replaced(scope, d, "client_header_timeout")
    }),
    obsolete("http2_idle_timeout", HTTP_AND_SERVER, Args::TAKE1, |scope, d| {
        replaced(scope, d, "keepalive_timeout")
    }),
    obsolete("http2_push_preload", context::ALL, Args::FLAG, ignored),
    obsolete("http2_push", context::ALL, Args::TAKE1, ignored),
];

type Handler = fn(&mut Scope<'_, Load>, &Directive) -> Result<(), Error>;

/// One that old configurations have, and that does nothing but warn.
const fn obsolete(name: &'static str, contexts: Contexts, args: Args, handler: Handler) -> Spec<Load> {
    Spec {
        name,
        contexts,
        args,
        syntax: "(obsolete)",
        default: "",
        doc: "It warns, as in nginx.",
        example: "",
        see: &["http2"],
        handler,
    }
}

fn ignored(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let name = String::from_utf8_lossy(&directive.name);
    let message = format!("the \"{name}\" directive is obsolete, ignored");
    scope.say(directive.error(message).with_level(Level::Warn));
    Ok(())
}

fn replaced(scope: &mut Scope<'_, Load>, directive: &Directive, other: &str) -> Result<(), Error> {
    let name = String::from_utf8_lossy(&directive.name);
    let message = format!("the \"{name}\" directive is obsolete, use the \"{other}\" directive instead");
    scope.say(directive.error(message).with_level(Level::Warn));
    Ok(())
}

fn pool_bytes(directive: &Directive) -> Result<u64, Error> {
    match directive.size(0)? {
        bytes if bytes < POOL_MIN_BYTES => {
            Err(directive.error(format!("the pool size must be no less than {POOL_MIN_BYTES}")))
        }
        bytes if !bytes.is_multiple_of(POOL_ALIGNMENT_BYTES) => {
            Err(directive.error(format!("the pool size must be a multiple of {POOL_ALIGNMENT_BYTES}")))
        }
        bytes => Ok(bytes),
    }
}

static VARIABLES: &[VariableSpec] = &[VariableSpec {
    name: "http2",
    kind: VariableKind::Exact,
    doc: "`h2` for a request over HTTP/2 with TLS, `h2c` without, else empty.",
    eval: |view, _, out| {
        let request = view.request;
        let name: &[u8] = match request.is_http2() {
            true if request.tls().is_some() => b"h2",
            true => b"h2c",
            false => b"",
        };
        out.extend_from_slice(name);
        Presence::Found
    },
}];
