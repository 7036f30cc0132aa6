//! Code of the configuration: where it is written, what errors call it. Made when a configuration is read;
//! each VM compiles it when it is run there first.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use clearway_conf::Directive;
use clearway_http::Value;

/// Numbers code over the whole process, so that VMs can keep what they have compiled by number.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// The longest name of a chunk that Lua shows whole, bytes.
const CHUNK_NAME_BYTES: usize = 59;

/// Code of one directive.
#[derive(Debug)]
pub struct Code {
    number: u32,
    /// The name in front of `(nginx.conf:12)`: `content_by_lua`.
    directive: String,
    chunk: CString,
    source: CodeSource,
}

/// Where the code is.
#[derive(Debug)]
pub enum CodeSource {
    /// In the configuration.
    Inline(Bytes),
    /// In a file, whose name may depend on the request.
    File(Value),
}

impl Code {
    /// Code that stands in a directive. Errors call its file as it is seen from the directory of the
    /// configuration, which is `prefix`.
    #[must_use]
    pub fn inline(prefix: &[u8], place: &Directive, code: Bytes) -> Arc<Self> {
        let (directive, pos) = (base_name(&place.name), &place.pos);
        let file = pos.file.as_deref().map_or(&b"nginx.conf"[..], |path| path.as_os_str().as_bytes());
        let file = String::from_utf8_lossy(file.strip_prefix(prefix).unwrap_or(file)).into_owned();
        let chunk = format!("={directive}({file}:{})", pos.line);
        let beyond = chunk.len().saturating_sub(CHUNK_NAME_BYTES + 1);
        if beyond == 0 {
            return Self::new(directive, &chunk, CodeSource::Inline(code));
        }
        // The end of the name tells more than its beginning.
        let tail: String = file.chars().skip((beyond + 3).min(file.chars().count())).collect();
        let chunk = format!("={directive}(...{tail}:{})", pos.line);
        Self::new(directive, &chunk, CodeSource::Inline(code))
    }

    /// Code that stands in a file.
    #[must_use]
    pub fn file(name: &[u8], path: Value) -> Arc<Self> {
        Self::new(base_name(name), "=file", CodeSource::File(path))
    }

    fn new(directive: String, chunk: &str, source: CodeSource) -> Arc<Self> {
        let chunk = CString::new(chunk.replace('\0', "")).unwrap_or_default();
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, directive, chunk, source })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The directive without `_block` or `_file`.
    #[must_use]
    pub fn directive(&self) -> &str {
        &self.directive
    }

    /// The name in errors.
    #[must_use]
    pub fn chunk(&self) -> &CString {
        &self.chunk
    }

    /// The source of the code.
    #[must_use]
    pub fn source(&self) -> &CodeSource {
        &self.source
    }
}

fn base_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let name = name.strip_suffix("_block").unwrap_or(&name);
    name.strip_suffix("_file").unwrap_or(name).to_owned()
}
