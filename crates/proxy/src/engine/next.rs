//! The step after a failed attempt: another server is asked, or the client gets an error. nginx's rules
//! (`ngx_http_upstream_next`).

use clearway_base::log::Level;
use clearway_http::{Chunk, Exchange, Mark, Step};
use clearway_message::Method;
use clearway_upstream::AttemptOutcome;

use crate::attempts::Connection;
use crate::engine::mend::may_be_asked;
use crate::engine::protocol::Protocol;
use crate::engine::session::{Flow, READING, READING_HEAD, SENDING, Session, Stage};
use crate::settings::masks::{Failures, Mask};

impl<'c, P: Protocol> Session<'c, P> {
    /// The attempt has failed so.
    pub(super) fn fail(&mut self, exchange: &mut Exchange<'_, 'c>, failure: Failures) -> Flow {
        debug_assert!(may_be_asked(exchange), "a response that has begun is cut");
        let had_lease = self.lease.is_some();
        exchange.request.log(Level::Debug, format_args!("http next upstream, {:x}", failure.number()));
        let is_blameless = failure == Failures::HTTP_403 || failure == Failures::HTTP_404;
        self.note_sent(exchange);
        self.finish_lease(
            exchange,
            if is_blameless { AttemptOutcome::Passed } else { AttemptOutcome::Failed },
        );
        debug_assert!(self.lease.is_none(), "how the server fared is told once");
        if had_lease {
            self.tries = self.tries.saturating_sub(1);
        }
        if failure == Failures::TIMEOUT {
            let message = "upstream timed out (110: Connection timed out)";
            exchange.request.log(Level::Error, format_args!("{message}"));
        }
        if self.connection == Connection::Reused && failure == Failures::ERROR && self.by_code.is_none() {
            // The connection was closed while it was idle: this is not the server's fault, and no attempt.
            self.tries += 1;
        }
        let status = failure.status();
        self.attempt(exchange).status = status;
        if let Some(by_code) = &mut self.by_code {
            by_code.note_end(failure, status);
        }
        let may_ask_again = self.tries > 0
            && had_lease
            && self.allows(exchange, failure)
            && self.asked.choice.may_try_again();
        if !may_ask_again {
            return self.end_failed(exchange, failure);
        }
        self.begin_again(exchange)
    }

    /// Code has said that the server which it means has failed.
    pub(super) fn fail_unasked(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        self.attempt(exchange).status = 502;
        let may_ask_again = self.tries > 0 && self.allows(exchange, Failures::ERROR);
        if !may_ask_again || !self.asked.choice.may_try_again() {
            return self.end_failed(exchange, Failures::ERROR);
        }
        self.begin_again(exchange)
    }

    /// Asks another server.
    fn begin_again(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        debug_assert!(may_be_asked(exchange), "behind a head no other server is asked");
        debug_assert!(self.tries > 0, "another attempt is left");
        debug_assert!(self.lease.is_none(), "the server before was let go of");
        self.note_end(exchange);
        self.drop_connection();
        self.clocks.clear();
        debug_assert!(self.outbound.is_none(), "the connection before was let go of");
        self.stage = Stage::Selecting;
        Flow::On
    }

    /// Whether another server is asked because of a status; then the response is none.
    pub(super) fn passes_over(&self, exchange: &Exchange<'_, 'c>, status: u16) -> Option<Failures> {
        let failure = Failures::of_status(status)?;
        // Whether the budget has an attempt left shows when it is begun.
        (self.tries > 1 && self.allows(exchange, failure)).then_some(failure)
    }

    /// Whether `…_next_upstream` says so, and nothing speaks against it.
    fn allows(&self, exchange: &Exchange<'_, 'c>, failure: Failures) -> bool {
        let was_sent = self.sending.has_begun();
        let wanted = match exchange.request.method() {
            Method::Post | Method::Lock | Method::Patch if was_sent => failure.with(Failures::NON_IDEMPOTENT),
            _ => failure,
        };
        let limit_ms = *self.asked.pass.next_upstream_timeout_ms;
        self.asked.pass.next_upstream.effective().has(wanted)
            && !(was_sent && self.streams())
            && !(limit_ms > 0 && self.home.now_ms().saturating_sub(self.began_ms) >= limit_ms)
    }

    /// The time of a stage is over.
    pub(super) fn time_out(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        if matches!(self.stage, Stage::Queued(_)) {
            return self.time_out_in_queue(exchange);
        }
        if !matches!(self.stage, Stage::Relaying | Stage::Draining | Stage::Storing | Stage::Cutting) {
            if matches!(self.stage, Stage::Asking) {
                let waits_for_head = self.sending.is_done();
                exchange.request.set_action(if waits_for_head { READING_HEAD } else { SENDING });
            }
            if let Stage::Consulting(stage) = &self.stage {
                let (name, callback) = (stage.name, stage.about.callback());
                exchange.request.log(Level::Debug, format_args!("{name}: {callback} aborted"));
            }
            return self.fail(exchange, Failures::TIMEOUT);
        }
        exchange.request.set_action(READING);
        exchange.request.log(Level::Error, format_args!("upstream timed out (110: Connection timed out)"));
        self.cut(exchange)
    }

    /// A response whose head was pushed cannot be completed: what there is of it leaves.
    pub(super) fn cut(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        debug_assert!(exchange.output.head_sent(), "a response that has not begun is answered otherwise");
        let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Flush);
        self.note_end(exchange);
        self.drop_connection();
        self.clocks.clear();
        self.finish_lease(exchange, AttemptOutcome::Answered);
        if !exchange.output.wants_body() {
            // The body was for the cache alone: the client has all that it has asked for.
            return Flow::End(Step::Done);
        }
        debug_assert!(self.lease.is_none() && self.outbound.is_none(), "the server has been let go of");
        self.stage = Stage::Cutting;
        Flow::On
    }

    fn note_sent(&mut self, exchange: &mut Exchange<'_, 'c>) {
        let sent_bytes = self.sending.sent_bytes;
        self.attempt(exchange).sent_bytes = sent_bytes;
    }
}
