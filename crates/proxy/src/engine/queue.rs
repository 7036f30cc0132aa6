//! A request waits until a server of its group can be used (`queue`).

use std::task::Context;

use clearway_http::Exchange;
use clearway_upstream::{LOOK_AGAIN_APART_MS, LOOK_AGAIN_MS, Moment, QueuePlace, Where};

use crate::attempts::PeerName;
use crate::engine::protocol::Protocol;
use crate::engine::session::{Flow, Queued, Session, Stage};

impl<'c, P: Protocol> Session<'c, P> {
    pub(super) fn wait_in_queue(&mut self, waiting: QueuePlace, timeout_ms: u64) -> Flow {
        debug_assert!(self.lease.is_none(), "a request that has a server does not wait for one");
        let until_ms = self.home.now_ms().saturating_add(timeout_ms);
        self.look_again_at(waiting.place(), until_ms);
        self.stage = Stage::Queued(Queued { waiting, until_ms });
        Flow::On
    }

    fn look_again_at(&mut self, place: Where, until_ms: u64) {
        let pause_ms = match place {
            Where::InLine => LOOK_AGAIN_MS,
            Where::Apart => LOOK_AGAIN_APART_MS,
        };
        self.clocks.send_until_ms = Some(until_ms.min(self.home.now_ms() + pause_ms));
    }

    pub(super) fn poll_queued(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        loop {
            let Stage::Queued(queued) = &mut self.stage else { return Flow::On };
            if queued.waiting.poll_called(cx).is_pending() {
                return Flow::Wait;
            }
            if let Some(flow) = self.leave_queue(exchange) {
                return flow;
            }
            if let Stage::Queued(queued) = &mut self.stage {
                queued.waiting.wait_again();
            }
        }
    }

    /// Asks a server if one can be used.
    fn leave_queue(&mut self, exchange: &mut Exchange<'_, 'c>) -> Option<Flow> {
        let now_ms = self.home.now_ms();
        self.eject(exchange, now_ms);
        let lease = self.asked.choice.try_again(Moment { at_loop: self.home.index(), now_ms })?;
        let Stage::Queued(queued) = std::mem::replace(&mut self.stage, Stage::Selecting) else {
            return Some(Flow::On);
        };
        debug_assert!(self.outbound.is_none(), "a request that waits has no connection");
        queued.waiting.serve();
        self.end_waiting(exchange);
        self.attempt_ms = now_ms;
        self.attempt(exchange).peer = PeerName::Peer(lease.peer().clone());
        Some(self.ask_server(exchange, lease))
    }

    fn end_waiting(&mut self, exchange: &mut Exchange<'_, 'c>) {
        self.clocks.clear();
        let waited_ms = self.elapsed_ms();
        let attempt = self.attempt(exchange);
        debug_assert!(attempt.queue_ms.is_none(), "an attempt waits once");
        attempt.queue_ms = Some(waited_ms);
    }

    /// Looks again for a server, or gives up.
    pub(super) fn time_out_in_queue(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        let now_ms = self.home.now_ms();
        let Stage::Queued(queued) = &self.stage else { return Flow::On };
        if now_ms < queued.until_ms {
            let (place, until_ms) = (queued.waiting.place(), queued.until_ms);
            match place {
                Where::InLine => queued.waiting.time_has_passed(now_ms),
                Where::Apart => {
                    if let Some(flow) = self.leave_queue(exchange) {
                        return flow;
                    }
                }
            }
            self.look_again_at(place, until_ms);
            return Flow::On;
        }
        if let Stage::Queued(queued) = std::mem::replace(&mut self.stage, Stage::Selecting) {
            queued.waiting.time_out();
        }
        self.end_waiting(exchange);
        self.end_without_server(exchange, "upstream queue timed out")
    }
}
