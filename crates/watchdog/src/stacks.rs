//! Stacks as addresses, and what Lua is at, merged as they come: so many of each. Bounded, whatever the
//! length of a stall.

use clearway_luajit::walk::{self, Activity, LuaStack};

/// Different stacks that are kept; further ones are counted only.
const STACKS_MAX: usize = 256;

/// One stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Addresses, the innermost first.
    pub(crate) native: Vec<usize>,
    /// Functions of Lua, the innermost first; none where Lua does not run.
    pub(crate) lua: Vec<walk::Frame>,
    pub(crate) activity: Activity,
}

impl Sample {
    pub(crate) fn new(native: &[usize], lua: &LuaStack) -> Self {
        Self { native: native.to_vec(), lua: lua.frames().to_vec(), activity: lua.activity }
    }

    fn is(&self, native: &[usize], lua: &LuaStack) -> bool {
        self.native == native && self.lua == lua.frames() && self.activity == lua.activity
    }
}

/// Samples of stacks; equal ones are merged.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    stacks: Vec<(Sample, u64)>,
    /// All samples.
    pub(crate) samples: u64,
}

impl Stacks {
    /// Adds one, the innermost address first.
    pub(crate) fn add(&mut self, native: &[usize], lua: &LuaStack) {
        if native.is_empty() {
            return;
        }
        self.samples += 1;
        if let Some((_, count)) = self.stacks.iter_mut().find(|(known, _)| known.is(native, lua)) {
            *count += 1;
        } else if self.stacks.len() < STACKS_MAX {
            self.stacks.push((Sample::new(native, lua), 1));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Sample, u64)> {
        self.stacks.iter().map(|(sample, count)| (sample, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_stacks_are_one_and_all_are_bounded() {
        let mut stacks = Stacks::default();
        let none = LuaStack::default();
        stacks.add(&[], &none);
        stacks.add(&[1, 2], &none);
        stacks.add(&[1, 2], &none);
        for i in 0..1000 {
            stacks.add(&[i, 7], &none);
        }
        assert_eq!((stacks.samples, stacks.iter().count()), (1002, STACKS_MAX));
        assert_eq!(
            stacks.iter().next().map(|(sample, count)| (&sample.native[..], count)),
            Some((&[1, 2][..], 2))
        );
    }
}
