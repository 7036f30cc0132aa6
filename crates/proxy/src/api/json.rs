//! JSON as the API takes it: one object with plain members (RFC 8259). Pure functions.

/// Members of an object at most.
const MEMBERS_MAX: usize = 32;

/// A plain value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    Text(String),
    /// A whole number that is not negative.
    Number(u64),
    Flag(bool),
}

/// An object whose members are plain values.
///
/// # Errors
/// What is wrong with it, and at which byte.
pub(crate) fn read_object(text: &[u8]) -> Result<Vec<(String, Json)>, String> {
    let mut reader = Reader { text, at: 0 };
    let read = reader.object();
    read.map_err(|why| format!("{why} at byte {}", reader.at))
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn object(&mut self) -> Result<Vec<(String, Json)>, &'static str> {
        let mut members: Vec<(String, Json)> = Vec::new();
        self.take(b'{', "no object")?;
        while self.peek() != Some(b'}') {
            if !members.is_empty() {
                self.take(b',', "\",\" or \"}\" is missing")?;
            }
            if members.len() == MEMBERS_MAX {
                return Err("too many members");
            }
            self.peek();
            let name = self.string()?;
            self.take(b':', "\":\" is missing")?;
            let value = self.value()?;
            if members.iter().any(|(known, _)| *known == name) {
                return Err("duplicate member");
            }
            members.push((name, value));
        }
        self.at += 1;
        if self.peek().is_some() { Err("something behind the object") } else { Ok(members) }
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(|byte| b" \t\r\n".contains(byte)) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8, otherwise: &'static str) -> Result<(), &'static str> {
        if self.peek() != Some(byte) {
            return Err(otherwise);
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self) -> Result<Json, &'static str> {
        match self.peek() {
            Some(b'"') => self.string().map(Json::Text),
            Some(b'0'..=b'9') => self.number(),
            _ if self.word("true") => Ok(Json::Flag(true)),
            _ if self.word("false") => Ok(Json::Flag(false)),
            _ => Err("neither a string nor a whole number nor true nor false"),
        }
    }

    fn word(&mut self, word: &str) -> bool {
        let is_it = self.text[self.at..].starts_with(word.as_bytes());
        if is_it {
            self.at += word.len();
        }
        is_it
    }

    fn number(&mut self) -> Result<Json, &'static str> {
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_whole = !matches!(rest.get(digits), Some(b'.' | b'e' | b'E'));
        let is_plain = digits == 1 || rest[0] != b'0';
        let number = std::str::from_utf8(&rest[..digits]).ok().and_then(|text| text.parse().ok());
        let number = number.filter(|_| is_whole && is_plain).ok_or("not a whole number that can be")?;
        self.at += digits;
        Ok(Json::Number(number))
    }

    fn string(&mut self) -> Result<String, &'static str> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err("a string is missing");
        }
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let byte = *self.text.get(self.at).ok_or("a string has no end")?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).map_err(|_| "no UTF-8"),
                b'\\' => {
                    let mut room = [0; 4];
                    let character = self.escaped()?;
                    out.extend_from_slice(character.encode_utf8(&mut room).as_bytes());
                }
                0..=0x1f => return Err("a control character in a string"),
                byte => out.push(byte),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, &'static str> {
        let byte = *self.text.get(self.at).ok_or("a string has no end")?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4).ok_or("no character")?;
                let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
                let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex).ok_or("no character")?;
                self.at += 4;
                // Halves of pairs are no characters; no value here needs them.
                let code = u32::from_str_radix(digits, 16).map_err(|_| "no character")?;
                char::from_u32(code).ok_or("no character")?
            }
            _ => return Err("no escape"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_base::json::put_text;

    #[test]
    fn plain_members_are_read() {
        let text = br#" { "server" : "a\u0041\n\"" , "weight":10,"down":true, "b" :false } "#;
        let expected = [
            ("server", Json::Text("aA\n\"".into())),
            ("weight", Json::Number(10)),
            ("down", Json::Flag(true)),
            ("b", Json::Flag(false)),
        ];
        let expected: Vec<_> = expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(read_object(text), Ok(expected));
        assert_eq!(read_object(b"{}"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_such_object_is_refused() {
        for (text, said) in [
            ("", "no object at byte 0"),
            ("[]", "no object at byte 0"),
            ("{", "a string is missing at byte 1"),
            ("{\"a\"}", "\":\" is missing at byte 4"),
            ("{\"a\":1", "\",\" or \"}\" is missing at byte 6"),
            ("{\"a\":1,}", "a string is missing at byte 7"),
            ("{\"a\":1 \"b\":2}", "\",\" or \"}\" is missing at byte 7"),
            ("{\"a\":1,\"a\":2}", "duplicate member at byte 12"),
            ("{\"a\":-1}", "neither a string nor a whole number nor true nor false at byte 5"),
            ("{\"a\":null}", "neither a string nor a whole number nor true nor false at byte 5"),
            ("{\"a\":{}}", "neither a string nor a whole number nor true nor false at byte 5"),
            ("{\"a\":1.5}", "not a whole number that can be at byte 5"),
            ("{\"a\":01}", "not a whole number that can be at byte 5"),
            ("{\"a\":99999999999999999999}", "not a whole number that can be at byte 5"),
            ("{\"a\":\"b", "a string has no end at byte 7"),
            ("{\"a\":\"\\x\"}", "no escape at byte 8"),
            ("{\"a\":\"\\ud800\"}", "no character at byte 12"),
            ("{\"a\":\"\\u12\"}", "no character at byte 8"),
            ("{\"a\":\"\n\"}", "a control character in a string at byte 7"),
            ("{} x", "something behind the object at byte 3"),
        ] {
            assert_eq!(read_object(text.as_bytes()), Err(said.to_owned()), "{text}");
        }
        assert!(read_object(b"{\"a\":\"\xff\"}").is_err());
        let many: Vec<String> = (0..=MEMBERS_MAX).map(|number| format!("\"{number}\":1")).collect();
        assert!(read_object(format!("{{{}}}", many.join(",")).as_bytes()).is_err());
    }

    #[test]
    fn strings_are_written_so_that_they_can_be_read() {
        let mut out = b"{\"a\":".to_vec();
        put_text(&mut out, "q\"b\\n\u{1}\u{e9}");
        out.push(b'}');
        assert_eq!(read_object(&out).unwrap()[0].1, Json::Text("q\"b\\n\u{1}\u{e9}".into()));
    }
}
