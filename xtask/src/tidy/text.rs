//! What can be seen in one file: its size, its opening words, leftovers, and paths of somebody's machine.

use super::Finding;
use super::functions::functions;
use super::lexer::{Kind, Token, tokens};

const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 800;
const MAX_COLUMNS: usize = 110;
const MAX_HEADER_LINES: usize = 15;

/// The map of the project: 25 screens of 40 lines, more of which nobody reads.
const MAP: &str = "ARCHITECTURE.md";
const MAX_MAP_LINES: usize = 1_000;

/// Marks of unfinished work, spelled so that this file does not hold them.
const LEFTOVERS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];

/// Macros that stand for code that is not there.
const STUBS: [&str; 2] = ["todo", "unimplemented"];

/// First components of paths that exist on one machine only.
const MACHINE_DIRS: [&str; 3] = ["work", "home", "root"];

/// Files whose text is not ours.
const FOREIGN: [&str; 2] = ["Cargo.lock", "LICENSE"];

/// Everything that is wrong within one file.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut out = Vec::new();
    if FOREIGN.contains(&path) {
        return out;
    }
    machine_paths(path, text, &mut out);
    if path == MAP && text.lines().count() > MAX_MAP_LINES {
        let text = format!("more than {MAX_MAP_LINES} lines: detail belongs at the heads of files");
        out.push(Finding::new(path, MAX_MAP_LINES + 1, &text));
    }
    if path.ends_with(".rs") {
        let tokens = tokens(text);
        sizes(path, text, &tokens, &mut out);
        stubs(path, &tokens, &mut out);
        header(path, text, &mut out);
    }
    if is_source(path) {
        columns(path, text, &mut out);
        leftovers(path, text, &mut out);
    }
    out
}

/// Whether it is written in a language of ours (prose may name the leftovers it forbids).
fn is_source(path: &str) -> bool {
    [".rs", ".sh", ".py", ".lua", ".c"].iter().any(|end| path.ends_with(end))
        || [".ci/run", "x"].contains(&path)
}

