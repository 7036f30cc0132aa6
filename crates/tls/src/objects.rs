//! Certificates and keys whose names have variables in them, as they were read (`…_ssl_certificate_cache`).
//! As in nginx each certificate and each key is an object by itself: both count, and both are looked at again
//! in their own time. Any loop looks for them without waiting; what is not there, or may be too old, a pool's
//! thread reads.
//!
//! Times are whole seconds, as nginx's are: an object is as good as new up to the end of the second in which
//! `valid` is over.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use clearway_base::units::{parse_number, parse_sec};

use crate::files::{Files, PairNames, Stamp, is_file};
use crate::pair::{Chain, Pair};
use crate::reason::{Library, Reason};
use crate::sys::PrivateKey;

/// `max=`, `inactive=` and `valid=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRule {
    /// How many objects there are at most.
    pub entries_max: usize,
    /// One that nobody has asked for longer than this goes, seconds.
    pub inactive_s: u64,
    /// After so long it is looked whether its file has changed, seconds.
    pub valid_s: u64,
}

impl CacheRule {
    /// nginx's defaults, with so many objects.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        const INACTIVE_S: u64 = 10;
        const VALID_S: u64 = 60;
        Self { entries_max, inactive_s: INACTIVE_S, valid_s: VALID_S }
    }

    /// Reads a directive: `off`, which is `None`, or `max=NUMBER [inactive=TIME] [valid=TIME]`.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn read<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Option<Self>, RuleError<'a>> {
        let (mut rule, mut is_off) = (Self::new(0), false);
        for word in words {
            let set = if word == b"off" {
                is_off = true;
                Some(())
            } else if let Some(text) = word.strip_prefix(b"max=") {
                let number = parse_number(text).and_then(|number| usize::try_from(number).ok());
                number.filter(|&number| number > 0).map(|number| rule.entries_max = number)
            } else if let Some(text) = word.strip_prefix(b"inactive=") {
                parse_sec(text).map(|time| rule.inactive_s = time.as_secs())
            } else if let Some(text) = word.strip_prefix(b"valid=") {
                parse_sec(text).map(|time| rule.valid_s = time.as_secs())
            } else {
                None
            };
            set.ok_or(RuleError::Invalid(word))?;
        }
        match (is_off, rule.entries_max) {
            (true, _) => Ok(None),
            (false, 0) => Err(RuleError::NoMax),
            (false, _) => Ok(Some(rule)),
        }
    }
}

/// The fault of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError<'a> {
    /// A word that is none of a rule's.
    Invalid(&'a [u8]),
    /// The number of objects is missing.
    NoMax,
}

/// The certificates and keys that were read, by name.
pub struct ObjectCache {
    rule: CacheRule,
    entries: ArcSwap<HashMap<Name, Arc<Entry>>>,
    /// Counts uses: the entry with the lowest number was not used for the longest time.
    clock: AtomicU64,
    /// Taken by threads of pools alone.
    change: Mutex<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Chain,
    Key,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    kind: Kind,
    name: Box<[u8]>,
}

#[derive(Clone)]
enum Object {
    Chain(Arc<Chain>),
    Key(Arc<PrivateKey>),
}

struct Entry {
    object: Object,
    /// The identity of its file when it was read; `None` if it has no file.
    stamp: Option<Stamp>,
    checked_s: AtomicU64,
    used_s: AtomicU64,
    used: AtomicU64,
}

/// Whether what is known may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Known,
    /// Everything is read again: of a certificate and its key only one was changed so far.
    None,
}

impl ObjectCache {
    /// An empty one.
    #[must_use]
    pub fn new(rule: CacheRule) -> Self {
        debug_assert!(rule.entries_max > 0, "a cache without room is none");
        let (entries, clock, change) = (ArcSwap::default(), AtomicU64::new(0), Mutex::new(()));
        Self { rule, entries, clock, change }
    }

    /// A pair of which neither part need be looked at. Any thread.
    #[must_use]
    pub fn find(&self, names: PairNames<'_>, now_s: u64) -> Option<Pair> {
        let chain = self.fresh(Kind::Chain, names.certificate, now_s)?;
        let key = self.fresh(Kind::Key, names.key, now_s)?;
        let (Object::Chain(chain), Object::Key(key)) = (chain, key) else { return None };
        Some(Pair::new(chain, key)).filter(Pair::is_matched)
    }

    /// Loads objects, checking the files, or as they are read now. **Blocks.**
    ///
    /// # Errors
    /// nginx's message about a file that cannot be loaded.
    pub fn load(
        &self,
        names: PairNames<'_>,
        passwords: &[Vec<u8>],
        now_s: u64,
        files: &dyn Files,
    ) -> Result<Pair, String> {
        let pair = self.load_with(names, passwords, now_s, (files, Trust::Known))?;
        if pair.is_matched() {
            return Ok(pair);
        }
        let pair = self.load_with(names, passwords, now_s, (files, Trust::None))?;
        if pair.is_matched() { Ok(pair) } else { Err(mismatch(names)) }
    }

