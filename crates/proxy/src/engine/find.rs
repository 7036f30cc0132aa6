//! Looks for an object: in the index, on its disk, among those that are on their way in. Loops where another
//! variant is the right one, and where what was waited for has ended.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

use clearway_base::log::{Level, Verbatim};
use clearway_cache::disks::{Found, Growing, Miss, Wanted, Whereabouts};
use clearway_cache::index::{Object, Stored, Update};
use clearway_cache::{Digest, Entered, Follower, Verdict};
use clearway_http::{ContextKey, Delivery, Exchange, Lasts, Request, Subrequest};
use clearway_runtime::{TaskCell, Timer};

use crate::attempts::CacheStatus;
use crate::engine::object::{Cached, Keepable, Stale, Updating};
use crate::engine::patience::patiently;
use crate::settings::masks::Failures;
use crate::settings::pass::PassConf;

/// The object that a subrequest renews.
static RENEWED: ContextKey<Renewal> = ContextKey::new(Lasts::Inherited);

/// An object that is renewed beside the request that has found it too old.
struct Renewal {
    digest: Digest,
    /// The update that has begun, until the subrequest has it: nobody else begins one in between.
    update: TaskCell<Option<Updating>>,
}

/// How often a request waits for another one and looks again, at most.
const LOOKS_MAX: u32 = 8;

/// How long it takes at first until a request looks again what another worker process has come to, ms.
const LOCK_PAUSE_MIN_MS: u64 = 10;
/// How long later, ms; nginx takes half a second.
const LOCK_PAUSE_MAX_MS: u64 = 160;

/// The longest wait of a request for another one that has received the whole response and only writes it,
/// milliseconds.
const PUBLISHING_MS: u64 = 1_000;

/// The result of a look into the cache.
pub(super) enum Lookup {
    /// A server is asked.
    Ask(Box<Cached>),
    /// An error that is remembered.
    Remembered(u16),
    /// An object that is sent; the rest is for the case that it cannot be read.
    Found(CacheStatus, Box<Found>, Box<Cached>),
    /// Another request is fetching the object: it can be followed.
    Follow(Follower<Growing>, Growing, Box<Cached>),
}

/// The result of one look into the cache.
enum Look {
    Settled(Lookup),
    /// Another object may be the right one, or this one may have changed: look again.
    Again(Box<Cached>),
}

/// A request that looks for an object.
pub(super) struct Finding<'a, 'c> {
    request: &'a mut Request<'c>,
    pass: &'c PassConf,
    cached: Option<Box<Cached>>,
    /// When waiting for others ends, on the clock of the loop.
    patience_ms: Option<u64>,
    /// The object whose uses were counted.
    counted: Option<Digest>,
    uses: u64,
}

impl<'a, 'c> Finding<'a, 'c> {
    pub(super) fn new(request: &'a mut Request<'c>, pass: &'c PassConf, cached: Box<Cached>) -> Self {
        Self { request, pass, cached: Some(cached), patience_ms: None, counted: None, uses: 1 }
    }

    /// The update that the request was begun for, if it is this object's.
    fn renewal(&self, digest: Digest) -> Option<&Renewal> {
        self.request.context(&RENEWED).filter(|renewal| renewal.digest == digest && self.request.is_clone())
    }

    pub(super) async fn run(mut self) -> Lookup {
        for _ in 0..LOOKS_MAX {
            let cached = self.cached.take().expect("there is one at each look");
            match self.look(cached).await {
                Look::Settled(lookup) => return lookup,
                Look::Again(cached) => self.cached = Some(cached),
            }
        }
        let cached = self.cached.take().expect("looked again, it is there");
        Lookup::Ask(cached)
    }

    async fn look(&mut self, mut cached: Box<Cached>) -> Look {
        let now_s = self.request.now_unix_s();
        let now = u64::try_from(now_s).unwrap_or(0);
        await_publication(self.request, &cached).await;
        let known = self.count(&cached, now);
        if let Some(Stored::Error { status, valid_s }) = known.map(|object| object.stored)
            && valid_s >= now
        {
            return Look::Settled(Lookup::Remembered(status));
        }
        match cached.cache.whereabouts_of(cached.digest, known) {
            Whereabouts::Nowhere(_) => {}
            Whereabouts::Out => {
                cached.keepable = Keepable::No;
                return Look::Settled(Lookup::Ask(cached));
            }
            Whereabouts::Disk(disk) | Whereabouts::Perhaps(disk) => match self.open(&cached, disk).await {
                Ok(found) => return self.judge(cached, found).await,
                Err(NotOpened::Absent) => {}
                Err(NotOpened::Refused) => {
                    cached.keepable = Keepable::No;
                    return Look::Settled(Lookup::Ask(cached));
                }
            },
        }
        if self.uses < *self.pass.cache.min_uses {
            cached.keepable = Keepable::No;
            return Look::Settled(Lookup::Ask(cached));
        }
        self.enter(cached).await
    }

