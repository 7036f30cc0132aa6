//! Requests whose responses are kept (`…_cache`), before a server is asked: what they are kept under, whether
//! one is there, and which request fetches it if not. nginx's rules (`ngx_http_upstream_cache`,
//! `ngx_http_file_cache_open`), but that nobody polls: what waits for another request is woken by it.
//!
//! Runs on the loop of the request; files are opened and read by the pool of their disk.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Level, Verbatim};
use clearway_cache::{Entered, Key, StoredHeader};
use clearway_http::{Answer, Exchange, Request, Step, View};
use clearway_message::{Known, Method};

use crate::attempts::{Attempts, CacheStatus};
use crate::engine::asked::Caching;
use crate::engine::find::{Finding, Lookup, await_publication, start_renewal};
use crate::engine::follow::{Followed, follow};
use crate::engine::mend::{Mendable, want_rest};
use crate::engine::object::{Cached, Keepable};
use crate::engine::serve::{Stored, Unreadable, stored};
use crate::settings::cache::{CacheAt, FamilyCache, FamilyCaches, any_holds};
use crate::settings::masks::{Mask, Methods};
use crate::settings::pass::PassConf;

/// Room that the head of a response has to have behind a key, bytes; as nginx wants it.
const HEAD_ROOM_BYTES: u64 = 256;

/// The step, in bytes, of the buffer size that the log advises, as in nginx.
const ADVISED_STEP_BYTES: u64 = 1024;

/// The result of a look into the cache.
pub(super) enum Looked {
    /// The cache has nothing to do with the request.
    Uncached,
    /// The request is answered.
    Answered(Step<'static>),
    /// A server is asked.
    Ask(Box<Cached>),
}

/// Looks for the response of a request, which has been described.
pub(super) async fn look_up<'c>(exchange: &mut Exchange<'_, 'c>, caching: Caching<'c>) -> Looked {
    let serving = caching.serving;
    let pass = serving.pass;
    let known = match cache_of(&exchange.view(), pass, caching.caches) {
        Ok(Some(known)) => known,
        Ok(None) => return Looked::Uncached,
        Err(answer) => return Looked::Answered(Step::Respond(answer)),
    };
    let Some(mut cached) = begin(exchange, pass, &known, (caching.prefix, caching.key)) else {
        return Looked::Uncached;
    };
    if cached.status == CacheStatus::Bypass {
        // Then this request is the one whose response is there last.
        Box::pin(await_publication(exchange.request, &cached)).await;
        if let Entered::Leads(led) = cached.cache.fills().enter(cached.digest) {
            cached.lead = Some(led);
        }
        settle(exchange.request, pass, &mut cached);
        return Looked::Ask(cached);
    }
    let mut cached = match Finding::new(exchange.request, pass, cached).run().await {
        Lookup::Ask(cached) => cached,
        Lookup::Remembered(status) => {
            Attempts::note_cache(exchange.request, CacheStatus::Hit);
            return Looked::Answered(Step::status(status));
        }
        Lookup::Found(status, found, mut cached) => {
            if status == CacheStatus::Stale && !start_renewal(exchange, &mut cached) {
                return Looked::Answered(Step::status(500));
            }
            let (pool, mendable) = (cached.reader(&found), Mendable::of(&found, &cached));
            match stored(exchange, serving, (status, *found, pool)).await {
                Ok(Stored::Answered(step)) => return Looked::Answered(step),
                Ok(Stored::Torn(missing)) => {
                    let mends = mendable.is_some_and(|of| of.tear(exchange.request, &mut cached, missing));
                    return if mends { Looked::Ask(cached) } else { Looked::Answered(Step::Done) };
                }
                Err(Unreadable) => cached,
            }
        }
        Lookup::Follow(follower, growing, mut cached) => {
            match follow(exchange, serving, (&cached, follower, growing)).await {
                Ok(Followed::Answered(step)) => return Looked::Answered(step),
                Ok(Followed::Torn(missing)) => {
                    cached.give_up();
                    want_rest(exchange.request, missing);
                    return Looked::Ask(cached);
                }
                Err(Unreadable) => cached,
            }
        }
    };
    settle(exchange.request, pass, &mut cached);
    Looked::Ask(cached)
}

