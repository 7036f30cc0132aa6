//! Splits nginx.conf into words, as nginx's `ngx_conf_read_token` does, with its limit on their length.
//!
//! A statement is a list of words that ends with `;` or `{`. A word without escapes is a slice of the text,
//! not a copy. Line numbers are those that nginx prints.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Pos, message};

/// Longest word, quoted string or comment that fits into nginx's buffer, in bytes.
pub const PARAMETER_MAX_BYTES: usize = 4096;

/// Bytes of a too long word that are printed.
const PARAMETER_PRINTED_BYTES: usize = 10;

/// A statement, or the end of a block or of the text.
#[derive(Debug)]
pub(crate) enum Statement {
    /// Words, then `;`.
    Semicolon(Words),
    /// Words, then `{`.
    BlockStart(Words),
    /// `}` with no word before it.
    BlockEnd,
    /// The end of the text with no word before it.
    End,
}

/// The words of a statement.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) name: Bytes,
    /// Without spare capacity: there is a list for each directive.
    pub(crate) args: Vec<Bytes>,
}

pub(crate) struct Lexer {
    pub(crate) text: Bytes,
    /// The next byte to read.
    pub(crate) at: usize,
    pub(crate) line: u32,
    /// `None`: the text is the `-g` option, which has neither lines nor limits.
    file: Option<Arc<Path>>,
    /// The list for the words of the statement that is being read, used again for the next one.
    words: Vec<Bytes>,
}

/// The beginning of a word or comment.
#[derive(Clone, Copy)]
struct Start {
    at: usize,
    line: u32,
    /// The quote that ends the word, if it is quoted.
    quote: Option<u8>,
}

impl Lexer {
    pub(crate) const fn of_file(text: Bytes, file: Arc<Path>) -> Self {
        Self { text, at: 0, line: 1, file: Some(file), words: Vec::new() }
    }

    pub(crate) const fn of_param(text: Bytes) -> Self {
        Self { text, at: 0, line: 0, file: None, words: Vec::new() }
    }

    pub(crate) const fn is_param(&self) -> bool {
        self.file.is_none()
    }

    /// The current line.
    pub(crate) fn pos(&self) -> Pos {
        self.pos_of(self.line)
    }

    pub(crate) fn pos_of(&self, line: u32) -> Pos {
        match &self.file {
            Some(file) => Pos::in_file(Arc::clone(file), line),
            None => Pos::command_line(),
        }
    }

    pub(crate) fn error(&self, message: impl Into<Vec<u8>>) -> Error {
        Error::new(message, &self.pos())
    }

    /// Reads one statement.
    pub(crate) fn statement(&mut self) -> Result<Statement, Error> {
        let mut words = std::mem::take(&mut self.words);
        // The limit counts from here: nginx's buffer begins with the last word until the byte behind the next
        // blank is read.
        let mut start = self.start_at(self.at);
        loop {
            let Some(byte) = self.next(start)? else {
                return if words.is_empty() { Ok(Statement::End) } else { Err(self.unexpected_end()) };
            };
            start = self.start_at(self.at - 1);
            let end = match byte {
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                b'#' => {
                    self.skip_comment(start)?;
                    start = self.start_at(self.at);
                    continue;
                }
                b';' | b'{' if words.is_empty() => return Err(self.unexpected(byte)),
                b';' | b'{' => byte,
                b'}' if words.is_empty() => return Ok(Statement::BlockEnd),
                b'}' => return Err(self.unexpected(byte)),
                b'"' | b'\'' => {
                    start = Start { quote: Some(byte), ..self.start_at(self.at) };
                    self.quoted_word(&mut start, &mut words)?
                }
                _ => {
                    self.at = start.at;
                    self.scan_word(start, &mut words)?
                }
            };
            match end {
                b';' => return Ok(Statement::Semicolon(self.taken(words))),
                b'{' => return Ok(Statement::BlockStart(self.taken(words))),
                _ => {}
            }
        }
    }

    /// Takes the words out of the list, and keeps the list for the next statement.
    fn taken(&mut self, mut words: Vec<Bytes>) -> Words {
        let mut list = words.drain(..);
        let name = list.next().expect("a statement begins with a word");
        let args = list.collect();
        self.words = words;
        Words { name, args }
    }

    /// The beginning of a word at `at` on the current line.
    const fn start_at(&self, at: usize) -> Start {
        Start { at, line: self.line, quote: None }
    }

