//! Requests to HTTP servers (`proxy_pass`).

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Level, Verbatim};
use clearway_h1::begin_request;
use clearway_http::{Answer, Exchange, Origin as AskedBy, Request, Text, View, uri};
use clearway_message::{Known, Version, put_decimal};

use crate::attempts::{AskedUri, Attempts, Begun, BodyForm, CacheNotes};
use crate::engine::asked::{Asked, AskedBody, BodyUse, Caching, Family, Framing, Where, find_server};
use crate::engine::http1::Http1;
use crate::engine::protocol::Wanted;
use crate::engine::serve::Serving;
use crate::settings::pass::PassConf;
use crate::settings::proxy::{
    Headers, HttpVersion, LineValue, Origin, PROXY, PROXY_CACHES, PROXY_PASS, ProxyConf, Scheme, Target,
};
use crate::upstreams::{Choice, Destination};

/// `proxy_pass`
pub(super) struct Proxy;

/// The server and the URI that a request is passed to.
pub(super) struct Aim<'c> {
    origin: Origin,
    uri: Uri<'c>,
    /// The value of `proxy_set_body`.
    text: Option<Box<Bytes>>,
}

/// The new path of the request.
enum Uri<'c> {
    /// The text of the configuration in place of the location's name.
    Replacing(&'c [u8], usize),
    /// The result of variables.
    Given(Vec<u8>),
}

impl Family for Proxy {
    type Protocol = Http1;
    type Target<'c> = Aim<'c>;

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&PROXY_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, Aim<'c>>, Answer> {
        let request = &exchange.request;
        let conf: &'c ProxyConf = request.conf(&PROXY);
        let target: &'c Target = conf.target.get().ok_or(Answer::Status(500))?;
        match target {
            Target::Fixed(fixed) => Ok(Where {
                destination: Destination::Configured(fixed.group.group()),
                target: Aim::new(fixed.origin.clone(), Uri::Replacing(&fixed.uri, fixed.location.len())),
            }),
            Target::Evaluated(value) => evaluate_url(request, value.eval(&exchange.view())),
        }
    }

    fn tls_host<'a>(aim: &'a Aim<'_>) -> Option<&'a [u8]> {
        (aim.origin.scheme == Scheme::Https).then_some(&aim.origin.host_header[..])
    }

    fn ask_for(aim: &mut Aim<'_>, uri: &[u8]) {
        aim.uri = Uri::Given(uri.to_vec());
    }

    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse {
        let (pass, proxy) = (exchange.request.conf(&PROXY_PASS), exchange.request.conf(&PROXY));
        let may_stream = *proxy.version == HttpVersion::Http11 || !exchange.body.is_chunked();
        match *pass.pass_request_body && proxy.body.is_none() {
            false => BodyUse::Dropped,
            true if !*pass.request_buffering && may_stream => BodyUse::Streamed,
            true => BodyUse::Passed,
        }
    }

    fn describe<'c>(
        exchange: &mut Exchange<'_, 'c>,
        target: &mut Aim<'c>,
        body: &AskedBody,
    ) -> Result<(), Answer> {
        describe(exchange, target, body)
    }

    fn make_anew<'c>(exchange: &mut Exchange<'_, 'c>, asked: &mut Asked<'c>) -> Result<(), Answer> {
        make_anew(exchange, asked);
        Ok(())
    }

    fn caching<'c>(request: &Request<'c>) -> Option<Caching<'c>> {
        let caches = request.main_conf(&PROXY_CACHES);
        let (pass, proxy) = (request.conf(&PROXY_PASS), request.conf(&PROXY));
        let serving = Serving::new(pass, Some(proxy), Http1::new);
        Some(Caching { prefix: "proxy", caches, key: default_key, serving })
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        way: (Aim<'c>, Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, Http1), Answer> {
        Ok((begin(exchange, way, body), Http1::new()))
    }
}

/// Whether servers can be asked so.
fn is_spoken(scheme: Scheme) -> bool {
    scheme == Scheme::Http || cfg!(feature = "tls")
}