    /// Counts the use of an object, once; what is known of it.
    fn count(&mut self, cached: &Cached, now_s: u64) -> Option<Object> {
        let index = cached.cache.index();
        if self.counted != Some(cached.digest) {
            self.counted = Some(cached.digest);
            self.uses = index.count_use(cached.digest, now_s).map_or(u64::MAX, u64::from);
        }
        index.get(cached.digest)
    }

    /// Opens the file, which is on this disk.
    async fn open(&self, cached: &Cached, disk: u8) -> Result<Found, NotOpened> {
        let wanted = Wanted {
            key: Arc::clone(&cached.key),
            digest: cached.digest,
            head_max_bytes: usize::try_from(*self.pass.buffer_bytes).unwrap_or(usize::MAX),
        };
        let task = cached.cache.open_on(disk, wanted, cached.pool.as_ref());
        let opened = patiently(self.request, task).await.ok_or(NotOpened::Refused)?;
        opened.map_err(|miss| match miss {
            Miss::Absent => NotOpened::Absent,
            Miss::Unusable { path, why } => {
                self.tell(why.level(), &path, &why);
                NotOpened::Absent
            }
            Miss::Broken { path } => {
                self.tell(Level::Crit, &path, &"is broken");
                NotOpened::Absent
            }
            Miss::Failed(error) => {
                self.request.log(Level::Crit, format_args!("{error}"));
                NotOpened::Refused
            }
            Miss::Out | Miss::Doubtful => NotOpened::Refused,
        })
    }

    /// Says why a file is not used.
    fn tell(&self, level: Level, path: &Path, why: &dyn fmt::Display) {
        let path = Verbatim::path(path);
        self.request.log(level, format_args!("cache file \"{path}\" {why}"));
    }

    /// Whether a file is the variant that is wanted, and may be used.
    async fn judge(&mut self, mut cached: Box<Cached>, found: Found) -> Look {
        let header = found.header(&cached.key);
        if let Some(other) = cached.other_variant(self.request, &header) {
            if cached.digest != cached.key.digest() {
                self.tell(Level::Crit, &found.path, &"has incorrect vary hash");
                return self.enter(cached).await;
            }
            debug_assert_ne!(cached.digest, other, "another variant has another file");
            cached.digest = other;
            return Look::Again(cached);
        }
        let now_s = self.request.now_unix_s();
        if header.valid_sec >= now_s {
            return Look::Settled(Lookup::Found(CacheStatus::Hit, Box::new(found), cached));
        }
        let until = |seconds: i64| header.valid_sec.saturating_add(seconds) >= now_s;
        let (on_update, on_error) = (until(header.updating_sec), until(header.error_sec));
        let renewal = self.renewal(cached.digest);
        let may_wait = (self.pass.cache.stale_for(Failures::UPDATING) || on_update) && renewal.is_none();
        cached.update = renewal.and_then(|renewal| renewal.update.enter().take());
        let is_busy = cached.update.is_none() && {
            let begun = cached.cache.begin_update(cached.digest);
            matches!(begun, Ok(Update::Busy(_)))
        };
        if !is_busy && cached.update.is_none() {
            cached.update = Some(Updating::begun(&cached.cache, cached.digest));
        }
        let status = match may_wait {
            true if is_busy => CacheStatus::Updating,
            true if *self.pass.cache.background_update => CacheStatus::Stale,
            _ => CacheStatus::Expired,
        };
        if status != CacheStatus::Expired {
            return Look::Settled(Lookup::Found(status, Box::new(found), cached));
        }
        debug_assert!(cached.stale.is_none(), "one object is looked at");
        debug_assert!(cached.lead.is_none(), "nobody follows a request that still looks");
        cached.stale = Some(Box::new(Stale { found, on_error }));
        cached.status = status;
        if let Entered::Leads(led) = cached.cache.fills().enter(cached.digest) {
            cached.lead = Some(led);
        }
        Look::Settled(Lookup::Ask(cached))
    }

    /// Fetches the object, or waits for the request that does.
    async fn enter(&mut self, mut cached: Box<Cached>) -> Look {
        debug_assert!(cached.lead.is_none(), "a request leads one fill");
        let follower = match cached.cache.fills().enter(cached.digest) {
            Entered::Leads(led) => {
                cached.lead = Some(led);
                return if *self.pass.cache.lock {
                    self.lock(cached).await
                } else {
                    Look::Settled(Lookup::Ask(cached))
                };
            }
            Entered::Follows(follower) => follower,
        };
        let now_s = u64::try_from(self.request.now_unix_s()).unwrap_or(0);
        if !*self.pass.cache.lock || cached.cache.fills().is_unkept(cached.digest, now_s) {
            return Look::Settled(Lookup::Ask(cached));
        }
        self.wait(cached, follower).await
    }

