//! The directives about TLS with servers, which some families have: one row each, to which
//! [`tls_directives`] gives the family's prefix.

use std::sync::Arc;

use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{ConfKey, Load, Module, UPSTREAM_CODE, context, set};
use clearway_tls::files::{self, full_name};
use clearway_tls::objects::{CacheRule, ObjectCache, RuleError};
use clearway_tls::outgoing::{self, Outgoing};

use crate::directives::readers::{SettingPlace, invalid_parameter, read_value};
use crate::settings::gateway::UWSGI_PASS;
use crate::settings::masks::read_mask;
use crate::settings::pass::PassConf;
use crate::settings::proxy::PROXY_PASS;
use crate::settings::tls::{Passwords, Places, ServerTls, TlsConf, build};
use crate::upstreams::draft::UPSTREAMS_CONF;

/// The table of a family. `at` gives its `TlsConf` at the level that is read.
macro_rules! tls_directives {
    ($p:literal, $at:ident, $example:literal) => {
        &[
            row! {
                $p, $example, "ssl_session_reuse", FLAG, "on | off", "on", "off",
                "Whether a new connection takes up a TLS session that the server has given before.",
                ["ssl_protocols"],
                |s, d| set(d, &mut $at(s.conf).session_reuse, |d| d.flag(0))
            },
            row! {
                $p, $example, "ssl_protocols", ONE_MORE,
                "[SSLv2] [SSLv3] [TLSv1] [TLSv1.1] [TLSv1.2] [TLSv1.3]",
                "TLSv1.2 TLSv1.3", "TLSv1.3",
                "The versions of TLS that are spoken with servers.",
                ["ssl_ciphers", "ssl_conf_command"],
                |s, d| read_mask(s, d, |load| &mut $at(load).protocols)
            },
            row! {
                $p, $example, "ssl_ciphers", TAKE1, "CIPHERS", "DEFAULT", "HIGH:!aNULL",
                "The ciphers that are offered to servers, in OpenSSL's form.",
                ["ssl_protocols", "ssl_conf_command"],
                |s, d| set(d, &mut $at(s.conf).ciphers, |d| Ok(d.args[0].clone()))
            },
            row! {
                $p, $example, "ssl_name", TAKE1, "NAME", -, "backend.example.com",
                "The name that a server's certificate has to be for, and that the server is told where \
        names are told; that of the URL, where this is not said. It may have variables in it.",
                ["ssl_verify", "ssl_server_name"],
                |s, d| read_value(s, d, |load| &mut $at(load).name)
            },
            row! {
                $p, $example, "ssl_server_name", FLAG, "on | off", "off", "on",
                "Whether servers are told which name is asked for (SNI, RFC 6066).",
                ["ssl_name"],
                |s, d| set(d, &mut $at(s.conf).server_name, |d| d.flag(0))
            },
            row! {
                $p, $example, "ssl_verify", FLAG, "on | off", "off", "off",
                "Whether the certificate of a server is checked: its signature by a trusted authority, and \
        its name.",
                ["ssl_trusted_certificate", "ssl_verify_depth", "ssl_name", "ssl_crl"],
                |s, d| set(d, &mut $at(s.conf).verify, |d| d.flag(0))
            },
            row! {
                $p, $example, "ssl_verify_depth", TAKE1, "NUMBER", "1", "3",
                "How many certificates there may be between that of a server and a trusted one.",
                ["ssl_verify"],
                |s, d| set(d, &mut $at(s.conf).depth, |d| d.number(0))
            },
            row! {
                $p, $example, "ssl_trusted_certificate", TAKE1, "FILE", -, "backends.pem",
                "A file with the certificates, in PEM, that those of servers are checked with.",
                ["ssl_verify", "ssl_crl"],
                |s, d| set(d, &mut $at(s.conf).trusted, |d| Ok(d.args[0].clone()))
            },
            row! {
                $p, $example, "ssl_crl", TAKE1, "FILE", -, "revoked.pem",
                "A file with lists of revoked certificates, in PEM.",
                ["ssl_verify", "ssl_trusted_certificate"],
                |s, d| set(d, &mut $at(s.conf).revoked, |d| Ok(d.args[0].clone()))
            },
            row! {
                $p, $example, "ssl_certificate", TAKE1, "FILE | data:TEXT", -, "/etc/ssl/$host.pem",
                "A certificate in PEM that servers are shown which ask for one, perhaps with those that \
        have signed it. With variables it is read when a request needs it, by a pool.",
                ["ssl_certificate_key", "ssl_certificate_cache", "ssl_password_file"],
                |s, d| read_value(s, d, |load| &mut $at(load).certificate)
            },
            row! {
                $p, $example, "ssl_certificate_key", TAKE1, "FILE | data:TEXT", -, "/etc/ssl/$host.key",
                "The key of that certificate, in PEM.",
                ["ssl_certificate", "ssl_password_file"],
                |s, d| read_value(s, d, |load| &mut $at(load).key)
            },
            row! {
                $p, $example, "ssl_certificate_cache", TAKE123,
                "off | max=NUMBER [inactive=TIME] [valid=TIME]", "off", "max=1000 inactive=20s valid=1m",
                "How many certificates and keys whose names have variables in them are kept in memory, \
        each of which counts: those that are not used are forgotten after `inactive` (10 \
        seconds), and after `valid` (60 seconds) it is looked whether their files have changed.",
                ["ssl_certificate"],
                |s, d| read_cache(s, d, $p, |load| &mut $at(load).cache)
            },
            row! {
                $p, $example, "ssl_password_file", TAKE1, "FILE", -, "/dev/null",
                "A file with passwords of keys, one a line, which are tried in their order.",
                ["ssl_certificate_key"],
                |s, d| read_passwords(s, d, |load| &mut $at(load).passwords)
            },
            row! {
                $p, $example, "ssl_conf_command", TAKE2, "NAME VALUE", -, "MinProtocol TLSv1.3",
                "A setting of OpenSSL's by its name in configuration files (`MinProtocol`, `Ciphersuites`, \
        `Groups` and others). One that has no effect here says so; one that would have is refused.",
                ["ssl_protocols", "ssl_ciphers"],
                |s, d| read_command(s, d, |load| &mut $at(load).commands)
            },
        ]
    };
}

