//! Values of one VM, copied for another one that runs elsewhere: as bytes, which belong to neither.
//!
//! A value is a tag and what that says: nothing, the eight bytes of a number or an address, or the length
//! of a text and its bytes. A table is two hints, for the room of its list and of its other fields, then keys
//! and values in turn up to [`END`].

use std::fmt;

use clearway_luajit::{Address, Stack, Value};

/// Tables within each other, the value itself included: what goes on for longer is taken for a circle.
pub(crate) const DEPTH_MAX: usize = 100;

/// The most bytes that are copied at a time.
pub(crate) const BYTES_MAX: usize = 1 << 30;

const NIL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const NUMBER: u8 = 3;
const TEXT: u8 = 4;
const ADDRESS: u8 = 5;
const TABLE: u8 = 6;
/// Behind the last value of a table.
const END: u8 = 7;

/// Why a value is not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its type, as upstream names it; `None`: one without such a name.
    Type(Option<&'static str>),
    TooDeep,
    TooLarge,
    /// The value was a table and has changed meanwhile.
    Changed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(Some(name)) => write!(f, "unsupported Lua type: {name}"),
            Self::Type(None) => f.write_str("unsupported Lua type"),
            Self::TooDeep => {
                write!(f, "suspicious circular references, table depth exceed max depth: {DEPTH_MAX}")
            }
            Self::TooLarge => write!(f, "more than {BYTES_MAX} bytes"),
            Self::Changed => f.write_str("invalid key of a table"),
        }
    }
}

/// Adds the value in a slot.
///
/// # Errors
/// It is none that can be copied.
pub(crate) fn write(stack: &mut Stack<'_>, at: i32, out: &mut Vec<u8>) -> Result<(), Refused> {
    let (height, begin) = (stack.len(), out.len());
    write_at(stack, at, out, 1)?;
    debug_assert_eq!(stack.len(), height, "a copy leaves the stack as it was");
    debug_assert!(out.len() > begin, "a value has a tag at least");
    Ok(())
}

fn write_at(stack: &mut Stack<'_>, at: i32, out: &mut Vec<u8>, depth: usize) -> Result<(), Refused> {
    match stack.get(at) {
        // In a table there is none.
        Value::Nil => out.push(NIL),
        Value::Boolean(false) => out.push(FALSE),
        Value::Boolean(true) => out.push(TRUE),
        Value::Number(number) => put(out, NUMBER, &number.to_le_bytes()),
        Value::Text(text) => {
            let len = u32::try_from(text.len()).map_err(|_| Refused::TooLarge)?;
            put(out, TEXT, &len.to_le_bytes());
            out.extend_from_slice(text);
        }
        Value::Address(address) => put(out, ADDRESS, &(address as u64).to_le_bytes()),
        Value::Table if depth >= DEPTH_MAX => return Err(Refused::TooDeep),
        Value::Table => write_table(stack, at, out, depth)?,
        Value::Function => return Err(Refused::Type(Some("LUA_TFUNCTION"))),
        Value::UserData => return Err(Refused::Type(Some("LUA_TUSERDATA"))),
        Value::Thread => return Err(Refused::Type(Some("LUA_TTHREAD"))),
        Value::CData => return Err(Refused::Type(None)),
    }
    if out.len() > BYTES_MAX { Err(Refused::TooLarge) } else { Ok(()) }
}

