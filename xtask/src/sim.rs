//! `sim`: simulated runs of many seeds, or of one that has failed again (`crates/sim`).

use crate::run::{Outcome, Step};

const SEEDS: u64 = 10_000;
const USAGE: &str = "usage: cargo xtask sim [SEEDS | seed N]";

/// With optimisation, and with all assertions.
const TESTS: &str = "test --package clearway-sim --test sim --profile simulated -- programs --nocapture";

pub(crate) fn command(args: &[String]) -> Outcome {
    let number = |text: &str| text.parse::<u64>().map_err(|_| USAGE.to_owned());
    let (name, value) = match args {
        [] => ("CLEARWAY_SIM_SEEDS", SEEDS),
        [seeds] => ("CLEARWAY_SIM_SEEDS", number(seeds)?),
        [word, seed] if word == "seed" => ("CLEARWAY_SIM_SEED", number(seed)?),
        _ => return Err(USAGE.to_owned()),
    };
    Step::cargo(TESTS).env(name, &value.to_string()).run()
}