/// TLS with the servers of `proxy_pass`.
pub static PROXY_TLS: Module = Module {
    name: "proxy_ssl",
    directives: PROXY_DIRECTIVES,
    confs: &[&UPSTREAM_CODE],
    finish: Some(|load| finish(load, "proxy", &PROXY_PASS)),
    ..Module::EMPTY
};

/// TLS with the servers of `uwsgi_pass`.
pub static UWSGI_TLS: Module = Module {
    name: "uwsgi_ssl",
    directives: UWSGI_DIRECTIVES,
    finish: Some(|load| finish(load, "uwsgi", &UWSGI_PASS)),
    ..Module::EMPTY
};

static PROXY_DIRECTIVES: &[Spec<Load>] =
    tls_directives!("proxy", proxy_tls, "proxy_pass http://127.0.0.1:8080;");

static UWSGI_DIRECTIVES: &[Spec<Load>] = tls_directives!("uwsgi", uwsgi_tls, "uwsgi_pass 127.0.0.1:9000;");

fn proxy_tls(load: &mut Load) -> &mut TlsConf {
    &mut load.location(&PROXY_PASS).tls
}

fn uwsgi_tls(load: &mut Load) -> &mut TlsConf {
    &mut load.location(&UWSGI_PASS).tls
}

/// `…_ssl_certificate_cache`
fn read_cache(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    prefix: &str,
    place: SettingPlace<Option<Arc<ObjectCache>>>,
) -> Result<(), Error> {
    if place(scope.conf).is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let rule = CacheRule::read(directive.args.iter().map(|word| &word[..])).map_err(|error| match error {
        RuleError::Invalid(word) => invalid_parameter(directive, word),
        RuleError::NoMax => {
            let name = format!("\"{prefix}_ssl_certificate_cache\" must have the \"max\" parameter");
            directive.error(name)
        }
    })?;
    place(scope.conf).set(rule.map(|rule| Arc::new(ObjectCache::new(rule))));
    Ok(())
}

