//! The crates that make no system calls under Miri, the interpreter that finds undefined behaviour: their own
//! code has no `unsafe`, that of what they are built on (buffers, small vectors) has.

use crate::run::{Outcome, Step, target_dir};

/// Those without sockets, threads and files. What their tests want of the machine (clocks, files of their own
/// sources) is skipped.
const PACKAGES: [&str; 3] = ["clearway-message", "clearway-h1", "clearway-conf"];

const MISSING: &str = "needs Miri: rustup toolchain install nightly && \
                       rustup component add miri rust-src --toolchain nightly";

pub(crate) fn command(args: &[String]) -> Outcome {
    if !is_installed() {
        return Err(MISSING.to_owned());
    }
    let packages: Vec<&str> = match args {
        [] => PACKAGES.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    packages.iter().try_for_each(|package| run(&format!("test --package {package} --lib")).run())
}

pub(crate) fn is_installed() -> bool {
    run("--version").output().is_ok()
}

fn run(line: &str) -> Step {
    Step::new(&format!("rustup run nightly cargo miri {line}"))
        .env("CARGO_TARGET_DIR", &target_dir().join("miri").to_string_lossy())
        // Strict about where pointers come from; proptest looks for the directory of its failures.
        .env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-disable-isolation")
        .env("PROPTEST_CASES", "4")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
}
