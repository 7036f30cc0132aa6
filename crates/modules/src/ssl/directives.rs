//! The directives. Checked for form when they are read, for sense when everything is (`server`).

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::{Errno, units};
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{Load, Value, Verify, context, set};
use clearway_tls::cache::ZONE_MODULE;
use clearway_tls::objects::{CacheRule, ObjectCache, RuleError};
use clearway_zone::Zones;

use super::server::BUILTIN_SESSIONS;
use super::settings::{PROTOCOLS, SSL_CONF, SessionCache, SslConf};

const HTTP_SERVER: Contexts = context::HTTP.or(context::SERVER);

/// Longest password in a file, bytes.
const PASSWORD_MAX_BYTES: usize = 512;
/// Smallest zone for sessions, bytes: eight pages.
pub(super) const ZONE_MIN_BYTES: u64 = 8 * 4096;

pub(super) static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "ssl_certificate",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_certificate FILE",
        default: "",
        doc: "A file with the certificate of the server in PEM, and behind it those of the authorities \
              that have signed it. Given several times with different kinds of keys, each client gets \
              one that it can check. `data:TEXT` is the certificate itself. With variables in the name \
              (`$ssl_server_name`) a pool reads it when a client is there, with the rights of the worker.",
        example: EXAMPLE_OF_CERTIFICATE,
        see: &["ssl_certificate_key", "ssl_certificate_cache", "ssl_password_file"],
        handler: |scope, directive| {
            let value = named(scope, directive)?;
            let conf = conf(scope);
            conf.certificates.here().push(directive.args[0].clone());
            conf.certificate_values.here().push(value);
            Ok(())
        },
    },
    Spec {
        name: "ssl_certificate_key",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_certificate_key FILE",
        default: "",
        doc: "A file with the key of the certificate in PEM. The master reads it, so no other user has to \
              be able to read it. `data:TEXT` is the key itself. With variables in the name the worker \
              reads it when a client is there.",
        example: EXAMPLE_OF_CERTIFICATE,
        see: &["ssl_certificate", "ssl_password_file"],
        handler: |scope, directive| {
            let value = named(scope, directive)?;
            let conf = conf(scope);
            conf.keys.here().push(directive.args[0].clone());
            conf.key_values.here().push(value);
            Ok(())
        },
    },
    Spec {
        name: "ssl_certificate_cache",
        contexts: HTTP_SERVER,
        args: Args::TAKE123,
        syntax: "ssl_certificate_cache off | max=NUMBER [inactive=TIME] [valid=TIME]",
        default: "ssl_certificate_cache off;",
        doc: "How many certificates and keys whose names have variables in them are kept in memory, each \
              of which counts: those that are not used are forgotten after `inactive` (10 seconds), and \
              after `valid` (60 seconds) it is looked whether their files have changed. Keys behind \
              passwords are not kept.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate $ssl_server_name.pem;
                ssl_certificate_key $ssl_server_name.key;
                ssl_certificate_cache max=1000 inactive=20s valid=1m;
            }",
        see: &["ssl_certificate"],
        handler: certificate_cache,
    },
    Spec {
        name: "ssl_password_file",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_password_file FILE",
        default: "",
        doc: "A file with passwords of keys, one in a line, which are tried in their order.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_password_file passwords;
            }",
        see: &["ssl_certificate_key"],
        handler: password_file,
    },
    Spec {
        name: "ssl_certificate_compression",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ssl_certificate_compression on | off",
        default: "ssl_certificate_compression off;",
        doc: "Whether certificates are sent compressed to clients that understand it (RFC 8879).",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_certificate_compression on;
            }",
        see: &["ssl_certificate"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).certificate_compression, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "ssl_dhparam",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_dhparam FILE",
        default: "",
        doc: "Without effect, with a warning: parameters of key exchanges (DHE) that are not made \
              here. Clients of the last ten years use elliptic curves.",
        example: "",
        see: &["ssl_ecdh_curve"],
        handler: dhparam,
    },
    Spec {
        name: "ssl_ecdh_curve",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_ecdh_curve NAMES",
        default: "ssl_ecdh_curve auto;",
        doc: "Groups of key exchanges by their names, with colons, the preferred one first: \
              `X25519MLKEM768:X25519:prime256v1`.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_ecdh_curve X25519:prime256v1;
            }",
        see: &["ssl_ciphers"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).ecdh_curve, |directive| Ok(directive.args[0].clone()))
        },
    },
    Spec {
        name: "ssl_protocols",
        contexts: HTTP_SERVER,
        args: Args::ONE_MORE,
        syntax: "ssl_protocols [SSLv2] [SSLv3] [TLSv1] [TLSv1.1] [TLSv1.2] [TLSv1.3]",
        default: "ssl_protocols TLSv1.2 TLSv1.3;",
        doc: "The versions of TLS that clients may use. The first two are never spoken, and versions \
              before TLS 1.2 only with `@SECLEVEL=0` in `ssl_ciphers`.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_protocols TLSv1.3;
            }",
        see: &["ssl_ciphers"],
        handler: protocols,
    },
    Spec {
        name: "ssl_ciphers",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_ciphers STRING",
        default: "ssl_ciphers HIGH:!aNULL:!MD5;",
        doc: "Cipher suites of TLS 1.2 and before, in OpenSSL's syntax; those that are not served here \
              are left out.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;
            }",
        see: &["ssl_prefer_server_ciphers", "ssl_conf_command"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).ciphers, |directive| Ok(directive.args[0].clone()))
        },
    },
    Spec {
        name: "ssl_buffer_size",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_buffer_size SIZE",
        default: "ssl_buffer_size 16k;",
        doc: "The size of records. Without it they are small at the beginning of a response, so that a \
              client can use what has come, and full behind that.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_buffer_size 4k;
            }",
        see: &["output_buffers"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).buffer_size, |directive| directive.size(0))
        },
    },
    Spec {
        name: "ssl_verify_client",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_verify_client on | off | optional | optional_no_ca",
        default: "ssl_verify_client off;",
        doc: "Whether clients are asked for a certificate: `on` answers 400 to those without one, \
              `optional` to those with one that is not sound, `optional_no_ca` takes it whatever authority \
              has signed it. `$ssl_client_verify` says what was found.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_verify_client optional;
                ssl_client_certificate clients.pem;
            }",
        see: &["ssl_client_certificate", "ssl_verify_depth"],
        handler: verify_client,
    },
    Spec {
        name: "ssl_verify_depth",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_verify_depth NUMBER",
        default: "ssl_verify_depth 1;",
        doc: "How many certificates may stand between that of a client and a trusted one.",
        example: EXAMPLE_OF_CLIENTS,
        see: &["ssl_verify_client"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).verify_depth, |directive| directive.number(0))
        },
    },
    Spec {
        name: "ssl_client_certificate",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_client_certificate FILE",
        default: "",
        doc: "A file with certificates of authorities in PEM that sign those of clients. Their names are \
              sent to clients.",
        example: EXAMPLE_OF_CLIENTS,
        see: &["ssl_verify_client", "ssl_trusted_certificate"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).client_certificate, |directive| Ok(directive.args[0].clone()))
        },
    },
    Spec {
        name: "ssl_trusted_certificate",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_trusted_certificate FILE",
        default: "",
        doc: "Certificates of authorities as in `ssl_client_certificate`, whose names are not sent to \
              clients.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_verify_client on;
                ssl_trusted_certificate clients.pem;
            }",
        see: &["ssl_client_certificate"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).trusted_certificate, |directive| Ok(directive.args[0].clone()))
        },
    },
    Spec {
        name: "ssl_prefer_server_ciphers",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ssl_prefer_server_ciphers on | off",
        default: "ssl_prefer_server_ciphers off;",
        doc: "Whether the order of the server decides which cipher is used, and not that of the \
              client.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_prefer_server_ciphers on;
            }",
        see: &["ssl_ciphers"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).prefer_server_ciphers, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "ssl_session_cache",
        contexts: HTTP_SERVER,
        args: Args::TAKE12,
        syntax: "ssl_session_cache off | none | [builtin[:NUMBER]] [shared:NAME:SIZE]",
        default: "ssl_session_cache none;",
        doc: "Where sessions are kept that clients take up again without a full handshake: `shared` \
              for all servers that name it. Clients that use tickets need none. `none` tells clients \
              that there may be something, `off` that there is not.",
        example: EXAMPLE_OF_SESSIONS,
        see: &["ssl_session_timeout", "ssl_session_tickets"],
        handler: session_cache,
    },
    Spec {
        name: "ssl_session_tickets",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ssl_session_tickets on | off",
        default: "ssl_session_tickets on;",
        doc: "Whether clients are given tickets: their sessions, encrypted, so that the server need \
              not keep them.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_session_tickets off;
            }",
        see: &["ssl_session_ticket_key"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).session_tickets, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "ssl_session_ticket_key",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_session_ticket_key FILE",
        default: "",
        doc: "A file of 48 or 80 random bytes with the key of tickets, so that several machines open \
              those of each other. Of several the first one encrypts.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_session_ticket_key ticket.key;
            }",
        see: &["ssl_session_tickets"],
        handler: ticket_key,
    },
    Spec {
        name: "ssl_session_timeout",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_session_timeout TIME",
        default: "ssl_session_timeout 5m;",
        doc: "For how long sessions can be taken up again.",
        example: EXAMPLE_OF_SESSIONS,
        see: &["ssl_session_cache"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).session_timeout, |directive| Ok(directive.sec(0)?.as_secs()))
        },
    },
    Spec {
        name: "ssl_crl",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_crl FILE",
        default: "",
        doc: "A file with lists of revoked certificates in PEM, by which those of clients are judged; \
              one for each authority.",
        example: EXAMPLE_OF_CLIENTS,
        see: &["ssl_verify_client"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).crl, |directive| Ok(directive.args[0].clone()))
        },
    },
    Spec {
        name: "ssl_early_data",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ssl_early_data on | off",
        default: "ssl_early_data off;",
        doc: "Whether requests are answered that clients of TLS 1.3 send with the handshake. An attacker \
              who has recorded one can send it again: `$ssl_early_data` says which they are.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_early_data on;
            }",
        see: &["ssl_session_tickets"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).early_data, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "ssl_ech_file",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_ech_file FILE",
        default: "",
        doc: "Without effect, with a warning, as in an nginx whose library has no Encrypted Client Hello: \
              a file with keys by which the names that clients ask for are hidden.",
        example: "",
        see: &["ssl_certificate"],
        handler: |scope, _| {
            conf(scope).ech_files.set(true);
            Ok(())
        },
    },
    Spec {
        name: "ssl_ocsp",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_ocsp off",
        default: "ssl_ocsp off;",
        doc: "Whether authorities are asked about certificates of clients. They are not: `on` and `leaf` \
              are refused, as by an nginx whose library cannot ask. Revoked certificates are known by \
              `ssl_crl`.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_ocsp off;
            }",
        see: &["ssl_verify_client", "ssl_crl"],
        handler: super::ocsp::asking,
    },
    Spec {
        name: "ssl_ocsp_responder",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_ocsp_responder URL",
        default: "",
        doc: "The address where authorities are asked about certificates of clients; they are never asked.",
        example: "",
        see: &["ssl_ocsp"],
        handler: super::ocsp::responder,
    },
    Spec {
        name: "ssl_ocsp_cache",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_ocsp_cache off | shared:NAME:SIZE",
        default: "ssl_ocsp_cache off;",
        doc: "Where it is kept what authorities say of certificates of clients; they are not asked.",
        example: "",
        see: &["ssl_ocsp"],
        handler: super::ocsp::cache,
    },
    Spec {
        name: "ssl_stapling",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ssl_stapling on | off",
        default: "ssl_stapling off;",
        doc: "Whether clients that ask are told with the handshake what the authority says of the \
              certificate (OCSP). It is asked over HTTP, by a task beside the connections, and its answer is \
              kept until it has to be renewed; the first client that asks gets none. Not of certificates by \
              variables.",
        example: EXAMPLE_OF_STAPLING,
        see: &["ssl_stapling_verify", "ssl_stapling_responder", "ssl_stapling_file", "resolver"],
        handler: |scope, directive| set(directive, &mut conf(scope).stapling, |directive| directive.flag(0)),
    },
    Spec {
        name: "ssl_stapling_file",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_stapling_file FILE",
        default: "",
        doc: "A file with the answer of the authority in DER, as `openssl ocsp` writes it, which clients \
              are told instead of asking. It is not checked.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_stapling_file example.com.ocsp;
                ssl_stapling on;
            }",
        see: &["ssl_stapling"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).stapling_file, |directive| Ok(directive.args[0].clone()))
        },
    },
    Spec {
        name: "ssl_stapling_responder",
        contexts: HTTP_SERVER,
        args: Args::TAKE1,
        syntax: "ssl_stapling_responder URL",
        default: "",
        doc: "Where the authority is asked (`http://…`), instead of where the certificate says.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_stapling on;
                ssl_stapling_responder http://192.0.2.80/;
            }",
        see: &["ssl_stapling"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).stapling_responder, |directive| Ok(directive.args[0].clone()))
        },
    },
    Spec {
        name: "ssl_stapling_verify",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ssl_stapling_verify on | off",
        default: "ssl_stapling_verify off;",
        doc: "Whether answers of authorities are used only where certificates of `ssl_trusted_certificate` \
              lead to those that have signed them.",
        example: EXAMPLE_OF_STAPLING,
        see: &["ssl_stapling", "ssl_trusted_certificate"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).stapling_verify, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "ssl_conf_command",
        contexts: HTTP_SERVER,
        args: Args::TAKE2,
        syntax: "ssl_conf_command NAME VALUE",
        default: "",
        doc: "A command of OpenSSL's configuration: `Ciphersuites`, `MinProtocol`, `Groups`, `Options` \
              and so on.",
        example: "
            server {
                listen 443 ssl;
                ssl_certificate example.com.pem;
                ssl_certificate_key example.com.key;
                ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
            }",
        see: &["ssl_ciphers"],
        handler: conf_command,
    },
    Spec {
        name: "ssl_reject_handshake",
        contexts: HTTP_SERVER,
        args: Args::FLAG,
        syntax: "ssl_reject_handshake on | off",
        default: "ssl_reject_handshake off;",
        doc: "Whether handshakes are refused that ask for this server: as the default one it answers \
              for hosts that no other server has.",
        example: "
            server {
                listen 443 ssl;
                ssl_reject_handshake on;
            }",
        see: &["ssl_certificate", "listen"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).reject_handshake, |directive| directive.flag(0))
        },
    },
];

