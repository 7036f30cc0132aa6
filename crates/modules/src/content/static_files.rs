//! Files under `root` or `alias`. What is in memory is done on the loop of the request: a copy of a small
//! file, or opening and handing over the open file to be sent. A pool thread opens what is not.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_http::uri::{self, Escape};
use clearway_http::{
    Answer, Chunk, Cost, ETags, Exchange, FileAccess, FilePart, Mark, Module, OpenFile, Phase, PhaseHandler,
    Ranges, Request, Step, Verbatim, paths,
};
use clearway_message::Method;
use clearway_offload::files::{Attempt, Opened};
use clearway_os::stat::Stat;

use crate::content::copies::{COPIES, COPY_MAX_BYTES, FileCopy, Now};
use crate::content::files::{Failure, copies_limit, log_failure, refuse};
use crate::content::lookup::Failed;
use crate::content::names::{Found, Names, Question, Search, is_direct};
use crate::filters::not_modified;

/// The module. It answers what no other module has answered, so it comes last.
pub static STATIC_FILES: Module = Module { name: "static", phases: PHASES, ..Module::EMPTY };

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::Content, cost: Cost::Cheap, enabled: |_| true, handler }];

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let request = &exchange.request;
    if !matches!(request.method(), Method::Get | Method::Head | Method::Post) {
        return Step::status(405);
    }
    if request.path().ends_with(b"/") {
        return refuse_directory(&exchange);
    }
    let view = exchange.view();
    let path = paths::file_path(&view);
    let names = Names::of(&view, &path);
    if names.are_plain()
        && let Some(copy) = find_copy(request, &names, &path)
    {
        return answer(&mut exchange, &path, FileToSend::Copy(copy)).step();
    }
    let found = match names.open(&path) {
        Search::Known(found) => found,
        Search::Asked(reply) => names.settle(request, &path, reply),
        Search::Cold(question) => return Step::Wait(Box::pin(open_on_pool(exchange, names, path, question))),
    };
    match answer_found(&mut exchange, &path, found) {
        Answered::Unread(part) => Step::Wait(Box::pin(send_bytes(exchange, part))),
        answered => answered.step(),
    }
}

/// A directory that no index and no listing was found for.
fn refuse_directory<'a>(exchange: &Exchange<'a, '_>) -> Step<'a> {
    let path = paths::file_path(&exchange.view());
    exchange
        .request
        .log(LogLevel::Error, format_args!("directory index of \"{}\" is forbidden", Verbatim(&path)));
    Step::status(403)
}

/// The copy of what is behind a path now, if there is one and that can be found out at once.
pub(crate) fn find_copy(request: &Request<'_>, names: &Names, path: &[u8]) -> Option<Arc<FileCopy>> {
    if copies_limit(request) == 0 {
        return None;
    }
    let copy = COPIES.find(path, now(request))?;
    if is_direct(request, copy.stat().size) {
        return None;
    }
    let arrived_ns = request.arrived_ns();
    if arrived_ns.is_some_and(|arrived_ns| copy.was_asked_since(arrived_ns)) {
        return Some(copy);
    }
    let told = names.told(request, path);
    // The time is taken before the file is asked.
    let asked_ns = arrived_ns.filter(|_| told.is_none()).map(|_| request.clock_ns());
    let found = match told {
        Some(stat) => Attempt::Done(Ok(stat)),
        None => names.stat(path),
    };
    match found {
        Attempt::Cold => None,
        Attempt::Done(Ok(stat)) if copy.is_of(&stat) => {
            if let Some(asked_ns) = asked_ns {
                copy.note_asked(asked_ns);
            }
            Some(copy)
        }
        Attempt::Done(_) => {
            COPIES.drop_outdated(&copy);
            None
        }
    }
}

fn now(request: &Request<'_>) -> Now {
    Now { monotonic_ms: request.now_ms(), unix_ms: request.now_unix_ms() }
}

async fn open_on_pool(
    mut exchange: Exchange<'_, '_>,
    names: Names,
    path: Vec<u8>,
    question: Question,
) -> Step<'static> {
    let found = match names.ask_pool(exchange.request, &path, question).await {
        Ok(found) => found,
        Err(status) => return Step::status(status),
    };
    match answer_found(&mut exchange, &path, found) {
        Answered::Unread(part) => send_bytes(exchange, part).await,
        answered => answered.step(),
    }
}

/// How far a response has come.
pub(crate) enum Answered {
    /// There is nothing left to do but this.
    With(Step<'static>),
    /// Its head is sent, and a filter looks at the bytes of its body.
    Unread(FilePart),
}

impl Answered {
    pub(crate) fn step(self) -> Step<'static> {
        match self {
            Self::With(step) => step,
            Self::Unread(_) => Step::Done,
        }
    }
}

