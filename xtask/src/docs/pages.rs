//! Pages of modules: a part written by hand, and below a mark the part that the binary prints.

use super::PAGES;
use crate::run::root;

/// How the generated part begins, whatever follows in the line.
const MARK: &str = "<!-- Below: generated";

/// Sections that a page has above the mark.
const SECTIONS: [&str; 2] = ["\n## Example\n", "\n## Limits and bad input\n"];

/// Each page with its generated part brought up to date. `printed` has a form feed before each, then its name
/// in a line.
pub(super) fn merged(printed: &str) -> Result<Vec<(String, String)>, String> {
    let mut files = Vec::new();
    for page in printed.split('\x0c').skip(1) {
        let (name, generated) = page.split_once('\n').ok_or("a page without a name")?;
        let path = format!("{PAGES}/{name}.md");
        let own = std::fs::read_to_string(root().join(&path)).unwrap_or_else(|_| format!("# {name}\n\n"));
        files.push((path, merge(&own, generated)));
    }
    let unknown = std::fs::read_dir(root().join(PAGES)).map_err(|e| format!("{PAGES}: {e}"))?;
    for entry in unknown.flatten() {
        let path = format!("{PAGES}/{}", entry.file_name().to_string_lossy());
        if !files.iter().any(|(known, _)| *known == path) {
            return Err(format!("{path}: no module has that page"));
        }
    }
    Ok(files)
}

fn merge(own: &str, generated: &str) -> String {
    let own = own.find(MARK).map_or(own, |at| &own[..at]);
    format!("{}\n\n{generated}", own.trim_end())
}

/// What pages of modules lack: a title, an example with a request, or what their limits are.
pub(super) fn incomplete(files: &[(String, String)]) -> Vec<String> {
    let pages = files.iter().filter(|(path, _)| path.starts_with(PAGES));
    pages
        .flat_map(|(path, text)| missing(text).into_iter().map(move |what| format!("{path}: {what}")))
        .collect()
}

fn missing(text: &str) -> Vec<String> {
    let own = text.find(MARK).map_or(text, |at| &text[..at]);
    let sections = SECTIONS.iter().filter(|section| !own.contains(*section));
    let mut out: Vec<String> =
        sections.map(|section| format!("has no section {:?}", section.trim())).collect();
    for (fence, what) in [("\n```nginx\n", "no configuration"), ("\n```console\n", "no request")] {
        if !own.contains(fence) {
            out.push(format!("its example has {what}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_the_mark_is_replaced() {
        let own = "# x\n\nText.\n\n<!-- Below: generated, of old -->\n\nold\n";
        assert_eq!(
            merge(own, "<!-- Below: generated -->\nnew\n"),
            "# x\n\nText.\n\n<!-- Below: generated -->\nnew\n"
        );
        assert_eq!(merge("# x\n", "new\n"), "# x\n\nnew\n");
    }

    #[test]
    fn a_page_wants_an_example_that_is_asked_and_its_limits() {
        let whole =
            "# x\n\n## Example\n\n```nginx\n```\n\n```console\n```\n\n## Limits and bad input\n\nNone.\n";
        assert_eq!(missing(whole), [""; 0]);
        assert_eq!(missing(&whole.replace("console", "text")), ["its example has no request"]);
        assert_eq!(missing("# x\n").len(), 4);
        assert_eq!(missing(&format!("# x\n{MARK}{whole}")).len(), 4, "the generated part does not count");
    }
}
