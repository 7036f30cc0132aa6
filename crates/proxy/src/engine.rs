//! Requests that are passed on: one state machine per request, which runs in the request's task, sends and
//! receives in the same poll and never waits anywhere else. What differs from protocol to protocol is behind
//! [`Protocol`](protocol::Protocol).

mod ask;
mod connect;
mod http1;
mod next;
mod protocol;
mod receive;
mod relay;
mod send;
mod session;

use std::future::poll_fn;

use clearway_http::{Exchange, Step};

pub use crate::engine::connect::start;
use crate::engine::http1::Http1;
use crate::engine::session::Session;

/// `proxy_pass`
pub(crate) fn handle<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass(exchange)))
}

async fn pass(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let target = match ask::evaluate(&exchange) {
        Ok(target) => target,
        Err(answer) => return Step::Respond(answer),
    };
    let body = match ask::take_body(&mut exchange).await {
        Ok(body) => body,
        Err(answer) => return Step::Respond(answer),
    };
    let mut session = match ask::begin(&mut exchange, target, body) {
        Ok(asked) => Box::new(Session::<Http1>::new(&mut exchange, asked)),
        Err(answer) => return Step::Respond(answer),
    };
    poll_fn(|cx| session.poll(&mut exchange, cx)).await
}
