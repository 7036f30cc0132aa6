//! Values of JSON as values of Lua.

use clearway_luajit::{Address, Call, Raise, Returns, Value};

use super::depth_of;
use crate::api::arguments::raise_text;

/// (text, depth, whether it reads numbers that JSON does not have, metatable of lists or nil)
pub(super) fn decode(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let text = call.text(1)?.to_vec();
    let reads_invalid = call.stack.is_true(3);
    let marks_lists = call.stack.get(4) == Value::Table;
    let mut decoder =
        Decoder { text: &text, at: 0, depth_max: depth_of(call, 2)?, reads_invalid, marks_lists };
    let height = call.stack.len();
    let begin = decoder.next();
    decoder.value(call, begin, 0)?;
    debug_assert_eq!(call.stack.len(), height + 1, "a text is one value");
    let end = decoder.next();
    if !matches!(end.kind, Kind::End) {
        return Err(wrong(call, "the end", &end));
    }
    debug_assert_eq!(decoder.at, text.len(), "all of the text was read");
    Ok(Returns::Values(1))
}

/// The token at a position of the text.
struct Token {
    kind: Kind,
    /// The index at which the value begins.
    at: usize,
}

enum Kind {
    ObjectBegin,
    ObjectEnd,
    ListBegin,
    ListEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Kind {
    /// As errors name it.
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ListBegin => "T_ARR_BEGIN",
            Self::ListEnd => "T_ARR_END",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Wrong(text) => text,
        }
    }
}

fn wrong(call: &mut Call<'_>, expected: &str, found: &Token) -> Raise {
    let text = format!("Expected {expected} but found {} at character {}", found.kind.name(), found.at + 1);
    raise_text(call, text.as_bytes())
}

struct Decoder<'t> {
    text: &'t [u8],
    at: usize,
    depth_max: usize,
    reads_invalid: bool,
    marks_lists: bool,
}

