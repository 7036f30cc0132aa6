//! Where `unsafe` may stand: only in the files that ARCHITECTURE.md lists under "Files that may hold
//! unsafe", and never without a note that says why it is sound. The list names no file that needs no
//! entry, so that it stays the place to look.

use super::Finding;
use super::lexer::{Kind, tokens};

const MAP: &str = "ARCHITECTURE.md";
const SECTION: &str = "files that may hold unsafe";
const NOTE: &str = "SAFETY";

/// Checks the files given as (path, text).
pub(crate) fn check(files: &[(String, String)]) -> Vec<Finding> {
    let mut out = Vec::new();
    let listed = match files.iter().find(|(path, _)| path == MAP).and_then(|(_, text)| listed(text)) {
        Some(listed) => listed,
        None => {
            out.push(Finding::new(MAP, 1, "has no section \"Files that may hold unsafe\""));
            Vec::new()
        }
    };
    let mut used = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let Some(line) = first_unsafe(text) else { continue };
        used.push(path.as_str());
        if !listed.iter().any(|(_, entry)| entry == path) {
            out.push(Finding::new(path, line, "`unsafe`, but ARCHITECTURE.md does not list this file"));
        }
        if !text.contains(NOTE) {
            out.push(Finding::new(path, line, "`unsafe` without a SAFETY note"));
        }
    }
    for (line, entry) in &listed {
        if !used.contains(&entry.as_str()) {
            out.push(Finding::new(MAP, *line, &format!("{entry} holds no `unsafe`")));
        }
    }
    out
}

/// The first line that uses the keyword in code.
fn first_unsafe(text: &str) -> Option<usize> {
    tokens(text).iter().find(|token| token.kind == Kind::Word("unsafe")).map(|token| token.line)
}

/// The first backticked path of each bullet in the section, with its line; nothing if there is no such
/// section.
fn listed(text: &str) -> Option<Vec<(usize, String)>> {
    let mut lines = text.lines().enumerate();
    lines
        .find(|(_, line)| line.starts_with('#') && line.replace('`', "").to_lowercase().contains(SECTION))?;
    let bullets = lines
        .take_while(|(_, line)| !line.starts_with('#'))
        .filter(|(_, line)| line.starts_with("- ") || line.starts_with("* "))
        .filter_map(|(i, line)| Some((i + 1, line.split('`').nth(1)?.to_owned())));
    Some(bullets.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(map: &str, source: &str) -> Vec<String> {
        let files = [(MAP, map), ("crates/os/src/a.rs", source)];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        check(&files).iter().map(ToString::to_string).collect()
    }

    const LISTS_A: &str =
        "# Map\n\n## Files that may hold `unsafe`\n\n- `crates/os/src/a.rs`: calls\n\n## Next\n- `x.rs`\n";
    const SOUND: &str = "// SAFETY: the pointer is from a reference.\nunsafe { f() }\n";

    #[test]
    fn listed_and_explained_passes() {
        assert_eq!(found(LISTS_A, SOUND), Vec::<String>::new());
    }

    #[test]
    fn an_unlisted_file_fails() {
        let map = "## Files that may hold unsafe\n";
        assert_eq!(
            found(map, SOUND),
            ["crates/os/src/a.rs:2: `unsafe`, but ARCHITECTURE.md does not list this file"]
        );
    }

    #[test]
    fn a_missing_note_fails() {
        assert_eq!(
            found(LISTS_A, "fn f() {\n  unsafe { g() }\n}\n"),
            ["crates/os/src/a.rs:2: `unsafe` without a SAFETY note"]
        );
    }

    #[test]
    fn a_stale_entry_and_a_missing_section_fail() {
        let calm = "#![forbid(unsafe_code)]\n// unsafe in prose\nconst S: &str = \"unsafe\";\n";
        assert_eq!(found(LISTS_A, calm), ["ARCHITECTURE.md:5: crates/os/src/a.rs holds no `unsafe`"]);
        assert_eq!(found("# Map\n", calm).len(), 1);
    }
}
