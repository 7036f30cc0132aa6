//! Stacks as addresses, merged as they come: so many of each. Bounded, whatever the length of a stall.

/// Different stacks that are kept; further ones are counted only.
const STACKS_MAX: usize = 256;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    stacks: Vec<(Vec<usize>, u64)>,
    /// All samples.
    pub(crate) samples: u64,
}

impl Stacks {
    /// Adds one, the innermost address first.
    pub(crate) fn add(&mut self, frames: &[usize]) {
        if frames.is_empty() {
            return;
        }
        self.samples += 1;
        if let Some((_, count)) = self.stacks.iter_mut().find(|(known, _)| known == frames) {
            *count += 1;
        } else if self.stacks.len() < STACKS_MAX {
            self.stacks.push((frames.to_vec(), 1));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[usize], u64)> {
        self.stacks.iter().map(|(frames, count)| (&**frames, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_stacks_are_one_and_all_are_bounded() {
        let mut stacks = Stacks::default();
        stacks.add(&[]);
        stacks.add(&[1, 2]);
        stacks.add(&[1, 2]);
        for i in 0..1000 {
            stacks.add(&[i, 7]);
        }
        assert_eq!((stacks.samples, stacks.iter().count()), (1002, STACKS_MAX));
        assert_eq!(stacks.iter().next(), Some((&[1, 2][..], 2)));
    }
}
