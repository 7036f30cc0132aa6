//! `autoindex` and `random_index` end to end: short and long directories, forms, what is refused.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use clearway_modules::content::autoindex::AUTOINDEX;
use clearway_modules::content::random_index::RANDOM_INDEX;

use crate::support::Site;

const SITE: &str = "
    types { text/plain txt; }
    server {
        listen 127.0.0.1:PORT;
        root ROOT;
        autoindex on;
        location /json/ { alias ROOT/dir/; autoindex_format json; }
        location /call/ { alias ROOT/dir/; autoindex_format jsonp; }
        location /xml/ { alias ROOT/dir/; autoindex_format xml; }
        location /random/ { alias ROOT/dir/; random_index on; }
        location /off/ { alias ROOT/dir/; autoindex off; }
    }
";

fn site() -> Site {
    Site::start_with(SITE, &[&RANDOM_INDEX, &AUTOINDEX])
}

/// The body of an answer, without the framing of chunks.
fn body(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    let mut body = String::new();
    loop {
        let (size, behind) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        body.push_str(&behind[..size]);
        rest = &behind[size + 2..];
    }
}

#[test]
fn what_is_in_a_directory() {
    let site = site();
    site.file("dir/b.txt", b"four").file("dir/sub/x", b"").file("dir/.hidden", b"").file("dir/<a>", b"");
    symlink("sub", site.root.join("dir/link")).unwrap();
    symlink("nowhere", site.root.join("dir/broken")).unwrap();
    let page = body(&site.get("/dir/"));
    let names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("<a href=\"")).collect();
    let expected = ["link/\">link/</a>", "sub/\">sub/</a>", "%3Ca%3E\">&lt;a&gt;</a>", "b.txt\"", "broken\""];
    assert_eq!(names.len(), expected.len(), "{page}");
    for (name, start) in names.iter().zip(expected) {
        assert!(name.starts_with(start), "{name} is not {start}");
    }
    assert!(page.starts_with("<html>\r\n<head><title>Index of /dir/</title></head>\r\n"), "{page}");
    let json = body(&site.get("/json/"));
    assert!(json.contains("{ \"name\":\"b.txt\", \"type\":\"file\", \"mtime\":\""), "{json}");
    assert!(json.contains(" GMT\", \"size\":4 },\r\n{ \"name\":\"broken\", \"type\":\"other\", "), "{json}");
    assert!(body(&site.get("/call/?callback=a.b")).starts_with("/* callback */\r\na.b([\r\n{ "));
    assert!(site.get("/call/?callback=a-b").starts_with("HTTP/1.1 400 "));
    site.expect_logged("[info] client sent invalid callback name: \"a-b\", client: ");
    assert!(site.get("/xml/").contains("Content-Type: text/xml; charset=utf-8\r\n"));
    assert!(site.get("/off/").starts_with("HTTP/1.1 403 "));
    assert!(site.get("/none/").starts_with("HTTP/1.1 404 "));
    site.expect_logged("[error] opendir() \"");
    site.expect_logged("/none\" failed (2: No such file or directory), client: ");
}

#[test]
fn a_long_list_comes_whole() {
    let site = site();
    let mut expected = BTreeSet::new();
    for number in 0..2000 {
        let name = format!("{number:04}-{}", "n".repeat(number % 100));
        site.file(&format!("dir/{name}"), b"");
        expected.insert(name);
    }
    let json = body(&site.get("/json/"));
    let name = |line: &str| {
        line.strip_prefix("{ \"name\":\"")?
            .split_once("\", \"type\":\"file\", \"")
            .map(|(name, _)| name.to_owned())
    };
    let names: Vec<_> = json.lines().filter_map(name).collect();
    assert!(names.iter().eq(expected.iter()), "in order, each once");
    assert!(json.starts_with("[\r\n{ ") && json.ends_with(" }\r\n]"));
    let page = body(&site.get("/dir/"));
    assert_eq!(page.lines().count(), 4 + 2000 + 2);
    assert!(page.ends_with("\r\n</pre><hr></body>\r\n</html>\r\n"));
}

#[test]
fn one_of_the_files_whichever() {
    let site = site();
    site.file("dir/a.txt", b"A").file("dir/b.txt", b"B").file("dir/.c", b"C").file("dir/sub/d", b"D");
    symlink("a.txt", site.root.join("dir/link")).unwrap();
    symlink("nowhere", site.root.join("dir/broken")).unwrap();
    let mut seen = BTreeSet::new();
    // With two in three for A, 300 requests without both have a probability of 10^-53.
    for _ in 0..300 {
        let answer = site.get("/random/");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        seen.insert(answer.split_once("\r\n\r\n").unwrap().1.to_owned());
        if seen.len() == 2 {
            break;
        }
    }
    assert!(seen.iter().eq(["A", "B"]), "{seen:?}");
}
