//! Objects on their way from a cache to clients: the head as it was received, read and passed on like that of
//! a server, and a part of the file as body. Runs on the loop of the request.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Level, Verbatim};
use clearway_cache::disks::{Found, Handle, Made};
use clearway_http::{
    Chunk, Conditions, Exchange, FileAccess, FilePart, Mark, OpenFile, Ranges, Request, Step,
};
use clearway_message::Header;
use clearway_offload::Pool;

use crate::attempts::{Attempts, CacheStatus, KeptHead, Lines};
use crate::engine::http1::Http1;
use crate::engine::protocol::{HeadProgress, Protocol};
use crate::heads::accel::{self, Accel};
use crate::heads::fill::{Received, Rewritten, fill};
use crate::settings::pass::PassConf;
use crate::settings::proxy::ProxyConf;

/// How what is stored is sent.
#[derive(Clone, Copy)]
pub(super) struct Serving<'c> {
    pub(super) pass: &'c PassConf,
    /// Settings of `proxy_pass` only.
    proxy: Option<&'c ProxyConf>,
    /// The parser of heads: any framing is taken off responses before they are stored.
    reader: fn() -> Http1,
}

impl<'c> Serving<'c> {
    /// Serves by the settings of a location.
    pub(super) fn new(pass: &'c PassConf, proxy: Option<&'c ProxyConf>, reader: fn() -> Http1) -> Self {
        Self { pass, proxy, reader }
    }
}

/// The stored bytes are no response; the log has the reason.
pub(super) struct Unreadable;

/// Whether all of a body is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyIs {
    /// In one piece.
    Whole,
    /// The body comes in several pieces.
    Growing,
}

/// The result for a request whose head was pushed.
pub(super) enum Sent {
    /// That was all.
    Answered(Step<'static>),
    /// The body follows.
    Body,
}

/// The result of an attempt to send an object.
pub(super) enum Stored {
    Answered(Step<'static>),
    /// These bytes of the file could not be read. All bytes before them are sent, or will be.
    Torn(Range<u64>),
}

/// Answers with an object, of which `pool` reads what the loop cannot.
///
/// # Errors
/// See [`Unreadable`]: nothing was answered.
pub(super) async fn stored<'c>(
    exchange: &mut Exchange<'_, 'c>,
    serving: Serving<'c>,
    (status, found, pool): (CacheStatus, Found, Option<Arc<Pool>>),
) -> Result<Stored, Unreadable> {
    let made = found.made();
    let head = (status, found.head(), made.as_deref());
    let Some(sent) = push_head(exchange, serving, head, BodyIs::Whole) else {
        let path = Verbatim::path(&found.path);
        let message = format_args!("cache file \"{path}\" contains invalid header");
        exchange.request.log(Level::Crit, message);
        return Err(Unreadable);
    };
    if let Sent::Answered(step) = sent {
        return Ok(Stored::Answered(step));
    }
    let range = found.body_start()..found.identity.length;
    let opened = match (found.body(), found.opened) {
        (None, Some(opened)) => opened,
        (body, _) => {
            let body = Chunk::Shared(body.unwrap_or_default());
            let _ = exchange.output.write(exchange.request, body, Mark::Last);
            return Ok(Stored::Answered(Step::Done));
        }
    };
    let path = found.path.as_os_str().as_bytes();
    let file = match opened {
        Handle::Own(opened) => OpenFile::new(opened, path, FileAccess::Cached, None),
        Handle::Kept(opened) => OpenFile::shared(opened, path),
    };
    let file = match pool {
        Some(pool) => file.with_pool(pool),
        None => file,
    };
    let part = FilePart::new(Arc::new(file), range.start..range.end.max(range.start));
    if part.is_empty() {
        let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Last);
    } else if exchange.output.takes_files() {
        let _ = exchange.output.write(exchange.request, Chunk::File(part), Mark::Last);
        if serving.mends(exchange.request)
            && exchange.output.ready(exchange.request).await.is_err()
            && let Some(missing) = exchange.output.begin_mending(exchange.request)
        {
            return Ok(Stored::Torn(missing));
        }
    } else {
        // What cannot be sent the connection deals with.
        let _ = exchange.output.send_bytes(exchange.request, part).await;
    }
    Ok(Stored::Answered(Step::Done))
}

