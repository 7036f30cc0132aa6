//! Which of a loop's VMs a request runs in, and when another one is built. Plain data; asked by its task.
//!
//! 1. A loop has one VM of its own, with the loop's number, and reserves, with numbers behind those: what is
//!    shared out by `id % count`, or done by worker 0, is not done twice.
//! 2. What belongs to one VM (coroutines, `ngx.ctx`, timers) stays in it for life, so a request that has
//!    entered one is not asked about again. Until then it may change: the poll before it may never end.
//! 3. A request runs in the own VM unless a poll holds that which is away from its loop (it is stuck).
//! 4. If its location has blocked of late it runs in a reserve: the one with the fewest that wait.
//! 5. Where the own VM is stuck others run in a reserve without such locations, or else wait for the own one;
//!    once that is gone (stuck for more than a second) for any reserve.
//! 6. `auto`: a reserve is built when one is wanted for the first time, and kept; a second one where the
//!    first one is gone as well, or has what blocks. A number: as many are built with the configuration. A VM
//!    that is poisoned counts as none, and another one is built for it.

use std::num::NonZeroU32;

/// `lua_reserve_vms`: reserves of each loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserves {
    /// Up to [`AUTO_MAX`], when they are wanted.
    #[default]
    Auto,
    /// None, ever.
    None,
    /// So many, from the beginning.
    Fixed(NonZeroU32),
}

/// Reserves of a loop where nothing is said of them: one for what blocks, one for what does not.
pub const AUTO_MAX: u32 = 2;

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
            Self::Auto => AUTO_MAX,
            Self::None => 0,
            Self::Fixed(count) => count.get(),
        }
    }
}

/// The token of the loop's own VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Nobody holds it, or a poll that has its loop, and will be over when the next one begins.
    Good,
    /// A poll holds it whose loop has been given away.
    Stuck,
    /// So it was for a second and more.
    Gone,
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
        /// Those of them whose location has blocked of late.
        suspects: u32,
    },
    /// One poll has been in it for a second and more.
    Gone {
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
    /// To nothing yet: one is being made.
    Later,
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
    if own == Own::Good && standing == Standing::Good {
        return Decision { choice: Choice::Own, build: Build::Nothing };
    }
    let fit = best(reserves, |reserve| match reserve {
        Reserve::Ready { waiting, suspects } if *suspects == 0 || standing == Standing::Suspect => {
            Some(*waiting)
        }
        _ => None,
    });
    let is_building = reserves.contains(&Reserve::Building);
    let poisoned = reserves.iter().position(|reserve| *reserve == Reserve::Poisoned);
    let build = if is_building {
        // One at a time: what it takes, others want to use the processor for.
        Build::Nothing
    } else if poisoned.is_some() && policy != Reserves::None {
        Build::One { instead_of: poisoned }
    } else if fit.is_none() && reserves.len() < policy.most() as usize {
        Build::One { instead_of: None }
    } else {
        Build::Nothing
    };
    let is_coming = is_building || build != Build::Nothing;
    let any = || {
        best(reserves, |reserve| match reserve {
            Reserve::Ready { waiting, .. } => Some((0, *waiting)),
            Reserve::Gone { waiting } => Some((1, *waiting)),
            Reserve::Building | Reserve::Poisoned => None,
        })
    };
    let choice = match (fit, own, standing) {
        (Some(index), ..) => Choice::Reserve(index),
        // What has blocked stays out of it, unless there is nothing else, or will not be for long.
        (None, Own::Good, Standing::Suspect) if is_coming => Choice::Own,
        (None, Own::Stuck, Standing::Good) => Choice::Own,
        _ => match any() {
            Some(index) => Choice::Reserve(index),
            None if own != Own::Poisoned || !is_coming => Choice::Own,
            None => Choice::Later,
        },
    };
    Decision { choice, build }
}

/// The index of the reserve with the lowest rank, the first of equal ones.
fn best<R: Ord>(reserves: &[Reserve], rank: impl Fn(&Reserve) -> Option<R>) -> Option<usize> {
    let ranked = reserves.iter().enumerate().filter_map(|(index, reserve)| Some((rank(reserve)?, index)));
    ranked.min().map(|(_, index)| index)
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
        Reserve::Ready { waiting, suspects: 0 }
    }

    /// One with what has blocked.
    fn bad(waiting: u32) -> Reserve {
        Reserve::Ready { waiting, suspects: waiting }
    }

    #[test]
    fn each_situation_has_its_vm() {
        use Own::{Gone, Poisoned, Stuck};
        use Standing::{Good, Suspect};
        let two = Reserves::Fixed(NonZeroU32::new(2).unwrap());
        let own = Own::Good;
        let lost = Reserve::Gone { waiting: 1 };
        type Case<'a> = (Reserves, Own, Standing, &'a [Reserve], Choice, Build);
        let cases: &[Case<'_>] = &[
            (Reserves::Auto, own, Good, &[], Choice::Own, NONE),
            (Reserves::Auto, own, Good, &[ready(0)], Choice::Own, NONE),
            // The first time that something is stuck.
            (Reserves::Auto, Stuck, Good, &[], Choice::Own, ONE),
            (Reserves::Auto, Stuck, Good, &[Reserve::Building], Choice::Own, NONE),
            (Reserves::Auto, Stuck, Good, &[ready(3)], Choice::Reserve(0), NONE),
            // Not behind what has blocked, as long as there is hope.
            (Reserves::Auto, Stuck, Good, &[bad(3)], Choice::Own, ONE),
            (Reserves::Auto, Stuck, Good, &[bad(3), ready(5)], Choice::Reserve(1), NONE),
            (Reserves::Auto, Gone, Good, &[bad(3), bad(2)], Choice::Reserve(1), NONE),
            (Reserves::Auto, Gone, Good, &[lost, bad(2)], Choice::Reserve(1), NONE),
            // What has blocked stays out of the own VM, though that is free.
            (Reserves::Auto, own, Suspect, &[ready(7)], Choice::Reserve(0), NONE),
            (Reserves::Auto, own, Suspect, &[bad(7)], Choice::Reserve(0), NONE),
            (Reserves::Auto, own, Suspect, &[], Choice::Own, ONE),
            (Reserves::Auto, own, Suspect, &[lost], Choice::Own, ONE),
            (Reserves::Auto, own, Suspect, &[lost, lost], Choice::Reserve(0), NONE),
            (Reserves::Auto, Stuck, Suspect, &[lost, Reserve::Building], Choice::Reserve(0), NONE),
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
            (two, Poisoned, Good, &[ready(0)], Choice::Reserve(0), NONE),
            (two, Poisoned, Good, &[bad(1), Reserve::Building], Choice::Reserve(0), NONE),
            (Reserves::Auto, Poisoned, Good, &[], Choice::Later, ONE),
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
        let states = [ready(0), bad(5), Reserve::Gone { waiting: 1 }, Reserve::Building, Reserve::Poisoned];
        let policies = [Reserves::Auto, Reserves::None, Reserves::Fixed(NonZeroU32::MIN)];
        let owns = [Own::Good, Own::Stuck, Own::Gone, Own::Poisoned];
        for policy in policies {
            for own in owns {
                for standing in [Standing::Good, Standing::Suspect] {
                    for state in states {
                        for reserves in [&[][..], &[state], &[state, ready(1)]] {
                            let decision = choose(policy, own, standing, reserves);
                            match decision.choice {
                                Choice::Reserve(index) => assert!(matches!(
                                    reserves[index],
                                    Reserve::Ready { .. } | Reserve::Gone { .. }
                                )),
                                Choice::Later => assert!(
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
