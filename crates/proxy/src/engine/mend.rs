//! An object of a cache that comes to an end while it is sent, since its disk fails, or the request that
//! fetches it: the rest is asked of the server, for the case that it still has what was stored (`If-Range`,
//! RFC 9110 §13.1.5), and sent as if it came from the disk. Without a validator, or where the server has
//! something else, the response is cut. Runs on the loop of the request.

use std::ops::Range;

use bytes::Bytes;
use clearway_base::date::http_date;
use clearway_base::log::Level;
use clearway_cache::StoredHeader;
use clearway_cache::disks::{Found, Identity};
use clearway_http::{Answer, Exchange, HeaderName, Request, Step};

use crate::attempts::{Attempts, Missing};
use crate::engine::object::Cached;
use crate::engine::protocol::Protocol;
use crate::engine::session::{Flow, Session, Stage};

const CONTENT_RANGE: HeaderName<'_> = HeaderName::new(b"Content-Range");

/// The identity of an object, in case it has to be mended.
pub(super) struct Mendable {
    identity: Identity,
    whole: u64,
    body_start: u64,
    validator: Option<Bytes>,
}

impl Mendable {
    /// `None` of one that is in memory as a whole.
    pub(super) fn of(found: &Found, cached: &Cached) -> Option<Self> {
        if found.body().is_some() {
            return None;
        }
        Some(Self {
            identity: found.identity,
            whole: found.body_bytes(),
            body_start: found.body_start(),
            validator: validator_of(&found.header(&cached.key), &found.head()),
        })
    }

    /// This part of the file is missing: the file is of no use any more. Whether the server is to be asked.
    pub(super) fn tear(self, request: &mut Request<'_>, cached: &mut Cached, missing: Range<u64>) -> bool {
        cached.cache.remove(self.identity, cached.pool.as_ref()).detach();
        cached.give_up();
        let Some(validator) = self.validator else { return false };
        assert!(
            self.body_start <= missing.start && missing.start <= missing.end,
            "what is missing is a part of the body"
        );
        let range = missing.start - self.body_start..missing.end - self.body_start;
        assert!(range.end <= self.whole, "what is missing ends with the body at the latest");
        want_rest(request, Missing { range, whole: self.whole, validator });
        true
    }
}

/// The validator with which the rest of an object can be asked for.
pub(super) fn validator_of(header: &StoredHeader<'_>, head: &[u8]) -> Option<Bytes> {
    // A part that was stored as such has another beginning.
    let is_whole = head.get(9..12) == Some(b"200");
    let tag = header.etag.starts_with(b"\"").then(|| Bytes::copy_from_slice(header.etag));
    let time = || (header.last_modified > 0).then(|| http_date(header.last_modified).to_vec().into());
    tag.or_else(time).filter(|_| is_whole)
}

/// Has the server asked for this next.
pub(super) fn want_rest(request: &mut Request<'_>, missing: Missing) {
    let first = missing.range.start;
    request.log(Level::Warn, format_args!("the rest of a cached response is fetched from byte {first} on"));
    debug_assert!(missing.range.end <= missing.whole, "the rest ends with the body");
    Attempts::of_mut(request).cache.missing = Some(Box::new(missing));
}

/// Whether the server is to be asked with nothing of a response on its way, or for the rest of one.
pub(super) fn may_be_asked(exchange: &Exchange<'_, '_>) -> bool {
    let asks_for_rest = || Attempts::of(exchange.request).is_some_and(|of| of.cache.missing.is_some());
    !exchange.output.head_sent() || asks_for_rest()
}

impl<'c, P: Protocol> Session<'c, P> {
    /// Goes on with the rest of an object where that was asked for and has come, or cuts the response.
    pub(super) fn take_missing(&mut self, exchange: &mut Exchange<'_, 'c>, status: u16) -> Option<Flow> {
        let missing = Attempts::of(exchange.request)?.cache.missing.as_ref()?;
        if status >= 300 && self.passes_over(exchange, status).is_some() {
            return None;
        }
        let mut lines = self.protocol.lines().iter();
        let given = lines.find(|line| CONTENT_RANGE.is(line.name.of(&self.input)));
        let is_given = given.is_some_and(|line| line.value.of(&self.input) == missing.given().as_bytes());
        if status != 206 || !is_given {
            let message = format_args!("upstream does not have the rest of a cached response");
            exchange.request.log(Level::Error, message);
            self.begin_body();
            self.input.clear();
            self.release(exchange);
            return Some(Flow::End(Step::Respond(Answer::Status(502))));
        }
        self.keep_head(exchange);
        self.begin_body();
        self.relay.begin(exchange, self.asked.pass, None);
        self.stage = Stage::Relaying;
        Some(Flow::On)
    }
}
