//! `day`: a site with everything in it on a bad day.

use std::time::Duration;

use clearway_testkit::Binary;
use clearway_testkit::proofs::Day;

use crate::args::Args;

/// How long a cheap request may take outside the seconds of a kill, p99.
const CHEAP_MAX: Duration = Duration::from_millis(10);

/// `day --secs 3600 --visitors 8 --seed 23`.
pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let day = Day {
        length: Duration::from_secs(args.take("secs", 3600)?),
        visitors: args.take("visitors", 8)?,
        seed: args.take("seed", 23)?,
    };
    args.finish()?;
    println!("{:?} on its bad day", Binary::under_test());
    let report = day.play();
    println!("{report}");
    let broken: Vec<&str> = [
        (report.wrong == 0, "bytes were wrong"),
        (report.failed.is_empty(), "requests failed for nothing"),
        (report.alerts.is_empty(), "there are alerts"),
        (report.cheap_quantile(0.99) <= CHEAP_MAX, "cheap requests were held up"),
    ]
    .into_iter()
    .filter_map(|(holds, what)| (!holds).then_some(what))
    .collect();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}
