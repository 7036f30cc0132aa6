//! The directives of `uwsgi_pass`.

use std::sync::Arc;

use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Cost, Load, Module, Phase, PhaseHandler, context, file_access, msec, set};

use crate::directives::{cache, cache_path, readers};
use crate::engine;
use crate::settings::gateway::{
    HIDDEN, Params, ServerSaid, UWSGI, UWSGI_CACHES, UWSGI_PASS, UwsgiScheme, UwsgiServer,
};
use crate::settings::masks::{Failures, read_mask, read_words};
use crate::settings::pass::PassConf;

/// The module.
pub static UWSGI_MODULE: Module = Module {
    name: "uwsgi",
    directives: DIRECTIVES,
    confs: &[&UWSGI, &UWSGI_PASS, &UWSGI_CACHES],
    phases: &[PhaseHandler {
        phase: Phase::Pass,
        cost: Cost::Cheap,
        enabled: |enabling| enabling.confs.of(&UWSGI).target.get().is_some(),
        handler: engine::handle_uwsgi,
    }],
    finish: Some(finish),
    ..Module::EMPTY
};

/// As what its caches are declared.
static FAMILY: cache::Family = cache::Family { name: "uwsgi", pass: &UWSGI_PASS, caches: &UWSGI_CACHES };

static DIRECTIVES: &[Spec<Load>] = pass_directives!(
    "uwsgi",
    pass,
    "uwsgi_pass 127.0.0.1:9000;",
    [
        Spec {
            name: "uwsgi_pass",
            contexts: context::LOCATION.or(context::LOCATION_IF),
            args: Args::TAKE1,
            syntax: "uwsgi_pass ADDRESS",
            default: "",
            doc: "Passes requests to a uwsgi server: `ADDRESS:PORT`, `unix:PATH`, or the name of an \
                  `upstream`, with `uwsgi://` before it or not; with `suwsgi://` over TLS. It may have \
                  variables in it.",
            example: "
            location / {
                uwsgi_pass 127.0.0.1:9000;
                uwsgi_param REQUEST_METHOD $request_method;
                uwsgi_param REQUEST_URI $request_uri;
            }",
            see: &["uwsgi_param", "uwsgi_next_upstream", "uwsgi_ssl_verify"],
            handler: read_pass,
        },
        Spec {
            name: "uwsgi_modifier1",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "uwsgi_modifier1 NUMBER",
            default: "uwsgi_modifier1 0;",
            doc: "The first modifier of packets, 0 to 255: what kind of request it is.",
            example: "
            location / {
                uwsgi_pass 127.0.0.1:9000;
                uwsgi_modifier1 9;
            }",
            see: &["uwsgi_modifier2", "uwsgi_pass"],
            handler: |s, d| read_modifier(s, d, 0),
        },
        Spec {
            name: "uwsgi_modifier2",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "uwsgi_modifier2 NUMBER",
            default: "uwsgi_modifier2 0;",
            doc: "The second modifier of packets, 0 to 255.",
            example: "
            location / {
                uwsgi_pass 127.0.0.1:9000;
                uwsgi_modifier2 1;
            }",
            see: &["uwsgi_modifier1"],
            handler: |s, d| read_modifier(s, d, 1),
        },
        Spec {
            name: "uwsgi_string",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "uwsgi_string TEXT",
            default: "",
            doc: "A text that packets have behind the parameters, as it is.",
            example: "
            location / {
                uwsgi_pass 127.0.0.1:9000;
                uwsgi_string text;
            }",
            see: &["uwsgi_modifier1", "uwsgi_param"],
            handler: |s, d| set(d, &mut s.conf.location(&UWSGI).string, |d| Ok(d.args[0].clone())),
        },
        param!("uwsgi", "uwsgi_pass 127.0.0.1:9000;", &UWSGI),
        next_upstream_of_applications!("uwsgi", pass, "uwsgi_pass 127.0.0.1:9000;"),
    ]
);

/// The directory of responses where no `uwsgi_temp_path` names another one: that of Debian.
const TEMP_DEFAULT: &str = "/var/lib/nginx/uwsgi";

fn pass(load: &mut Load) -> &mut PassConf {
    load.location(&UWSGI_PASS)
}

fn read_modifier(scope: &mut Scope<'_, Load>, directive: &Directive, which: usize) -> Result<(), Error> {
    let modifier = &mut scope.conf.location(&UWSGI).modifiers[which];
    set(directive, modifier, |directive| directive.number_within(0, 0, Some(255)))
}

fn read_pass(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.location(&UWSGI).target.get().is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let address = &directive.args[0];
    let (scheme, scheme_len) = UwsgiScheme::of(address);
    let said = readers::read_server(scope, directive, scheme_len)?;
    let is_fixed = matches!(said, ServerSaid::Fixed(_));
    if is_fixed && scheme == UwsgiScheme::Tls && !cfg!(feature = "tls") {
        return Err(directive.error("suwsgi protocol requires SSL support"));
    }
    if is_fixed {
        scope.conf.redirect_to_slash();
    }
    let has_tls = scheme == UwsgiScheme::Tls || !is_fixed;
    if has_tls {
        readers::use_tls(pass(scope.conf));
    }
    let tls_name = (is_fixed && has_tls).then(|| address.slice(scheme_len..));
    scope.conf.location(&UWSGI).target.set(UwsgiServer { said, tls_name });
    Ok(())
}

/// Completes each level.
fn finish(load: &mut Load) -> Result<(), Error> {
    load.all_locations(&UWSGI_PASS).try_for_each(|pass| pass.complete("uwsgi", HIDDEN))?;
    let host = readers::host_param(load)?;
    for conf in load.all_locations(&UWSGI) {
        *conf.sent = Arc::new(Params::new(&conf.params, &host));
    }
    readers::complete_temp_paths(load, &UWSGI_PASS, TEMP_DEFAULT)?;
    cache::warn_without_key(load, &FAMILY);
    cache::complete(load, &FAMILY)
}
