//! Requests to application servers (`fastcgi_pass`, `scgi_pass`, `uwsgi_pass`): parameters, then the body.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Level, Verbatim};
use clearway_gateway::fastcgi::{self, KeepConnection};
use clearway_gateway::{push_header_name, scgi, uwsgi};
use clearway_http::{Answer, Exchange, HeaderName, Request, View};
use clearway_message::Known;
use clearway_net::url::{Url, UrlKind};

use crate::attempts::{AskedUri, Attempts, Begun, BodyForm, CacheNotes};
use crate::engine::asked::{Asked, AskedBody, BodyUse, Caching, Family, Framing, Where, find_server};
use crate::engine::fastcgi::{FastCgi, Relayed};
use crate::engine::http1::Http1;
use crate::engine::protocol::Wanted;
use crate::engine::serve::Serving;
use crate::settings::cache::FamilyCaches;
use crate::settings::gateway::{
    FASTCGI, FASTCGI_CACHES, FASTCGI_PASS, ParamForm, Params, SCGI, SCGI_CACHES, SCGI_PASS, ServerSaid,
    UWSGI, UWSGI_CACHES, UWSGI_PASS, UwsgiScheme,
};
use crate::settings::pass::PassConf;
use crate::upstreams::{Choice, Destination};

/// Room for most requests, bytes.
const HEAD_FIRST_BYTES: usize = 2048;

const COOKIE: HeaderName<'_> = HeaderName::new(b"Cookie");

/// `fastcgi_pass`
pub(super) struct FastCgiPass;

/// `scgi_pass`
pub(super) struct ScgiPass;

/// `uwsgi_pass`
pub(super) struct UwsgiPass;

/// Which bodies may be passed on as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streams {
    All,
    /// Bodies whose length is known.
    Counted,
}

impl Family for FastCgiPass {
    type Protocol = FastCgi;
    type Target<'c> = ();

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&FASTCGI_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, ()>, Answer> {
        let said = exchange.request.conf(&FASTCGI).target.get();
        server_of(exchange, said.ok_or(Answer::Status(500))?, Level::Error)
    }

    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse {
        body_use(exchange, Self::pass(exchange.request), Streams::All)
    }

    fn describe<'c>(exchange: &mut Exchange<'_, 'c>, (): &mut (), _: &AskedBody) -> Result<(), Answer> {
        begin_attempts(exchange, "fastcgi://");
        Ok(())
    }

    fn caching<'c>(request: &Request<'c>) -> Option<Caching<'c>> {
        Some(caching("fastcgi", Self::pass(request), request.main_conf(&FASTCGI_CACHES)))
    }

    fn make_anew<'c>(exchange: &mut Exchange<'_, 'c>, asked: &mut Asked<'c>) -> Result<(), Answer> {
        renew_body(exchange, asked);
        asked.head = fastcgi_head(exchange, &asked.body)?;
        Ok(())
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        ((), choice): ((), Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, FastCgi), Answer> {
        let (pass, conf) = (Self::pass(exchange.request), exchange.request.conf(&FASTCGI));
        let keep = keeps(exchange);
        let head = fastcgi_head(exchange, &body)?;
        let relayed = if *pass.buffering { Relayed::Buffered } else { Relayed::AsItComes };
        let protocol = FastCgi::new(keep, relayed, conf.catch_stderr.to_vec());
        Ok((asked(exchange, (pass, choice), (head, body), Framing::Records), protocol))
    }
}

fn keeps(exchange: &Exchange<'_, '_>) -> KeepConnection {
    if *exchange.request.conf(&FASTCGI).keep_conn { KeepConnection::Yes } else { KeepConnection::No }
}

