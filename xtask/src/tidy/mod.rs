//! `tidy`: the house rules that neither rustfmt nor clippy knows, over the files git tracks.
//!
//! Each check is a function from text to findings, so that its tests can hand it a bad sample.

mod assertions;
mod bools;
mod circles;
mod exceptions;
mod functions;
mod imports;
mod layers;
mod lexer;
mod names;
mod text;
mod unsafety;
mod words;

use std::fmt;
use std::path::Path;

use crate::run::{Outcome, Step, root};

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    text: String,
}

impl Finding {
    fn new(path: &str, line: usize, text: &str) -> Self {
        Self { path: path.to_owned(), line, text: text.to_owned() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// With `--figures` prints what is counted instead of what is wrong.
pub(crate) fn command(args: &[String]) -> Outcome {
    let files = tracked_files()?;
    match args {
        [] => {}
        [only] if only == "--figures" => {
            eprintln!("{}\n{}", assertions::figures(&files).join("\n"), words::figures(&files));
            return Ok(());
        }
        _ => return Err("usage: cargo xtask tidy [--figures]".to_owned()),
    }
    let findings = check(&files);
    if findings.is_empty() {
        eprintln!("tidy: {} files, nothing found", files.len());
        return Ok(());
    }
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    Err(format!("{}\ntidy: {} found", lines.join("\n"), findings.len()))
}

/// All findings in the files given as (path from the root, text).
fn check(files: &[(String, String)]) -> Vec<Finding> {
    let mut out = Vec::new();
    let manifests: Vec<_> = files.iter().filter(|(path, _)| path.ends_with("Cargo.toml")).cloned().collect();
    out.extend(layers::check(&manifests));
    out.extend(assertions::check(files));
    out.extend(bools::check(files));
    out.extend(circles::check(files));
    out.extend(names::check(files));
    out.extend(unsafety::check(files));
    out.extend(words::check_all(files));
    for (path, content) in files {
        out.extend(text::check(path, content));
        out.extend(words::check(path, content));
    }
    out
}

/// The text files that git tracks and that are still there, with their contents.
fn tracked_files() -> Result<Vec<(String, String)>, String> {
    let listed = Step::new("git ls-files -z").output()?;
    let listed = String::from_utf8(listed).map_err(|e| format!("git ls-files: {e}"))?;
    let mut out = Vec::new();
    for path in listed.split_terminator('\0') {
        if let Some(content) = content(&root().join(path))? {
            out.push((path.to_owned(), content));
        }
    }
    Ok(out)
}

/// Nothing for what is deleted but not yet committed, for links, and for what is not text.
fn content(path: &Path) -> Result<Option<String>, String> {
    if !std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_of_checks_is_called() {
        let files = [
            ("crates/a/Cargo.toml".to_owned(), "[package]\nname = \"clearway-a\"\n".to_owned()),
            ("crates/a/src/lib.rs".to_owned(), "fn f() { unsafe { g() } }\n".to_owned()),
        ];
        let found: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        for part in ["no layer", "ARCHITECTURE.md", "does not open"] {
            assert!(found.iter().any(|line| line.contains(part)), "{part}: {found:?}");
        }
    }
}
