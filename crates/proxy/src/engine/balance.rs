//! Code chooses the server of each attempt ([`clearway_http::Balancer`]): it is asked when nothing of the
//! attempt has begun, and may wait. What it has said that takes waiting, or has the request be made anew, is
//! done outside the stages (`renew`), where the family is known.

use std::task::{Context, Poll};

use clearway_base::log::Level;
use clearway_http::{Answer, Balanced, BalancedPeer, Exchange, Step};
use clearway_upstream::Peer;

use crate::attempts::{Attempt, Attempts, PeerName};
use crate::engine::asked::Family;
use crate::engine::by_code::{ChoosingStage, Timeout};
use crate::engine::protocol::Protocol;
use crate::engine::secure;
use crate::engine::session::{CONNECTING, Flow, Session, Stage};
use crate::settings::proxy::Scheme;
use crate::upstreams::address::plain;

impl<'c, P: Protocol> Session<'c, P> {
    /// How long something may take, milliseconds.
    pub(super) fn timeout_ms(&self, what: Timeout) -> u64 {
        let pass = self.asked.pass;
        let (at, configured_ms) = match what {
            Timeout::Connect => (0, *pass.connect_timeout_ms),
            Timeout::Send => (1, *pass.send_timeout_ms),
            Timeout::Receive => (2, *pass.read_timeout_ms),
        };
        let said_ms = self.by_code.as_ref().and_then(|by_code| by_code.timeouts_ms()[at]);
        said_ms.unwrap_or(configured_ms)
    }

    /// An attempt begins: code is asked, if it has the say.
    pub(super) fn begin_choosing(&mut self, exchange: &mut Exchange<'_, 'c>) -> Option<Flow> {
        let tries = self.tries;
        let by_code = self.by_code.as_mut()?;
        exchange.request.set_action(CONNECTING);
        if by_code.balancing.calls == 0 {
            by_code.is_secure = self.tls.is_some();
        }
        debug_assert!(self.lease.is_none() && self.outbound.is_none(), "nothing of the attempt has begun");
        let balancing = &mut by_code.balancing;
        balancing.calls += 1;
        balancing.tries = tries;
        (balancing.peer, balancing.keepalive, balancing.more_tries) = (None, None, 0);
        let choosing = by_code.balancer.begin();
        self.attempt_ms = self.home.now_ms();
        Attempts::of_mut(exchange.request).list.push(Attempt::default());
        exchange.request.log(Level::Debug, format_args!("lua balancer: get peer, tries: {tries}"));
        self.stage = Stage::Choosing(ChoosingStage(choosing));
        Some(Flow::On)
    }

    pub(super) fn poll_choosing(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        let (Stage::Choosing(choosing), Some(by_code)) = (&mut self.stage, &mut self.by_code) else {
            return Flow::On;
        };
        let chosen = match choosing.0.poll(exchange, &mut by_code.balancing, cx) {
            Poll::Ready(chosen) => chosen,
            Poll::Pending => return Flow::Wait,
        };
        match chosen {
            Balanced::Goes => {}
            Balanced::Failed => {
                self.name_attempt(exchange);
                // It counts, as nobody else counts it.
                self.tries = self.tries.saturating_sub(1);
                return self.fail_unasked(exchange);
            }
            Balanced::NoneAlive => {
                self.name_attempt(exchange);
                return self.end_without_server(exchange, "no live upstreams");
            }
            Balanced::Ends(status) => return Flow::End(Step::Respond(Answer::Status(status))),
        }
        self.tries += by_code.balancing.more_tries;
        let wants_tls = by_code.balancing.tls.unwrap_or(by_code.is_secure);
        let host = by_code.balancing.peer.as_ref().and_then(|peer| peer.host.clone());
        let is_other = wants_tls != self.tls.is_some() || wants_tls && host != by_code.host;
        by_code.host = host;
        self.stage = Stage::Chosen;
        if is_other || by_code.balancing.is_made_anew { Flow::Renew } else { Flow::On }
    }

    /// The server that was chosen is asked.
    pub(super) fn ask_chosen(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        debug_assert!(self.outbound.is_none(), "nothing of the attempt has begun");
        let chosen = self.by_code.as_ref().and_then(|by_code| by_code.balancing.peer.clone());
        let Some(BalancedPeer { remote, .. }) = chosen else {
            if self.asked.choice.is_empty() {
                self.name_attempt(exchange);
                exchange.request.log(Level::Error, format_args!("lua balancer: no peer set"));
                return Flow::End(Step::Respond(Answer::Status(500)));
            }
            // The place of this attempt is taken already.
            let placed = Attempts::of_mut(exchange.request).list.pop();
            debug_assert!(placed.is_some(), "the attempt has its place");
            return self.select_by_rule(exchange);
        };
        let name = self.asked.choice.name().as_bytes().to_vec();
        let lease = Peer::new(plain(remote, &name)).lease_by_itself(self.home.now_ms());
        self.attempt(exchange).peer = PeerName::Peer(lease.peer().clone());
        exchange.request.set_upstream(Attempts::write_url);
        self.ask_server(exchange, lease)
    }

    fn name_attempt(&mut self, exchange: &mut Exchange<'_, 'c>) {
        self.attempt(exchange).peer = PeerName::Group(self.asked.choice.name().into());
        exchange.request.set_upstream(Attempts::write_url);
    }

    /// Does what code has said that the stages cannot do.
    ///
    /// # Errors
    /// What is answered instead.
    pub(super) async fn renew<F: Family<Protocol = P>>(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
    ) -> Result<(), Answer> {
        let Some(by_code) = &mut self.by_code else { return Ok(()) };
        let wants_tls = by_code.balancing.tls.unwrap_or(by_code.is_secure);
        let host = by_code.host.clone();
        if std::mem::take(&mut by_code.balancing.is_made_anew) {
            F::make_anew(exchange, &mut self.asked)?;
        }
        self.tls = None;
        if wants_tls {
            let attempts = Attempts::of(exchange.request);
            let said =
                attempts.and_then(|attempts| attempts.origin.as_ref()).map(|origin| &origin.host_header);
            let named = said.cloned().unwrap_or_default();
            let mut tls = secure::prepare(exchange, self.asked.pass, &named)?;
            if let Some(host) = &host {
                tls.call(host);
            }
            Box::pin(tls.load(exchange.request)).await?;
            self.tls = Some(tls);
        }
        let scheme = if wants_tls { Scheme::Https } else { Scheme::Http };
        Attempts::of_mut(exchange.request).set_scheme(scheme.text());
        Ok(())
    }
}
