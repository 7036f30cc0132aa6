//! The common part of `limit_req` and `limit_conn`: zones with a key, what becomes of requests that are
//! refused, and that a request with all its subrequests is counted once. Runs at boot, and in the preaccess
//! phase on a loop.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_base::units;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error};
use clearway_http::{
    ConfKey, ContextKey, Lasts, Load, Merge, Own, Request, Setting, Text, Value, Verbatim, View, set,
    settings,
};
use clearway_zone::{Zone, Zones};

/// The smallest zone that nginx accepts, bytes: eight pages.
const ZONE_MIN_BYTES: u64 = 8 * 4096;

/// The levels that lines about refused requests may have.
const LOG_LEVELS: [(&str, LogLevel); 4] = [
    ("info", LogLevel::Info),
    ("notice", LogLevel::Notice),
    ("warn", LogLevel::Warn),
    ("error", LogLevel::Error),
];

/// A module that counts by the keys of zones. `R` is what its zones know besides the key.
pub(crate) struct Family<R: Send + Sync + 'static> {
    /// The module that its zones are of.
    pub(crate) module: &'static str,
    pub(crate) zones: &'static ConfKey<LimitZones<R>>,
    /// How it calls a zone where the key is another one than before.
    pub(crate) zone_word: &'static str,
    /// Longest value of a key, bytes.
    pub(crate) key_max_bytes: usize,
}

/// All zones that a directive of a module names.
pub(crate) type LimitZones<R> = Own<Vec<Arc<LimitZone<R>>>>;

/// A zone and what the directive says that makes it, which may come after its first use.
pub(crate) struct LimitZone<R> {
    pub(crate) zone: Arc<Zone>,
    rule: OnceLock<Rule<R>>,
}

struct Rule<R> {
    key: Value,
    /// The key as it is written.
    text: Bytes,
    more: R,
}

impl<R: Send + Sync + 'static> Family<R> {
    /// The zone of that name; `bytes` is 0 where the directive does not say its size.
    pub(crate) fn declare(
        &self,
        load: &mut Load,
        directive: &Directive,
        name: &[u8],
        bytes: u64,
    ) -> Result<Arc<LimitZone<R>>, Error> {
        let zones = load.environment().services.find::<Arc<Zones>>().cloned();
        let zones = zones.ok_or_else(|| Error::unplaced("no shared memory zones"))?;
        let declared = zones.declare(name, bytes, self.module);
        let zone: Arc<Zone> = declared.map_err(|message| directive.error(message))?;
        let known = load.main(self.zones);
        if let Some(known) = known.iter().find(|known| Arc::ptr_eq(&known.zone, &zone)) {
            return Ok(Arc::clone(known));
        }
        let new = Arc::new(LimitZone { zone, rule: OnceLock::new() });
        known.push(Arc::clone(&new));
        Ok(new)
    }

    /// Makes a zone of the key that is the first argument of the directive.
    pub(crate) fn make(
        &self,
        load: &mut Load,
        directive: &Directive,
        (name, bytes): (Bytes, u64),
        key: Value,
        more: R,
    ) -> Result<(), Error> {
        let text = directive.args[0].clone();
        let zone = self.declare(load, directive, &name, bytes)?;
        let (label, word) = (text.clone(), self.zone_word);
        zone.zone.when_opened(move |zone| check_key(zone, word, &label));
        zone.rule.set(Rule { key, text, more }).map_err(|_| {
            let bound = zone.rule.get().map_or(&b""[..], |rule| &rule.text);
            let parts: [&dyn AsRef<[u8]>; 6] =
                [&directive.name, &" \"", &name, &"\" is already bound to key \"", &bound, &"\""];
            directive.error(message(&parts))
        })
    }

    /// The value of a zone's key and what else the zone knows, if the request counts there.
    pub(crate) fn key<'c>(&self, zone: &'c LimitZone<R>, view: &View<'_, 'c>) -> Option<(Text<'c>, &'c R)> {
        let rule = zone.rule.get()?;
        let value = rule.key.eval(view);
        if value.is_empty() {
            return None;
        }
        if value.len() > self.key_max_bytes {
            let (name, most, value) = (Verbatim(&rule.text), self.key_max_bytes, Verbatim(&value));
            let message =
                format_args!("the value of the \"{name}\" key is more than {most} bytes: \"{value}\"");
            view.request.log(LogLevel::Error, message);
            return None;
        }
        Some((value, &rule.more))
    }
}

