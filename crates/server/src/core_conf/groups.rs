//! `worker_groups`: how the loops of `worker_processes` are shared out to worker processes.

use std::ops::Range;

use clearway_base::log::Level;
use clearway_conf::{Directive, Error};

use super::{CoreConf, Reader};

/// Most groups: a shared zone has places for 64 processes, and while a reload replaces all of them there
/// are two of each.
const GROUPS_MAX: u64 = 32;

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

impl CoreConf {
    /// `worker_processes`: the event loops of all worker processes, where there are any.
    #[must_use]
    pub fn all_loops(&self) -> usize {
        usize::try_from(self.worker_processes.unwrap_or(1)).unwrap_or(1).max(1)
    }

    /// `worker_groups`: into how many processes they are shared out. Without a master there is one.
    #[must_use]
    pub fn groups(&self) -> usize {
        let wanted = match self.worker_groups {
            _ if !self.master_process() => 1,
            None => 1,
            Some(Groups::Number(number)) => number,
            Some(Groups::Auto) => GROUPS_MAX as usize,
        };
        wanted.min(self.all_loops())
    }

    /// The loops of a group, by their numbers among all loops.
    #[must_use]
    pub fn loops_of(&self, group: usize) -> Range<usize> {
        let (loops, groups) = (self.all_loops(), self.groups());
        group * loops / groups..(group + 1) * loops / groups
    }

    /// The loops of the process that reads this: those of its group, or all where it is no worker.
    #[must_use]
    pub fn share(&self) -> Range<usize> {
        match self.reader {
            Reader::Worker { group } => self.loops_of(group.min(self.groups() - 1)),
            Reader::Master => 0..self.all_loops(),
        }
    }

    /// How many those are.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.share().len()
    }

    pub(super) fn check_groups(&self, warnings: &mut Vec<Error>) -> Result<(), Error> {
        let Some(Groups::Number(groups)) = self.worker_groups.filter(|_| self.wants_worker()) else {
            return Ok(());
        };
        let loops = self.all_loops();
        if groups > loops {
            return Err(Error::unplaced(format!("{groups} worker_groups exceed {loops} worker_processes")));
        }
        if groups > 1 && !self.master_process() {
            let text = "\"worker_groups\" is ignored: \"master_process\" is off";
            warnings.push(Error::unplaced(text).with_level(Level::Warn));
        }
        Ok(())
    }
}
