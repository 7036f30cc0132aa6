//! As much of Rust's lexical grammar as the checks need: words, punctuation, and what is neither code
//! (comments) nor structure (string and character literals). Braces in those must not be counted.

/// A piece of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// An identifier or keyword.
    Word(&'a str),
    /// Any other character of code.
    Punct(char),
    /// A string, character or number.
    Literal,
    /// A line comment or a whole block comment, with its slashes.
    Comment(&'a str),
}

/// A piece of source and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind<'a>,
    /// 1-based.
    pub(crate) line: usize,
}

/// Splits a source. Never fails: what is not Rust comes out as punctuation.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut out = Vec::new();
    while let Some(token) = lexer.next_token() {
        out.push(token);
    }
    out
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn next_token(&mut self) -> Option<Token<'a>> {
        self.take_while(|c| c.is_whitespace());
        let line = self.line;
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        let kind = if rest.starts_with("//") {
            Kind::Comment(self.take_while(|c| c != '\n'))
        } else if rest.starts_with("/*") {
            self.block_comment()
        } else if let Some(hashes) = raw_string_hashes(rest) {
            self.raw_string(hashes)
        } else if first == '"' || ["b\"", "c\""].iter().any(|open| rest.starts_with(open)) {
            self.quoted('"')
        } else if rest.starts_with("b'") || first == '\'' && is_char_literal(rest) {
            self.quoted('\'')
        } else if let Some(raw) = rest.strip_prefix("r#").filter(|raw| raw.starts_with(is_word)) {
            self.advance(rest.len() - raw.len());
            Kind::Word(self.take_while(is_word))
        } else if first.is_ascii_digit() {
            self.take_while(is_word);
            Kind::Literal
        } else if is_word(first) {
            Kind::Word(self.take_while(is_word))
        } else {
            self.advance(first.len_utf8());
            Kind::Punct(first)
        };
        Some(Token { kind, line })
    }

    /// Moves on, counting the lines that are left behind.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let taken = &self.text[self.at..self.at + bytes];
        self.line += taken.matches('\n').count();
        self.at += bytes;
        taken
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        self.advance(rest.find(|c| !wanted(c)).unwrap_or(rest.len()))
    }

    /// Block comments nest.
    fn block_comment(&mut self) -> Kind<'a> {
        let rest = &self.text[self.at..];
        let (mut depth, mut i) = (0, 0);
        while i < rest.len() {
            if rest[i..].starts_with("/*") {
                (depth, i) = (depth + 1, i + 2);
            } else if rest[i..].starts_with("*/") {
                (depth, i) = (depth - 1, i + 2);
                if depth == 0 {
                    break;
                }
            } else {
                i += rest[i..].chars().next().map_or(1, char::len_utf8);
            }
        }
        Kind::Comment(self.advance(i.min(rest.len())))
    }

    /// A literal with backslash escapes, with or without a prefix letter.
    fn quoted(&mut self, quote: char) -> Kind<'a> {
        let rest = &self.text[self.at..];
        let open = rest.find(quote).unwrap_or(0) + 1;
        let mut escaped = false;
        let end = rest[open..].find(|c| {
            let closes = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        self.advance(end.map_or(rest.len(), |i| open + i + 1));
        Kind::Literal
    }

    fn raw_string(&mut self, hashes: usize) -> Kind<'a> {
        let rest = &self.text[self.at..];
        let open = rest.find('"').unwrap_or(0) + 1;
        let close = format!("\"{}", "#".repeat(hashes));
        self.advance(rest[open..].find(&close).map_or(rest.len(), |i| open + i + close.len()));
        Kind::Literal
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The number of `#` if a raw string (`r"`, `br#"`, `cr##"` …) starts here.
fn raw_string_hashes(rest: &str) -> Option<usize> {
    let body = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    body[hashes..].starts_with('"').then_some(hashes)
}

/// Tells `'a'` and `'\n'` from the lifetime `'a`.
fn is_char_literal(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text)
            .into_iter()
            .filter_map(|token| match token.kind {
                Kind::Word(word) => Some(word),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn literals_and_comments_hold_no_words() {
        assert_eq!(words(r#"let a = "fn { \" }"; b"#), ["let", "a", "b"]);
        assert_eq!(words("let a = r##\"fn \"# {\"##; b"), ["let", "a", "b"]);
        assert_eq!(words("x /* fn /* nested */ { */ y // fn {\nz"), ["x", "y", "z"]);
        assert_eq!(words("br\"{\" b\"{\\\"\" c\"{\" b'{' '\\'' '{' end"), ["end"]);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(words("fn f<'a>(x: &'a str) { 'outer: loop {} }")[..3], ["fn", "f", "a"]);
        assert_eq!(words("'é' x"), ["x"]);
    }

    #[test]
    fn lines_are_counted_through_literals() {
        let found = tokens("\"a\nb\n\"\n/* \n */ x");
        assert_eq!(found.last(), Some(&Token { kind: Kind::Word("x"), line: 5 }));
    }

    #[test]
    fn raw_identifiers_and_numbers() {
        assert_eq!(words("r#type 1_000u64 0xfn x"), ["type", "x"]);
    }
}
