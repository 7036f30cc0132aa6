//! Which of a loop's VMs a request runs in, and when another one is built. Plain data; asked by its task.
//!
//! 1. A loop has one VM of its own, with the loop's number, and reserves, with numbers behind those: what is
//!    shared out by `id % count`, or done by worker 0, is not done twice.
//! 2. A request that has entered one stays in it; until then it may change: the poll before it may not end.
//! 3. A request runs in the own VM unless a poll holds that away from its loop for longer than polls take
//!    (stuck). Where that has just been found out (held), it waits there.
//! 4. One whose location blocks for long again and again (it blocks) runs in a reserve with others of its
//!    kind. A clean reserve, one without such, is taken where none has them, or where another remains.
//! 5. Where the own VM is stuck, or the location has blocked again since that was found out (accused), others
//!    run in a clean reserve, or else in the own VM; once that is gone (stuck for over a second) in any.
//! 6. `auto`: a reserve is built when one is wanted, and more where none is clean or blocking ones wait. A
//!    number: as many are built with the configuration. For a VM that is poisoned another one is built.
//! 7. So a location that blocks has the own VM twice and a clean one once. A slow first run (it compiles and
//!    requires) is no such thing: the next one finds in the same VM the values that modules keep.

use std::num::NonZeroU32;

/// `lua_reserve_vms`: reserves of each loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserves {
    /// Up to [`AUTO_MAX`], when they are wanted.
    #[default]
    Auto,
    /// None, ever.
    None,
    /// A fixed number of reserves, made at the beginning.
    Fixed(NonZeroU32),
}

/// Reserves of a loop where nothing is said of them: two for what blocks, one for what does not.
pub const AUTO_MAX: u32 = 3;

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
    /// A poll holds it whose loop has been given away, just now.
    Held,
    /// A poll holds it whose loop was given away longer ago than polls take.
    Stuck,
    /// A poll holds it whose loop was given away a second ago or earlier.
    Gone,
    /// A function of the server has panicked in it, and another one is not there yet.
    Poisoned,
}

/// The record of the request's location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The location has not blocked lately, or only once.
    Good,
    /// The location has blocked again since that was found out.
    Accused,
    /// The location has been blocking for long.
    Blocks,
}

/// One reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The VM is built, and `init_by_lua` and `init_worker_by_lua` have run in it.
    Ready {
        /// Requests that wait for it or are in it.
        waiting: u32,
        /// Whether locations that block have none of them.
        is_clean: bool,
        /// Whether one poll has been in it for longer than polls are.
        is_held: bool,
    },
    /// A poll has been in the VM for a second or more.
    Gone {
        /// Requests that wait for it or are in it.
        waiting: u32,
    },
    /// The VM is being built.
    Building,
    /// The VM must not be used again.
    Poisoned,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The request goes to the loop's own VM.
    Own,
    /// The request goes to this reserve.
    Reserve(usize),
    /// The request goes to no VM yet: one is being made.
    Later,
}

/// The choice for a request, and the builds that it sets off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The VM that is chosen.
    pub choice: Choice,
    /// Whether a reserve is to be built.
    pub build: Build,
}

/// Whether a reserve is to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// There are as many as there may be, or none is wanted.
    Nothing,
    /// One more reserve, in place of this one if there is a number.
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
    let place = match standing {
        Standing::Good | Standing::Accused => clean_place(reserves),
        Standing::Blocks => place_of_blocking(reserves),
    };
    let is_enough = place.is_some_and(|(waiting, _)| standing != Standing::Blocks || waiting == 0);
    let build = match is_enough {
        true => repair(policy, reserves),
        false => build(policy, reserves),
    };
    let is_coming = reserves.contains(&Reserve::Building) || build != Build::Nothing;
    let choice = match (place, own, standing) {
        (_, Own::Held, Standing::Good) => Choice::Own,
        (Some((_, index)), ..) => Choice::Reserve(index),
        (None, Own::Good | Own::Held | Own::Stuck, Standing::Good | Standing::Accused) => Choice::Own,
        // There is no reserve at all. It stays out of the own VM.
        (None, _, Standing::Blocks) if is_coming => Choice::Later,
        _ => match any_place(reserves) {
            Some((_, index)) => Choice::Reserve(index),
            None if own != Own::Poisoned || !is_coming => Choice::Own,
            None => Choice::Later,
        },
    };
    debug_assert!(choice != Choice::Later || is_coming, "nothing waits for what never comes");
    debug_assert!(
        match choice {
            Choice::Reserve(index) => matches!(reserves[index], Reserve::Ready { .. } | Reserve::Gone { .. }),
            Choice::Own | Choice::Later => true,
        },
        "a reserve that is chosen can be entered"
    );
    debug_assert!(build == Build::Nothing || policy != Reserves::None, "no reserves, ever");
    Decision { choice, build }
}

