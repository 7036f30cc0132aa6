//! The engine's own directives about what is taken of a request's head, how pages for errors are found and
//! made up for browsers of the past, and sizes of nginx's memory that mean nothing here. Executed at boot or
//! reload.

use std::borrow::Cow;

use bytes::Bytes;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};

use crate::request::Request;
use crate::tables::{Load, Module};
use clearway_h1::{InvalidHeaders, Underscores};
use clearway_message::{Known, status, uri::Escape, uri::MergeSlashes, uri::escape_uri};
use clearway_site::{ConfKey, ErrorPage, HASHES, HashConf, Level, Setting, context, set, settings};

/// The engine's own part of the tables, as far as requests go.
pub(crate) static REQUESTS: Module =
    Module { name: "requests", directives: DIRECTIVES, confs: &[&HASHES, &POOLS, &PAGES], ..Module::EMPTY };

const HTTP_SERVER: Contexts = context::HTTP.or(context::SERVER);

/// The least size of a pool, bytes, and what it is a multiple of, as in nginx on machines of 64 bits.
const POOL_MIN_BYTES: u64 = 112;
const POOL_ALIGNMENT_BYTES: u64 = 16;

/// Size of nginx's pools for requests, bytes, so that it is not given twice.
static POOLS: ConfKey<Setting<u64>> = ConfKey::new(Level::Server);
pub(crate) static PAGES: ConfKey<PageConf> = ConfKey::new(Level::Location);

settings! {
    /// How pages for errors are found and made up.
    pub(crate) struct PageConf {
        pub(crate) error_pages: Setting<Vec<ErrorPage>>,
        recursive: Setting<bool> = false,
        msie_padding: Setting<bool> = true,
        msie_refresh: Setting<bool> = false,
        pub(crate) post_action: Setting<Option<Bytes>>,
    }
}

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "merge_slashes",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "merge_slashes on | off",
        default: "merge_slashes on;",
        doc: "Whether several slashes in a row in a path count as one. Of the default server of an address.",
        example: "
            merge_slashes off;",
        see: &["location", "rewrite"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_server().merge_slashes, |directive| {
                Ok(if directive.flag(0)? { MergeSlashes::On } else { MergeSlashes::Off })
            })
        },
    },
    Spec {
        name: "ignore_invalid_headers",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ignore_invalid_headers on | off",
        default: "ignore_invalid_headers on;",
        doc: "Whether header lines are skipped whose names have other bytes in them than letters, digits and \
              `-`. Of the default server of an address.",
        example: "
            ignore_invalid_headers on;
            underscores_in_headers on;",
        see: &["underscores_in_headers", "max_headers"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_server().invalid_headers, |directive| {
                Ok(if directive.flag(0)? { InvalidHeaders::Ignore } else { InvalidHeaders::Pass })
            })
        },
    },
    Spec {
        name: "underscores_in_headers",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "underscores_in_headers on | off",
        default: "underscores_in_headers off;",
        doc: "Whether `_` may be in the name of a header. Of the default server of an address.",
        example: "
            ignore_invalid_headers on;
            underscores_in_headers on;",
        see: &["ignore_invalid_headers", "max_headers"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_server().underscores, |directive| {
                Ok(if directive.flag(0)? { Underscores::Valid } else { Underscores::Invalid })
            })
        },
    },
    Spec {
        name: "max_headers",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "max_headers NUMBER",
        default: "max_headers 1000;",
        doc: "How many header lines a request may have; with more it is answered with 400. Of the default \
              server of an address.",
        example: "
            client_header_timeout 20s;
            client_header_buffer_size 2k;
            large_client_header_buffers 8 16k;
            max_headers 100;",
        see: &[
            "client_header_timeout",
            "client_header_buffer_size",
            "large_client_header_buffers",
            "client_body_timeout",
            "underscores_in_headers",
        ],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_server().max_headers, |directive| directive.number(0))
        },
    },
    Spec {
        name: "recursive_error_pages",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "recursive_error_pages on | off",
        default: "recursive_error_pages off;",
        doc: "Whether an error on the way to the page for an error may have a page of its own.",
        example: "
            server {
                recursive_error_pages on;
                error_page 404 /missing/page.html;
                error_page 403 /forbidden.html;
            }",
        see: &["error_page"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&PAGES).recursive, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "post_action",
        contexts: context::ALL.or(context::LOCATION_IF),
        args: Args::TAKE1,
        syntax: "post_action URI | @NAME",
        default: "",
        doc: "Has the request go on with another path, or in a named location, once its response was sent \
              or cannot be: such as to tell another server the outcome. The answer to that is dropped, but \
              its status is the one in the log, which is written as the location of that request says. The \
              next request of the connection waits until it has ended.",
        example: "
            location /download/ {
                post_action @done;
            }

            location @done {
                proxy_pass http://127.0.0.1:8080/done?bytes=$body_bytes_sent&end=$request_completion;
            }",
        see: &["mirror", "error_page", "internal"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&PAGES).post_action;
            set(directive, setting, |directive| Ok(Some(directive.args[0].clone())))
        },
    },
    Spec {
        name: "msie_padding",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "msie_padding on | off",
        default: "msie_padding on;",
        doc: "Whether the server's own pages for errors are made longer for Internet Explorer and Chrome, \
              which show their own ones in place of short ones.",
        example: "
            msie_padding off;
            msie_refresh off;",
        see: &["msie_refresh", "error_page"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&PAGES).msie_padding, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "msie_refresh",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "msie_refresh on | off",
        default: "msie_refresh off;",
        doc: "Whether Internet Explorer is sent a page that leads elsewhere in place of a redirect.",
        example: "
            msie_padding off;
            msie_refresh off;",
        see: &["msie_padding", "error_page"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&PAGES).msie_refresh, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "connection_pool_size",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "connection_pool_size SIZE",
        default: "connection_pool_size 512;",
        doc: "How much memory nginx takes at once for a connection.",
        example: "",
        see: &[],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.core_server().connection_pool_bytes, pool_size)
        },
    },
    Spec {
        name: "request_pool_size",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "request_pool_size SIZE",
        default: "request_pool_size 4k;",
        doc: "How much memory nginx takes at once for a request.",
        example: "",
        see: &[],
        handler: |scope, directive| set(directive, scope.conf.server(&POOLS), pool_size),
    },
    Spec {
        name: "server_names_hash_max_size",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "server_names_hash_max_size NUMBER",
        default: "server_names_hash_max_size 512;",
        doc: "How large nginx makes the tables of `server_name`.",
        example: "",
        see: &[],
        handler: |scope, directive| hash_size(scope, directive, |hashes| &mut hashes.names[0]),
    },
    Spec {
        name: "server_names_hash_bucket_size",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "server_names_hash_bucket_size NUMBER",
        default: "server_names_hash_bucket_size 64;",
        doc: "How much of nginx's tables of `server_name` one look-up reads.",
        example: "",
        see: &[],
        handler: |scope, directive| hash_size(scope, directive, |hashes| &mut hashes.names[1]),
    },
    Spec {
        name: "variables_hash_max_size",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "variables_hash_max_size NUMBER",
        default: "variables_hash_max_size 1024;",
        doc: "How large nginx makes the table of variables.",
        example: "",
        see: &[],
        handler: |scope, directive| hash_size(scope, directive, |hashes| &mut hashes.variables[0]),
    },
    Spec {
        name: "variables_hash_bucket_size",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "variables_hash_bucket_size NUMBER",
        default: "variables_hash_bucket_size 64;",
        doc: "How much of nginx's table of variables one look-up reads.",
        example: "",
        see: &[],
        handler: |scope, directive| hash_size(scope, directive, |hashes| &mut hashes.variables[1]),
    },
];