/// The cache's part in a request before it is looked into; `None` if its key is too long.
fn begin<'c>(
    exchange: &Exchange<'_, 'c>,
    pass: &'c PassConf,
    known: &FamilyCache,
    (prefix, default_key): (&str, fn(&Request<'_>) -> Vec<u8>),
) -> Option<Box<Cached>> {
    let view = exchange.view();
    let key = Key::new(match &*pass.cache.key {
        Some(key) => key.eval(&view).into_owned(),
        None => default_key(view.request),
    });
    let least = StoredHeader::head_start(&key) as u64 + HEAD_ROOM_BYTES;
    if least > *pass.buffer_bytes {
        let bytes = *pass.buffer_bytes;
        let advised = least.next_multiple_of(ADVISED_STEP_BYTES);
        let message = format_args!(
            "{prefix}_buffer_size {bytes} is not enough for cache key, it should be increased to at least \
             {advised}"
        );
        view.request.log(Level::Error, message);
        return None;
    }
    let is_bypassed = any_holds(&pass.cache.bypass, &view);
    Some(Box::new(Cached {
        cache: Arc::clone(&known.cache),
        temp_place: known.temp_place.clone().or_else(|| Option::clone(&pass.cache.temp_place)),
        digest: key.digest(),
        key: Arc::new(key),
        status: if is_bypassed { CacheStatus::Bypass } else { CacheStatus::Miss },
        keepable: Keepable::Yes,
        stale: None,
        lead: None,
        update: None,
        pool: view.request.named_file_pool(),
    }))
}

/// A server is asked: what variables say, and whether the response may be kept at all.
fn settle(request: &mut Request<'_>, pass: &PassConf, cached: &mut Cached) {
    if cached.keepable == Keepable::Yes && is_beyond_range(request, pass) {
        cached.give_up();
    }
    Attempts::note_cache(request, cached.status);
    let wants_whole = *pass.cache.convert_head && request.is_head();
    let notes = &mut Attempts::of_mut(request).cache;
    (notes.may_keep, notes.wants_whole) = (cached.keepable == Keepable::Yes, wants_whole);
    if cached.status == CacheStatus::Expired
        && *pass.cache.revalidate
        && let Some(stale) = &cached.stale
    {
        let header = stale.found.header(&cached.key);
        notes.last_modified = (header.last_modified != -1).then_some(header.last_modified);
        notes.etag = (!header.etag.is_empty()).then(|| Bytes::copy_from_slice(header.etag));
    }
}

/// The cache that a request has to do with.
fn cache_of<'c>(
    view: &View<'_, 'c>,
    pass: &'c PassConf,
    caches: &FamilyCaches,
) -> Result<Option<Arc<FamilyCache>>, Answer> {
    let Some(at) = &*pass.keeping.cache else { return Ok(None) };
    let is_wanted = match view.request.method() {
        Method::Get | Method::Head => true,
        Method::Post => pass.cache.methods.has(Methods::POST),
        _ => false,
    };
    if !is_wanted {
        return Ok(None);
    }
    let value = match at {
        CacheAt::Zone(_) => return Ok(Option::clone(&pass.cache.cache)),
        CacheAt::Evaluated(value) => value,
    };
    let name = value.eval(view);
    if name.is_empty() || &name[..] == b"off" {
        return Ok(None);
    }
    let found = caches.iter().find(|known| known.cache.name() == &name[..]);
    match found {
        Some(cache) => Ok(Some(Arc::clone(cache))),
        None => {
            view.request.log(Level::Error, format_args!("cache \"{}\" not found", Verbatim(&name)));
            Err(Answer::Status(500))
        }
    }
}

/// Whether a part is asked for that begins so far behind that all of it is not fetched
/// (`…_cache_max_range_offset`).
fn is_beyond_range(request: &Request<'_>, pass: &PassConf) -> bool {
    let (Some(most), Some(range)) = (*pass.cache.max_range_offset, request.header(Known::Range)) else {
        return false;
    };
    if most == 0 {
        return true;
    }
    const UNIT: &[u8] = b"bytes=";
    let Some((unit, first)) = range.split_at_checked(UNIT.len()).filter(|(_, first)| !first.is_empty())
    else {
        return false;
    };
    if !unit.eq_ignore_ascii_case(UNIT) {
        return false;
    }
    let first = first.trim_ascii_start();
    let digits = first.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let offset = clearway_base::units::parse_number(&first[..digits]);
    first.starts_with(b"-") || offset.is_some_and(|offset| offset >= most)
}