fn sizes(path: &str, text: &str, tokens: &[Token<'_>], out: &mut Vec<Finding>) {
    let lines = text.lines().count();
    if lines > MAX_FILE_LINES {
        let text = format!("{lines} lines; a file has at most {MAX_FILE_LINES}");
        out.push(Finding::new(path, lines, &text));
    }
    for function in functions(tokens).iter().filter(|f| f.length > MAX_FUNCTION_LINES) {
        let text = format!(
            "fn {} has {} lines; a function has at most {MAX_FUNCTION_LINES}",
            function.name, function.length
        );
        out.push(Finding::new(path, function.line, &text));
    }
}

fn stubs(path: &str, tokens: &[Token<'_>], out: &mut Vec<Finding>) {
    let code: Vec<_> = tokens.iter().filter(|t| !matches!(t.kind, Kind::Comment(_))).collect();
    for pair in code.windows(2) {
        if let (Kind::Word(word), Kind::Punct('!')) = (pair[0].kind, pair[1].kind)
            && STUBS.contains(&word)
        {
            out.push(Finding::new(path, pair[0].line, &format!("{word}! stands for code that is not there")));
        }
    }
}

/// Library and program sources open by saying what they own.
fn header(path: &str, text: &str, out: &mut Vec<Finding>) {
    if path.starts_with("fuzz/") {
        return;
    }
    let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
    if lines == 0 {
        out.push(Finding::new(path, 1, "does not open with `//!`: what does this file own?"));
    } else if lines > MAX_HEADER_LINES {
        let text = format!("opens with {lines} lines of `//!`; at most {MAX_HEADER_LINES}");
        out.push(Finding::new(path, 1, &text));
    }
}

fn columns(path: &str, text: &str, out: &mut Vec<Finding>) {
    for (i, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > MAX_COLUMNS {
            out.push(Finding::new(path, i + 1, &format!("{columns} columns; at most {MAX_COLUMNS}")));
        }
    }
}

fn leftovers(path: &str, text: &str, out: &mut Vec<Finding>) {
    for (i, line) in text.lines().enumerate() {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if let Some(word) = words.find(|word| LEFTOVERS.contains(word)) {
            out.push(Finding::new(path, i + 1, &format!("{word}: finish it, or open an issue")));
        }
    }
}

fn machine_paths(path: &str, text: &str, out: &mut Vec<Finding>) {
    for (i, line) in text.lines().enumerate() {
        if let Some(dir) = MACHINE_DIRS.iter().find(|dir| line.contains(&format!("/{dir}/"))) {
            out.push(Finding::new(path, i + 1, &format!("/{dir}/… is a path of one machine")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    fn found(text: &str) -> Vec<String> {
        check(PATH, text).into_iter().map(|finding| finding.to_string()).collect()
    }

    fn with_header(rest: &str) -> String {
        format!("//! What it owns.\n{rest}")
    }

    #[test]
    fn a_good_file_passes() {
        let body = "    f();\n".repeat(MAX_FUNCTION_LINES - 2);
        assert_eq!(found(&with_header(&format!("fn a() {{\n{body}}}\n"))), Vec::<String>::new());
    }

    #[test]
    fn a_long_function_fails() {
        let body = "    f();\n".repeat(MAX_FUNCTION_LINES - 1);
        assert_eq!(
            found(&with_header(&format!("fn a() {{\n{body}}}\n"))),
            ["crates/a/src/lib.rs:2: fn a has 71 lines; a function has at most 70"]
        );
    }

    #[test]
    fn a_long_file_fails() {
        let found = found(&with_header(&"\n".repeat(MAX_FILE_LINES)));
        assert_eq!(found, ["crates/a/src/lib.rs:801: 801 lines; a file has at most 800"]);
    }

    #[test]
    fn a_long_map_fails() {
        assert_eq!(check(MAP, &"a\n".repeat(MAX_MAP_LINES)), []);
        assert_eq!(check(MAP, &"a\n".repeat(MAX_MAP_LINES + 1)).len(), 1);
    }

    #[test]
    fn a_long_line_fails_by_characters_not_bytes() {
        let fits = format!("// {}\n", "é".repeat(MAX_COLUMNS - 3));
        assert_eq!(found(&with_header(&fits)), Vec::<String>::new());
        assert_eq!(found(&with_header(&format!("//{}\n", "x".repeat(MAX_COLUMNS - 1)))).len(), 1);
    }

    #[test]
    fn leftovers_fail_in_comments_and_strings() {
        for word in LEFTOVERS {
            assert_eq!(found(&with_header(&format!("// {word}: later\n"))).len(), 1, "{word}");
            assert_eq!(found(&with_header(&format!("const S: &str = \"a {word}\";\n"))).len(), 1, "{word}");
            assert_eq!(found(&with_header(&format!("// {word}S and MY_{word}\n"))).len(), 0, "{word}");
        }
        assert_eq!(check("CONTRIBUTING.md", &format!("No {}.", LEFTOVERS[0])), []);
    }

    #[test]
    fn stubs_fail_in_code_only() {
        for word in STUBS {
            assert_eq!(found(&with_header(&format!("fn f() {{\n {word}!()\n}}\n"))).len(), 1);
            assert_eq!(found(&with_header(&format!("// {word}! is not used here\n"))).len(), 0);
        }
    }

    #[test]
    fn the_header_is_there_and_short() {
        assert_eq!(found("fn a() {}\n").len(), 1);
        assert_eq!(found(&"//! x\n".repeat(MAX_HEADER_LINES)).len(), 0);
        assert_eq!(found(&"//! x\n".repeat(MAX_HEADER_LINES + 1)).len(), 1);
        assert_eq!(check("fuzz/fuzz_targets/a.rs", "#![no_main]\n"), []);
    }

    #[test]
    fn machine_paths_fail_everywhere() {
        for dir in MACHINE_DIRS {
            assert_eq!(check("README.md", &format!("see /{dir}/x")).len(), 1, "{dir}");
        }
        assert_eq!(check("README.md", "see /tmp/x and rootless/ways"), []);
    }
}
