//! The directive reference, `docs/directives.md`: the binary prints it from its directive tables, the
//! repository holds a copy, and `docs --check` fails when the two differ.

use crate::run::{Outcome, Step, root};

const PATH: &str = "docs/directives.md";

pub(crate) fn command(args: &[String]) -> Outcome {
    match args {
        [] => write(),
        [flag] if flag == "--check" => check(),
        _ => Err("usage: cargo xtask docs [--check]".to_owned()),
    }
}

fn generated() -> Result<Vec<u8>, String> {
    Step::cargo("run --quiet --package clearway -- docs-directives").output()
}

fn write() -> Outcome {
    let text = generated()?;
    std::fs::write(root().join(PATH), text).map_err(|e| format!("{PATH}: {e}"))
}

fn check() -> Outcome {
    let committed = std::fs::read(root().join(PATH)).map_err(|e| format!("{PATH}: {e}"))?;
    if committed == generated()? {
        Ok(())
    } else {
        Err(format!("{PATH} is not what the directive tables say: run `cargo xtask docs`"))
    }
}
