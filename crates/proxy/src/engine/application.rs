//! What application servers are asked (`fastcgi_pass`, `scgi_pass`, `uwsgi_pass`): parameters, then the body.

use std::fmt;

use bytes::Bytes;
use clearway_base::log::{Level, Verbatim};
use clearway_gateway::fastcgi::{self, KeepConnection};
use clearway_gateway::{push_header_name, scgi, uwsgi};
use clearway_http::{Answer, Exchange, HeaderName, Request, View};
use clearway_net::url::UrlKind;

use crate::attempts::{AskedUri, Attempts, Begun, BodyForm};
use crate::engine::asked::{Asked, AskedBody, BodyUse, Family, Framing, Where, find_server};
use crate::engine::fastcgi::FastCgi;
use crate::engine::http1::Http1;
use crate::engine::protocol::Wanted;
use crate::settings::gateway::{
    FASTCGI, FASTCGI_PASS, ParamForm, Params, SCGI, SCGI_PASS, ServerSaid, UWSGI, UWSGI_PASS,
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
    /// Those whose length is known.
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
        server_of(exchange, said.ok_or(Answer::Status(500))?, "")
    }

    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse {
        body_use(exchange, Self::pass(exchange.request), Streams::All)
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        ((), choice): ((), Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, FastCgi), Answer> {
        let (pass, conf) = (Self::pass(exchange.request), exchange.request.conf(&FASTCGI));
        begin_attempts(exchange, "fastcgi://");
        let keep = if *conf.keep_conn { KeepConnection::Yes } else { KeepConnection::No };
        let mut head = Vec::with_capacity(HEAD_FIRST_BYTES);
        let mut request = fastcgi::Request::begin(&mut head, keep);
        put_params(&exchange.view(), &conf.sent, pass, &mut |name, value| request.param(name, value));
        request.finish().map_err(|error| refuse(exchange, Level::Alert, &error))?;
        let has_body = match &body {
            AskedBody::None => false,
            AskedBody::Stored(stored) => !stored.is_empty(),
            AskedBody::Stream => true,
        };
        if !has_body {
            head.extend_from_slice(&fastcgi::END_OF_STDIN);
        }
        let protocol = FastCgi::new(keep, conf.catch_stderr.to_vec());
        Ok((asked(exchange, (pass, choice), (head, body), Framing::Records), protocol))
    }
}

impl Family for ScgiPass {
    type Protocol = Http1;
    type Target<'c> = ();

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&SCGI_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, ()>, Answer> {
        let said = exchange.request.conf(&SCGI).target.get();
        server_of(exchange, said.ok_or(Answer::Status(500))?, "")
    }

    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse {
        body_use(exchange, Self::pass(exchange.request), Streams::Counted)
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        ((), choice): ((), Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, Http1), Answer> {
        let (pass, conf) = (Self::pass(exchange.request), exchange.request.conf(&SCGI));
        begin_attempts(exchange, "scgi://");
        let body_bytes = match &body {
            AskedBody::Stored(stored) => stored.len(),
            AskedBody::None | AskedBody::Stream => exchange.body.announced().unwrap_or(0),
        };
        let mut head = Vec::with_capacity(HEAD_FIRST_BYTES);
        let mut request = scgi::Request::begin(&mut head, body_bytes);
        put_params(&exchange.view(), &conf.sent, pass, &mut |name, value| request.param(name, value));
        request.finish().map_err(|error| refuse(exchange, Level::Error, &error))?;
        let asked = asked(exchange, (pass, choice), (head, body), Framing::Plain);
        Ok((asked, Http1::of_application()))
    }
}

impl Family for UwsgiPass {
    type Protocol = Http1;
    type Target<'c> = ();

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&UWSGI_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, ()>, Answer> {
        let said = exchange.request.conf(&UWSGI).target.get();
        server_of(exchange, said.ok_or(Answer::Status(500))?, "uwsgi://")
    }

    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse {
        body_use(exchange, Self::pass(exchange.request), Streams::Counted)
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        ((), choice): ((), Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, Http1), Answer> {
        let (pass, conf) = (Self::pass(exchange.request), exchange.request.conf(&UWSGI));
        begin_attempts(exchange, "uwsgi://");
        let modifiers = [0, 1].map(|at: usize| u8::try_from(*conf.modifiers[at]).unwrap_or(u8::MAX));
        let mut head = Vec::with_capacity(HEAD_FIRST_BYTES);
        let mut request = uwsgi::Request::begin(&mut head, modifiers);
        put_params(&exchange.view(), &conf.sent, pass, &mut |name, value| request.param(name, value));
        request.finish(&conf.string).map_err(|error| refuse(exchange, Level::Alert, &error))?;
        let asked = asked(exchange, (pass, choice), (head, body), Framing::Plain);
        Ok((asked, Http1::of_application()))
    }
}

/// Where a request goes. The text before an address, in any case, may stand there or not.
fn server_of<'c>(
    exchange: &Exchange<'_, 'c>,
    said: &'c ServerSaid,
    scheme: &str,
) -> Result<Where<'c, ()>, Answer> {
    let value = match said {
        ServerSaid::Fixed(group) => {
            return Ok(Where { destination: Destination::Configured(group.group()), target: () });
        }
        ServerSaid::Evaluated(value) => value,
    };
    let request = &exchange.request;
    let text = value.eval(&exchange.view());
    let begins = text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()));
    let address = Bytes::copy_from_slice(if begins { &text[scheme.len()..] } else { &text });
    if text.len() > TLS_SCHEME.len()
        && text[..TLS_SCHEME.len()].eq_ignore_ascii_case(TLS_SCHEME)
        && !scheme.is_empty()
    {
        request.log(Level::Error, format_args!("suwsgi protocol requires SSL support"));
        return Err(Answer::Status(500));
    }
    let (destination, url) = find_server(request, &address, 0, Level::Error)?;
    let is_elsewhere = !matches!(destination, Destination::Configured(_));
    if is_elsewhere && url.port == 0 && url.kind != UrlKind::Unix {
        let host = Verbatim(&address[url.host]);
        request.log(Level::Error, format_args!("no port in upstream \"{host}\""));
        return Err(Answer::Status(500));
    }
    Ok(Where { destination, target: () })
}

/// What stands before the address of a uwsgi server behind TLS.
const TLS_SCHEME: &[u8] = b"suwsgi://";

fn body_use(exchange: &Exchange<'_, '_>, pass: &PassConf, streams: Streams) -> BodyUse {
    let may_stream = streams == Streams::All || !exchange.body.is_chunked();
    match *pass.pass_request_body {
        false => BodyUse::Dropped,
        true if !*pass.request_buffering && may_stream => BodyUse::Streamed,
        true => BodyUse::Passed,
    }
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
    let wanted = if exchange.request.is_head() { Wanted::Head } else { Wanted::Whole };
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
    let mut name = Vec::new();
    for (at, line) in view.request.headers().enumerate() {
        let is_it = |other: &[u8]| other.eq_ignore_ascii_case(line.name);
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
