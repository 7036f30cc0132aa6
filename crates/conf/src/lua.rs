//! The bodies of `*_by_lua_block` directives, delimited as the Lua module of nginx delimits them:
//! braces nest, and those in strings, comments and long brackets do not count.
//!
//! A quote without a closing quote on the same line is an ordinary character. Code and long brackets may be
//! of any length, unlike in nginx, whose buffer holds 4096 bytes.

use memchr::memmem;

use crate::error::{Error, message};
use crate::lexer::Lexer;
use crate::tree::LuaCode;

/// The end of the names of directives whose blocks are Lua.
pub(crate) const LUA_BLOCK_SUFFIX: &[u8] = b"_by_lua_block";

impl Lexer {
    /// Reads Lua code up to the `}` that belongs to the `{` just read.
    pub(crate) fn lua_code(&mut self) -> Result<LuaCode, Error> {
        let start = self.at;
        // The line that nginx names if the file ends too early: the last one with an opening brace.
        let mut opened_line = self.line;
        let mut level: u32 = 1;
        while let Some(&byte) = self.text.get(self.at) {
            let length = match byte {
                b'{' => {
                    opened_line = self.line;
                    level += 1;
                    1
                }
                b'}' if level == 1 => {
                    let code = self.text.slice(start..self.at);
                    self.at += 1;
                    return Ok(LuaCode { code, close: self.pos() });
                }
                b'}' => {
                    level -= 1;
                    1
                }
                b'"' | b'\'' => string_bytes(&self.text[self.at..]).unwrap_or(1),
                b'-' | b'[' => self.comment_or_long_bracket_bytes()?,
                _ => 1,
            };
            self.pass(length);
        }
        let text = "unexpected end of file, expecting terminating characters for lua code block";
        Err(Error::new(text, &self.pos_of(opened_line)))
    }

    fn pass(&mut self, length: usize) {
        let passed = &self.text[self.at..self.at + length];
        let lines = memchr::memchr_iter(b'\n', passed).count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.at += length;
    }

    /// The length of the token that `-` or `[` begins here: a comment, a long bracket, or the byte alone.
    fn comment_or_long_bracket_bytes(&self) -> Result<usize, Error> {
        let rest = &self.text[self.at..];
        let dashes = if rest.starts_with(b"--") { 2 } else { 0 };
        if let Some(opening) = opening_bracket_bytes(&rest[dashes..]) {
            let mut closing = rest[dashes..dashes + opening].to_vec();
            closing[0] = b']';
            closing[opening - 1] = b']';
            let inside = &rest[dashes + opening..];
            return match memmem::find(inside, &closing) {
                Some(length) => Ok(dashes + opening + length + opening),
                None => Err(self.missing_closing_bracket(&closing)),
            };
        }
        if dashes == 2 {
            // The line feed stays: it ends the comment and is counted like any other.
            return Ok(memchr::memchr(b'\n', rest).unwrap_or(rest.len()));
        }
        Ok(1)
    }

    fn missing_closing_bracket(&self, closing: &[u8]) -> Error {
        let problem = "Lua code block missing the closing long bracket \"";
        self.error(message(&[&problem, &closing, &"\", the inlined Lua code may be too long"]))
    }
}

/// The length of a string with its quotes; `None` if it does not end on its line.
fn string_bytes(text: &[u8]) -> Option<usize> {
    let quote = text[0];
    let mut at = 1;
    loop {
        match *text.get(at)? {
            b'\n' => return None,
            b'\\' if text.get(at + 1) == Some(&b'\n') => return None,
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The length of `[[`, `[=[`, `[==[` and so on; `None` if `text` begins otherwise.
fn opening_bracket_bytes(text: &[u8]) -> Option<usize> {
    let behind = text.strip_prefix(b"[")?;
    let signs = behind.iter().take_while(|&&byte| byte == b'=').count();
    (behind.get(signs) == Some(&b'[')).then_some(signs + 2)
}
