//! The instructions of a level. Made at load, frozen with the configuration.

use clearway_http::regex::Regex;
use clearway_http::{LocationId, Script, Target, Value, VariableId};

/// Instructions in the order in which they are executed.
#[derive(Default)]
pub(super) struct Code(Vec<Op>);

impl Code {
    pub(super) fn push(&mut self, op: Op) {
        self.0.push(op);
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether code is run that may take its time.
    pub(super) fn has_scripts(&self) -> bool {
        self.0.iter().any(|op| matches!(op, Op::Script(_)))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn op(&self, at: usize) -> Option<&Op> {
        self.0.get(at)
    }
}

/// One instruction.
pub(super) enum Op {
    Rewrite(Box<Rewrite>),
    Return(Box<Return>),
    Set(Set),
    If(Box<If>),
    Break,
    Script(Assign),
}

/// `rewrite`
pub(super) struct Rewrite {
    pub(super) regex: Regex,
    /// The new path, or the target of a redirect.
    pub(super) path: Value,
    /// New arguments of a path.
    pub(super) args: Option<Value>,
    /// Whether the replacement has a `?`.
    pub(super) has_query: bool,
    /// Whether the arguments of the request are added.
    pub(super) keeps_args: bool,
    pub(super) turn: Turn,
}

/// The step after a `rewrite` that matched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The next instruction.
    Next,
    /// A search for the location.
    Last,
    /// Nothing: the request stays.
    Break,
    /// An answer with this code.
    Redirect(u16),
}

/// `return`
pub(super) struct Return {
    pub(super) code: u16,
    /// Text or URL.
    pub(super) text: Option<Value>,
}

/// `set`
pub(super) struct Set {
    pub(super) target: Target,
    pub(super) value: Value,
}

/// A variable that code computes.
pub(super) struct Assign {
    pub(super) target: Target,
    pub(super) script: Box<dyn Script>,
}

/// `if`
pub(super) struct If {
    pub(super) condition: Condition,
    /// The location of the request from then on.
    pub(super) location: Option<LocationId>,
    /// Number of instructions that follow for the case that the condition holds.
    pub(super) body_len: usize,
}

/// The condition of an `if`.
pub(super) enum Condition {
    True(VariableId),
    Equal(VariableId, Value, Wanted),
    Match(VariableId, Box<Regex>, Wanted),
    File(Value, FileTest),
}

/// Whether something is to be so, or not so (`!`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Yes,
    No,
}

impl Wanted {
    /// The required value of the fact.
    pub(super) fn fact(self) -> bool {
        self == Self::Yes
    }
}

/// A question about a file.
#[derive(Clone, Copy)]
pub(super) struct FileTest {
    pub(super) property: Property,
    pub(super) wanted: Wanted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Property {
    /// `-f`
    Regular,
    /// `-d`
    Directory,
    /// `-e`: one of both; as in nginx, not a device or the like.
    Exists,
    /// `-x`: by its owner.
    Executable,
}
