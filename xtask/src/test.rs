//! `test` and `ci`. The suite runs as it is, then twice with loops that are lent after every Nth poll (every
//! task then meets the hand-over all the time; unit tests of crates that know no loop are left out, as
//! nothing is different for them). The loom models, which have a target directory of their own, run beside
//! all that: they only compute, and tests of whole servers wait most of the time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::retry::Shown;
use crate::run::{Outcome, Step, root, target_dir};
use crate::{book, docs, retry, tidy};

/// After how many polls a loop is lent in the two runs that do so.
const CHAOS: [&str; 2] = ["1", "7"];

/// How many forced switches loom explores in one execution; three find what these protocols can hide
/// and keep the models within minutes.
const LOOM_MAX_PREEMPTIONS: u32 = 3;

/// Property tests draw the same cases in every run that judges a change, so that one which fails has failed
/// because of the change. `cargo test` by itself draws new ones each time.
const PROPTEST_SEED: &str = "20260101";

/// The test program that compares with nginx.
const COMPARING: &str = "differential";

/// The test program that plays the manual's examples: what they show is the same however loops are lent.
const MANUAL: &str = "manual";

/// The test programs that take as long as the longest of their tests, however many run at once: they go
/// beside the others.
const LONG: [&str; 4] = ["files", "handover", "process", "together"];

/// Tests of whole servers wait more than they compute: for servers to start and to end, and for what does
/// not come.
const SERVERS_PER_PROCESSOR: usize = 2;

/// The same for those of [`COMPARING`], which start two servers each.
const COMPARISONS_PER_PROCESSOR: usize = 3;

pub(crate) fn ci() -> Outcome {
    Step::cargo("fmt --all --check").run()?;
    tidy::command(&[])?;
    for features in ["", "--features testing"] {
        Step::cargo(&format!("clippy --workspace --all-targets {features} -- -D warnings")).run()?;
    }
    docs::command(&["--check".to_owned()])?;
    book::command()?;
    command()
}

pub(crate) fn command() -> Outcome {
    let models = std::thread::spawn(|| loom(LOOM_MAX_PREEMPTIONS).run_aside());
    let tests = suites();
    let models = models.join().unwrap_or_else(|_| Err("the loom models' thread panicked".to_owned()));
    tests.and(models)
}

fn suites() -> Outcome {
    suite(None)?;
    beside_nginx()?;
    CHAOS.iter().try_for_each(|every| suite(Some(every)))
}

/// The examples of plugins, in all languages: CI builds and asks those in C and Rust.
pub(crate) fn plugins() -> Outcome {
    Step::cargo("build --package clearway --features testing").run()?;
    Step::cargo("test --package clearway-tests --test integration -- plugins:: --include-ignored")
        .env("CLEARWAY_BIN", &target_dir().join("debug/clearway").to_string_lossy())
        .run()
}

/// The tests that need an nginx which runs, where there is one; the suite counts them as ignored.
fn beside_nginx() -> Outcome {
    let nginx = std::env::var_os("NGINX_BIN").map_or_else(|| PathBuf::from("/usr/sbin/nginx"), PathBuf::from);
    if !nginx.is_file() || !is_root() {
        eprintln!("skipped: tests that need a running nginx, and the rights of root (NGINX_BIN names it)");
        return Ok(());
    }
    let ignored = |program: &str, tests: &str| {
        let binary = target_dir().join("debug/clearway");
        Step::cargo(&format!("test --package clearway-tests --test {program} -- --ignored {tests}"))
            .env("NGINX_BIN", &nginx.to_string_lossy())
            .env("CLEARWAY_BIN", &binary.to_string_lossy())
            .run()
    };
    ignored("process", "proofs::nginx")?;
    if !Path::new("/etc/nginx/sites-enabled/default").is_file() {
        eprintln!("skipped: tests with the configuration of Debian's nginx, which is not installed");
        return Ok(());
    }
    ignored("differential", "stock::")
}

