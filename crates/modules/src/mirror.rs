//! `mirror`: asks other paths for the same, and does nothing with what they answer. A handler of the
//! precontent phase; the subrequests run in the background of the request.

use bytes::Bytes;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Asking, ConfKey, Cost, Exchange, Level, Load, Module, Phase, PhaseHandler, Setting, Step, Store,
    Subrequest, context, set, settings,
};

/// The module. Files are looked for by `try_files` before.
pub static MIRROR: Module = Module {
    name: "mirror",
    directives: DIRECTIVES,
    confs: &[&MIRROR_CONF],
    phases: &[PhaseHandler {
        phase: Phase::PreContent,
        cost: Cost::Cheap,
        enabled: |enabling| !enabling.confs.of(&MIRROR_CONF).uris.is_empty(),
        handler,
    }],
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "mirror",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "mirror URI | off",
        default: "mirror off;",
        doc: "Asks the URI in the background of each request, with its method, arguments and body; what it \
              answers is dropped. May be given several times. The next request of the connection waits until \
              that has ended.",
        example: EXAMPLE_OF_MIRRORED,
        see: &["mirror_request_body", "internal"],
        handler: read_mirror,
    },
    Spec {
        name: "mirror_request_body",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "mirror_request_body on | off",
        default: "mirror_request_body on;",
        doc: "Whether the body is read before anything else is done, so that the mirrored requests have it.",
        example: EXAMPLE_OF_MIRRORED,
        see: &["mirror", "internal"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&MIRROR_CONF).request_body, |directive| directive.flag(0))
        },
    },
];

/// The example of `mirror` and `mirror_request_body`.
const EXAMPLE_OF_MIRRORED: &str = "
    location / {
        mirror /mirror;
        mirror_request_body off;
    }

    location = /mirror {
        internal;
        return 204;
    }";

static MIRROR_CONF: ConfKey<MirrorConf> = ConfKey::new(Level::Location);

settings! {
    struct MirrorConf {
        uris: Setting<Vec<Bytes>>,
        request_body: Setting<bool> = true,
    }
}

fn read_mirror(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let uris = &mut scope.conf.location(&MIRROR_CONF).uris;
    let is_off = directive.args[0] == "off";
    if uris.is_here() && (is_off || uris.is_empty()) {
        return Err(directive.reject("is duplicate"));
    }
    let uris = uris.here();
    if !is_off {
        uris.push(directive.args[0].clone());
    }
    Ok(())
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    if !exchange.request.is_main() {
        return Step::Declined;
    }
    let has_body = exchange.body.is_announced() && !exchange.body.is_dropped();
    if has_body && *exchange.request.conf(&MIRROR_CONF).request_body {
        return Step::Wait(Box::pin(async move {
            match exchange.read_body(Store::AsConfigured).await {
                Ok(_) => start(&mut exchange),
                Err(answer) => Step::Respond(answer),
            }
        }));
    }
    start(&mut exchange)
}

fn start(exchange: &mut Exchange<'_, '_>) -> Step<'static> {
    for uri in &*exchange.request.conf(&MIRROR_CONF).uris {
        let wanted = Subrequest::head_only(uri.to_vec(), exchange.request.args().to_vec());
        let wanted = Subrequest { asking: Asking::LikeParent, ..wanted };
        if exchange.start_background(wanted).is_err() {
            return Step::status(500);
        }
    }
    Step::Declined
}
