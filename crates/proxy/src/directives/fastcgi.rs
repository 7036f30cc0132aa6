//! The directives of `fastcgi_pass`: parameters, how the path is parted into a script and what stands behind
//! it, and what becomes of errors that an application writes.

use std::sync::Arc;

use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::regex::{Case, Regex};
use clearway_http::{
    Cost, Load, Module, Phase, PhaseHandler, Presence, VariableKind, VariableSpec, View, context,
    file_access, msec, set,
};

use crate::directives::{cache, cache_path, readers};
use crate::engine;
use crate::settings::gateway::{FASTCGI, FASTCGI_CACHES, FASTCGI_PASS, HIDDEN_WITH_STATUS, Params, split};
use crate::settings::masks::{Failures, read_mask, read_words};
use crate::settings::pass::PassConf;

/// The module.
pub static FASTCGI_MODULE: Module = Module {
    name: "fastcgi",
    directives: DIRECTIVES,
    confs: &[&FASTCGI, &FASTCGI_PASS, &FASTCGI_CACHES],
    variables: VARIABLES,
    phases: &[PhaseHandler {
        phase: Phase::Pass,
        cost: Cost::Cheap,
        enabled: |enabling| enabling.confs.of(&FASTCGI).target.get().is_some(),
        handler: engine::handle_fastcgi,
    }],
    finish: Some(finish),
    ..Module::EMPTY
};

/// As what its caches are declared.
static FAMILY: cache::Family =
    cache::Family { name: "fastcgi", pass: &FASTCGI_PASS, caches: &FASTCGI_CACHES };

static DIRECTIVES: &[Spec<Load>] = pass_directives!(
    "fastcgi",
    pass,
    "fastcgi_pass 127.0.0.1:9000;",
    [
        Spec {
            name: "fastcgi_pass",
            contexts: context::LOCATION.or(context::LOCATION_IF),
            args: Args::TAKE1,
            syntax: "fastcgi_pass ADDRESS",
            default: "",
            doc: "Passes requests to a FastCGI server: `ADDRESS:PORT`, `unix:PATH`, or the name of an \
                  `upstream`. It may have variables in it.",
            example: "
            location ~ \\.php$ {
                fastcgi_pass unix:/run/php/php-fpm.sock;
                fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
                fastcgi_param REQUEST_METHOD $request_method;
            }",
            see: &["fastcgi_param", "fastcgi_index", "fastcgi_split_path_info", "fastcgi_keep_conn"],
            handler: read_pass,
        },
        Spec {
            name: "fastcgi_index",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "fastcgi_index NAME",
            default: "",
            doc: "The name of a file that `$fastcgi_script_name` gets behind a path which ends in a slash.",
            example: "
            location / {
                fastcgi_pass 127.0.0.1:9000;
                fastcgi_index index.php;
                fastcgi_param SCRIPT_FILENAME /srv/www$fastcgi_script_name;
            }",
            see: &["fastcgi_pass", "fastcgi_split_path_info"],
            handler: |s, d| set(d, &mut s.conf.location(&FASTCGI).index, |d| Ok(d.args[0].clone())),
        },
        Spec {
            name: "fastcgi_split_path_info",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "fastcgi_split_path_info PATTERN",
            default: "",
            doc: "An expression with two groups: the first one becomes `$fastcgi_script_name`, the second \
                  one `$fastcgi_path_info`.",
            example: "
            location ~ ^(.+\\.php)(.*)$ {
                fastcgi_pass 127.0.0.1:9000;
                fastcgi_split_path_info ^(.+\\.php)(.*)$;
                fastcgi_param SCRIPT_FILENAME /srv/www$fastcgi_script_name;
                fastcgi_param PATH_INFO $fastcgi_path_info;
            }",
            see: &["fastcgi_param", "fastcgi_index"],
            handler: read_split,
        },
        param!("fastcgi", "fastcgi_pass 127.0.0.1:9000;", &FASTCGI),
        Spec {
            name: "fastcgi_catch_stderr",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "fastcgi_catch_stderr TEXT",
            default: "",
            doc: "A text that makes a response none where the application writes it to its errors before the \
                  head of the response: another server is asked, or the client gets 502.",
            example: "
            location / {
                fastcgi_pass 127.0.0.1:9000;
                fastcgi_catch_stderr \"PHP Fatal error\";
            }",
            see: &["fastcgi_next_upstream"],
            handler: |s, d| readers::read_name(d, &mut s.conf.location(&FASTCGI).catch_stderr),
        },
        Spec {
            name: "fastcgi_keep_conn",
            contexts: context::ALL,
            args: Args::FLAG,
            syntax: "fastcgi_keep_conn on | off",
            default: "fastcgi_keep_conn off;",
            doc: "Whether a server is told to leave the connection open behind its response, for further \
                  requests (`keepalive`).",
            example: "
            location / {
                fastcgi_pass 127.0.0.1:9000;
                fastcgi_keep_conn on;
            }",
            see: &["fastcgi_pass", "keepalive"],
            handler: |s, d| set(d, &mut s.conf.location(&FASTCGI).keep_conn, |d| d.flag(0)),
        },
        send_lowat!("fastcgi", pass, "fastcgi_pass 127.0.0.1:9000;"),
        next_upstream_of_applications!("fastcgi", pass, "fastcgi_pass 127.0.0.1:9000;"),
    ]
);

