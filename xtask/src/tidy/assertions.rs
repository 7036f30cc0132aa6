//! How many invariants the code states: `assert!`, `assert_eq!`, `assert_ne!` and their `debug_` forms for
//! each thousand lines of production code. Tests and models do not count, neither as lines nor as assertions.
//! The crates that carry state have a floor, which may only rise.

use std::collections::BTreeMap;

use super::Finding;
use super::lexer::{Kind, Token, tokens};

/// The crates that carry state, and how many assertions for each thousand lines they have at least.
const FLOORS: &[(&str, usize)] = &[
    ("cache", 10),
    ("h2", 10),
    ("http", 12),
    ("lua", 10),
    ("offload", 17),
    ("proxy", 10),
    ("runtime", 18),
    ("serve", 10),
    ("server", 10),
    ("tls", 10),
    ("upstream", 40),
    ("zone", 45),
];

const MACROS: [&str; 6] =
    ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// What one crate has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Density {
    /// Lines with code of production.
    lines: usize,
    assertions: usize,
}

impl Density {
    fn per_thousand_lines(self) -> usize {
        self.assertions * 1000 / self.lines.max(1)
    }
}

/// Crates that are below their floor.
pub(crate) fn check(files: &[(String, String)]) -> Vec<Finding> {
    let found = densities(files);
    let mut out = Vec::new();
    for &(name, floor) in FLOORS {
        let Some(density) = found.get(name) else { continue };
        if density.per_thousand_lines() < floor {
            let text = format!(
                "{} assertions in {} lines of code; at least {floor} for each thousand",
                density.assertions, density.lines
            );
            out.push(Finding::new(&format!("crates/{name}"), 1, &text));
        }
    }
    out
}

/// A line for each crate.
pub(crate) fn figures(files: &[(String, String)]) -> Vec<String> {
    let mut lines =
        vec![format!("{:12} {:>7} {:>10} {:>6} {:>6}", "crate", "lines", "assertions", "/1000", "floor")];
    for (name, density) in densities(files) {
        let floor = FLOORS.iter().find(|(held, _)| *held == name).map(|(_, floor)| floor.to_string());
        lines.push(format!(
            "{name:12} {:>7} {:>10} {:>6} {:>6}",
            density.lines,
            density.assertions,
            density.per_thousand_lines(),
            floor.unwrap_or_default()
        ));
    }
    lines
}

fn densities(files: &[(String, String)]) -> BTreeMap<&str, Density> {
    let sources: Vec<_> = files.iter().filter(|(path, _)| crate_of(path).is_some()).collect();
    let lexed: Vec<_> = sources.iter().map(|(path, text)| (path.as_str(), code(text))).collect();
    let tests: Vec<String> = lexed.iter().flat_map(|(path, code)| test_files(path, code)).collect();
    let mut out = BTreeMap::<&str, Density>::new();
    for (path, code) in &lexed {
        let Some(name) = crate_of(path) else { continue };
        if tests.iter().any(|stem| is_of(path, stem)) {
            continue;
        }
        let one = density(&production(code));
        let all = out.entry(name).or_default();
        all.lines += one.lines;
        all.assertions += one.assertions;
    }
    out
}

/// The crate whose source a path is.
fn crate_of(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    (rest.starts_with("src/") && rest.ends_with(".rs")).then_some(name)
}

/// Whether a path is the file of a module, given without its extension, or lies in its folder.
fn is_of(path: &str, stem: &str) -> bool {
    path.strip_prefix(stem).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn code(text: &str) -> Vec<Token<'_>> {
    tokens(text).into_iter().filter(|t| !matches!(t.kind, Kind::Comment(_))).collect()
}

fn density(code: &[Token<'_>]) -> Density {
    let mut lines: Vec<usize> = code.iter().map(|token| token.line).collect();
    lines.dedup();
    let calls = code.windows(2).filter(|pair| match (pair[0].kind, pair[1].kind) {
        (Kind::Word(word), Kind::Punct('!')) => MACROS.contains(&word),
        _ => false,
    });
    Density { lines: lines.len(), assertions: calls.count() }
}

/// The code without the items that only tests and models have.
fn production<'a>(code: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < code.len() {
        match test_attribute(&code[at..]) {
            Some(length) => at += length + item(&code[at + length..]),
            None => {
                out.push(code[at]);
                at += 1;
            }
        }
    }
    out
}