impl From<Step<'static>> for Answered {
    fn from(step: Step<'static>) -> Self {
        Self::With(step)
    }
}

fn answer_found(exchange: &mut Exchange<'_, '_>, path: &[u8], found: Result<Found, Failed>) -> Answered {
    let request = &exchange.request;
    match found {
        Ok(Found::Opened(opened, access)) => answer(exchange, path, FileToSend::Opened(opened, access)),
        Ok(Found::Shared(file)) => answer(exchange, path, FileToSend::Shared(file)),
        Ok(Found::Directory) => redirect_to_directory(exchange).into(),
        Ok(Found::Other) => {
            request.log(LogLevel::Crit, format_args!("\"{}\" is not a regular file", Verbatim(path)));
            Step::status(404).into()
        }
        Err(Failed { call, error }) => Step::status(refuse(request, call, path, &error)).into(),
    }
}

/// Redirects to the same path with a slash behind it.
fn redirect_to_directory(exchange: &mut Exchange<'_, '_>) -> Step<'static> {
    let request = &mut exchange.request;
    if request.error_status().is_none() {
        request.mark_root_tested();
    }
    let mut location = uri::escape_uri(request.path(), Escape::Uri).into_owned();
    location.push(b'/');
    if !request.args().is_empty() {
        location.push(b'?');
        location.extend_from_slice(request.args());
    }
    exchange.output.head().location = Some(location.into());
    Step::status(301)
}

/// A file to be sent.
pub(crate) enum FileToSend {
    /// The copy, as the file has not changed since.
    Copy(Arc<FileCopy>),
    Opened(Opened, FileAccess),
    /// A file of the cache of open files.
    Shared(Arc<OpenFile>),
}

impl FileToSend {
    fn stat(&self) -> &Stat {
        match self {
            Self::Copy(copy) => copy.stat(),
            Self::Opened(opened, _) => opened.stat(),
            Self::Shared(file) => file.opened().stat(),
        }
    }
}

/// Answers with a file, whatever the encoding of it that the head has been told.
pub(crate) fn answer(exchange: &mut Exchange<'_, '_>, path: &[u8], source: FileToSend) -> Answered {
    if exchange.request.error_status().is_none() {
        exchange.request.mark_root_tested();
    }
    if exchange.request.method() == Method::Post {
        return Step::status(405).into();
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer).into();
    }
    let stat = *source.stat();
    exchange.request.set_action("sending response to client");
    let modified = stat.modified.seconds;
    let etag = (*exchange.request.location().core.etags == ETags::On).then(|| etag(modified, stat.size));
    let body = match body(exchange.request, path, source, etag.as_deref()) {
        Ok(body) => body,
        Err(answer) => return Step::Respond(answer).into(),
    };
    // One that another server has sent with `X-Accel-Redirect` stays.
    let own = exchange.output.head().content_type.take();
    let content_type = own.or_else(|| exchange.request.content_type().map(Cow::Borrowed));
    let head = exchange.output.head();
    head.status = 200;
    head.content_length = Some(stat.size);
    head.last_modified = Some(modified);
    head.etag = etag.map(Cow::Owned);
    head.content_type = content_type;
    head.ranges = Ranges::Allowed;
    send(exchange, body, stat.size)
}

/// Date and size, as nginx makes it.
pub(crate) fn etag(modified: i64, size: u64) -> Vec<u8> {
    // From its end on, as each number is written with the zeros before it.
    let mut text = [b'"'; ETAG_MAX_BYTES];
    let mut at = put_hex(size, &mut text, ETAG_MAX_BYTES - 1) - 1;
    text[at] = b'-';
    at = put_hex(modified as u64, &mut text, at) - 1;
    text[at] = b'"';
    text[at..].to_vec()
}

/// Digits of a number.
const HEX_DIGITS: usize = 16;
/// Two numbers and what is around them.
const ETAG_MAX_BYTES: usize = 2 * HEX_DIGITS + 3;

/// Writes a number of 16 digits so that it ends before `end`. Where the first one is that is not a zero in
/// vain.
fn put_hex(number: u64, out: &mut [u8; ETAG_MAX_BYTES], end: usize) -> usize {
    let start = end - HEX_DIGITS;
    out[start..][..8].copy_from_slice(&hex((number >> 32) as u32));
    out[start + 8..][..8].copy_from_slice(&hex(number as u32));
    end - (u64::BITS - number.leading_zeros()).div_ceil(4).max(1) as usize
}