fn fastcgi_head(exchange: &Exchange<'_, '_>, body: &AskedBody) -> Result<Vec<u8>, Answer> {
    let (pass, conf) = (FastCgiPass::pass(exchange.request), exchange.request.conf(&FASTCGI));
    let mut head = Vec::with_capacity(HEAD_FIRST_BYTES);
    let mut request = fastcgi::Request::begin(&mut head, keeps(exchange));
    put_params(&exchange.view(), &conf.sent, pass, &mut |name, value| request.param(name, value));
    request.finish().map_err(|error| refuse(exchange, Level::Alert, &error))?;
    let has_body = match body {
        AskedBody::None => false,
        AskedBody::Stored(stored) => !stored.is_empty(),
        AskedBody::Stream => true,
    };
    if !has_body {
        head.extend_from_slice(&fastcgi::END_OF_STDIN);
    }
    Ok(head)
}

/// The body as it is now, unless it is passed on as it comes.
fn renew_body(exchange: &Exchange<'_, '_>, asked: &mut Asked<'_>) {
    if *asked.pass.pass_request_body
        && !matches!(asked.body, AskedBody::Stream)
        && let Some(stored) = exchange.request.stored_body()
    {
        asked.body = AskedBody::Stored(Arc::clone(stored));
    }
}

fn scgi_head(exchange: &Exchange<'_, '_>, body: &AskedBody) -> Result<Vec<u8>, Answer> {
    let (pass, conf) = (ScgiPass::pass(exchange.request), exchange.request.conf(&SCGI));
    let body_bytes = match body {
        AskedBody::Stored(stored) => stored.len(),
        AskedBody::None | AskedBody::Stream => exchange.body.announced().unwrap_or(0),
    };
    let mut head = Vec::with_capacity(HEAD_FIRST_BYTES);
    let mut request = scgi::Request::begin(&mut head, body_bytes);
    put_params(&exchange.view(), &conf.sent, pass, &mut |name, value| request.param(name, value));
    request.finish().map_err(|error| refuse(exchange, Level::Error, &error))?;
    debug_assert_eq!(head.last(), Some(&b','), "a netstring ends in a comma");
    Ok(head)
}

fn uwsgi_head(exchange: &Exchange<'_, '_>) -> Result<Vec<u8>, Answer> {
    let (pass, conf) = (UwsgiPass::pass(exchange.request), exchange.request.conf(&UWSGI));
    let modifiers = [0, 1].map(|at: usize| u8::try_from(*conf.modifiers[at]).unwrap_or(u8::MAX));
    let mut head = Vec::with_capacity(HEAD_FIRST_BYTES);
    let mut request = uwsgi::Request::begin(&mut head, modifiers);
    put_params(&exchange.view(), &conf.sent, pass, &mut |name, value| request.param(name, value));
    request.finish(&conf.string).map_err(|error| refuse(exchange, Level::Alert, &error))?;
    Ok(head)
}

impl Family for ScgiPass {
    type Protocol = Http1;
    type Target<'c> = ();

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&SCGI_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, ()>, Answer> {
        let said = exchange.request.conf(&SCGI).target.get();
        server_of(exchange, said.ok_or(Answer::Status(500))?, Level::Error)
    }

    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse {
        body_use(exchange, Self::pass(exchange.request), Streams::Counted)
    }

    fn describe<'c>(exchange: &mut Exchange<'_, 'c>, (): &mut (), _: &AskedBody) -> Result<(), Answer> {
        begin_attempts(exchange, "scgi://");
        Ok(())
    }

    fn caching<'c>(request: &Request<'c>) -> Option<Caching<'c>> {
        Some(caching("scgi", Self::pass(request), request.main_conf(&SCGI_CACHES)))
    }

    fn make_anew<'c>(exchange: &mut Exchange<'_, 'c>, asked: &mut Asked<'c>) -> Result<(), Answer> {
        renew_body(exchange, asked);
        asked.head = scgi_head(exchange, &asked.body)?;
        Ok(())
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        ((), choice): ((), Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, Http1), Answer> {
        let (pass, head) = (Self::pass(exchange.request), scgi_head(exchange, &body)?);
        let asked = asked(exchange, (pass, choice), (head, body), Framing::Plain);
        Ok((asked, Http1::of_application()))
    }
}

