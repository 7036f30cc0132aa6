//! Names of types that say too little to stand in several files: a reader of one file then takes its `State`
//! for another one's. Each of them is defined once at most; others say whose they are (`StreamState`).

use super::Finding;
use super::lexer::{Kind, tokens};

/// The names.
const BARE: [&str; 4] = ["Outcome", "Place", "Source", "State"];

/// The words that define a type.
const DEFINING: [&str; 5] = ["enum", "struct", "trait", "type", "union"];

/// Definitions beyond the first.
pub(super) fn check(files: &[(String, String)]) -> Vec<Finding> {
    let mut out = Vec::new();
    for name in BARE {
        let mut found =
            files.iter().flat_map(|(path, text)| lines(path, text, name).map(move |at| (path, at)));
        let Some((first, _)) = found.next() else { continue };
        out.extend(found.map(|(path, line)| {
            Finding::new(path, line, &format!("`{name}` is {first}'s: say whose this one is"))
        }));
    }
    out
}

/// Where a source defines a type of this name.
fn lines(path: &str, text: &str, name: &'static str) -> impl Iterator<Item = usize> {
    let is_read = path.ends_with(".rs") && text.contains(name);
    let tokens = if is_read { tokens(text) } else { Vec::new() };
    let lines: Vec<usize> = tokens
        .windows(2)
        .filter(|pair| match (pair[0].kind, pair[1].kind) {
            (Kind::Word(defining), Kind::Word(word)) => DEFINING.contains(&defining) && word == name,
            _ => false,
        })
        .map(|pair| pair[1].line)
        .collect();
    lines.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_that_is_defined_twice_is_found() {
        let one = "pub struct State;\nstruct StreamState;\nenum Place {}\n";
        assert_eq!(found(&[("a.rs", one), ("notes.md", one)]), [""; 0]);
        let two = "// struct Place;\n\npub(crate) enum State {}\ntrait Outcome {}\n";
        assert_eq!(
            found(&[("a.rs", one), ("b.rs", two)]),
            ["b.rs:3: `State` is a.rs's: say whose this one is"]
        );
    }
}