    fn load_with(
        &self,
        names: PairNames<'_>,
        passwords: &[Vec<u8>],
        now_s: u64,
        (files, trust): (&dyn Files, Trust),
    ) -> Result<Pair, String> {
        let read_chain =
            || Ok((Object::Chain(Arc::new(names.load_chain(&mut |name| files.read(name))?)), Keep::Yes));
        let chain = self.renew(Kind::Chain, names.certificate, now_s, (files, trust), read_chain)?;
        let read_key = || {
            let key = names.load_key(passwords, &mut |name| files.read(name))?;
            let keep = if key.was_encrypted() { Keep::No } else { Keep::Yes };
            Ok((Object::Key(Arc::new(key)), keep))
        };
        let key = self.renew(Kind::Key, names.key, now_s, (files, trust), read_key)?;
        match (chain, key) {
            (Object::Chain(chain), Object::Key(key)) => Ok(Pair::new(chain, key)),
            _ => Err(mismatch(names)),
        }
    }

    fn fresh(&self, kind: Kind, name: &[u8], now_s: u64) -> Option<Object> {
        let entries = self.entries.load();
        let entry = entries.get(&Name { kind, name: name.into() })?;
        let age_s = now_s.saturating_sub(entry.checked_s.load(Ordering::Relaxed));
        let is_fresh = entry.stamp.is_none() && !is_file(name) || age_s <= self.rule.valid_s;
        is_fresh.then(|| {
            self.note_use(entry, now_s);
            entry.object.clone()
        })
    }

