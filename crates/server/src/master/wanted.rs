//! The orders that signals have given a master, until they are done.

/// Something that a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Want {
    Terminate,
    Quit,
    Reconfigure,
    Reopen,
    ChangeBinary,
    /// Signal WINCH.
    StopAccepting,
    /// A child has ended.
    Reap,
}

/// A set of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted(u8);

impl Wanted {
    pub(super) fn add(&mut self, want: Want) {
        self.0 |= bit(want);
    }

    pub(super) fn has(self, want: Want) -> bool {
        self.0 & bit(want) != 0
    }

    /// Whether it was asked for; it is not any more.
    pub(super) fn take(&mut self, want: Want) -> bool {
        let had = self.has(want);
        self.0 &= !bit(want);
        had
    }

    /// Whether the server is to end.
    pub(super) fn ends(self) -> bool {
        self.has(Want::Terminate) || self.has(Want::Quit)
    }

    /// Whether something waits to be done that is not done already: once the server ends, `Terminate` and
    /// `Quit` stay as they are.
    pub(super) fn is_any(self) -> bool {
        self.0 & !(bit(Want::Terminate) | bit(Want::Quit)) != 0
    }
}

fn bit(want: Want) -> u8 {
    1 << want as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_gone_and_an_end_stays() {
        let mut wanted = Wanted::default();
        [Want::Reap, Want::Quit].into_iter().for_each(|want| wanted.add(want));
        assert!(wanted.is_any() && wanted.ends() && wanted.has(Want::Reap) && !wanted.has(Want::Terminate));
        assert!(wanted.take(Want::Reap) && !wanted.take(Want::Reap));
        assert!(!wanted.is_any() && wanted.ends());
    }
}