/// `…_ssl_password_file`
fn read_passwords(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: SettingPlace<Option<Passwords>>,
) -> Result<(), Error> {
    use std::os::unix::ffi::OsStrExt;
    if place(scope.conf).is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let path = full_name(&scope.conf.conf_prefix(), &directive.args[0]);
    let content = scope.conf.kept_files().read(std::path::Path::new(std::ffi::OsStr::from_bytes(&path)));
    let content = content.map_err(|error| {
        let errno = clearway_base::Errno(&error).to_string();
        directive.error(message(&[&"open() \"", &printed(&path), &"\" failed ", &errno]))
    })?;
    let passwords = files::passwords(&content);
    let passwords = passwords.map_err(|files::LineTooLong| {
        directive.error(message(&[&"too long line in \"", &printed(&path), &"\""]))
    })?;
    place(scope.conf).set(Some(Arc::new(passwords)));
    Ok(())
}

/// `…_ssl_conf_command`
fn read_command(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: SettingPlace<Vec<(bytes::Bytes, bytes::Bytes)>>,
) -> Result<(), Error> {
    let (name, value) = (&directive.args[0], &directive.args[1]);
    // What is wrong is said when the context is made, as in nginx; here it is tried what it comes to.
    let reason = outgoing::without_effect(name, value);
    if let Some(reason) = reason {
        let text = message(&[&"the command \"", &printed(name), &"\" has no effect: ", &reason]);
        scope.warn(directive.error(text));
    }
    place(scope.conf).here().push((name.clone(), value.clone()));
    Ok(())
}

/// Makes the contexts of locations that pass requests to servers with TLS, or may.
fn finish(load: &mut Load, prefix: &str, pass: &'static ConfKey<PassConf>) -> Result<(), Error> {
    let places = Places { files: load.kept_files(), prefix: load.conf_prefix() };
    let may_all = *load.main(&UPSTREAMS_CONF).has_balancer;
    if prefix == "proxy" {
        check_code(load, pass)?;
    }
    let confs = load.all_locations(pass).map(|conf| &mut conf.tls);
    make_contexts(prefix, confs.filter(|tls| may_all || tls.used.get().is_some()), &places)
        .map_err(Error::unplaced)
}

/// Code has a say in handshakes only where there are some.
fn check_code(load: &Load, pass: &'static ConfKey<PassConf>) -> Result<(), Error> {
    for id in load.location_ids() {
        let codes = load.of_location(id, &UPSTREAM_CODE);
        let said = [&codes.certificate, &codes.verify].into_iter().filter(|code| code.is_here());
        let code = said.filter_map(|code| code.as_ref()).next();
        if let Some(code) = code
            && load.of_location(id, pass).tls.used.get().is_none()
        {
            let name = code.name();
            return Err(Error::unplaced(format!("{name}* should be used with proxy_pass https url")));
        }
    }
    Ok(())
}

/// Makes a TLS context for each set of equal settings.
fn make_contexts<'a>(
    prefix: &str,
    confs: impl Iterator<Item = &'a mut TlsConf>,
    places: &Places,
) -> Result<(), String> {
    let mut made: Vec<(Outgoing, Arc<ServerTls>)> = Vec::new();
    for conf in confs {
        let key = conf.key(prefix, places)?;
        let context = match made.iter().find(|(known, _)| *known == key) {
            Some((_, context)) => Arc::clone(context),
            None => {
                let context = build(&key, places)?;
                made.push((key, Arc::clone(&context)));
                context
            }
        };
        *conf.context = Some(context);
    }
    Ok(())
}