fn is_root() -> bool {
    // The owner of this process's own /proc directory is its effective user.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Unit, integration and differential tests, with loops that are lent after so many polls: two rows of them
/// beside each other, as tests of servers wait most of the time.
fn suite(lend_every: Option<&str>) -> Outcome {
    // One selection of features for all, so that nothing is compiled twice.
    const PACKAGES: &str = "--workspace --features testing";
    let step = |line: &str| {
        let step =
            Step::cargo(line).env("PROPTEST_RNG_SEED", PROPTEST_SEED).env_remove("CLEARWAY_CHAOS_LEND");
        match lend_every {
            Some(n) => step.env("CLEARWAY_CHAOS_LEND", n),
            None => step,
        }
    };
    step(&format!("build {PACKAGES}")).run()?;
    step(&format!("test {PACKAGES} --no-run")).run()?;
    let binary: PathBuf = target_dir().join("debug/clearway");
    let dress = |line: &str| step(line).env("CLEARWAY_BIN", &binary.to_string_lossy());
    let test = |selected: &str, threads: usize, shown: Shown| {
        retry::run(
            &dress,
            &format!("test {PACKAGES} {selected}"),
            &format!("--test-threads={threads}"),
            shown,
        )
    };
    let without = match lend_every {
        Some(_) => excluded(&packages_without_loops()?),
        None => String::new(),
    };
    let mut programs = of_the_binary()?;
    programs.retain(|name| name != COMPARING && (lend_every.is_none() || name != MANUAL));
    let (long, others): (Vec<String>, Vec<String>) =
        programs.into_iter().partition(|name| LONG.contains(&name.as_str()));
    let processors = processors();
    std::thread::scope(|rows| {
        let beside = rows.spawn(|| {
            test(&selection(&long), processors * SERVERS_PER_PROCESSOR, Shown::AtTheEnd)?;
            test(&selection(&[COMPARING.to_owned()]), comparisons_at_a_time(), Shown::AtTheEnd)
        });
        let units = test(&format!("--exclude clearway-tests {without}"), processors, Shown::AtOnce);
        let others =
            units.and_then(|()| test(&selection(&others), processors * SERVERS_PER_PROCESSOR, Shown::AtOnce));
        let beside = beside.join().unwrap_or_else(|_| Err("a row of tests panicked".to_owned()));
        others.and(beside)
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many tests of [`COMPARING`] run at once.
pub(crate) fn comparisons_at_a_time() -> usize {
    processors() * COMPARISONS_PER_PROCESSOR
}

/// The crates that do not stand on the runtime: nothing of them can be lent.
fn packages_without_loops() -> Result<BTreeSet<String>, String> {
    let tree = |line: &str| {
        let output = Step::cargo(&format!("tree {line} --prefix none --format {{p}}")).output()?;
        Ok::<_, String>(packages_of(&String::from_utf8_lossy(&output)))
    };
    let lendable = tree("--workspace --invert clearway-runtime --edges normal,dev")?;
    if lendable.is_empty() {
        return Err("no crate stands on clearway-runtime".to_owned());
    }
    Ok(&tree("--workspace --depth 0")? - &lendable)
}

/// Of lines that begin with a package's name, which may come again.
fn packages_of(lines: &str) -> BTreeSet<String> {
    lines.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn excluded(packages: &BTreeSet<String>) -> String {
    packages.iter().map(|name| format!("--exclude {name}")).collect::<Vec<_>>().join(" ")
}

/// The test programs that run the binary: each directory of `tests/tests` is one.
fn of_the_binary() -> Result<Vec<String>, String> {
    let dir = root().join("tests/tests");
    let entries = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

fn selection(names: &[String]) -> String {
    names.iter().map(|name| format!("--test {name}")).collect::<Vec<_>>().join(" ")
}

/// The models alone, with one switch more than [`command`] allows, or as many as are asked for.
pub(crate) fn loom_command(args: &[String]) -> Outcome {
    match args {
        [] => loom(LOOM_MAX_PREEMPTIONS + 1).run(),
        [n] => loom(n.parse().map_err(|_| "usage: cargo xtask loom [SWITCHES]".to_owned())?).run(),
        _ => Err("usage: cargo xtask loom [SWITCHES]".to_owned()),
    }
}

fn loom(switches: u32) -> Step {
    let packages = "--package clearway-runtime --package clearway-offload --package clearway-zone \
                    --package clearway-upstream --package clearway-pipe --package clearway-cache \
                    --package clearway-lua";
    Step::cargo(&format!("test {packages} --release --lib -- loom models"))
        .env("CARGO_TARGET_DIR", &target_dir().join("loom").to_string_lossy())
        .env("RUSTFLAGS", "--cfg loom -C force-frame-pointers=yes")
        .env("LOOM_MAX_PREEMPTIONS", &switches.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_comes_twice_is_named_once() {
        let lines = "clearway-net v0.1.0 (/x)\nclearway-http v0.1.0\n\nclearway-http v0.1.0 (*)\n";
        assert_eq!(excluded(&packages_of(lines)), "--exclude clearway-http --exclude clearway-net");
    }

    #[test]
    fn the_test_programs_are_found() {
        let names = of_the_binary().expect("the directory is there");
        assert!(
            names.len() > 1
                && LONG.iter().chain(&[COMPARING, MANUAL]).all(|name| names.iter().any(|n| n == name)),
            "{names:?}"
        );
    }
}