/// The modules with a file of their own that only tests and models have, as paths without their extension.
fn test_files(path: &str, code: &[Token<'_>]) -> Vec<String> {
    let whole = path.strip_suffix(".rs").unwrap_or(path);
    let folder = ["lib", "main", "mod"].iter().find_map(|root| whole.strip_suffix(root)).unwrap_or(whole);
    let folder = folder.trim_end_matches('/');
    let mut out = Vec::new();
    for at in 0..code.len() {
        let Some(length) = test_attribute(&code[at..]) else { continue };
        let item = &code[at + length..];
        let end = item.iter().position(|t| matches!(t.kind, Kind::Punct(';' | '{'))).unwrap_or(0);
        if let [.., module, name] = item[..end]
            && module.kind == Kind::Word("mod")
            && let Kind::Word(name) = name.kind
            && item[end].kind == Kind::Punct(';')
        {
            out.push(format!("{folder}/{name}"));
        }
    }
    out
}

/// How many tokens an attribute is long that begins here and takes its item out of production.
fn test_attribute(code: &[Token<'_>]) -> Option<usize> {
    let opens = [Kind::Punct('#'), Kind::Punct('['), Kind::Word("cfg"), Kind::Punct('(')];
    if code.len() < opens.len() || !code.iter().zip(opens).all(|(token, kind)| token.kind == kind) {
        return None;
    }
    let end = code.iter().position(|token| token.kind == Kind::Punct(']'))?;
    let words = &code[opens.len()..end];
    let has = |name| words.iter().any(|token| token.kind == Kind::Word(name));
    ((has("test") || has("loom")) && !has("not")).then_some(end + 1)
}

/// How many tokens the item is long that begins here: to its semicolon, its comma (a field, a variant) or
/// the end of its body.
fn item(code: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (i, token) in code.iter().enumerate() {
        match token.kind {
            Kind::Punct('(' | '[' | '{') => depth += 1,
            Kind::Punct('}') if depth == 1 => {
                let ends_in_semicolon = code.get(i + 1).is_some_and(|next| next.kind == Kind::Punct(';'));
                return i + 1 + usize::from(ends_in_semicolon);
            }
            Kind::Punct(')' | ']' | '}') if depth == 0 => return i,
            Kind::Punct(')' | ']' | '}') => depth -= 1,
            Kind::Punct(';' | ',') if depth == 0 => return i + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<(String, usize, usize)> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        densities(&files).into_iter().map(|(name, d)| (name.to_owned(), d.lines, d.assertions)).collect()
    }

    #[test]
    fn lines_of_code_and_assertions_are_counted() {
        let source =
            "// assert!(no)\n\nfn f() {\n debug_assert_eq!(\n 1,\n 1); assert!(x);\n \"assert!\";\n}\n";
        assert_eq!(of(&[("crates/a/src/lib.rs", source)]), [("a".to_owned(), 6, 2)]);
    }

    #[test]
    fn tests_and_models_are_not_production() {
        let source = "fn f() {}\n#[cfg(test)]\nmod tests {\n fn t() { assert!(x); }\n}\n\
                      #[cfg(all(test, loom))]\nmod models { fn m() { assert!(x) } }\n\
                      #[cfg(not(loom))]\nfn g() { assert!(x); }\n#[cfg(test)]\nuse a::{b, c};\nfn h() {}\n";
        assert_eq!(of(&[("crates/a/src/lib.rs", source)]), [("a".to_owned(), 4, 1)]);
    }

    #[test]
    fn test_modules_in_files_of_their_own_are_left_out() {
        let bad = "fn t() { assert!(x); }\n";
        let files = [
            ("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/tests.rs", bad),
            ("crates/a/src/b.rs", "#[cfg(test)]\npub(crate) mod samples;\n"),
            ("crates/a/src/b/samples.rs", bad),
            ("crates/a/src/b/samples/more.rs", bad),
            ("crates/a/tests/all.rs", bad),
        ];
        assert_eq!(of(&files), [("a".to_owned(), 1, 0)]);
    }

    #[test]
    fn a_crate_below_its_floor_is_found() {
        let files = [("crates/zone/src/lib.rs".to_owned(), "fn f() {}\n".to_owned())];
        assert_eq!(check(&files).len(), 1);
        let files = [("crates/zone/src/lib.rs".to_owned(), "fn f() { assert!(x) }\n".to_owned())];
        assert_eq!(check(&files), []);
    }

    #[test]
    fn a_density_is_rounded_down() {
        assert_eq!(Density { lines: 1001, assertions: 10 }.per_thousand_lines(), 9);
        assert_eq!(Density::default().per_thousand_lines(), 0);
    }
}