fn evaluate_url<'c>(request: &Request<'c>, url: Text<'_>) -> Result<Where<'c, Aim<'c>>, Answer> {
    let Some(scheme) = Scheme::of(&url).filter(|scheme| is_spoken(*scheme)) else {
        request.log(Level::Error, format_args!("invalid URL prefix in \"{}\"", Verbatim(&url)));
        return Err(Answer::Status(500));
    };
    let address = Bytes::copy_from_slice(&url[scheme.text().len()..]);
    let (destination, parsed) = find_server(request, &address, scheme.port(), Level::Error)?;
    let uri = match &address[parsed.path.clone()] {
        [] => Uri::Replacing(&[], 0),
        path @ [b'?', ..] => Uri::Given([b"/", path].concat()),
        path => Uri::Given(path.to_vec()),
    };
    let origin = Origin::new(scheme, &address, &parsed);
    Ok(Where { destination, target: Aim::new(origin, uri) })
}

impl<'c> Aim<'c> {
    fn new(origin: Origin, uri: Uri<'c>) -> Self {
        Self { origin, uri, text: None }
    }
}

/// Says what is asked for.
fn describe<'c>(exchange: &mut Exchange<'_, 'c>, aim: &mut Aim<'c>, body: &AskedBody) -> Result<(), Answer> {
    let proxy: &'c ProxyConf = exchange.request.conf(&PROXY);
    aim.text = proxy.body.as_ref().map(|text| Box::new(text.eval(&exchange.view()).into_owned().into()));
    let form = form_of(exchange, body, aim.text.as_deref());
    let origin = aim.origin.clone();
    let uri = make_uri(exchange.request, std::mem::replace(&mut aim.uri, Uri::Given(Vec::new())));
    let scheme = origin.scheme.text();
    Attempts::begin(exchange.request, Begun { scheme, origin: Some(origin), uri, body: form });
    if asked_uri(exchange.request).is_empty() {
        exchange.request.log(Level::Error, format_args!("zero length URI to proxy"));
        return Err(Answer::Status(500));
    }
    Ok(())
}

/// How a body is passed on that is this one, or the text in its place.
fn form_of(exchange: &Exchange<'_, '_>, body: &AskedBody, text: Option<&Bytes>) -> BodyForm {
    match (body, text) {
        (_, Some(text)) => BodyForm::Counted(text.len() as u64),
        (AskedBody::Stored(stored), None) => BodyForm::Counted(stored.len()),
        (AskedBody::Stream, None) => exchange.body.announced().map_or(BodyForm::Chunked, BodyForm::Counted),
        // As in nginx: one that was announced and dropped is said to be empty.
        (AskedBody::None, None) if exchange.body.is_dropped() && exchange.body.announced().is_some() => {
            BodyForm::Counted(0)
        }
        (AskedBody::None, None) => BodyForm::None,
    }
}

/// Makes the request once more: header lines, variables and the body may be others now.
fn make_anew<'c>(exchange: &mut Exchange<'_, 'c>, asked: &mut Asked<'c>) {
    let proxy: &'c ProxyConf = exchange.request.conf(&PROXY);
    let text: Option<Bytes> = proxy.body.as_ref().map(|text| text.eval(&exchange.view()).into_owned().into());
    let is_passed = Proxy::body_use(exchange) != BodyUse::Dropped && text.is_none();
    if is_passed
        && !matches!(asked.body, AskedBody::Stream)
        && let Some(stored) = exchange.request.stored_body()
    {
        asked.body = AskedBody::Stored(Arc::clone(stored));
    }
    let form = form_of(exchange, &asked.body, text.as_ref());
    let attempts = Attempts::of_mut(exchange.request);
    attempts.body = form;
    let host = attempts.origin.as_ref().map(|origin| origin.host_header.clone()).unwrap_or_default();
    let (head, wanted) = head_of(exchange, &host, text.as_ref());
    (asked.head, asked.wanted) = (head, wanted);
    asked.framing = if form == BodyForm::Chunked { Framing::Chunked } else { Framing::Plain };
}

fn asked_uri<'a>(request: &'a Request<'_>) -> &'a [u8] {
    Attempts::of(request).map_or(&[][..], |attempts| attempts.uri.text(request))
}

/// The key that a response is kept under where no directive sets one: the server and the URI.
fn default_key(request: &Request<'_>) -> Vec<u8> {
    let Some(attempts) = Attempts::of(request) else { return Vec::new() };
    let origin = attempts.origin.as_ref();
    let server = origin.map(|origin| [origin.scheme.text().as_bytes(), origin.authority()].concat());
    let mut key = server.unwrap_or_default();
    key.extend_from_slice(attempts.uri.text(request));
    key
}