/// Whether to build a replacement when there are as many reserves as are wanted (rule 6). One at a time, as
/// building uses the processor that others need.
fn repair(policy: Reserves, reserves: &[Reserve]) -> Build {
    let poisoned = reserves.iter().position(|reserve| *reserve == Reserve::Poisoned);
    if poisoned.is_none() || policy == Reserves::None || reserves.contains(&Reserve::Building) {
        return Build::Nothing;
    }
    Build::One { instead_of: poisoned }
}

/// Whether to build one more reserve (rule 6).
fn build(policy: Reserves, reserves: &[Reserve]) -> Build {
    match repair(policy, reserves) {
        Build::Nothing
            if !reserves.contains(&Reserve::Building) && reserves.len() < policy.most() as usize =>
        {
            Build::One { instead_of: None }
        }
        build => build,
    }
}

/// Rule 5: how many wait there, and its index.
fn clean_place(reserves: &[Reserve]) -> Option<(u32, usize)> {
    best(reserves, |reserve| match reserve {
        Reserve::Ready { waiting, is_clean: true, is_held: false } => Some(*waiting),
        _ => None,
    })
}

/// The reserve for code that blocks (rule 4).
fn place_of_blocking(reserves: &[Reserve]) -> Option<(u32, usize)> {
    let is_theirs =
        |reserve: &Reserve| matches!(reserve, Reserve::Ready { is_clean: false, .. } | Reserve::Gone { .. });
    let is_clean = |reserve: &&Reserve| matches!(reserve, Reserve::Ready { is_clean: true, .. });
    let may_take = !reserves.iter().any(is_theirs) || reserves.iter().filter(is_clean).count() > 1;
    let found = best(reserves, |reserve| match reserve {
        Reserve::Ready { is_clean: true, .. } if !may_take => None,
        Reserve::Ready { waiting, is_clean, .. } => Some((false, *waiting, *is_clean)),
        Reserve::Gone { waiting } => Some((true, *waiting, false)),
        Reserve::Building | Reserve::Poisoned => None,
    });
    found.map(|((_, waiting, _), index)| (waiting, index))
}

/// Any that can be entered some time.
fn any_place(reserves: &[Reserve]) -> Option<((bool, u32), usize)> {
    best(reserves, |reserve| match reserve {
        Reserve::Ready { waiting, .. } => Some((false, *waiting)),
        Reserve::Gone { waiting } => Some((true, *waiting)),
        Reserve::Building | Reserve::Poisoned => None,
    })
}

/// The lowest rank and the index of its reserve, the first of equal ones.
fn best<R: Ord>(reserves: &[Reserve], rank: impl Fn(&Reserve) -> Option<R>) -> Option<(R, usize)> {
    reserves.iter().enumerate().filter_map(|(index, reserve)| Some((rank(reserve)?, index))).min()
}

