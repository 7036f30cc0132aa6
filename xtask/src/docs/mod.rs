//! The manual's generated parts, which the binary prints from its own tables (directives, metrics,
//! variables): the repository holds them, and `docs --check` fails where they are stale, where a page of a
//! module lacks its example or its limits, and where a link leads nowhere.

mod links;
mod pages;

use crate::run::{Outcome, Step, root};

/// Files that are generated as a whole, and the command that prints each.
const REFERENCES: [(&str, &str); 3] = [
    ("docs/directives.md", "docs-directives"),
    ("docs/metrics.md", "docs-metrics"),
    ("docs/variables.md", "docs-variables"),
];

/// Where pages of modules are: what stands below the mark in them is generated.
const PAGES: &str = "docs/modules";

pub(crate) fn command(args: &[String]) -> Outcome {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err("usage: cargo xtask docs [--check]".to_owned()),
    };
    let mut files = generated()?;
    files.extend(pages::merged(&printed("docs-modules")?)?);
    if !check {
        return files.iter().try_for_each(|(path, text)| write(path, text));
    }
    let mut problems: Vec<String> = files.iter().filter_map(|(path, text)| stale(path, text)).collect();
    problems.extend(pages::incomplete(&files));
    problems.extend(links::dead()?);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn generated() -> Result<Vec<(String, String)>, String> {
    REFERENCES.iter().map(|(path, printer)| Ok(((*path).to_owned(), printed(printer)?))).collect()
}

fn printed(printer: &str) -> Result<String, String> {
    let output = Step::cargo(&format!("run --quiet --package clearway -- {printer}")).output()?;
    String::from_utf8(output).map_err(|e| format!("{printer}: {e}"))
}

fn write(path: &str, text: &str) -> Outcome {
    std::fs::write(root().join(path), text).map_err(|e| format!("{path}: {e}"))
}

fn stale(path: &str, text: &str) -> Option<String> {
    match std::fs::read_to_string(root().join(path)) {
        Ok(committed) if committed == text => None,
        Ok(_) => Some(format!("{path} is not what the tables of the binary say: run `cargo xtask docs`")),
        Err(error) => Some(format!("{path}: {error}")),
    }
}
