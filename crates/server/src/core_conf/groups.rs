//! `worker_groups`: how the loops of `worker_processes` are shared out to worker processes, and the process
//! beside them.

use clearway_conf::{Directive, Error};

/// Most groups: a shared zone has places for 64 processes, and while a reload replaces all of them there
/// are two of each.
pub(super) const GROUPS_MAX: u64 = 32;

/// What a process that a master has started is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The loops of a group.
    Group(usize),
    /// The privileged agent (`ngx.process`): one loop, which runs code with the rights of the master and
    /// listens on nothing.
    Agent {
        /// Connections that it may have.
        connections: u32,
    },
}

/// The value of the directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Groups {
    Number(usize),
    /// As many as there are loops.
    Auto,
}

impl Groups {
    pub(super) fn read(d: &Directive) -> Result<Self, Error> {
        if d.value(0)? == "auto" {
            return Ok(Self::Auto);
        }
        let number = d.number_within(0, 1, Some(GROUPS_MAX))?;
        Ok(Self::Number(usize::try_from(number).unwrap_or(1)))
    }
}
