//! The handlers of `plugin_access`, `plugin_pass` and `plugin_log`: they write a message about the request,
//! send it to the plugin, and make the response of its answer. Runs in the request's task, which waits for
//! the plugin without holding a thread.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use clearway_base::log::{Level, Verbatim};
use clearway_http::{Chunk, Exchange, Mark, Request, Step, Store};
use clearway_runtime::Timer;

use crate::desk::{Call, NotMade};
use crate::directives::{Asked, PLUGIN_CONF};
use crate::message::{Field, Kind, Writer, parse_answer};
use crate::metrics;

/// Headers that only the server writes: a plugin's are left out.
const OURS: &[&[u8]] = &[
    b"connection",
    b"content-length",
    b"date",
    b"keep-alive",
    b"server",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// `plugin_access`
pub(crate) fn access<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some(asked) = &*exchange.request.conf(&PLUGIN_CONF).access else { return Step::Declined };
    if !exchange.request.is_main() {
        return Step::Declined;
    }
    let question = question(Kind::Access, asked, exchange.request).into_bytes();
    Step::Wait(Box::pin(async move {
        match ask(exchange.request, asked, &question).await {
            Ok(answer) if (200..300).contains(&answer.status) => Step::Allowed,
            Ok(answer) => respond(&mut exchange, answer),
            Err(status) => Step::status(status),
        }
    }))
}

/// `plugin_pass`
pub(crate) fn pass<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some(asked) = &*exchange.request.conf(&PLUGIN_CONF).pass else { return Step::Declined };
    Step::Wait(Box::pin(async move {
        if let Err(answer) = exchange.read_body(Store::AsConfigured).await {
            return Step::Respond(answer);
        }
        let mut question = question(Kind::Pass, asked, exchange.request);
        let body = match body(exchange.request, asked.plugin.message_bytes()).await {
            Ok(body) => body,
            Err(status) => return Step::status(status),
        };
        question.put(b":body", &body);
        match ask(exchange.request, asked, &question.into_bytes()).await {
            Ok(answer) => respond(&mut exchange, answer),
            Err(status) => Step::status(status),
        }
    }))
}

/// `plugin_log`
pub(crate) fn log<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some(asked) = &*exchange.request.conf(&PLUGIN_CONF).log else { return Step::Declined };
    let mut question = question(Kind::Log, asked, exchange.request);
    for (name, variable) in [(&b":status"[..], &b"status"[..]), (b":bytes", b"bytes_sent")] {
        let value = exchange.view().variable_named(variable).unwrap_or_default();
        question.put(name, &value);
    }
    // A message that cannot be sent is counted by `tell`.
    let _ = asked.plugin.tell(&question.into_bytes());
    Step::Declined
}

fn question(kind: Kind, asked: &Asked, request: &Request<'_>) -> Writer {
    let mut writer = Writer::new(kind);
    let mut client = Vec::new();
    request.put_peer(&mut client);
    for (name, value) in [
        (&b":function"[..], &asked.function[..]),
        (b":method", request.method_name()),
        (b":uri", request.path()),
        (b":args", request.args()),
        (b":protocol", request.protocol()),
        (b":scheme", request.scheme().as_bytes()),
        (b":client", &client),
    ] {
        writer.put(name, value);
    }
    request.headers().for_each(|line| writer.put(line.name, line.value));
    writer
}

