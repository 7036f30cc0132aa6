//! The nginx.conf language without the meaning of its directives: words, blocks, includes, the
//! tree with its positions, tables of directives and the walk that checks a tree against them,
//! values with variables, errors in nginx's words.
//!
//! Everything here runs at boot or at reload, off the loops; only [`Disk`] touches files.
#![forbid(unsafe_code)]

mod args;
pub mod error;
mod glob;
mod lexer;
mod load;
mod lua;
pub mod source;
pub mod table;
pub mod template;
pub mod tree;

use std::path::Path;

use bytes::Bytes;

pub use error::{Error, Pos};
pub use lexer::PARAMETER_MAX_BYTES;
pub use load::{INCLUDED_MAX_FILES, Loader, NESTING_MAX_LEVELS, ReadFile, Stock, dump};
pub use source::{Disk, KeptFiles, Memory, Source};
pub use table::{Args, Contexts, Handler, Scope, Spec, Table};
pub use template::{Part, Template};
pub use tree::{Block, Body, Directive, Directives, LuaCode};

/// Reads a configuration that is one piece of text, named `nginx.conf`: there is nothing that it
/// could include. Never panics, whatever the bytes.
///
/// # Errors
///
/// The first mistake in its syntax. The meaning of directives is not checked.
pub fn parse_bytes(text: &[u8]) -> Result<Block, Error> {
    let path = Path::new("nginx.conf");
    let block = Loader::new(&Memory::new(), path).text(path, Bytes::copy_from_slice(text));
    block.end()?;
    Ok(block)
}