/// Checks that a zone is used with one key only.
fn check_key(zone: &Zone, word: &str, key: &[u8]) -> Result<(), Vec<u8>> {
    zone.check_label(key).map_err(|previous| {
        let parts: [&dyn AsRef<[u8]>; 8] = [
            &word,
            &" \"",
            &zone.name(),
            &"\" uses the \"",
            &key,
            &"\" key while previously it used the \"",
            &previous,
            &"\" key",
        ];
        message(&parts)
    })
}

/// `TEXT "VALUE"`, on the line of the directive.
pub(crate) fn refuse(directive: &Directive, text: &str, value: &[u8]) -> Error {
    directive.error(message(&[&text, &" \"", &value, &"\""]))
}

/// A directive that makes a zone and does not say which.
pub(crate) fn no_zone(directive: &Directive) -> Error {
    directive.error(message(&[&"\"", &directive.name, &"\" must have \"zone\" parameter"]))
}

/// Takes `NAME:SIZE` apart.
pub(crate) fn zone_and_size(directive: &Directive, arg: &Bytes, zone: &[u8]) -> Result<(Bytes, u64), Error> {
    let colon = memchr::memchr(b':', zone);
    let size = colon.and_then(|at| units::parse_size(&zone[at + 1..]));
    let (Some(at), Some(bytes)) = (colon, size) else {
        return Err(refuse(directive, "invalid zone size", arg));
    };
    if bytes < ZONE_MIN_BYTES {
        return Err(directive.error(message(&[&"zone \"", arg, &"\" is too small"])));
    }
    Ok((arg.slice_ref(&zone[..at]), bytes))
}

/// The settings of a level: its limits, and the fate of a request that exceeds one.
pub(crate) struct LimitConf<L> {
    pub(crate) limits: Setting<Vec<L>>,
    pub(crate) refusal: Refusal,
}

impl<L> Default for LimitConf<L> {
    fn default() -> Self {
        Self { limits: Setting::default(), refusal: Refusal::default() }
    }
}

impl<L: Clone> Merge for LimitConf<L> {
    fn merge(&mut self, parent: &Self) {
        let Self { limits, refusal } = self;
        limits.merge(&parent.limits);
        refusal.merge(&parent.refusal);
    }
}

settings! {
    /// The fate of a request that is refused.
    pub(crate) struct Refusal {
        pub(crate) log_level: Setting<LogLevel> = LogLevel::Error,
        pub(crate) status: Setting<u16> = 503,
        pub(crate) dry_run: Setting<bool> = false,
    }
}

impl Refusal {
    pub(crate) fn read_log_level(&mut self, directive: &Directive) -> Result<(), Error> {
        set(directive, &mut self.log_level, |directive| directive.choice(0, &LOG_LEVELS))
    }

    pub(crate) fn read_status(&mut self, directive: &Directive) -> Result<(), Error> {
        set(directive, &mut self.status, |directive| Ok(directive.number_within(0, 400, Some(599))? as u16))
    }

    pub(crate) fn read_dry_run(&mut self, directive: &Directive) -> Result<(), Error> {
        set(directive, &mut self.dry_run, |directive| directive.flag(0))
    }
}

/// The verdict on the first subrequest that was counted, if the client's request was not.
struct OfSubrequest<T>(OnceLock<T>);

impl<T> Default for OfSubrequest<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

/// Under what a module keeps what became of requests. Always a `static`.
pub(crate) struct ConclusionKey<T> {
    own: ContextKey<T>,
    of_subrequest: ContextKey<OfSubrequest<T>>,
}

impl<T> ConclusionKey<T> {
    pub(crate) const fn new() -> Self {
        Self { own: ContextKey::new(Lasts::Inherited), of_subrequest: ContextKey::new(Lasts::Common) }
    }
}

/// Keeps what became of a request for the rest of it, also for its subrequests.
pub(crate) fn conclude<T: Send + Sync>(
    request: &mut Request<'_>,
    key: &'static ConclusionKey<T>,
    conclusion: T,
) {
    if request.is_main() {
        // Subrequests that begin later inherit it.
        request.set_context(&key.own, conclusion);
    } else {
        let first = request.common_context(&key.of_subrequest).0.set(conclusion).is_ok();
        debug_assert!(first, "one task asks and sets");
    }
}

/// The verdict on a request, or on the subrequest that was counted in its place.
pub(crate) fn conclusion<T: Send + Sync, R>(
    request: &Request<'_>,
    key: &'static ConclusionKey<T>,
    read: impl FnOnce(&T) -> R,
) -> Option<R> {
    match request.context(&key.own) {
        Some(own) => Some(read(own)),
        None => request.find_common_context(&key.of_subrequest)?.0.get().map(read),
    }
}
