//! Why Lua did not go on.

use std::ffi::c_int;
use std::fmt;

use crate::ffi;
use crate::host::Halt;

/// The kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Text that is no Lua.
    Syntax,
    /// An error that was raised and not caught.
    Runtime,
    /// The VM's memory has its limit.
    Memory,
    /// The code has run for too long.
    TimeLimit,
    /// One of the server's functions has panicked: the VM is not to be used again.
    Poisoned,
}

/// An error of Lua's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: FaultKind,
    text: Vec<u8>,
    traceback: Vec<u8>,
}

impl Fault {
    pub(crate) fn new(status: c_int, halt: Option<Halt>, text: Vec<u8>) -> Self {
        let kind = match (halt, status) {
            (Some(Halt::TimeLimit), _) => FaultKind::TimeLimit,
            (Some(Halt::Poisoned), _) => FaultKind::Poisoned,
            (None | Some(Halt::Slice), ffi::ERROR_SYNTAX) => FaultKind::Syntax,
            (None | Some(Halt::Slice), ffi::ERROR_MEMORY) => FaultKind::Memory,
            (None | Some(Halt::Slice), _) => FaultKind::Runtime,
        };
        Self { kind, text, traceback: Vec::new() }
    }

    /// An error that the server has found, and not Lua.
    #[must_use]
    pub fn of(kind: FaultKind, text: &str) -> Self {
        Self { kind, text: text.into(), traceback: Vec::new() }
    }

    /// The same error with another traceback.
    #[must_use]
    pub fn with_traceback(mut self, traceback: Vec<u8>) -> Self {
        self.traceback = traceback;
        self
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The text of the error: `chunk:line: message`, as a rule.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Where it was raised, as `debug.traceback` writes it; empty where there is nothing to tell.
    #[must_use]
    pub fn traceback(&self) -> &[u8] {
        &self.traceback
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.text))
    }
}

impl std::error::Error for Fault {}
