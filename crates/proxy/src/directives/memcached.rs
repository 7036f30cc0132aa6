//! The directives of `memcached_pass`.

use bytes::Bytes;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Cost, Load, Module, Phase, PhaseHandler, context, msec, set};

use crate::directives::readers::{self, compile};
use crate::engine;
use crate::settings::gateway::{KeyServer, MEMCACHED, MEMCACHED_PASS};
use crate::settings::masks::{Failures, read_words};
use crate::settings::pass::PassConf;
use crate::upstreams;

/// The module.
pub static MEMCACHED_MODULE: Module = Module {
    name: "memcached",
    directives: DIRECTIVES,
    confs: &[&MEMCACHED, &MEMCACHED_PASS],
    phases: &[PhaseHandler {
        phase: Phase::Pass,
        cost: Cost::Cheap,
        enabled: |enabling| enabling.confs.of(&MEMCACHED).target.get().is_some(),
        handler: engine::handle_memcached,
    }],
    finish: Some(finish),
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = connection_directives!(
    "memcached",
    pass,
    "set $memcached_key $uri; memcached_pass 127.0.0.1:11211;",
    "The largest head of a response; a larger one gets 502.",
    [
        Spec {
            name: "memcached_pass",
            contexts: context::LOCATION.or(context::LOCATION_IF),
            args: Args::TAKE1,
            syntax: "memcached_pass ADDRESS",
            default: "",
            doc: "Answers with what memcached has under the key that the variable `$memcached_key` says: \
                  `ADDRESS:PORT`, `unix:PATH`, or the name of an `upstream`. A key that is not there is \
                  answered with 404, a server that does not answer with 502 or 504.",
            example: "
            location / {
                set $memcached_key $uri?$args;
                memcached_pass 127.0.0.1:11211;
                error_page 404 502 504 = @fallback;
            }
            location @fallback {
                proxy_pass http://127.0.0.1:8080;
            }",
            see: &["memcached_gzip_flag", "memcached_next_upstream", "set", "error_page"],
            handler: read_pass,
        },
        Spec {
            name: "memcached_gzip_flag",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "memcached_gzip_flag FLAG",
            default: "",
            doc: "The flag of values that are compressed: they go to clients with `Content-Encoding: gzip`.",
            example: "
            location / {
                set $memcached_key $uri;
                memcached_pass 127.0.0.1:11211;
                memcached_gzip_flag 2;
                gunzip on;
            }",
            see: &["memcached_pass", "gunzip"],
            handler: |s, d| set(d, &mut s.conf.location(&MEMCACHED).gzip_flag, |d| d.number(0)),
        },
        next_upstream_of_memcached!(
            "memcached",
            pass,
            "set $memcached_key $uri; memcached_pass 127.0.0.1:11211;"
        ),
    ]
);

fn pass(load: &mut Load) -> &mut PassConf {
    load.location(&MEMCACHED_PASS)
}

fn read_pass(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.location(&MEMCACHED).target.get().is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let group = upstreams::reference_bare(scope.conf, directive, &directive.args[0])?;
    scope.conf.redirect_to_slash();
    let key = compile(scope, directive, &Bytes::from_static(b"$memcached_key"))?;
    scope.conf.location(&MEMCACHED).target.set(KeyServer { group, key });
    Ok(())
}

/// Completes levels without directives.
fn finish(load: &mut Load) -> Result<(), Error> {
    for pass in load.all_locations(&MEMCACHED_PASS) {
        pass.buffering.set(false);
        pass.intercept_errors.set(true);
        pass.force_ranges.set(true);
    }
    Ok(())
}