/// A head that is stored, as it was read.
struct ReadHead {
    /// The reader of responses: locations of other families may find something else in the object.
    reader: fn() -> Http1,
    protocol: Http1,
    lines: Arc<[Header]>,
}

/// Pushes a head as it is stored, with what may have been made of it; `None` where it is none.
pub(super) fn push_head<'c>(
    exchange: &mut Exchange<'_, 'c>,
    serving: Serving<'c>,
    (status, bytes, made): (CacheStatus, Bytes, Option<&Made>),
    body: BodyIs,
) -> Option<Sent> {
    debug_assert!(!exchange.output.head_sent(), "a response has one head");
    let read = serving.read(&bytes, made)?;
    let (protocol, lines) = (&read.protocol, &read.lines);
    exchange.request.set_action("sending response to client");
    Attempts::note_cache(exchange.request, status);
    let kept = KeptHead { bytes: bytes.clone(), lines: Lines::Shared(Arc::clone(lines)) };
    Attempts::of_mut(exchange.request).head = Some(kept);
    let accel = Accel::read(serving.pass, lines, &bytes);
    if let Some(rate) = accel.limit_rate {
        exchange.request.set_limit_rate(rate);
    }
    if let Some(charset) = accel.charset {
        exchange.request.set_charset_override(charset);
    }
    let received = Received {
        status_line: if bytes.is_empty() { b"200 OK"[..].into() } else { protocol.status_line(&bytes) },
        bytes: &bytes,
        lines,
        content_length: protocol.content_length(),
    };
    if let Some(answer) = accel::redirect(exchange.request, serving.pass, &received) {
        accel::keep_for_redirect(exchange.output.head(), &received);
        exchange.request.use_get();
        return Some(Sent::Answered(Step::Respond(answer)));
    }
    let pass = serving.pass;
    let rewritten = serving.proxy.map(|proxy| Rewritten::new(&exchange.view(), (pass, proxy), &received));
    fill(&mut exchange.output, pass, rewritten.unwrap_or_default(), &received);
    protocol.complete_head(exchange.output.head());
    let head = exchange.output.head();
    head.conditions = Conditions::JudgedHere;
    if head.ranges != Ranges::Refused {
        head.ranges = if body == BodyIs::Whole { Ranges::Allowed } else { Ranges::OnePart };
    }
    exchange.output.send_head(exchange.request);
    if exchange.output.wants_body() { Some(Sent::Body) } else { Some(Sent::Answered(Step::Done)) }
}

impl Serving<'_> {
    /// Whether a response may get its rest from the server: not a subrequest's, nor another family's.
    pub(super) fn mends(&self, request: &Request<'_>) -> bool {
        self.proxy.is_some() && request.is_main()
    }

    /// Reads a head, unless the copy of its object has what was read before. `None` where it is none.
    fn read(&self, bytes: &[u8], made: Option<&Made>) -> Option<Arc<ReadHead>> {
        let kept = made.and_then(Made::get::<ReadHead>);
        if let Some(read) = kept.filter(|read| std::ptr::fn_addr_eq(read.reader, self.reader)) {
            return Some(read);
        }
        let mut protocol = (self.reader)();
        parse_head(&mut protocol, bytes)?;
        let lines = protocol.take_lines().into();
        let read = Arc::new(ReadHead { reader: self.reader, protocol, lines });
        if let Some(made) = made {
            made.set(Arc::clone(&read) as _);
        }
        Some(read)
    }

    /// How long the body of a head that is stored is, bytes, if it says so.
    pub(super) fn read_length(&self, bytes: &[u8]) -> Option<u64> {
        let mut protocol = (self.reader)();
        parse_head(&mut protocol, bytes)?;
        protocol.content_length()
    }

    /// The status and the lines of a head that is stored.
    pub(super) fn read_head(&self, bytes: &[u8]) -> Option<(u16, Vec<Header>)> {
        let mut protocol = (self.reader)();
        parse_head(&mut protocol, bytes)?;
        Some((protocol.status(), protocol.take_lines()))
    }
}

fn parse_head(protocol: &mut Http1, bytes: &[u8]) -> Option<()> {
    match protocol.head(bytes, bytes.len()) {
        _ if bytes.is_empty() => Some(()),
        Ok(HeadProgress::Final | HeadProgress::Headless) => Some(()),
        Ok(HeadProgress::Incomplete | HeadProgress::Interim) | Err(_) => None,
    }
}
