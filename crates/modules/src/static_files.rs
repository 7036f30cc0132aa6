//! Files under `root` or `alias`. Opening and reading happen on the pool: one hop for a small file, one
//! per chunk beyond that, each asked for when the client has taken what came before it.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use clearway_base::log::Level as LogLevel;
use clearway_h1::Method;
use clearway_http::uri::{self, Escape};
use clearway_http::{
    Chunk, Cost, ETags, Exchange, Lossy, Mark, Module, Output, Phase, PhaseHandler, Request, Step, paths,
};
use clearway_offload::Blocking;
use clearway_offload::file::{self, Kind};

use crate::files::{on_pool, refuse, to_path};
use crate::not_modified::{self, Verdict};

/// The module. It answers what no other module has answered, so it comes last.
pub static STATIC_FILES: Module = Module { name: "static", phases: PHASES, ..Module::EMPTY };

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::Content, cost: Cost::Cheap, enabled: |_| true, handler }];

/// What is read together with opening a file, bytes.
const FIRST_BYTES: usize = 64 * 1024;
/// What is read at once later, bytes.
const CHUNK_BYTES: usize = 128 * 1024;

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let request = &exchange.request;
    if !matches!(request.method(), Method::Get | Method::Head | Method::Post) {
        return Step::status(405);
    }
    if request.path().ends_with(b"/") {
        return refuse_directory(&exchange);
    }
    Step::Wait(Box::pin(answer(exchange)))
}

/// A directory that no index and no listing was found for.
fn refuse_directory<'a>(exchange: &Exchange<'a, '_>) -> Step<'a> {
    let path = paths::file_path(&exchange.view());
    exchange
        .request
        .log(LogLevel::Error, format_args!("directory index of \"{}\" is forbidden", Lossy(&path)));
    Step::status(403)
}

/// What a path turned out to be.
enum Found {
    File(Opened),
    Directory,
    Other,
}

/// A file and the beginning of it.
struct Opened {
    file: File,
    size: u64,
    /// Seconds since the epoch.
    modified: i64,
    first: Vec<u8>,
}

/// What a client gets to see of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Body,
    HeadOnly,
}

async fn answer(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let path = paths::file_path(&exchange.view());
    let wanted = if exchange.request.method() == Method::Get { Wanted::Body } else { Wanted::HeadOnly };
    let name = to_path(&path);
    let found = on_pool(exchange.request, move |blocking| open(blocking, &name, wanted)).await;
    let opened = match found {
        Err(status) => return Step::status(status),
        Ok(Err(error)) => return Step::status(refuse(exchange.request, "open()", &path, &error)),
        Ok(Ok(Found::Directory)) => return redirect_to_directory(exchange),
        Ok(Ok(Found::Other)) => {
            let message = format_args!("\"{}\" is not a regular file", Lossy(&path));
            exchange.request.log(LogLevel::Crit, message);
            return Step::status(404);
        }
        Ok(Ok(Found::File(opened))) => opened,
    };
    if exchange.request.error_status().is_none() {
        exchange.request.mark_root_tested();
    }
    if exchange.request.method() == Method::Post {
        return Step::status(405);
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    send(exchange, opened, &path).await
}

fn open(blocking: &Blocking, path: &std::path::Path, wanted: Wanted) -> io::Result<Found> {
    let opened = file::open(blocking, path)?;
    match opened.kind {
        Kind::Directory => return Ok(Found::Directory),
        Kind::Other => return Ok(Found::Other),
        Kind::Regular => {}
    }
    let size = opened.metadata.len();
    let count = usize::try_from(size).unwrap_or(usize::MAX).min(FIRST_BYTES);
    let first = match wanted {
        Wanted::Body => file::read(blocking, &opened.file, 0, count)?,
        Wanted::HeadOnly => Vec::new(),
    };
    Ok(Found::File(Opened { file: opened.file, size, modified: opened.metadata.mtime(), first }))
}

/// The same path with a slash behind it.
fn redirect_to_directory(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let request = &exchange.request;
    let mut location = uri::escape_uri(request.path(), Escape::Uri).into_owned();
    location.push(b'/');
    if !request.args().is_empty() {
        location.push(b'?');
        location.extend_from_slice(request.args());
    }
    exchange.output.head().location = Some(location.into());
    Step::status(301)
}

async fn send(exchange: Exchange<'_, '_>, opened: Opened, path: &[u8]) -> Step<'static> {
    let Exchange { request, mut output, .. } = exchange;
    let etag = match *request.location().core.etags {
        ETags::On => format!("\"{:x}-{:x}\"", opened.modified, opened.size),
        ETags::Off => String::new(),
    };
    let mut status = 200;
    if matches!(request.error_status(), None | Some(200)) {
        match not_modified::judge(request, opened.modified, etag.as_bytes()) {
            Verdict::Send => {}
            Verdict::NotModified => status = 304,
            Verdict::Failed => return Step::status(412),
        }
    }
    let head = output.head();
    head.status = status;
    head.last_modified = Some(opened.modified);
    head.etag = (!etag.is_empty()).then(|| Cow::Owned(etag.into_bytes()));
    if status == 200 {
        head.content_length = Some(opened.size);
        head.content_type = request.content_type().map(Cow::Borrowed);
    }
    request.set_action("sending response to client");
    output.send_head(request);
    if output.wants_body() {
        stream(request, &mut output, opened, path).await;
    }
    Step::Done
}

/// Sends the body, chunk by chunk. What goes wrong can no longer be answered: the response is cut.
async fn stream<'c>(request: &Request<'c>, output: &mut Output<'_, 'c>, opened: Opened, path: &[u8]) {
    let Opened { mut file, size, first, .. } = opened;
    let mut sent = first.len() as u64;
    if sent >= size {
        let _ = output.write(request, Chunk::Owned(first), Mark::Last);
        return;
    }
    let mut chunk = first;
    loop {
        if chunk.is_empty() {
            let message = format_args!("pread() read only {sent} of {size} from \"{}\"", Lossy(path));
            request.log(LogLevel::Alert, message);
            return;
        }
        let mark = if sent >= size { Mark::Last } else { Mark::More };
        let _ = output.write(request, Chunk::Owned(chunk), mark);
        if mark == Mark::Last || output.ready(request).await.is_err() {
            return;
        }
        let count = usize::try_from(size - sent).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let read = on_pool(request, move |blocking| (file::read(blocking, &file, sent, count), file)).await;
        match read {
            Ok((Ok(data), same)) => (chunk, file) = (data, same),
            Ok((Err(error), _)) => {
                refuse(request, "pread()", path, &error);
                return;
            }
            Err(_) => return,
        }
        sent += chunk.len() as u64;
    }
}
