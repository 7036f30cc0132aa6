//! What slots of a stack hold, as the server sees it.

/// The value in a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string: any bytes.
    Text(&'a [u8]),
    /// An address without a type (`ngx.null` is one).
    Address(usize),
    /// A table.
    Table,
    /// A function, of Lua or of C.
    Function,
    /// An object of C's.
    UserData,
    /// A coroutine.
    Thread,
    /// A C value of the FFI.
    CData,
}

impl Value<'_> {
    /// The result of `type()` in Lua.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "nil",
            Value::Boolean(_) => "boolean",
            Value::Number(_) => "number",
            Value::Text(_) => "string",
            Value::Address(_) | Value::UserData => "userdata",
            Value::Table => "table",
            Value::Function => "function",
            Value::Thread => "thread",
            Value::CData => "cdata",
        }
    }
}

/// A function of Lua's that has called something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The chunk that it is written in, as errors name it.
    pub chunk: Vec<u8>,
    /// The line that is executed; negative where none is known.
    pub line: i32,
    /// The name by which it was called, if that is known.
    pub function: Option<Vec<u8>>,
}

/// An address without a type, which nothing is read through: `ngx.null` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub usize);

/// A number in a room of its own, whose address compiled code can give to C; it belongs to Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boxed(pub usize);
