//! `…_cache_path`: a directory for responses that are kept, or several, and the zone that knows of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::units;
use clearway_cache::Levels;
use clearway_cache::disks::{CacheConf, Caches, DiskConf, Pace, TempPlace};
use clearway_conf::error::message;
use clearway_conf::{Directive, Error, Scope};
use clearway_http::Load;
use clearway_http::temp_paths::{TempPath, TempPaths};
use clearway_zone::Zone;

use crate::directives::cache::{Family, zones};
use crate::settings::cache::FamilyCache;

/// The smallest zone, bytes: two pages, as in nginx.
const ZONE_MIN_BYTES: u64 = 2 * 4096;

/// The time for which an object is kept without a request for it, seconds.
const INACTIVE_S: u64 = 600;

/// The parameters that were read so far.
struct Draft {
    zone: Option<(Bytes, u64)>,
    disks: Vec<DiskConf>,
    levels: Levels,
    temp_place: Option<Arc<TempPlace>>,
    inactive_s: u64,
    max_bytes: u64,
    min_free_bytes: u64,
    loader: Pace,
    manager: Pace,
}

/// Reads the directive `…_cache_path`.
pub(super) fn read(scope: &mut Scope<'_, Load>, directive: &Directive, family: &Family) -> Result<(), Error> {
    let mut draft = Draft {
        zone: None,
        disks: vec![DiskConf { path: absolute(scope.conf, &directive.args[0]), weight: 1 }],
        levels: Levels::default(),
        temp_place: None,
        inactive_s: INACTIVE_S,
        max_bytes: u64::MAX,
        min_free_bytes: 0,
        loader: Pace::default(),
        manager: Pace::default(),
    };
    for arg in &directive.args[1..] {
        draft.read(scope.conf, directive, arg)?;
    }
    let Some((name, bytes)) = draft.zone.take() else {
        let parts: [&dyn AsRef<[u8]>; 3] = [&"\"", &directive.name, &"\" must have \"keys_zone\" parameter"];
        return Err(directive.error(message(&parts)));
    };
    let paths = scope.conf.environment().services.find::<TempPaths>().cloned();
    for disk in &draft.disks {
        let levels = draft.levels.characters().map(|n| n as u64).collect();
        let path = TempPath::of_cache(disk.path.clone(), levels, &directive.pos);
        paths.as_ref().map_or(Ok(()), |paths| paths.declare(path))?;
    }
    let declared = zones(scope.conf)?.declare(&name, bytes, family.name);
    let zone = declared.map_err(|message| directive.error(message))?;
    if scope.conf.main(family.caches).iter().any(|known| known.cache.name() == zone.name()) {
        return Err(directive.error(message(&[&"duplicate zone \"", &name, &"\""])));
    }
    let caches = scope.conf.environment().services.find::<Arc<Caches>>().cloned();
    let caches = caches.ok_or_else(|| Error::unplaced("no caches"))?;
    let temp_place = draft.temp_place.take();
    let cache = caches.declare(draft.complete(zone));
    scope.conf.main(family.caches).push(Arc::new(FamilyCache { cache, temp_place }));
    Ok(())
}

fn absolute(load: &Load, path: &[u8]) -> PathBuf {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    load.environment().prefix.join(OsStr::from_bytes(path))
}

impl Draft {
    fn complete(self, zone: Arc<Zone>) -> CacheConf {
        let Self { disks, levels, inactive_s, max_bytes, min_free_bytes, loader, manager, .. } = self;
        CacheConf { zone, disks, levels, inactive_s, max_bytes, min_free_bytes, loader, manager }
    }

    fn read(&mut self, load: &Load, directive: &Directive, arg: &Bytes) -> Result<(), Error> {
        let refuse = |text: &str| directive.error(message(&[&text, &" \"", arg, &"\""]));
        let Some(at) = arg.iter().position(|&byte| byte == b'=') else {
            return Err(refuse("invalid parameter"));
        };
        let (name, value) = (&arg[..at], &arg[at + 1..]);
        let invalid = || refuse(&format!("invalid {} value", String::from_utf8_lossy(name)));
        let millis = || {
            units::parse_msec(value)
                .map(|time| time.as_millis().try_into().unwrap_or(u64::MAX))
                .ok_or_else(invalid)
        };
        let files = || {
            let number = units::parse_number(value).and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(invalid)
        };
        match name {
            b"levels" if value.is_empty() => self.levels = Levels::default(),
            b"levels" => self.levels = Levels::parse(value).map_err(|_| refuse("invalid \"levels\""))?,
            b"use_temp_path" => self.temp_place = temp_place(directive, arg, value)?,
            b"keys_zone" => self.zone = Some(zone(directive, arg, value)?),
            b"inactive" => self.inactive_s = units::parse_sec(value).ok_or_else(invalid)?.as_secs(),
            b"max_size" => self.max_bytes = units::parse_offset(value).ok_or_else(invalid)?,
            b"min_free" => self.min_free_bytes = units::parse_offset(value).ok_or_else(invalid)?,
            b"loader_files" => self.loader.files = files()?,
            b"loader_sleep" => self.loader.sleep_ms = millis()?,
            b"loader_threshold" => self.loader.threshold_ms = millis()?,
            b"manager_files" => self.manager.files = files()?,
            b"manager_sleep" => self.manager.sleep_ms = millis()?,
            b"manager_threshold" => self.manager.threshold_ms = millis()?,
            b"disk" if self.disks.len() < CacheConf::DISKS_MAX => {
                self.disks.push(disk(load, value).ok_or_else(invalid)?);
            }
            _ => return Err(refuse("invalid parameter")),
        }
        Ok(())
    }
}

fn temp_place(directive: &Directive, arg: &Bytes, value: &[u8]) -> Result<Option<Arc<TempPlace>>, Error> {
    match value {
        b"on" => Ok(None),
        b"off" => Ok(Some(Arc::new(TempPlace::Beside))),
        _ => {
            let parts: [&dyn AsRef<[u8]>; 3] =
                [&"invalid use_temp_path value \"", arg, &"\", it must be \"on\" or \"off\""];
            Err(directive.error(message(&parts)))
        }
    }
}

/// `NAME:SIZE`
fn zone(directive: &Directive, arg: &Bytes, value: &[u8]) -> Result<(Bytes, u64), Error> {
    let colon = value.iter().position(|&byte| byte == b':');
    let size = colon.and_then(|at| units::parse_size(&value[at + 1..]));
    let (Some(at), Some(bytes)) = (colon, size) else {
        return Err(directive.error(message(&[&"invalid keys zone size \"", arg, &"\""])));
    };
    if bytes < ZONE_MIN_BYTES {
        return Err(directive.error(message(&[&"keys zone \"", arg, &"\" is too small"])));
    }
    let name = arg.slice_ref(&value[..at]);
    if name.is_empty() {
        let parts: [&dyn AsRef<[u8]>; 3] = [&"\"", &directive.name, &"\" must have \"keys_zone\" parameter"];
        return Err(directive.error(message(&parts)));
    }
    Ok((name, bytes))
}

/// `PATH[:WEIGHT]`
fn disk(load: &Load, value: &[u8]) -> Option<DiskConf> {
    let (path, weight) = match value.iter().rposition(|&byte| byte == b':') {
        Some(at) => (&value[..at], u32::try_from(units::parse_number(&value[at + 1..])?).ok()?),
        None => (value, 1),
    };
    (!path.is_empty()).then(|| DiskConf { path: absolute(load, path), weight })
}
