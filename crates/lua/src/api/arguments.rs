//! Arguments as OpenResty's functions take them.

use clearway_luajit::{Call, Raise, Value};

/// An argument as `tostring` makes it a text; `nil` and `false` are the empty one.
///
/// # Errors
/// What its `__tostring` raised.
pub fn text_of<'c>(call: &'c mut Call<'_>, at: i32) -> Result<&'c [u8], Raise> {
    while call.stack.len() < at {
        call.stack.push(());
    }
    match call.stack.get(at) {
        Value::Text(_) => {}
        Value::Nil | Value::Boolean(false) => {
            call.stack.push("");
            call.stack.replace(at);
        }
        _ => make_text(call, at)?,
    }
    Ok(text_at(call, at))
}

/// The text in a slot; empty if it is something else.
pub fn text_at<'c>(call: &'c Call<'_>, at: i32) -> &'c [u8] {
    match call.stack.get(at) {
        Value::Text(text) => text,
        _ => b"",
    }
}

/// Replaces what is in a slot by what `tostring` makes of it.
///
/// # Errors
/// What its `__tostring` raised.
pub fn make_text(call: &mut Call<'_>, at: i32) -> Result<(), Raise> {
    if let Err(fault) = call.stack.push_as_text(at) {
        return Err(raise_text(call, fault.text()));
    }
    call.stack.replace(at);
    Ok(())
}

/// An error with this text alone, without a place.
pub fn raise_text(call: &mut Call<'_>, text: &[u8]) -> Raise {
    call.stack.push(text);
    call.raise_value()
}