/// The example of `ssl_certificate` and `ssl_certificate_key`.
const EXAMPLE_OF_CERTIFICATE: &str = "
    server {
        listen 443 ssl;
        ssl_certificate example.com.pem;
        ssl_certificate_key example.com.key;
    }";

/// The example of `ssl_verify_depth`, `ssl_client_certificate` and `ssl_crl`.
const EXAMPLE_OF_CLIENTS: &str = "
    server {
        listen 443 ssl;
        ssl_certificate example.com.pem;
        ssl_certificate_key example.com.key;
        ssl_verify_client on;
        ssl_verify_depth 2;
        ssl_client_certificate clients.pem;
        ssl_crl revoked.pem;
    }";

/// The example of `ssl_session_cache` and `ssl_session_timeout`.
const EXAMPLE_OF_SESSIONS: &str = "
    server {
        listen 443 ssl;
        ssl_certificate example.com.pem;
        ssl_certificate_key example.com.key;
        ssl_session_cache shared:sessions:10m;
        ssl_session_timeout 1h;
    }";

/// The example of `ssl_stapling` and `ssl_stapling_verify`.
const EXAMPLE_OF_STAPLING: &str = "
    server {
        listen 443 ssl;
        ssl_certificate example.com.pem;
        ssl_certificate_key example.com.key;
        resolver 192.0.2.53;
        ssl_stapling on;
        ssl_stapling_verify on;
        ssl_trusted_certificate authorities.pem;
    }";

