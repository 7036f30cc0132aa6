//! The order inside a crate. Files that import each other in a circle can only be understood together, so a
//! circle has at most [`MAX_CIRCLE_FILES`] of them. A crate that has folders names them in its manifest,
//! lowest first (`folders = ["…", …]` in `[package.metadata.clearway]`), and a folder imports from those
//! before it. What breaks that today stands in `exceptions`, which may only shrink.

use std::collections::BTreeMap;

use super::Finding;
use super::exceptions::{CIRCLES, UPWARD};
use super::imports::{Graph, graph};

const MAX_CIRCLE_FILES: usize = 6;

/// Checks all crates in the files given as (path from the root, text).
pub(crate) fn check(files: &[(String, String)]) -> Vec<Finding> {
    check_with(files, &Exceptions { circles: CIRCLES, upward: UPWARD })
}

/// What is known to be wrong.
struct Exceptions {
    /// Crate, and how many files its largest circle has.
    circles: &'static [(&'static str, usize)],
    /// Crate, the folder that imports, and the one above it that it imports from.
    upward: &'static [(&'static str, &'static str, &'static str)],
}

fn check_with(files: &[(String, String)], exceptions: &Exceptions) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    let mut orders = BTreeMap::new();
    for (path, text) in files {
        let Some((name, rest)) = path.strip_prefix("crates/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        if rest == "Cargo.toml" {
            orders.insert(name, folders(text));
        } else if let Some(file) = rest.strip_prefix("src/").filter(|file| file.ends_with(".rs")) {
            crates.entry(name).or_default().push((file, text));
        }
    }
    let mut out = Vec::new();
    for (name, files) in &crates {
        let graph = graph(files);
        check_circles(name, &graph, exceptions.circles, &mut out);
        let order = orders.get(name).cloned().unwrap_or_default();
        check_folders(name, &graph, &order, exceptions.upward, &mut out);
    }
    out
}

