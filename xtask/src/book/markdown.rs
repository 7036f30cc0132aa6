//! Markdown as the manual uses it: to HTML with the anchors that GitHub gives headings, and its links,
//! headings and words.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// A link: where it leads, and its text.
pub(crate) struct Link {
    pub(crate) target: String,
    pub(crate) text: String,
}

/// A heading, with its anchor.
pub(crate) struct Heading {
    pub(crate) text: String,
    pub(crate) anchor: String,
}

fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// All links, in order.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let (mut out, mut open): (Vec<Link>, bool) = (Vec::new(), false);
    for event in parser(text) {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) => {
                open = true;
                out.push(Link { target: dest_url.into_string(), text: String::new() });
            }
            Event::End(TagEnd::Link) => open = false,
            Event::Text(part) | Event::Code(part) if open => {
                if let Some(link) = out.last_mut() {
                    link.text.push_str(&part);
                }
            }
            _ => {}
        }
    }
    out
}

/// The headings, in order.
pub(crate) fn headings(text: &str) -> Vec<Heading> {
    let (mut out, mut open): (Vec<Heading>, Option<String>) = (Vec::new(), None);
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => open = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(text) = &mut open {
                    text.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                if let Some(text) = open.take() {
                    let anchor = unused_anchor(&text, &out);
                    out.push(Heading { text, anchor });
                }
            }
            _ => {}
        }
    }
    out
}

/// The anchors of all headings.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    headings(text).into_iter().map(|heading| heading.anchor).collect()
}

/// A heading's anchor by GitHub's rule; a number behind it where an earlier heading has the same text.
fn unused_anchor(text: &str, before: &[Heading]) -> String {
    let kept = text.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
    match before.iter().filter(|heading| heading.text == text).count() {
        0 => anchor,
        nth => format!("{anchor}-{nth}"),
    }
}

/// As HTML: headings have anchors, and links lead to what `address` makes of their targets.
pub(crate) fn to_html(text: &str, address: &dyn Fn(&str) -> String) -> String {
    let mut anchors = anchors(text).into_iter();
    let events = parser(text).map(|event| match event {
        Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
            let id = anchors.next().map(CowStr::from);
            Event::Start(Tag::Heading { level, id, classes, attrs })
        }
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let dest_url = address(&dest_url).into();
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        other => other,
    });
    let mut out = String::with_capacity(text.len() * 2);
    html::push_html(&mut out, events);
    out
}

/// The prose of each heading, for the search: its heading's number, and its text without markup.
pub(crate) fn sections(text: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let (mut number, mut in_heading) = (0, false);
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                (in_heading, number) = (true, out.len());
                out.push((number, String::new()));
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Text(part) | Event::Code(part) if !in_heading => {
                if let Some((_, text)) = out.last_mut() {
                    text.push_str(&part);
                }
            }
            Event::SoftBreak | Event::HardBreak | Event::End(_) => {
                if let Some((_, text)) = out.last_mut() {
                    text.push(' ');
                }
            }
            _ => {}
        }
    }
    debug_assert!(out.is_empty() || number + 1 == out.len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# My server is slow\n\n## `limit_req_zone`\n\n## A, b (c)\n\n## Twice\n\n## Twice\n";
        assert_eq!(anchors(text), ["my-server-is-slow", "limit_req_zone", "a-b-c", "twice", "twice-1"]);
    }

    #[test]
    fn links_and_headings_are_addressed() {
        let html = to_html("# A b\n[x](y.md)\n", &|target| target.replace(".md", ".html"));
        assert!(html.contains("<h1 id=\"a-b\">A b</h1>\n<p><a href=\"y.html\">"), "{html}");
    }

    #[test]
    fn prose_belongs_to_the_heading_above_it() {
        let sections = sections("# A\none\ntwo\n## B `c`\n`three`\n");
        let texts: Vec<&str> = sections.iter().map(|(_, text)| text.trim()).collect();
        assert_eq!(texts, ["one two", "three"]);
    }
}
