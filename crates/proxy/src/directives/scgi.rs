//! The directives of `scgi_pass`.

use std::sync::Arc;

use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Cost, Load, Module, Phase, PhaseHandler, context, file_access, msec, set};

use crate::directives::{cache, cache_path, readers};
use crate::engine;
use crate::settings::gateway::{HIDDEN_WITH_STATUS, Params, SCGI, SCGI_CACHES, SCGI_PASS, ServerSaid};
use crate::settings::masks::{Failures, read_mask, read_words};
use crate::settings::pass::PassConf;

/// The module.
pub static SCGI_MODULE: Module = Module {
    name: "scgi",
    directives: DIRECTIVES,
    confs: &[&SCGI, &SCGI_PASS, &SCGI_CACHES],
    phases: &[PhaseHandler {
        phase: Phase::Pass,
        cost: Cost::Cheap,
        enabled: |enabling| enabling.confs.of(&SCGI).target.get().is_some(),
        handler: engine::handle_scgi,
    }],
    finish: Some(finish),
    ..Module::EMPTY
};

/// As what its caches are declared.
static FAMILY: cache::Family = cache::Family { name: "scgi", pass: &SCGI_PASS, caches: &SCGI_CACHES };

static DIRECTIVES: &[Spec<Load>] = pass_directives!(
    "scgi",
    pass,
    "scgi_pass 127.0.0.1:9000;",
    [
        Spec {
            name: "scgi_pass",
            contexts: context::LOCATION.or(context::LOCATION_IF),
            args: Args::TAKE1,
            syntax: "scgi_pass ADDRESS",
            default: "",
            doc: "Passes requests to a SCGI server: `ADDRESS:PORT`, `unix:PATH`, or the name of an \
                  `upstream`. It may have variables in it.",
            example: "
            location / {
                scgi_pass 127.0.0.1:9000;
                scgi_param REQUEST_METHOD $request_method;
                scgi_param REQUEST_URI $request_uri;
            }",
            see: &["scgi_param", "scgi_next_upstream"],
            handler: read_pass,
        },
        param!("scgi", "scgi_pass 127.0.0.1:9000;", &SCGI),
        next_upstream_of_applications!("scgi", pass, "scgi_pass 127.0.0.1:9000;"),
    ]
);

/// The directory of responses where no `scgi_temp_path` names another one: that of Debian.
const TEMP_DEFAULT: &str = "/var/lib/nginx/scgi";

fn pass(load: &mut Load) -> &mut PassConf {
    load.location(&SCGI_PASS)
}

fn read_pass(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.location(&SCGI).target.get().is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let server = readers::read_server(scope, directive, 0)?;
    if matches!(server, ServerSaid::Fixed(_)) {
        scope.conf.redirect_to_slash();
    }
    scope.conf.location(&SCGI).target.set(server);
    Ok(())
}

/// Completes each level.
fn finish(load: &mut Load) -> Result<(), Error> {
    load.all_locations(&SCGI_PASS).try_for_each(|pass| pass.complete("scgi", HIDDEN_WITH_STATUS))?;
    let host = readers::host_param(load)?;
    for conf in load.all_locations(&SCGI) {
        *conf.sent = Arc::new(Params::new(&conf.params, &host));
    }
    readers::complete_temp_paths(load, &SCGI_PASS, TEMP_DEFAULT)?;
    cache::warn_without_key(load, &FAMILY);
    cache::complete(load, &FAMILY)
}
