//! The English of comments: a sentence names the role that acts (client, waiter, writer, caller). Pronouns in
//! place of a role are found; those in place of a thing are counted, and may only get fewer.

use super::Finding;
use super::lexer::{Kind, tokens};

/// Pronouns in place of a role.
const PERSONS: [&str; 3] = ["who", "whoever", "whom"];

/// The pronoun in place of a noun.
const THING: &str = "what";

/// How often comments have it at most. There is a little room, for changes that meet on the way.
const THINGS_MAX: usize = 3_500;

/// A comment that sends its reader elsewhere.
const EMPTY: &str = "See its text.";

/// Documents that are held to the same as comments.
const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// The mistakes in the words of one file.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut out = Vec::new();
    for (line, text) in prose(path, text) {
        if let Some(person) = words(text).find(|word| PERSONS.iter().any(|p| word.eq_ignore_ascii_case(p))) {
            out.push(Finding::new(path, line, &format!("name the role that acts in place of `{person}`")));
        }
        if text.contains(EMPTY) {
            out.push(Finding::new(path, line, "a comment that says nothing"));
        }
    }
    out
}

/// Whether all files together have too many pronouns in place of a noun.
pub(super) fn check_all(files: &[(String, String)]) -> Option<Finding> {
    let found = things(files);
    let text = format!("comments have {found} times `{THING}`; at most {THINGS_MAX}: say the noun");
    (found > THINGS_MAX).then(|| Finding::new("xtask/src/tidy/words.rs", 1, &text))
}

/// A line for people.
pub(super) fn figures(files: &[(String, String)]) -> String {
    format!("`{THING}` in comments: {} of at most {THINGS_MAX}", things(files))
}

fn things(files: &[(String, String)]) -> usize {
    let prose = files.iter().flat_map(|(path, text)| prose(path, text));
    prose.flat_map(|(_, text)| words(text)).filter(|word| word.eq_ignore_ascii_case(THING)).count()
}

/// Comments of a source, lines of a document, with where they begin.
fn prose<'a>(path: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    if DOCUMENTS.contains(&path) {
        return (1..).zip(text.lines()).collect();
    }
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let comments = tokens(text).into_iter().filter_map(|token| match token.kind {
        Kind::Comment(text) => Some((token.line, text)),
        _ => None,
    });
    comments.collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(path, text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn persons_in_comments_are_found() {
        let source = "//! Whoever holds it.\nfn f() {} // the whole\n/* a\nb whom */\nlet who = \"who\";\n";
        assert_eq!(found("crates/a/src/lib.rs", source), [1, 3]);
        assert_eq!(found("ARCHITECTURE.md", "a\nb who c\n"), [2]);
        assert_eq!(found("docs/manual.md", "who\n"), [0_usize; 0]);
    }

    #[test]
    fn comments_that_say_nothing_are_found() {
        let source = format!("/// {EMPTY}\nstatic A: u8 = 1;\n");
        assert_eq!(found("crates/a/src/lib.rs", &source), [1]);
    }

    #[test]
    fn things_are_counted_in_comments_only() {
        let files = [("a.rs".to_owned(), "// What is what, somewhat.\nlet what = \"what\";\n".to_owned())];
        assert_eq!(things(&files), 2);
        assert!(check_all(&files).is_none());
        let many = [("a.rs".to_owned(), "// what\n".repeat(THINGS_MAX + 1))];
        assert!(check_all(&many).is_some());
    }
}
