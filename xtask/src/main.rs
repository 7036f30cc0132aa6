//! The project's own commands, one per habit: `cargo xtask` lists them. Each is a
//! plain sequence of processes that a developer could type; the first that fails ends the command.
//! `tidy` alone is more than that: it reads the sources and says where a house rule is broken.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a command-line program: there is no loop to block")]
#![allow(clippy::disallowed_macros, reason = "a command-line program talks to its terminal")]

mod asan;
mod bench;
mod book;
mod docs;
mod fuzz;
mod layout;
mod miri;
mod record;
mod retry;
mod run;
mod sanitize;
mod sim;
mod stress;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy [--figures] house rules: layers, sizes, unsafe, leftovers (see CONTRIBUTING.md); or what it counts
  ci               everything: formatting, lints, tidy, generated docs, test
  test             unit, integration and differential tests, the same with lent loops, loom models
  record [TEST …]  what the nginx named in NGINX_BIN answers, written to tests/recorded
  loom [SWITCHES]  loom models with so many forced switches (default 4, one more than test has)
  stress [MINUTES] the runtime's tests under bad conditions, then everything at once for that long
                   (default 10; needs the nightly toolchain)
  sanitize [thread | address | miri]  tests of crates under each, or under one (needs the nightly toolchain)
  sim [SEEDS | seed N]  simulated runs of so many seeds (default 10000), or the run of one seed again
  docs [--check]   write the generated parts of docs/, or say whether they are fresh, every page of a module
                   has its example and its limits, and every link leads somewhere
  book             the manual as HTML with a search, in target/book
  bench ARGS       build with optimisation and run clearway-bench ARGS (bench --help lists them)
  fuzz [SECONDS [PREFIX …]]  run each fuzz target for that long (default 20; needs the nightly toolchain)
  miri [PACKAGE …] the crates without system calls under Miri (needs it, and the nightly toolchain)
  asan [PACKAGE …] the tests of crates with unsafe code under AddressSanitizer (default clearway-tls;
                   needs the nightly toolchain)
  plugins          build the examples of plugins in all languages, and ask them (needs Go, Python, a JDK,
                   Node)
  layout           find the functions that serve requests, for the linker (needs valgrind)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let outcome = match args.first().map(String::as_str) {
        Some("tidy") => tidy::command(rest),
        Some("ci") => test::ci(),
        Some("test") => test::command(),
        Some("record") => record::command(rest),
        Some("docs") => docs::command(rest),
        Some("book") => book::command(),
        Some("bench") => bench::command(rest),
        Some("loom") => test::loom_command(rest),
        Some("stress") => stress::command(rest),
        Some("sanitize") => sanitize::command(rest),
        Some("sim") => sim::command(rest),
        Some("fuzz") => fuzz::command(rest),
        Some("miri") => miri::command(rest),
        Some("asan") => asan::command(rest),
        Some("plugins") => test::plugins(),
        Some("layout") => layout::command(),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
