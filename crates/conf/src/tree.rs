//! The tree of a configuration: directives with their arguments, positions and bodies.
//!
//! nginx reads and executes one directive after the other, so that of several mistakes it reports
//! the one that comes first in the text. Here reading comes first and execution second. To report
//! the same mistake, reading never fails: a block that could not be read to its end holds what was
//! read and, behind it, the error, and a walk over the tree meets the error where nginx would.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Pos};

/// One directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Its name.
    pub name: Bytes,
    /// Its arguments, without quotes and with escapes resolved.
    pub args: Vec<Bytes>,
    /// The line of its `;` or `{`: the line that nginx blames.
    pub pos: Pos,
    /// Its block, or its end.
    pub body: Body,
}

/// The end of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `;`
    Semicolon,
    /// `{ … }`
    Block(Block),
    /// `{ … }` of a `*_by_lua_block` directive.
    Lua(Box<LuaCode>),
    /// `;` of an `include`: the files that it stands for, in order.
    Included(Vec<Block>),
    /// `{` of a `*_by_lua_block` directive whose code could not be read to its end.
    Broken(Box<Error>),
}

/// The code of a `*_by_lua_block` directive, without the braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LuaCode {
    /// The code, byte for byte; its first line is the line of the directive.
    pub code: Bytes,
    /// The line of the closing `}`.
    pub close: Pos,
}

/// The directives of a block or of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// In the order of the text.
    pub directives: Directives,
    /// The line of the closing `}` (the line where the file ends): the line that nginx blames for
    /// what it finds out when a block is complete.
    pub close: Pos,
    /// Why reading stopped behind the last directive, if it did not stop at the end.
    pub broken: Option<Box<Error>>,
}

/// Directives of one block. A copy is another handle; a module that executes a block later keeps one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives(Arc<[Directive]>);

impl FromIterator<Directive> for Directives {
    fn from_iter<I: IntoIterator<Item = Directive>>(directives: I) -> Self {
        Self(directives.into_iter().collect())
    }
}

impl std::ops::Deref for Directives {
    type Target = [Directive];

    fn deref(&self) -> &[Directive] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Directives {
    type Item = &'a Directive;
    type IntoIter = std::slice::Iter<'a, Directive>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Directive {
    /// The block, if this directive has one.
    #[must_use]
    pub const fn block(&self) -> Option<&Block> {
        match &self.body {
            Body::Block(block) => Some(block),
            _ => None,
        }
    }

    /// The Lua code, if this is a `*_by_lua_block` directive.
    #[must_use]
    pub const fn lua(&self) -> Option<&LuaCode> {
        match &self.body {
            Body::Lua(code) => Some(code),
            _ => None,
        }
    }

    /// Whether `{` stands behind the arguments, and not `;`.
    #[must_use]
    pub const fn opens_block(&self) -> bool {
        matches!(self.body, Body::Block(_) | Body::Lua(_) | Body::Broken(_))
    }
}

impl Block {
    /// Calls `visit` with each entry of a block whose lines are no directives (`types`, `map`):
    /// `name` is the first word and `args` are the others. Included files are followed; an
    /// `include` without exactly one argument is visited like any other entry, for nginx leaves it
    /// to the block what to say.
    ///
    /// # Errors
    ///
    /// The first error of `visit`, a `{` (such blocks have no blocks), or why reading stopped.
    pub fn entries(&self, visit: &mut dyn FnMut(&Directive) -> Result<(), Error>) -> Result<(), Error> {
        for directive in &self.directives {
            if directive.opens_block() {
                return Err(Error::new("unexpected \"{\"", &directive.pos));
            }
            match &directive.body {
                Body::Included(files) => files.iter().try_for_each(|file| file.entries(visit))?,
                _ => visit(directive)?,
            }
        }
        self.end()
    }

    /// Whether reading ended behind the last directive, or with an error. A caller that iterates over
    /// [`Block::directives`] by hand asks for it afterwards.
    ///
    /// # Errors
    ///
    /// Why reading stopped.
    pub fn end(&self) -> Result<(), Error> {
        self.broken.as_ref().map_or(Ok(()), |error| Err(Error::clone(error)))
    }
}
