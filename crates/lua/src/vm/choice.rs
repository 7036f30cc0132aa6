//! Which of a loop's VMs a request runs in, and when another one is built. Plain data; asked by its task.
//!
//! 1. A loop has one VM of its own, whose number is the loop's, and reserves, whose numbers are those
//!    behind the loops': what is shared out by `id % count`, or done by worker 0, is not done twice.
//! 2. What belongs to one VM (coroutines, `ngx.ctx`, closures of timers) stays in it for life, so a request
//!    that has entered one is never asked about again.
//! 3. A request runs in the loop's own VM if that is free, or if it is held by a poll of this loop, which
//!    will be over when the next one begins.
//! 4. If its location has blocked of late, or if the poll that holds the own VM is away from its loop (it
//!    is stuck), the request runs in a reserve: the one with the fewest that wait, of equal ones the first.
//!    So what blocks is kept out of the own VM from its first time on.
//! 5. Without a reserve it waits for the own VM; if a reserve is being built, for whichever comes first.
//! 6. `auto`: a reserve is built when one is wanted for the first time, and kept; one at most. A number: as
//!    many are built with the configuration. A VM that is poisoned counts as none, and another one is built
//!    for it.

use std::num::NonZeroU32;

/// `lua_reserve_vms`: reserves of each loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserves {
    /// One, when it is wanted.
    #[default]
    Auto,
    /// None, ever.
    None,
    /// So many, from the beginning.
    Fixed(NonZeroU32),
}

impl Reserves {
    /// How many a loop has when its configuration begins.
    #[must_use]
    pub fn at_start(self) -> u32 {
        match self {
            Self::Auto | Self::None => 0,
            Self::Fixed(count) => count.get(),
        }
    }

    fn most(self) -> u32 {
        match self {
            Self::Auto => 1,
            Self::None => 0,
            Self::Fixed(count) => count.get(),
        }
    }
}

/// The token of the loop's own VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Nobody holds it.
    Free,
    /// A poll holds it that has its loop.
    Held,
    /// A poll holds it whose loop has been given away.
    Stuck,
    /// A function of the server has panicked in it, and another one is not there yet.
    Poisoned,
}

/// What is known of the request's location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has not blocked of late.
    Good,
    /// It has.
    Suspect,
}

/// One reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// It is built, and `init_by_lua` and `init_worker_by_lua` have run in it.
    Ready {
        /// Requests that wait for it or are in it.
        waiting: u32,
    },
    /// It will be.
    Building,
    /// It is not to be used again.
    Poisoned,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To the loop's own VM.
    Own,
    /// To this one of the reserves.
    Reserve(usize),
    /// To the own VM or to a reserve that is being built, whichever comes first.
    First,
}

/// What a request does, and what it sets off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Where it goes.
    pub choice: Choice,
    /// Whether a reserve is to be built.
    pub build: Build,
}

/// Whether a reserve is to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// There are as many as there may be, or none is wanted.
    Nothing,
    /// One more, in place of this one if it says which.
    One {
        /// A poisoned one.
        instead_of: Option<usize>,
    },
}

/// Rules 3 to 6.
#[must_use]
pub fn choose(policy: Reserves, own: Own, standing: Standing, reserves: &[Reserve]) -> Decision {
    let is_own_good = matches!(own, Own::Free | Own::Held) && standing == Standing::Good;
    if is_own_good {
        return Decision { choice: Choice::Own, build: Build::Nothing };
    }
    let ready = reserves.iter().enumerate().filter_map(|(index, reserve)| match reserve {
        Reserve::Ready { waiting } => Some((*waiting, index)),
        Reserve::Building | Reserve::Poisoned => None,
    });
    let best = ready.min().map(|(_, index)| index);
    let is_building = reserves.contains(&Reserve::Building);
    let poisoned = reserves.iter().position(|reserve| *reserve == Reserve::Poisoned);
    let build = if is_building {
        // One at a time: what it takes, others want to use the processor for.
        Build::Nothing
    } else if poisoned.is_some() && policy != Reserves::None {
        Build::One { instead_of: poisoned }
    } else if reserves.len() < policy.most() as usize {
        Build::One { instead_of: None }
    } else {
        Build::Nothing
    };
    let choice = match best {
        Some(index) => Choice::Reserve(index),
        None if is_building || build != Build::Nothing => Choice::First,
        None => Choice::Own,
    };
    Decision { choice, build }
}