/// Eight digits at once: a byte for each, then letters for those above 9.
fn hex(number: u32) -> [u8; 8] {
    let mut digits = u64::from(number);
    digits = ((digits << 16) | digits) & 0x0000_ffff_0000_ffff;
    digits = ((digits << 8) | digits) & 0x00ff_00ff_00ff_00ff;
    digits = ((digits << 4) | digits) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (digits + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)).to_be_bytes()
}

/// The body to send.
enum Body {
    /// All of it.
    Memory(Bytes),
    File(Arc<OpenFile>),
}

/// Takes a small file into memory; a large one is read while it is sent.
fn body(request: &Request<'_>, path: &[u8], source: FileToSend, etag: Option<&[u8]>) -> Result<Body, Answer> {
    let (opened, access) = match &source {
        FileToSend::Copy(copy) => return Ok(Body::Memory(copy.data().clone())),
        FileToSend::Opened(opened, access) => (opened, *access),
        FileToSend::Shared(file) => (file.opened(), file.access()),
    };
    let stat = opened.stat();
    let is_small = stat.size <= COPY_MAX_BYTES && access == FileAccess::Cached;
    if is_small
        && request.method() == Method::Get
        && not_modified::is_sent(request, stat.modified.seconds, etag)
        && let Some(data) = read_small(request, path, opened)?
    {
        return Ok(Body::Memory(data));
    }
    Ok(Body::File(match source {
        FileToSend::Opened(opened, access) => {
            Arc::new(OpenFile::new(opened, path, access, request.file_pool()))
        }
        FileToSend::Shared(file) => file,
        FileToSend::Copy(_) => unreachable!("it is in memory"),
    }))
}

/// The contents of a small file: a copy, or what is in memory of it.
fn read_small(request: &Request<'_>, path: &[u8], opened: &Opened) -> Result<Option<Bytes>, Answer> {
    let size = opened.stat().size;
    let limit = copies_limit(request);
    if limit > 0
        && let Some(copy) = COPIES.find(path, now(request))
        && opened.stat_again().is_ok_and(|stat| copy.is_of(&stat) && stat.size == size)
    {
        return Ok(Some(copy.data().clone()));
    }
    let mut data = Vec::new();
    match opened.read_now(&mut data, 0, size as usize) {
        Attempt::Cold => Ok(None),
        Attempt::Done(Ok(read)) if read as u64 == size => Ok(Some(keep(request, path, opened, data.into()))),
        Attempt::Done(Ok(read)) => {
            let path = Verbatim(path);
            request.log(LogLevel::Alert, format_args!("pread() read only {read} of {size} from \"{path}\""));
            Err(Answer::Abandon(200))
        }
        Attempt::Done(Err(error)) => {
            log_failure(request, LogLevel::Crit, Failure { call: "pread()", path, error: &error });
            Err(Answer::Status(500))
        }
    }
}

/// Makes a copy of a file that was just read, if it is worth one and sure to be what it seems.
fn keep(request: &Request<'_>, path: &[u8], opened: &Opened, data: Bytes) -> Bytes {
    let (limit, now) = (copies_limit(request), now(request));
    if limit > 0
        && opened.is_local()
        && COPIES.wants(path, opened.stat(), now)
        && opened.stat_again().is_ok_and(|stat| stat == *opened.stat())
    {
        COPIES.keep(path, *opened.stat(), data.clone(), now, limit);
    }
    data
}

fn send(exchange: &mut Exchange<'_, '_>, body: Body, size: u64) -> Answered {
    let Exchange { request, output, .. } = exchange;
    match body {
        Body::Memory(data) => {
            let _ = output.write(request, Chunk::Shared(data), Mark::Last);
        }
        Body::File(file) => {
            output.send_head(request);
            let part = FilePart::new(file, 0..size);
            if output.wants_body() && !output.takes_files() {
                return Answered::Unread(part);
            }
            let _ = output.write(request, Chunk::File(part), Mark::Last);
        }
    }
    Step::Done.into()
}

/// Sends a file through filters that look at its bytes.
pub(crate) async fn send_bytes(mut exchange: Exchange<'_, '_>, part: FilePart) -> Step<'static> {
    // What goes wrong is kept by the connection.
    let _ = exchange.output.send_bytes(exchange.request, part).await;
    Step::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_two_numbers_without_zeros_before_them() {
        let numbers =
            [0, 1, 9, 10, 15, 16, 0x9a, 0xabc_def0, 0x0123_4567_89ab_cdef, u32::MAX.into(), u64::MAX];
        for modified in numbers {
            for size in numbers {
                let expected = format!("\"{modified:x}-{size:x}\"");
                assert_eq!(etag(modified as i64, size), expected.as_bytes());
            }
        }
    }
}
