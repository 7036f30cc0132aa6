//! What a server is asked: where, with which head, with which body. Evaluated once for a request; further
//! attempts send the same bytes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use clearway_base::log::{Level, Verbatim};
use clearway_h1::begin_request;
use clearway_http::{Answer, Exchange, Origin as AskedBy, Request, Store, StoredBody, Text, View, uri};
use clearway_message::{Known, Version, put_decimal};
use clearway_net::url::{Names, UrlPath, UrlRules, parse_url};

use crate::attempts::{AskedUri, Attempts, BodyForm};
use crate::engine::protocol::Wanted;
use crate::settings::pass::PassConf;
use crate::settings::proxy::{HttpVersion, LineValue, Origin, PROXY, PROXY_PASS, ProxyConf, Scheme, Target};
use crate::upstreams::{self, Choice, Destination, Question};

/// Where a request goes.
pub(super) struct Where<'c> {
    destination: Option<Destination<'c>>,
    origin: Origin,
    uri: Uri<'c>,
}

/// What the path of the request becomes.
enum Uri<'c> {
    /// What the configuration says in place of the location's name, if that is anything.
    Replacing(&'c [u8], usize),
    /// What variables have given.
    Given(Vec<u8>),
}

/// The body of a request.
pub(super) enum AskedBody {
    None,
    Stored(Arc<StoredBody>),
    /// It is passed on as it comes.
    Stream,
}

/// A request to a server.
pub(super) struct Asked<'c> {
    pub(super) pass: &'c PassConf,
    pub(super) proxy: &'c ProxyConf,
    pub(super) choice: Choice<'c>,
    /// The head, and what `proxy_set_body` says.
    pub(super) head: Vec<u8>,
    pub(super) body: AskedBody,
    /// How a body that is passed on as it comes is framed.
    pub(super) form: BodyForm,
    pub(super) wanted: Wanted,
}

/// Finds out where the request goes.
pub(super) fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c>, Answer> {
    let request = &exchange.request;
    let conf: &'c ProxyConf = request.conf(&PROXY);
    let target: &'c Target = conf.target.get().ok_or(Answer::Status(500))?;
    match target {
        Target::Fixed(fixed) => Ok(Where {
            destination: Some(Destination::Configured(fixed.group.group())),
            origin: fixed.origin.clone(),
            uri: Uri::Replacing(&fixed.uri, fixed.location.len()),
        }),
        Target::Evaluated(value) => evaluate_url(request, value.eval(&exchange.view())),
    }
}

fn evaluate_url<'c>(request: &Request<'c>, url: Text<'_>) -> Result<Where<'c>, Answer> {
    let Some(scheme) = Scheme::of(&url).filter(|scheme| *scheme == Scheme::Http) else {
        request.log(Level::Error, format_args!("invalid URL prefix in \"{}\"", Verbatim(&url)));
        return Err(Answer::Status(500));
    };
    let address = bytes::Bytes::copy_from_slice(&url[scheme.text().len()..]);
    let rules = UrlRules { default_port: scheme.port(), path: UrlPath::Allowed, names: Names::Kept };
    let parsed = parse_url(&address, rules).map_err(|error| {
        request.log(Level::Error, format_args!("{error} in upstream \"{}\"", Verbatim(&address)));
        Answer::Status(500)
    })?;
    let uri = match &address[parsed.path.clone()] {
        [] => Uri::Replacing(&[], 0),
        path @ [b'?', ..] => Uri::Given([b"/", path].concat()),
        path => Uri::Given(path.to_vec()),
    };
    let origin = Origin::new(scheme, &address, &parsed);
    let destination = upstreams::destination(request, &address, &parsed);
    Ok(Where { destination: Some(destination), origin, uri })
}

impl<'c> Where<'c> {
    /// The servers; the error is a name that has to be resolved first.
    pub(super) fn choose(&mut self, exchange: &Exchange<'_, 'c>) -> Result<Choice<'c>, Question<'c>> {
        let destination = self.destination.take().expect("a request chooses once");
        destination.begin(&exchange.view())
    }
}

/// Has the body read, unless it is passed on as it comes.
pub(super) async fn take_body(exchange: &mut Exchange<'_, '_>) -> Result<AskedBody, Answer> {
    let (pass, proxy) = (exchange.request.conf(&PROXY_PASS), exchange.request.conf(&PROXY));
    let passes = *pass.pass_request_body && proxy.body.is_none();
    let may_stream = *proxy.version == HttpVersion::Http11 || !exchange.body.is_chunked();
    let is_unread = exchange.request.stored_body().is_none() && !exchange.body.is_dropped();
    if passes && !*pass.request_buffering && may_stream && is_unread && exchange.body.is_announced() {
        // As in nginx one that has come already is like one that was waited for.
        let kept = poll_fn(|cx| Poll::Ready(exchange.keep_body_that_is_here(cx))).await?;
        return Ok(kept.map_or(AskedBody::Stream, AskedBody::Stored));
    }
    let stored = exchange.read_body(Store::AsConfigured).await?;
    Ok(match stored.filter(|_| passes) {
        Some(body) => AskedBody::Stored(body),
        None => AskedBody::None,
    })
}

