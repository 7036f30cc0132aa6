//! Access control: `satisfy` and `auth_delay`, which combine the results of the access phase's handlers, and
//! `limit_except`, a location within a location for all methods but some. The directives are executed at boot
//! or reload; the phase runs in the request's task.

use clearway_base::log::Level as LogLevel;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_message::{HeaderName, Method};
use clearway_site::{ConfKey, Level, LimitExcept, Part, Setting, context, method_bit, msec, set, settings};

use crate::phases::Step;
use crate::phases::engine::Active;
use crate::request::Request;
use crate::request::answer::Answer;
use crate::tables::{Load, Module};

/// The engine's own part of the tables, as far as access goes.
pub(crate) static ACCESS: Module =
    Module { name: "core access", directives: DIRECTIVES, confs: &[&ACCESS_CONF], ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "satisfy",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "satisfy all | any",
        default: "satisfy all;",
        doc: "Whether a client must pass all of what guards a location (`allow` and `deny`, `auth_basic` and \
              the like), or one of them.",
        example: r#"
            location /intranet/ {
                satisfy any;

                allow 192.0.2.0/24;
                deny all;

                auth_basic "Intranet";
                auth_basic_user_file conf/htpasswd;
            }"#,
        see: &["allow", "deny", "auth_basic", "auth_request"],
        handler: |scope, directive| {
            const WORDS: [(&str, Satisfy); 2] = [("all", Satisfy::All), ("any", Satisfy::Any)];
            let setting = &mut scope.conf.location(&ACCESS_CONF).satisfy;
            set(directive, setting, |directive| directive.choice(0, &WORDS))
        },
    },
    Spec {
        name: "auth_delay",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "auth_delay TIME",
        default: "auth_delay 0s;",
        doc: "How long a client waits for being told that it is not authorized (401), so that a client \
              which tries passwords, or measures how long a wrong one takes, learns less.",
        example: r#"
            location /admin/ {
                auth_basic "Administration";
                auth_basic_user_file conf/htpasswd;
                # A client that guesses passwords waits for each answer.
                auth_delay 1s;
            }"#,
        see: &["auth_basic", "auth_request"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&ACCESS_CONF).auth_delay_ms, msec)
        },
    },
    Spec {
        name: "limit_except",
        contexts: context::LOCATION,
        args: Args::BLOCK.or(Args::ONE_MORE),
        syntax: "limit_except METHOD … { … }",
        default: "",
        doc: "Applies the block's directives to requests with other methods than these; `GET` includes \
              `HEAD`. In the block stand `allow`, `deny`, `auth_basic` and the like.",
        example: "
            location /articles/ {
                limit_except GET {
                    allow 192.0.2.0/24;
                    deny all;
                }
            }",
        see: &["allow", "auth_basic", "dav_methods"],
        handler: limit_except,
    },
];

static ACCESS_CONF: ConfKey<AccessConf> = ConfKey::new(Level::Location);

settings! {
    struct AccessConf {
        satisfy: Setting<Satisfy> = Satisfy::All,
        auth_delay_ms: Setting<u64> = 0,
    }
}

/// The rule for the results of the handlers of the access phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Satisfy {
    /// None may object.
    All,
    /// One handler that allows is enough.
    Any,
}

impl Request<'_> {
    /// `satisfy`.
    pub fn satisfy(&self) -> Satisfy {
        *self.conf(&ACCESS_CONF).satisfy
    }
}

fn limit_except(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.core_location().limit_except.is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let mut free = 0;
    for name in &directive.args {
        free |= match Method::find(&name.to_ascii_uppercase()) {
            Method::Other | Method::Trace | Method::Connect => {
                return Err(directive.error(message(&[&"invalid method \"", name, &"\""])));
            }
            Method::Get => method_bit(Method::Get) | method_bit(Method::Head),
            method => method_bit(method),
        };
    }
    let location = Load::read_limit_except(scope, directive)?;
    *scope.conf.core_location().limit_except = Some(LimitExcept::new(free, location));
    Ok(())
}

impl<'c> Active<'c> {
    /// Asks the handlers of the access phase whether the client may.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    pub(crate) fn run_access(&mut self) -> impl Future<Output = Step<'static>> + Send {
        async move {
            let location = self.request.location();
            let satisfy = self.request.satisfy();
            let mut refused = None;
            for index in location.phases.part(Part::Access) {
                match (self.run_entry(location.phases.entry(index)).await, satisfy) {
                    (Step::Declined, _) | (Step::Allowed, Satisfy::All) => {}
                    (Step::Allowed, Satisfy::Any) => {
                        for name in CHALLENGES {
                            self.output.head.headers.remove(name);
                        }
                        return Step::Declined;
                    }
                    (Step::Respond(Answer::Status(code @ (401 | 403 | 407))), Satisfy::Any) => {
                        // To be asked for a password is the more useful answer.
                        if refused.is_none_or(|code| code == 403) {
                            refused = Some(code);
                        }
                    }
                    (Step::Respond(Answer::Status(code @ (401 | 407))), Satisfy::All) => {
                        return Box::pin(self.refuse_unauthorized(code)).await;
                    }
                    (flow, _) => return flow,
                }
            }
            match refused {
                None => Step::Declined,
                Some(403) => {
                    self.request.log(LogLevel::Error, format_args!("access forbidden by rule"));
                    Step::status(403)
                }
                Some(code) => Box::pin(self.refuse_unauthorized(code)).await,
            }
        }
    }

    /// Answers so after `auth_delay`. To be boxed, as nobody else should have to have room for it.
    async fn refuse_unauthorized(&mut self, code: u16) -> Step<'static> {
        let delay_ms = *self.request.conf(&ACCESS_CONF).auth_delay_ms;
        if delay_ms > 0 {
            self.request.log(LogLevel::Info, format_args!("delaying unauthorized request"));
            if let Err(answer) = self.exchange().pause(delay_ms).await {
                return Step::Respond(answer);
            }
        }
        Step::status(code)
    }
}

/// The headers that ask for a password.
const CHALLENGES: [HeaderName<'_>; 2] =
    [HeaderName::new(b"WWW-Authenticate"), HeaderName::new(b"Proxy-Authenticate")];
