//! `record`: has an nginx answer what the tests ask, and writes it to `tests/recorded`, where the tests find
//! what to compare with.

use std::path::Path;

use crate::run::{Outcome, Step, root};
use crate::test::comparisons_at_a_time;

/// Where the answers are kept, from the root.
const RECORDINGS: &str = "tests/recorded";

/// The test programs that compare, and which of their tests do (all, if there is nothing).
const COMPARING: [(&str, &str); 3] = [("differential", ""), ("files", "edges::"), ("process", "messages::")];

pub(crate) fn command(tests: &[String]) -> Outcome {
    let nginx = std::env::var("NGINX_BIN").unwrap_or_default();
    if !Path::new(&nginx).is_file() {
        return Err("NGINX_BIN names the nginx to record: NGINX_BIN=/path/to/nginx cargo xtask record".into());
    }
    // Some tests beside those that record look at the server itself.
    Step::cargo("build --package clearway --features testing").run()?;
    let recordings = root().join(RECORDINGS);
    if tests.is_empty() && recordings.is_dir() {
        // What nobody asks any more goes.
        std::fs::remove_dir_all(&recordings).map_err(|e| format!("{RECORDINGS}: {e}"))?;
    }
    let mut failed = Vec::new();
    for (program, all) in COMPARING {
        let threads = comparisons_at_a_time();
        let step =
            format!("test --quiet --package clearway-tests --test {program} -- --test-threads={threads}");
        let mut step = Step::cargo(&step).env("CLEARWAY_ORACLE", "record");
        match tests {
            [] if all.is_empty() => {}
            [] => step = step.arg(all),
            tests => step = tests.iter().fold(step, |step, test| step.arg(test)),
        }
        failed.extend(step.run().err());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
