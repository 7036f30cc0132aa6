//! Tests under AddressSanitizer: Rust's part of a program is watched byte by byte, and of a C library what it
//! takes and gives back, copies and compares.

use crate::run::{Outcome, Step, target_dir};

/// Where the sanitizer can be had without a build of the standard library.
pub(crate) const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The crate in which sessions of a C library read and write lent memory.
const PACKAGE: &str = "clearway-tls";

pub(crate) fn command(args: &[String]) -> Outcome {
    let packages: Vec<&str> = match args {
        [] => vec![PACKAGE],
        names => names.iter().map(String::as_str).collect(),
    };
    packages.iter().try_for_each(|package| tests(&format!("test --package {package} --lib --tests")))
}

/// Runs tests that a line of cargo's says. What lives as long as the program is no leak.
pub(crate) fn tests(line: &str) -> Outcome {
    let (cargo, tests) = line.split_once(" -- ").unwrap_or((line, ""));
    Step::new(&format!("rustup run nightly cargo {cargo} --target={TRIPLE} -- {tests}"))
        .env("CARGO_TARGET_DIR", &target_dir().join("asan").to_string_lossy())
        .env("RUSTFLAGS", "-Zsanitizer=address -Cforce-frame-pointers=yes")
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .run()
}
