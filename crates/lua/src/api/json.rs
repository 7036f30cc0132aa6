//! `cjson` and `cjson.safe`: values of Lua as JSON, and back, as lua-cjson has it (with what OpenResty's has
//! beside). Where the path has a module of that name, that one is found.

mod decode;

use clearway_luajit::{Call, Fault, Raise, Returns, Value};

use super::arguments::raise_text;
use super::room::{Install, put};

/// Tables within each other, whatever code asks for: each takes some of Lua's stack.
const DEPTH_MAX: usize = 2000;

/// The address that stands for an empty list; `ngx.null` is 0.
pub(super) const EMPTY_LIST: usize = 0x10b;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_json", |stack| {
        put(stack, "encode", encode);
        put(stack, "decode", decode::decode);
        stack.push(clearway_luajit::Address(EMPTY_LIST));
        stack.raw_set_field(-2, "empty_list");
    });
    install.run(include_str!("json/cjson.lua"), c"=cjson")
}

/// How deep tables may be within each other.
fn depth_of(call: &mut Call<'_>, argument: i32) -> Result<usize, Raise> {
    Ok((call.number(argument)? as usize).min(DEPTH_MAX))
}

/// How values are written.
struct Encoder {
    out: Vec<u8>,
    digits: usize,
    depth_max: usize,
    sparse: Sparse,
    invalid: Invalid,
    empty: Empty,
    slash: Slash,
}

/// Lists with gaps: one is too sparse whose last index is more than `ratio` times as large as it has items
/// (0: as large as it likes), and more than `safe`.
struct Sparse {
    ratio: f64,
    safe: f64,
    is_object: bool,
}

/// The way in which numbers are written that JSON does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    Object,
    List,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slash {
    Escaped,
    Plain,
}

/// (value, digits, depth, ratio, safe, sparse is object, invalid: 0 to 2, empty is object, slash is escaped)
fn encode(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let mut encoder = Encoder {
        out: Vec::new(),
        digits: call.number(2)? as usize,
        depth_max: depth_of(call, 3)?,
        sparse: Sparse { ratio: call.number(4)?, safe: call.number(5)?, is_object: call.stack.is_true(6) },
        invalid: match call.number(7)? as i32 {
            0 => Invalid::Refused,
            1 => Invalid::Written,
            _ => Invalid::Null,
        },
        empty: if call.stack.is_true(8) { Empty::Object } else { Empty::List },
        slash: if call.stack.is_true(9) { Slash::Escaped } else { Slash::Plain },
    };
    let height = call.stack.len();
    encoder.value(call, 1, 0)?;
    debug_assert_eq!(call.stack.len(), height, "a value is read and left alone");
    debug_assert!(!encoder.out.is_empty(), "a value has a text");
    call.stack.push(&encoder.out[..]);
    Ok(Returns::Values(1))
}

