//! Broken configurations, and what nginx says about them.

mod nginx;

use clearway_conf::{Loader, Memory};
use std::path::Path;

struct Case<'a> {
    name: &'a str,
    files: Vec<(&'a str, Vec<u8>)>,
    message: &'a str,
}

#[test]
fn messages_are_those_of_nginx() {
    let text = include_str!("broken.cases");
    let cases: Vec<Case> = text.split("\n=== ").skip(1).map(case).collect();
    assert!(cases.len() > 120, "{} cases are read", cases.len());
    let failures: Vec<String> = cases.iter().filter_map(failure).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn case(text: &str) -> Case<'_> {
    let (name, rest) = text.split_once('\n').expect("a case has a text");
    let mut parts = rest.trim_end_matches('\n').split("\n--- ");
    let mut files = vec![("nginx.conf", expanded(parts.next().expect("split has a first part")))];
    let mut parts: Vec<&str> = parts.collect();
    let message = parts.pop().expect("a case has a message");
    for part in parts {
        let (head, text) = part.split_once('\n').unwrap_or((part, ""));
        files.push((head.strip_prefix("file ").expect("a part is a file"), expanded(text)));
    }
    Case { name, files, message }
}

/// Resolves `<x*N>`, `<cr>` and `<noeol>`; the line feed that parts a text from its successor is
/// its own.
fn expanded(text: &str) -> Vec<u8> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('<') {
        out.push_str(before);
        let (mark, behind) = behind.split_once('>').expect("a mark is closed");
        match (mark, mark.split_once('*')) {
            ("cr", _) => out.push('\r'),
            ("noeol", _) => return out.into_bytes(),
            (_, Some((byte, count))) => out.push_str(&byte.repeat(count.parse().expect("a count"))),
            _ => panic!("unknown mark {mark}"),
        }
        rest = behind;
    }
    out.push_str(rest);
    out.push('\n');
    out.into_bytes()
}

fn failure(case: &Case<'_>) -> Option<String> {
    let source: Memory = case.files.iter().map(|(name, text)| (format!("/p/{name}"), text.clone())).collect();
    let conf_file = Path::new("/p/nginx.conf");
    let tree = Loader::new(&source, conf_file).file(conf_file);
    let mut conf = nginx::Conf::default();
    let got = match nginx::table().run(&tree, nginx::MAIN, &mut conf, &mut Vec::new()) {
        Ok(()) => String::from("(no error)"),
        Err(error) => error.to_string(),
    };
    let expected = case.message.replace("CONF/", "/p/");
    (got != expected).then(|| format!("{}\n  expected {expected}\n  got      {got}", case.name))
}
