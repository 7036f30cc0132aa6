//! Shrinks a simulated program that fails to fewer actions with which it still fails.

use crate::program::Program;

/// The most runs of one shrinking: a short program soon is worth more than the shortest one.
const RUNS_MAX: usize = 400;

/// A program with fewer actions for which `fails` is still true. Halves of the actions are left out first,
/// then quarters, and so on down to single actions (delta debugging, Zeller 1999).
pub fn shrink(program: &Program, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let mut smallest = program.clone();
    let mut piece = smallest.actions.len().div_ceil(2);
    let mut runs = 0;
    while piece > 0 {
        let mut at = 0;
        while at < smallest.actions.len() && runs < RUNS_MAX {
            let mut fewer = smallest.clone();
            fewer.actions.drain(at..(at + piece).min(fewer.actions.len()));
            runs += 1;
            match fails(&fewer) {
                true => smallest = fewer,
                false => at += piece,
            }
        }
        piece /= 2;
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Action, Step};

    #[test]
    fn what_does_not_matter_is_left_out() {
        let program = Program::of(3);
        let needed = |program: &Program| {
            program.actions.iter().filter(|action| matches!(action.step, Step::Wait(_))).count() >= 2
        };
        assert!(needed(&program), "otherwise another seed: {} actions", program.actions.len());
        let smallest = shrink(&program, needed);
        assert_eq!(smallest.actions.len(), 2);
        assert!(smallest.actions.iter().all(|Action { step, .. }| matches!(step, Step::Wait(_))));
    }
}
