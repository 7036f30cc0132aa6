//! `never-old`: the scenario of the test kit at full size.

use clearway_testkit::Binary;
use clearway_testkit::place::Mount;
use clearway_testkit::proofs::NeverOld;

use crate::args::Args;

/// `never-old --rounds 1000`.
pub(crate) fn never_old(mut args: Args) -> Result<(), String> {
    let rounds = args.take("rounds", 1000)?;
    args.finish()?;
    let mut old = 0;
    for mount in [Mount::Nothing, Mount::Tmpfs, Mount::Overlay] {
        match (NeverOld { rounds, mount }).play(&Binary::under_test()) {
            Some(report) => {
                println!("{mount:?}: {report}");
                old += report.old;
            }
            None => println!("{mount:?}: may not be mounted here"),
        }
    }
    if old == 0 { Ok(()) } else { Err(format!("{old} answers were old")) }
}
