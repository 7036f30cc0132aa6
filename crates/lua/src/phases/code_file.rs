//! Files with code, where a request's VM does not have it: which one it is, and reading it beside the loop.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use clearway_base::log::{Level, Verbatim};
use clearway_http::{Errand, Exchange, Request, View};
use clearway_offload::{At, Error, Task};

use crate::code::{Code, CodeSource};
use crate::current::LuaPhase;
use crate::vm::interpreter::Interpreter;
use crate::vm::settings::{LUA_CONF, LUA_MAIN};
use crate::vm::vms::{cannot_open, full_name, read_file};

/// A file with code, as far as it has to be read.
pub(super) struct File {
    pub(super) path: Vec<u8>,
    pub(super) text: Option<Arc<[u8]>>,
}

/// Code that could not be read: what the request is answered with, and what the log says.
pub(super) struct Unread {
    pub(super) status: u16,
    pub(super) line: Vec<u8>,
}

impl Unread {
    pub(super) fn log(&self, request: &Request<'_>) {
        request.log(Level::Error, format_args!("{}", Verbatim(&self.line)));
    }
}

type Reading = Task<std::io::Result<Vec<u8>>>;

/// The name of the file that the code is in, if it is in one.
pub(super) fn path_of(view: &View<'_, '_>, code: &Code) -> Option<Vec<u8>> {
    let CodeSource::File(value) = code.source() else { return None };
    let mut path = Vec::new();
    value.append(view, &mut path);
    Some(full_name(view.request.configured_prefix(), &path))
}

/// Reads a file that the request's VM does not have.
///
/// # Errors
/// See [`Unread`].
pub(super) async fn read(exchange: &mut Exchange<'_, '_>, path: &[u8]) -> Result<Arc<[u8]>, Unread> {
    let request = &*exchange.request;
    if let Some(text) = known(request, path) {
        return Ok(text);
    }
    let task = begin(request, path)?;
    let read = request.wait_for(task, Errand::Question).await;
    conclude(request, path, read.map_err(drop))
}

/// A file that the generation has read before.
fn known(request: &Request<'_>, path: &[u8]) -> Option<Arc<[u8]>> {
    let is_cached = *request.conf(&LUA_CONF).code_cache;
    is_cached.then(|| request.main_conf(&LUA_MAIN).texts.find(path)).flatten()
}

fn begin(request: &Request<'_>, path: &[u8]) -> Result<Reading, Unread> {
    let Some(pool) = request.file_pool() else {
        return Err(Unread { status: 500, line: b"no thread pool".to_vec() });
    };
    let name = path.to_vec();
    let at = At::path(std::path::Path::new(&*String::from_utf8_lossy(path)));
    Ok(pool.submit_at(at, move |_: &_| read_file(&name)))
}

fn conclude(
    request: &Request<'_>,
    path: &[u8],
    read: Result<std::io::Result<Vec<u8>>, ()>,
) -> Result<Arc<[u8]>, Unread> {
    match read {
        Ok(Ok(text)) if *request.conf(&LUA_CONF).code_cache => {
            Ok(request.main_conf(&LUA_MAIN).texts.keep(path, text))
        }
        Ok(Ok(text)) => Ok(text.into()),
        Ok(Err(error)) => {
            let reason = cannot_open(path, &error, LuaPhase::Content);
            let parts: [&[u8]; 4] = [b"failed to load external Lua file \"", path, b"\": ", &reason];
            let status = if error.kind() == std::io::ErrorKind::NotFound { 404 } else { 503 };
            Err(Unread { status, line: parts.concat() })
        }
        Err(()) => Err(Unread { status: 500, line: b"no thread to read a file of Lua".to_vec() }),
    }
}

/// The file of a filter's code.
#[derive(Default)]
pub(super) enum FilterFile {
    /// Whether a file is to be read has not been found out.
    #[default]
    Unknown,
    /// The file is being read.
    Reading(Vec<u8>, Reading),
    /// There it is.
    Read(File),
}

impl FilterFile {
    /// Whether the VM lacks the code, which is to be read then ([`Self::begin`]).
    pub(super) fn is_missing(&self, interpreter: &Interpreter, code: &Code) -> bool {
        let is_file = matches!(code.source(), CodeSource::File(_));
        matches!(self, Self::Unknown) && is_file && !interpreter.has_compiled(code)
    }

    /// Begins to read it.
    ///
    /// # Errors
    /// See [`Unread`].
    pub(super) fn begin(view: &View<'_, '_>, code: &Code) -> Result<Self, Unread> {
        let path = path_of(view, code).unwrap_or_default();
        if let Some(text) = known(view.request, &path) {
            return Ok(Self::Read(File { path, text: Some(text) }));
        }
        let task = begin(view.request, &path)?;
        Ok(Self::Reading(path, task))
    }

    /// Ready when nothing is on its way.
    pub(super) fn poll(&mut self, request: &Request<'_>, cx: &mut Context<'_>) -> Poll<Result<(), Unread>> {
        let Self::Reading(path, task) = self else { return Poll::Ready(Ok(())) };
        let read = ready!(Pin::new(task).poll(cx)).map_err(|_: Error| ());
        let path = std::mem::take(path);
        let text = conclude(request, &path, read)?;
        *self = Self::Read(File { path, text: Some(text) });
        Poll::Ready(Ok(()))
    }

    /// The code to run, if that is a file.
    pub(super) fn get(&self) -> Option<&File> {
        match self {
            Self::Read(file) => Some(file),
            Self::Unknown | Self::Reading(..) => None,
        }
    }
}