impl Encoder {
    fn value(&mut self, call: &mut Call<'_>, slot: i32, depth: usize) -> Result<(), Raise> {
        match call.stack.get(slot) {
            Value::Nil | Value::Address(0) => self.out.extend_from_slice(b"null"),
            Value::Address(EMPTY_LIST) => self.out.extend_from_slice(b"[]"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Text(text) => append_text(&mut self.out, text, self.slash),
            Value::Number(number) => return self.number(call, number),
            Value::Table => return self.table(call, slot, depth + 1),
            other => {
                let text = format!("Cannot serialise {}: type not supported", other.type_name());
                return Err(raise_text(call, text.as_bytes()));
            }
        }
        Ok(())
    }

    fn number(&mut self, call: &mut Call<'_>, number: f64) -> Result<(), Raise> {
        if number.is_finite() {
            append_number(&mut self.out, number, self.digits);
            return Ok(());
        }
        match self.invalid {
            Invalid::Refused => {
                return Err(raise_text(call, b"Cannot serialise number: must not be NaN or Infinity"));
            }
            Invalid::Null => self.out.extend_from_slice(b"null"),
            Invalid::Written if number.is_nan() => self.out.extend_from_slice(b"NaN"),
            Invalid::Written if number < 0.0 => self.out.extend_from_slice(b"-Infinity"),
            Invalid::Written => self.out.extend_from_slice(b"Infinity"),
        }
        Ok(())
    }

    fn table(&mut self, call: &mut Call<'_>, slot: i32, depth: usize) -> Result<(), Raise> {
        if depth > self.depth_max {
            let text = format!("Cannot serialise, excessive depth ({depth})");
            return Err(raise_text(call, text.as_bytes()));
        }
        call.stack.reserve(8);
        if call.stack.push_metafield(slot, "__clearway_list") {
            call.stack.pop(1);
            let len = call.stack.raw_len(slot);
            return self.list(call, slot, (len, depth));
        }
        let is_list_if_empty = call.stack.push_metafield(slot, "__clearway_empty_list");
        if is_list_if_empty {
            call.stack.pop(1);
        }
        match self.length(call, slot)? {
            Some(0) if is_list_if_empty || self.empty == Empty::List => self.out.extend_from_slice(b"[]"),
            None | Some(0) => self.object(call, slot, depth)?,
            Some(len) => self.list(call, slot, (len, depth))?,
        }
        Ok(())
    }

    /// The length of a list; nothing of a table that is none.
    fn length(&self, call: &mut Call<'_>, slot: i32) -> Result<Option<usize>, Raise> {
        let (mut last, mut items) = (0.0_f64, 0_u32);
        call.stack.push(());
        while next(call, slot)? {
            let is_index = match call.stack.get(-2) {
                Value::Number(number) if number >= 1.0 && number.fract() == 0.0 => {
                    last = last.max(number);
                    items += 1;
                    true
                }
                _ => false,
            };
            call.stack.pop(1);
            if !is_index {
                call.stack.pop(1);
                return Ok(None);
            }
        }
        debug_assert!(f64::from(items) <= last, "indices are counted once each");
        let Sparse { ratio, safe, is_object } = self.sparse;
        if ratio > 0.0 && last > f64::from(items) * ratio && last > safe {
            if !is_object {
                return Err(raise_text(call, b"Cannot serialise table: excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(last as usize))
    }

    fn list(&mut self, call: &mut Call<'_>, slot: i32, (len, depth): (usize, usize)) -> Result<(), Raise> {
        self.out.push(b'[');
        for index in 1..=len {
            if index > 1 {
                self.out.push(b',');
            }
            call.stack.raw_item(slot, index as i32);
            let item = call.stack.len();
            self.value(call, item, depth)?;
            debug_assert_eq!(call.stack.len(), item, "the item is on top again");
            call.stack.pop(1);
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, call: &mut Call<'_>, slot: i32, depth: usize) -> Result<(), Raise> {
        self.out.push(b'{');
        let begin = self.out.len();
        call.stack.push(());
        while next(call, slot)? {
            if self.out.len() > begin {
                self.out.push(b',');
            }
            match call.stack.get(-2) {
                Value::Text(key) => append_text(&mut self.out, key, self.slash),
                Value::Number(key) => {
                    self.out.push(b'"');
                    self.number(call, key)?;
                    self.out.push(b'"');
                }
                _ => {
                    let text = b"Cannot serialise table: table key must be a number or string";
                    return Err(raise_text(call, text));
                }
            }
            self.out.push(b':');
            let value = call.stack.len();
            self.value(call, value, depth)?;
            debug_assert_eq!(call.stack.len(), value, "the value is on top again");
            call.stack.pop(1);
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// Replaces the key on top by the next one and its value; where there is none the key goes.
fn next(call: &mut Call<'_>, slot: i32) -> Result<bool, Raise> {
    match call.stack.next(slot) {
        Ok(is_there) => Ok(is_there),
        Err(fault) => Err(raise_text(call, fault.text())),
    }
}

fn append_text(out: &mut Vec<u8>, text: &[u8], slash: Slash) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in text {
        let short = match byte {
            b'"' | b'\\' => byte,
            b'/' if slash == Slash::Escaped => byte,
            8 => b'b',
            9 => b't',
            10 => b'n',
            12 => b'f',
            13 => b'r',
            0..32 | 127 => {
                out.extend_from_slice(b"\\u00");
                out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
                continue;
            }
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend([b'\\', short]);
    }
    out.push(b'"');
}

/// As C's `%.*g` writes it.
fn append_number(out: &mut Vec<u8>, number: f64, digits: usize) {
    debug_assert!(number.is_finite(), "numbers that JSON does not have are written elsewhere");
    let digits = digits.clamp(1, 17);
    if number.fract() == 0.0 && number.abs() < 1e9 && digits >= 9 {
        let sign = if number == 0.0 && number.is_sign_negative() { "-" } else { "" };
        out.extend_from_slice(format!("{sign}{}", number as i64).as_bytes());
        return;
    }
    let text = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let text = if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    } else {
        trim(&format!("{number:.*}", (digits as i32 - 1 - exponent) as usize))
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::append_number;
    use crate::api::testing::Lua;

    #[test]
    fn numbers_are_written_as_c_does() {
        let text = |number, digits| {
            let mut out = Vec::new();
            append_number(&mut out, number, digits);
            String::from_utf8(out).expect("digits")
        };
        let cases: [(f64, usize, &str); 13] = [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (12.0, 14, "12"),
            (-3.5, 14, "-3.5"),
            (0.1, 14, "0.1"),
            (0.1, 17, "0.10000000000000001"),
            (1e15, 14, "1e+15"),
            (123456789012345.0, 14, "1.2345678901234e+14"),
            (1e-5, 14, "1e-05"),
            (0.00012345, 3, "0.000123"),
            (1234.5, 3, "1.23e+03"),
            (9007199254740993.0, 16, "9007199254740992"),
            (1e300, 14, "1e+300"),
        ];
        for (number, digits, expected) in cases {
            assert_eq!(text(number, digits), expected);
        }
    }

    #[test]
    fn values_are_written_and_read() {
        let mut lua = Lua::new();
        let mut says = |code: &str, expected: &str| {
            lua.says(&format!("local cjson = require 'cjson' {code}"), expected);
        };
        says("return cjson.encode({ 1, 2.5, 'a', true, cjson.null, {} })", r#"[1,2.5,"a",true,null,{}]"#);
        says(
            "return cjson.encode({ [3] = 'c' }), cjson.encode({ a = { b = { 1 } } })",
            concat!(r#"[null,null,"c"]"#, r#" {"a":{"b":[1]}}"#),
        );
        says(r#"return cjson.encode('a/"\\\n\1\127é')"#, r#""a\/\"\\\n\u0001\u007fé""#);
        says("return cjson.encode({ [1.5] = 1 }), cjson.encode(cjson.empty_array)", r#"{"1.5":1} []"#);
        says(
            "return cjson.encode(setmetatable({}, cjson.array_mt)), \
             cjson.encode(setmetatable({}, cjson.empty_array_mt)), \
             cjson.encode(setmetatable({ a = 1 }, cjson.empty_array_mt))",
            r#"[] [] {"a":1}"#,
        );
        says(
            r#"local t = cjson.decode(
                   [[ { "a" : [ 1 , -2.5e1, "x\u00e4\ud83d\ude00\/" , null, true ], "b": {} } ]])
               return t.a[1], t.a[2], t.a[3], t.a[4] == cjson.null, t.a[5], next(t.b)"#,
            "1 -25 xä😀/ true true nil",
        );
        says("return cjson.decode('[1,[2,[3]]]')[2][2][1], cjson.decode('7'), cjson.decode('\"\"')", "3 7 ");
        says(
            "local other = cjson.new() other.encode_escape_forward_slash(false) \
             other.encode_number_precision(3) \
             return other.encode('/'), other.encode(1.23456), cjson.encode('/'), \
                 cjson.encode_number_precision()",
            r#""/" 1.23 "\/" 14"#,
        );
        says(
            "local t = cjson.new() t.decode_array_with_array_mt(true) \
             return t.encode(t.decode('[]')), cjson.encode(cjson.decode('[]'))",
            "[] {}",
        );
    }

    #[test]
    fn what_cannot_be_is_refused_in_cjsons_words() {
        let mut lua = Lua::new();
        let mut refuses = |code: &str, expected: &str| {
            let code =
                format!("local ok, err = pcall(function() {code} end) return tostring(ok) .. ' ' .. err");
            lua.says(&format!("local cjson = require 'cjson' {code}"), &format!("false {expected}"));
        };
        for (code, expected) in [
            ("cjson.encode(print)", "Cannot serialise function: type not supported"),
            ("cjson.encode(0/0)", "Cannot serialise number: must not be NaN or Infinity"),
            ("cjson.encode({ [1000] = 1 })", "Cannot serialise table: excessively sparse array"),
            ("cjson.encode({ [true] = 1 })", "Cannot serialise table: table key must be a number or string"),
            ("local t = {} t[1] = t cjson.encode(t)", "Cannot serialise, excessive depth (1001)"),
            ("cjson.decode('{')", "Expected object key string but found T_END at character 2"),
            ("cjson.decode('[1 2]')", "Expected comma or array end but found T_NUMBER at character 4"),
            ("cjson.decode('{\"a\" 1}')", "Expected colon but found T_NUMBER at character 6"),
            ("cjson.decode('{\"a\":1 1}')", "Expected comma or object end but found T_NUMBER at character 8"),
            ("cjson.decode('[1] x')", "Expected the end but found invalid token at character 5"),
            ("cjson.decode('\"a')", "Expected value but found unexpected end of string at character 3"),
            ("cjson.decode('\"\\\\x\"')", "Expected value but found invalid escape code at character 2"),
            ("cjson.decode('')", "Expected value but found T_END at character 1"),
            (
                "cjson.decode(('['):rep(1001))",
                "Found too many nested data structures (1001) at character 1001",
            ),
        ] {
            refuses(code, expected);
        }
        lua.says(
            "local safe = require 'cjson.safe' local t, err = safe.decode('x') \
             return t, err, (safe.encode(print)), safe.encode({ 1 })",
            "nil Expected value but found invalid token at character 1 nil [1]",
        );
    }
}
