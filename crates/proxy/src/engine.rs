//! Requests that are passed on: one state machine per request, which runs in the request's task, sends and
//! receives in the same poll and never waits anywhere else. What differs from protocol to protocol is behind
//! [`Protocol`](protocol::Protocol).

mod application;
mod aside;
mod ask;
mod asked;
mod balance;
mod by_code;
mod cached;
mod connect;
mod connect_only;
mod fastcgi;
mod filling;
mod find;
mod follow;
mod http1;
mod keep;
mod lookup;
mod memc;
mod memcached;
#[cfg(feature = "testing")]
pub(crate) mod memory;
mod mend;
mod next;
mod object;
mod patience;
mod probe;
mod protocol;
mod queue;
mod receive;
mod relay;
#[cfg(feature = "tls")]
mod secure;
#[cfg(not(feature = "tls"))]
#[path = "engine/insecure.rs"]
mod secure;
mod send;
mod serve;
mod session;
mod stale;
mod store;
mod tunnel;

use std::future::poll_fn;

use clearway_http::{Answer, Exchange, Step};

use crate::engine::application::{FastCgiPass, ScgiPass, UwsgiPass};
use crate::engine::ask::Proxy;
use crate::engine::asked::{AskedBody, Family, Where};
use crate::engine::cached::Looked;
pub use crate::engine::connect::start;
use crate::engine::connect_only::TunnelPass;
use crate::engine::memc::MemcPass;
use crate::engine::memcached::MemcachedPass;
use crate::engine::object::Cached;
pub(crate) use crate::engine::probe::{Kept, Question, ask as probe};
use crate::engine::session::{End, Session};
use crate::upstreams::Choice;

/// `proxy_pass`
pub(crate) fn handle<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass::<Proxy>(exchange)))
}

/// `fastcgi_pass`
pub(crate) fn handle_fastcgi<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass::<FastCgiPass>(exchange)))
}

/// `scgi_pass`
pub(crate) fn handle_scgi<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass::<ScgiPass>(exchange)))
}

/// `uwsgi_pass`
pub(crate) fn handle_uwsgi<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass::<UwsgiPass>(exchange)))
}

/// `memcached_pass`
pub(crate) fn handle_memcached<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass::<MemcachedPass>(exchange)))
}

/// `memc_pass`
pub(crate) fn handle_memc<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass::<MemcPass>(exchange)))
}

/// `tunnel_pass`
pub(crate) fn handle_tunnel<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::WaitRegardless(Box::pin(pass::<TunnelPass>(exchange)))
}

/// Where the request goes, and its body.
async fn read<'c, F: Family>(
    exchange: &mut Exchange<'_, 'c>,
) -> Result<(Where<'c, F::Target<'c>>, AskedBody), Answer> {
    let mut way = F::evaluate(exchange)?;
    let wanted = F::body_use(exchange);
    let body = asked::take_body(exchange, wanted).await?;
    F::describe(exchange, &mut way.target, &body)?;
    Ok((way, body))
}

async fn pass<F: Family>(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    // What is read in a future of its own leaves no room behind in this one.
    let (way, body) = match read::<F>(&mut exchange).await {
        Ok(read) => read,
        Err(answer) => return Step::Respond(answer),
    };
    let mut cached = None;
    if F::pass(exchange.request).keeping.cache.is_some() {
        match Box::pin(look_up::<F>(&mut exchange)).await {
            Ok(found) => cached = found,
            Err(step) => return step,
        }
    }
    let (target, chosen) = asked::choose(&exchange, way);
    let choice = match chosen {
        Ok(choice) => choice,
        Err(question) => {
            let watched = F::pass(exchange.request);
            match Box::pin(lookup::servers_of(question, exchange.request, watched)).await {
                Ok(group) => Choice::among(group),
                Err(step) => return step,
            }
        }
    };
    let mut session = match begin::<F>(&mut exchange, (target, choice), body, cached) {
        Ok(session) => session,
        Err(answer) => return Step::Respond(answer),
    };
    if let Some(mut tls) = session.tls.take() {
        if let Err(answer) = Box::pin(tls.load(exchange.request)).await {
            return Step::Respond(answer);
        }
        session.tls = Some(tls);
    }
    let end = loop {
        match poll_fn(|cx| session.poll(&mut exchange, cx)).await {
            End::Renew => {
                if let Err(answer) = Box::pin(session.renew::<F>(&mut exchange)).await {
                    return Step::Respond(answer);
                }
            }
            end => break end,
        }
    };
    match end {
        End::Renew => Step::status(500),
        End::Step(step) => match session.take_remembering() {
            Some(remembering) => Box::pin(remembering.run(exchange.request, step)).await,
            None => step,
        },
        End::Cached(status) => {
            let answering = session.take_answering(status);
            drop(session);
            let serving = F::caching(exchange.request).map(|caching| caching.serving);
            match answering.zip(serving) {
                Some((answering, serving)) => Box::pin(answering.answer(&mut exchange, serving)).await,
                None => Step::status(500),
            }
        }
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

/// Looks into the location's cache: what it has to do with a request that asks a server, or the answer.
async fn look_up<F: Family>(exchange: &mut Exchange<'_, '_>) -> Result<Option<Box<Cached>>, Step<'static>> {
    let Some(caching) = F::caching(exchange.request) else { return Ok(None) };
    match cached::look_up(exchange, caching).await {
        Looked::Uncached => Ok(None),
        Looked::Ask(cached) => Ok(Some(cached)),
        Looked::Answered(step) => Err(step),
    }
}

/// Makes what asks the servers. By itself, as what is borrowed in a future takes room in it to the end.
fn begin<'c, F: Family>(
    exchange: &mut Exchange<'_, 'c>,
    (target, choice): (F::Target<'c>, Choice<'c>),
    body: AskedBody,
    cached: Option<Box<Cached>>,
) -> Result<Box<Session<'c, F::Protocol>>, Answer> {
    let tls = match F::tls_host(&target) {
        Some(host) => Some(secure::prepare(exchange, F::pass(exchange.request), host)?),
        None => None,
    };
    let (asked, protocol) = F::begin(exchange, (target, choice), body)?;
    let mut session = Box::new(Session::new(exchange, asked, (protocol, cached)));
    session.tls = tls;
    Ok(session)
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
        let bytes = [
            future_bytes(pass::<Proxy>),
            future_bytes(pass::<FastCgiPass>),
            future_bytes(pass::<UwsgiPass>),
            future_bytes(pass::<MemcachedPass>),
            future_bytes(pass::<TunnelPass>),
            tunnel_bytes(tunnel::carry),
        ];
        assert!(bytes.iter().all(|&bytes| bytes <= 1024), "{bytes:?}");
    }
}
