//! Text into trees: statements, blocks, `include`, and the record of what was read for `-T`.
//!
//! Runs at boot and at reload, off the loops. Reading never fails, see `tree`: what is wrong ends
//! the tree in the place where nginx would have stopped.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Pos, failed, printed};
use crate::glob::is_mask;
use crate::lexer::{Lexer, Statement, Words};
use crate::lua::LUA_BLOCK_SUFFIX;
use crate::source::Source;
use crate::tree::{Block, Body, Directive, Directives};

/// How deep blocks and included files may be nested together, in levels.
pub const NESTING_MAX_LEVELS: u32 = 256;

/// How often files may be included in one configuration, in files. Where includes go in circles
/// without getting deep this ends them.
pub const INCLUDED_MAX_FILES: u32 = 65_536;

/// A file that was read.
#[derive(Clone, Debug)]
pub struct ReadFile {
    /// Its path as nginx prints it.
    pub path: Arc<Path>,
    /// Its content.
    pub text: Bytes,
}

/// Files that are taken for granted in the directory of a configuration, by their names: where `include`
/// finds none there, it gets this text.
pub type Stock = &'static [(&'static str, &'static str)];

/// Reads the files of one configuration.
pub struct Loader<'s> {
    source: &'s dyn Source,
    /// The directory that relative names are appended to, with a slash at its end.
    conf_prefix: Vec<u8>,
    stock: Stock,
    files: Vec<ReadFile>,
    /// Positions in `files`.
    by_path: HashMap<Arc<Path>, usize>,
    included: u32,
    /// Directives of the blocks that are being read, those of inner ones behind those of outer ones.
    unfinished: Vec<Directive>,
}

/// A configuration as `-T` prints it.
#[must_use]
pub fn dump(files: &[ReadFile]) -> Vec<u8> {
    let mut dump = Vec::new();
    for file in files {
        dump.extend_from_slice(b"# configuration file ");
        dump.extend_from_slice(file.path.as_os_str().as_bytes());
        dump.extend_from_slice(b":\n");
        dump.extend_from_slice(&file.text);
        dump.push(b'\n');
    }
    dump
}

/// The block or file around the statements that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    File,
    Param,
    Braces,
}

impl<'s> Loader<'s> {
    /// A loader for the configuration in `conf_file`, in whose directory relative names of included
    /// files are looked up.
    #[must_use]
    pub fn new(source: &'s dyn Source, conf_file: &Path) -> Self {
        let name = conf_file.as_os_str().as_bytes();
        let prefix = memchr::memrchr(b'/', name).map_or(0, |slash| slash + 1);
        Self {
            source,
            conf_prefix: name[..prefix].to_vec(),
            stock: &[],
            files: Vec::new(),
            by_path: HashMap::new(),
            included: 0,
            unfinished: Vec::new(),
        }
    }

    /// With these files beside those that the source has.
    #[must_use]
    pub fn with_stock(self, stock: Stock) -> Self {
        Self { stock, ..self }
    }

    /// Reads a configuration file with all that it includes.
    pub fn file(&mut self, path: &Path) -> Block {
        self.read_file(path, None, 0)
    }

    /// Reads text that comes from nowhere, as if `path` held it.
    pub(crate) fn text(&mut self, path: &Path, text: Bytes) -> Block {
        self.block(&mut Lexer::of_file(text, path.into()), Within::File, 0)
    }

    /// Reads the argument of `-g`: directives without blocks.
    pub fn param(&mut self, text: &[u8]) -> Block {
        let mut lexer = Lexer::of_param(Bytes::copy_from_slice(text));
        self.block(&mut lexer, Within::Param, 0)
    }

    /// The files that were read, each once, in the order in which they were first opened.
    #[must_use]
    pub fn files(&self) -> &[ReadFile] {
        &self.files
    }

    fn read_file(&mut self, path: &Path, included_at: Option<&Pos>, level: u32) -> Block {
        match self.text_of(path, included_at) {
            Ok(ReadFile { path, text }) => self.block(&mut Lexer::of_file(text, path), Within::File, level),
            Err(error) => {
                let close = included_at.cloned().unwrap_or_else(|| Pos::in_file(path.into(), 0));
                Block { directives: Directives::default(), close, broken: Some(Box::new(error)) }
            }
        }
    }

    fn text_of(&mut self, path: &Path, included_at: Option<&Pos>) -> Result<ReadFile, Error> {
        if let Some(&index) = self.by_path.get(path) {
            return Ok(self.files[index].clone());
        }
        let name = path.as_os_str().as_bytes();
        let read = self.source.read(path).or_else(|error| match self.stock_text(name) {
            Some(text) if error.kind() == ErrorKind::NotFound && included_at.is_some() => Ok(text),
            _ => Err(error),
        });
        let text = read.map_err(|error| match included_at {
            // nginx can open a directory and fails to read it, which it reports without a place.
            _ if error.kind() == ErrorKind::IsADirectory => {
                Error::unplaced(failed("pread()", name, &error)).with_level(clearway_base::log::Level::Crit)
            }
            Some(pos) => Error::new(failed("open()", name, &error), pos),
            None => Error::unplaced(failed("open()", name, &error)),
        })?;
        let file = ReadFile { path: path.into(), text };
        self.by_path.insert(Arc::clone(&file.path), self.files.len());
        self.files.push(file.clone());
        Ok(file)
    }