impl Family for UwsgiPass {
    type Protocol = Http1;
    /// The name of a server that is asked over TLS.
    type Target<'c> = Option<Bytes>;

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&UWSGI_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, Option<Bytes>>, Answer> {
        let server = exchange.request.conf(&UWSGI).target.get().ok_or(Answer::Status(500))?;
        let value = match &server.said {
            ServerSaid::Fixed(group) => {
                let destination = Destination::Configured(group.group());
                return Ok(Where { destination, target: server.tls_name.clone() });
            }
            ServerSaid::Evaluated(value) => value,
        };
        let text = value.eval(&exchange.view());
        let (scheme, scheme_len) = UwsgiScheme::of(&text);
        if scheme == UwsgiScheme::Tls && !cfg!(feature = "tls") {
            exchange.request.log(Level::Error, format_args!("suwsgi protocol requires SSL support"));
            return Err(Answer::Status(500));
        }
        let address = Bytes::copy_from_slice(&text[scheme_len..]);
        let (destination, url) = evaluated_server(exchange, &address, Level::Error)?;
        let target = (scheme == UwsgiScheme::Tls).then(|| address.slice(url.host));
        Ok(Where { destination, target })
    }

    fn tls_host(target: &Option<Bytes>) -> Option<&[u8]> {
        target.as_deref()
    }

    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse {
        body_use(exchange, Self::pass(exchange.request), Streams::Counted)
    }

    fn describe<'c>(
        exchange: &mut Exchange<'_, 'c>,
        target: &mut Option<Bytes>,
        _: &AskedBody,
    ) -> Result<(), Answer> {
        let scheme = if target.is_some() { UwsgiScheme::Tls } else { UwsgiScheme::Plain };
        begin_attempts(exchange, scheme.text());
        Ok(())
    }

    fn caching<'c>(request: &Request<'c>) -> Option<Caching<'c>> {
        Some(caching("uwsgi", Self::pass(request), request.main_conf(&UWSGI_CACHES)))
    }

    fn make_anew<'c>(exchange: &mut Exchange<'_, 'c>, asked: &mut Asked<'c>) -> Result<(), Answer> {
        renew_body(exchange, asked);
        asked.head = uwsgi_head(exchange)?;
        Ok(())
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        (_, choice): (Option<Bytes>, Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, Http1), Answer> {
        let (pass, head) = (Self::pass(exchange.request), uwsgi_head(exchange)?);
        let asked = asked(exchange, (pass, choice), (head, body), Framing::Plain);
        Ok((asked, Http1::of_application()))
    }
}

/// Where a request goes whose server is said without a scheme. What is wrong with one that variables give
/// is logged at this level.
pub(super) fn server_of<'c>(
    exchange: &Exchange<'_, 'c>,
    said: &'c ServerSaid,
    level: Level,
) -> Result<Where<'c, ()>, Answer> {
    let destination = match said {
        ServerSaid::Fixed(group) => Destination::Configured(group.group()),
        ServerSaid::Evaluated(value) => {
            let address = Bytes::copy_from_slice(&value.eval(&exchange.view()));
            evaluated_server(exchange, &address, level)?.0
        }
    };
    Ok(Where { destination, target: () })
}

/// The server that variables have given; it says its port unless it is a group of the configuration.
fn evaluated_server<'c>(
    exchange: &Exchange<'_, 'c>,
    address: &Bytes,
    level: Level,
) -> Result<(Destination<'c>, Url), Answer> {
    let request = &exchange.request;
    let (destination, url) = find_server(request, address, 0, level)?;
    let is_elsewhere = !matches!(destination, Destination::Configured(_));
    if is_elsewhere && url.port == 0 && url.kind != UrlKind::Unix {
        let host = Verbatim(&address[url.host]);
        request.log(Level::Error, format_args!("no port in upstream \"{host}\""));
        return Err(Answer::Status(500));
    }
    Ok((destination, url))
}

fn body_use(exchange: &Exchange<'_, '_>, pass: &PassConf, streams: Streams) -> BodyUse {
    let may_stream = streams == Streams::All || !exchange.body.is_chunked();
    match *pass.pass_request_body {
        false => BodyUse::Dropped,
        true if !*pass.request_buffering && may_stream => BodyUse::Streamed,
        true => BodyUse::Passed,
    }
}

