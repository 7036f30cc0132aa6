//! The engine's own directives about the head of responses: what the server calls itself, how it writes
//! a `Location`, whether files have tags, and how bodies of unknown length are framed. Executed at boot or
//! reload.

use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_h1::ChunkedEncoding;
use clearway_site::{ETags, RedirectHost, RedirectPort, RedirectUrl, ServerTokens, context, is_name, set};

use crate::tables::{Load, Module};

/// The engine's own part of the tables, as far as heads go.
pub(crate) static HEAD: Module = Module { name: "head", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "server_product",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "server_product NAME",
        default: "server_product clearway;",
        doc: "The server's name in `Server` and on its own pages, for tools that look for `nginx` there: \
              that name comes with the version of nginx whose behaviour this is. Names other than these \
              two stand as they are. Clearway's own.",
        example: "
            server_product example;
            server_tokens off;",
        see: &["server_tokens", "add_header"],
        handler: server_product,
    },
    Spec {
        name: "server_tokens",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "server_tokens on | off | build",
        default: "server_tokens on;",
        doc: "Whether the version is told with the name in `Server` and on the server's own pages.",
        example: "
            server_product example;
            server_tokens off;",
        see: &["server_product", "add_header"],
        handler: |scope, directive| {
            const WORDS: [(&str, ServerTokens); 3] =
                [("off", ServerTokens::Off), ("on", ServerTokens::On), ("build", ServerTokens::On)];
            let tokens = &mut scope.conf.core_location().server_tokens;
            set(directive, tokens, |directive| directive.choice(0, &WORDS))
        },
    },
    Spec {
        name: "absolute_redirect",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "absolute_redirect on | off",
        default: "absolute_redirect on;",
        doc: "Whether a `Location` that is a path of this server is sent with scheme and host before it.",
        example: EXAMPLE_OF_REDIRECTS,
        see: &["server_name_in_redirect", "port_in_redirect", "return", "rewrite", "server_name"],
        handler: |scope, directive| {
            let choice = [RedirectUrl::Absolute, RedirectUrl::AsGiven];
            set(directive, &mut scope.conf.core_location().redirect_url, |directive| {
                either(directive, choice)
            })
        },
    },
    Spec {
        name: "server_name_in_redirect",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "server_name_in_redirect on | off",
        default: "server_name_in_redirect off;",
        doc: "Whether that host is the first `server_name`, and not the one that the client asked for.",
        example: EXAMPLE_OF_REDIRECTS,
        see: &["absolute_redirect", "port_in_redirect", "return", "rewrite", "server_name"],
        handler: |scope, directive| {
            let choice = [RedirectHost::ServerName, RedirectHost::Requested];
            set(directive, &mut scope.conf.core_location().redirect_host, |directive| {
                either(directive, choice)
            })
        },
    },
    Spec {
        name: "port_in_redirect",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "port_in_redirect on | off",
        default: "port_in_redirect on;",
        doc: "Whether a port other than 80 is sent with that host.",
        example: EXAMPLE_OF_REDIRECTS,
        see: &["absolute_redirect", "server_name_in_redirect", "return", "rewrite", "server_name"],
        handler: |scope, directive| {
            let choice = [RedirectPort::Shown, RedirectPort::Hidden];
            set(directive, &mut scope.conf.core_location().redirect_port, |directive| {
                either(directive, choice)
            })
        },
    },
    Spec {
        name: "etag",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "etag on | off",
        default: "etag on;",
        doc: "Whether files are sent with an `ETag`, made of their date and size.",
        example: "
            location /feeds/ {
                etag off;
                if_modified_since before;
            }",
        see: &["if_modified_since", "expires", "add_header"],
        handler: |scope, directive| {
            let choice = [ETags::On, ETags::Off];
            set(directive, &mut scope.conf.core_location().etags, |directive| either(directive, choice))
        },
    },
    Spec {
        name: "chunked_transfer_encoding",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "chunked_transfer_encoding on | off",
        default: "chunked_transfer_encoding on;",
        doc: "Whether a body of unknown length is sent in chunks to clients that understand them; otherwise \
              the connection ends with it.",
        example: "
            location /old-clients/ {
                chunked_transfer_encoding off;
            }",
        see: &["keepalive_timeout"],
        handler: |scope, directive| {
            let choice = [ChunkedEncoding::On, ChunkedEncoding::Off];
            let encoding = &mut scope.conf.core_location().chunked_encoding;
            set(directive, encoding, |directive| either(directive, choice))
        },
    },
];

/// The example of `absolute_redirect`, `server_name_in_redirect` and `port_in_redirect`.
const EXAMPLE_OF_REDIRECTS: &str = "
    server {
        listen 8080;
        server_name www.example.com;

        absolute_redirect on;
        # Redirects name www.example.com whatever the client asked for, and no port.
        server_name_in_redirect on;
        port_in_redirect off;
    }";

/// The first for `on`, the second for `off`.
fn either<T>(directive: &Directive, [on, off]: [T; 2]) -> Result<T, Error> {
    directive.flag(0).map(|flag| if flag { on } else { off })
}

fn server_product(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    set(directive, &mut scope.conf.product, |directive| {
        if is_name(&directive.args[0]) { directive.value(0) } else { Err(directive.invalid_value(0)) }
    })
}
