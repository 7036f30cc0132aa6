//! Requests that are passed on: one state machine per request, which runs in the request's task, sends and
//! receives in the same poll and never waits anywhere else. What differs from protocol to protocol is behind
//! [`Protocol`](protocol::Protocol).

mod aside;
mod ask;
mod connect;
mod http1;
mod lookup;
mod next;
mod protocol;
mod receive;
mod relay;
mod send;
mod session;
mod store;
mod tunnel;

use std::future::poll_fn;

use clearway_http::{Exchange, Step};

pub use crate::engine::connect::start;
use crate::engine::http1::Http1;
use crate::engine::session::{End, Session};
use crate::upstreams::Choice;

/// `proxy_pass`
pub(crate) fn handle<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass(exchange)))
}

async fn pass(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let mut target = match ask::evaluate(&exchange) {
        Ok(target) => target,
        Err(answer) => return Step::Respond(answer),
    };
    let body = match ask::take_body(&mut exchange).await {
        Ok(body) => body,
        Err(answer) => return Step::Respond(answer),
    };
    let chosen = target.choose(&exchange);
    let choice = match chosen {
        Ok(choice) => choice,
        Err(question) => match Box::pin(lookup::servers_of(question, exchange.request)).await {
            Ok(group) => Choice::among(group),
            Err(step) => return step,
        },
    };
    let mut session = match ask::begin(&mut exchange, (target, choice), body) {
        Ok(asked) => Box::new(Session::<Http1>::new(&mut exchange, asked)),
        Err(answer) => return Step::Respond(answer),
    };
    let end = poll_fn(|cx| session.poll(&mut exchange, cx)).await;
    match end {
        End::Step(step) => step,
        End::Tunnel => {
            let begun = tunnel::Begun::of(&mut session);
            drop(session);
            match begun {
                Some(begun) => Box::pin(tunnel::carry(exchange, begun)).await,
                None => Step::Done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<F>(_: fn(Exchange<'static, 'static>) -> F) -> usize {
        size_of::<F>()
    }

    fn tunnel_bytes<F>(_: fn(Exchange<'static, 'static>, tunnel::Begun) -> F) -> usize {
        size_of::<F>()
    }

    /// Beyond 1,024 bytes the allocator takes several times as long; and there may be many tunnels.
    #[test]
    fn what_waits_for_a_server_is_small() {
        let bytes = [future_bytes(pass), tunnel_bytes(tunnel::carry)];
        assert!(bytes.iter().all(|&bytes| bytes <= 1024), "{bytes:?}");
    }
}
