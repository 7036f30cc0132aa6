//! The manual as a book of HTML: the files of `docs/` in the order of its README, and those of the root that
//! it links to, with a list of pages beside each and a search that needs no server.

pub(crate) mod markdown;
mod search;

use std::path::{Component, Path, PathBuf};

use markdown::{Link, headings, links, to_html};

use crate::run::{Outcome, Step, root, target_dir};

/// The page that lists all others, in their order.
const CONTENTS: &str = "docs/README.md";

/// A file of the book.
struct Page {
    /// From the root of the repository.
    source: String,
    /// From the directory of the book.
    address: String,
    title: String,
    text: String,
}

pub(crate) fn command() -> Outcome {
    let pages = read()?;
    let out = target_dir().join("book");
    let contents = pages.first().ok_or("the book has no pages")?;
    let list: Vec<Link> = links(&contents.text);
    for page in &pages {
        write(&out.join(&page.address), &page_html(page, &list, &pages))?;
    }
    write(&out.join("style.css"), include_str!("style.css"))?;
    write(&out.join("search.js"), include_str!("search.js"))?;
    write(&out.join("search-index.js"), &search::index(&pages))?;
    eprintln!("{} pages in {}", pages.len(), out.join("index.html").display());
    Ok(())
}

fn write(path: &Path, text: &str) -> Outcome {
    let dir = path.parent().unwrap_or(path);
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// The page of contents, then all others by name.
fn read() -> Result<Vec<Page>, String> {
    let list = Step::new("git ls-files --cached --others --exclude-standard docs/*.md *.md").output()?;
    let list = String::from_utf8_lossy(&list).into_owned();
    let of_book = |path: &&str| path.starts_with("docs/") || !path.contains('/');
    let sources = list.lines().filter(of_book).filter(|path| *path != CONTENTS);
    std::iter::once(CONTENTS).chain(sources).map(page).collect()
}

fn page(source: &str) -> Result<Page, String> {
    let text = std::fs::read_to_string(root().join(source)).map_err(|e| format!("{source}: {e}"))?;
    let title = headings(&text).into_iter().next().map_or_else(|| source.to_owned(), |first| first.text);
    Ok(Page { source: source.to_owned(), address: address(source), title, text })
}

/// Where a file of the repository stands in the book.
fn address(source: &str) -> String {
    let path = match source.strip_prefix("docs/") {
        Some("README.md") => return "index.html".to_owned(),
        Some(inside) => inside.to_owned(),
        None => format!("project/{source}"),
    };
    format!("{}.html", path.trim_end_matches(".md"))
}

/// From one page of the book to where a link of its source leads; what is not in the book stays as it is.
fn followed(page: &Page, target: &str, pages: &[Page]) -> String {
    let (path, anchor) =
        target.split_once('#').map_or((target, ""), |(path, _)| (path, &target[path.len()..]));
    let dir = Path::new(&page.source).parent().unwrap_or(Path::new(""));
    let source = plain(&dir.join(path)).to_string_lossy().into_owned();
    match pages.iter().find(|other| !path.is_empty() && other.source == source) {
        Some(other) => format!("{}{}{anchor}", up(page), other.address),
        None => target.to_owned(),
    }
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// From a page to the directory of the book.
fn up(page: &Page) -> String {
    "../".repeat(page.address.matches('/').count())
}

fn page_html(page: &Page, list: &[Link], pages: &[Page]) -> String {
    let up = up(page);
    let items = list.iter().filter_map(|link| {
        let listed = plain(&Path::new("docs").join(&link.target)).to_string_lossy().into_owned();
        let other = pages.iter().find(|other| other.source == listed)?;
        let here = if other.source == page.source { " class=\"here\"" } else { "" };
        Some(format!("<li><a{here} href=\"{up}{}\">{}</a></li>\n", other.address, escaped(&link.text)))
    });
    let items: String = items.collect();
    let body = to_html(&page.text, &|target| followed(page, target, pages));
    let title = escaped(&page.title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} · Clearway</title>\n\
         <link rel=\"stylesheet\" href=\"{up}style.css\">\n</head>\n<body data-up=\"{up}\">\n<nav>\n\
         <a href=\"{up}index.html\"><b>Clearway</b></a>\n\
         <input id=\"search\" type=\"search\" placeholder=\"Search\" aria-label=\"Search\">\n\
         <ol id=\"found\"></ol>\n<ul>\n{items}</ul>\n</nav>\n<main>\n{body}</main>\n\
         <script src=\"{up}search-index.js\"></script>\n<script src=\"{up}search.js\"></script>\n\
         </body>\n</html>\n"
    )
}

/// Text as it stands in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Page {
        Page {
            source: source.to_owned(),
            address: address(source),
            title: "T".to_owned(),
            text: String::new(),
        }
    }

    #[test]
    fn links_lead_to_pages_of_the_book() {
        let sources = ["docs/README.md", "docs/tls.md", "docs/modules/core.md", "CONTRIBUTING.md"];
        let pages: Vec<Page> = sources.into_iter().map(of).collect();
        for (from, target, address) in [
            (0, "tls.md", "tls.html"),
            (0, "modules/core.md#listen", "modules/core.html#listen"),
            (2, "../tls.md#a", "../tls.html#a"),
            (2, "../README.md", "../index.html"),
            (1, "../CONTRIBUTING.md", "project/CONTRIBUTING.html"),
            (3, "docs/tls.md", "../tls.html"),
            (1, "#here", "#here"),
            (1, "https://example.com/a.md", "https://example.com/a.md"),
        ] {
            assert_eq!(followed(&pages[from], target, &pages), address, "{target} of {}", pages[from].source);
        }
    }

    #[test]
    fn a_page_has_the_list_of_all_pages_beside_it() {
        let pages = [of("docs/README.md"), of("docs/modules/core.md")];
        let list = [Link { target: "modules/core.md".to_owned(), text: "The <core>".to_owned() }];
        let html = page_html(&pages[1], &list, &pages);
        assert!(
            html.contains("<li><a class=\"here\" href=\"../modules/core.html\">The &lt;core></a></li>"),
            "{html}"
        );
        assert!(html.contains("href=\"../style.css\"") && html.contains("src=\"../search.js\""));
    }
}