static VARIABLES: &[VariableSpec] = &[
    VariableSpec {
        name: "fastcgi_script_name",
        kind: VariableKind::Exact,
        doc: "The path of the request, or what `fastcgi_split_path_info` makes a script of it; behind a \
              slash at its end stands `fastcgi_index`.",
        eval: |view, _, out| put_script(view, out),
    },
    VariableSpec {
        name: "fastcgi_path_info",
        kind: VariableKind::Exact,
        doc: "The part of the path behind the script's name (`fastcgi_split_path_info`).",
        eval: |view, _, out| {
            Presence::put(split(view, view.request.conf(&FASTCGI)).map(|parts| parts.info), out)
        },
    },
];

fn put_script(view: &View<'_, '_>, out: &mut Vec<u8>) -> Presence {
    let conf = view.request.conf(&FASTCGI);
    let Some(parts) = split(view, conf) else { return Presence::NotFound };
    out.extend_from_slice(parts.script);
    if parts.script.ends_with(b"/") {
        out.extend_from_slice(&conf.index);
    }
    Presence::Found
}

/// The directory of responses where no `fastcgi_temp_path` names another one: that of Debian.
const TEMP_DEFAULT: &str = "/var/lib/nginx/fastcgi";

fn pass(load: &mut Load) -> &mut PassConf {
    load.location(&FASTCGI_PASS)
}

fn read_pass(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.location(&FASTCGI).target.get().is_some() {
        return Err(directive.reject("is duplicate"));
    }
    scope.conf.redirect_to_slash();
    let server = readers::read_server(scope, directive, 0)?;
    scope.conf.location(&FASTCGI).target.set(server);
    Ok(())
}

fn read_split(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let pattern = &directive.args[0];
    let regex =
        Regex::compile(pattern, Case::Sensitive).map_err(|error| directive.error(error.to_string()))?;
    if regex.groups() != 2 {
        return Err(directive.error(message(&[&"pattern \"", pattern, &"\" must have 2 captures"])));
    }
    scope.conf.location(&FASTCGI).split.set(Some(Arc::new(regex)));
    Ok(())
}

/// Completes each level.
fn finish(load: &mut Load) -> Result<(), Error> {
    load.all_locations(&FASTCGI_PASS).try_for_each(|pass| pass.complete("fastcgi", HIDDEN_WITH_STATUS))?;
    let host = readers::host_param(load)?;
    for conf in load.all_locations(&FASTCGI) {
        *conf.sent = Arc::new(Params::new(&conf.params, &host));
    }
    readers::complete_temp_paths(load, &FASTCGI_PASS, TEMP_DEFAULT)?;
    cache::warn_without_key(load, &FAMILY);
    cache::complete(load, &FAMILY)
}