pub(super) fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut SslConf {
    scope.conf.server(&SSL_CONF)
}

fn named(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<Value, Error> {
    scope.conf.variables.compile(&directive.args[0], &directive.pos)
}

fn certificate_cache(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if conf(scope).certificate_cache.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let rule = CacheRule::read(directive.args.iter().map(|word| &word[..])).map_err(|error| match error {
        RuleError::Invalid(word) => {
            directive.error(message(&[&"invalid parameter \"", &printed(word), &"\""]))
        }
        RuleError::NoMax => directive.error("\"ssl_certificate_cache\" must have the \"max\" parameter"),
    })?;
    conf(scope).certificate_cache.set(rule.map(|rule| Arc::new(ObjectCache::new(rule))));
    Ok(())
}

fn password_file(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if conf(scope).passwords.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let name = &directive.args[0];
    let path =
        if name.starts_with(b"/") { name.to_vec() } else { [&scope.conf.conf_prefix(), &name[..]].concat() };
    let content = scope.conf.kept_files().read(Path::new(OsStr::from_bytes(&path))).map_err(|error| {
        // A directory can be opened, as nginx does, but not read.
        let call = if error.kind() == ErrorKind::IsADirectory { "read() \"" } else { "open() \"" };
        directive.error(message(&[&call, &printed(&path), &"\" failed ", &Errno(&error).to_string()]))
    })?;
    let lines = content.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let passwords: Vec<Vec<u8>> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    if passwords.iter().any(|password| password.len() >= PASSWORD_MAX_BYTES) {
        return Err(directive.error(message(&[&"too long line in \"", &printed(&path), &"\""])));
    }
    conf(scope).passwords.set(passwords);
    Ok(())
}

fn dhparam(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    set(directive, &mut conf(scope).dhparam, |directive| Ok(directive.args[0].clone()))?;
    let warning = "\"ssl_dhparam\" has no effect: key exchanges with DHE are not made";
    scope.warn(directive.error(warning));
    Ok(())
}

fn protocols(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for argument in &directive.args {
        let place = PROTOCOLS.iter().position(|name| argument.eq_ignore_ascii_case(name.as_bytes()));
        let Some(at) = place else {
            return Err(directive.error(message(&[&"invalid value \"", &printed(argument), &"\""])));
        };
        conf(scope).protocols.here()[at] = true;
        let is_named = &mut conf(scope).named_protocols[at];
        if std::mem::replace(is_named, true) {
            scope.warn(directive.error(message(&[&"duplicate value \"", &printed(argument), &"\""])));
        }
    }
    Ok(())
}

fn verify_client(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    const CHOICES: [(&str, Verify); 4] = [
        ("off", Verify::Off),
        ("on", Verify::On),
        ("optional", Verify::Optional),
        ("optional_no_ca", Verify::OptionalNoCa),
    ];
    set(directive, &mut conf(scope).verify_client, |directive| directive.choice(0, &CHOICES))
}

fn session_cache(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for argument in &directive.args {
        let text = printed(argument);
        let invalid = || directive.error(message(&[&"invalid session cache \"", &text, &"\""]));
        let cache = match &argument[..] {
            b"off" => SessionCache::Off,
            b"none" => SessionCache::None,
            b"builtin" => SessionCache::Builtin(BUILTIN_SESSIONS),
            other => match (other.strip_prefix(b"builtin:"), other.strip_prefix(b"shared:")) {
                (Some(number), _) => SessionCache::Builtin(units::parse_number(number).ok_or_else(invalid)?),
                (_, Some(zone)) => shared(zone).ok_or_else(invalid)?,
                _ => return Err(invalid()),
            },
        };
        if let SessionCache::Shared(_, 0..ZONE_MIN_BYTES) = cache {
            return Err(directive.error(message(&[&"session cache \"", &text, &"\" is too small"])));
        }
        if let SessionCache::Shared(name, bytes) = &cache {
            let zones = scope.conf.environment().services.find::<Arc<Zones>>().cloned();
            let declared = zones.map(|zones| zones.declare(name, *bytes, ZONE_MODULE)).transpose();
            declared.map_err(|said| directive.error(said))?;
        }
        let setting = &mut conf(scope).session_cache;
        // What is kept for all servers is worth more than what one has beside it.
        if !(setting.is_here() && matches!(**setting, SessionCache::Shared(..))) {
            setting.set(cache);
        }
    }
    Ok(())
}

/// `NAME:SIZE`
fn shared(zone: &[u8]) -> Option<SessionCache> {
    named_size(zone).map(|(name, bytes)| SessionCache::Shared(Bytes::copy_from_slice(name), bytes))
}

/// `NAME:SIZE`, the size in bytes.
pub(super) fn named_size(zone: &[u8]) -> Option<(&[u8], u64)> {
    let colon = zone.iter().position(|&byte| byte == b':').filter(|&at| at > 0)?;
    Some((&zone[..colon], units::parse_size(&zone[colon + 1..])?))
}

fn ticket_key(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    conf(scope).session_ticket_keys.here().push(directive.args[0].clone());
    Ok(())
}

fn conf_command(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let [name, value] = [0, 1].map(|at| directive.args[at].clone());
    conf(scope).conf_commands.here().push((name, value));
    Ok(())
}