    fn note_use(&self, entry: &Entry, now_s: u64) {
        entry.used_s.store(now_s, Ordering::Relaxed);
        entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// One object, which is read where what is known of it does not hold.
    fn renew(
        &self,
        kind: Kind,
        name: &[u8],
        now_s: u64,
        (files, trust): (&dyn Files, Trust),
        read: impl FnOnce() -> Result<(Object, Keep), String>,
    ) -> Result<Object, String> {
        if trust == Trust::Known
            && let Some(object) = self.fresh(kind, name, now_s)
        {
            return Ok(object);
        }
        // Taken before it is read: what is changed meanwhile is looked at again.
        let stamp = if is_file(name) { files.stamp(name).ok() } else { None };
        let id = Name { kind, name: name.into() };
        let known = self.entries.load().get(&id).filter(|_| trust == Trust::Known).cloned();
        if let Some(entry) = known.filter(|entry| stamp.is_some() && entry.stamp == stamp) {
            entry.checked_s.store(now_s, Ordering::Relaxed);
            self.note_use(&entry, now_s);
            return Ok(entry.object.clone());
        }
        match read() {
            Ok((object, Keep::Yes)) => {
                self.insert(id, object.clone(), stamp, now_s);
                Ok(object)
            }
            Ok((object, Keep::No)) => {
                self.remove(&id);
                Ok(object)
            }
            Err(said) => {
                self.remove(&id);
                Err(said)
            }
        }
    }

    fn insert(&self, name: Name, object: Object, stamp: Option<Stamp>, now_s: u64) {
        let _guard = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = HashMap::clone(&self.entries.load());
        entries.remove(&name);
        entries.retain(|_, entry| {
            now_s.saturating_sub(entry.used_s.load(Ordering::Relaxed)) <= self.rule.inactive_s
        });
        while entries.len() >= self.rule.entries_max {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { break };
            entries.remove(&oldest);
        }
        debug_assert!(entries.len() < self.rule.entries_max, "there is room for one more");
        debug_assert_eq!(
            name.kind == Kind::Key,
            matches!(object, Object::Key(_)),
            "an object is kept as what it is"
        );
        let [checked_s, used_s] = [now_s, now_s].map(AtomicU64::new);
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        entries.insert(name, Arc::new(Entry { object, stamp, checked_s, used_s, used }));
        self.entries.store(Arc::new(entries));
    }

    fn remove(&self, name: &Name) {
        if !self.entries.load().contains_key(name) {
            return;
        }
        let _guard = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = HashMap::clone(&self.entries.load());
        entries.remove(name);
        self.entries.store(Arc::new(entries));
    }
}

/// Whether an object is kept: a key behind a password is not, as in nginx.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

/// nginx's message for a key of another certificate.
fn mismatch(names: PairNames<'_>) -> String {
    let reason = Reason::named(Library::X509, "KEY_VALUES_MISMATCH");
    format!("SSL_use_PrivateKey(\"{}\") failed (SSL: {reason})", String::from_utf8_lossy(names.key))
}

/// A pair by its names, from a cache if there is one. **Blocks.**
///
/// # Errors
/// nginx's message about a file that cannot be loaded.
pub fn load_pair(
    cache: Option<&ObjectCache>,
    names: PairNames<'_>,
    passwords: &[Vec<u8>],
    now_s: u64,
    files: &dyn Files,
) -> Result<Pair, String> {
    match cache {
        Some(cache) => cache.load(names, passwords, now_s, files),
        None => {
            let pair = names.load(passwords, &mut |name| files.read(name))?;
            if pair.is_matched() { Ok(pair) } else { Err(mismatch(names)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io;

    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../tests/data/ecdsa.pem");
    const KEY: &[u8] = include_bytes!("../tests/data/ecdsa.key");
    const OTHER: &[u8] = include_bytes!("../tests/data/other.pem");

    /// Files of a test: `NAME.crt` and `NAME.key`, and how often they were read.
    struct Fake {
        inode: Cell<u64>,
        certificate: Cell<&'static [u8]>,
        read: RefCell<Vec<String>>,
    }

    impl Files for Fake {
        fn read(&self, name: &[u8]) -> io::Result<Vec<u8>> {
            let name = String::from_utf8_lossy(name).into_owned();
            self.read.borrow_mut().push(name.clone());
            match name.as_str() {
                "none.crt" => Err(io::Error::from_raw_os_error(2)),
                name if name.ends_with(".key") => Ok(KEY.to_vec()),
                _ => Ok(self.certificate.get().to_vec()),
            }
        }

        fn stamp(&self, _: &[u8]) -> io::Result<Stamp> {
            Ok(Stamp { inode: self.inode.get(), changed_s: 0 })
        }
    }

    fn fake() -> Fake {
        Fake { inode: Cell::new(1), certificate: Cell::new(CERTIFICATE), read: RefCell::default() }
    }

    fn with_names<T>(text: &str, then: impl FnOnce(PairNames<'_>) -> T) -> T {
        let [certificate, key] = ["crt", "key"].map(|kind| format!("{text}.{kind}").into_bytes());
        then(PairNames { certificate: &certificate, key: &key })
    }

    /// The object that was read for it.
    fn loaded(cache: &ObjectCache, files: &Fake, text: &str, now_s: u64) -> String {
        with_names(text, |names| cache.load(names, &[], now_s, files)).unwrap();
        files.read.take().join(" ")
    }

    fn is_found(cache: &ObjectCache, text: &str, now_s: u64) -> bool {
        with_names(text, |names| cache.find(names, now_s)).is_some()
    }

    #[test]
    fn files_are_read_again_when_they_have_changed() {
        let (cache, files) = (ObjectCache::new(CacheRule::new(10)), fake());
        assert!(!is_found(&cache, "a", 0));
        assert_eq!(loaded(&cache, &files, "a", 0), "a.crt a.key");
        assert!(is_found(&cache, "a", 60) && !is_found(&cache, "a", 61));
        assert_eq!(loaded(&cache, &files, "a", 61), "");
        assert!(is_found(&cache, "a", 62));
        files.inode.set(2);
        assert_eq!(loaded(&cache, &files, "a", 130), "a.crt a.key");
    }

    #[test]
    fn rules_are_read_as_nginx_does() {
        let read = |text: &'static str| CacheRule::read(text.split(' ').map(str::as_bytes));
        let rule = CacheRule { entries_max: 5, inactive_s: 60, valid_s: 2 };
        assert_eq!(read("max=5 inactive=1m valid=2"), Ok(Some(rule)));
        assert_eq!([read("off"), read("max=5 off")], [Ok(None), Ok(None)]);
        assert_eq!(read("valid=2"), Err(RuleError::NoMax));
        for word in ["max=0", "max=x", "inactive=x", "valid=", "on"] {
            assert_eq!(read(word), Err(RuleError::Invalid(word.as_bytes())));
        }
    }

    #[test]
    fn certificates_and_keys_count_each() {
        let (cache, files) = (ObjectCache::new(CacheRule::new(4)), fake());
        for text in ["a", "b", "c"] {
            loaded(&cache, &files, text, 0);
        }
        assert_eq!(["a", "b", "c"].map(|text| is_found(&cache, text, 0)), [false, true, true]);
        loaded(&cache, &files, "d", 20);
        assert_eq!(["b", "c", "d"].map(|text| is_found(&cache, text, 20)), [false, false, true]);
    }

    #[test]
    fn a_key_of_an_older_certificate_is_read_again() {
        let (cache, files) = (ObjectCache::new(CacheRule::new(4)), fake());
        files.certificate.set(OTHER);
        let said = with_names("a", |names| cache.load(names, &[], 0, &files)).err().unwrap();
        assert_eq!(
            said,
            "SSL_use_PrivateKey(\"a.key\") failed (SSL: error:05800074:x509 certificate \
             routines::key values mismatch)"
        );
        assert_eq!(files.read.take().join(" "), "a.crt a.key a.crt a.key");
        assert!(!is_found(&cache, "a", 0));
        files.certificate.set(CERTIFICATE);
        assert_eq!(loaded(&cache, &files, "a", 0), "a.crt a.key");
    }

    #[test]
    fn what_cannot_be_read_is_not_kept() {
        let (cache, files) = (ObjectCache::new(CacheRule::new(4)), fake());
        let said = with_names("none", |names| cache.load(names, &[], 0, &files)).err().unwrap();
        assert!(said.starts_with("cannot load certificate \"none.crt\": BIO_new_file() failed"), "{said}");
        assert!(!is_found(&cache, "none", 0));
        let uncached = with_names("a", |names| load_pair(None, names, &[], 0, &files));
        assert!(uncached.unwrap().is_matched());
    }
}
