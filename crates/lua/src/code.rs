//! Code of the configuration: where it is written, what errors call it. Made when a configuration is read;
//! each VM compiles it when it is run there first.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use clearway_conf::Pos;
use clearway_http::Value;

/// Numbers code over the whole process, so that VMs can keep what they have compiled by number.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// The longest name of a chunk that Lua shows whole, bytes.
const CHUNK_NAME_BYTES: usize = 55;

/// Code of one directive.
#[derive(Debug)]
pub struct Code {
    number: u32,
    /// What stands in front of `(nginx.conf:12)`: `content_by_lua`.
    directive: String,
    chunk: CString,
    source: Source,
}

/// Where the code is.
#[derive(Debug)]
pub enum Source {
    /// In the configuration.
    Inline(Bytes),
    /// In a file, whose name may depend on the request.
    File(Value),
}

impl Code {
    /// Code that stands in a directive; `name` is that of the directive.
    #[must_use]
    pub fn inline(name: &[u8], pos: &Pos, code: Bytes) -> Arc<Self> {
        let directive = base_name(name);
        let file = pos.file.as_deref().and_then(|path| path.file_name());
        let file = file.map_or_else(|| "nginx.conf".into(), |name| name.to_string_lossy());
        let mut chunk = format!("={directive}({file}:{})", pos.line);
        if chunk.len() > CHUNK_NAME_BYTES {
            // The end of the name tells more than its beginning.
            let tail: String = chunk.chars().rev().take(CHUNK_NAME_BYTES - 4).collect();
            chunk = format!("=...{}", tail.chars().rev().collect::<String>());
        }
        Self::new(directive, &chunk, Source::Inline(code))
    }

    /// Code that stands in a file.
    #[must_use]
    pub fn file(name: &[u8], path: Value) -> Arc<Self> {
        Self::new(base_name(name), "=file", Source::File(path))
    }

    fn new(directive: String, chunk: &str, source: Source) -> Arc<Self> {
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

    /// What errors name.
    #[must_use]
    pub fn chunk(&self) -> &CString {
        &self.chunk
    }

    /// Where it is.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }
}

fn base_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let name = name.strip_suffix("_block").unwrap_or(&name);
    name.strip_suffix("_file").unwrap_or(name).to_owned()
}
