//! The directives about caches that all families share: where there is one, how long its responses may be
//! used, and when it is left out.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::units;
use clearway_cache::disks::TempPlace;
use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Scope};
use clearway_http::{ConfKey, Load, Value};
use clearway_zone::Zones;

use crate::directives::readers::{SettingPlace, compile};
use crate::settings::cache::{CacheAt, FamilyCaches};
use crate::settings::pass::PassConf;

/// A family of directives.
pub(super) struct Family {
    /// Its prefix, which is also the module that its zones are of.
    pub(super) name: &'static str,
    pub(super) pass: &'static ConfKey<PassConf>,
    pub(super) caches: &'static ConfKey<FamilyCaches>,
}

/// The zones of the configuration.
pub(super) fn zones(load: &Load) -> Result<Arc<Zones>, Error> {
    let zones = load.environment().services.find::<Arc<Zones>>().cloned();
    zones.ok_or_else(|| Error::unplaced("no shared memory zones"))
}

/// `…_cache`
pub(super) fn read_cache(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    family: &Family,
) -> Result<(), Error> {
    let text = &directive.args[0];
    let keeping = &mut scope.conf.location(family.pass).keeping;
    if keeping.cache.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    if text == "off" {
        keeping.cache.set(None);
        return Ok(());
    }
    if keeping.store.is_here() && keeping.store.is_some() {
        return Err(directive.reject(&format!("is incompatible with \"{}_store\"", family.name)));
    }
    let value = compile(scope, directive, text)?;
    let at = match value.as_literal() {
        None => CacheAt::Evaluated(value),
        Some(_) => {
            let declared = zones(scope.conf)?.declare(text, 0, family.name);
            CacheAt::Zone(declared.map_err(|message| directive.error(message))?)
        }
    };
    scope.conf.location(family.pass).keeping.cache.set(Some(at));
    Ok(())
}

/// `…_cache_bypass`, `…_no_cache`
pub(super) fn read_values(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: SettingPlace<Vec<Value>>,
) -> Result<(), Error> {
    directive.args.iter().try_for_each(|text| {
        let value = compile(scope, directive, text)?;
        place(scope.conf).here().push(value);
        Ok(())
    })
}

/// `…_cache_valid`
pub(super) fn read_valid(directive: &Directive, conf: &mut PassConf) -> Result<(), Error> {
    let Some((time, codes)) = directive.args.split_last() else { return Ok(()) };
    let invalid = |what: &str, text: &Bytes| {
        directive.error(message(&[&"invalid ", &what, &" \"", &printed(text), &"\""]))
    };
    let seconds = units::parse_sec(time).and_then(|time| i64::try_from(time.as_secs()).ok());
    let seconds = seconds.ok_or_else(|| invalid("time value", time))?;
    let statuses = codes.iter().map(|code| match &code[..] {
        b"any" => Ok(None),
        _ => {
            let number = units::parse_number(code).and_then(|number| u16::try_from(number).ok());
            number.filter(|code| (100..=599).contains(code)).map(Some).ok_or_else(|| invalid("status", code))
        }
    });
    let statuses: Vec<Option<u16>> = statuses.collect::<Result<_, _>>()?;
    conf.cache.valid.here().add(&statuses, seconds);
    Ok(())
}

/// Says that responses are cached for which nothing is said by what they are told apart (all have the same
/// key): once, where nginx says so for each location.
pub(super) fn warn_without_key(load: &mut Load, family: &Family) {
    let name = family.name;
    let lacks_key = |conf: &mut PassConf| conf.keeping.cache.is_some() && conf.cache.key.is_none();
    if load.all_locations(family.pass).any(lacks_key) {
        load.warn_at_end(format!("no \"{name}_cache_key\" for \"{name}_cache\""));
    }
}

/// Completes each level: its cache, and where files of it are written first.
pub(super) fn complete(load: &mut Load, family: &Family) -> Result<(), Error> {
    let caches = load.main(family.caches).clone();
    for conf in load.all_locations(family.pass) {
        if let Some(CacheAt::Zone(zone)) = &*conf.keeping.cache {
            let cache = caches.iter().find(|known| known.cache.name() == zone.name());
            let unknown = || {
                let name = zone.name();
                Error::unplaced(message(&[&"\"", &family.name, &"_cache\" zone \"", &name, &"\" is unknown"]))
            };
            *conf.cache.cache = Some(Arc::clone(cache.ok_or_else(unknown)?));
        }
        if conf.keeping.cache.is_some()
            && let Some(path) = &*conf.temp_path
        {
            let (directory, levels) = (path.directory.clone(), path.levels.clone());
            *conf.cache.temp_place = Some(Arc::new(TempPlace::Below { directory, levels }));
        }
    }
    Ok(())
}
