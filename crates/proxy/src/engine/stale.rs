//! Stale objects that are sent all the same: because servers fail (`…_cache_use_stale`, `stale-if-error`), or
//! because they confirm the object (`…_cache_revalidate`). And failures that the cache remembers.

use clearway_base::log::Level;
use clearway_cache::disks::Refreshed;
use clearway_cache::{Lifetime, StoredHeader};
use clearway_http::{Answer, Exchange, Request, Step};

use crate::attempts::CacheStatus;
use crate::engine::object::{Cached, Keepable};
use crate::engine::patience::patiently;
use crate::engine::protocol::Protocol;
use crate::engine::serve::{Serving, Stored, Unreadable, stored};
use crate::engine::session::{Flow, Session};
use crate::heads::lifetime::freshness;
use crate::settings::masks::Failures;

/// An object that is sent.
pub(super) struct Answering {
    cached: Box<Cached>,
    status: CacheStatus,
    /// The lifetime by the server's answer, if it was asked.
    lifetime: Option<Lifetime>,
}

/// An error that is to be remembered before it is answered.
pub(super) struct Remembering {
    cached: Box<Cached>,
    status: u16,
    valid_s: u64,
}

impl<'c, P: Protocol> Session<'c, P> {
    /// Whether the object that is there is sent, in place of a response with this status.
    pub(super) fn prefer_cached(&mut self, exchange: &mut Exchange<'_, 'c>, status: u16) -> Option<Flow> {
        let pass = self.asked.pass;
        let cached = self.cached.as_ref()?;
        if cached.status != CacheStatus::Expired || cached.stale.is_none() {
            return None;
        }
        let is_old = Failures::of_status(status).is_some_and(|failure| pass.cache.stale_for(failure));
        let becomes = match status {
            304 if *pass.cache.revalidate => {
                let now_s = exchange.request.now_unix_s();
                let freshness = freshness(pass, now_s, self.protocol.lines(), &self.input);
                self.validated = freshness.lifetime();
                CacheStatus::Revalidated
            }
            _ if is_old => CacheStatus::Stale,
            _ => return None,
        };
        self.begin_body();
        debug_assert!(self.protocol.head_len() <= self.input.len(), "a head lies in what was received");
        self.input.drain(..self.protocol.head_len());
        self.release(exchange);
        Some(Flow::Cached(becomes))
    }

    /// No server has answered: the object that is there is sent, or the client told.
    pub(super) fn end_failed(&mut self, exchange: &Exchange<'_, 'c>, failure: Failures) -> Flow {
        let (pass, status) = (self.asked.pass, failure.status());
        let Some(cached) = &self.cached else { return Flow::End(Step::Respond(Answer::Status(status))) };
        if cached.covers(pass, failure) {
            return Flow::Cached(CacheStatus::Stale);
        }
        if matches!(status, 502 | 504) {
            self.remember(exchange, status, 0);
        }
        Flow::End(Step::Respond(Answer::Status(status)))
    }

    /// A response is replaced by an error page: its status is what the cache remembers.
    pub(super) fn remember_intercepted(&mut self, exchange: &Exchange<'_, 'c>, status: u16) {
        if let Some(judged) = self.judge(exchange) {
            self.remember(exchange, status, judged.valid_sec());
        }
    }

    /// Has the cache remember a status for as long as a response has said, or the location says.
    fn remember(&mut self, exchange: &Exchange<'_, 'c>, status: u16, valid_sec: i64) {
        if !self.may_keep() {
            return;
        }
        let seconds = self.asked.pass.cache.valid.seconds(status);
        let until = match valid_sec {
            0 if seconds > 0 => exchange.request.now_unix_s().saturating_add(seconds),
            valid_sec => valid_sec,
        };
        self.remembered = u64::try_from(until).ok().filter(|&until| until > 0).map(|until| (status, until));
    }

    /// The work that is left before the client gets its answer.
    pub(super) fn take_remembering(&mut self) -> Option<Remembering> {
        let (status, valid_s) = self.remembered.take()?;
        Some(Remembering { cached: self.cached.take()?, status, valid_s })
    }

    /// The object that is sent.
    pub(super) fn take_answering(&mut self, status: CacheStatus) -> Option<Answering> {
        let mut cached = self.cached.take()?;
        debug_assert!(cached.stale.is_some(), "there is an object to send");
        cached.keepable = Keepable::No;
        Some(Answering { cached, status, lifetime: self.validated })
    }
}

impl Remembering {
    pub(super) async fn run(self, request: &Request<'_>, step: Step<'static>) -> Step<'static> {
        let Self { cached, status, valid_s } = self;
        let task = cached.cache.remember_error(cached.digest, status, valid_s);
        // If that could not be done, the server is asked again.
        let _ = patiently(request, task).await;
        step
    }
}

impl Answering {
    pub(super) async fn answer<'c>(
        mut self,
        exchange: &mut Exchange<'_, 'c>,
        serving: Serving<'c>,
    ) -> Step<'static> {
        if self.status == CacheStatus::Revalidated {
            self.refresh(exchange.request, serving).await;
        }
        let Some(stale) = self.cached.stale.take() else { return Step::status(500) };
        let pool = self.cached.reader(&stale.found);
        match stored(exchange, serving, (self.status, stale.found, pool)).await {
            Ok(Stored::Answered(step)) => step,
            // The server has been asked already; the response is cut.
            Ok(Stored::Torn(_)) => Step::Done,
            Err(Unreadable) => Step::status(500),
        }
    }

    /// Has the file say for how long it may be used from now on.
    async fn refresh(&mut self, request: &Request<'_>, serving: Serving<'_>) {
        let Some(stale) = &self.cached.stale else { return };
        let now_s = request.now_unix_s();
        let mut lifetime = self.lifetime.filter(|lifetime| lifetime.valid_sec != 0);
        if lifetime.is_none() {
            let head = stale.found.head();
            let Some((status, lines)) = serving.read_head(&head) else { return };
            let said = freshness(serving.pass, now_s, &lines, &head).lifetime();
            let seconds = serving.pass.cache.valid.seconds(status);
            let by_location =
                Lifetime { valid_sec: now_s.saturating_add(seconds), updating_sec: 0, error_sec: 0 };
            lifetime =
                said.filter(|lifetime| lifetime.valid_sec != 0).or((seconds > 0).then_some(by_location));
        }
        let Some(Lifetime { valid_sec, updating_sec, error_sec }) = lifetime else { return };
        let header = stale.found.header(&self.cached.key);
        let header = StoredHeader { valid_sec, updating_sec, error_sec, date: now_s, ..header };
        let cached = &self.cached;
        let task = cached.cache.refresh(stale.found.identity, &cached.key, &header, cached.pool.as_ref());
        match patiently(request, task).await {
            Some(Ok(Refreshed::Written)) => {
                if let Some(update) = self.cached.update.take() {
                    update.end_published();
                }
            }
            Some(Err(error)) => request.log(Level::Crit, format_args!("{error}")),
            Some(Ok(Refreshed::Changed | Refreshed::Gone)) | None => {}
        }
    }
}
