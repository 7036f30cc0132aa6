//! Which files of a crate import which: paths that begin with `crate`, `super`, `self` or the name of a child
//! module, in `use` and elsewhere, followed through re-exports to the file that defines the name. What stands
//! under `#[cfg(test)]`, and files of tests, are left out; so are a crate's re-exports themselves.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::{Kind, Token, tokens};

/// The files of one crate, and for each the files that it imports from.
pub(crate) struct Graph {
    /// Paths below `src`, without `.rs`.
    pub(crate) files: Vec<String>,
    /// By number of file.
    pub(crate) imports: Vec<BTreeSet<usize>>,
}

/// Segments of a path from the root of its crate.
type Segments = Vec<String>;

/// What is to be known of a file.
struct SourceFile {
    module: Segments,
    /// What its code names, from the root of the crate.
    paths: BTreeSet<Segments>,
    /// What others can name through it: the name here, and where it comes from.
    exports: BTreeMap<String, Segments>,
}

/// Reads the files of a crate, given as (path below `src`, text).
pub(crate) fn graph(files: &[(&str, &str)]) -> Graph {
    let files: Vec<_> = files.iter().filter(|(path, _)| !is_of_tests(path)).collect();
    let modules: Vec<Segments> = files.iter().map(|(path, _)| module_of(path)).collect();
    let known: BTreeMap<&Segments, usize> = modules.iter().zip(0..).collect();
    let sources: Vec<SourceFile> =
        files.iter().zip(&modules).map(|((_, text), module)| read(text, module, &known)).collect();
    let imports = sources
        .iter()
        .enumerate()
        .map(|(number, source)| {
            let found = source.paths.iter().filter_map(|path| resolve(path.clone(), &sources, &known));
            found.filter(|&other| other != number).collect()
        })
        .collect();
    Graph { files: files.iter().map(|(path, _)| path.trim_end_matches(".rs").to_owned()).collect(), imports }
}

fn is_of_tests(path: &str) -> bool {
    path == "tests.rs"
        || path.ends_with("/tests.rs")
        || path.starts_with("tests/")
        || path.contains("/tests/")
}

fn module_of(path: &str) -> Segments {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if ["lib", "main"].contains(&path) {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

/// The file that defines what a path names: the longest part of it that is a module, unless that module has
/// the next name from elsewhere.
fn resolve(mut path: Segments, sources: &[SourceFile], known: &BTreeMap<&Segments, usize>) -> Option<usize> {
    // Re-exports of re-exports end; a circle of them would not compile.
    for _ in 0..8 {
        let cut = (0..=path.len()).rev().find(|&len| known.contains_key(&path[..len].to_vec()))?;
        let file = known[&path[..cut].to_vec()];
        let Some(name) = path.get(cut) else { return Some(file) };
        let exports = &sources[file].exports;
        let Some(origin) = exports.get(name) else { return Some(file) };
        path = origin.iter().chain(&path[cut + 1..]).cloned().collect();
    }
    None
}

fn read(text: &str, module: &Segments, known: &BTreeMap<&Segments, usize>) -> SourceFile {
    let all = tokens(text);
    let code: Vec<Kind<'_>> = without_tests(&all).iter().map(|token| token.kind).collect();
    let mut source = SourceFile { module: module.clone(), paths: BTreeSet::new(), exports: BTreeMap::new() };
    let mut at = 0;
    let mut reexported = Vec::new();
    while at < code.len() {
        let before = at.checked_sub(1).map(|at| code[at]);
        if let Kind::Word("use") = code[at] {
            let is_public = matches!(before, Some(Kind::Word("pub") | Kind::Punct(')')));
            at = source.read_use(&code, at + 1, is_public, known, &mut reexported);
        } else if let Some((path, end)) = source.path_at(&code, at, known) {
            source.paths.insert(path);
            at = end;
        } else {
            at += 1;
        }
    }
    source.count_used(&code, reexported);
    source
}

/// The tokens without comments, and without what follows `#[cfg(test)]` or `#[cfg(all(test, …))]`.
pub(crate) fn without_tests<'a>(all: &[Token<'a>]) -> Vec<Token<'a>> {
    let code: Vec<Token<'a>> =
        all.iter().filter(|token| !matches!(token.kind, Kind::Comment(_))).copied().collect();
    let (mut out, mut at) = (Vec::with_capacity(code.len()), 0);
    while at < code.len() {
        if let Some(length) = test_attribute(&code[at..]) {
            at = item_end(&code, at + length);
        } else {
            out.push(code[at]);
            at += 1;
        }
    }
    out
}

