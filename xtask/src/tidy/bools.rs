//! State is an enum: a function takes no `bool`, as nobody can tell at its call what `true` means, and a
//! struct has at most two of them. Tests, and what stands under `#[cfg(test)]`, are left out. What breaks the
//! rule today stands in `exceptions`, which may only shrink.

use super::Finding;
use super::exceptions::BOOLS;
use super::imports::without_tests;
use super::lexer::{Kind, Token, tokens};

const MAX_STRUCT_BOOLS: usize = 2;

/// Checks the crates in the files given as (path from the root, text).
pub(crate) fn check(files: &[(String, String)]) -> Vec<Finding> {
    check_with(files, BOOLS)
}

/// `known` are file and name of what is known to be wrong.
fn check_with(files: &[(String, String)], known: &[(&str, &str)]) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut met = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| is_production(path)) {
        let all = tokens(text);
        for (name, line, message) in broken(&without_tests(&all)) {
            match known.iter().find(|known| **known == (path.as_str(), name)) {
                Some(known) => met.push(known),
                None => out.push(Finding::new(path, line, &message)),
            }
        }
    }
    for (path, name) in known.iter().filter(|known| !met.contains(known)) {
        out.push(Finding::new(
            path,
            1,
            &format!("{name} is mended: take it out of BOOLS (tidy/exceptions.rs)"),
        ));
    }
    out
}

fn is_production(path: &str) -> bool {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/testing");
    path.starts_with("crates/")
        && path.contains("/src/")
        && path.ends_with(".rs")
        && !path.starts_with("crates/testkit/")
        && !is_test
}

/// Functions and structs with too many: the name, the line and what is wrong.
fn broken<'a>(code: &[Token<'a>]) -> Vec<(&'a str, usize, String)> {
    let mut out = Vec::new();
    for (at, token) in code.iter().enumerate() {
        let Kind::Word(keyword @ ("fn" | "struct")) = token.kind else { continue };
        let Some(Kind::Word(name)) = code.get(at + 1).map(|token| token.kind) else { continue };
        let open = if keyword == "fn" { '(' } else { '{' };
        let bools = bools_within(&code[at + 2..], open);
        if keyword == "fn" && bools > 0 {
            out.push((name, token.line, format!("fn {name} takes a bool: say what it means by an enum")));
        } else if keyword == "struct" && bools > MAX_STRUCT_BOOLS {
            let text = format!("struct {name} has {bools} bools; at most {MAX_STRUCT_BOOLS}");
            out.push((name, token.line, text));
        }
    }
    out
}

/// How many names of type `bool` stand directly within the first brackets of this kind, if they come before
/// anything that ends the declaration.
fn bools_within(code: &[Token<'_>], open: char) -> usize {
    let (mut depth, mut angles, mut count, mut begun) = (0_usize, 0_usize, 0, false);
    for (at, token) in code.iter().enumerate() {
        match token.kind {
            Kind::Punct(bracket @ ('(' | '{' | '[')) => {
                if !begun && angles == 0 && bracket == open {
                    (begun, depth) = (true, 0);
                } else if !begun && bracket == '{' {
                    return 0;
                } else {
                    depth += 1;
                }
            }
            Kind::Punct(')' | '}' | ']') if begun && depth == 0 => return count,
            Kind::Punct(')' | '}' | ']') => depth = depth.saturating_sub(1),
            Kind::Punct('<') if !begun => angles += 1,
            Kind::Punct('>') if !begun => angles = angles.saturating_sub(1),
            Kind::Punct(';') if !begun && depth == 0 => return 0,
            Kind::Word("bool") if begun && depth == 0 => {
                let is_type = matches!(at.checked_sub(1).map(|at| code[at].kind), Some(Kind::Punct(':')));
                let ends =
                    matches!(code.get(at + 1).map(|token| token.kind), Some(Kind::Punct(',' | ')' | '}')));
                count += usize::from(is_type && ends);
            }
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, known: &[(&str, &str)]) -> Vec<String> {
        let files = [("crates/a/src/x.rs".to_owned(), text.to_owned())];
        check_with(&files, known).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn parameters_are_no_bools() {
        let good = "fn a(x: fn(bool) -> bool, y: &[bool], z: Option<bool>) { let b: bool = true; }\n\
                    struct S { a: bool, b: bool }\nstruct T(bool, bool, bool);\nfn g<F: Fn(bool)>(f: F) {}\n";
        assert_eq!(found(good, &[]), Vec::<String>::new());
        assert_eq!(
            found("\nfn a<T: Into<u8>>(x: u8, is_y: bool) {}\n", &[]),
            ["crates/a/src/x.rs:2: fn a takes a bool: say what it means by an enum"]
        );
        assert_eq!(found("trait T { fn a(&self, b: bool); }", &[]).len(), 1);
    }

    #[test]
    fn a_struct_has_two() {
        let three = "pub struct S<T> { a: bool, b: T, c: bool, d: bool }";
        assert_eq!(found(three, &[]), ["crates/a/src/x.rs:1: struct S has 3 bools; at most 2"]);
    }

    #[test]
    fn tests_take_what_they_like() {
        assert_eq!(found("#[cfg(test)] mod tests { fn a(b: bool) {} }", &[]), Vec::<String>::new());
        let files = [("crates/a/tests/x.rs".to_owned(), "fn a(b: bool) {}".to_owned())];
        assert_eq!(check_with(&files, &[]), []);
    }

    #[test]
    fn what_is_known_may_only_shrink() {
        let known = [("crates/a/src/x.rs", "a")];
        assert_eq!(found("fn a(b: bool) {}", &known), Vec::<String>::new());
        assert!(found("fn a(b: u8) {}", &known)[0].contains("is mended"));
    }
}
