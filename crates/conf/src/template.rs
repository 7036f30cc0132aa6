//! Values with variables in them: `text $name ${name} $1`, taken apart as nginx takes them apart.
//!
//! Pure data: what a variable is (`Id`) and how it gets its value is for the layers above.

use bytes::Bytes;

use crate::error::{Error, Pos, message};

/// A value with variables, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<Id> {
    parts: Vec<Part<Id>>,
}

/// A piece of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<Id> {
    /// Text as it stands.
    Literal(Bytes),
    /// `$name` or `${name}`.
    Variable(Id),
    /// `$1` to `$9`: what a regular expression has captured.
    Capture(u8),
}

impl<Id> Template<Id> {
    /// Takes `value` apart. `resolve` turns the name of a variable into what it is known by.
    ///
    /// # Errors
    ///
    /// `invalid variable name`, `the closing bracket in "NAME" variable is missing`, or what
    /// `resolve` says.
    pub fn compile(
        value: &Bytes,
        pos: &Pos,
        mut resolve: impl FnMut(&[u8]) -> Result<Id, Error>,
    ) -> Result<Self, Error> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < value.len() {
            let literal_end = memchr::memchr(b'$', &value[at..]).map_or(value.len(), |dollar| at + dollar);
            if literal_end > at {
                parts.push(Part::Literal(value.slice(at..literal_end)));
                at = literal_end;
                continue;
            }
            match take_variable(&value[at + 1..], pos)? {
                Reference::Capture(number) => {
                    parts.push(Part::Capture(number));
                    at += 2;
                }
                Reference::Variable { name, length } => {
                    parts.push(Part::Variable(resolve(name)?));
                    at += 1 + length;
                }
            }
        }
        Ok(Self { parts })
    }

    /// A value without variables.
    #[must_use]
    pub fn literal(value: Bytes) -> Self {
        Self { parts: if value.is_empty() { Vec::new() } else { vec![Part::Literal(value)] } }
    }

    /// The pieces in order; none for an empty value. No two literals stand side by side.
    #[must_use]
    pub fn parts(&self) -> &[Part<Id>] {
        &self.parts
    }

    /// The whole value, if it has no variables.
    #[must_use]
    pub fn as_literal(&self) -> Option<Bytes> {
        match &self.parts[..] {
            [] => Some(Bytes::new()),
            [Part::Literal(value)] => Some(value.clone()),
            _ => None,
        }
    }

    /// Whether it uses what a regular expression has captured.
    #[must_use]
    pub fn has_captures(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Capture(_)))
    }
}

/// The reference behind a `$`.
enum Reference<'a> {
    Capture(u8),
    /// `length` counts the braces too.
    Variable {
        name: &'a [u8],
        length: usize,
    },
}

fn take_variable<'a>(behind: &'a [u8], pos: &Pos) -> Result<Reference<'a>, Error> {
    let invalid = || Error::new("invalid variable name", pos);
    let (name_start, braced) = match behind {
        [digit @ b'1'..=b'9', ..] => return Ok(Reference::Capture(digit - b'0')),
        [b'{', _, ..] => (1, true),
        [] | [b'{'] => return Err(invalid()),
        _ => (0, false),
    };
    let name = &behind[name_start..];
    let length = name.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    let (name, after) = name.split_at(length);
    if braced && after.first() != Some(&b'}') {
        let text = message(&[&"the closing bracket in \"", &name, &"\" variable is missing"]);
        return Err(Error::new(text, pos));
    }
    if name.is_empty() {
        return Err(invalid());
    }
    Ok(Reference::Variable { name, length: length + if braced { 2 } else { 0 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(value: &'static str) -> Result<Template<String>, Error> {
        let resolve = |name: &[u8]| match name {
            b"unknown" => Err(Error::unplaced("unknown \"unknown\" variable")),
            name => Ok(String::from_utf8_lossy(name).into_owned()),
        };
        Template::compile(&Bytes::from_static(value.as_bytes()), &Pos::command_line(), resolve)
    }

    #[test]
    fn pieces() {
        let literal = |text: &'static str| Part::Literal(Bytes::from_static(text.as_bytes()));
        let variable = |name: &str| Part::Variable(name.to_owned());
        for (value, parts) in [
            ("", vec![]),
            ("text", vec![literal("text")]),
            ("$a", vec![variable("a")]),
            ("x${a}y", vec![literal("x"), variable("a"), literal("y")]),
            ("$a$b", vec![variable("a"), variable("b")]),
            ("$a-b", vec![variable("a"), literal("-b")]),
            ("$a_9.c", vec![variable("a_9"), literal(".c")]),
            ("$1", vec![Part::Capture(1)]),
            ("$10", vec![Part::Capture(1), literal("0")]),
            ("$0", vec![variable("0")]),
            ("${1}", vec![variable("1")]),
            ("${a}}", vec![variable("a"), literal("}")]),
            ("a?b=$c", vec![literal("a?b="), variable("c")]),
        ] {
            assert_eq!(compile(value).expect(value).parts(), parts, "{value}");
        }
    }

    #[test]
    fn refusals() {
        for (value, message) in [
            ("$", "invalid variable name"),
            ("a$", "invalid variable name"),
            ("$-", "invalid variable name"),
            ("$$a", "invalid variable name"),
            ("${", "invalid variable name"),
            ("${}", "invalid variable name"),
            ("${a", "the closing bracket in \"a\" variable is missing"),
            ("${a-b}", "the closing bracket in \"a\" variable is missing"),
            ("${-}", "the closing bracket in \"\" variable is missing"),
            ("${$a}", "the closing bracket in \"\" variable is missing"),
        ] {
            let error = compile(value).expect_err(value);
            assert_eq!(error.to_string(), format!("{message} in command line"), "{value}");
        }
        assert_eq!(compile("$unknown").expect_err("unknown").message(), b"unknown \"unknown\" variable");
    }

    #[test]
    fn questions() {
        assert_eq!(compile("text").expect("fine").as_literal(), Some(Bytes::from_static(b"text")));
        assert_eq!(compile("").expect("fine").as_literal(), Some(Bytes::new()));
        assert_eq!(compile("$a").expect("fine").as_literal(), None);
        assert!(compile("a$2").expect("fine").has_captures());
        assert!(!compile("a$b").expect("fine").has_captures());
        assert_eq!(Template::<()>::literal(Bytes::new()).parts(), []);
    }
}
