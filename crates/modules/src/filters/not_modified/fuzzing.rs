//! Invariants for any lists of tags, checked by the fuzz target `header_values`.

use super::{Comparison, is_listed};

/// The first line is the tag of a response, the rest the list of a request.
///
/// # Panics
/// If a tag is found that does not stand at the beginning of an item, or one that does is not.
pub fn check(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (tag, list) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    for comparison in [Comparison::Strong, Comparison::Weak] {
        assert_eq!(is_listed(list, None, comparison), list == b"*");
        let found = is_listed(list, Some(tag), comparison);
        // A tag of this form is not valid, and no item of a list equals it.
        if tag.contains(&b',') || bare(tag, comparison).first().is_some_and(u8::is_ascii_whitespace) {
            continue;
        }
        assert_eq!(found, list == b"*" || stands_in(list, tag, comparison));
        if !bare(tag, comparison).is_empty() {
            assert!(is_listed(&[tag, b" ,", list].concat(), Some(tag), comparison));
            assert!(is_listed(&[list, b", ", tag].concat(), Some(tag), comparison));
        }
    }
}

/// Looks at every place of the list where an item can begin.
fn stands_in(list: &[u8], tag: &[u8], comparison: Comparison) -> bool {
    let tag = bare(tag, comparison);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let is_start = |&at: &usize| {
        let before = &list[..at];
        let run = before.iter().rev().take_while(|byte| is_blank(byte) || **byte == b',').count();
        at == 0 || before[at - run..].contains(&b',')
    };
    (0..list.len()).filter(is_start).any(|at| {
        let behind = bare(&list[at..], comparison).strip_prefix(tag);
        let next = behind.map(|behind| behind.iter().find(|byte| !is_blank(byte)));
        !tag.is_empty() && matches!(next, Some(None | Some(b',')))
    })
}

fn bare(tag: &[u8], comparison: Comparison) -> &[u8] {
    if comparison == Comparison::Weak { tag.strip_prefix(b"W/").unwrap_or(tag) } else { tag }
}