fn put(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

fn write_table(stack: &mut Stack<'_>, at: i32, out: &mut Vec<u8>, depth: usize) -> Result<(), Refused> {
    debug_assert!(depth < DEPTH_MAX, "tables lie within each other as deep as is allowed");
    let (len, height) = (stack.raw_len(at) as u32, stack.len());
    put(out, TABLE, &len.to_le_bytes());
    let hint = out.len();
    out.extend_from_slice(&0_u32.to_le_bytes());
    // Numbered from below, as what stands above it changes.
    let table = if at < 0 { stack.len() + 1 + at } else { at };
    let mut count = 0_u32;
    stack.push(());
    while stack.next(table).map_err(|_| Refused::Changed)? {
        write_at(stack, -2, out, depth + 1)?;
        write_at(stack, -1, out, depth + 1)?;
        stack.pop(1);
        count += 1;
    }
    debug_assert_eq!(stack.len(), height, "the last key goes with the end of the table");
    debug_assert_eq!(out.get(hint - 5), Some(&TABLE), "the hint stands behind the tag and the length");
    out[hint..hint + 4].copy_from_slice(&count.saturating_sub(len).to_le_bytes());
    out.push(END);
    Ok(())
}

/// Pushes the values; how many those are. What is no such copy ends early.
pub(crate) fn read(stack: &mut Stack<'_>, bytes: &[u8]) -> i32 {
    let mut source = CopiedBytes(bytes);
    let mut count = 0;
    while source.push_next(stack) == Some(Pushed::Value) {
        count += 1;
    }
    count
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pushed {
    Value,
    /// The table is over.
    End,
}

struct CopiedBytes<'a>(&'a [u8]);

impl CopiedBytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn push_next(&mut self, stack: &mut Stack<'_>) -> Option<Pushed> {
        let [tag] = self.take()?;
        match tag {
            NIL => stack.push(()),
            FALSE => stack.push(false),
            TRUE => stack.push(true),
            NUMBER => stack.push(f64::from_le_bytes(self.take()?)),
            TEXT => {
                let len = u32::from_le_bytes(self.take()?) as usize;
                let (text, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                stack.push(text);
            }
            ADDRESS => stack.push(Address(u64::from_le_bytes(self.take()?) as usize)),
            TABLE => self.push_table(stack)?,
            _ => return Some(Pushed::End),
        }
        Some(Pushed::Value)
    }

    fn push_table(&mut self, stack: &mut Stack<'_>) -> Option<()> {
        let items = u32::from_le_bytes(self.take()?) as usize;
        let fields = u32::from_le_bytes(self.take()?) as usize;
        stack.push_table(items, fields);
        let table = stack.len();
        while self.push_next(stack)? == Pushed::Value {
            debug_assert_eq!(stack.len(), table + 1, "a key stands above its table");
            if self.push_next(stack)? == Pushed::End {
                stack.pop(1);
                break;
            }
            debug_assert_eq!(stack.len(), table + 2, "a value stands above its key");
            stack.raw_set(table);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use clearway_luajit::Vm;

    use super::*;

    /// The values that the code returns, in another VM; or the reason why they cannot be copied.
    fn copied(code: &str, told: &str) -> Result<String, String> {
        let (mut from, mut to) = (Vm::new(None).unwrap(), Vm::new(None).unwrap());
        let code = from.load(code.as_bytes(), c"=from").unwrap();
        let mut stack = from.enter();
        stack.push(&code);
        let count = stack.call(0, None).unwrap();
        let mut bytes = Vec::new();
        for at in 1..=count {
            write(&mut stack, at, &mut bytes).map_err(|refused| refused.to_string())?;
        }
        assert_eq!(stack.len(), count, "nothing is left behind");
        let code = to.load(format!("return function(...) {told} end").as_bytes(), c"=to").unwrap();
        let mut stack = to.enter();
        stack.push(&code);
        stack.call(0, Some(1)).unwrap();
        assert_eq!(read(&mut stack, &bytes), count);
        stack.call(count, Some(1)).unwrap();
        Ok(String::from_utf8_lossy(stack.text(-1).unwrap_or(b"?")).into_owned())
    }

    #[test]
    fn values_are_the_same_on_the_other_side() {
        let told = "local a, b, c, d, e, f = ... return table.concat({ select('#', ...), tostring(a), \
                    tostring(b), c, #d, tostring(e), tostring(f) }, ' ')";
        let text = copied("return nil, true, 1.5, 'a\\0b', false, nil", told);
        assert_eq!(text.as_deref(), Ok("6 nil true 1.5 3 false nil"));
        let told =
            "local t = ... return table.concat(t, ',') .. t.x.y[true] .. t[1.5] .. tostring(t.z == nil)";
        let text = copied("return { 1, 2, 3, x = { y = { [true] = 'deep' } }, [1.5] = 'half' }", told);
        assert_eq!(text.as_deref(), Ok("1,2,3deephalftrue"));
    }

    #[test]
    fn what_belongs_to_its_vm_is_refused() {
        for (code, why) in [
            ("return print", "unsupported Lua type: LUA_TFUNCTION"),
            ("return { a = { function() end } }", "unsupported Lua type: LUA_TFUNCTION"),
            ("return { [print] = 1 }", "unsupported Lua type: LUA_TFUNCTION"),
            ("return io.stdout", "unsupported Lua type: LUA_TUSERDATA"),
            ("return coroutine.create(print)", "unsupported Lua type: LUA_TTHREAD"),
            ("return 1LL", "unsupported Lua type"),
            (
                "local t = {} t.a = { t } return t",
                "suspicious circular references, table depth exceed max depth: 100",
            ),
        ] {
            let wrapped = format!("local ok, e = true {code}");
            assert_eq!(copied(&wrapped, "return 'copied'"), Err(why.to_owned()), "{code}");
        }
    }

    #[test]
    fn tables_are_copied_to_their_depth() {
        let nested = |depth: usize| format!("local t = {{}} for i = 2, {depth} do t = {{ t }} end return t");
        assert_eq!(copied(&nested(99), "return 'copied'").as_deref(), Ok("copied"));
        assert!(copied(&nested(100), "return 'copied'").is_err());
    }
}
