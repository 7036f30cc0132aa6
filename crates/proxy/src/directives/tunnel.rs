//! The directives of `tunnel_pass`.

use bytes::Bytes;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Connect, Cost, Load, Module, Phase, PhaseHandler, context, msec, set};

use crate::directives::readers::{self, compile};
use crate::engine;
use crate::settings::gateway::{ServerSaid, TUNNEL, TUNNEL_PASS};
use crate::settings::masks::{Failures, read_words};
use crate::settings::pass::PassConf;
use crate::upstreams;

/// The module.
pub static TUNNEL_MODULE: Module = Module {
    name: "tunnel",
    directives: DIRECTIVES,
    confs: &[&TUNNEL, &TUNNEL_PASS],
    phases: &[PhaseHandler {
        phase: Phase::Pass,
        cost: Cost::Cheap,
        enabled: |enabling| enabling.confs.of(&TUNNEL).target.get().is_some(),
        handler: engine::handle_tunnel,
    }],
    finish: Some(finish),
    ..Module::EMPTY
};

/// Where a tunnel leads that nothing is said of.
static ASKED_FOR: Bytes = Bytes::from_static(b"$host:$request_port");

static DIRECTIVES: &[Spec<Load>] = connection_directives!(
    "tunnel",
    pass,
    "tunnel_pass;",
    "The buffer of each direction of a tunnel, which has one while something is in it; it is never \
     smaller than 16k.",
    [
        Spec {
            name: "tunnel_pass",
            contexts: context::SERVER.or(context::LOCATION).or(context::LOCATION_IF),
            args: Args::NOARGS.or(Args::TAKE1),
            syntax: "tunnel_pass [ADDRESS]",
            default: "",
            doc: "Answers `CONNECT` of HTTP/1.1 with a connection to a server, and carries bytes both ways \
                  until one side ends. The server is `ADDRESS:PORT`, `unix:PATH`, or the name of an \
                  `upstream`, which may have variables in it; without it the one that the client asks for \
                  (`$host:$request_port`): then say which clients may ask, and for which servers. Other \
                  methods are answered with 405.",
            example: "
            server {
                listen 127.0.0.1:3128;
                resolver 127.0.0.53;
                auth_basic proxy;
                auth_basic_user_file users;
                tunnel_pass;
            }",
            see: &["tunnel_connect_timeout", "tunnel_next_upstream", "auth_basic", "allow", "resolver"],
            handler: read_pass,
        },
        socket_rcvbuf!("tunnel", pass, "tunnel_pass;"),
        socket_sndbuf!("tunnel", pass, "tunnel_pass;"),
        send_lowat!("tunnel", pass, "tunnel_pass;"),
        next_upstream!(
            "tunnel",
            pass,
            "tunnel_pass;",
            "error | timeout | off …",
            Failures::OF_TUNNELS,
            "The cases in which a connection to another server is tried: one that cannot be made, or not \
             in time. Once a connection is there the client is told so, and no other server is tried."
        ),
    ]
);

fn pass(load: &mut Load) -> &mut PassConf {
    load.location(&TUNNEL_PASS)
}

fn read_pass(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.location(&TUNNEL).target.get().is_some() {
        return Err(directive.reject("is duplicate"));
    }
    *scope.conf.core_server().connect = Connect::Allowed;
    let address = directive.args.first().unwrap_or(&ASKED_FOR);
    let value = compile(scope, directive, address)?;
    let said = match value.as_literal() {
        None => ServerSaid::Evaluated(value),
        Some(_) => ServerSaid::Fixed(upstreams::reference_bare(scope.conf, directive, address)?),
    };
    scope.conf.location(&TUNNEL).target.set(said);
    Ok(())
}

/// Completes levels without directives.
fn finish(load: &mut Load) -> Result<(), Error> {
    load.all_locations(&TUNNEL_PASS).for_each(|pass| pass.buffering.set(false));
    Ok(())
}