/// What `ngx.worker.id()` says in a VM of this loop: rule 1. `reserve` is its index, or `None` for the own
/// one.
#[must_use]
pub fn worker_id(loops: u32, of_loop: u32, reserve: Option<u32>) -> u32 {
    match reserve {
        None => of_loop,
        Some(index) => loops + index * loops + of_loop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Build = Build::Nothing;
    const ONE: Build = Build::One { instead_of: None };

    fn ready(waiting: u32) -> Reserve {
        Reserve::Ready { waiting }
    }

    #[test]
    fn each_situation_has_its_vm() {
        use Own::{Free, Held, Poisoned, Stuck};
        use Standing::{Good, Suspect};
        let two = Reserves::Fixed(NonZeroU32::new(2).unwrap());
        type Case<'a> = (Reserves, Own, Standing, &'a [Reserve], Choice, Build);
        let cases: &[Case<'_>] = &[
            (Reserves::Auto, Free, Good, &[], Choice::Own, NONE),
            (Reserves::Auto, Held, Good, &[ready(0)], Choice::Own, NONE),
            // The first time that something is stuck.
            (Reserves::Auto, Stuck, Good, &[], Choice::First, ONE),
            (Reserves::Auto, Stuck, Good, &[Reserve::Building], Choice::First, NONE),
            (Reserves::Auto, Stuck, Good, &[ready(3)], Choice::Reserve(0), NONE),
            // What has blocked stays out of the own VM, though that is free.
            (Reserves::Auto, Free, Suspect, &[ready(7)], Choice::Reserve(0), NONE),
            (Reserves::Auto, Free, Suspect, &[], Choice::First, ONE),
            // The fewest that wait; the first of equal ones.
            (two, Stuck, Good, &[ready(2), ready(1)], Choice::Reserve(1), NONE),
            (two, Stuck, Suspect, &[ready(1), ready(1)], Choice::Reserve(0), NONE),
            (
                two,
                Stuck,
                Good,
                &[Reserve::Poisoned, ready(9)],
                Choice::Reserve(1),
                Build::One { instead_of: Some(0) },
            ),
            (two, Poisoned, Good, &[ready(0)], Choice::Reserve(0), ONE),
            (Reserves::None, Stuck, Suspect, &[], Choice::Own, NONE),
            (Reserves::None, Poisoned, Good, &[], Choice::Own, NONE),
        ];
        for (policy, own, standing, reserves, choice, build) in cases {
            let decision = choose(*policy, *own, *standing, reserves);
            let expected = Decision { choice: *choice, build: *build };
            assert_eq!(decision, expected, "{policy:?} {own:?} {standing:?} {reserves:?}");
        }
    }

    #[test]
    fn nothing_waits_for_what_never_comes() {
        let states = [ready(0), ready(5), Reserve::Building, Reserve::Poisoned];
        let policies = [Reserves::Auto, Reserves::None, Reserves::Fixed(NonZeroU32::MIN)];
        let owns = [Own::Free, Own::Held, Own::Stuck, Own::Poisoned];
        for policy in policies {
            for own in owns {
                for standing in [Standing::Good, Standing::Suspect] {
                    for state in states {
                        for reserves in [&[][..], &[state], &[state, ready(1)]] {
                            let decision = choose(policy, own, standing, reserves);
                            match decision.choice {
                                Choice::Reserve(index) => {
                                    assert!(matches!(reserves[index], Reserve::Ready { .. }));
                                }
                                Choice::First => assert!(
                                    decision.build != Build::Nothing || reserves.contains(&Reserve::Building)
                                ),
                                Choice::Own => {}
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_are_each_ones_own() {
        let mut seen = Vec::new();
        for of_loop in 0..3 {
            seen.extend([None, Some(0), Some(1)].map(|reserve| worker_id(3, of_loop, reserve)));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
    }
}
