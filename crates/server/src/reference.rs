//! The index of directives, their entries on the pages of modules, and the reference of variables, as
//! Markdown from the tables that the loader itself uses. Boot only.

use std::collections::BTreeMap;
use std::fmt::Write;

use clearway_conf::{Contexts, Spec};
use clearway_http::{VariableKind, VariableSpec, context};

use crate::core_conf::{EVENTS, MAIN, NO_EFFECT};
use crate::load::tables;
use crate::manual::{PROCESS, page_of};

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

/// The manual's entry of a directive.
pub(crate) struct Entry {
    syntax: &'static str,
    default: &'static str,
    contexts: Contexts,
    doc: &'static str,
    example: &'static str,
    see: &'static [&'static str],
}

/// Where each directive is described: its page.
pub(crate) struct Links(BTreeMap<&'static str, &'static str>);

impl Links {
    pub(crate) fn new() -> Self {
        let (core, http) = tables();
        let mut pages = BTreeMap::new();
        for module in http.modules() {
            pages.extend(module.directives.iter().map(|spec| (spec.name, page_of(module))));
        }
        // Directives of both tables (`include`, `error_log`) are looked for where a file begins.
        pages.extend(core.specs().map(|spec| (spec.name, PROCESS)));
        Self(pages)
    }

    /// The address of a directive's text, for a page in the same directory.
    pub(crate) fn address_from(&self, page: &str, directive: &str) -> String {
        match self.0.get(directive) {
            Some(other) if *other != page => format!("{other}.md#{directive}"),
            _ => format!("#{directive}"),
        }
    }
}

/// The index: all directives, by name, each with its page and its first sentence.
///
/// # Panics
/// Never: writing to memory does not fail.
#[must_use]
pub fn directives() -> String {
    let (core, http) = tables();
    let links = Links::new();
    let mut entries: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
    core.specs().for_each(|spec| add(&mut entries, spec));
    http.table().specs().for_each(|spec| add(&mut entries, spec));
    let mut text = String::from(
        "# Directives\n\nGenerated from the directive tables by `cargo xtask docs`; do not edit.\n\n\
         Each links to its text on the page of its module: syntax, default, contexts and an example.\n\n\
         | directive | page | what it does |\n|---|---|---|\n",
    );
    for (name, entries) in entries {
        let page = links.0.get(name).copied().unwrap_or(PROCESS);
        let what = first_sentence(entries.first().map_or("", |entry| entry.doc)).replace('|', "\\|");
        let what = if NO_EFFECT.iter().any(|entry| entry.directive == name) {
            format!("{what} Accepted without effect.")
        } else {
            what
        };
        writeln!(text, "| [{name}](modules/{page}.md#{name}) | [{page}](modules/{page}.md) | {what} |")
            .expect("writing to a String does not fail");
    }
    text
}

/// Up to the first full stop that ends a sentence.
fn first_sentence(doc: &str) -> &str {
    let doc = doc.lines().next().unwrap_or_default();
    let is_end = |at: &usize| {
        let behind = doc[at + 1..].trim_start();
        behind.is_empty() || doc[at + 1..].starts_with(' ') && behind.starts_with(|c: char| !c.is_lowercase())
    };
    let end = doc.match_indices('.').map(|(at, _)| at).find(is_end);
    end.map_or(doc, |at| &doc[..=at])
}

/// A directive that two tables have with the same text (`include`, `error_log`) is one entry.
pub(crate) fn add<C>(entries: &mut BTreeMap<&'static str, Vec<Entry>>, spec: &Spec<C>) {
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

/// The entry of a directive; `address` says where another one is described.
pub(crate) fn write_entry(
    text: &mut String,
    name: &str,
    entries: &[Entry],
    address: &dyn Fn(&str) -> String,
) -> std::fmt::Result {
    writeln!(text, "\n### {name}")?;
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
            let links: Vec<String> = see.iter().map(|name| format!("[{name}]({})", address(name))).collect();
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

/// A variable's name as it is written, and its text.
pub(crate) fn variable_row(spec: &VariableSpec) -> (String, String) {
    let (family, note) = match spec.kind {
        VariableKind::Exact => ("", ""),
        VariableKind::Changeable => ("", " `set`, `map` and the like may take its place."),
        VariableKind::Assigned(_) => ("", " `set` changes the request itself."),
        VariableKind::Prefix => ("NAME", ""),
    };
    (format!("${}{family}", spec.name), format!("{}{note}", spec.doc).replace('|', "\\|"))
}

/// All variables, by name.
///
/// # Panics
/// Never: writing to memory does not fail.
#[must_use]
pub fn variables() -> String {
    let (_, http) = tables();
    let mut entries = BTreeMap::new();
    for module in http.modules() {
        for spec in module.variables {
            let (name, doc) = variable_row(spec);
            entries.insert(name, (page_of(module), doc));
        }
    }
    let mut text = String::from(
        "# Variables\n\nGenerated from the tables of variables by `cargo xtask docs`; do not edit.\n\n\
         What `set`, `map`, `geo`, `split_clients`, `auth_request_set` and groups of expressions name is a \
         variable as well.\n\n| variable | page | value |\n|---|---|---|\n",
    );
    for (name, (page, doc)) in entries {
        writeln!(text, "| `{name}` | [{page}](modules/{page}.md) | {doc} |")
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
    fn the_reference_marks_what_has_no_effect() {
        let text = crate::manual::modules();
        assert_eq!(text.matches("\n**Accepted without effect**: ").count(), NO_EFFECT.len());
        assert!(text.contains("\n### lock_file\n"));
    }

    #[test]
    fn every_directive_is_in_the_index_with_its_page() {
        let (index, links) = (directives(), Links::new());
        for (name, page) in &links.0 {
            assert!(index.contains(&format!("| [{name}](modules/{page}.md#{name}) |")), "{name}");
        }
        assert!(links.0.len() > 600);
    }

    #[test]
    fn a_sentence_ends_before_the_next_one() {
        for (doc, first) in [
            ("One. Two.", "One."),
            ("Takes `a.b`, e.g. this. Then.", "Takes `a.b`, e.g. this."),
            ("Without end", "Without end"),
            ("First line\nsecond.", "First line"),
        ] {
            assert_eq!(first_sentence(doc), first);
        }
    }
}