/// The request's body, which was read before. An error is the status to answer with, 413 if it is too long.
async fn body(request: &Request<'_>, max_bytes: usize) -> Result<Vec<u8>, u16> {
    let Some(stored) = request.stored_body().cloned() else { return Ok(Vec::new()) };
    if usize::try_from(stored.len()).map_or(true, |bytes| bytes > max_bytes) {
        return Err(413);
    }
    let mut body = Vec::new();
    while (body.len() as u64) < stored.len() {
        let piece = stored.read(body.len() as u64, max_bytes).await.map_err(|_| 500_u16)?;
        if piece.is_empty() {
            return Err(500);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// A plugin's answer.
struct Answer {
    status: u16,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

/// Sends a question to the plugin and waits for the answer. An error is the status to answer with.
async fn ask(request: &Request<'_>, asked: &Asked, question: &[u8]) -> Result<Answer, u16> {
    let name = Verbatim(asked.plugin.name());
    let call: Result<Call, u16> = asked.plugin.ask(question).map_err(|not_made| {
        let (why, status) = match not_made {
            NotMade::Full => ("has too many calls under way", 503),
            NotMade::TooLarge => ("takes no message of that length", 413),
            NotMade::Over => ("is not there", 502),
        };
        request.log(Level::Error, format_args!("plugin \"{name}\" {why}"));
        status
    });
    let mut call = call?;
    let timeout_ms = *request.conf(&PLUGIN_CONF).timeout_ms;
    match within(request, timeout_ms, &mut call).await {
        None => {
            metrics::TIMEOUTS.increment();
            let text = format_args!("plugin \"{name}\" timed out (110: Connection timed out)");
            request.log(Level::Error, text);
            Err(504)
        }
        Some(Err(_)) => {
            request.log(Level::Error, format_args!("plugin \"{name}\" has ended before it answered"));
            Err(502)
        }
        Some(Ok(bytes)) => read(&bytes).ok_or_else(|| {
            metrics::INVALID.increment();
            request.log(Level::Error, format_args!("plugin \"{name}\" sent an invalid answer"));
            502
        }),
    }
}

/// The result of a call, or `None` if it took longer than `timeout_ms`.
async fn within(
    request: &Request<'_>,
    timeout_ms: u64,
    call: &mut Call,
) -> Option<Result<Vec<u8>, crate::desk::Failed>> {
    let home = request.home();
    let timer = Timer::new(home);
    timer.arm(home.now_ms().saturating_add(timeout_ms));
    poll_fn(|cx| match Pin::new(&mut *call).poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => timer.poll_expired(cx).map(|()| None),
    })
    .await
}

/// Parses an answer. `None`: it is invalid.
fn read(bytes: &[u8]) -> Option<Answer> {
    let mut answer = Answer { status: 200, headers: Vec::new(), body: Vec::new() };
    for (name, value) in parse_answer(bytes)? {
        match name {
            b":status" => {
                let status = std::str::from_utf8(value).ok()?.parse().ok()?;
                answer.status = Some(status).filter(|status| (200..600).contains(status))?;
            }
            b":body" => answer.body = value.to_vec(),
            _ if !is_header((name, value)) => return None,
            _ if OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name)) => {}
            _ => answer.headers.push((name.to_vec(), value.to_vec())),
        }
    }
    Some(answer)
}

/// Whether a field is a valid header line.
fn is_header((name, value): Field<'_>) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_token) && !value.iter().any(|byte| b"\r\n\0".contains(byte))
}

/// Makes the response of an answer. For an error without body and headers the server's own error page is
/// sent.
fn respond(exchange: &mut Exchange<'_, '_>, answer: Answer) -> Step<'static> {
    if answer.status >= 300 && answer.body.is_empty() && answer.headers.is_empty() {
        return Step::status(answer.status);
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    let head = exchange.output.head();
    head.status = answer.status;
    head.content_length = Some(answer.body.len() as u64);
    for (name, value) in answer.headers {
        match &name.to_ascii_lowercase()[..] {
            b"content-type" => head.content_type = Some(Cow::Owned(value)),
            b"content-encoding" => head.content_encoding = Some(Cow::Owned(value)),
            b"location" => head.location = Some(Cow::Owned(value)),
            _ => head.headers.add(&name, &value),
        }
    }
    // The whole response is one chunk, so nothing has to wait for room.
    let _ = exchange.output.write(exchange.request, Chunk::Owned(answer.body), Mark::Last);
    Step::Done
}
