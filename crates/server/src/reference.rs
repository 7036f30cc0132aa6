//! The references of directives and variables as Markdown, from the tables that the loader itself uses.

use std::collections::BTreeMap;
use std::fmt::Write;

use clearway_conf::{Contexts, Spec};
use clearway_http::{VariableKind, context};

use crate::core_conf::{EVENTS, MAIN, NO_EFFECT};
use crate::load::tables;

const CONTEXTS: [(Contexts, &str); 8] = [
    (MAIN, "main"),
    (EVENTS, "events"),
    (context::HTTP, "http"),
    (context::SERVER, "server"),
    (context::LOCATION, "location"),
    (context::SERVER_IF, "if in server"),
    (context::LOCATION_IF, "if in location"),
    (context::LIMIT_EXCEPT, "limit_except"),
];

struct Entry {
    syntax: &'static str,
    default: &'static str,
    contexts: Contexts,
    doc: &'static str,
    example: &'static str,
    see: &'static [&'static str],
}

/// All directives, by name.
#[must_use]
pub fn directives() -> String {
    let (core, http) = tables();
    let mut entries: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
    core.specs().for_each(|spec| add(&mut entries, spec));
    http.table().specs().for_each(|spec| add(&mut entries, spec));
    let mut text = String::from(
        "# Directives\n\nGenerated from the directive tables by `cargo xtask docs`; do not edit.\n",
    );
    for (name, entries) in entries {
        write_entry(&mut text, name, &entries).expect("writing to a String does not fail");
    }
    text
}

/// A directive that two tables have with the same text (`include`, `error_log`) is one entry.
fn add<C>(entries: &mut BTreeMap<&'static str, Vec<Entry>>, spec: &Spec<C>) {
    let of_name = entries.entry(spec.name).or_default();
    match of_name.iter_mut().find(|entry| entry.doc == spec.doc) {
        Some(entry) => entry.contexts = entry.contexts.or(spec.contexts),
        None => of_name.push(Entry {
            syntax: spec.syntax,
            default: spec.default,
            contexts: spec.contexts,
            doc: spec.doc,
            example: spec.example,
            see: spec.see,
        }),
    }
}

fn write_entry(text: &mut String, name: &str, entries: &[Entry]) -> std::fmt::Result {
    writeln!(text, "\n## {name}")?;
    let no_effect = NO_EFFECT.iter().find(|entry| entry.directive == name);
    for Entry { syntax, default, contexts, doc, example, see } in entries {
        let syntax: Vec<String> = syntax.lines().map(|line| format!("`{line};`")).collect();
        let names: Vec<&str> =
            CONTEXTS.iter().filter(|(context, _)| contexts.meets(*context)).map(|(_, name)| *name).collect();
        let default = default.trim_end_matches(';');
        let default = if default.is_empty() { "none".to_owned() } else { format!("`{default};`") };
        let contexts = if *contexts == Contexts::ANY { "any".to_owned() } else { names.join(", ") };
        writeln!(
            text,
            "\n* Syntax: {}\n* Default: {default}\n* Context: {contexts}\n\n{doc}",
            syntax.join(", ")
        )?;
        if let Some(entry) = no_effect {
            writeln!(text, "\n**Accepted without effect**: {}.", entry.reason)?;
        }
        write_example(text, example)?;
        if !see.is_empty() {
            let links: Vec<String> = see.iter().map(|name| format!("[{name}](#{name})")).collect();
            writeln!(text, "\nSee also: {}.", links.join(", "))?;
        }
    }
    Ok(())
}

/// As a block of code, with the indentation that all of its lines have in common taken away.
fn write_example(text: &mut String, example: &str) -> std::fmt::Result {
    let lines = || example.lines().skip_while(|line| line.trim().is_empty());
    let indents = lines().filter(|line| !line.trim().is_empty());
    let indent = indents.map(|line| line.len() - line.trim_start().len()).min().unwrap_or_default();
    for (at, line) in lines().enumerate() {
        let gap = if at == 0 { "\n" } else { "" };
        let line = line.get(indent..).unwrap_or_default();
        writeln!(text, "{gap}{}{line}", if line.is_empty() { "" } else { "    " })?;
    }
    Ok(())
}

/// All variables, by name.
#[must_use]
pub fn variables() -> String {
    let (_, http) = tables();
    let mut entries = BTreeMap::new();
    for module in http.modules() {
        for spec in module.variables {
            let (family, note) = match spec.kind {
                VariableKind::Exact => ("", ""),
                VariableKind::Changeable => ("", " `set`, `map` and the like may take its place."),
                VariableKind::Assigned(_) => ("", " `set` changes the request itself."),
                VariableKind::Prefix => ("NAME", ""),
            };
            let text = format!("{}{note} (module `{}`)", spec.doc, module.name);
            entries.insert(format!("${}{family}", spec.name), text);
        }
    }
    let mut text = String::from(
        "# Variables\n\nGenerated from the tables of variables by `cargo xtask docs`; do not edit.\n\n\
         What `set`, `map`, `geo`, `split_clients`, `auth_request_set` and groups of expressions name is a \
         variable as well.\n\n| variable | value |\n|---|---|\n",
    );
    for (name, doc) in entries {
        writeln!(text, "| `{name}` | {} |", doc.replace('|', "\\|"))
            .expect("writing to a String does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_directive_stands_twice_for_a_context() {
        let (core, http) = tables();
        assert_eq!(core.ambiguous_names(), [""; 0]);
        assert_eq!(http.table().ambiguous_names(), [""; 0]);
    }

    #[test]
    fn the_map_lists_what_has_no_effect() {
        let map = include_str!("../../../ARCHITECTURE.md");
        let section = map.split("\n## Accepted without effect\n").nth(1).expect("the section is there");
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
        let wanted = NO_EFFECT.iter().map(|entry| format!("| `{}` | {} |", entry.directive, entry.reason));
        assert_eq!(rows, wanted.collect::<Vec<_>>());
    }

    #[test]
    fn the_reference_marks_what_has_no_effect() {
        let text = directives();
        assert_eq!(text.matches("\n**Accepted without effect**: ").count(), NO_EFFECT.len());
        assert!(text.contains("\n## lock_file\n"));
    }
}