fn hash_size(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    setting: fn(&mut HashConf) -> &mut Setting<u64>,
) -> Result<(), Error> {
    set(directive, setting(scope.conf.main(&HASHES)), |directive| directive.number(0))
}

fn pool_size(directive: &Directive) -> Result<u64, Error> {
    let bytes = directive.size(0)?;
    if bytes < POOL_MIN_BYTES {
        return Err(directive.error(format!("the pool size must be no less than {POOL_MIN_BYTES}")));
    }
    if !bytes.is_multiple_of(POOL_ALIGNMENT_BYTES) {
        return Err(directive.error(format!("the pool size must be a multiple of {POOL_ALIGNMENT_BYTES}")));
    }
    Ok(bytes)
}

/// How the page for an error is to be found and made up.
impl<'c> Request<'c> {
    pub(crate) fn has_recursive_error_pages(&self) -> bool {
        *self.conf(&PAGES).recursive
    }

    /// The page for a status (`error_page`).
    pub(crate) fn error_page(&self, code: u16) -> Option<&'c ErrorPage> {
        self.location().conf(&PAGES).error_pages.iter().find(|page| page.code == code)
    }

    /// Whether there is one, so that an answer from elsewhere with this status is to give way to it
    /// (`proxy_intercept_errors`).
    pub fn has_error_page(&self, code: u16) -> bool {
        self.error_page(code).is_some()
    }

    /// Whether a page is made longer for the browser's sake.
    pub(crate) fn wants_padding(&self) -> bool {
        *self.conf(&PAGES).msie_padding
            && self.version().has_response_head()
            && self.header(Known::UserAgent).is_some_and(status::wants_padding)
    }

    /// Whether a redirect is to be a page.
    pub(crate) fn wants_refresh(&self) -> bool {
        *self.conf(&PAGES).msie_refresh && self.header(Known::UserAgent).is_some_and(status::is_msie)
    }
}

/// A page that leads a browser to a URL.
pub(crate) fn refresh_page(url: &[u8]) -> Vec<u8> {
    let url: Cow<'_, [u8]> = escape_uri(url, Escape::Refresh);
    let (start, end) =
        ("<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=", "\"></head><body></body></html>\r\n");
    [start.as_bytes(), &url, end.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leads_elsewhere_and_nowhere_else() {
        let page = String::from_utf8(refresh_page(b"/a b\"><script>'\x01~%20?x={1}&y")).unwrap();
        let url = page.split("URL=").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(url, "/a%20b%22%3E%3Cscript%3E%27%01%7E%20?x=%7B1}&y");
    }
}
