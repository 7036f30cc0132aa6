//! The index that the search of the book looks through: a JSON array with an entry for each heading. It is
//! assigned to a variable in a script, since pages that are opened as files may not fetch others.

use std::fmt::Write;

use super::Page;
use super::markdown::{headings, sections};

/// Of longer prose the rest is not looked through: entries are of one directive, or of one thought.
const PROSE_MAX_CHARS: usize = 600;

pub(super) fn index(pages: &[Page]) -> String {
    let mut entries = Vec::new();
    for page in pages {
        let headings = headings(&page.text);
        for (at, prose) in sections(&page.text) {
            let Some(heading) = headings.get(at) else { continue };
            let prose: String = prose.split_whitespace().collect::<Vec<_>>().join(" ");
            let prose: String = prose.chars().take(PROSE_MAX_CHARS).collect();
            let address = format!("{}#{}", page.address, heading.anchor);
            entries.push(format!(
                "[{},{},{},{}]",
                quoted(&address),
                quoted(&page.title),
                quoted(&heading.text),
                quoted(&prose)
            ));
        }
    }
    format!("window.SEARCH_INDEX = [\n{}\n];\n", entries.join(",\n"))
}

/// As a string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a String does not fail")
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_heading_is_an_entry() {
        let page = Page {
            source: "docs/x.md".to_owned(),
            address: "x.html".to_owned(),
            title: "X \"y\"".to_owned(),
            text: "# X \"y\"\nprose\n\n## Part\n\nmore `code`\n".to_owned(),
        };
        assert_eq!(
            index(&[page]),
            "window.SEARCH_INDEX = [\n[\"x.html#x-y\",\"X \\\"y\\\"\",\"X \\\"y\\\"\",\"prose\"],\n\
             [\"x.html#part\",\"X \\\"y\\\"\",\"Part\",\"more code\"]\n];\n"
        );
        assert_eq!(quoted("a\tb\\"), "\"a\\u0009b\\\\\"");
    }
}
