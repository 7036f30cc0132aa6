//! The architecture as a number per crate: `[package.metadata.clearway] layer = N` in its manifest. A
//! dependency between crates of the workspace must point to a strictly lower layer. The tools (xtask,
//! bench, tests, fuzz) stand outside; `testkit` may be a dev-dependency of every crate, and a crate one of
//! another of its layer.

use std::collections::BTreeMap;

use super::Finding;

const OUTSIDE: [&str; 4] = ["xtask/", "bench/", "tests/", "fuzz/"];
const TEST_SUPPORT: &str = "clearway-testkit";

/// What the check needs of one `Cargo.toml`.
struct Manifest {
    path: String,
    package: String,
    layer: Option<u32>,
    /// Every quoted or bare word in its sections of dependencies.
    mentions: Vec<Mention>,
}

struct Mention {
    line: usize,
    word: String,
    kind: Section,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Package,
    Layer,
    Dependencies,
    DevDependencies,
    Other,
}

/// Checks the manifests given as (path, text).
pub(crate) fn check(manifests: &[(String, String)]) -> Vec<Finding> {
    let crates: Vec<Manifest> = manifests
        .iter()
        .filter(|(path, _)| path.contains('/') && !OUTSIDE.iter().any(|dir| path.starts_with(dir)))
        .map(|(path, text)| parse(path, text))
        .collect();
    let layers: BTreeMap<&str, Option<u32>> = crates.iter().map(|c| (c.package.as_str(), c.layer)).collect();
    let mut out = Vec::new();
    for one in &crates {
        let Some(layer) = one.layer else {
            out.push(Finding::new(&one.path, 1, "no layer number in [package.metadata.clearway]"));
            continue;
        };
        for mention in &one.mentions {
            let Some(other) = layers.get(mention.word.as_str()) else { continue };
            if mention.kind == Section::DevDependencies && mention.word == TEST_SUPPORT {
                continue;
            }
            // A crate's tests may run it beside another one of its layer.
            let is_upward = |other: u32| match mention.kind {
                Section::DevDependencies => other > layer,
                _ => other >= layer,
            };
            if other.is_none_or(is_upward) {
                let text = format!(
                    "{} (layer {layer}) depends on {} (layer {}): dependencies point down",
                    one.package,
                    mention.word,
                    other.map_or("none".to_owned(), |n| n.to_string())
                );
                out.push(Finding::new(&one.path, mention.line, &text));
            }
        }
    }
    out
}

/// Reads a manifest line by line. A crate's name anywhere in a section of dependencies counts as an
/// edge, so that renaming (`package = "…"`) and every spelling of TOML tables are caught alike.
fn parse(path: &str, text: &str) -> Manifest {
    let mut manifest =
        Manifest { path: path.to_owned(), package: String::new(), layer: None, mentions: Vec::new() };
    let mut section = Section::Other;
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            section = classify(header.trim_end_matches(']'));
        } else if let Some((key, value)) = line.split_once('=') {
            match (section, key.trim()) {
                (Section::Package, "name") => manifest.package = value.trim().trim_matches('"').to_owned(),
                (Section::Layer, "layer") => manifest.layer = value.trim().parse().ok(),
                _ => {}
            }
        }
        if matches!(section, Section::Dependencies | Section::DevDependencies) {
            let words = line.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'));
            let words = words.filter(|word| !word.is_empty());
            manifest.mentions.extend(words.map(|word| Mention {
                line: i + 1,
                word: word.to_owned(),
                kind: section,
            }));
        }
    }
    manifest
}

/// `header` is what stands between the brackets of a table.
fn classify(header: &str) -> Section {
    let mut parts = header.split('.').map(str::trim);
    if header == "package" {
        Section::Package
    } else if header == "package.metadata.clearway" {
        Section::Layer
    } else if parts.clone().any(|part| part == "dev-dependencies") {
        Section::DevDependencies
    } else if parts.any(|part| part == "dependencies" || part == "build-dependencies") {
        Section::Dependencies
    } else {
        Section::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, layer: &str, rest: &str) -> (String, String) {
        let path = format!("crates/{name}/Cargo.toml");
        let layer = format!("[package.metadata.clearway]\nlayer = {layer}\n");
        (path, format!("[package]\nname = \"clearway-{name}\"\n{layer}{rest}"))
    }

    fn messages(manifests: &[(String, String)]) -> Vec<String> {
        check(manifests).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn downward_edges_pass() {
        let low = manifest("os", "1", "");
        let high = manifest("net", "3", "[dependencies]\nclearway-os.workspace = true\nbytes = \"1\"\n");
        assert_eq!(messages(&[low, high]), Vec::<String>::new());
    }

    #[test]
    fn upward_and_level_edges_fail() {
        let up = manifest("os", "1", "[dependencies]\nclearway-net = { path = \"../net\" }\n");
        let net = manifest("net", "3", "[dependencies.clearway-log]\nworkspace = true\n");
        let log = manifest("log", "3", "");
        assert_eq!(
            messages(&[up, net, log]),
            [
                "crates/os/Cargo.toml:6: clearway-os (layer 1) depends on clearway-net (layer 3): \
                 dependencies point down",
                "crates/net/Cargo.toml:5: clearway-net (layer 3) depends on clearway-log (layer 3): \
                 dependencies point down",
            ]
        );
    }

    #[test]
    fn renaming_hides_nothing() {
        let sneaky =
            "[target.'cfg(unix)'.dependencies]\nx = { package = \"clearway-net\", path = \"../net\" }\n";
        let found = messages(&[manifest("os", "1", sneaky), manifest("net", "3", "")]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn only_testkit_is_free_for_tests() {
        let tested = manifest(
            "os",
            "1",
            "[dev-dependencies]\nclearway-testkit.workspace = true\nclearway-net = \"1\"\n",
        );
        let found = messages(&[tested, manifest("testkit", "7", ""), manifest("net", "3", "")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("clearway-net"));
    }

    #[test]
    fn tests_may_run_a_crate_of_the_same_layer() {
        let serve = manifest("serve", "7", "");
        let level = "[dev-dependencies]\nclearway-serve.workspace = true\n";
        assert_eq!(messages(&[manifest("modules", "7", level), serve.clone()]), Vec::<String>::new());
        assert_eq!(messages(&[manifest("http", "6", level), serve]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_fails() {
        assert_eq!(messages(&[manifest("os", "x", "")]).len(), 1);
    }

    #[test]
    fn tools_stand_outside() {
        let tool = ("bench/Cargo.toml".to_owned(), "[package]\nname = \"clearway-bench\"\n".to_owned());
        assert_eq!(messages(&[tool]), Vec::<String>::new());
    }
}