    /// Tells other worker processes that it fetches the object (`proxy_cache_lock`), or waits until the one
    /// that does has stored it or has given up. That is looked at again and again, as in nginx; requests of
    /// this process follow meanwhile.
    async fn lock(&mut self, mut cached: Box<Cached>) -> Look {
        let home = self.request.home();
        let (conf, begin_ms) = (&self.pass.cache, home.now_ms());
        let patience_ms = *self.patience_ms.get_or_insert(begin_ms + *conf.lock_timeout_ms);
        let until_ms = patience_ms.min(begin_ms + *conf.lock_age_ms);
        let mut pause_ms = LOCK_PAUSE_MIN_MS;
        while cached.cache.is_updated_elsewhere(cached.digest) {
            if home.now_ms() >= until_ms {
                if until_ms == patience_ms {
                    cached.keepable = Keepable::No;
                    cached.lead = None;
                    if *conf.lock_timeout_ms > 0 {
                        self.request.log(Level::Info, format_args!("cache lock timeout"));
                    }
                }
                return Look::Settled(Lookup::Ask(cached));
            }
            let timer = Timer::new(home);
            timer.arm(until_ms.min(home.now_ms() + pause_ms));
            poll_fn(|cx| timer.poll_expired(cx)).await;
            pause_ms = (2 * pause_ms).min(LOCK_PAUSE_MAX_MS);
        }
        if pause_ms > LOCK_PAUSE_MIN_MS {
            // The others of this process look again as well.
            cached.lead = None;
            return Look::Again(cached);
        }
        if matches!(cached.cache.begin_update(cached.digest), Ok(Update::Begun)) {
            cached.update = Some(Updating::begun(&cached.cache, cached.digest));
        }
        Look::Settled(Lookup::Ask(cached))
    }

    /// Waits until it is known what becomes of the response that another request fetches.
    async fn wait(&mut self, mut cached: Box<Cached>, mut follower: Follower<Growing>) -> Look {
        let home = self.request.home();
        let conf = &self.pass.cache;
        let now_ms = home.now_ms();
        let patience_ms = *self.patience_ms.get_or_insert(now_ms + *conf.lock_timeout_ms);
        let until_ms = patience_ms.min(now_ms + *conf.lock_age_ms);
        debug_assert!(cached.lead.is_none(), "a request that leads does not wait");
        let timer = Timer::new(home);
        timer.arm(until_ms);
        let verdict = poll_fn(|cx| match follower.poll_verdict(cx) {
            Poll::Ready(verdict) => Poll::Ready(Some(verdict)),
            Poll::Pending if home.now_ms() >= until_ms => Poll::Ready(None),
            Poll::Pending => timer.poll_expired(cx).map(|()| None),
        });
        match verdict.await {
            Some(Some(Verdict::Stored(growing))) => Look::Settled(Lookup::Follow(follower, growing, cached)),
            Some(Some(Verdict::NotStored)) => Look::Settled(Lookup::Ask(cached)),
            Some(None) => Look::Again(cached),
            None if until_ms < patience_ms => Look::Settled(Lookup::Ask(cached)),
            None => {
                if *conf.lock_timeout_ms > 0 {
                    self.request.log(Level::Info, format_args!("cache lock timeout"));
                }
                cached.keepable = Keepable::No;
                Look::Settled(Lookup::Ask(cached))
            }
        }
    }
}

/// Waits for a request that has received all of a response and writes it: a client that has got its end
/// finds it in the cache.
pub(super) async fn await_publication(request: &Request<'_>, cached: &Cached) {
    let Some(mut follower) = cached.cache.fills().find(cached.digest) else { return };
    if !follower.is_received() {
        return;
    }
    let home = request.home();
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + PUBLISHING_MS);
    poll_fn(|cx| {
        let is_over = follower.poll_beyond(cx, u64::MAX).is_ready() || timer.poll_expired(cx).is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Begins to renew an object beside the request, and the next ones of its connection; whether that could be
/// begun.
pub(super) fn start_renewal(exchange: &mut Exchange<'_, '_>, cached: &mut Cached) -> bool {
    let renewal = Renewal { digest: cached.digest, update: TaskCell::new(cached.update.take()) };
    exchange.request.set_context(&RENEWED, renewal);
    let wanted = Subrequest::clone_of(exchange.request, Delivery::HeadOnly);
    exchange.start_apart(wanted).is_ok()
}

/// Why there is no file.
enum NotOpened {
    Absent,
    /// The disk does not do its work: nothing is kept on it now.
    Refused,
}
