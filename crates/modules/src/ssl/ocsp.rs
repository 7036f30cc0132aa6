//! Settings for asking authorities about certificates of clients. The library does not do it, so that a
//! server which wants it is refused, as by an nginx that was built with such a library; what else is said is
//! checked for form.

use bytes::Bytes;
use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Scope};
use clearway_http::{Load, Verify, set};

use super::directives::{ZONE_MIN_BYTES, conf, named_size};
use super::settings::SslConf;

/// `ssl_ocsp`
pub(super) fn asking(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    const CHOICES: [(&str, bool); 3] = [("off", false), ("on", true), ("leaf", true)];
    set(directive, &mut conf(scope).ocsp, |directive| directive.choice(0, &CHOICES))
}

/// `ssl_ocsp_responder`
pub(super) fn responder(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    set(directive, &mut conf(scope).ocsp_responder, |directive| Ok(directive.args[0].clone()))
}

/// `ssl_ocsp_cache`
pub(super) fn cache(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    set(directive, &mut conf(scope).ocsp_cache, |directive| {
        let word: &Bytes = &directive.args[0];
        if &word[..] == b"off" {
            return Ok(());
        }
        let said = |what: &str, rest: &str| {
            directive.error(message(&[&what, &"OCSP cache \"", &printed(word), &"\"", &rest]))
        };
        match word.strip_prefix(b"shared:").and_then(named_size) {
            Some((_, ZONE_MIN_BYTES..)) => Ok(()),
            Some(_) => Err(said("", " is too small")),
            None => Err(said("invalid ", "")),
        }
    })
}

/// Whether a server that speaks TLS can do what it says.
pub(super) fn check(conf: &SslConf) -> Result<(), Error> {
    match (*conf.ocsp, *conf.verify_client) {
        (false, _) => Ok(()),
        (true, Verify::OptionalNoCa) => {
            Err(Error::unplaced("\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\""))
        }
        (true, _) => Err(Error::unplaced("\"ssl_ocsp\" is not supported on this platform")),
    }
}
