//! `sanitize`: tests under ThreadSanitizer, AddressSanitizer and Miri, one after the other.

use crate::run::{Outcome, Step, root, target_dir};
use crate::{asan, miri};

const USAGE: &str = "usage: cargo xtask sanitize [thread | address | miri]";

/// Crates whose threads share memory without locks.
const SHARING: &str = "--package clearway-runtime --package clearway-zone --package clearway-offload";

/// It counts descriptors, of which ThreadSanitizer opens some itself.
const COUNTS_DESCRIPTORS: &str = "a_second_of_everything";

/// The crates, and of the workspace what is none of them. What runs the built binary is not among them: it
/// has an allocator of its own, which AddressSanitizer does not see into.
const CRATES: &str = "--workspace --exclude xtask --exclude clearway-bench --exclude clearway-tests \
                      --exclude clearway-luajit --exclude clearway-os --exclude clearway-watchdog";

/// What is left of the crates that read the stacks of other threads word by word, and frames of Lua, on
/// purpose, without the tests that do so: under the sanitizer a stall has no stack, and tests wait for it in
/// vain.
const STACK_READERS: [&str; 4] = [
    "test --no-fail-fast --package clearway-luajit --lib --test modules",
    "test --package clearway-os --lib -- --skip stack_walk --skip sampling --skip signal_stack",
    "test --package clearway-os --test processes",
    "test --package clearway-watchdog --lib --test places",
];

pub(crate) fn command(args: &[String]) -> Outcome {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [] => thread().and_then(|()| address()).and_then(|()| miri()),
        ["thread"] => thread(),
        ["address"] => address(),
        ["miri"] => miri::command(&[]),
        _ => Err(USAGE.to_owned()),
    }
}

/// Where the sources of the standard library are, it is built with the sanitizer; elsewhere what it orders is
/// not seen, and a list names what is reported for that alone.
fn thread() -> Outcome {
    let sysroot = Step::new("rustup run nightly rustc --print sysroot").output()?;
    let sysroot = String::from_utf8_lossy(&sysroot).trim().to_owned();
    let has_source = std::path::Path::new(&sysroot).join("lib/rustlib/src/rust/library").is_dir();
    let (std, listed) = match has_source {
        true => ("-Zbuild-std", String::new()),
        false => ("", format!("suppressions={}", root().join("xtask/tsan.supp").display())),
    };
    let target = format!("--target={}", asan::TRIPLE);
    Step::new(&format!(
        "rustup run nightly cargo test --no-fail-fast {std} {SHARING} --lib --tests {target} -- --skip \
         {COUNTS_DESCRIPTORS}"
    ))
    .env("CARGO_TARGET_DIR", &target_dir().join("tsan").to_string_lossy())
    .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer -Cforce-frame-pointers=yes")
    .env("TSAN_OPTIONS", &listed)
    .env_remove("RUSTUP_TOOLCHAIN")
    .env_remove("CARGO")
    .run()
}

fn address() -> Outcome {
    asan::tests(&format!("test --no-fail-fast {CRATES} --lib --tests"))?;
    STACK_READERS.iter().try_for_each(|line| asan::tests(line))
}

/// Where it is installed.
fn miri() -> Outcome {
    if !miri::is_installed() {
        eprintln!("skipped: Miri is not installed");
        return Ok(());
    }
    miri::command(&[])
}
