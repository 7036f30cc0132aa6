//! The directives of TLS of sockets. Executed when a configuration is read.

use bytes::Bytes;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{Load, Module, Setting, context, set};
use clearway_tls::engine::Versions;
use clearway_tls::level::Version;
use clearway_tls::outgoing;

use crate::vm::tls_settings::{TLS_CONF, make_contexts};

const PLACES: Contexts = context::ALL;

/// The module.
pub static LUA_TLS: Module = Module {
    name: "lua_tls",
    directives: DIRECTIVES,
    confs: &[&TLS_CONF],
    finish: Some(|load| make_contexts(load).map_err(Error::unplaced)),
    ..Module::EMPTY
};

/// Directives with a word.
macro_rules! word {
    (
        $name:literal, $word:literal, $default:literal, $doc:literal, $example:literal, $see:expr,
        $field:ident
    ) => {
        Spec {
            name: $name,
            contexts: PLACES,
            args: Args::TAKE1,
            syntax: concat!($name, " ", $word),
            default: $default,
            doc: $doc,
            example: concat!("\n            ", $name, " ", $example, ";"),
            see: $see,
            handler: |scope, directive| read_word(directive, &mut scope.conf.location(&TLS_CONF).$field),
        }
    };
}

fn read_word(directive: &Directive, setting: &mut Setting<Bytes>) -> Result<(), Error> {
    set(directive, setting, |directive| Ok(directive.args[0].clone()))
}

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "lua_ssl_protocols",
        contexts: PLACES,
        args: Args::ONE_MORE,
        syntax: "lua_ssl_protocols [SSLv2] [SSLv3] [TLSv1] [TLSv1.1] [TLSv1.2] [TLSv1.3]",
        default: "lua_ssl_protocols TLSv1.2 TLSv1.3;",
        doc: "The versions of TLS that sockets of Lua speak (`sslhandshake`).",
        example: "
            lua_ssl_protocols TLSv1.3;",
        see: &["lua_ssl_ciphers", "lua_ssl_conf_command"],
        handler: read_protocols,
    },
    word!(
        "lua_ssl_ciphers",
        "CIPHERS",
        "lua_ssl_ciphers DEFAULT;",
        "The ciphers that sockets of Lua offer to servers, in OpenSSL's form.",
        "HIGH:!aNULL",
        &["lua_ssl_protocols"],
        ciphers
    ),
    Spec {
        name: "lua_ssl_verify_depth",
        contexts: PLACES,
        args: Args::TAKE1,
        syntax: "lua_ssl_verify_depth NUMBER",
        default: "lua_ssl_verify_depth 1;",
        doc: "How many certificates there may be between that of a server and a trusted one, where \
              `sslhandshake` checks it.",
        example: "
            lua_ssl_verify_depth 3;",
        see: &["lua_ssl_trusted_certificate"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&TLS_CONF).depth;
            set(directive, setting, |directive| directive.number(0))
        },
    },
    word!(
        "lua_ssl_trusted_certificate",
        "FILE",
        "",
        "A file with the certificates, in PEM, that those of servers are checked with where `sslhandshake` \
         is told to.",
        "/etc/ssl/certs/ca-certificates.crt",
        &["lua_ssl_verify_depth", "lua_ssl_crl"],
        trusted
    ),
    word!(
        "lua_ssl_crl",
        "FILE",
        "",
        "A file with lists of revoked certificates, in PEM.",
        "revoked.pem",
        &["lua_ssl_trusted_certificate"],
        revoked
    ),
    word!(
        "lua_ssl_certificate",
        "FILE",
        "",
        "A certificate in PEM that sockets of Lua show servers which ask for one, unless `setclientcert` has \
         said another.",
        "client.pem",
        &["lua_ssl_certificate_key"],
        certificate
    ),
    word!(
        "lua_ssl_certificate_key",
        "FILE",
        "",
        "The key of that certificate, in PEM.",
        "client.key",
        &["lua_ssl_certificate"],
        key
    ),
    Spec {
        name: "lua_ssl_conf_command",
        contexts: PLACES,
        args: Args::TAKE2,
        syntax: "lua_ssl_conf_command NAME VALUE",
        default: "",
        doc: "A setting of OpenSSL's for sockets of Lua, by its name in configuration files (`MinProtocol`, \
              `Ciphersuites`, `Groups` and others). One that has no effect here says so; one that would have \
              is refused.",
        example: "
            lua_ssl_conf_command Ciphersuites TLS_AES_256_GCM_SHA384;",
        see: &["lua_ssl_protocols", "lua_ssl_ciphers"],
        handler: read_command,
    },
];

/// `lua_ssl_protocols`
fn read_protocols(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let old = [("SSLv2", None), ("SSLv3", None)];
    let words: Vec<_> = old
        .into_iter()
        .chain(Version::ALL.into_iter().map(|version| (version.name(), Some(version))))
        .collect();
    let mut spoken = Versions::none();
    for at in 0..directive.args.len() {
        if let Some(version) = directive.choice(at, &words)? {
            spoken = spoken.and(version);
        }
    }
    set(directive, &mut scope.conf.location(&TLS_CONF).protocols, |_| Ok(Some(spoken)))
}

/// `lua_ssl_conf_command`
fn read_command(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let (name, value) = (&directive.args[0], &directive.args[1]);
    if let Some(reason) = outgoing::without_effect(name, value) {
        let text = message(&[&"the command \"", &printed(name), &"\" has no effect: ", &reason]);
        scope.warn(directive.error(text));
    }
    scope.conf.location(&TLS_CONF).commands.here().push((name.clone(), value.clone()));
    Ok(())
}
