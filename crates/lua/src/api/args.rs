//! Arguments of a URL as tables of Lua, both ways.

use clearway_luajit::{Call, Raise, Stack, Value};

/// `%41` and `+` as what they stand for.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        let digit = |at: usize| behind.get(at).and_then(|&byte| (byte as char).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            (b'+', ..) => {
                out.push(b' ');
                rest = behind;
            }
            _ => {
                out.push(byte);
                rest = behind;
            }
        }
    }
    debug_assert!(out.len() <= text.len(), "decoding makes nothing longer");
    out
}

/// Percent-encodes all but letters, digits and `-._~` (RFC 3986, 2.3).
pub(crate) fn escape(text: &[u8]) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    debug_assert!(out.len() >= text.len(), "encoding makes nothing shorter");
    out
}

/// A name of a header line: what cannot stand in one is percent-encoded.
pub(crate) fn escape_header_name(name: &[u8]) -> Vec<u8> {
    const SEPARATORS: &[u8] = b"\"(),/:;<=>?@[\\]{}";
    escape_bytes(name, |byte| byte <= b' ' || byte >= 0x7f || SEPARATORS.contains(&byte))
}

/// A value of a header line: control characters but tabs are percent-encoded.
pub(crate) fn escape_header_value(value: &[u8]) -> Vec<u8> {
    escape_bytes(value, |byte| byte < b' ' && byte != b'\t' || byte == 0x7f)
}

fn escape_bytes(text: &[u8], is_unsafe: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if is_unsafe(byte) {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
    debug_assert!(!out.iter().any(|&byte| is_unsafe(byte)), "nothing is left that could end a line");
    out
}

/// The first byte of a URI that cannot stand in one: a control character but a tab.
pub(crate) fn unsafe_byte(uri: &[u8]) -> Option<u8> {
    uri.iter().copied().find(|&byte| byte < b' ' && byte != b'\t' || byte == 0x7f)
}

/// A text as errors quote it.
pub(crate) fn quoted(text: &[u8]) -> String {
    let mut out = String::new();
    for &byte in text {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02X}")),
        }
    }
    debug_assert!(out.is_ascii() && out.len() >= text.len(), "each byte is shown");
    out
}

/// Whether all arguments are in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complete {
    Yes,
    Truncated,
}

/// Puts arguments into the table on top: those of one name as a list, those without a value as `true`; `max`
/// of them at most, 0 without limit.
pub(crate) fn decode(stack: &mut Stack<'_>, text: &[u8], max: usize) -> Complete {
    let height = stack.len();
    let complete = each(text, max, |name, value| {
        stack.push(name);
        match value {
            Some(value) => stack.push(value),
            None => stack.push(true),
        }
        add(stack);
    });
    debug_assert_eq!(stack.len(), height, "the table is on top again");
    complete
}

/// Calls `work` with the name and the value of each argument; `max` at most, 0 without limit.
pub(crate) fn each(text: &[u8], max: usize, mut work: impl FnMut(&[u8], Option<&[u8]>)) -> Complete {
    let mut count = 0;
    for pair in text.split(|&byte| byte == b'&') {
        let equals = pair.iter().position(|&byte| byte == b'=');
        let name = unescape(&pair[..equals.unwrap_or(pair.len())]);
        if max > 0 && count == max {
            return Complete::Truncated;
        }
        if pair.is_empty() {
            continue;
        }
        count += 1;
        debug_assert!(max == 0 || count <= max, "there are no more than may be");
        if !name.is_empty() {
            work(&name, equals.map(|at| unescape(&pair[at + 1..])).as_deref());
        }
    }
    Complete::Yes
}

/// Adds the value on top under the name below it to the table below that: a second one makes a list.
pub(crate) fn add(stack: &mut Stack<'_>) {
    let height = stack.len();
    debug_assert_eq!(stack.get(-3), Value::Table, "name and value stand above a table");
    stack.push_slot(-2);
    stack.raw_get(-4);
    match stack.get(-1) {
        Value::Nil => {
            stack.pop(1);
            stack.raw_set(-3);
        }
        Value::Table => {
            let next = stack.raw_len(-1) as i32 + 1;
            stack.push_slot(-2);
            stack.raw_set_item(-2, next);
            stack.pop(3);
        }
        _ => {
            // table name value old
            stack.push_table(4, 0);
            stack.push_slot(-2);
            stack.raw_set_item(-2, 1);
            stack.push_slot(-3);
            stack.raw_set_item(-2, 2);
            stack.replace(-3);
            stack.pop(1);
            stack.raw_set(-3);
        }
    }
    debug_assert_eq!(stack.len(), height - 2, "the table is on top again");
}

/// A table as arguments of a URL.
///
/// # Errors
/// What upstream says of values that cannot be written.
pub(crate) fn encode(call: &mut Call<'_>, table: i32) -> Result<Vec<u8>, Raise> {
    let mut out = Vec::new();
    call.stack.push(());
    while call.stack.next(table).unwrap_or(false) {
        let Value::Text(name) = call.stack.get(-2) else {
            return Err(call.raise("attempt to use a non-string key in the \"args\" option table"));
        };
        let name = escape(name);
        if call.stack.get(-1) == Value::Table {
            let list = call.stack.len();
            for index in 1..=call.stack.raw_len(list) as i32 {
                call.stack.raw_item(list, index);
                encode_value(call, &name, &mut out)?;
                call.stack.pop(1);
            }
        } else {
            encode_value(call, &name, &mut out)?;
        }
        call.stack.pop(1);
    }
    Ok(out)
}

/// Appends the value on top.
fn encode_value(call: &mut Call<'_>, name: &[u8], out: &mut Vec<u8>) -> Result<(), Raise> {
    let value = match call.stack.get(-1) {
        Value::Boolean(false) => return Ok(()),
        Value::Boolean(true) => None,
        Value::Text(text) => Some(escape(text)),
        Value::Number(_) => {
            call.stack.push_slot(-1);
            let text = call.stack.text(-1).unwrap_or_default().to_vec();
            call.stack.pop(1);
            Some(text)
        }
        other => {
            let text = format!("attempt to use {} as query arg value", other.type_name());
            return Err(call.raise(&*text));
        }
    };
    if !out.is_empty() {
        out.push(b'&');
    }
    out.extend_from_slice(name);
    if let Some(value) = value {
        out.push(b'=');
        out.extend_from_slice(&value);
    }
    Ok(())
}