/// Makes the request.
pub(super) fn begin<'c>(
    exchange: &mut Exchange<'_, 'c>,
    (target, choice): (Where<'c>, Choice<'c>),
    body: AskedBody,
) -> Result<Asked<'c>, Answer> {
    let (pass, proxy): (&'c PassConf, &'c ProxyConf) =
        (exchange.request.conf(&PROXY_PASS), exchange.request.conf(&PROXY));
    let Where { origin, uri, .. } = target;
    let text = proxy.body.as_ref().map(|text| text.eval(&exchange.view()).into_owned());
    let form = match (&body, &text) {
        (_, Some(text)) => BodyForm::Counted(text.len() as u64),
        (AskedBody::Stored(stored), None) => BodyForm::Counted(stored.len()),
        (AskedBody::Stream, None) => exchange.body.announced().map_or(BodyForm::Chunked, BodyForm::Counted),
        // As in nginx: one that was announced and dropped is said to be empty.
        (AskedBody::None, None) if exchange.body.is_dropped() && exchange.body.announced().is_some() => {
            BodyForm::Counted(0)
        }
        (AskedBody::None, None) => BodyForm::None,
    };
    let host_header = origin.host_header.clone();
    let uri = make_uri(exchange.request, uri);
    Attempts::begin(exchange.request, origin, uri, form);
    let (request, view) = (&*exchange.request, exchange.view());
    let uri = Attempts::of(request).map_or(&[][..], |attempts| attempts.uri.text(request));
    if uri.is_empty() {
        request.log(Level::Error, format_args!("zero length URI to proxy"));
        return Err(Answer::Status(500));
    }
    let method = match &*proxy.method {
        Some(method) => method.eval(&view),
        None => request.method_name().into(),
    };
    let wanted = if method.eq_ignore_ascii_case(b"HEAD") { Wanted::Head } else { Wanted::Whole };
    let mut head = Vec::with_capacity(HEAD_FIRST_BYTES);
    write_head((request, &view), (&method, uri), &host_header, form, &mut head);
    head.extend_from_slice(text.as_deref().unwrap_or_default());
    Ok(Asked { pass, proxy, choice, head, body, form, wanted })
}

/// Room for most heads, bytes.
const HEAD_FIRST_BYTES: usize = 1024;

fn make_uri(request: &Request<'_>, uri: Uri<'_>) -> AskedUri {
    let (replacement, location_len) = match uri {
        Uri::Given(uri) => return AskedUri::Made(uri),
        Uri::Replacing(replacement, location_len) => (replacement, location_len),
    };
    // An absolute target may have a query and no path.
    let is_passed = |target: &&[u8]| replacement.is_empty() && target.starts_with(b"/");
    if request.untouched_target().as_ref().is_some_and(is_passed) {
        return AskedUri::AsReceived;
    }
    let path = request.path();
    let is_in_location = !request.is_rewritten_in_place();
    let replaced = if is_in_location && !replacement.is_empty() { location_len.min(path.len()) } else { 0 };
    let mut out = if is_in_location { replacement.to_vec() } else { Vec::new() };
    if request.has_escapes() || request.origin() == AskedBy::Internal || !request.is_main() {
        out.extend_from_slice(&uri::escape_uri(&path[replaced..], uri::Escape::Uri));
    } else {
        out.extend_from_slice(&path[replaced..]);
    }
    if !request.args().is_empty() {
        out.push(b'?');
        out.extend_from_slice(request.args());
    }
    AskedUri::Made(out)
}

fn write_head<'c>(
    (request, view): (&Request<'c>, &View<'_, 'c>),
    (method, uri): (&[u8], &[u8]),
    host_header: &[u8],
    form: BodyForm,
    out: &mut Vec<u8>,
) {
    let (pass, proxy) = (request.conf(&PROXY_PASS), request.conf(&PROXY));
    let version = match *proxy.version {
        HttpVersion::Http10 => Version::HTTP_10,
        HttpVersion::Http11 => Version::HTTP_11,
    };
    let said_host = proxy.headers.host.as_ref().map(|host| host.eval(view));
    let host = match &said_host {
        Some(host) if !host.is_empty() || *proxy.version == HttpVersion::Http10 => host,
        _ => host_header,
    };
    let mut writer = begin_request(out, method, uri, version);
    if !host.is_empty() {
        writer = writer.header(b"Host", host);
    }
    let mut value = Vec::new();
    for (name, line) in &proxy.headers.lines {
        value.clear();
        match (line, form) {
            (LineValue::Said(said), _) => said.append(view, &mut value),
            (LineValue::BodyLength, BodyForm::Counted(bytes)) => put_decimal(&mut value, bytes),
            (LineValue::Chunked, BodyForm::Chunked) => value.extend_from_slice(b"chunked"),
            (LineValue::BodyLength | LineValue::Chunked, _) => {}
        }
        if !value.is_empty() {
            writer = writer.header(name, &value);
        }
    }
    if *pass.pass_request_headers {
        for line in request.headers() {
            if !proxy.headers.replaces(line.known, line.name) {
                writer = writer.header(line.name, line.value);
            }
        }
    }
    writer.finish();
}

/// Whether the request says itself how its body is framed, so that nobody knows where it ends.
pub(super) fn frames_itself(proxy: &ProxyConf) -> bool {
    let framing = [Known::ContentLength, Known::TransferEncoding];
    let is_said = |line: &LineValue| matches!(line, LineValue::Said(_));
    let lines = proxy.headers.lines.iter();
    lines.filter(|(_, value)| is_said(value)).any(|(name, _)| framing.contains(&Known::find(name)))
}