/// How responses of a family are kept. Without a directive that says it the key is empty, as in nginx.
fn caching<'c>(prefix: &'static str, pass: &'c PassConf, caches: &'c FamilyCaches) -> Caching<'c> {
    let serving = Serving::new(pass, None, Http1::of_application);
    Caching { prefix, caches, key: |_| Vec::new(), serving }
}

/// A location begins to ask; `scheme` stands before addresses in the log.
pub(super) fn begin_attempts(exchange: &mut Exchange<'_, '_>, scheme: &'static str) {
    let uri = AskedUri::Made(Vec::new());
    Attempts::begin(exchange.request, Begun { scheme, origin: None, uri, body: BodyForm::None });
}

fn asked<'c>(
    exchange: &Exchange<'_, 'c>,
    (pass, choice): (&'c PassConf, Choice<'c>),
    (head, body): (Vec<u8>, AskedBody),
    framing: Framing,
) -> Asked<'c> {
    let may_keep = Attempts::of(exchange.request).is_some_and(|attempts| attempts.cache.may_keep);
    let wanted = match exchange.request.is_head() {
        true if may_keep => Wanted::WhatComes,
        true => Wanted::Head,
        false => Wanted::Whole,
    };
    Asked { pass, proxy: None, choice, head, body, framing, wanted }
}

/// A request that cannot be said in the protocol.
fn refuse(exchange: &Exchange<'_, '_>, level: Level, error: &dyn fmt::Display) -> Answer {
    exchange.request.log(level, format_args!("{error}"));
    Answer::Status(500)
}

/// Hands over all parameters of a request: those that are said, and the client's header lines. Lines with the
/// same name become one.
fn put_params<'c>(
    view: &View<'_, 'c>,
    params: &'c Params,
    pass: &PassConf,
    put: &mut dyn FnMut(&[u8], &[u8]),
) {
    let mut value = Vec::new();
    for param in &params.list {
        value.clear();
        param.value.append(view, &mut value);
        if param.form == ParamForm::Always || !value.is_empty() {
            put(&param.name, &value);
        }
    }
    if !*pass.pass_request_headers {
        return;
    }
    let notes = Attempts::of(view.request).map(|attempts| &attempts.cache).filter(|notes| notes.may_keep);
    if let Some(notes) = notes {
        put_validators(params, notes, put);
    }
    let mut name = Vec::new();
    for (at, line) in view.request.headers().enumerate() {
        let is_it = |other: &[u8]| other.eq_ignore_ascii_case(line.name);
        if notes.is_some() && CONDITIONS.contains(&line.known) {
            continue;
        }
        if params.replaces(line.name) || view.request.headers().take(at).any(|before| is_it(before.name)) {
            continue;
        }
        name.clear();
        push_header_name(line.name, &mut name);
        value.clear();
        value.extend_from_slice(line.value);
        let separator: &[u8] = if COOKIE.is(line.name) { b"; " } else { b", " };
        for further in view.request.headers().skip(at + 1).filter(|further| is_it(further.name)) {
            value.extend_from_slice(separator);
            value.extend_from_slice(further.value);
        }
        put(&name, &value);
    }
}

/// Header lines of the client that are not passed on where the response is for others, too.
const CONDITIONS: [Known; 6] = [
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfNoneMatch,
    Known::IfMatch,
    Known::Range,
    Known::IfRange,
];

/// Adds the conditions for a cached response that has to be validated.
fn put_validators(params: &Params, notes: &CacheNotes, put: &mut dyn FnMut(&[u8], &[u8])) {
    if let Some(date) = notes.date().filter(|_| !params.replaces(b"If-Modified-Since")) {
        put(b"HTTP_IF_MODIFIED_SINCE", &date);
    }
    if let Some(tag) = notes.tag().filter(|_| !params.replaces(b"If-None-Match")) {
        put(b"HTTP_IF_NONE_MATCH", tag);
    }
}
