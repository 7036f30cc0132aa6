//! The pages of the manual about modules: which tables stand on which page, and what the tables say there.
//! The part of a page above [`MARK`] is written by hand; `cargo xtask docs` puts this part below it. Boot
//! only.

use std::collections::BTreeMap;
use std::fmt::Write;

use clearway_conf::Spec;
use clearway_http::Module;

use crate::load::tables;
use crate::metrics;
use crate::reference::{Entry, Links, add, variable_row, write_entry};

/// The line between a page's own text and the generated part.
pub const MARK: &str = "<!-- Below: generated from the tables by `cargo xtask docs`; do not edit. -->";

/// A page, and the modules whose tables stand on it.
struct Page {
    /// Its file in `docs/modules`, without `.md`.
    name: &'static str,
    modules: &'static [&'static str],
    /// Groups of what the process counts.
    metrics: &'static [&'static str],
}

const fn page(name: &'static str, modules: &'static [&'static str]) -> Page {
    Page { name, modules, metrics: &[] }
}

/// Pages that have more than one module on them, or whose name is another one. Each other module with
/// anything in its tables has the page of its own name.
const PAGES: &[Page] = &[
    Page {
        name: PROCESS,
        modules: &[],
        metrics: &["The process", "Connections", "Loops and hand-over", "Thread pools and files", "Logs"],
    },
    page(
        "core",
        &[
            "core",
            "core access",
            "core subrequests",
            "client body",
            "core early bodies",
            "head",
            "requests",
            "sending",
            "proxy_protocol",
            "resolver",
        ],
    ),
    page("files", &["files", "disable_symlinks", "open_file_cache", "realpath", "static", "index"]),
    page("random_index", &["random index"]),
    page("gzip", &["gzip", "gzip_acceptance"]),
    page("http2", &["http2", "http2_settings"]),
    page("ssl", &["ssl"]),
    Page { name: "proxy", modules: &["proxy", "proxy_ssl"], metrics: &["Caches"] },
    page("uwsgi", &["uwsgi", "uwsgi_ssl"]),
    Page {
        name: "upstream",
        modules: &["upstream", "upstream_balancers", "upstream_keepalive", "upstream_sticky", "upstream_api"],
        metrics: &["Upstream servers"],
    },
    page("upstream_check", &["upstream_hc"]),
    page(
        "lua",
        &[
            "lua",
            "lua_filter",
            "lua_early",
            "lua_net",
            "lua_balancer",
            "lua_tls",
            "lua_handshake",
            "lua_upstream_handshake",
            "lua_upstream_verify",
        ],
    ),
];

/// The page of what stands outside of `http`.
pub(crate) const PROCESS: &str = "process";

/// The page of a module.
pub(crate) fn page_of(module: &Module) -> &'static str {
    let page = PAGES.iter().find(|page| page.modules.contains(&module.name));
    page.map_or(module.name, |page| page.name)
}

/// The contents of a page, in the order of the tables.
#[derive(Default)]
struct Content {
    directives: BTreeMap<&'static str, Vec<Entry>>,
    modules: Vec<&'static Module>,
}

/// All pages, by name, with what the tables say: each begins with a form feed and its name.
///
/// # Panics
/// Never: writing to memory does not fail.
#[must_use]
pub fn modules() -> String {
    let mut text = String::new();
    let links = Links::new();
    for (name, content) in contents() {
        write!(text, "\x0c{name}\n{MARK}\n").expect("writing to a String does not fail");
        write_page(&mut text, name, &content, &links).expect("writing to a String does not fail");
    }
    text
}

fn contents() -> BTreeMap<&'static str, Content> {
    let (core, http) = tables();
    let mut pages: BTreeMap<&'static str, Content> = BTreeMap::new();
    let process = pages.entry(PROCESS).or_default();
    core.specs().for_each(|spec: &Spec<_>| add(&mut process.directives, spec));
    for module in http.modules().iter().filter(|module| is_for_users(module)) {
        let page = pages.entry(page_of(module)).or_default();
        module.directives.iter().for_each(|spec| add(&mut page.directives, spec));
        page.modules.push(module);
    }
    pages
}

/// Whether a reader of the manual meets the module by name: the testing build has one more.
fn is_for_users(module: &Module) -> bool {
    let tables = module.directives.len() + module.variables.len() + module.metrics.len();
    tables > 0 && module.name != "testing"
}

fn write_page(text: &mut String, name: &str, content: &Content, links: &Links) -> std::fmt::Result {
    if !content.directives.is_empty() {
        writeln!(text, "\n## Directives")?;
    }
    for (directive, entries) in &content.directives {
        write_entry(text, directive, entries, &|other| links.address_from(name, other))?;
    }
    let mut variables = content.modules.iter().flat_map(|module| module.variables).peekable();
    if variables.peek().is_some() {
        writeln!(text, "\n## Variables\n\n| variable | value |\n|---|---|")?;
        let rows: BTreeMap<String, String> = variables.map(variable_row).collect();
        for (variable, value) in rows {
            writeln!(text, "| `{variable}` | {value} |")?;
        }
    }
    let groups = PAGES.iter().find(|page| page.name == name).map_or(&[][..], |page| page.metrics);
    let rows = metrics::rows(groups, &content.modules);
    if !rows.is_empty() {
        writeln!(text, "\n## Metrics\n\nAs [`status`](status.md) shows them.\n")?;
        writeln!(text, "| metric | kind | what it counts |\n|---|---|---|\n{}", rows.join("\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn pages_name_modules_that_are_there_and_each_once() {
        let (_, http) = tables();
        let known: BTreeSet<&str> = http.modules().iter().map(|module| module.name).collect();
        let mut seen = BTreeSet::new();
        for name in PAGES.iter().flat_map(|page| page.modules) {
            let is_tls = name.contains("ssl") || name.contains("tls") || name.contains("handshake");
            assert!(known.contains(name) || is_tls || name.contains("verify"), "no module {name}");
            assert!(seen.insert(name), "{name} stands on two pages");
        }
    }

    #[test]
    fn every_group_of_metrics_is_on_a_page() {
        let named: Vec<&str> = PAGES.iter().flat_map(|page| page.metrics).copied().collect();
        for group in metrics::GROUPS {
            assert!(named.contains(&group.title), "{:?} is on no page", group.title);
        }
        assert_eq!(named.len(), metrics::GROUPS.len());
    }

    #[test]
    fn a_page_has_what_its_tables_have() {
        let text = modules();
        let page = text.split('\x0c').find(|page| page.starts_with("limit_req\n")).expect("it has a page");
        for part in
            ["\n### limit_req_zone\n", "| `$limit_req_status` |", "| `clearway_limit_req_passed_total` |"]
        {
            assert!(page.contains(part), "{part}");
        }
    }
}
