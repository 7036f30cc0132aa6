//! A configuration text by its grammar, read byte by byte, with lines counted from the beginning each time:
//! what the lexer and the loader are compared with. Includes, Lua blocks and limits are beyond it.

use clearway_conf::{Block, Body};

/// A directive as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    line: u32,
    words: Vec<Vec<u8>>,
    /// What stands in braces, and the line on which they close.
    block: Option<(Vec<Read>, u32)>,
}

/// Why there is nothing to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// What is wrong, and where.
    Broken(Vec<u8>),
    /// It is read by rules that the model does not know.
    Unknown,
}

/// What the product has read.
pub(crate) fn of(block: &Block) -> Vec<Read> {
    let read = |directive: &clearway_conf::Directive| Read {
        line: directive.pos.line,
        words: std::iter::once(&directive.name).chain(&directive.args).map(|word| word.to_vec()).collect(),
        block: match &directive.body {
            Body::Block(block) => Some((of(block), block.close.line)),
            _ => None,
        },
    };
    block.directives.iter().map(read).collect()
}

/// What the text says.
pub(crate) fn read(text: &[u8]) -> Result<Vec<Read>, Stop> {
    Model { text, at: 0 }.block(BlockPlace::File)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockPlace {
    File,
    Braces,
}

struct Model<'a> {
    text: &'a [u8],
    at: usize,
}

impl Model<'_> {
    fn block(&mut self, place: BlockPlace) -> Result<Vec<Read>, Stop> {
        let mut list = Vec::new();
        let mut words: Vec<Vec<u8>> = Vec::new();
        loop {
            let Some(byte) = self.take() else {
                return match (words.is_empty(), place) {
                    (true, BlockPlace::File) => Ok(list),
                    (true, BlockPlace::Braces) => {
                        Err(self.broken(b"unexpected end of file, expecting \"}\""))
                    }
                    (false, _) => Err(self.broken(b"unexpected end of file, expecting \";\" or \"}\"")),
                };
            };
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'#' => while !matches!(self.take(), None | Some(b'\n')) {},
                b'}' if words.is_empty() && place == BlockPlace::Braces => return Ok(list),
                b';' | b'{' if !words.is_empty() => {
                    let words = std::mem::take(&mut words);
                    if words[0] == b"include" || words[0].ends_with(b"_by_lua_block") {
                        return Err(Stop::Unknown);
                    }
                    let line = self.line();
                    let block = (byte == b'{').then(|| Ok((self.block(BlockPlace::Braces)?, self.line())));
                    list.push(Read { line, words, block: block.transpose()? });
                }
                b';' | b'{' | b'}' => return Err(self.unexpected(byte)),
                b'"' | b'\'' => {
                    words.push(self.quoted(byte));
                    let next = self.text.get(self.at).copied().unwrap_or(b' ');
                    if !b" \t\r\n;{)".contains(&next) {
                        self.at += 1;
                        return Err(self.unexpected(next));
                    }
                }
                _ => {
                    self.at -= 1;
                    words.push(self.bare());
                }
            }
        }
    }

    /// Up to a quote that no backslash stands before, which is not kept.
    fn quoted(&mut self, quote: u8) -> Vec<u8> {
        let mut word = Vec::new();
        while let Some(byte) = self.take().filter(|&byte| byte != quote) {
            self.push(byte, &mut word);
        }
        word
    }

    /// Up to a blank or an end, which is left. A brace behind `$`, and those behind it, are neither.
    fn bare(&mut self) -> Vec<u8> {
        let (mut word, mut is_variable) = (Vec::new(), false);
        while let Some(&byte) = self.text.get(self.at) {
            if b" \t\r\n;".contains(&byte) || byte == b'{' && !is_variable {
                break;
            }
            self.at += 1;
            is_variable = byte == b'$' || byte == b'{';
            self.push(byte, &mut word);
        }
        word
    }

    /// Appends a byte, or what it and the one behind it stand for.
    fn push(&mut self, byte: u8, word: &mut Vec<u8>) {
        let escaped = if byte == b'\\' { self.take() } else { None };
        match escaped {
            None => word.push(byte),
            Some(b't') => word.push(b'\t'),
            Some(b'r') => word.push(b'\r'),
            Some(b'n') => word.push(b'\n'),
            Some(quote @ (b'"' | b'\'' | b'\\')) => word.push(quote),
            Some(other) => word.extend([b'\\', other]),
        }
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied();
        self.at += usize::from(byte.is_some());
        byte
    }

    fn line(&self) -> u32 {
        1 + self.text[..self.at].iter().map(|&byte| u32::from(byte == b'\n')).sum::<u32>()
    }

    fn unexpected(&self, byte: u8) -> Stop {
        self.broken(&[b"unexpected \"", &[byte][..], b"\""].concat())
    }

    fn broken(&self, what: &[u8]) -> Stop {
        let place = format!(" in nginx.conf:{}", self.line());
        Stop::Broken([what, place.as_bytes()].concat())
    }
}
