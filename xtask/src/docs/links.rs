//! Links between the Markdown files of the repository: each leads to a file that is there, and to a heading
//! of it. Addresses in the web are not asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::book::markdown::{anchors, links};
use crate::run::{Step, root};

/// Every link that leads nowhere, as `file: target`.
pub(super) fn dead() -> Result<Vec<String>, String> {
    let list = Step::new("git ls-files --cached --others --exclude-standard *.md").output()?;
    let list = String::from_utf8_lossy(&list).into_owned();
    let mut problems = Vec::new();
    for path in list.lines() {
        let text = std::fs::read_to_string(root().join(path)).map_err(|e| format!("{path}: {e}"))?;
        let dead = links(&text).into_iter().filter(|link| !is_alive(&root().join(path), &text, &link.target));
        problems.extend(dead.map(|link| format!("{path}: {} leads nowhere", link.target)));
    }
    Ok(problems)
}

fn is_alive(file: &Path, text: &str, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let other: PathBuf = file.parent().unwrap_or(file).join(path);
    if !path.is_empty() && !other.exists() {
        return false;
    }
    if anchor.is_empty() {
        return true;
    }
    let read = if path.is_empty() { Ok(text.to_owned()) } else { std::fs::read_to_string(other) };
    let anchors: BTreeSet<String> = read.map(|text| anchors(&text).into_iter().collect()).unwrap_or_default();
    anchors.contains(anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(text: &str, target: &str) -> bool {
        is_alive(&root().join("README.md"), text, target)
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        assert!(alive("", "CONTRIBUTING.md") && alive("", "docs/") && alive("", "https://example.com/x"));
        assert!(!alive("", "CONTRIBUTION.md"));
        assert!(alive("", "CONTRIBUTING.md#house-rules") && !alive("", "CONTRIBUTING.md#no-rules"));
        assert!(alive("# A b\n", "#a-b") && !alive("# A b\n", "#a-c"));
    }
}
