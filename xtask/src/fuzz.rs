//! Fuzzing without further tools: builds `fuzz/` on nightly with the coverage instrumentation that
//! libFuzzer wants and lets each target run for a while, from the committed corpus. New inputs that reach
//! new code are left in `fuzz/corpus`; crashes go to `fuzz/artifacts`.

use std::path::Path;

use crate::run::{Outcome, Step, root};

const DEFAULT_SECONDS: u32 = 20;
const USAGE: &str = "usage: cargo xtask fuzz [SECONDS [PREFIX...]]";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const INSTRUMENT: &str = "--cfg fuzzing -Zsanitizer=address -Cdebug-assertions -Cforce-frame-pointers=yes \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

pub(crate) fn command(args: &[String]) -> Outcome {
    let (seconds, prefixes) = match args {
        [] => (DEFAULT_SECONDS, args),
        [n, prefixes @ ..] => (n.parse().map_err(|_| USAGE.to_owned())?, prefixes),
    };
    let fuzz = root().join("fuzz");
    let mut targets = targets(&fuzz.join("fuzz_targets"))?;
    let has = |prefix: &String| targets.iter().any(|target| target.starts_with(prefix));
    if let Some(unknown) = prefixes.iter().find(|prefix| !has(prefix)) {
        return Err(format!("no target in fuzz/fuzz_targets begins with {unknown}"));
    }
    targets.retain(|target| prefixes.is_empty() || prefixes.iter().any(|prefix| target.starts_with(prefix)));
    let bins: String = targets.iter().map(|target| format!(" --bin {target}")).collect();
    Step::new(&format!("rustup run nightly cargo build --release --manifest-path fuzz/Cargo.toml{bins}"))
        .arg(&format!("--target={TRIPLE}"))
        .env("CARGO_TARGET_DIR", "fuzz/target")
        .env("RUSTFLAGS", INSTRUMENT)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .run()?;
    std::fs::create_dir_all(fuzz.join("artifacts")).map_err(|e| format!("fuzz/artifacts: {e}"))?;
    for target in targets {
        let corpus = format!("fuzz/corpus/{target}");
        std::fs::create_dir_all(root().join(&corpus)).map_err(|e| format!("{corpus}: {e}"))?;
        let dictionary = if target.starts_with("h1_") { "-dict=fuzz/h1.dict" } else { "" };
        Step::new(&format!("fuzz/target/{TRIPLE}/release/{target} {corpus} {dictionary}"))
            .arg(&format!("-max_total_time={seconds}"))
            .arg(&format!("-artifact_prefix=fuzz/artifacts/{target}-"))
            .arg("-max_len=4096")
            .arg("-verbosity=0")
            .arg("-print_final_stats=1")
            .arg("-timeout=10")
            .run()?;
    }
    Ok(())
}

/// Each file of that directory is a target.
fn targets(dir: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}
