//! The condition of an `if`, read as nginx reads it: its parentheses may stand alone or be part of the
//! words inside. Runs at load.

use bytes::Bytes;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error};
use clearway_http::Load;
use clearway_http::regex::Case;

use super::code::{Condition, FileTest, Property, Wanted};

/// Reads the arguments of an `if`.
pub(super) fn read(load: &mut Load, directive: &Directive) -> Result<Condition, Error> {
    let invalid = |word: &Bytes| directive.error(message(&[&"invalid condition \"", word, &"\""]));
    let words = words(&directive.args).map_err(|word| invalid(&word))?;
    let [first, rest @ ..] = &words[..] else { unreachable!("there is a word, or it is invalid") };
    if first.len() > 1 && first[0] == b'$' {
        let variable = load.variables.id(&first[1..]);
        return match rest {
            [] => Ok(Condition::True(variable)),
            [operator, operand] => compare(load, directive, variable, [operator, operand]),
            _ => Err(invalid(first)),
        };
    }
    let letter = match first[..] {
        [b'-', letter] => Some((letter, Wanted::Yes)),
        [b'!', b'-', letter] => Some((letter, Wanted::No)),
        _ => None,
    };
    let (Some((letter, wanted)), [path]) = (letter, rest) else { return Err(invalid(first)) };
    let path = load.variables.compile(path, &directive.pos)?;
    let property = match letter {
        b'f' => Property::Regular,
        b'd' => Property::Directory,
        b'e' => Property::Exists,
        b'x' => Property::Executable,
        _ => return Err(invalid(first)),
    };
    Ok(Condition::File(path, FileTest { property, wanted }))
}

/// The words without the parentheses around them. Else the word that has none or is nothing but one, as
/// far as nginx has taken it apart by then.
fn words(args: &[Bytes]) -> Result<Vec<Bytes>, Bytes> {
    let mut words = args.to_vec();
    let mut start = 0;
    match &words[0][..] {
        b"(" => start = 1,
        [b'(', ..] => words[0] = words[0].slice(1..),
        _ => return Err(words.swap_remove(0)),
    }
    let last = words.len() - 1;
    let Some(inner) = words[last].strip_suffix(b")") else { return Err(words.swap_remove(last)) };
    let end = if inner.is_empty() { last } else { last + 1 };
    // Between them there is nothing: nginx takes the closing one for the condition.
    if start >= end {
        return Err(words.swap_remove(last));
    }
    words[last] = words[last].slice_ref(inner);
    Ok(words[start..end].to_vec())
}

fn compare(
    load: &mut Load,
    directive: &Directive,
    variable: clearway_http::VariableId,
    [operator, operand]: [&Bytes; 2],
) -> Result<Condition, Error> {
    let (operation, wanted) = match operator.strip_prefix(b"!") {
        Some(operation) => (operation, Wanted::No),
        None => (&operator[..], Wanted::Yes),
    };
    let case = match operation {
        b"=" => {
            let value = load.variables.compile(operand, &directive.pos)?;
            return Ok(Condition::Equal(variable, value, wanted));
        }
        b"~" => Case::Sensitive,
        b"~*" => Case::Insensitive,
        _ => {
            let text = message(&[&"unexpected \"", operator, &"\" in condition"]);
            return Err(directive.error(text));
        }
    };
    let regex = super::compile(load, directive, operand, case)?;
    Ok(Condition::Match(variable, Box::new(regex), wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_stand_alone_or_not() {
        let words = |text: &str| {
            let args: Vec<_> = text.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
            let joined = |words: Vec<Bytes>| String::from_utf8(words.join(&b' ')).unwrap();
            words(&args).map(joined).map_err(|word| String::from_utf8(word.to_vec()).unwrap())
        };
        for text in ["($a = b)", "( $a = b)", "($a = b )", "( $a = b )"] {
            assert_eq!(words(text).as_deref(), Ok("$a = b"));
        }
        assert_eq!(words("($a = (b))").as_deref(), Ok("$a = (b)"));
        for (text, word) in [
            ("$a)", "$a)"),
            ("($a", "$a"),
            ("( $a", "$a"),
            ("($a b", "b"),
            ("(", "("),
            ("()", ")"),
            ("( )", ")"),
            ("x", "x"),
        ] {
            assert_eq!(words(text), Err(word.to_owned()), "{text}");
        }
    }
}
