//! What configurations say of TLS for all servers, whether one uses it or not. Nothing uses it here yet:
//! `listen … ssl` is refused, as by an nginx without the module, and so is everything that belongs to a
//! server with TLS. Checked for form at load.

use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{ConfKey, Level, Load, Module, Own, Setting, context, set, settings};

/// The module.
pub static SSL: Module = Module { name: "ssl", directives: DIRECTIVES, confs: &[&SSL_CONF], ..Module::EMPTY };

const HTTP_SERVER: Contexts = context::HTTP.or(context::SERVER);

/// Versions in the order of their age.
const PROTOCOLS: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

static SSL_CONF: ConfKey<SslConf> = ConfKey::new(Level::Server);

settings! {
    /// What was given, so that it is not given twice.
    struct SslConf {
        /// By their places in `PROTOCOLS`.
        protocols: Own<[bool; PROTOCOLS.len()]>,
        prefer_server_ciphers: Setting<bool>,
    }
}

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "ssl_protocols",
        contexts: HTTP_SERVER,
        args: Args::ONE_MORE,
        syntax: "ssl_protocols [SSLv2] [SSLv3] [TLSv1] [TLSv1.1] [TLSv1.2] [TLSv1.3]",
        default: "ssl_protocols TLSv1.2 TLSv1.3;",
        doc: "Which versions of TLS clients may use.",
        example: "",
        see: &[],
        handler: protocols,
    },
    Spec {
        name: "ssl_prefer_server_ciphers",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ssl_prefer_server_ciphers on | off",
        default: "ssl_prefer_server_ciphers off;",
        doc: "Whether the order of the server decides which cipher is used, and not that of the client.",
        example: "",
        see: &[],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.server(&SSL_CONF).prefer_server_ciphers, |d| d.flag(0))
        },
    },
];

fn protocols(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for argument in &directive.args {
        let place = PROTOCOLS.iter().position(|name| argument.eq_ignore_ascii_case(name.as_bytes()));
        let Some(at) = place else {
            return Err(directive.error(message(&[&"invalid value \"", &printed(argument), &"\""])));
        };
        let is_given = &mut scope.conf.server(&SSL_CONF).protocols[at];
        if std::mem::replace(is_given, true) {
            scope.warn(directive.error(message(&[&"duplicate value \"", &printed(argument), &"\""])));
        }
    }
    Ok(())
}
