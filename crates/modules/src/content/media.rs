//! The common part of `flv` and `mp4`: a file is opened as other files are, and sent from some place on
//! behind a beginning that is made for it. Opened on the loop of the request where that cannot wait, else on
//! a thread of a pool.

use std::borrow::Cow;
use std::sync::Arc;

use clearway_http::{Chunk, ETags, Exchange, FilePart, Mark, OpenFile, Ranges, Request, Step, paths};
use clearway_message::Method;

use crate::content::files::refuse;
use crate::content::names::{Found, Names, Search};
use crate::content::static_files::etag;

/// A file that is asked for, before it is opened.
pub(crate) struct Asked {
    names: Names,
    path: Vec<u8>,
}

/// The file for the path of the request; what is answered where there is none.
pub(crate) fn ask<'a>(exchange: &mut Exchange<'_, '_>) -> Result<Asked, Step<'a>> {
    let request = &exchange.request;
    if !matches!(request.method(), Method::Get | Method::Head) {
        return Err(Step::status(405));
    }
    if request.path().ends_with(b"/") {
        return Err(Step::Declined);
    }
    exchange.discard_body().map_err(Step::Respond)?;
    let view = exchange.view();
    let path = paths::file_path(&view);
    let names = Names::of(&view, &path);
    Ok(Asked { names, path })
}

impl Asked {
    /// Opens it; what is answered where that fails, or it is no file.
    pub(crate) async fn open(self, request: &mut Request<'_>) -> Result<Arc<OpenFile>, Step<'static>> {
        let Self { names, path } = self;
        let found = match names.open(&path) {
            Search::Known(found) => found,
            Search::Asked(reply) => names.settle(request, &path, reply),
            Search::Cold(question) => names.ask_pool(request, &path, question).await.map_err(Step::status)?,
        };
        let file = match found {
            Ok(Found::Opened(opened, access)) => {
                Arc::new(OpenFile::new(opened, &path, access, request.file_pool()))
            }
            Ok(Found::Shared(file)) => file,
            Ok(Found::Directory | Found::Other) => return Err(Step::Declined),
            Err(failed) => return Err(Step::status(refuse(request, failed.call, &path, &failed.error))),
        };
        if request.error_status().is_none() {
            request.mark_root_tested();
        }
        Ok(file)
    }
}

/// A body: a beginning that was made, and a part of a file behind it.
pub(crate) struct Body {
    pub(crate) front: Vec<u8>,
    pub(crate) part: FilePart,
}

/// Answers with a file, or with what is made of it.
pub(crate) async fn send(exchange: Exchange<'_, '_>, body: Body, ranges: Ranges) -> Step<'static> {
    let Exchange { request, mut output, .. } = exchange;
    let Body { front, part } = body;
    let modified = part.file().opened().stat().modified.seconds;
    let length = front.len() as u64 + part.len();
    let tag = *request.location().core.etags == ETags::On;
    let head = output.head();
    head.status = 200;
    head.content_length = Some(length);
    head.last_modified = Some(modified);
    head.etag = tag.then(|| Cow::Owned(etag(modified, length)));
    head.content_type = request.content_type().map(Cow::Borrowed);
    head.ranges = ranges;
    output.send_head(request);
    if !output.wants_body() {
        return Step::Done;
    }
    if !front.is_empty() {
        let _ = output.write(request, Chunk::Owned(front), Mark::More);
    }
    if output.takes_files() {
        let _ = output.write(request, Chunk::File(part), Mark::Last);
    } else {
        // What goes wrong is kept by the connection.
        let _ = output.send_bytes(request, part).await;
    }
    Step::Done
}