/// The folders that a manifest names, lowest first.
fn folders(manifest: &str) -> Vec<String> {
    let list = manifest.split_once("\nfolders = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map(|(list, _)| list).unwrap_or_default();
    let names = list.split(',').map(|name| name.trim().trim_matches('"').to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

fn check_circles(name: &str, graph: &Graph, known: &[(&str, usize)], out: &mut Vec<Finding>) {
    let at = format!("crates/{name}/src");
    let circles = circles(graph);
    let largest = circles.iter().map(Vec::len).max().unwrap_or(0);
    let allowed = known.iter().find(|(of, _)| of == &name).map_or(MAX_CIRCLE_FILES, |(_, files)| *files);
    for circle in circles.iter().filter(|circle| circle.len() > allowed) {
        let files: Vec<&str> = circle.iter().map(|&file| graph.files[file].as_str()).collect();
        let text = format!(
            "{} files import each other in a circle; at most {allowed}: {}",
            files.len(),
            files.join(", ")
        );
        out.push(Finding::new(&at, 1, &text));
    }
    if allowed > MAX_CIRCLE_FILES && largest < allowed {
        let text = format!(
            "its largest circle has {largest} files now: say so in CIRCLES (tidy/exceptions.rs){}",
            if largest > MAX_CIRCLE_FILES { "" } else { ", which needs it no more" }
        );
        out.push(Finding::new(&at, 1, &text));
    }
}

fn check_folders(
    name: &str,
    graph: &Graph,
    order: &[String],
    known: &[(&str, &str, &str)],
    out: &mut Vec<Finding>,
) {
    let arrows = arrows(graph);
    let rank = |folder: &str| order.iter().position(|other| other == folder);
    let known: Vec<_> = known.iter().filter(|(of, _, _)| of == &name).collect();
    let mut met = Vec::new();
    for ((from, to), [file, other]) in &arrows {
        let at = format!("crates/{name}/src/{file}.rs");
        match (rank(from), rank(to)) {
            (Some(upper), Some(lower)) if lower < upper => {}
            (Some(_), Some(_)) if known.contains(&&(name, from, to)) => met.push((name, *from, *to)),
            (Some(_), Some(_)) => {
                let text = format!(
                    "imports {other}: the folder {to} stands above {from} \
                     (`folders` in crates/{name}/Cargo.toml)"
                );
                out.push(Finding::new(&at, 1, &text));
            }
            (None, _) => out.push(Finding::new(&at, 1, &unnamed(name, from))),
            (_, None) => out.push(Finding::new(&at, 1, &unnamed(name, to))),
        }
    }
    for (_, from, to) in known.iter().filter(|arrow| !met.contains(arrow)) {
        let text =
            format!("{from} imports nothing above it from {to}: take it out of UPWARD (tidy/exceptions.rs)");
        out.push(Finding::new(&format!("crates/{name}/src"), 1, &text));
    }
}

fn unnamed(name: &str, folder: &str) -> String {
    format!("`folders` in crates/{name}/Cargo.toml does not say where {folder} stands")
}

/// Which folder imports from which, with one pair of files as an example. A folder is a module of the crate
/// that has files below it; other files are no folders.
fn arrows(graph: &Graph) -> BTreeMap<(&str, &str), [&str; 2]> {
    let with_files = |folder: &str| graph.files.iter().any(|file| file.starts_with(&format!("{folder}/")));
    let folder_of = |file: usize| {
        let file = graph.files[file].as_str();
        let folder = file.split('/').next().unwrap_or(file);
        Some(folder).filter(|folder| with_files(folder))
    };
    let mut out = BTreeMap::new();
    for (file, imports) in graph.imports.iter().enumerate() {
        for &other in imports {
            if let (Some(from), Some(to)) = (folder_of(file), folder_of(other))
                && from != to
            {
                let example = [graph.files[file].as_str(), graph.files[other].as_str()];
                out.entry((from, to)).or_insert(example);
            }
        }
    }
    out
}

/// The sets of more than one file in which each can be reached from each.
fn circles(graph: &Graph) -> Vec<Vec<usize>> {
    let reach: Vec<Vec<bool>> = (0..graph.files.len()).map(|file| reached(graph, file)).collect();
    let mut out: Vec<Vec<usize>> = Vec::new();
    for (file, reached) in reach.iter().enumerate() {
        if reached[file] && !out.iter().any(|circle| circle.contains(&file)) {
            let from_each = reach.iter().map(|reached| reached[file]);
            let both = reached.iter().zip(from_each).map(|(&to, from)| to && from);
            out.push(both.enumerate().filter_map(|(other, is_in)| is_in.then_some(other)).collect());
        }
    }
    out
}

fn reached(graph: &Graph, from: usize) -> Vec<bool> {
    let mut seen = vec![false; graph.files.len()];
    let mut left: Vec<usize> = graph.imports[from].iter().copied().collect();
    while let Some(file) = left.pop() {
        if !std::mem::replace(&mut seen[file], true) {
            left.extend(&graph.imports[file]);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Exceptions = Exceptions { circles: &[], upward: &[] };

    fn source(path: &str, text: &str) -> (String, String) {
        (format!("crates/a/{path}"), text.to_owned())
    }

    fn found(files: &[(String, String)], exceptions: &Exceptions) -> Vec<String> {
        check_with(files, exceptions).iter().map(ToString::to_string).collect()
    }

    /// Files that import each the next, and the last one the first.
    fn ring(files: usize) -> Vec<(String, String)> {
        (0..files)
            .map(|i| (i, (i + 1) % files))
            .map(|(i, next)| source(&format!("src/f{i}.rs"), &format!("use crate::f{next}::X{next};")))
            .collect()
    }

    #[test]
    fn a_circle_has_an_end() {
        assert_eq!(found(&ring(MAX_CIRCLE_FILES), &NONE), Vec::<String>::new());
        let large = ring(MAX_CIRCLE_FILES + 1);
        assert_eq!(
            found(&large, &NONE),
            ["crates/a/src:1: 7 files import each other in a circle; at most 6: f0, f1, f2, f3, f4, f5, f6"]
        );
        let mut chain = large.clone();
        chain.pop();
        assert_eq!(found(&chain, &NONE), Vec::<String>::new(), "a chain is no circle");
    }

    #[test]
    fn what_is_known_may_only_shrink() {
        let known = |files| Exceptions { circles: Box::leak(Box::new([("a", files)])), upward: &[] };
        assert_eq!(found(&ring(8), &known(8)), Vec::<String>::new());
        assert_eq!(found(&ring(9), &known(8)).len(), 1, "it has grown");
        assert!(found(&ring(7), &known(8))[0].contains("7 files now"));
        assert!(found(&ring(2), &known(8))[0].contains("needs it no more"));
    }

    fn folders_of(order: &str) -> Vec<(String, String)> {
        vec![
            source("Cargo.toml", &format!("[package.metadata.clearway]\nlayer = 1\nfolders = [{order}]\n")),
            source("src/low/x.rs", "use std::io;"),
            source("src/low.rs", "mod x;"),
            source("src/high/y.rs", "use crate::low::x::X;"),
            source("src/high.rs", "mod y;"),
            source("src/alone.rs", "use crate::high;"),
        ]
    }

    #[test]
    fn a_folder_imports_from_those_before_it() {
        assert_eq!(found(&folders_of("\"low\", \"high\""), &NONE), Vec::<String>::new());
        let upward =
            ["crates/a/src/high/y.rs:1: imports low/x: the folder low stands above high (`folders` in \
             crates/a/Cargo.toml)"];
        assert_eq!(found(&folders_of("\n    \"high\",\n    \"low\",\n"), &NONE), upward);
        assert!(found(&folders_of("\"low\""), &NONE)[0].contains("does not say where high stands"));
    }

    #[test]
    fn known_arrows_stand_as_long_as_they_are_there() {
        let known = Exceptions { circles: &[], upward: &[("a", "high", "low")] };
        assert_eq!(found(&folders_of("\"high\", \"low\""), &known), Vec::<String>::new());
        let mut files = folders_of("\"high\", \"low\"");
        files[3].1 = "use std::io;".to_owned();
        assert!(found(&files, &known)[0].contains("take it out"));
        let mended = folders_of("\"low\", \"high\"");
        assert!(found(&mended, &known)[0].contains("take it out"), "it is not upward any more");
    }
}