impl Decoder<'_> {
    /// Pushes the value that begins with the token.
    fn value(&mut self, call: &mut Call<'_>, token: Token, depth: usize) -> Result<(), Raise> {
        match token.kind {
            Kind::Text(text) => call.stack.push(&text[..]),
            Kind::Number(number) => call.stack.push(number),
            Kind::Boolean(boolean) => call.stack.push(boolean),
            Kind::Null => call.stack.push(Address(0)),
            Kind::ObjectBegin => return self.object(call, depth + 1),
            Kind::ListBegin => return self.list(call, depth + 1),
            _ => return Err(wrong(call, "value", &token)),
        }
        Ok(())
    }

    fn descend(&self, call: &mut Call<'_>, depth: usize) -> Result<(), Raise> {
        if depth > self.depth_max {
            let at = self.at;
            let text = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(raise_text(call, text.as_bytes()));
        }
        call.stack.reserve(6);
        call.stack.push_table(0, 0);
        Ok(())
    }

    fn object(&mut self, call: &mut Call<'_>, depth: usize) -> Result<(), Raise> {
        self.descend(call, depth)?;
        let table = call.stack.len();
        let mut token = self.next();
        if matches!(token.kind, Kind::ObjectEnd) {
            return Ok(());
        }
        loop {
            let Kind::Text(key) = &token.kind else {
                return Err(wrong(call, "object key string", &token));
            };
            call.stack.push(&key[..]);
            token = self.next();
            if !matches!(token.kind, Kind::Colon) {
                return Err(wrong(call, "colon", &token));
            }
            token = self.next();
            self.value(call, token, depth)?;
            debug_assert_eq!(call.stack.len(), table + 2, "a value stands above its key");
            call.stack.raw_set(-3);
            token = self.next();
            match token.kind {
                Kind::ObjectEnd => return Ok(()),
                Kind::Comma => token = self.next(),
                _ => return Err(wrong(call, "comma or object end", &token)),
            }
        }
    }

    fn list(&mut self, call: &mut Call<'_>, depth: usize) -> Result<(), Raise> {
        self.descend(call, depth)?;
        let table = call.stack.len();
        if self.marks_lists {
            call.stack.push_slot(4);
            call.stack.set_metatable(-2);
        }
        let mut token = self.next();
        if matches!(token.kind, Kind::ListEnd) {
            return Ok(());
        }
        for index in 1.. {
            self.value(call, token, depth)?;
            debug_assert_eq!(call.stack.len(), table + 1, "an item stands above its list");
            call.stack.raw_set_item(-2, index);
            token = self.next();
            match token.kind {
                Kind::ListEnd => return Ok(()),
                Kind::Comma => token = self.next(),
                _ => return Err(wrong(call, "comma or array end", &token)),
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Token {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let at = self.at;
        let Some(&byte) = self.text.get(at) else { return Token { kind: Kind::End, at } };
        let single = match byte {
            b'{' => Kind::ObjectBegin,
            b'}' => Kind::ObjectEnd,
            b'[' => Kind::ListBegin,
            b']' => Kind::ListEnd,
            b':' => Kind::Colon,
            b',' => Kind::Comma,
            b'"' => return self.quoted(),
            _ => return Token { kind: self.word(), at },
        };
        self.at += 1;
        Token { kind: single, at }
    }

    /// A word, or a number.
    fn word(&mut self) -> Kind {
        let rest = &self.text[self.at..];
        for (word, kind) in
            [("true", Kind::Boolean(true)), ("false", Kind::Boolean(false)), ("null", Kind::Null)]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return kind;
            }
        }
        let sign = usize::from(rest.first() == Some(&b'-'));
        match rest.get(sign) {
            Some(b'0'..=b'9') => {}
            Some(_) if self.reads_invalid => return self.infinite(sign),
            _ => return Kind::Wrong("invalid token"),
        }
        if rest[sign..].starts_with(b"0x") || rest[sign..].starts_with(b"0X") {
            return self.hexadecimal(sign);
        }
        if rest[sign] == b'0' && rest.get(sign + 1).is_some_and(u8::is_ascii_digit) && !self.reads_invalid {
            return Kind::Wrong("invalid number");
        }
        let len = number_len(rest, sign);
        debug_assert!(sign < len && len <= rest.len(), "a number has a digit, and lies within the text");
        let number = std::str::from_utf8(&rest[..len]).ok().and_then(|text| text.parse().ok());
        self.at += len;
        number.map_or(Kind::Wrong("invalid number"), Kind::Number)
    }

    /// `NaN`, `Infinity`, `inf`.
    fn infinite(&mut self, sign: usize) -> Kind {
        let rest = &self.text[self.at + sign..];
        for (word, number) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
            if rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word.as_bytes()) {
                self.at += sign + word.len();
                return Kind::Number(if sign == 1 { -number } else { number });
            }
        }
        Kind::Wrong("invalid token")
    }

    fn hexadecimal(&mut self, sign: usize) -> Kind {
        if !self.reads_invalid {
            return Kind::Wrong("invalid number");
        }
        let digits = &self.text[self.at + sign + 2..];
        let len = digits.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0);
        let number = digits[..len].iter().fold(0.0, |number, byte| number * 16.0 + f64::from(digit(byte)));
        self.at += sign + 2 + len;
        Kind::Number(if sign == 1 { -number } else { number })
    }

    /// A text; the quote that begins it is the next byte.
    fn quoted(&mut self) -> Token {
        let begin = self.at;
        debug_assert_eq!(self.text[begin], b'"', "a text begins with a quote");
        let mut text = Vec::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\')).count();
            text.extend_from_slice(&rest[..plain]);
            self.at += plain;
            let kind = match self.text.get(self.at) {
                None => Kind::Wrong("unexpected end of string"),
                Some(b'"') => {
                    self.at += 1;
                    return Token { kind: Kind::Text(text), at: begin };
                }
                Some(_) => match self.escape(&mut text) {
                    Ok(()) => continue,
                    Err(said) => Kind::Wrong(said),
                },
            };
            return Token { kind, at: self.at };
        }
    }

    /// Appends the character of an escape, whose backslash was read.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        debug_assert_eq!(self.text[self.at], b'\\', "an escape begins with a backslash");
        let byte = match self.text.get(self.at + 1) {
            Some(b'u') => {
                let (code, len) = self.code_point().ok_or("invalid unicode escape code")?;
                text.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += len;
                return Ok(());
            }
            Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'f') => 12,
            Some(b'r') => b'\r',
            _ => return Err("invalid escape code"),
        };
        text.push(byte);
        self.at += 2;
        Ok(())
    }

    /// A character by its number, or by two that stand for one beyond the first 65,536; how long that is.
    fn code_point(&self) -> Option<(char, usize)> {
        let unit = |at: usize| {
            let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
            digits.iter().try_fold(0_u32, |code, &byte| Some(code << 4 | char::from(byte).to_digit(16)?))
        };
        let first = unit(self.at)?;
        if !(0xd800..0xdc00).contains(&first) {
            return Some((char::from_u32(first)?, 6));
        }
        let second = unit(self.at + 6).filter(|second| (0xdc00..0xe000).contains(second))?;
        Some((char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?, 12))
    }
}

/// How long the number is that begins with digits behind its sign.
fn number_len(text: &[u8], sign: usize) -> usize {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut len = sign + digits(sign);
    if text.get(len) == Some(&b'.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    if matches!(text.get(len), Some(b'e' | b'E')) {
        let signed = len + 1 + usize::from(matches!(text.get(len + 1), Some(b'+' | b'-')));
        if signed <= text.len() && digits(signed) > 0 {
            len = signed + digits(signed);
        }
    }
    len
}
