//! A request that sends what another one receives and writes, while it is written: bytes that are in the file
//! go on to the client, and each that comes wakes it. Where they end too early the rest may come from the
//! server. Runs on the loop of the request; the file is read by the pool of its disk.

use std::future::poll_fn;

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_cache::disks::Growing;
use clearway_cache::{Follower, Progress, StoredHeader, seal};
use clearway_http::{Answer, Chunk, Exchange, Mark, Step};

use crate::attempts::{CacheStatus, Missing};
use crate::engine::mend::validator_of;
use crate::engine::object::Cached;
use crate::engine::patience::patiently;
use crate::engine::serve::{BodyIs, Sent, Serving, Unreadable, push_head};

/// How much is read and sent at once, bytes: then it is the turn of others.
const TURN_BYTES: u64 = 64 * 1024;
/// How much goes with the head, bytes: of many that come at once each has its first byte the sooner the less
/// those before it are sent.
const FIRST_BYTES: u64 = 16 * 1024;

/// The result of following another request.
pub(super) enum Followed {
    Answered(Step<'static>),
    /// The rest is missing, and can be asked for.
    Torn(Missing),
}

/// Answers with what another request receives.
///
/// # Errors
/// It cannot be read, or is another variant than is wanted: nothing was answered.
pub(super) async fn follow<'c>(
    exchange: &mut Exchange<'_, 'c>,
    serving: Serving<'c>,
    (cached, mut follower, growing): (&Cached, Follower<Growing>, Growing),
) -> Result<Followed, Unreadable> {
    let (body_start, beginning) = (growing.body_start(), growing.beginning());
    let most = usize::try_from(*serving.pass.buffer_bytes).unwrap_or(usize::MAX).max(beginning.len());
    let header = StoredHeader::read(beginning, &cached.key, most).map_err(|_| Unreadable)?;
    if cached.other_variant(exchange.request, &header).is_some() {
        return Err(Unreadable);
    }
    let head = Bytes::from(seal::without(beginning, StoredHeader::head_start(&cached.key)));
    let sent = push_head(exchange, serving, (CacheStatus::Hit, head.clone(), None), BodyIs::Growing);
    if let Sent::Answered(step) = sent.ok_or(Unreadable)? {
        return Ok(Followed::Answered(step));
    }
    let tear = |exchange: &mut Exchange<'_, '_>, at: u64, why: &str| {
        let validator = validator_of(&header, &head).filter(|_| serving.mends(exchange.request));
        let rest = serving.read_length(&head).map(|whole| (at - body_start..whole, whole));
        match validator.zip(rest) {
            Some((validator, (range, whole))) if !range.is_empty() => {
                Followed::Torn(Missing { range, whole, validator })
            }
            _ => Followed::Answered(cut(exchange, why)),
        }
    };
    debug_assert_eq!(beginning.len() as u64, body_start, "a body begins behind what stands before it");
    let (mut at, mut turn_bytes) = (body_start, FIRST_BYTES);
    loop {
        let (end, is_last) = match poll_fn(|cx| follower.poll_beyond(cx, at)).await {
            Progress::Readable(end) => (end, false),
            Progress::Complete(end) => {
                debug_assert!(at <= end, "a file only grows");
                (end, true)
            }
            Progress::Failed => {
                return Ok(tear(exchange, at, "upstream response that is followed has ended early"));
            }
        };
        while at < end {
            let Some(data) = read(exchange, &growing, at..end.min(at + turn_bytes)).await else {
                return Ok(tear(exchange, at, "file of a response that is followed cannot be read"));
            };
            at += data.len() as u64;
            debug_assert!(!data.is_empty(), "each read gets somewhere");
            assert!(at <= end, "no more is sent than is published");
            let mark = if is_last && at >= end { Mark::Last } else { Mark::Flush };
            let _ = exchange.output.write(exchange.request, Chunk::Shared(data), mark);
            if mark == Mark::Last || exchange.output.ready(exchange.request).await.is_err() {
                return Ok(Followed::Answered(Step::Done));
            }
            turn_bytes = TURN_BYTES;
            if at < end {
                clearway_runtime::yield_now().await;
            }
        }
        if is_last {
            let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Last);
            return Ok(Followed::Answered(Step::Done));
        }
    }
}

/// The bytes at this place, or some of them; `None` if they cannot be read. They were written lately, so they
/// are in memory as a rule. If they are not, other output for the client does not wait for them.
async fn read(
    exchange: &mut Exchange<'_, '_>,
    growing: &Growing,
    range: std::ops::Range<u64>,
) -> Option<Bytes> {
    let count = usize::try_from(range.end - range.start).ok()?;
    if let Some(mut data) = growing.recent(range.start) {
        data.truncate(count);
        return Some(data);
    }
    if let Some(data) = growing.read_cached(range.start, count) {
        return Some(data.into());
    }
    let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Flush);
    let read = patiently(exchange.request, growing.read(range.start, count)).await?;
    read.ok().filter(|data| !data.is_empty()).map(Bytes::from)
}

/// The response cannot be completed: what there is of it leaves.
fn cut(exchange: &mut Exchange<'_, '_>, why: &str) -> Step<'static> {
    exchange.request.log(Level::Error, format_args!("{why}"));
    let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Flush);
    Step::Respond(Answer::Status(502))
}
