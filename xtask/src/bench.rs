//! `bench`: builds the server as it is measured (release, with the `testing` directives that hold a
//! thread on purpose) and the load programs, and hands its arguments on to `clearway-bench`.

use std::path::PathBuf;

use crate::run::{Outcome, Step, target_dir};

pub(crate) fn command(args: &[String]) -> Outcome {
    Step::cargo("build --release --package clearway --features testing").run()?;
    Step::cargo("build --release --package clearway-bench").run()?;
    let normal = target_dir().join("release/clearway");
    if args.first().is_some_and(|arg| arg == "lease") {
        return lease(&normal, args.get(1..).unwrap_or_default());
    }
    run(&normal, args)
}

/// The cost of the lease: `cpu` with the normal build against one in which loops cannot be lent.
fn lease(normal: &std::path::Path, args: &[String]) -> Outcome {
    let dir = target_dir().join("no-lease");
    Step::cargo("build --release --package clearway --features testing")
        .env("CARGO_TARGET_DIR", &dir.to_string_lossy())
        .env("RUSTFLAGS", "--cfg clearway_no_lease -C force-frame-pointers=yes")
        .run()?;
    let mut all = vec!["cpu".to_owned()];
    all.extend(args.iter().cloned());
    all.push(format!("no-lease={}", dir.join("release/clearway").display()));
    all.push(format!("lease={}", normal.display()));
    run(normal, &all)
}

fn run(normal: &std::path::Path, args: &[String]) -> Outcome {
    let program: PathBuf = target_dir().join("release/clearway-bench");
    let mut step = Step::new(&program.to_string_lossy()).env("CLEARWAY_BIN", &normal.to_string_lossy());
    for arg in args {
        step = step.arg(arg);
    }
    step.run()
}
