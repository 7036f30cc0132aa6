//! A request to a server, in any protocol: the server, the head, the body. Evaluated once for a request;
//! further attempts send the same bytes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use clearway_base::log::{Level, Verbatim};
use clearway_http::{Answer, Exchange, Request, Store, StoredBody};
use clearway_net::url::{Names, Url, UrlPath, UrlRules, parse_url};

use crate::engine::protocol::{Protocol, Wanted};
use crate::engine::serve::Serving;
use crate::settings::cache::FamilyCaches;
use crate::settings::pass::PassConf;
use crate::settings::proxy::ProxyConf;
use crate::upstreams::{Choice, Destination, Question};

/// A family of directives by which requests are passed on.
pub(super) trait Family {
    type Protocol: Protocol;

    /// Facts about the target of a request beyond its server.
    type Target<'c>;

    /// The settings that all families have, of this one.
    fn pass<'c>(request: &Request<'c>) -> &'c PassConf;

    /// Finds out where the request goes.
    ///
    /// # Errors
    /// The answer to send instead; the log has the reason.
    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, Self::Target<'c>>, Answer>;

    /// The name of a server that is asked over TLS, perhaps with a port; `None` without TLS.
    fn tls_host<'a>(_: &'a Self::Target<'_>) -> Option<&'a [u8]> {
        None
    }

    /// Has it asked for this, whatever the path of the request is (`health_check uri=`).
    fn ask_for(target: &mut Self::Target<'_>, uri: &[u8]) {
        let _ = (target, uri);
    }

    /// The treatment of the request's body.
    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse;

    /// Says what is asked for, for variables and caches; `begin` follows, unless a cache answers.
    ///
    /// # Errors
    /// The answer to send instead; the log has the reason.
    fn describe<'c>(
        exchange: &mut Exchange<'_, 'c>,
        target: &mut Self::Target<'c>,
        body: &AskedBody,
    ) -> Result<(), Answer> {
        let _ = (exchange, target, body);
        Ok(())
    }

    /// Makes the request once more, as what it is made from has changed since.
    ///
    /// # Errors
    /// The answer to send instead; the log has the reason.
    fn make_anew<'c>(exchange: &mut Exchange<'_, 'c>, asked: &mut Asked<'c>) -> Result<(), Answer> {
        let _ = (exchange, asked);
        Ok(())
    }

    /// How responses are kept, if they may be.
    fn caching<'c>(request: &Request<'c>) -> Option<Caching<'c>> {
        let _ = request;
        None
    }

    /// Makes the request.
    ///
    /// # Errors
    /// The answer to send instead; the log has the reason.
    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        way: (Self::Target<'c>, Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, Self::Protocol), Answer>;
}

/// How a family keeps responses.
pub(super) struct Caching<'c> {
    /// Its prefix, for messages.
    pub(super) prefix: &'static str,
    /// The caches that it has.
    pub(super) caches: &'c FamilyCaches,
    /// The key where no directive says it, of a request that is described.
    pub(super) key: fn(&Request<'_>) -> Vec<u8>,
    pub(super) serving: Serving<'c>,
}

/// Where a request goes.
pub(super) struct Where<'c, T> {
    pub(super) destination: Destination<'c>,
    pub(super) target: T,
}

/// The treatment of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyUse {
    /// The body is not read for the server.
    Unread,
    /// The body is read, and not passed on.
    Dropped,
    /// The body is read, and then passed on.
    Passed,
    /// The body is passed on as it comes.
    Streamed,
}

/// The body of a request.
pub(super) enum AskedBody {
    None,
    Stored(Arc<StoredBody>),
    /// The body is passed on as it comes.
    Stream,
}

/// How a body is framed on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// As it is.
    Plain,
    /// As it is, with a line end behind it (memcached).
    Line,
    /// In chunks (HTTP/1.1), if it is passed on as it comes.
    Chunked,
    /// In records with an empty one at the end (FastCGI). Without a body that one belongs to the head.
    Records,
}

/// A request to a server.
pub(super) struct Asked<'c> {
    pub(super) pass: &'c PassConf,
    /// Settings of `proxy_pass` only.
    pub(super) proxy: Option<&'c ProxyConf>,
    pub(super) choice: Choice<'c>,
    /// The head, and what `proxy_set_body` says.
    pub(super) head: Vec<u8>,
    pub(super) body: AskedBody,
    pub(super) framing: Framing,
    pub(super) wanted: Wanted,
}

/// A server whose address is the value of variables. A path may stand behind it where there is a port that is
/// meant by default: its family knows what becomes of it.
///
/// # Errors
/// What is answered instead; the log says why, at this level.
pub(super) fn find_server<'c>(
    request: &Request<'c>,
    address: &bytes::Bytes,
    default_port: u16,
    level: Level,
) -> Result<(Destination<'c>, Url), Answer> {
    let path = if default_port == 0 { UrlPath::Refused } else { UrlPath::Allowed };
    let rules = UrlRules { default_port, path, names: Names::Kept };
    let url = parse_url(address, rules).map_err(|error| {
        request.log(level, format_args!("{error} in upstream \"{}\"", Verbatim(address)));
        Answer::Status(500)
    })?;
    Ok((crate::upstreams::destination(request, address, &url), url))
}

/// The servers; the error is a name that has to be resolved first.
pub(super) fn choose<'c, T>(
    exchange: &Exchange<'_, 'c>,
    way: Where<'c, T>,
) -> (T, Result<Choice<'c>, Question<'c>>) {
    (way.target, way.destination.begin(&exchange.view()))
}

/// Has the body read, unless it is passed on as it comes.
pub(super) async fn take_body(exchange: &mut Exchange<'_, '_>, wanted: BodyUse) -> Result<AskedBody, Answer> {
    let is_kept = exchange.request.stored_body().is_some();
    let is_none = !is_kept && !exchange.body.is_announced() && exchange.body.announced().is_none();
    if wanted == BodyUse::Unread || is_none {
        return Ok(AskedBody::None);
    }
    let is_unread = !is_kept && !exchange.body.is_dropped();
    if wanted == BodyUse::Streamed && is_unread && exchange.body.may_come() {
        // As in nginx one that has come already is like one that was waited for.
        let kept = poll_fn(|cx| Poll::Ready(exchange.keep_body_that_is_here(cx))).await?;
        return Ok(kept.map_or(AskedBody::Stream, AskedBody::Stored));
    }
    // In a box: what reads a body would be most of the future of all requests.
    let stored = Box::pin(exchange.read_body(Store::AsConfigured)).await?;
    Ok(match stored.filter(|_| wanted != BodyUse::Dropped) {
        Some(body) => AskedBody::Stored(body),
        None => AskedBody::None,
    })
}
