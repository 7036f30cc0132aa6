//! A response that goes into a cache while it goes to its client: whether it may, and for how long. Neither a
//! slow client nor one that leaves has a say in that; a disk that is slow makes the server wait, one that
//! fails costs the object alone.

use clearway_base::date::parse_http_date;
use clearway_cache::disks::NewFile;
use clearway_cache::{Digest, Lifetime, StoredHeader};
use clearway_http::{Conditions, Exchange, Ranges, Request, ResponseHead};

use crate::attempts::{Attempts, KeptHead};
use crate::engine::filling::{Length, Object};
use crate::engine::object::{Cached, Keepable};
use crate::engine::protocol::{Protocol, Wanted};
use crate::engine::session::Session;
use crate::engine::store::Kept;
use crate::heads::accel::Buffering;
use crate::heads::lifetime::freshness;
use crate::settings::cache::any_holds;

/// The verdict on the head of a response that may be kept.
pub(super) struct Judged {
    lifetime: Lifetime,
    vary: Vec<u8>,
}

impl Judged {
    /// Until when it may be used, Unix seconds; 0 where that is not said.
    pub(super) fn valid_sec(&self) -> i64 {
        self.lifetime.valid_sec
    }
}

/// Says that this server judges conditions and sends parts, since all of the response has come for others,
/// too.
pub(super) fn adapt_head(head: &mut ResponseHead<'_>) {
    head.conditions = Conditions::JudgedHere;
    if head.ranges == Ranges::Passed {
        head.ranges = Ranges::OnePart;
    }
}

impl<'c, P: Protocol> Session<'c, P> {
    /// Whether the response may still go into a cache, so that it is received even if its client leaves.
    pub(super) fn may_keep(&self) -> bool {
        self.cached.as_ref().is_some_and(|cached| cached.keepable == Keepable::Yes)
    }

    /// Whether the head lets the response be kept.
    pub(super) fn judge(&mut self, exchange: &Exchange<'_, 'c>) -> Option<Judged> {
        let cached = self.cached.as_mut().filter(|cached| cached.keepable == Keepable::Yes)?;
        let head = Attempts::of(exchange.request)?.head.as_ref()?;
        let now_s = exchange.request.now_unix_s();
        let freshness = freshness(self.asked.pass, now_s, &head.lines, &head.bytes);
        match freshness.lifetime() {
            Some(lifetime) => Some(Judged { lifetime, vary: freshness.varies_by().to_vec() }),
            None => {
                cached.pass_by(self.protocol.status(), now_s);
                None
            }
        }
    }

    /// The body is about to come: begins the file, if there is to be one.
    pub(super) fn begin_keeping(&mut self, exchange: &Exchange<'_, 'c>, judged: Option<Judged>) {
        let pass = self.asked.pass;
        let (Some(cached), Some(judged)) = (&mut self.cached, judged) else { return };
        let now_s = exchange.request.now_unix_s();
        let mut lifetime = judged.lifetime;
        if lifetime.valid_sec == 0 {
            let seconds = pass.cache.valid.seconds(self.protocol.status());
            lifetime.valid_sec = if seconds > 0 { now_s.saturating_add(seconds) } else { 0 };
        }
        let is_refused = self.relay.buffering == Buffering::Off
            || lifetime.valid_sec == 0
            || any_holds(&pass.cache.no_cache, &exchange.view());
        let head = Attempts::of(exchange.request).and_then(|attempts| attempts.head.as_ref());
        let place = cached.temp_place.clone();
        let Some((head, temp)) = head.zip(place.as_ref()).filter(|_| !is_refused) else {
            cached.pass_by(self.protocol.status(), now_s);
            return;
        };
        let header = header_of(exchange.request, (lifetime, &judged.vary), (head, self.protocol.status()));
        let header = cached.variant_header(exchange.request, header);
        let what = NewFile { key: &cached.key, digest: cached.digest, header, head: &head.bytes, temp };
        let Some(filling) = cached.cache.begin(&what, cached.pool.as_ref()) else {
            cached.give_up();
            return;
        };
        let length = match (self.asked.wanted, self.protocol.content_length()) {
            (Wanted::WhatComes, _) | (_, None) => Length::Unknown,
            (Wanted::Whole | Wanted::Head, Some(_)) => Length::Announced,
        };
        debug_assert!(self.relay.keeping.is_none(), "a response is kept in one way");
        debug_assert!(cached.keepable == Keepable::Yes, "the response may be kept");
        let object = Object::new(filling, (length, self.relay.memory_bytes), cached, self.home);
        self.relay.keeping = Some(Kept::Object(object));
    }
}

/// The header of a response's file.
fn header_of<'h>(
    request: &Request<'_>,
    (lifetime, vary): (Lifetime, &'h [u8]),
    (head, status): (&'h KeptHead, u16),
) -> StoredHeader<'h> {
    let now_ms = request.now_unix_ms();
    let has_validators = status == 200 || status == 206;
    let modified = head.named(b"Last-Modified").next().filter(|_| has_validators);
    let etag = head.named(b"ETag").next().filter(|_| has_validators);
    StoredHeader {
        valid_sec: lifetime.valid_sec,
        updating_sec: lifetime.updating_sec,
        error_sec: lifetime.error_sec,
        last_modified: modified.and_then(parse_http_date).unwrap_or(-1),
        date: request.now_unix_s(),
        valid_msec: (now_ms % 1000) as u16,
        body_start: 0,
        etag: etag.unwrap_or_default(),
        vary,
        variant: Digest([0; clearway_cache::DIGEST_BYTES]),
    }
}

impl Cached {
    /// Says which variant it is. One that is not what was looked for takes the place of the key's own.
    fn variant_header<'h>(&mut self, request: &Request<'_>, header: StoredHeader<'h>) -> StoredHeader<'h> {
        let main = self.key.digest();
        debug_assert!(header.body_start == 0, "where the body begins is found out by the cache");
        let variant = match header.vary {
            [] => main,
            vary => self.variant(request, vary),
        };
        if self.digest != main && (header.vary.is_empty() || variant != self.digest) {
            self.digest = main;
            (self.lead, self.update) = (None, None);
        }
        StoredHeader { variant, ..header }
    }
}