/// The result of `ngx.worker.id()` in a VM of this loop: rule 1. `reserve` is its index, or `None` for the
/// own one.
#[must_use]
pub fn worker_id(loops: u32, of_loop: u32, reserve: Option<u32>) -> u32 {
    debug_assert!(of_loop < loops, "a loop is one of all");
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
        Reserve::Ready { waiting, is_clean: true, is_held: false }
    }

    /// A reserve that is used by locations that block.
    fn bad(waiting: u32) -> Reserve {
        Reserve::Ready { waiting, is_clean: false, is_held: true }
    }

    #[test]
    fn each_situation_has_its_vm() {
        use Own::{Gone, Held, Poisoned, Stuck};
        use Standing::{Accused, Blocks, Good};
        let two = Reserves::Fixed(NonZeroU32::new(2).unwrap());
        let own = Own::Good;
        let (lost, held) =
            (Reserve::Gone { waiting: 1 }, Reserve::Ready { waiting: 1, is_clean: true, is_held: true });
        type Case<'a> = (Reserves, Own, Standing, &'a [Reserve], Choice, Build);
        let cases: &[Case<'_>] = &[
            (Reserves::Auto, own, Good, &[], Choice::Own, NONE),
            (Reserves::Auto, own, Good, &[ready(0)], Choice::Own, NONE),
            // It waits there: that may be over soon.
            (Reserves::Auto, Held, Good, &[], Choice::Own, ONE),
            (Reserves::Auto, Held, Good, &[ready(0)], Choice::Own, NONE),
            (Reserves::Auto, Held, Accused, &[ready(0)], Choice::Reserve(0), NONE),
            (Reserves::Auto, Held, Accused, &[], Choice::Own, ONE),
            (Reserves::Auto, Held, Blocks, &[bad(0)], Choice::Reserve(0), NONE),
            // The first time that something is stuck.
            (Reserves::Auto, Stuck, Good, &[], Choice::Own, ONE),
            (Reserves::Auto, Stuck, Good, &[Reserve::Building], Choice::Own, NONE),
            (Reserves::Auto, Stuck, Good, &[ready(3)], Choice::Reserve(0), NONE),
            // The request does not queue behind code that blocks, as long as another VM may become free.
            (Reserves::Auto, Stuck, Good, &[bad(3)], Choice::Own, ONE),
            (Reserves::Auto, Stuck, Good, &[held], Choice::Own, ONE),
            (Reserves::Auto, Stuck, Good, &[bad(3), ready(5)], Choice::Reserve(1), NONE),
            (Reserves::Auto, Gone, Good, &[bad(3), bad(2), bad(2)], Choice::Reserve(1), NONE),
            (Reserves::Auto, Gone, Good, &[lost, bad(2), lost], Choice::Reserve(1), NONE),
            // What may have been unlucky is not behind it either.
            (Reserves::Auto, own, Accused, &[], Choice::Own, ONE),
            (Reserves::Auto, own, Accused, &[bad(0)], Choice::Own, ONE),
            (Reserves::Auto, own, Accused, &[bad(0), ready(9)], Choice::Reserve(1), NONE),
            (Reserves::Auto, Stuck, Accused, &[bad(0), held, bad(0)], Choice::Own, NONE),
            // What blocks stays out of the own VM, though that is free, and of the last one that is clean.
            (Reserves::Auto, own, Blocks, &[ready(0)], Choice::Reserve(0), NONE),
            (Reserves::Auto, own, Blocks, &[bad(7)], Choice::Reserve(0), ONE),
            (Reserves::Auto, own, Blocks, &[bad(7), ready(0)], Choice::Reserve(0), ONE),
            (Reserves::Auto, own, Blocks, &[bad(7), ready(0), ready(0)], Choice::Reserve(1), NONE),
            (Reserves::Auto, own, Blocks, &[bad(0), ready(0), ready(0)], Choice::Reserve(0), NONE),
            (Reserves::Auto, own, Blocks, &[bad(7), bad(6), ready(0)], Choice::Reserve(1), NONE),
            (Reserves::Auto, own, Blocks, &[], Choice::Later, ONE),
            (Reserves::Auto, own, Blocks, &[lost], Choice::Reserve(0), ONE),
            (Reserves::Auto, Stuck, Blocks, &[lost, Reserve::Building], Choice::Reserve(0), NONE),
            (Reserves::Auto, own, Blocks, &[Reserve::Building], Choice::Later, NONE),
            // The fewest that wait; the first of equal ones.
            (two, Stuck, Good, &[ready(2), ready(1)], Choice::Reserve(1), NONE),
            (two, Stuck, Blocks, &[ready(1), ready(1)], Choice::Reserve(0), NONE),
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
            (Reserves::None, Stuck, Blocks, &[], Choice::Own, NONE),
            (Reserves::None, own, Blocks, &[], Choice::Own, NONE),
            (Reserves::None, Poisoned, Good, &[], Choice::Own, NONE),
        ];
        for (policy, own, standing, reserves, choice, build) in cases {
            let decision = choose(*policy, *own, *standing, reserves);
            let expected = Decision { choice: *choice, build: *build };
            assert_eq!(decision, expected, "{policy:?} {own:?} {standing:?} {reserves:?}");
        }
    }

    /// Rule 7, for all that two locations that block may do one after the other.
    #[test]
    fn one_clean_reserve_remains() {
        for queues in 0..64_u32 {
            let mut reserves = vec![ready(0), ready(0), ready(0)];
            for turn in 0..6 {
                let decision = choose(Reserves::Auto, Own::Good, Standing::Blocks, &reserves);
                let Choice::Reserve(index) = decision.choice else { panic!("there is one") };
                let Reserve::Ready { waiting, .. } = reserves[index] else { panic!("all are ready") };
                // It ends before the next one comes, or does not.
                reserves[index] = bad(waiting + (queues >> turn & 1));
            }
            assert!(reserves.contains(&ready(0)), "{queues:b}: {reserves:?}");
        }
    }

    #[test]
    fn nothing_waits_for_what_never_comes() {
        let states = [ready(0), bad(5), Reserve::Gone { waiting: 1 }, Reserve::Building, Reserve::Poisoned];
        let policies = [Reserves::Auto, Reserves::None, Reserves::Fixed(NonZeroU32::MIN)];
        let owns = [Own::Good, Own::Held, Own::Stuck, Own::Gone, Own::Poisoned];
        for policy in policies {
            for own in owns {
                for standing in [Standing::Good, Standing::Accused, Standing::Blocks] {
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
