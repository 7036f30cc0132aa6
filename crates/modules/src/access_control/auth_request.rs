//! `auth_request`: whether a client may is for a subrequest to say, by its status. A handler of the access
//! phase, which waits for it.

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Computed, ConfKey, Cost, Exchange, Finished, HeaderName, Level, Load, Module, Phase, PhaseHandler,
    Setting, Step, Subrequest, Target, Text, Value, View, context, settings,
};
use std::sync::Arc;

/// The module.
pub static AUTH_REQUEST: Module = Module {
    name: "auth_request",
    directives: DIRECTIVES,
    confs: &[&AUTH_REQUEST_CONF],
    phases: &[PhaseHandler {
        phase: Phase::Access,
        cost: Cost::Cheap,
        enabled: |enabling| !enabling.confs.of(&AUTH_REQUEST_CONF).uri.is_empty(),
        handler,
    }],
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "auth_request",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "auth_request URI | off",
        default: "auth_request off;",
        doc: "Asks the URI, with `GET`, whether a client may: it may if the status is 2xx, it may not if \
              that is 401 or 403, and anything else is an error.",
        example: EXAMPLE_OF_ASKED_FIRST,
        see: &["auth_request_set", "satisfy", "auth_basic", "internal"],
        handler: |scope, directive| {
            let uri = &mut scope.conf.location(&AUTH_REQUEST_CONF).uri;
            if uri.is_here() {
                return Err(directive.reject("is duplicate"));
            }
            let argument = &directive.args[0];
            uri.set(if argument == "off" { Bytes::new() } else { argument.clone() });
            Ok(())
        },
    },
    Spec {
        name: "auth_request_set",
        contexts: context::ALL,
        args: Args::TAKE2,
        syntax: "auth_request_set $VARIABLE VALUE",
        default: "",
        doc: "Gives a variable a value when the authorization request has ended. Variables in the value are \
              those of that request.",
        example: EXAMPLE_OF_ASKED_FIRST,
        see: &["auth_request", "satisfy", "auth_basic", "internal"],
        handler: read_set,
    },
];

/// The example of `auth_request` and `auth_request_set`.
const EXAMPLE_OF_ASKED_FIRST: &str = "
    location /private/ {
        auth_request /auth;
        auth_request_set $user_id $sent_http_x_user;
        add_header X-User $user_id;
    }

    location = /auth {
        internal;
        return 204;
    }";

static AUTH_REQUEST_CONF: ConfKey<AuthRequestConf> = ConfKey::new(Level::Location);

settings! {
    struct AuthRequestConf {
        /// Empty: off.
        uri: Setting<Bytes>,
        variables: Setting<Vec<Assignment>>,
    }
}

/// One `auth_request_set`.
#[derive(Clone)]
struct Assignment {
    target: Target,
    value: Value,
}

fn read_set(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let Some(name) = directive.args[0].strip_prefix(b"$") else {
        return Err(directive.error(message(&[&"invalid variable name \"", &directive.args[0], &"\""])));
    };
    let unset = || -> Arc<dyn Computed> { Arc::new(Unset) };
    let target = scope.conf.variable_to_set(name, unset).map_err(|message| directive.error(message))?;
    let value = scope.conf.variables.compile(&directive.args[1], &directive.pos)?;
    scope.conf.location(&AUTH_REQUEST_CONF).variables.here().push(Assignment { target, value });
    Ok(())
}

/// A variable that no authorization request has set yet: it has no value.
struct Unset;

impl Computed for Unset {
    fn eval<'c>(&'c self, _: &View<'_, 'c>) -> Option<Text<'c>> {
        None
    }
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::Wait(Box::pin(ask(exchange)))
}

async fn ask(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let conf = exchange.request.conf(&AUTH_REQUEST_CONF);
    let wanted = Subrequest::head_only(conf.uri.to_vec(), Vec::new());
    let finished = match exchange.subrequest(wanted).await {
        Ok(finished) => finished,
        Err(answer) => return Step::Respond(answer),
    };
    for Assignment { target, value } in &*conf.variables {
        let value = value.eval(&finished.view());
        match target {
            Target::Kept(variable) => exchange.request.set_variable(*variable, value),
            Target::Request(assign) => assign(exchange.request, value.into_owned()),
        }
    }
    match finished.status() {
        200..300 => Step::Allowed,
        401 => {
            take_challenges(&mut exchange, &finished);
            Step::status(401)
        }
        403 => Step::status(403),
        status => {
            let message = format_args!("auth request unexpected status: {status}");
            exchange.request.log(LogLevel::Error, message);
            Step::status(500)
        }
    }
}

/// What asks the client for a password is for it to see.
fn take_challenges<'c>(exchange: &mut Exchange<'_, 'c>, finished: &Finished<'c>) {
    const CHALLENGE: HeaderName<'_> = HeaderName::new(b"WWW-Authenticate");
    for value in finished.head().headers.named(CHALLENGE) {
        exchange.output.head().headers.add(CHALLENGE.text(), value);
    }
}