/// Makes the request.
fn begin<'c>(
    exchange: &Exchange<'_, 'c>,
    (aim, choice): (Aim<'c>, Choice<'c>),
    body: AskedBody,
) -> Asked<'c> {
    let (pass, proxy): (&'c PassConf, &'c ProxyConf) =
        (exchange.request.conf(&PROXY_PASS), exchange.request.conf(&PROXY));
    let (head, wanted) = head_of(exchange, &aim.origin.host_header, aim.text.as_deref());
    let form = Attempts::of(exchange.request).map_or(BodyForm::None, |attempts| attempts.body);
    let framing = if form == BodyForm::Chunked { Framing::Chunked } else { Framing::Plain };
    Asked { pass, proxy: Some(proxy), choice, head, body, framing, wanted }
}

/// The head of the request, with the text that is its body behind it; and what it wants.
fn head_of<'c>(exchange: &Exchange<'_, 'c>, host: &[u8], text: Option<&Bytes>) -> (Vec<u8>, Wanted) {
    let proxy: &'c ProxyConf = exchange.request.conf(&PROXY);
    let (request, view) = (&*exchange.request, exchange.view());
    let notes = Attempts::of(request).map(|attempts| &attempts.cache);
    let method = match &*proxy.method {
        _ if notes.is_some_and(|notes| notes.wants_whole) => b"GET"[..].into(),
        Some(method) => method.eval(&view),
        None => request.method_name().into(),
    };
    let wanted = if method.eq_ignore_ascii_case(b"HEAD") { Wanted::Head } else { Wanted::Whole };
    let headers = match notes.is_some_and(|notes| notes.may_keep || notes.missing.is_some()) {
        true => &proxy.cache_headers,
        false => &proxy.headers,
    };
    let form = Attempts::of(request).map_or(BodyForm::None, |attempts| attempts.body);
    let mut head = Vec::with_capacity(HEAD_FIRST_BYTES);
    write_head((request, &view), (&method, headers), host, form, &mut head);
    head.extend_from_slice(text.map_or(&[][..], |text| text));
    (head, wanted)
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
    (method, headers): (&[u8], &'c Headers),
    host_header: &[u8],
    form: BodyForm,
    out: &mut Vec<u8>,
) {
    let (pass, proxy) = (request.conf(&PROXY_PASS), request.conf(&PROXY));
    let version = match *proxy.version {
        HttpVersion::Http10 => Version::HTTP_10,
        HttpVersion::Http11 => Version::HTTP_11,
    };
    let said_host = headers.host.as_ref().map(|host| host.eval(view));
    let host = match &said_host {
        Some(host) if !host.is_empty() || *proxy.version == HttpVersion::Http10 => host,
        _ => host_header,
    };
    let mut writer = begin_request(out, method, asked_uri(request), version);
    if !host.is_empty() {
        writer = writer.header(b"Host", host);
    }
    let mut value = Vec::new();
    let notes = Attempts::of(request).map(|attempts| &attempts.cache);
    for (name, line) in &headers.lines {
        value.clear();
        match (line, form) {
            (LineValue::Said(said), _) => said.append(view, &mut value),
            (LineValue::BodyLength, BodyForm::Counted(bytes)) => put_decimal(&mut value, bytes),
            (LineValue::Chunked, BodyForm::Chunked) => value.extend_from_slice(b"chunked"),
            (LineValue::BodyLength | LineValue::Chunked, _) => {}
            (LineValue::CachedDate, _) => {
                value.extend(notes.and_then(CacheNotes::date).into_iter().flatten())
            }
            (LineValue::CachedTag, _) => {
                value.extend_from_slice(notes.and_then(CacheNotes::tag).unwrap_or_default());
            }
        }
        if !value.is_empty() {
            writer = writer.header(name, &value);
        }
    }
    if *pass.pass_request_headers {
        for line in request.headers() {
            if !headers.replaces(line.known, line.name) {
                writer = writer.header(line.name, line.value);
            }
        }
    }
    if let Some(missing) = notes.and_then(|notes| notes.missing.as_deref()) {
        writer = writer.header(b"Range", missing.wanted().as_bytes());
        writer = writer.header(b"If-Range", &missing.validator);
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