    /// Skips a comment with its line feed. Comments count against the limit, too.
    fn skip_comment(&mut self, start: Start) -> Result<(), Error> {
        while let Some(byte) = self.next(start)? {
            if byte == b'\n' {
                break;
            }
        }
        Ok(())
    }

    /// Reads a quoted word from behind its opening quote. Returns the byte that ended the last word. Only a
    /// blank, `;`, `{` or `)` may follow the closing quote.
    fn quoted_word(&mut self, start: &mut Start, words: &mut Vec<Bytes>) -> Result<u8, Error> {
        self.scan_word(*start, words)?;
        start.quote = None;
        match self.next(*start)?.ok_or_else(|| self.unexpected_end())? {
            byte @ (b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{') => Ok(byte),
            b')' => {
                // `if ($a = "b")`: the bracket is a word of its own.
                self.at -= 1;
                *start = self.start_at(self.at);
                self.scan_word(*start, words)
            }
            byte => Err(self.unexpected(byte)),
        }
    }

    /// Reads on to the end of a word, pushes it to `words`, and returns the byte that ended it.
    fn scan_word(&mut self, start: Start, words: &mut Vec<Bytes>) -> Result<u8, Error> {
        // The byte behind a backslash has no meaning of its own, nor has the brace of `${`.
        let mut quoted = false;
        let mut variable = false;
        loop {
            let byte = self.next(start)?.ok_or_else(|| self.unexpected_end())?;
            if quoted {
                quoted = false;
                continue;
            }
            if byte == b'{' && variable {
                continue;
            }
            variable = byte == b'$';
            let ends = match (byte, start.quote) {
                (b'\\', _) => {
                    quoted = true;
                    false
                }
                (_, Some(quote)) => byte == quote,
                (b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{', None) => true,
                _ => false,
            };
            if ends {
                words.push(unescape(&self.text.slice(start.at..self.at - 1)));
                return Ok(byte);
            }
        }
    }

    /// The next byte; `None` at the end of the text. The limit counts from `start`, where nginx's buffer
    /// would begin.
    fn next(&mut self, start: Start) -> Result<Option<u8>, Error> {
        let Some(&byte) = self.text.get(self.at) else {
            return Ok(None);
        };
        if self.at - start.at >= PARAMETER_MAX_BYTES && !self.is_param() {
            return Err(self.too_long(start));
        }
        self.at += 1;
        if byte == b'\n' {
            self.line = self.line.saturating_add(1);
        }
        Ok(Some(byte))
    }

    fn too_long(&self, start: Start) -> Error {
        let text = match start.quote {
            Some(b'"') => message(&[&"too long parameter, probably missing terminating \"\"\" character"]),
            Some(_) => message(&[&"too long parameter, probably missing terminating \"'\" character"]),
            None => {
                let begin = &self.text[start.at..start.at + PARAMETER_PRINTED_BYTES];
                message(&[&"too long parameter \"", &begin, &"...\" started"])
            }
        };
        Error::new(text, &self.pos_of(start.line))
    }

    fn unexpected(&self, byte: u8) -> Error {
        self.error(message(&[&"unexpected \"", &[byte], &"\""]))
    }

    fn unexpected_end(&self) -> Error {
        self.error(if self.is_param() {
            "unexpected end of parameter, expecting \";\""
        } else {
            "unexpected end of file, expecting \";\" or \"}\""
        })
    }
}

/// Resolves `\"`, `\'`, `\\`, `\t`, `\r` and `\n`; any other backslash stays.
fn unescape(raw: &Bytes) -> Bytes {
    if !raw.contains(&b'\\') {
        return raw.clone();
    }
    let mut word = Vec::with_capacity(raw.len());
    let mut rest = &raw[..];
    while let Some((&byte, behind)) = rest.split_first() {
        let resolved = match (byte, behind.first()) {
            (b'\\', Some(&escaped @ (b'"' | b'\'' | b'\\'))) => Some(escaped),
            (b'\\', Some(b't')) => Some(b'\t'),
            (b'\\', Some(b'r')) => Some(b'\r'),
            (b'\\', Some(b'n')) => Some(b'\n'),
            _ => None,
        };
        word.push(resolved.unwrap_or(byte));
        rest = if resolved.is_some() { &behind[1..] } else { behind };
    }
    word.into()
}
