//! Runs of test programs in which a test that failed is asked once more, by itself.
//!
//! Tests of whole servers wait on a machine that others use as well: one of a thousand can fail because the
//! machine stood still. Such a test does not decide a run, but it is named where the run ends, so that it is
//! looked at. More than [`MOST`] failures, a program that died and a test that fails twice are failures.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::run::{Outcome, Step};

/// How many tests of one step are asked again.
const MOST: usize = 3;

/// When the terminal sees what a step prints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    AtOnce,
    /// In one piece, for a step that has others beside it.
    AtTheEnd,
}

/// Runs `cargo test` with these words, and what failed in it once more. `dress` gives a step its environment.
pub(crate) fn run(dress: &dyn Fn(&str) -> Step, words: &str, harness: &str, shown: Shown) -> Outcome {
    let first = watched(dress(&line(words, "--no-fail-fast", harness)), shown)?;
    if first.succeeded {
        return Ok(());
    }
    let tests = first.tests("FAILED");
    if tests.is_empty() || tests.len() > MOST || first.died() {
        return Err(format!(
            "failed: {}",
            if tests.is_empty() { words.to_owned() } else { tests.join(", ") }
        ));
    }
    eprintln!("asked again: {}", tests.join(", "));
    let second =
        watched(dress(&line(words, "--no-fail-fast", &format!("--exact {}", tests.join(" ")))), shown)?;
    if !second.succeeded {
        return Err(format!("failed twice: {}", second.tests("FAILED").join(", ")));
    }
    let steady = second.tests("ok");
    let lost: Vec<_> = tests.iter().filter(|test| !steady.contains(test)).cloned().collect();
    if !lost.is_empty() {
        return Err(format!("failed, and not found again: {}", lost.join(", ")));
    }
    tests.iter().for_each(|test| eprintln!("UNSTEADY: {test} failed once and passed once"));
    Ok(())
}

fn line(words: &str, more: &str, harness: &str) -> String {
    let behind = if harness.is_empty() { String::new() } else { format!(" -- {harness}") };
    format!("{words} {more}{behind}")
}

/// What a step has printed, which the terminal has seen as well.
struct Watched {
    succeeded: bool,
    output: Vec<String>,
    errors: Vec<String>,
}

fn watched(step: Step, when: Shown) -> Result<Watched, String> {
    let (mut command, shown) = step.into_command();
    eprintln!("+ {shown}");
    let began = Instant::now();
    let watched = watch(&mut command, when).map_err(|e| format!("{shown}: {e}"))?;
    let took = began.elapsed().as_secs_f64();
    if when == Shown::AtTheEnd {
        eprintln!("+ (has ended) {shown}");
        eprintln!("{}\n{}", watched.errors.join("\n"), watched.output.join("\n"));
    }
    eprintln!("  ({took:.0} s)");
    Ok(watched)
}

fn watch(command: &mut Command, when: Shown) -> std::io::Result<Watched> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let live = when == Shown::AtOnce;
    let errors = std::thread::spawn(move || copied(stderr, live.then(std::io::stderr)));
    let output = copied(stdout, live.then(std::io::stdout));
    let errors = errors.join().unwrap_or_default();
    Ok(Watched { succeeded: child.wait()?.success(), output, errors })
}

/// Keeps what comes, and passes it on.
fn copied(from: Option<impl Read>, mut to: Option<impl Write>) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(from) = from else { return lines };
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while matches!(from.read_until(b'\n', &mut bytes), Ok(1..)) {
        // A terminal that has gone away is no reason to fail.
        let _ = to.as_mut().map(|to| to.write_all(&bytes));
        lines.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        bytes.clear();
    }
    lines
}

impl Watched {
    /// The tests with this result, each once.
    fn tests(&self, result: &str) -> Vec<String> {
        let name = |line: &String| {
            let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
            (outcome == result).then(|| name.to_owned())
        };
        let mut names: Vec<String> = self.output.iter().filter_map(name).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Whether a program ended by something else than its failed tests.
    fn died(&self) -> bool {
        self.errors.iter().any(|line| line.contains("(signal: ") || line.contains("could not compile"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(output: &str, errors: &str) -> Watched {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        Watched { succeeded: false, output: lines(output), errors: lines(errors) }
    }

    #[test]
    fn what_failed_is_found() {
        let run = printed(
            "test a::fine ... ok\ntest a::bad ... FAILED\ntest b ... ignored, needs x\n\nfailures:\n    a\n",
            "error: test failed, to rerun pass `-p clearway-tests --test upstreams`\n",
        );
        assert_eq!(run.tests("FAILED"), ["a::bad"]);
        assert_eq!(run.tests("ok"), ["a::fine"]);
        assert!(!run.died());
    }

    #[test]
    fn a_program_that_died_is_no_test_that_failed() {
        let error = "process didn't exit successfully: `/t/x` (signal: 6, SIGABRT: process abort signal)";
        assert!(printed("", error).died());
    }

    #[test]
    fn words_for_the_harness_stand_behind_those_for_cargo() {
        assert_eq!(line("test -p x", "--no-fail-fast", "--exact a"), "test -p x --no-fail-fast -- --exact a");
    }
}