/// How many tokens the attribute has that `code` begins with, if it is one of tests.
fn test_attribute(code: &[Token<'_>]) -> Option<usize> {
    const CFG: [Kind<'_>; 4] = [Kind::Punct('#'), Kind::Punct('['), Kind::Word("cfg"), Kind::Punct('(')];
    const ALL: [Kind<'_>; 2] = [Kind::Word("all"), Kind::Punct('(')];
    let begins = |at: usize, with: &[Kind<'_>]| {
        code.iter().skip(at).map(|token| token.kind).take(with.len()).eq(with.iter().copied())
    };
    if !begins(0, &CFG) {
        return None;
    }
    let at = if begins(CFG.len(), &ALL) { CFG.len() + ALL.len() } else { CFG.len() };
    if !begins(at, &[Kind::Word("test")]) {
        return None;
    }
    code.iter().position(|token| token.kind == Kind::Punct(']')).map(|end| end + 1)
}

/// Where the item that begins at `at` ends: behind its block, or its semicolon.
fn item_end(code: &[Token<'_>], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < code.len() {
        match code[at].kind {
            Kind::Punct('{' | '(' | '[') => depth += 1,
            Kind::Punct(close @ ('}' | ')' | ']')) => {
                depth = depth.saturating_sub(1);
                if depth == 0 && close == '}' {
                    return at + 1;
                }
            }
            Kind::Punct(';') if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

impl SourceFile {
    /// Reads a `use` from behind that word, and says where it ends.
    fn read_use(
        &mut self,
        code: &[Kind<'_>],
        at: usize,
        is_public: bool,
        known: &BTreeMap<&Segments, usize>,
        reexported: &mut Vec<(String, Segments)>,
    ) -> usize {
        let mut found = Vec::new();
        let end = use_tree(code, at, &[], &mut found);
        for (path, name) in found {
            let Some(path) = self.absolute(&path, known) else { continue };
            // Others name it where it comes from, or through here.
            self.exports.insert(name.clone(), path.clone());
            if is_public {
                reexported.push((name, path));
            } else {
                self.paths.insert(path);
            }
        }
        end
    }

    /// A re-export is an import where the file uses the name itself.
    fn count_used(&mut self, code: &[Kind<'_>], reexported: Vec<(String, Segments)>) {
        for (name, path) in reexported {
            if code.iter().filter(|kind| **kind == Kind::Word(&name)).count() > 1 {
                self.paths.insert(path);
            }
        }
    }

    /// A path at this place of the code, not of a `use`, and where it ends.
    fn path_at(
        &self,
        code: &[Kind<'_>],
        at: usize,
        known: &BTreeMap<&Segments, usize>,
    ) -> Option<(Segments, usize)> {
        let Kind::Word(_) = code[at] else { return None };
        if at >= 2 && code[at - 2..at] == [Kind::Punct(':'); 2] {
            return None;
        }
        let (mut path, mut end) = (Vec::new(), at);
        while let Some(Kind::Word(word)) = code.get(end) {
            path.push((*word).to_owned());
            end += 1;
            if code.get(end..end + 2) != Some(&[Kind::Punct(':'); 2]) {
                break;
            }
            end += 2;
        }
        let path = if path.len() > 1 { self.absolute(&path, known)? } else { return None };
        Some((path, end))
    }

    /// A path as seen from here, from the root of the crate; `None` for what is of another crate.
    fn absolute(&self, path: &[String], known: &BTreeMap<&Segments, usize>) -> Option<Segments> {
        let (mut base, mut rest) = (self.module.clone(), path);
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            child => {
                base.push(child.to_owned());
                known.get(&base)?;
                rest = &rest[1..];
            }
        }
        Some(base.into_iter().chain(rest.iter().cloned()).collect())
    }
}

/// Collects what a tree of `use` names: each path, and the name that it has from then on.
fn use_tree(code: &[Kind<'_>], mut at: usize, prefix: &[String], out: &mut Vec<(Segments, String)>) -> usize {
    let mut path = prefix.to_vec();
    while at < code.len() {
        match code[at] {
            Kind::Word("as") => {
                if let Some(Kind::Word(name)) = code.get(at + 1) {
                    out.push((std::mem::take(&mut path), (*name).to_owned()));
                }
                at += 2;
            }
            Kind::Word(word) => {
                path.push(word.to_owned());
                at += 1;
            }
            Kind::Punct('{') => {
                at += 1;
                while at < code.len() && code[at] != Kind::Punct('}') {
                    at = use_tree(code, at, &path, out);
                    if code.get(at) == Some(&Kind::Punct(',')) {
                        at += 1;
                    }
                }
                path.clear();
                at += 1;
            }
            Kind::Punct(':' | '*') => at += 1,
            _ => break,
        }
    }
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(name) = path.last().cloned() {
        out.push((path, name));
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph(files);
        let name = |number: usize| graph.files[number].clone();
        let of = |(from, to): (usize, &BTreeSet<usize>)| {
            to.iter().map(|&to| format!("{} > {}", name(from), name(to))).collect::<Vec<_>>()
        };
        graph.imports.iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn paths_lead_to_files() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::c::Item;"),
            ("a.rs", "use crate::b::c::{Thing, self as other}; use std::io;"),
            ("b.rs", "pub mod c; fn f() { c::g(); crate::a::h() }"),
            ("b/c.rs", "use super::f; const X: u8 = 1;"),
        ];
        assert_eq!(edges(&files), ["a > b/c", "b > a", "b > b/c", "b/c > b"]);
    }

    #[test]
    fn re_exports_are_followed_and_are_no_imports() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::c::Item;"),
            ("a.rs", "use crate::Item; use crate::b::Short;"),
            ("b/mod.rs", "pub mod c; pub(crate) use c::Long as Short; pub use c::Own; fn f(own: Own) {}"),
            ("b/c.rs", "fn f() { let x = super::super::a::y(); }"),
        ];
        assert_eq!(edges(&files), ["a > b/c", "b/mod > b/c", "b/c > a"]);
    }

    #[test]
    fn tests_import_what_they_like() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
            ("tests.rs", "use crate::a;"),
            (
                "a.rs",
                "fn f() {} #[cfg(test)] mod tests { use crate::b; fn g() {} } #[cfg(test)] use crate::b; \
                 #[cfg(all(test, not(loom)))] mod more { use crate::b; }",
            ),
            ("b.rs", "// crate::a::x\nconst A: &str = \"crate::a::x\"; use crate::a;"),
        ];
        assert_eq!(edges(&files), ["b > a"]);
    }
}
