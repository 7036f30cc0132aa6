//! The directives of `memc_pass`.

use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_gateway::memc::Command;
use clearway_http::{Cost, Load, Module, Phase, PhaseHandler, context, msec, set};

use crate::directives::readers;
use crate::engine;
use crate::settings::gateway::{MEMC, MEMC_PASS, ServerSaid};
use crate::settings::masks::{Failures, read_words};
use crate::settings::pass::PassConf;

/// The module.
pub static MEMC_MODULE: Module = Module {
    name: "memc",
    directives: DIRECTIVES,
    confs: &[&MEMC, &MEMC_PASS],
    phases: &[PhaseHandler {
        phase: Phase::Pass,
        cost: Cost::Cheap,
        enabled: |enabling| enabling.confs.of(&MEMC).target.get().is_some(),
        handler: engine::handle_memc,
    }],
    finish: Some(finish),
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = connection_directives!(
    "memc",
    pass,
    "set $memc_key $uri; memc_pass 127.0.0.1:11211;",
    "The largest answer of memcached, without the value of `get`; a larger one gets 502.",
    [
        Spec {
            name: "memc_pass",
            contexts: context::LOCATION.or(context::LOCATION_IF),
            args: Args::TAKE1,
            syntax: "memc_pass ADDRESS",
            default: "",
            doc: "Has memcached do what variables say, and answers with what it says: `ADDRESS:PORT`, \
                  `unix:PATH`, or the name of an `upstream`; it may have variables in it. `$memc_cmd` is the \
                  command (`get`, `set`, `add`, `replace`, `append`, `prepend`, `delete`, `incr`, `decr`, \
                  `flush_all`, `stats`, `version`); without it `GET` is `get`, `POST` is `add`, `PUT` is \
                  `set` and `DELETE` is `delete`. `$memc_key` is the key; `$memc_value` the value, or the \
                  number by which another one is changed: without it the body of the request; \
                  `$memc_flags` and `$memc_exptime` (seconds) what is stored with it. Stored values are \
                  answered with 201, keys that are not there with 404, errors with 502.",
            example: "
            location / {
                set $memc_key $arg_key;
                set $memc_exptime 300;
                memc_pass 127.0.0.1:11211;
                memc_cmds_allowed get set;
            }",
            see: &["memc_cmds_allowed", "memc_next_upstream", "memcached_pass", "set"],
            handler: read_pass,
        },
        Spec {
            name: "memc_cmds_allowed",
            contexts: context::ALL,
            args: Args::ONE_MORE,
            syntax: "memc_cmds_allowed COMMAND …",
            default: "",
            doc: "The commands that `memc_pass` takes; others are answered with 403. Without it all are.",
            example: "
            location / {
                set $memc_key $uri;
                memc_pass 127.0.0.1:11211;
                memc_cmds_allowed get;
            }",
            see: &["memc_pass"],
            handler: read_commands,
        },
        next_upstream_of_memcached!("memc", pass, "set $memc_key $uri; memc_pass 127.0.0.1:11211;"),
    ]
);

fn pass(load: &mut Load) -> &mut PassConf {
    load.location(&MEMC_PASS)
}

fn read_pass(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.location(&MEMC).target.get().is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let server = readers::read_server(scope, directive, 0)?;
    if matches!(server, ServerSaid::Fixed(_)) {
        scope.conf.redirect_to_slash();
    }
    scope.conf.location(&MEMC).target.set(server);
    Ok(())
}

/// `memc_cmds_allowed`
fn read_commands(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    set(directive, &mut scope.conf.location(&MEMC).commands, |directive| {
        let commands = directive.args.iter().map(|name| {
            Command::named(name).ok_or_else(|| {
                directive.error(message(&[&"unknown memcached command \"", &printed(name), &"\""]))
            })
        });
        commands.collect()
    })
}

/// Completes levels without directives.
fn finish(load: &mut Load) -> Result<(), Error> {
    for pass in load.all_locations(&MEMC_PASS) {
        pass.buffering.set(false);
    }
    Ok(())
}