    fn stock_text(&self, path: &[u8]) -> Option<Bytes> {
        let name = path.strip_prefix(&self.conf_prefix[..])?;
        let known = self.stock.iter().find(|(known, _)| known.as_bytes() == name);
        known.map(|(_, text)| Bytes::from_static(text.as_bytes()))
    }

    fn block(&mut self, lexer: &mut Lexer, within: Within, level: u32) -> Block {
        let first = self.unfinished.len();
        let broken = loop {
            match lexer.statement() {
                Err(error) => break Some(error),
                Ok(Statement::End) if within == Within::Braces => {
                    break Some(lexer.error("unexpected end of file, expecting \"}\""));
                }
                Ok(Statement::BlockEnd) if within != Within::Braces => {
                    break Some(lexer.error("unexpected \"}\""));
                }
                Ok(Statement::End | Statement::BlockEnd) => break None,
                Ok(Statement::BlockStart(_)) if within == Within::Param => {
                    break Some(lexer.error("block directives are not supported in -g option"));
                }
                Ok(Statement::BlockStart(words)) => {
                    let pos = lexer.pos();
                    let body = self.block_body(lexer, &words.name, level);
                    self.unfinished.push(directive(words, pos, body));
                }
                Ok(Statement::Semicolon(words)) => {
                    let pos = lexer.pos();
                    let body = self.semicolon_body(&words, &pos, level);
                    self.unfinished.push(directive(words, pos, body));
                }
            }
            if let Some(error) = self.unfinished[first..].last().and_then(why_broken) {
                break Some(error.clone());
            }
        };
        let directives = self.unfinished.drain(first..).collect();
        Block { directives, close: lexer.pos(), broken: broken.map(Box::new) }
    }

    fn block_body(&mut self, lexer: &mut Lexer, name: &[u8], level: u32) -> Body {
        if name.ends_with(LUA_BLOCK_SUFFIX) {
            return match lexer.lua_code() {
                Ok(code) => Body::Lua(Box::new(code)),
                Err(error) => Body::Broken(Box::new(error)),
            };
        }
        if level == NESTING_MAX_LEVELS {
            let error = lexer.error(format!("blocks are nested more than {NESTING_MAX_LEVELS} levels deep"));
            return Body::Block(Block {
                directives: Directives::default(),
                close: lexer.pos(),
                broken: Some(Box::new(error)),
            });
        }
        Body::Block(self.block(lexer, Within::Braces, level + 1))
    }

    /// `;` ends any directive, and a well-formed `include` stands for files. An ill-formed one is
    /// left as it is: what nginx says about it depends on the block it stands in.
    fn semicolon_body(&mut self, words: &Words, pos: &Pos, level: u32) -> Body {
        match &words.args[..] {
            [mask] if words.name == "include" => Body::Included(self.include(mask, pos, level)),
            _ => Body::Semicolon,
        }
    }

    fn include(&mut self, name: &[u8], pos: &Pos, level: u32) -> Vec<Block> {
        let refused = |error| {
            vec![Block {
                directives: Directives::default(),
                close: pos.clone(),
                broken: Some(Box::new(error)),
            }]
        };
        if level == NESTING_MAX_LEVELS {
            let text = format!("files are included more than {NESTING_MAX_LEVELS} levels deep");
            return refused(Error::new(text, pos));
        }
        let name = printed(name);
        let full = if name.starts_with(b"/") { name.to_vec() } else { [&self.conf_prefix, name].concat() };
        let paths = if is_mask(&full) {
            match self.source.glob(&full) {
                Ok(paths) => paths,
                Err(error) => return refused(Error::new(failed("glob()", &full, &error), pos)),
            }
        } else {
            vec![PathBuf::from(std::ffi::OsString::from_vec(full))]
        };
        let mut blocks = Vec::with_capacity(paths.len());
        for path in paths {
            self.included += 1;
            if self.included > INCLUDED_MAX_FILES {
                let text = format!("more than {INCLUDED_MAX_FILES} files are included");
                blocks.extend(refused(Error::new(text, pos)));
                break;
            }
            let block = self.read_file(&path, Some(pos), level + 1);
            let stop = block.broken.is_some();
            blocks.push(block);
            if stop {
                break;
            }
        }
        blocks
    }
}

fn directive(Words { name, args }: Words, pos: Pos, body: Body) -> Directive {
    Directive { name, args, pos, body }
}

/// Why nothing behind this directive could be read.
fn why_broken(directive: &Directive) -> Option<&Error> {
    match &directive.body {
        Body::Semicolon | Body::Lua(_) => None,
        Body::Block(block) => block.broken.as_deref(),
        Body::Included(blocks) => blocks.last()?.broken.as_deref(),
        Body::Broken(error) => Some(error),
    }
}
