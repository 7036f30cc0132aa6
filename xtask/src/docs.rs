//! The references that the binary prints from its own tables, of directives, metrics and variables: the
//! repository holds a copy of each, and `docs --check` fails where the two differ.

use crate::run::{Outcome, Step, root};

/// Files, and the command that prints each.
const REFERENCES: [(&str, &str); 3] = [
    ("docs/directives.md", "docs-directives"),
    ("docs/metrics.md", "docs-metrics"),
    ("docs/variables.md", "docs-variables"),
];

pub(crate) fn command(args: &[String]) -> Outcome {
    let act = match args {
        [] => write,
        [flag] if flag == "--check" => check,
        _ => return Err("usage: cargo xtask docs [--check]".to_owned()),
    };
    REFERENCES.iter().try_for_each(|(path, printer)| act(path, &generated(printer)?))
}

fn generated(printer: &str) -> Result<Vec<u8>, String> {
    Step::cargo(&format!("run --quiet --package clearway -- {printer}")).output()
}

fn write(path: &str, text: &[u8]) -> Outcome {
    std::fs::write(root().join(path), text).map_err(|e| format!("{path}: {e}"))
}

fn check(path: &str, text: &[u8]) -> Outcome {
    let committed = std::fs::read(root().join(path)).map_err(|e| format!("{path}: {e}"))?;
    if committed == text {
        Ok(())
    } else {
        Err(format!("{path} is not what the tables of the binary say: run `cargo xtask docs`"))
    }
}
