//! The state of a request with a cache after that was looked into: the key under which its response is kept,
//! a stale object, and the other requests that know of it. Owned by the request's task.

use std::sync::Arc;

use clearway_cache::disks::{Cache, Found, Growing, TempPlace};
use clearway_cache::{Digest, Key, Led, StoredHeader, Verdict, variant};
use clearway_http::Request;
use clearway_offload::Pool;

use crate::attempts::CacheStatus;
use crate::settings::masks::Failures;
use crate::settings::pass::PassConf;

/// Whether a response may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keepable {
    No,
    Yes,
}

/// A request that asks a server, and may keep what it answers.
pub(super) struct Cached {
    pub(super) cache: Arc<Cache>,
    /// The place where its file is written first.
    pub(super) temp_place: Option<Arc<TempPlace>>,
    pub(super) key: Arc<Key>,
    /// The name of the file: the key's digest, or that of a variant.
    pub(super) digest: Digest,
    pub(super) status: CacheStatus,
    pub(super) keepable: Keepable,
    /// The object that is there and may not be used any longer.
    pub(super) stale: Option<Box<Stale>>,
    /// Other requests find this request as the one that fetches the response.
    pub(super) lead: Option<Led<Growing>>,
    /// Other requests find that the response is being renewed.
    pub(super) update: Option<Updating>,
    /// The pool of `aio threads=`; without it the disk's own pool works.
    pub(super) pool: Option<Arc<Pool>>,
}

/// An object that may not be used any longer, but perhaps where nobody answers.
pub(super) struct Stale {
    pub(super) found: Found,
    /// The object says that it may be sent where servers fail (`stale-if-error`).
    pub(super) on_error: bool,
}

/// An update that is under way; dropped, it has ended.
pub(super) struct Updating {
    /// `None`: the publication of the object has ended it.
    cache: Option<Arc<Cache>>,
    digest: Digest,
}

impl Updating {
    /// An object of which the cache was told that it is being updated.
    pub(super) fn begun(cache: &Arc<Cache>, digest: Digest) -> Self {
        Self { cache: Some(Arc::clone(cache)), digest }
    }

    /// The object was published, which has ended the update.
    pub(super) fn end_published(mut self) {
        self.cache = None;
    }
}

impl Drop for Updating {
    fn drop(&mut self) {
        if let Some(cache) = &self.cache {
            // If others were faster each time, the update ends with the next publication.
            let _ = cache.end_update(self.digest);
        }
    }
}

impl Cached {
    /// Whether the old response is sent because of a failure.
    pub(super) fn covers(&self, pass: &PassConf, failure: Failures) -> bool {
        self.status == CacheStatus::Expired
            && self.stale.as_ref().is_some_and(|stale| stale.on_error || pass.cache.stale_for(failure))
    }

    /// The digest of another variant, if the request does not want this one.
    pub(super) fn other_variant(&self, request: &Request<'_>, header: &StoredHeader<'_>) -> Option<Digest> {
        if header.vary.is_empty() {
            return None;
        }
        let wanted = self.variant(request, header.vary);
        (wanted != header.variant).then_some(wanted)
    }

    /// The variant of a response with this `Vary` that the request wants.
    pub(super) fn variant(&self, request: &Request<'_>, vary: &[u8]) -> Digest {
        // Lines of the request are looked through once for each name.
        let lines: Vec<(&[u8], &[u8])> = request.headers().map(|line| (line.name, line.value)).collect();
        variant(self.key.digest(), vary, lines.into_iter())
    }

    /// The pool that reads an object: that of its disk, unless the location names another one.
    pub(super) fn reader(&self, found: &Found) -> Option<Arc<Pool>> {
        self.pool.clone().or_else(|| self.cache.pool_of(found.identity.disk))
    }

    /// The response is not one to keep: for a moment others do not wait for the next one. One that says that
    /// a server fails is waited for still, to spare it.
    pub(super) fn pass_by(&mut self, status: u16, now_s: i64) {
        if status < 500 {
            self.cache.fills().note_unkept(self.digest, u64::try_from(now_s).unwrap_or(0));
        }
        self.give_up();
    }

    /// Gives up keeping the response: requests that wait for it ask the server themselves.
    pub(super) fn give_up(&mut self) {
        self.keepable = Keepable::No;
        if let Some(led) = self.lead.take() {
            led.leader().decide(Verdict::NotStored);
        }
        self.update = None;
    }
}
