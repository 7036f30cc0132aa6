//! `split_clients`: a variable that divides clients into parts by a hash of a text. A few multiplications
//! on the loop of the request.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::error::message;
use clearway_conf::{Args, Block, Body, Directive, Error, Scope, Spec};
use clearway_http::{Computed, Keep, Load, Module, Text, Value, View, context};

use crate::variables::map::variable_name;

/// The module.
pub static SPLIT_CLIENTS: Module = Module { name: "split_clients", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "split_clients",
    contexts: context::HTTP,
    args: Args::BLOCK.or(Args::TAKE2),
    syntax: "split_clients VALUE $VARIABLE { … }",
    default: "",
    doc: "Makes a variable that has one of several values, each for a part of all requests: `10% value;`, \
          and `* value;` for what is left. Which part a request belongs to depends on the hash \
          (MurmurHash2) of a value, so that the same client is always in the same part.",
    example: r#"
        split_clients "${remote_addr}AAA" $variant {
            0.5%  .one;
            2.0%  .two;
            *     "";
        }

        server {
            location / {
                index index${variant}.html;
            }
        }"#,
    see: &["map"],
    handler: read_split_clients,
}];

/// Hundredths of a percent in all.
const WHOLE: u64 = 10_000;

/// A `split_clients` block.
struct Split {
    source: Value,
    parts: Vec<Part>,
}

struct Part {
    /// Hashes below are in it, unless they are in one before; `None` is for all.
    end: Option<u32>,
    value: Bytes,
}

impl Computed for Split {
    fn eval<'c>(&'c self, view: &View<'_, 'c>) -> Option<Text<'c>> {
        let hash = murmur_hash2(&self.source.eval(view));
        let part = self.parts.iter().find(|part| part.end.is_none_or(|end| hash < end));
        Some(Cow::Borrowed(part.map_or(b"", |part| &part.value)))
    }
}

fn read_split_clients(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let source = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
    let name = variable_name(directive, 1)?;
    scope.conf.check_variable(name).map_err(|message| directive.error(message))?;
    let parts = directive.block().map_or(Ok(Vec::new()), read_parts)?;
    let split = Arc::new(Split { source, parts });
    let defined = scope.conf.define_variable(name, split, Keep::Request);
    defined.map(|_| ()).map_err(|message| directive.error(message))
}

fn read_parts(block: &Block) -> Result<Vec<Part>, Error> {
    let mut shares = Vec::new();
    // No `Block::entries`: an `include` is no include here, but a percent value that is none.
    for line in &block.directives {
        if line.opens_block() {
            return Err(line.error("unexpected \"{\""));
        }
        let is_line = matches!(line.body, Body::Semicolon);
        let share = share(&line.name)
            .filter(|_| is_line)
            .ok_or_else(|| line.error(message(&[&"invalid percent value \"", &line.name, &"\""])))?;
        let [value] = &line.args[..] else {
            return Err(line.error("invalid number of the split_clients parameters"));
        };
        shares.push((share, value.clone()));
    }
    block.end()?;
    let (mut sum, mut last) = (0, 0_u32);
    let mut parts = Vec::new();
    for (share, value) in shares {
        sum = if share == 0 { WHOLE } else { sum + share };
        if sum > WHOLE {
            return Err(Error::new("percent total is greater than 100%", &block.close));
        }
        let end = (sum < WHOLE).then(|| {
            last += (share * u64::from(u32::MAX) / WHOLE) as u32;
            last
        });
        parts.push(Part { end, value });
    }
    Ok(parts)
}

/// Hundredths of a percent; 0 for `*`.
fn share(text: &[u8]) -> Option<u64> {
    if text == b"*" {
        return Some(0);
    }
    let digits = text.strip_suffix(b"%").filter(|digits| !digits.is_empty())?;
    let (whole, fraction) = match memchr::memchr(b'.', digits) {
        Some(dot) => (&digits[..dot], &digits[dot + 1..]),
        None => (digits, &b""[..]),
    };
    let scale = [100, 10, 1].get(fraction.len())?;
    let mut number = 0_u64;
    for digit in whole.iter().chain(fraction) {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit <= 9)?;
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    number.checked_mul(*scale).filter(|&share| share > 0)
}

/// MurmurHash2 by Austin Appleby (public domain) with seed 0, as nginx uses it: the parts of clients stay
/// what they were.
fn murmur_hash2(text: &[u8]) -> u32 {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    let mut hash = text.len() as u32;
    let (blocks, rest) = text.as_chunks::<4>();
    for block in blocks {
        let mut block = u32::from_le_bytes(*block).wrapping_mul(MULTIPLIER);
        block ^= block >> 24;
        hash = hash.wrapping_mul(MULTIPLIER) ^ block.wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        for (at, &byte) in rest.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * at);
        }
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_hundredths_of_a_percent() {
        for (text, expected) in [
            ("*", Some(0)),
            ("1%", Some(100)),
            ("51.2%", Some(5120)),
            ("0.05%", Some(5)),
            (".5%", Some(50)),
            ("5.%", Some(500)),
            ("0%", None),
            ("0.00%", None),
            ("1.234%", None),
            ("1.2.3%", None),
            ("%", None),
            ("5", None),
            ("x%", None),
            ("-1%", None),
        ] {
            assert_eq!(share(text.as_bytes()), expected, "{text}");
        }
    }

    /// Values of the reference implementation.
    #[test]
    fn hashes_are_those_of_the_reference() {
        for (text, expected) in
            [("", 0), ("a", 0x9268_5f5e), ("abc", 0x1357_7c9b), ("The quick brown fox", 0x5b36_1318)]
        {
            assert_eq!(murmur_hash2(text.as_bytes()), expected, "{text}");
        }
    }
}
