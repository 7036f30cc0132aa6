//! `ndk.set_var`: directives of the set-misc module as functions.

use clearway_base::base64;
use clearway_luajit::{Call, Fault, Raise, Returns};

use super::encoding::{self, Base64, Escape};
use super::room::{Install, put};

/// Changes a text; nothing where it is none of its kind.
pub(super) type Change = fn(&[u8]) -> Option<Vec<u8>>;

/// The functions, by the names of the directives.
pub(super) const CHANGES: [(&str, Change); 10] = [
    ("set_escape_uri", |text| Some(encoding::escape(text, Escape::Component).into_owned())),
    ("set_unescape_uri", |text| Some(encoding::unescape(text).into_owned())),
    ("set_quote_sql_str", |text| Some(encoding::quote_sql(text))),
    ("set_encode_base32", |text| Some(to_base32(text))),
    ("set_decode_base32", from_base32),
    ("set_encode_base64", |text| Some(base64::encode(text))),
    ("set_decode_base64", |text| encoding::of_base64(text, Base64::Standard)),
    ("set_encode_hex", |text| Some(to_hex(text))),
    ("set_decode_hex", from_hex),
    ("set_md5", |text| Some(encoding::md5_hex(text).to_vec())),
];

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| put(stack, "_ndk", change));
    install.run(include_str!("ndk.lua"), c"=ndk")
}

/// The function of a directive.
pub(super) fn find(name: &[u8]) -> Option<usize> {
    CHANGES.iter().position(|(other, _)| other.as_bytes() == name)
}

/// (name, text): the changed text; false where it cannot be, and nothing where there is no such function.
fn change(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let Some(at) = find(call.text(1)?) else { return Ok(Returns::Values(0)) };
    match CHANGES[at].1(call.text(2)?) {
        Some(changed) => call.stack.push(&changed[..]),
        None => call.stack.push(false),
    }
    Ok(Returns::Values(1))
}

const BASE32: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Five bits a digit, filled up to groups of eight.
fn to_base32(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len().div_ceil(5) * 8);
    for group in text.chunks(5) {
        let mut word = [0; 8];
        word[3..3 + group.len()].copy_from_slice(group);
        let word = u64::from_be_bytes(word);
        let digits = (group.len() * 8).div_ceil(5);
        out.extend((0..digits).map(|at| BASE32[(word >> (35 - 5 * at)) as usize & 31]));
        out.extend(std::iter::repeat_n(b'=', 8 - digits));
    }
    out
}

fn from_base32(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 8 * 5 + 5);
    let (mut word, mut bits) = (0_u32, 0);
    for digit in text.split(|&byte| byte == b'=').next()? {
        let value = BASE32.iter().position(|other| *other == digit.to_ascii_lowercase())?;
        word = word << 5 | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8);
        }
    }
    Some(out)
}

fn to_hex(text: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use crate::api::testing::Lua;

    #[test]
    fn directives_of_others_are_functions() {
        let mut lua = Lua::new();
        lua.says(
            "local v = ndk.set_var return v.set_encode_base32('abcde'), v.set_encode_base32('a'), \
             v.set_decode_base32('c5h66p35'), v.set_encode_hex('az'), v.set_decode_hex('617A'), \
             v.set_md5('a')",
            "c5h66p35 c4====== abcde 617a az 0cc175b9c0f1b6a831c399e269772661",
        );
        lua.raises(
            "ndk.set_var.set_decode_hex('zz')",
            "calling directive set_decode_hex failed with code -1",
        );
    }
}
