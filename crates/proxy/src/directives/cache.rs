//! Directives about a cache, which there is not yet: they are checked for form.

use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Scope};
use clearway_http::{Load, Setting};

use crate::directives::readers::{Place, compile};
use crate::settings::pass::PassConf;

/// `…_cache`: nothing but `off`.
pub(super) fn read_zone(directive: &Directive, conf: &mut PassConf) -> Result<(), Error> {
    let off: &mut Setting<()> = &mut conf.cache.off;
    if off.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    if directive.args[0] != "off" {
        // There is no directive that makes one.
        let zone = printed(&directive.args[0]);
        let parts: [&dyn AsRef<[u8]>; 5] = [&"\"", &directive.name, &"\" zone \"", &zone, &"\" is unknown"];
        return Err(directive.error(message(&parts)));
    }
    off.set(());
    Ok(())
}

/// `…_cache_key`
pub(super) fn read_key(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: Place<()>,
) -> Result<(), Error> {
    if place(scope.conf).is_here() {
        return Err(directive.reject("is duplicate"));
    }
    compile(scope, directive, &directive.args[0])?;
    place(scope.conf).set(());
    Ok(())
}

/// Texts with variables.
pub(super) fn check_values(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    directive.args.iter().try_for_each(|text| compile(scope, directive, text).map(drop))
}

/// `…_cache_valid`
pub(super) fn check_valid(directive: &Directive) -> Result<(), Error> {
    let Some((time, codes)) = directive.args.split_last() else { return Ok(()) };
    if units::parse_sec(time).is_none() {
        return Err(directive.error(message(&[&"invalid time value \"", &printed(time), &"\""])));
    }
    for code in codes.iter().filter(|code| *code != "any") {
        if !units::parse_number(code).is_some_and(|code| (100..=599).contains(&code)) {
            return Err(directive.error(message(&[&"invalid status \"", &printed(code), &"\""])));
        }
    }
    Ok(())
}
